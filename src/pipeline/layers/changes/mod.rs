//! Tables of changes: what a database's events come to. The events of one of its tables become kept changes, and these the
//! present rows, their history and their quarantine, key by key.
//!
//! ```text
//! bronze --feed----> _alluvium/state/silver/<table>   kept changes: one row a delivery, typed and judged (append-only)
//!        --derive--> silver, history, quarantine      all that is known of each touched key is walked through again
//! ```
//!
//! Each of the four tables keeps for itself up to which version of bronze it has come, in the commit of its rows: a crash
//! between two of them leaves one behind, and the next run mends it. A kept change has the version of bronze that it was
//! read with: the keys that a table has to look at again are those of younger changes, whatever was compacted meanwhile.

mod derive;
mod feed;
mod gather;
mod target;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::{FutureExt, StreamExt, stream};

use super::{ATTEMPTS, Advanced, Mode};
use crate::change::image::Images;
use crate::change::walk::{HistoryShape, Shape};
use crate::error::{Error, Result};
use crate::layout;
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::schema::arrow::stored_schema;
use crate::schema::{ChangeSource, Contract};
use crate::table::Snapshot;

pub(in crate::pipeline) use target::{behind, ties};
pub use verify::verify;

/// A table that has nothing to say about so few versions of bronze says nothing: its watermark moves with the next change.
const QUIET: i64 = 32;

/// Kept changes say how far they are when bronze's newest version has been there for so long: nothing more may come, and
/// the upkeep keeps what bronze removed until its slowest reader has seen that.
const QUIET_FOR: TimeDelta = TimeDelta::hours(1);

/// Memory from which on a table of changes is worth an own share of it. With less, one is worked on at a time.
const SHARE: u64 = 256 << 20;

/// One table of changes at work.
struct Work<'a> {
    lake: &'a Lake,
    contract: &'a Contract,
    source: &'a ChangeSource,
    history: Option<&'a Contract>,
    shape: Shape,
    images: Arc<Images>,
}

/// How far a step came.
enum Step {
    /// The tables are where the step meant to bring them; whether bronze has more.
    Done(Vec<Advanced>, bool),
    /// Another writer was quicker.
    Again(Error),
}

/// Brings all tables of changes to the newest version of bronze, as far as the time allows: several at once where cores and
/// memory are enough, each with its share of the memory. They are made from tables that files or streams feed, and from
/// nothing else: none waits for another.
pub async fn advance_all(lake: &Lake, deadline: Option<DateTime<Utc>>) -> BTreeMap<TableName, Result<Vec<Advanced>>> {
    let contracts: Vec<_> = lake.catalog.tables().iter().filter(|contract| contract.changes().is_some()).collect();
    let shares = usize::try_from(lake.settings.memory_bytes / SHARE).unwrap_or(usize::MAX);
    let at_once = lake.settings.threads.min(shares).clamp(1, contracts.len().max(1));
    let lake = lake.with_share_of_memory(at_once as u64);
    let advance_one = |contract: &'_ Arc<Contract>| {
        let (lake, contract) = (lake.clone(), Arc::clone(contract));
        async move { (contract.table.clone(), advance(&lake, &contract, deadline).await) }.boxed()
    };
    stream::iter(contracts).map(advance_one).buffer_unordered(at_once).collect().await
}

/// Brings a table of changes, its history and its quarantine to the newest version of bronze, slice by slice, as far as the
/// time allows, and at least one slice. Tells of the table, and of its history if it has one.
///
/// # Errors
/// As [`super::advance`].
pub async fn advance(lake: &Lake, contract: &Contract, deadline: Option<DateTime<Utc>>) -> Result<Vec<Advanced>> {
    run(lake, contract, None, deadline).await.map_err(|e| e.within(&contract.table))
}

/// Makes the kept changes anew from bronze, and all that follows from them.
///
/// # Errors
/// As [`super::advance`].
pub async fn recompute(lake: &Lake, contract: &Contract, reason: &str) -> Result<Vec<Advanced>> {
    run(lake, contract, Some(reason), None).await.map_err(|e| e.within(&contract.table))
}

