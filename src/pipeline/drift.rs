//! Contracts against the tables that they find: what a contract would do to its table before it is deployed.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};

use crate::error::{Error, Result};
use crate::layout;
use crate::lineage::planned_schema;
use crate::pipeline::lake::Lake;
use crate::pipeline::layers::CONTRACT_HASH;
use crate::pipeline::staging;
use crate::schema::arrow::ingested_schema;
use crate::schema::{Contract, UnknownColumns};
use crate::table::{same_type, widens};

/// One way in which a contract and its stored table differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key of the contract that it is about, as a path: `columns[2].type`, `partition_by`.
    pub at: String,
    /// What is different and what comes of it; lower case, without a full stop.
    pub message: String,
    /// What to do, when it is refused.
    pub help: Option<String>,
}

impl Difference {
    /// Whether the table would stop.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.help.is_some()
    }

    fn effect(at: impl Into<String>, message: String) -> Self {
        Self { at: at.into(), message, help: None }
    }

    fn refused(at: impl Into<String>, message: String, help: &str) -> Self {
        Self { at: at.into(), message, help: Some(help.to_owned()) }
    }

    /// The difference as what stops the table.
    pub(crate) fn into_error(self, contract: &Contract) -> Error {
        let error = Error::invalid(format!("{}: {}", contract.table, self.message));
        self.help.into_iter().fold(error, Error::remedy)
    }
}

/// What a contract and its table differ in: columns and partitioning. `declared` are the contract's columns in the table.
#[must_use]
pub fn differences(
    stored: &Schema,
    partition_by: &[String],
    contract: &Contract,
    declared: &Schema,
) -> Vec<Difference> {
    let mut found = Vec::new();
    if partition_by != contract.partition_by {
        found.push(Difference::refused(
            "partition_by",
            format!(
                "partitioned by [{}] in the table and by [{}] in the contract",
                partition_by.join(", "),
                contract.partition_by.join(", ")
            ),
            "a table keeps its partitioning: change the contract back, or give it a new table",
        ));
    }
    let other_type = match contract.files() {
        Some(_) => {
            "give the column a new name (with `from`), or a new table to the contract: a stored column only becomes wider"
        }
        None => "cast it, give it another name, or move the table's folder away: it is then made anew",
    };
    let place = |name: &str, key: &str| match contract.columns.iter().position(|column| column.name == name) {
        // Its columns are made up from those of the table whose history it is.
        Some(_) if contract.history_of().is_some() => "history".to_owned(),
        Some(index) => format!("columns[{index}].{key}"),
        None => "columns".to_owned(),
    };
    for wanted in declared.fields() {
        let name = wanted.name();
        match stored.field_with_name(name) {
            Ok(field) if is_wider(field.data_type(), wanted.data_type()) => found.push(Difference::effect(
                place(name, "type"),
                format!(
                    "column `{name}` becomes {} ({} in the table): the table's files are written anew",
                    wanted.data_type(),
                    field.data_type()
                ),
            )),
            Ok(field) if !same_type(field.data_type(), wanted.data_type()) => found.push(Difference::refused(
                place(name, "type"),
                format!(
                    "column `{name}` is {} in the table and {} in the contract",
                    field.data_type(),
                    wanted.data_type()
                ),
                other_type,
            )),
            Ok(field) if wanted.is_nullable() && !field.is_nullable() => found
                .push(Difference::effect(place(name, "nullable"), format!("column `{name}` may be null from now on"))),
            Ok(_) => {}
            Err(_) => match stored.fields().iter().find(|field| field.name().eq_ignore_ascii_case(name)) {
                Some(other) => found.push(Difference::refused(
                    place(name, "name"),
                    format!("column `{name}` is `{}` in the table but for its case", other.name()),
                    "spell the column as the table does: Delta has no room for both",
                )),
                None => found.push(Difference::effect(
                    place(name, "name"),
                    format!("column `{name}` is added to the table; stored rows read null in it"),
                )),
            },
        }
    }
    // Columns that files brought are still filled.
    let are_kept = contract.unknown_columns != UnknownColumns::Add;
    for field in stored.fields().iter().filter(|_| are_kept) {
        if declared.field_with_name(field.name()).is_err()
            && !declared.fields().iter().any(|wanted| wanted.name().eq_ignore_ascii_case(field.name()))
        {
            let message = format!("column `{}` stays in the table and reads null in new rows", field.name());
            found.push(Difference::effect("columns", message));
        }
    }
    found
}

