//! `alluvium bench memory`: what files of a hostile size take. Each is loaded by a process of its own, over a lake of its
//! own, under the configured limit; peak memory is what the kernel says of that process.

use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::hostile::Hostile;
use super::measure::{peak_memory, resident_memory};
use crate::app::settings;
use crate::catalog::Catalog;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::ingest::commit_until_quiet;
use crate::cli::output;
use crate::config;
use crate::error::{Error, Result};
use crate::landing::Landing;
use crate::manifest::{Counts, FileVersion, Status};
use crate::pipeline::ingest::ingest_content;
use crate::pipeline::lake::Lake;
use crate::render::{Cell, Grid, Output, human_bytes};
use crate::store::Store;

/// Bytes of a file that warms a process up: code is paged in, pools are filled.
const WARM: u64 = 2 << 20;

/// Arguments of `bench memory`.
#[derive(Debug, Args)]
pub struct MemoryArgs {
    /// Bytes of each file
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = config::parse_bytes)]
    pub size: u64,
    /// Only these kinds
    #[arg(long = "kind", value_name = "KIND", value_enum)]
    pub kinds: Vec<Hostile>,
    /// How the figures are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of one measured run.
#[derive(Debug, Args)]
pub struct MemoryChildArgs {
    /// The kind of file
    #[arg(value_enum)]
    pub kind: Hostile,
    /// Its bytes
    #[arg(long)]
    pub bytes: u64,
}

/// What one file took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// The kind of file.
    pub kind: Hostile,
    /// Its bytes, uncompressed.
    pub bytes: u64,
    /// What became of it.
    pub status: Status,
    /// Why, where a reason is needed.
    pub reason: Option<String>,
    /// The row arithmetic.
    pub counts: Counts,
    /// Seconds.
    pub seconds: f64,
    /// Resident before the file was opened: code, runtime, a lake that has loaded a small file of the kind.
    pub before_bytes: u64,
    /// Most that was ever resident (`VmHWM`).
    pub peak_bytes: u64,
    /// The limit: `ALLUVIUM_MEMORY`.
    pub limit_bytes: u64,
}

impl Taken {
    /// Memory that the file took.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.before_bytes)
    }

    /// Streamed within the limit, or refused with a limit that is named.
    #[must_use]
    pub fn is_within(&self) -> bool {
        let is_known = match self.status {
            Status::Loaded => !self.kind.is_refused() && self.counts.rows_in > 0,
            Status::Refused => self.reason.as_deref().is_some_and(|reason| reason.contains("limit")),
            _ => false,
        };
        is_known && self.taken() <= self.limit_bytes
    }
}

/// Runs `bench memory`.
///
/// # Errors
/// A run could not be started, or failed.
pub async fn run(context: &Context, args: &MemoryArgs) -> Result<Exit> {
    let kinds = if args.kinds.is_empty() { Hostile::ALL.to_vec() } else { args.kinds.clone() };
    let bar = output::bar(kinds.len() as u64, "measuring");
    let mut all = Vec::new();
    for kind in kinds {
        all.push(measured(context, kind, args.size).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output::grid(&grid(&all), args.output, "nothing was measured")?;
    Ok(if all.iter().all(Taken::is_within) { Exit::Done } else { Exit::Failed })
}

async fn measured(context: &Context, kind: Hostile, bytes: u64) -> Result<Taken> {
    let home = tempfile::tempdir()?;
    let mut command = tokio::process::Command::new(config::this_program()?);
    command.args(["bench", "memory-child", kind.word(), "--bytes", &bytes.to_string()]).arg("--home").arg(home.path());
    command.env("ALLUVIUM_MEMORY", context.config.memory_bytes.to_string());
    command.stderr(std::process::Stdio::inherit());
    let done = command.output().await.map_err(|error| Error::from(error).within("starting a run"))?;
    if !done.status.success() {
        return Err(Error::internal(format!("the run `{}` ended with {}", kind.word(), done.status)));
    }
    serde_json::from_slice(&done.stdout)
        .map_err(|error| Error::internal(format!("the run `{}` said nothing of use", kind.word())).because(error))
}

/// One measured run, in this process: a small file of the kind, then the big one.
///
/// # Errors
/// Something failed: a file that is refused is no error.
pub async fn child(context: &Context, args: &MemoryChildArgs) -> Result<Taken> {
    let sources = vec![("raw/t.yaml".to_owned(), args.kind.contract())];
    let catalog = Catalog::from_sources(sources)
        .map_err(|found| Error::internal(format!("the contract of {} is wrong: {found:?}", args.kind.word())))?;
    let store = Store::local(&context.config.lake_folder())?;
    let landing = Landing::local(&context.config.landing_folder())?;
    let lake = Lake::new(catalog, store, landing, Arc::clone(&context.clock), settings(&context.config));
    load(&lake, args.kind, "warm", WARM).await?;
    let before_bytes = resident_memory();
    let started = Instant::now();
    let (status, counts, reason) = load(&lake, args.kind, "big", args.bytes).await?;
    Ok(Taken {
        kind: args.kind,
        bytes: args.bytes,
        status,
        reason,
        counts,
        seconds: started.elapsed().as_secs_f64(),
        before_bytes,
        peak_bytes: peak_memory(),
        limit_bytes: context.config.memory_bytes,
    })
}

async fn load(lake: &Lake, kind: Hostile, name: &str, bytes: u64) -> Result<(Status, Counts, Option<String>)> {
    let contract = lake.catalog.tables().first().ok_or_else(|| Error::internal("a catalog without its one table"))?;
    let version = FileVersion {
        path: format!("t/{name}"),
        etag: name.to_owned(),
        bytes,
        last_modified: lake.clock.now(),
        sequencer: None,
    };
    let outcome = ingest_content(lake, contract, version, kind.content(bytes)?).await?;
    let mut failures = Vec::new();
    let reports = commit_until_quiet(lake, &mut failures).await?;
    match reports.iter().flat_map(|report| &report.failed).next() {
        Some(table) => Err(Error::internal(format!("{}: {}", table.table, table.error))),
        None => Ok(outcome),
    }
}

fn grid(all: &[Taken]) -> Grid {
    let mut grid = Grid::new(&[
        "kind", "bytes", "status", "rows_in", "seconds", "before", "peak", "taken", "limit", "within", "reason",
    ]);
    for one in all {
        grid.push(vec![
            one.kind.word().into(),
            human_bytes(one.bytes).into(),
            one.status.as_str().into(),
            one.counts.rows_in.into(),
            format!("{:.1}", one.seconds).into(),
            human_bytes(one.before_bytes).into(),
            human_bytes(one.peak_bytes).into(),
            human_bytes(one.taken()).into(),
            human_bytes(one.limit_bytes).into(),
            Cell::from(if one.is_within() { "yes" } else { "NO" }),
            one.reason.as_deref().unwrap_or_default().into(),
        ]);
    }
    grid
}
