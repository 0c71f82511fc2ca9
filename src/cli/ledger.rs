//! `alluvium ledger`: every file version ever seen and what became of it.

use clap::Args;
use globset::GlobBuilder;

use super::context::{Context, declared};
use super::exit::Exit;
use super::output;
use crate::error::{Error, Result};
use crate::layout;
use crate::manifest::Status;
use crate::pipeline::ledger::{LedgerRow, rows};
use crate::render::{Cell, Grid, Output};
use crate::schema::suggest::did_you_mean_or_list;

/// All statuses, in the order of the ledger's own list.
const STATUSES: [Status; 8] = [
    Status::Loaded,
    Status::Empty,
    Status::Duplicate,
    Status::Superseded,
    Status::Ignored,
    Status::Refused,
    Status::Missing,
    Status::Failed,
];

/// Arguments of `ledger`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium ledger --table raw/trips --status refused
  alluvium ledger --path 'trips/2024/**' -o json
  alluvium sql 'select status, count(*) from ledger group by 1'")]
pub struct LedgerArgs {
    /// Only this table's files
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Only files whose path below the landing zone matches
    #[arg(long, value_name = "GLOB")]
    pub path: Option<String>,
    /// Only this status: loaded, empty, duplicate, superseded, ignored, refused, missing, failed
    #[arg(long, value_name = "STATUS")]
    pub status: Option<String>,
    /// Only the newest rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// How the rows are printed; JSON has every column
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `ledger`.
///
/// # Errors
/// A filter cannot be read, or the ledger cannot.
pub async fn run(context: &Context, args: &LedgerArgs) -> Result<Exit> {
    let lake = context.lake_to_look_at().await?;
    let table = args.table.as_deref().map(|name| declared(&lake, name)).transpose()?;
    let status = args.status.as_deref().map(parse_status).transpose()?;
    let glob = args.path.as_deref().map(path_matcher).transpose()?;
    let mut found = match lake.table(layout::LEDGER).await? {
        Some(_) => rows(&lake, table.as_ref().map(|contract| &contract.table)).await?,
        None => Vec::new(),
    };
    found.retain(|row| {
        status.is_none_or(|status| row.status == status)
            && glob.as_ref().is_none_or(|glob| row.source.path().is_some_and(|path| glob.is_match(path)))
    });
    if let Some(limit) = args.limit {
        found.drain(..found.len().saturating_sub(limit));
    }
    let grid = if args.output == Output::Json { whole(&found) } else { short(&found) };
    output::grid(&grid, args.output, "the ledger has no such row")?;
    Ok(Exit::Done)
}

fn parse_status(text: &str) -> Result<Status> {
    STATUSES.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
        let words = STATUSES.map(Status::as_str);
        Error::invalid(format!("`{text}` is no status")).remedy(did_you_mean_or_list(text, &words))
    })
}

/// A glob over paths: `*` stays within a folder, `**` does not.
///
/// # Errors
/// It is no glob.
pub fn path_matcher(glob: &str) -> Result<globset::GlobMatcher> {
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    built
        .map(|glob| glob.compile_matcher())
        .map_err(|error| Error::invalid(format!("`{glob}` is no glob")).because(error))
}

fn short(rows: &[LedgerRow]) -> Grid {
    let mut grid =
        Grid::new(&["settled_at", "table", "path", "status", "rows_in", "loaded", "quarantined", "ignored", "reason"]);
    for row in rows {
        grid.push(vec![
            row.settled_at.into(),
            row.table.as_ref().map(ToString::to_string).into(),
            row.source.to_string().into(),
            row.status.as_str().into(),
            row.counts.rows_in.into(),
            row.counts.loaded.into(),
            row.counts.quarantined.into(),
            row.counts.ignored.into(),
            row.reason.clone().into(),
        ]);
    }
    grid
}