async fn run(
    lake: &Lake,
    contract: &Contract,
    whole: Option<&str>,
    deadline: Option<DateTime<Utc>>,
) -> Result<Vec<Advanced>> {
    let work = Work::new(lake, contract)?;
    let mut told: Vec<Advanced> = Vec::new();
    let mut whole = whole;
    let mut attempt = 0;
    loop {
        match step(&work, whole).await? {
            Step::Done(advanced, more) => {
                add(&mut told, advanced);
                // A slice went through: the next one has all its attempts again.
                (attempt, whole) = (0, None);
                if !more || deadline.is_some_and(|deadline| lake.clock.now() >= deadline) {
                    return Ok(told);
                }
            }
            Step::Again(error) if attempt + 1 == ATTEMPTS => {
                return Err(Error::conflict(format!("other writers were quicker {ATTEMPTS} times"))
                    .remedy("nothing is lost: the next run goes on from the watermark")
                    .because(error));
            }
            Step::Again(_) => {
                lake.pause(attempt).await;
                attempt += 1;
            }
        }
    }
}

/// What several slices did, together.
fn add(told: &mut Vec<Advanced>, more: Vec<Advanced>) {
    for advanced in more {
        let Some(before) = told.iter_mut().find(|known| known.table == advanced.table) else {
            told.push(advanced);
            continue;
        };
        if !matches!(before.mode, Mode::Whole(_)) && !advanced.is_nothing() {
            before.mode = advanced.mode;
        }
        before.units += advanced.units;
        before.rows_added += advanced.rows_added;
        before.rows_removed += advanced.rows_removed;
        before.version = advanced.version;
    }
}

async fn step(work: &Work<'_>, whole: Option<&str>) -> Result<Step> {
    let lake = work.lake;
    let Some(bronze) = lake.table(&layout::table(&work.source.from)).await? else {
        return Ok(Step::Done(work.nothing(&[]), false));
    };
    // What is derived comes first, bronze last: a watermark that is read after its source could be ahead of it.
    let targets = target::open(work).await?;
    let state = feed::open(work).await?;
    let fed = match feed::feed(work, &state, &bronze, whole).await? {
        feed::Feed::Fed(fed) => fed,
        feed::Feed::Again(error) => return Ok(Step::Again(error)),
    };
    let more = fed.more;
    derive::derive(work, targets, fed).await.map(|outcome| match outcome {
        Ok(advanced) => Step::Done(advanced, more),
        Err(error) => Step::Again(error),
    })
}

impl<'a> Work<'a> {
    fn new(lake: &'a Lake, contract: &'a Contract) -> Result<Self> {
        let source =
            contract.changes().ok_or_else(|| Error::internal(format!("{} is no table of changes", contract.table)))?;
        let history = match &source.history {
            Some(spec) => Some(lake.catalog.get(&spec.table).map(AsRef::as_ref).ok_or_else(|| {
                Error::internal(format!("the catalog has no contract of the history {}", spec.table))
            })?),
            None => None,
        };
        let history_shape = history.zip(source.history.as_ref());
        let shape = Shape {
            source_table: source.source_table.clone(),
            key: contract.primary_key.clone(),
            sequence: source.sequence_columns(),
            columns: stored_schema(contract),
            history: history_shape
                .map(|(contract, spec)| HistoryShape { columns: stored_schema(contract), track: spec.track.clone() }),
        };
        let images = Arc::new(Images::new(contract)?);
        Ok(Self { lake, contract, source, history, shape, images })
    }

    /// The names of the table and its history, each with what nothing does to it.
    fn nothing(&self, snapshots: &[&Snapshot]) -> Vec<Advanced> {
        let tables = std::iter::once(self.contract).chain(self.history);
        let nothing = |(at, contract): (usize, &Contract)| Advanced {
            table: contract.table.clone(),
            mode: Mode::Nothing,
            units: 0,
            rows_added: 0,
            rows_removed: 0,
            version: snapshots.get(at).map(|snapshot| snapshot.version()),
        };
        tables.enumerate().map(nothing).collect()
    }

    /// Bytes of changes that are held at once.
    fn held_bytes(&self) -> usize {
        // Beside them stand their copy in order, and what they come to.
        usize::try_from((self.lake.settings.memory_bytes / 3).min(512 << 20)).unwrap_or(usize::MAX)
    }
}
