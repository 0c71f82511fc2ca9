//! Bringing rows into a table's schema: by column name, without loss, or not at all.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, RecordBatchOptions, StructArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Fields, SchemaRef, TimeUnit};

use crate::error::{Error, Result};

/// Maps a batch by column name to `schema`: absent nullable columns become null, lossless widening is applied
/// (int32 -> int64, decimal(10,2) -> decimal(12,4)); anything else is an error that names the column.
///
/// A column that the schema does not have is such an error: dropping it would lose what it holds.
pub fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    if let Some(extra) = batch.schema_ref().fields().iter().find(|field| schema.field_with_name(field.name()).is_err())
    {
        return Err(Error::invalid(format!("column {} is not in the table's schema", extra.name())));
    }
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        columns.push(conform_column(batch.column_by_name(field.name()), field, batch.num_rows())?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// One column as `field` wants it; null rows when there is none.
pub(super) fn conform_column(column: Option<&ArrayRef>, field: &Field, rows: usize) -> Result<ArrayRef> {
    let name = field.name();
    let Some(column) = column else {
        if field.is_nullable() || rows == 0 {
            return Ok(new_null_array(field.data_type(), rows));
        }
        return Err(Error::invalid(format!("column {name} is missing and must not be null")));
    };
    let array = fit(column, field.data_type()).map_err(|e| e.within(format!("column {name}")))?;
    if !field.is_nullable() && array.null_count() > 0 {
        return Err(Error::invalid(format!("column {name} has {} nulls and must have none", array.null_count())));
    }
    Ok(array)
}

/// The array in another type, without loss.
fn fit(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let from = array.data_type();
    if from == to {
        return Ok(Arc::clone(array));
    }
    match (from, to) {
        (DataType::Struct(_), DataType::Struct(fields)) => fit_struct(array.as_struct(), fields),
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let values = fit_child(list.values(), item)?;
            let fitted = ListArray::try_new(Arc::clone(item), list.offsets().clone(), values, list.nulls().cloned())?;
            Ok(Arc::new(fitted))
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let map = array.as_map();
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(Error::internal("a map without key and value"));
            };
            let [key, value] = fields.iter().as_slice() else {
                return Err(Error::internal("a map without key and value"));
            };
            let columns = vec![fit_child(map.keys(), key)?, fit_child(map.values(), value)?];
            let rows = StructArray::try_new(fields.clone(), columns, map.entries().nulls().cloned())?;
            let nulls = map.nulls().cloned();
            Ok(Arc::new(MapArray::try_new(Arc::clone(entries), map.offsets().clone(), rows, nulls, *sorted)?))
        }
        _ if is_lossless(from, to) => {
            let strict = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(array, to, &strict)
                .map_err(|e| Error::invalid(format!("a value of {from} does not fit {to}")).because(e))
        }
        _ => Err(Error::invalid(format!("{from} does not fit {to} without loss"))),
    }
}

fn fit_child(array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let fitted = fit(array, field.data_type()).map_err(|e| e.within(field.name()))?;
    if !field.is_nullable() && fitted.null_count() > 0 {
        return Err(Error::invalid(format!("{} has nulls and must have none", field.name())));
    }
    Ok(fitted)
}

/// Fields by name; absent ones become null.
fn fit_struct(group: &StructArray, fields: &Fields) -> Result<ArrayRef> {
    if let Some(extra) = group.fields().iter().find(|field| fields.find(field.name()).is_none()) {
        return Err(Error::invalid(format!("field {} is not in the table's schema", extra.name())));
    }
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        let column = match group.column_by_name(field.name()) {
            Some(column) => fit(column, field.data_type()).map_err(|e| e.within(field.name()))?,
            None if field.is_nullable() => new_null_array(field.data_type(), group.len()),
            None => return Err(Error::invalid(format!("field {} is missing and must not be null", field.name()))),
        };
        columns.push(column);
    }
    if fields.is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(group.len(), group.nulls().cloned())));
    }
    let fitted = StructArray::try_new(fields.clone(), columns, group.nulls().cloned());
    Ok(Arc::new(fitted.map_err(|e| Error::invalid("a field has nulls and must have none").because(e))?))
}

