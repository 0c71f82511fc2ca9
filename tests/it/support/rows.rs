//! Tables as text, so that two lakes can be compared and a difference can be read.

use alluvium::pipeline::lake::Lake;
use alluvium::table::Table;
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt as _;

/// All rows of the table in `folder` as `column=value` text, sorted, without what depends on arrival. No table: no rows.
pub async fn sorted(lake: &Lake, folder: &str) -> Vec<String> {
    alluvium::selftest::same::sorted(&lake.store, folder).await.unwrap()
}

/// Some columns of every row, in no order.
pub async fn select(lake: &Lake, folder: &str, columns: &[&str]) -> Vec<Vec<String>> {
    let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
    batches(lake, folder, Some(&columns)).await.iter().flat_map(text).collect()
}

/// Some columns of every row, sorted, joined by blanks.
pub async fn brief(lake: &Lake, folder: &str, columns: &[&str]) -> Vec<String> {
    let mut rows: Vec<String> = select(lake, folder, columns).await.iter().map(|row| row.join(" ")).collect();
    rows.sort();
    rows
}

/// The change events that a table keeps, as sorted text. (Bytes are shown as hex digits.)
pub async fn events(lake: &Lake, folder: &str) -> Vec<String> {
    let unhexed = |hex: &str| {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        String::from_utf8((0..hex.len()).step_by(2).map(byte).collect()).unwrap()
    };
    let mut events: Vec<String> = select(lake, folder, &["event"]).await.iter().map(|row| unhexed(&row[0])).collect();
    events.sort();
    events
}

/// The live data files of a table, as its log names them.
pub async fn files(lake: &Lake, folder: &str) -> Vec<String> {
    let Some(table) = Table::open(&lake.store, folder).await.unwrap() else { return Vec::new() };
    let snapshot = table.snapshot().await.unwrap();
    let mut files: Vec<String> = snapshot.files().unwrap().iter().map(|file| file.path.clone()).collect();
    files.sort();
    files
}

/// The newest version of a table.
pub async fn version(lake: &Lake, folder: &str) -> i64 {
    Table::open(&lake.store, folder).await.unwrap().unwrap().snapshot().await.unwrap().version()
}

/// All batches of a table, or of some of its columns. No table: none.
pub async fn batches(lake: &Lake, folder: &str, columns: Option<&[String]>) -> Vec<RecordBatch> {
    // Opened anew: what a test sees must be on the disk.
    let Some(table) = Table::open(&lake.store, folder).await.unwrap() else { return Vec::new() };
    let snapshot = table.snapshot().await.unwrap();
    let mut found = Vec::new();
    for file in snapshot.files().unwrap().iter() {
        let batches: Vec<RecordBatch> = snapshot.read(file, columns).await.unwrap().try_collect().await.unwrap();
        found.extend(batches);
    }
    found
}

fn text(batch: &RecordBatch) -> Vec<Vec<String>> {
    text_with(batch, "null")
}

/// Every value of a batch as text.
pub fn text_with(batch: &RecordBatch, null: &str) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null(null);
    let formatters: Vec<ArrayFormatter<'_>> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    (0..batch.num_rows())
        .map(|row| formatters.iter().map(|formatter| formatter.value(row).to_string()).collect())
        .collect()
}
