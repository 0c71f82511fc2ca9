//! Rules: which records enter the table, and every reason why the others do not.
//!
//! A declared rule is a SQL condition over typed values and, as `raw.<column>`, over the texts as they came. It is broken
//! when it is false, not when it is null. A cell that is no value breaks a built-in rule, `<column>_invalid` or
//! `<column>_missing`, unless a broken declared rule `covers` the column: then that rule speaks for it.

mod changes;
mod compile;

pub use changes::{ChangeJudge, Changes, raw_columns};

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::DataFusionError;

use self::compile::CompiledRule;
use crate::decode::{Chunk, Fault, FaultKind, Raw, Reason, Refusal, Reject, value_text};
use crate::error::{Error, Result};
use crate::schema::lineage::ROW;
use crate::schema::{Contract, OnFail};

/// Longest text of a value in a reason, in characters. The record itself is kept whole beside it.
const VALUE_LIMIT: usize = 500;

/// The rules of one contract, compiled.
#[derive(Debug)]
pub struct Judge {
    columns: Vec<String>,
    rules: Vec<CompiledRule>,
    /// Contract columns whose raw text the rules ask for, ascending.
    raw_columns: Vec<usize>,
    /// What the rules are evaluated over: the contract's columns, then the raw ones.
    schema: SchemaRef,
}

/// A judged chunk.
#[derive(Debug)]
pub struct Judged {
    /// Accepted rows, with all columns of [`Chunk::rows`].
    pub rows: RecordBatch,
    /// Records of unusable shape and refused rows, by record; each with everything that it breaks.
    pub rejects: Vec<Reject>,
    /// Accepted rows that break a rule with `on_fail: warn`, by rule.
    pub warned: BTreeMap<String, u64>,
    /// A rule with `on_fail: fail` is broken: the file is refused whole.
    pub fail: Option<Refusal>,
    /// Records of the chunk: accepted, refused and ignored.
    pub records: u64,
    /// Records left out by declaration.
    pub ignored: u64,
}

/// What one rule says about each row.
struct Verdict {
    broken: Vec<bool>,
    /// Rows on which the condition could not be evaluated, and why.
    errors: BTreeMap<usize, String>,
}

impl Judge {
    /// Compiles the rules of a contract that is fed by files.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Invalid`] naming the rule: no SQL, an unknown column or function, no condition.
    pub fn new(contract: &Contract) -> Result<Self> {
        let compiled = compile::compile(contract)?;
        Ok(Self {
            columns: contract.columns.iter().map(|column| column.name.clone()).collect(),
            rules: compiled.rules,
            raw_columns: compiled.raw_columns,
            schema: compiled.schema,
        })
    }

    /// Contract columns whose raw text the rules ask for: what the decoder is to be told.
    #[must_use]
    pub fn raw_columns(&self) -> Vec<usize> {
        self.raw_columns.clone()
    }

    /// Judges the records of a chunk.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Internal`] when the chunk was not decoded under this contract.
    pub fn judge(&self, chunk: Chunk) -> Result<Judged> {
        let count = chunk.rows.num_rows();
        let records = (count + chunk.rejects.len()) as u64 + chunk.ignored;
        let verdicts = self.verdicts(&chunk)?;
        let mut refused = vec![false; count];
        for fault in &chunk.faults {
            refused[fault.row] = true;
        }
        for (rule, verdict) in self.rules.iter().zip(&verdicts) {
            for (row, broken) in verdict.broken.iter().enumerate() {
                refused[row] |= *broken && rule.on_fail != OnFail::Warn;
            }
        }
        let warned = self.warned(&verdicts, &refused);
        let fail = self.failed(&chunk, &verdicts)?;
        let mut rejects = self.rejects(&chunk, &verdicts, &refused)?;
        rejects.extend(chunk.rejects);
        rejects.sort_by_key(|reject| reject.record);
        let rows = if refused.contains(&true) {
            let kept: BooleanArray = refused.iter().map(|refused| Some(!refused)).collect();
            filter_record_batch(&chunk.rows, &kept)?
        } else {
            chunk.rows
        };
        Ok(Judged { rows, rejects, warned, fail, records, ignored: chunk.ignored })
    }

