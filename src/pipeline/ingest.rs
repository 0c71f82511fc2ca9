//! Stage: one landed file version becomes one staged batch for each table that takes it. Any number of workers may do the
//! same file at once, be killed anywhere and run again: the manifest that was put first counts.

use serde::Serialize;

use crate::catalog::Claim;
use crate::error::{Error, Result};
use crate::event::FileEvent;
use crate::manifest::{Counts, FileVersion, Manifest, Status};
use crate::name::{BatchId, TableName, short_hash};
use crate::pipeline::lake::Lake;
use crate::pipeline::reading::{self, Read, Scope};
use crate::pipeline::{ledger, notes, staging, tables};
use crate::schema::Contract;
use std::sync::Arc;

/// How often a file that changes while it is read is read again before its event is left to a later delivery.
const READS: usize = 5;

/// What an event led to, for one table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ingested {
    /// The table; none when no contract takes the file.
    pub table: Option<TableName>,
    /// The file, below the landing zone.
    pub path: String,
    /// What was done.
    pub action: Action,
    /// The status that the worker found, when it staged something.
    pub status: Option<Status>,
    /// The row arithmetic.
    pub counts: Counts,
    /// Why, where a reason is needed.
    pub reason: Option<String>,
}

impl Ingested {
    fn of_nobody(path: &str, action: Action, status: Status, reason: String) -> Self {
        let (path, counts) = (path.to_owned(), Counts::default());
        Self { table: None, path, action, status: Some(status), counts, reason: Some(reason) }
    }
}

/// What a worker did about one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Read and staged now.
    Staged,
    /// Staged before; the committer will take it.
    AlreadyStaged,
    /// In the ledger with a terminal status.
    AlreadySettled,
    /// The file is not there; noted.
    Missing,
    /// No contract takes the file; noted.
    Unclaimed,
    /// No file can be had by this path; noted.
    Refused,
}

/// Takes one event: reads the file at its present version and stages it for every table that takes it.
///
/// # Errors
/// Only what a later delivery may cure (storage, a file that keeps changing) or what a person must cure; a bad file is no
/// error but a `refused` batch.
pub async fn ingest(lake: &Lake, event: &FileEvent) -> Result<Vec<Ingested>> {
    if let Err(error) = lake.landing.admits(&event.path) {
        let reason = error.describe();
        notes::note_refused(lake, &notes::version_of(event), &reason).await?;
        return Ok(vec![Ingested::of_nobody(&event.path, Action::Refused, Status::Refused, reason)]);
    }
    let Some(version) = lake.landing.head(&event.path).await? else {
        return missing(lake, event).await;
    };
    let version = FileVersion { sequencer: sequencer_of(event, &version), ..version };
    let claims = lake.catalog.claims(&event.path);
    if claims.is_empty() {
        return Ok(vec![unclaimed(lake, version).await?]);
    }
    let mut done = Vec::with_capacity(claims.len());
    for (contract, claim) in claims {
        if let Some(old) = event.etag.as_ref().filter(|etag| **etag != version.etag) {
            let overtaken = FileVersion { etag: old.clone(), ..notes::version_of(event) };
            supersede(lake, &contract, &overtaken).await?;
        }
        done.push(stage(lake, &contract, claim, version.clone()).await?);
    }
    Ok(done)
}

/// The event's sequencer belongs to the version only when it is the event's own.
fn sequencer_of(event: &FileEvent, version: &FileVersion) -> Option<String> {
    let same = event.etag.as_ref().is_none_or(|etag| *etag == version.etag);
    event.sequencer.clone().filter(|_| same)
}

