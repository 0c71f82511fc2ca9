//! `alluvium quarantine`: the refused records, whole, and why; and the way back into their table.

mod changes;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::context::{Context, declared};
use super::exit::Exit;
use super::ledger::path_matcher;
use super::output;
use super::redrive::RedriveArgs;
use super::sql::{Engine, Pins};
use crate::decode::Reason;
use crate::error::Result;
use crate::layout;
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::quarantine::{Quarantined, from_batch};
use crate::render::{Cell, Grid, Output};

/// Bytes of a record that a table shows.
const SHOWN: usize = 200;

/// Arguments of `quarantine`.
#[derive(Debug, Args)]
pub struct QuarantineArgs {
    /// What is wanted
    #[command(subcommand)]
    pub what: What,
}

/// What is wanted of quarantine.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Which files have records in quarantine, how many, and the rules they broke
    #[command(after_help = "Examples:
  alluvium quarantine list
  alluvium quarantine list --table raw/trips -o json")]
    List(ListArgs),
    /// The refused records themselves, with line, reason and the text as it came
    #[command(after_help = "Examples:
  alluvium quarantine show raw/trips
  alluvium quarantine show raw/trips --file 'trips/bad*' --limit 5 -o json
  alluvium sql 'select file, record, reasons from quarantine.raw.trips'")]
    Show(ShowArgs),
    /// Reads refused records again under today's contracts: what is good now enters its table, once
    #[command(after_help = "Examples:
  alluvium quarantine redrive --dry-run            what would come, over all tables
  alluvium quarantine redrive raw/trips            bring it
  alluvium quarantine redrive raw/trips -o json

Rows come with the file, record number and batch that they are of; their quarantine rows are marked resolved. Records are
read from what quarantine keeps of them. A file that was refused whole is read whole, as are Parquet files: they must still be
in the landing zone.

Exit code: 0 done, 1 failed, 3 a dry run found something to bring.")]
    Redrive(RedriveArgs),
}

/// Arguments of `quarantine list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only this table's
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// How the list is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `quarantine show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The table that refused them; all tables when not given
    pub table: Option<String>,
    /// Only records of files that match
    #[arg(long, value_name = "GLOB")]
    pub file: Option<String>,
    /// Most records; 0 for all
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// How the records are printed; JSON has them whole
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `quarantine`.
///
/// # Errors
/// The table is not there or cannot be read.
pub async fn run(context: &Context, args: &QuarantineArgs) -> Result<Exit> {
    let lake = match &args.what {
        What::Redrive(_) => context.existing_lake().await?,
        What::List(_) | What::Show(_) => context.lake_to_look_at().await?,
    };
    match &args.what {
        What::List(list) => {
            let mut found = Vec::new();
            for table in tables(&lake, list.table.as_deref()).await? {
                // Only what a list needs: the records themselves can be large.
                let rows = read(&lake, &table, "cast('' as bytea)").await?;
                found.extend(rows.into_iter().map(|row| (table.clone(), row)));
            }
            output::grid(&list_grid(&found), list.output, "quarantine is empty")?;
        }
        What::Show(show) => {
            let glob = show.file.as_deref().map(path_matcher).transpose()?;
            let mut found = Vec::new();
            for table in tables(&lake, show.table.as_deref()).await? {
                let is_event = keeps_events(&lake, &table) || holds_changes(&lake, &table);
                let record = if is_event { "event" } else { "raw" };
                let rows = read(&lake, &table, record).await?.into_iter();
                let wanted = rows.filter(|row| glob.as_ref().is_none_or(|glob| glob.is_match(&row.file)));
                found.extend(wanted.map(|row| (table.clone(), row)));
            }
            let all = found.len();
            if show.limit > 0 {
                found.truncate(show.limit);
            }
            match show.output {
                Output::Json => output::json(&found.iter().map(record_json).collect())?,
                Output::Table => output::grid(&show_grid(&found), show.output, "quarantine has no such record")?,
            }
            if found.len() < all {
                output::note(&format!("the first {} of {all} records; --limit 0 shows all", found.len()));
            }
        }
        What::Redrive(args) => return super::redrive::run(&lake, args).await,
    }
    Ok(Exit::Done)
}

async fn tables(lake: &Lake, only: Option<&str>) -> Result<Vec<TableName>> {
    if let Some(name) = only {
        let table = declared(lake, name)?.table.clone();
        return Ok(if lake.table(&layout::quarantine(&table)).await?.is_some() { vec![table] } else { Vec::new() });
    }
    let mut found = Vec::new();
    for contract in lake.catalog.tables() {
        if lake.table(&layout::quarantine(&contract.table)).await?.is_some() {
            found.push(contract.table.clone());
        }
    }
    Ok(found)
}

fn keeps_events(lake: &Lake, table: &TableName) -> bool {
    lake.catalog.get(table).is_some_and(|contract| contract.events().is_some())
}

fn holds_changes(lake: &Lake, table: &TableName) -> bool {
    lake.catalog.get(table).is_some_and(|contract| contract.changes().is_some())
}

