//! Backfill: derived tables are recomputed from their sources with the code that keeps them, any difference is told, and
//! mended by the commit that makes a table anew. Each table is compared with its own sources, so that together they are
//! what the files make of them.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::name::TableName;
use crate::pipeline::commit::TableFailure;
use crate::pipeline::lake::Lake;
use crate::pipeline::layers::{self, Difference, Verdict, changes};
use crate::schema::Contract;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is backfilled, and how.
#[derive(Debug, Clone, Default)]
pub struct BackfillOptions {
    /// Only these tables; none means all that are derived.
    pub only: Vec<TableName>,
    /// Tell differences and mend none.
    pub verify: bool,
    /// No table is begun after this.
    pub deadline: Option<DateTime<Utc>>,
}

/// What a backfill found and did.
#[derive(Debug, Default, Serialize)]
pub struct BackfillReport {
    /// One entry for each table that was looked at.
    pub tables: Vec<Backfilled>,
    /// Tables that were left to the next run because the time was over.
    pub left: Vec<TableName>,
    /// Tables that stopped, with the reason and its remedy; the others went on.
    pub failed: Vec<TableFailure>,
}

impl BackfillReport {
    /// Whether any table was not what its sources make it.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.tables.iter().any(|table| !table.difference.is_none())
    }
}

/// One table of a backfill.
#[derive(Debug, Clone, Serialize)]
pub struct Backfilled {
    /// The table.
    pub table: TableName,
    /// What came of it.
    pub outcome: Outcome,
    /// Rows that its sources make.
    pub rows: u64,
    /// By how many rows it was not that.
    #[serde(flatten)]
    pub difference: Difference,
    /// Why it was not compared.
    pub reason: Option<String>,
    /// The version that mended it.
    pub version: Option<i64>,
}

/// What came of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is what its sources make it.
    Same,
    /// It is not.
    Differs,
    /// It was not, and is now.
    Mended,
    /// It could not be compared with what it was made from, and was made anew.
    Remade,
    /// It could not be compared.
    Skipped,
}

impl Outcome {
    /// The outcome as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::Mended => "mended",
            Self::Remade => "remade",
            Self::Skipped => "skipped",
        }
    }
}

/// The derived tables that a backfill is about, sources before what is derived from them.
///
/// # Errors
/// A name is not that of a derived table.
pub fn targets(lake: &Lake, only: &[TableName]) -> Result<Vec<Arc<Contract>>> {
    for name in only {
        let contract = lake.catalog.get(name);
        let contract = contract.ok_or_else(|| Error::not_found(format!("no contract declares {name}")))?;
        if contract.files().is_some() {
            return Err(Error::invalid(format!("{name} is fed by files, not by other tables"))
                .remedy("name a derived table, or none for all of them"));
        }
    }
    // A history is kept beside its table, and looked at with it.
    let asked = |contract: &&Arc<Contract>| {
        let history = contract.changes().and_then(|source| source.history.as_ref()).map(|history| &history.table);
        only.is_empty() || only.contains(&contract.table) || history.is_some_and(|history| only.contains(history))
    };
    let derived = |contract: &&Arc<Contract>| contract.derivation().is_some() || contract.changes().is_some();
    Ok(lake.catalog.tables().iter().filter(derived).filter(asked).map(Arc::clone).collect())
}

