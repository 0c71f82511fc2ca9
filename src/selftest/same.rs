//! Whether two lakes hold the same tables: every table as text, without what depends on arrival.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;

use crate::error::Result;
use crate::layout;
use crate::store::Store;
use crate::table::Table;

/// Columns that depend on arrival, or on the folder that a lake is in.
const ARRIVAL: [&str; 14] = [
    "_ingested_at",
    "_ingest_date",
    "_batch_id",
    "batch_id",
    "etag",
    "txn",
    "attempts",
    "first_seen",
    "settled_at",
    "last_modified",
    "table_id",
    "sequencer",
    "contract_hash",
    "resolved",
];

/// Characters of a row that are shown.
const SHOWN: usize = 160;

/// All tables of a lake, by folder: their rows as sorted text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    tables: BTreeMap<String, Vec<String>>,
}

/// By how many rows two pictures differ, and in which tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// Rows that are missing.
    pub lost: u64,
    /// Rows that are too many.
    pub doubled: u64,
    /// A line for each table that differs.
    pub told: Vec<String>,
}

impl Picture {
    /// Takes a picture of the tables that people read. Of the landed paths in `versions`, which had several, the ledger and
    /// quarantine depend on arrival, and are left out.
    ///
    /// # Errors
    /// A table cannot be read.
    pub async fn of(store: &Store, versions: &BTreeSet<String>) -> Result<Self> {
        let mut tables = BTreeMap::new();
        for folder in folders(store).await?.into_iter().filter(|folder| !folder.starts_with(layout::INTERNAL)) {
            let rows = if folder == layout::LEDGER {
                ledger(store, versions).await?
            } else {
                let is_quarantine = folder.starts_with("quarantine/");
                let shown =
                    |row: &Row| !is_quarantine || !value(row, "file").is_some_and(|file| versions.contains(file));
                told(read(store, &folder).await?.into_iter().filter(shown))
            };
            tables.insert(folder, rows);
        }
        Ok(Self { tables })
    }

    /// Rows of all tables.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tables.values().map(Vec::len).sum()
    }

    /// Rows of one table; 0 when there is none.
    #[must_use]
    pub fn rows_of(&self, folder: &str) -> usize {
        self.tables.get(folder).map_or(0, Vec::len)
    }

    /// How another picture differs from this one.
    #[must_use]
    pub fn compare(&self, found: &Self) -> Differences {
        let mut differences = Differences::default();
        let folders: BTreeSet<&String> = self.tables.keys().chain(found.tables.keys()).collect();
        for folder in folders {
            let none = Vec::new();
            let (wanted, found) = (self.tables.get(folder).unwrap_or(&none), found.tables.get(folder).unwrap_or(&none));
            let (lost, extra) = (without(wanted, found), without(found, wanted));
            if let Some(first) = lost.first().or(extra.first()) {
                let shown: String = first.chars().take(SHOWN).collect();
                let (lost, extra) = (lost.len(), extra.len());
                differences.told.push(format!("{folder}: {lost} rows lost, {extra} too many; the first: {shown}"));
            }
            differences.lost += lost.len() as u64;
            differences.doubled += extra.len() as u64;
        }
        differences
    }
}

/// What is in one sorted list and not in the other, each as often as it is missing there.
fn without<'a>(these: &'a [String], those: &[String]) -> Vec<&'a String> {
    let mut those = those.iter().peekable();
    let mut only = Vec::new();
    for this in these {
        while those.next_if(|that| *that < this).is_some() {}
        if those.next_if(|that| *that == this).is_none() {
            only.push(this);
        }
    }
    only
}

/// The folders of all tables of a lake: those that have a log.
///
/// # Errors
/// The lake cannot be listed.
pub async fn folders(store: &Store) -> Result<BTreeSet<String>> {
    let listed: Vec<_> = store.object_store().list(None).try_collect().await?;
    let of = |path: &str| path.split_once("/_delta_log/").map(|(folder, _)| folder.to_owned());
    Ok(listed.iter().filter_map(|object| of(object.location.as_ref())).collect())
}

