//! The stored formats between stage and settle: manifests, notes and plans. Each has a version and refuses unknown keys.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::name::{BatchId, TableName};
use crate::offsets;
use crate::schema::Contract;

/// Where a batch's records came from: one version of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileVersion {
    /// Path below the landing zone, with `/`.
    pub path: String,
    /// The store's etag (locally inode, size, mtime and ctime), without quotes.
    pub etag: String,
    /// Size in bytes, as stored (compressed).
    pub bytes: u64,
    /// The store's time of the last change.
    pub last_modified: DateTime<Utc>,
    /// Event Grid's sequencer, when an event brought one: orders versions of one path, compared as text.
    pub sequencer: Option<String>,
}

/// A piece of a change stream: consecutive records of one partition, none left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamRange {
    /// The topic, or the event hub.
    pub topic: String,
    /// Its incarnation, as the contract declared it then.
    pub epoch: Option<String>,
    /// The partition.
    pub partition: i32,
    /// Offset of the first record.
    pub first: i64,
    /// Offset of the last record.
    pub last: i64,
    /// Size of the events in bytes.
    pub bytes: u64,
    /// The newest time stamp of its records.
    pub newest: Option<DateTime<Utc>>,
}

impl std::fmt::Display for StreamRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { topic, partition, first, last, .. } = self;
        write!(f, "{topic}/{partition} offsets {first} to {last}")
    }
}

/// Where a batch's records came from. Displayed for people: a path, or a topic and offsets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BatchSource {
    /// One version of one landed file.
    File(FileVersion),
    /// A delivered piece of a stream.
    Stream(StreamRange),
}

impl BatchSource {
    /// The file version, if it is one.
    #[must_use]
    pub const fn file(&self) -> Option<&FileVersion> {
        match self {
            Self::File(version) => Some(version),
            Self::Stream(_) => None,
        }
    }

    /// The piece of a stream, if it is one.
    #[must_use]
    pub const fn range(&self) -> Option<&StreamRange> {
        match self {
            Self::File(_) => None,
            Self::Stream(range) => Some(range),
        }
    }

    /// The landed path, if it is a file.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.file().map(|version| version.path.as_str())
    }

    /// Size in bytes: of the file as it is stored, or of the events.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::File(version) => version.bytes,
            Self::Stream(range) => range.bytes,
        }
    }

    /// When the file was last changed, or the newest time stamp of the records.
    #[must_use]
    pub const fn modified(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::File(version) => Some(version.last_modified),
            Self::Stream(range) => range.newest,
        }
    }
}

impl From<FileVersion> for BatchSource {
    fn from(version: FileVersion) -> Self {
        Self::File(version)
    }
}

impl From<StreamRange> for BatchSource {
    fn from(range: StreamRange) -> Self {
        Self::Stream(range)
    }
}

impl std::fmt::Display for BatchSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(version) => f.write_str(&version.path),
            Self::Stream(range) => range.fmt(f),
        }
    }
}

/// Offsets of a piece of a stream whose records reach no other table, as intervals: so that the row arithmetic of a part of
/// it is known without its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apart {
    /// Records that are no events.
    pub quarantined: Vec<(i64, i64)>,
    /// Records that change no row.
    pub ignored: Vec<(i64, i64)>,
}

impl Apart {
    /// The row arithmetic of the records at some offsets.
    #[must_use]
    pub fn counts(&self, kept: &[(i64, i64)]) -> Counts {
        let rows = offsets::count(kept);
        let of = |apart: &[(i64, i64)]| offsets::count_common(kept, apart);
        Counts { rows_in: rows, loaded: rows, quarantined: of(&self.quarantined), ignored: of(&self.ignored) }
    }
}

/// What became of a batch or a file version. DESIGN section 1, ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Its good rows are in the table.
    Loaded,
    /// It had no records.
    Empty,
    /// The same content is in the table already.
    Duplicate,
    /// A newer version took its place.
    Superseded,
    /// Left out by pattern or policy.
    Ignored,
    /// Refused whole.
    Refused,
    /// Not terminal: it was not there when it was read.
    Missing,
    /// Not terminal: it could not be processed.
    Failed,
}

