//! Durable message queues with the cloud's rules: a received message is invisible for a while and comes back unless it
//! is deleted; every receiving counts; whoever holds an older receipt can no longer change it. At least once, unordered.

mod azure;
mod gate;
mod local;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::azure::Account;
use crate::clock::Clock;
use crate::error::{Error, Result};

pub use azure::AzureQueue;
pub use gate::{Gate, Gated};
pub use local::LocalQueue;

/// A message lives this long from its insertion, then it is gone: the cloud's default.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The queues of one account or folder. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Queue {
    /// In a local folder, shared by all processes that use the folder.
    Local(LocalQueue),
    /// In a storage account.
    Azure(AzureQueue),
    /// Behind a gate that every call has to pass.
    Gated(Gated),
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The queue it is in.
    pub queue: String,
    /// The same in every delivery.
    pub id: String,
    /// What was sent.
    pub body: Vec<u8>,
    /// How often it was received, this time included.
    pub dequeue_count: u32,
    /// Right to change it; gone as soon as anybody changes it.
    pub receipt: String,
    /// When it was sent.
    pub inserted: DateTime<Utc>,
    /// When it is gone for good.
    pub expires: DateTime<Utc>,
    /// When it comes back.
    pub visible_at: DateTime<Utc>,
}

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// They can be received now.
    pub visible: usize,
    /// They are being worked on, or wait for another try.
    pub hidden: usize,
}

impl Depth {
    /// All of them.
    #[must_use]
    pub const fn total(self) -> usize {
        self.visible + self.hidden
    }
}

/// How many messages the queue of landed files and its poison queue hold, for people and programs that ask how things are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Depths {
    /// The queue of landed files.
    pub queue: String,
    /// They can be received now.
    pub visible: usize,
    /// They are being worked on, or wait for another try.
    pub invisible: usize,
    /// Messages that failed too often.
    pub poison: usize,
    /// Why they could not be counted, and what to do.
    pub error: Option<String>,
}

/// Counts the messages of a queue and of its poison queue. Trouble is told in the answer: whoever asks how things are wants the
/// rest as well.
pub async fn depths(queues: &Queue, name: &str) -> Depths {
    let counted = async { Ok::<_, Error>((queues.depth(name).await?, queues.depth(&poison(name)).await?)) };
    let (depth, poison, error) = match counted.await {
        Ok((depth, poison)) => (depth, poison.total(), None),
        Err(error) => (Depth::default(), 0, Some(error.describe())),
    };
    Depths { queue: name.to_owned(), visible: depth.visible, invisible: depth.hidden, poison, error }
}

/// The queue that takes what was received too often.
#[must_use]
pub fn poison(queue: &str) -> String {
    format!("{queue}-poison")
}

impl Queue {
    /// Queues in folders below `folder`. `fsync`: a sent message survives a machine that loses power.
    #[must_use]
    pub fn local(folder: &Path, clock: Arc<dyn Clock>, fsync: bool) -> Self {
        Self::Local(LocalQueue::new(folder, clock, fsync))
    }

    /// Queues of a storage account.
    #[must_use]
    pub fn azure(account: Account) -> Self {
        Self::Azure(AzureQueue::new(account))
    }

    /// The same queues behind a gate.
    #[must_use]
    pub fn behind(self, gate: Arc<dyn Gate>) -> Self {
        Self::Gated(Gated::new(self, gate))
    }

    /// Sends one message, to be visible after `delay`; its id.
    ///
    /// # Errors
    /// The message was not sent, or it is not known.
    pub async fn send(&self, queue: &str, body: Vec<u8>, delay: Duration) -> Result<String> {
        let ids = self.send_all(queue, vec![body], delay).await?;
        ids.into_iter().next().ok_or_else(|| Error::internal(format!("queue {queue}: a message got no id")))
    }

    /// Sends several messages; their ids. After an error some may have been sent.
    ///
    /// # Errors
    /// Not all of them were sent, or it is not known.
    pub async fn send_all(&self, queue: &str, bodies: Vec<Vec<u8>>, delay: Duration) -> Result<Vec<String>> {
        match self.clone() {
            Self::Local(local) => {
                let queue = queue.to_owned();
                blocking(move || bodies.iter().map(|body| local.send(&queue, body, delay)).collect()).await
            }
            Self::Azure(azure) => azure.send_all(queue, bodies, delay).await,
            Self::Gated(gated) => gated.send_all(queue, bodies, delay).await,
        }
    }

    /// Receives up to `max` visible messages and hides them for `visibility`. A queue that is not there is empty.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub async fn receive(&self, queue: &str, max: usize, visibility: Duration) -> Result<Vec<Message>> {
        match self.clone() {
            Self::Local(local) => {
                let queue = queue.to_owned();
                blocking(move || local.receive(&queue, max, visibility)).await
            }
            Self::Azure(azure) => azure.receive(queue, max, visibility).await,
            Self::Gated(gated) => gated.receive(queue, max, visibility).await,
        }
    }

    /// Hides a message for `visibility` from now. The message with its new receipt, or none when the receipt no longer
    /// holds: then somebody else has it, or it is gone.
    ///
    /// # Errors
    /// It could not be tried.
    pub async fn extend(&self, message: &Message, visibility: Duration) -> Result<Option<Message>> {
        match self.clone() {
            Self::Local(local) => {
                let message = message.clone();
                blocking(move || local.extend(message, visibility)).await
            }
            Self::Azure(azure) => azure.extend(message.clone(), visibility).await,
            Self::Gated(gated) => gated.extend(message, visibility).await,
        }
    }

    /// Deletes a message. False when the receipt no longer holds.
    ///
    /// # Errors
    /// It could not be tried.
    pub async fn delete(&self, message: &Message) -> Result<bool> {
        match self.clone() {
            Self::Local(local) => {
                let message = message.clone();
                blocking(move || local.delete(&message)).await
            }
            Self::Azure(azure) => azure.delete(message).await,
            Self::Gated(gated) => gated.delete(message).await,
        }
    }

    /// Up to `max` messages as they are, visible or hidden, without receiving them. Their receipts give no right.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub async fn peek(&self, queue: &str, max: usize) -> Result<Vec<Message>> {
        match self.clone() {
            Self::Local(local) => {
                let queue = queue.to_owned();
                blocking(move || local.peek(&queue, max)).await
            }
            Self::Azure(azure) => azure.peek(queue, max).await,
            Self::Gated(gated) => gated.peek(queue, max).await,
        }
    }

    /// How many messages there are.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub async fn depth(&self, queue: &str) -> Result<Depth> {
        match self.clone() {
            Self::Local(local) => {
                let queue = queue.to_owned();
                blocking(move || local.depth(&queue)).await
            }
            Self::Azure(azure) => azure.depth(queue).await,
            Self::Gated(gated) => gated.depth(queue).await,
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal("queue").because(error))?
}
