//! Values on their way into Arrow, and the builders that take them.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int8Builder, Int16Builder, Int32Builder, Int64Builder, ListArray, MapArray, NullBufferBuilder, StringBuilder,
    StructArray, TimestampMicrosecondBuilder,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};

use crate::error::{Error, Result};
use crate::schema::ColumnType;
use crate::schema::arrow::data_type;

/// A cast value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    /// In the range of the column's integer type.
    Int(i64),
    Float32(f32),
    Float64(f64),
    /// In units of the column's scale.
    Decimal(i128),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Days since 1970-01-01.
    Days(i32),
    /// Microseconds since 1970-01-01T00:00:00.
    Micros(i64),
    List(Vec<Value<'a>>),
    /// In the order of the type's fields.
    Struct(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
}

impl Value<'_> {
    /// The same value, borrowing nothing.
    pub(super) fn into_owned(self) -> Value<'static> {
        let all = |values: Vec<Self>| values.into_iter().map(Self::into_owned).collect();
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Float32(value) => Value::Float32(value),
            Self::Float64(value) => Value::Float64(value),
            Self::Decimal(value) => Value::Decimal(value),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Days(days) => Value::Days(days),
            Self::Micros(micros) => Value::Micros(micros),
            Self::List(values) => Value::List(all(values)),
            Self::Struct(values) => Value::Struct(all(values)),
            Self::Map(entries) => {
                Value::Map(entries.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
            }
        }
    }
}

fn map_entries(key: &ColumnType, value: &ColumnType) -> FieldRef {
    let pair = vec![Field::new("key", data_type(key), false), Field::new("value", data_type(value), true)];
    Arc::new(Field::new("key_value", DataType::Struct(Fields::from(pair)), false))
}

