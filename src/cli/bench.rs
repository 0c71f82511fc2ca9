//! `alluvium bench`: speed and memory on this machine. Every measured run is a process of its own, in a home of its own.

pub mod cdc;
pub mod cdc_child;
pub mod child;
pub mod hostile;
pub mod measure;
pub mod memory;
pub mod report;
pub mod runs;
pub mod services;
pub mod topics;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::error::{Error, Result};
use crate::generate::Trips;
use crate::render::Output;
use cdc::CdcArgs;
use cdc_child::{CdcChildArgs, KeysChildArgs};
use child::{ChildArgs, Measured, Work};
use memory::{MemoryArgs, MemoryChildArgs};
use report::Report;
use runs::Runs;
use services::ServicesChildArgs;

/// Files that are staged to compare one worker with two: enough to be steady, few enough to be quick.
const STAGED: u64 = 40;

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What is measured
    #[command(subcommand)]
    pub what: What,
}

/// What is measured.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Files into tables: to raw, to curated, memory, the committer's share, its own cost
    #[command(after_help = "Examples:
  alluvium bench files
  alluvium bench files --files 20 --rows 5000 --reps 1 -o json
  alluvium bench files --peer 'python trips_peer.py --engine pyarrow --data {data} --out {out}'")]
    Files(FilesArgs),
    /// Change events into tables: to bronze, silver and gold, and a few changes into many keys
    #[command(after_help = "Examples:
  alluvium bench cdc                                     510,000 made-up events of a shop
  alluvium bench cdc --data FOLDER --peer 'python duckdb_peer.py --data {data} --out {out}'
  alluvium bench cdc --keys 1000000 --keys 10000000      10,000 changes of a table of so many rows, beside the other
  alluvium bench cdc --services                          from Kafka's topics and from PostgreSQL's commits (tests/services)")]
    Cdc(CdcArgs),
    /// What files of a hostile size take: more bytes, columns, text or window than memory
    #[command(after_help = "Examples:
  alluvium bench memory                                  4 GiB of each kind, made while it is read
  ALLUVIUM_MEMORY=64MiB alluvium bench memory --size 512MiB -o json

Exit code: 0 everything was streamed within ALLUVIUM_MEMORY or refused with a limit that is named, 1 something was not.")]
    Memory(MemoryArgs),
    /// One measured run
    #[command(hide = true)]
    Child(ChildArgs),
    /// One measured run of `cdc`
    #[command(hide = true)]
    CdcChild(CdcChildArgs),
    /// One measured run of `cdc --keys`
    #[command(hide = true)]
    KeysChild(KeysChildArgs),
    /// One measured run of `cdc --services`
    #[command(hide = true)]
    ServicesChild(ServicesChildArgs),
    /// One measured run of `memory`
    #[command(hide = true)]
    MemoryChild(MemoryChildArgs),
}

/// Arguments of `bench files`.
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Trips files
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub files: u64,
    /// Rows in each
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub rows: u64,
    /// Runs of each measurement; medians are told
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub reps: u16,
    /// Folder for the input (made once) and the runs' homes
    #[arg(long, value_name = "FOLDER", default_value = "bench-data")]
    pub dir: PathBuf,
    /// A command to race against, run by turns; {data} is the input folder, {out} an absent folder of its own
    #[arg(long, value_name = "COMMAND")]
    pub peer: Option<String>,
    /// How the figures are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `bench`.
///
/// # Errors
/// A run failed.
pub async fn run(context: &Context, args: &BenchArgs) -> Result<Exit> {
    match &args.what {
        What::Child(args) => told(&child::run(context, args).await?)?,
        What::CdcChild(args) => told(&cdc_child::load(context, args).await?)?,
        What::KeysChild(args) => told(&cdc_child::keys(context, args).await?)?,
        What::ServicesChild(args) => told(&services::measure(context, args).await?)?,
        What::Cdc(args) => cdc::run(args).await?.print(args.output)?,
        What::Files(args) => files(args).await?.print(args.output)?,
        What::Memory(args) => return memory::run(context, args).await,
        What::MemoryChild(args) => told(&memory::child(context, args).await?)?,
    }
    Ok(Exit::Done)
}

