//! The rows of a plan: staged Arrow is coalesced into table files, big staged Parquet is adopted as it is, and the rows of
//! replaced file versions are taken out of the files that hold them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Plan, PlannedRow, StagedFile, StagedFormat};
use crate::pipeline::lake::Lake;
use crate::pipeline::{lineage_columns, staging};
use crate::schema::Contract;
use crate::schema::lineage::{FILE, OFFSET};
use crate::table::{DataFile, Snapshot, Writer, WriterOptions, conform};

/// Staged bytes below which one writer makes one file: two would only make two small ones.
const BYTES_PER_WRITER: u64 = 64 << 20;

/// Why the rows of a plan could not be written.
#[derive(Debug)]
pub enum Failure {
    /// One batch is the cause; the others are fine.
    Batch(usize, Error),
    /// Anything else.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// What a plan adds to the table, before upsert or replace take rows out.
#[derive(Debug, Default)]
pub struct Added {
    /// New table files.
    pub files: Vec<DataFile>,
    /// How many of them were adopted as staged.
    pub adopted: usize,
}

/// Writes (or adopts) the rows of all loaded batches as files of the table. `schema` is the table's after this commit.
pub async fn add(
    lake: &Lake,
    contract: &Arc<Contract>,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    plan: &Arc<Plan>,
) -> Result<Added, Failure> {
    let mut added = Added::default();
    let mut work: Vec<(usize, StagedFile)> = Vec::new();
    for (position, row) in plan.rows.iter().enumerate() {
        for file in &row.files {
            if let Some(adopted) = adopt(lake, contract, snapshot, schema, row, file).await? {
                added.files.push(adopted);
                added.adopted += 1;
            } else {
                work.push((position, file.clone()));
            }
        }
    }
    let bytes: u64 = work.iter().map(|(_, file)| file.bytes).sum();
    let writers = usize::try_from(bytes / BYTES_PER_WRITER).unwrap_or(usize::MAX).clamp(1, lake.settings.threads);
    let mut tasks = Vec::with_capacity(writers);
    for share in shares(work, writers) {
        let task = write_share(lake.clone(), snapshot.clone(), Arc::clone(schema), Arc::clone(plan), share, writers);
        tasks.push(tokio::spawn(task));
    }
    for task in tasks {
        let files = task.await.map_err(|e| Error::internal("writing rows stopped").because(e))??;
        added.files.extend(files);
    }
    Ok(added)
}

/// Cuts the work, in order, into shares of about the same number of bytes.
fn shares(work: Vec<(usize, StagedFile)>, count: usize) -> Vec<Vec<(usize, StagedFile)>> {
    let total: u64 = work.iter().map(|(_, file)| file.bytes).sum();
    let share = (total / count as u64).max(1);
    let mut shares: Vec<Vec<(usize, StagedFile)>> = Vec::new();
    let mut filled = 0;
    for item in work {
        if shares.is_empty() || (filled >= share && shares.len() < count) {
            shares.push(Vec::new());
            filled = 0;
        }
        filled += item.1.bytes;
        if let Some(last) = shares.last_mut() {
            last.push(item);
        }
    }
    shares
}

async fn write_share(
    lake: Lake,
    snapshot: Snapshot,
    schema: SchemaRef,
    plan: Arc<Plan>,
    share: Vec<(usize, StagedFile)>,
    writers: usize,
) -> Result<Vec<DataFile>, Failure> {
    let options = WriterOptions {
        target_bytes: lake.settings.target_file_bytes,
        memory_bytes: lake.settings.memory_bytes / (4 * writers as u64),
    };
    let (folder, partition_by) = (snapshot.folder(), snapshot.partition_by());
    let mut writer =
        Writer::new(&lake.store, folder, Arc::clone(&schema), partition_by, options, Arc::clone(&lake.clock));
    for (position, file) in share {
        let row = &plan.rows[position];
        let mut staged =
            staged_rows(&lake, &snapshot, row, &file, plan.made_at).await.map_err(|e| blame(position, e))?;
        while let Some(batch) = staged.try_next().await.map_err(|e| blame(position, e))? {
            let ready = conform(&batch, &schema).map_err(|e| Failure::Batch(position, e))?;
            writer.write(&ready).await.map_err(|e| blame(position, e))?;
        }
    }
    Ok(writer.finish().await?)
}

/// Staged data that is unreadable or cannot be mapped is the batch's fault; a store that does not answer is not.
pub fn blame(position: usize, error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::NotFound => Failure::Batch(position, error),
        _ => Failure::Other(error),
    }
}

/// The rows of one staged file with their lineage columns.
pub async fn staged_rows(
    lake: &Lake,
    snapshot: &Snapshot,
    row: &PlannedRow,
    file: &StagedFile,
    at: chrono::DateTime<chrono::Utc>,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    match file.format {
        StagedFormat::Arrow => {
            let table = snapshot.schema();
            let (path, batch_id) = (row.source.path().map(str::to_owned), row.rows_of().clone());
            let complete = move |batch| lineage_columns::complete(&batch, &table, path.as_deref(), &batch_id, at);
            Ok(kept_of(staging::read_arrow(lake, file).map(move |batch| batch.and_then(&complete)).boxed(), row))
        }
        StagedFormat::Parquet => {
            let Some(stored) = as_table_file(snapshot, file, 0) else {
                return Err(Error::corrupt(format!("staged file {} is not in the table's folder", file.path)));
            };
            Ok(kept_of(snapshot.read(&stored, None).await?, row))
        }
    }
}