/// Looks at every table asked for, and mends it unless it is only to be verified. `done` is called after each.
///
/// # Errors
/// A name is not that of a derived table. A table's own trouble is in the report.
pub async fn backfill(
    lake: &Lake,
    options: &BackfillOptions,
    mut done: impl FnMut(&TableName) + Send,
) -> Result<BackfillReport> {
    let mut targets = targets(lake, &options.only)?;
    if options.deadline.is_some() {
        let turn = lake.turn(targets.len());
        targets.rotate_left(turn);
    }
    let mut report = BackfillReport::default();
    let mut stopped: BTreeSet<TableName> = BTreeSet::new();
    for contract in targets {
        let name = &contract.table;
        if options.deadline.is_some_and(|deadline| lake.clock.now() >= deadline) {
            report.left.push(name.clone());
            continue;
        }
        let waits_for = contract.sources().into_iter().find(|source| stopped.contains(*source)).cloned();
        let outcome = match waits_for {
            Some(source) => Err(Error::unavailable(format!("it waits for {source}, which stopped"))),
            None if contract.changes().is_some() => of_changes(lake, &contract, options.verify).await,
            None if options.verify => verify(lake, &contract).await.map(|table| vec![table]),
            None => mend(lake, &contract).await.map(|table| vec![table]),
        };
        match outcome {
            Ok(tables) => report.tables.extend(tables),
            Err(error) => {
                tracing::error!(table.name = %name, error.kind = error.kind().as_str(), "{}", error.describe());
                report.failed.push(TableFailure { table: name.clone(), error: error.describe() });
                stopped.insert(name.clone());
            }
        }
        done(name);
    }
    Ok(report)
}

/// A table of changes with its history: what is wrong with one of them is mended by making all of it anew.
async fn of_changes(lake: &Lake, contract: &Arc<Contract>, only_verify: bool) -> Result<Vec<Backfilled>> {
    if !only_verify {
        // Up to date first, as the committer would bring it.
        changes::advance(lake, contract, None).await?;
    }
    let verdicts = changes::verify(lake, contract).await?;
    let mut tables: Vec<Backfilled> = verdicts.into_iter().map(|(table, verdict)| told(&table, verdict)).collect();
    let worst = |outcome| tables.iter().any(|table| table.outcome == outcome);
    let (outcome, reason) = match (worst(Outcome::Differs), worst(Outcome::Skipped)) {
        _ if only_verify => return Ok(tables),
        (true, _) => (Outcome::Mended, "backfill found a difference"),
        (false, true) if lake.table(&crate::layout::table(&contract.table)).await?.is_some() => {
            (Outcome::Remade, "backfill could not compare it")
        }
        _ => return Ok(tables),
    };
    for made in changes::recompute(lake, contract, reason).await? {
        if let Some(table) = tables.iter_mut().find(|table| table.table == made.table) {
            (table.outcome, table.version) = (outcome, made.version);
            if outcome == Outcome::Remade {
                table.rows = made.rows_added;
            }
        }
    }
    Ok(tables)
}

async fn verify(lake: &Lake, contract: &Arc<Contract>) -> Result<Backfilled> {
    Ok(told(&contract.table, layers::verify(lake, contract).await?))
}

/// A verdict in words.
fn told(table: &TableName, verdict: Verdict) -> Backfilled {
    let mut table = Backfilled {
        table: table.clone(),
        outcome: Outcome::Same,
        rows: 0,
        difference: Difference::default(),
        reason: None,
        version: None,
    };
    match verdict {
        Verdict::Compared { rows, difference } => {
            table.rows = rows;
            table.difference = difference;
            if !difference.is_none() {
                table.outcome = Outcome::Differs;
                tracing::error!(
                    table.name = %table.table,
                    missing = difference.missing,
                    extra = difference.extra,
                    different = difference.different,
                    "the table is not what its sources make it"
                );
            }
        }
        Verdict::Skipped(reason) => {
            table.outcome = Outcome::Skipped;
            table.reason = Some(reason);
        }
    }
    table
}

async fn mend(lake: &Lake, contract: &Arc<Contract>) -> Result<Backfilled> {
    // Up to date first, as the committer would bring it.
    let advanced = layers::advance(lake, contract).await?;
    let mut table = verify(lake, contract).await?;
    if advanced.version.is_none() || table.outcome == Outcome::Same {
        return Ok(table);
    }
    let (outcome, reason) = match table.outcome {
        Outcome::Differs => (Outcome::Mended, "backfill found a difference"),
        _ => (Outcome::Remade, "backfill could not compare it"),
    };
    let made = layers::recompute(lake, contract, reason).await?;
    table.outcome = outcome;
    table.version = made.version;
    if outcome == Outcome::Remade {
        table.rows = made.rows_added;
    }
    Ok(table)
}
