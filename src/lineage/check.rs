//! Analysis of one derived table, and everything that can be wrong with it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::planning::{Planner, Refusal, column_at, index_of};
use super::prove::{is_row_by_row, unit_maps};
use super::refuse::unrepeatable;
use super::types::storable_schema;
use super::unique::{RowsOfKey, rows_of_key};
use super::{CHANGED, Inputs, Lineage, Unit};
use crate::error::{Error, Result};
use crate::schema::suggest::did_you_mean;
use crate::schema::{Body, Contract, Derivation};
use crate::transform::transform;

/// Something wrong in a contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key that is wrong, as a path: `sql`, `recompute_by[0]`, `touched.items`.
    pub at: String,
    /// Where within the text of a SQL query, in characters from 0, if that is known.
    pub offset: Option<usize>,
    /// What is wrong; lower case, without a full stop.
    pub message: String,
    /// A suggestion.
    pub help: Option<String>,
}

impl Problem {
    pub(super) fn new(at: impl Into<String>, message: impl Into<String>, help: Option<String>) -> Self {
        Self { at: at.into(), offset: None, message: message.into(), help }
    }

    fn refused(at: impl Into<String>, refusal: Refusal) -> Self {
        let Refusal { message, help, offset } = refusal;
        Self { at: at.into(), offset, message, help }
    }

    pub(super) fn of_error(at: impl Into<String>, error: &Error) -> Self {
        Self::new(at, error.to_string(), error.remedy_text().map(str::to_owned))
    }
}

/// Everything that is wrong with a derived table whose inputs have the given schemas (without the hidden columns).
/// Empty for a table that is not derived.
#[must_use]
pub fn check(contract: &Contract, inputs: &Inputs) -> Vec<Problem> {
    examine(contract, inputs).1
}

/// What a derived table's transform gives and depends on.
///
/// # Errors
/// The first problem of [`check`].
pub fn analyse(contract: &Contract, inputs: &Inputs) -> Result<Lineage> {
    let (lineage, problems) = examine(contract, inputs);
    if let Some(problem) = problems.into_iter().next() {
        let error = Error::invalid(format!("{}: {}: {}", contract.table, problem.at, problem.message));
        return Err(match problem.help {
            Some(help) => error.remedy(help),
            None => error.remedy("run `alluvium check`"),
        });
    }
    lineage.ok_or_else(|| Error::internal(format!("{} is not derived", contract.table)))
}

pub(super) fn examine(contract: &Contract, inputs: &Inputs) -> (Option<Lineage>, Vec<Problem>) {
    let Some(derivation) = contract.derivation() else { return (None, Vec::new()) };
    let mut problems = Vec::new();
    let lineage = match &derivation.body {
        Body::Sql(sql) => examine_sql(contract, derivation, sql, inputs, &mut problems),
        Body::Named { name, args } => examine_transform(contract, derivation, (name, args), inputs, &mut problems),
    };
    let lineage = match lineage {
        Ok(lineage) => lineage,
        Err(problem) => {
            problems.insert(0, problem);
            return (None, problems);
        }
    };
    check_columns(contract, derivation, &lineage.output, &mut problems);
    if let Unit::Touched { columns, queries } = &lineage.unit {
        for (input, sql) in queries {
            if let Err(problem) = check_touched(input, sql, columns, &lineage.output, inputs) {
                problems.push(problem);
            }
        }
    }
    (Some(lineage), problems)
}

fn examine_sql(
    contract: &Contract,
    derivation: &Derivation,
    sql: &str,
    inputs: &Inputs,
    problems: &mut Vec<Problem>,
) -> Result<Lineage, Problem> {
    let tables = inputs.iter().map(|(name, schema)| (name.clone(), Arc::clone(schema)));
    let planner = Planner::new(tables).map_err(|e| Problem::of_error("sql", &e))?;
    let refused = |refusal| Problem::refused("sql", refusal);
    let written = planner.plan(sql).map_err(refused)?;
    if let Some(reason) = unrepeatable(&written) {
        problems.push(Problem::new(
            "sql",
            reason,
            Some("a derived table must be the same whenever it is made".to_owned()),
        ));
    }
    let output = storable_schema(written.schema().as_arrow()).map_err(|e| Problem::of_error("sql", &e))?;
    if let Some(problem) = badly_named(&output) {
        problems.push(problem);
    }
    let plan = planner.optimize(&written).map_err(refused)?;
    let row_by_row = inputs.len() == 1 && is_row_by_row(&plan);
    let unit = choose_unit(contract, derivation, &plan, row_by_row, inputs, problems);
    let rows_of_key = if inputs.len() == 1 { rows_of_key(&plan, &contract.primary_key) } else { RowsOfKey::Unknown };
    Ok(Lineage { output, row_by_row, unit, rows_of_key })
}