impl Status {
    /// Whether nothing more will happen to a batch with this status.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Missing | Self::Failed)
    }

    /// Whether a version with this status stands for its path (its content is what the table shows for the path).
    #[must_use]
    pub const fn stands(self) -> bool {
        matches!(self, Self::Loaded | Self::Empty | Self::Duplicate)
    }

    /// The word stored in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Empty => "empty",
            Self::Duplicate => "duplicate",
            Self::Superseded => "superseded",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
            Self::Missing => "missing",
            Self::Failed => "failed",
        }
    }
}

impl std::str::FromStr for Status {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        serde_json::from_value(serde_json::Value::String(text.to_owned()))
            .map_err(|_| Error::corrupt(format!("`{text}` is no ledger status")))
    }
}

/// Records in = loaded + quarantined + ignored, for one batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Records read.
    pub rows_in: u64,
    /// Rows that enter the table.
    pub loaded: u64,
    /// Records kept in quarantine.
    pub quarantined: u64,
    /// Records left out by declaration.
    pub ignored: u64,
}

impl Counts {
    /// Asserts the row arithmetic.
    pub fn balanced(&self, what: impl std::fmt::Display) -> Result<()> {
        if self.rows_in == self.loaded + self.quarantined + self.ignored {
            return Ok(());
        }
        Err(Error::internal(format!(
            "{what}: {} records in, but {} loaded + {} quarantined + {} ignored",
            self.rows_in, self.loaded, self.quarantined, self.ignored
        )))
    }

    /// The arithmetic of a table that keeps every change event: all are loaded; `quarantined` and `ignored` count those that
    /// reach no other table.
    pub fn all_kept(&self, what: impl std::fmt::Display) -> Result<()> {
        if self.rows_in == self.loaded && self.quarantined + self.ignored <= self.loaded {
            return Ok(());
        }
        Err(Error::internal(format!(
            "{what}: {} events in, {} kept, of which {} quarantined and {} ignored",
            self.rows_in, self.loaded, self.quarantined, self.ignored
        )))
    }
}

/// How a staged file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StagedFormat {
    /// Arrow IPC stream in `_alluvium/staged`.
    Arrow,
    /// Final Parquet in the table's own folder.
    Parquet,
}

/// One staged data file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedFile {
    /// Path below the lake's root.
    pub path: String,
    /// How it is stored.
    pub format: StagedFormat,
    /// Rows in it.
    pub rows: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Partition values (Delta's text form) of a Parquet file.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// Delta statistics (JSON) of a Parquet file.
    pub stats: Option<String>,
}

/// What a batch takes out of quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redrive {
    /// The batch whose records these are.
    pub of: BatchId,
    /// Their numbers, ascending; none for a file that was refused whole.
    pub records: Vec<i64>,
}

impl Redrive {
    /// Whether a file that was refused whole is read again.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.records.is_empty()
    }
}

/// One staged batch: put if absent, never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Format version, 1.
    pub version: u32,
    /// The table.
    pub table: TableName,
    /// The table's Delta metadata id.
    pub table_id: String,
    /// The batch.
    pub batch_id: BatchId,
    /// Its generation: how often it was staged anew.
    pub generation: u32,
    /// Where it was read from.
    pub source: BatchSource,
    /// SHA-256 (hex) of the file's bytes as stored; none when it was not read to the end.
    pub sha256: Option<String>,
    /// The contract it was read under.
    pub contract_hash: String,
    /// What the worker found: `loaded`, `empty`, `superseded`, `ignored` or `refused`.
    pub status: Status,
    /// Why, for statuses that need a reason.
    pub reason: Option<String>,
    /// The row arithmetic.
    pub counts: Counts,
    /// Of a piece of a stream: which of its records reach no other table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
    /// Columns to be added to the table (`unknown_columns: add`), as nullable strings.
    pub add_columns: Vec<String>,
    /// Staged rows.
    pub files: Vec<StagedFile>,
    /// Staged quarantine rows (Arrow).
    pub rejects: Option<StagedFile>,
    /// What it takes out of quarantine, when it is a redrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive: Option<Redrive>,
    /// When the batch was first seen.
    pub first_seen: DateTime<Utc>,
    /// When it was staged.
    pub staged_at: DateTime<Utc>,
}

