//! Files that are replaced: corrections reach every layer, policies hold, and order is what the landing zone says.

use crate::support::contracts::{self, raw_with, sales};
use crate::support::{TestLake, assert_ledger, rows};

const DAILY: [&str; 4] = ["day", "shop", "sales", "revenue"];

async fn statuses(lake: &TestLake, path: &str) -> Vec<String> {
    let mut found: Vec<Vec<String>> = rows::select(&lake.lake, "ledger", &["path", "txn", "status"]).await;
    found.retain(|row| row[0] == path);
    found.sort_by_key(|row| row[1].parse::<i64>().unwrap_or_default());
    found.into_iter().map(|row| row[2].clone()).collect()
}

#[tokio::test]
async fn a_corrected_file_corrects_every_layer_and_its_vanished_rows_vanish() {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "10.00"), (2, 1, "south", "5.00"), (3, 2, "north", "1.00")]))
        .await;
    lake.load("sales/b.csv", sales(&[(9, 1, "north", "2.00")])).await;
    assert_eq!(
        rows::brief(&lake.lake, "curated/sales_daily", &DAILY).await,
        ["2026-01-01 north 2 12.00", "2026-01-01 south 1 5.00", "2026-01-02 north 1 1.00"]
    );
    // Sale 2 vanishes, 3 moves to another day, 1 has another amount.
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "11.00"), (3, 5, "north", "1.00")])).await;
    assert_eq!(
        rows::brief(&lake.lake, "raw/sales", &["id", "day", "amount"]).await,
        ["1 2026-01-01 11.00", "3 2026-01-05 1.00", "9 2026-01-01 2.00"]
    );
    assert_eq!(
        rows::brief(&lake.lake, "aggregate/sales", &["id", "day"]).await,
        ["1 2026-01-01", "3 2026-01-05", "9 2026-01-01"]
    );
    assert_eq!(
        rows::brief(&lake.lake, "curated/sales_daily", &DAILY).await,
        ["2026-01-01 north 2 13.00", "2026-01-05 north 1 1.00"]
    );
    assert_eq!(statuses(&lake, "sales/a.csv").await, ["loaded", "loaded"]);
    assert_ledger(&lake.lake).await;
}

#[tokio::test]
async fn the_key_that_a_correction_frees_falls_to_the_next_file() {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "10.00")])).await;
    lake.load("sales/b.csv", sales(&[(1, 2, "south", "20.00")])).await;
    assert_eq!(rows::brief(&lake.lake, "aggregate/sales", &["id", "shop"]).await, ["1 north"]);
    lake.load("sales/a.csv", sales(&[(2, 1, "north", "10.00")])).await;
    assert_eq!(rows::brief(&lake.lake, "aggregate/sales", &["id", "shop"]).await, ["1 south", "2 north"]);
}

#[tokio::test]
async fn a_then_b_then_a_again_ends_in_a() {
    let lake = TestLake::new(contracts::ALL);
    let (a, b) = (sales(&[(1, 1, "north", "1.00")]), sales(&[(2, 2, "south", "2.00")]));
    lake.load("sales/a.csv", &a).await;
    let first = lake.rows("curated/sales_daily").await;
    lake.load("sales/a.csv", &b).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["2"]);
    lake.load("sales/a.csv", &a).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1"]);
    assert_eq!(lake.rows("curated/sales_daily").await, first);
    assert_eq!(statuses(&lake, "sales/a.csv").await, ["loaded", "loaded", "loaded"]);
}

#[tokio::test]
async fn the_same_content_under_a_new_etag_is_a_duplicate() {
    let lake = TestLake::new(contracts::ALL);
    let content = sales(&[(1, 1, "north", "1.00")]);
    lake.load("sales/a.csv", &content).await;
    lake.load("sales/a.csv", &content).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1"]);
    assert_eq!(statuses(&lake, "sales/a.csv").await, ["loaded", "duplicate"]);
}

#[tokio::test]
async fn the_same_content_under_another_name_is_another_file() {
    let lake = TestLake::new(contracts::ALL);
    let content = sales(&[(1, 1, "north", "1.00")]);
    lake.load("sales/a.csv", &content).await;
    lake.load("sales/b.csv", &content).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1", "1"]);
    assert_eq!(rows::brief(&lake.lake, "aggregate/sales", &["id"]).await, ["1"]);
}

