//! Whether a table of changes, its history and its quarantine are what the events make of them: the events are read again,
//! walked through by the code that keeps the tables, and the results compared. Kept changes have no part in it.

use std::sync::Arc;

use super::Work;
use super::derive::rows_of;
use super::feed::of_table;
use super::gather::{gather, of_events};
use super::target::{Kind, Target, kinds};
use crate::change::walk::Walker;
use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::pipeline::layers::verify::{Comparison, ROW_BYTES, Sign};
use crate::pipeline::layers::{CONTRACT_HASH, Difference, Verdict, watermark_id};
use crate::pipeline::replace::rewrite::writer_options;
use crate::schema::Contract;
use crate::table::{At, Snapshot, Writer, conform};

/// Compares each derived table with what the events come to, at the version of bronze that they have seen. Writes nothing that
/// anybody reads. What the quarantine differs by counts for its table.
///
/// # Errors
/// As [`crate::pipeline::layers::advance`].
pub async fn verify(lake: &Lake, contract: &Contract) -> Result<Vec<(TableName, Verdict)>> {
    let work = Work::new(lake, contract).map_err(|e| e.within(&contract.table))?;
    let skipped = |reason: String| {
        let tables = std::iter::once(contract).chain(work.history);
        tables.map(|table| (table.table.clone(), Verdict::Skipped(reason.clone()))).collect()
    };
    let (targets, bronze) = match prepare(&work).await.map_err(|e| e.within(&contract.table))? {
        Ok(ready) => ready,
        Err(reason) => return Ok(skipped(reason)),
    };
    let folder = layout::scratch_of(&contract.table, &lake.clock.fresh());
    let compared = look(&work, &targets, &bronze, &folder).await;
    // Nobody else knows the folder.
    let left: Vec<String> =
        lake.store.list(&folder).await?.into_iter().map(|object| object.location.to_string()).collect();
    lake.store.delete(&left).await?;
    match compared {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(skipped(format!("files of {} of that version are gone ({})", work.source.from, error.message())))
        }
        compared => compared.map_err(|e| e.within(&contract.table)),
    }
}

/// The tables, and bronze as they have seen it; or why that cannot be had.
async fn prepare<'a>(work: &Work<'a>) -> Result<std::result::Result<(Vec<Target<'a>>, Snapshot), String>> {
    let Some(bronze) = work.lake.table(&layout::table(&work.source.from)).await? else {
        return Ok(Err("it has no source yet".to_owned()));
    };
    let id = watermark_id(&work.source.from, bronze.snapshot().await?.table_id());
    let mut targets = Vec::new();
    let mut seen: Option<i64> = None;
    for (kind, contract, folder) in kinds(work) {
        let Some(table) = work.lake.table(&folder).await? else { return Ok(Err("it is not made yet".to_owned())) };
        let base = table.snapshot().await?;
        if base.properties().get(CONTRACT_HASH) != Some(&contract.hash) {
            return Ok(Err("its contract changed: the next commit makes it anew".to_owned()));
        }
        let Some(watermark) = base.txn(&id).await? else {
            return Ok(Err(format!("it has not read {} yet", work.source.from)));
        };
        if seen.is_some_and(|seen| seen != watermark) {
            return Ok(Err("its tables are not at one version: the next commit mends that".to_owned()));
        }
        seen = Some(watermark);
        targets.push(Target { kind, contract, table, schema: base.schema(), base });
    }
    let version = seen.unwrap_or_default();
    match bronze.snapshot_at(At::Version(version)).await {
        Ok(snapshot) => Ok(Ok((targets, snapshot))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(Err(format!("version {version} of {} can no longer be read", work.source.from)))
        }
        Err(error) => Err(error),
    }
}

async fn look(
    work: &Work<'_>,
    targets: &[Target<'_>],
    bronze: &Snapshot,
    folder: &str,
) -> Result<Vec<(TableName, Verdict)>> {
    let lake = work.lake;
    let folder_of = |target: &Target<'_>| format!("{folder}/{}", target.base.folder());
    let mut writers: Vec<Writer> = targets
        .iter()
        .map(|target| {
            let (schema, options) = (target.base.schema(), writer_options(lake, targets.len()));
            let clock = Arc::clone(&lake.clock);
            Writer::new(&lake.store, &folder_of(target), schema, target.base.partition_by(), options, clock)
        })
        .collect();
    let events = of_events(work, bronze, of_table(work, bronze.files()?.iter().cloned()));
    let mut slices = gather(work, Vec::new(), events).await?;
    let judge = |batch: &arrow::array::RecordBatch| work.images.rejudge(batch);
    let mut walker = Walker::new(&work.shape, &judge, i64::MIN);
    let mut rows = vec![0; targets.len()];
    while let Some(slice) = slices.next().await? {
        let walked = walker.walk(&slice)?;
        for ((target, writer), rows) in targets.iter().zip(&mut writers).zip(&mut rows) {
            if let Some(made) = rows_of(&walked, target.kind) {
                *rows += made.num_rows() as u64;
                writer.write(&conform(made, &target.base.schema())?).await?;
            }
        }
    }
    let mut verdicts: Vec<(TableName, u64, Difference)> = Vec::new();
    for ((target, writer), rows) in targets.iter().zip(writers).zip(rows) {
        let made = writer.finish().await?;
        let stored = (target.base.clone(), target.base.files()?.to_vec(), Sign::Stored);
        let fresh = (target.base.in_folder(&folder_of(target)), made, Sign::Made);
        let key = if target.kind == Kind::Quarantine { &[] } else { target.contract.primary_key.as_slice() };
        let comparison = Comparison::new(&target.base.schema(), key)?;
        let difference = comparison.run(&[stored, fresh], lake.settings.memory_bytes / 4 / ROW_BYTES).await?;
        match verdicts.iter_mut().find(|(table, ..)| *table == target.contract.table) {
            Some((.., known)) => {
                if !difference.is_none() {
                    tracing::error!(table.name = %target.contract.table, ?difference, "quarantine is not what the events make it");
                }
                known.missing += difference.missing;
                known.extra += difference.extra;
                known.different += difference.different;
            }
            None => verdicts.push((target.contract.table.clone(), rows, difference)),
        }
    }
    if verdicts.is_empty() {
        return Err(Error::internal("nothing was compared"));
    }
    Ok(verdicts.into_iter().map(|(table, rows, difference)| (table, Verdict::Compared { rows, difference })).collect())
}
