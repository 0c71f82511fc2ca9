//! Redrive: records in quarantine are read again under today's contract, and those that are good now enter the table.
//!
//! A redrive is a batch like any other. Here, on the worker's side, the landed file is read at the version that the
//! records are of, and what is good now is staged under an identity made of the records and the contract. The committer
//! commits it and marks the quarantine rows resolved in the same plan ([`crate::pipeline::settle`]), so a crash anywhere
//! leaves what any crash leaves. A file that was refused whole is read whole. Rows keep `_file`, `_row` and the
//! `_batch_id` of the batch that they are of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use futures::TryStreamExt;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::layout;
use crate::manifest::{FileVersion, Manifest, Redrive, Status};
use crate::name::{BatchId, TableName};
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::{self, TableLedger};
use crate::pipeline::reading::{self, Read, Scope};
use crate::pipeline::staging;
use crate::pipeline::versions::Decision;
use crate::schema::lineage::EVENT;
use crate::schema::{Contract, OnOverwrite, WriteMode};
use crate::table::Snapshot;

/// What redriving one file version gave, or would give.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Redriven {
    /// The table.
    pub table: TableName,
    /// The file, below the landing zone.
    pub path: String,
    /// Records of it in quarantine; none for a file that was refused whole.
    pub waiting: Option<u64>,
    /// What became of them.
    pub action: Action,
    /// Records that are good now.
    pub cured: u64,
    /// Why, where a reason is needed.
    pub reason: Option<String>,
}

/// What became of the quarantined records of one file version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Staged now, or (dry run) to be staged.
    Redriven,
    /// Staged before; the committer will take them.
    AlreadyStaged,
    /// Still refused by today's contract.
    Refused,
    /// The file has a newer version, whose records count.
    Replaced,
    /// The landed file is not there at this version any more.
    Gone,
}

/// Unresolved quarantine rows of one batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Whether the file was refused whole.
    pub(crate) whole: bool,
    /// Numbers of its refused records.
    pub(crate) records: BTreeSet<i64>,
}

/// Redrives everything that a table has in quarantine; with `dry_run` nothing is staged.
///
/// # Errors
/// Storage that did not answer, or a quarantine table that cannot be read.
pub async fn redrive(lake: &Lake, contract: &Arc<Contract>, dry_run: bool) -> Result<Vec<Redriven>> {
    let Some(table) = lake.table(&layout::table(&contract.table)).await? else { return Ok(Vec::new()) };
    let snapshot = table.snapshot().await?;
    let index = ledger::index(lake).await?;
    let none = TableLedger::default();
    let known = index.table(snapshot.table_id()).unwrap_or(&none);
    let mut done = Vec::new();
    for (origin, waiting) in waiting(lake, contract).await? {
        // Rows of a table of that name that was dropped have no row in this one's ledger.
        let Some(source) = known.batches.get(&origin).and_then(|row| row.source.file().cloned()) else { continue };
        if waiting.whole {
            let redrive = Redrive { of: origin.clone(), records: Vec::new() };
            done.push(one(lake, contract, &snapshot, &source, redrive, known, dry_run).await?);
        }
        if !waiting.records.is_empty() {
            let redrive = Redrive { of: origin, records: waiting.records.into_iter().collect() };
            done.push(one(lake, contract, &snapshot, &source, redrive, known, dry_run).await?);
        }
    }
    done.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(done)
}

async fn one(
    lake: &Lake,
    contract: &Arc<Contract>,
    snapshot: &Snapshot,
    source: &FileVersion,
    wanted: Redrive,
    known: &TableLedger,
    dry_run: bool,
) -> Result<Redriven> {
    let answer = |action: Action, cured: u64, reason: Option<String>| Redriven {
        table: contract.table.clone(),
        path: source.path.clone(),
        waiting: (!wanted.is_whole()).then_some(wanted.records.len() as u64),
        action,
        cured,
        reason,
    };
    if !wanted.is_whole() && !stands(contract, source, known) {
        return Ok(answer(Action::Replaced, 0, Some(REPLACED.to_owned())));
    }
    let _staging = lake.in_flight.enter(&wanted.of).await;
    let records = (!wanted.is_whole()).then(|| Arc::new(wanted.records.iter().copied().collect()));
    let scope = Scope { batch_id: wanted.of.clone(), records, dry_run };
    let read = reading::read_scoped(lake, contract, source, scope).await?;
    match read.status {
        Status::Superseded => return Ok(answer(Action::Gone, 0, Some(GONE.to_owned()))),
        Status::Refused => return Ok(answer(Action::Refused, 0, read.reason)),
        _ => {}
    }
    let taken = Redrive { of: wanted.of.clone(), records: read.records.clone() };
    if !wanted.is_whole() && taken.records.is_empty() {
        return Ok(answer(Action::Refused, 0, Some("the records break the contract as before".to_owned())));
    }
    let cured = read.counts.loaded;
    if dry_run {
        return Ok(answer(Action::Redriven, cured, None));
    }
    let taken = if wanted.is_whole() { Redrive { of: wanted.of.clone(), records: Vec::new() } } else { taken };
    let is_new = stage(lake, contract, snapshot, source, taken, read, known).await?;
    Ok(answer(if is_new { Action::Redriven } else { Action::AlreadyStaged }, cured, None))
}

