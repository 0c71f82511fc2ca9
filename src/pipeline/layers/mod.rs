//! Derived tables: what changed in the sources since the watermark is recomputed, and the watermark moves in the commit of
//! the rows.
//!
//! ```text
//! derived snapshot (version, watermarks)  ->  sources, each pinned at its newest version
//!   nothing newer                         ->  nothing
//!   contract changed, watermark missing,
//!   changes unreadable, no unit of work   ->  whole: rebuild.rs
//!   keep                                  ->  keep/: newcomers against stored winners, or touched keys again
//!   units                                 ->  units.rs: the touched units again
//! one commit: adds, removes, one txn a source
//! ```
//!
//! Tables of changes have a way of their own: changes/.
//!
//! Two of these at once are harmless: every commit is at exactly snapshot + 1, and whoever comes second starts again from
//! what it finds then.

pub mod changes;
mod keep;
mod pins;
mod rebuild;
mod rows;
mod units;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::lineage::{Lineage, analyse};
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::pipeline::replace::Replacement;
#[cfg(feature = "mutations")]
use crate::safeguard::Safeguard;
use crate::schema::{Body, Contract, Derivation};
use crate::table::{Change, Outcome, Snapshot, Table, TableSpec, same_type, widens};
use pins::Pin;

pub use verify::{Difference, Verdict, verify};

/// The table property with the hash of the contract that the stored rows were made under.
pub const CONTRACT_HASH: &str = "alluvium.contract_hash";

/// How often an advance starts again when another writer was quicker.
const ATTEMPTS: usize = 8;

/// What an advance did.
#[derive(Debug, Clone, Serialize)]
pub struct Advanced {
    /// The derived table.
    pub table: TableName,
    /// How much was recomputed.
    pub mode: Mode,
    /// Units of work (keys, for a table with `keep`) that were recomputed; 0 when the whole table was.
    pub units: u64,
    /// Rows that the table did not have before.
    pub rows_added: u64,
    /// Rows that the table had before.
    pub rows_removed: u64,
    /// The table's version now; none while no source exists yet.
    pub version: Option<i64>,
}

/// How much of a derived table was recomputed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No source has anything new.
    Nothing,
    /// What the sources' changes touch.
    Incremental,
    /// Everything, with the reason.
    Whole(String),
}

impl Advanced {
    /// Whether nothing was committed.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        matches!(self.mode, Mode::Nothing)
    }
}

/// The application id under which a derived table keeps how far it has read a source.
#[must_use]
pub fn watermark_id(source: &TableName, table_id: &str) -> String {
    format!("{source}@{table_id}")
}

/// Advances every derived table, sources before what is derived from them, and tells for each what happened. What is derived
/// from a table that failed is left out: it waits. A table of changes that has much to do stops after the deadline, between
/// two slices of it.
pub async fn advance_each(lake: &Lake, deadline: Option<DateTime<Utc>>) -> Vec<(TableName, Result<Advanced>)> {
    let mut of_changes = changes::advance_all(lake, deadline).await;
    let mut stopped = stopped_changes(lake, &of_changes);
    let mut outcomes = Vec::new();
    for contract in lake.catalog.tables() {
        if let Some(outcome) = of_changes.remove(&contract.table) {
            match outcome {
                Ok(advanced) => {
                    outcomes.extend(advanced.into_iter().map(|advanced| (advanced.table.clone(), Ok(advanced))))
                }
                Err(error) => outcomes.push((contract.table.clone(), Err(error))),
            }
        }
        if contract.derivation().is_none() {
            continue;
        }
        if let Some(source) = contract.sources().into_iter().find(|source| stopped.contains(*source)) {
            tracing::warn!(table.name = %contract.table, "waits for {source}");
            stopped.insert(contract.table.clone());
            continue;
        }
        let outcome = advance(lake, contract).await;
        if outcome.is_err() {
            stopped.insert(contract.table.clone());
        }
        outcomes.push((contract.table.clone(), outcome));
    }
    outcomes
}

