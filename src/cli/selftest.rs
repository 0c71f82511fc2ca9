//! `alluvium selftest`: exactly once, put to the test on the storage that is configured.

use std::time::{Duration, Instant};

use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::clock::Clock;
use crate::config::{Backend, Config};
use crate::error::{Error, Result};
use crate::render::{Grid, Output};
use crate::safeguard::Safeguard;
use crate::selftest::certificate::Certificate;
use crate::selftest::ground::Ground;
use crate::selftest::matrix::{self, Options};
use crate::selftest::point::{Point, Ran};
use crate::selftest::scenario::{SCENARIOS, Scenario};
use crate::selftest::soak;

/// Points of a sample on a storage, where a run takes seconds.
const ON_STORAGE: usize = 100;

/// Points of a sample in memory.
const IN_MEMORY: usize = 1_000;

/// Runs at the same time in a storage account: they wait for answers most of the time.
const IN_ACCOUNT: usize = 8;

/// Arguments of `selftest`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium selftest                                a sample of faults, on the storage that is configured
  alluvium selftest --in-memory --full             every call x every fault, in memory
  alluvium selftest --scenario stream --points 20 --seed 7 -o json
  alluvium selftest --replay 370302                one point again, as a certificate names it
  alluvium selftest --in-memory --soak 30m         everything at random, for half an hour

Everything happens below a scratch folder of the lake and in queues of its own, and is removed in the end; what a selftest that
was killed left there is deleted by the nightly upkeep. Tables and landing zone are neither read nor written.

Exit code: 0 everything holds, 3 something does not, 1 it could not be run.")]
pub struct SelftestArgs {
    /// Every call x every fault, instead of a sample
    #[arg(long, conflicts_with = "points")]
    pub full: bool,
    /// Points of the sample [default: 100, in memory 1000]
    #[arg(long, value_name = "N")]
    pub points: Option<usize>,
    /// What draws the sample; another one each time when it is not given
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Only this scenario; may be given several times
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// One point again, by its number
    #[arg(long, value_name = "N", conflicts_with_all = ["full", "points", "seed", "scenario"])]
    pub replay: Option<u64>,
    /// Random arrival, overwrites, deaths and jumps of the clock for this long, instead of the matrix (s, m, h)
    #[arg(long, value_name = "TIME", value_parser = crate::config::parse_duration,
          conflicts_with_all = ["full", "points", "scenario", "replay"])]
    pub soak: Option<Duration>,
    /// In memory instead of on the storage: what is tested is the protocol alone
    #[arg(long)]
    pub in_memory: bool,
    /// List the safeguards that a test build can take away
    #[arg(long, conflicts_with_all = ["full", "points", "seed", "scenario", "replay", "in_memory"])]
    pub mutations: bool,
    /// How the certificate is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `selftest`.
///
/// # Errors
/// The storage cannot be used, or something does not work although nothing is wrong.
pub async fn run(context: &Context, args: &SelftestArgs) -> Result<Exit> {
    if args.mutations {
        output::grid(&safeguards(), args.output, "there are no safeguards")?;
        return Ok(Exit::Done);
    }
    let ground = if args.in_memory { Ground::Memory } else { Ground::of(&context.config) };
    let outcome = match args.replay {
        None if args.soak.is_some() => soak(context, &ground, args).await,
        Some(number) => replay(&ground, Point::of_number(number)?, args.output).await,
        None => whole(&ground, &options(context, args)?, args.output).await,
    };
    // Whatever happened.
    ground.clear().await?;
    outcome
}

async fn soak(context: &Context, ground: &Ground, args: &SelftestArgs) -> Result<Exit> {
    let seed = args.seed.unwrap_or_else(|| fresh_seed(&*context.clock));
    let before = footprint();
    let bar = output::bar(0, "rounds");
    let soaked = Box::pin(soak::soak(ground, seed, args.soak.unwrap_or_default(), |rounds| bar.set_position(rounds)));
    let soaked = soaked.await?;
    bar.finish_and_clear();
    match args.output {
        Output::Json => {
            let value = serde_json::to_value(&soaked).map_err(|error| Error::internal("as JSON").because(error))?;
            output::json(&value)?;
        }
        Output::Table => output::data(&format!("{}\n", soaked.lines().join("\n")))?,
    }
    if let (Some(before), Some(after)) = (before, footprint()) {
        output::note(&format!("open files {} before, {} after; memory {} KiB after", before.0, after.0, after.1));
    }
    Ok(if soaked.holds() { Exit::Done } else { Exit::Found })
}

