//! What the steps of the demo look like: one word on the left, what happened on the right.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use arrow::array::RecordBatch;

use super::steps::many;
use crate::cli::output;
use crate::cli::quarantine::reason_text;
use crate::config::{Backend, Config};
use crate::error::{Error, Result};
use crate::quarantine::Quarantined;
use crate::render::rows::{table, value_text};
use crate::render::{Cell, Grid, human_bytes, human_duration};

/// Width of the column with the step's name.
const NAME: usize = 12;

/// Trips and revenue by day.
pub const DAYS: &str = "select trip_date, cast(sum(trips) as bigint) as trips, sum(revenue) as revenue \
                        from curated.trips_daily group by trip_date order by trip_date";

/// The query that ends the demo.
pub const TOP: &str = "select trip_date, pickup_zone, trips, revenue from curated.trips_daily \
                       order by revenue desc, trip_date, pickup_zone limit 5";

/// Trips and revenue of a day, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Day {
    /// Trips.
    pub trips: String,
    /// Revenue, exact.
    pub revenue: String,
}

/// A step's first line.
#[must_use]
pub fn step(name: &str, text: &str) -> String {
    let padded = format!("{name:NAME$}");
    let name = if output::colours() { format!("\x1b[1;36m{padded}\x1b[0m") } else { padded };
    format!("{name}{text}\n")
}

/// Further lines of a step.
#[must_use]
pub fn more(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "{:NAME$}{line}", "");
        out
    })
}

/// Files, rows and how fast.
#[must_use]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for people")]
pub fn landed(files: u64, rows: u64, bytes: u64, took: Duration) -> String {
    let rate = (rows as f64 / took.as_secs_f64().max(1e-6)) as u64;
    format!(
        "{} files, {} rows, {}: from landing to curated in {} ({} rows/s)",
        many(files),
        many(rows),
        human_bytes(bytes),
        human_duration(took),
        many(rate)
    )
}

/// Rows, files and version of tables.
#[must_use]
pub fn tables(lines: &[(&str, u64, usize, i64)]) -> String {
    let mut grid = Grid::new(&["table", "rows", "files", "version"]);
    for (name, rows, files, version) in lines {
        grid.push(vec![(*name).into(), (*rows).into(), (*files).into(), (*version).into()]);
    }
    more(&grid.text(None, false))
}

/// Refused records: where each is, and why.
#[must_use]
pub fn quarantined(refused: &[Quarantined]) -> String {
    let mut grid = Grid::new(&["file", "line", "column", "reason"]);
    for row in refused {
        for reason in &row.reject.reasons {
            let bare = crate::decode::Reason { column: None, ..reason.clone() };
            grid.push(vec![
                row.file.as_str().into(),
                row.reject.line.into(),
                reason.column.clone().into(),
                Cell::from(reason_text(&bare)),
            ]);
        }
    }
    let text = format!("a bad file: {} records in quarantine, none in a table", refused.len());
    step("quarantine", &text) + &more(&grid.text(None, false))
}

/// The days that a late file changed.
#[must_use]
pub fn late(rows: u64, changed: &[(String, Option<Day>, Option<Day>)], days: usize, touched: &[String]) -> String {
    let text = format!(
        "a late file with {} trips: {} of {days} days changed; files changed in partition {} alone",
        many(rows),
        changed.len(),
        touched.join(", ")
    );
    let mut grid = Grid::new(&["day", "trips_before", "trips_now", "revenue_before", "revenue_now"]);
    for (day, before, now) in changed {
        let cell =
            |day: &Option<Day>, pick: fn(&Day) -> &String| -> Cell { day.as_ref().map(|day| pick(day).clone()).into() };
        grid.push(vec![
            day.as_str().into(),
            cell(before, |day| &day.trips),
            cell(now, |day| &day.trips),
            cell(before, |day| &day.revenue),
            cell(now, |day| &day.revenue),
        ]);
    }
    step("late", &text) + &more(&grid.text(None, false))
}

/// Files before and after compaction.
#[must_use]
pub fn compacted(lines: &[(&str, usize, usize, Duration)]) -> String {
    let parts = lines
        .iter()
        .map(|(name, before, after, took)| format!("{name} {before} -> {after} files in {}", human_duration(*took)));
    step("compact", &format!("{}; the same rows", parts.collect::<Vec<_>>().join(", ")))
}

/// Sums at an old version and now.
///
/// # Errors
/// The sums cannot be shown.
pub fn travel(version: i64, then: &[RecordBatch], now: &[RecordBatch]) -> Result<String> {
    let sums = |batches: &[RecordBatch]| -> Result<String> {
        let [trips, revenue] = first_row(batches)?;
        Ok(format!("{trips} trips, {revenue}"))
    };
    Ok(step("time travel", &format!("curated at version {version}: {}; now: {}", sums(then)?, sums(now)?)))
}

fn first_row<const N: usize>(batches: &[RecordBatch]) -> Result<[String; N]> {
    let batch = batches.iter().find(|batch| batch.num_rows() > 0);
    let batch = batch.ok_or_else(|| Error::internal("a query of sums gave no row"))?;
    let mut texts = [const { String::new() }; N];
    for (text, column) in texts.iter_mut().zip(batch.columns()) {
        *text = value_text(column, 0)?.unwrap_or_else(|| "null".to_owned());
    }
    Ok(texts)
}

