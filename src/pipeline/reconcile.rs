//! Completeness: what lies in the landing zone and neither the ledger nor the staging area knows. Events can be lost.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;

use crate::error::{Error, Result};
use crate::landing::{Entry, LeftOut};
use crate::layout;
use crate::manifest::{FileVersion, Status};
use crate::name::{BatchId, TableName};
use crate::pipeline::ingest::Unclaimed;
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::Index;
use crate::pipeline::{ledger, notes, staging};

/// Landed file versions that some table takes (or that nobody took note of) and that are neither settled nor staged. What
/// failed is among them when its last recorded cause may have passed, or its contract has changed since.
pub async fn missing(lake: &Lake) -> Result<Vec<FileVersion>> {
    Ok(compare(lake).await?.missing)
}

/// What a comparison of the landing zone with the ledger found.
#[derive(Debug, Default)]
pub struct Compared {
    /// What is to be enqueued.
    pub missing: Vec<FileVersion>,
    /// What can be no file. It is recorded now, if it was not.
    pub left_out: Vec<LeftOut>,
    /// Why a part of the landing zone could not be listed.
    pub unlisted: Option<Error>,
}

/// Compares the landing zone with the ledger.
///
/// # Errors
/// The lake cannot be read. What cannot be read of the landing zone is in the answer.
pub async fn compare(lake: &Lake) -> Result<Compared> {
    let index = ledger::index(lake).await?;
    let mut tables: BTreeMap<TableName, Known> = BTreeMap::new();
    for contract in lake.catalog.tables().iter().filter(|contract| contract.files().is_some()) {
        let Some(table) = lake.table(&layout::table(&contract.table)).await? else { continue };
        let table_id = table.snapshot().await?.table_id().to_owned();
        let ledger = index.table(&table_id);
        let mut known = Known { live: BTreeSet::new(), resting: BTreeSet::new(), table_id };
        let rows = ledger.into_iter().flat_map(|ledger| &ledger.batches);
        known.resting.extend(rows.filter(|(_, row)| notes::rests(row, contract)).map(|(batch, _)| batch.clone()));
        for (batch, found) in staging::list(lake, &contract.table).await? {
            if found.current().is_some() {
                known.live.insert(batch);
            } else if let Some(note) = staging::newest_note(lake, &found.notes).await? {
                // It is newer than the ledger's row.
                let stays = note.status == Status::Failed && !note.transient && note.contract_hash == contract.hash;
                if stays {
                    known.resting.insert(batch)
                } else {
                    known.resting.remove(&batch)
                };
            }
        }
        tables.insert(contract.table.clone(), known);
    }
    let noted = noted(lake).await?;
    let mut missing = Vec::new();
    let (mut left_out, mut unlisted) = (Vec::new(), None);
    let mut landed = lake.landing.entries();
    while let Some(found) = landed.next().await {
        let version = match found {
            Ok(Entry::File(version)) => version,
            Ok(Entry::LeftOut(entry)) => {
                left_out.push(entry);
                continue;
            }
            // A part that cannot be listed must not hide the others.
            Err(error) => {
                tracing::warn!(error.kind = error.kind().as_str(), "not listed: {}", error.describe());
                unlisted.get_or_insert(error);
                continue;
            }
        };
        let claims = lake.catalog.claims(&version.path);
        let is_known = if claims.is_empty() {
            index.is_unclaimed(&version.path, &version.etag)
                || noted.contains(&(version.path.clone(), version.etag.clone()))
        } else {
            claims
                .iter()
                .all(|(contract, _)| tables.get(&contract.table).is_some_and(|known| known.knows(&index, &version)))
        };
        if !is_known {
            missing.push(version);
        }
    }
    missing.sort_by(|a, b| a.path.cmp(&b.path));
    for LeftOut { version, reason } in &left_out {
        if !noted.contains(&(version.path.clone(), version.etag.clone())) {
            notes::note_refused(lake, version, reason).await?;
        }
    }
    Ok(Compared { missing, left_out, unlisted })
}

struct Known {
    table_id: String,
    /// Staged.
    live: BTreeSet<BatchId>,
    /// Failed, and would fail again.
    resting: BTreeSet<BatchId>,
}

impl Known {
    fn knows(&self, index: &Index, version: &FileVersion) -> bool {
        let batch = BatchId::of_file(&self.table_id, &version.path, &version.etag);
        self.live.contains(&batch)
            || self.resting.contains(&batch)
            || index.table(&self.table_id).is_some_and(|ledger| ledger.is_terminal(&batch))
    }
}

/// Unclaimed versions that the ledger does not have yet.
async fn noted(lake: &Lake) -> Result<BTreeSet<(String, String)>> {
    let mut noted = BTreeSet::new();
    for object in lake.store.list(&layout::unclaimed_notes()).await? {
        if let Some(unclaimed) = staging::read_json::<Unclaimed>(lake, object.location.as_ref()).await? {
            noted.insert((unclaimed.source.path, unclaimed.source.etag));
        }
    }
    Ok(noted)
}
