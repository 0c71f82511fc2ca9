//! Every event several times, in any order, with any number of workers and committers: the same tables.

use crate::support::chance::Chance;
use crate::support::contracts::{self, sales};
use crate::support::{Delivery, TestLake, assert_ledger, deliver};
use alluvium::event::FileEvent;

/// Files that have a bad record, a repeated key, an empty file, a refused file and a file that nobody takes.
fn drop_all(lake: &TestLake) -> Vec<FileEvent> {
    let with_faults = "id,day,shop,amount,note\n7,2026-01-02,north,1.00,\nx,2026-01-02,north,1.00,\n\
                       8,2026-01-02,south,-1.00,\n9,2026-01-03,south\n10,2026-01-03,east,2.50,fine\n";
    vec![
        lake.drop_file(
            "sales/a.csv",
            sales(&[(1, 1, "north", "10.00"), (2, 1, "south", "5.25"), (3, 2, "north", "1.00")]),
        ),
        lake.drop_file(
            "sales/b.csv",
            sales(&[(3, 3, "north", "9.99"), (4, 2, "south", "0.00"), (5, 4, "east", "3.10")]),
        ),
        lake.drop_file("sales/c.csv", with_faults),
        lake.drop_file("sales/empty.csv", sales(&[])),
        lake.drop_file("sales/refused.csv", "no,such,header\n1,2,3\n"),
        lake.drop_file("elsewhere/d.txt", "nobody's"),
    ]
}

async fn same_tables(seeds: std::ops::Range<u64>) {
    let plain = TestLake::new(contracts::ALL);
    let events = drop_all(&plain);
    deliver(&plain.lake, &events, Delivery { seed: 0, times: 1, workers: 1, commits: 0 }).await;
    let expected = plain.tables().await;
    assert_eq!(expected["raw/sales"].len(), 8);
    assert_eq!(expected["aggregate/sales"].len(), 7, "id 3 came twice");
    assert_eq!(expected["quarantine/raw/sales"].len(), 4, "three records and a whole file");
    assert_eq!(expected["ledger"].len(), 6);
    for seed in seeds {
        let mut chance = Chance::new(seed);
        let workers = [1, 2, 4][usize::try_from(chance.below(3)).unwrap()];
        let delivery = Delivery { seed, times: 3, workers, commits: chance.below(40) };
        let lake = TestLake::new(contracts::ALL);
        let again = drop_all(&lake);
        deliver(&lake.lake, &again, delivery).await;
        let tables = lake.tables().await;
        for (table, rows) in &expected {
            assert_eq!(rows, &tables[table], "{table}, with {delivery:?}");
        }
        assert_ledger(&lake.lake).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn any_order_any_number_of_deliveries_and_workers() {
    same_tables(1..11).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn any_order_any_number_of_deliveries_and_workers_with_other_seeds() {
    same_tables(101..111).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn delivery_after_everything_is_settled_changes_no_table() {
    let lake = TestLake::new(contracts::ALL);
    let events = drop_all(&lake);
    deliver(&lake.lake, &events, Delivery { seed: 5, times: 1, workers: 2, commits: 0 }).await;
    let tables = lake.tables().await;
    let raw = crate::support::rows::version(&lake.lake, "raw/sales").await;
    let ledger = crate::support::rows::version(&lake.lake, "ledger").await;
    deliver(&lake.another(), &events, Delivery { seed: 6, times: 2, workers: 4, commits: 50 }).await;
    assert_eq!(tables, lake.tables().await);
    assert_eq!(crate::support::rows::version(&lake.lake, "raw/sales").await, raw, "not even an empty commit");
    assert_eq!(crate::support::rows::version(&lake.lake, "ledger").await, ledger, "not even an empty commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_rows_whether_staged_as_arrow_or_adopted_as_parquet() {
    let settings = alluvium::pipeline::lake::Settings { adopt_bytes: 1, ..Default::default() };
    let adopting = TestLake::with_settings(contracts::ALL, settings);
    let events = drop_all(&adopting);
    deliver(&adopting.lake, &events[..3], Delivery { seed: 3, times: 2, workers: 2, commits: 30 }).await;
    let plain = TestLake::new(contracts::ALL);
    let events = drop_all(&plain);
    deliver(&plain.lake, &events[..3], Delivery { seed: 3, times: 1, workers: 1, commits: 0 }).await;
    assert_eq!(plain.tables().await, adopting.tables().await);
    assert_ledger(&adopting.lake).await;
}

#[tokio::test]
async fn nothing_is_left_in_the_staging_area_once_all_is_settled() {
    let lake = TestLake::new(contracts::ALL);
    let events = drop_all(&lake);
    deliver(&lake.lake, &events, Delivery { seed: 9, times: 1, workers: 1, commits: 20 }).await;
    let left: Vec<String> = lake
        .lake
        .store
        .list("_alluvium/staged")
        .await
        .unwrap()
        .into_iter()
        .map(|object| object.location.to_string())
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn landing_files_are_never_moved_changed_or_deleted() {
    let lake = TestLake::new(contracts::ALL);
    let events = drop_all(&lake);
    let before: Vec<Vec<u8>> = events.iter().map(|event| std::fs::read(lake.landed(&event.path)).unwrap()).collect();
    deliver(&lake.lake, &events, Delivery { seed: 2, times: 1, workers: 1, commits: 20 }).await;
    let after: Vec<Vec<u8>> = events.iter().map(|event| std::fs::read(lake.landed(&event.path)).unwrap()).collect();
    assert_eq!(before, after);
    let reconciled = alluvium::pipeline::reconcile::missing(&lake.lake).await.unwrap();
    assert_eq!(reconciled, Vec::new(), "every landed file is known");
}

#[tokio::test]
async fn reconcile_finds_the_file_that_no_event_announced() {
    let lake = TestLake::new(contracts::ALL);
    let events = drop_all(&lake);
    deliver(&lake.lake, &events[1..], Delivery { seed: 2, times: 1, workers: 1, commits: 0 }).await;
    let missing = alluvium::pipeline::reconcile::missing(&lake.lake).await.unwrap();
    assert_eq!(missing.iter().map(|version| version.path.as_str()).collect::<Vec<_>>(), ["sales/a.csv"]);
}
