//! THE single writer: settle what a former run left, list and sift, plan, commit, settle, table by table; then the layers.
//! Two of them at once only make each other look again: safety is in the commit rule, not in being alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::manifest::{FileVersion, Note, Plan, PlannedRow, Status};
use crate::name::TableName;
use crate::pipeline::ingest::Unclaimed;
use crate::pipeline::lake::Lake;
use crate::pipeline::layers::{self, Advanced};
use crate::pipeline::ledger::{self, LedgerRow, TableLedger};
use crate::pipeline::rows::{self, Failure};
use crate::pipeline::settle::settle;
use crate::pipeline::sift::{self, Sifted};
use crate::pipeline::stops::Stops;
use crate::pipeline::{APP_ID, follow, plan, staging, tables, upsert};
use crate::safeguard::Safeguard;
use crate::schema::{Contract, OnOverwrite, WriteMode};
use crate::table::{Change, Outcome, Snapshot, Table};

/// How often a table's commit is begun anew when somebody else was quicker or a batch had to be left out.
const ATTEMPTS: usize = 50;

/// How a run of the committer goes about it.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommitOptions {
    /// Commit whatever is staged, due or not.
    pub force: bool,
    /// No new slice is begun after this.
    pub deadline: Option<DateTime<Utc>>,
}

/// What a run of the committer did.
#[derive(Debug, Default, Serialize)]
pub struct CommitReport {
    /// One entry for each plan that was committed.
    pub commits: Vec<Committed>,
    /// Tables fed by files whose columns follow a changed contract now.
    pub followed: Vec<Followed>,
    /// What the layers did.
    pub layers: Vec<Advanced>,
    /// File versions whose staged data is gone: the caller enqueues them again.
    pub restage: Vec<FileVersion>,
    /// Files that no contract takes, recorded now.
    pub unclaimed: usize,
    /// Tables that stopped, with the reason and its remedy; the others went on.
    pub failed: Vec<TableFailure>,
}

/// One committed plan.
#[derive(Debug, Clone, Serialize)]
pub struct Committed {
    /// The table.
    pub table: TableName,
    /// The plan.
    pub plan: i64,
    /// The table's version with the plan's rows.
    pub version: i64,
    /// Batches settled.
    pub batches: usize,
    /// Rows added.
    pub rows: u64,
    /// Records quarantined.
    pub quarantined: u64,
    /// Files adopted as staged.
    pub adopted: usize,
}

/// A table whose columns became those of its contract.
#[derive(Debug, Clone, Serialize)]
pub struct Followed {
    /// The table.
    pub table: TableName,
    /// The table's version with the columns.
    pub version: i64,
    /// What became of them.
    pub how: String,
}

/// A table that stopped.
#[derive(Debug, Clone, Serialize)]
pub struct TableFailure {
    /// The table.
    pub table: TableName,
    /// Why, and what to do.
    pub error: String,
}

impl CommitReport {
    async fn fail(&mut self, lake: &Lake, stops: &Stops, table: &TableName, error: &Error) {
        tracing::error!(table.name = %table, error.kind = error.kind().as_str(), "{}", error.describe());
        stops.stopped(lake, table, &error.describe()).await;
        self.failed.push(TableFailure { table: table.clone(), error: error.describe() });
    }

    /// Whether the run changed nothing.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.commits.is_empty()
            && self.followed.is_empty()
            && self.unclaimed == 0
            && self.restage.is_empty()
            && self.layers.iter().all(Advanced::is_nothing)
    }
}

/// One run: every table that files feed, then every derived table, in slices until nothing is due or the deadline passed.
///
/// # Errors
/// Only what stops all tables (the ledger cannot be read); a table's own trouble is in the report.
pub async fn commit(lake: &Lake, options: CommitOptions) -> Result<CommitReport> {
    let mut report = CommitReport::default();
    let stops = Stops::list(lake).await;
    for contract in lake.catalog.tables().iter().filter(|contract| contract.files().is_some()) {
        match commit_table(lake, contract, options, &mut report).await {
            Ok(true) => stops.works(lake, &contract.table).await,
            Ok(false) => {}
            Err(error) => report.fail(lake, &stops, &contract.table, &error).await,
        }
    }
    report.unclaimed = record_unclaimed(lake).await?;
    for (table, outcome) in layers::advance_each(lake, options.deadline).await {
        match outcome {
            Ok(advanced) => {
                report.layers.push(advanced);
                stops.works(lake, &table).await;
            }
            Err(error) => report.fail(lake, &stops, &table, &error).await,
        }
    }
    Ok(report)
}

