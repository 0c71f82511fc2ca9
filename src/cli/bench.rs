//! `alluvium bench`: speed and memory on this machine. Every measured run is a process of its own, in a home of its own.

pub mod child;
pub mod hostile;
pub mod measure;
pub mod memory;
pub mod report;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::config;
use crate::error::{Error, Result};
use crate::generate::Trips;
use crate::render::Output;
use child::{ChildArgs, Measured, Work};
use memory::{MemoryArgs, MemoryChildArgs};
use report::Report;

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
    /// What files of a hostile size take: more bytes, columns, text or window than memory
    #[command(after_help = "Examples:
  alluvium bench memory                                  4 GiB of each kind, made while it is read
  ALLUVIUM_MEMORY=64MiB alluvium bench memory --size 512MiB -o json

Exit code: 0 everything was streamed within ALLUVIUM_MEMORY or refused with a limit that is named, 1 something was not.")]
    Memory(MemoryArgs),
    /// One measured run
    #[command(hide = true)]
    Child(ChildArgs),
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
        What::Child(args) => {
            let measured = child::run(context, args).await?;
            output::data(&format!("{}\n", serde_json::to_string(&measured).unwrap_or_default()))?;
        }
        What::Files(args) => files(args).await?.print(args.output)?,
        What::Memory(args) => return memory::run(context, args).await,
        What::MemoryChild(args) => {
            let measured = memory::child(context, args).await?;
            output::data(&format!("{}\n", serde_json::to_string(&measured).unwrap_or_default()))?;
        }
    }
    Ok(Exit::Done)
}

async fn files(args: &FilesArgs) -> Result<Report> {
    let trips = Trips { files: args.files, rows: args.rows, days: (args.files / 4).max(5), seed: 7 };
    let data = prepare(&args.dir, trips)?;
    let mut report = Report::new(trips, size_of(&data)?);
    let mut bench = Bench { dir: args.dir.clone(), data, runs: 0 };
    let steps = u64::from(args.reps) * (5 + u64::from(args.peer.is_some())) + 1;
    let bar = output::bar(steps, "measuring");
    for _ in 0..args.reps {
        // By turns, so that whatever else the machine does falls on all of them.
        report.load.push(bench.child(Work::Load, None).await?);
        bar.inc(1);
        if let Some(peer) = &args.peer {
            report.peer.push(bench.peer(peer).await?);
            bar.inc(1);
        }
        report.stage_one.push(bench.child(Work::Stage, Some(1)).await?);
        bar.inc(1);
        report.stage_two.push(bench.child(Work::Stage, Some(2)).await?);
        bar.inc(1);
        report.adopt.push(bench.child(Work::Adopt, None).await?);
        bar.inc(1);
        report.metadata.push(bench.child(Work::Metadata, None).await?);
        bar.inc(1);
    }
    report.small = Some(bench.child(Work::Small, None).await?);
    bar.finish_and_clear();
    Ok(report)
}

struct Bench {
    dir: PathBuf,
    data: PathBuf,
    runs: u64,
}

impl Bench {
    fn fresh_home(&mut self) -> Result<PathBuf> {
        self.runs += 1;
        let home = self.dir.join(format!("run-{}", self.runs));
        remove(&home)?;
        Ok(home)
    }

    async fn child(&mut self, work: Work, threads: Option<usize>) -> Result<Measured> {
        let home = self.fresh_home()?;
        let mut command = tokio::process::Command::new(config::this_program()?);
        command.arg("bench").arg("child").arg(work.word()).arg("--data").arg(&self.data).arg("--home").arg(&home);
        if let Some(threads) = threads {
            command.args(["--threads", &threads.to_string()]);
        }
        if matches!(work, Work::Stage | Work::Adopt) {
            command.args(["--most", &STAGED.to_string()]);
        }
        command.stderr(std::process::Stdio::inherit());
        let done = command.output().await.map_err(|error| Error::from(error).within("starting a run"))?;
        remove(&home)?;
        if !done.status.success() {
            return Err(Error::internal(format!("the run `{}` ended with {}", work.word(), done.status)));
        }
        serde_json::from_slice(&done.stdout)
            .map_err(|error| Error::internal(format!("the run `{}` said nothing of use", work.word())).because(error))
    }

    /// Seconds that a peer's command took.
    async fn peer(&mut self, peer: &str) -> Result<f64> {
        let out = self.fresh_home()?;
        let line = peer.replace("{data}", &quoted(&self.data)).replace("{out}", &quoted(&out));
        let started = std::time::Instant::now();
        let mut command = tokio::process::Command::new("sh");
        command.arg("-c").arg(&line).stdout(std::process::Stdio::null());
        let status = command.status().await.map_err(|error| Error::from(error).within("starting the peer"))?;
        let took = started.elapsed().as_secs_f64();
        remove(&out)?;
        if !status.success() {
            return Err(Error::invalid(format!("the peer `{line}` ended with {status}"))
                .remedy("run that line by hand and mend it"));
        }
        Ok(took)
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::from(error).within(folder.display())),
        _ => Ok(()),
    }
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

    #[test]
    fn paths_are_one_word_for_the_shell() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
