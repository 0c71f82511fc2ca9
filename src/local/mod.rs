//! The local host: plays the Azure Functions host on one machine, so that what works here works deployed.
//!
//! It reads `functions/*/function.json`, runs the handlers in a process of their own (`alluvium serve`), and calls them
//! over HTTP with the bytes that the Functions host would send: for messages of the queue, at the times of timers, and
//! for requests from outside. It also plays the storage service: it watches the landing folder and sends an event for
//! every file that has arrived.

mod bindings;
mod caller;
mod child;
mod host;
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

pub use bindings::{FunctionBinding, HostSettings, Trigger, read as read_functions};
pub use child::Launch;
pub use host::{LocalHost, LocalOptions};
pub use timer::{Schedule, Timer};
pub use watch::Watch;

/// Runs the local host until Ctrl-C (or a request to terminate): then nothing new is begun and what runs is awaited. A
/// second Ctrl-C stops at once; what was running is delivered again.
///
/// # Errors
/// It cannot be started, or was stopped at once.
pub async fn run(options: LocalOptions) -> Result<()> {
    let host = LocalHost::start(options).await?;
    asked_to_stop().await?;
    tracing::info!("waiting for what runs; Ctrl-C again stops at once");
    tokio::select! {
        outcome = host.stop() => outcome,
        asked = asked_to_stop() => {
            asked?;
            Err(Error::unavailable("stopped at once").remedy("nothing is lost: what was running is delivered again"))
        }
    }
}

#[cfg(unix)]
async fn asked_to_stop() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: std::io::Error| Error::from(error).within("listening for signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(failed),
        _ = terminate.recv() => Ok(()),
    }
}

#[cfg(not(unix))]
async fn asked_to_stop() -> Result<()> {
    tokio::signal::ctrl_c().await.map_err(|error| Error::from(error).within("listening for signals"))
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