/// What a measured run tells the one that started it.
fn told(measured: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(measured).map_err(|error| Error::internal("writing figures").because(error))?;
    output::data(&format!("{text}\n"))
}

async fn files(args: &FilesArgs) -> Result<Report> {
    let trips = Trips { files: args.files, rows: args.rows, days: (args.files / 4).max(5), seed: 7 };
    let data = prepare(&args.dir, trips)?;
    let mut report = Report::new(trips, size_of(&data)?);
    let mut runs = Runs::new(&args.dir, &data);
    let steps = u64::from(args.reps) * (5 + u64::from(args.peer.is_some())) + 1;
    let bar = output::bar(steps, "measuring");
    for _ in 0..args.reps {
        // By turns, so that whatever else the machine does falls on all of them.
        report.load.push(child(&mut runs, &data, Work::Load, None).await?);
        bar.inc(1);
        if let Some(peer) = &args.peer {
            report.peer.push(runs.peer(peer).await?);
            bar.inc(1);
        }
        report.stage_one.push(child(&mut runs, &data, Work::Stage, Some(1)).await?);
        bar.inc(1);
        report.stage_two.push(child(&mut runs, &data, Work::Stage, Some(2)).await?);
        bar.inc(1);
        report.adopt.push(child(&mut runs, &data, Work::Adopt, None).await?);
        bar.inc(1);
        report.metadata.push(child(&mut runs, &data, Work::Metadata, None).await?);
        bar.inc(1);
    }
    report.small = Some(child(&mut runs, &data, Work::Small, None).await?);
    bar.finish_and_clear();
    Ok(report)
}

async fn child(runs: &mut Runs, data: &Path, work: Work, threads: Option<usize>) -> Result<Measured> {
    let mut words = vec!["child".into(), work.word().into(), "--data".into(), data.as_os_str().to_owned()];
    if let Some(threads) = threads {
        words.extend(["--threads".into(), threads.to_string().into()]);
    }
    if matches!(work, Work::Stage | Work::Adopt) {
        words.extend(["--most".into(), STAGED.to_string().into()]);
    }
    runs.child(&words).await
}

/// Makes the input once; a set that was made whole before is taken as it is.
fn prepare(dir: &Path, trips: Trips) -> Result<PathBuf> {
    let folder = dir.join(format!("trips-{}x{}", trips.files, trips.rows)).join("trips");
    let within = |error: std::io::Error| Error::from(error).within(folder.display());
    let complete = folder.with_file_name("complete");
    if !complete.is_file() {
        fs::create_dir_all(&folder).map_err(within)?;
        let bar = output::bar(trips.files, "making input");
        for index in 0..trips.files {
            fs::write(folder.join(Trips::name(index)), trips.file(index)).map_err(within)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        fs::write(&complete, "").map_err(within)?;
    }
    folder.canonicalize().map_err(within)
}

fn size_of(folder: &Path) -> Result<u64> {
    let within = |error: std::io::Error| Error::from(error).within(folder.display());
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(within)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(within)?.len();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let trips = Trips { files: 2, rows: 3, days: 5, seed: 7 };
        let folder = prepare(dir.path(), trips).unwrap();
        assert_eq!(fs::read_to_string(folder.join("trips_0001.csv")).unwrap(), trips.file(1));
        fs::write(folder.join("trips_0001.csv"), "kept").unwrap();
        assert_eq!(prepare(dir.path(), trips).unwrap(), folder);
        assert_eq!(fs::read_to_string(folder.join("trips_0001.csv")).unwrap(), "kept");
        assert_eq!(size_of(&folder).unwrap(), 4 + trips.file(0).len() as u64);
    }
}
