//! Arrow schemas and their stored form in Delta metadata.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use deltalake::kernel::StructType;
use deltalake::kernel::engine::arrow_conversion::{TryIntoArrow, TryIntoKernel};

use crate::error::{Error, Result};

/// The Arrow schema of a stored one.
pub(super) fn from_delta(text: &str) -> Result<SchemaRef> {
    let stored: StructType = serde_json::from_str(text)
        .map_err(|e| Error::invalid("the schema has a type that cannot be read").because(e))?;
    let schema: Schema = (&stored)
        .try_into_arrow()
        .map_err(|e| Error::invalid("the schema has a type that cannot be read").because(e))?;
    Ok(Arc::new(schema))
}

/// The stored form of an Arrow schema.
pub(super) fn to_delta(schema: &Schema) -> Result<String> {
    let plain = plain(schema)?;
    let stored: StructType = plain
        .as_ref()
        .try_into_kernel()
        .map_err(|e| Error::invalid("the schema cannot be stored in a Delta table").because(e))?;
    serde_json::to_string(&stored).map_err(|e| Error::internal("schema").because(e))
}

/// The schema as a table has it: see [`storable`].
pub(super) fn plain(schema: &Schema) -> Result<SchemaRef> {
    Ok(Arc::new(Schema::new(schema.fields().iter().map(|field| storable(field)).collect::<Result<Vec<_>>>()?)))
}

/// The field in the one form that tables have: no views, no dictionaries, microseconds, `UTC`, fixed names inside lists and
/// maps. An error names a column whose values do not fit losslessly.
fn storable(field: &Field) -> Result<Field> {
    let kind = storable_type(field.data_type()).map_err(|e| e.within(format!("column {}", field.name())))?;
    Ok(Field::new(field.name(), kind, field.is_nullable()).with_metadata(field.metadata().clone()))
}

fn storable_type(kind: &DataType) -> Result<DataType> {
    let item = |inner: &Field, name: &str, nullable: bool| -> Result<Arc<Field>> {
        Ok(Arc::new(Field::new(name, storable_type(inner.data_type())?, nullable)))
    };
    Ok(match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Dictionary(_, value) => storable_type(value)?,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            return Err(Error::invalid("nanoseconds cannot be stored in a Delta table"));
        }
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(_, Some(_)) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => {
            return Err(Error::invalid("uint64 cannot be stored in a Delta table"));
        }
        DataType::List(inner) | DataType::LargeList(inner) | DataType::FixedSizeList(inner, _) => {
            DataType::List(item(inner, "element", inner.is_nullable())?)
        }
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| storable(field)).collect::<Result<Fields>>()?)
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => DataType::Map(
                Arc::new(Field::new(
                    "key_value",
                    DataType::Struct(Fields::from(vec![
                        item(&fields[0], "key", false)?,
                        item(&fields[1], "value", fields[1].is_nullable())?,
                    ])),
                    false,
                )),
                false,
            ),
            _ => return Err(Error::internal("a map without key and value")),
        },
        other => other.clone(),
    })
}

/// Whether any column, nested ones included, is a time without zone.
pub(super) fn has_timestamp_ntz(schema: &Schema) -> bool {
    fn inside(kind: &DataType) -> bool {
        match kind {
            DataType::Timestamp(_, None) => true,
            DataType::List(field) | DataType::Map(field, _) => inside(field.data_type()),
            DataType::Struct(fields) => fields.iter().any(|field| inside(field.data_type())),
            _ => false,
        }
    }
    schema.fields().iter().any(|field| inside(field.data_type()))
}

/// The columns that are in the files: all but the partition columns, in table order.
pub(super) fn file_schema(schema: &Schema, partition_by: &[String]) -> SchemaRef {
    let fields: Vec<_> = schema.fields().iter().filter(|field| !partition_by.contains(field.name())).cloned().collect();
    Arc::new(Schema::new(fields))
}
