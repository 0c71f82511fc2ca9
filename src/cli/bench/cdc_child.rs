//! One measured run of `bench cdc`, in this process, over a home that is new.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::child::{commit_all, whole};
use super::measure::{cpu_seconds, peak_memory};
use crate::app::settings;
use crate::catalog::Catalog;
use crate::cli::context::Context;
use crate::cli::demo::shipped::CONTRACTS;
use crate::cli::ingest::bring::{self, Bring};
use crate::cli::ingest::stage_all;
use crate::cli::producer::Producer;
use crate::error::{Error, Result};
use crate::generate::shop::customers::{Customers, Spread};
use crate::landing::Landing;
use crate::layout;
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::store::Store;
use crate::table::DataFile;

/// Where the shipped contract of events looks for its files.
const LANDED: &str = "shop";
/// Events in a file of the snapshot of many keys.
const FILE_EVENTS: u64 = 100_000;
/// Files of the snapshot that are landed and committed at once, so that they do not all lie on the disk.
const FILES_AT_ONCE: u64 = 10;
/// What a change of a customer rewrites.
const REWRITTEN: [&str; 2] = ["silver/customers", "silver/customers_history"];

/// Arguments of a measured load.
#[derive(Debug, Args)]
pub struct CdcChildArgs {
    /// A folder of files of events
    #[arg(long)]
    pub data: PathBuf,
}

/// Arguments of a measured run over many keys.
#[derive(Debug, Args)]
pub struct KeysChildArgs {
    /// Rows of the table
    #[arg(long)]
    pub keys: u64,
    /// Changes of a measurement
    #[arg(long)]
    pub changes: u64,
    /// Measurements of each kind
    #[arg(long)]
    pub reps: u64,
}

/// What a load used. Seconds from the start, the copy into the landing zone included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Until all events are staged.
    pub staged_s: f64,
    /// Until they are in bronze.
    pub bronze_s: f64,
    /// Until rows, histories and quarantine are there.
    pub silver_s: f64,
    /// Until everything is.
    pub gold_s: f64,
    /// CPU of all.
    pub cpu_s: f64,
    /// Most memory resident, in bytes.
    pub peak_bytes: u64,
    /// Events in bronze.
    pub events: u64,
}

/// What some changes of a table of many rows used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Seconds from the landed file until rows and history are there.
    pub silver_s: f64,
    /// Seconds of gold after that.
    pub gold_s: f64,
    /// Bytes of the files that took the place of others, in the table and its history.
    pub rewritten_bytes: u64,
}

/// A table of many rows, and its changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Keys {
    /// Rows of the table.
    pub keys: u64,
    /// Seconds of loading them.
    pub load_s: f64,
    /// Most memory resident while they were loaded, in bytes.
    pub load_peak_bytes: u64,
    /// Changes that mostly fall on the newest keys.
    pub newest: Vec<Changed>,
    /// Changes that fall on all keys alike.
    pub even: Vec<Changed>,
    /// Most memory resident, in bytes.
    pub peak_bytes: u64,
}

/// How far a lake goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upto {
    Bronze,
    Silver,
    Gold,
}

fn open(context: &Context, upto: Upto) -> Result<Lake> {
    let wanted = |path: &str| {
        path.starts_with("bronze/")
            || upto != Upto::Bronze && path.starts_with("silver/")
            || upto == Upto::Gold && path.starts_with("gold/")
    };
    let shipped = CONTRACTS.iter().filter(|(path, _)| wanted(path));
    let sources = shipped.map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let catalog = Catalog::from_sources(sources).map_err(|found| {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        Error::internal(format!("the shipped contracts are wrong: {}", all.join("; ")))
    })?;
    let store = Store::local(&context.config.lake_folder())?;
    let landing = Landing::local(&context.config.landing_folder())?;
    Ok(Lake::new(catalog, store, landing, Arc::clone(&context.clock), settings(&context.config)))
}

