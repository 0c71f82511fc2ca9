//! Every call to the store is a point where a process may die or an answer may be lost. A sample of those points, over
//! ingesting and committing three files: afterwards a fresh process finishes the work, and the tables are the same.

use alluvium::event::FileEvent;
use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::{Lake, Settings};

use crate::support::chance::Chance;
use crate::support::contracts::sales;
use crate::support::faults::Fault;
use crate::support::world::World;
use crate::support::{assert_ledger, settle, tables};

/// What the first process lands.
fn files(world: &World) -> Vec<FileEvent> {
    vec![
        world.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")])),
        world.drop_file("sales/b.csv", sales(&[(3, 2, "north", "3.00"), (4, 2, "south", "-4.00")])),
        world.drop_file("sales/c.csv", sales(&[(5, 1, "north", "5.00"), (1, 3, "north", "9.00")])),
    ]
}

/// The work of one process: two files, a commit, the third file and a correction of the first, a commit. Errors end the
/// step they happen in; what was not acknowledged is given back.
async fn work(world: &World, lake: &Lake) -> Vec<FileEvent> {
    let events = files(world);
    let mut unacknowledged = Vec::new();
    let (early, late) = events.split_at(2);
    for event in early {
        if ingest(lake, event).await.is_err() {
            unacknowledged.push(event.clone());
        }
    }
    // A failed run is no news: the timer comes again.
    let _ = commit(lake, CommitOptions { force: true, deadline: None }).await;
    let corrected = world.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.50")]));
    for event in late.iter().chain([&corrected]) {
        if ingest(lake, event).await.is_err() {
            unacknowledged.push(event.clone());
        }
    }
    let _ = commit(lake, CommitOptions { force: true, deadline: None }).await;
    unacknowledged
}

/// What has to be the same afterwards. The ledger of a path with several versions depends on arrival.
async fn outcome(lake: &Lake) -> Vec<(String, Vec<String>)> {
    let mut found = tables(lake).await;
    found.remove("ledger");
    found.into_iter().collect()
}

async fn sampled(settings: Settings, sample: usize, seed: u64) {
    let calm = World::in_memory(settings.clone());
    let (lake, calls) = calm.process_with(0, Fault::Refused);
    assert_eq!(work(&calm, &lake).await, Vec::new());
    let all_calls = calls();
    settle(&lake).await;
    let expected = outcome(&lake).await;
    assert_eq!(expected.iter().find(|(table, _)| table == "raw/sales").unwrap().1.len(), 4);
    assert!(all_calls > 50, "the faults fall on {all_calls} calls");

    let mut chance = Chance::new(seed);
    let faults = [Fault::Refused, Fault::AnswerLost, Fault::DeadBefore, Fault::DeadAfter, Fault::DiskFull];
    let mut reached = 0;
    for round in 0..sample {
        // Spread over the whole run, one step at a time, with a random place within the step.
        let step = all_calls / sample as u64 + 1;
        let at = (round as u64 * step + chance.below(step) + 1).min(all_calls);
        let fault = faults[usize::try_from(chance.below(5)).unwrap()];
        let world = World::in_memory(settings.clone());
        let (faulty, calls) = world.process_with(at, fault);
        let redelivered = work(&world, &faulty).await;
        drop(faulty);
        reached += usize::from(calls() >= at);
        let fresh = world.process();
        for event in &redelivered {
            ingest(&fresh, event).await.unwrap_or_else(|e| panic!("{fault:?} at call {at}: {}", e.describe()));
        }
        settle(&fresh).await;
        assert_eq!(expected, outcome(&fresh).await, "{fault:?} at call {at} of {all_calls}, seed {seed}");
        assert_ledger(&fresh).await;
    }
    // The order of some calls is not fixed, so a late one may not come; nearly all must.
    assert!(reached * 10 >= sample * 9, "only {reached} of {sample} faults were met");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_fault_anywhere_a_fresh_process_finishes_the_work() {
    sampled(Settings::default(), 60, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_fault_anywhere_adopted_files_are_in_the_table_once() {
    sampled(Settings { adopt_bytes: 1, ..Settings::default() }, 30, 2).await;
}
