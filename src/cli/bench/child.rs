//! One measured run, in this process, over a home that is new.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::measure::{cpu_seconds, median, peak_memory};
use crate::catalog::Catalog;
use crate::cli::context::Context;
use crate::cli::demo::shipped::CONTRACTS;
use crate::cli::ingest::bring::{self, Bring};
use crate::cli::ingest::{commit_until_quiet, stage_all};
use crate::cli::producer::Producer;
use crate::error::{Error, Result};
use crate::generate::Trips;
use crate::landing::Landing;
use crate::pipeline::commit::{CommitOptions, commit};
use crate::pipeline::lake::{Lake, Settings};
use crate::store::Store;

/// Staged files of the metadata-only commit.
const METADATA_FILES: u64 = 1_000;
/// Commits of which the median is told.
const SMALL_COMMITS: u64 = 50;
/// Rows of files that are there for their number alone.
const FEW_ROWS: u64 = 10;

/// Arguments of a measured run.
#[derive(Debug, Args)]
pub struct ChildArgs {
    /// What is done
    #[arg(value_enum)]
    pub work: Work,
    /// The input: a folder `trips` of trips files
    #[arg(long)]
    pub data: PathBuf,
    /// Workers
    #[arg(long)]
    pub threads: Option<usize>,
    /// Only so many files
    #[arg(long)]
    pub most: Option<usize>,
}

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Copy, stage, commit, then the layers.
    Load,
    /// Stage alone.
    Stage,
    /// Stage as final Parquet, commit by adopting.
    Adopt,
    /// One commit of very many staged files, all adopted.
    Metadata,
    /// Many commits of one small file each.
    Small,
}

impl Work {
    /// Its word on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Stage => "stage",
            Self::Adopt => "adopt",
            Self::Metadata => "metadata",
            Self::Small => "small",
        }
    }
}

/// What a run used. Seconds; what a run does not do is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// From the start until all rows are in the raw table.
    pub raw_s: f64,
    /// From the start until all layers are there.
    pub curated_s: f64,
    /// Staging alone.
    pub stage_s: f64,
    /// Committing alone (the median, of many).
    pub commit_s: f64,
    /// CPU of staging.
    pub stage_cpu_s: f64,
    /// CPU of committing.
    pub commit_cpu_s: f64,
    /// Most memory resident, in bytes.
    pub peak_bytes: u64,
    /// Rows in the raw table.
    pub rows: u64,
}

/// Does the work.
///
/// # Errors
/// Something failed: a measurement of half the work is none.
pub async fn run(context: &Context, args: &ChildArgs) -> Result<Measured> {
    let mut measured = match args.work {
        Work::Load => load(context, args).await,
        Work::Stage => stage(context, args).await,
        Work::Adopt => adopt(context, args).await,
        Work::Metadata => metadata(context).await,
        Work::Small => small(context).await,
    }?;
    measured.peak_bytes = peak_memory();
    Ok(measured)
}

fn settings(context: &Context, threads: Option<usize>) -> Settings {
    let default = Settings::default();
    Settings {
        memory_bytes: context.config.memory_bytes,
        threads: threads.or(context.config.threads).unwrap_or(default.threads),
        ..default
    }
}

/// The raw table alone, or all three.
fn open(context: &Context, landing: &Path, settings: Settings, layers: bool) -> Result<Lake> {
    let wanted = CONTRACTS.iter().filter(|(path, _)| layers || *path == "raw/trips.yaml");
    let sources = wanted.map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let catalog = Catalog::from_sources(sources).map_err(|found| {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        Error::internal(format!("the shipped contracts are wrong: {}", all.join("; ")))
    })?;
    let store = Store::local(&context.config.lake_folder())?;
    Ok(Lake::new(catalog, store, Landing::local(landing)?, Arc::clone(&context.clock), settings))
}

async fn load(context: &Context, args: &ChildArgs) -> Result<Measured> {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let landing = context.config.landing_folder();
    let brought = bring::plan(std::slice::from_ref(&args.data), Some(&landing), Some("trips"))?;
    let lake = open(context, &landing, settings(context, args.threads), false)?;
    whole(stage_all(&lake, &Producer::Folder(landing.clone()), brought.files, lake.settings.threads).await?.0)?;
    let (stage_s, staged_cpu) = (started.elapsed().as_secs_f64(), cpu_seconds());
    let rows = commit_all(&lake).await?;
    let (raw_s, committed_cpu) = (started.elapsed().as_secs_f64(), cpu_seconds());
    let full = open(context, &landing, settings(context, args.threads), true)?;
    commit_all(&full).await?;
    Ok(Measured {
        raw_s,
        curated_s: started.elapsed().as_secs_f64(),
        stage_s,
        commit_s: raw_s - stage_s,
        stage_cpu_s: staged_cpu - cpu,
        commit_cpu_s: committed_cpu - staged_cpu,
        rows,
        ..Measured::default()
    })
}

