//! The composition root: from a configuration to the lake and the queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::catalog::{Catalog, Diagnostic};
use crate::clock::Clock;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::event::stream::StreamRecord;
use crate::event::{self, FileEvent, Refused, Scope};
use crate::http::Steps;
use crate::manifest::FileVersion;
use crate::name::TableName;
use crate::pipeline;
use crate::pipeline::deliver::KeyOf;
use crate::pipeline::lake::{Lake, Settings};
use crate::pipeline::{compared, reconcile};
use crate::queue::{self, Queue};

mod backends;

pub use backends::Backends;

mod contracts;

use contracts::Current;

/// One run of the committer ends after this long and leaves the rest to the next, well inside the functions' time.
const COMMIT_SLICE: TimeDelta = TimeDelta::seconds(120);

/// One run of the upkeep begins nothing new after this long: its longest single step fits into what the functions have left.
const MAINTAIN_SLICE: TimeDelta = TimeDelta::seconds(240);

/// One backfill begins no table after this long.
const BACKFILL_SLICE: TimeDelta = TimeDelta::seconds(240);

/// Everything behind the handlers. The lake is opened by the first call that needs it.
#[derive(Debug)]
pub struct App {
    config: Config,
    clock: Arc<dyn Clock>,
    backends: Backends,
    queue: Queue,
    lake: Current,
    /// The host puts no bound on invocations at a time; more files at once than this only cost memory.
    ingesting: Semaphore,
}

/// All contracts.
///
/// # Errors
/// All mistakes of all contracts, in one message.
pub fn open_catalog(config: &Config) -> Result<Catalog> {
    Catalog::load(&config.schemas).map_err(|found| contract_mistakes(&found))
}

/// The lake that the configuration names.
///
/// # Errors
/// A contract or the storage account's settings are wrong, or a folder cannot be used.
pub fn open_lake(config: &Config, clock: Arc<dyn Clock>) -> Result<Lake> {
    let catalog = open_catalog(config)?;
    Backends::open(config, clock)?.lake(catalog)
}

/// Sizes and limits as configured.
#[must_use]
pub fn settings(config: &Config) -> Settings {
    let default = Settings::default();
    Settings {
        commit_rows: config.commit_rows,
        commit_bytes: config.commit_bytes,
        commit_age: config.commit_age,
        orphan_retention: config.orphan_retention,
        memory_bytes: config.memory_bytes,
        threads: config.threads.unwrap_or(default.threads),
        ..default
    }
}

fn contract_mistakes(found: &[Diagnostic]) -> Error {
    let mut lines = Vec::new();
    for mistake in found.iter().filter(|diagnostic| diagnostic.is_error) {
        let help = mistake.help.as_ref().map_or_else(String::new, |help| format!(" ({help})"));
        lines.push(format!("{}:{}:{}: {}{help}", mistake.file, mistake.line, mistake.column, mistake.message));
    }
    Error::invalid(format!("the contracts have mistakes: {}", lines.join("; ")))
        .remedy("run `alluvium check` and mend them; nothing was done with any file")
}

impl App {
    /// An application of this configuration. Nothing is opened yet.
    ///
    /// # Errors
    /// The storage account's settings are wrong.
    pub fn new(config: Config, clock: Arc<dyn Clock>) -> Result<Self> {
        let backends = Backends::open(&config, Arc::clone(&clock))?;
        let queue = backends.queue();
        let ingesting = Semaphore::new(2 * config.threads.unwrap_or_else(|| Settings::default().threads));
        Ok(Self { config, clock, backends, queue, lake: Current::default(), ingesting })
    }

    /// The lake, opened at the first call, under the contracts as they are now.
    ///
    /// # Errors
    /// A contract is wrong, or a folder cannot be used. A failure is not kept: a contract that was mended is read anew.
    pub async fn lake(&self) -> Result<Lake> {
        let backends = self.backends.clone();
        let open = move || backends.lake(open_catalog(backends.config())?);
        self.lake.lake(&self.config.schemas, open).await
    }

    /// The queues.
    #[must_use]
    pub const fn queue(&self) -> &Queue {
        &self.queue
    }

    async fn announce(&self, files: &[FileVersion]) -> Result<()> {
        announce(&self.queue, &self.config.queue_name, files, &self.scope(), &*self.clock).await
    }

    /// A file that changes while this looks at it is left to its own event or to the next time.
    async fn announce_at_rest(&self, lake: &Lake, found: Vec<FileVersion>) -> Result<usize> {
        if found.is_empty() {
            return Ok(0);
        }
        tokio::time::sleep(self.config.arrival_hold).await;
        let mut at_rest = Vec::with_capacity(found.len());
        for version in found {
            if lake.landing.unchanged(&version).await? {
                at_rest.push(version);
            }
        }
        self.announce(&at_rest).await?;
        Ok(at_rest.len())
    }
}

fn report(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Error::internal("a report").because(error))
}

#[async_trait]
impl Steps for App {
    fn scope(&self) -> Scope {
        self.backends.scope()
    }

    async fn ingest(&self, event: &FileEvent) -> Result<Value> {
        let _turn = self.ingesting.acquire().await.map_err(|error| Error::internal("ingest").because(error))?;
        report(&pipeline::ingest::ingest(&self.lake().await?, event).await?)
    }

