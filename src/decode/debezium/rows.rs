//! Events as rows: the staged columns of a table of change events.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, Int32Builder, Int64Builder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema};

use super::event::{Kind, read};
use crate::error::Result;
use crate::schema::arrow::event_fields;
use crate::schema::lineage::ROW;

/// Events in the order in which they came.
#[derive(Debug)]
pub struct Events {
    /// One row for each event: the staged columns, then `_row`.
    pub rows: RecordBatch,
    /// Rows that are no event at all.
    pub malformed: Vec<MalformedEvent>,
    /// Positions of rows that change no row of any table: tombstones, heartbeats and the like.
    pub ignored: Vec<usize>,
}

/// A line that is no event, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedEvent {
    /// Its row, from 0.
    pub row: usize,
    /// The line without its line end.
    pub event: Vec<u8>,
    /// Why, for people.
    pub reason: String,
    /// The topic, as far as it can be read.
    pub topic: Option<String>,
    /// The partition.
    pub partition: Option<i32>,
    /// The offset.
    pub offset: Option<i64>,
    /// Number of the line in its file, from 1, blank lines not counted; none for a delivered record.
    pub record: Option<i64>,
    /// The physical line, from 1.
    pub line: Option<i64>,
    /// Offset of its first byte in the decompressed content.
    pub byte_offset: Option<i64>,
}

/// Where an event comes from.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// A line of a file. What it says of its topic, partition and offset is data.
    Line {
        /// Number of the record, from 1.
        record: i64,
        /// Physical line, from 1.
        line: i64,
        /// Offset of its first byte in the decompressed content.
        byte_offset: i64,
    },
    /// A delivered record: its place is known whatever its value is.
    Record {
        /// The topic.
        topic: &'a str,
        /// The partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
}

/// Builds [`Events`].
#[derive(Debug, Default)]
pub struct EventRows {
    event: BinaryBuilder,
    table: StringBuilder,
    op: StringBuilder,
    key: StringBuilder,
    ts_ms: Int64Builder,
    lsn: Int64Builder,
    tx_id: Int64Builder,
    topic: StringBuilder,
    partition: Int32Builder,
    offset: Int64Builder,
    row: Int64Builder,
    count: usize,
    malformed: Vec<MalformedEvent>,
    ignored: Vec<usize>,
}

impl EventRows {
    /// Adds one line.
    pub fn push(&mut self, line: &[u8], place: Place<'_>) {
        let mut facts = read(line);
        let (record, physical, byte_offset) = match place {
            Place::Line { record, line, byte_offset } => (Some(record), Some(line), Some(byte_offset)),
            Place::Record { topic, partition, offset } => {
                facts.topic = Some(topic.to_owned().into());
                (facts.partition, facts.offset) = (Some(partition), Some(offset));
                (None, None, None)
            }
        };
        match &facts.kind {
            Kind::Change => {}
            Kind::Ignored => self.ignored.push(self.count),
            Kind::Malformed(reason) => self.malformed.push(MalformedEvent {
                row: self.count,
                event: line.to_vec(),
                reason: reason.clone(),
                topic: facts.topic.as_deref().map(str::to_owned),
                partition: facts.partition,
                offset: facts.offset,
                record,
                line: physical,
                byte_offset,
            }),
        }
        self.event.append_value(line);
        self.table.append_option(facts.table);
        self.op.append_option(facts.op);
        self.key.append_option(facts.key);
        self.ts_ms.append_option(facts.ts_ms);
        self.lsn.append_option(facts.lsn);
        self.tx_id.append_option(facts.tx_id);
        self.topic.append_option(facts.topic);
        self.partition.append_option(facts.partition);
        self.offset.append_option(facts.offset);
        self.row.append_option(record);
        self.count += 1;
    }

    /// Everything that was added.
    pub fn finish(mut self) -> Result<Events> {
        let mut fields = event_fields();
        fields.push(Field::new(ROW, DataType::Int64, true));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.event.finish()),
            Arc::new(self.table.finish()),
            Arc::new(self.op.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.ts_ms.finish()),
            Arc::new(self.lsn.finish()),
            Arc::new(self.tx_id.finish()),
            Arc::new(self.topic.finish()),
            Arc::new(self.partition.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.row.finish()),
        ];
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        Ok(Events { rows, malformed: self.malformed, ignored: self.ignored })
    }
}