    fn verdicts(&self, chunk: &Chunk) -> Result<Vec<Verdict>> {
        if self.rules.is_empty() {
            return Ok(Vec::new());
        }
        let rows = chunk.rows.num_rows();
        let declared = self.columns.len();
        if chunk.rows.num_columns() <= declared || chunk.raw_columns.num_columns() != self.raw_columns.len() {
            return Err(Error::internal("a chunk was decoded without the columns that its rules ask for"));
        }
        let columns: Vec<ArrayRef> =
            chunk.rows.columns()[..declared].iter().chain(chunk.raw_columns.columns()).cloned().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let input = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        Ok(self.rules.iter().map(|rule| evaluate(rule, &input)).collect())
    }

    fn warned(&self, verdicts: &[Verdict], refused: &[bool]) -> BTreeMap<String, u64> {
        let mut warned = BTreeMap::new();
        for (rule, verdict) in self.rules.iter().zip(verdicts).filter(|(rule, _)| rule.on_fail == OnFail::Warn) {
            let rows = verdict.broken.iter().zip(refused).filter(|(broken, refused)| **broken && !**refused).count();
            if rows > 0 {
                warned.insert(rule.name.clone(), rows as u64);
            }
        }
        warned
    }

    /// The first record that breaks a rule with `on_fail: fail`.
    fn failed(&self, chunk: &Chunk, verdicts: &[Verdict]) -> Result<Option<Refusal>> {
        let broken = self.rules.iter().zip(verdicts).filter(|(rule, _)| rule.on_fail == OnFail::Fail);
        let first = broken
            .filter_map(|(rule, verdict)| Some((verdict.broken.iter().position(|broken| *broken)?, rule, verdict)))
            .min_by_key(|(row, ..)| *row);
        let Some((row, rule, verdict)) = first else { return Ok(None) };
        let (record, line, byte_offset) = place(chunk, row)?;
        let on_line = line.map(|line| format!(", line {line}")).unwrap_or_default();
        let what = self.what_is_broken(chunk, rule, verdict, row)?;
        Ok(Some(Refusal {
            rule: rule.name.clone(),
            reason: format!("record {record}{on_line} breaks rule {}, which refuses the file: {what}", rule.name),
            line,
            byte_offset,
            column: rule.only_column().map(|index| self.columns[index].clone()),
        }))
    }

    fn rejects(&self, chunk: &Chunk, verdicts: &[Verdict], refused: &[bool]) -> Result<Vec<Reject>> {
        let rows: Vec<usize> = (0..refused.len()).filter(|row| refused[*row]).collect();
        let raw = raw_records(&chunk.raw, &rows)?;
        let mut faults = chunk.faults.as_slice();
        let mut rejects = Vec::with_capacity(rows.len());
        for (row, raw) in rows.into_iter().zip(raw) {
            let before = faults.partition_point(|fault| fault.row < row);
            let of_row = faults[before..].partition_point(|fault| fault.row == row);
            let reasons = self.reasons(chunk, verdicts, row, &faults[before..before + of_row])?;
            faults = &faults[before + of_row..];
            let mut rules: Vec<String> = Vec::new();
            for reason in &reasons {
                if !rules.contains(&reason.rule) {
                    rules.push(reason.rule.clone());
                }
            }
            let (record, line, byte_offset) = place(chunk, row)?;
            rejects.push(Reject { record: Some(record), line, byte_offset, raw, rules, reasons });
        }
        Ok(rejects)
    }

    /// Everything that a refused row breaks: faults in column order, each under the name of the rule that speaks for it,
    /// then the other broken rules in the contract's order.
    fn reasons(&self, chunk: &Chunk, verdicts: &[Verdict], row: usize, faults: &[Fault]) -> Result<Vec<Reason>> {
        let broken: Vec<usize> = (0..verdicts.len()).filter(|rule| verdicts[*rule].broken[row]).collect();
        let mut spoke = vec![false; self.rules.len()];
        let mut reasons = Vec::new();
        for fault in faults {
            let column = &self.columns[fault.column];
            let value = match &fault.value {
                Some(text) => format!("`{}`: {}", shortened(text), fault.reason),
                None => fault.reason.clone(),
            };
            let speakers: Vec<usize> =
                broken.iter().copied().filter(|rule| self.rules[*rule].covers.contains(&fault.column)).collect();
            for rule in &speakers {
                spoke[*rule] = true;
                reasons.push(Reason {
                    column: Some(column.clone()),
                    rule: self.rules[*rule].name.clone(),
                    value: Some(value.clone()),
                });
            }
            if speakers.is_empty() {
                let kind = match fault.kind {
                    FaultKind::Invalid => "invalid",
                    FaultKind::Missing => "missing",
                };
                reasons.push(Reason {
                    column: Some(column.clone()),
                    rule: format!("{column}_{kind}"),
                    value: Some(value),
                });
            }
        }
        for rule in broken.into_iter().filter(|rule| !spoke[*rule]) {
            let (compiled, verdict) = (&self.rules[rule], &verdicts[rule]);
            reasons.push(Reason {
                column: compiled.only_column().map(|index| self.columns[index].clone()),
                rule: compiled.name.clone(),
                value: Some(self.what_is_broken(chunk, compiled, verdict, row)?),
            });
        }
        Ok(reasons)
    }

