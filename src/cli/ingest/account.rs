//! The account of an `ingest`: for each table, what came in and what became of it, from the ledger itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::FileFailure;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::error::Result;
use crate::manifest::{Counts, Status};
use crate::name::TableName;
use crate::pipeline::commit::{CommitReport, TableFailure};
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::{self, LedgerRow};
use crate::render::{Cell, Grid, Output, grouped, human_duration};

/// What became of the files of one table.
#[derive(Debug, Default)]
struct Share {
    files: u64,
    counts: Counts,
    /// Records of the files that became of something only now.
    records_now: u64,
    statuses: BTreeMap<String, u64>,
}

/// A file that did not get into a table whole.
#[derive(Debug)]
struct Refusal {
    table: String,
    path: String,
    reason: String,
}

/// The account.
#[derive(Debug, Default)]
pub struct Account {
    tables: BTreeMap<String, Share>,
    refused: Vec<Refusal>,
    unclaimed: Vec<String>,
    failures: Vec<FileFailure>,
    stopped: Vec<TableFailure>,
}

impl Account {
    /// Reads from the ledger what became of the landed files; what was settled before `begun` was so already.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub async fn of(
        lake: &Lake,
        landed: &BTreeSet<String>,
        begun: DateTime<Utc>,
        failures: Vec<FileFailure>,
        reports: &[CommitReport],
    ) -> Result<Self> {
        let rows = ledger::rows(lake, None).await?;
        let fed = fed(lake, landed);
        let mut stopped = reports.last().map(|report| report.failed.clone()).unwrap_or_default();
        stopped.retain(|failure| fed.contains(&failure.table));
        Ok(Self::from_rows(&rows, landed, begun, failures, stopped))
    }

    fn from_rows(
        rows: &[LedgerRow],
        landed: &BTreeSet<String>,
        begun: DateTime<Utc>,
        failures: Vec<FileFailure>,
        stopped: Vec<TableFailure>,
    ) -> Self {
        // The newest row of each file and table; rows are in the order in which they were settled.
        let mut newest: BTreeMap<(String, String), &LedgerRow> = BTreeMap::new();
        for row in rows {
            let Some(path) = row.source.path().filter(|path| landed.contains(*path)) else { continue };
            let table = row.table.as_ref().map(ToString::to_string).unwrap_or_default();
            newest.insert((table, path.to_owned()), row);
        }
        let mut account = Self { failures, stopped, ..Self::default() };
        for ((table, path), row) in &newest {
            if table.is_empty() {
                let taken = newest.keys().any(|(other, file)| !other.is_empty() && file == path);
                if !taken {
                    account.unclaimed.push(path.clone());
                }
                continue;
            }
            let share = account.tables.entry(table.clone()).or_default();
            share.files += 1;
            share.counts.rows_in += row.counts.rows_in;
            share.counts.loaded += row.counts.loaded;
            share.counts.quarantined += row.counts.quarantined;
            share.counts.ignored += row.counts.ignored;
            let is_old = row.settled_at < begun && row.status.is_terminal();
            share.records_now += if is_old { 0 } else { row.counts.rows_in };
            let already = if is_old { "already " } else { "" };
            *share.statuses.entry(format!("{already}{}", row.status.as_str())).or_default() += 1;
            let reason = row.reason.clone().unwrap_or_default();
            match row.status {
                Status::Refused => {
                    account.refused.push(Refusal { table: table.clone(), path: path.clone(), reason });
                }
                Status::Failed | Status::Missing => {
                    account.failures.push(FileFailure { path: path.clone(), error: format!("{table}: {reason}") });
                }
                _ => {}
            }
        }
        // A file that no row speaks of is in no table and refused by none: it did not get through.
        let spoken: BTreeSet<&String> = newest.keys().map(|(_, path)| path).collect();
        let known: BTreeSet<String> = account.failures.iter().map(|failure| failure.path.clone()).collect();
        for path in landed.iter().filter(|path| !spoken.contains(path) && !known.contains(*path)) {
            let error = "it is staged, but not committed: `alluvium status` says why".to_owned();
            account.failures.push(FileFailure { path: path.clone(), error });
        }
        account
    }

    /// 1 when something could not finish, 3 when a file was refused or nobody takes it, else 0.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if !self.failures.is_empty() || !self.stopped.is_empty() {
            Exit::Failed
        } else if !self.refused.is_empty() || !self.unclaimed.is_empty() {
            Exit::Found
        } else {
            Exit::Done
        }
    }

    fn grid(&self) -> Grid {
        let mut grid =
            Grid::new(&["table", "files", "records_in", "loaded", "quarantined", "ignored", "files_by_status"]);
        for (table, share) in &self.tables {
            let statuses = share.statuses.iter().map(|(status, files)| format!("{files} {status}"));
            grid.push(vec![
                table.as_str().into(),
                share.files.into(),
                share.counts.rows_in.into(),
                share.counts.loaded.into(),
                share.counts.quarantined.into(),
                share.counts.ignored.into(),
                Cell::List(statuses.collect()),
            ]);
        }
        grid
    }

    /// Prints the account: the table on standard output, files that need a person on standard error.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn print(&self, output: Output, took: Duration) -> Result<()> {
        if output == Output::Json {
            let refused = self.refused.iter();
            return output::json(&json!({
                "tables": self.grid().json(),
                "refused": refused.map(|file| json!({"table": file.table, "path": file.path, "reason": file.reason}))
                    .collect::<Vec<_>>(),
                "unclaimed": self.unclaimed,
                "failed": self.failures.iter().map(|file| json!({"path": file.path, "error": file.error}))
                    .collect::<Vec<_>>(),
                "stopped": self.stopped,
                "seconds": took.as_secs_f64(),
            }));
        }
        output::grid(&self.grid(), output, "no table took a file")?;
        for line in self.remarks(took) {
            output::note(&line);
        }
        Ok(())
    }

    fn remarks(&self, took: Duration) -> Vec<String> {
        let rows: u64 = self.tables.values().map(|share| share.records_now).sum();
        let mut lines =
            vec![format!("{} records in {}", grouped(i64::try_from(rows).unwrap_or(i64::MAX)), human_duration(took))];
        lines.extend(
            self.refused.iter().map(|file| format!("refused: {} by {}: {}", file.path, file.table, file.reason)),
        );
        lines.extend(
            self.unclaimed.iter().map(|path| format!("nobody takes {path}: no contract's source.path matches it")),
        );
        lines.extend(self.failures.iter().map(|file| format!("failed: {}: {}", file.path, file.error)));
        lines.extend(self.stopped.iter().map(|table| format!("stopped: {}: {}", table.table, table.error)));
        lines
    }
}

