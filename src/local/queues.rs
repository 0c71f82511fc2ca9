//! Queue triggers by the host's rules: so many at a time, hidden for ten minutes and renewed at half of it, deleted after
//! success, delayed after a failure, poison after too many.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::{bindings::HostSettings, wire};
use crate::error::Result;
use crate::queue::{self, Message};

/// A received message is hidden for this long, whatever host.json says ...
const HIDDEN: Duration = Duration::from_secs(600);

/// ... and renewed this often while its function runs.
const RENEWED_EVERY: Duration = Duration::from_secs(300);

/// Waits between looks at an empty queue: from this, doubling, up to the host's setting or [`LONGEST_WAIT`].
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

/// Looking at a folder costs so little that a laptop need not wait longer.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// One queue trigger. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct QueueTrigger {
    pub caller: Caller,
    pub function: String,
    pub binding: String,
    pub binary: bool,
    pub queue: String,
    pub settings: HostSettings,
    /// Messages worked on at a time.
    pub limit: usize,
}

impl QueueTrigger {
    /// Works until `stop`, then until what was begun has ended.
    pub(super) async fn run(self, stop: CancellationToken) {
        let shared = self.caller.shared.clone();
        let mut running = JoinSet::new();
        let mut wait = SHORTEST_WAIT;
        let longest = self.settings.max_polling_interval.min(LONGEST_WAIT);
        let mut was_away = false;
        while !stop.is_cancelled() {
            while running.try_join_next().is_some() {}
            if running.len() >= self.limit {
                tokio::select! {
                    _ = running.join_next() => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            let most = self.settings.batch_size.min(self.limit - running.len());
            // Busy from before a message is taken: whoever looks at the queue sees it there or us busy.
            let taking = shared.activity.begin();
            let received = match shared.queue.receive(&self.queue, most, HIDDEN).await {
                Ok(received) => {
                    if std::mem::take(&mut was_away) {
                        // What was in work when it went stays hidden for ten minutes; a comparison finds it sooner.
                        shared.compare.notify_one();
                    }
                    received
                }
                Err(error) => {
                    was_away = true;
                    tracing::warn!(queue = self.queue, "the queue cannot be read: {}", error.describe());
                    Vec::new()
                }
            };
            let found = !received.is_empty();
            for message in received {
                let (trigger, working) = (self.clone(), shared.activity.begin());
                running.spawn(async move {
                    trigger.process(message).await;
                    drop(working);
                });
            }
            drop(taking);
            if found {
                wait = SHORTEST_WAIT;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(longest),
                () = shared.sent.notified() => wait = SHORTEST_WAIT,
                () = stop.cancelled() => {}
            }
        }
        while running.join_next().await.is_some() {}
    }

    async fn process(&self, message: Message) {
        let (id, count) = (message.id.clone(), message.dequeue_count);
        if let Err(error) = self.process_one(message).await {
            // It comes back when its time is over.
            tracing::warn!(queue = self.queue, message.id = id, attempt = count, "{}", error.describe());
        }
    }

    async fn process_one(&self, message: Message) -> Result<()> {
        if message.dequeue_count > self.settings.max_dequeue_count && !self.is_poison_queue() {
            return self.give_up(&message).await;
        }
        let moment = self.caller.moment();
        let body = wire::queue_invocation(&self.function, &self.binding, self.binary, &message, &moment);
        let (outcome, held) = self.holding(message, self.caller.invoke(&self.function, body)).await;
        let queues = &self.caller.shared.queue;
        let Err(error) = outcome else {
            if !queues.delete(&held).await? {
                tracing::warn!(queue = self.queue, message.id = held.id, "somebody else has the message by now");
            }
            return Ok(());
        };
        tracing::warn!(
            queue = self.queue,
            message.id = held.id,
            attempt = held.dequeue_count,
            "{} failed: {}",
            self.function,
            error.describe()
        );
        if self.is_poison_queue() {
            // Nothing comes after poison: it stays hidden until its time is over.
            return Ok(());
        }
        if held.dequeue_count >= self.settings.max_dequeue_count {
            return self.give_up(&held).await;
        }
        queues.extend(&held, self.settings.visibility_timeout).await.map(drop)
    }

    fn is_poison_queue(&self) -> bool {
        self.queue.ends_with("-poison")
    }

    /// Awaits an invocation and keeps its message hidden meanwhile; the message comes back with its last receipt.
    async fn holding<T>(&self, mut message: Message, call: impl Future<Output = T>) -> (T, Message) {
        tokio::pin!(call);
        loop {
            tokio::select! {
                outcome = &mut call => return (outcome, message),
                () = tokio::time::sleep(RENEWED_EVERY) => {
                    match self.caller.shared.queue.extend(&message, HIDDEN).await {
                        Ok(Some(renewed)) => message = renewed,
                        Ok(None) => tracing::warn!(message.id = message.id, "somebody else has the message by now"),
                        Err(error) => tracing::warn!(message.id = message.id, "not renewed: {error}"),
                    }
                }
            }
        }
    }

    /// Copies the message to the poison queue, then deletes it. Dying in between makes two copies, never none.
    async fn give_up(&self, message: &Message) -> Result<()> {
        let shared = &self.caller.shared;
        let poison = queue::poison(&self.queue);
        shared.queue.send(&poison, message.body.clone(), Duration::ZERO).await?;
        tracing::error!(
            queue = self.queue,
            message.id = message.id,
            attempt = message.dequeue_count,
            "the message went to {poison}"
        );
        shared.queue.delete(message).await?;
        shared.sent.notify_waiters();
        Ok(())
    }
}
