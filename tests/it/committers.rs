//! Two committers at once, each a process of its own as far as memory goes: no duplicate, no loss.

use alluvium::event::FileEvent;
use alluvium::faults::Fault;
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::{Lake, Settings};

use crate::support::contracts::{self, sales};
use crate::support::racers::{Committers, start_workers};
use crate::support::world::World;
use crate::support::{TestLake, assert_ledger, commit_once, settle, tables};

const FILES: u32 = 24;
const ROWS: i64 = 5;

fn content(file: u32) -> String {
    let first = i64::from(file) * ROWS;
    let rows: Vec<(i64, u32, &str, &str)> = (0..ROWS)
        .map(|row| (first + row, file % 5 + 1, if row % 2 == 0 { "north" } else { "south" }, "1.50"))
        .collect();
    sales(&rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_committers_and_four_workers_lose_nothing_and_double_nothing() {
    let first = TestLake::new(contracts::ALL);
    let second = first.another();
    let mut queue: Vec<FileEvent> = Vec::new();
    for file in 0..FILES {
        let event = first.drop_file(&format!("sales/{file:03}.csv"), content(file));
        queue.extend([event.clone(), event]);
    }
    crate::support::chance::Chance::new(42).shuffle(&mut queue);
    let committers = Committers::start([first.lake.clone(), second.clone()]);
    let lakes = [&first.lake, &second, &first.lake, &second].map(Lake::clone);
    let mut workers = start_workers(lakes, queue);
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    committers.stop().await;
    let (left, right) = tokio::join!(settle(&first.lake), settle(&second));
    assert!(left.iter().chain(&right).all(|report| report.failed.is_empty()));
    settle(&first.lake).await;

    let rows = usize::try_from(i64::from(FILES) * ROWS).unwrap();
    assert_eq!(first.rows("raw/sales").await.len(), rows);
    assert_eq!(first.rows("aggregate/sales").await.len(), rows);
    assert_ledger(&first.lake).await;

    let plain = TestLake::new(contracts::ALL);
    for file in 0..FILES {
        let event = plain.drop_file(&format!("sales/{file:03}.csv"), content(file));
        plain.ingest(&event).await;
    }
    plain.settle().await;
    assert_eq!(plain.tables().await, first.tables().await);
}

/// A lake in memory with two files staged, one of them with a record for the quarantine.
async fn staged() -> World {
    let world = World::in_memory(Settings::default());
    for (path, rows) in [
        ("sales/a.csv", [(1, 1, "north", "1.00"), (2, 1, "south", "2.00")]),
        ("sales/b.csv", [(3, 2, "north", "3.00"), (4, 2, "south", "-4.00")]),
    ] {
        let event = world.drop_file(path, sales(&rows));
        ingest(&world.process(), &event).await.unwrap();
    }
    world
}

#[tokio::test]
async fn a_committer_that_another_overtakes_at_any_call_stops_no_table_and_doubles_nothing() {
    let calm = staged().await;
    let (lake, calls) = calm.process_with(0, Fault::None);
    commit_once(&lake).await;
    let all_calls = calls();
    settle(&lake).await;
    let expected = tables(&lake).await;
    assert_eq!((expected["raw/sales"].len(), expected["quarantine/raw/sales"].len()), (3, 1));
    assert!(all_calls > 20, "the other comes before one of {all_calls} calls");
    for at in 1..=all_calls {
        let world = staged().await;
        // No table may stop, wherever it stands still.
        commit_once(&world.overtaken_at(at)).await;
        let lake = world.process();
        settle(&lake).await;
        assert_eq!(tables(&lake).await, expected, "overtaken before call {at}");
        assert_ledger(&lake).await;
    }
}
