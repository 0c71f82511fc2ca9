//! Status: what each table holds, what is staged or failed for it, how far behind it is, and why it stopped. Reads only, and
//! a table that cannot be read is told like any other trouble.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use serde::Serialize;

use crate::error::Result;
use crate::layout;
use crate::manifest::Status as BatchStatus;
use crate::name::TableName;
use crate::pipeline::compared::{self, LastCompared};
use crate::pipeline::lake::Lake;
use crate::pipeline::layers::{changes, watermark_id};
use crate::pipeline::stops::Stops;
use crate::pipeline::streams::{self, Stretch};
use crate::pipeline::{ledger, staging, tables};
use crate::queue::Depths;
use crate::schema::Contract;
use crate::table::Snapshot;

/// The state of the lake.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// When it was asked.
    pub at: DateTime<Utc>,
    /// One entry for each declared table, sources before what is derived from them.
    pub tables: Vec<TableStatus>,
    /// The layers in the order in which rows go through them.
    pub layers: Vec<LayerStatus>,
    /// Files that no contract takes.
    pub unclaimed: u64,
    /// Messages that named no file.
    pub unreadable: u64,
    /// What ever was in the landing zone, or told of by an event, and could be no file.
    pub refused: u64,
    /// What the last comparison of the landing zone with the ledger came to; none when there was none.
    pub compared: Option<LastCompared>,
    /// What the queues hold, where the asker has queues.
    pub queues: Option<Depths>,
    /// Why changed contracts are not in force: the last good ones still are.
    pub contracts: Option<String>,
}

/// The state of one layer: its tables together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerStatus {
    /// The layer.
    pub layer: String,
    /// Its declared tables.
    pub tables: usize,
    /// Tables that stopped.
    pub stopped: usize,
    /// How far behind the slowest of them is, in seconds.
    pub lag_seconds: u64,
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
    /// Change events that the order of their stream does not tell apart.
    pub ties: u64,
    /// For a derived table: versions of each source that it has not seen.
    pub behind: BTreeMap<String, i64>,
    /// How long the oldest of what is staged, or of what a source has and this table has not seen, has been waiting, in
    /// seconds.
    pub lag_seconds: u64,
    /// Since when the table stands still; none when it works.
    pub stopped_since: Option<DateTime<Utc>>,
    /// The last failure, with its remedy.
    pub last_error: Option<String>,
}

impl TableStatus {
    /// A table of which nothing is there yet and nothing is waited for.
    #[must_use]
    pub fn of(table: &TableName) -> Self {
        Self {
            table: table.clone(),
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
            ties: 0,
            behind: BTreeMap::new(),
            lag_seconds: 0,
            stopped_since: None,
            last_error: None,
        }
    }

    /// Something has been waiting since then.
    fn waits_since(&mut self, since: DateTime<Utc>, now: DateTime<Utc>) {
        let seconds = u64::try_from(now.signed_duration_since(since).num_seconds()).unwrap_or_default();
        self.lag_seconds = self.lag_seconds.max(seconds);
    }
}

/// Reads the state of every declared table.
///
/// # Errors
/// The store does not answer. What is wrong with one table is in its own state.
pub async fn status(lake: &Lake) -> Result<Status> {
    // First what every status needs: an account that does not answer is told at once, and not table by table.
    let (unclaimed, unreadable, refused) = match lake.table(layout::LEDGER).await? {
        Some(_) => {
            let index = ledger::index(lake).await?;
            (index.unclaimed_count(), index.unreadable_count(), index.refused_count())
        }
        None => (0, 0, 0),
    };
    let compared = compared::last(lake).await?;
    let stops = Stops::read(lake).await;
    let mut snapshots: BTreeMap<TableName, Snapshot> = BTreeMap::new();
    let mut broken: BTreeMap<TableName, String> = BTreeMap::new();
    for contract in lake.catalog.tables() {
        match snapshot(lake, &contract.table).await {
            Ok(Some(snapshot)) => {
                snapshots.insert(contract.table.clone(), snapshot);
            }
            Ok(None) => {}
            Err(error) => {
                broken.insert(contract.table.clone(), error.describe());
            }
        }
    }
    let now = lake.clock.now();
    let mut tables = Vec::new();
    for contract in lake.catalog.tables() {
        let mut state = TableStatus::of(&contract.table);
        if let Err(error) = table_status(lake, contract, &snapshots, now, &mut state).await {
            state.last_error = Some(error.describe());
        }
        // What stops the whole table comes before what stopped one file.
        if let Some(error) = broken.remove(&contract.table) {
            state.last_error = Some(error);
        } else if let Some(stop) = stops.get(&contract.table) {
            state.last_error = Some(stop.error.clone());
            state.stopped_since = Some(stop.since);
        }
        tables.push(state);
    }
    let layers = layers(&tables);
    Ok(Status { at: now, layers, tables, unclaimed, unreadable, refused, compared, queues: None, contracts: None })
}

