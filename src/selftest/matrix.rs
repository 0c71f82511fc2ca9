//! The matrix: every call of every scenario, and every fault that can fall on it. All of it, or a sample that a seed draws.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::mpsc;

use super::certificate::{Certificate, Covered};
use super::chance::Chance;
use super::ground::{Ground, Opened};
use super::point::{Baseline, Finding, Point, Ran, baseline, check};
use super::scenario::SCENARIOS;
use crate::error::{Error, Result};
use crate::faults::{Fault, Kind};
use crate::safeguard::Safeguard;

/// Findings after which a run ends: what is wrong is known by then.
const MOST_FINDINGS: usize = 20;

/// What is run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Draws the sample.
    pub seed: u64,
    /// How many points are run; none is all of them.
    pub points: Option<usize>,
    /// Scenarios, by number; none are all.
    pub scenarios: Vec<usize>,
    /// Faults; none are all.
    pub faults: Vec<Fault>,
    /// Kinds of calls that faults fall on; none are all.
    pub kinds: Vec<Kind>,
    /// Threads, each with a run of its own.
    pub threads: usize,
    /// A safeguard that is taken away, in builds that can. The run ends with the first finding.
    pub removed: Option<Safeguard>,
}

impl Default for Options {
    fn default() -> Self {
        let (scenarios, faults, kinds) = (Vec::new(), Vec::new(), Vec::new());
        Self { seed: 1, points: None, scenarios, faults, kinds, threads: 1, removed: None }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Points that are done.
    pub done: usize,
    /// Points that will be run.
    pub of: usize,
}

/// What all threads share.
struct Work {
    ground: Ground,
    options: Options,
    baselines: Vec<Option<Baseline>>,
    points: Vec<Point>,
    next: AtomicUsize,
    plots: AtomicU64,
}

/// Runs the matrix. `progress` is told after each point.
///
/// # Errors
/// A scenario does not work although nothing is wrong, or the ground cannot be used. What the faults break is in the
/// certificate.
pub async fn run(ground: &Ground, options: &Options, mut progress: impl FnMut(Progress)) -> Result<Certificate> {
    let work = Arc::new(prepare(ground, options).await?);
    let of = work.points.len();
    let (send, mut results) = mpsc::unbounded_channel();
    for _ in 0..options.threads.clamp(1, of.max(1)) {
        let (work, send) = (Arc::clone(&work), send.clone());
        std::thread::spawn(move || {
            // None: nobody listens any more, enough was found.
            let _ = work_on(&work, &send);
        });
    }
    drop(send);
    let mut certificate = Certificate::new(ground.name()?, options.seed, &covered(&work));
    let enough = if options.removed.is_some() { 1 } else { MOST_FINDINGS };
    let mut done = 0;
    while let Some((point, ran)) = results.recv().await {
        certificate.count(point, &ran);
        done += 1;
        progress(Progress { done, of });
        if certificate.findings.len() >= enough {
            break;
        }
    }
    if done < of && certificate.findings.is_empty() {
        return Err(Error::internal("a thread of the matrix stopped"));
    }
    certificate.sort();
    Ok(certificate)
}

/// Runs one point again.
///
/// # Errors
/// As [`run`].
pub async fn replay(ground: &Ground, point: Point, removed: Option<Safeguard>) -> Result<Ran> {
    let ground = ground.clone();
    on_a_thread(move |runtime| {
        runtime.block_on(async {
            let opened = ground.open()?;
            let calm = Box::pin(baseline(&opened, 1, point.scenario)).await?;
            Ok(guarded(&opened, 2, point, removed, &calm).await)
        })
    })
    .await?
}

/// Runs on a thread of its own with a runtime of one thread: the order of calls is then the same each time.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce(&tokio::runtime::Runtime) -> T + Send + 'static,
) -> Result<T> {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let done = runtime().map(|runtime| work(&runtime));
        drop(send.send(done));
    });
    receive.await.map_err(|_| Error::internal("a thread of the matrix stopped"))?
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::from(error).within("starting a thread"))
}