/// Whether two types are stored alike: fields inside have the same names in the same order; names of the parts of lists and
/// maps, and whether something may be null, are no difference.
#[must_use]
pub fn same_type(one: &DataType, other: &DataType) -> bool {
    let alike = |one: &Field, other: &Field| same_type(one.data_type(), other.data_type());
    match (one, other) {
        (DataType::Struct(one), DataType::Struct(other)) => {
            let both = || one.iter().zip(other);
            one.len() == other.len() && both().all(|(one, other)| one.name() == other.name() && alike(one, other))
        }
        (DataType::List(one), DataType::List(other)) => alike(one, other),
        (DataType::Map(one, _), DataType::Map(other, _)) => match (one.data_type(), other.data_type()) {
            (DataType::Struct(one), DataType::Struct(other)) => {
                one.iter().zip(other).all(|(one, other)| alike(one, other))
            }
            _ => false,
        },
        _ => one.equals_datatype(other),
    }
}

/// Whether a stored column can become one of another type with every value as it is, as [`conform`] brings it there: wider
/// integers, decimals and floats, and fields inside that come and may be null.
///
/// An integer of 64 bits is no float of 64 bits: above 2^53 it would be rounded.
#[must_use]
pub fn widens(stored: &DataType, wanted: &DataType) -> bool {
    let child = |old: &Field, new: &Field| {
        (new.is_nullable() || !old.is_nullable()) && widens(old.data_type(), new.data_type())
    };
    match (stored, wanted) {
        (DataType::Struct(old), DataType::Struct(new)) => {
            let is_kept = |field: &Arc<Field>| new.find(field.name()).is_some_and(|(_, now)| child(field, now));
            let may_come = |field: &Arc<Field>| field.is_nullable() || old.find(field.name()).is_some();
            old.iter().all(is_kept) && new.iter().all(may_come)
        }
        (DataType::List(old), DataType::List(new)) => child(old, new),
        (DataType::Map(old, _), DataType::Map(new, _)) => match (old.data_type(), new.data_type()) {
            (DataType::Struct(old), DataType::Struct(new)) => old.iter().zip(new).all(|(old, new)| child(old, new)),
            _ => false,
        },
        _ => same_type(stored, wanted) || is_lossless(stored, wanted),
    }
}

/// Whether every value of `from` is a value of `to` (times out of range are found when they are met).
fn is_lossless(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    if let (Some(small), Some(big)) = (integer_digits(from), integer_digits(to)) {
        return to.is_signed_integer() && small.1 <= big.1;
    }
    match (from, to) {
        (T::Null, _) => true,
        (T::Dictionary(_, value), _) => value.as_ref() == to || is_lossless(value, to),
        (T::RunEndEncoded(_, value), _) => value.data_type() == to || is_lossless(value.data_type(), to),
        (T::Utf8 | T::LargeUtf8 | T::Utf8View, T::Utf8) => true,
        (T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_), T::Binary) => true,
        (T::LargeList(inner) | T::FixedSizeList(inner, _), T::List(item)) => {
            inner.data_type() == item.data_type() || is_lossless(inner.data_type(), item.data_type())
        }
        (T::Float16, T::Float32 | T::Float64) | (T::Float32, T::Float64) => true,
        (T::Int8 | T::Int16 | T::UInt8 | T::UInt16, T::Float32 | T::Float64) => true,
        (T::Int32 | T::UInt32, T::Float64) => true,
        (T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s), T::Decimal128(to_p, to_s)) => {
            to_s >= s && i16::from(*to_p) - i16::from(*to_s) >= i16::from(*p) - i16::from(*s)
        }
        (_, T::Decimal128(to_p, to_s)) => {
            integer_digits(from).is_some_and(|(digits, _)| i16::from(*to_p) - i16::from(*to_s) >= digits)
        }
        (T::Date64, T::Date32) => false,
        (T::Timestamp(unit, zone), T::Timestamp(TimeUnit::Microsecond, to_zone)) => {
            *unit != TimeUnit::Nanosecond && zone.is_some() == to_zone.is_some()
        }
        _ => false,
    }
}

