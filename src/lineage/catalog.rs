//! All derived tables of a catalog, in dependency order.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::check::examine;
use super::{Inputs, Problem, RowsOfKey, analyse, visible};
use crate::catalog::{Catalog, Diagnostic};
use crate::error::{Error, Result};
use crate::name::TableName;
use crate::schema::arrow::stored_schema;
use crate::schema::{Body, Contract, WriteMode};

/// Plans every derived table over the columns that its sources have by their contracts. What is derived from a table
/// that does not plan is not judged.
#[must_use]
pub fn check_catalog(catalog: &Catalog) -> Vec<Diagnostic> {
    let mut seen: HashMap<&TableName, SchemaRef> = HashMap::new();
    let mut found = Vec::new();
    for contract in catalog.tables() {
        let Some(derivation) = contract.derivation() else {
            seen.insert(&contract.table, visible(&stored_schema(contract)));
            continue;
        };
        let mut inputs = Inputs::new();
        for (name, source) in &derivation.inputs {
            if let Some(schema) = seen.get(source) {
                inputs.insert(name.clone(), Arc::clone(schema));
            }
        }
        if inputs.len() < derivation.inputs.len() {
            continue;
        }
        let (lineage, mut problems) = examine(contract, &inputs);
        if let Some(lineage) = lineage {
            problems.extend(repeated_key(catalog, contract, &lineage.rows_of_key));
            seen.insert(&contract.table, lineage.output);
        }
        found.extend(problems.into_iter().map(|problem| diagnostic(contract, problem)));
    }
    found
}

/// A table that promises one row a key, and whose SQL gives several.
fn repeated_key(catalog: &Catalog, contract: &Contract, rows_of_key: &RowsOfKey) -> Option<Problem> {
    let derivation = contract.derivation()?;
    if contract.write_mode != WriteMode::Upsert || derivation.keep.is_some() {
        return None;
    }
    let reason = match rows_of_key {
        RowsOfKey::One | RowsOfKey::Unknown => return None,
        RowsOfKey::Several(reason) => reason.clone(),
        RowsOfKey::OfInput(columns) => {
            let source = contract.sources().into_iter().next()?;
            if has_key_within(catalog, source, columns) {
                return None;
            }
            format!("several rows of {source} can have it")
        }
    };
    let key = contract.primary_key.join(", ");
    let message = format!("`{key}` is not one row's alone: {reason}");
    let help = "say which row stays with `keep` and `order_by`, group by the key, or let `write_mode` be append";
    Some(Problem::new("primary_key", message, Some(help.to_owned())))
}

/// Whether no two rows of a table are alike in these columns.
fn has_key_within(catalog: &Catalog, table: &TableName, columns: &[String]) -> bool {
    let Some(contract) = catalog.get(table) else { return true };
    let is_a_key = match contract.derivation() {
        Some(derivation) => derivation.keep.is_some() || contract.write_mode == WriteMode::Upsert,
        // Changes and their history have one row for each key.
        None => contract.files().is_none() || contract.write_mode == WriteMode::Upsert,
    };
    is_a_key && contract.primary_key.iter().all(|column| columns.contains(column))
}

fn diagnostic(contract: &Contract, problem: Problem) -> Diagnostic {
    let text = match (&problem.at, contract.derivation()) {
        (at, Some(derivation)) if at == "sql" => match &derivation.body {
            Body::Sql(sql) => Some(sql),
            Body::Named { .. } => None,
        },
        (at, Some(derivation)) => at.strip_prefix("touched.").and_then(|input| derivation.touched.get(input)),
        _ => None,
    };
    let place = match (problem.offset, text) {
        (Some(offset), Some(text)) => contract.positions.within(&problem.at, text, offset),
        _ => contract.positions.nearest(&problem.at),
    };
    Diagnostic::error(contract.file.clone(), place, problem.message)
        .maybe_help(problem.help)
        .in_source(contract.positions.source())
}

/// The columns that a table's readers see once it exists, from the contracts alone.
///
/// # Errors
/// There is no contract for the table, or its SQL does not plan.
pub fn planned_schema(catalog: &Catalog, table: &TableName) -> Result<SchemaRef> {
    let contract = catalog.get(table).ok_or_else(|| Error::not_found(format!("there is no contract for {table}")))?;
    let Some(derivation) = contract.derivation() else {
        return Ok(visible(&stored_schema(contract)));
    };
    let mut inputs = Inputs::new();
    for (name, source) in &derivation.inputs {
        inputs.insert(name.clone(), planned_schema(catalog, source)?);
    }
    Ok(analyse(contract, &inputs)?.output)
}
