//! `alluvium ingest PATH…`: copy into the landing zone what is outside it, stage, commit, move the layers forward until
//! nothing is left, and account for every record.

pub mod account;
pub mod bring;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};

use super::context::{Context, declared};
use super::exit::Exit;
use super::output;
use super::producer::{Producer, holds_other, upload};
use crate::app::Backends;
use crate::catalog::Claim;
use crate::error::{Directive, Error, Result};
use crate::event::FileEvent;
use crate::pipeline::commit::{CommitOptions, CommitReport, commit};
use crate::pipeline::ingest::ingest;
use crate::pipeline::lake::Lake;
use crate::render::Output;
use crate::schema::Contract;
use account::Account;

/// Copied files that wait for a worker at most: enough to never let one wait, few enough to stay in the file cache.
const COPIED_AHEAD: usize = 8;

/// How often a file is read again when its storage did not answer or it changed meanwhile.
const TRIES: usize = 3;

/// How often the committer runs before it is said that it does not come to rest.
const COMMITS: usize = 100;

/// Arguments of `ingest`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium ingest /data/trips_march --table raw/trips     copy a folder of files and load it
  alluvium ingest data/landing/trips                      load what is in the landing zone already
  alluvium ingest fixed/day1.csv --table raw/trips --replace   correct a file that was loaded before

