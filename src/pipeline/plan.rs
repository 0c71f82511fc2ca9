//! Plan: decide about everything that was sifted, and write the decision down before anything is committed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::{Error, Result};
use crate::layout;
use crate::manifest::{
    BatchSource, Counts, FileVersion, Manifest, Plan, PlannedRow, Redrive, StagedFormat, Status, StreamRange,
};
use crate::name::BatchId;
use crate::offsets::Offsets;
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::{LedgerRow, Stream, TableLedger};
use crate::pipeline::sift::Sifted;
use crate::pipeline::versions::{self, Candidate, Decision};
use crate::pipeline::{notes, redrive, staging};
use crate::safeguard::Safeguard;
use crate::schema::{Contract, WriteMode};
use crate::store::Put;

/// Most batches in one plan: a slice that is settled well inside a function's time.
const MOST_BATCHES: usize = 2_000;

/// How often another plan number is drawn when one is taken.
const NUMBERS: usize = 20;

/// Decides about everything sifted. `prev` is the table's plan number. None when there is nothing to decide.
pub async fn make(
    lake: &Lake,
    contract: &Contract,
    table_id: &str,
    prev: i64,
    sifted: &Sifted,
    known: &TableLedger,
) -> Result<Option<Plan>> {
    let manifests = &next_slice(&sifted.manifests);
    let mut rows: Vec<PlannedRow> = sifted.notes.iter().map(|(note, paths)| note_row(note, paths)).collect();
    let mut decisions = decide(lake, contract, manifests, known).await?;
    let is_trimmed = lake.store.keeps(Safeguard::IntervalSets);
    let mut delivered = Delivered { known, planned: HashMap::new() };
    for (position, manifest) in manifests.iter().enumerate() {
        let notes = sifted.notes_of_manifests.get(&manifest.batch_id).cloned().unwrap_or_default();
        let decision = decisions.remove(&position).unwrap_or(Decision { status: manifest.status, reason: None });
        let mut row = batch_row(manifest, decision, notes);
        if let BatchSource::Stream(range) = &manifest.source
            && is_trimmed
        {
            trim(&mut row, delivered.news(range), manifest)?;
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let mut plan = Plan {
        version: 1,
        table: contract.table.clone(),
        table_id: table_id.to_owned(),
        number: prev,
        prev,
        contract_hash: contract.hash.clone(),
        rows,
        made_at: lake.clock.now(),
    };
    put(lake, &mut plan).await?;
    Ok(Some(plan))
}

/// What goes into one plan. Redrives come behind everything else and by themselves, one for each batch whose records they
/// are: what the first of them brought is out of quarantine before the next one is looked at.
fn next_slice(sifted: &[Manifest]) -> Vec<Manifest> {
    let news = sifted.iter().filter(|manifest| manifest.redrive.is_none());
    let slice: Vec<Manifest> = news.take(MOST_BATCHES).cloned().collect();
    if !slice.is_empty() {
        return slice;
    }
    let mut taken: BTreeSet<&BatchId> = BTreeSet::new();
    let redrives = sifted.iter().filter(|manifest| manifest.redrive.as_ref().is_some_and(|it| taken.insert(&it.of)));
    redrives.take(MOST_BATCHES).cloned().collect()
}

/// Offsets that were delivered before, in the ledger or earlier in the plan.
struct Delivered<'a> {
    known: &'a TableLedger,
    planned: HashMap<Stream, Offsets>,
}

impl Delivered<'_> {
    /// The offsets of a piece that nothing brought before, as intervals; from now on it has.
    fn news(&mut self, range: &StreamRange) -> Vec<(i64, i64)> {
        let stream = Stream::from(range);
        let known = || self.known.streams.get(&stream).cloned().unwrap_or_default();
        let offsets = self.planned.entry(stream.clone()).or_insert_with(known);
        let news = offsets.missing(range.first, range.last);
        offsets.insert(range.first, range.last);
        news
    }
}

/// Leaves of a piece of a stream what is new.
fn trim(row: &mut PlannedRow, news: Vec<(i64, i64)>, manifest: &Manifest) -> Result<()> {
    let Some(range) = manifest.source.range() else { return Ok(()) };
    if news == [(range.first, range.last)] {
        return Ok(());
    }
    // A stretch without records has none in any part of it.
    if row.status != Status::Empty {
        let apart = manifest.apart.as_ref().ok_or_else(|| {
            Error::corrupt(format!("{}: the manifest of {range} does not say what its records are", manifest.table))
        })?;
        row.counts = apart.counts(&news);
    }
    if news.is_empty() {
        row.status = Status::Duplicate;
        row.reason = Some("other batches brought all of its offsets".to_owned());
        row.files.clear();
        row.rejects = None;
    } else {
        row.kept = Some(news);
    }
    Ok(())
}

/// Puts the plan under a number of its own. Taken or not surely written: another number.
async fn put(lake: &Lake, plan: &mut Plan) -> Result<()> {
    let mut last_error = None;
    for _ in 0..NUMBERS {
        plan.number = (plan.number + 1).max(lake.clock.now().timestamp_micros());
        let path = layout::plan(&plan.table, plan.number);
        match lake.store.put_if_absent(&path, staging::to_json(plan)?).await? {
            Put::Created => return Ok(()),
            Put::Exists => {}
            Put::Unknown(error) => last_error = Some(error),
        }
    }
    Err(last_error.unwrap_or_else(|| Error::conflict(format!("{}: no free plan number", plan.table))))
}

