//! `alluvium status`: what each table holds, what waits for it, what went wrong.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::app::Backends;
use crate::error::{Error, Result};
use crate::pipeline::compared::LastCompared;
use crate::pipeline::status::{Status, status};
use crate::queue::{self, Depths};
use crate::render::{Cell, Grid, Output, grouped, human_age};

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium status
  alluvium status -o json")]
pub struct StatusArgs {
    /// How the status is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `status`.
///
/// # Errors
/// The lake cannot be read.
pub async fn run(context: &Context, args: &StatusArgs) -> Result<Exit> {
    let lake = context.lake_to_look_at().await?;
    let mut now = status(&lake).await?;
    let queues = Backends::open(&context.config, Arc::clone(&context.clock))?.queue();
    now.queues = Some(queue::depths(&queues, &context.config.queue_name).await);
    if args.output == Output::Json {
        let value = serde_json::to_value(&now).map_err(|error| Error::internal("status as JSON").because(error))?;
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    output::grid(&grid(&now), args.output, "no contract declares a table")?;
    for line in remarks(&now) {
        output::note(&line);
    }
    Ok(Exit::Done)
}

fn grid(now: &Status) -> Grid {
    let mut grid = Grid::new(&[
        "table",
        "version",
        "rows",
        "files",
        "bytes",
        "staged",
        "failed",
        "missing",
        "refused",
        "quarantined",
        "gaps",
        "ties",
        "behind",
        "lag",
        "newest_source",
        "committed_at",
    ]);
    // A zero that is as it should be is no news; people see the others at once.
    let news = |count: u64| if count == 0 { Cell::Empty } else { Cell::from(count) };
    for table in &now.tables {
        let behind = table.behind.iter().filter(|(_, versions)| **versions > 0);
        grid.push(vec![
            table.table.to_string().into(),
            table.version.into(),
            table.rows.into(),
            table.version.map(|_| table.files).into(),
            table.version.map_or(Cell::Empty, |_| Cell::Bytes(table.bytes)),
            news(table.staged as u64),
            news(table.failed as u64),
            news(table.missing as u64),
            news(table.refused as u64),
            news(table.quarantined),
            news(table.gaps.len() as u64),
            news(table.ties),
            Cell::List(behind.map(|(source, versions)| format!("{versions} of {source}")).collect()),
            lag(table.lag_seconds),
            table.newest_source.into(),
            table.committed_at.into(),
        ]);
    }
    grid
}

fn queued(depths: &Depths) -> Vec<String> {
    let Depths { queue, visible, invisible, poison, error } = depths;
    if let Some(error) = error {
        return vec![format!("queue {queue}: {error}")];
    }
    let mut lines = Vec::new();
    if visible + invisible > 0 {
        lines.push(format!("queue {queue}: {visible} messages wait, {invisible} are in work or wait for another try"));
    }
    if *poison > 0 {
        lines.push(format!(
            "queue {queue}-poison: {poison} messages failed too often; the causes are in the ledger soon"
        ));
    }
    lines
}

fn landed(last: &LastCompared) -> Vec<String> {
    let at = |time: DateTime<Utc>| time.format("%Y-%m-%d %H:%M:%SZ");
    let mut lines = Vec::new();
    if let Some(error) = &last.error {
        let well = last.well_at.map_or_else(|| "never".to_owned(), |well| format!("at {}", at(well)));
        lines.push(format!("reconcile failed at {}, and succeeded last {well}: {error}", at(last.at)));
    }
    lines.extend(last.left_out.iter().map(|entry| format!("landing zone: left out: {}", entry.reason_with_name())));
    let more = last.left_out_count.saturating_sub(last.left_out.len() as u64);
    if more > 0 {
        lines.push(format!("landing zone: and {more} more that are left out: `alluvium ledger --status refused`"));
    }
    lines
}

fn lag(seconds: u64) -> Cell {
    if seconds == 0 { Cell::Empty } else { human_age(seconds).into() }
}

fn remarks(now: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    if now.unclaimed > 0 {
        let files = grouped(i64::try_from(now.unclaimed).unwrap_or(i64::MAX));
        lines.push(format!("{files} file versions that no contract takes: `alluvium ledger --status ignored`"));
    }
    if now.unreadable > 0 {
        let messages = grouped(i64::try_from(now.unreadable).unwrap_or(i64::MAX));
        lines.push(format!("{messages} messages that name no file: `alluvium ledger --status failed`"));
    }
    lines.extend(now.queues.iter().flat_map(queued));
    lines.extend(now.compared.iter().flat_map(landed));
    if let Some(error) = &now.contracts {
        lines.push(format!("the contracts that were in force before still are: {error}"));
    }
    for layer in now.layers.iter().filter(|layer| layer.stopped > 0 || layer.lag_seconds > 0) {
        let stopped = if layer.stopped > 0 {
            format!(", {} of {} tables stopped", layer.stopped, layer.tables)
        } else {
            String::new()
        };
        let behind = human_age(layer.lag_seconds);
        lines.push(format!("layer {}: {behind} behind{stopped}", layer.layer));
    }
    for table in &now.tables {
        lines.extend(
            table
                .lost
                .iter()
                .map(|lost| format!("{}: lost: {lost}; set the consumer group back before them", table.table)),
        );
        lines.extend(table.gaps.iter().map(|gap| {
            let since =
                gap.since.map_or_else(String::new, |since| format!(" since {}", since.format("%Y-%m-%d %H:%M:%SZ")));
            format!("{}: notice: {gap} have not come{since}; harmless if the topic has such holes", table.table)
        }));
        if let Some(error) = &table.last_error {
            let since = table.stopped_since.map(|since| format!("stopped since {}", since.format("%Y-%m-%d %H:%M:%S")));
            lines.push(format!("{}: {}: {error}", table.table, since.as_deref().unwrap_or("last error")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::compared::LeftOutName;
    use crate::pipeline::status::{LayerStatus, TableStatus};
    use crate::pipeline::streams::Stretch;
    use std::collections::BTreeMap;

    fn table(name: &str) -> TableStatus {
        TableStatus {
            version: Some(3),
            rows: Some(5_050),
            files: 2,
            bytes: 123_456,
            committed_at: DateTime::from_timestamp(1_709_287_445, 0),
            ..TableStatus::of(&name.parse().unwrap())
        }
    }

    #[test]
    fn a_status_shows_only_what_is_news() {
        let raw = TableStatus {
            staged: 2,
            quarantined: 3,
            newest_source: DateTime::from_timestamp(1_709_287_400, 0),
            last_error: Some("trips/a.csv: the disk is full; free some space".to_owned()),
            ..table("raw/trips")
        };
        let stretch = |first: i64, last: i64, pieces: usize| Stretch {
            topic: "lake.public.orders".to_owned(),
            epoch: None,
            partition: 2,
            first,
            last,
            offsets: 9,
            pieces,
            since: DateTime::from_timestamp(1_709_287_445, 0),
        };
        let bronze =
            TableStatus { lost: vec![stretch(5, 13, 1)], gaps: vec![stretch(20, 90, 3)], ..table("bronze/shop") };
        let derived = TableStatus {
            behind: BTreeMap::from([("raw/trips".to_owned(), 1)]),
            lag_seconds: 190,
            stopped_since: DateTime::from_timestamp(1_709_287_445, 0),
            last_error: Some("aggregate/trips: column `fare` is gone; mend the SQL".to_owned()),
            ..table("aggregate/trips")
        };
        let empty = TableStatus { version: None, rows: None, committed_at: None, ..table("raw/flights") };
        let layer =
            |name: &str, stopped, lag_seconds| LayerStatus { layer: name.to_owned(), tables: 1, stopped, lag_seconds };
        let now = Status {
            at: DateTime::UNIX_EPOCH,
            tables: vec![raw, derived, empty, bronze],
            layers: vec![layer("raw", 0, 0), layer("aggregate", 1, 190)],
            unclaimed: 4,
            unreadable: 1,
            refused: 2,
            compared: Some(LastCompared {
                version: 1,
                at: DateTime::from_timestamp(1_709_287_445, 0).unwrap(),
                well_at: DateTime::from_timestamp(1_709_286_545, 0),
                announced: 0,
                left_out_count: 3,
                left_out: vec![LeftOutName {
                    name: "trips//x".to_owned(),
                    reason: "it is no path; rename it".to_owned(),
                }],
                error: Some("landing: no answer; look at the network".to_owned()),
            }),
            queues: Some(Depths {
                queue: "landing-events".to_owned(),
                visible: 5,
                invisible: 2,
                poison: 1,
                error: None,
            }),
            contracts: Some("schemas/raw/trips.yaml:3:1: unknown key".to_owned()),
        };
        insta::assert_snapshot!(format!("{}{}", grid(&now).text(None, false), remarks(&now).join("\n")));
    }
}
