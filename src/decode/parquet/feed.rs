//! Arrow values one by one, as the scalars that the cast takes.

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::value::RawValue;

use super::super::FaultKind;
use super::super::row_json;
use crate::cast::{CastFault, ColumnSink, Scalar};
use crate::error::Result;

/// Gives the values of one array to a sink.
pub(super) struct Feeder<'a> {
    array: &'a ArrayRef,
    wants_bytes: bool,
    /// Times without a zone are instants all the same.
    is_instant: bool,
    formatter: Option<ArrayFormatter<'a>>,
}

impl<'a> Feeder<'a> {
    pub(super) fn new(array: &'a ArrayRef, wants_bytes: bool, is_instant: bool) -> Result<Self> {
        let is_spoken = matches!(
            array.data_type(),
            DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) | DataType::Interval(_)
        );
        let formatter = if is_spoken { Some(ArrayFormatter::try_new(array, &OPTIONS)?) } else { None };
        Ok(Self { array, wants_bytes, is_instant, formatter })
    }

    /// Pushes the value of a row.
    pub(super) fn push(&self, sink: &mut ColumnSink, row: usize) -> Result<(), CastFault> {
        let array = self.array;
        if array.is_null(row) {
            return sink.push_null();
        }
        macro_rules! int {
            ($type:ty) => {
                sink.push_scalar(Scalar::Int(i128::from(array.as_primitive::<$type>().value(row))))
            };
        }
        macro_rules! time {
            ($type:ty, $unit:expr, $zone:expr) => {{
                let (value, unit) = (array.as_primitive::<$type>().value(row), $unit);
                let is_instant = $zone.is_some() || self.is_instant;
                sink.push_scalar(if is_instant {
                    Scalar::Instant { value, unit }
                } else {
                    Scalar::Local { value, unit }
                })
            }};
        }
        match array.data_type() {
            DataType::Null => sink.push_null(),
            DataType::Boolean => sink.push_scalar(Scalar::Bool(array.as_boolean().value(row))),
            DataType::Int8 => int!(Int8Type),
            DataType::Int16 => int!(Int16Type),
            DataType::Int32 => int!(Int32Type),
            DataType::Int64 => int!(Int64Type),
            DataType::UInt8 => int!(UInt8Type),
            DataType::UInt16 => int!(UInt16Type),
            DataType::UInt32 => int!(UInt32Type),
            DataType::UInt64 => int!(UInt64Type),
            DataType::Float16 => {
                sink.push_scalar(Scalar::Float32(array.as_primitive::<Float16Type>().value(row).to_f32()))
            }
            DataType::Float32 => sink.push_scalar(Scalar::Float32(array.as_primitive::<Float32Type>().value(row))),
            DataType::Float64 => sink.push_scalar(Scalar::Float(array.as_primitive::<Float64Type>().value(row))),
            DataType::Decimal128(_, scale) => {
                let unscaled = i256::from_i128(array.as_primitive::<Decimal128Type>().value(row));
                sink.push_scalar(Scalar::Decimal { unscaled, scale: *scale })
            }
            DataType::Decimal256(_, scale) => {
                let unscaled = array.as_primitive::<Decimal256Type>().value(row);
                sink.push_scalar(Scalar::Decimal { unscaled, scale: *scale })
            }
            DataType::Utf8 => sink.push_scalar(Scalar::Text(array.as_string::<i32>().value(row))),
            DataType::Binary => self.push_bytes(sink, array.as_binary::<i32>().value(row)),
            DataType::FixedSizeBinary(_) => match array.as_any().downcast_ref::<FixedSizeBinaryArray>() {
                Some(bytes) => self.push_bytes(sink, bytes.value(row)),
                None => unspoken(sink, array.data_type()),
            },
            DataType::Date32 => sink.push_scalar(Scalar::Date(array.as_primitive::<Date32Type>().value(row))),
            DataType::Date64 => {
                let value = array.as_primitive::<Date64Type>().value(row);
                sink.push_scalar(Scalar::Local { value, unit: TimeUnit::Millisecond })
            }
            DataType::Timestamp(TimeUnit::Second, zone) => time!(TimestampSecondType, TimeUnit::Second, zone),
            DataType::Timestamp(TimeUnit::Millisecond, zone) => {
                time!(TimestampMillisecondType, TimeUnit::Millisecond, zone)
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                time!(TimestampMicrosecondType, TimeUnit::Microsecond, zone)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
                time!(TimestampNanosecondType, TimeUnit::Nanosecond, zone)
            }
            nested if nested.is_nested() => match row_json::json(array, row).map(RawValue::from_string) {
                Ok(Ok(json)) => sink.push_scalar(Scalar::Json(&json)),
                _ => unspoken(sink, nested),
            },
            other => match self.formatter.as_ref().map(|formatter| formatter.value(row).try_to_string()) {
                Some(Ok(text)) => sink.push_scalar(Scalar::Text(&text)),
                _ => unspoken(sink, other),
            },
        }
    }

    /// Bytes of a text column are text, unless they are not UTF-8: then the cast says which byte is wrong.
    fn push_bytes(&self, sink: &mut ColumnSink, bytes: &[u8]) -> Result<(), CastFault> {
        match std::str::from_utf8(bytes) {
            Ok(text) if !self.wants_bytes => sink.push_scalar(Scalar::Text(text)),
            _ => sink.push_scalar(Scalar::Bytes(bytes)),
        }
    }
}

const OPTIONS: FormatOptions<'static> = FormatOptions::new();

fn unspoken(sink: &mut ColumnSink, data_type: &DataType) -> Result<(), CastFault> {
    // The row is null either way; what counts is why.
    let _ = sink.push_null();
    Err(CastFault { kind: FaultKind::Invalid, reason: format!("a Parquet value of type {data_type} has no form here") })
}