/// False when the time was over before the table was done.
async fn commit_table(
    lake: &Lake,
    contract: &Arc<Contract>,
    options: CommitOptions,
    report: &mut CommitReport,
) -> Result<bool> {
    let Some(table) = lake.table(&layout::table(&contract.table)).await? else { return Ok(true) };
    let mut attempt = 0;
    while attempt < ATTEMPTS {
        if options.deadline.is_some_and(|deadline| lake.clock.now() >= deadline) {
            return Ok(false);
        }
        match attempt_once(lake, contract, &table, options, report).await? {
            Step::Done => return Ok(true),
            // A slice went through: the next one has all its attempts again.
            Step::Progress => attempt = 0,
            Step::Again => {
                lake.pause(attempt).await;
                attempt += 1;
            }
        }
    }
    Err(Error::conflict(format!("{}: other writers were quicker {ATTEMPTS} times", contract.table))
        .remedy("nothing is lost: the next tick tries again"))
}

enum Step {
    /// Nothing is left, or nothing is due.
    Done,
    /// A plan was committed and settled.
    Progress,
    /// Somebody was quicker, or a batch was left out: from the snapshot again.
    Again,
}

async fn attempt_once(
    lake: &Lake,
    contract: &Arc<Contract>,
    table: &Table,
    options: CommitOptions,
    report: &mut CommitReport,
) -> Result<Step> {
    let early = match lake.store.keeps(Safeguard::LedgerAfterSnapshot) {
        true => None,
        false => Some(ledger::index(lake).await?),
    };
    // The snapshot first, only then the ledger: a ledger read earlier may miss what the table already has.
    let snapshot = table.snapshot().await?;
    let table_id = snapshot.table_id().to_owned();
    let current = snapshot.txn(APP_ID).await?.unwrap_or_default();
    let index = ledger::index(lake).await?;
    let settled = index.txn(&table_id);
    if settled > current {
        return Ok(Step::Again);
    }
    if settled < current && lake.store.keeps(Safeguard::SettleBeforePlan) {
        return settle_former(lake, contract, table, current).await;
    }
    // A contract that has more or wider columns than the table: what is derived from it may want them before the next file
    // comes.
    if let Some(schema) = tables::evolved(&snapshot, contract, &[])? {
        if let Some((version, how)) = follow::follow(lake, table, &snapshot, schema, options.deadline).await? {
            report.followed.push(Followed { table: contract.table.clone(), version, how });
        }
        return Ok(Step::Again);
    }
    let none = TableLedger::default();
    let known = early.as_ref().unwrap_or(&index).table(&table_id).unwrap_or(&none);
    let sifted = sift::sift(lake, contract, &table_id, known).await?;
    report.restage.extend(sifted.restage.iter().cloned());
    if sifted.is_empty() || !(options.force || is_due(lake, &sifted)) {
        return Ok(Step::Done);
    }
    let Some(plan) = plan::make(lake, contract, &table_id, current, &sifted, known).await? else {
        return Ok(Step::Done);
    };
    let plan = Arc::new(plan);
    let (change, adopted) = match change_of(lake, contract, &snapshot, &plan, known).await {
        Ok(ready) => ready,
        Err(Failure::Other(error)) => return Err(error),
        Err(Failure::Batch(position, error)) => {
            leave_out(lake, contract, &plan, position, &error).await?;
            return Ok(Step::Again);
        }
    };
    let version = match table.commit(&snapshot, change).await? {
        Outcome::Committed(after) => after.version(),
        Outcome::Unknown(error) => {
            tracing::debug!(table.name = %contract.table, error = %error, "commit refused or unknown, looking again");
            let after = table.snapshot().await?;
            if after.txn(APP_ID).await?.unwrap_or_default() != plan.number {
                return Ok(Step::Again);
            }
            after.version()
        }
    };
    settle(lake, contract, &plan).await?;
    let rows: u64 = plan.rows.iter().map(|row| row.counts.loaded).sum();
    tracing::info!(table.name = %contract.table, table.version = version, batches = plan.rows.len(), rows, "committed");
    report.commits.push(Committed {
        table: contract.table.clone(),
        plan: plan.number,
        version,
        batches: plan.rows.len(),
        rows,
        quarantined: plan.rows.iter().map(|row| row.counts.quarantined).sum(),
        adopted,
    });
    Ok(Step::Progress)
}

