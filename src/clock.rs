//! Time, fresh names and fresh ids enter the program here and nowhere else, so that tests can fix them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

/// The only source of time and of fresh names.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Now, in UTC.
    fn now(&self) -> DateTime<Utc>;
    /// A name that was never given before: 32 hex digits.
    fn fresh(&self) -> String;
}

/// The machine's clock and random version 4 UUIDs.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that draws random ids")]
    fn fresh(&self) -> String {
        uuid::Uuid::new_v4().simple().to_string()
    }
}

/// A clock that moves only when told to, and counts its fresh names: for tests.
#[derive(Debug)]
pub struct ManualClock {
    now: Mutex<DateTime<Utc>>,
    drawn: AtomicU64,
    seed: u64,
}

impl ManualClock {
    /// A clock standing at `now`; fresh names of clocks with different seeds differ.
    #[must_use]
    pub fn new(now: DateTime<Utc>, seed: u64) -> Self {
        Self { now: Mutex::new(now), drawn: AtomicU64::new(0), seed }
    }

    /// Moves the clock, forwards or backwards.
    pub fn advance(&self, by: TimeDelta) {
        let mut now = self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn fresh(&self) -> String {
        format!("{:016x}{:016x}", self.seed, self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}