/// The smallest unit of work that is sound; a declared one that is not sound is a problem.
fn choose_unit(
    contract: &Contract,
    derivation: &Derivation,
    plan: &LogicalPlan,
    row_by_row: bool,
    inputs: &Inputs,
    problems: &mut Vec<Problem>,
) -> Unit {
    let whole = |reason: &str| Unit::Whole { reason: reason.to_owned() };
    let names: Vec<String> = inputs.keys().cloned().collect();
    if derivation.keep.is_some() {
        if !row_by_row {
            return whole("keep over SQL that is not row by row");
        }
        let columns = contract.primary_key.clone();
        return unit_maps(plan, &columns, &names)
            .map_or_else(|reason| whole(&reason), |maps| Unit::Mapped { columns: contract.primary_key.clone(), maps });
    }
    let columns = derivation.recompute_by.clone();
    if columns.is_empty() {
        if !row_by_row {
            return whole("no recompute_by is declared");
        }
        if contract.primary_key.is_empty() || !passes_through(plan, &contract.primary_key, &names) {
            return whole("neither recompute_by nor a primary key that passes through is declared");
        }
        return match unit_maps(plan, &contract.primary_key, &names) {
            Ok(maps) => Unit::Mapped { columns: contract.primary_key.clone(), maps },
            Err(reason) => whole(&reason),
        };
    }
    if columns.iter().any(|column| index_of(plan.schema(), column).is_none()) {
        // Reported with the other columns that the SQL does not give.
        return whole("recompute_by names no column");
    }
    let untouched: Vec<&String> = names.iter().filter(|name| !derivation.touched.contains_key(*name)).collect();
    if untouched.is_empty() {
        return Unit::Touched { columns, queries: derivation.touched.clone() };
    }
    if names.len() > 1 {
        return Unit::Whole { reason: format!("input {} has no touched", untouched[0]) };
    }
    match unit_maps(plan, &columns, &names) {
        Ok(maps) => Unit::Mapped { columns, maps },
        Err(reason) => {
            let message = format!("rows of one unit depend on rows of another: {reason}");
            let help = "choose columns that every grouping, window and join has, or leave recompute_by out: then the \
                        table is recomputed whole";
            problems.push(Problem::new("recompute_by", message, Some(help.to_owned())));
            Unit::Whole { reason }
        }
    }
}

/// Whether the output columns are columns of the one input, unchanged.
fn passes_through(plan: &LogicalPlan, columns: &[String], inputs: &[String]) -> bool {
    unit_maps(plan, columns, inputs).is_ok_and(|maps| maps.iter().flatten().all(|expr| matches!(expr, Expr::Column(_))))
}

fn examine_transform(
    contract: &Contract,
    derivation: &Derivation,
    (name, args): (&str, &serde_json::Value),
    inputs: &Inputs,
    problems: &mut Vec<Problem>,
) -> Result<Lineage, Problem> {
    let transform = transform(name).map_err(|e| Problem::of_error("transform", &e))?;
    let (1, Some((_, input))) = (inputs.len(), inputs.first()) else {
        return Err(Problem::new("transform", "a named transform has one input", None));
    };
    let given = transform.validate(args, input).map_err(|e| Problem::of_error("transform", &e))?;
    let output = storable_schema(&given).map_err(|e| Problem::of_error("transform", &e))?;
    let passed = transform.passed_through(args, input);
    let column = |name: &String| Expr::Column(datafusion::common::Column::new_unqualified(name));
    let declared = if derivation.keep.is_some() || derivation.recompute_by.is_empty() {
        &contract.primary_key
    } else {
        &derivation.recompute_by
    };
    let made = declared.iter().position(|name| !passed.contains(name));
    let unit = match made {
        None if !declared.is_empty() => {
            Unit::Mapped { columns: declared.clone(), maps: vec![declared.iter().map(column).collect()] }
        }
        None => Unit::Whole { reason: "neither recompute_by nor primary_key is declared".to_owned() },
        Some(at) => {
            if !derivation.recompute_by.is_empty() && output.index_of(&declared[at]).is_ok() {
                let message = format!("`{}` is made by the transform: a unit must pass through it", declared[at]);
                let help = format!("columns that pass through: {}", passed.join(", "));
                problems.push(Problem::new(format!("recompute_by[{at}]"), message, Some(help)));
            }
            Unit::Whole { reason: format!("`{}` does not pass through the transform", declared[at]) }
        }
    };
    Ok(Lineage { output, row_by_row: true, unit, rows_of_key: RowsOfKey::Unknown })
}

/// A column whose name no Delta table can have, or that two columns have.
fn badly_named(output: &Schema) -> Option<Problem> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for field in output.fields() {
        let name = field.name();
        if name.contains([' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '=']) {
            return Some(Problem::new(
                "sql",
                format!("the column `{name}` has no proper name"),
                Some("write `... as name`".to_owned()),
            ));
        }
        if seen.insert(name.to_lowercase(), name).is_some() {
            return Some(Problem::new(
                "sql",
                format!("two columns are called `{name}`"),
                Some("names that differ in case only count as the same; rename one with `as`".to_owned()),
            ));
        }
    }
    None
}

