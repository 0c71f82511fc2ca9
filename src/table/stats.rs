//! Delta statistics of a data file, taken from the footer that was just written.
//!
//! Minimum and maximum are given only where they bound the values for every reader: not for booleans and binaries, not for
//! floats with a NaN (readers differ on where NaN sorts), not for infinities (JSON has none).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema};
use chrono::{DateTime, NaiveDate, TimeDelta};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;

/// Statistics are kept for this many leaf columns, and for the lineage columns (leading `_`) wherever they stand.
const INDEXED_LEAVES: usize = 32;

/// Longest text in bytes that stands as a bound; longer ones (no shorter upper bound exists) are left out.
const LONGEST_TEXT: usize = 256;

/// A bound of a column, comparable within its type.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
enum Bound {
    Whole(i128),
    Float(f64),
    Text(String),
}

/// Bounds of the float columns that were written so far. The footer has none for floats: Parquet's own bounds pass over NaN,
/// and readers that count NaN as the greatest number would skip rows by them.
#[derive(Debug, Clone, Default)]
pub(super) struct FloatBounds(BTreeMap<String, FloatBound>);

#[derive(Debug, Clone, Default)]
struct FloatBound {
    nulls: u64,
    has_nan: bool,
    bounds: Option<(f64, f64)>,
}

impl FloatBounds {
    /// Looks through the float columns of a batch. Floats inside structs have no bounds.
    pub(super) fn look(&mut self, batch: &RecordBatch) {
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            match field.data_type() {
                DataType::Float64 => {
                    let values = column.as_primitive::<Float64Type>().iter().flatten();
                    self.take(field.name(), column.null_count(), values);
                }
                DataType::Float32 => {
                    let values = column.as_primitive::<Float32Type>().iter().flatten().map(f64::from);
                    self.take(field.name(), column.null_count(), values);
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, name: &str, nulls: usize, values: impl Iterator<Item = f64>) {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), FloatBound::default());
        }
        let Some(bound) = self.0.get_mut(name) else { return };
        bound.nulls += nulls as u64;
        for value in values {
            bound.has_nan |= value.is_nan();
            // By total order, so that -0.0 comes before 0.0.
            bound.bounds = Some(match bound.bounds {
                None => (value, value),
                Some((low, high)) => (
                    if value.total_cmp(&low).is_lt() { value } else { low },
                    if value.total_cmp(&high).is_gt() { value } else { high },
                ),
            });
        }
    }
}

/// Parquet leaf columns of a type.
fn leaves(kind: &DataType) -> usize {
    match kind {
        DataType::Struct(fields) => fields.iter().map(|field| leaves(field.data_type())).sum(),
        DataType::List(inner) | DataType::Map(inner, _) => leaves(inner.data_type()),
        _ => 1,
    }
}

/// Statistics as JSON text for a file with the columns of `schema`.
pub(super) fn file_stats(schema: &Schema, footer: &ParquetMetaData, floats: &FloatBounds) -> String {
    let rows = footer.file_metadata().num_rows();
    let mut texts = Texts::default();
    let mut leaf = 0;
    for field in schema.fields() {
        let always = field.name().starts_with('_');
        let mut of_field = Texts::default();
        collect(field, &mut leaf, always, footer, floats, &mut of_field);
        texts.absorb(field.name(), of_field);
    }
    format!(
        "{{\"numRecords\":{rows},\"minValues\":{{{}}},\"maxValues\":{{{}}},\"nullCount\":{{{}}}}}",
        texts.min, texts.max, texts.nulls
    )
}

/// The members of the three objects, as text.
#[derive(Default)]
struct Texts {
    min: String,
    max: String,
    nulls: String,
}

impl Texts {
    /// Takes in what was collected below a field under the field's name.
    fn absorb(&mut self, name: &str, below: Self) {
        let key = json_text(name);
        for (all, one) in [(&mut self.min, below.min), (&mut self.max, below.max), (&mut self.nulls, below.nulls)] {
            if one.is_empty() {
                continue;
            }
            if !all.is_empty() {
                all.push(',');
            }
            let _ = write!(all, "{key}:{one}");
        }
    }
}

/// Collects one field: a value for a leaf, an object for a struct, nothing for lists and maps.
fn collect(
    field: &Field,
    leaf: &mut usize,
    always: bool,
    footer: &ParquetMetaData,
    floats: &FloatBounds,
    out: &mut Texts,
) {
    match field.data_type() {
        DataType::Struct(fields) => {
            let mut below = Texts::default();
            for child in fields {
                let mut of_child = Texts::default();
                collect(child, leaf, always, footer, &FloatBounds::default(), &mut of_child);
                below.absorb(child.name(), of_child);
            }
            for (to, text) in [(&mut out.min, below.min), (&mut out.max, below.max), (&mut out.nulls, below.nulls)] {
                if !text.is_empty() {
                    *to = format!("{{{text}}}");
                }
            }
        }
        DataType::List(_) | DataType::Map(..) => *leaf += leaves(field.data_type()),
        kind => {
            if always || *leaf < INDEXED_LEAVES {
                match kind {
                    DataType::Float32 | DataType::Float64 => float_texts(kind, floats.0.get(field.name()), out),
                    _ => leaf_texts(kind, *leaf, footer, out),
                }
            }
            *leaf += 1;
        }
    }
}

