//! All derived tables of a catalog, in dependency order.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::check::examine;
use super::{Inputs, Problem, analyse, visible};
use crate::catalog::{Catalog, Diagnostic};
use crate::error::{Error, Result};
use crate::name::TableName;
use crate::schema::arrow::stored_schema;
use crate::schema::{Body, Contract};

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
        let (lineage, problems) = examine(contract, &inputs);
        if let Some(lineage) = lineage {
            seen.insert(&contract.table, lineage.output);
        }
        found.extend(problems.into_iter().map(|problem| diagnostic(contract, problem)));
    }
    found
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