fn check_columns(contract: &Contract, derivation: &Derivation, output: &Schema, problems: &mut Vec<Problem>) {
    let given: Vec<&str> = output.fields().iter().map(|field| field.name().as_str()).collect();
    let declared: Vec<String> = contract.columns.iter().map(|column| column.name.clone()).collect();
    for (key, names) in [
        ("columns", &declared),
        ("primary_key", &contract.primary_key),
        ("partition_by", &contract.partition_by),
        ("order_by", &derivation.order_by),
        ("recompute_by", &derivation.recompute_by),
    ] {
        for (at, name) in names.iter().enumerate() {
            if !given.contains(&name.as_str()) {
                let help = did_you_mean(name, given.iter().copied())
                    .unwrap_or_else(|| format!("it gives {}", given.join(", ")));
                problems.push(Problem::new(
                    format!("{key}[{at}]"),
                    format!("the SQL gives no column `{name}`"),
                    Some(help),
                ));
            }
        }
    }
    for (at, column) in contract.columns.iter().enumerate() {
        let declared = crate::schema::arrow::data_type(&column.data_type);
        let Ok(field) = output.field_with_name(&column.name) else { continue };
        if !field.data_type().equals_datatype(&declared) {
            let message = format!("`{}` is declared {declared}, the SQL gives {}", column.name, field.data_type());
            problems.push(Problem::new(
                format!("columns[{at}].type"),
                message,
                Some("cast it in the SQL, or declare it so".to_owned()),
            ));
        }
    }
    for (at, name) in derivation.recompute_by.iter().enumerate() {
        let Ok(field) = output.field_with_name(name) else { continue };
        if matches!(field.data_type(), DataType::Float32 | DataType::Float64) || field.data_type().is_nested() {
            problems.push(Problem::new(
                format!("recompute_by[{at}]"),
                format!("`{name}` is {}: a unit must be a type with exact equality", field.data_type()),
                None,
            ));
        }
    }
    if derivation.keep.is_some() && contract.primary_key.is_empty() {
        problems.push(Problem::new("keep", "keep needs a primary_key: one row of each key stays", None));
    }
    if derivation.keep.is_some() && derivation.order_by.is_empty() {
        problems.push(Problem::new("keep", "keep needs an order_by that says which row is first", None));
    }
    if !derivation.touched.is_empty() && derivation.recompute_by.is_empty() {
        problems.push(Problem::new("touched", "touched needs recompute_by: the units that it gives", None));
    }
}

fn check_touched(input: &str, sql: &str, columns: &[String], output: &Schema, inputs: &Inputs) -> Result<(), Problem> {
    let at = format!("touched.{input}");
    let Some(changed) = inputs.get(input) else {
        let help = did_you_mean(input, inputs.keys().map(String::as_str));
        return Err(Problem::new(at, format!("there is no input `{input}`"), help));
    };
    let planner = Planner::new(touched_tables(input, changed, inputs)).map_err(|e| Problem::of_error(&at, &e))?;
    let plan = planner.plan(sql).map_err(|refusal| Problem::refused(&at, refusal))?;
    if let Some(reason) = unrepeatable(&plan) {
        return Err(Problem::new(at, reason, None));
    }
    let given = storable_schema(plan.schema().as_arrow()).map_err(|e| Problem::of_error(&at, &e))?;
    let names: Vec<&str> = given.fields().iter().map(|field| field.name().as_str()).collect();
    let same = names.len() == columns.len() && columns.iter().all(|column| names.contains(&column.as_str()));
    if !same {
        let message = format!("it must give exactly the units {}, but gives {}", columns.join(", "), names.join(", "));
        return Err(Problem::new(at, message, None));
    }
    for column in columns {
        let (Ok(there), Ok(here)) = (output.field_with_name(column), given.field_with_name(column)) else { continue };
        if there.data_type() != here.data_type() {
            let message = format!("`{column}` is {} here and {} in the table", here.data_type(), there.data_type());
            return Err(Problem::new(at, message, Some("cast it".to_owned())));
        }
    }
    Ok(())
}

/// The tables that a `touched` query of `input` may read.
fn touched_tables<'a>(
    input: &str,
    changed: &'a SchemaRef,
    inputs: &'a Inputs,
) -> impl Iterator<Item = (String, SchemaRef)> + use<'a> {
    let changed = (format!("{input}{CHANGED}"), Arc::clone(changed));
    inputs.iter().map(|(name, schema)| (name.clone(), Arc::clone(schema))).chain([changed])
}

/// The column of a plan's output, for building filters on it.
#[must_use]
pub(crate) fn output_column(plan: &LogicalPlan, name: &str) -> Option<Expr> {
    index_of(plan.schema(), name).map(|index| Expr::Column(column_at(plan.schema(), index)))
}
