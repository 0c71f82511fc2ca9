//! From bronze to kept changes: what bronze has more is read, typed and judged, and appended with the version that it was
//! read with.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use futures::TryStreamExt;
use serde_json::Value;

use super::gather::{self, kept_schema, of_events};
use super::{QUIET, QUIET_FOR, Work};
use crate::change::walk::sorted;
use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::pipeline::layers::{CONTRACT_HASH, watermark_id};
use crate::pipeline::replace::rewrite::writer;
use crate::schema::lineage;
use crate::table::{At, Change, DataFile, Outcome, Snapshot, Table, TableSpec, same_type};

/// The application id under which kept changes say how often they were made anew. What is derived from them says the same.
pub(super) const GENERATION: &str = "alluvium/generation";

/// Kept changes at one version.
pub(super) struct Fed {
    /// The kept changes.
    pub state: Snapshot,
    /// How often they were made anew.
    pub generation: i64,
    /// The watermark of whatever has seen all of them: application id and version of bronze.
    pub watermark: (String, i64),
    /// Files that were added now, and what is in them, in memory; empty when that is too much.
    pub fresh: Vec<RecordBatch>,
    /// Paths of these files.
    pub fresh_files: Vec<String>,
    /// Whether bronze has more.
    pub more: bool,
}

/// What came of a feed.
pub(super) enum Feed {
    Fed(Fed),
    /// Another writer was quicker.
    Again(Error),
}

/// The table of kept changes, created empty when it is not there, and its newest snapshot.
pub(super) async fn open(work: &Work<'_>) -> Result<(Table, Snapshot)> {
    let folder = layout::state(&work.contract.table);
    let table = match work.lake.table(&folder).await? {
        Some(table) => table,
        None => {
            let spec = TableSpec {
                schema: kept_schema(work),
                partition_by: Vec::new(),
                properties: BTreeMap::from([(CONTRACT_HASH.to_owned(), work.contract.hash.clone())]),
                description: Some(format!("kept changes of {}", work.contract.table)),
            };
            let table = Table::create(&work.lake.store, &folder, &spec).await?;
            work.lake.keep(&folder, &table);
            table
        }
    };
    let snapshot = table.snapshot().await?;
    Ok((table, snapshot))
}

/// What is to be read of bronze.
struct Plan {
    bronze: Snapshot,
    files: Vec<DataFile>,
    /// Why everything is.
    whole: Option<String>,
    more: bool,
}

/// Brings the kept changes to bronze's newest version, or as far as one slice goes.
pub(super) async fn feed(
    work: &Work<'_>,
    (table, base): &(Table, Snapshot),
    bronze: &Table,
    whole: Option<&str>,
) -> Result<Feed> {
    let newest = bronze.snapshot().await?;
    let id = watermark_id(&work.source.from, newest.table_id());
    let txns = base.txns().await?;
    let watermark = txns.get(&id).copied();
    let reason = whole_reason(work, base, &txns, watermark, newest.version()).or_else(|| whole.map(str::to_owned));
    let plan = match (reason, watermark) {
        (None, Some(watermark)) => increment(work, bronze, newest.clone(), watermark).await?,
        (reason, _) => everything(work, newest.clone(), reason.unwrap_or_default())?,
    };
    match read_and_commit(work, table, base, &plan, &id, watermark).await {
        // A file of the changes was compacted or replaced since and is vacuumed now: the live files have all rows.
        Err(error) if error.kind() == ErrorKind::NotFound && plan.whole.is_none() => {
            let plan = everything(work, newest, format!("new events can no longer be read ({})", error.message()))?;
            read_and_commit(work, table, base, &plan, &id, watermark).await
        }
        done => done,
    }
}

fn whole_reason(
    work: &Work<'_>,
    base: &Snapshot,
    txns: &BTreeMap<String, i64>,
    watermark: Option<i64>,
    newest: i64,
) -> Option<String> {
    let bronze = &work.source.from;
    if base.properties().get(CONTRACT_HASH) != Some(&work.contract.hash)
        || !same_columns(&base.schema(), &kept_schema(work))
    {
        return Some("the contract changed".to_owned());
    }
    match watermark {
        Some(watermark) if watermark > newest => Some(format!("{bronze} went back to version {newest}")),
        Some(_) => None,
        None if txns.keys().any(|id| id.starts_with(&format!("{bronze}@"))) => {
            Some(format!("{bronze} was created again"))
        }
        None => Some(format!("{bronze} is read for the first time")),
    }
}

fn same_columns(a: &Schema, b: &Schema) -> bool {
    let same = |(a, b): (&FieldRef, &FieldRef)| a.name() == b.name() && same_type(a.data_type(), b.data_type());
    a.fields().len() == b.fields().len() && a.fields().iter().zip(b.fields()).all(same)
}

/// Files that have events of this table.
pub(super) fn of_table(work: &Work<'_>, files: impl IntoIterator<Item = DataFile>) -> Vec<DataFile> {
    let table = Some(work.source.source_table.as_str());
    let has = |file: &DataFile| match file.partition_values.get(lineage::TABLE) {
        Some(value) => value.as_deref() == table,
        None => true,
    };
    files.into_iter().filter(has).collect()
}