/// All rows of the table in `folder` as `column=value` text, sorted, without what depends on arrival. No table: no rows.
///
/// # Errors
/// The table cannot be read.
pub async fn sorted(store: &Store, folder: &str) -> Result<Vec<String>> {
    Ok(told(read(store, folder).await?.into_iter()))
}

type Row = Vec<(String, String)>;

fn value<'a>(row: &'a Row, column: &str) -> Option<&'a str> {
    row.iter().find(|(name, _)| name == column).map(|(_, value)| value.as_str())
}

fn told(rows: impl Iterator<Item = Row>) -> Vec<String> {
    let mut told: Vec<String> = rows
        .map(|row| {
            let shown = row.iter().filter(|(name, _)| !ARRIVAL.contains(&name.as_str()));
            shown.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        })
        .collect();
    told.sort_unstable();
    told
}

/// The ledger's rows of files; of streams what all pieces of a partition together brought, however they were cut.
async fn ledger(store: &Store, versions: &BTreeSet<String>) -> Result<Vec<String>> {
    const COUNTS: [&str; 4] = ["rows_in", "loaded", "quarantined", "ignored"];
    let mut files = Vec::new();
    let mut streams: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    for row in read(store, layout::LEDGER).await? {
        let text = |column: &str| value(&row, column).unwrap_or_default().to_owned();
        if text("topic") == "null" {
            if !versions.contains(&text("path")) {
                files.push(row);
            }
            continue;
        }
        let counts = streams.entry(format!("{} {}/{}", text("table"), text("topic"), text("partition"))).or_default();
        for (sum, name) in counts.iter_mut().zip(COUNTS) {
            *sum += text(name).parse::<u64>().unwrap_or_default();
        }
    }
    let mut rows = told(files.into_iter());
    rows.extend(streams.into_iter().map(|(stream, counts)| format!("{stream} {counts:?}")));
    rows.sort_unstable();
    Ok(rows)
}

async fn read(store: &Store, folder: &str) -> Result<Vec<Row>> {
    // Opened anew: what is seen must be in the store.
    let Some(table) = Table::open(store, folder).await? else { return Ok(Vec::new()) };
    let snapshot = table.snapshot().await?;
    let mut rows = Vec::new();
    for file in snapshot.files()?.iter() {
        let batches: Vec<RecordBatch> = snapshot.read(file, None).await?.try_collect().await?;
        for batch in &batches {
            rows.extend(text(batch)?);
        }
    }
    Ok(rows)
}

fn text(batch: &RecordBatch) -> Result<Vec<Row>> {
    let options = FormatOptions::default().with_null("null");
    let schema = batch.schema();
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        columns.push((field.name(), ArrayFormatter::try_new(column, &options)?));
    }
    let row = |at: usize| columns.iter().map(|(name, cells)| ((*name).clone(), cells.value(at).to_string())).collect();
    Ok((0..batch.num_rows()).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(tables: &[(&str, &[&str])]) -> Picture {
        let rows = |rows: &[&str]| rows.iter().map(ToString::to_string).collect();
        Picture { tables: tables.iter().map(|(folder, found)| ((*folder).to_owned(), rows(found))).collect() }
    }

    #[test]
    fn rows_are_compared_with_how_often_they_are_there() {
        let wanted = picture(&[("raw/a", &["x", "y", "y"]), ("raw/b", &["1"])]);
        assert_eq!(wanted.compare(&wanted), Differences::default());
        for (found, lost, doubled) in [
            (picture(&[("raw/a", &["x", "y"]), ("raw/b", &["1"])]), 1, 0),
            (picture(&[("raw/a", &["x", "x", "y", "y"]), ("raw/b", &["1"])]), 0, 1),
            (picture(&[("raw/a", &["x", "y", "z"]), ("raw/b", &["1"])]), 1, 1),
            (picture(&[("raw/a", &["x", "y", "y"])]), 1, 0),
            (picture(&[("raw/a", &["x", "y", "y"]), ("raw/b", &["1"]), ("raw/c", &["1", "2"])]), 0, 2),
        ] {
            let differences = wanted.compare(&found);
            assert_eq!((differences.lost, differences.doubled, differences.told.len()), (lost, doubled, 1));
        }
    }
}
