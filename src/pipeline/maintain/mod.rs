//! Upkeep, table by table: small files become large ones, the log gets a checkpoint and loses its oldest part, and what
//! nobody needs any more is deleted. Safe beside committers, workers, readers and another run of itself, and wherever it
//! is stopped: each step decides from what it finds, and deletes only what no one can come to need. DESIGN section 4,
//! step 10.
//!
//! It is the only code that deletes in a table's folder.

mod discard;
mod log;
pub mod retention;
mod staged;
mod vacuum;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::layout;
use crate::pipeline::lake::Lake;
use crate::pipeline::layers::watermark_id;
use crate::schema::Contract;
use crate::table::{CompactOptions, CompactReport, Table, compact};

pub use discard::{Discarded, discard};

/// Objects are deleted this many at a time, and the time is looked at in between.
const CHUNK: usize = 500;

/// How often the store is asked what time it is.
const PROBES: usize = 5;

/// What a run of the upkeep did.
#[derive(Debug, Default, Serialize)]
pub struct MaintainReport {
    /// What was done, for each table that there is: quarantine tables and the ledger too.
    pub tables: Vec<Upkept>,
    /// Recomputed rows that somebody wanted to look at and left behind.
    pub scratch: Deleted,
    /// Tables that were left to the next run because the time was over.
    pub left: Vec<String>,
    /// Tables whose upkeep stopped, with the reason and its remedy; the others went on.
    pub failed: Vec<UpkeepFailure>,
}

/// What was done for one table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Upkept {
    /// The table's folder below the lake's root.
    pub table: String,
    /// Small files that became large ones.
    pub compacted: Option<CompactReport>,
    /// The version that a checkpoint was written of.
    pub checkpoint: Option<i64>,
    /// Commits and checkpoints over their time.
    pub log: Deleted,
    /// Staged data, manifests and markers that nobody needs.
    pub staged: Deleted,
    /// Plans that are settled for long, or never came to anything.
    pub plans: Deleted,
    /// Data files that no version needs.
    pub data: Deleted,
    /// The version behind which data files and plans were deleted.
    pub fence: Option<i64>,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// Objects.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A table whose upkeep stopped.
#[derive(Debug, Clone, Serialize)]
pub struct UpkeepFailure {
    /// The table's folder below the lake's root.
    pub table: String,
    /// Why, and what to do.
    pub error: String,
}

impl Upkept {
    /// Whether nothing was done.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self { table: self.table.clone(), ..Self::default() }
    }
}

/// One table and what its upkeep goes by.
struct Upkeep<'a> {
    lake: &'a Lake,
    table: Table,
    /// The contract whose rows the table holds; none for quarantine and the ledger.
    contract: Option<&'a Contract>,
    /// The contract of a table that batches are staged for.
    ingested: Option<&'a Contract>,
    /// When the run began, by the store's clock.
    now: DateTime<Utc>,
    deadline: Option<DateTime<Utc>>,
}

impl Upkeep<'_> {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.lake.clock.now() >= deadline)
    }

    /// Deletes objects in their order, with their bytes counted, until the time is over.
    async fn delete(&self, doomed: Vec<(String, u64)>, done: &mut Deleted) -> Result<()> {
        for chunk in doomed.chunks(CHUNK) {
            if self.is_over() {
                return Ok(());
            }
            let paths: Vec<String> = chunk.iter().map(|(path, _)| path.clone()).collect();
            self.lake.store.delete(&paths).await?;
            done.files += chunk.len() as u64;
            done.bytes += chunk.iter().map(|(_, bytes)| bytes).sum::<u64>();
        }
        Ok(())
    }
}

/// One run over all tables. No step is begun after the deadline; what is left is for the next run.
///
/// # Errors
/// Only what stops all tables (the store does not tell its time); a table's own trouble is in the report.
pub async fn maintain(lake: &Lake, deadline: Option<DateTime<Utc>>) -> Result<MaintainReport> {
    let mut report = MaintainReport::default();
    let now = store_time(lake).await?;
    let mut targets = targets(lake);
    let turn = lake.turn(targets.len());
    targets.rotate_left(turn);
    for (folder, contract) in targets {
        if deadline.is_some_and(|deadline| lake.clock.now() >= deadline) {
            report.left.push(folder);
            continue;
        }
        let mut done = Upkept { table: folder.clone(), ..Upkept::default() };
        match upkeep(lake, &folder, contract, now, deadline, &mut done).await {
            Ok(false) => {}
            Ok(true) => report.tables.push(done),
            Err(error) => {
                let error = error.within(&folder);
                tracing::error!(table.folder = folder, error.kind = error.kind().as_str(), "{}", error.describe());
                report.failed.push(UpkeepFailure { table: folder, error: error.describe() });
                report.tables.push(done);
            }
        }
    }
    report.scratch = clean_scratch(lake, now).await?;
    report.tables.sort_by(|a, b| a.table.cmp(&b.table));
    Ok(report)
}

