//! Kept events of a database -> the changes of one table: each row typed by the one cast, judged by the contract's rules as
//! far as it can be by itself, and kept with what is needed to judge it again when the values of its placeholders are known.
//! What the rows have is said in [`super::stored`].

mod assemble;
mod bronze;
mod build;
mod digest;
mod event;
mod names;
mod placeholder;
mod scan;

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{Int8Type, SchemaRef};

use self::bronze::Bronze;
use self::build::Rows;
use self::names::{Names, Values};
use self::placeholder::Placeholder;
use super::Op;
use super::stored::{self, changes_of};
use crate::cast::ColumnCaster;
use crate::decode::FaultKind;
use crate::error::{Error, Result};
use crate::quality::{ChangeJudge, Changes};
use crate::schema::{ChangeSource, Column, Contract, sequence_column};

/// Reads the changes of one table out of kept events.
#[derive(Debug)]
pub struct Images {
    contract: Contract,
    source: ChangeSource,
    judge: ChangeJudge,
    schema: SchemaRef,
    /// All columns.
    names: Names,
    /// The columns of the key, in its order.
    keys: Names,
    /// Places of the key's columns in the contract.
    key_columns: Vec<usize>,
    casters: Vec<ColumnCaster>,
    placeholder: Placeholder,
}

/// Buffers that are kept from row to row.
#[derive(Debug, Default)]
struct Scratch {
    row: Values,
    key: Values,
    old_key: Values,
}

impl Images {
    /// Compiles a contract of changes: its columns, its rules.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Invalid`] naming the rule or the column that is wrong.
    pub fn new(contract: &Contract) -> Result<Self> {
        let source = changes_of(contract)?.clone();
        let judge = ChangeJudge::new(contract)?;
        let position = |name: &String| {
            contract.columns.iter().position(|column| column.name == *name).ok_or_else(|| {
                Error::invalid(format!("{}: key column `{name}` is no column", contract.table))
                    .remedy("run `alluvium check`")
            })
        };
        let key_columns = contract.primary_key.iter().map(position).collect::<Result<Vec<usize>>>()?;
        let caster = |(index, column): (usize, &Column)| {
            // A key without a value is none, whatever the column declares.
            let is_key = key_columns.contains(&index);
            let key = || Column { nullable: false, default: None, ..column.clone() };
            let caster = if is_key { ColumnCaster::for_changes(&key()) } else { ColumnCaster::for_changes(column) };
            caster.map_err(|error| error.within(&contract.table))
        };
        Ok(Self {
            schema: stored::schema_with_raw(contract, &source, judge.raw_columns()),
            names: Names::new(contract, 0..contract.columns.len()),
            keys: Names::new(contract, key_columns.iter().copied()),
            casters: contract.columns.iter().enumerate().map(caster).collect::<Result<Vec<_>>>()?,
            placeholder: Placeholder::new(&source.unavailable_value),
            contract: contract.clone(),
            source,
            judge,
            key_columns,
        })
    }

    /// The columns of what is read: those of [`stored::state_schema`].
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads rows of a table of change events (of any tables of the database, and of none): the changes of this contract's
    /// table, in their order, and what is malformed for this table alone.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Internal`] when the rows are no kept events.
    pub fn read(&self, bronze: &RecordBatch) -> Result<RecordBatch> {
        let events = Bronze::of(bronze, &self.source)?;
        let mut rows = Rows::new(self, bronze.num_rows());
        let mut scratch = Scratch::default();
        for row in 0..bronze.num_rows() {
            if events.table(row) == Some(self.source.source_table.as_str())
                && let Some(op) = events.op(row).and_then(Op::of_letter)
            {
                self.push(&events, row, op, &mut scratch, &mut rows);
            }
        }
        assemble::assemble(rows, self, &events)
    }

