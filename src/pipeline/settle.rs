//! Settle: after the table has a plan's rows, the quarantine table and the ledger get theirs, then what was staged goes.
//! Any committer may do it, any number of times: each table is guarded by its own txn. DESIGN section 4, step 8.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;

use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::manifest::{Plan, StagedFile};
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::{self, LedgerRow};
use crate::pipeline::{APP_ID, distinct, resolve, rows, sift, staging, tables};
use crate::safeguard::Safeguard;
use crate::schema::Contract;
use crate::table::{Change, DataFile, Outcome, Snapshot, Writer, WriterOptions, conform};

/// How often a commit to quarantine is tried again when somebody else was quicker.
const ATTEMPTS: usize = 50;

/// Staged rejects, and the offsets of theirs that the plan keeps; none are all.
type Rejects<'a> = (&'a StagedFile, Option<&'a [(i64, i64)]>);

/// Settles a plan that the table's log shows as committed.
pub async fn settle(lake: &Lake, contract: &Contract, plan: &Plan) -> Result<()> {
    settle_rejects(lake, contract, plan).await?;
    let now = lake.clock.now();
    let rows: Vec<LedgerRow> =
        plan.rows.iter().map(|row| LedgerRow::of_plan(&plan.table, &plan.table_id, plan.number, row, now)).collect();
    ledger::settle(lake, &plan.table_id, plan.number, &rows).await?;
    sweep(lake, contract, plan).await
}

/// The first part: what a committed plan brings to quarantine, and takes out of it.
pub async fn settle_rejects(lake: &Lake, contract: &Contract, plan: &Plan) -> Result<()> {
    let rejects: Vec<Rejects<'_>> =
        plan.rows.iter().filter_map(|row| Some((row.rejects.as_ref()?, row.kept.as_deref()))).collect();
    if !rejects.is_empty() || resolve::cured(plan).next().is_some() {
        quarantine(lake, contract, plan, &rejects).await?;
    }
    Ok(())
}

/// Appends the plan's rejects and marks what it redrove, exactly once, before the ledger says so.
async fn quarantine(lake: &Lake, contract: &Contract, plan: &Plan, rejects: &[Rejects<'_>]) -> Result<()> {
    let table = tables::ensure_quarantine(lake, contract).await?;
    let folder = layout::quarantine(&contract.table);
    for attempt in 0..ATTEMPTS {
        let snapshot = table.snapshot().await?;
        let settled = snapshot.txn(APP_ID).await?.unwrap_or_default();
        if settled >= plan.number && lake.store.keeps(Safeguard::QuarantineTxn) {
            return Ok(());
        }
        let grown = tables::grown_quarantine(&snapshot, contract);
        let schema = grown.clone().unwrap_or_else(|| snapshot.schema());
        // After each snapshot anew: files from before it may be what a vacuum is about to take.
        let mut adds = match write_rejects(lake, contract, plan, &snapshot, schema, rejects).await {
            Ok(adds) => adds,
            // Another committer may have settled the plan since the snapshot, and swept its rejects.
            Err(_) if table.snapshot().await?.txn(APP_ID).await?.unwrap_or_default() >= plan.number => return Ok(()),
            Err(error) => return Err(error),
        };
        let (removes, resolved) = resolve::resolved(lake, &snapshot, plan).await?;
        adds.extend(resolved);
        let change = Change {
            operation: "WRITE".to_owned(),
            adds,
            removes,
            txns: vec![(APP_ID.to_owned(), plan.number)],
            schema: grown,
            ..Change::default()
        };
        match table.commit(&snapshot, change).await? {
            Outcome::Committed(_) => return Ok(()),
            Outcome::Unknown(error) => {
                tracing::debug!(attempt, error = %error, "quarantine commit refused or unknown, looking again");
                lake.pause(attempt).await;
            }
        }
    }
    Err(Error::conflict(format!("{folder}: other writers were quicker every time")))
}

async fn write_rejects(
    lake: &Lake,
    contract: &Contract,
    plan: &Plan,
    snapshot: &Snapshot,
    schema: SchemaRef,
    rejects: &[Rejects<'_>],
) -> Result<Vec<DataFile>> {
    let options =
        WriterOptions { target_bytes: lake.settings.target_file_bytes, memory_bytes: lake.settings.memory_bytes / 8 };
    // Of change events each distinct text is in quarantine once, however often it came.
    let mut seen = match contract.events() {
        Some(_) => Some(distinct::Seen::in_table(snapshot).await?),
        None => None,
    };
    let mut writer = Writer::new(
        &lake.store,
        snapshot.folder(),
        Arc::clone(&schema),
        snapshot.partition_by(),
        options,
        Arc::clone(&lake.clock),
    );
    for (file, kept) in rejects {
        let mut batches = staging::read_arrow(lake, file);
        let told = |error: Error| match error.kind() {
            ErrorKind::NotFound => Error::corrupt(format!(
                "{}: plan {} is committed, but its rejects {} are gone; this table stops, no other does",
                contract.table, plan.number, file.path
            ))
            .remedy(format!(
                "the rows are in the table; put the file back, or delete {} to settle without it after noting the loss",
                layout::plan(&plan.table, plan.number)
            )),
            _ => error,
        };
        while let Some(batch) = batches.try_next().await.map_err(told)? {
            let batch = rows::of_offsets(batch, *kept, "offset")?;
            let batch = match &mut seen {
                Some(seen) => seen.keep_new(&batch)?,
                None => batch,
            };
            writer.write(&conform(&batch, &schema)?).await?;
        }
    }
    writer.finish().await
}

/// Removes what the plan's batches left in `_alluvium`, for the batches that the ledger has: staged data and markers
/// first, manifests last. Never data in the table's folder.
pub async fn sweep(lake: &Lake, contract: &Contract, plan: &Plan) -> Result<()> {
    let index = ledger::index(lake).await?;
    let Some(known) = index.table(&plan.table_id) else { return Ok(()) };
    let mut names = Vec::new();
    let mut data = Vec::new();
    let mut manifests = Vec::new();
    for row in &plan.rows {
        names.extend(row.notes.iter().cloned());
        if !known.is_terminal(&row.batch_id) {
            continue;
        }
        data.extend(row.sweep.iter().cloned());
        let Some(newest) = row.generation else { continue };
        for generation in 0..=newest {
            let batch = staging::StagedBatch { manifests: vec![generation], ..staging::StagedBatch::default() };
            manifests.extend(sift::all_names(contract, &row.batch_id, &batch));
            if generation < newest {
                names.push(layout::marker_gone(&plan.table, &row.batch_id, generation));
            }
        }
    }
    lake.store.delete(&names).await?;
    lake.store.delete(&data).await?;
    lake.store.delete(&manifests).await
}
