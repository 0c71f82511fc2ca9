//! The lake: catalog, stores, clock and settings, the single argument of every step.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::decode::Options;
use crate::error::Result;
use crate::landing::Landing;
use crate::name::BatchId;
use crate::pipeline::ledger;
use crate::store::Store;
use crate::table::Table;

/// Sizes, ages and limits of the pipeline.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A table's staged batches are due for a commit at this many rows ...
    pub commit_rows: u64,
    /// ... or bytes ...
    pub commit_bytes: u64,
    /// ... or when the oldest of them is this old.
    pub commit_age: Duration,
    /// A staged batch (per partition value) of this many bytes is final Parquet and adopted as it is.
    pub adopt_bytes: u64,
    /// Size of Parquet files that the committer writes.
    pub target_file_bytes: u64,
    /// Memory that the SQL engine and the writers may use, in bytes.
    pub memory_bytes: u64,
    /// Worker threads for CPU-bound work.
    pub threads: usize,
    /// Unreferenced files in a table's folder younger than this are never deleted; half of it bounds adoption.
    pub orphan_retention: Duration,
}

impl Settings {
    /// How files are decoded within the memory that one of the workers may use.
    #[must_use]
    pub fn decode_options(&self) -> Options {
        Options::within(self.memory_bytes)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            commit_rows: 1_000_000,
            commit_bytes: 128 << 20,
            commit_age: Duration::from_secs(10),
            adopt_bytes: 32 << 20,
            target_file_bytes: 128 << 20,
            memory_bytes: 512 << 20,
            threads: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            orphan_retention: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// Everything a step needs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Lake {
    /// All contracts.
    pub catalog: Arc<Catalog>,
    /// The lake's root.
    pub store: Store,
    /// The landing zone.
    pub landing: Landing,
    /// Time and fresh names.
    pub clock: Arc<dyn Clock>,
    /// Sizes and limits.
    pub settings: Arc<Settings>,
    /// The ledger as last read. Only [`crate::pipeline::ledger`] uses it.
    pub(crate) ledger: Arc<tokio::sync::Mutex<Arc<ledger::Index>>>,
    /// Batches that this process is staging now: saves work, guards nothing.
    pub(crate) in_flight: Arc<InFlight>,
    open: Arc<Mutex<HashMap<String, Table>>>,
}

/// Batches that are being staged, and a bell for those who wait.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    batches: Mutex<HashSet<BatchId>>,
    done: tokio::sync::Notify,
}

impl InFlight {
    /// Enters the batch as soon as nobody else of this process has it; it leaves when the guard is dropped.
    pub(crate) async fn enter(self: &Arc<Self>, batch: &BatchId) -> Staging {
        loop {
            let mut bell = std::pin::pin!(self.done.notified());
            // Before looking: who leaves after the look must be heard.
            bell.as_mut().enable();
            if self.batches.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(batch.clone()) {
                return Staging { in_flight: Arc::clone(self), batch: batch.clone() };
            }
            bell.await;
        }
    }
}

/// A batch that is being staged; leaving is dropping it, however the worker ends.
#[derive(Debug)]
pub(crate) struct Staging {
    in_flight: Arc<InFlight>,
    batch: BatchId,
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.in_flight.batches.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.batch);
        self.in_flight.done.notify_waiters();
    }
}

impl Lake {
    /// Puts the parts together.
    #[must_use]
    pub fn new(catalog: Catalog, store: Store, landing: Landing, clock: Arc<dyn Clock>, settings: Settings) -> Self {
        Self {
            catalog: Arc::new(catalog),
            store,
            landing,
            clock,
            settings: Arc::new(settings),
            ledger: Arc::default(),
            in_flight: Arc::default(),
            open: Arc::default(),
        }
    }

    /// The same lake under other contracts.
    #[must_use]
    pub fn with_catalog(&self, catalog: Catalog) -> Self {
        Self { catalog: Arc::new(catalog), ..self.clone() }
    }

    /// The same lake for one of `parts` pieces of work that run at once: each may use an equal share of the memory.
    #[must_use]
    pub fn with_share_of_memory(&self, parts: u64) -> Self {
        let memory_bytes = self.settings.memory_bytes / parts.max(1);
        Self { settings: Arc::new(Settings { memory_bytes, ..(*self.settings).clone() }), ..self.clone() }
    }

    /// The table in `folder` (see [`crate::layout`]), opened once and kept; none when there is none yet.
    pub async fn table(&self, folder: &str) -> Result<Option<Table>> {
        if let Some(table) = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(folder) {
            return Ok(Some(table.clone()));
        }
        let Some(table) = Table::open(&self.store, folder).await? else { return Ok(None) };
        self.keep(folder, &table);
        Ok(Some(table))
    }

    /// Remembers an open table.
    pub fn keep(&self, folder: &str, table: &Table) {
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(folder.to_owned(), table.clone());
    }

    /// A number below `count`, another each time: where a run begins whose time may be over before it is through, so that
    /// none is always the last.
    #[must_use]
    pub fn turn(&self, count: usize) -> usize {
        let hash =
            self.clock.fresh().bytes().fold(0_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        hash % count.max(1)
    }

    /// Whether a file of this time is too old to become part of a table: a vacuum whose fence a snapshot of now may have
    /// missed is no danger to anything younger.
    #[must_use]
    pub fn is_too_old(&self, written: DateTime<Utc>) -> bool {
        let limit = TimeDelta::from_std(self.settings.orphan_retention / 2).unwrap_or(TimeDelta::MAX);
        self.clock.now().signed_duration_since(written) >= limit
    }

    /// Waits a little before the same commit is tried again: longer each time, and not the same for two processes.
    pub async fn pause(&self, attempt: usize) {
        let jitter = self.clock.fresh().bytes().map(u64::from).sum::<u64>() % 17;
        let millis = (1_u64 << attempt.min(7)) + jitter;
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}