impl Manifest {
    /// What says of a batch only what became of it, and brings no rows.
    #[must_use]
    pub fn without_rows(
        contract: &Contract,
        table_id: &str,
        (batch_id, generation): (BatchId, u32),
        source: BatchSource,
        (status, reason): (Status, &str),
        now: DateTime<Utc>,
    ) -> Self {
        Self {
            version: 1,
            table: contract.table.clone(),
            table_id: table_id.to_owned(),
            batch_id,
            generation,
            source,
            sha256: None,
            contract_hash: contract.hash.clone(),
            status,
            reason: Some(reason.to_owned()),
            counts: Counts::default(),
            apart: None,
            add_columns: Vec::new(),
            files: Vec::new(),
            rejects: None,
            redrive: None,
            first_seen: now,
            staged_at: now,
        }
    }
}

/// A non-terminal fact about a batch (`missing` or `failed`), beside the generations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Format version, 1.
    pub version: u32,
    /// The table.
    pub table: TableName,
    /// The batch.
    pub batch_id: BatchId,
    /// Where it comes from, as far as it is known.
    pub source: BatchSource,
    /// `missing` or `failed`.
    pub status: Status,
    /// Why, with the remedy.
    pub reason: String,
    /// Whether the cause may pass by itself (a storage outage).
    pub transient: bool,
    /// The contract in force.
    pub contract_hash: String,
    /// How often delivery was tried, as far as is known.
    pub attempts: u32,
    /// When.
    pub at: DateTime<Utc>,
}

/// Everything one commit does and everything that settling it needs. Private to the attempt that wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Format version, 1.
    pub version: u32,
    /// The table.
    pub table: TableName,
    /// The table's Delta metadata id.
    pub table_id: String,
    /// This plan's number: max(last + 1, now in microseconds).
    pub number: i64,
    /// The plan number that the table carried when this one was made; 0 for none.
    pub prev: i64,
    /// The contract in force.
    pub contract_hash: String,
    /// Ledger rows to append, in order.
    pub rows: Vec<PlannedRow>,
    /// When the plan was made.
    pub made_at: DateTime<Utc>,
}

/// One batch of a plan: its manifest (or note) and what it is decided to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRow {
    /// The batch.
    pub batch_id: BatchId,
    /// The generation whose manifest is settled; none for a note.
    pub generation: Option<u32>,
    /// Note objects (paths below the lake's root) that this row settles.
    pub notes: Vec<String>,
    /// Where it comes from.
    pub source: BatchSource,
    /// Of a piece of a stream of which only a part is new: the offsets that this plan commits, as intervals. None: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Vec<(i64, i64)>>,
    /// SHA-256 of the content.
    pub sha256: Option<String>,
    /// The contract that the batch was read under.
    pub contract_hash: String,
    /// The decision.
    pub status: Status,
    /// Why.
    pub reason: Option<String>,
    /// The row arithmetic as it enters the ledger (all zero for 0-row statuses).
    pub counts: Counts,
    /// Staged rows to commit; empty unless `loaded`.
    pub files: Vec<StagedFile>,
    /// Staged rejects to append to quarantine; none when this row adds none.
    pub rejects: Option<StagedFile>,
    /// What it takes out of quarantine, when it is a redrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive: Option<Redrive>,
    /// Staged files to delete when settled (rows and rejects in `_alluvium/staged`, never in the table's folder).
    pub sweep: Vec<String>,
    /// Columns to be added to the table.
    pub add_columns: Vec<String>,
    /// Delivery attempts, as far as they are known.
    pub attempts: u32,
    /// When the batch was first seen.
    pub first_seen: DateTime<Utc>,
}

impl PlannedRow {
    /// The batch that the rows are of: a redrive brings rows of an earlier one.
    #[must_use]
    pub fn rows_of(&self) -> &BatchId {
        self.redrive.as_ref().map_or(&self.batch_id, |redrive| &redrive.of)
    }

    /// Whether it brings single records of a version whose other records are in the table already.
    #[must_use]
    pub fn brings_single_records(&self) -> bool {
        self.redrive.as_ref().is_some_and(|redrive| !redrive.is_whole())
    }
}
