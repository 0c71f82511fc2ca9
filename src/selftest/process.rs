//! A process of a run: it is called as the host calls its functions, and everything it does goes through its script.

use std::sync::Arc;

use super::world::{VISIBILITY, World};
use crate::app::announce;
use crate::error::{Error, Result};
use crate::event::{self, Item};
use crate::faults::Script;
use crate::http::Function;
use crate::pipeline::backfill::{BackfillOptions, backfill};
use crate::pipeline::commit::{CommitOptions, CommitReport, commit};
use crate::pipeline::deliver::{KeyOf, deliver};
use crate::pipeline::ingest::ingest;
use crate::pipeline::lake::Lake;
use crate::pipeline::maintain::maintain;
use crate::pipeline::notes::give_up;
use crate::pipeline::reconcile::missing;
use crate::pipeline::status::status;
use crate::queue::{Message, Queue, poison};

/// A process: nothing in its memory is shared with another one.
pub struct Process {
    world: Arc<World>,
    /// The lake as it sees it, but for its contracts.
    lake: Lake,
    queue: Queue,
    script: Arc<Script>,
}

impl Process {
    pub(super) const fn new(world: Arc<World>, lake: Lake, queue: Queue, script: Arc<Script>) -> Self {
        Self { world, lake, queue, script }
    }

    /// The lake as it sees it, under the contracts that are deployed now.
    fn lake(&self) -> Lake {
        self.lake.with_catalog(self.world.catalog())
    }

    /// Whether it is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.script.is_dead()
    }

    /// What happens next, but for what it does itself, is that a file lands, or something else.
    pub(super) fn before_landing(&self, is_it: bool) {
        self.script.before_landing(is_it);
    }

    /// Calls a function whose failure is no news: its trigger comes again. When the process dies, nothing of it goes on.
    pub(super) async fn try_invoke(&self, function: Function) {
        let work = Box::pin(self.invoke(function));
        tokio::select! {
            biased;
            () = self.script.died() => {}
            outcome = work => {
                if let Err(error) = outcome {
                    tracing::debug!(function.name = function.name(), "{}", error.describe());
                }
            }
        }
    }

    /// Calls a function as its trigger does, for all that there is to do. A new function has to say here what a call of it is.
    ///
    /// # Errors
    /// It failed, or a table stopped.
    pub(super) async fn invoke(&self, function: Function) -> Result<()> {
        let failed = |error: Error| error.within(function.name());
        match function {
            Function::Ingest => self.receive(self.world.queue_name(), function).await,
            Function::Poison => self.receive(&poison(self.world.queue_name()), function).await,
            // One stream, delivered by one trigger: the other's is the same handler with another payload.
            Function::CdcKafka => self.deliver().await,
            Function::CdcEventhubs => Ok(()),
            Function::Commit => self.commit().await.map(drop),
            Function::Maintain => self.maintain().await,
            Function::Backfill => self.backfill(false).await,
            Function::BackfillNow => self.backfill(true).await,
            Function::Reconcile => self.reconcile().await,
            Function::Status => status(&self.lake()).await.map(drop),
        }
        .map_err(failed)
    }

    /// Every visible message once. One that fails comes back by itself.
    async fn receive(&self, queue: &str, function: Function) -> Result<()> {
        let mut failed = None;
        loop {
            let received = self.queue.receive(queue, 1, VISIBILITY).await?;
            let Some(message) = received.into_iter().next() else { break };
            if let Err(error) = self.take(&message, function).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn take(&self, message: &Message, function: Function) -> Result<()> {
        for item in event::parse(&message.body, &World::scope())? {
            match item {
                Item::File(event, _) if function == Function::Poison => {
                    give_up(&self.lake(), &event, message.dequeue_count).await?;
                }
                Item::File(event, _) => {
                    ingest(&self.lake(), &event).await?;
                }
                Item::Skipped { .. } | Item::Refused(_) => {}
                Item::Broken(error) => return Err(error),
            }
        }
        self.queue.delete(message).await.map(drop)
    }

    /// The pieces that wait, in order: a trigger does not go on behind one that failed.
    async fn deliver(&self) -> Result<()> {
        for (number, piece) in self.world.waiting() {
            deliver(&self.lake(), piece, KeyOf::Record).await?;
            self.world.acknowledged(number);
        }
        Ok(())
    }

    /// One run of the committer.
    pub(super) async fn commit(&self) -> Result<CommitReport> {
        let report = commit(&self.lake(), CommitOptions { force: true, deadline: None }).await?;
        announce(&self.queue, self.world.queue_name(), &report.restage, &World::scope(), self.world.time()).await?;
        stopped(report.failed.iter().map(|failure| format!("{}: {}", failure.table, failure.error)).collect())?;
        Ok(report)
    }

    async fn maintain(&self) -> Result<()> {
        let report = maintain(&self.lake(), None).await?;
        stopped(report.failed.iter().map(|failure| format!("{}: {}", failure.table, failure.error)).collect())
    }

    async fn backfill(&self, verify: bool) -> Result<()> {
        let report = backfill(&self.lake(), &BackfillOptions { verify, ..BackfillOptions::default() }, |_| {}).await?;
        stopped(report.failed.iter().map(|failure| format!("{}: {}", failure.table, failure.error)).collect())?;
        let differing = report.tables.iter().filter(|table| !table.difference.is_none());
        stopped(differing.map(|table| format!("{}: it is not what its sources make it", table.table)).collect())
    }

    async fn reconcile(&self) -> Result<()> {
        let found = missing(&self.lake()).await?;
        announce(&self.queue, self.world.queue_name(), &found, &World::scope(), self.world.time()).await
    }
}

fn stopped(tables: Vec<String>) -> Result<()> {
    if tables.is_empty() { Ok(()) } else { Err(Error::internal(tables.join("; "))) }
}
