//! Faults: what may happen to one call of a process to storage or queue. A [`Script`] counts the calls of one process, in
//! whatever order they come, and lets its fault fall on the one with the chosen number. Nothing in here is used but by tests
//! and by `selftest`.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::queue::Gate;

pub mod store;

/// How many calls are refused while a service is busy.
const BUSY_CALLS: u64 = 4;

/// A call that was given up as too slow takes effect this many calls later.
const LATE_BY: u64 = 3;

/// Refused writes after which somebody ends a process whose disk is full.
const PATIENCE: u64 = 6;

/// What happens at the chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing: everything works.
    None,
    /// The call is refused and has no effect; the next ones work.
    Refused,
    /// The call has its effect, but its answer is lost; the next ones work.
    AnswerLost,
    /// The call has no effect, and neither has any later one: the process died before it.
    DeadBefore,
    /// The call has its effect, no later one has: the process died after it.
    DeadAfter,
    /// Nothing can be written from there on, while reading works: the disk is full.
    DiskFull,
    /// The service is busy for some calls (503), then works again.
    Busy,
    /// The call is given up as too slow, and takes effect some calls later.
    Late,
    /// The call has its effect, and is answered with what its own effect looks like (409, 412, 404): it was sent twice on
    /// its way.
    Conflict,
    /// The process stands still before the call while another one does all there is to do, and an hour passes.
    Overtaken,
    /// The call has its effect, then the process stands still while another one does all there is to do; its answer is
    /// lost, or what its own effect looks like.
    OvertakenAfter,
    /// The same, but the other one dies before it deletes anything.
    HalfOvertaken,
    /// The process sleeps before the call for nine days, in which only the upkeep runs.
    Asleep,
    /// Producers do not wait: what lands next lands before the call, also over a file that is being read.
    Landing,
}

/// A call that a process made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// What it does.
    pub kind: Kind,
    /// Whether the next thing to happen, but for the process, is that a file lands.
    pub before_landing: bool,
}

/// What a call does, as far as faults differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Reads or lists.
    Read,
    /// Puts an object where none is.
    Create,
    /// Puts an object.
    Put,
    /// A step of an upload in parts.
    Part,
    /// Deletes an object.
    Delete,
    /// A call to a queue.
    Message,
}

impl Fault {
    /// All that is not nothing, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Refused,
        Self::AnswerLost,
        Self::DeadBefore,
        Self::DeadAfter,
        Self::DiskFull,
        Self::Busy,
        Self::Late,
        Self::Conflict,
        Self::Overtaken,
        Self::OvertakenAfter,
        Self::HalfOvertaken,
        Self::Asleep,
        Self::Landing,
    ];

    /// Whether the fault does anything to such a call that no other fault at this or the next call does.
    #[must_use]
    pub const fn fits(self, call: Call) -> bool {
        let kind = call.kind;
        match self {
            Self::None => false,
            Self::Refused | Self::DeadBefore | Self::Busy | Self::Overtaken | Self::HalfOvertaken | Self::Asleep => {
                true
            }
            // A call that changes nothing has no effect: refusing it and losing its answer are the same.
            Self::AnswerLost | Self::DeadAfter => !matches!(kind, Kind::Read),
            Self::DiskFull => matches!(kind, Kind::Create | Kind::Put | Kind::Part),
            Self::Late => matches!(kind, Kind::Create | Kind::Put | Kind::Delete),
            Self::Conflict => matches!(kind, Kind::Create | Kind::Delete),
            Self::OvertakenAfter => matches!(kind, Kind::Create | Kind::Put | Kind::Delete | Kind::Message),
            // Who writes sees nothing of it: that it landed is seen by the next call that reads.
            Self::Landing => call.before_landing && matches!(kind, Kind::Read),
        }
    }

    /// The fault as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Refused => "refused",
            Self::AnswerLost => "answer lost",
            Self::DeadBefore => "dead before",
            Self::DeadAfter => "dead after",
            Self::DiskFull => "disk full",
            Self::Busy => "busy",
            Self::Late => "late",
            Self::Conflict => "own conflict",
            Self::Overtaken => "overtaken",
            Self::OvertakenAfter => "overtaken after",
            Self::HalfOvertaken => "half overtaken",
            Self::Asleep => "asleep",
            Self::Landing => "landing",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What others do while a process stands still.