/// Whether a stored column would become one of another type with every value as it is.
#[must_use]
pub fn is_wider(stored: &DataType, wanted: &DataType) -> bool {
    !same_type(stored, wanted) && widens(stored, wanted)
}

/// What deploying the lake's contracts would do to its tables, contract by contract; those that change nothing are left
/// out.
///
/// # Errors
/// Storage that did not answer.
pub async fn deployment(lake: &Lake) -> Result<Vec<(Arc<Contract>, Vec<Difference>)>> {
    let mut found = Vec::new();
    for contract in lake.catalog.tables() {
        let differences = of_table(lake, contract).await?;
        if !differences.is_empty() {
            found.push((Arc::clone(contract), differences));
        }
    }
    Ok(found)
}

async fn of_table(lake: &Lake, contract: &Arc<Contract>) -> Result<Vec<Difference>> {
    let Some(table) = lake.table(&layout::table(&contract.table)).await? else {
        return Ok(vec![Difference::effect("table", "the table is new".to_owned())]);
    };
    let snapshot = table.snapshot().await?;
    let is_derived = contract.files().is_none();
    let declared: SchemaRef = match is_derived {
        true => planned_schema(&lake.catalog, &contract.table)?,
        false => ingested_schema(contract),
    };
    let mut found = differences(&snapshot.schema(), snapshot.partition_by(), contract, &declared);
    if is_derived {
        if snapshot.properties().get(CONTRACT_HASH).is_some_and(|hash| *hash != contract.hash) {
            found.push(Difference::effect(
                "table",
                "the contract changed: the table is recomputed as a whole".to_owned(),
            ));
        }
        return Ok(found);
    }
    let mut others = 0;
    for (batch, staged) in staging::list(lake, &contract.table).await? {
        let Some(generation) = staged.current() else { continue };
        let path = layout::manifest(&contract.table, &batch, generation);
        let manifest = staging::read_json::<crate::manifest::Manifest>(lake, &path).await?;
        others += u64::from(manifest.is_some_and(|manifest| manifest.contract_hash != contract.hash));
    }
    if others > 0 {
        let message = format!(
            "{others} staged batches were read under another contract: they are committed by the names of their columns, or \
             read again where that cannot be"
        );
        found.push(Difference::effect("table", message));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;
    use crate::decode::testing::contract;

    fn said(stored: &[(&str, DataType, bool)], partition_by: &[&str], columns: &str) -> Vec<(String, String, bool)> {
        let fields = stored.iter().map(|(name, data_type, nullable)| Field::new(*name, data_type.clone(), *nullable));
        let stored = Schema::new(fields.collect::<Vec<_>>());
        let contract = contract("format: csv", &format!("columns: {columns}"));
        let declared = crate::schema::arrow::declared_schema(&contract);
        let partition_by: Vec<String> = partition_by.iter().map(ToString::to_string).collect();
        let found = differences(&stored, &partition_by, &contract, &declared);
        found.into_iter().map(|one| (one.at.clone(), one.message.clone(), one.is_refused())).collect()
    }

    #[test]
    fn every_kind_of_difference() {
        let stored = [("id", DataType::Int32, false), ("amount", DataType::Utf8, true), ("old", DataType::Utf8, true)];
        let same =
            "[{ name: id, type: int32, nullable: false }, { name: amount, type: string }, { name: old, type: string }]";
        assert_eq!(said(&stored, &[], same), []);
        let wider = said(&stored, &[], &same.replace("int32", "int64"));
        assert!(matches!(&wider[..], [(at, said, false)] if at == "columns[0].type" && said.contains("becomes Int64")));
        let other = "[{ name: id, type: int16 }, { name: Amount, type: string }, { name: new, type: date }]";
        let found = said(&stored, &["id"], other);
        let places: Vec<(&str, bool)> = found.iter().map(|(at, _, refused)| (at.as_str(), *refused)).collect();
        assert_eq!(
            places,
            [
                ("partition_by", true),
                ("columns[0].type", true),
                ("columns[1].name", true),
                ("columns[2].name", false),
                ("columns", false)
            ]
        );
        assert!(found[1].1.contains("Int32 in the table and Int16 in the contract"), "{found:?}");
        assert!(found[4].1.contains("`old` stays"), "{found:?}");
    }
}
