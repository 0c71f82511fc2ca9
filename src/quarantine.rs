//! Quarantine tables of files: each refused record whole, with where it came from and every rule that it breaks.

pub mod changes;
pub mod events;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, Int64Array, ListArray, RecordBatch, StringArray, StringBuilder,
    StructArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use chrono::{DateTime, Utc};

use crate::decode::{Reason, Refusal, Reject};
use crate::error::{Error, Result};

/// A row of a quarantine table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Path below the landing zone.
    pub file: String,
    /// The version of the file.
    pub etag: String,
    /// The refused record, or the whole file (then without a record number).
    pub reject: Reject,
    /// The batch that it was read in.
    pub batch_id: String,
    /// The contract that refused it.
    pub contract_hash: String,
    /// When it was redriven with success.
    pub resolved: Option<DateTime<Utc>>,
}

/// The column with what the refused records of a batch need to be read again, as JSON, on the first of them. Tables of former
/// versions do not have it.
pub const HEADER: &str = "header";

fn element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("element", data_type, true))
}

fn reason_fields() -> Fields {
    Fields::from(vec![
        Field::new("column", DataType::Utf8, true),
        Field::new("rule", DataType::Utf8, true),
        Field::new("value", DataType::Utf8, true),
    ])
}

/// The columns of a quarantine table.
#[must_use]
pub fn quarantine_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("file", DataType::Utf8, true),
        Field::new("etag", DataType::Utf8, true),
        Field::new("record", DataType::Int64, true),
        Field::new("line", DataType::Int64, true),
        Field::new("byte_offset", DataType::Int64, true),
        Field::new("raw", DataType::Binary, true),
        Field::new("rules", DataType::List(element(DataType::Utf8)), true),
        Field::new("reasons", DataType::List(element(DataType::Struct(reason_fields()))), true),
        Field::new("batch_id", DataType::Utf8, true),
        Field::new("contract_hash", DataType::Utf8, true),
        Field::new("resolved", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        Field::new(HEADER, DataType::Utf8, true),
    ]))
}

impl From<&Refusal> for Reject {
    /// The one quarantine row of a file that is refused whole: no record, and no bytes, because the landed file stays.
    fn from(refusal: &Refusal) -> Self {
        Self {
            record: None,
            line: refusal.line,
            byte_offset: refusal.byte_offset,
            raw: Vec::new(),
            rules: vec![refusal.rule.clone()],
            reasons: vec![Reason {
                column: refusal.column.clone(),
                rule: refusal.rule.clone(),
                value: Some(refusal.reason.clone()),
            }],
        }
    }
}

/// Rejects of one batch as rows of its quarantine table; `header` goes to the first row.
///
/// # Errors
/// [`crate::error::ErrorKind::Internal`] when they do not fit into one batch: split them.
pub fn to_batch(
    rejects: &[Reject],
    file: &str,
    etag: &str,
    batch_id: &str,
    contract_hash: &str,
    header: Option<&str>,
) -> Result<RecordBatch> {
    let rows = rejects.len();
    let bytes: usize = rejects.iter().map(|reject| reject.raw.len()).sum();
    if i32::try_from(bytes).is_err() {
        return Err(Error::internal(format!("{file}: {bytes} bytes of refused records are too many for one batch")));
    }
    let same = |text: &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows))) };
    let numbers =
        |of: fn(&Reject) -> Option<i64>| -> ArrayRef { Arc::new(rejects.iter().map(of).collect::<Int64Array>()) };
    let mut raw = BinaryBuilder::with_capacity(rows, bytes);
    let mut rules = StringBuilder::new();
    for reject in rejects {
        raw.append_value(&reject.raw);
        reject.rules.iter().for_each(|rule| rules.append_value(rule));
    }
    let rules = ListArray::try_new(
        element(DataType::Utf8),
        OffsetBuffer::from_lengths(rejects.iter().map(|reject| reject.rules.len())),
        Arc::new(rules.finish()),
        None,
    )?;
    let schema = quarantine_schema();
    let resolved = new_null_array(schema.field(10).data_type(), rows);
    let columns: Vec<ArrayRef> = vec![
        same(file),
        same(etag),
        numbers(|reject| reject.record),
        numbers(|reject| reject.line),
        numbers(|reject| reject.byte_offset),
        Arc::new(raw.finish()),
        Arc::new(rules),
        Arc::new(reasons(rejects)?),
        same(batch_id),
        same(contract_hash),
        resolved,
        // Once: it may be longer than all of the records.
        Arc::new((0..rows).map(|row| header.filter(|_| row == 0)).collect::<StringArray>()),
    ];
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn reasons(rejects: &[Reject]) -> Result<ListArray> {
    let all = || rejects.iter().flat_map(|reject| &reject.reasons);
    let columns: StringArray = all().map(|reason| reason.column.as_deref()).collect();
    let rules: StringArray = all().map(|reason| Some(reason.rule.as_str())).collect();
    let values: StringArray = all().map(|reason| reason.value.as_deref()).collect();
    let fields = reason_fields();
    let arrays: Vec<ArrayRef> = vec![Arc::new(columns), Arc::new(rules), Arc::new(values)];
    let reasons = StructArray::try_new(fields.clone(), arrays, None)?;
    let offsets = OffsetBuffer::from_lengths(rejects.iter().map(|reject| reject.reasons.len()));
    Ok(ListArray::try_new(element(DataType::Struct(fields)), offsets, Arc::new(reasons), None)?)
}