/// Due by rows, bytes or age.
fn is_due(lake: &Lake, sifted: &Sifted) -> bool {
    let settings = &lake.settings;
    let age = TimeDelta::from_std(settings.commit_age).unwrap_or(TimeDelta::MAX);
    sifted.rows() >= settings.commit_rows
        || sifted.bytes() >= settings.commit_bytes
        || sifted.oldest().is_some_and(|oldest| lake.clock.now().signed_duration_since(oldest) >= age)
}

/// The table has a plan that the ledger does not: settle it before anything new is planned.
async fn settle_former(lake: &Lake, contract: &Arc<Contract>, table: &Table, number: i64) -> Result<Step> {
    let path = layout::plan(&contract.table, number);
    let plan = staging::read_json::<Plan>(lake, &path).await?;
    // Read again, in this order: another committer may have settled it (and more) meanwhile.
    let index = ledger::index(lake).await?;
    let snapshot = table.snapshot().await?;
    let settled = index.txn(snapshot.table_id());
    if settled >= number || snapshot.txn(APP_ID).await?.unwrap_or_default() != number {
        return Ok(Step::Again);
    }
    let stuck = |what: String| {
        Error::corrupt(format!("{}: {what}; this table stops, no other does", contract.table)).remedy(
            "the table's rows are safe: restore the lake's `_alluvium` or `ledger` folder, or run `alluvium repair ledger`",
        )
    };
    let Some(plan) = plan else {
        return Err(stuck(format!("plan {number} is committed, the ledger is at {settled}, and {path} is gone")));
    };
    if plan.prev != settled || plan.table_id != snapshot.table_id() {
        return Err(stuck(format!("plan {number} follows plan {}, but the ledger is at {settled}", plan.prev)));
    }
    settle(lake, contract, &plan).await?;
    tracing::info!(table.name = %contract.table, plan = number, "settled what a former run committed");
    Ok(Step::Again)
}

/// Everything that the commit of a plan does to the table.
async fn change_of(
    lake: &Lake,
    contract: &Arc<Contract>,
    snapshot: &Snapshot,
    plan: &Arc<Plan>,
    known: &TableLedger,
) -> Result<(Change, usize), Failure> {
    let stored = snapshot.schema();
    let mut add_columns: Vec<String> = Vec::new();
    for (position, row) in plan.rows.iter().enumerate() {
        tables::check_added(&stored, &add_columns, &row.add_columns).map_err(|e| Failure::Batch(position, e))?;
        add_columns.extend(row.add_columns.iter().cloned());
    }
    let evolved = tables::evolved(snapshot, contract, &add_columns)?;
    let schema = evolved.clone().unwrap_or(stored);
    let loads = plan.rows.iter().any(|row| matches!(row.status, Status::Loaded | Status::Empty));
    let mut change = Change {
        operation: "WRITE".to_owned(),
        txns: vec![(APP_ID.to_owned(), plan.number)],
        info: info_of(plan, &add_columns, evolved.is_some()),
        schema: evolved.filter(|_| loads),
        ..Change::default()
    };
    if contract.write_mode == WriteMode::Upsert {
        let replacement = upsert::apply(lake, contract, snapshot, &schema, plan).await?;
        change.adds = replacement.adds;
        change.removes = replacement.removes;
        return Ok((change, 0));
    }
    let added = rows::add(lake, contract, snapshot, &schema, plan).await?;
    change.adds = added.files;
    let brings_version =
        |row: &&PlannedRow| matches!(row.status, Status::Loaded | Status::Empty) && !row.brings_single_records();
    if contract.write_mode == WriteMode::Overwrite && plan.rows.iter().any(|row| brings_version(&row)) {
        change.removes = snapshot.files()?.to_vec();
    } else if contract.on_overwrite == OnOverwrite::Replace {
        let replaced: BTreeSet<String> = plan
            .rows
            .iter()
            .filter(brings_version)
            .filter_map(|row| row.source.path())
            .filter(|path| known.standing(path).next().is_some())
            .map(str::to_owned)
            .collect();
        if !replaced.is_empty() {
            let (removes, kept) = rows::without_paths(lake, snapshot, &replaced).await?;
            change.removes = removes;
            change.adds.extend(kept);
        }
    }
    Ok((change, added.adopted))
}