pub type Meanwhile = BoxFuture<'static, ()>;

/// The fault of one process, and what it falls on: the call with the number `at` (from 1; 0 is none).
pub struct Script {
    at: u64,
    fault: Fault,
    calls: AtomicU64,
    seen: Mutex<Vec<Call>>,
    before_landing: AtomicBool,
    is_met: AtomicBool,
    refused_writes: AtomicU64,
    death: CancellationToken,
    /// Calls that the process does not survive.
    deadly: Option<Kind>,
    /// Whether it is this very process that dies.
    #[cfg(feature = "mutations")]
    is_real: bool,
    meanwhile: Mutex<Option<Meanwhile>>,
    /// What is still on its way, and the number of the call that it takes effect before.
    late: Mutex<Option<(u64, Meanwhile)>>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at call {}", self.fault, self.at)
    }
}

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It works.
    Go,
    /// It is refused.
    Fail,
    /// It works, and its answer is lost.
    GoThenFail,
    /// It works, and is answered with what its own effect looks like.
    GoThenConflict,
    /// It is refused now and works later.
    Later,
}

impl Script {
    /// A script whose `fault` falls on call number `at`.
    #[must_use]
    pub fn new(at: u64, fault: Fault) -> Arc<Self> {
        Self::with_others(at, fault, None)
    }

    /// The same, with what others do while the process stands still.
    #[must_use]
    pub fn with_others(at: u64, fault: Fault, meanwhile: Option<Meanwhile>) -> Arc<Self> {
        Arc::new(Self {
            at,
            fault,
            calls: AtomicU64::new(0),
            seen: Mutex::default(),
            before_landing: AtomicBool::new(false),
            is_met: AtomicBool::new(false),
            refused_writes: AtomicU64::new(0),
            death: CancellationToken::new(),
            deadly: None,
            #[cfg(feature = "mutations")]
            is_real: false,
            meanwhile: Mutex::new(meanwhile),
            late: Mutex::default(),
        })
    }

    /// A script of a process that dies before its first call of a kind.
    #[must_use]
    pub fn dying_at(kind: Kind) -> Arc<Self> {
        let mut this = Self::new(0, Fault::DeadBefore);
        if let Some(script) = Arc::get_mut(&mut this) {
            script.deadly = Some(kind);
        }
        this
    }