async fn prepare(ground: &Ground, options: &Options) -> Result<Work> {
    let plots = AtomicU64::new(1);
    let wanted = |scenario: &usize| options.scenarios.is_empty() || options.scenarios.contains(scenario);
    let scenarios = (0..SCENARIOS.len()).filter(wanted).map(|scenario| {
        let (ground, plot) = (ground.clone(), plots.fetch_add(1, Ordering::SeqCst));
        on_a_thread(move |runtime| {
            let calm = runtime.block_on(async { Box::pin(baseline(&ground.open()?, plot, scenario)).await });
            calm.map(|calm| (scenario, calm))
        })
    });
    let calm: Vec<(usize, Baseline)> = stream::iter(scenarios)
        .buffered(options.threads.max(1))
        .map(|outcome| outcome.and_then(|calm| calm))
        .try_collect()
        .await?;
    let mut baselines: Vec<Option<Baseline>> = vec![None; SCENARIOS.len()];
    let mut points = Vec::new();
    for (scenario, calm) in calm {
        points.extend(points_of(scenario, &calm, options));
        baselines[scenario] = Some(calm);
    }
    if let Some(wanted) = options.points {
        Chance::new(options.seed).shuffle(&mut points);
        points.truncate(wanted);
        points.sort_unstable();
    }
    if options.removed.is_some() {
        // What a late call breaks is healed by nothing that comes after it: it is found soonest.
        points.sort_by_key(|point| (point.fault != Fault::None, std::cmp::Reverse(point.call)));
    }
    let (ground, options) = (ground.clone(), options.clone());
    Ok(Work { ground, options, baselines, points, next: AtomicUsize::new(0), plots })
}

fn points_of(scenario: usize, calm: &Baseline, options: &Options) -> Vec<Point> {
    let mut points = Vec::new();
    if options.removed.is_some() {
        points.push(Point::calm(scenario));
    }
    for fault in Fault::ALL {
        if !options.faults.is_empty() && !options.faults.contains(&fault) {
            continue;
        }
        let is_wanted = |kind: Kind| options.kinds.is_empty() || options.kinds.contains(&kind);
        let fitting = calm.calls.iter().zip(1..).filter(|(call, _)| fault.fits(**call) && is_wanted(call.kind));
        points.extend(fitting.map(|(_, call)| Point { scenario, call, fault }));
    }
    points
}

fn covered(work: &Work) -> Vec<Covered> {
    let all = work.baselines.iter().enumerate().filter_map(|(scenario, calm)| Some((scenario, calm.as_ref()?)));
    all.map(|(scenario, calm)| Covered {
        scenario: SCENARIOS[scenario].name.to_owned(),
        about: SCENARIOS[scenario].about.to_owned(),
        calls: calm.calls.len() as u64,
        points: points_of(scenario, calm, &work.options).len() as u64,
        rows: calm.done.rows() as u64,
        ..Covered::default()
    })
    .collect()
}

/// Takes points until none is left. None when nobody listens.
fn work_on(work: &Work, send: &mpsc::UnboundedSender<(Point, Ran)>) -> Option<()> {
    let runtime = runtime().ok()?;
    runtime.block_on(async {
        let opened = work.ground.open().ok()?;
        while let Some(point) = work.points.get(work.next.fetch_add(1, Ordering::SeqCst)) {
            let calm = work.baselines[point.scenario].as_ref()?;
            let plot = work.plots.fetch_add(1, Ordering::SeqCst);
            let ran = guarded(&opened, plot, *point, work.options.removed, calm).await;
            send.send((*point, ran)).ok()?;
        }
        Some(())
    })
}

/// A panic is a finding like any other.
async fn guarded(opened: &Opened, plot: u64, point: Point, removed: Option<Safeguard>, calm: &Baseline) -> Ran {
    let checked = AssertUnwindSafe(Box::pin(check(opened, plot, point, removed, calm))).catch_unwind().await;
    checked.unwrap_or_else(|_| {
        let broken = vec!["it panicked".to_owned()];
        let (replay, point) = (point.number(), point.to_string());
        Ran { is_met: true, finding: Some(Finding { replay, point, lost: 0, doubled: 0, broken }) }
    })
}