    async fn note_failure(&self, event: &FileEvent, reason: &str, transient: bool, attempts: u32) -> Result<()> {
        pipeline::notes::note_failure(&self.lake().await?, event, reason, transient, attempts).await
    }

    async fn give_up(&self, event: &FileEvent, attempts: u32) -> Result<Vec<String>> {
        pipeline::notes::give_up(&self.lake().await?, event, attempts).await
    }

    async fn note_unreadable(&self, name: &str, bytes: u64, reason: &str, attempts: u32) -> Result<()> {
        pipeline::notes::note_unreadable(&self.lake().await?, name, bytes, reason, attempts).await
    }

    async fn put_back(&self, message: Vec<u8>, delay: Duration) -> Result<()> {
        self.queue.send(&self.config.queue_name, message, delay).await.map(drop)
    }

    async fn deliver(&self, records: Vec<StreamRecord>, key_of: KeyOf) -> Result<Value> {
        let _turn = self.ingesting.acquire().await.map_err(|error| Error::internal("deliver").because(error))?;
        report(&pipeline::deliver::deliver(&self.lake().await?, records, key_of).await?)
    }

    async fn commit(&self, force: bool) -> Result<Value> {
        let deadline = Some(self.clock.now() + COMMIT_SLICE);
        let options = pipeline::commit::CommitOptions { force, deadline };
        let done = pipeline::commit::commit(&self.lake().await?, options).await?;
        // Their staged data is gone; they are listed at every tick until they are staged anew.
        self.announce(&done.restage).await?;
        if done.failed.is_empty() {
            return report(&done);
        }
        // The other tables went on. The function fails so that the host's own monitoring sees it too.
        let tables: Vec<String> = done.failed.iter().map(|failure| failure.table.to_string()).collect();
        Err(Error::internal(format!("stopped: {}", tables.join(", ")))
            .remedy("each one's reason was logged before this"))
    }

    async fn maintain(&self) -> Result<Value> {
        let deadline = Some(self.clock.now() + MAINTAIN_SLICE);
        let done = pipeline::maintain::maintain(&self.lake().await?, deadline).await?;
        if done.failed.is_empty() {
            return report(&done);
        }
        let tables: Vec<&str> = done.failed.iter().map(|failure| failure.table.as_str()).collect();
        Err(Error::internal(format!("upkeep stopped: {}", tables.join(", ")))
            .remedy("each one's reason was logged before this"))
    }

    async fn derived(&self) -> Result<Vec<TableName>> {
        let lake = self.lake().await?;
        let derived = pipeline::backfill::targets(&lake, &[])?;
        Ok(derived.iter().map(|contract| contract.table.clone()).collect())
    }

    async fn backfill(&self, table: Option<&TableName>) -> Result<Value> {
        let only = table.into_iter().cloned().collect();
        let deadline = Some(self.clock.now() + BACKFILL_SLICE);
        let options = pipeline::backfill::BackfillOptions { only, verify: false, deadline };
        let done = pipeline::backfill::backfill(&self.lake().await?, &options, |_| {}).await?;
        if done.failed.is_empty() {
            return report(&done);
        }
        let tables: Vec<String> = done.failed.iter().map(|failure| failure.table.to_string()).collect();
        Err(Error::internal(format!("backfill stopped: {}", tables.join(", ")))
            .remedy("each one's reason was logged before this"))
    }

    async fn note_refused(&self, refused: &Refused) -> Result<()> {
        let Refused { name, etag, bytes, error } = refused;
        let source = FileVersion {
            path: name.clone(),
            etag: etag.clone().unwrap_or_default(),
            bytes: bytes.unwrap_or_default(),
            last_modified: chrono::DateTime::UNIX_EPOCH,
            sequencer: None,
        };
        pipeline::notes::note_refused(&self.lake().await?, &source, &error.describe()).await.map(drop)
    }

    async fn reconcile(&self) -> Result<usize> {
        let lake = self.lake().await?;
        let compared = match reconcile::compare(&lake).await {
            Ok(compared) => compared,
            Err(error) => {
                compared::record(&lake, None, Some(&error)).await;
                return Err(error);
            }
        };
        let announced = self.announce_at_rest(&lake, compared.missing).await;
        let failed = announced.as_ref().err().or(compared.unlisted.as_ref());
        let found = (compared.left_out.as_slice(), announced.as_ref().map_or(0, |announced| *announced));
        compared::record(&lake, Some(found), failed).await;
        let announced = announced?;
        match compared.unlisted {
            // What comes after it was not listed. (A folder that cannot be read is told by the status, and hides no other.)
            Some(error) if lake.landing.folder().is_none() => Err(error),
            _ => Ok(announced),
        }
    }

    async fn status(&self) -> Result<Value> {
        let mut status = pipeline::status::status(&self.lake().await?).await?;
        status.contracts = self.lake.broken().await;
        status.queues = Some(queue::depths(&self.queue, &self.config.queue_name).await);
        report(&status)
    }
}

/// Puts landed files into a queue, as events found by listing.
///
/// # Errors
/// Not all of them are in the queue. Those that are do no harm when they are sent again.
pub async fn announce(
    queue: &Queue,
    name: &str,
    files: &[FileVersion],
    scope: &Scope,
    clock: &dyn Clock,
) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let bodies = files.iter().map(|file| event::announcement(file, scope, clock)).collect();
    queue.send_all(name, bodies, Duration::ZERO).await.map(drop)
}
