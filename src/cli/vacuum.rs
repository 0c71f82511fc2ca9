//! `alluvium vacuum`: what is staged, discarded on purpose.

use std::io::{BufRead as _, IsTerminal as _};

use clap::Args;

use super::context::{Context, declared};
use super::exit::Exit;
use super::output;
use crate::error::{Error, Result};
use crate::pipeline::maintain::{Discarded, discard};
use crate::render::{Cell, Grid, Output};

/// Arguments of `vacuum`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium vacuum --staged --dry-run         what is staged, and what would have to be read again
  alluvium vacuum --staged --yes             discard it, and the plans that are settled

Files come back: `reconcile` reads them again, exactly those that are missing. Of change streams behind a function app what is
staged is the only copy: set the consumer group back before you discard it. (What the tables need no more is deleted by the nightly
upkeep.)

Exit code: 0 done, 1 failed or not confirmed, 3 a dry run found something.")]
pub struct VacuumArgs {
    /// Discard manifests and data that wait for a commit, and settled plans
    #[arg(long, required = true)]
    pub staged: bool,
    /// Tables; all of them when none is named
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,
    /// Tell what would be discarded, delete nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
    /// How the tables are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `vacuum`.
///
/// # Errors
/// The lake cannot be read or written, or nobody confirmed.
pub async fn run(context: &Context, args: &VacuumArgs) -> Result<Exit> {
    let lake = context.existing_lake().await?;
    let mut only = Vec::new();
    for name in &args.tables {
        only.push(declared(&lake, name)?.table.clone());
    }
    let found = Box::pin(discard(&lake, &only, true)).await?;
    if args.dry_run || is_nothing(&found) {
        print(&found, args.output)?;
        return Ok(if is_nothing(&found) { Exit::Done } else { Exit::Found });
    }
    if !args.yes {
        confirm(&found)?;
    }
    let discarded = Box::pin(discard(&lake, &only, false)).await?;
    print(&discarded, args.output)?;
    Ok(Exit::Done)
}

fn is_nothing(found: &[Discarded]) -> bool {
    found.iter().all(|table| table.staged.files == 0 && table.plans.files == 0)
}

fn confirm(found: &[Discarded]) -> Result<()> {
    let not_done = |why: &str| Error::invalid(why.to_owned()).remedy("say --yes, or look first with --dry-run");
    if !std::io::stdin().is_terminal() {
        return Err(not_done("nothing was discarded: nobody is here to confirm it"));
    }
    for line in warnings(found) {
        output::note(&line);
    }
    output::note("discard it? [y/N]");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "yes" => Ok(()),
        _ => Err(not_done("nothing was discarded")),
    }
}

fn warnings(found: &[Discarded]) -> Vec<String> {
    let mut lines = Vec::new();
    for table in found {
        if table.files > 0 {
            lines.push(format!("{}: {} staged files will be read again", table.table, table.files));
        }
        if table.pieces > 0 {
            lines.push(format!(
                "{}: {} staged pieces of streams may be the only copy: they come again when the stream is set back",
                table.table, table.pieces
            ));
        }
    }
    lines
}

fn print(found: &[Discarded], wanted: Output) -> Result<()> {
    if wanted == Output::Json {
        let value = serde_json::to_value(found).map_err(|error| Error::internal("as JSON").because(error))?;
        return output::json(&value);
    }
    output::grid(&grid(found), wanted, "no table was ever loaded")?;
    for line in warnings(found) {
        output::note(&line);
    }
    Ok(())
}

fn grid(found: &[Discarded]) -> Grid {
    let mut grid = Grid::new(&["table", "staged_files", "staged_pieces", "objects", "size", "settled_plans"]);
    for table in found {
        grid.push(vec![
            table.table.to_string().into(),
            table.files.into(),
            table.pieces.into(),
            table.staged.files.into(),
            Cell::Bytes(table.staged.bytes),
            table.plans.files.into(),
        ]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::maintain::Deleted;

    #[test]
    fn what_would_be_discarded_is_told_with_what_it_costs() {
        let found = [
            Discarded {
                table: "bronze/shop".parse().unwrap(),
                files: 0,
                pieces: 3,
                staged: Deleted { files: 7, bytes: 12_345 },
                plans: Deleted { files: 2, bytes: 900 },
            },
            Discarded {
                table: "raw/trips".parse().unwrap(),
                files: 12,
                pieces: 0,
                staged: Deleted { files: 24, bytes: 1 << 20 },
                plans: Deleted::default(),
            },
        ];
        let text = grid(&found).text(None, false);
        assert!(text.contains("bronze/shop") && text.contains("12.1 KiB") && text.contains("1.0 MiB"), "{text}");
        assert_eq!(
            warnings(&found),
            [
                "bronze/shop: 3 staged pieces of streams may be the only copy: they come again when the stream is set back",
                "raw/trips: 12 staged files will be read again",
            ]
        );
        assert!(!is_nothing(&found) && is_nothing(&[]));
    }
}
