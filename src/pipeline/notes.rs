//! Notes: what is known about a batch that has no outcome yet (`missing`, `failed`). They never stand in the way of a
//! later good delivery.

use crate::error::Result;
use crate::event::FileEvent;
use crate::manifest::{FileVersion, Note, Status};
use crate::name::BatchId;
use crate::pipeline::lake::Lake;
use crate::pipeline::{ledger, staging};
use crate::schema::Contract;

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
    let table = crate::pipeline::tables::ensure(lake, contract).await?;
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
        source: source.clone(),
        status,
        reason: reason.to_owned(),
        transient,
        contract_hash: contract.hash.clone(),
        attempts,
        at: lake.clock.now(),
    };
    staging::put_note(lake, &note).await
}