/// The tables of changes that failed, and their histories.
fn stopped_changes(lake: &Lake, outcomes: &BTreeMap<TableName, Result<Vec<Advanced>>>) -> BTreeSet<TableName> {
    let failed = |contract: &&Arc<Contract>| outcomes.get(&contract.table).is_some_and(Result::is_err);
    let both = |contract: &Arc<Contract>| {
        let history = contract.changes().and_then(|source| source.history.as_ref()).map(|spec| spec.table.clone());
        std::iter::once(contract.table.clone()).chain(history)
    };
    lake.catalog.tables().iter().filter(failed).flat_map(both).collect()
}

/// Brings one derived table to its sources' newest versions.
///
/// # Errors
/// Conflict when other writers were quicker every time; Invalid when the contract and the stored table or the data do not
/// agree; else what storage says.
pub async fn advance(lake: &Lake, target: &Arc<Contract>) -> Result<Advanced> {
    advance_or_recompute(lake, target, None).await
}

/// Makes one derived table anew from its sources' newest versions, for a reason that its history shows.
///
/// # Errors
/// As [`advance`].
pub async fn recompute(lake: &Lake, target: &Arc<Contract>, reason: &str) -> Result<Advanced> {
    advance_or_recompute(lake, target, Some(reason)).await
}

async fn advance_or_recompute(lake: &Lake, target: &Contract, whole: Option<&str>) -> Result<Advanced> {
    let Some(derivation) = target.derivation() else {
        return Err(Error::internal(format!("{} is not derived from other tables", target.table)));
    };
    let mut last = None;
    for attempt in 0..ATTEMPTS {
        match attempt_once(lake, target, derivation, whole).await.map_err(|e| e.within(&target.table))? {
            Attempt::Done(advanced) => return Ok(advanced),
            Attempt::Again(error) => last = Some(error),
        }
        lake.pause(attempt).await;
    }
    let error = Error::conflict(format!("{}: other writers were quicker {ATTEMPTS} times", target.table))
        .remedy("nothing is lost: the next run goes on from the watermark");
    Err(match last {
        Some(cause) => error.because(cause),
        None => error,
    })
}

enum Attempt {
    Done(Advanced),
    Again(Error),
}

/// One derived table at one snapshot with its sources pinned: what every step below needs.
struct Work<'a> {
    lake: &'a Lake,
    contract: &'a Contract,
    derivation: &'a Derivation,
    base: Snapshot,
    pins: Vec<Pin>,
    lineage: Lineage,
    /// The table's schema after the commit.
    schema: SchemaRef,
    /// Where recomputed files are written: the table's folder, unless they are only looked at.
    folder: String,
}

/// What an attempt wants to commit.
struct Done {
    mode: Mode,
    units: u64,
    rows: Replacement,
}

async fn attempt_once(lake: &Lake, target: &Contract, derivation: &Derivation, whole: Option<&str>) -> Result<Attempt> {
    let nothing = |version| {
        Attempt::Done(Advanced {
            table: target.table.clone(),
            mode: Mode::Nothing,
            units: 0,
            rows_added: 0,
            rows_removed: 0,
            version,
        })
    };
    let folder = layout::table(&target.table);
    // The derived snapshot comes first: a watermark read after its source could be ahead of it.
    let stored = match lake.table(&folder).await? {
        Some(table) => {
            let base = table.snapshot().await?;
            Some((table, base))
        }
        None => None,
    };
    let mut pins = pins::pin(lake, derivation).await?;
    if pins.iter().all(|pin| pin.snapshot.is_none()) {
        if let Some((_, base)) = &stored {
            // A source that was read before and is gone is told, not taken for empty.
            whole_reason(target, base, &mut pins).await?;
        }
        return Ok(nothing(stored.map(|(_, base)| base.version())));
    }
    let (table, base) = match stored {
        Some(stored) => stored,
        None => {
            let table = create(lake, target, &folder, &analyse(target, &pins::inputs(&pins))?).await?;
            let base = table.snapshot().await?;
            // What is pinned must not be older than the derived snapshot.
            pins = pins::pin(lake, derivation).await?;
            (table, base)
        }
    };
    let reason = whole_reason(target, &base, &mut pins).await?.or_else(|| whole.map(str::to_owned));
    let moved = pins.iter().any(|pin| pin.snapshot.as_ref().is_some_and(|now| pin.watermark != Some(now.version())));
    if reason.is_none() && !moved {
        return Ok(nothing(Some(base.version())));
    }
    let lineage = analyse(target, &pins::inputs(&pins))?;
    let schema = evolved(target, &base, &lineage.output)?;
    let evolves = *schema != *base.schema();
    let reason = reason.or_else(|| evolves.then(|| "the SQL gives other columns than before".to_owned()));
    let work = Work { lake, contract: target, derivation, base, pins, lineage, schema, folder };
    let done = match reason {
        Some(reason) => rebuild::whole(&work, reason).await?,
        None => increment(&work).await?,
    };
    commit(&table, &work, done, evolves).await
}

