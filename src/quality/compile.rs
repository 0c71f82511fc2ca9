//! Conditions of a contract's rules -> expressions over one batch: the contract's columns, then the raw ones asked for.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Ident, visit_expressions_mut};

use crate::arithmetic;
use crate::cast::arrow_type;
use crate::error::{Error, Result};
use crate::schema::{ColumnType, Contract, OP, OnFail, Rule};

/// The word before the name of a text as it came. Texts are columns named `raw.<column>`, without a qualifier: DataFusion
/// refuses a schema in which a name stands with and without one.
const RAW: &str = "raw";

fn raw_name(column: &str) -> String {
    format!("{RAW}.{column}")
}

/// A rule that can be evaluated.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub name: String,
    pub check: String,
    pub on_fail: OnFail,
    pub covers: Vec<usize>,
    /// Contract columns whose values the condition reads.
    pub columns: Vec<usize>,
    /// Contract columns whose raw texts it reads.
    pub raw_columns: Vec<usize>,
    pub expr: Arc<dyn PhysicalExpr>,
}

impl CompiledRule {
    /// The column that the rule is about, if it is about one.
    pub(super) fn only_column(&self) -> Option<usize> {
        let mut all: Vec<usize> = self.columns.iter().chain(&self.raw_columns).copied().collect();
        all.sort_unstable();
        all.dedup();
        match all.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}

/// The rules of a contract.
pub(super) struct Compiled {
    pub rules: Vec<CompiledRule>,
    pub raw_columns: Vec<usize>,
    pub schema: SchemaRef,
}

/// Compiles all rules.
pub(super) fn compile(contract: &Contract) -> Result<Compiled> {
    let all: Vec<usize> = (0..contract.columns.len()).collect();
    let (schema, qualified) = input_schema(contract, &all)?;
    let declared = with_built_in(contract);
    if declared.is_empty() {
        return Ok(Compiled { rules: Vec::new(), raw_columns: Vec::new(), schema: input_schema(contract, &[])?.0 });
    }
    drop(schema);
    let state = SessionContext::new().state();
    let mut parsed = Vec::with_capacity(declared.len());
    for rule in &declared {
        parsed.push(parse(contract, rule, &state, &qualified).map_err(|error| error.within(in_rule(contract, rule)))?);
    }
    let raw_columns: Vec<usize> =
        parsed.iter().flat_map(|rule| rule.raw_columns.iter().copied()).collect::<BTreeSet<_>>().into_iter().collect();
    // Only raw texts that are asked for are made, so positions are fixed once all rules are known.
    let (schema, qualified) = input_schema(contract, &raw_columns)?;
    let mut rules = Vec::with_capacity(parsed.len());
    for (rule, parsed) in declared.iter().zip(parsed) {
        let expr = state
            .create_physical_expr(parsed.expr, &qualified)
            .map_err(|error| explained(&error).within(in_rule(contract, rule)))?;
        rules.push(CompiledRule {
            name: rule.name.clone(),
            check: rule.check.trim().to_owned(),
            on_fail: rule.on_fail,
            covers: covers(contract, rule)?,
            columns: parsed.columns,
            raw_columns: parsed.raw_columns,
            expr,
        });
    }
    Ok(Compiled { rules, raw_columns, schema })
}

/// The rules that are declared, and those that every contract has: a value of a partition column is no empty text, which the
/// log of a Delta table cannot tell from null.
fn with_built_in(contract: &Contract) -> Vec<Rule> {
    let text = |name: &&String| {
        contract.columns.iter().any(|column| column.name == **name && column.data_type == ColumnType::String)
    };
    let not_empty = |name: &String| Rule {
        name: format!("{name}_invalid"),
        check: format!("\"{}\" <> ''", name.replace('"', "\"\"")),
        on_fail: OnFail::Quarantine,
        covers: vec![name.clone()],
    };
    let built_in = contract.partition_by.iter().filter(text).map(not_empty);
    contract.rules.iter().cloned().chain(built_in).collect()
}

fn in_rule(contract: &Contract, rule: &Rule) -> String {
    format!("{}: rule {}", contract.table, rule.name)
}

fn covers(contract: &Contract, rule: &Rule) -> Result<Vec<usize>> {
    let position = |name: &String| {
        contract.columns.iter().position(|column| column.name == *name).ok_or_else(|| {
            Error::invalid(format!("{}: covers `{name}`, which is no column", in_rule(contract, rule)))
                .remedy("name columns of the contract")
        })
    };
    rule.covers.iter().map(position).collect()
}

fn input_schema(contract: &Contract, raw: &[usize]) -> Result<(SchemaRef, DFSchema)> {
    let typed = contract.columns.iter().map(|column| Field::new(&column.name, arrow_type(&column.data_type), true));
    let texts = raw.iter().map(|index| Field::new(raw_name(&contract.columns[*index].name), DataType::Utf8, true));
    let variables = variables(contract).into_iter().map(|(name, data_type)| Field::new(name, data_type, true));
    let schema: SchemaRef = Arc::new(Schema::new(typed.chain(texts).chain(variables).collect::<Vec<_>>()));
    let planned = DFSchema::try_from(Arc::clone(&schema)).map_err(|error| explained(&error).within(&contract.table))?;
    Ok((schema, planned))
}

/// What rules of a table of changes may name beside columns: names without a qualifier, as those of raw texts. A column of
/// the contract comes before a variable of its name.
pub(super) fn variables(contract: &Contract) -> Vec<(String, DataType)> {
    let Some(source) = contract.changes() else { return Vec::new() };
    let is_column = |name: &str| contract.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    let names = source.variables().into_iter().filter(|name| !is_column(name.split('.').next().unwrap_or(name)));
    names.map(|name| if name == OP { (name, DataType::Utf8) } else { (name, DataType::Int64) }).collect()
}

struct Parsed {
    expr: Expr,
    columns: Vec<usize>,
    raw_columns: Vec<usize>,
}

fn parse(contract: &Contract, rule: &Rule, state: &SessionState, schema: &DFSchema) -> Result<Parsed> {
    let dialect = state.config().options().sql_parser.dialect;
    let mut sql = state.sql_to_expr_with_alias(&rule.check, &dialect).map_err(|error| explained(&error))?;
    if sql.alias.is_some() {
        return Err(Error::invalid("the check has an alias").remedy("write one condition, such as fare >= 0"));
    }
    resolve_names(contract, &mut sql.expr);
    let expr = state.create_logical_expr_from_sql_expr(sql, schema).map_err(|error| explained(&error))?;
    let expr = arithmetic::checked(expr, schema).map_err(|error| explained(&error))?;
    if expr.is_volatile() {
        return Err(Error::invalid("the check gives another answer each time it is asked")
            .remedy("use functions of the record's values alone"));
    }
    let data_type = expr.get_type(schema).map_err(|error| explained(&error))?;
    if !matches!(data_type, DataType::Boolean | DataType::Null) {
        return Err(Error::invalid(format!("the check gives {data_type}, not true or false"))
            .remedy("write a condition, such as fare >= 0"));
    }
    let (mut columns, mut raw_columns) = (BTreeSet::new(), BTreeSet::new());
    let mut names_variable = false;
    let variables = variables(contract);
    for column in expr.column_refs() {
        if let Some(index) = position(contract, &column.name) {
            columns.insert(index);
        } else if let Some(index) = column.name.strip_prefix("raw.").and_then(|name| position(contract, name)) {
            raw_columns.insert(index);
        } else {
            names_variable |= variables.iter().any(|(name, _)| *name == column.name);
        }
    }
    if columns.is_empty() && raw_columns.is_empty() && !names_variable {
        return Err(Error::invalid("the check names no column").remedy("write a condition over columns of the table"));
    }
    // Planning once finds what cannot be evaluated row by row: subqueries, aggregates, window functions.
    state.create_physical_expr(expr.clone(), schema).map_err(|error| match error {
        DataFusionError::NotImplemented(_) => Error::invalid("the check cannot be answered from one record alone")
            .remedy("aggregates, window functions and subqueries have no place in a rule"),
        other => explained(&other),
    })?;
    Ok(Parsed { expr, columns: columns.into_iter().collect(), raw_columns: raw_columns.into_iter().collect() })
}

fn position(contract: &Contract, name: &str) -> Option<usize> {
    contract.columns.iter().position(|declared| declared.name == name)
}

/// Unquoted names mean the column that is spelled so, else the only one that differs in case.
fn resolve_names(contract: &Contract, expr: &mut SqlExpr) {
    let resolved = |ident: &Ident| {
        if ident.quote_style.is_some() {
            return None;
        }
        let names = || contract.columns.iter().map(|column| column.name.as_str());
        let exact = names().find(|name| *name == ident.value);
        let mut alike = names().filter(|name| name.eq_ignore_ascii_case(&ident.value));
        let found = exact.or_else(|| alike.next().filter(|_| alike.next().is_none()))?;
        Some(Ident::with_quote('"', found))
    };
    let variables = variables(contract);
    let _ = visit_expressions_mut(expr, |part: &mut SqlExpr| {
        match part {
            SqlExpr::Identifier(ident) => {
                if let Some(better) = resolved(ident) {
                    *ident = better;
                }
            }
            SqlExpr::CompoundIdentifier(idents) => match idents.as_mut_slice() {
                [qualifier, name] if qualifier.value.eq_ignore_ascii_case(RAW) => {
                    let name = resolved(name).unwrap_or_else(|| name.clone());
                    *part = SqlExpr::Identifier(Ident::with_quote('"', raw_name(&name.value)));
                }
                [qualifier, name] if variable(&variables, qualifier, name).is_some() => {
                    if let Some(variable) = variable(&variables, qualifier, name) {
                        *part = SqlExpr::Identifier(Ident::with_quote('"', variable));
                    }
                }
                [first, ..] => {
                    if let Some(better) = resolved(first) {
                        *first = better;
                    }
                }
                [] => {}
            },
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The variable that a compound name means.
fn variable<'v>(variables: &'v [(String, DataType)], qualifier: &Ident, name: &Ident) -> Option<&'v str> {
    let wanted = format!("{}.{}", qualifier.value, name.value);
    variables.iter().map(|(variable, _)| variable.as_str()).find(|variable| variable.eq_ignore_ascii_case(&wanted))
}

/// DataFusion's error as one of ours: the contract is wrong.
fn explained(error: &DataFusionError) -> Error {
    let text = error.strip_backtrace();
    let text = text.split("\n\nBacktrace").next().unwrap_or_default();
    Error::invalid(text.replace('\n', " ").trim().trim_end_matches('.').to_owned())
        .remedy("correct the rule's `check` in the contract")
}
