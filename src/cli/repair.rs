//! `alluvium repair`: lost state made again from what is left.

use clap::{Args, Subcommand};

use super::context::{Context, declared};
use super::exit::Exit;
use super::output;
use crate::error::{Error, Result};
use crate::pipeline::repair::{Outcome, Repaired, repair_ledger};
use crate::render::{Grid, Output};

/// Arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// What is made again
    #[command(subcommand)]
    pub what: What,
}

/// What is made again.
#[derive(Debug, Subcommand)]
pub enum What {
    /// The ledger, from the plans that are still there and from the rows of tables and quarantine
    #[command(after_help = "Examples:
  alluvium repair ledger --dry-run       which tables have rows that the ledger does not know?
  alluvium repair ledger                 make it again
  alluvium repair ledger raw/trips -o json

A table that is ahead of the ledger stops until it is repaired. What cannot be known again is null, and said. Files that brought
neither a row nor a refused record are read again by `reconcile`, which harms nothing.

Exit code: 0 done, 1 failed, 3 a dry run found something to repair.")]
    Ledger(LedgerArgs),
}

/// Arguments of `repair ledger`.
#[derive(Debug, Args)]
pub struct LedgerArgs {
    /// Tables; all of them when none is named
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,
    /// Tell what would be made again, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How the tables are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `repair`.
///
/// # Errors
/// The lake cannot be read or written.
pub async fn run(context: &Context, args: &RepairArgs) -> Result<Exit> {
    let What::Ledger(args) = &args.what;
    let lake = context.existing_lake().await?;
    let mut only = Vec::new();
    for name in &args.tables {
        only.push(declared(&lake, name)?.table.clone());
    }
    let repaired = Box::pin(repair_ledger(&lake, &only, args.dry_run)).await?;
    match args.output {
        Output::Json => {
            let value = serde_json::to_value(&repaired).map_err(|error| Error::internal("as JSON").because(error))?;
            output::json(&value)?;
        }
        Output::Table => output::grid(&grid(&repaired), args.output, "no table was ever loaded")?,
    }
    for line in remarks(&repaired) {
        output::note(&line);
    }
    let is_missing = repaired.iter().any(|repaired| repaired.outcome == Outcome::Missing);
    Ok(if is_missing { Exit::Found } else { Exit::Done })
}

fn grid(repaired: &[Repaired]) -> Grid {
    let mut grid = Grid::new(&["table", "ledger", "batches_by_plans", "batches_by_rows", "rows"]);
    for table in repaired {
        grid.push(vec![
            table.table.to_string().into(),
            table.outcome.as_str().into(),
            table.by_plans.into(),
            table.by_rows.into(),
            table.rows.into(),
        ]);
    }
    grid
}

fn remarks(repaired: &[Repaired]) -> Vec<String> {
    let lines = repaired.iter().flat_map(|table| {
        table.unknown.iter().map(move |unknown| format!("{}: not known again: {unknown}", table.table))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_again_and_what_is_not_known_are_told() {
        let table = |name: &str, outcome, by_plans, by_rows, rows| Repaired {
            table: name.parse().unwrap(),
            outcome,
            by_plans,
            by_rows,
            rows,
            unknown: Vec::new(),
        };
        let mut rebuilt = table("raw/trips", Outcome::Rebuilt, 2, 17, 12_345);
        rebuilt.unknown.push("files that brought no row".to_owned());
        let repaired = [rebuilt, table("raw/zones", Outcome::Whole, 0, 0, 0)];
        let text = grid(&repaired).text(None, false);
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows,
            [["raw/trips", "rebuilt", "2", "17", "12,345"], ["raw/zones", "whole", "0", "0", "0"]],
            "{text}"
        );
        assert_eq!(remarks(&repaired), ["raw/trips: not known again: files that brought no row"]);
    }
}
