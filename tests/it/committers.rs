//! Two committers at once, each a process of its own as far as memory goes: no duplicate, no loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::contracts::{self, sales};
use crate::support::{TestLake, assert_ledger, commit_once, settle};
use alluvium::error::Directive;
use alluvium::event::FileEvent;
use alluvium::pipeline::ingest::ingest;

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
    let queue = Arc::new(tokio::sync::Mutex::new(queue));
    let is_done = Arc::new(AtomicBool::new(false));

    let mut committers = tokio::task::JoinSet::new();
    for lake in [first.lake.clone(), second.clone()] {
        let is_done = Arc::clone(&is_done);
        committers.spawn(async move {
            while !is_done.load(Ordering::SeqCst) {
                commit_once(&lake).await;
                tokio::task::yield_now().await;
            }
        });
    }
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..4 {
        let lake = if worker % 2 == 0 { first.lake.clone() } else { second.clone() };
        let queue = Arc::clone(&queue);
        workers.spawn(async move {
            loop {
                let Some(event) = queue.lock().await.pop() else { return };
                match ingest(&lake, &event).await {
                    Ok(_) => {}
                    Err(error) if error.kind().directive() == Directive::Retry => queue.lock().await.insert(0, event),
                    Err(error) => panic!("{}", error.describe()),
                }
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    is_done.store(true, Ordering::SeqCst);
    while let Some(done) = committers.join_next().await {
        done.unwrap();
    }
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
