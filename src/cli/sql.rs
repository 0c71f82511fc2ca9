//! `alluvium sql`: queries over the lake, and nothing but queries.

pub mod engine;
pub mod guard;
pub mod lake_catalog;

use std::io::Read as _;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use clap::Args;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::TryStreamExt;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::error::{Error, Result};
use crate::render::grouped;
use crate::render::rows::{Format, RowWriter, table};

pub use engine::Engine;
pub use lake_catalog::{Pin, Pins};

/// Arguments of `sql`.
#[derive(Debug, Args)]
#[command(after_help = "Tables are named layer.table; quarantine is quarantine.layer.table; the ledger is ledger.

Examples:
  alluvium sql 'select * from curated.trips_daily order by revenue desc limit 5'
  alluvium sql 'select file, record, rules from quarantine.raw.trips'
  alluvium sql 'select count(*) from raw.trips' --version 1
  alluvium sql 'select * from raw.trips t join aggregate.trips a using (trip_id)' --version raw/trips=2
  echo 'select * from raw.trips' | alluvium sql - --format csv > trips.csv")]
pub struct SqlArgs {
    /// The query; - reads it from standard input
    pub query: String,
    /// How rows are printed; csv, json and ndjson are streamed and exact
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t)]
    pub format: Format,
    /// Every table as it was at this instant (of a second, at its end): RFC 3339, or UTC as `history` prints it
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub at: Option<DateTime<Utc>>,
    /// A version: N for the one table of the query, or TABLE=N (may be repeated)
    #[arg(long, value_name = "N | TABLE=N", conflicts_with = "at", value_parser = Pin::parse)]
    pub version: Vec<Pin>,
    /// Most rows that a table shows; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_rows: usize,
}

/// Runs `sql`.
///
/// # Errors
/// It is no query, a table is not there, or it fails while running.
pub async fn run(context: &Context, args: &SqlArgs) -> Result<Exit> {
    let query = match args.query.as_str() {
        "-" => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Error::from(error).within("standard input"))?;
            text
        }
        text => text.to_owned(),
    };
    let lake = context.lake_to_look_at().await?;
    let pins = Pins { at: args.at, versions: args.version.clone() };
    let rows = Engine::over(&lake, pins)?.stream(&query).await?;
    match args.format {
        Format::Table => print_table(rows, args.max_rows).await?,
        format => print_stream(rows, format).await?,
    }
    Ok(Exit::Done)
}

/// RFC 3339, with a space for the `T` too; without an offset it is UTC. A second without a fraction means to its end: people
/// see no more of a version's time.
fn parse_time(text: &str) -> std::result::Result<DateTime<Utc>, String> {
    let text = text.trim();
    let rest = if text.contains('.') { TimeDelta::zero() } else { TimeDelta::microseconds(999_999) };
    let with_offset = DateTime::parse_from_rfc3339(text).map(|time| time.to_utc());
    let without = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"].into_iter();
    with_offset
        .or_else(|error| {
            let found = without.filter_map(|format| NaiveDateTime::parse_from_str(text, format).ok()).next();
            found.map(|time| time.and_utc()).ok_or(error)
        })
        .map(|time| time + rest)
        .map_err(|_| "expected a time such as 2024-03-01T12:00:00Z or \"2024-03-01 12:00:00\" (UTC)".to_owned())
}

async fn print_stream(mut rows: SendableRecordBatchStream, format: Format) -> Result<()> {
    let mut writer = RowWriter::new(format, rows.schema());
    output::data(&writer.begin())?;
    while let Some(batch) = rows.try_next().await.map_err(engine::failed)? {
        output::data(&writer.batch(&batch)?)?;
    }
    output::data(&writer.end())
}

async fn print_table(mut rows: SendableRecordBatchStream, most: usize) -> Result<()> {
    let schema = rows.schema();
    let most = if most == 0 { usize::MAX } else { most };
    let mut kept = Vec::new();
    let (mut count, mut more) = (0, false);
    while let Some(batch) = rows.try_next().await.map_err(engine::failed)? {
        let take = batch.num_rows().min(most - count);
        more |= take < batch.num_rows();
        count += take;
        kept.push(batch.slice(0, take));
        if more {
            break;
        }
    }
    output::data(&table(&schema, &kept, output::width())?)?;
    let shown = grouped(i64::try_from(count).unwrap_or(i64::MAX));
    output::note(&match (count, more) {
        (1, false) => "1 row".to_owned(),
        (_, false) => format!("{shown} rows"),
        (_, true) => format!("the first {shown} rows; --max-rows 0 or --format csv shows all"),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_as_history_prints_them() {
        let expected: DateTime<Utc> = "2026-11-29T23:46:45Z".parse().unwrap();
        let its_end = expected + TimeDelta::microseconds(999_999);
        assert_eq!(parse_time(" 2026-11-29 23:46:45.000 "), Ok(expected));
        for text in [
            "2026-11-29T23:46:45Z",
            "2026-11-29 23:46:45Z",
            "2026-11-30T00:46:45+01:00",
            "2026-11-29 23:46:45",
            "2026-11-29T23:46:45",
        ] {
            assert_eq!(parse_time(text), Ok(its_end), "{text}");
        }
        for text in ["", "2026-11-29", "yesterday", "2026-13-01 00:00:00", "23:46:45"] {
            assert!(parse_time(text).unwrap_err().contains("2024-03-01 12:00:00"), "{text}");
        }
    }
}
