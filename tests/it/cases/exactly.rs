//! Exactly once where others lost count: a failure after the commit, and a ledger that forgets nothing.

use alluvium::pipeline::maintain::maintain;
use alluvium::pipeline::reconcile;
use chrono::TimeDelta;

use super::run::contract;
use crate::support::{TestLake, assert_ledger, rows};

#[tokio::test]
async fn exo_05_a_checkpoint_that_cannot_be_written_fails_no_commit() {
    let text = contract("format: csv", &["id int64"], "properties: { delta.checkpointInterval: \"2\" }");
    let lake = TestLake::new(&[("raw/t", &text)]);
    lake.load("t/0.csv", "id\n0\n").await;
    let log = lake.folder("raw/t/_delta_log");
    // Where a folder is, no file can be put.
    for version in 0..=6 {
        std::fs::create_dir(log.join(format!("{version:020}.checkpoint.parquet"))).unwrap();
    }
    for file in 1..=3 {
        lake.load(&format!("t/{file}.csv"), format!("id\n{file}\n")).await;
    }
    assert_eq!(rows::brief(&lake.lake, "raw/t", &["id"]).await, ["0", "1", "2", "3"]);
    let commits = std::fs::read_dir(&log).unwrap().flatten();
    let commits = commits.filter(|entry| entry.file_name().to_string_lossy().ends_with(".json")).count();
    assert_eq!(commits, 5, "the creation, and one commit a file");
    for version in 0..=6 {
        std::fs::remove_dir(log.join(format!("{version:020}.checkpoint.parquet"))).unwrap();
    }
    let other = lake.another();
    for file in 4..=6 {
        let event = lake.drop_file(&format!("t/{file}.csv"), format!("id\n{file}\n"));
        alluvium::pipeline::ingest::ingest(&other, &event).await.unwrap();
        crate::support::settle(&other).await;
    }
    assert!(log.join(format!("{:020}.checkpoint.parquet", 6)).is_file(), "a later commit writes its own");
    assert_eq!(rows::brief(&other, "raw/t", &["id"]).await, ["0", "1", "2", "3", "4", "5", "6"]);
    assert_ledger(&other).await;
}

#[tokio::test]
async fn exo_09_the_ledger_forgets_no_file_and_knows_it_for_each_table() {
    let first = contract("format: csv", &["id int64"], "");
    let second = first.replace("raw/t", "raw/u");
    let lake = TestLake::new(&[("raw/t", &first), ("raw/u", &second)]);
    let event = lake.drop_file("t/a.csv", "id\n1\n2\n");
    lake.ingest(&event).await;
    lake.settle().await;
    let before = lake.tables().await;
    assert_eq!((before["raw/t"].len(), before["raw/u"].len(), before["ledger"].len()), (2, 2, 2));
    for _ in 0..3 {
        lake.clock.advance(TimeDelta::days(400));
        let report = maintain(&lake.lake, None).await.unwrap();
        assert!(report.failed.is_empty(), "{report:#?}");
        // Listed, and sent, again.
        assert_eq!(reconcile::missing(&lake.lake).await.unwrap(), []);
        lake.ingest(&event).await;
        lake.settle().await;
        assert_eq!(lake.tables().await, before);
    }
    // A table that is new takes the file that the others have had for years.
    let mut lake = lake;
    let third = first.replace("raw/t", "raw/v");
    lake.redeploy(&[("raw/t", &first), ("raw/u", &second), ("raw/v", &third)]);
    let missing = reconcile::missing(&lake.lake).await.unwrap();
    assert_eq!(missing.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["t/a.csv"]);
    lake.ingest(&event).await;
    lake.settle().await;
    let after = lake.tables().await;
    assert_eq!((&after["raw/t"], &after["raw/u"], after["raw/v"].len()), (&before["raw/t"], &before["raw/u"], 2));
    assert_ledger(&lake.lake).await;
}
