//! `alluvium tables` and `alluvium history`: what there is, and how it came to be.

use clap::Args;
use serde_json::Value;

use super::context::{Context, find_table};
use super::exit::Exit;
use super::output;
use crate::error::Result;
use crate::layout;
use crate::pipeline::lake::Lake;
use crate::pipeline::status::count;
use crate::render::{Cell, Grid, Output};
use crate::schema::{Contract, Origin};
use crate::table::HistoryEntry;

/// Arguments of `tables`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium tables
  alluvium tables -o json")]
pub struct TablesArgs {
    /// How the tables are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium history curated/trips_daily
  alluvium history quarantine/raw/trips --limit 5 -o json")]
pub struct HistoryArgs {
    /// The table: raw/trips, quarantine/raw/trips, ledger
    pub table: String,
    /// Only the newest versions
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// How the versions are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `tables`.
///
/// # Errors
/// The lake cannot be read.
pub async fn run_tables(context: &Context, args: &TablesArgs) -> Result<Exit> {
    let lake = context.lake_to_look_at().await?;
    let mut grid =
        Grid::new(&["table", "layer", "version", "rows", "files", "bytes", "keys", "partitioned_by", "from"]);
    for contract in lake.catalog.tables() {
        let name = contract.table.to_string();
        let declared =
            Declared { layer: contract.table.layer(), keys: contract.primary_key.clone(), from: origin(contract) };
        grid.push(row(&lake, &name, &layout::table(&contract.table), declared).await?);
    }
    for contract in lake.catalog.tables().iter().filter(|contract| contract.has_quarantine()) {
        let folder = layout::quarantine(&contract.table);
        if lake.table(&folder).await?.is_some() {
            let from = vec![contract.table.to_string()];
            grid.push(row(&lake, &folder, &folder, Declared { layer: "quarantine", keys: Vec::new(), from }).await?);
        }
    }
    if lake.table(layout::LEDGER).await?.is_some() {
        let declared = Declared { layer: "ledger", keys: Vec::new(), from: Vec::new() };
        grid.push(row(&lake, layout::LEDGER, layout::LEDGER, declared).await?);
    }
    output::grid(&grid, args.output, "no contract declares a table")?;
    Ok(Exit::Done)
}

struct Declared<'a> {
    layer: &'a str,
    keys: Vec<String>,
    from: Vec<String>,
}

async fn row(lake: &Lake, name: &str, folder: &str, declared: Declared<'_>) -> Result<Vec<Cell>> {
    let list = |texts: Vec<String>| if texts.is_empty() { Cell::Empty } else { Cell::List(texts) };
    let (mut version, mut rows, mut files, mut bytes, mut partitions) =
        (Cell::Empty, Cell::Empty, Cell::Empty, Cell::Empty, Vec::new());
    if let Some(table) = lake.table(folder).await? {
        let snapshot = table.snapshot().await?;
        let live = snapshot.files()?;
        version = snapshot.version().into();
        rows = count(&snapshot).await?.into();
        files = live.len().into();
        bytes = Cell::Bytes(live.iter().map(|file| file.size).sum());
        partitions = snapshot.partition_by().to_vec();
    }
    let (keys, from) = (list(declared.keys), list(declared.from));
    Ok(vec![name.into(), declared.layer.into(), version, rows, files, bytes, keys, list(partitions), from])
}

fn origin(contract: &Contract) -> Vec<String> {
    match &contract.origin {
        Origin::Files(source) => vec![source.path.clone()],
        _ => contract.sources().into_iter().map(ToString::to_string).collect(),
    }
}

/// Runs `history`.
///
/// # Errors
/// There is no such table, or its log cannot be read.
pub async fn run_history(context: &Context, args: &HistoryArgs) -> Result<Exit> {
    let lake = context.lake_to_look_at().await?;
    let (_, table) = find_table(&lake, &args.table).await?;
    let mut entries = table.history(args.limit).await?;
    if args.output == Output::Table {
        entries.iter_mut().for_each(|entry| entry.info.retain(|name, _| !NOISE.contains(&name.as_str())));
    }
    output::grid(&history(entries), args.output, "no version is left in the log")?;
    Ok(Exit::Done)
}

/// What every commit says and no person wants to read.
const NOISE: [&str; 6] =
    ["engineInfo", "operationParameters", "isBlindAppend", "readVersion", "isolationLevel", "clientVersion"];

fn history(entries: Vec<HistoryEntry>) -> Grid {
    let mut grid = Grid::new(&["version", "at", "operation", "info"]);
    for entry in entries {
        let info = if entry.info.is_empty() { Cell::Empty } else { Cell::Json(Value::Object(entry.info)) };
        grid.push(vec![entry.version.into(), entry.at.into(), entry.operation.into(), info]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;
    use serde_json::json;

    #[test]
    fn a_history_is_a_line_a_version() {
        let entry = |version: i64, operation: &str, info: Value| HistoryEntry {
            version,
            at: DateTime::from_timestamp(1_709_287_445 + version, 0),
            operation: operation.to_owned(),
            info: info.as_object().cloned().unwrap_or_default(),
        };
        let entries = vec![entry(1, "WRITE", json!({"plan": 17, "rows": 5000})), entry(0, "CREATE TABLE", json!({}))];
        insta::assert_snapshot!(history(entries).text(None, false));
    }
}
