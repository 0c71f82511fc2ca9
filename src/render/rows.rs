//! Rows of a query as a table, CSV, a JSON array or NDJSON. Nothing is rounded: decimals keep every digit (in JSON they
//! are numbers, digit for digit), timestamps their microseconds, and bytes are shown as hex digits.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::DateTime;
use comfy_table::{Cell, CellAlignment};

use crate::error::Result;
use crate::name::hex;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// An aligned table.
    #[default]
    Table,
    /// CSV with a header; null is an empty field, empty text is `""`.
    Csv,
    /// One JSON array of objects.
    Json,
    /// One JSON object a line.
    Ndjson,
}

/// What a value is in text.
enum Shape {
    Null,
    /// Stands in JSON as it is: numbers, true, false, arrays, objects.
    Bare(String),
    /// Is a string in JSON.
    Quoted(String),
}

/// Prints batches one after the other in one format; the text of each call is to be written out in turn.
#[derive(Debug)]
pub struct RowWriter {
    format: Format,
    schema: SchemaRef,
    rows: u64,
}

impl RowWriter {
    /// For rows of `schema`. [`Format::Table`] is not streamed: see [`table`].
    #[must_use]
    pub fn new(format: Format, schema: SchemaRef) -> Self {
        Self { format, schema, rows: 0 }
    }

    /// What comes before the first row.
    #[must_use]
    pub fn begin(&self) -> String {
        match self.format {
            Format::Csv => {
                let names: Vec<String> = self.schema.fields().iter().map(|field| csv_text(field.name())).collect();
                format!("{}\n", names.join(","))
            }
            Format::Json => "[".to_owned(),
            Format::Ndjson | Format::Table => String::new(),
        }
    }

    /// The rows of a batch.
    ///
    /// # Errors
    /// A value of a type that cannot be shown.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<String> {
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            match self.format {
                Format::Csv => self.csv_row(batch, row, &mut text)?,
                Format::Json => {
                    text.push_str(if self.rows == 0 { "\n" } else { ",\n" });
                    self.json_row(batch, row, &mut text)?;
                }
                Format::Ndjson | Format::Table => {
                    self.json_row(batch, row, &mut text)?;
                    text.push('\n');
                }
            }
            self.rows += 1;
        }
        Ok(text)
    }

    /// What comes after the last row.
    #[must_use]
    pub fn end(&self) -> String {
        match self.format {
            Format::Json if self.rows == 0 => "]\n".to_owned(),
            Format::Json => "\n]\n".to_owned(),
            _ => String::new(),
        }
    }

    fn csv_row(&self, batch: &RecordBatch, row: usize, text: &mut String) -> Result<()> {
        for (position, column) in batch.columns().iter().enumerate() {
            if position > 0 {
                text.push(',');
            }
            match shape(column, row)? {
                // A line of its own with nothing on it would be no record.
                Shape::Null if batch.num_columns() == 1 => {}
                Shape::Null => {}
                Shape::Bare(value) | Shape::Quoted(value) => text.push_str(&csv_text(&value)),
            }
        }
        text.push('\n');
        Ok(())
    }

    fn json_row(&self, batch: &RecordBatch, row: usize, text: &mut String) -> Result<()> {
        text.push('{');
        for (position, (field, column)) in self.schema.fields().iter().zip(batch.columns()).enumerate() {
            if position > 0 {
                text.push(',');
            }
            text.push_str(&json_string(field.name()));
            text.push(':');
            push_json(shape(column, row)?, text);
        }
        text.push('}');
        Ok(())
    }
}

/// An aligned table, no wider than `width` if that is known.
///
/// # Errors
/// A value of a type that cannot be shown.
pub fn table(schema: &SchemaRef, batches: &[RecordBatch], width: Option<u16>) -> Result<String> {
    let mut table = super::plain_table(width, false);
    let is_right = |data_type: &DataType| data_type.is_numeric();
    let align = |cell: Cell, data_type: &DataType| {
        if is_right(data_type) { cell.set_alignment(CellAlignment::Right) } else { cell }
    };
    table.set_header(schema.fields().iter().map(|field| align(Cell::new(field.name()), field.data_type())));
    for batch in batches {
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(batch.num_columns());
            for column in batch.columns() {
                let text = match shape(column, row)? {
                    Shape::Null => "null".to_owned(),
                    Shape::Bare(text) | Shape::Quoted(text) => super::some_lines(&text),
                };
                cells.push(align(Cell::new(text), column.data_type()));
            }
            table.add_row(cells);
        }
    }
    Ok(super::trimmed(&mut table))
}

/// One value as text; none for null.
///
/// # Errors
/// A value of a type that cannot be shown.
pub fn value_text(array: &dyn Array, row: usize) -> Result<Option<String>> {
    Ok(match shape(array, row)? {
        Shape::Null => None,
        Shape::Bare(text) | Shape::Quoted(text) => Some(text),
    })
}

fn csv_text(value: &str) -> String {
    let needs_quotes = value.is_empty() || value.contains(['"', ',', '\n', '\r']) || value.starts_with('\u{feff}');
    if needs_quotes { format!("\"{}\"", value.replace('"', "\"\"")) } else { value.to_owned() }
}