/// The tables that landed files feed, and everything that is derived from them: what other tables do is not this run's.
fn fed(lake: &Lake, landed: &BTreeSet<String>) -> BTreeSet<TableName> {
    let claims = landed.iter().flat_map(|path| lake.catalog.claims(path));
    let mut fed: BTreeSet<TableName> = claims.map(|(contract, _)| contract.table.clone()).collect();
    // Sources come before what is derived from them.
    for contract in lake.catalog.tables() {
        if contract.sources().into_iter().any(|source| fed.contains(source)) {
            fed.insert(contract.table.clone());
        }
    }
    fed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::FileVersion;
    use crate::name::BatchId;

    fn row(table: Option<&str>, path: &str, status: Status, counts: (u64, u64, u64, u64)) -> LedgerRow {
        LedgerRow {
            table: table.map(|name| name.parse().unwrap()),
            table_id: table.map(str::to_owned),
            batch_id: BatchId::of_file(table.unwrap_or_default(), path, "1"),
            source: FileVersion {
                path: path.to_owned(),
                etag: "1".to_owned(),
                bytes: 10,
                last_modified: DateTime::UNIX_EPOCH,
                sequencer: None,
            }
            .into(),
            sha256: None,
            status,
            reason: (status == Status::Refused).then(|| "the header has no column `fare`".to_owned()),
            counts: Counts { rows_in: counts.0, loaded: counts.1, quarantined: counts.2, ignored: counts.3 },
            contract_hash: None,
            txn: Some(1),
            attempts: 1,
            first_seen: DateTime::UNIX_EPOCH,
            settled_at: DateTime::UNIX_EPOCH,
        }
    }

    fn account(rows: &[LedgerRow], landed: &[&str]) -> Account {
        let landed = landed.iter().map(|path| (*path).to_owned()).collect();
        Account::from_rows(rows, &landed, DateTime::UNIX_EPOCH, Vec::new(), Vec::new())
    }

    #[test]
    fn the_account_counts_every_file_once_by_its_newest_row() {
        let rows = [
            row(Some("raw/trips"), "trips/a.csv", Status::Failed, (0, 0, 0, 0)),
            row(Some("raw/trips"), "trips/a.csv", Status::Loaded, (1000, 990, 8, 2)),
            row(Some("raw/trips"), "trips/b.csv", Status::Refused, (0, 0, 0, 0)),
            row(Some("raw/trips"), "trips/other.csv", Status::Loaded, (5, 5, 0, 0)),
            row(None, "x/manifest.json", Status::Ignored, (0, 0, 0, 0)),
        ];
        let account = account(&rows, &["trips/a.csv", "trips/b.csv", "x/manifest.json"]);
        assert_eq!(account.exit(), Exit::Found);
        let mut text = account.grid().text(None, false);
        text.push_str(&account.remarks(Duration::from_millis(1500)).join("\n"));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_was_settled_before_is_no_news() {
        let loaded = row(Some("raw/trips"), "a", Status::Loaded, (2, 1, 1, 0));
        let landed = std::iter::once("a".to_owned()).collect();
        let later = DateTime::UNIX_EPOCH + chrono::TimeDelta::milliseconds(1);
        let account = Account::from_rows(&[loaded], &landed, later, Vec::new(), Vec::new());
        assert!(account.grid().text(None, false).contains("1 already loaded"), "{}", account.grid().text(None, false));
        assert!(account.remarks(Duration::ZERO)[0].starts_with("0 records in "));
        assert_eq!(account.exit(), Exit::Done);
    }

    #[test]
    fn exit_codes() {
        let loaded = row(Some("raw/trips"), "a", Status::Loaded, (2, 1, 1, 0));
        assert_eq!(account(std::slice::from_ref(&loaded), &["a"]).exit(), Exit::Done);
        assert_eq!(account(&[row(None, "a", Status::Ignored, (0, 0, 0, 0))], &["a"]).exit(), Exit::Found);
        assert_eq!(account(&[row(Some("raw/trips"), "a", Status::Failed, (0, 0, 0, 0))], &["a"]).exit(), Exit::Failed);
        assert_eq!(account(&[loaded], &["a", "b"]).exit(), Exit::Failed);
    }

    #[test]
    fn a_contract_that_came_later_took_the_file() {
        let rows =
            [row(None, "a", Status::Ignored, (0, 0, 0, 0)), row(Some("raw/trips"), "a", Status::Loaded, (1, 1, 0, 0))];
        assert_eq!(account(&rows, &["a"]).exit(), Exit::Done);
    }
}
