//! State that is lost: files come back by reconcile, exactly what is missing and not one row twice; the ledger is made again
//! from plans and tables.

use std::collections::BTreeMap;
use std::path::Path;

use alluvium::event::FileEvent;
use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::deliver::{KeyOf, deliver};
use alluvium::pipeline::ledger;
use alluvium::pipeline::maintain::discard;
use alluvium::pipeline::reconcile;
use alluvium::pipeline::repair::{Outcome, repair_ledger};

use crate::support::changes::{self, Record, streams};
use crate::support::contracts::{self, sales};
use crate::support::program::Program;
use crate::support::{TestLake, assert_ledger, rows, write_contracts};

/// Three commits: a file, one with a bad record and an empty one, and a correction; then a refused file.
async fn past(lake: &TestLake) {
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")])).await;
    lake.load("sales/b.csv", sales(&[(3, 2, "north", "3.00"), (4, 2, "south", "-4.00")])).await;
    lake.load("sales/empty.csv", sales(&[])).await;
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.50")])).await;
    lake.load("sales/refused.csv", "no,such,header\n1,2,3\n").await;
}

/// What `reconcile` finds is ingested and committed; the paths.
async fn reconciled(lake: &TestLake) -> Vec<String> {
    let missing = reconcile::missing(&lake.lake).await.unwrap();
    for version in &missing {
        let event =
            FileEvent { path: version.path.clone(), etag: Some(version.etag.clone()), sequencer: None, bytes: None };
        lake.ingest(&event).await;
    }
    lake.settle().await;
    missing.into_iter().map(|version| version.path).collect()
}

fn without_ledger(mut tables: BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    tables.remove("ledger");
    tables
}