/// Files that lie in the landing zone already.
fn landed(data: &Path, most: Option<usize>) -> Result<(PathBuf, Vec<Bring>)> {
    let landing = data.parent().unwrap_or(data).to_owned();
    let mut files = bring::plan(&[data.to_owned()], Some(&landing), None)?.files;
    files.truncate(most.unwrap_or(usize::MAX));
    Ok((landing, files))
}

async fn stage(context: &Context, args: &ChildArgs) -> Result<Measured> {
    let (landing, files) = landed(&args.data, args.most)?;
    let lake = open(context, &landing, settings(context, args.threads), false)?;
    let (started, cpu) = (Instant::now(), cpu_seconds());
    whole(stage_all(&lake, &Producer::Folder(landing.clone()), files, lake.settings.threads).await?.0)?;
    Ok(Measured { stage_s: started.elapsed().as_secs_f64(), stage_cpu_s: cpu_seconds() - cpu, ..Measured::default() })
}

async fn adopt(context: &Context, args: &ChildArgs) -> Result<Measured> {
    let (landing, files) = landed(&args.data, args.most)?;
    // Every file is large enough.
    let settings = Settings { adopt_bytes: 1, ..settings(context, args.threads) };
    let lake = open(context, &landing, settings, false)?;
    let (started, cpu) = (Instant::now(), cpu_seconds());
    whole(stage_all(&lake, &Producer::Folder(landing.clone()), files, lake.settings.threads).await?.0)?;
    let (stage_s, staged_cpu) = (started.elapsed().as_secs_f64(), cpu_seconds());
    let rows = commit_all(&lake).await?;
    Ok(Measured {
        stage_s,
        commit_s: started.elapsed().as_secs_f64() - stage_s,
        stage_cpu_s: staged_cpu - cpu,
        commit_cpu_s: cpu_seconds() - staged_cpu,
        rows,
        ..Measured::default()
    })
}

/// Puts small files into the landing zone.
fn place(landing: &Path, count: u64) -> Result<Vec<Bring>> {
    let trips = Trips { files: count, rows: FEW_ROWS, days: 5, seed: 7 };
    let folder = landing.join("trips");
    let within = |error: std::io::Error| Error::from(error).within(folder.display());
    std::fs::create_dir_all(&folder).map_err(within)?;
    let mut files = Vec::new();
    for index in 0..count {
        let (name, to) = (Trips::name(index), folder.join(Trips::name(index)));
        std::fs::write(&to, trips.file(index)).map_err(within)?;
        files.push(Bring { from: None, to: Some(to), landed: format!("trips/{name}") });
    }
    Ok(files)
}

async fn metadata(context: &Context) -> Result<Measured> {
    let landing = context.config.landing_folder();
    let files = place(&landing, METADATA_FILES)?;
    let settings = Settings { adopt_bytes: 1, ..settings(context, None) };
    let lake = open(context, &landing, settings, false)?;
    whole(stage_all(&lake, &Producer::Folder(landing.clone()), files, lake.settings.threads).await?.0)?;
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let report = commit(&lake, CommitOptions { force: true, deadline: None }).await?;
    let commit_s = started.elapsed().as_secs_f64();
    let adopted: usize = report.commits.iter().map(|done| done.adopted).sum();
    if adopted as u64 != METADATA_FILES {
        return Err(Error::internal(format!("{adopted} of {METADATA_FILES} staged files were adopted")));
    }
    Ok(Measured { commit_s, commit_cpu_s: cpu_seconds() - cpu, ..Measured::default() })
}

async fn small(context: &Context) -> Result<Measured> {
    let landing = context.config.landing_folder();
    let files = place(&landing, SMALL_COMMITS)?;
    let lake = open(context, &landing, settings(context, None), false)?;
    let mut took = Vec::new();
    for file in files {
        whole(stage_all(&lake, &Producer::Folder(landing.clone()), vec![file], 1).await?.0)?;
        let started = Instant::now();
        commit(&lake, CommitOptions { force: true, deadline: None }).await?;
        took.push(started.elapsed().as_secs_f64());
    }
    Ok(Measured { commit_s: median(took), ..Measured::default() })
}

pub(super) fn whole(failures: Vec<crate::cli::ingest::FileFailure>) -> Result<()> {
    failures.first().map_or(Ok(()), |failure| Err(Error::internal(format!("{}: {}", failure.path, failure.error))))
}

pub(super) async fn commit_all(lake: &Lake) -> Result<u64> {
    let mut failures = Vec::new();
    let reports = commit_until_quiet(lake, &mut failures).await?;
    whole(failures)?;
    if let Some(table) = reports.iter().flat_map(|report| &report.failed).next() {
        return Err(Error::internal(format!("{}: {}", table.table, table.error)));
    }
    Ok(reports.iter().flat_map(|report| &report.commits).map(|done| done.rows).sum())
}
