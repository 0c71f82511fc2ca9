//! Redrive: records in quarantine are read again under today's contract, and those that are good now enter the table.
//!
//! A redrive is a batch like any other. Here, on the worker's side, the records are read from what quarantine keeps of them,
//! and what is good now is staged under an identity made of the records and the contract. The committer commits it and marks
//! the quarantine rows resolved in the same plan ([`crate::pipeline::settle`]), so a crash anywhere leaves what any crash
//! leaves. A file that was refused whole is read whole, at the version that was refused; so are files of which quarantine does
//! not keep enough (Parquet, rows of former versions). Rows keep `_file`, `_row` and the `_batch_id` of the batch that they
//! are of.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use serde::Serialize;

use crate::decode::again::{Header, Hindrance, Kept};
use crate::error::Result;
use crate::layout;
use crate::manifest::{FileVersion, Manifest, Redrive, Status};
use crate::name::{BatchId, TableName};
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::{self, LedgerRow, TableLedger};
use crate::pipeline::reading::{self, Read, Scope};
use crate::pipeline::staging;
use crate::pipeline::versions::Decision;
use crate::pipeline::waiting::{Shelf, Waiting, waiting};
use crate::schema::{Contract, Format, OnOverwrite, WriteMode};
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
    /// The landed file is not there at this version any more, and quarantine does not keep what would do without it.
    Gone,
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
    let redriving = Redriving { lake, contract, snapshot: &snapshot, known, dry_run };
    let found = waiting(lake, contract).await?;
    let most = usize::try_from(lake.settings.memory_bytes / 8).unwrap_or(usize::MAX);
    let mut shelf = Shelf::fill(lake, contract, &found, most).await?;
    let mut done = Vec::new();
    for (origin, waiting) in found {
        // Rows of a table of that name that was dropped have no row in this one's ledger.
        let Some(source) = known.batches.get(&origin).and_then(|row| row.source.file()) else { continue };
        if waiting.whole {
            done.push(redriving.whole(source, &origin).await?);
        }
        if !waiting.records.is_empty() {
            let kept = shelf.take(&origin, &waiting);
            done.push(redriving.records(source, &origin, &waiting, kept).await?);
        }
    }
    done.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(done)
}

/// What is the same for all files of a table.
struct Redriving<'a> {
    lake: &'a Lake,
    contract: &'a Arc<Contract>,
    snapshot: &'a Snapshot,
    known: &'a TableLedger,
    dry_run: bool,
}

