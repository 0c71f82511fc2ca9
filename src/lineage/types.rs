//! The types that a derived table stores: what SQL gives is brought to types that every Delta reader knows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};

/// The most digits that a stored decimal has.
const MOST_DIGITS: u8 = 38;

/// The type that a column of `data_type` is stored as: unsigned integers become int64, views and dictionaries plain
/// values, every time microseconds.
///
/// # Errors
/// Why the type cannot be stored, and what to do about it.
pub fn storable_type(data_type: &DataType) -> Result<DataType> {
    Ok(match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32 => data_type.clone(),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(_, Some(_)) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => storable_decimal(*precision, *scale)?,
        DataType::Dictionary(_, value) => storable_type(value)?,
        DataType::RunEndEncoded(_, value) => storable_type(value.data_type())?,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => {
            DataType::List(Arc::new(Field::new("element", storable_type(item.data_type())?, true)))
        }
        DataType::Struct(fields) => DataType::Struct(storable_fields(fields)?),
        DataType::Map(entries, _) => storable_map(entries)?,
        DataType::Null => {
            return Err(Error::invalid("a column that is always null has no type")
                .remedy("give it a type, such as cast(null as varchar)"));
        }
        other => {
            return Err(Error::invalid(format!("type {other} cannot be stored in a table"))
                .remedy("cast it to a type that tables have, such as varchar or bigint"));
        }
    })
}

fn storable_decimal(precision: u8, scale: i8) -> Result<DataType> {
    if precision > MOST_DIGITS {
        return Err(Error::invalid(format!("decimal({precision},{scale}) has more than {MOST_DIGITS} digits"))
            .remedy(format!("cast it to decimal({MOST_DIGITS},{scale}) or less")));
    }
    if scale < 0 {
        return Err(Error::invalid(format!("decimal({precision},{scale}) has a negative scale"))
            .remedy("cast it to a decimal with scale 0"));
    }
    Ok(DataType::Decimal128(precision, scale))
}

fn storable_fields(fields: &Fields) -> Result<Fields> {
    let mut stored = Vec::with_capacity(fields.len());
    for field in fields {
        let data_type = storable_type(field.data_type()).map_err(|e| e.within(format!("`{}`", field.name())))?;
        stored.push(Arc::new(Field::new(field.name(), data_type, true)));
    }
    Ok(stored.into())
}

fn storable_map(entries: &FieldRef) -> Result<DataType> {
    let DataType::Struct(pair) = entries.data_type() else {
        return Err(Error::internal("a map without entries"));
    };
    let [key, value] = pair.as_ref() else {
        return Err(Error::internal("a map whose entries are no pairs"));
    };
    let key = Field::new("key", storable_type(key.data_type())?, false);
    let value = Field::new("value", storable_type(value.data_type())?, true);
    let pair = DataType::Struct(Fields::from(vec![key, value]));
    Ok(DataType::Map(Arc::new(Field::new("key_value", pair, false)), false))
}

/// The schema that a derived table with this SQL output is stored with. Every column is nullable.
///
/// # Errors
/// A column whose type cannot be stored; the message names it.
pub fn storable_schema(output: &Schema) -> Result<SchemaRef> {
    Ok(Arc::new(Schema::new(storable_fields(output.fields())?)))
}

/// Casts a batch, column by column in order, to a stored schema. A value that the stored type cannot hold is an error,
/// never a null.
pub fn to_stored(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        columns.push(to_stored_column(column, field)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Casts one column to the type of a stored field.
pub fn to_stored_column(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, field.data_type(), &options)
        .map_err(|e| Error::invalid(format!("column `{}` cannot be stored", field.name())).because(e))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, UInt64Array};

    use super::*;

    #[test]
    fn sql_types_become_stored_types() {
        let list = |item| DataType::List(Arc::new(Field::new("element", item, true)));
        let large = DataType::LargeList(Arc::new(Field::new("item", DataType::Utf8View, false)));
        for (given, stored) in [
            (DataType::UInt64, DataType::Int64),
            (DataType::UInt8, DataType::Int64),
            (DataType::Utf8View, DataType::Utf8),
            (DataType::BinaryView, DataType::Binary),
            (DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)), DataType::Utf8),
            (DataType::Decimal256(38, 2), DataType::Decimal128(38, 2)),
            (
                DataType::Timestamp(TimeUnit::Nanosecond, Some("+01:00".into())),
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ),
            (large, list(DataType::Utf8)),
        ] {
            assert_eq!(storable_type(&given).unwrap(), stored, "{given}");
        }
        for refused in [
            DataType::Decimal256(39, 2),
            DataType::Null,
            DataType::Duration(TimeUnit::Second),
            DataType::Time64(TimeUnit::Microsecond),
        ] {
            assert!(storable_type(&refused).unwrap_err().remedy_text().is_some(), "{refused}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let field = Field::new("n", DataType::Int64, true);
        let fits: ArrayRef = Arc::new(UInt64Array::from(vec![7]));
        let stored = to_stored_column(&fits, &field).unwrap();
        assert_eq!(stored.as_ref(), &Int64Array::from(vec![7]) as &dyn arrow::array::Array);
        let too_big: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
        assert!(to_stored_column(&too_big, &field).unwrap_err().message().contains("`n`"));
    }
}
