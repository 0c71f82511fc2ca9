//! Delta tables: open, create, snapshot, read, write, commit. The only folder that names `deltalake`.
//!
//! `deltalake` reads a version when a table is opened, checkpoints included (protocol, metadata, live files, application
//! transactions), writes the checkpoints, and its schema model gives the stored form of schemas. Ours is the exactly-once
//! commit at one version after a known one and the fold of the commits that follow an opened version, because `deltalake`
//! rebases commits by itself and replays all files for each new version, and because its action types refuse actions they
//! do not know and lose how a path is spelled, which a removal has to repeat.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::store::Store;

mod changes;
mod checkpoint;
mod commit;
mod compact;
mod conform;
pub mod engine;
mod history;
mod load;
mod log;
mod logstore;
mod open;
mod partition;
mod protocol;
mod provider;
mod prune;
mod read;
mod schema;
mod snapshot;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod upkeep;
mod widen;
mod write;

pub use compact::{CompactOptions, CompactReport, compact};
pub use conform::{conform, same_type, widens};
pub use logstore::Log;
pub use upkeep::{LogFile, LogKind};
pub use widen::widen;
pub use write::{Writer, WriterOptions};

/// What a table is when it is created.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// All columns in order, partition columns included.
    pub schema: SchemaRef,
    /// Partition columns, in order.
    pub partition_by: Vec<String>,
    /// Delta table properties.
    pub properties: BTreeMap<String, String>,
    /// For people.
    pub description: Option<String>,
}

/// A handle to a table that keeps its newest snapshot and updates it incrementally. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Table {
    inner: Arc<open::Inner>,
}

/// A point in a table's life.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// A version.
    Version(i64),
    /// The newest version committed at or before an instant.
    Instant(DateTime<Utc>),
}

/// What is known after a commit was tried.
#[derive(Debug)]
pub enum Outcome {
    /// The commit is version `base + 1`.
    Committed(Snapshot),
    /// Refused or unknown: read the log again.
    Unknown(Error),
}

/// One version of a table, read once: decide from it, commit against it. Cheap to clone.
#[derive(Clone)]
pub struct Snapshot {
    store: Store,
    state: Arc<state::State>,
}

/// A live data file of a snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFile {
    /// Path below the table's folder, decoded.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Delta's modification time, milliseconds since 1970.
    pub modified_ms: i64,
    /// Partition values in Delta's text form; none is null.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// Rows, if the statistics say.
    pub rows: Option<u64>,
    /// Delta statistics as JSON text.
    pub stats: Option<String>,
}

/// What one commit does. All of it becomes visible at once, at the base snapshot's version + 1, or nothing.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Delta operation name for the history, such as `WRITE`.
    pub operation: String,
    /// New files, already written.
    pub adds: Vec<DataFile>,
    /// Files that leave the table.
    pub removes: Vec<DataFile>,
    /// Application transactions (app id, version) to set.
    pub txns: Vec<(String, i64)>,
    /// False for rearrangements such as compaction that change no row.
    pub rearrange_only: bool,
    /// A new schema (columns added or widened), when it changes.
    pub schema: Option<SchemaRef>,
    /// Properties to set.
    pub properties: BTreeMap<String, String>,
    /// What the history shows beside the operation.
    pub info: Map<String, Value>,
}

/// Files that came and went between two versions, by changes of rows (compaction does not count).
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Files added and not removed again since.
    pub added: Vec<DataFile>,
    /// Files that were live before and are no more.
    pub removed: Vec<DataFile>,
}

/// One line of a table's history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    /// The version.
    pub version: i64,
    /// When it was committed.
    pub at: Option<DateTime<Utc>>,
    /// The operation.
    pub operation: String,
    /// The rest of commitInfo.
    pub info: Map<String, Value>,
}
