//! The lineage columns: where a row came from. `_row` (and topic, partition and offset of a change event) is staged with the
//! rows; what is the same for a whole batch is added when the rows are written.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use chrono::{DateTime, Utc};

use crate::error::{Error, Result};
use crate::name::BatchId;
use crate::schema::Contract;
use crate::schema::lineage::{BATCH_ID, FILE, INGEST_DATE, INGESTED_AT, RESCUED, ROW};

const MICROS_A_DAY: i64 = 86_400_000_000;

/// Names of decoded columns that the contract does not have (`unknown_columns: add`).
#[must_use]
pub fn added(batch: &RecordBatch, contract: &Contract) -> Vec<String> {
    if contract.events().is_some() {
        return Vec::new();
    }
    batch
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .filter(|name| name != ROW && name != RESCUED && !contract.columns.iter().any(|column| column.name == *name))
        .collect()
}

/// Adds `_file`, `_batch_id` and `_ingested_at` to staged rows, and `_ingest_date` where the table has it.
pub fn complete(
    batch: &RecordBatch,
    table: &Schema,
    path: Option<&str>,
    batch_id: &BatchId,
    at: DateTime<Utc>,
) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let mut fields: Vec<Arc<Field>> = batch.schema().fields().iter().cloned().collect();
    let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
    let mut push = |name: &str, data_type: DataType, array: ArrayRef| {
        fields.push(Arc::new(Field::new(name, data_type, false)));
        columns.push(array);
    };
    // A record that was delivered is of no file.
    if let Some(path) = path {
        push(FILE, DataType::Utf8, repeated(path, rows));
    }
    push(BATCH_ID, DataType::Utf8, repeated(batch_id.as_str(), rows));
    let instants = TimestampMicrosecondArray::from_value(at.timestamp_micros(), rows).with_timezone("UTC");
    push(INGESTED_AT, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), Arc::new(instants));
    if table.field_with_name(INGEST_DATE).is_ok() {
        let day = i32::try_from(at.timestamp_micros().div_euclid(MICROS_A_DAY))
            .map_err(|e| Error::internal("a day beyond the calendar").because(e))?;
        push(INGEST_DATE, DataType::Date32, Arc::new(Date32Array::from_value(day, rows)));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// One text, `rows` times. Copies bytes in bulk: this runs for every row that is ever loaded.
fn repeated(text: &str, rows: usize) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(text.len(), rows));
    let values = text.repeat(rows).into_bytes();
    // The offsets cut whole copies of valid text, so this cannot fail; the checked constructor says so at little cost.
    match StringArray::try_new(offsets, ScalarBuffer::from(values).into_inner(), None) {
        Ok(array) => Arc::new(array),
        Err(_) => Arc::new(StringArray::from(vec![text; rows])),
    }
}
