//! Upsert straight from files: one stored row per key, the newest by `sequence_by`, else by `[_file, version, _row]`.
//!
//! A stored row needs no version column: what is planned for its path is newer than what is stored, because older versions
//! were judged `superseded` before.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use futures::TryStreamExt;
use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::manifest::Plan;
use crate::pipeline::lake::Lake;
use crate::pipeline::rows::{self, Failure};
use crate::schema::Contract;
use crate::schema::lineage::{FILE, ROW};
use crate::table::{DataFile, Snapshot, Writer, WriterOptions, conform};

/// Encodes some columns of a batch as rows that compare like the values.
struct Encoder {
    names: Vec<String>,
    converter: RowConverter,
}

impl Encoder {
    fn new(schema: &SchemaRef, names: Vec<String>) -> Result<Self> {
        let mut fields = Vec::with_capacity(names.len());
        for name in &names {
            fields.push(SortField::new(schema.field_with_name(name)?.data_type().clone()));
        }
        Ok(Self { names, converter: RowConverter::new(fields)? })
    }

    fn encode(&self, batch: &RecordBatch) -> Result<Rows> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let column = batch
                .column_by_name(name)
                .ok_or_else(|| Error::internal(format!("upsert: rows without column `{name}`")))?;
            columns.push(Arc::clone(column));
        }
        Ok(self.converter.convert_columns(&columns)?)
    }
}

/// The newest incoming row of a key.
struct Newest {
    row: usize,
    beaten: bool,
}

/// What the plan's batches add to and remove from the table: (adds, removes).
pub async fn apply(
    lake: &Lake,
    contract: &Contract,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    plan: &Plan,
) -> Result<(Vec<DataFile>, Vec<DataFile>), Failure> {
    let (incoming, positions) = incoming(lake, schema, plan).await?;
    if incoming.num_rows() == 0 {
        return Ok((Vec::new(), Vec::new()));
    }
    let keys = Encoder::new(schema, contract.primary_key.clone())?;
    let order = Encoder::new(schema, order_columns(contract))?;
    let order_rows = order.encode(&incoming)?;
    let mut newest = newest_by_key(&incoming, &positions, &keys, &order_rows)?;
    let mut adds = Vec::new();
    let mut removes = Vec::new();
    for file in snapshot.files()?.iter() {
        let doomed = compare_stored(snapshot, file, &keys, &order, &order_rows, &mut newest).await?;
        if doomed.iter().any(|mask| mask.true_count() > 0) {
            removes.push(file.clone());
            adds.extend(rewrite(lake, snapshot, schema, file, &doomed).await?);
        }
    }
    let winners: UInt32Array = {
        let mut rows: Vec<u32> = newest
            .values()
            .filter(|newest| !newest.beaten)
            .map(|newest| u32::try_from(newest.row))
            .collect::<Result<_, _>>()
            .map_err(|e| Error::internal("upsert: too many rows in one plan").because(e))?;
        rows.sort_unstable();
        rows.into()
    };
    if !winners.is_empty() {
        let mut writer = writer(lake, snapshot, schema);
        writer.write(&take_record_batch(&incoming, &winners).map_err(Error::from)?).await?;
        adds.extend(writer.finish().await?);
    }
    Ok((adds, removes))
}

/// `sequence_by`, then the file: what decides before version and row do.
fn order_columns(contract: &Contract) -> Vec<String> {
    let mut names = contract.sequence_by.clone();
    if !names.iter().any(|name| name == FILE) {
        names.push(FILE.to_owned());
    }
    names
}

/// All rows of the plan in one batch, and for each the position of its batch in the plan (older versions come first).
async fn incoming(lake: &Lake, schema: &SchemaRef, plan: &Plan) -> Result<(RecordBatch, Vec<usize>), Failure> {
    let mut batches = Vec::new();
    let mut positions = Vec::new();
    for (position, row) in plan.rows.iter().enumerate() {
        for file in &row.files {
            let staged = rows::staged_rows(lake, row, file, plan.made_at).await;
            for batch in staged.map_err(|e| Failure::Batch(position, e))? {
                positions.extend(std::iter::repeat_n(position, batch.num_rows()));
                batches.push(conform(&batch, schema).map_err(|e| Failure::Batch(position, e))?);
            }
        }
    }
    Ok((concat_batches(schema, &batches).map_err(Error::from)?, positions))
}

fn newest_by_key(
    incoming: &RecordBatch,
    positions: &[usize],
    keys: &Encoder,
    order_rows: &Rows,
) -> Result<HashMap<OwnedRow, Newest>> {
    let numbers = incoming
        .column_by_name(ROW)
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| Error::internal("upsert: staged rows without `_row`"))?;
    let key_rows = keys.encode(incoming)?;
    let rank = |row: usize| (order_rows.row(row), positions[row], numbers.value(row));
    let mut newest: HashMap<OwnedRow, Newest> = HashMap::with_capacity(incoming.num_rows());
    for row in 0..incoming.num_rows() {
        let known = newest.entry(key_rows.row(row).owned()).or_insert(Newest { row, beaten: false });
        if rank(row) > rank(known.row) {
            known.row = row;
        }
    }
    Ok(newest)
}

/// Which rows of a stored file are replaced; incoming rows that a stored one beats are marked.
async fn compare_stored(
    snapshot: &Snapshot,
    file: &DataFile,
    keys: &Encoder,
    order: &Encoder,
    order_rows: &Rows,
    newest: &mut HashMap<OwnedRow, Newest>,
) -> Result<Vec<BooleanArray>> {
    let mut columns = keys.names.clone();
    columns.extend(order.names.iter().filter(|name| !keys.names.contains(name)).cloned());
    let mut doomed = Vec::new();
    let mut batches = snapshot.read(file, Some(&columns)).await?;
    while let Some(batch) = batches.try_next().await? {
        let stored_keys = keys.encode(&batch)?;
        let stored_order = order.encode(&batch)?;
        let mut mask = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let known = newest.get_mut(&stored_keys.row(row).owned());
            let replaced = known.is_some_and(|known| {
                // Equal order means the same file: the incoming version is newer.
                let wins = order_rows.row(known.row) >= stored_order.row(row);
                known.beaten |= !wins;
                wins
            });
            mask.push(replaced);
        }
        doomed.push(BooleanArray::from(mask));
    }
    Ok(doomed)
}

async fn rewrite(
    lake: &Lake,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    file: &DataFile,
    doomed: &[BooleanArray],
) -> Result<Vec<DataFile>> {
    let mut writer = writer(lake, snapshot, schema);
    let masks = doomed.iter().flat_map(BooleanArray::iter).map(|doomed| !doomed.unwrap_or_default());
    let keep: BooleanArray = masks.map(Some).collect();
    let mut begin = 0;
    let mut batches = snapshot.read(file, None).await?;
    while let Some(batch) = batches.try_next().await? {
        let mask = keep.slice(begin, batch.num_rows());
        begin += batch.num_rows();
        let kept = filter_record_batch(&batch, &mask)?;
        if kept.num_rows() > 0 {
            writer.write(&conform(&kept, schema)?).await?;
        }
    }
    writer.finish().await
}

fn writer(lake: &Lake, snapshot: &Snapshot, schema: &SchemaRef) -> Writer {
    let options =
        WriterOptions { target_bytes: lake.settings.target_file_bytes, memory_bytes: lake.settings.memory_bytes / 4 };
    let clock = Arc::clone(&lake.clock);
    Writer::new(&lake.store, snapshot.folder(), Arc::clone(schema), snapshot.partition_by(), options, clock)
}