/// Lands, stages, commits, and brings silver and gold to it.
///
/// # Errors
/// Something failed: a measurement of half the work is none.
pub async fn load(context: &Context, args: &CdcChildArgs) -> Result<Loaded> {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let landing = context.config.landing_folder();
    let brought = bring::plan(std::slice::from_ref(&args.data), Some(&landing), Some(LANDED))?;
    let events_only = |file: &Bring| file.landed.contains(".ndjson");
    let files = brought.files.into_iter().filter(events_only).collect();
    let bronze = open(context, Upto::Bronze)?;
    whole(stage_all(&bronze, &Producer::Folder(landing), files, bronze.settings.threads).await?.0)?;
    let staged_s = started.elapsed().as_secs_f64();
    let events = commit_all(&bronze).await?;
    let bronze_s = started.elapsed().as_secs_f64();
    commit_all(&open(context, Upto::Silver)?).await?;
    let silver_s = started.elapsed().as_secs_f64();
    commit_all(&open(context, Upto::Gold)?).await?;
    let gold_s = started.elapsed().as_secs_f64();
    Ok(Loaded { staged_s, bronze_s, silver_s, gold_s, cpu_s: cpu_seconds() - cpu, peak_bytes: peak_memory(), events })
}

/// Loads a table of many rows, then changes some of them, by turns the newest and any.
///
/// # Errors
/// As [`load`].
pub async fn keys(context: &Context, args: &KeysChildArgs) -> Result<Keys> {
    let customers = Customers { keys: args.keys, seed: 7 };
    let silver = open(context, Upto::Silver)?;
    let started = Instant::now();
    let mut next = 1;
    while next <= args.keys {
        let mut files = Vec::new();
        for _ in 0..FILES_AT_ONCE {
            if next > args.keys {
                break;
            }
            files.push(land(context, &format!("{next:09}"), customers.snapshot(next, next + FILE_EVENTS))?);
            next += FILE_EVENTS;
        }
        stage(context, &silver, files.clone()).await?;
        commit_all(&silver).await?;
        files.iter().filter_map(|file| file.to.as_ref()).try_for_each(std::fs::remove_file)?;
    }
    let load_s = started.elapsed().as_secs_f64();
    let load_peak_bytes = peak_memory();
    let gold = open(context, Upto::Gold)?;
    commit_all(&gold).await?;
    let mut found = Keys { keys: args.keys, load_s, load_peak_bytes, ..Keys::default() };
    for round in 0..args.reps * 2 {
        let spread = if round % 2 == 0 { Spread::Newest } else { Spread::Even };
        let file = land(context, &format!("round-{round}"), customers.changes(round, args.changes, spread))?;
        let before = stored(&silver).await?;
        let started = Instant::now();
        stage(context, &silver, vec![file]).await?;
        commit_all(&silver).await?;
        let silver_s = started.elapsed().as_secs_f64();
        let after = stored(&silver).await?;
        commit_all(&gold).await?;
        let gold_s = started.elapsed().as_secs_f64() - silver_s;
        let rewritten_bytes = after.iter().filter(|file| !before.contains(*file)).map(|(_, bytes)| bytes).sum();
        let of = if spread == Spread::Newest { &mut found.newest } else { &mut found.even };
        of.push(Changed { silver_s, gold_s, rewritten_bytes });
    }
    found.peak_bytes = peak_memory();
    Ok(found)
}

/// Writes a file of events where the contract looks for it.
fn land(context: &Context, name: &str, lines: impl Iterator<Item = Vec<u8>>) -> Result<Bring> {
    let landed = format!("{LANDED}/{name}.ndjson");
    let to = context.config.landing_folder().join(&landed);
    write_lines(&to, lines)?;
    Ok(Bring { from: None, to: Some(to), landed })
}

/// Writes a file of lines, and the folders above it.
///
/// # Errors
/// The disk is full, or the folder cannot be written to.
pub fn write_lines(path: &Path, lines: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let within = |error: std::io::Error| Error::from(error).within(path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(within)?;
    let mut file = BufWriter::new(File::create(path).map_err(within)?);
    for line in lines {
        file.write_all(&line).and_then(|()| file.write_all(b"\n")).map_err(within)?;
    }
    file.flush().map_err(within)
}

async fn stage(context: &Context, lake: &Lake, files: Vec<Bring>) -> Result<()> {
    let producer = Producer::Folder(context.config.landing_folder());
    whole(stage_all(lake, &producer, files, lake.settings.threads).await?.0)
}

/// The files of the tables that a change of a customer rewrites, with their sizes.
async fn stored(lake: &Lake) -> Result<BTreeSet<(String, u64)>> {
    let mut files = BTreeSet::new();
    for name in REWRITTEN {
        let folder = layout::table(&name.parse::<TableName>()?);
        let Some(table) = lake.table(&folder).await? else { continue };
        let snapshot = table.snapshot().await?;
        files.extend(snapshot.files()?.iter().map(|file: &DataFile| (format!("{name}/{}", file.path), file.size)));
    }
    Ok(files)
}
