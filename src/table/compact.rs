//! Compaction: small files of a partition become few large ones, without changing a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt;
use serde_json::{Map, json};

use super::{Change, DataFile, Outcome, Snapshot, Table, Writer, WriterOptions};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Tries against other writers before giving up.
const ATTEMPTS: usize = 5;

/// What a compaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Rewrites files much smaller than `target_bytes` into files of about that size, partition by partition, in one commit
/// that changes no row. None when there is nothing to gain. Gives up with a conflict when other writers are always quicker.
pub async fn compact(table: &Table, target_bytes: u64, clock: Arc<dyn Clock>) -> Result<Option<CompactReport>> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let snapshot = table.snapshot().await?;
        let small = choose(&snapshot, target_bytes)?;
        if small.is_empty() {
            return Ok(None);
        }
        match attempt(table, &snapshot, small, target_bytes, &clock).await? {
            Attempt::Done(report) => return Ok(Some(report)),
            Attempt::Again(error) => last = Some(error),
        }
    }
    let conflict =
        Error::conflict(format!("table {} could not be compacted: other commits came first", table.folder()));
    Err(match last {
        Some(error) => conflict.because(error),
        None => conflict,
    })
}

enum Attempt {
    Done(CompactReport),
    Again(Error),
}

/// The files to rewrite: of each partition those below three quarters of the target, when there are at least two.
fn choose(snapshot: &Snapshot, target_bytes: u64) -> Result<Vec<DataFile>> {
    let files = snapshot.files()?;
    let mut partitions: BTreeMap<&BTreeMap<String, Option<String>>, Vec<&DataFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.size < target_bytes / 4 * 3) {
        partitions.entry(&file.partition_values).or_default().push(file);
    }
    Ok(partitions.into_values().filter(|small| small.len() > 1).flatten().cloned().collect())
}

async fn attempt(
    table: &Table,
    snapshot: &Snapshot,
    small: Vec<DataFile>,
    target_bytes: u64,
    clock: &Arc<dyn Clock>,
) -> Result<Attempt> {
    let options = WriterOptions { target_bytes, ..WriterOptions::default() };
    let mut writer = Writer::new(
        &table.inner.store,
        snapshot.folder(),
        snapshot.schema(),
        snapshot.partition_by(),
        options,
        Arc::clone(clock),
    );
    let mut rows = 0;
    for file in &small {
        let mut batches = snapshot.read(file, None).await?;
        while let Some(batch) = batches.try_next().await? {
            rows += batch.num_rows() as u64;
            writer.write(&batch).await?;
        }
    }
    let adds = writer.finish().await?;
    check_rows(snapshot, &small, &adds, rows)?;
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

/// As many rows must come out as went in.
fn check_rows(snapshot: &Snapshot, before: &[DataFile], after: &[DataFile], read: u64) -> Result<()> {
    let sum = |files: &[DataFile]| files.iter().map(|file| file.rows).sum::<Option<u64>>();
    let known = sum(before).unwrap_or(read);
    if known == read && sum(after) == Some(read) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "table {} was not compacted: {known} rows in the log, {read} rows read, {:?} written",
        snapshot.folder(),
        sum(after)
    )))
}
