//! `alluvium quarantine redrive`: refused records are read again under today's contracts.

use clap::Args;

use super::context::declared;
use super::exit::Exit;
use super::ingest::commit_until_quiet;
use super::output;
use crate::error::Result;
use crate::pipeline::lake::Lake;
use crate::pipeline::redrive::{Action, Redriven, cured, is_work, redrive};
use crate::render::{Cell, Grid, Output};

/// Arguments of `quarantine redrive`.
#[derive(Debug, Args)]
pub struct RedriveArgs {
    /// The table that refused them; all tables when not given
    pub table: Option<String>,
    /// Only say what would come
    #[arg(long)]
    pub dry_run: bool,
    /// How the outcome is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `quarantine redrive`: stages what is good now, then commits until nothing is left.
///
/// # Errors
/// The table is not declared, or storage did not answer.
pub async fn run(lake: &Lake, args: &RedriveArgs) -> Result<Exit> {
    let tables = match &args.table {
        Some(name) => vec![declared(lake, name)?],
        None => lake.catalog.tables().iter().filter(|contract| contract.files().is_some()).cloned().collect(),
    };
    let mut found = Vec::new();
    for contract in &tables {
        found.extend(redrive(lake, contract, args.dry_run).await?);
    }
    output::grid(&grid(&found, args.dry_run), args.output, "quarantine is empty")?;
    if args.dry_run {
        output::note(&format!("{} would come", records(cured(&found))));
        return Ok(if is_work(&found) { Exit::Found } else { Exit::Done });
    }
    let mut failures = Vec::new();
    let reports = commit_until_quiet(lake, &mut failures).await?;
    let mut is_whole = failures.is_empty();
    for failure in &failures {
        output::note(&format!("failed: {}: {}", failure.path, failure.error));
    }
    for table in reports.iter().flat_map(|report| &report.failed) {
        output::note(&format!("stopped: {}: {}", table.table, table.error));
        is_whole = false;
    }
    output::note(&format!("{} redriven", records(cured(&found))));
    Ok(if is_whole { Exit::Done } else { Exit::Failed })
}

fn records(count: u64) -> String {
    match count {
        1 => "1 record".to_owned(),
        _ => format!("{count} records"),
    }
}

fn grid(found: &[Redriven], dry_run: bool) -> Grid {
    let mut grid = Grid::new(&["table", "file", "waiting", "good_now", "outcome", "reason"]);
    for one in found {
        let outcome = match one.action {
            Action::Redriven if dry_run => "to be redriven",
            Action::Redriven => "redriven",
            Action::AlreadyStaged => "staged before",
            Action::Refused => "still refused",
            Action::Replaced => "replaced",
            Action::Gone => "gone",
        };
        grid.push(vec![
            one.table.to_string().into(),
            one.path.as_str().into(),
            one.waiting.map_or_else(|| "whole file".into(), Cell::from),
            one.cured.into(),
            outcome.into(),
            one.reason.as_deref().unwrap_or_default().into(),
        ]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_in_words() {
        let one = |action: Action, waiting: Option<u64>, cured: u64, reason: Option<&str>| Redriven {
            table: "raw/trips".parse().unwrap(),
            path: "trips/bad.csv".to_owned(),
            waiting,
            action,
            cured,
            reason: reason.map(str::to_owned),
        };
        let found = [
            one(Action::Redriven, Some(3), 2, None),
            one(Action::Refused, None, 0, Some("header_mismatch: 0 of 2 expected columns")),
            one(Action::Gone, Some(1), 0, Some("not there")),
        ];
        insta::assert_snapshot!(grid(&found, true).text(None, false));
    }
}
