//! Compaction: small files of a partition become few large ones, without changing a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use serde::Serialize;
use serde_json::{Map, json};

use super::{Change, DataFile, Outcome, Snapshot, Table, Writer, WriterOptions, conform};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Tries against other writers before giving up.
const ATTEMPTS: usize = 5;

/// A commit rewrites about this many bytes at most: a longer one would rather lose against other writers.
const COMMIT_BYTES: u64 = 2 << 30;

/// How a compaction goes about it.
#[derive(Debug, Clone, Copy)]
pub struct CompactOptions {
    /// Size of the files that are made, in bytes.
    pub target_bytes: u64,
    /// Most bytes that the writer holds in memory.
    pub memory_bytes: u64,
    /// No further commit is begun after this.
    pub deadline: Option<DateTime<Utc>>,
}

impl CompactOptions {
    /// To files of this size, however long it takes.
    #[must_use]
    pub fn to(target_bytes: u64) -> Self {
        Self { target_bytes, memory_bytes: WriterOptions::default().memory_bytes, deadline: None }
    }
}

/// What a compaction did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// The version that it committed.
    pub version: i64,
    /// Small files that are gone from the table.
    pub files_before: usize,
    /// Files that hold their rows now.
    pub files_after: usize,
    /// Bytes of the small files.
    pub bytes_before: u64,
    /// Bytes of the new files.
    pub bytes_after: u64,
    /// Rows that were rewritten.
    pub rows: u64,
}

/// Rewrites files much smaller than the target into files of about that size, partition by partition, in commits that
/// change no row, each of a bounded size. None when there is nothing to gain. Gives up with a conflict when other writers
/// are always quicker; what was committed before stays.
pub async fn compact(table: &Table, options: CompactOptions, clock: Arc<dyn Clock>) -> Result<Option<CompactReport>> {
    let mut total: Option<CompactReport> = None;
    let mut lost = 0;
    loop {
        if options.deadline.is_some_and(|deadline| clock.now() >= deadline) {
            return Ok(total);
        }
        let snapshot = table.snapshot().await?;
        let small = choose(&snapshot, options.target_bytes)?;
        if small.is_empty() {
            return Ok(total);
        }
        match attempt(table, &snapshot, small, options, &clock).await? {
            Attempt::Done(report) => {
                lost = 0;
                total = Some(match total {
                    Some(before) => before.and(&report),
                    None => report,
                });
            }
            Attempt::Again(error) => {
                lost += 1;
                if lost == ATTEMPTS {
                    let text = format!("table {} could not be compacted: other commits came first", table.folder());
                    return Err(Error::conflict(text).because(error));
                }
            }
        }
    }
}

impl CompactReport {
    /// What two compactions did, one after the other.
    fn and(self, later: &Self) -> Self {
        Self {
            version: later.version,
            files_before: self.files_before + later.files_before,
            files_after: self.files_after + later.files_after,
            bytes_before: self.bytes_before + later.bytes_before,
            bytes_after: self.bytes_after + later.bytes_after,
            rows: self.rows + later.rows,
        }
    }
}

enum Attempt {
    Done(CompactReport),
    Again(Error),
}

/// The files of the next commit: of each partition those below three quarters of the target, when there are at least two.
fn choose(snapshot: &Snapshot, target_bytes: u64) -> Result<Vec<DataFile>> {
    let files = snapshot.files()?;
    let mut partitions: BTreeMap<&BTreeMap<String, Option<String>>, Vec<&DataFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.size < target_bytes / 4 * 3) {
        partitions.entry(&file.partition_values).or_default().push(file);
    }
    let most = (target_bytes * 16).max(COMMIT_BYTES);
    let mut chosen: Vec<DataFile> = Vec::new();
    let mut bytes = 0;
    for small in partitions.into_values().filter(|small| small.len() > 1) {
        for (at, file) in small.iter().enumerate() {
            // A partition is cut only behind its second file: one file alone would gain nothing.
            if bytes > most && at != 1 {
                return Ok(chosen);
            }
            bytes += file.size;
            chosen.push(DataFile::clone(file));
        }
    }
    Ok(chosen)
}

async fn attempt(
    table: &Table,
    snapshot: &Snapshot,
    small: Vec<DataFile>,
    options: CompactOptions,
    clock: &Arc<dyn Clock>,
) -> Result<Attempt> {
    let CompactOptions { target_bytes, memory_bytes, .. } = options;
    let options = WriterOptions { target_bytes, memory_bytes };
    let (adds, rows) = rewritten(snapshot, &small, &snapshot.schema(), options, clock).await?;
    let mut report = CompactReport {
        version: snapshot.version() + 1,
        files_before: small.len(),
        files_after: adds.len(),
        bytes_before: small.iter().map(|file| file.size).sum(),
        bytes_after: adds.iter().map(|file| file.size).sum(),
        rows,
    };
    let mut info = Map::new();
    info.insert("operationParameters".to_owned(), json!({ "targetSize": target_bytes.to_string() }));
    info.insert(
        "operationMetrics".to_owned(),
        json!({ "numRemovedFiles": report.files_before.to_string(), "numAddedFiles": report.files_after.to_string() }),
    );
    let change = Change {
        operation: "OPTIMIZE".to_owned(),
        adds,
        removes: small,
        rearrange_only: true,
        info,
        ..Change::default()
    };
    match table.commit(snapshot, change).await? {
        Outcome::Committed(done) => {
            report.version = done.version();
            Ok(Attempt::Done(report))
        }
        Outcome::Unknown(error) => Ok(Attempt::Again(error)),
    }
}

/// The rows of some files, in their order, as new files with the columns of `schema`, and how many rows they are.
///
/// # Errors
/// Corrupt when not as many rows come out as the log says.
pub(super) async fn rewritten(
    snapshot: &Snapshot,
    files: &[DataFile],
    schema: &SchemaRef,
    options: WriterOptions,
    clock: &Arc<dyn Clock>,
) -> Result<(Vec<DataFile>, u64)> {
    let (folder, partition_by) = (snapshot.folder(), snapshot.partition_by());
    let mut writer = Writer::new(&snapshot.store, folder, Arc::clone(schema), partition_by, options, Arc::clone(clock));
    let mut rows = 0;
    for file in files {
        let mut batches = snapshot.read(file, None).await?;
        while let Some(batch) = batches.try_next().await? {
            rows += batch.num_rows() as u64;
            writer.write(&conform(&batch, schema)?).await?;
        }
    }
    let adds = writer.finish().await?;
    check_rows(snapshot, files, &adds, rows)?;
    Ok((adds, rows))
}

/// As many rows must come out as went in.
fn check_rows(snapshot: &Snapshot, before: &[DataFile], after: &[DataFile], read: u64) -> Result<()> {
    let sum = |files: &[DataFile]| files.iter().map(|file| file.rows).sum::<Option<u64>>();
    let known = sum(before).unwrap_or(read);
    if known == read && sum(after) == Some(read) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "files of table {} were not written anew: {known} rows in the log, {read} rows read, {:?} written",
        snapshot.folder(),
        sum(after)
    )))
}
