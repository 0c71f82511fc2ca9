//! Rows of columnar files as JSON text, nothing lost: text that is not UTF-8 and binary as `0x` and hex digits (binary that
//! is text as text), NaN and infinities as strings.

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Int64Type, Schema};
use arrow::error::ArrowError;
use arrow::json::writer::NullableEncoder;
use arrow::json::writer::{LineDelimited, WriterBuilder};
use arrow::json::{Encoder, EncoderFactory, EncoderOptions};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::Result;
use crate::name::hex;

/// Each row of `batch` as one JSON object. Nulls are written when `nulls` says so, else left out.
///
/// # Errors
/// [`crate::error::ErrorKind::Internal`] for types that JSON has no form for.
pub(crate) fn objects(batch: &RecordBatch, nulls: bool) -> Result<Vec<Vec<u8>>> {
    if batch.num_columns() == 0 {
        return Ok(vec![b"{}".to_vec(); batch.num_rows()]);
    }
    let batch = speakable(batch)?;
    let mut out = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let mut writer = WriterBuilder::new()
            .with_explicit_nulls(nulls)
            .with_encoder_factory(Arc::new(Exact))
            .build::<_, LineDelimited>(Vec::new());
        writer.write(&batch.slice(row, 1))?;
        let mut text = writer.into_inner();
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        out.push(text);
    }
    Ok(out)
}

/// One value as text: strings as they are, null as none, everything else as JSON or in Arrow's form.
pub(crate) fn text(array: &ArrayRef, row: usize) -> Result<Option<String>> {
    if array.is_null(row) {
        return Ok(None);
    }
    let text = match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        DataType::Binary => binary_text(array.as_binary::<i32>().value(row)),
        DataType::Null => return Ok(None),
        nested if nested.is_nested() => return json(array, row).map(Some),
        _ => plain_text(array, row)?,
    };
    Ok(Some(text))
}

/// A scalar in Arrow's form; a time beyond what that form reaches as its number.
fn plain_text(array: &dyn Array, row: usize) -> Result<String> {
    match ArrayFormatter::try_new(array, &FormatOptions::default())?.value(row).try_to_string() {
        Ok(text) => Ok(text),
        Err(error) => {
            let numbers = cast(&array.slice(row, 1), &DataType::Int64).map_err(|_| error)?;
            Ok(numbers.as_primitive::<Int64Type>().value(0).to_string())
        }
    }
}

/// One value as JSON text.
pub(crate) fn json(array: &ArrayRef, row: usize) -> Result<String> {
    let field = Field::new("v", array.data_type().clone(), true);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array.slice(row, 1)])?;
    let object = objects(&batch, true)?.pop().unwrap_or_default();
    // {"v":...}
    let inner = object.get(5..object.len().saturating_sub(1)).unwrap_or_default();
    Ok(String::from_utf8_lossy(inner).into_owned())
}

/// Bytes for people: as text where they are text.
pub(crate) fn binary_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("0x{}", hex(bytes)),
    }
}

/// The batch with columns that arrow's writer refuses (intervals, maps with keys that are no text) as text.
fn speakable(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut fields: Vec<FieldRef> = Vec::with_capacity(batch.num_columns());
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if is_speakable(field.data_type()) {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
            continue;
        }
        let formatter = ArrayFormatter::try_new(column, &FormatOptions::default().with_null("null"))?;
        let texts = (0..column.len())
            .map(|row| column.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose())
            .collect::<Result<arrow::array::StringArray, ArrowError>>()?;
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(texts) as ArrayRef);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn is_speakable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(_) | DataType::Union(..) | DataType::RunEndEncoded(..) => false,
        DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) => is_speakable(of.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_speakable(field.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                fields.first().is_some_and(|key| key.data_type() == &DataType::Utf8)
                    && fields.iter().all(|field| is_speakable(field.data_type()))
            }
            _ => false,
        },
        _ => true,
    }
}

#[derive(Debug)]
struct Exact;

impl EncoderFactory for Exact {
    fn make_default_encoder<'a>(
        &self,
        _field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Binary => Box::new(Bytes(array.as_binary::<i32>())),
            DataType::Float64 => Box::new(Float(|row| {
                let value = array.as_primitive::<Float64Type>().value(row);
                (value.is_finite(), format!("{value:?}"))
            })),
            DataType::Float32 => Box::new(Float(|row| {
                let value = array.as_primitive::<Float32Type>().value(row);
                (value.is_finite(), format!("{value:?}"))
            })),
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => Box::new(Time(array)),
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

struct Bytes<'a>(&'a BinaryArray);

impl Encoder for Bytes<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let text = binary_text(self.0.value(row));
        out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
    }
}

struct Float<F>(F);

impl<F: Fn(usize) -> (bool, String)> Encoder for Float<F> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let (is_finite, text) = self.0(row);
        // Writing to a vector does not fail.
        let _ = if is_finite { write!(out, "{text}") } else { write!(out, "\"{text}\"") };
    }
}

struct Time<'a>(&'a dyn Array);

impl Encoder for Time<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let text = plain_text(self.0, row).unwrap_or_default();
        let is_number = !text.is_empty() && text.parse::<i64>().is_ok();
        // Writing to a vector does not fail.
        let _ = if is_number { write!(out, "{text}") } else { write!(out, "\"{text}\"") };
    }
}