async fn clean_scratch(lake: &Lake, now: DateTime<Utc>) -> Result<Deleted> {
    let mut over = lake.store.list(&layout::scratch()).await?;
    over.retain(|object| object.last_modified < now - retention::SCRATCH);
    let paths: Vec<String> = over.iter().map(|object| object.location.to_string()).collect();
    lake.store.delete(&paths).await?;
    Ok(Deleted { files: over.len() as u64, bytes: over.iter().map(|object| object.size).sum() })
}

/// Folders of all tables that may be there, each with the contract whose rows it holds.
fn targets(lake: &Lake) -> Vec<(String, Option<&Arc<Contract>>)> {
    let mut targets = vec![(layout::LEDGER.to_owned(), None)];
    for contract in lake.catalog.tables() {
        targets.push((layout::table(&contract.table), Some(contract)));
        targets.push((layout::quarantine(&contract.table), None));
        if contract.changes().is_some() {
            targets.push((layout::state(&contract.table), None));
        }
    }
    targets
}

/// All steps for one table; false when there is no such table.
async fn upkeep(
    lake: &Lake,
    folder: &str,
    contract: Option<&Arc<Contract>>,
    now: DateTime<Utc>,
    deadline: Option<DateTime<Utc>>,
    done: &mut Upkept,
) -> Result<bool> {
    let Some(table) = lake.table(folder).await? else { return Ok(false) };
    let contract = contract.map(AsRef::as_ref);
    let ingested = contract.filter(|contract| contract.files().is_some());
    let upkeep = Upkeep { lake, table, contract, ingested, now, deadline };
    done.compacted = compact_table(lake, &upkeep.table, deadline).await?;
    if !upkeep.is_over() {
        log::checkpoint(&upkeep, done).await?;
    }
    if let Some(contract) = ingested.filter(|_| !upkeep.is_over()) {
        staged::clean(&upkeep, contract, done).await?;
    }
    if !upkeep.is_over() {
        log::clean(&upkeep, done).await?;
    }
    if !upkeep.is_over() {
        vacuum::vacuum(&upkeep, done).await?;
    }
    if !done.is_nothing() {
        tracing::info!(table.folder = folder, "maintained: {}", serde_json::to_string(done).unwrap_or_default());
    }
    Ok(true)
}

/// Rewrites the small files of a table into large ones, within the lake's memory.
///
/// # Errors
/// Other writers were always quicker, or storage failed.
pub async fn compact_table(
    lake: &Lake,
    table: &Table,
    deadline: Option<DateTime<Utc>>,
) -> Result<Option<CompactReport>> {
    let options = CompactOptions {
        target_bytes: lake.settings.target_file_bytes,
        memory_bytes: lake.settings.memory_bytes / 4,
        deadline,
    };
    compact(table, options, Arc::clone(&lake.clock)).await
}

/// The version of a table up to which its slowest reader has it; none when nobody goes on from a version of it.
async fn watermark(upkeep: &Upkeep<'_>, table_id: &str) -> Result<Option<i64>> {
    let Some(contract) = upkeep.contract else { return Ok(None) };
    let id = watermark_id(&contract.table, table_id);
    let mut slowest: Option<i64> = None;
    for reader in upkeep.lake.catalog.derived_from(&contract.table) {
        // Of a table of changes, what is kept of the events is what reads them.
        let is_of_changes = reader.changes().is_some();
        let folder = if is_of_changes { layout::state(&reader.table) } else { layout::table(&reader.table) };
        let Some(table) = upkeep.lake.table(&folder).await? else { continue };
        let read = table.snapshot().await?.txn(&id).await?;
        slowest = slowest.into_iter().chain(read).min();
    }
    Ok(slowest)
}

/// What time it is by the store's clock: when it takes an object that is put now.
async fn store_time(lake: &Lake) -> Result<DateTime<Utc>> {
    for _ in 0..PROBES {
        let path = layout::probe(&lake.clock.fresh());
        lake.store.put_if_absent(&path, Vec::new()).await?.is_new()?;
        // Another run took it for a left-over: this one slept for long.
        let Some(meta) = lake.store.head(&path).await? else { continue };
        let mut over = lake.store.list(&layout::probes()).await?;
        over.retain(|object| object.last_modified < meta.last_modified - retention::STAGED);
        let mut paths: Vec<String> = over.iter().map(|object| object.location.to_string()).collect();
        paths.push(path);
        lake.store.delete(&paths).await?;
        return Ok(meta.last_modified);
    }
    Err(Error::unavailable("objects that are put are not there")
        .remedy("look whether a lifecycle rule deletes in the lake"))
}