#[tokio::test]
async fn two_versions_staged_before_one_commit_leave_the_newer_one() {
    let lake = TestLake::new(contracts::ALL);
    let old = lake.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00")]));
    lake.ingest(&old).await;
    let new = lake.drop_file("sales/a.csv", sales(&[(2, 1, "north", "2.00")]));
    lake.ingest(&new).await;
    lake.settle().await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["2"]);
    let mut found = statuses(&lake, "sales/a.csv").await;
    found.sort();
    assert_eq!(found, ["loaded", "superseded"]);
}

#[tokio::test]
async fn on_overwrite_append_keeps_the_old_rows_and_skips_a_content_seen_before() {
    let raw = raw_with("on_overwrite: append");
    let lake = TestLake::new(&[("raw/sales", &raw)]);
    let (a, b) = (sales(&[(1, 1, "north", "1.00")]), sales(&[(2, 1, "north", "2.00")]));
    for content in [&a, &b, &a] {
        lake.load("sales/a.csv", content).await;
    }
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1", "2"]);
    assert_eq!(statuses(&lake, "sales/a.csv").await, ["loaded", "loaded", "duplicate"]);
    assert_ledger(&lake.lake).await;
}

#[tokio::test]
async fn on_overwrite_ignore_keeps_the_first_version() {
    let raw = raw_with("on_overwrite: ignore");
    let lake = TestLake::new(&[("raw/sales", &raw)]);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    lake.load("sales/a.csv", sales(&[(2, 1, "north", "2.00")])).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1"]);
    assert_eq!(statuses(&lake, "sales/a.csv").await, ["loaded", "ignored"]);
}

#[tokio::test]
async fn an_empty_version_takes_the_rows_away_and_the_next_one_brings_new_ones() {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    lake.load("sales/a.csv", sales(&[])).await;
    assert_eq!(lake.rows("raw/sales").await, Vec::<String>::new());
    assert_eq!(lake.rows("curated/sales_daily").await, Vec::<String>::new());
    lake.load("sales/a.csv", sales(&[(4, 1, "north", "1.00")])).await;
    assert_eq!(rows::brief(&lake.lake, "aggregate/sales", &["id"]).await, ["4"]);
    assert_eq!(statuses(&lake, "sales/a.csv").await, ["loaded", "empty", "loaded"]);
}

#[tokio::test]
async fn a_refused_version_leaves_the_rows_of_the_last_good_one() {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    let tables = lake.rows("curated/sales_daily").await;
    lake.load("sales/a.csv", "what,is,this\n1,2,3\n").await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1"]);
    assert_eq!(lake.rows("curated/sales_daily").await, tables);
    assert_eq!(statuses(&lake, "sales/a.csv").await, ["loaded", "refused"]);
    let refused = rows::select(&lake.lake, "quarantine/raw/sales", &["file", "record"]).await;
    assert_eq!(refused, [["sales/a.csv", "null"]]);
}

#[tokio::test]
async fn the_quarantine_of_a_version_that_was_corrected_stays_to_be_seen() {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00"), (2, 1, "north", "oops")])).await;
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00"), (2, 1, "north", "2.00")])).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1", "2"]);
    let kept = rows::select(&lake.lake, "quarantine/raw/sales", &["record", "line", "rules"]).await;
    assert_eq!(kept, [["2", "3", "[amount_invalid]"]]);
}

#[tokio::test]
async fn upsert_from_files_keeps_the_newest_row_of_each_key_whatever_came_first() {
    // The order by default, and the same spelled out.
    for sequence in ["", "sequence_by: [_file, version, _row]\n"] {
        upsert_keeps_the_newest(sequence).await;
    }
}

