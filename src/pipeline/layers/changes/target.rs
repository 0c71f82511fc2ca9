//! What is derived from kept changes: the table of present rows, its history, and its quarantine. Each is a table of its own,
//! with a watermark of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use serde_json::Value;

use super::feed::{Fed, GENERATION};
use super::{QUIET, Work};
use crate::change::walk::READ_AT;
use crate::error::{Error, Result};
use crate::layout;
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::pipeline::layers::{CONTRACT_HASH, watermark_id};
use crate::quarantine::changes;
use crate::schema::Contract;
use crate::schema::arrow::stored_schema;
use crate::table::{DataFile, Snapshot, Table, TableSpec, same_type, widens};

/// The table property with how many changes came with different rows.
pub(super) const TIES: &str = "alluvium.ties";

/// Which of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Rows,
    History,
    Quarantine,
}

/// A derived table at one version.
pub(super) struct Target<'a> {
    pub kind: Kind,
    /// The contract whose table it is; the quarantine's is that of its table.
    pub contract: &'a Contract,
    pub table: Table,
    pub base: Snapshot,
    /// Its columns after the commit.
    pub schema: SchemaRef,
}

/// How much of a derived table has to be looked at again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing, not even its watermark.
    Nothing,
    /// The watermark alone.
    Watermark,
    /// The keys of the changes that were read at later versions of bronze.
    Since(i64),
    /// Everything, and why.
    Whole(String),
}

/// What there is to be derived.
pub(super) fn kinds<'a>(work: &Work<'a>) -> Vec<(Kind, &'a Contract, String)> {
    let contract = work.contract;
    let history = work.history.map(|history| (Kind::History, history, layout::table(&history.table)));
    std::iter::once((Kind::Rows, contract, layout::table(&contract.table)))
        .chain(history)
        .chain([(Kind::Quarantine, contract, layout::quarantine(&contract.table))])
        .collect()
}

/// The tables, created empty when they are not there.
pub(super) async fn open<'a>(work: &Work<'a>) -> Result<Vec<Target<'a>>> {
    let mut targets = Vec::new();
    for (kind, contract, folder) in kinds(work) {
        let table = match work.lake.table(&folder).await? {
            Some(table) => table,
            None => create(work.lake, kind, contract, &folder).await?,
        };
        let base = table.snapshot().await?;
        let schema = evolved(&base, &declared(kind, contract), contract, kind)?;
        targets.push(Target { kind, contract, table, base, schema });
    }
    Ok(targets)
}

fn declared(kind: Kind, contract: &Contract) -> SchemaRef {
    if kind == Kind::Quarantine { changes::schema() } else { stored_schema(contract) }
}

async fn create(lake: &Lake, kind: Kind, contract: &Contract, folder: &str) -> Result<Table> {
    let (partition_by, mut properties, description) = match kind {
        Kind::Quarantine => {
            (Vec::new(), BTreeMap::new(), Some(format!("changes that break a rule of {}", contract.table)))
        }
        _ => (contract.partition_by.clone(), contract.properties.clone(), contract.description.clone()),
    };
    properties.insert(CONTRACT_HASH.to_owned(), contract.hash.clone());
    let spec = TableSpec { schema: declared(kind, contract), partition_by, properties, description };
    let table = Table::create(&lake.store, folder, &spec).await?;
    lake.keep(folder, &table);
    Ok(table)
}

/// The stored columns as the contract has them now (wider, or may be null), those that it has no more (they read null), and then the new ones.
fn evolved(base: &Snapshot, declared: &SchemaRef, contract: &Contract, kind: Kind) -> Result<SchemaRef> {
    let partition_by = if kind == Kind::Quarantine { &[] } else { contract.partition_by.as_slice() };
    if base.partition_by() != partition_by {
        return Err(Error::invalid(format!(
            "the table is partitioned by [{}], the contract says [{}]",
            base.partition_by().join(", "),
            partition_by.join(", ")
        ))
        .remedy("give the table another name, or move its folder away: it is then made anew from its changes"));
    }
    let stored = base.schema();
    let mut fields: Vec<Arc<Field>> = Vec::with_capacity(stored.fields().len());
    for field in stored.fields() {
        match declared.field_with_name(field.name()) {
            Ok(now) if same_type(now.data_type(), field.data_type()) => {
                fields.push(Arc::new(field.as_ref().clone().with_nullable(now.is_nullable())));
            }
            Ok(now) if widens(field.data_type(), now.data_type()) => fields.push(Arc::new(now.clone())),
            Ok(now) => {
                return Err(Error::invalid(format!(
                    "column `{}` of {} is {} in the table, the contract says {}",
                    field.name(),
                    base.folder(),
                    field.data_type(),
                    now.data_type()
                ))
                .remedy("give the column another name, or move the table's folder away: it is then made anew"));
            }
            Err(_) => fields.push(Arc::new(field.as_ref().clone().with_nullable(true))),
        }
    }
    let new = declared.fields().iter().filter(|field| stored.field_with_name(field.name()).is_err());
    fields.extend(new.cloned());
    let schema = Arc::new(Schema::new(fields));
    Ok(if schema == stored { stored } else { schema })
}

