//! Delta tables: open, create, snapshot, read, write, commit. The only folder that names `deltalake`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use chrono::{DateTime, Utc};
use datafusion::catalog::TableProvider;
use futures::stream::BoxStream;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::store::Store;

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
pub struct Table {}

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
#[derive(Debug, Clone)]
pub struct Snapshot {}

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

impl Table {
    /// Opens the table in `folder` below the store's root; none when there is no table.
    pub async fn open(_store: &Store, _folder: &str) -> Result<Option<Self>> {
        todo!()
    }

    /// Creates the table empty, or opens it when somebody did before.
    pub async fn create(_store: &Store, _folder: &str, _spec: &TableSpec) -> Result<Self> {
        todo!()
    }

    /// The newest snapshot, updated incrementally from the last one.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        todo!()
    }

    /// An older snapshot. The error names the oldest readable version when it cannot be read any more.
    pub async fn snapshot_at(&self, _at: At) -> Result<Snapshot> {
        todo!()
    }

    /// The commit rule: at exactly `base.version() + 1`, or not at all.
    pub async fn commit(&self, _base: &Snapshot, _change: Change) -> Result<Outcome> {
        todo!()
    }

    /// What changed after version `after` up to `upto`; none when the log between them can no longer be read.
    pub async fn changes(&self, _after: i64, _upto: &Snapshot) -> Result<Option<Changes>> {
        todo!()
    }

    /// The newest `limit` versions, newest first.
    pub async fn history(&self, _limit: Option<usize>) -> Result<Vec<HistoryEntry>> {
        todo!()
    }

    /// Writes a checkpoint of the newest version.
    pub async fn checkpoint(&self) -> Result<()> {
        todo!()
    }
}

impl Snapshot {
    /// The version.
    #[must_use]
    pub fn version(&self) -> i64 {
        todo!()
    }

    /// When this version was committed, as far as the log says.
    #[must_use]
    pub fn committed_at(&self) -> Option<DateTime<Utc>> {
        todo!()
    }

    /// The Delta metadata id.
    #[must_use]
    pub fn table_id(&self) -> &str {
        todo!()
    }

    /// The table's folder below the store's root.
    #[must_use]
    pub fn folder(&self) -> &str {
        todo!()
    }

    /// All columns in table order, partition columns included.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        todo!()
    }

    /// Partition columns.
    #[must_use]
    pub fn partition_by(&self) -> &[String] {
        todo!()
    }

    /// Table properties.
    #[must_use]
    pub fn properties(&self) -> &BTreeMap<String, String> {
        todo!()
    }

    /// The version that an application last committed with; none when it never did.
    pub async fn txn(&self, _app_id: &str) -> Result<Option<i64>> {
        todo!()
    }

    /// All application transactions.
    pub async fn txns(&self) -> Result<BTreeMap<String, i64>> {
        todo!()
    }

    /// Live files.
    pub fn files(&self) -> Result<Arc<Vec<DataFile>>> {
        todo!()
    }

    /// A DataFusion table over the given files (all live ones when none are given), with partition columns filled in,
    /// columns absent from a file as null, and files pruned by partition values and statistics.
    pub fn provider(&self, _files: Option<Vec<DataFile>>) -> Result<Arc<dyn TableProvider>> {
        todo!()
    }

    /// The rows of one file in file order, with the given columns (all in table order when none are given).
    pub async fn read(
        &self,
        _file: &DataFile,
        _columns: Option<&[String]>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        todo!()
    }
}

/// Sizes of what a [`Writer`] makes.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// A file is closed when it has reached about this many bytes.
    pub target_bytes: u64,
    /// Most bytes that all open files together hold in memory.
    pub memory_bytes: u64,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { target_bytes: 128 << 20, memory_bytes: 256 << 20 }
    }
}

/// Writes rows as Parquet files into a table's folder, one or more for each partition value, under fresh names. The files
/// belong to no version until they are committed.
pub struct Writer {}

impl Writer {
    /// A writer for rows of `schema` (partition columns included, which go into the paths).
    pub fn new(
        _store: &Store,
        _folder: &str,
        _schema: SchemaRef,
        _partition_by: &[String],
        _options: WriterOptions,
        _clock: Arc<dyn crate::clock::Clock>,
    ) -> Self {
        todo!()
    }

    /// Adds rows; columns are matched by name and must have the schema's types (see [`conform`]).
    pub async fn write(&mut self, _batch: &RecordBatch) -> Result<()> {
        todo!()
    }

    /// Closes all files and gives them back, ready for [`Change::adds`].
    pub async fn finish(self) -> Result<Vec<DataFile>> {
        todo!()
    }
}

/// Maps a batch by column name to `schema`: absent nullable columns become null, lossless widening is applied
/// (int32 -> int64, decimal(10,2) -> decimal(12,4)); anything else is an error that names the column.
pub fn conform(_batch: &RecordBatch, _schema: &SchemaRef) -> Result<RecordBatch> {
    todo!()
}
