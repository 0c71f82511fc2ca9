//! Refused records: kept whole, once, and stopping nobody.

use super::run::{contract, csv, load, ndjson, quarantined};
use crate::support::{TestLake, rows, settle};

#[tokio::test]
async fn qar_01_one_bad_record_stops_nobody() {
    let content = "{\"op\":1}\n{\"op\":\n{\"op\":3}\n";
    ndjson(&["op int64"], content)
        .await
        .is(&["a.ndjson:1 1", "a.ndjson:3 3"], &["a.ndjson:2@2 json_syntax <{\"op\":>"]);
}

#[tokio::test]
async fn qar_03_redelivery_doubles_no_quarantine_row() {
    let lake = TestLake::new(&[("raw/t", &contract("format: csv", &["id int64"], ""))]);
    let event = lake.drop_file("t/a.csv", "id\n1\nx\ny\n");
    for _ in 0..3 {
        lake.ingest(&event).await;
        lake.settle().await;
    }
    // A crash between the quarantine's commit and the ledger's: the plan is settled again by a fresh process.
    let ledger = lake.folder("ledger/_delta_log");
    let last = std::fs::read_dir(&ledger).unwrap().flatten().map(|entry| entry.path()).max().unwrap();
    std::fs::remove_file(last).unwrap();
    let fresh = lake.another();
    settle(&fresh).await;
    assert_eq!(rows::brief(&fresh, "ledger", &["path", "quarantined"]).await, ["t/a.csv 2"]);
    let kept = quarantined(&lake).await;
    assert_eq!(kept.iter().map(|row| row.reject.record).collect::<Vec<_>>(), [Some(2), Some(3)]);
}

#[tokio::test]
async fn qar_04_the_record_is_kept_as_it_came_with_every_reason() {
    let rules = "rules:\n  - { name: short, check: \"length(raw.id) < 2\" }";
    let declared = contract("format: csv", &["id int64", "t string nullable: false", "u int64 nullable: false"], rules);
    let outcome = load(&declared, &[("a.csv", b"id,t,u\n1,\"a\nb\",1\n2x,\"c\xff\",\n")]).await;
    outcome.is(&["a.csv:1 1|a\nb|1"], &["a.csv:2@4 id_invalid,t_invalid,u_missing,short <2x,\"c\\xff\",>"]);
    outcome.says(&["a.csv:2 id: `2x`"]);
    outcome.says(&["a.csv:2 t:", "UTF-8"]);
    outcome.says(&["a.csv:2 u:", "null"]);
}

#[tokio::test]
async fn qar_07_a_file_that_is_nearly_all_bad_is_refused_whole() {
    let mut text = String::from("name,id\n");
    for id in 0..100_000 {
        text.push_str(&if id % 40_000 == 7 { format!("{id},x{id}\n") } else { format!("x{id},{id}\n") });
    }
    // The contract names the columns the other way round, by position.
    let shifted =
        contract("format: csv, header: false, skip_rows: 1", &["id int64", "name string"], "max_quarantine: 5%");
    let outcome = load(&shifted, &[("a.csv", text.as_bytes())]).await;
    outcome.is(&[], &["a.csv max_quarantine"]);
    assert_eq!(outcome.ledger, ["a.csv refused 0=0+0+0"]);
    outcome.says(&["99997 of 100000 records", "max_quarantine: 5%"]);
    for (limit, taken) in [("2", true), ("1", false), ("50%", true), ("49%", false)] {
        let declared = contract("format: csv", &["id int64"], &format!("max_quarantine: {limit}"));
        let outcome = load(&declared, &[("a.csv", b"id\n1\nx\n3\ny\n")]).await;
        let expected = if taken { "a.csv loaded 4=2+2+0" } else { "a.csv refused 0=0+0+0" };
        assert_eq!(outcome.ledger, [expected], "{limit}");
    }
    assert_eq!(csv(&["id int64"], "id\nx\n").await.ledger, ["a.csv loaded 1=0+1+0"], "no limit unless declared");
}

#[tokio::test]
async fn exo_10_a_file_of_nothing_but_bad_records_is_settled_once() {
    let lake = TestLake::new(&[("raw/t", &contract("format: csv", &["id int64"], ""))]);
    let event = lake.drop_file("t/a.csv", "id\nx\ny\n");
    lake.ingest(&event).await;
    lake.settle().await;
    let fresh = lake.another();
    alluvium::pipeline::ingest::ingest(&fresh, &event).await.unwrap();
    settle(&fresh).await;
    assert_eq!(rows::brief(&fresh, "ledger", &["path", "status", "quarantined"]).await, ["t/a.csv loaded 2"]);
    assert_eq!(quarantined(&lake).await.len(), 2);
}
