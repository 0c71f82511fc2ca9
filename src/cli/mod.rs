//! The command line: everything a person meets. Data goes to standard output, everything else to standard error; the exit
//! code is 0 when done, 1 when it failed, 2 for wrong usage, 3 when something was found that a person should look at.

pub mod backfill;
pub mod bench;
pub mod check;
pub mod commit;
pub mod completions;
pub mod context;
pub mod demo;
pub mod doctor;
pub mod exit;
pub mod host;
pub mod infer;
pub mod ingest;
pub mod ledger;
pub mod output;
pub mod package;
pub mod producer;
pub mod quarantine;
pub mod redrive;
pub mod repair;
pub mod selftest;
pub mod sql;
pub mod status;
pub mod tables;
pub mod vacuum;

use std::future::Future;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::config::{Config, SETTINGS};
use crate::error::{Error, Result};
use crate::telemetry::Audience;
use context::Context;
use exit::Exit;

/// A serverless, event-driven medallion lakehouse on Delta Lake: files become curated tables, exactly once.
#[derive(Debug, Parser)]
#[command(
    name = "alluvium",
    version,
    about,
    max_term_width = 100,
    after_help = "Examples:
  alluvium demo                                      the whole way, on made-up trips
  alluvium ingest /data/trips --table raw/trips      files into tables
  alluvium sql 'select * from curated.trips_daily'   and out again

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 found something that a person should look at."
)]
pub struct Cli {
    /// Folder that holds landing/, lake/ and queue/
    #[arg(
        long,
        global = true,
        value_name = "FOLDER",
        help = "Folder that holds landing/, lake/ and queue/ [env: ALLUVIUM_HOME] [default: ./data]"
    )]
    pub home: Option<PathBuf>,
    /// Folder of the contracts
    #[arg(
        long,
        global = true,
        value_name = "FOLDER",
        help = "Folder of the contracts, LAYER/TABLE.yaml [env: ALLUVIUM_SCHEMAS] [default: ./schemas]"
    )]
    pub schemas: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the whole way on made-up trips: landing, tables, exactly once, quarantine, late data, time travel
    Demo(demo::DemoArgs),
    /// Run everything on this machine: watch the landing zone, run the functions, commit on time
    Local(host::LocalArgs),
    /// Serve the functions to a host (the Azure Functions host, or `alluvium local`)
    Serve(host::ServeArgs),
    /// Load files or folders, to the last record, and account for each
    Ingest(ingest::IngestArgs),
    /// Run the single writer once: commit what is staged, move the layers forward
    Commit(commit::CommitArgs),
    /// Recompute derived tables from their sources, tell what differs, mend it
    Backfill(backfill::BackfillArgs),
    /// What each table holds, what waits for it, what went wrong
    Status(status::StatusArgs),
    /// All tables: rows, files, bytes, keys, where they come from
    Tables(tables::TablesArgs),
    /// Query the lake (read only)
    Sql(sql::SqlArgs),
    /// The versions of a table
    History(tables::HistoryArgs),
    /// Every file version ever seen, and what became of it
    Ledger(ledger::LedgerArgs),
    /// The refused records, whole, and why
    Quarantine(quarantine::QuarantineArgs),
    /// Find the mistakes in the contracts
    Check(check::CheckArgs),
    /// Write a first contract from a file
    Infer(infer::InferArgs),
    /// Look whether everything that is needed is there
    Doctor(doctor::DoctorArgs),
    /// Write what a function app runs, as a folder and a zip, and list the settings that it needs
    Package(package::PackageArgs),
    /// Make lost state again from what is left: the ledger, from plans and tables
    Repair(repair::RepairArgs),
    /// Discard what is staged
    Vacuum(vacuum::VacuumArgs),
    /// Put exactly once to the test: faults at every call, on the storage that is configured
    Selftest(selftest::SelftestArgs),
    /// Measure speed and memory on this machine
    Bench(bench::BenchArgs),
    /// Print a shell's completion script
    Completions(completions::CompletionsArgs),
}