async fn snapshot(lake: &Lake, table: &TableName) -> Result<Option<Snapshot>> {
    match lake.table(&layout::table(table)).await? {
        Some(table) => Ok(Some(table.snapshot().await?)),
        None => Ok(None),
    }
}

fn layers(tables: &[TableStatus]) -> Vec<LayerStatus> {
    let mut layers: Vec<LayerStatus> = Vec::new();
    for table in tables {
        let name = table.table.layer();
        if !layers.iter().any(|layer| layer.layer == name) {
            layers.push(LayerStatus { layer: name.to_owned(), tables: 0, stopped: 0, lag_seconds: 0 });
        }
        for layer in layers.iter_mut().filter(|layer| layer.layer == name) {
            layer.tables += 1;
            layer.stopped += usize::from(table.stopped_since.is_some());
            layer.lag_seconds = layer.lag_seconds.max(table.lag_seconds);
        }
    }
    layers
}

async fn table_status(
    lake: &Lake,
    contract: &Contract,
    snapshots: &BTreeMap<TableName, Snapshot>,
    now: DateTime<Utc>,
    status: &mut TableStatus,
) -> Result<()> {
    if contract.files().is_some() {
        staged(lake, contract, now, status).await?;
    }
    let Some(snapshot) = snapshots.get(&contract.table) else { return Ok(()) };
    let files = snapshot.files()?;
    status.version = Some(snapshot.version());
    status.rows = Some(count(snapshot).await?);
    status.files = files.len();
    status.bytes = files.iter().map(|file| file.size).sum();
    status.committed_at = snapshot.committed_at();
    if contract.files().is_some() {
        settled(lake, snapshot, status).await?;
        if let Err(error) = tables::evolved(snapshot, contract, &[]) {
            status.last_error = Some(error.describe());
        }
    }
    let of = contract.history_of().and_then(|of| lake.catalog.get(of)).map(AsRef::as_ref);
    if let Some(source) = contract.changes().or_else(|| of.and_then(Contract::changes)) {
        let changed = of.unwrap_or(contract);
        if let Some(bronze) = snapshots.get(&source.from) {
            let first = changes::behind(lake, changed, snapshot, bronze).await?;
            let behind = first.map_or(0, |first| (bronze.version() - first + 1).max(1));
            status.behind.insert(source.from.to_string(), behind);
            if let (Some(first), Some(table)) = (first, lake.table(&layout::table(&source.from)).await?)
                && let Some(since) = table.stored_at(first).await?.or(bronze.committed_at())
            {
                status.waits_since(since, now);
            }
        }
    }
    if contract.changes().is_some() {
        status.ties = changes::ties(snapshot);
        if let Some(quarantine) = lake.table(&layout::quarantine(&contract.table)).await? {
            status.quarantined = count(&quarantine.snapshot().await?).await?;
        }
    }
    if let Some(derivation) = contract.derivation() {
        for name in derivation.inputs.values() {
            let Some(source) = snapshots.get(name) else { continue };
            let watermark = snapshot.txn(&watermark_id(name, source.table_id())).await?.unwrap_or(-1);
            status.behind.insert(name.to_string(), source.version() - watermark);
            if watermark < source.version()
                && let Some(table) = lake.table(&layout::table(name)).await?
                && let Some(since) = table.stored_at(watermark + 1).await?.or(source.committed_at())
            {
                status.waits_since(since, now);
            }
        }
    }
    Ok(())
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

async fn staged(lake: &Lake, contract: &Contract, now: DateTime<Utc>, status: &mut TableStatus) -> Result<()> {
    let mut notes = Vec::new();
    for found in staging::list(lake, &contract.table).await?.into_values() {
        match found.current() {
            Some(generation) if found.failed.contains(&generation) => status.failed += 1,
            Some(_) => {
                status.staged += 1;
                found.since.into_iter().for_each(|since| status.waits_since(since, now));
            }
            None => {}
        }
        notes.extend(found.notes);
    }
    let newest = staging::newest_note(lake, &notes).await?;
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