fn info_of(plan: &Plan, add_columns: &[String], evolved: bool) -> Map<String, Value> {
    let mut info = Map::new();
    info.insert("plan".to_owned(), plan.number.into());
    info.insert("batches".to_owned(), plan.rows.len().into());
    info.insert("rows".to_owned(), plan.rows.iter().map(|row| row.counts.loaded).sum::<u64>().into());
    if evolved {
        let reason = if add_columns.is_empty() {
            "columns follow the contract".to_owned()
        } else {
            format!("unknown_columns: add found {}", add_columns.join(", "))
        };
        info.insert("schemaChange".to_owned(), reason.into());
    }
    info
}

/// A batch that cannot be committed must not stop its neighbours. Staged under another contract, or its data gone or
/// damaged: it is staged anew. Else it rests until a person or a new contract changes something; the note comes before the marker, so
/// that a crash between them leaves nothing unrecorded.
async fn leave_out(lake: &Lake, contract: &Contract, plan: &Plan, position: usize, error: &Error) -> Result<()> {
    let row = &plan.rows[position];
    let Some(generation) = row.generation else { return Ok(()) };
    tracing::warn!(table.name = %contract.table, source = %row.source, "batch left out: {}", error.describe());
    let is_damaged = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt);
    // What was delivered is not delivered again: a piece of a stream rests, whatever contract it was staged under.
    if is_damaged || row.contract_hash != contract.hash && row.source.file().is_some() {
        return staging::put_marker(lake, &layout::marker_gone(&contract.table, &row.batch_id, generation)).await;
    }
    let note = Note {
        version: 1,
        table: contract.table.clone(),
        batch_id: row.batch_id.clone(),
        source: row.source.clone(),
        status: Status::Failed,
        reason: error.describe(),
        transient: false,
        contract_hash: contract.hash.clone(),
        attempts: row.attempts,
        at: lake.clock.now(),
    };
    staging::put_note(lake, &note).await?;
    staging::put_marker(lake, &layout::marker_failed(&contract.table, &row.batch_id, generation)).await
}

/// Records files that no contract takes, once for each version, and messages that name no file.
async fn record_unclaimed(lake: &Lake) -> Result<usize> {
    let objects = lake.store.list(&layout::unclaimed_notes()).await?;
    if objects.is_empty() {
        return Ok(0);
    }
    let index = ledger::index(lake).await?;
    let now = lake.clock.now();
    let mut paths = Vec::with_capacity(objects.len());
    let mut found = Vec::new();
    for object in objects {
        let path = object.location.to_string();
        if let Some(unclaimed) = staging::read_json::<Unclaimed>(lake, &path).await?
            && !index.is_unclaimed(&unclaimed.source.path, &unclaimed.source.etag)
        {
            found.push(LedgerRow {
                table: None,
                table_id: None,
                batch_id: crate::name::BatchId::of_file("", &unclaimed.source.path, &unclaimed.source.etag),
                source: unclaimed.source.into(),
                sha256: None,
                status: unclaimed.status,
                reason: Some(unclaimed.reason),
                counts: crate::manifest::Counts::default(),
                contract_hash: None,
                txn: None,
                attempts: unclaimed.attempts.max(1),
                first_seen: unclaimed.first_seen,
                settled_at: now,
            });
        }
        paths.push(path);
    }
    if !found.is_empty() {
        ledger::record_unclaimed(lake, &found).await?;
    }
    lake.store.delete(&paths).await?;
    Ok(found.len())
}