fn json_string(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

fn push_json(value: Shape, text: &mut String) {
    match value {
        Shape::Null => text.push_str("null"),
        Shape::Bare(bare) => text.push_str(&bare),
        Shape::Quoted(quoted) => text.push_str(&json_string(&quoted)),
    }
}

fn shape(array: &dyn Array, row: usize) -> Result<Shape> {
    if array.is_null(row) {
        return Ok(Shape::Null);
    }
    macro_rules! bare {
        ($type:ty) => {
            Shape::Bare(array.as_primitive::<$type>().value(row).to_string())
        };
    }
    macro_rules! decimal {
        ($type:ty) => {
            Shape::Bare(array.as_primitive::<$type>().value_as_string(row))
        };
    }
    Ok(match array.data_type() {
        DataType::Null => Shape::Null,
        DataType::Boolean => Shape::Bare(array.as_boolean().value(row).to_string()),
        DataType::Int8 => bare!(Int8Type),
        DataType::Int16 => bare!(Int16Type),
        DataType::Int32 => bare!(Int32Type),
        DataType::Int64 => bare!(Int64Type),
        DataType::UInt8 => bare!(UInt8Type),
        DataType::UInt16 => bare!(UInt16Type),
        DataType::UInt32 => bare!(UInt32Type),
        DataType::UInt64 => bare!(UInt64Type),
        DataType::Float16 => float(array.as_primitive::<Float16Type>().value(row).to_f64()),
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            if value.is_finite() { Shape::Bare(value.to_string()) } else { float(f64::from(value)) }
        }
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal32(..) => decimal!(Decimal32Type),
        DataType::Decimal64(..) => decimal!(Decimal64Type),
        DataType::Decimal128(..) => decimal!(Decimal128Type),
        DataType::Decimal256(..) => decimal!(Decimal256Type),
        DataType::Utf8 => Shape::Quoted(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Shape::Quoted(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Shape::Quoted(array.as_string_view().value(row).to_owned()),
        DataType::Binary => Shape::Quoted(hex(array.as_binary::<i32>().value(row))),
        DataType::LargeBinary => Shape::Quoted(hex(array.as_binary::<i64>().value(row))),
        DataType::BinaryView => Shape::Quoted(hex(array.as_binary_view().value(row))),
        DataType::FixedSizeBinary(_) => Shape::Quoted(hex(array.as_fixed_size_binary().value(row))),
        DataType::Timestamp(unit, zone) => Shape::Quoted(timestamp(array, row, *unit, zone.is_some())?),
        DataType::List(_) => list(array.as_list::<i32>().value(row).as_ref())?,
        DataType::LargeList(_) => list(array.as_list::<i64>().value(row).as_ref())?,
        DataType::FixedSizeList(..) => list(array.as_fixed_size_list().value(row).as_ref())?,
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let names = fields.iter().map(|field| json_string(field.name()));
            object(names.zip(columns).map(|(name, column)| Ok((name, shape(column.as_ref(), row)?))))?
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            object((0..entries.len()).map(|entry| {
                let key = value_text(keys.as_ref(), entry)?.unwrap_or_default();
                Ok((json_string(&key), shape(values.as_ref(), entry)?))
            }))?
        }
        DataType::Dictionary(_, values) => shape(arrow::compute::cast(array, values)?.as_ref(), row)?,
        DataType::RunEndEncoded(_, values) => shape(arrow::compute::cast(array, values.data_type())?.as_ref(), row)?,
        // Dates, times, durations, intervals: Arrow's own ISO 8601 forms are exact.
        _ => Shape::Quoted(ArrayFormatter::try_new(array, &FormatOptions::default())?.value(row).to_string()),
    })
}

/// NaN and infinities have no number in JSON.
fn float(value: f64) -> Shape {
    if value.is_finite() {
        let text = value.to_string();
        return Shape::Bare(if text.len() > 25 { format!("{value:e}") } else { text });
    }
    Shape::Quoted(
        if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned(),
    )
}

fn timestamp(array: &dyn Array, row: usize, unit: TimeUnit, is_instant: bool) -> Result<String> {
    let time = match unit {
        TimeUnit::Second => DateTime::from_timestamp(array.as_primitive::<TimestampSecondType>().value(row), 0),
        TimeUnit::Millisecond => {
            DateTime::from_timestamp_millis(array.as_primitive::<TimestampMillisecondType>().value(row))
        }
        TimeUnit::Microsecond => {
            DateTime::from_timestamp_micros(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        TimeUnit::Nanosecond => {
            Some(DateTime::from_timestamp_nanos(array.as_primitive::<TimestampNanosecondType>().value(row)))
        }
    };
    let Some(time) = time else {
        return Err(crate::error::Error::invalid("a timestamp lies beyond the years that can be shown"));
    };
    // Only as many digits as there are: `%.f` leaves out a fraction of zero.
    let text = time.naive_utc().format("%Y-%m-%dT%H:%M:%S%.f").to_string();
    Ok(if is_instant { format!("{text}Z") } else { text })
}

fn list(items: &dyn Array) -> Result<Shape> {
    let mut text = "[".to_owned();
    for row in 0..items.len() {
        if row > 0 {
            text.push(',');
        }
        push_json(shape(items, row)?, &mut text);
    }
    text.push(']');
    Ok(Shape::Bare(text))
}

fn object(entries: impl Iterator<Item = Result<(String, Shape)>>) -> Result<Shape> {
    let mut text = "{".to_owned();
    for (position, entry) in entries.enumerate() {
        let (name, value) = entry?;
        if position > 0 {
            text.push(',');
        }
        text.push_str(&name);
        text.push(':');
        push_json(value, &mut text);
    }
    text.push('}');
    Ok(Shape::Bare(text))
}

#[cfg(test)]
mod tests;
