//! `alluvium backfill`: derived tables recomputed from their sources, and what differed.

use clap::Args;

use super::context::{Context, declared};
use super::exit::Exit;
use super::output;
use crate::error::{Error, Result};
use crate::pipeline::backfill::{BackfillOptions, BackfillReport, backfill, targets};
use crate::render::{Cell, Grid, Output, grouped};

/// Arguments of `backfill`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium backfill --verify                   is every derived table what its sources make it?
  alluvium backfill curated/trips_daily        mend one that is not

Exit code: 0 done, 3 --verify found a difference, 1 a table could not be recomputed.")]
pub struct BackfillArgs {
    /// Derived tables; all of them when none is named
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,
    /// Tell the differences, change nothing
    #[arg(long)]
    pub verify: bool,
    /// How the tables are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `backfill`.
///
/// # Errors
/// The lake cannot be read, or a name is not that of a derived table.
pub async fn run(context: &Context, args: &BackfillArgs) -> Result<Exit> {
    let lake = context.existing_lake().await?;
    let mut options = BackfillOptions { verify: args.verify, ..BackfillOptions::default() };
    for name in &args.tables {
        options.only.push(declared(&lake, name)?.table.clone());
    }
    let bar = output::bar(targets(&lake, &options.only)?.len() as u64, "recomputing");
    let report = backfill(&lake, &options, |_| bar.inc(1)).await?;
    bar.finish_and_clear();
    match args.output {
        Output::Json => {
            let value = serde_json::to_value(&report).map_err(|error| Error::internal("as JSON").because(error))?;
            output::json(&value)?;
        }
        Output::Table => output::grid(&grid(&report), args.output, "no table is derived from another one")?,
    }
    for line in remarks(&report) {
        output::note(&line);
    }
    Ok(exit(&report, args.verify))
}

fn exit(report: &BackfillReport, verify: bool) -> Exit {
    match report {
        report if !report.failed.is_empty() => Exit::Failed,
        report if verify && report.differs() => Exit::Found,
        _ => Exit::Done,
    }
}

fn grid(report: &BackfillReport) -> Grid {
    let mut grid = Grid::new(&["table", "outcome", "rows", "missing", "extra", "different", "version"]);
    for table in &report.tables {
        let difference = |count: u64| if count == 0 { Cell::Empty } else { Cell::from(count) };
        grid.push(vec![
            table.table.to_string().into(),
            table.outcome.as_str().into(),
            table.rows.into(),
            difference(table.difference.missing),
            difference(table.difference.extra),
            difference(table.difference.different),
            table.version.into(),
        ]);
    }
    grid
}

fn remarks(report: &BackfillReport) -> Vec<String> {
    let mut lines = Vec::new();
    for table in &report.tables {
        if let Some(reason) = &table.reason {
            lines.push(format!("{}: {reason}", table.table));
        }
    }
    for failure in &report.failed {
        lines.push(format!("stopped: {}: {}", failure.table, failure.error));
    }
    let differing = report.tables.iter().filter(|table| !table.difference.is_none() && table.version.is_none()).count();
    if differing > 0 {
        let count = grouped(i64::try_from(differing).unwrap_or(i64::MAX));
        lines.push(format!("{count} not what their sources make them: `alluvium backfill` mends them"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::backfill::{Backfilled, Outcome};
    use crate::pipeline::commit::TableFailure;
    use crate::pipeline::layers::Difference;

    fn table(name: &str, outcome: Outcome, difference: Difference) -> Backfilled {
        Backfilled { table: name.parse().unwrap(), outcome, rows: 5_050, difference, reason: None, version: None }
    }

    fn report() -> BackfillReport {
        let difference = Difference { missing: 2, extra: 0, different: 1_234 };
        let reason = Some("version 3 of raw/trips can no longer be read".to_owned());
        let skipped = Backfilled { rows: 0, reason, ..table("gold/trips", Outcome::Skipped, Difference::default()) };
        let tables = vec![
            table("aggregate/trips", Outcome::Same, Difference::default()),
            table("curated/trips_daily", Outcome::Differs, difference),
            Backfilled { version: Some(9), ..table("curated/zones", Outcome::Mended, difference) },
            skipped,
        ];
        BackfillReport { tables, ..BackfillReport::default() }
    }

    #[test]
    fn differences_are_told_by_table() {
        let report = report();
        insta::assert_snapshot!(format!("{}{}", grid(&report).text(None, false), remarks(&report).join("\n")));
    }

    #[test]
    fn exit_codes() {
        let mut report = report();
        assert_eq!((exit(&report, true), exit(&report, false)), (Exit::Found, Exit::Done));
        report.tables.truncate(1);
        assert_eq!(exit(&report, true), Exit::Done);
        let failure = TableFailure { table: "curated/zones".parse().unwrap(), error: "the store is away".to_owned() };
        report.failed.push(failure);
        assert_eq!((exit(&report, true), exit(&report, false)), (Exit::Failed, Exit::Failed));
    }
}