async fn missing(lake: &Lake, event: &FileEvent) -> Result<Vec<Ingested>> {
    let version = notes::version_of(event);
    let reason = "the file was gone when its event arrived";
    let claims = lake.catalog.claims(&event.path);
    if claims.is_empty() {
        // There is nothing that a later contract could take.
        let reason = format!("{reason}, and {UNCLAIMED}");
        return Ok(vec![Ingested::of_nobody(&event.path, Action::Missing, Status::Missing, reason)]);
    }
    let mut done = Vec::with_capacity(claims.len());
    for (contract, _) in claims {
        notes::note(lake, &contract, &version, Status::Missing, reason, false, 1).await?;
        done.push(Ingested {
            table: Some(contract.table.clone()),
            path: event.path.clone(),
            action: Action::Missing,
            status: Some(Status::Missing),
            counts: Counts::default(),
            reason: Some(reason.to_owned()),
        });
    }
    Ok(done)
}

/// Remembers a file that no contract takes, so that the ledger shows it and a later contract finds it.
async fn unclaimed(lake: &Lake, version: FileVersion) -> Result<Ingested> {
    let ingested = Ingested::of_nobody(&version.path, Action::Unclaimed, Status::Ignored, UNCLAIMED.to_owned());
    let name = short_hash(&["unclaimed", &version.path, &version.etag]);
    notes::note_unclaimed(lake, &name, version, Status::Ignored, UNCLAIMED, 1).await?;
    Ok(ingested)
}

/// Why a file has no table.
pub const UNCLAIMED: &str = "no contract takes this file";

/// What is no table's, until the ledger has it: a file version that no contract takes, something in the landing zone (or told
/// of by an event) that can be no file, or a message that names none.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unclaimed {
    /// Format version, 1.
    pub version: u32,
    /// The file version, or the name that was given to the message.
    pub source: FileVersion,
    /// `ignored` for a file, `refused` for what can be no file, `failed` for a message.
    #[serde(default = "Unclaimed::ignored")]
    pub status: Status,
    /// Why.
    #[serde(default = "Unclaimed::by_nobody")]
    pub reason: String,
    /// How often delivery was tried, as far as is known.
    #[serde(default)]
    pub attempts: u32,
    /// When it was first seen.
    pub first_seen: chrono::DateTime<chrono::Utc>,
}

/// What was written before there were messages among them.
impl Unclaimed {
    const fn ignored() -> Status {
        Status::Ignored
    }

    fn by_nobody() -> String {
        UNCLAIMED.to_owned()
    }
}

async fn stage(lake: &Lake, contract: &Arc<Contract>, claim: Claim, first: FileVersion) -> Result<Ingested> {
    let table = tables::ensure(lake, contract).await?;
    let snapshot = table.snapshot().await?;
    let table_id = snapshot.table_id();
    let mut version = first;
    for _ in 0..READS {
        let batch_id = BatchId::of_file(table_id, &version.path, &version.etag);
        let answer = |action: Action, status: Option<Status>, counts: Counts, reason: Option<String>| Ingested {
            table: Some(contract.table.clone()),
            path: version.path.clone(),
            action,
            status,
            counts,
            reason,
        };
        // A delivery of the same event waits for the one that came first, and then finds its manifest.
        let _staging = lake.in_flight.enter(&batch_id).await;
        if let Some(known) = ledger::index(lake).await?.table(table_id).and_then(|table| table.batches.get(&batch_id))
            && known.status.is_terminal()
        {
            return Ok(answer(Action::AlreadySettled, Some(known.status), known.counts, known.reason.clone()));
        }
        let generation = staging::next_generation(lake, &contract.table, &batch_id).await?;
        if staging::has_manifest(lake, &contract.table, &batch_id, generation).await? {
            return Ok(answer(Action::AlreadyStaged, None, Counts::default(), None));
        }
        let first_seen = lake.clock.now();
        let read = match claim {
            Claim::Ignore => Read::ignored("declared ignored by the contract"),
            Claim::Take => reading::read(lake, contract, &version, &snapshot).await?,
        };
        if read.status == Status::Superseded {
            supersede(lake, contract, &version).await?;
            let Some(now) = lake.landing.head(&version.path).await? else {
                let reason = "the file went away while it was read";
                notes::note(lake, contract, &version, Status::Missing, reason, false, 1).await?;
                return Ok(answer(Action::Missing, Some(Status::Missing), Counts::default(), Some(reason.to_owned())));
            };
            version = now;
            continue;
        }
        let (status, counts, reason) = (read.status, read.counts, read.reason.clone());
        let place = Place { table_id, batch_id, generation, first_seen };
        put(lake, contract, version.clone(), place, read).await?;
        return Ok(answer(Action::Staged, Some(status), counts, reason));
    }
    Err(Error::unavailable(format!("{}: the file keeps changing while it is read", version.path))
        .remedy("nothing is lost: it is read again when it rests"))
}

