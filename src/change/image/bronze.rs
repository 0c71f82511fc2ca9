//! The columns of kept events that a table's changes are made of.

use std::borrow::Cow;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};

use crate::error::{Error, Result};
use crate::schema::{ChangeSource, lineage};

/// Kept events.
#[derive(Debug)]
pub(super) struct Bronze<'a> {
    event: Cow<'a, BinaryArray>,
    table: Cow<'a, StringArray>,
    op: Cow<'a, StringArray>,
    key: Cow<'a, StringArray>,
    pub(super) topic: Cow<'a, StringArray>,
    pub(super) partition: Cow<'a, Int32Array>,
    pub(super) offset: Cow<'a, Int64Array>,
    pub(super) file: Cow<'a, StringArray>,
    pub(super) row: Cow<'a, Int64Array>,
    /// The fields of [`ChangeSource::fields`], in their order.
    pub(super) fields: Vec<Cow<'a, Int64Array>>,
    /// How many of the fields order the changes.
    ordering: usize,
}

/// The column that keeps a field of the events.
fn kept_field(field: &str) -> &'static str {
    match field {
        "source.ts_ms" => "ts_ms",
        "source.txId" => "tx_id",
        _ => "lsn",
    }
}

impl<'a> Bronze<'a> {
    /// The columns of a batch.
    ///
    /// # Errors
    /// Internal: one is missing, or of a type that cannot be read as its own.
    pub(super) fn of(batch: &'a RecordBatch, source: &ChangeSource) -> Result<Self> {
        let fields = source.fields().into_iter().map(|field| longs(batch, kept_field(field)));
        Ok(Self {
            event: column(batch, lineage::EVENT, &DataType::Binary, |array| array.as_binary_opt::<i32>())?,
            table: texts(batch, lineage::TABLE)?,
            op: texts(batch, "op")?,
            key: texts(batch, "key")?,
            topic: texts(batch, lineage::TOPIC)?,
            partition: column(batch, lineage::PARTITION, &DataType::Int32, |array| {
                array.as_primitive_opt::<Int32Type>()
            })?,
            offset: longs(batch, lineage::OFFSET)?,
            file: texts(batch, lineage::FILE)?,
            row: longs(batch, lineage::ROW)?,
            fields: fields.collect::<Result<_>>()?,
            ordering: source.sequence_by.len(),
        })
    }

    pub(super) fn event(&self, row: usize) -> &[u8] {
        self.event.value(row)
    }

    pub(super) fn table(&self, row: usize) -> Option<&str> {
        self.table.is_valid(row).then(|| self.table.value(row))
    }

    pub(super) fn op(&self, row: usize) -> Option<&str> {
        self.op.is_valid(row).then(|| self.op.value(row))
    }

    pub(super) fn key(&self, row: usize) -> Option<&str> {
        self.key.is_valid(row).then(|| self.key.value(row))
    }

    pub(super) fn topic(&self, row: usize) -> Option<&str> {
        self.topic.is_valid(row).then(|| self.topic.value(row))
    }

    /// Whether all fields are there that order the changes.
    pub(super) fn has_position(&self, row: usize) -> bool {
        self.fields.iter().take(self.ordering).all(|field| field.is_valid(row))
    }

    /// Whether the event is a record of a topic, whose place is its partition and offset.
    pub(super) fn is_record(&self, row: usize) -> bool {
        self.partition.is_valid(row) && self.offset.is_valid(row)
    }
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<Cow<'a, StringArray>> {
    column(batch, name, &DataType::Utf8, |array| array.as_string_opt::<i32>())
}

fn longs<'a>(batch: &'a RecordBatch, name: &str) -> Result<Cow<'a, Int64Array>> {
    column(batch, name, &DataType::Int64, |array| array.as_primitive_opt::<Int64Type>())
}

/// A column as an array of its type, cast when the reader gives another one for the same values.
fn column<'a, T: Array + Clone + 'static>(
    batch: &'a RecordBatch,
    name: &str,
    data_type: &DataType,
    of: impl Fn(&ArrayRef) -> Option<&T>,
) -> Result<Cow<'a, T>> {
    let wrong = || Error::internal(format!("kept events without `{name}`"));
    let array = batch.column_by_name(name).ok_or_else(wrong)?;
    if let Some(found) = array.as_any().downcast_ref::<T>() {
        return Ok(Cow::Borrowed(found));
    }
    let other = cast(array, data_type)?;
    of(&other).cloned().map(Cow::Owned).ok_or_else(wrong)
}
