//! Contracts and Arrow: the schema of a table, and the type of a column that a query gives.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::lineage;
use super::model::{Column, ColumnType, Contract, UnknownColumns};
use crate::error::{Error, Result};

/// The zone of every instant.
pub const UTC: &str = "UTC";

/// The Arrow type of a column type, with Delta's names inside lists (`element`) and maps (`key_value`, `key`, `value`).
#[must_use]
pub fn data_type(column_type: &ColumnType) -> DataType {
    match column_type {
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Int8 => DataType::Int8,
        ColumnType::Int16 => DataType::Int16,
        ColumnType::Int32 => DataType::Int32,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::Float32 => DataType::Float32,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Decimal(precision, scale) => DataType::Decimal128(*precision, *scale),
        ColumnType::String => DataType::Utf8,
        ColumnType::Binary => DataType::Binary,
        ColumnType::Date => DataType::Date32,
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        ColumnType::TimestampNtz => DataType::Timestamp(TimeUnit::Microsecond, None),
        ColumnType::List(item) => DataType::List(Arc::new(Field::new("element", data_type(item), true))),
        ColumnType::Struct(fields) => DataType::Struct(
            fields.iter().map(|(name, inner)| Field::new(name, data_type(inner), true)).collect::<Fields>(),
        ),
        ColumnType::Map(key, value) => {
            let entries = Fields::from(vec![
                Field::new("key", data_type(key), false),
                Field::new("value", data_type(value), true),
            ]);
            DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(entries), false)), false)
        }
    }
}

/// The Arrow field of a column.
#[must_use]
pub fn field(column: &Column) -> Field {
    Field::new(&column.name, data_type(&column.data_type), column.nullable)
}

/// The contract's columns alone, in contract order.
#[must_use]
pub fn declared_schema(contract: &Contract) -> SchemaRef {
    Arc::new(Schema::new(contract.columns.iter().map(field).collect::<Vec<_>>()))
}

/// What is known of a change event when it is staged: the event itself, what it says of itself, and its place.
#[must_use]
pub fn event_fields() -> Vec<Field> {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let long = |name: &str| Field::new(name, DataType::Int64, true);
    vec![
        Field::new(lineage::EVENT, DataType::Binary, false),
        text(lineage::TABLE),
        text("op"),
        text("key"),
        long("ts_ms"),
        long("lsn"),
        long("tx_id"),
        text(lineage::TOPIC),
        Field::new(lineage::PARTITION, DataType::Int32, true),
        long(lineage::OFFSET),
    ]
}

/// A table of change events: the same columns for every contract.
fn events_schema() -> SchemaRef {
    let mut fields = event_fields();
    fields.extend([
        Field::new(lineage::FILE, DataType::Utf8, true),
        Field::new(lineage::ROW, DataType::Int64, true),
        Field::new(lineage::INGEST_DATE, DataType::Date32, true),
        Field::new(lineage::BATCH_ID, DataType::Utf8, true),
        Field::new(lineage::INGESTED_AT, data_type(&ColumnType::Timestamp), true),
    ]);
    Arc::new(Schema::new(fields))
}

/// A table fed by files: the contract's columns, `_rescued` (under `unknown_columns: rescue`), `_file`, `_row`, `_batch_id`
/// and `_ingested_at`. A table of change events has columns of its own.
#[must_use]
pub fn ingested_schema(contract: &Contract) -> SchemaRef {
    if contract.events().is_some() {
        return events_schema();
    }
    let mut fields: Vec<Field> = contract.columns.iter().map(field).collect();
    if contract.unknown_columns == UnknownColumns::Rescue {
        fields.push(Field::new(lineage::RESCUED, DataType::Utf8, true));
    }
    fields.push(Field::new(lineage::FILE, DataType::Utf8, false));
    fields.push(Field::new(lineage::ROW, DataType::Int64, false));
    fields.push(Field::new(lineage::BATCH_ID, DataType::Utf8, true));
    fields.push(Field::new(lineage::INGESTED_AT, data_type(&ColumnType::Timestamp), true));
    Arc::new(Schema::new(fields))
}

