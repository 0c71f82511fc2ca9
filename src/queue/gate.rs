//! A gate before a queue: the seam where faults are put in.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;

use super::{Depth, Message, Queue};
use crate::error::{Error, Result};

/// Decides what becomes of a call to a queue.
#[async_trait]
pub trait Gate: Send + Sync + std::fmt::Debug {
    /// Makes the call, or does not.
    ///
    /// # Errors
    /// The caller shall have no answer, whether the call was made or not.
    async fn pass(&self, call: BoxFuture<'_, ()>) -> Result<()>;
}

/// Queues that every call reaches through a gate. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gated {
    inner: Arc<Queue>,
    gate: Arc<dyn Gate>,
}

type Answer<'a, T> = BoxFuture<'a, Result<T>>;

impl Gated {
    pub(super) fn new(inner: Queue, gate: Arc<dyn Gate>) -> Self {
        Self { inner: Arc::new(inner), gate }
    }

    fn through<'a, T: Send + 'a>(&'a self, call: impl Future<Output = Result<T>> + Send + 'a) -> Answer<'a, T> {
        Box::pin(async move {
            let mut answer = None;
            let made = Box::pin(async { answer = Some(call.await) });
            self.gate.pass(made).await?;
            answer.unwrap_or_else(|| Err(Error::internal("queue: a gate that made no call let it pass")))
        })
    }

    pub(super) fn send_all<'a>(
        &'a self,
        queue: &'a str,
        bodies: Vec<Vec<u8>>,
        delay: Duration,
    ) -> Answer<'a, Vec<String>> {
        self.through(self.inner.send_all(queue, bodies, delay))
    }

    pub(super) fn receive<'a>(&'a self, queue: &'a str, max: usize, visibility: Duration) -> Answer<'a, Vec<Message>> {
        self.through(self.inner.receive(queue, max, visibility))
    }

    pub(super) fn extend<'a>(&'a self, message: &'a Message, visibility: Duration) -> Answer<'a, Option<Message>> {
        self.through(self.inner.extend(message, visibility))
    }

    pub(super) fn delete<'a>(&'a self, message: &'a Message) -> Answer<'a, bool> {
        self.through(self.inner.delete(message))
    }

    pub(super) fn peek<'a>(&'a self, queue: &'a str, max: usize) -> Answer<'a, Vec<Message>> {
        self.through(self.inner.peek(queue, max))
    }

    pub(super) fn depth<'a>(&'a self, queue: &'a str) -> Answer<'a, Depth> {
        self.through(self.inner.depth(queue))
    }
}