/// Open files and KiB of memory of this process, where the system tells.
fn footprint() -> Option<(usize, u64)> {
    let files = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some((files, memory.trim().trim_end_matches(" kB").parse().ok()?))
}

fn options(context: &Context, args: &SelftestArgs) -> Result<Options> {
    let named = args.scenario.iter().map(|name| {
        let wanted = Scenario::named(name)?;
        let number = SCENARIOS.iter().position(|scenario| scenario.name == wanted.name);
        number.ok_or_else(|| Error::internal(format!("the scenario {name} has no number")))
    });
    let sample = args.points.unwrap_or(if args.in_memory { IN_MEMORY } else { ON_STORAGE });
    Ok(Options {
        seed: args.seed.unwrap_or_else(|| fresh_seed(&*context.clock)),
        points: (!args.full).then_some(sample),
        scenarios: named.collect::<Result<_>>()?,
        threads: threads(&context.config, args.in_memory),
        ..Options::default()
    })
}

/// Short enough to be typed.
fn fresh_seed(clock: &dyn Clock) -> u64 {
    u64::from_str_radix(&clock.fresh()[..6], 16).unwrap_or(1)
}

fn threads(config: &Config, in_memory: bool) -> usize {
    if !in_memory && config.storage_backend == Backend::Azure {
        return IN_ACCOUNT;
    }
    config.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

async fn whole(ground: &Ground, options: &Options, wanted: Output) -> Result<Exit> {
    let begun = Instant::now();
    let bar = output::bar(0, "testing");
    let certificate = matrix::run(ground, options, |progress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.done as u64);
    })
    .await?;
    bar.finish_and_clear();
    print(&certificate, wanted)?;
    output::note(&format!("in {:.0} seconds", begun.elapsed().as_secs_f64()));
    Ok(if certificate.holds() { Exit::Done } else { Exit::Found })
}

fn print(certificate: &Certificate, wanted: Output) -> Result<()> {
    if wanted == Output::Json {
        let value = serde_json::to_value(certificate).map_err(|error| Error::internal("as JSON").because(error))?;
        return output::json(&value);
    }
    output::grid(&certificate.grid(), wanted, "no scenario was run")?;
    output::data(&format!("{}\n", certificate.lines().join("\n")))
}

async fn replay(ground: &Ground, point: Point, wanted: Output) -> Result<Exit> {
    let ran = matrix::replay(ground, point, None).await?;
    match wanted {
        Output::Json => output::json(&serde_json::json!({
            "replay": point.number(),
            "point": point.to_string(),
            "met": ran.is_met,
            "finding": ran.finding,
        }))?,
        Output::Table => output::data(&format!("{}\n", told(point, &ran).join("\n")))?,
    }
    Ok(if ran.finding.is_none() { Exit::Done } else { Exit::Found })
}

fn told(point: Point, ran: &Ran) -> Vec<String> {
    let mut lines = vec![point.to_string()];
    if !ran.is_met {
        lines.push("there was no such call".to_owned());
    }
    match &ran.finding {
        None => lines.push("everything holds".to_owned()),
        Some(finding) => {
            lines.push(format!("lost {}, doubled {}", finding.lost, finding.doubled));
            lines.extend(finding.broken.iter().cloned());
        }
    }
    lines
}

fn safeguards() -> Grid {
    let mut grid = Grid::new(&["safeguard", "without_it", "switch"]);
    let switch = if cfg!(feature = "mutations") { "in this build" } else { "in builds with the feature mutations" };
    for safeguard in Safeguard::ALL {
        grid.push(vec![safeguard.name().into(), safeguard.without_it().into(), switch.into()]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_safeguards_are_listed() {
        let text = safeguards().text(None, false);
        for safeguard in Safeguard::ALL {
            assert!(text.contains(safeguard.name()) && text.contains(safeguard.without_it()), "{}", safeguard.name());
        }
    }
}