/// Reads the rows of [`DAYS`].
///
/// # Errors
/// A value cannot be shown.
pub fn days(batches: &[RecordBatch]) -> Result<BTreeMap<String, Day>> {
    let mut days = BTreeMap::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let text = |column: usize| -> Result<String> {
                Ok(value_text(batch.column(column), row)?.unwrap_or_else(|| "null".to_owned()))
            };
            days.insert(text(0)?, Day { trips: text(1)?, revenue: text(2)? });
        }
    }
    Ok(days)
}

/// The rows of [`TOP`].
///
/// # Errors
/// A value cannot be shown.
pub fn top(rows: &[RecordBatch]) -> Result<String> {
    let Some(first) = rows.first() else { return Err(Error::internal("the curated table is empty")) };
    let text = step("sql", "the five best days and zones");
    Ok(text + &more(&table(&first.schema(), rows, None)?))
}

/// Commands to try after the demo of trips, and what each does.
pub const OF_TRIPS: [(&str, &str); 6] = [
    ("status", "what each table holds and what went wrong"),
    ("sql 'select * from curated.trips_daily limit 10'", "any query; --at and --version look back"),
    ("quarantine show raw/trips", "the refused records, whole"),
    ("ledger --table raw/trips", "every file and what became of it"),
    ("history curated/trips_daily", "the versions of a table"),
    ("local", "the host: drop files into landing/trips and watch"),
];

/// Commands to try after the demo of changes.
pub const OF_CHANGES: [(&str, &str); 6] = [
    ("status", "what each table holds and what went wrong"),
    ("sql 'select * from gold.daily_revenue order by 1'", "any query; --at and --version look back"),
    ("sql 'select * from quarantine.silver.customers'", "the refused events, whole"),
    ("ledger --table bronze/shop", "every file and every stretch of a topic"),
    ("backfill --verify", "recomputes all from bronze, and compares"),
    ("local", "the host: drop events into landing/shop and watch"),
];

/// What to try next: commands that work as they stand, with the variables that they need.
#[must_use]
pub fn next(config: &Config, program: &str, took: Duration, commands: &[(&str, &str)]) -> String {
    let mut text = format!("\nDone in {}. The lake is in {}. Try next:\n", human_duration(took), config.home.display());
    let mut needed = String::new();
    for (name, folder, default) in [
        ("ALLUVIUM_HOME", &config.home, "./data"),
        ("ALLUVIUM_SCHEMAS", &config.schemas, "./schemas"),
        ("ALLUVIUM_ROOT", &config.root, "."),
    ] {
        if folder.as_path() != Path::new(default) {
            let _ = write!(needed, " {name}={}", folder.display());
        }
    }
    let in_azurite = config.storage_backend == Backend::Azure;
    if in_azurite {
        needed.push_str(" STORAGE_BACKEND=azure QUEUE_BACKEND=azure AzureWebJobsStorage=UseDevelopmentStorage=true");
    }
    if !needed.is_empty() {
        let _ = writeln!(text, "  export{needed}");
    }
    if in_azurite {
        let _ = writeln!(
            text,
            "  {program} {:49} # first, in another terminal: Azurite and the host",
            "local --storage azurite"
        );
    }
    for (command, what) in commands {
        let _ = writeln!(text, "  {program} {command:49} # {what}");
    }
    text
}

/// How this program is called from the current folder.
#[must_use]
pub fn program() -> String {
    let here = Path::new(".").canonicalize().ok();
    let path = crate::config::this_program().ok();
    let below = path.as_deref().zip(here.as_deref()).and_then(|(path, here)| path.strip_prefix(here).ok());
    below.map_or_else(|| "alluvium".to_owned(), |below| below.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_to_try_next_name_the_folders_that_were_used() {
        let config = Config::from_pairs([("ALLUVIUM_HOME", "/x"), ("ALLUVIUM_SCHEMAS", "/x/schemas")]).unwrap();
        let text = next(&config, "alluvium", Duration::from_millis(2100), &OF_TRIPS);
        assert!(text.contains("  export ALLUVIUM_HOME=/x ALLUVIUM_SCHEMAS=/x/schemas\n"), "{text}");
        let config = Config::from_pairs::<&str, &str>([]).unwrap();
        insta::assert_snapshot!(next(&config, "target/release/alluvium", Duration::from_millis(2100), &OF_TRIPS));
    }

    #[test]
    fn a_late_file_is_told_in_a_line_and_a_table() {
        let day = |trips: &str, revenue: &str| Day { trips: trips.to_owned(), revenue: revenue.to_owned() };
        let changed = [("2024-03-02".to_owned(), Some(day("1000", "12.50")), Some(day("1050", "13.00")))];
        insta::assert_snapshot!(late(50, &changed, 6, &["2024-03-02".to_owned()]));
        insta::assert_snapshot!(landed(5, 5_000, 482_113, Duration::from_millis(500)));
        insta::assert_snapshot!(compacted(&[("raw/trips", 3, 1, Duration::from_millis(12))]));
    }
}