fn remove(folder: &Path) {
    std::fs::remove_dir_all(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
}

#[tokio::test]
async fn staged_files_and_settled_plans_that_are_deleted_come_back_once() {
    let lake = TestLake::new(contracts::ALL);
    past(&lake).await;
    let staged = lake.drop_file("sales/staged.csv", sales(&[(9, 9, "north", "9.00")]));
    lake.ingest(&staged).await;
    let expected = {
        let same = TestLake::new(contracts::ALL);
        past(&same).await;
        same.load("sales/staged.csv", sales(&[(9, 9, "north", "9.00")])).await;
        without_ledger(same.tables().await)
    };
    remove(&lake.folder("_alluvium/staged"));
    remove(&lake.folder("_alluvium/plans"));
    let found = TestLake::another(&lake);
    assert_eq!(reconcile::missing(&found).await.unwrap().len(), 1, "exactly what is missing");
    assert_eq!(reconciled(&lake).await, ["sales/staged.csv"]);
    assert_eq!(without_ledger(lake.tables().await), expected);
    assert_eq!(reconciled(&lake).await, Vec::<String>::new());
    assert_ledger(&lake.lake).await;
}

#[tokio::test]
async fn the_discard_of_what_is_staged_deletes_what_is_said_and_no_more() {
    let lake = TestLake::new(contracts::ALL);
    past(&lake).await;
    for (path, id) in [("sales/x.csv", 21), ("sales/y.csv", 22)] {
        let event = lake.drop_file(path, sales(&[(id, 1, "north", "1.00"), (id, 2, "north", "-1.00")]));
        lake.ingest(&event).await;
    }
    let before = without_ledger(lake.tables().await);
    let told = discard(&lake.lake, &[], true).await.unwrap();
    assert_eq!((told[0].files, told[0].pieces, told[0].plans.files), (2, 0, 5));
    let done = discard(&lake.lake, &[], false).await.unwrap();
    assert_eq!((done[0].staged, done[0].plans.files), (told[0].staged, 5));
    assert!(lake.lake.store.list("_alluvium/staged").await.unwrap().is_empty());
    assert_eq!(without_ledger(lake.tables().await), before);
    assert_eq!(reconciled(&lake).await, ["sales/x.csv", "sales/y.csv"]);
    assert_eq!(lake.rows("raw/sales").await.len(), 4);
    assert_ledger(&lake.lake).await;
}

#[tokio::test]
async fn what_a_committed_plan_names_survives_a_discard() {
    let lake = TestLake::new(contracts::ALL);
    past(&lake).await;
    let event = lake.drop_file("sales/x.csv", sales(&[(21, 1, "north", "1.00"), (22, 2, "north", "-1.00")]));
    lake.ingest(&event).await;
    let rejects = || async {
        let all = lake.lake.store.list("_alluvium/staged/raw/sales/data").await.unwrap();
        all.into_iter().filter(|object| object.location.as_ref().ends_with(".rejects.arrow")).count()
    };
    // Committed, and then nothing of it settled: quarantine and ledger are as before.
    let keep = [lake.folder("quarantine/raw/sales"), lake.folder("ledger")];
    let copies: Vec<_> = keep.iter().map(|folder| copied(folder)).collect();
    let (manifests, data) =
        (lake.folder("_alluvium/staged/raw/sales/manifests"), lake.folder("_alluvium/staged/raw/sales/data"));
    let staged = [copied(&manifests), copied(&data)];
    commit(&lake.lake, CommitOptions { force: true, deadline: None }).await.unwrap();
    for (folder, copy) in keep.iter().chain([&manifests, &data]).zip(copies.iter().chain(&staged)) {
        put_back(copy.path(), folder);
    }
    let fresh = lake.another();
    assert_eq!(rejects().await, 1);
    discard(&fresh, &[], false).await.unwrap();
    assert_eq!(rejects().await, 1, "the plan needs it");
    crate::support::settle(&lake.another()).await;
    assert_eq!(lake.rows("quarantine/raw/sales").await.len(), 3);
    assert_ledger(&lake.another()).await;
}

fn copied(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_all(folder, copy.path());
    copy
}

fn put_back(copy: &Path, folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
    copy_all(copy, folder);
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The ledger is gone; with the plans, or without them.
async fn ledger_lost(with_plans: bool) {
    let lake = TestLake::new(contracts::ALL);
    past(&lake).await;
    let before = lake.tables().await;
    remove(&lake.folder("ledger"));
    if !with_plans {
        remove(&lake.folder("_alluvium/plans"));
    }
    // Nothing is guessed: the table stops until somebody repairs.
    let report = commit(&lake.another(), CommitOptions { force: true, deadline: None }).await.unwrap();
    assert_eq!(report.failed.len(), 1, "{report:#?}");
    assert!(report.failed[0].error.contains("alluvium repair ledger"), "{}", report.failed[0].error);

    let fresh = lake.another();
    let told = repair_ledger(&fresh, &[], true).await.unwrap();
    assert_eq!(told[0].outcome, Outcome::Missing);
    let done = repair_ledger(&fresh, &[], false).await.unwrap();
    assert_eq!(
        (done[0].outcome, done[0].by_plans + done[0].by_rows),
        (Outcome::Rebuilt, told[0].by_plans + told[0].by_rows)
    );
    assert_eq!(done[0].unknown.is_empty(), with_plans, "{:?}", done[0].unknown);
    assert_eq!(repair_ledger(&fresh, &[], false).await.unwrap()[0].outcome, Outcome::Whole);

    let again = lake.another();
    let missing = reconcile::missing(&again).await.unwrap();
    let paths: Vec<&str> = missing.iter().map(|version| version.path.as_str()).collect();
    // A file without a row and without a refused record leaves no trace but in plans.
    assert_eq!(paths, if with_plans { vec![] } else { vec!["sales/empty.csv"] });
    let found = TestLake { lake: again, ..lake };
    reconciled(&found).await;
    assert_eq!(without_ledger(found.tables().await), without_ledger(before.clone()));
    let counts = |rows: &[String]| {
        let mut told: Vec<String> = rows
            .iter()
            .filter(|row| !row.contains("path=sales/a.csv"))
            .map(|row| {
                let wanted = ["path=", "status=", "rows_in=", "loaded=", "quarantined="];
                row.split(' ')
                    .filter(|part| wanted.iter().any(|name| part.starts_with(name)))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        told.sort();
        told
    };
    assert_eq!(counts(&found.tables().await["ledger"]), counts(&before["ledger"]));
    let index = ledger::index(&found.lake).await.unwrap();
    assert_eq!(index.unclaimed_count(), 0);
    assert_ledger(&found.lake).await;
    // It goes on: the same content again is a duplicate, a correction replaces.
    found.load("sales/b.csv", sales(&[(3, 2, "north", "3.00"), (4, 2, "south", "-4.00")])).await;
    assert_eq!(without_ledger(found.tables().await)["raw/sales"], before["raw/sales"]);
    found.load("sales/b.csv", sales(&[(3, 2, "north", "3.50")])).await;
    assert_eq!(rows::brief(&found.lake, "raw/sales", &["id", "amount"]).await, ["1 1.50", "3 3.50"]);
}

#[tokio::test]
async fn a_lost_ledger_is_made_again_from_the_plans() {
    ledger_lost(true).await;
}

#[tokio::test]
async fn a_lost_ledger_without_plans_is_made_again_from_the_tables_rows() {
    ledger_lost(false).await;
}

#[tokio::test]
async fn a_lost_ledger_knows_the_offsets_of_a_stream_again() {
    let mut lake = TestLake::new(changes::ALL);
    let stream = streams(11, 24).remove(0);
    let piece = |range: std::ops::Range<usize>| stream[range].iter().map(Record::delivered).collect::<Vec<_>>();
    for range in [0..8, 6..14, 18..24] {
        deliver(&lake.lake, piece(range), KeyOf::Record).await.unwrap();
        lake.settle().await;
    }
    let before = without_ledger(lake.tables().await);
    remove(&lake.folder("ledger"));
    remove(&lake.folder("_alluvium/plans"));
    lake.lake = lake.another();
    let done = repair_ledger(&lake.lake, &[], false).await.unwrap();
    assert_eq!((done[0].by_rows, done[0].rows), (2, 20), "a row for each stretch of offsets");
    for range in [0..8, 6..14, 18..24, 2..5] {
        deliver(&lake.lake, piece(range), KeyOf::Record).await.unwrap();
        lake.settle().await;
    }
    assert_eq!(without_ledger(lake.tables().await), before);
    deliver(&lake.lake, piece(12..20), KeyOf::Record).await.unwrap();
    lake.settle().await;
    let mut all: Vec<String> = stream.iter().map(Record::line).collect();
    all.sort();
    assert_eq!(rows::events(&lake.lake, "bronze/shop").await, all);
}

#[test]
fn a_queue_that_is_lost_costs_a_look_at_the_landing_zone() {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    let landing = home.path().join("landing");
    for (path, id) in [("sales/a.csv", 1), ("sales/b.csv", 2)] {
        crate::support::drop_file(
            &landing,
            path,
            sales(&[(id, 1, "north", "1.00"), (id + 10, 1, "north", "1.00")]).as_bytes(),
        );
    }
    // No event of these files is anywhere.
    program.ok(&["ingest", landing.to_str().unwrap()]);
    let _ = std::fs::remove_dir_all(home.path().join("queue"));
    program.ok(&["ingest", landing.to_str().unwrap()]);
    crate::support::program::assert_sales_exactly_once(&program, 2);
    let said = program.ok(&["repair", "ledger"]);
    assert!(said.contains("whole"), "{said}");
    let done = program.run(&["vacuum", "--staged"]);
    assert_eq!(done.code, Some(1), "plans are there, and nobody confirms: {}", done.text());
    assert!(done.stderr.contains("--yes"), "{}", done.text());
    assert_eq!(program.run(&["vacuum", "--staged", "--dry-run"]).code, Some(3));
    program.ok(&["vacuum", "--staged", "--yes"]);
    assert_eq!(program.run(&["vacuum", "--staged", "--dry-run"]).code, Some(0));
    crate::support::program::assert_sales_exactly_once(&program, 2);
}