/// Stages content that lies in no landing zone, such as what a measurement makes up while it is read.
///
/// # Errors
/// Storage that did not answer.
pub async fn ingest_content(
    lake: &Lake,
    contract: &Arc<Contract>,
    version: FileVersion,
    content: Box<dyn std::io::Read + Send>,
) -> Result<(Status, Counts, Option<String>)> {
    let table = tables::ensure(lake, contract).await?;
    let snapshot = table.snapshot().await?;
    let batch_id = BatchId::of_file(snapshot.table_id(), &version.path, &version.etag);
    let first_seen = lake.clock.now();
    let scope = Scope { batch_id: batch_id.clone(), records: None, dry_run: false };
    let read = reading::read_content(lake, contract, &version, scope, content).await?;
    let told = (read.status, read.counts, read.reason.clone());
    put(lake, contract, version, Place { table_id: snapshot.table_id(), batch_id, generation: 0, first_seen }, read)
        .await?;
    Ok(told)
}

/// Where a manifest belongs.
struct Place<'a> {
    table_id: &'a str,
    batch_id: BatchId,
    generation: u32,
    first_seen: chrono::DateTime<chrono::Utc>,
}

/// Puts the manifest of what was read.
async fn put(lake: &Lake, contract: &Contract, source: FileVersion, place: Place<'_>, read: Read) -> Result<()> {
    let manifest = Manifest {
        version: 1,
        table: contract.table.clone(),
        table_id: place.table_id.to_owned(),
        batch_id: place.batch_id,
        generation: place.generation,
        source: source.into(),
        sha256: read.sha256,
        contract_hash: contract.hash.clone(),
        status: read.status,
        reason: read.reason,
        counts: read.counts,
        apart: None,
        add_columns: read.add_columns,
        files: read.files,
        rejects: read.rejects,
        redrive: None,
        first_seen: place.first_seen,
        staged_at: lake.clock.now(),
    };
    staging::put_manifest(lake, &manifest).await?;
    if manifest.status == Status::Refused {
        let reason = manifest.reason.as_deref().unwrap_or_default();
        tracing::warn!(table.name = %contract.table, path = %manifest.source, reason, "file refused");
    }
    tracing::info!(
        table.name = %contract.table,
        path = %manifest.source,
        batch.id = %manifest.batch_id,
        status = manifest.status.as_str(),
        rows.in = manifest.counts.rows_in,
        rows.loaded = manifest.counts.loaded,
        rows.quarantined = manifest.counts.quarantined,
        "staged"
    );
    Ok(())
}

/// Stages the fact that a version was overtaken by a newer one before it could be read.
async fn supersede(lake: &Lake, contract: &Contract, version: &FileVersion) -> Result<()> {
    let table = tables::ensure(lake, contract).await?;
    let snapshot = table.snapshot().await?;
    let batch_id = BatchId::of_file(snapshot.table_id(), &version.path, &version.etag);
    if ledger::index(lake).await?.table(snapshot.table_id()).is_some_and(|known| known.is_terminal(&batch_id)) {
        return Ok(());
    }
    let generation = staging::next_generation(lake, &contract.table, &batch_id).await?;
    let manifest = Manifest::without_rows(
        contract,
        snapshot.table_id(),
        (batch_id, generation),
        version.clone().into(),
        (Status::Superseded, "overwritten before it could be read"),
        lake.clock.now(),
    );
    staging::put_manifest(lake, &manifest).await
}