async fn increment(work: &Work<'_>) -> Result<Done> {
    let changes = match pins::changes(work).await? {
        Ok(changes) => changes,
        Err(reason) => return rebuild::whole(work, reason).await,
    };
    if changes.iter().all(pins::Changed::is_nothing) {
        return Ok(Done { mode: Mode::Incremental, units: 0, rows: Replacement::default() });
    }
    let done = match work.derivation.keep {
        Some(_) => keep::increment(work, &changes).await,
        None => units::increment(work, &changes).await,
    };
    match done {
        // A file of the changes was compacted or replaced since and is vacuumed now: the live files have all rows.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            rebuild::whole(work, format!("changed rows can no longer be read ({})", error.message())).await
        }
        done => done,
    }
}

/// Why the table cannot be advanced by what changed; also reads the watermarks into the pins.
async fn whole_reason(target: &Contract, base: &Snapshot, pins: &mut [Pin]) -> Result<Option<String>> {
    let txns = base.txns().await?;
    let mut reason = None;
    for pin in pins {
        let read_before = txns.keys().any(|id| id.starts_with(&format!("{}@", pin.table)));
        let Some(snapshot) = &pin.snapshot else {
            if read_before {
                return Err(Error::not_found(format!("its source {} is gone", pin.table))
                    .remedy("bring the source's folder back, or move this table's folder away too"));
            }
            continue;
        };
        pin.watermark = txns.get(&watermark_id(&pin.table, snapshot.table_id())).copied();
        let version = snapshot.version();
        let found = match pin.watermark {
            Some(watermark) if watermark > version => Some(format!("{} went back to version {version}", pin.table)),
            Some(_) => None,
            None if read_before => Some(format!("{} was created again", pin.table)),
            None => Some(format!("{} is read for the first time", pin.table)),
        };
        reason = reason.or(found);
    }
    let known = base.properties().get(CONTRACT_HASH);
    if known.is_some_and(|hash| *hash != target.hash) {
        return Ok(Some("the contract changed".to_owned()));
    }
    if known.is_none() {
        return Ok(reason.or_else(|| Some("the table does not say which contract it was made under".to_owned())));
    }
    Ok(reason)
}

async fn create(lake: &Lake, target: &Contract, folder: &str, lineage: &Lineage) -> Result<Table> {
    let mut properties = target.properties.clone();
    properties.insert(CONTRACT_HASH.to_owned(), target.hash.clone());
    let spec = TableSpec {
        schema: Arc::clone(&lineage.output),
        partition_by: target.partition_by.clone(),
        properties,
        description: target.description.clone(),
    };
    let table = Table::create(&lake.store, folder, &spec).await?;
    lake.keep(folder, &table);
    Ok(table)
}

