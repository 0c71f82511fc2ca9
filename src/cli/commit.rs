//! `alluvium commit`: one run of the single writer.

use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::ingest::commit_until_quiet;
use super::output;
use crate::error::Result;
use crate::pipeline::commit::{CommitOptions, CommitReport, commit};
use crate::render::{Cell, Grid, Output};

/// Arguments of `commit`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium commit              commit what is due by rows, bytes or age, and move the layers forward
  alluvium commit --force      commit everything that is staged")]
pub struct CommitArgs {
    /// Commit everything that is staged, due or not, until nothing is left
    #[arg(long)]
    pub force: bool,
    /// How the commits are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `commit`.
///
/// # Errors
/// The ledger or a contract cannot be read.
pub async fn run(context: &Context, args: &CommitArgs) -> Result<Exit> {
    let lake = context.lake()?;
    let mut failures = Vec::new();
    let reports = if args.force {
        commit_until_quiet(&lake, &mut failures).await?
    } else {
        vec![commit(&lake, CommitOptions::default()).await?]
    };
    match args.output {
        Output::Json => {
            let reports = serde_json::to_value(&reports).unwrap_or_default();
            output::json(&reports)?;
        }
        Output::Table => output::grid(&grid(&reports), args.output, "nothing was due")?,
    }
    let mut stopped = false;
    for table in reports.iter().flat_map(|report| &report.failed) {
        output::note(&format!("stopped: {}: {}", table.table, table.error));
        stopped = true;
    }
    for failure in &failures {
        output::note(&format!("failed: {}: {}", failure.path, failure.error));
    }
    for version in reports.iter().filter(|_| !args.force).flat_map(|report| &report.restage) {
        output::note(&format!("to be staged again: {} (`alluvium ingest` it, or let the host do it)", version.path));
    }
    Ok(if stopped || !failures.is_empty() { Exit::Failed } else { Exit::Done })
}

/// What runs of the committer did, as a table: commits of files, then what the layers did.
#[must_use]
pub fn grid(reports: &[CommitReport]) -> Grid {
    let mut grid = Grid::new(&["table", "version", "batches", "rows", "quarantined", "files_adopted", "units", "note"]);
    for report in reports {
        for done in &report.commits {
            grid.push(vec![
                done.table.to_string().into(),
                done.version.into(),
                done.batches.into(),
                done.rows.into(),
                done.quarantined.into(),
                done.adopted.into(),
                Cell::Empty,
                Cell::Empty,
            ]);
        }
        for moved in report.layers.iter().filter(|moved| !moved.is_nothing()) {
            grid.push(vec![
                moved.table.to_string().into(),
                moved.version.into(),
                Cell::Empty,
                moved.rows.into(),
                Cell::Empty,
                Cell::Empty,
                moved.units.into(),
                moved.note.clone().into(),
            ]);
        }
    }
    grid
}
