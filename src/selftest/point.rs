//! One point of the matrix: a scenario, a call of it, and the fault that falls on the call. It has a number, from which it
//! can be run again.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::ground::Opened;
use super::invariants;
use super::same::{Differences, Picture};
use super::scenario::{SCENARIOS, Scenario};
use super::world::World;
use crate::error::{Error, Result};
use crate::faults::{Call, Fault, Kind, Meanwhile, Script};
use crate::http::Function;
use crate::safeguard::Safeguard;

use chrono::TimeDelta;
use std::sync::Arc;

/// A run that takes longer than this stands still.
const PATIENCE: Duration = Duration::from_secs(300);

/// Numbers are decimal: the call, then two digits for the scenario and two for the fault.
const SCENARIO: u64 = 100;
const CALL: u64 = 10_000;

/// One point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Number of the scenario.
    pub scenario: usize,
    /// The call, from 1; 0 for a run to which nothing happens.
    pub call: u64,
    /// What happens at it.
    pub fault: Fault,
}

impl Point {
    /// A run to which nothing happens.
    #[must_use]
    pub const fn calm(scenario: usize) -> Self {
        Self { scenario, call: 0, fault: Fault::None }
    }

    /// The number that it can be run again from.
    #[must_use]
    pub fn number(self) -> u64 {
        let fault = Fault::ALL.iter().position(|fault| *fault == self.fault).map_or(0, |at| at as u64 + 1);
        self.call * CALL + self.scenario as u64 * SCENARIO + fault
    }

    /// The point of a number.
    ///
    /// # Errors
    /// It is none.
    pub fn of_number(number: u64) -> Result<Self> {
        let none = || {
            Error::invalid(format!("{number} is no number of a point"))
                .remedy("a certificate names the points that failed, each with its number")
        };
        let scenario = usize::try_from(number % CALL / SCENARIO).map_err(|_| none())?;
        let fault = match usize::try_from(number % SCENARIO).map_err(|_| none())? {
            0 => Fault::None,
            at => *Fault::ALL.get(at - 1).ok_or_else(none)?,
        };
        if scenario >= SCENARIOS.len() || (number < CALL) != (fault == Fault::None) {
            return Err(none());
        }
        Ok(Self { scenario, call: number / CALL, fault })
    }

    /// The scenario.
    #[must_use]
    pub fn of(self) -> Scenario {
        SCENARIOS[self.scenario]
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at call {}", self.of().name, self.fault, self.call)
    }
}

/// A scenario without faults: what its tables are, and what calls it makes.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// The tables when all is done.
    pub done: Picture,
    /// The tables after the nights that follow.
    pub later: Picture,
    /// The calls, in order.
    pub calls: Vec<Call>,
}

/// What was found wrong about one point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The number to run it again from.
    pub replay: u64,
    /// Scenario, fault and call.
    pub point: String,
    /// Rows that were lost.
    pub lost: u64,
    /// Rows that were too many.
    pub doubled: u64,
    /// What does not hold, in words.
    pub broken: Vec<String>,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Whether the fault fell.
    pub is_met: bool,
    /// What was found wrong; none when everything holds.
    pub finding: Option<Finding>,
}

/// Runs a scenario without faults.
///
/// # Errors
/// Something does not work although nothing is wrong.
pub(super) async fn baseline(opened: &Opened, number: u64, scenario: usize) -> Result<Baseline> {
    let about = Point::calm(scenario).of();
    let world = World::new(opened.plot(number)?, &about, None)?;
    let script = Script::calm(None);
    let mut notes = Notes::default();
    let seen = run(&world, &script, &mut notes).await.map_err(|error| error.within(about.name))?;
    for (table, rows) in about.rows {
        let found = seen.done.rows_of(table);
        if found != *rows {
            notes.broken.push(format!("{table} has {found} rows, not {rows}"));
        }
    }
    if !notes.broken.is_empty() {
        return Err(Error::internal(format!("{}, without any fault: {}", about.name, notes.broken.join("; "))));
    }
    world.clear().await?;
    Ok(Baseline { done: seen.done, later: seen.later, calls: seen.calls })
}

/// Runs one point and compares it with the run without faults.
pub(super) async fn check(
    opened: &Opened,
    number: u64,
    point: Point,
    removed: Option<Safeguard>,
    baseline: &Baseline,
) -> Ran {
    let mut notes = Notes::default();
    let mut differences = Differences::default();
    let is_met = match prepare(opened, number, point, removed) {
        Err(error) => {
            notes.broken.push(error.describe());
            false
        }
        Ok((world, script)) => {
            match tokio::time::timeout(PATIENCE, Box::pin(run(&world, &script, &mut notes))).await {
                Err(_) => notes.broken.push("it stands still".to_owned()),
                Ok(Err(error)) => notes.broken.push(error.describe()),
                Ok(Ok(seen)) => {
                    differences = baseline.done.compare(&seen.done);
                    if differences == Differences::default() {
                        differences = baseline.later.compare(&seen.later);
                    }
                    notes.broken.append(&mut differences.told);
                }
            }
            if let Err(error) = world.clear().await {
                notes.broken.push(format!("the traces of the run: {}", error.describe()));
            }
            script.is_met() || point.fault == Fault::None
        }
    };
    let is_fine = notes.broken.is_empty();
    let finding = Finding {
        replay: point.number(),
        point: point.to_string(),
        lost: differences.lost,
        doubled: differences.doubled,
        broken: notes.broken,
    };
    Ran { is_met, finding: (!is_fine).then_some(finding) }
}