fn float_texts(kind: &DataType, found: Option<&FloatBound>, out: &mut Texts) {
    let Some(found) = found else { return };
    out.nulls = found.nulls.to_string();
    if let (false, Some((low, high))) = (found.has_nan, found.bounds) {
        out.min = render(kind, &Bound::Float(low)).unwrap_or_default();
        out.max = render(kind, &Bound::Float(high)).unwrap_or_default();
    }
}

fn leaf_texts(kind: &DataType, leaf: usize, footer: &ParquetMetaData, out: &mut Texts) {
    let mut nulls = Some(0);
    let mut bounds: Option<Option<(Bound, Bound)>> = None;
    for group in footer.row_groups() {
        let statistics = group.columns().get(leaf).and_then(|column| column.statistics());
        let group_nulls = statistics.and_then(Statistics::null_count_opt);
        nulls = nulls.zip(group_nulls).map(|(sum, more)| sum + more);
        if group_nulls.is_some_and(|count| i64::try_from(count).is_ok_and(|count| count == group.num_rows())) {
            continue;
        }
        let found = statistics.and_then(|statistics| bounds_of(kind, statistics));
        bounds = Some(match (bounds, found) {
            (None, found) => found,
            (Some(Some((low, high))), Some((min, max))) => {
                Some((if min < low { min } else { low }, if max > high { max } else { high }))
            }
            _ => None,
        });
    }
    if let Some(nulls) = nulls {
        out.nulls = nulls.to_string();
    }
    if let Some(Some((min, max))) = bounds {
        out.min = render(kind, &min).unwrap_or_default();
        out.max = render(kind, &max).unwrap_or_default();
    }
}

fn bounds_of(kind: &DataType, statistics: &Statistics) -> Option<(Bound, Bound)> {
    let whole = |min: i128, max: i128| Some((Bound::Whole(min), Bound::Whole(max)));
    match statistics {
        Statistics::Int32(of) => whole((*of.min_opt()?).into(), (*of.max_opt()?).into()),
        Statistics::Int64(of) => whole((*of.min_opt()?).into(), (*of.max_opt()?).into()),
        Statistics::ByteArray(of) if matches!(kind, DataType::Utf8) => {
            let min = of.min_opt()?.as_utf8().ok()?;
            let max = of.max_opt()?.as_utf8().ok()?;
            Some((Bound::Text(min.to_owned()), Bound::Text(max.to_owned())))
        }
        Statistics::FixedLenByteArray(of) if matches!(kind, DataType::Decimal128(..)) => {
            whole(big_endian(of.min_opt()?.data())?, big_endian(of.max_opt()?.data())?)
        }
        _ => None,
    }
}

/// A two's complement number of up to 16 bytes.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let mut wide = [if bytes.first()? & 0x80 == 0 { 0 } else { 0xff }; 16];
    let start = wide.len().checked_sub(bytes.len())?;
    wide.get_mut(start..)?.copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The JSON text of a bound; none when it has none that bounds.
fn render(kind: &DataType, bound: &Bound) -> Option<String> {
    match (kind, bound) {
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, Bound::Whole(value)) => {
            Some(value.to_string())
        }
        (DataType::Decimal128(_, scale), Bound::Whole(value)) => Some(decimal_text(*value, *scale)),
        (DataType::Date32, Bound::Whole(days)) => {
            let epoch = NaiveDate::from_ymd_opt(1970, 1, 1)?;
            let date = epoch.checked_add_signed(TimeDelta::try_days(i64::try_from(*days).ok()?)?)?;
            four_digits(date.format("%Y-%m-%d").to_string())
        }
        (DataType::Timestamp(_, zone), Bound::Whole(micros)) => {
            let at = DateTime::from_timestamp_micros(i64::try_from(*micros).ok()?)?;
            let ending = if zone.is_some() { "Z" } else { "" };
            four_digits(format!("{}{ending}", at.format("%Y-%m-%dT%H:%M:%S%.6f")))
        }
        (DataType::Float32, Bound::Float(value)) if value.is_finite() =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "it was widened from this type")]
            serde_json::to_string(&(*value as f32)).ok()
        }
        (DataType::Float64, Bound::Float(value)) if value.is_finite() => serde_json::to_string(value).ok(),
        (DataType::Utf8, Bound::Text(text)) if text.len() <= LONGEST_TEXT => Some(json_text(text)),
        _ => None,
    }
}

/// A JSON string of a time whose year has four digits; other years read differently in different readers.
fn four_digits(text: String) -> Option<String> {
    text.starts_with(|c: char| c.is_ascii_digit()).then(|| json_text(&text))
}

/// A decimal number as text, exactly.
pub(super) fn decimal_text(value: i128, scale: i8) -> String {
    let Ok(scale) = usize::try_from(scale) else {
        return format!("{value}{}", "0".repeat(scale.unsigned_abs().into()));
    };
    let sign = if value < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}