/// Decisions about manifests with rows, by position. The others (refused, ignored, superseded) are as they are.
async fn decide(
    lake: &Lake,
    contract: &Contract,
    manifests: &[Manifest],
    known: &TableLedger,
) -> Result<BTreeMap<usize, Decision>> {
    let mut by_path: BTreeMap<&str, Vec<(usize, &FileVersion)>> = BTreeMap::new();
    let mut decisions = redrive::refused(lake, contract, manifests, known).await?;
    for (position, manifest) in manifests.iter().enumerate() {
        // Single records belong to a version that was decided about before.
        let is_version = manifest.redrive.as_ref().is_none_or(Redrive::is_whole) && !decisions.contains_key(&position);
        if let Some(version) = manifest.source.file()
            && is_version
            && matches!(manifest.status, Status::Loaded | Status::Empty)
        {
            by_path.entry(&version.path).or_default().push((position, version));
        }
    }
    for (path, positions) in &by_path {
        let mut standing: Vec<&LedgerRow> = known.standing(path).collect();
        if !lake.store.keeps(Safeguard::SourceOrder) {
            standing.clear();
        }
        let stood = standing.iter().filter_map(|row| row.source.file());
        let versions: BTreeSet<&str> =
            positions.iter().map(|(_, version)| *version).chain(stood).map(|version| version.etag.as_str()).collect();
        // Asked after the listing: the version that is landed now is the newest, whatever its times say.
        let landed = if versions.len() > 1 { lake.landing.head(path).await? } else { None };
        let candidates: Vec<Candidate<'_>> = positions
            .iter()
            .map(|(position, version)| Candidate {
                source: version,
                sha256: manifests[*position].sha256.as_deref(),
                found: manifests[*position].status,
            })
            .collect();
        let landed = landed.as_ref().map(|version| version.etag.as_str());
        let judged = versions::judge(contract.on_overwrite, &candidates, &standing, landed);
        decisions.extend(positions.iter().map(|(position, _)| *position).zip(judged));
    }
    if contract.write_mode == WriteMode::Overwrite {
        only_the_greatest(manifests, known, &mut decisions);
    }
    Ok(decisions)
}

/// Overwrite: the table is the content of the greatest path.
fn only_the_greatest(manifests: &[Manifest], known: &TableLedger, decisions: &mut BTreeMap<usize, Decision>) {
    let stored = known.paths.keys().filter(|path| known.standing(path).next().is_some()).max().cloned();
    let planned = decisions
        .iter()
        .filter(|(_, decision)| decision.status.stands())
        .filter_map(|(position, _)| manifests[*position].source.path().map(str::to_owned))
        .max();
    let Some(greatest) = stored.max(planned) else { return };
    for (position, decision) in decisions {
        let is_less = manifests[*position].source.path().is_some_and(|path| *path < *greatest);
        if decision.status.stands() && is_less {
            *decision =
                Decision { status: Status::Superseded, reason: Some("write_mode: overwrite keeps the greatest file") };
        }
    }
}

fn note_row(note: &crate::manifest::Note, paths: &[String]) -> PlannedRow {
    PlannedRow {
        batch_id: note.batch_id.clone(),
        generation: None,
        notes: paths.to_vec(),
        source: note.source.clone(),
        kept: None,
        sha256: None,
        contract_hash: note.contract_hash.clone(),
        status: note.status,
        reason: Some(notes::ledger_reason(note)),
        counts: Counts::default(),
        files: Vec::new(),
        rejects: None,
        redrive: None,
        sweep: Vec::new(),
        add_columns: Vec::new(),
        attempts: note.attempts,
        first_seen: note.at,
    }
}

fn batch_row(manifest: &Manifest, decision: Decision, notes: Vec<String>) -> PlannedRow {
    let gives_rows = matches!(decision.status, Status::Loaded | Status::Empty);
    let gives_rejects = gives_rows || decision.status == Status::Refused;
    let staged = manifest.files.iter().filter(|file| file.format == StagedFormat::Arrow);
    PlannedRow {
        batch_id: manifest.batch_id.clone(),
        generation: Some(manifest.generation),
        notes,
        source: manifest.source.clone(),
        kept: None,
        sha256: manifest.sha256.clone(),
        contract_hash: manifest.contract_hash.clone(),
        status: decision.status,
        reason: decision.reason.map(str::to_owned).or_else(|| manifest.reason.clone()),
        counts: if gives_rows { manifest.counts } else { Counts::default() },
        files: if gives_rows { manifest.files.clone() } else { Vec::new() },
        rejects: manifest.rejects.clone().filter(|_| gives_rejects),
        redrive: manifest.redrive.clone(),
        sweep: staged.chain(&manifest.rejects).map(|file| file.path.clone()).collect(),
        add_columns: if gives_rows { manifest.add_columns.clone() } else { Vec::new() },
        attempts: 1,
        first_seen: manifest.first_seen,
    }
}