fn prepare(
    opened: &Opened,
    number: u64,
    point: Point,
    removed: Option<Safeguard>,
) -> Result<(Arc<World>, Arc<Script>)> {
    let world = World::new(opened.plot(number)?, &point.of(), removed)?;
    let meanwhile: Option<Meanwhile> = match point.fault {
        Fault::Overtaken | Fault::OvertakenAfter => Some(Box::pin(finish_all(Arc::clone(&world)))),
        Fault::HalfOvertaken => Some(Box::pin(finish_but_delete(Arc::clone(&world)))),
        Fault::Asleep => Some(Box::pin(only_upkeep(Arc::clone(&world)))),
        Fault::Landing => Some(Box::pin(only_producers(Arc::clone(&world)))),
        _ => None,
    };
    let script = Script::with_others(point.call, point.fault, meanwhile);
    Ok((world, script))
}

/// Another process does all there is to do, and an hour passes.
async fn finish_all(world: Arc<World>) {
    // What goes wrong here is met again by whoever finishes the run.
    if let Ok(process) = world.process(Script::calm(None)) {
        drop(world.finish(&process).await);
    }
    world.time().advance(TimeDelta::hours(1));
}

/// Another process does all there is to do until it would delete something: there it dies.
async fn finish_but_delete(world: Arc<World>) {
    let script = Script::dying_at(Kind::Delete);
    if let Ok(process) = world.process(Arc::clone(&script)) {
        let work = Box::pin(world.finish(&process));
        tokio::select! {
            biased;
            () = script.died() => {}
            outcome = work => drop(outcome),
        }
    }
}

/// Nine days pass, in which only the upkeep runs.
async fn only_upkeep(world: Arc<World>) {
    world.sleeps();
    for _ in 0..3 {
        world.time().advance(TimeDelta::days(3));
        if let Ok(process) = world.process(Script::calm(None)) {
            process.try_invoke(Function::Maintain).await;
        }
    }
}

/// The files that land next, and nothing else.
async fn only_producers(world: Arc<World>) {
    // Storage that cannot be written to is met again by whoever finishes the run.
    drop(world.land_now().await);
}

#[derive(Default)]
struct Notes {
    broken: Vec<String>,
}

struct Seen {
    done: Picture,
    later: Picture,
    calls: Vec<Call>,
}

/// The whole run: a process goes through the steps until its fault ends it; another one finishes the work; everything is
/// delivered again; nights pass.
async fn run(world: &Arc<World>, script: &Arc<Script>, notes: &mut Notes) -> Result<Seen> {
    let first = world.process(Arc::clone(script))?;
    world.take_steps(&first).await?;
    drop(first);
    notes.broken.extend(invariants::broken(world).await?);
    let calls = script.seen();

    let after = Script::calm(Some(&**script));
    let fresh = world.process(Arc::clone(&after))?;
    if world.has_slept() {
        // Messages live for a week: what no event tells of any more is found by a look.
        fresh.invoke(Function::Reconcile).await?;
    }
    world.finish(&fresh).await?;
    after.arrive().await;
    world.finish(&fresh).await?;
    notes.broken.extend(invariants::broken(world).await?);
    let versions = world.overwritten_paths();
    let store = world.store()?;
    let done = Picture::of(&store, &versions).await?;

    world.redeliver().await?;
    world.finish(&fresh).await?;
    world.nights(&fresh).await?;
    notes.broken.extend(invariants::broken(world).await?);
    notes.broken.extend(invariants::left_over(world).await?);
    let later = Picture::of(&store, &versions).await?;
    Ok(Seen { done, later, calls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_its_number() {
        for scenario in 0..SCENARIOS.len() {
            assert_eq!(Point::of_number(Point::calm(scenario).number()).unwrap(), Point::calm(scenario));
            for fault in Fault::ALL {
                for call in [1, 37, 12_345] {
                    let point = Point { scenario, call, fault };
                    assert_eq!(Point::of_number(point.number()).unwrap(), point);
                }
            }
        }
        assert_eq!(Point { scenario: 3, call: 37, fault: Fault::AnswerLost }.number(), 370_302);
        for number in [12, 9_999, 10_000, 19_901, 10_099] {
            assert!(Point::of_number(number).is_err(), "{number}");
        }
    }
}
