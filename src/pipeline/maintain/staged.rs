//! What staging leaves behind: data that no manifest names, left-overs of settled batches, old plans.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::retention::{PLANS, STAGED};
use super::{Upkeep, Upkept};
use crate::error::Result;
use crate::layout;
use crate::manifest::{Manifest, Plan, StagedFile};
use crate::pipeline::staging::{self, StagedBatch, Stored};
use crate::pipeline::{ledger, sift};
use crate::schema::Contract;

/// A plan as it lies in the store.
pub(super) struct StoredPlan {
    /// Its number.
    pub number: i64,
    /// Its path.
    pub path: String,
    /// When the store took it.
    pub modified: DateTime<Utc>,
    /// Bytes.
    pub bytes: u64,
}

/// Cleans up after the staging of one table: data and markers that nobody names, then settled plans.
pub(super) async fn clean(upkeep: &Upkeep<'_>, contract: &Contract, done: &mut Upkept) -> Result<()> {
    let snapshot = upkeep.table.snapshot().await?;
    left_overs(upkeep, contract, snapshot.table_id(), done).await?;
    let data = upkeep.lake.store.list(&layout::staged_data(&contract.table)).await?;
    let old: Vec<_> = data.into_iter().filter(|object| object.last_modified < upkeep.now - STAGED).collect();
    if !old.is_empty() {
        // A manifest that comes after this look names data that is already gone, or is staged anew for its age (see `sift`).
        let named = named(upkeep, contract, snapshot.table_id()).await?;
        let unnamed = old.into_iter().filter(|object| !named.contains(object.location.as_ref()));
        let doomed = unnamed.map(|object| (object.location.to_string(), object.size)).collect();
        upkeep.delete(doomed, &mut done.staged).await?;
    }
    let settled = ledger::index(upkeep.lake).await?.txn(snapshot.table_id());
    let plans = plans(upkeep, contract).await?;
    let over = plans.into_iter().filter(|plan| plan.number <= settled && plan.modified < upkeep.now - PLANS);
    upkeep.delete(over.map(|plan| (plan.path, plan.bytes)).collect(), &mut done.plans).await
}

/// Names of batches that are settled (a committer died before it removed them), and old markers without their manifest.
async fn left_overs(upkeep: &Upkeep<'_>, contract: &Contract, table_id: &str, done: &mut Upkept) -> Result<()> {
    let index = ledger::index(upkeep.lake).await?;
    let known = index.table(table_id);
    let mut doomed = Vec::new();
    for (batch, found) in staging::list(upkeep.lake, &contract.table).await? {
        if known.is_some_and(|known| known.is_terminal(&batch)) {
            doomed.extend(sift::all_names(contract, &batch, &found));
            continue;
        }
        let orphans = StagedBatch {
            gone: without_manifest(&found.gone, &found),
            failed: without_manifest(&found.failed, &found),
            ..StagedBatch::default()
        };
        for path in sift::all_names(contract, &batch, &orphans) {
            let meta = upkeep.lake.store.head(&path).await?;
            if meta.is_some_and(|meta| meta.last_modified < upkeep.now - STAGED) {
                doomed.push(path);
            }
        }
    }
    upkeep.delete(doomed.into_iter().map(|path| (path, 0)).collect(), &mut done.staged).await
}

fn without_manifest(markers: &[u32], found: &StagedBatch) -> Vec<u32> {
    markers.iter().copied().filter(|generation| !found.manifests.contains(generation)).collect()
}

/// Everything that a manifest or an unsettled plan names, by its path below the lake's root. Read in the order in which a
/// name moves (manifest, plan, then the table's log), so that none slips through.
pub(super) async fn named(upkeep: &Upkeep<'_>, contract: &Contract, table_id: &str) -> Result<BTreeSet<String>> {
    let settled = ledger::index(upkeep.lake).await?.txn(table_id);
    let mut named = BTreeSet::new();
    let mut take = |files: &[StagedFile], rejects: Option<&StagedFile>| {
        named.extend(files.iter().chain(rejects).map(|file| file.path.clone()));
    };
    for (batch, found) in staging::list(upkeep.lake, &contract.table).await? {
        for generation in found.manifests {
            let path = layout::manifest(&contract.table, &batch, generation);
            // A damaged one names nothing that could be committed: its batch is staged anew.
            if let Stored::There(manifest, _) = staging::read_stored::<Manifest>(upkeep.lake, &path).await? {
                take(&manifest.files, manifest.rejects.as_ref());
            }
        }
    }
    for plan in plans(upkeep, contract).await?.into_iter().filter(|plan| plan.number > settled) {
        // The manifests of an unsettled plan are still there and name the same.
        if let Stored::There(plan, _) = staging::read_stored::<Plan>(upkeep.lake, &plan.path).await? {
            plan.rows.iter().for_each(|row| take(&row.files, row.rejects.as_ref()));
        }
    }
    Ok(named)
}

/// All plans of a table.
pub(super) async fn plans(upkeep: &Upkeep<'_>, contract: &Contract) -> Result<Vec<StoredPlan>> {
    let objects = upkeep.lake.store.list(&layout::plans(&contract.table)).await?;
    let plans = objects.into_iter().filter_map(|object| {
        let path = object.location.to_string();
        let number = layout::plan_number(&path)?;
        Some(StoredPlan { number, path, modified: object.last_modified, bytes: object.size })
    });
    Ok(plans.collect())
}
