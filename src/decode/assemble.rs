//! Puts the parts of a chunk together, and keeps the books on columns that the contract does not name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema};

use super::Refusal;
use super::columns::fold;
use crate::error::Result;
use crate::schema::Column;
use crate::schema::lineage::{RESCUED, RESERVED, ROW};

/// Most unknown columns that are reported or added; beyond it keys are data and not names.
const UNKNOWN_LIMIT: usize = 1_000;

/// Characters that Delta and Spark refuse in a column's name.
const REFUSED: [char; 10] = [' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// `Chunk::rows` from its parts.
pub(super) fn rows(
    columns: &[Column],
    arrays: Vec<ArrayRef>,
    rescued: Option<ArrayRef>,
    added: Vec<(String, ArrayRef)>,
    numbers: Vec<i64>,
) -> Result<RecordBatch> {
    let count = numbers.len();
    let mut named: Vec<(String, ArrayRef)> = columns.iter().map(|column| column.name.clone()).zip(arrays).collect();
    named.extend(rescued.map(|array| (RESCUED.to_owned(), array)));
    named.extend(added);
    let mut fields: Vec<Field> =
        named.iter().map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
    let mut arrays: Vec<ArrayRef> = named.into_iter().map(|(_, array)| array).collect();
    fields.push(Field::new(ROW, DataType::Int64, false));
    arrays.push(Arc::new(Int64Array::from(numbers)));
    batch(fields, arrays, count)
}

/// `Chunk::raw_columns` from its arrays, which are in the order wanted.
pub(super) fn raw_columns(
    columns: &[Column],
    wanted: &[usize],
    arrays: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let fields = wanted.iter().map(|index| Field::new(&columns[*index].name, DataType::Utf8, true)).collect();
    batch(fields, arrays, rows)
}

fn batch(fields: Vec<Field>, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
}

/// A JSON object of members whose values are JSON already; none without members. A path that occurs twice (a key with a
/// dot beside a nested field) is kept twice.
pub(super) fn object_text<'t>(members: impl Iterator<Item = (&'t str, &'t str)>) -> Option<String> {
    let mut text = String::new();
    for (name, value) in members {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(&serde_json::Value::from(name).to_string());
        text.push(':');
        text.push_str(value);
    }
    if text.is_empty() {
        return None;
    }
    text.push('}');
    Some(text)
}

/// Columns of a file that the contract does not name: reported, or added to the table.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// Folded names of the contract's columns.
    declared: Vec<String>,
    columns: Vec<String>,
    by_name: HashMap<String, usize>,
    reported: Vec<String>,
}

impl Added {
    pub(super) fn new(columns: &[Column]) -> Self {
        Self { declared: columns.iter().map(|column| fold(&column.name)).collect(), ..Self::default() }
    }

    /// Notes a name for the report; list positions do not make different names.
    pub(super) fn report(&mut self, name: &str) {
        if self.reported.len() >= UNKNOWN_LIMIT {
            return;
        }
        let name = without_positions(name);
        if self.by_name.contains_key(&name) {
            return;
        }
        self.by_name.insert(name.clone(), self.reported.len());
        self.reported.push(name);
    }

    /// Number of the added column that a name belongs to. Names that differ only in case are one column.
    pub(super) fn column(&mut self, name: &str, at: Option<(i64, i64)>) -> Result<usize, Refusal> {
        let name = without_positions(name);
        let key = fold(&name);
        if let Some(known) = self.by_name.get(&key) {
            return Ok(*known);
        }
        let trimmed = name.trim();
        let objection = if trimmed.is_empty() || trimmed.contains(REFUSED) {
            "holds characters that Delta refuses in a column's name"
        } else if RESERVED.contains(&key.as_str()) {
            "is a name that the lake gives its own columns"
        } else if self.declared.contains(&key) {
            "is the name of a declared column that is read from another name"
        } else if self.columns.len() >= UNKNOWN_LIMIT {
            "is one unknown column too many: at most 1000 can be added"
        } else {
            let number = self.columns.len();
            self.columns.push(trimmed.to_owned());
            self.by_name.insert(key, number);
            return Ok(number);
        };
        let reason = format!("column `{name}` {objection}; declare it with `from` and a name of its own");
        Err(refusal("column_name", reason, &name, at))
    }

    /// Names of the columns to add, in order.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// All names that the contract does not know.
    pub(super) fn reported(&self) -> Vec<String> {
        self.reported.iter().chain(&self.columns).cloned().collect()
    }
}

fn without_positions(name: &str) -> String {
    if !name.contains('[') {
        return name.to_owned();
    }
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        text.push('[');
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    text.push_str(rest);
    text
}

/// The refusal of `unknown_columns: reject`.
pub(super) fn unknown_refused(name: &str, at: Option<(i64, i64)>) -> Refusal {
    let reason = format!(
        "column `{name}` is not in the contract; declare it, or let `unknown_columns` rescue, add or ignore it"
    );
    refusal("unknown_column", reason, name, at)
}

/// The refusal of two names that would be one added column.
pub(super) fn twice_refused(name: &str, at: Option<(i64, i64)>) -> Refusal {
    let reason =
        format!("a record has column `{name}` twice, in names that differ only in case; declare one with `from`");
    refusal("duplicate_column", reason, name, at)
}

fn refusal(rule: &str, reason: String, column: &str, at: Option<(i64, i64)>) -> Refusal {
    Refusal {
        rule: rule.to_owned(),
        reason,
        line: at.map(|(line, _)| line),
        byte_offset: at.map(|(_, offset)| offset),
        column: Some(column.to_owned()),
    }
}

/// Texts of added columns in one chunk: few rows have them, so only those are held.
#[derive(Debug, Default)]
pub(super) struct Texts {
    by_column: BTreeMap<usize, Vec<(usize, Option<String>)>>,
}

impl Texts {
    /// Sets a text. Values of list elements (`json` given) are collected in a JSON array; false when the row has one already.
    pub(super) fn put(&mut self, column: usize, row: usize, text: Option<String>, json: Option<&str>) -> bool {
        let texts = self.by_column.entry(column).or_default();
        let known = texts.last_mut().filter(|(last, _)| *last == row);
        match (known, json) {
            (None, None) => texts.push((row, text)),
            (None, Some(json)) => texts.push((row, Some(format!("[{json}]")))),
            (Some((_, Some(list))), Some(json)) => {
                list.pop();
                list.push(',');
                list.push_str(json);
                list.push(']');
            }
            (Some(_), _) => return false,
        }
        true
    }

    /// One array for each of `names`.
    pub(super) fn finish(mut self, names: &[String], rows: usize) -> Vec<(String, ArrayRef)> {
        let mut out = Vec::with_capacity(names.len());
        for (column, name) in names.iter().enumerate() {
            let mut builder = StringBuilder::new();
            let mut done = 0;
            for (row, text) in self.by_column.remove(&column).unwrap_or_default() {
                builder.append_nulls(row - done);
                builder.append_option(text);
                done = row + 1;
            }
            builder.append_nulls(rows - done);
            out.push((name.clone(), Arc::new(builder.finish()) as ArrayRef));
        }
        out
    }
}