Exit code: 0 everything was taken (quarantined records included), 3 a file was refused or nobody takes it,
1 it could not finish.")]
pub struct IngestArgs {
    /// Files or folders. What lies outside the landing zone is copied into it
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Copy to where this table looks for its files, and only what it takes; without it, to a folder named as PATH's own
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Let a file take the place of another one of its name in the landing zone, as its next version
    #[arg(long)]
    pub replace: bool,
    /// How the row arithmetic is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// What went wrong with one file.
#[derive(Debug, Clone)]
pub struct FileFailure {
    /// The file.
    pub path: String,
    /// Why, and what to do.
    pub error: String,
}

/// Runs `ingest`.
///
/// # Errors
/// Nothing could be begun, or the account cannot be made.
pub async fn run(context: &Context, args: &IngestArgs) -> Result<Exit> {
    let started = Instant::now();
    let lake = context.lake().await?;
    let target = args.table.as_ref().map(|name| declared(&lake, name)).transpose()?;
    let folder = target.as_deref().map(bring::folder_of).transpose()?;
    let producer = Producer::open(&Backends::open(&context.config, Arc::clone(&context.clock))?)?;
    let landing = match &producer {
        Producer::Folder(landing) => Some(landing.as_path()),
        Producer::Container(_) => None,
    };
    let mut brought = bring::plan(&args.paths, landing, folder.as_deref())?;
    for skipped in &brought.skipped {
        output::note(&format!("left out: {} ({})", skipped.display(), bring::NOT_DATA));
    }
    if brought.files.is_empty() {
        return Err(Error::not_found("no file to ingest").remedy("name files, or folders that have some"));
    }
    // Said before anything is copied: what the table does not take would lie in the landing zone for nothing.
    let foreign = target.map_or_else(Vec::new, |table| leave_out_foreign(&lake, &table, &mut brought.files));
    if brought.files.is_empty() {
        return Ok(Exit::Found);
    }
    if !args.replace {
        refuse_replacements(&producer, &brought.files).await?;
    }
    let begun = lake.clock.now();
    let landed: BTreeSet<String> = brought.files.iter().map(|file| file.landed.clone()).collect();
    let (mut failures, _) = stage_all(&lake, &producer, brought.files, lake.settings.threads).await?;
    let reports = commit_until_quiet(&lake, &mut failures).await?;
    let account = Account::of(&lake, &landed, begun, failures, &reports).await?;
    account.print(args.output, started.elapsed())?;
    Ok(match account.exit() {
        Exit::Done if !foreign.is_empty() => Exit::Found,
        exit => exit,
    })
}

/// A file that lands under the name of another is its next version, and the other's rows go: that has to be meant.
async fn refuse_replacements(producer: &Producer, files: &[bring::Bring]) -> Result<()> {
    let mut replaced = Vec::new();
    for file in files {
        let other = match (producer, &file.from) {
            (Producer::Container(blobs), Some(from)) => holds_other(&**blobs, from, &file.landed).await?,
            _ => file.would_replace()?,
        };
        if other {
            replaced.push(file);
        }
    }
    let Some(first) = replaced.first() else { return Ok(()) };
    let more = if replaced.len() > 1 { format!(" (and {} more like it)", replaced.len() - 1) } else { String::new() };
    let message =
        format!("the landing zone has another file at {}, where {} would go{more}", first.landed, first.shown());
    Err(Error::invalid(message).remedy(
        "nothing was copied; --replace makes it the next version of that file, whose rows then go, or give it another name",
    ))
}

/// Takes out, and tells, the files that would be copied to where `table` looks and that it does not take.
fn leave_out_foreign(lake: &Lake, table: &Contract, files: &mut Vec<bring::Bring>) -> Vec<bring::Bring> {
    let takes = |path: &str| {
        let claims = lake.catalog.claims(path);
        claims.iter().any(|(contract, claim)| contract.table == table.table && *claim == Claim::Take)
    };
    let (kept, foreign) =
        std::mem::take(files).into_iter().partition(|file| file.from.is_none() || takes(&file.landed));
    *files = kept;
    let pattern = table.files().map_or("", |source| source.path.as_str());
    for file in &foreign {
        let (shown, landed) = (file.shown(), &file.landed);
        output::note(&format!("left out: {shown} ({} takes {pattern}, not {landed}): nothing was copied", table.table));
    }
    foreign
}

/// Copies and stages files with some workers; gives back what could not be staged and how many bytes were read.
///
/// # Errors
/// A worker fell over.
pub async fn stage_all(
    lake: &Lake,
    producer: &Producer,
    files: Vec<bring::Bring>,
    workers: usize,
) -> Result<(Vec<FileFailure>, u64)> {
    let bar = output::bar(files.len() as u64, "staging");
    let (send, receive) = mpsc::channel::<String>(COPIED_AHEAD);
    let receive = Arc::new(Mutex::new(receive));
    let (producer, handle) = (producer.clone(), Handle::current());
    let copier = tokio::task::spawn_blocking(move || copy_all(&producer, files, &send, &handle));
    let mut tasks = Vec::with_capacity(workers);
    for _ in 0..workers.max(1) {
        let (lake, receive, bar) = (lake.clone(), Arc::clone(&receive), bar.clone());
        tasks.push(tokio::spawn(async move {
            let mut failures = Vec::new();
            loop {
                let next = receive.lock().await.recv().await;
                let Some(path) = next else { return failures };
                if let Err(error) = stage_one(&lake, &path).await {
                    failures.push(FileFailure { path, error: error.describe() });
                }
                bar.inc(1);
            }
        }));
    }
    let mut failures = Vec::new();
    for task in tasks {
        failures.extend(task.await.map_err(|error| Error::internal("a staging worker stopped").because(error))?);
    }
    let (failed, bytes) = copier.await.map_err(|error| Error::internal("copying stopped").because(error))?;
    failures.extend(failed);
    bar.finish_and_clear();
    Ok((failures, bytes))
}

fn copy_all(
    producer: &Producer,
    files: Vec<bring::Bring>,
    send: &mpsc::Sender<String>,
    handle: &Handle,
) -> (Vec<FileFailure>, u64) {
    let mut failures = Vec::new();
    let mut bytes = 0;
    for file in files {
        let copied = match (producer, &file.from) {
            (Producer::Container(blobs), Some(from)) => handle.block_on(upload(&**blobs, from, &file.landed)),
            _ => file.copy(),
        };
        match copied {
            Ok(copied) => bytes += copied,
            Err(error) => {
                failures.push(FileFailure { path: file.shown(), error: error.describe() });
                continue;
            }
        }
        // Nobody receives any more only when a worker fell over, which is reported by itself.
        if send.blocking_send(file.landed).is_err() {
            break;
        }
    }
    (failures, bytes)
}

async fn stage_one(lake: &Lake, path: &str) -> Result<()> {
    let event = FileEvent { path: path.to_owned(), etag: None, sequencer: None, bytes: None };
    let mut tries = 0;
    loop {
        let Err(error) = ingest(lake, &event).await else { return Ok(()) };
        tries += 1;
        if tries == TRIES || error.kind().directive() != Directive::Retry {
            return Err(error);
        }
        lake.pause(3 + tries).await;
    }
}

/// Runs the committer until it has nothing left; files whose staged data went away are staged again.
///
/// # Errors
/// The ledger cannot be read, or it does not come to rest.
pub async fn commit_until_quiet(lake: &Lake, failures: &mut Vec<FileFailure>) -> Result<Vec<CommitReport>> {
    let spinner = output::bar(1, "committing");
    let mut reports = Vec::new();
    for _ in 0..COMMITS {
        let report = commit(lake, CommitOptions { force: true, deadline: None }).await?;
        for version in &report.restage {
            if let Err(error) = stage_one(lake, &version.path).await {
                failures.push(FileFailure { path: version.path.clone(), error: error.describe() });
            }
        }
        // A table that stopped stays stopped: it does not keep the others from coming to rest.
        let is_over = report.is_quiet();
        reports.push(report);
        if is_over {
            spinner.finish_and_clear();
            return Ok(reports);
        }
    }
    Err(Error::conflict(format!("the committer did not come to rest in {COMMITS} runs"))
        .remedy("nothing is lost; other writers are busy: run `alluvium commit --force` again"))
}