/// The columns of a table that no SQL makes, as it is stored. A table of changes has its declared columns and one for each
/// field of `sequence_by`; a history has what its contract declares.
#[must_use]
pub fn stored_schema(contract: &Contract) -> SchemaRef {
    let Some(source) = contract.changes() else {
        return if contract.files().is_some() { ingested_schema(contract) } else { declared_schema(contract) };
    };
    let mut fields: Vec<Field> = contract.columns.iter().map(field).collect();
    fields.extend(source.sequence_columns().into_iter().map(|name| Field::new(name, DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

/// The column type that holds every value of an Arrow type. Unsigned integers become int64, as results of SQL do.
///
/// # Errors
/// Invalid, when Delta has no such type (times of day, intervals, decimals of more than 38 digits, a bare null).
pub fn column_type(data_type: &DataType) -> Result<ColumnType> {
    let converted = match data_type {
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int8 => ColumnType::Int8,
        DataType::Int16 => ColumnType::Int16,
        DataType::Int32 => ColumnType::Int32,
        DataType::Int64 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => ColumnType::Int64,
        DataType::Float16 | DataType::Float32 => ColumnType::Float32,
        DataType::Float64 => ColumnType::Float64,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => return decimal(*precision, *scale),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            ColumnType::Binary
        }
        DataType::Date32 | DataType::Date64 => ColumnType::Date,
        DataType::Timestamp(_, Some(_)) => ColumnType::Timestamp,
        DataType::Timestamp(_, None) => ColumnType::TimestampNtz,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => ColumnType::List(Box::new(column_type(item.data_type())?)),
        DataType::Struct(fields) => ColumnType::Struct(
            fields
                .iter()
                .map(|inner| {
                    let inner_type = column_type(inner.data_type()).map_err(|error| error.within(inner.name()))?;
                    Ok((inner.name().clone(), inner_type))
                })
                .collect::<Result<_>>()?,
        ),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => ColumnType::Map(
                Box::new(column_type(pair[0].data_type())?),
                Box::new(column_type(pair[1].data_type())?),
            ),
            _ => return Err(unsupported(data_type)),
        },
        DataType::Dictionary(_, values) => return column_type(values),
        DataType::RunEndEncoded(_, values) => return column_type(values.data_type()),
        DataType::Null
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Duration(_)
        | DataType::Interval(_)
        | DataType::Union(..) => return Err(unsupported(data_type)),
    };
    Ok(converted)
}

fn decimal(precision: u8, scale: i8) -> Result<ColumnType> {
    // A negative scale counts zeros before the point: they need digits of their own.
    let digits = i16::from(precision) - i16::from(scale.min(0));
    match u8::try_from(digits) {
        Ok(digits @ 1..=38) => Ok(ColumnType::Decimal(digits, scale.max(0))),
        _ => Err(Error::invalid(format!("a decimal of {digits} digits does not fit: 38 is the most"))
            .remedy("Cast it to decimal(38, s) in the SQL.")),
    }
}

fn unsupported(data_type: &DataType) -> Error {
    let remedy = match data_type {
        DataType::Null => "Cast the null to the type that is meant, as in `cast(null as varchar)`.",
        _ => "Cast it to a type that Delta tables have.",
    };
    Error::invalid(format!("a table cannot hold the type {data_type}")).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::yaml;

    #[test]
    fn every_type_goes_to_arrow_and_back() {
        for text in [
            "boolean",
            "int8",
            "int16",
            "int32",
            "int64",
            "float32",
            "float64",
            "decimal(38,10)",
            "string",
            "binary",
            "date",
            "timestamp",
            "timestamp_ntz",
            "list<struct<a:string,b:map<string,list<int64>>>>",
        ] {
            let expected = ColumnType::parse(text).expect(text);
            assert_eq!(column_type(&data_type(&expected)).expect(text), expected);
        }
    }

    #[test]
    fn types_of_queries_find_the_type_that_holds_them() {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        for (arrow, expected) in [
            (DataType::UInt64, Some("int64")),
            (DataType::Utf8View, Some("string")),
            (dictionary, Some("string")),
            (DataType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Vienna".into())), Some("timestamp")),
            (DataType::Date64, Some("date")),
            (DataType::Decimal256(38, 2), Some("decimal(38,2)")),
            (DataType::Decimal128(5, -2), Some("decimal(7,0)")),
            (DataType::Decimal256(40, 2), None),
            (DataType::Decimal128(38, -1), None),
            (DataType::Null, None),
            (DataType::Time64(TimeUnit::Microsecond), None),
        ] {
            let found = column_type(&arrow).ok().map(|column_type| column_type.to_string());
            assert_eq!(found.as_deref(), expected, "{arrow}");
        }
    }

    #[test]
    fn a_table_of_files_has_its_lineage() {
        let contract = |unknown: &str| {
            let text = format!(
                "version: 1\ntable: raw/t\nsource: {{ path: t/*, format: json }}\nunknown_columns: {unknown}\n\
                 columns: [{{ name: id, type: int64, nullable: false }}, {{ name: tags, type: list<string> }}]\n"
            );
            yaml::parse("t.yaml", &text).expect("a contract").0
        };
        let shown = |schema: SchemaRef| {
            let fields = schema.fields().iter().map(|field| {
                let null = if field.is_nullable() { "" } else { " not null" };
                format!("{} {}{null}\n", field.name(), field.data_type())
            });
            fields.collect::<String>()
        };
        insta::assert_snapshot!(shown(ingested_schema(&contract("rescue"))), @r#"
        id Int64 not null
        tags List(Utf8, field: 'element')
        _rescued Utf8
        _file Utf8 not null
        _row Int64 not null
        _batch_id Utf8
        _ingested_at Timestamp(µs, "UTC")
        "#);
        insta::assert_snapshot!(shown(ingested_schema(&contract("ignore"))), @r#"
        id Int64 not null
        tags List(Utf8, field: 'element')
        _file Utf8 not null
        _row Int64 not null
        _batch_id Utf8
        _ingested_at Timestamp(µs, "UTC")
        "#);
        insta::assert_snapshot!(shown(declared_schema(&contract("rescue"))), @r"
        id Int64 not null
        tags List(Utf8, field: 'element')
        ");
    }
}
