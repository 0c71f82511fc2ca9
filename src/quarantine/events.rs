//! Quarantine of change events: each event (or line that is none) whole, once for each distinct text.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StringBuilder, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::{HEADER, element, quarantine_schema, reasons};
use crate::decode::debezium::MalformedEvent;
use crate::decode::{Reason, Refusal, Reject};
use crate::error::{Error, Result};

/// The rule that a line breaks which is no event.
pub const MALFORMED: &str = "event_malformed";

/// A line that is no event, or a whole file of events that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedEvent {
    /// The line; `raw` is none of a whole file.
    pub reject: Reject,
    /// Whether it is a line at all.
    pub is_line: bool,
    /// The record's topic, as far as it can be read.
    pub topic: Option<String>,
    /// Its partition.
    pub partition: Option<i32>,
    /// Its offset.
    pub offset: Option<i64>,
}

impl From<MalformedEvent> for QuarantinedEvent {
    fn from(event: MalformedEvent) -> Self {
        let reject = Reject {
            record: event.record,
            line: event.line,
            byte_offset: event.byte_offset,
            raw: event.event,
            rules: vec![MALFORMED.to_owned()],
            reasons: vec![Reason { column: None, rule: MALFORMED.to_owned(), value: Some(event.reason) }],
        };
        Self { reject, is_line: true, topic: event.topic, partition: event.partition, offset: event.offset }
    }
}

impl From<&Refusal> for QuarantinedEvent {
    fn from(refusal: &Refusal) -> Self {
        Self { reject: Reject::from(refusal), is_line: false, topic: None, partition: None, offset: None }
    }
}

/// The columns: the event and what it says of itself, where it came from, and why it is here.
#[must_use]
pub fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let long = |name: &str| Field::new(name, DataType::Int64, true);
    let mut fields = vec![
        text("table"),
        text("key"),
        text("op"),
        long("ts_ms"),
        long("lsn"),
        Field::new("event", DataType::Binary, true),
        text("topic"),
        Field::new("partition", DataType::Int32, true),
        long("offset"),
    ];
    // Its bytes are the event, and nothing beside it says how it is read.
    let files = quarantine_schema();
    let others = files.fields().iter().filter(|field| field.name() != "raw" && field.name() != HEADER);
    fields.extend(others.map(|field| field.as_ref().clone()));
    Arc::new(Schema::new(fields))
}

/// Lines of one batch as rows; `file` is the path and etag of a landed file.
///
/// # Errors
/// [`crate::error::ErrorKind::Internal`] when they do not fit into one batch.
pub fn to_batch(
    events: &[QuarantinedEvent],
    file: Option<(&str, &str)>,
    batch_id: &str,
    contract_hash: &str,
) -> Result<RecordBatch> {
    let rows = events.len();
    let bytes: usize = events.iter().map(|event| event.reject.raw.len()).sum();
    if i32::try_from(bytes).is_err() {
        return Err(Error::internal(format!("{bytes} bytes of malformed events are too many for one batch")));
    }
    let rejects: Vec<Reject> = events.iter().map(|event| Reject { raw: Vec::new(), ..event.reject.clone() }).collect();
    let same = |text: Option<&str>| -> ArrayRef { Arc::new(StringArray::from(vec![text; rows])) };
    let numbers =
        |of: fn(&Reject) -> Option<i64>| -> ArrayRef { Arc::new(rejects.iter().map(of).collect::<Int64Array>()) };
    let mut rules = StringBuilder::new();
    rejects.iter().flat_map(|reject| &reject.rules).for_each(|rule| rules.append_value(rule));
    let rules = ListArray::try_new(
        element(DataType::Utf8),
        OffsetBuffer::from_lengths(rejects.iter().map(|reject| reject.rules.len())),
        Arc::new(rules.finish()),
        None,
    )?;
    let schema = schema();
    let null = |name: &str| -> Result<ArrayRef> { Ok(new_null_array(schema.field_with_name(name)?.data_type(), rows)) };
    let lines = events.iter().map(|event| event.is_line.then_some(event.reject.raw.as_slice()));
    let columns: Vec<ArrayRef> = vec![
        null("table")?,
        null("key")?,
        null("op")?,
        null("ts_ms")?,
        null("lsn")?,
        Arc::new(lines.collect::<BinaryArray>()),
        Arc::new(events.iter().map(|event| event.topic.as_deref()).collect::<StringArray>()),
        Arc::new(events.iter().map(|event| event.partition).collect::<Int32Array>()),
        Arc::new(events.iter().map(|event| event.offset).collect::<Int64Array>()),
        same(file.map(|(path, _)| path)),
        same(file.map(|(_, etag)| etag)),
        numbers(|reject| reject.record),
        numbers(|reject| reject.line),
        numbers(|reject| reject.byte_offset),
        Arc::new(rules),
        Arc::new(reasons(&rejects)?),
        same(Some(batch_id)),
        same(Some(contract_hash)),
        null("resolved")?,
    ];
    Ok(RecordBatch::try_new(schema, columns)?)
}
