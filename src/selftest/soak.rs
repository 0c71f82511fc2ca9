//! Soak: files arrive at random, are overwritten and announced again, several processes work side by side and die in the
//! middle of things, clocks jump; all along it is looked at what must hold at every moment. In the end the tables are those
//! that the landing zone makes by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde::Serialize;

use super::chance::Chance;
use super::ground::{Ground, Opened};
use super::invariants;
use super::process::Process;
use super::same::Picture;
use super::scenario::{Scenario, sales};
use super::world::World;
use crate::error::Result;
use crate::faults::{Fault, Script};
use crate::http::Function;

/// Paths that files come under: few, so that many are overwritten.
const PATHS: u64 = 12;

/// Rows of a file, at most.
const ROWS: u64 = 6;

/// Calls after which a process of the soak meets its fault, at most.
const CALLS: u64 = 150;

/// Rounds after which it is looked at what must hold.
const LOOK_EVERY: u64 = 10;

/// Rounds after which everything is finished and compared.
const FINISH_EVERY: u64 = 60;

/// Faults of the soak.
const FAULTS: [Fault; 8] = [
    Fault::Refused,
    Fault::AnswerLost,
    Fault::DeadBefore,
    Fault::DeadAfter,
    Fault::DiskFull,
    Fault::Busy,
    Fault::Late,
    Fault::Conflict,
];

/// What a soak did, and what it broke.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Soaked {
    /// What drew everything.
    pub seed: u64,
    /// Rounds.
    pub rounds: u64,
    /// Files that landed.
    pub files: u64,
    /// Events that were sent again.
    pub redeliveries: u64,
    /// Faults that fell.
    pub faults: u64,
    /// Processes that died.
    pub deaths: u64,
    /// How often the clock jumped.
    pub jumps: u64,
    /// How often it was looked at what must hold.
    pub looks: u64,
    /// How often all tables were compared.
    pub comparisons: u64,
    /// Rows that were lost.
    pub lost: u64,
    /// Rows that were doubled.
    pub doubled: u64,
    /// What does not hold.
    pub broken: Vec<String>,
}

/// Soaks for some time, in a world of its own. `progress` is told the rounds.
///
/// # Errors
/// Something does not work although nothing is wrong.
pub async fn soak(ground: &Ground, seed: u64, time: Duration, mut progress: impl FnMut(u64)) -> Result<Soaked> {
    let opened = ground.open()?;
    let scenario = Scenario::soaked();
    let mut soak = Soak {
        world: World::new(opened.plot(1)?, &scenario, None)?,
        opened,
        scenario,
        chance: Chance::new(seed),
        landed: BTreeMap::new(),
        set_back: TimeDelta::zero(),
        done: Soaked { seed, ..Soaked::default() },
    };
    let begun = Instant::now();
    while begun.elapsed() < time && soak.done.broken.is_empty() {
        let done = Box::pin(soak.round()).await;
        progress(soak.done.rounds);
        done.map_err(|error| error.within(format!("seed {seed}, round {}", soak.done.rounds)))?;
    }
    Box::pin(soak.finish()).await.map_err(|error| error.within(format!("seed {seed}")))?;
    soak.world.clear().await?;
    Ok(soak.done)
}

struct Soak {
    opened: Opened,
    scenario: Scenario,
    world: Arc<World>,
    chance: Chance,
    /// What the landing zone has now.
    landed: BTreeMap<String, String>,
    /// By how much the clock was set back since everything was finished.
    set_back: TimeDelta,
    done: Soaked,
}

impl Soak {
    async fn round(&mut self) -> Result<()> {
        self.done.rounds += 1;
        match self.chance.below(10) {
            0..4 => self.land().await?,
            4 => {
                self.world.announce_again(self.chance.next()).await?;
                self.done.redeliveries += 1;
            }
            5 => self.jump(),
            _ => {}
        }
        // Two at once, each with a fault of its own or none.
        let (one, other) = (self.process()?, self.process()?);
        let (first, second) = (self.function(), self.function());
        tokio::join!(one.0.try_invoke(first), other.0.try_invoke(second));
        for script in [one.1, other.1] {
            script.arrive().await;
            self.done.faults += u64::from(script.is_met());
            self.done.deaths += u64::from(script.is_dead());
        }
        self.world.time().advance(TimeDelta::seconds(2));
        if self.done.rounds.is_multiple_of(LOOK_EVERY) {
            self.look().await?;
        }
        if self.done.rounds.is_multiple_of(FINISH_EVERY) {
            self.finish().await?;
        }
        Ok(())
    }

