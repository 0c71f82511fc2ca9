//! The local host: plays the Azure Functions host on one machine, so that what works here works deployed.
//!
//! It reads `functions/*/function.json`, runs the handlers in a process of their own (`alluvium serve`), and calls them
//! over HTTP with the bytes that the Functions host would send: for messages of the queue, at the times of timers, and
//! for requests from outside. It also plays the storage service: it watches the landing folder and sends an event for
//! every file that has arrived. Built with the feature `kafka`, it reads Kafka's topics for `cdc_kafka`.

pub mod azurite;
mod bindings;
mod caller;
mod child;
mod host;
#[cfg(feature = "kafka")]
mod kafka;
mod landing;
mod queues;
mod timer;
mod timers;
mod watch;
mod web;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::queue::Queue;

pub use bindings::{
    FunctionBinding, HostSettings, Retry, StreamBinding, StreamSource, Trigger, names as setting_names,
    read as read_functions,
};
pub use child::Launch;
pub use host::{LocalHost, LocalOptions, Port};
pub use timer::{Schedule, Timer};
pub use watch::Watch;

/// Runs the local host until Ctrl-C (or a request to terminate): then nothing new is begun and what runs is awaited. A
/// second Ctrl-C stops at once; what was running is delivered again.
///
/// # Errors
/// It cannot be started, or was stopped at once.
pub async fn run(options: LocalOptions) -> Result<()> {
    let mut signals = Signals::listen()?;
    let host = tokio::select! {
        started = LocalHost::start(options) => started?,
        () = signals.next() => return Ok(()),
    };
    signals.next().await;
    tracing::info!("waiting for what runs; Ctrl-C again stops at once");
    tokio::select! {
        outcome = host.stop() => outcome,
        () = signals.next() => {
            Err(Error::unavailable("stopped at once").remedy("nothing is lost: what was running is delivered again"))
        }
    }
}

/// Requests to stop. They are heard from the moment this is made.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let heard = |kind| signal(kind).map_err(|error| Error::from(error).within("listening for signals"));
        Ok(Self { interrupt: heard(SignalKind::interrupt())?, terminate: heard(SignalKind::terminate())? })
    }

    /// The next request.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Result<Self> {
        Ok(Self {})
    }

    /// The next request. When none can be heard, none is.
    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What all parts of a running host share. Cheap to clone.
#[derive(Debug, Clone)]
struct Shared {
    clock: Arc<dyn Clock>,
    queue: Queue,
    client: reqwest::Client,
    activity: Activity,
    /// Something was put into a queue.
    sent: Arc<Notify>,
    /// The landing zone should be compared with the ledger now, not at the next quarter of an hour: storage is back after it was
    /// away, or something lies there of which no event can tell.
    compare: Arc<Notify>,
}

/// Counts what is going on, so that one can wait until nothing is. Cheap to clone.
#[derive(Debug, Clone, Default)]
struct Activity(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Something goes on until this is dropped.
#[derive(Debug)]
struct Ongoing(Activity);

impl Activity {
    fn begin(&self) -> Ongoing {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        Ongoing(self.clone())
    }

    /// How much was begun so far, if nothing goes on now.
    fn quiet(&self) -> Option<u64> {
        let ended = self.0.ended.load(Ordering::SeqCst);
        let begun = self.0.begun.load(Ordering::SeqCst);
        (begun == ended).then_some(begun)
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.0.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