impl Target<'_> {
    /// Whether the commit changes its columns.
    pub(super) fn evolves(&self) -> bool {
        self.schema != self.base.schema()
    }

    /// Up to which version of bronze it has the changes.
    pub(super) async fn watermark(&self, id: &str) -> Result<Option<i64>> {
        self.base.txn(id).await
    }

    /// How much has to be looked at again. `newest` is the version at which the youngest change was read.
    pub(super) async fn need(&self, fed: &Fed, newest: Option<i64>) -> Result<Need> {
        let (id, version) = &fed.watermark;
        let watermark = self.watermark(id).await?;
        if self.base.properties().get(CONTRACT_HASH) != Some(&self.contract.hash) || self.evolves() {
            return Ok(Need::Whole("the contract changed".to_owned()));
        }
        let Some(watermark) = watermark else {
            return Ok(Need::Whole("the changes are read for the first time".to_owned()));
        };
        if self.base.txn(GENERATION).await? != Some(fed.generation) || watermark > *version {
            return Ok(Need::Whole("the changes were read anew".to_owned()));
        }
        Ok(match newest {
            Some(newest) if newest > watermark => Need::Since(watermark),
            _ if version - watermark >= QUIET => Need::Watermark,
            _ => Need::Nothing,
        })
    }
}

/// The version of bronze at which the youngest change of a file was read.
pub(super) fn read_at(file: &DataFile) -> i64 {
    let stats = file.stats.as_deref().and_then(|stats| serde_json::from_str::<Value>(stats).ok());
    stats.and_then(|stats| stats["maxValues"][READ_AT].as_i64()).unwrap_or(i64::MAX)
}

/// The version of bronze at which the youngest kept change was read; none when there is no change.
pub(super) fn newest(state: &Snapshot) -> Result<Option<i64>> {
    Ok(state.files()?.iter().map(read_at).max())
}

/// How many versions of bronze a table of changes (or its history) has not seen that have something for it, and from which
/// on; none when it has seen all of that.
///
/// # Errors
/// A table cannot be read.
pub(in crate::pipeline) async fn behind(
    lake: &Lake,
    contract: &Contract,
    derived: &Snapshot,
    bronze: &Snapshot,
) -> Result<Option<i64>> {
    let Some(source) = contract.changes() else { return Ok(None) };
    let id = watermark_id(&source.from, bronze.table_id());
    let watermark = derived.txn(&id).await?.unwrap_or(-1);
    let Some(state) = lake.table(&layout::state(&contract.table)).await? else { return Ok(Some(0)) };
    let state = state.snapshot().await?;
    let fed = state.txn(&id).await?.unwrap_or(-1);
    if newest(&state)?.is_some_and(|newest| newest > watermark) {
        return Ok(Some(watermark + 1));
    }
    if fed >= bronze.version() {
        return Ok(None);
    }
    // Bronze has more: is anything of it for this table?
    let Some(table) = lake.table(&layout::table(&source.from)).await? else { return Ok(None) };
    let Some(changes) = table.changes(fed.max(0), bronze).await? else { return Ok(Some(fed + 1)) };
    let of_this = |file: &DataFile| match file.partition_values.get(crate::schema::lineage::TABLE) {
        Some(value) => value.as_deref() == Some(source.source_table.as_str()),
        None => true,
    };
    Ok(changes.added.iter().chain(&changes.removed).any(of_this).then_some(fed + 1))
}

/// The number of ties that a table says it has.
pub(in crate::pipeline) fn ties(base: &Snapshot) -> u64 {
    base.properties().get(TIES).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The name of a derived table, for messages.
pub(super) fn named(kind: Kind, contract: &TableName) -> String {
    if kind == Kind::Quarantine { layout::quarantine(contract) } else { contract.to_string() }
}
