//! Change events from landed files: every line is kept whole, what is no event is told besides, nothing is kept twice.

use std::collections::BTreeSet;
use std::io::Write as _;

use alluvium::pipeline::lake::Settings;

use crate::support::changes::{self, Record, streams};
use crate::support::{TestLake, assert_ledger, rows};

/// What a file of these records is.
fn content(records: &[Record]) -> String {
    records.iter().fold(String::new(), |mut text, record| {
        text.push_str(&record.line());
        text.push('\n');
        text
    })
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

async fn events(lake: &TestLake, folder: &str) -> Vec<String> {
    rows::events(&lake.lake, folder).await
}

async fn every_line_is_kept(settings: Settings) {
    let lake = TestLake::with_settings(changes::ALL, settings);
    let streams = streams(7, 60);
    let mut expected = Vec::new();
    for (number, records) in streams.iter().enumerate() {
        let plain = content(records);
        let (ending, bytes) = match number % 3 {
            0 => ("", plain.clone().into_bytes()),
            1 => {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                gzip.write_all(plain.as_bytes()).unwrap();
                (".gz", gzip.finish().unwrap())
            }
            _ => (".zst", zstd::encode_all(plain.as_bytes(), 1).unwrap()),
        };
        lake.load(&format!("shop/{number}.ndjson{ending}"), bytes).await;
        expected.extend(records.iter().map(Record::line));
    }
    let all: Vec<Record> = streams.concat();
    assert_eq!(events(&lake, "bronze/shop").await, sorted(expected.clone()));
    let malformed: BTreeSet<String> = all.iter().filter(|record| record.is_malformed()).map(Record::line).collect();
    assert!(malformed.len() > 5);
    assert_eq!(events(&lake, "quarantine/bronze/shop").await, malformed.iter().cloned().collect::<Vec<_>>());
    let rules = rows::brief(&lake.lake, "quarantine/bronze/shop", &["rules", "table", "op"]).await;
    assert!(rules.iter().all(|row| row == "[event_malformed] null null"), "{rules:?}");

    // All lines are loaded; the others of the count reach no other table.
    let ledger = rows::select(&lake.lake, "ledger", &["rows_in", "loaded", "quarantined", "ignored"]).await;
    let sum = |column: usize| ledger.iter().map(|row| row[column].parse::<usize>().unwrap()).sum::<usize>();
    let ignored = all.iter().filter(|record| record.is_ignored()).count();
    assert_eq!([sum(0), sum(1), sum(2), sum(3)], [all.len(), all.len(), malformed.len(), ignored]);
    assert_ledger(&lake.lake).await;

    // One partition for each table of the database and day.
    let folders: BTreeSet<String> = rows::files(&lake.lake, "bronze/shop")
        .await
        .iter()
        .map(|file| file.rsplit_once('/').unwrap().0.to_owned())
        .collect();
    let named = |table: &str| format!("table={table}/_ingest_date=2026-01-15");
    let tables = ["__HIVE_DEFAULT_PARTITION__", "public.customers", "public.items", "public.orders"];
    assert_eq!(folders, tables.map(named).into());

    // What each event says of itself.
    let told =
        rows::select(&lake.lake, "bronze/shop", &["_topic", "_partition", "_offset", "table", "op", "key", "_row"])
            .await;
    assert_eq!(told.iter().filter(|row| row[0] == "null").count(), malformed.len());
    for row in told.iter().filter(|row| row[0] != "null") {
        let place = |record: &&Record| {
            record.topic == row[0] && record.partition.to_string() == row[1] && record.offset.to_string() == row[2]
        };
        let Some(record) = all.iter().find(place) else { panic!("{row:?}") };
        assert_eq!(row[6], (record.offset + 1).to_string());
        let changes_a_row = !record.is_ignored() && !record.is_malformed();
        let table = record.topic.replace("lake.", "");
        assert_eq!(row[3], if changes_a_row { table.as_str() } else { "null" }, "{row:?}");
        assert_eq!(row[4] == "null", !changes_a_row && row[4] != "m", "{row:?}");
        let has_key = changes_a_row || record.value.is_none();
        assert_eq!(row[5], if has_key { record.key.as_deref().unwrap() } else { "null" }, "{row:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_of_files_is_kept_once() {
    every_line_is_kept(Settings::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_of_files_is_kept_once_when_files_are_adopted() {
    every_line_is_kept(Settings { adopt_bytes: 1, ..Settings::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_file_again_adds_nothing_and_a_longer_one_its_events() {
    let lake = TestLake::new(changes::ALL);
    let stream = streams(3, 30).remove(0);
    let early = content(&stream[..20]);
    let event = lake.drop_file("shop/a.ndjson", &early);
    lake.ingest(&event).await;
    lake.ingest(&event).await;
    lake.settle().await;
    assert_eq!(events(&lake, "bronze/shop").await.len(), 20);
    // The same content under a new etag.
    lake.load("shop/a.ndjson", &early).await;
    assert_eq!(events(&lake, "bronze/shop").await.len(), 20);
    // A file that grew: its former events are redeliveries, which are kept like all others.
    lake.load("shop/a.ndjson", content(&stream)).await;
    assert_eq!(events(&lake, "bronze/shop").await.len(), 50);
    // Under another path it is another file; what is no event is in quarantine once for each text.
    lake.load("shop/b.ndjson", content(&stream)).await;
    assert_eq!(events(&lake, "bronze/shop").await.len(), 80);
    let malformed: BTreeSet<String> = stream.iter().filter(|record| record.is_malformed()).map(Record::line).collect();
    assert_eq!(events(&lake, "quarantine/bronze/shop").await, malformed.into_iter().collect::<Vec<_>>());
    assert_ledger(&lake.lake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bare_values_have_no_place_and_a_broken_file_is_refused_whole() {
    let lake = TestLake::new(changes::ALL);
    let stream = streams(5, 40).remove(2);
    let values: Vec<String> = stream.iter().map(|record| record.value.clone().unwrap_or("null".to_owned())).collect();
    lake.load("shop/bare/x.ndjson", values.join("\n")).await;
    assert_eq!(events(&lake, "bronze/shop").await, sorted(values.clone()));
    let places = rows::brief(&lake.lake, "bronze/shop", &["_topic", "_partition", "_offset", "key", "_file"]).await;
    assert!(places.iter().all(|row| row == "null null null null shop/bare/x.ndjson"), "{places:?}");

    let quarantined = events(&lake, "quarantine/bronze/shop").await.len();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(content(&stream).as_bytes()).unwrap();
    let whole = gzip.finish().unwrap();
    lake.load("shop/cut.ndjson.gz", &whole[..whole.len() / 2]).await;
    assert_eq!(rows::brief(&lake.lake, "ledger", &["path", "status"]).await[1], "shop/cut.ndjson.gz refused");
    let refused = rows::select(&lake.lake, "quarantine/bronze/shop", &["file", "record", "event", "rules"]).await;
    assert_eq!(refused.len(), quarantined + 1);
    assert!(
        refused.contains(&["shop/cut.ndjson.gz", "null", "null", "[truncated_gzip]"].map(str::to_owned).to_vec()),
        "{refused:?}"
    );
    lake.load("shop/empty.ndjson", "\n\n").await;
    assert_eq!(rows::brief(&lake.lake, "ledger", &["path", "status", "rows_in"]).await[2], "shop/empty.ndjson empty 0");
    // The whole file comes at last.
    lake.load("shop/cut.ndjson.gz", &whole).await;
    assert_eq!(events(&lake, "bronze/shop").await.len(), 80);
    assert_ledger(&lake.lake).await;
}