fn whole(rows: &[LedgerRow]) -> Grid {
    let mut grid = Grid::new(&[
        "table",
        "table_id",
        "batch_id",
        "path",
        "topic",
        "epoch",
        "partition",
        "first",
        "last",
        "etag",
        "last_modified",
        "sequencer",
        "sha256",
        "bytes",
        "status",
        "reason",
        "rows_in",
        "loaded",
        "quarantined",
        "ignored",
        "contract_hash",
        "txn",
        "attempts",
        "first_seen",
        "settled_at",
    ]);
    for row in rows {
        grid.push(vec![
            row.table.as_ref().map(ToString::to_string).into(),
            row.table_id.clone().into(),
            row.batch_id.to_string().into(),
            row.source.path().map(str::to_owned).into(),
            row.source.range().map(|range| range.topic.clone()).into(),
            row.source.range().and_then(|range| range.epoch.clone()).into(),
            row.source.range().map(|range| i64::from(range.partition)).into(),
            row.source.range().map(|range| range.first).into(),
            row.source.range().map(|range| range.last).into(),
            row.source.file().map(|version| version.etag.clone()).into(),
            row.source.modified().into(),
            row.source.file().and_then(|version| version.sequencer.clone()).into(),
            row.sha256.clone().into(),
            Cell::Bytes(row.source.bytes()),
            row.status.as_str().into(),
            row.reason.clone().into(),
            row.counts.rows_in.into(),
            row.counts.loaded.into(),
            row.counts.quarantined.into(),
            row.counts.ignored.into(),
            row.contract_hash.clone().into(),
            row.txn.into(),
            i64::from(row.attempts).into(),
            row.first_seen.into(),
            row.settled_at.into(),
        ]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Counts, FileVersion, StreamRange};
    use crate::name::BatchId;
    use chrono::DateTime;

    fn rows() -> Vec<LedgerRow> {
        let row = |table: Option<&str>, path: &str, status: Status, reason: Option<&str>| LedgerRow {
            table: table.map(|name| name.parse().unwrap()),
            table_id: table.map(str::to_owned),
            batch_id: BatchId::of_file("id", path, "1"),
            source: FileVersion {
                path: path.to_owned(),
                etag: "1".to_owned(),
                bytes: 42,
                last_modified: DateTime::UNIX_EPOCH,
                sequencer: None,
            }
            .into(),
            sha256: None,
            status,
            reason: reason.map(str::to_owned),
            counts: Counts { rows_in: 3, loaded: 2, quarantined: 1, ignored: 0 },
            contract_hash: None,
            txn: table.map(|_| 17),
            attempts: 1,
            first_seen: DateTime::UNIX_EPOCH,
            settled_at: DateTime::from_timestamp(1_709_287_445, 0).unwrap(),
        };
        let piece = StreamRange {
            topic: "lake.public.orders".to_owned(),
            epoch: None,
            partition: 2,
            first: 100,
            last: 163,
            bytes: 42_000,
            newest: DateTime::from_timestamp(1_709_287_000, 0),
        };
        vec![
            row(Some("raw/trips"), "trips/a.csv", Status::Loaded, None),
            row(None, "x/b.txt", Status::Ignored, Some("no contract takes this file")),
            LedgerRow { source: piece.into(), ..row(Some("bronze/shop"), "", Status::Loaded, None) },
        ]
    }

    #[test]
    fn people_see_the_short_form_and_programs_the_whole_row() {
        insta::assert_snapshot!("short", short(&rows()).text(None, false));
        insta::assert_snapshot!("whole", format!("{:#}", whole(&rows()).json()));
    }

    #[test]
    fn a_mistyped_status_is_explained() {
        assert_eq!(parse_status("refused").unwrap(), Status::Refused);
        assert_eq!(parse_status("refuse").unwrap_err().remedy_text(), Some("did you mean `refused`?"));
    }

    #[test]
    fn a_star_stays_within_its_folder() {
        for (glob, path, matches) in
            [("trips/*", "trips/a.csv", true), ("trips/*", "trips/x/a.csv", false), ("trips/**", "trips/x/a.csv", true)]
        {
            assert_eq!(path_matcher(glob).unwrap().is_match(path), matches, "{glob} {path}");
        }
        assert!(path_matcher("[").is_err());
    }
}