/// Puts the manifest; false when the same redrive was staged before.
async fn stage(
    lake: &Lake,
    contract: &Contract,
    snapshot: &Snapshot,
    source: &FileVersion,
    redrive: Redrive,
    read: Read,
    known: &TableLedger,
) -> Result<bool> {
    let table_id = snapshot.table_id();
    let batch_id = BatchId::of_redrive(table_id, &redrive.of, &contract.hash, &redrive.records);
    if known.is_terminal(&batch_id) {
        return Ok(false);
    }
    let generation = staging::next_generation(lake, &contract.table, &batch_id).await?;
    if staging::has_manifest(lake, &contract.table, &batch_id, generation).await? {
        return Ok(false);
    }
    let reason = match redrive.records.len() {
        0 => "the whole file, redriven from quarantine".to_owned(),
        1 => "1 record, redriven from quarantine".to_owned(),
        count => format!("{count} records, redriven from quarantine"),
    };
    let now = lake.clock.now();
    let manifest = Manifest {
        version: 1,
        table: contract.table.clone(),
        table_id: table_id.to_owned(),
        batch_id,
        generation,
        source: source.clone().into(),
        sha256: read.sha256,
        contract_hash: contract.hash.clone(),
        status: read.status,
        reason: Some(reason),
        counts: read.counts,
        apart: None,
        add_columns: read.add_columns,
        files: read.files,
        rejects: read.rejects,
        redrive: Some(redrive),
        first_seen: now,
        staged_at: now,
    };
    staging::put_manifest(lake, &manifest).await?;
    Ok(true)
}

const REPLACED: &str = "a newer version of the file is in the table, whose records count";
const GONE: &str =
    "the landed file is not there at this version any more; put it back and it is loaded as a new version";

/// Whether a version's records are part of the table: under `append` those of every version are.
fn stands(contract: &Contract, source: &FileVersion, known: &TableLedger) -> bool {
    let last = known.standing(&source.path).next_back();
    let is_last = last.and_then(|row| row.source.file()).is_some_and(|version| version.etag == source.etag);
    if contract.write_mode == WriteMode::Overwrite {
        let greatest = known.paths.keys().filter(|path| known.standing(path).next().is_some()).max();
        return is_last && greatest == Some(&source.path);
    }
    is_last || contract.on_overwrite == OnOverwrite::Append
}

/// The committer's last look at staged redrives: those that must not be committed, by position. Called after the former
/// plan was settled, so that quarantine shows everything that was redriven before.
pub(crate) async fn refused(
    lake: &Lake,
    contract: &Contract,
    manifests: &[Manifest],
    known: &TableLedger,
) -> Result<BTreeMap<usize, Decision>> {
    let mut decisions = BTreeMap::new();
    if manifests.iter().all(|manifest| manifest.redrive.is_none()) {
        return Ok(decisions);
    }
    let waiting = waiting(lake, contract).await?;
    for (position, manifest) in manifests.iter().enumerate() {
        let Some(redrive) = &manifest.redrive else { continue };
        let rows = waiting.get(&redrive.of);
        let is_waiting = rows.is_some_and(|rows| match redrive.is_whole() {
            true => rows.whole,
            false => redrive.records.iter().all(|record| rows.records.contains(record)),
        });
        let reason = if manifest.contract_hash != contract.hash {
            "the contract was changed after the redrive: redrive again"
        } else if !is_waiting {
            "its records were redriven before"
        } else if !redrive.is_whole() && manifest.source.file().is_some_and(|version| !stands(contract, version, known))
        {
            REPLACED
        } else {
            continue;
        };
        decisions.insert(position, Decision { status: Status::Superseded, reason: Some(reason) });
    }
    Ok(decisions)
}

/// Unresolved quarantine rows of a table, by batch.
pub(crate) async fn waiting(lake: &Lake, contract: &Contract) -> Result<BTreeMap<BatchId, Waiting>> {
    let mut found: BTreeMap<BatchId, Waiting> = BTreeMap::new();
    let Some(table) = lake.table(&layout::quarantine(&contract.table)).await? else { return Ok(found) };
    let snapshot = table.snapshot().await?;
    // A line that is no change event stays none; what can be redriven of such a table is a whole file.
    let event = contract.events().map(|_| EVENT);
    let columns: Vec<String> = ["batch_id", "record", "resolved"].into_iter().chain(event).map(str::to_owned).collect();
    for file in snapshot.files()?.iter() {
        let mut batches = snapshot.read(file, Some(&columns)).await?;
        while let Some(batch) = batches.try_next().await? {
            let of = |name: &str| {
                batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("quarantine has no column `{name}`")))
            };
            let wrong = || Error::corrupt("a column of quarantine has another type");
            let ids = of("batch_id")?.as_string_opt::<i32>().ok_or_else(wrong)?;
            let records = of("record")?.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
            let resolved = of("resolved")?.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(wrong)?;
            let events = event.map(of).transpose()?;
            let is_line = |row: usize| events.is_some_and(|events| events.is_valid(row));
            for row in (0..batch.num_rows()).filter(|row| resolved.is_null(*row) && !is_line(*row)) {
                let rows = found.entry(BatchId::from(ids.value(row).to_owned())).or_default();
                match records.is_null(row) {
                    true => rows.whole = true,
                    false => {
                        rows.records.insert(records.value(row));
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Whether there is anything that a redrive would bring into a table.
#[must_use]
pub fn is_work(found: &[Redriven]) -> bool {
    found.iter().any(|one| one.action == Action::Redriven)
}

/// Records that are good now, over all files.
#[must_use]
pub fn cured(found: &[Redriven]) -> u64 {
    found.iter().filter(|one| one.action == Action::Redriven).map(|one| one.cured).sum()
}
