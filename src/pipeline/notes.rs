//! Notes: what is known about a batch that has no outcome yet (`missing`, `failed`). They never stand in the way of a
//! later good delivery.

use crate::error::{Directive, Result};
use crate::event::FileEvent;
use crate::layout;
use crate::manifest::{FileVersion, Note, Status};
use crate::name::{BatchId, short_hash};
use crate::pipeline::ingest::Unclaimed;
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::LedgerRow;
use crate::pipeline::{ledger, staging, tables};
use crate::schema::Contract;

/// How the ledger's reason of a failure begins whose cause may pass by itself. Reconcile enqueues such a file again.
const FOR_NOW: &str = "for the moment: ";

/// The cause of a failure that left none: its worker was killed each time, or could not reach the store to say it.
const UNEXPLAINED: &str = "every delivery of its event failed, and none left a cause";

/// The reason of a note as the ledger has it.
#[must_use]
pub fn ledger_reason(note: &Note) -> String {
    if note.transient { format!("{FOR_NOW}{}", note.reason) } else { note.reason.clone() }
}

/// Whether a batch rests: it failed for a cause that stays as long as its file and its contract do.
#[must_use]
pub fn rests(row: &LedgerRow, contract: &Contract) -> bool {
    row.status == Status::Failed && !is_for_now(row) && row.contract_hash.as_deref() == Some(&*contract.hash)
}

/// Whether the ledger's last row of a batch says what a note says; then the note is no news.
#[must_use]
pub fn says_the_same(row: &LedgerRow, note: &Note) -> bool {
    row.status == note.status
        && (row.status != Status::Failed
            || is_for_now(row) == note.transient && row.contract_hash.as_ref() == Some(&note.contract_hash))
}

fn is_for_now(row: &LedgerRow) -> bool {
    row.reason.as_ref().is_some_and(|reason| reason.starts_with(FOR_NOW))
}

/// Sees to it that a file whose every delivery failed has a cause on record, for every table that takes it; the causes.
///
/// A worker stores the cause before it gives a message back. Where none is on record it may pass by itself once: whatever
/// fails like this again rests, for a file that kills its worker takes its neighbours with it.
pub async fn give_up(lake: &Lake, event: &FileEvent, attempts: u32) -> Result<Vec<String>> {
    let landed = match lake.landing.head(&event.path).await {
        // A path that is refused has no version, and this may be the very cause.
        Err(error) if error.kind().directive() == Directive::Reject => None,
        looked => looked?,
    };
    let source = landed.unwrap_or_else(|| version_of(event));
    let mut causes = Vec::new();
    for (contract, _) in lake.catalog.claims(&event.path) {
        let table = tables::ensure(lake, &contract).await?;
        let snapshot = table.snapshot().await?;
        let batch_id = BatchId::of_file(snapshot.table_id(), &source.path, &source.etag);
        let staged = staging::list(lake, &contract.table).await?.remove(&batch_id).unwrap_or_default();
        let known = ledger::index(lake).await?;
        let row = known.table(snapshot.table_id()).and_then(|table| table.batches.get(&batch_id));
        if staged.current().is_some() || row.is_some_and(|row| row.status.is_terminal()) {
            causes.push(format!("{}: it was staged all the same", contract.table));
            continue;
        }
        let last = match staging::newest_note(lake, &staged.notes).await? {
            Some(note) => Some(note.reason).filter(|_| note.status == Status::Failed),
            None => row.filter(|row| row.status == Status::Failed).and_then(|row| row.reason.clone()),
        };
        let cause = last.as_deref().map(|reason| reason.strip_prefix(FOR_NOW).unwrap_or(reason));
        if cause.is_none_or(|cause| cause == UNEXPLAINED) {
            let may_pass = cause.is_none();
            note(lake, &contract, &source, Status::Failed, UNEXPLAINED, may_pass, attempts).await?;
        }
        causes.push(format!("{}: {}", contract.table, cause.unwrap_or(UNEXPLAINED)));
    }
    Ok(causes)
}

