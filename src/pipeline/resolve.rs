//! The resolved mark: quarantine rows of records that a plan redrove are written anew with the time of the plan in
//! `resolved`. Part of settling, in the same commit as the plan's new rejects and under the same txn.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::manifest::{Plan, Redrive};
use crate::pipeline::lake::Lake;
use crate::table::{DataFile, Snapshot, Writer, WriterOptions, conform};

/// What the plan took out of quarantine: batches that stand, not those that were overtaken.
pub fn cured(plan: &Plan) -> impl Iterator<Item = &Redrive> {
    plan.rows.iter().filter(|row| row.status.stands()).filter_map(|row| row.redrive.as_ref())
}

/// Files of the quarantine table that hold rows to be marked, and the files that take their place.
pub async fn resolved(lake: &Lake, quarantine: &Snapshot, plan: &Plan) -> Result<(Vec<DataFile>, Vec<DataFile>)> {
    let cured: BTreeMap<&str, &Redrive> = cured(plan).map(|redrive| (redrive.of.as_str(), redrive)).collect();
    if cured.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let schema = quarantine.schema();
    let options =
        WriterOptions { target_bytes: lake.settings.target_file_bytes, memory_bytes: lake.settings.memory_bytes / 8 };
    let clock = Arc::clone(&lake.clock);
    let folder = quarantine.folder();
    let mut writer = Writer::new(&lake.store, folder, Arc::clone(&schema), quarantine.partition_by(), options, clock);
    let mut removes = Vec::new();
    let names = ["batch_id", "record", "resolved"].map(str::to_owned);
    for file in quarantine.files()?.iter() {
        let mut holds = false;
        let mut batches = quarantine.read(file, Some(&names)).await?;
        while let Some(batch) = batches.try_next().await? {
            holds = holds || marks(&batch, &cured)?.contains(&true);
        }
        if !holds {
            continue;
        }
        removes.push(file.clone());
        let mut batches = quarantine.read(file, None).await?;
        while let Some(batch) = batches.try_next().await? {
            let marked = with_marks(&batch, &cured, plan.made_at.timestamp_micros())?;
            writer.write(&conform(&marked, &schema)?).await?;
        }
    }
    Ok((removes, writer.finish().await?))
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("quarantine has no column `{name}`")))
}

fn instants(batch: &RecordBatch) -> Result<&TimestampMicrosecondArray> {
    let wrong = || Error::corrupt("quarantine: `resolved` is no timestamp");
    column(batch, "resolved")?.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(wrong)
}

/// For each row whether it is to be marked.
fn marks(batch: &RecordBatch, cured: &BTreeMap<&str, &Redrive>) -> Result<Vec<bool>> {
    let wrong = || Error::corrupt("quarantine: `batch_id` is no text or `record` no number");
    let ids = column(batch, "batch_id")?.as_string_opt::<i32>().ok_or_else(wrong)?;
    let records = column(batch, "record")?.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let resolved = instants(batch)?;
    let is_marked = |row: usize| {
        let redrive = cured.get(ids.value(row)).filter(|_| resolved.is_null(row));
        redrive.is_some_and(|redrive| match redrive.is_whole() {
            true => records.is_null(row),
            false => records.is_valid(row) && redrive.records.binary_search(&records.value(row)).is_ok(),
        })
    };
    Ok((0..batch.num_rows()).map(is_marked).collect())
}

fn with_marks(batch: &RecordBatch, cured: &BTreeMap<&str, &Redrive>, at: i64) -> Result<RecordBatch> {
    let marks = marks(batch, cured)?;
    let before = instants(batch)?;
    let after: TimestampMicrosecondArray =
        before.iter().zip(marks).map(|(known, is_marked)| if is_marked { Some(at) } else { known }).collect();
    let after = after.with_data_type(before.data_type().clone());
    let mut columns = batch.columns().to_vec();
    let position = batch.schema().index_of("resolved")?;
    columns[position] = Arc::new(after);
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}
