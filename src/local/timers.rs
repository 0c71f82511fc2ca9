//! Runs timer triggers, and the same functions when they are called by hand.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::{Retry, Schedule, Timer, wire};
use crate::error::Result;
use crate::http::Answer;

/// The clock may be set while a timer waits, so it is looked at this often.
const LOOK_AT_CLOCK_EVERY: Duration = Duration::from_secs(30);

/// One timer trigger. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct TimerTrigger {
    pub caller: Caller,
    pub function: String,
    pub binding: String,
    pub schedule: Schedule,
    pub monitored: bool,
    pub retry: Option<Retry>,
    /// When it ran last. Held while it runs: runs of the schedule and by hand never overlap.
    pub last: Arc<Mutex<Option<DateTime<Utc>>>>,
}

impl TimerTrigger {
    /// Fires until `stop`; a run that was begun is awaited.
    pub(super) async fn run(self, stop: CancellationToken) {
        let clock = Arc::clone(&self.caller.shared.clock);
        let mut timer = Timer::new(self.schedule.clone(), clock.now());
        loop {
            let wait = timer.wait(clock.now()).unwrap_or(LOOK_AT_CLOCK_EVERY).min(LOOK_AT_CLOCK_EVERY);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
            let Some(occurrence) = timer.due(clock.now()) else { continue };
            for tries in 0_u64.. {
                let Err(error) = self.fire(occurrence, false).await else { break };
                tracing::warn!(function = self.function, "{} failed: {}", self.function, error.describe());
                let Some(pause) = self.retry.and_then(|retry| retry.pause(tries)) else { break };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stop.cancelled() => return,
                }
            }
            timer.finished(clock.now());
        }
    }

    /// Runs the function once, now; waits for a run that is under way.
    ///
    /// # Errors
    /// The function failed.
    pub(super) async fn run_now(&self, force: bool) -> Result<Answer> {
        self.fire(self.caller.shared.clock.now(), force).await
    }

    async fn fire(&self, occurrence: DateTime<Utc>, force: bool) -> Result<Answer> {
        let mut last = self.last.lock().await;
        let moment = self.caller.moment();
        let is_monitored = self.monitored && !self.schedule.is_rapid(moment.now);
        let occurrences = is_monitored.then_some((*last, occurrence));
        let body = wire::timer_invocation(&self.function, &self.binding, occurrences, &moment);
        *last = Some(moment.now);
        let path = if force { format!("{}?force=true", self.function) } else { self.function.clone() };
        self.caller.invoke(&path, body).await
    }
}