/// Records a message that names no file, so that the ledger shows it: once, whatever is delivered.
pub async fn note_unreadable(lake: &Lake, name: &str, bytes: u64, reason: &str, attempts: u32) -> Result<()> {
    let source = FileVersion {
        path: name.to_owned(),
        etag: String::new(),
        bytes,
        last_modified: chrono::DateTime::UNIX_EPOCH,
        sequencer: None,
    };
    let note = short_hash(&["unreadable", name]);
    note_unclaimed(lake, &note, source, Status::Failed, reason, attempts).await.map(drop)
}

/// Records what lies in the landing zone, or is told of by an event, and can be read by nobody; true when that is news.
pub async fn note_refused(lake: &Lake, source: &FileVersion, reason: &str) -> Result<bool> {
    let note = short_hash(&["refused", &source.path, &source.etag]);
    let is_news = note_unclaimed(lake, &note, source.clone(), Status::Refused, reason, 1).await?;
    if is_news {
        tracing::warn!(path = source.path, reason, "left out of the landing zone");
    }
    Ok(is_news)
}

/// Puts a note `name` about what is no table's, until the ledger has it; false when either knows it already.
pub async fn note_unclaimed(
    lake: &Lake,
    name: &str,
    source: FileVersion,
    status: Status,
    reason: &str,
    attempts: u32,
) -> Result<bool> {
    let path = format!("{}/{name}.json", layout::unclaimed_notes());
    let index = ledger::index(lake).await?;
    if index.is_unclaimed(&source.path, &source.etag) || lake.store.head(&path).await?.is_some() {
        return Ok(false);
    }
    let (reason, first_seen) = (reason.to_owned(), lake.clock.now());
    let unclaimed = Unclaimed { version: 1, source, status, reason, attempts, first_seen };
    lake.store.put_if_absent(&path, staging::to_json(&unclaimed)?).await?.is_new()
}

/// Records that an event could not be processed, for every table that takes the file. `transient` says that the cause may
/// pass by itself.
pub async fn note_failure(lake: &Lake, event: &FileEvent, reason: &str, transient: bool, attempts: u32) -> Result<()> {
    let now = lake.landing.head(&event.path).await.unwrap_or_default();
    let source = now.unwrap_or_else(|| version_of(event));
    for (contract, _) in lake.catalog.claims(&event.path) {
        note(lake, &contract, &source, Status::Failed, reason, transient, attempts).await?;
    }
    Ok(())
}

/// The file version that an event speaks of, as far as it says.
#[must_use]
pub fn version_of(event: &FileEvent) -> FileVersion {
    FileVersion {
        path: event.path.clone(),
        etag: event.etag.clone().unwrap_or_default(),
        bytes: event.bytes.unwrap_or_default(),
        last_modified: chrono::DateTime::UNIX_EPOCH,
        sequencer: event.sequencer.clone(),
    }
}

/// Puts a note about one batch, unless the batch is terminal.
pub async fn note(
    lake: &Lake,
    contract: &Contract,
    source: &FileVersion,
    status: Status,
    reason: &str,
    transient: bool,
    attempts: u32,
) -> Result<()> {
    let table = tables::ensure(lake, contract).await?;
    let snapshot = table.snapshot().await?;
    let batch_id = BatchId::of_file(snapshot.table_id(), &source.path, &source.etag);
    let known = ledger::index(lake).await?;
    if known.table(snapshot.table_id()).is_some_and(|ledger| ledger.is_terminal(&batch_id)) {
        return Ok(());
    }
    let note = Note {
        version: 1,
        table: contract.table.clone(),
        batch_id,
        source: source.clone().into(),
        status,
        reason: reason.to_owned(),
        transient,
        contract_hash: contract.hash.clone(),
        attempts,
        at: lake.clock.now(),
    };
    staging::put_note(lake, &note).await
}