    /// The condition with the values that break it, for people.
    fn what_is_broken(&self, chunk: &Chunk, rule: &CompiledRule, verdict: &Verdict, row: usize) -> Result<String> {
        let mut values = Vec::new();
        for index in &rule.columns {
            let text = value_text(chunk.rows.column(*index), row)?;
            values.push(format!("{} = {}", self.columns[*index], quoted(text)));
        }
        for index in &rule.raw_columns {
            let position = self.raw_columns.iter().position(|wanted| wanted == index);
            let text = position.map(|position| value_text(chunk.raw_columns.column(position), row)).transpose()?;
            values.push(format!("raw.{} = {}", self.columns[*index], quoted(text.flatten())));
        }
        let values = values.join(", ");
        Ok(match verdict.errors.get(&row) {
            Some(error) => format!("{values}: `{}` cannot be evaluated: {error}", rule.check),
            None => format!("{values}: not `{}`", rule.check),
        })
    }
}

fn quoted(text: Option<String>) -> String {
    text.map_or_else(|| "null".to_owned(), |text| format!("`{}`", shortened(&text)))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(VALUE_LIMIT) {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
        None => text.to_owned(),
    }
}

/// Evaluates a condition over all rows. An error on one row must not speak for its neighbours: the rows are halved until
/// the row that causes it is alone.
fn evaluate(rule: &CompiledRule, input: &RecordBatch) -> Verdict {
    let rows = input.num_rows();
    let mut verdict = Verdict { broken: vec![false; rows], errors: BTreeMap::new() };
    let mut open: Vec<Range<usize>> = Vec::new();
    if rows > 0 {
        open.push(0..rows);
    }
    while let Some(range) = open.pop() {
        let part = input.slice(range.start, range.len());
        match condition(rule, &part) {
            Ok(condition) => {
                for (index, row) in range.enumerate() {
                    verdict.broken[row] = condition.is_valid(index) && !condition.value(index);
                }
            }
            Err(error) if range.len() == 1 => {
                verdict.broken[range.start] = true;
                verdict.errors.insert(range.start, error);
            }
            Err(_) => {
                let middle = range.start + range.len() / 2;
                open.push(range.start..middle);
                open.push(middle..range.end);
            }
        }
    }
    verdict
}

fn condition(rule: &CompiledRule, input: &RecordBatch) -> Result<BooleanArray, String> {
    let value = rule.expr.evaluate(input).and_then(|value| value.into_array(input.num_rows()));
    let array = value.map_err(|error| match &error {
        DataFusionError::External(ours) => ours.to_string(),
        other => other.strip_backtrace(),
    })?;
    // A condition that is null for every row may come as an array of nulls.
    array.as_boolean_opt().cloned().map_or_else(|| Ok(BooleanArray::new_null(input.num_rows())), Ok)
}

/// Record number, line and offset of a row.
fn place(chunk: &Chunk, row: usize) -> Result<(i64, Option<i64>, Option<i64>)> {
    let numbers = chunk.rows.column_by_name(ROW).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let record = numbers.ok_or_else(|| Error::internal("a chunk without record numbers"))?.value(row);
    Ok(match &chunk.raw {
        Raw::Text { lines, offsets, .. } => (record, Some(lines[row]), Some(offsets[row])),
        Raw::Rows(_) => (record, None, None),
    })
}

/// The bytes of some records.
fn raw_records(raw: &Raw, rows: &[usize]) -> Result<Vec<Vec<u8>>> {
    match raw {
        Raw::Text { bytes, spans, .. } => {
            let record = |row: &usize| {
                let (start, end) = spans[*row];
                bytes[start as usize..end as usize].to_vec()
            };
            Ok(rows.iter().map(record).collect())
        }
        Raw::Rows(batch) => {
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let wanted = arrow::array::UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64));
            crate::decode::row_objects(&arrow::compute::take_record_batch(batch, &wanted)?)
        }
    }
}

#[cfg(test)]
mod tests;
