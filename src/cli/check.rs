//! `alluvium check`: every mistake in the contracts, each where it is.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::catalog::{Diagnostic, check_folder};
use crate::error::{Error, Result};
use crate::lineage::check_catalog;
use crate::pipeline::drift::{Difference, deployment};
use crate::render::Output;
use crate::schema::Contract;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium check
  alluvium check ./schemas -o json
  alluvium check ./schemas-next --against-lake     what deploying these contracts would do to the tables

Exit code: 0 nothing is wrong, 3 there are mistakes, or a table of the lake would refuse its contract.")]
pub struct CheckArgs {
    /// The folder of contracts, or one file in it; the configured folder when not given
    pub path: Option<PathBuf>,
    /// Also say what the contracts would do to the tables that the lake has
    #[arg(long)]
    pub against_lake: bool,
    /// How the mistakes are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `check`.
///
/// # Errors
/// There is no such folder, or (with `--against-lake`) the lake cannot be read.
pub async fn run(context: &Context, args: &CheckArgs) -> Result<Exit> {
    let path = args.path.clone().unwrap_or_else(|| context.config.schemas.clone());
    if !path.exists() {
        return Err(Error::not_found(format!("there is no {}", path.display()))
            .remedy("name the folder of contracts: `alluvium check PATH`, --schemas or ALLUVIUM_SCHEMAS"));
    }
    // One file is checked among its neighbours: `<folder>/<layer>/<table>.yaml`.
    let folder = match path.ancestors().nth(2) {
        Some(folder) if path.is_file() && folder.as_os_str().is_empty() => PathBuf::from("."),
        Some(folder) if path.is_file() => folder.to_owned(),
        _ => path.clone(),
    };
    let mut unplanned = false;
    let (tables, mut found) = match check_folder(&folder) {
        Ok(catalog) => {
            let mut found = catalog.warnings().to_vec();
            found.extend(check_catalog(&catalog));
            (catalog.tables().iter().filter(|contract| contract.history_of().is_none()).count(), found)
        }
        Err(found) => {
            unplanned = true;
            (0, found)
        }
    };
    if path.is_file() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let layer = path.parent().and_then(|parent| parent.file_name()).map(|name| name.to_string_lossy().into_owned());
        let tail = format!("{}/{name}", layer.unwrap_or_default());
        found.retain(|one| one.file.ends_with(&tail));
    }
    found.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    found.dedup();
    let mut effects = Vec::new();
    if args.against_lake && !found.iter().any(|one| one.is_error) {
        let lake = context.existing_lake_under(&folder).await?;
        effects = deployment(&lake).await?;
        for (contract, differences) in &effects {
            let refused = differences.iter().filter(|difference| difference.is_refused());
            found.extend(refused.map(|one| contract.diagnose(&one.at, &*one.message).maybe_help(one.help.clone())));
        }
    }
    let mistakes = found.iter().filter(|one| one.is_error).count();
    match args.output {
        Output::Json => {
            let effects = effects.iter().flat_map(|(contract, all)| all.iter().map(move |one| (contract, one)));
            let effects =
                effects.filter(|(_, one)| !one.is_refused()).map(|(contract, one)| effect_json(contract, one));
            output::json(&found.iter().map(as_json).chain(effects).collect())?;
        }
        Output::Table => {
            output::data(&report(&found))?;
            for (contract, differences) in &effects {
                for one in differences.iter().filter(|one| !one.is_refused()) {
                    output::data(&format!("{}: {}\n", contract.table, one.message))?;
                }
            }
            if args.against_lake && mistakes == 0 && effects.is_empty() {
                output::note("the lake's tables stay as they are");
            }
            if !unplanned || mistakes > 0 {
                output::note(&summary(mistakes, found.len() - mistakes, tables));
            }
            if unplanned {
                output::note("SQL is not planned yet: that is done when the contracts of the whole folder can be read");
            }
        }
    }
    Ok(if mistakes > 0 || unplanned { Exit::Found } else { Exit::Done })
}

fn report(found: &[Diagnostic]) -> String {
    found.iter().map(|one| format!("{one}\n\n")).collect()
}

fn summary(mistakes: usize, warnings: usize, tables: usize) -> String {
    let some = |count: usize, word: &str| match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    };
    match (mistakes, warnings) {
        (0, 0) => format!("{}: nothing is wrong", some(tables, "contract")),
        (0, _) => format!("{}: {}", some(tables, "contract"), some(warnings, "warning")),
        (_, 0) => some(mistakes, "mistake"),
        _ => format!("{}, {}", some(mistakes, "mistake"), some(warnings, "warning")),
    }
}

fn effect_json(contract: &Contract, one: &Difference) -> Value {
    json!({
        "file": contract.file,
        "line": contract.positions.nearest(&one.at).line,
        "column": contract.positions.nearest(&one.at).column,
        "severity": "effect",
        "message": one.message,
        "help": null,
    })
}

fn as_json(one: &Diagnostic) -> Value {
    json!({
        "file": one.file,
        "line": one.line,
        "column": one.column,
        "severity": if one.is_error { "error" } else { "warning" },
        "message": one.message,
        "help": one.help,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_in_words() {
        for (mistakes, warnings, tables, text) in [
            (0, 0, 1, "1 contract: nothing is wrong"),
            (0, 2, 4, "4 contracts: 2 warnings"),
            (1, 0, 0, "1 mistake"),
            (3, 1, 0, "3 mistakes, 1 warning"),
        ] {
            assert_eq!(summary(mistakes, warnings, tables), text);
        }
    }
}
