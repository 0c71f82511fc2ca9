//! Watches the landing folder by listing it again and again, and sends an event for each version that has arrived.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::TimeDelta;
use futures::StreamExt as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Shared, Watch};
use crate::app::announce;
use crate::error::Result;
use crate::event::{Scope, announcement};
use crate::landing::{Entry, Landing};
use crate::manifest::FileVersion;
use crate::queue::Queue;

/// Listing may take this part of one core at most ...
const IDLE_PER_LISTING: u32 = 20;

/// ... but a listing that took long because its storage did not answer is not waited out.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How far the watching has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Listings begun so far.
    pub begun: u64,
    /// Number of the last listing whose arrivals are in the queue.
    pub done: u64,
    /// Versions that it found and that have not arrived yet.
    pub pending: usize,
}

/// Watches a landing folder for one queue.
#[derive(Debug)]
pub(super) struct Watcher {
    pub shared: Shared,
    pub landing: Landing,
    pub scope: Scope,
    pub queue: String,
    pub hold: Duration,
    pub progress: watch::Sender<Progress>,
    /// What was there at the last look and can be no file.
    pub left_out: BTreeSet<(String, String)>,
    /// What could not be read at the last look.
    pub troubles: BTreeSet<String>,
}

impl Watcher {
    /// Makes the first listing, whose files are left to the reconcile that must follow; the rest is [`Watcher::run`].
    pub(super) async fn seeded(&mut self) -> Watch {
        let mut known = Watch::new(TimeDelta::from_std(self.hold).unwrap_or(TimeDelta::MAX));
        let (listing, _) = self.list().await;
        known.seed(&listing, self.shared.clock.now());
        known
    }

    /// Watches until `stop`.
    pub(super) async fn run(mut self, mut known: Watch, stop: CancellationToken) {
        let shortest = (self.hold / 4).clamp(Duration::from_millis(10), Duration::from_millis(250));
        while !stop.is_cancelled() {
            let begun = tokio::time::Instant::now();
            self.look(&mut known).await;
            let pause = shortest.max((begun.elapsed() * IDLE_PER_LISTING).min(LONGEST_PAUSE));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn look(&mut self, known: &mut Watch) {
        self.progress.send_modify(|progress| progress.begun += 1);
        // The instant before the listing: a version has been there at least since then.
        let now = self.shared.clock.now();
        let (listing, whole) = self.list().await;
        let arrived = known.observe(listing, whole, now);
        if !arrived.is_empty() {
            let sent = self.send(&arrived).await;
            match sent {
                Ok(()) => {
                    known.announced(&arrived);
                    self.shared.sent.notify_waiters();
                    tracing::info!(files = arrived.len(), first = arrived[0].path, "landed");
                }
                // They arrive again at the next look.
                Err(error) => tracing::warn!("landed files are not in the queue yet: {}", error.describe()),
            }
        }
        let pending = known.pending();
        self.progress.send_modify(|progress| {
            progress.pending = pending;
            if whole {
                progress.done = progress.begun;
            }
        });
    }

    /// Sends events as the storage service would: in base64 to a queue of the account, as Event Grid does.
    async fn send(&self, arrived: &[FileVersion]) -> Result<()> {
        let (queue, clock) = (&self.shared.queue, &*self.shared.clock);
        if !matches!(queue, Queue::Azure(_)) {
            return announce(queue, &self.queue, arrived, &self.scope, clock).await;
        }
        let message = |file| BASE64.encode(announcement(file, &self.scope, clock)).into_bytes();
        queue.send_all(&self.queue, arrived.iter().map(message).collect(), Duration::ZERO).await.map(drop)
    }

    /// All files, and whether every part of the folder could be read. What cannot be read is told once, not at each look.
    async fn list(&mut self) -> (Vec<FileVersion>, bool) {
        let mut files = Vec::new();
        let (mut left_out, mut troubles) = (BTreeSet::new(), BTreeSet::new());
        let mut listing = self.landing.entries();
        while let Some(found) = listing.next().await {
            match found {
                Ok(Entry::File(file)) => files.push(file),
                Ok(Entry::LeftOut(entry)) => {
                    left_out.insert((entry.version.path, entry.version.etag));
                }
                Err(error) => {
                    let told = error.describe();
                    if !self.troubles.contains(error.message()) {
                        tracing::warn!("the landing zone cannot be read whole: {told}");
                    }
                    troubles.insert(error.message().to_owned());
                }
            }
        }
        let is_whole = troubles.is_empty();
        // The comparison records what no event can tell of, and finds what landed while storage was away.
        let is_new = is_whole && !left_out.is_subset(&self.left_out);
        let is_back = is_whole && !self.troubles.is_empty();
        if is_new || is_back {
            self.shared.compare.notify_one();
        }
        if is_whole {
            self.left_out = left_out;
        }
        self.troubles = troubles;
        (files, is_whole)
    }
}