impl Cli {
    /// The configuration: the command line over the environment over defaults.
    ///
    /// # Errors
    /// A value cannot be used.
    pub fn config(&self) -> Result<Config> {
        let mut over = Vec::new();
        for (name, folder) in [("ALLUVIUM_HOME", &self.home), ("ALLUVIUM_SCHEMAS", &self.schemas)] {
            if let Some(folder) = folder {
                let text = folder.to_str().ok_or_else(|| {
                    Error::invalid(format!("{} is no UTF-8 path", folder.display())).remedy("name another folder")
                })?;
                over.push((name, text));
            }
        }
        Config::from_env_and(over)
    }

    /// Who reads the log of this command.
    #[must_use]
    pub const fn audience(&self) -> Audience {
        match self.command {
            Command::Serve(_) => Audience::Host,
            _ => Audience::Person,
        }
    }

    /// What is logged: what was asked for, else warnings, and for hosts what they do.
    #[must_use]
    pub fn log_filter<'a>(&self, config: &'a Config) -> &'a str {
        let setting = SETTINGS.iter().find(|setting| setting.name == "ALLUVIUM_LOG");
        let was_given = setting.is_some_and(|setting| config.given(setting).is_some());
        match self.command {
            Command::Serve(_) | Command::Local(_) => &config.log,
            _ if was_given => &config.log,
            // Its faults are no news.
            Command::Selftest(_) => "off",
            _ => "warn",
        }
    }

    /// Whether it only looks, and somebody waits for the answer.
    const fn is_looking(&self) -> bool {
        match self.command {
            Command::Status(_)
            | Command::Tables(_)
            | Command::Sql(_)
            | Command::History(_)
            | Command::Ledger(_)
            | Command::Quarantine(_)
            | Command::Check(_)
            | Command::Doctor(_) => true,
            Command::Demo(_)
            | Command::Local(_)
            | Command::Serve(_)
            | Command::Ingest(_)
            | Command::Commit(_)
            | Command::Backfill(_)
            | Command::Infer(_)
            | Command::Package(_)
            | Command::Bench(_)
            | Command::Repair(_)
            | Command::Vacuum(_)
            | Command::Selftest(_)
            | Command::Completions(_) => false,
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// It could not be done.
    pub fn run(&self, config: Config) -> Result<Exit> {
        let context = Context::new(if self.is_looking() { config.for_a_person() } else { config });
        match &self.command {
            Command::Demo(args) => block_on(demo::run(&context, args)),
            Command::Local(args) => block_on(host::local(&context, args)),
            Command::Serve(_) => block_on(host::serve(&context)),
            Command::Ingest(args) => block_on(ingest::run(&context, args)),
            Command::Commit(args) => block_on(commit::run(&context, args)),
            Command::Backfill(args) => block_on(backfill::run(&context, args)),
            Command::Status(args) => block_on(status::run(&context, args)),
            Command::Tables(args) => block_on(tables::run_tables(&context, args)),
            Command::Sql(args) => block_on(sql::run(&context, args)),
            Command::History(args) => block_on(tables::run_history(&context, args)),
            Command::Ledger(args) => block_on(ledger::run(&context, args)),
            Command::Quarantine(args) => block_on(quarantine::run(&context, args)),
            Command::Check(args) => block_on(check::run(&context, args)),
            Command::Infer(args) => block_on(infer::run(&context, args)),
            Command::Doctor(args) => block_on(doctor::run(&context, args)),
            Command::Package(args) => package::run(&context, args),
            Command::Repair(args) => block_on(repair::run(&context, args)),
            Command::Vacuum(args) => block_on(vacuum::run(&context, args)),
            Command::Selftest(args) => block_on(selftest::run(&context, args)),
            Command::Bench(args) => block_on(bench::run(&context, args)),
            Command::Completions(args) => completions::run(args),
        }
    }
}

fn block_on(work: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Error::from(error).within("starting threads"))?.block_on(work)
}

#[cfg(test)]
mod tests;