    /// One event: a row of changes, and another one when its key changed.
    fn push(&self, events: &Bronze<'_>, at: usize, op: Op, scratch: &mut Scratch, rows: &mut Rows) {
        if !events.has_position(at) {
            rows.push_malformed(at);
            return;
        }
        if op == Op::Truncate {
            rows.push_blank(at, op);
            return;
        }
        let Scratch { row, key, old_key } = scratch;
        let text = std::str::from_utf8(events.event(at)).ok();
        let parts = text.and_then(|text| Some((text, event::read(text, &self.names, row)?)));
        let Some((text, parts)) = parts else {
            rows.push_malformed(at);
            return;
        };
        let is_delete = op == Op::Delete;
        if !is_delete && (parts.after.is_none() || row.twice.is_some()) {
            rows.push_malformed(at);
            return;
        }
        // The record's key; of a bare value that of the row.
        let (key_text, key_at) = match events.key(at) {
            Some(key) => (key, Some(0)),
            None => (text, if is_delete { parts.before } else { parts.after }.map(|row| row.start)),
        };
        let is_read = key_at.and_then(|start| self.keys.read(key_text, start, key)).is_some();
        if !is_read || key.twice.is_some() {
            rows.push_malformed(at);
            return;
        }
        if !rows.push_key(self, |part| self.keys.text(key, part, key_text)) {
            rows.push_malformed_after_key(self, at);
            return;
        }
        if is_delete {
            rows.push_rest_blank(self, at, op);
            return;
        }
        rows.push_rest(self, at, op, |column| self.names.text(row, column, text));
        let was = parts.before.and_then(|before| self.keys.read(text, before.start, old_key));
        if was.is_some() && old_key.twice.is_none() {
            let now = |part: usize| self.keys.text(key, part, key_text);
            let before = |part: usize| self.keys.text(old_key, part, text);
            if self.key_changed(now, before) && rows.push_key(self, before) {
                rows.push_rest_blank(self, at, Op::Delete);
            }
        }
    }

    /// Whether a row had another key before: a complete one, of other values.
    fn key_changed<'a>(
        &self,
        now: impl Fn(usize) -> Option<&'a str>,
        before: impl Fn(usize) -> Option<&'a str>,
    ) -> bool {
        let parts = 0..self.key_columns.len();
        if parts.clone().all(|part| now(part) == before(part)) {
            return false;
        }
        // Rare: what is spelled differently may be the same value.
        let cast = |text: &dyn Fn(usize) -> Option<&'a str>| -> Option<Vec<ArrayRef>> {
            let part = |part: usize| {
                let mut sink = self.casters[self.key_columns[part]].begin(1);
                build::push_value(&mut sink, text(part), &self.contract.columns[self.key_columns[part]]).ok()?;
                sink.finish().ok()
            };
            parts.clone().map(part).collect()
        };
        match (cast(&now), cast(&before)) {
            (Some(now), Some(before)) => now != before,
            _ => false,
        }
    }

    /// The rules that rows break, whose placeholders were resolved: rows with the columns of [`Images::schema`], in which the
    /// columns that a placeholder stood for, and their `_raw_` columns, have the values of the row that they were taken from.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Internal`] when the rows have other columns.
    pub fn rejudge(&self, resolved: &RecordBatch) -> Result<Vec<Vec<String>>> {
        let column = |name: &str| {
            let found = resolved.column_by_name(name).cloned();
            found.ok_or_else(|| Error::internal(format!("{}: changes without `{name}`", self.contract.table)))
        };
        let faults = self.stored_faults(&column(stored::FAULTS)?);
        let raw = |index: &usize| column(&stored::raw_column(&self.contract.columns[*index].name));
        let changes = Changes {
            rows: resolved.num_rows(),
            judged: None,
            columns: self.contract.columns.iter().map(|declared| column(&declared.name)).collect::<Result<_>>()?,
            raw: self.judge.raw_columns().iter().map(raw).collect::<Result<_>>()?,
            variables: self.variables(&column(stored::RANK)?, |field| column(&sequence_column(field)))?,
            faults: &faults,
            unavailable: &[],
        };
        let mut broken: BTreeMap<usize, Vec<String>> = self.judge.broken(&changes)?;
        Ok((0..resolved.num_rows()).map(|row| broken.remove(&row).unwrap_or_default()).collect())
    }

    /// The values of what rules name beside columns.
    fn variables(&self, rank: &ArrayRef, field: impl Fn(&str) -> Result<ArrayRef>) -> Result<Vec<ArrayRef>> {
        let letters = || -> Result<ArrayRef> {
            let ranks = rank.as_primitive_opt::<Int8Type>();
            let ranks = ranks.ok_or_else(|| Error::internal("changes whose rank is no number"))?;
            let letters = ranks.iter().map(|rank| rank.and_then(Op::of_rank).map(Op::letter));
            Ok(std::sync::Arc::new(letters.collect::<StringArray>()))
        };
        let value = |name: &String| if name == crate::schema::OP { letters() } else { field(name) };
        self.judge.variables().iter().map(value).collect()
    }

    fn stored_faults(&self, names: &ArrayRef) -> Vec<(usize, usize, FaultKind)> {
        let Some(lists) = names.as_list_opt::<i32>() else { return Vec::new() };
        let mut faults = Vec::new();
        for (row, list) in lists.iter().enumerate() {
            let Some(list) = list else { continue };
            let names = list.as_string_opt::<i32>().into_iter().flatten().flatten();
            faults.extend(names.filter_map(|name| self.judge.fault(name)).map(|(column, kind)| (row, column, kind)));
        }
        faults
    }
}

#[cfg(test)]
mod tests;