/// Rows read back from a quarantine table, whatever string type the reader gives. Columns are found by name.
///
/// # Errors
/// [`crate::error::ErrorKind::Corrupt`] when a column is absent or of another type.
pub fn from_batch(batch: &RecordBatch) -> Result<Vec<Quarantined>> {
    let schema = quarantine_schema();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields().iter().filter(|field| field.name() != HEADER) {
        let column = batch
            .column_by_name(field.name())
            .ok_or_else(|| Error::corrupt(format!("quarantine: column `{}` is missing", field.name())))?;
        let column = cast(column, field.data_type())
            .map_err(|error| Error::corrupt(format!("quarantine: column `{}`", field.name())).because(error))?;
        columns.push(column);
    }
    let text = |column: usize, row: usize| columns[column].as_string::<i32>().value(row).to_owned();
    let number = |column: usize, row: usize| {
        columns[column].is_valid(row).then(|| columns[column].as_primitive::<Int64Type>().value(row))
    };
    let resolved: &TimestampMicrosecondArray = columns[10].as_primitive::<TimestampMicrosecondType>();
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let reject = Reject {
            record: number(2, row),
            line: number(3, row),
            byte_offset: number(4, row),
            raw: columns[5].as_binary::<i32>().value(row).to_vec(),
            rules: texts(&columns[6].as_list::<i32>().value(row)).into_iter().flatten().collect(),
            reasons: reasons_of(&columns[7].as_list::<i32>().value(row)),
        };
        rows.push(Quarantined {
            file: text(0, row),
            etag: text(1, row),
            reject,
            batch_id: text(8, row),
            contract_hash: text(9, row),
            resolved: resolved.is_valid(row).then(|| DateTime::from_timestamp_micros(resolved.value(row))).flatten(),
        });
    }
    Ok(rows)
}

fn texts(array: &ArrayRef) -> Vec<Option<String>> {
    array.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
}

fn reasons_of(array: &ArrayRef) -> Vec<Reason> {
    let reasons = array.as_struct();
    let (columns, rules, values) = (texts(reasons.column(0)), texts(reasons.column(1)), texts(reasons.column(2)));
    let parts = columns.into_iter().zip(rules).zip(values);
    parts.map(|((column, rule), value)| Reason { column, rule: rule.unwrap_or_default(), value }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejects() -> Vec<Reject> {
        let reason = |column: Option<&str>, rule: &str, value: Option<&str>| Reason {
            column: column.map(str::to_owned),
            rule: rule.to_owned(),
            value: value.map(str::to_owned),
        };
        vec![
            Reject {
                record: Some(2),
                line: Some(4),
                byte_offset: Some(12),
                raw: b"2x,\"c\xff\"".to_vec(),
                rules: vec!["id_invalid".to_owned(), "t_invalid".to_owned()],
                reasons: vec![
                    reason(Some("id"), "id_invalid", Some("`2x`: not an integer")),
                    reason(Some("t"), "t_invalid", None),
                ],
            },
            Reject::from(&Refusal {
                rule: "truncated_gzip".to_owned(),
                reason: "cut".to_owned(),
                line: None,
                byte_offset: Some(7),
                column: None,
            }),
        ]
    }

    #[test]
    fn what_is_written_is_read_back() {
        let batch = to_batch(&rejects(), "a/b.csv", "e1", "b1", "c1", Some("{}")).unwrap();
        let rows = from_batch(&batch).unwrap();
        assert_eq!(rows.iter().map(|row| row.reject.clone()).collect::<Vec<_>>(), rejects());
        assert!(rows.iter().all(|row| row.file == "a/b.csv" && row.etag == "e1" && row.resolved.is_none()));
        assert!(rows.iter().all(|row| row.batch_id == "b1" && row.contract_hash == "c1"));
        let headers = batch.column_by_name(HEADER).unwrap().as_string::<i32>();
        assert_eq!(headers.iter().collect::<Vec<_>>(), [Some("{}"), None]);
    }

    #[test]
    fn readers_may_give_views() {
        let batch = to_batch(&rejects(), "a/b.csv", "e1", "b1", "c1", Some("{}")).unwrap();
        let fields: Vec<Field> = batch
            .schema()
            .fields()
            .iter()
            .map(|field| match field.data_type() {
                DataType::Utf8 => Field::new(field.name(), DataType::Utf8View, true),
                DataType::Binary => Field::new(field.name(), DataType::BinaryView, true),
                other => Field::new(field.name(), other.clone(), true),
            })
            .collect();
        let columns =
            fields.iter().zip(batch.columns()).map(|(field, column)| cast(column, field.data_type()).unwrap());
        let views = RecordBatch::try_new(Arc::new(Schema::new(fields.clone())), columns.collect()).unwrap();
        assert_eq!(from_batch(&views).unwrap(), from_batch(&batch).unwrap());
    }

    #[test]
    fn tables_without_the_newest_column_are_read() {
        let batch = to_batch(&rejects(), "a/b.csv", "e1", "b1", "c1", Some("{}")).unwrap();
        let older = batch.project(&(0..batch.num_columns() - 1).collect::<Vec<_>>()).unwrap();
        assert_eq!(from_batch(&older).unwrap(), from_batch(&batch).unwrap());
        let without_raw = batch.project(&[0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]).unwrap();
        assert!(from_batch(&without_raw).unwrap_err().message().contains("column `raw` is missing"));
    }

    #[test]
    fn no_rejects_make_an_empty_batch() {
        let batch = to_batch(&[], "f", "e", "b", "c", Some("{}")).unwrap();
        assert_eq!((batch.num_rows(), batch.schema()), (0, quarantine_schema()));
    }
}