async fn upsert_keeps_the_newest(sequence: &str) {
    let raw = contracts::RAW.replace("write_mode: append", "write_mode: upsert");
    let raw = format!("{raw}primary_key: [id]\n{sequence}");
    let (a, b) = (
        sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")]),
        sales(&[(2, 9, "east", "20.00"), (3, 1, "east", "3.00")]),
    );
    let expected = ["1 north 1.00", "2 east 20.00", "3 east 3.00"];
    let lake = TestLake::new(&[("raw/sales", &raw)]);
    lake.load("sales/a.csv", &a).await;
    lake.load("sales/b.csv", &b).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id", "shop", "amount"]).await, expected);
    let lake = TestLake::new(&[("raw/sales", &raw)]);
    lake.load("sales/b.csv", &b).await;
    lake.load("sales/a.csv", &a).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id", "shop", "amount"]).await, expected);
}

#[tokio::test]
async fn overwrite_shows_the_greatest_file_whatever_came_first() {
    let raw = contracts::RAW.replace("write_mode: append", "write_mode: overwrite");
    for order in [["sales/1.csv", "sales/2.csv"], ["sales/2.csv", "sales/1.csv"]] {
        let lake = TestLake::new(&[("raw/sales", &raw)]);
        for path in order {
            let id = if path == "sales/1.csv" { 1 } else { 2 };
            lake.load(path, sales(&[(id, 1, "north", "1.00")])).await;
        }
        assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id", "_file"]).await, ["2 sales/2.csv"], "{order:?}");
    }
}

#[tokio::test]
async fn a_file_that_nobody_took_is_taken_when_its_contract_comes() {
    let mut lake = TestLake::new(&[("raw/sales", contracts::RAW)]);
    lake.load("orders/1.csv", "id,total\n1,5\n").await;
    assert_eq!(
        rows::select(&lake.lake, "ledger", &["table", "path", "status"]).await,
        [["null", "orders/1.csv", "ignored"]]
    );
    let orders = "
version: 1
table: raw/orders
source: { path: \"orders/**/*.csv\", format: csv }
columns:
  - { name: id, type: int64, nullable: false }
  - { name: total, type: int64 }
";
    lake.redeploy(&[("raw/sales", contracts::RAW), ("raw/orders", orders)]);
    let missing = alluvium::pipeline::reconcile::missing(&lake.lake).await.unwrap();
    assert_eq!(missing.iter().map(|version| version.path.as_str()).collect::<Vec<_>>(), ["orders/1.csv"]);
    for version in missing {
        let event =
            alluvium::event::FileEvent { path: version.path, etag: Some(version.etag), sequencer: None, bytes: None };
        lake.ingest(&event).await;
    }
    lake.settle().await;
    assert_eq!(rows::brief(&lake.lake, "raw/orders", &["id", "total"]).await, ["1 5"]);
    assert_eq!(alluvium::pipeline::reconcile::missing(&lake.lake).await.unwrap(), Vec::new());
}

#[tokio::test]
async fn a_column_added_to_the_contract_is_null_in_older_rows() {
    let mut lake = TestLake::new(&[("raw/sales", contracts::RAW)]);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    let wider = contracts::RAW.replace(
        "  - { name: note, type: string }\n",
        "  - { name: note, type: string }\n  - { name: clerk, type: string }\n",
    );
    lake.redeploy(&[("raw/sales", &wider)]);
    lake.load("sales/b.csv", "id,day,shop,amount,note,clerk\n2,2026-01-01,north,2.00,,Ada\n").await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id", "clerk"]).await, ["1 null", "2 Ada"]);
}

#[tokio::test]
async fn what_is_derived_may_use_a_new_column_before_the_next_file_comes() {
    let mut lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    let wider = raw_with("").replace("  - { name: note", "  - { name: clerk, type: string }\n  - { name: note");
    let counted = contracts::CURATED.replace("sum(amount)", "count(clerk) as clerks, sum(amount)");
    lake.redeploy(&[("raw/sales", &wider), contracts::ALL[1], ("curated/sales_daily", &counted)]);
    lake.settle().await;
    let columns = ["day", "shop", "sales", "clerks"];
    assert_eq!(rows::brief(&lake.lake, "curated/sales_daily", &columns).await, ["2026-01-01 north 1 0"]);
    lake.load("sales/b.csv", "id,day,shop,amount,note,clerk\n2,2026-01-01,north,2.00,,Ada\n").await;
    assert_eq!(rows::brief(&lake.lake, "curated/sales_daily", &columns).await, ["2026-01-01 north 2 1"]);
}
