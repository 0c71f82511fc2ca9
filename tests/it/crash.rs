//! Every call to the store is a point where a process may die or an answer may be lost. A sample of those points, over
//! ingesting and committing three files: afterwards a fresh process finishes the work, and the tables are the same.

use std::sync::Arc;

use alluvium::event::FileEvent;
use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::store::Store;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use tempfile::TempDir;
use url::Url;

use crate::support::chance::Chance;
use crate::support::contracts::{self, sales};
use crate::support::faults::{Fault, FaultyStore};
use crate::support::{assert_ledger, drop_file, open, settle, tables, write_contracts};

struct World {
    home: TempDir,
    disk: Arc<dyn ObjectStore>,
    settings: Settings,
}

impl World {
    fn new(settings: Settings) -> Self {
        let home = tempfile::tempdir().unwrap();
        write_contracts(home.path(), contracts::ALL);
        Self { home, disk: Arc::new(InMemory::new()), settings }
    }

    /// A process whose call number `at` to the store meets `fault`; and a counter of its calls.
    fn process(&self, at: u64, fault: Fault) -> (Lake, impl Fn() -> u64 + use<>) {
        let store = FaultyStore::new(Arc::clone(&self.disk), at, fault);
        let calls = store.counter();
        let url = Url::parse("memory:///").unwrap();
        let store = Store::over(Arc::new(store), url, None);
        (open(self.home.path(), store, crate::support::manual_clock(), self.settings.clone()), calls)
    }

    fn files(&self) -> Vec<FileEvent> {
        let landing = self.home.path().join("landing");
        let drop = |path: &str, content: &str| drop_file(&landing, path, content.as_bytes());
        vec![
            drop("sales/a.csv", &sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")])),
            drop("sales/b.csv", &sales(&[(3, 2, "north", "3.00"), (4, 2, "south", "-4.00")])),
            drop("sales/c.csv", &sales(&[(5, 1, "north", "5.00"), (1, 3, "north", "9.00")])),
        ]
    }
}

/// The work of one process: two files, a commit, the third file and a correction of the first, a commit. Errors end the
/// step they happen in; what was not acknowledged is given back.
async fn work(world: &World, lake: &Lake) -> Vec<FileEvent> {
    let events = world.files();
    let mut unacknowledged = Vec::new();
    let (early, late) = events.split_at(2);
    for event in early {
        if ingest(lake, event).await.is_err() {
            unacknowledged.push(event.clone());
        }
    }
    // A failed run is no news: the timer comes again.
    let _ = commit(lake, CommitOptions { force: true, deadline: None }).await;
    let landing = world.home.path().join("landing");
    let corrected = drop_file(&landing, "sales/a.csv", sales(&[(1, 1, "north", "1.50")]).as_bytes());
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
    let calm = World::new(settings.clone());
    let (lake, calls) = calm.process(0, Fault::Refused);
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
        let world = World::new(settings.clone());
        let (faulty, calls) = world.process(at, fault);
        let redelivered = work(&world, &faulty).await;
        drop(faulty);
        reached += usize::from(calls() >= at);
        let (fresh, _) = world.process(0, Fault::Refused);
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
