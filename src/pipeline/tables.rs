//! Tables that files feed: created empty by whoever needs them first, with the contract's schema and the lineage columns.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::error::{Error, Result};
use crate::layout;
use crate::pipeline::drift;
use crate::pipeline::lake::Lake;
use crate::quarantine::{self, quarantine_schema};
use crate::schema::arrow::ingested_schema;
use crate::schema::{Contract, WriteMode};
use crate::table::{Snapshot, Table, TableSpec};

/// The ingested table of a contract, created empty when it is not there.
pub async fn ensure(lake: &Lake, contract: &Contract) -> Result<Table> {
    let folder = layout::table(&contract.table);
    if let Some(table) = lake.table(&folder).await? {
        return Ok(table);
    }
    let spec = TableSpec {
        schema: ingested_schema(contract),
        partition_by: contract.partition_by.clone(),
        properties: contract.properties.clone(),
        description: contract.description.clone(),
    };
    create(lake, &folder, &spec).await
}

/// The quarantine table of a contract, created empty when it is not there.
pub async fn ensure_quarantine(lake: &Lake, contract: &Contract) -> Result<Table> {
    let folder = layout::quarantine(&contract.table);
    if let Some(table) = lake.table(&folder).await? {
        return Ok(table);
    }
    let spec = TableSpec {
        schema: quarantine_columns(contract),
        partition_by: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        description: Some(format!("records that {} refused", contract.table)),
    };
    create(lake, &folder, &spec).await
}

fn quarantine_columns(contract: &Contract) -> SchemaRef {
    if contract.events().is_some() { quarantine::events::schema() } else { quarantine_schema() }
}

/// The schema of a quarantine table with the columns that came since it was made; none when it has them all.
#[must_use]
pub fn grown_quarantine(table: &Snapshot, contract: &Contract) -> Option<SchemaRef> {
    let (stored, today) = (table.schema(), quarantine_columns(contract));
    let is_new = |field: &&Arc<Field>| stored.field_with_name(field.name()).is_err();
    let news: Vec<Arc<Field>> = today.fields().iter().filter(is_new).cloned().collect();
    if news.is_empty() {
        return None;
    }
    Some(Arc::new(Schema::new(stored.fields().iter().cloned().chain(news).collect::<Vec<_>>())))
}

async fn create(lake: &Lake, folder: &str, spec: &TableSpec) -> Result<Table> {
    let table = Table::create(&lake.store, folder, spec).await.map_err(|e| e.within(folder))?;
    lake.keep(folder, &table);
    Ok(table)
}

/// The stored schema with what the contract (and `add_columns`) adds to it, and its columns as wide as the contract has
/// them; none when nothing changes.
///
/// Columns that the contract no longer names stay, nullable.
///
/// # Errors
/// What [`drift::differences`] refuses: a name that the table has with a type that is not narrower, or in another case;
/// another partitioning.
pub fn evolved(table: &Snapshot, contract: &Contract, add_columns: &[String]) -> Result<Option<SchemaRef>> {
    let stored = &table.schema();
    let declared = ingested_schema(contract);
    let found = drift::differences(stored, table.partition_by(), contract, &declared);
    if let Some(refused) = found.into_iter().find(drift::Difference::is_refused) {
        return Err(refused.into_error(contract));
    }
    let mut fields: Vec<Arc<Field>> = Vec::with_capacity(stored.fields().len());
    let mut changed = false;
    for field in stored.fields() {
        let wanted = declared.field_with_name(field.name()).ok();
        // Only ever relaxed: stored files may hold nulls from before.
        let nullable = field.is_nullable() || wanted.is_none_or(Field::is_nullable);
        let wider = wanted.map(Field::data_type).filter(|wanted| drift::is_wider(field.data_type(), wanted));
        changed |= nullable != field.is_nullable() || wider.is_some();
        let kind = wider.unwrap_or(field.data_type()).clone();
        fields.push(Arc::new(field.as_ref().clone().with_nullable(nullable).with_data_type(kind)));
    }
    let mut append = |field: Field| {
        if stored.field_with_name(field.name()).is_err() && !fields.iter().any(|known| known.name() == field.name()) {
            fields.push(Arc::new(field));
            changed = true;
        }
    };
    for field in declared.fields() {
        append(field.as_ref().clone().with_nullable(true));
    }
    for name in add_columns {
        append(Field::new(name, arrow::datatypes::DataType::Utf8, true));
    }
    Ok(changed.then(|| Arc::new(Schema::new(fields))))
}

/// A column to be added whose name differs from a known one by case alone: Delta has no room for both.
///
/// # Errors
/// Names both spellings.
pub fn check_added(stored: &SchemaRef, earlier: &[String], added: &[String]) -> Result<()> {
    for name in added {
        let known = stored.fields().iter().map(|field| field.name()).chain(earlier);
        if let Some(other) = known.into_iter().find(|other| *other != name && other.eq_ignore_ascii_case(name)) {
            return Err(Error::invalid(format!(
                "column `{name}` of the file is `{other}` in the table but for its case"
            ))
            .remedy("spell the column as the table does, or name it in the contract with `from`"));
        }
    }
    Ok(())
}

/// Whether a batch of this size is worth staging as final Parquet: only appended rows are ever adopted.
#[must_use]
pub fn stages_parquet(lake: &Lake, contract: &Contract, source_bytes: u64) -> bool {
    // A Parquet file is about a third of the text that it was made from.
    contract.write_mode == WriteMode::Append && source_bytes >= lake.settings.adopt_bytes.saturating_mul(3)
}