/// A growing column.
#[derive(Debug)]
pub(super) enum Builder {
    Bool(BooleanBuilder),
    Int8(Int8Builder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Decimal(Decimal128Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Days(Date32Builder),
    Micros(TimestampMicrosecondBuilder),
    List { element: FieldRef, offsets: Vec<i32>, valid: NullBufferBuilder, child: Box<Builder> },
    Struct { fields: Fields, valid: NullBufferBuilder, children: Vec<Builder> },
    Map { entries: FieldRef, offsets: Vec<i32>, valid: NullBufferBuilder, keys: Box<Builder>, values: Box<Builder> },
}

/// Average text length that is reserved for; more grows the buffer.
const TEXT_BYTES: usize = 16;

impl Builder {
    /// An empty column with room for `rows`.
    pub(super) fn new(column_type: &ColumnType, rows: usize) -> Self {
        let arrow_type = data_type(column_type);
        match column_type {
            ColumnType::Boolean => Self::Bool(BooleanBuilder::with_capacity(rows)),
            ColumnType::Int8 => Self::Int8(Int8Builder::with_capacity(rows)),
            ColumnType::Int16 => Self::Int16(Int16Builder::with_capacity(rows)),
            ColumnType::Int32 => Self::Int32(Int32Builder::with_capacity(rows)),
            ColumnType::Int64 => Self::Int64(Int64Builder::with_capacity(rows)),
            ColumnType::Float32 => Self::Float32(Float32Builder::with_capacity(rows)),
            ColumnType::Float64 => Self::Float64(Float64Builder::with_capacity(rows)),
            ColumnType::Decimal(..) => Self::Decimal(Decimal128Builder::with_capacity(rows).with_data_type(arrow_type)),
            ColumnType::String => Self::Text(StringBuilder::with_capacity(rows, rows * TEXT_BYTES)),
            ColumnType::Binary => Self::Bytes(BinaryBuilder::with_capacity(rows, rows * TEXT_BYTES)),
            ColumnType::Date => Self::Days(Date32Builder::with_capacity(rows)),
            ColumnType::Timestamp | ColumnType::TimestampNtz => {
                Self::Micros(TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(arrow_type))
            }
            ColumnType::List(element) => Self::List {
                element: Arc::new(Field::new("element", data_type(element), true)),
                offsets: vec![0],
                valid: NullBufferBuilder::new(rows),
                child: Box::new(Self::new(element, rows)),
            },
            ColumnType::Struct(fields) => Self::Struct {
                fields: fields.iter().map(|(name, field)| Field::new(name, data_type(field), true)).collect(),
                valid: NullBufferBuilder::new(rows),
                children: fields.iter().map(|(_, field)| Self::new(field, rows)).collect(),
            },
            ColumnType::Map(key, value) => Self::Map {
                entries: map_entries(key, value),
                offsets: vec![0],
                valid: NullBufferBuilder::new(rows),
                keys: Box::new(Self::new(key, rows)),
                values: Box::new(Self::new(value, rows)),
            },
        }
    }

    /// Appends null.
    pub(super) fn append_null(&mut self) {
        match self {
            Self::Bool(builder) => builder.append_null(),
            Self::Int8(builder) => builder.append_null(),
            Self::Int16(builder) => builder.append_null(),
            Self::Int32(builder) => builder.append_null(),
            Self::Int64(builder) => builder.append_null(),
            Self::Float32(builder) => builder.append_null(),
            Self::Float64(builder) => builder.append_null(),
            Self::Decimal(builder) => builder.append_null(),
            Self::Text(builder) => builder.append_null(),
            Self::Bytes(builder) => builder.append_null(),
            Self::Days(builder) => builder.append_null(),
            Self::Micros(builder) => builder.append_null(),
            Self::List { offsets, valid, .. } | Self::Map { offsets, valid, .. } => {
                offsets.push(offsets.last().copied().unwrap_or(0));
                valid.append_null();
            }
            Self::Struct { valid, children, .. } => {
                valid.append_null();
                children.iter_mut().for_each(Self::append_null);
            }
        }
    }

    /// Appends a value of this column's type.
    ///
    /// # Errors
    /// The value is of another type, or a nested column has too many elements for its offsets; nothing was appended.
    pub(super) fn append(&mut self, value: &Value<'_>) -> Result<(), String> {
        let narrow = |_| "integer outside the range of its column".to_owned();
        match (self, value) {
            (builder, Value::Null) => builder.append_null(),
            (Self::Bool(builder), Value::Bool(value)) => builder.append_value(*value),
            (Self::Int8(builder), Value::Int(value)) => builder.append_value(i8::try_from(*value).map_err(narrow)?),
            (Self::Int16(builder), Value::Int(value)) => builder.append_value(i16::try_from(*value).map_err(narrow)?),
            (Self::Int32(builder), Value::Int(value)) => builder.append_value(i32::try_from(*value).map_err(narrow)?),
            (Self::Int64(builder), Value::Int(value)) => builder.append_value(*value),
            (Self::Float32(builder), Value::Float32(value)) => builder.append_value(*value),
            (Self::Float64(builder), Value::Float64(value)) => builder.append_value(*value),
            (Self::Decimal(builder), Value::Decimal(value)) => builder.append_value(*value),
            (Self::Text(builder), Value::Text(text)) => builder.append_value(text),
            (Self::Bytes(builder), Value::Bytes(bytes)) => builder.append_value(bytes),
            (Self::Days(builder), Value::Days(days)) => builder.append_value(*days),
            (Self::Micros(builder), Value::Micros(micros)) => builder.append_value(*micros),
            (Self::List { offsets, valid, child, .. }, Value::List(values)) => {
                offsets.push(next_offset(offsets, values.len())?);
                valid.append_non_null();
                for value in values {
                    child.append(value)?;
                }
            }
            (Self::Struct { valid, children, .. }, Value::Struct(values)) => {
                valid.append_non_null();
                for (child, value) in children.iter_mut().zip(values) {
                    child.append(value)?;
                }
            }
            (Self::Map { offsets, valid, keys, values, .. }, Value::Map(entries)) => {
                offsets.push(next_offset(offsets, entries.len())?);
                valid.append_non_null();
                for (key, value) in entries {
                    keys.append(key)?;
                    values.append(value)?;
                }
            }
            _ => return Err("a value of another type than its column".to_owned()),
        }
        Ok(())
    }

    /// The finished column.
    pub(super) fn finish(self) -> Result<ArrayRef> {
        Ok(match self {
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Int8(mut builder) => Arc::new(builder.finish()),
            Self::Int16(mut builder) => Arc::new(builder.finish()),
            Self::Int32(mut builder) => Arc::new(builder.finish()),
            Self::Int64(mut builder) => Arc::new(builder.finish()),
            Self::Float32(mut builder) => Arc::new(builder.finish()),
            Self::Float64(mut builder) => Arc::new(builder.finish()),
            Self::Decimal(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Bytes(mut builder) => Arc::new(builder.finish()),
            Self::Days(mut builder) => Arc::new(builder.finish()),
            Self::Micros(mut builder) => Arc::new(builder.finish()),
            Self::List { element, offsets, mut valid, child } => {
                Arc::new(ListArray::try_new(element, offset_buffer(offsets), child.finish()?, valid.finish())?)
            }
            Self::Struct { fields, mut valid, children } => {
                let rows = valid.len();
                let arrays = children.into_iter().map(Self::finish).collect::<Result<Vec<_>>>()?;
                Arc::new(StructArray::try_new_with_length(fields, arrays, valid.finish(), rows)?)
            }
            Self::Map { entries, offsets, mut valid, keys, values } => {
                let DataType::Struct(fields) = entries.data_type().clone() else {
                    return Err(Error::internal("a map without key and value"));
                };
                let pairs = StructArray::try_new(fields, vec![keys.finish()?, values.finish()?], None)?;
                Arc::new(MapArray::try_new(entries, offset_buffer(offsets), pairs, valid.finish(), false)?)
            }
        })
    }
}

fn next_offset(offsets: &[i32], added: usize) -> Result<i32, String> {
    let last = offsets.last().copied().unwrap_or(0);
    i32::try_from(added)
        .ok()
        .and_then(|added| last.checked_add(added))
        .ok_or_else(|| "too many elements in one column of a chunk".to_owned())
}

fn offset_buffer(offsets: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(offsets))
}