/// The stored schema with the columns that the SQL gives beside it or wider. Columns that it gives no more stay, and read
/// null.
fn evolved(target: &Contract, base: &Snapshot, output: &Schema) -> Result<SchemaRef> {
    if base.partition_by() != target.partition_by {
        return Err(Error::invalid(format!(
            "the table is partitioned by [{}], the contract says [{}]",
            base.partition_by().join(", "),
            target.partition_by.join(", ")
        ))
        .remedy("give the table another name, or move its folder away: it is then made anew from its sources"));
    }
    let stored = base.schema();
    let mut fields: Vec<_> = stored.fields().iter().cloned().collect();
    let mut changed = false;
    for field in output.fields() {
        let known = fields.iter_mut().find(|known| known.name() == field.name());
        match known {
            Some(known) if same_type(known.data_type(), field.data_type()) => continue,
            Some(known) if widens(known.data_type(), field.data_type()) => {
                *known = Arc::new(known.as_ref().clone().with_data_type(field.data_type().clone()));
            }
            Some(known) => {
                return Err(Error::invalid(format!(
                    "column `{}` is {} in the table, the SQL gives {}",
                    field.name(),
                    known.data_type(),
                    field.data_type()
                ))
                .remedy(
                    "cast it, give it another name, or move the table's folder away: it is then made anew from its sources",
                ));
            }
            None => fields.push(Arc::clone(field)),
        }
        changed = true;
    }
    Ok(if changed { Arc::new(Schema::new(fields)) } else { stored })
}

async fn commit(table: &Table, work: &Work<'_>, done: Done, evolves: bool) -> Result<Attempt> {
    let Done { mode, units, rows } = done;
    let mut txns = Vec::new();
    let mut read = serde_json::Map::new();
    for pin in &work.pins {
        let Some(snapshot) = &pin.snapshot else { continue };
        txns.push((watermark_id(&pin.table, snapshot.table_id()), snapshot.version()));
        read.insert(pin.table.to_string(), Value::from(snapshot.version()));
    }
    let mut info = serde_json::Map::new();
    info.insert("sources".to_owned(), Value::Object(read));
    info.insert("units".to_owned(), Value::from(units));
    info.insert("rowsAdded".to_owned(), Value::from(rows.rows_added));
    info.insert("rowsRemoved".to_owned(), Value::from(rows.rows_removed));
    if let Mode::Whole(reason) = &mode {
        info.insert("recomputedWhole".to_owned(), Value::from(reason.clone()));
    }
    let mut properties = BTreeMap::new();
    if work.base.properties().get(CONTRACT_HASH) != Some(&work.contract.hash) {
        properties.insert(CONTRACT_HASH.to_owned(), work.contract.hash.clone());
    }
    let change = Change {
        operation: if matches!(mode, Mode::Whole(_)) { "RECOMPUTE" } else { "ADVANCE" }.to_owned(),
        adds: rows.adds,
        removes: rows.removes,
        txns,
        rearrange_only: false,
        schema: evolves.then(|| Arc::clone(&work.schema)),
        properties,
        info,
    };
    #[cfg(feature = "mutations")]
    if !work.lake.store.keeps(Safeguard::WatermarkWithRows) {
        let mut rows = change;
        let watermark = Change { txns: std::mem::take(&mut rows.txns), ..Change::default() };
        return Ok(match table.commit(&work.base, watermark).await? {
            Outcome::Committed(base) => match table.commit(&base, rows).await? {
                Outcome::Committed(_) => Attempt::Again(Error::conflict("the rows came after their watermark")),
                Outcome::Unknown(error) => Attempt::Again(error),
            },
            Outcome::Unknown(error) => Attempt::Again(error),
        });
    }
    match table.commit(&work.base, change).await? {
        Outcome::Committed(now) => {
            if let Mode::Whole(reason) = &mode {
                tracing::info!(table.name = %work.contract.table, table.version = now.version(), "recomputed whole: {reason}");
            }
            Ok(Attempt::Done(Advanced {
                table: work.contract.table.clone(),
                mode,
                units,
                rows_added: rows.rows_added,
                rows_removed: rows.rows_removed,
                version: Some(now.version()),
            }))
        }
        Outcome::Unknown(error) => Ok(Attempt::Again(error)),
    }
}

/// The SQL of a derivation; none for a named transform.
fn sql_of(derivation: &Derivation) -> Option<&str> {
    match &derivation.body {
        Body::Sql(sql) => Some(sql),
        Body::Named { .. } => None,
    }
}

#[cfg(test)]
mod tests;