    /// A script that ends this very process before its call number `at`, as `kill -9` does.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn killing(at: u64) -> Arc<Self> {
        let mut this = Self::new(at, Fault::DeadBefore);
        if let Some(script) = Arc::get_mut(&mut this) {
            script.is_real = true;
        }
        this
    }

    /// A script of a process that nothing happens to. What was still on its way from an earlier one arrives under it.
    #[must_use]
    pub fn calm(after: Option<&Self>) -> Arc<Self> {
        let this = Self::new(0, Fault::None);
        if let Some((_, late)) = after.and_then(|after| lock(&after.late).take()) {
            *lock(&this.late) = Some((LATE_BY, late));
        }
        this
    }

    /// How many calls there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// All calls, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Call> {
        lock(&self.seen).clone()
    }

    /// From here on the next thing to happen, but for the process, is that a file lands, or something else.
    pub fn before_landing(&self, is_it: bool) {
        self.before_landing.store(is_it, Ordering::SeqCst);
    }

    /// Whether the fault has fallen.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.is_met.load(Ordering::SeqCst)
    }

    /// Whether the process is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.death.is_cancelled()
    }

    /// Waits for the death of the process. Whoever runs it lets go of its work then: nothing of it goes on.
    pub async fn died(&self) {
        self.death.cancelled().await;
    }

    /// Lets arrive what is still on its way.
    pub async fn arrive(&self) {
        let late = lock(&self.late).take();
        if let Some((_, late)) = late {
            late.await;
        }
    }

    fn send_late(&self, call: Meanwhile) {
        *lock(&self.late) = Some((self.calls() + LATE_BY, call));
    }

    /// Counts a call and says what becomes of it. Others go first if it is their turn.
    async fn turn(&self, kind: Kind) -> Turn {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        lock(&self.seen).push(Call { kind, before_landing: self.before_landing.load(Ordering::SeqCst) });
        let late = lock(&self.late).take_if(|(due, _)| *due <= call);
        if let Some((_, late)) = late {
            late.await;
        }
        if self.is_dead() || self.deadly == Some(kind) {
            return self.die().await;
        }
        if self.at == 0 || call < self.at {
            return Turn::Go;
        }
        let is_now = call == self.at;
        if is_now {
            self.is_met.store(true, Ordering::SeqCst);
        }
        match self.fault {
            Fault::Refused if is_now => Turn::Fail,
            Fault::AnswerLost | Fault::DeadAfter if is_now => Turn::GoThenFail,
            Fault::DeadBefore => self.die().await,
            Fault::DeadAfter => self.die().await,
            Fault::DiskFull if matches!(kind, Kind::Create | Kind::Put | Kind::Part) => {
                if self.refused_writes.fetch_add(1, Ordering::SeqCst) >= PATIENCE {
                    return self.die().await;
                }
                Turn::Fail
            }
            Fault::Busy if call < self.at + BUSY_CALLS => Turn::Fail,
            Fault::Late if is_now => Turn::Later,
            Fault::Conflict if is_now => Turn::GoThenConflict,
            Fault::OvertakenAfter if is_now => Turn::GoThenConflict,
            Fault::None | Fault::Overtaken | Fault::HalfOvertaken | Fault::Asleep | Fault::Landing if is_now => {
                self.let_others_go().await;
                Turn::Go
            }
            _ => Turn::Go,
        }
    }

    /// After the effect of a call whose answer does not come as it should.
    async fn after(&self) {
        match self.fault {
            Fault::OvertakenAfter => self.let_others_go().await,
            Fault::DeadAfter => {
                self.die().await;
            }
            _ => {}
        }
    }

    async fn let_others_go(&self) {
        let meanwhile = lock(&self.meanwhile).take();
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
        }
    }

    /// Whoever runs the process is told, and has the time to let go of it. Threads that block go on, and get nothing done.
    async fn die(&self) -> Turn {
        #[cfg(feature = "mutations")]
        if self.is_real {
            kill_this_process();
        }
        self.death.cancel();
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        Turn::Fail
    }

    /// What a refused call or a lost answer looks like.
    fn error(&self) -> std::io::Error {
        match self.fault {
            Fault::DiskFull => std::io::ErrorKind::StorageFull.into(),
            Fault::Busy => std::io::Error::other("503, the server is busy (scripted)"),
            Fault::Late => std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time (scripted)"),
            fault => std::io::Error::other(format!("scripted fault: {fault}")),
        }
    }
}

#[async_trait]
impl Gate for Script {
    async fn pass(&self, call: BoxFuture<'_, ()>) -> Result<()> {
        let failed = || Err(Error::unavailable("queue").because(self.error()));
        match self.turn(Kind::Message).await {
            Turn::Go => {
                call.await;
                Ok(())
            }
            Turn::Fail | Turn::Later => failed(),
            Turn::GoThenFail | Turn::GoThenConflict => {
                call.await;
                self.after().await;
                failed()
            }
        }
    }
}

/// Nothing is flushed, closed or said, and whoever waits for the call never hears of it.
#[cfg(feature = "mutations")]
fn kill_this_process() -> ! {
    let id = std::process::id().to_string();
    drop(std::process::Command::new("kill").args(["-KILL", &id]).status());
    // Where there is no such command.
    std::process::abort()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
