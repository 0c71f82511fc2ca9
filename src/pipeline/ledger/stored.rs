//! The ledger's stored form: its columns, rows to columns and back.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, Utc};

use super::LedgerRow;
use crate::error::{Error, Result};
use crate::manifest::{BatchSource, Counts, FileVersion, StreamRange};
use crate::name::BatchId;

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The ledger's columns, in order. `topic` to `last` belong to change streams.
#[must_use]
pub fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let long = |name: &str| Field::new(name, DataType::Int64, true);
    let time = |name: &str| Field::new(name, timestamp(), true);
    Arc::new(Schema::new(vec![
        text("table"),
        text("table_id"),
        text("batch_id"),
        text("path"),
        text("topic"),
        text("epoch"),
        Field::new("partition", DataType::Int32, true),
        long("first"),
        long("last"),
        text("etag"),
        time("last_modified"),
        text("sequencer"),
        text("sha256"),
        long("bytes"),
        text("status"),
        text("reason"),
        long("rows_in"),
        long("loaded"),
        long("quarantined"),
        long("ignored"),
        text("contract_hash"),
        long("txn"),
        long("attempts"),
        time("first_seen"),
        time("settled_at"),
    ]))
}

/// Of a version that is not known no size is known either.
fn is_sized(row: &LedgerRow) -> bool {
    row.source.bytes() > 0 || row.source.file().is_none_or(|version| !version.etag.is_empty())
}

pub(super) fn to_batch(rows: &[LedgerRow]) -> Result<RecordBatch> {
    let text = |pick: &dyn Fn(&LedgerRow) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(pick).collect::<StringArray>())
    };
    let long = |pick: &dyn Fn(&LedgerRow) -> Option<i64>| -> ArrayRef {
        Arc::new(rows.iter().map(pick).collect::<Int64Array>())
    };
    let time = |pick: &dyn Fn(&LedgerRow) -> Option<DateTime<Utc>>| -> ArrayRef {
        let micros = rows.iter().map(|row| pick(row).map(|time| time.timestamp_micros()));
        Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
    };
    let count = |value: u64| i64::try_from(value).ok();
    let columns = vec![
        text(&|row| row.table.as_ref().map(ToString::to_string)),
        text(&|row| row.table_id.clone()),
        text(&|row| Some(row.batch_id.to_string())),
        text(&|row| row.source.path().map(str::to_owned)),
        text(&|row| row.source.range().map(|range| range.topic.clone())),
        text(&|row| row.source.range().and_then(|range| range.epoch.clone())),
        Arc::new(rows.iter().map(|row| row.source.range().map(|range| range.partition)).collect::<Int32Array>()),
        long(&|row| row.source.range().map(|range| range.first)),
        long(&|row| row.source.range().map(|range| range.last)),
        // One that is not known is none.
        text(&|row| row.source.file().map(|version| version.etag.clone()).filter(|etag| !etag.is_empty())),
        time(&|row| row.source.modified().filter(|time| *time != DateTime::UNIX_EPOCH)),
        text(&|row| row.source.file().and_then(|version| version.sequencer.clone())),
        text(&|row| row.sha256.clone()),
        long(&|row| count(row.source.bytes()).filter(|_| is_sized(row))),
        text(&|row| Some(row.status.as_str().to_owned())),
        text(&|row| row.reason.clone()),
        long(&|row| count(row.counts.rows_in)),
        long(&|row| count(row.counts.loaded)),
        long(&|row| count(row.counts.quarantined)),
        long(&|row| count(row.counts.ignored)),
        text(&|row| row.contract_hash.clone()),
        long(&|row| row.txn),
        long(&|row| Some(i64::from(row.attempts))),
        time(&|row| Some(row.first_seen)),
        time(&|row| Some(row.settled_at)),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("ledger: no column `{name}`")))
}

fn text_at(batch: &RecordBatch, name: &str, row: usize) -> Result<Option<String>> {
    let array = column(batch, name)?
        .as_string_opt::<i32>()
        .ok_or_else(|| Error::corrupt(format!("ledger: column `{name}` is not text")))?;
    Ok((!array.is_null(row)).then(|| array.value(row).to_owned()))
}

fn long_at(batch: &RecordBatch, name: &str, row: usize) -> Result<Option<i64>> {
    let array = column(batch, name)?
        .as_primitive_opt::<Int64Type>()
        .ok_or_else(|| Error::corrupt(format!("ledger: column `{name}` is not int64")))?;
    Ok((!array.is_null(row)).then(|| array.value(row)))
}

fn time_at(batch: &RecordBatch, name: &str, row: usize) -> Result<Option<DateTime<Utc>>> {
    let array = column(batch, name)?
        .as_primitive_opt::<TimestampMicrosecondType>()
        .ok_or_else(|| Error::corrupt(format!("ledger: column `{name}` is not a timestamp")))?;
    Ok(if array.is_null(row) { None } else { DateTime::from_timestamp_micros(array.value(row)) })
}

fn source_at(batch: &RecordBatch, row: usize) -> Result<BatchSource> {
    let bytes = u64::try_from(long_at(batch, "bytes", row)?.unwrap_or_default()).unwrap_or_default();
    let time = time_at(batch, "last_modified", row)?;
    if let Some(path) = text_at(batch, "path", row)? {
        return Ok(BatchSource::File(FileVersion {
            path,
            etag: text_at(batch, "etag", row)?.unwrap_or_default(),
            bytes,
            last_modified: time.unwrap_or_default(),
            sequencer: text_at(batch, "sequencer", row)?,
        }));
    }
    let partition = column(batch, "partition")?.as_primitive_opt::<Int32Type>().filter(|array| array.is_valid(row));
    let (topic, first, last) =
        (text_at(batch, "topic", row)?, long_at(batch, "first", row)?, long_at(batch, "last", row)?);
    match (topic, partition, first, last) {
        (Some(topic), Some(partition), Some(first), Some(last)) => Ok(BatchSource::Stream(StreamRange {
            topic,
            epoch: text_at(batch, "epoch", row)?,
            partition: partition.value(row),
            first,
            last,
            bytes,
            newest: time,
        })),
        _ => Err(Error::corrupt("ledger: a row without a path and without a topic and offsets")),
    }
}

pub(super) fn row_at(batch: &RecordBatch, row: usize) -> Result<LedgerRow> {
    let count = |name: &str| -> Result<u64> {
        Ok(u64::try_from(long_at(batch, name, row)?.unwrap_or_default()).unwrap_or_default())
    };
    let required = |name: &str| -> Result<String> {
        text_at(batch, name, row)?.ok_or_else(|| Error::corrupt(format!("ledger: a row without `{name}`")))
    };
    Ok(LedgerRow {
        table: text_at(batch, "table", row)?.map(|name| name.parse()).transpose()?,
        table_id: text_at(batch, "table_id", row)?,
        batch_id: BatchId::from(required("batch_id")?),
        source: source_at(batch, row)?,
        sha256: text_at(batch, "sha256", row)?,
        status: required("status")?.parse()?,
        reason: text_at(batch, "reason", row)?,
        counts: Counts {
            rows_in: count("rows_in")?,
            loaded: count("loaded")?,
            quarantined: count("quarantined")?,
            ignored: count("ignored")?,
        },
        contract_hash: text_at(batch, "contract_hash", row)?,
        txn: long_at(batch, "txn", row)?,
        attempts: u32::try_from(count("attempts")?).unwrap_or(u32::MAX),
        first_seen: time_at(batch, "first_seen", row)?.unwrap_or_default(),
        settled_at: time_at(batch, "settled_at", row)?.unwrap_or_default(),
    })
}