/// Of a piece of a stream, the rows that the plan keeps.
fn kept_of(rows: BoxStream<'static, Result<RecordBatch>>, row: &PlannedRow) -> BoxStream<'static, Result<RecordBatch>> {
    match row.kept.clone() {
        None => rows,
        Some(kept) => rows.map(move |batch| of_offsets(batch?, Some(&kept), OFFSET)).boxed(),
    }
}

/// The rows at some offsets, told by `column`; all rows when none are named.
pub fn of_offsets(batch: RecordBatch, kept: Option<&[(i64, i64)]>, column: &str) -> Result<RecordBatch> {
    let Some(kept) = kept else { return Ok(batch) };
    let offsets = batch
        .column_by_name(column)
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| Error::corrupt(format!("rows of a stream have no column `{column}`")))?;
    let is_kept = |offset: Option<i64>| {
        offset.is_some_and(|offset| kept.iter().any(|(first, last)| (*first..=*last).contains(&offset)))
    };
    let mask: BooleanArray = offsets.iter().map(|offset| Some(is_kept(offset))).collect();
    Ok(filter_record_batch(&batch, &mask)?)
}

/// A staged Parquet file becomes a table file as it is when nothing about it could be wrong: same contract, same columns,
/// good size, and young enough that no vacuum can be about to take it.
async fn adopt(
    lake: &Lake,
    contract: &Contract,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    row: &PlannedRow,
    file: &StagedFile,
) -> Result<Option<DataFile>> {
    if file.format != StagedFormat::Parquet
        || row.kept.is_some()
        || row.contract_hash != contract.hash
        || snapshot.partition_by() != contract.partition_by
        || schema.fields().len() != crate::schema::arrow::ingested_schema(contract).fields().len()
        || (!contract.partition_by.is_empty() && file.bytes < lake.settings.adopt_bytes / 4)
    {
        return Ok(None);
    }
    // After the snapshot: a vacuum that began before it has a fence that this commit would meet.
    let Some(meta) = lake.store.head(&file.path).await? else {
        return Err(Error::not_found(format!("staged file {} is gone", file.path)));
    };
    if lake.is_too_old(meta.last_modified) {
        return Ok(None);
    }
    Ok(as_table_file(snapshot, file, meta.last_modified.timestamp_millis()))
}

/// A staged Parquet file seen as a file of the table; none when it lies elsewhere.
fn as_table_file(snapshot: &Snapshot, file: &StagedFile, modified_ms: i64) -> Option<DataFile> {
    let path = file.path.strip_prefix(snapshot.folder())?.strip_prefix('/')?;
    Some(DataFile {
        path: path.to_owned(),
        size: file.bytes,
        modified_ms,
        partition_values: file.partition_values.clone(),
        rows: Some(file.rows),
        stats: file.stats.clone(),
    })
}

/// Takes all rows of some landed paths out of the table, whatever version brought them: files to remove, and files that
/// hold what else was in them.
pub async fn without_paths(
    lake: &Lake,
    snapshot: &Snapshot,
    paths: &BTreeSet<String>,
) -> Result<(Vec<DataFile>, Vec<DataFile>)> {
    let mut removes = Vec::new();
    let mut writer: Option<Writer> = None;
    for file in snapshot.files()?.iter().filter(|file| may_hold(file, paths)) {
        let mut held = 0_u64;
        let mut batches = snapshot.read(file, Some(&[FILE.to_owned()])).await?;
        while let Some(batch) = batches.try_next().await? {
            held += of_paths(&batch, paths)?.true_count() as u64;
        }
        if held == 0 {
            continue;
        }
        removes.push(file.clone());
        if Some(held) == file.rows {
            continue;
        }
        let schema = snapshot.schema();
        let mut batches = snapshot.read(file, None).await?;
        while let Some(batch) = batches.try_next().await? {
            let keep = arrow::compute::not(&of_paths(&batch, paths)?)?;
            let kept = filter_record_batch(&batch, &keep)?;
            let target = writer.get_or_insert_with(|| {
                let options = WriterOptions {
                    target_bytes: lake.settings.target_file_bytes,
                    memory_bytes: lake.settings.memory_bytes / 4,
                };
                let clock = Arc::clone(&lake.clock);
                Writer::new(
                    &lake.store,
                    snapshot.folder(),
                    Arc::clone(&schema),
                    snapshot.partition_by(),
                    options,
                    clock,
                )
            });
            target.write(&conform(&kept, &schema)?).await?;
        }
    }
    let kept = match writer {
        Some(writer) => writer.finish().await?,
        None => Vec::new(),
    };
    Ok((removes, kept))
}

fn of_paths(batch: &RecordBatch, paths: &BTreeSet<String>) -> Result<BooleanArray> {
    let column = batch
        .column_by_name(FILE)
        .and_then(|column| column.as_string_opt::<i32>())
        .ok_or_else(|| Error::corrupt("a table fed by files has no column `_file`"))?;
    Ok(column.iter().map(|path| Some(path.is_some_and(|path| paths.contains(path)))).collect())
}

/// Whether the file's statistics leave room for one of the paths.
fn may_hold(file: &DataFile, paths: &BTreeSet<String>) -> bool {
    let Some(stats) = file.stats.as_deref().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
    else {
        return true;
    };
    let bound = |which: &str| stats.get(which).and_then(|values| values.get(FILE)).cloned();
    let (Some(min), Some(max)) = (bound("minValues"), bound("maxValues")) else { return true };
    let (Some(min), Some(max)) = (min.as_str(), max.as_str()) else { return true };
    paths.range(min.to_owned()..).next().is_some_and(|path| path.as_str() <= max)
}