fn everything(work: &Work<'_>, bronze: Snapshot, reason: String) -> Result<Plan> {
    let files = of_table(work, bronze.files()?.iter().cloned());
    Ok(Plan { bronze, files, whole: Some(reason), more: false })
}

async fn increment(work: &Work<'_>, bronze: &Table, newest: Snapshot, watermark: i64) -> Result<Plan> {
    let slice = work.lake.settings.memory_bytes / 4;
    let mut upto = newest.clone();
    loop {
        let Some(changes) = bronze.changes(watermark, &upto).await? else {
            let from = &work.source.from;
            return everything(work, newest, format!("{from} can no longer be read back to version {watermark}"));
        };
        if !of_table(work, changes.removed).is_empty() {
            return everything(work, newest, format!("events were taken out of {}", work.source.from));
        }
        let files = of_table(work, changes.added);
        let bytes: u64 = files.iter().map(|file| file.size).sum();
        let more = upto.version() < newest.version();
        let plan = Plan { bronze: upto, files, whole: None, more };
        let half = watermark + (plan.bronze.version() - watermark) / 2;
        if bytes <= slice || half <= watermark {
            return Ok(plan);
        }
        // Too much for one slice: only up to an older version, if that can be opened.
        match bronze.snapshot_at(At::Version(half)).await {
            Ok(older) => upto = older,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(plan),
            Err(error) => return Err(error),
        }
    }
}

async fn read_and_commit(
    work: &Work<'_>,
    table: &Table,
    base: &Snapshot,
    plan: &Plan,
    id: &str,
    watermark: Option<i64>,
) -> Result<Feed> {
    let version = plan.bronze.version();
    let txns = base.txns().await?;
    let generation = txns.get(GENERATION).copied().unwrap_or_default() + i64::from(plan.whole.is_some());
    let fed = |state, version, fresh, fresh_files| {
        let watermark = (id.to_owned(), version);
        Feed::Fed(Fed { state, generation, watermark, fresh, fresh_files, more: plan.more })
    };
    let is_young = plan.bronze.committed_at().is_some_and(|at| work.lake.clock.now() - at < QUIET_FOR);
    if let (None, Some(watermark)) = (&plan.whole, watermark)
        && plan.files.is_empty()
        && (version == watermark || is_young && version - watermark < QUIET)
    {
        return Ok(fed(base.clone(), watermark, Vec::new(), Vec::new()));
    }
    let (adds, rows, fresh) = read(work, base, plan).await?;
    // What is not held whole is read back like any other file.
    let fresh_files = if fresh.is_empty() { Vec::new() } else { adds.iter().map(|file| file.path.clone()).collect() };
    let mut change = Change {
        operation: if plan.whole.is_some() { "RECOMPUTE" } else { "ADVANCE" }.to_owned(),
        adds,
        txns: vec![(id.to_owned(), version)],
        ..Change::default()
    };
    change.info.insert("rowsAdded".to_owned(), Value::from(rows));
    if let Some(reason) = &plan.whole {
        change.removes = base.files()?.to_vec();
        change.txns.push((GENERATION.to_owned(), generation));
        change.schema = Some(kept_schema(work)).filter(|schema| !same_columns(schema, &base.schema()));
        change.properties.insert(CONTRACT_HASH.to_owned(), work.contract.hash.clone());
        change.info.insert("recomputedWhole".to_owned(), Value::from(reason.clone()));
    }
    match table.commit(base, change).await? {
        Outcome::Committed(now) => Ok(fed(now, version, fresh, fresh_files)),
        Outcome::Unknown(error) => Ok(Feed::Again(error)),
    }
}

/// Reads events and writes the changes, in runs that are in order. Gives the files, how many changes there are, and the
/// changes themselves when they can be held.
async fn read(work: &Work<'_>, base: &Snapshot, plan: &Plan) -> Result<(Vec<DataFile>, u64, Vec<RecordBatch>)> {
    let limit = work.held_bytes();
    let mut writer = writer(work.lake, base, &kept_schema(work), 1);
    let mut rows: gather::Rows = of_events(work, &plan.bronze, plan.files.clone());
    let (mut count, mut fresh, mut held) = (0, Vec::new(), 0);
    let (mut run, mut run_bytes) = (Vec::new(), 0);
    let mut has_more = true;
    while has_more {
        match rows.try_next().await? {
            Some(batch) => {
                run_bytes += batch.get_array_memory_size();
                run.push(batch);
            }
            None => has_more = false,
        }
        if run.is_empty() || (has_more && run_bytes < limit / 2) {
            continue;
        }
        let (shape, batches) = (work.shape.clone(), std::mem::take(&mut run));
        run_bytes = 0;
        let in_order = tokio::task::spawn_blocking(move || sorted(&shape, &batches));
        let in_order = in_order.await.map_err(|e| Error::internal("sorting changes").because(e))??;
        count += in_order.num_rows() as u64;
        writer.write(&in_order).await?;
        held += in_order.get_array_memory_size();
        fresh.push(in_order);
        if held > limit {
            fresh.clear();
        }
    }
    Ok((writer.finish().await?, count, fresh))
}
