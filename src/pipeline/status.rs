//! Status: what each table holds, what is staged or failed for it, and how far behind a derived table is. Reads only.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use serde::Serialize;

use crate::error::Result;
use crate::layout;
use crate::manifest::{Note, Status as BatchStatus};
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::pipeline::streams::{self, Stretch};
use crate::pipeline::{ledger, staging, tables};
use crate::schema::Contract;
use crate::table::Snapshot;

/// The state of the lake.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// When it was asked.
    pub at: DateTime<Utc>,
    /// One entry for each declared table, sources before what is derived from them.
    pub tables: Vec<TableStatus>,
    /// Files that no contract takes.
    pub unclaimed: u64,
    /// Messages that named no file.
    pub unreadable: u64,
}

/// The state of one table.
#[derive(Debug, Clone, Serialize)]
pub struct TableStatus {
    /// The table.
    pub table: TableName,
    /// Its version; none when it does not exist yet.
    pub version: Option<i64>,
    /// Rows in it.
    pub rows: Option<u64>,
    /// Data files.
    pub files: usize,
    /// Bytes of data files.
    pub bytes: u64,
    /// When it was last committed to.
    pub committed_at: Option<DateTime<Utc>>,
    /// Last-modified of the newest landed file that is in it.
    pub newest_source: Option<DateTime<Utc>>,
    /// Batches staged and not committed.
    pub staged: usize,
    /// Batches that failed and rest.
    pub failed: usize,
    /// Batches whose file was missing, or whose staged records are lost.
    pub missing: usize,
    /// For change data: offsets that were staged and are lost, by partition.
    pub lost: Vec<Stretch>,
    /// For change data: offsets that have not come while later ones have, for longer than ten minutes. A notice, no error: Kafka
    /// has such holes by itself.
    pub gaps: Vec<Stretch>,
    /// Files refused whole.
    pub refused: usize,
    /// Records in quarantine that were not redriven, over the versions that stand or stood.
    pub quarantined: u64,
    /// For a derived table: versions of each source that it has not seen.
    pub behind: BTreeMap<String, i64>,
    /// The last failure, with its remedy.
    pub last_error: Option<String>,
}

/// Reads the state of every declared table.
pub async fn status(lake: &Lake) -> Result<Status> {
    let mut states = Vec::new();
    let mut snapshots: BTreeMap<TableName, Snapshot> = BTreeMap::new();
    for contract in lake.catalog.tables() {
        if let Some(table) = lake.table(&layout::table(&contract.table)).await? {
            snapshots.insert(contract.table.clone(), table.snapshot().await?);
        }
    }
    for contract in lake.catalog.tables() {
        states.push(table_status(lake, contract, &snapshots).await?);
    }
    let (unclaimed, unreadable) = match lake.table(layout::LEDGER).await? {
        Some(_) => {
            let index = ledger::index(lake).await?;
            (index.unclaimed_count(), index.unreadable_count())
        }
        None => (0, 0),
    };
    Ok(Status { at: lake.clock.now(), tables: states, unclaimed, unreadable })
}

async fn table_status(
    lake: &Lake,
    contract: &Contract,
    snapshots: &BTreeMap<TableName, Snapshot>,
) -> Result<TableStatus> {
    let mut status = TableStatus {
        table: contract.table.clone(),
        version: None,
        rows: None,
        files: 0,
        bytes: 0,
        committed_at: None,
        newest_source: None,
        staged: 0,
        failed: 0,
        missing: 0,
        lost: Vec::new(),
        gaps: Vec::new(),
        refused: 0,
        quarantined: 0,
        behind: BTreeMap::new(),
        last_error: None,
    };
    if contract.files().is_some() {
        staged(lake, contract, &mut status).await?;
    }
    let Some(snapshot) = snapshots.get(&contract.table) else { return Ok(status) };
    let files = snapshot.files()?;
    status.version = Some(snapshot.version());
    status.rows = Some(count(snapshot).await?);
    status.files = files.len();
    status.bytes = files.iter().map(|file| file.size).sum();
    status.committed_at = snapshot.committed_at();
    if contract.files().is_some() {
        settled(lake, snapshot, &mut status).await?;
        // What stops the whole table comes before what stopped one file.
        if let Err(error) = tables::evolved(snapshot, contract, &[]) {
            status.last_error = Some(error.describe());
        }
    }
    if let Some(derivation) = contract.derivation() {
        for name in derivation.inputs.values() {
            let Some(source) = snapshots.get(name) else { continue };
            let watermark = snapshot.txn(&crate::pipeline::layers::watermark_id(name, source.table_id())).await?;
            status.behind.insert(name.to_string(), source.version() - watermark.unwrap_or(-1));
        }
    }
    Ok(status)
}

/// Rows of a snapshot: from statistics, or counted where a foreign writer left none.
pub async fn count(snapshot: &Snapshot) -> Result<u64> {
    let mut rows = 0;
    for file in snapshot.files()?.iter() {
        match file.rows {
            Some(known) => rows += known,
            None => {
                let mut batches = snapshot.read(file, Some(&[])).await?;
                while let Some(batch) = batches.try_next().await? {
                    rows += batch.num_rows() as u64;
                }
            }
        }
    }
    Ok(rows)
}

async fn staged(lake: &Lake, contract: &Contract, status: &mut TableStatus) -> Result<()> {
    let mut newest: Option<Note> = None;
    for found in staging::list(lake, &contract.table).await?.into_values() {
        match found.current() {
            Some(generation) if found.failed.contains(&generation) => status.failed += 1,
            Some(_) => status.staged += 1,
            None => {}
        }
        for path in &found.notes {
            let Some(note) = staging::read_json::<Note>(lake, path).await? else { continue };
            if newest.as_ref().is_none_or(|other| other.at < note.at) {
                newest = Some(note);
            }
        }
    }
    status.last_error = newest.map(|note| format!("{}: {}", note.source, note.reason));
    Ok(())
}

async fn settled(lake: &Lake, snapshot: &Snapshot, status: &mut TableStatus) -> Result<()> {
    let index = ledger::index(lake).await?;
    let Some(known) = index.table(snapshot.table_id()) else { return Ok(()) };
    status.lost = streams::lost(known);
    status.gaps = streams::gaps(known, lake.clock.now());
    let mut last_failure = None;
    status.quarantined = known.quarantined();
    for row in known.batches.values() {
        // A file that was refused whole and stands now was redriven.
        if let Some(refused) = row.source.file().filter(|_| row.status == BatchStatus::Refused) {
            let mut versions = known.standing(&refused.path).filter_map(|other| other.source.file());
            if versions.any(|version| version.etag == refused.etag) {
                continue;
            }
        }
        match row.status {
            BatchStatus::Refused => status.refused += 1,
            BatchStatus::Failed => status.failed += 1,
            // Other batches may have brought what a lost one held.
            BatchStatus::Missing => {
                let is_there = row.source.range().is_some_and(|range| known.missing(range).is_empty());
                status.missing += usize::from(!is_there);
            }
            other if other.stands() => {
                status.newest_source = status.newest_source.max(row.source.modified());
            }
            _ => {}
        }
        if matches!(row.status, BatchStatus::Refused | BatchStatus::Failed)
            && last_failure.as_ref().is_none_or(|(at, _)| *at < row.settled_at)
        {
            let reason = row.reason.as_deref().unwrap_or("no reason recorded");
            last_failure = Some((row.settled_at, format!("{}: {reason}", row.source)));
        }
    }
    if status.last_error.is_none() {
        status.last_error = last_failure.map(|(_, text)| text);
    }
    Ok(())
}
