//! Discard: everything that is staged goes, on purpose. Files come back by `reconcile`; of pieces of streams what is staged
//! may be the only copy.
//!
//! ```text
//! list     manifests, and what they name
//! delete   manifests, markers and notes: no later plan has them
//! fence    a commit: no earlier plan is committed any more
//! read     the plan that is committed and not settled: what it names stays
//! delete   what the manifests named, and settled plans
//! ```

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Deleted, Upkeep, staged, store_time, vacuum};
use crate::error::Result;
use crate::layout;
use crate::manifest::{Manifest, StagedFormat};
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::pipeline::staging::{self, Stored};
use crate::pipeline::{ledger, sift};
use crate::schema::Contract;

/// What is staged for one table, and what was discarded of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Discarded {
    /// The table.
    pub table: TableName,
    /// Staged files: `reconcile` brings them back.
    pub files: u64,
    /// Staged pieces of streams: only who rewinds the stream brings them back.
    pub pieces: u64,
    /// Manifests, markers, notes and staged data.
    pub staged: Deleted,
    /// Settled plans.
    pub plans: Deleted,
}

/// Discards what is staged, for all tables or some; `dry_run` only tells.
///
/// # Errors
/// The store, or a table that cannot be fenced.
pub async fn discard(lake: &Lake, only: &[TableName], dry_run: bool) -> Result<Vec<Discarded>> {
    let now = store_time(lake).await?;
    let mut discarded = Vec::new();
    for contract in lake.catalog.tables().iter().filter(|contract| contract.files().is_some()) {
        if !only.is_empty() && !only.contains(&contract.table) {
            continue;
        }
        let Some(table) = lake.table(&layout::table(&contract.table)).await? else { continue };
        let fed: Option<&Contract> = Some(contract);
        let upkeep = Upkeep { lake, table, contract: fed, ingested: fed, now, deadline: None };
        let done = Box::pin(discard_table(&upkeep, contract, dry_run)).await;
        discarded.push(done.map_err(|error| error.within(&contract.table))?);
    }
    Ok(discarded)
}

async fn discard_table(upkeep: &Upkeep<'_>, contract: &Contract, dry_run: bool) -> Result<Discarded> {
    let table_id = upkeep.table.snapshot().await?.table_id().to_owned();
    let mut done = Discarded {
        table: contract.table.clone(),
        files: 0,
        pieces: 0,
        staged: Deleted::default(),
        plans: Deleted::default(),
    };
    let mut names: Vec<(String, u64)> = Vec::new();
    let mut data: BTreeSet<(String, u64)> = BTreeSet::new();
    for (batch, found) in staging::list(upkeep.lake, &contract.table).await? {
        names.extend(sift::all_names(contract, &batch, &found).into_iter().map(|path| (path, 0)));
        for generation in &found.manifests {
            let path = layout::manifest(&contract.table, &batch, *generation);
            let Stored::There(manifest, _) = staging::read_stored::<Manifest>(upkeep.lake, &path).await? else {
                continue;
            };
            match manifest.source.range() {
                Some(_) => done.pieces += 1,
                None => done.files += 1,
            }
            // Final Parquet lies in the table's folder, where only the vacuum deletes.
            let staged = manifest.files.iter().filter(|file| file.format == StagedFormat::Arrow);
            data.extend(staged.chain(&manifest.rejects).map(|file| (file.path.clone(), file.bytes)));
        }
    }
    if dry_run {
        done.staged = Deleted {
            files: (names.len() + data.len()) as u64,
            bytes: data.iter().map(|(_, bytes)| bytes).sum::<u64>(),
        };
        let settled = settled_plans(upkeep, contract, &table_id).await?;
        done.plans = Deleted { files: settled.len() as u64, bytes: settled.iter().map(|(_, bytes)| bytes).sum() };
        return Ok(done);
    }
    if !names.is_empty() {
        upkeep.delete(names, &mut done.staged).await?;
        vacuum::fence(upkeep).await?;
        let named = staged::named(upkeep, contract, &table_id).await?;
        let unnamed = data.into_iter().filter(|(path, _)| !named.contains(path)).collect();
        upkeep.delete(unnamed, &mut done.staged).await?;
    }
    upkeep.delete(settled_plans(upkeep, contract, &table_id).await?, &mut done.plans).await?;
    Ok(done)
}

async fn settled_plans(upkeep: &Upkeep<'_>, contract: &Contract, table_id: &str) -> Result<Vec<(String, u64)>> {
    let settled = ledger::index(upkeep.lake).await?.txn(table_id);
    let plans = staged::plans(upkeep, contract).await?.into_iter();
    Ok(plans.filter(|plan| plan.number <= settled).map(|plan| (plan.path, plan.bytes)).collect())
}