impl Redriving<'_> {
    /// A file that was refused whole.
    async fn whole(&self, source: &FileVersion, of: &BatchId) -> Result<Redriven> {
        let answer =
            |action: Action, cured: u64, reason: Option<String>| self.answer(source, None, action, cured, reason);
        let _staging = self.lake.in_flight.enter(of).await;
        let scope = Scope { batch_id: of.clone(), records: None, dry_run: self.dry_run };
        let read = reading::read_scoped(self.lake, self.contract, source, scope).await?;
        match read.status {
            Status::Superseded => {
                return Ok(answer(
                    Action::Gone,
                    0,
                    Some(format!("{GONE}; put it back and it is loaded as a new version")),
                ));
            }
            Status::Refused => return Ok(answer(Action::Refused, 0, read.reason)),
            _ => {}
        }
        let (cured, redrive) = (read.counts.loaded, Redrive { of: of.clone(), records: Vec::new() });
        let action = self.stage(source, redrive, read).await?;
        Ok(answer(action, cured, None))
    }

    /// Single records of a file whose others are in the table.
    async fn records(
        &self,
        source: &FileVersion,
        of: &BatchId,
        waiting: &Waiting,
        kept: BoxStream<'static, Result<Vec<Kept>>>,
    ) -> Result<Redriven> {
        let count = Some(waiting.records.len() as u64);
        let answer =
            |action: Action, cured: u64, reason: Option<String>| self.answer(source, count, action, cured, reason);
        if !stands(self.contract, source, self.known) {
            return Ok(answer(Action::Replaced, 0, Some(REPLACED.to_owned())));
        }
        let _staging = self.lake.in_flight.enter(of).await;
        let scope =
            Scope { batch_id: of.clone(), records: Some(Arc::new(waiting.records.clone())), dry_run: self.dry_run };
        let read = match self.read_from_quarantine(source, waiting, scope.clone(), kept).await {
            // What the file's content is was found out when it was there.
            Ok(read) => Read { sha256: sha256(source, self.known), ..read },
            Err(Hindrance::Failed(error)) => return Err(error),
            Err(Hindrance::Refused(refusal)) => {
                return Ok(answer(Action::Refused, 0, Some(refusal.to_string())));
            }
            Err(Hindrance::OtherRecords(why)) => {
                return Ok(answer(Action::Refused, 0, Some(format!("{why}: land the file under another name"))));
            }
            Err(Hindrance::NeedsFile(why)) => {
                let landed = same_content(source, self.known);
                let read = reading::read_scoped(self.lake, self.contract, landed, scope).await?;
                match read.status {
                    Status::Superseded => {
                        let reason = format!("{GONE}, and {why}; put it back, and redrive when it was ingested");
                        return Ok(answer(Action::Gone, 0, Some(reason)));
                    }
                    Status::Refused => return Ok(answer(Action::Refused, 0, read.reason)),
                    _ => read,
                }
            }
        };
        if read.records.is_empty() {
            return Ok(answer(Action::Refused, 0, Some("the records break the contract as before".to_owned())));
        }
        let mut records = read.records.clone();
        records.sort_unstable();
        let (cured, redrive) = (read.counts.loaded, Redrive { of: of.clone(), records });
        let action = self.stage(source, redrive, read).await?;
        Ok(answer(action, cured, None))
    }

    async fn read_from_quarantine(
        &self,
        source: &FileVersion,
        waiting: &Waiting,
        scope: Scope,
        kept: BoxStream<'static, Result<Vec<Kept>>>,
    ) -> Result<Read, Hindrance> {
        let Some(header) = &waiting.header else {
            let is_parquet = self.contract.files().is_some_and(|files| files.format == Format::Parquet);
            let why = if is_parquet { "a row of Parquet is kept as JSON, without its types" } else { NO_HEADER };
            return Err(Hindrance::NeedsFile(why.to_owned()));
        };
        let header = Header::from_json(header)?;
        reading::read_kept(self.lake, self.contract, source, scope, header, kept, self.snapshot.schema()).await
    }

    fn answer(
        &self,
        source: &FileVersion,
        waiting: Option<u64>,
        action: Action,
        cured: u64,
        reason: Option<String>,
    ) -> Redriven {
        Redriven { table: self.contract.table.clone(), path: source.path.clone(), waiting, action, cured, reason }
    }

    /// Puts the manifest, unless that is not wanted.
    async fn stage(&self, source: &FileVersion, redrive: Redrive, read: Read) -> Result<Action> {
        if self.dry_run {
            return Ok(Action::Redriven);
        }
        let is_new = stage(self.lake, self.contract, self.snapshot, source, redrive, read, self.known).await?;
        Ok(if is_new { Action::Redriven } else { Action::AlreadyStaged })
    }
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
const GONE: &str = "the landed file is not there at this version any more";
const NO_HEADER: &str = "the program that refused its records kept no header beside them";

/// Whether a version's records are part of the table: under `append` those of every version are.
fn stands(contract: &Contract, source: &FileVersion, known: &TableLedger) -> bool {
    // The same content again brings no rows: those of the version before it stay.
    let last = known.standing(&source.path).rfind(|row| row.status != Status::Duplicate);
    let is_last = last.and_then(|row| row.source.file()).is_some_and(|version| version.etag == source.etag);
    if contract.write_mode == WriteMode::Overwrite {
        let greatest = known.paths.keys().filter(|path| known.standing(path).next().is_some()).max();
        return is_last && greatest == Some(&source.path);
    }
    is_last || contract.on_overwrite == OnOverwrite::Append
}

/// The hash of a version's content: its first batch has none when the file was refused whole.
fn sha256(source: &FileVersion, known: &TableLedger) -> Option<String> {
    let of_version = |row: &&LedgerRow| row.source.file().is_some_and(|version| version.etag == source.etag);
    known.standing(&source.path).filter(of_version).find_map(|row| row.sha256.clone())
}

/// The newest version that is known to have the content of `source`.
fn same_content<'a>(source: &'a FileVersion, known: &'a TableLedger) -> &'a FileVersion {
    let Some(sha256) = sha256(source, known) else { return source };
    let newest = known.standing(&source.path).rfind(|row| row.sha256.as_ref() == Some(&sha256));
    newest.and_then(|row| row.source.file()).unwrap_or(source)
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
            false => redrive.records.iter().all(|record| rows.records.contains_key(record)),
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