    async fn land(&mut self) -> Result<()> {
        let file = self.chance.below(PATHS);
        let rows = self.chance.below(ROWS + 1);
        let mut text = sales(&[]);
        for row in 0..rows {
            // Now and then a record that is refused, and a key that another file has too.
            let id = (file + self.chance.below(2)) % PATHS * 100 + row;
            let sign = if self.chance.below(8) == 0 { "-" } else { "" };
            let (day, cents) = (1 + self.chance.below(5), self.chance.below(100));
            text.push_str(&format!("{id},2026-01-{day:02},shop {},{sign}{row}.{cents:02}\n", row % 3));
        }
        let path = format!("sales/{file:02}.csv");
        self.world.land(&path, text.as_bytes()).await?;
        self.landed.insert(path, text);
        self.done.files += 1;
        Ok(())
    }

    /// Mostly minutes, seldom more than a week, now and then backwards.
    fn jump(&mut self) {
        let by = match self.chance.below(12) {
            0 => TimeDelta::days(9),
            1 => TimeDelta::minutes(-5),
            2 => TimeDelta::hours(30),
            _ => TimeDelta::minutes(i64::try_from(self.chance.below(90)).unwrap_or_default()),
        };
        self.world.time().advance(by);
        self.set_back += (-by).max(TimeDelta::zero());
        self.done.jumps += 1;
    }

    fn process(&mut self) -> Result<(Process, Arc<Script>)> {
        let script = match self.chance.below(3) {
            0 => Script::calm(None),
            _ => {
                let fault = FAULTS[usize::try_from(self.chance.below(FAULTS.len() as u64)).unwrap_or_default()];
                Script::new(1 + self.chance.below(CALLS), fault)
            }
        };
        Ok((self.world.process(Arc::clone(&script))?, script))
    }

    fn function(&mut self) -> Function {
        match self.chance.below(10) {
            0..4 => Function::Ingest,
            4..8 => Function::Commit,
            _ => {
                let any = self.chance.below(Function::ALL.len() as u64);
                Function::ALL[usize::try_from(any).unwrap_or_default()]
            }
        }
    }

    async fn look(&mut self) -> Result<()> {
        let broken = invariants::broken(&self.world).await?;
        self.done.looks += 1;
        self.done.broken.extend(broken.into_iter().map(|line| format!("round {}: {line}", self.done.rounds)));
        Ok(())
    }

    /// All that is left is done; then the tables are what a lake makes of the landing zone that knows no past.
    async fn finish(&mut self) -> Result<()> {
        // A message that was received before the clock was set back is hidden for so much longer.
        self.world.time().advance(std::mem::replace(&mut self.set_back, TimeDelta::zero()));
        let process = self.world.process(Script::calm(None))?;
        process.invoke(Function::Reconcile).await?;
        self.world.finish(&process).await?;
        self.look().await?;
        let number = 2 + self.done.comparisons;
        let plain = World::new(self.opened.plot(number)?, &self.scenario, None)?;
        for (path, text) in &self.landed {
            plain.land(path, text.as_bytes()).await?;
        }
        let fresh = plain.process(Script::calm(None))?;
        plain.finish(&fresh).await?;
        // Ledger and quarantine remember versions that are gone.
        let wanted = Picture::of(&plain.store()?, &self.landed.keys().cloned().collect()).await?;
        let found = Picture::of(&self.world.store()?, &self.landed.keys().cloned().collect()).await?;
        plain.clear().await?;
        let differences = wanted.compare(&found);
        self.done.comparisons += 1;
        self.done.lost += differences.lost;
        self.done.doubled += differences.doubled;
        self.done.broken.extend(differences.told.into_iter().map(|line| format!("round {}: {line}", self.done.rounds)));
        Ok(())
    }
}

impl Soaked {
    /// Whether everything held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "seed {}: {} rounds, {} files, {} events again",
                self.seed, self.rounds, self.files, self.redeliveries
            ),
            format!("{} faults, {} deaths, {} jumps of the clock", self.faults, self.deaths, self.jumps),
            format!("looked {} times, compared {} times", self.looks, self.comparisons),
            format!("lost {}, doubled {}", self.lost, self.doubled),
        ];
        lines.extend(self.broken.iter().cloned());
        lines
    }
}