async fn read(lake: &Lake, table: &TableName, raw: &str) -> Result<Vec<Quarantined>> {
    if holds_changes(lake, table) {
        return changes::read(lake, table, raw).await;
    }
    let engine = Engine::over(lake, Pins::default())?;
    let (layer, name) = (table.layer(), table.table());
    // A delivered event has no file; its topic, partition and offset are its place.
    let place = if keeps_events(lake, table) {
        "coalesce(file, topic || '/' || cast(partition as varchar), '') as file, coalesce(etag, '') as etag, \
         coalesce(record, \"offset\") as record"
    } else {
        "file, etag, record"
    };
    let query = format!(
        "select {place}, line, byte_offset, {raw} as raw, rules, reasons, batch_id, contract_hash, resolved \
         from quarantine.{layer}.{name} where resolved is null order by file, batch_id, record"
    );
    let mut rows = Vec::new();
    for batch in engine.rows(&query).await? {
        rows.extend(from_batch(&batch)?);
    }
    Ok(rows)
}

/// What one file has in quarantine.
#[derive(Default)]
struct Share<'a> {
    records: u64,
    first_line: Option<i64>,
    rules: BTreeMap<&'a str, u64>,
}

fn list_grid(found: &[(TableName, Quarantined)]) -> Grid {
    let mut files: BTreeMap<(String, &str), Share<'_>> = BTreeMap::new();
    for (table, row) in found {
        let Share { records, first_line, rules } = files.entry((table.to_string(), &row.file)).or_default();
        *records += u64::from(row.reject.record.is_some());
        *first_line = first_line.iter().copied().chain(row.reject.line).min();
        for rule in &row.reject.rules {
            *rules.entry(rule).or_default() += 1;
        }
    }
    let mut grid = Grid::new(&["table", "file", "records", "first_line", "rules"]);
    for ((table, file), Share { records, first_line, rules }) in files {
        let rules = rules.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
        // A file that was refused whole has no single records.
        let records = if records == 0 { "whole file".into() } else { Cell::from(records) };
        grid.push(vec![table.into(), file.into(), records, first_line.into(), Cell::List(rules)]);
    }
    grid
}

fn show_grid(found: &[(TableName, Quarantined)]) -> Grid {
    let mut grid = Grid::new(&["table", "file", "record", "line", "reasons", "raw"]);
    for (table, row) in found {
        grid.push(vec![
            table.to_string().into(),
            row.file.as_str().into(),
            row.reject.record.into(),
            row.reject.line.into(),
            Cell::List(row.reject.reasons.iter().map(reason_text).collect()),
            shortened(&row.reject.raw).into(),
        ]);
    }
    grid
}

/// `fare: fare_invalid "12,5x"`.
#[must_use]
pub fn reason_text(reason: &Reason) -> String {
    let column = reason.column.as_deref().map_or_else(String::new, |column| format!("{column}: "));
    let value = reason.value.as_deref().map_or_else(String::new, |value| format!(" {value}"));
    format!("{column}{}{value}", reason.rule)
}

fn shortened(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// The record whole. Bytes that are no UTF-8 come as hex digits under another name, so that nothing is lost.
fn record_json((table, row): &(TableName, Quarantined)) -> Value {
    let reasons: Vec<Value> = row
        .reject
        .reasons
        .iter()
        .map(|reason| json!({"column": reason.column, "rule": reason.rule, "value": reason.value}))
        .collect();
    let mut value = json!({
        "table": table.to_string(),
        "file": row.file,
        "etag": row.etag,
        "record": row.reject.record,
        "line": row.reject.line,
        "byte_offset": row.reject.byte_offset,
        "rules": row.reject.rules,
        "reasons": reasons,
        "batch_id": row.batch_id,
        "contract_hash": row.contract_hash,
    });
    let (name, raw) = match std::str::from_utf8(&row.reject.raw) {
        Ok(text) => ("raw", text.to_owned()),
        Err(_) => ("raw_hex", crate::name::hex(&row.reject.raw)),
    };
    value[name] = Value::from(raw);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Reject;

    fn found() -> Vec<(TableName, Quarantined)> {
        let row = |file: &str, record: Option<i64>, rule: &str, column: Option<&str>, raw: &[u8]| {
            let reason = Reason {
                column: column.map(str::to_owned),
                rule: rule.to_owned(),
                value: Some("\"12,5x\"".to_owned()),
            };
            let reject = Reject {
                record,
                line: record.map(|record| record + 1),
                byte_offset: record.map(|_| 99),
                raw: raw.to_vec(),
                rules: vec![rule.to_owned()],
                reasons: vec![reason],
            };
            let row = Quarantined {
                file: file.to_owned(),
                etag: "1".to_owned(),
                reject,
                batch_id: "b".to_owned(),
                contract_hash: "c".to_owned(),
                resolved: None,
            };
            ("raw/trips".parse().unwrap(), row)
        };
        vec![
            row("trips/bad.csv", Some(1), "pickup_ts_invalid", Some("pickup_ts"), b"1,not-a-time\tx"),
            row("trips/bad.csv", Some(2), "fare_invalid", Some("fare"), &[b'2', 0xff]),
            row("trips/worse.csv", None, "header_mismatch", None, b""),
        ]
    }

    #[test]
    fn a_list_counts_by_file_and_rule() {
        insta::assert_snapshot!("list", list_grid(&found()).text(None, false));
        insta::assert_snapshot!("show", show_grid(&found()).text(None, false));
    }

    #[test]
    fn bytes_that_are_no_text_are_kept() {
        let found = found();
        assert_eq!(record_json(&found[0])["raw"], "1,not-a-time\tx");
        assert_eq!(record_json(&found[1])["raw_hex"], "32ff");
    }

    #[test]
    fn a_long_record_is_cut_between_characters() {
        let long = "é".repeat(300);
        assert_eq!(shortened(long.as_bytes()).chars().count(), SHOWN + 1);
    }
}
