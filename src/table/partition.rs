//! Partition values: their text form, the folders they make, and the rows that share them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt32Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Schema, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::DateTime;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::stats::decimal_text;
use crate::error::{Error, Result};
use crate::name::short_hash;

/// The folder of rows whose partition value is null.
const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// What Hive and Spark escape in folder names.
const HIVE: &AsciiSet = &CONTROLS
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'\'')
    .add(b'*')
    .add(b'/')
    .add(b':')
    .add(b'=')
    .add(b'?')
    .add(b'\\')
    .add(b'{')
    .add(b'[')
    .add(b']')
    .add(b'^');

/// File systems take names of 255 bytes.
const LONGEST_NAME: usize = 200;

/// The folders of a partition, `a=1/b=x`; empty when there is no partition column.
pub(super) fn folders(partition_by: &[String], values: &BTreeMap<String, Option<String>>) -> String {
    let one = |column: &String| {
        let value = match values.get(column).and_then(Option::as_deref) {
            Some(value) => escape(value),
            None => NULL_FOLDER.to_owned(),
        };
        shorten(format!("{}={value}", escape(column)))
    };
    partition_by.iter().map(one).collect::<Vec<_>>().join("/")
}

/// Names are for people; the log has the values. Non-ASCII stays readable.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            escaped.extend(utf8_percent_encode(c.encode_utf8(&mut [0; 4]), HIVE));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn shorten(name: String) -> String {
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let cut = (0..=LONGEST_NAME - 33).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    format!("{}-{}", name.get(..cut).unwrap_or_default(), short_hash(&[&name]))
}

/// Rows of one partition: its values in the order of the partition columns, and where the rows are.
pub(super) struct Group {
    pub(super) values: Vec<Option<String>>,
    pub(super) rows: UInt32Array,
}

/// Splits rows by the values of their partition columns, in order of first appearance.
pub(super) fn split(names: &[String], columns: &[ArrayRef]) -> Result<Vec<Group>> {
    let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
    let converter = RowConverter::new(fields)?;
    let rows = converter.convert_columns(columns)?;
    let mut index: HashMap<&[u8], usize> = HashMap::new();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut last: Option<(&[u8], usize)> = None;
    // The converter is done with its rows, which stay borrowed while groups are told apart.
    let keys: Vec<_> = rows.iter().collect();
    for (row, key) in keys.iter().enumerate() {
        let key: &[u8] = key.as_ref();
        let group = match last {
            Some((same, group)) if same == key => group,
            _ => *index.entry(key).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            }),
        };
        last = Some((key, group));
        let row = u32::try_from(row).map_err(|e| Error::internal("a batch of too many rows").because(e))?;
        if let Some(rows) = groups.get_mut(group) {
            rows.push(row);
        }
    }
    let mut out = Vec::with_capacity(groups.len());
    for rows in groups {
        let first = usize::try_from(rows.first().copied().unwrap_or(0)).unwrap_or(0);
        let mut values = Vec::with_capacity(columns.len());
        for (name, column) in names.iter().zip(columns) {
            let value = text(column.as_ref(), first).map_err(|e| e.within(format!("partition column {name}")))?;
            if value.as_deref() == Some("") {
                return Err(Error::invalid(format!(
                    "partition column {name} has an empty text, which Delta cannot tell from null"
                ))
                .remedy("make it null, or do not partition by this column"));
            }
            values.push(value);
        }
        out.push(Group { values, rows: rows.into() });
    }
    Ok(out)
}

/// Delta's text form of one value; none is null.
fn text(column: &dyn Array, row: usize) -> Result<Option<String>> {
    if column.is_null(row) {
        return Ok(None);
    }
    let out_of_range = || Error::invalid("a time is out of range");
    Ok(Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Date32 => {
            let date = column.as_primitive::<Date32Type>().value_as_date(row).ok_or_else(out_of_range)?;
            date.format("%Y-%m-%d").to_string()
        }
        DataType::Timestamp(_, zone) => {
            let micros = column.as_primitive::<TimestampMicrosecondType>().value(row);
            let at = DateTime::from_timestamp_micros(micros).ok_or_else(out_of_range)?;
            match zone {
                Some(_) => at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
                None if micros % 1_000_000 == 0 => at.format("%Y-%m-%d %H:%M:%S").to_string(),
                None => at.format("%Y-%m-%d %H:%M:%S%.6f").to_string(),
            }
        }
        DataType::Decimal128(_, scale) => decimal_text(column.as_primitive::<Decimal128Type>().value(row), *scale),
        _ => ArrayFormatter::try_new(column, &FormatOptions::default())?.value(row).to_string(),
    }))
}

/// The typed value of each text, as an array of the column's type; `''` is null.
pub(super) fn typed<'a>(name: &str, kind: &DataType, texts: impl Iterator<Item = Option<&'a str>>) -> Result<ArrayRef> {
    let texts: StringArray = texts.map(|text| text.filter(|text| !text.is_empty())).collect();
    if matches!(kind, DataType::Utf8) {
        return Ok(Arc::new(texts));
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&texts, kind, &strict)
        .map_err(|e| Error::corrupt(format!("a value of partition column {name} is no {kind}")).because(e))
}

/// One typed value for `rows` rows.
pub(super) fn constant(name: &str, kind: &DataType, text: Option<&str>, rows: usize) -> Result<ArrayRef> {
    if text.is_none_or(str::is_empty) {
        return Ok(new_null_array(kind, rows));
    }
    let one = typed(name, kind, std::iter::once(text))?;
    Ok(arrow::compute::take(&one, &UInt32Array::from(vec![0; rows]), None)?)
}

/// Indices of the partition columns and of the other columns, in table order.
pub(super) fn positions(schema: &Schema, partition_by: &[String]) -> (Vec<usize>, Vec<usize>) {
    let of = |name: &String| schema.fields().iter().position(|field| field.name() == name);
    let partition = partition_by.iter().filter_map(of).collect();
    let others = schema
        .fields()
        .iter()
        .enumerate()
        .filter(|(_, field)| !partition_by.contains(field.name()))
        .map(|(at, _)| at)
        .collect();
    (partition, others)
}
