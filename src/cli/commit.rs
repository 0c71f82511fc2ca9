//! `alluvium commit`: one run of the single writer.

use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::ingest::commit_until_quiet;
use super::output;
use crate::error::Result;
use crate::pipeline::commit::{CommitOptions, CommitReport, commit};
use crate::pipeline::layers::{Advanced, Mode};
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
    let lake = context.lake().await?;
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
    // What the last run says: a table that was only slow has caught up since.
    for table in reports.last().iter().flat_map(|report| &report.failed) {
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

fn recomputed(moved: &Advanced) -> String {
    match &moved.mode {
        Mode::Whole(reason) => format!("the whole table: {reason}"),
        Mode::Incremental | Mode::Nothing => format!("{} units", moved.units),
    }
}

/// What runs of the committer did, as a table: columns that follow contracts, commits of files, then what the layers did.
#[must_use]
pub fn grid(reports: &[CommitReport]) -> Grid {
    let mut grid = Grid::new(&[
        "table",
        "version",
        "batches",
        "rows_added",
        "rows_removed",
        "quarantined",
        "files_adopted",
        "recomputed",
    ]);
    for report in reports {
        for followed in &report.followed {
            grid.push(vec![
                followed.table.to_string().into(),
                followed.version.into(),
                Cell::Empty,
                Cell::Empty,
                Cell::Empty,
                Cell::Empty,
                Cell::Empty,
                followed.how.as_str().into(),
            ]);
        }
        for done in &report.commits {
            grid.push(vec![
                done.table.to_string().into(),
                done.version.into(),
                done.batches.into(),
                done.rows.into(),
                Cell::Empty,
                done.quarantined.into(),
                done.adopted.into(),
                Cell::Empty,
            ]);
        }
        for moved in report.layers.iter().filter(|moved| !moved.is_nothing()) {
            grid.push(vec![
                moved.table.to_string().into(),
                moved.version.into(),
                Cell::Empty,
                moved.rows_added.into(),
                moved.rows_removed.into(),
                Cell::Empty,
                Cell::Empty,
                recomputed(moved).into(),
            ]);
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::commit::{Committed, Followed};

    #[test]
    fn commits_come_before_what_they_moved() {
        let report = CommitReport {
            followed: vec![Followed {
                table: "raw/zones".parse().unwrap(),
                version: 9,
                how: "columns follow the contract: n became wider".to_owned(),
            }],
            commits: vec![Committed {
                table: "raw/trips".parse().unwrap(),
                plan: 17,
                version: 1,
                batches: 5,
                rows: 5_000,
                quarantined: 3,
                adopted: 0,
            }],
            layers: vec![
                Advanced {
                    table: "aggregate/trips".parse().unwrap(),
                    mode: Mode::Whole("it is new".to_owned()),
                    units: 0,
                    rows_added: 5_000,
                    rows_removed: 0,
                    version: Some(1),
                },
                Advanced {
                    table: "curated/trips_daily".parse().unwrap(),
                    mode: Mode::Incremental,
                    units: 6,
                    rows_added: 1_024,
                    rows_removed: 12,
                    version: Some(4),
                },
                Advanced {
                    table: "curated/other".parse().unwrap(),
                    mode: Mode::Nothing,
                    units: 0,
                    rows_added: 0,
                    rows_removed: 0,
                    version: Some(2),
                },
            ],
            ..CommitReport::default()
        };
        insta::assert_snapshot!(grid(&[report]).text(None, false));
    }
}
