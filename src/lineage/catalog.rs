//! All derived tables of a catalog, in dependency order.

use arrow::datatypes::SchemaRef;

use super::{Inputs, analyse, visible};
use crate::catalog::{Catalog, Diagnostic};
use crate::error::{Error, Result};
use crate::name::TableName;

/// Plans every derived table.
#[must_use]
pub fn check_catalog(_catalog: &Catalog) -> Vec<Diagnostic> {
    Vec::new()
}

/// The columns that a table's readers see once it exists, from the contracts alone.
///
/// # Errors
/// There is no contract for the table, or its SQL does not plan.
pub fn planned_schema(catalog: &Catalog, table: &TableName) -> Result<SchemaRef> {
    let contract = catalog.get(table).ok_or_else(|| Error::not_found(format!("there is no contract for {table}")))?;
    let Some(derivation) = contract.derivation() else {
        return Ok(visible(&ingested_schema(contract)));
    };
    let mut inputs = Inputs::new();
    for (name, source) in &derivation.inputs {
        inputs.insert(name.clone(), planned_schema(catalog, source)?);
    }
    Ok(analyse(contract, &inputs)?.output)
}

fn ingested_schema(_contract: &crate::schema::Contract) -> SchemaRef {
    std::sync::Arc::new(arrow::datatypes::Schema::empty())
}