/// For an integer type: decimal digits that hold every value, and a rank: a type holds all of a lower or equal rank.
fn integer_digits(kind: &DataType) -> Option<(i16, u8)> {
    Some(match kind {
        DataType::Int8 => (3, 1),
        DataType::UInt8 => (3, 2),
        DataType::Int16 => (5, 3),
        DataType::UInt16 => (5, 4),
        DataType::Int32 => (10, 5),
        DataType::UInt32 => (10, 6),
        DataType::Int64 => (19, 7),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array, StringArray, StringViewArray, TimestampMillisecondArray, UInt8Array};
    use arrow::datatypes::Schema;

    use super::*;

    fn one(array: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([("x", array, true)]).unwrap()
    }

    fn decimal(value: i128, precision: u8, scale: i8) -> ArrayRef {
        let array = arrow::array::Decimal128Array::from(vec![value]);
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
    }

    fn list(name: &str, values: ArrayRef) -> ArrayRef {
        let item = Arc::new(Field::new(name, values.data_type().clone(), true));
        Arc::new(ListArray::new(item, arrow::buffer::OffsetBuffer::from_lengths([values.len()]), values, None))
    }

    #[test]
    fn what_fits_without_loss_is_brought_in() {
        let int: ArrayRef = Arc::new(Int32Array::from(vec![7]));
        let long: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        let micros = TimestampMillisecondArray::from(vec![7]).with_timezone("+00:00");
        for (from, to) in [
            (Arc::clone(&int), Arc::clone(&long)),
            (Arc::new(UInt8Array::from(vec![7])) as ArrayRef, Arc::clone(&long)),
            (decimal(700, 10, 2), decimal(70_000, 12, 4)),
            (Arc::clone(&int), decimal(700, 12, 2)),
            (Arc::new(StringViewArray::from(vec!["a"])) as ArrayRef, Arc::clone(&text)),
            (
                Arc::new(micros) as ArrayRef,
                Arc::new(arrow::array::TimestampMicrosecondArray::from(vec![7000]).with_timezone("UTC")) as ArrayRef,
            ),
            (list("item", Arc::clone(&int)), list("element", Arc::clone(&long))),
        ] {
            let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("x", to.data_type().clone(), true)]));
            let fitted = conform(&one(from), &schema).unwrap();
            assert_eq!(fitted.column(0), &to);
            assert_eq!(fitted.schema(), schema);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_the_name_of_the_column() {
        let long: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
        for (from, to, nullable) in [
            (Arc::clone(&long), DataType::Int32, true),
            (Arc::clone(&long), DataType::Utf8, true),
            (Arc::clone(&long), DataType::Int64, false),
            (Arc::clone(&long), DataType::Float64, true),
            (decimal(7, 10, 2), DataType::Decimal128(10, 4), true),
            (decimal(7, 10, 2), DataType::Decimal128(12, 1), true),
            (Arc::clone(&long), DataType::Decimal128(20, 2), true),
            (
                Arc::new(TimestampMillisecondArray::from(vec![7])) as ArrayRef,
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
                true,
            ),
        ] {
            let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("x", to, nullable)]));
            let error = conform(&one(from), &schema).unwrap_err();
            assert!(error.message().starts_with("column x"), "{error}");
        }
    }

    #[test]
    fn columns_are_matched_by_name() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("gone", DataType::Utf8, true),
            Field::new("x", DataType::Int32, true),
        ]));
        let fitted = conform(&one(Arc::new(Int32Array::from(vec![1, 2]))), &schema).unwrap();
        assert_eq!((fitted.num_rows(), fitted.column(0).null_count()), (2, 2));
        let strict: SchemaRef = Arc::new(Schema::new(vec![Field::new("y", DataType::Int32, false)]));
        let error = conform(&one(Arc::new(Int32Array::from(vec![1]))), &strict).unwrap_err();
        assert!(error.message().contains("column x is not in"), "{error}");
    }

    /// All types of numbers that are stored, each with its least and its greatest value.
    fn extremes() -> Vec<ArrayRef> {
        let mut all: Vec<ArrayRef> = vec![
            Arc::new(arrow::array::Int8Array::from(vec![i8::MIN, i8::MAX])),
            Arc::new(arrow::array::Int16Array::from(vec![i16::MIN, i16::MAX])),
            Arc::new(Int32Array::from(vec![i32::MIN, i32::MAX])),
            Arc::new(Int64Array::from(vec![i64::MIN + 1, i64::MAX])),
            // The last whole numbers before others are left out.
            Arc::new(arrow::array::Float32Array::from(vec![-16_777_215.0, 16_777_215.0])),
            Arc::new(arrow::array::Float64Array::from(vec![-9_007_199_254_740_991.0, 9_007_199_254_740_991.0])),
        ];
        for (precision, scale) in [(3, 0), (5, 0), (10, 0), (10, 2), (12, 2), (12, 4), (19, 0), (20, 1), (38, 9)] {
            let greatest = 10_i128.pow(u32::from(precision)) - 1;
            let array = arrow::array::Decimal128Array::from(vec![-greatest, greatest]);
            all.push(Arc::new(array.with_precision_and_scale(precision, scale).unwrap()));
        }
        all
    }

    /// Numbers as text, without zeros behind the point.
    fn numbers(array: &ArrayRef) -> Vec<String> {
        let shown = arrow::util::display::ArrayFormatter::try_new(array, &Default::default()).unwrap();
        let plain = |text: String| match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        };
        (0..array.len()).map(|row| plain(shown.value(row).to_string())).collect()
    }

    #[test]
    fn a_column_widens_to_what_holds_its_extremes_and_to_nothing_else() {
        let all = extremes();
        for from in &all {
            for to in &all {
                let wanted = to.data_type();
                let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("x", wanted.clone(), true)]));
                let strict = CastOptions { safe: false, ..CastOptions::default() };
                let holds = cast_with_options(from, wanted, &strict).is_ok_and(|cast| numbers(&cast) == numbers(from));
                // Floats have neither all decimals nor, from 64 bits on, all integers; decimals have no float.
                let is_rounded = matches!(
                    (from.data_type(), wanted),
                    (DataType::Decimal128(..), DataType::Float32 | DataType::Float64)
                        | (DataType::Float32 | DataType::Float64, DataType::Decimal128(..))
                        | (DataType::Float32 | DataType::Float64, DataType::Int32 | DataType::Int64)
                        | (
                            DataType::Decimal128(..),
                            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64
                        )
                );
                let expected = from.data_type() == wanted || holds && !is_rounded;
                assert_eq!(widens(from.data_type(), wanted), expected, "{} to {wanted}", from.data_type());
                if expected {
                    let brought = conform(&one(Arc::clone(from)), &schema).unwrap();
                    assert_eq!(numbers(brought.column(0)), numbers(from), "{} to {wanted}", from.data_type());
                }
            }
        }
    }

    #[test]
    fn what_is_inside_a_column_widens_too() {
        let group = |fields: &[(&str, DataType, bool)]| {
            let fields = fields.iter().map(|(name, kind, nullable)| Field::new(*name, kind.clone(), *nullable));
            DataType::Struct(fields.collect())
        };
        let of = |item: DataType, nullable| DataType::List(Arc::new(Field::new("element", item, nullable)));
        let narrow = group(&[("a", DataType::Int32, true)]);
        for (to, expected) in [
            (group(&[("a", DataType::Int64, true)]), true),
            (group(&[("b", DataType::Utf8, true), ("a", DataType::Int32, true)]), true),
            (group(&[("b", DataType::Utf8, false), ("a", DataType::Int32, true)]), false),
            (group(&[("a", DataType::Int16, true)]), false),
            (group(&[("a", DataType::Int64, false)]), false),
            (group(&[("b", DataType::Int32, true)]), false),
            (DataType::Utf8, false),
        ] {
            assert_eq!(widens(&narrow, &to), expected, "{to}");
            assert_eq!(widens(&of(narrow.clone(), true), &of(to.clone(), true)), expected, "list of {to}");
            assert!(!widens(&of(narrow.clone(), true), &of(to, false)));
        }
        for (from, to) in [
            (DataType::Utf8, DataType::Int64),
            (DataType::Int64, DataType::Utf8),
            (DataType::Date32, DataType::Timestamp(TimeUnit::Microsecond, None)),
            (DataType::Boolean, DataType::Int32),
        ] {
            assert!(!widens(&from, &to), "{from} to {to}");
        }
    }
}
