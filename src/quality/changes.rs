//! Rules over changes: which rows of a table of changes break which rules. The rows stay where they are; what is said is the
//! names.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use super::compile::{self, CompiledRule};
use super::evaluate;
use crate::decode::FaultKind;
use crate::error::{Error, Result};
use crate::schema::{Contract, OnFail};

/// The rules of a table of changes, compiled.
#[derive(Debug)]
pub struct ChangeJudge {
    columns: Vec<String>,
    rules: Vec<CompiledRule>,
    raw_columns: Vec<usize>,
    /// The contract's columns, the raw ones, then the variables.
    schema: SchemaRef,
    variables: Vec<String>,
}

/// Rows that are to be judged.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    /// How many.
    pub rows: usize,
    /// Which of them are judged; none means all.
    pub judged: Option<&'a [bool]>,
    /// The columns, in the contract's order.
    pub columns: Vec<ArrayRef>,
    /// The texts of [`ChangeJudge::raw_columns`].
    pub raw: Vec<ArrayRef>,
    /// The values of [`ChangeJudge::variables`].
    pub variables: Vec<ArrayRef>,
    /// Cells that are no value: row, column and why; by row.
    pub faults: &'a [(usize, usize, FaultKind)],
    /// Cells that a placeholder stands for: row and column; by row. No rule that reads one is asked about its row.
    pub unavailable: &'a [(usize, usize)],
}

/// Contract columns whose texts the rules of a table of changes ask for.
///
/// # Errors
/// As [`ChangeJudge::new`].
pub fn raw_columns(contract: &Contract) -> Result<Vec<usize>> {
    Ok(compile::compile(contract)?.raw_columns)
}

/// The built-in rule that a cell breaks.
fn built_in(column: &str, kind: FaultKind) -> String {
    match kind {
        FaultKind::Invalid => format!("{column}_invalid"),
        FaultKind::Missing => format!("{column}_missing"),
    }
}

impl ChangeJudge {
    /// Compiles the rules of a table of changes.
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
            variables: compile::variables(contract).into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// Contract columns whose texts the rules ask for, ascending.
    #[must_use]
    pub fn raw_columns(&self) -> &[usize] {
        &self.raw_columns
    }

    /// What the rules may name beside columns, in the order in which it is to be given.
    #[must_use]
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// The name of the built-in rule that a cell breaks.
    #[must_use]
    pub fn built_in(&self, column: usize, kind: FaultKind) -> String {
        built_in(&self.columns[column], kind)
    }

    /// The column and the fault of a built-in rule's name.
    #[must_use]
    pub fn fault(&self, rule: &str) -> Option<(usize, FaultKind)> {
        [FaultKind::Invalid, FaultKind::Missing].into_iter().find_map(|kind| {
            let column = self.columns.iter().position(|column| built_in(column, kind) == rule)?;
            Some((column, kind))
        })
    }

    /// The rules that rows break, sorted, by row; rows that break none are left out. A rule with `on_fail: warn` refuses
    /// nothing: it is told in the log.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Internal`] when the columns are not those of the contract.
    pub fn broken(&self, changes: &Changes<'_>) -> Result<BTreeMap<usize, Vec<String>>> {
        let mut broken: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        // For which cells a broken rule speaks.
        let mut spoken: Vec<(usize, usize)> = Vec::new();
        if !self.rules.is_empty() {
            let columns = changes.columns.iter().chain(&changes.raw).chain(&changes.variables).cloned().collect();
            let options = RecordBatchOptions::new().with_row_count(Some(changes.rows));
            let input = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
                .map_err(|error| Error::internal(format!("changes that do not fit their rules: {error}")))?;
            for rule in &self.rules {
                let verdict = evaluate(rule, &input);
                let mut warned = 0_u64;
                for (row, _) in verdict.broken.iter().enumerate().filter(|(_, is_broken)| **is_broken) {
                    let is_judged = changes.judged.is_none_or(|judged| judged[row]);
                    if !is_judged || reads_unavailable(rule, row, changes.unavailable) {
                        continue;
                    }
                    if rule.on_fail == OnFail::Warn {
                        warned += 1;
                        continue;
                    }
                    spoken.extend(rule.covers.iter().map(|column| (row, *column)));
                    broken.entry(row).or_default().push(rule.name.clone());
                }
                if warned > 0 {
                    tracing::warn!(rule = rule.name, rows = warned, "rows break a rule that only warns");
                }
            }
        }
        spoken.sort_unstable();
        for (row, column, kind) in changes.faults {
            if spoken.binary_search(&(*row, *column)).is_err() {
                broken.entry(*row).or_default().push(self.built_in(*column, *kind));
            }
        }
        for rules in broken.values_mut() {
            rules.sort_unstable();
            rules.dedup();
        }
        Ok(broken)
    }
}

fn reads_unavailable(rule: &CompiledRule, row: usize, unavailable: &[(usize, usize)]) -> bool {
    let first = unavailable.partition_point(|(other, _)| *other < row);
    let of_row = unavailable[first..].iter().take_while(|(other, _)| *other == row);
    of_row.into_iter().any(|(_, column)| rule.columns.contains(column) || rule.raw_columns.contains(column))
}
