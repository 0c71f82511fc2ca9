//! Quarantine of changes: each change that breaks a rule, whole. It follows from the kept changes of the table beside it, and
//! a change that is cured by an earlier one is in it no more.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, RecordBatch, StringBuilder};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::element;
use crate::error::Result;

/// The key of the changed row as compact JSON: with it, all that is known of a key is found.
pub const KEY: &str = "key";

/// The columns: what the change says of itself, the rules that it breaks, the event, and where it lies.
#[must_use]
pub fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let long = |name: &str| Field::new(name, DataType::Int64, true);
    Arc::new(Schema::new(vec![
        text("table"),
        text(KEY),
        text("op"),
        long("ts_ms"),
        long("lsn"),
        Field::new("rules", DataType::List(element(DataType::Utf8)), true),
        Field::new("event", DataType::Binary, true),
        text("topic"),
        Field::new("partition", DataType::Int32, true),
        long("offset"),
        text("file"),
        long("record"),
    ]))
}

/// Rows: the columns before `rules`, the rules of each row, and the columns behind.
///
/// # Errors
/// [`crate::error::ErrorKind::Internal`] when they are not the columns of [`schema`].
pub fn to_batch(said: Vec<ArrayRef>, rules: &[Vec<String>], place: Vec<ArrayRef>) -> Result<RecordBatch> {
    let mut names = StringBuilder::new();
    rules.iter().flatten().for_each(|rule| names.append_value(rule));
    let lengths = OffsetBuffer::from_lengths(rules.iter().map(Vec::len));
    let rules: ArrayRef =
        Arc::new(ListArray::try_new(element(DataType::Utf8), lengths, Arc::new(names.finish()), None)?);
    let columns = said.into_iter().chain([rules]).chain(place).collect();
    Ok(RecordBatch::try_new(schema(), columns)?)
}
