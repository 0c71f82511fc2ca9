//! What is promised of lakes in a storage account, with the built binary against a real Azurite.

mod away;
mod broken;
mod identity;
mod names;
mod secrets;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alluvium::app::Backends;
use alluvium::catalog::Catalog;
use alluvium::clock::SystemClock;
use alluvium::config::Config;
use alluvium::event::FileEvent;
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::Lake;
use alluvium::pipeline::status::status;
use alluvium::queue::poison;

use crate::support::azurite::Azurite;
use crate::support::chance::Chance;
use crate::support::contracts::{self, sales};
use crate::support::place::Place;
use crate::support::program::{Program, eventually};
use crate::support::racers::start_workers;
use crate::support::{assert_ledger, root, rounds, settle, tables};

const PATIENCE: Duration = Duration::from_secs(120);

fn content(file: u32) -> String {
    let first = i64::from(file) * 4;
    let rows: Vec<(i64, u32, &str, &str)> =
        (0..4).map(|row| (first + row, file % 6 + 1, if row % 2 == 0 { "north" } else { "south" }, "1.25")).collect();
    sales(&rows)
}

fn shipped_lake(variables: &[(&str, &str)]) -> Lake {
    let config = Config::from_pairs(variables.iter().copied()).unwrap();
    let catalog = Catalog::load(&root().join("schemas")).unwrap();
    Backends::open(&config, Arc::new(SystemClock)).unwrap().lake(catalog).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_makes_the_same_lake_on_azurite_as_in_folders() {
    let (folders, azurite) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let demo = ["demo", "--files", "3", "--rows", "200"];
    Program::new(folders.path()).ok(&demo);
    let program = Program::new(azurite.path()).env("ALLUVIUM_AZURITE", &Azurite::program());
    let said = program.ok(&[&demo[..], &["--storage", "azurite"]].concat());
    assert!(said.contains("local --storage azurite"), "{said}");
    assert!(!azurite.path().join("lake").exists(), "nothing is in folders");

    // What the demo left in its Azurite is read by another.
    let running = Azurite::over(&azurite.path().join("azurite"));
    let local = shipped_lake(&[("ALLUVIUM_HOME", folders.path().to_str().unwrap())]);
    let remote = shipped_lake(&[
        ("STORAGE_BACKEND", "azure"),
        ("QUEUE_BACKEND", "azure"),
        ("AzureWebJobsStorage", &running.connection()),
    ]);
    let (local, remote) = (tables(&local).await, tables(&remote).await);
    assert!(local["raw/trips"].len() > 600 && !local["quarantine/raw/trips"].is_empty());
    assert_eq!(local.keys().collect::<Vec<_>>(), remote.keys().collect::<Vec<_>>());
    for (table, rows) in &local {
        assert_eq!(rows, &remote[table], "{table}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_committer_processes_while_four_workers_stage_lose_nothing_and_double_nothing() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    let files = 40 * rounds();
    let mut queue: Vec<FileEvent> = Vec::new();
    for file in 0..files {
        let event = place.drop_file(&format!("sales/{file:05}.csv"), content(file)).await;
        queue.extend([event.clone(), event]);
    }
    Chance::new(7).shuffle(&mut queue);
    let is_done = AtomicBool::new(false);
    let mut workers = start_workers([place.lake(), place.lake(), place.lake(), place.lake()], queue);
    let (runs, outcome) = std::thread::scope(|scope| {
        let committers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (program, mut runs) = (place.program(), 0);
                    while !is_done.load(Ordering::SeqCst) {
                        program.ok(&["commit", "--force"]);
                        runs += 1;
                    }
                    runs
                })
            })
            .collect();
        let outcome = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                while workers.join_next().await.transpose()?.is_some() {}
                Ok::<_, tokio::task::JoinError>(())
            })
        });
        is_done.store(true, Ordering::SeqCst);
        (committers.into_iter().map(|committer| committer.join().unwrap()).collect::<Vec<u32>>(), outcome)
    });
    outcome.unwrap();
    assert!(runs.iter().all(|runs| *runs > 0), "{runs:?}");

    let lake = place.lake();
    settle(&lake).await;
    assert_ledger(&lake).await;
    let now = status(&lake).await.unwrap();
    for table in &now.tables {
        assert_eq!((table.failed, table.staged), (0, 0), "{}: {:?}", table.table, table.last_error);
    }
    let plain = Place::local().with_contracts(contracts::ALL);
    let expected = plain.lake();
    for file in 0..files {
        let event = plain.drop_file(&format!("sales/{file:05}.csv"), content(file)).await;
        ingest(&expected, &event).await.unwrap();
    }
    settle(&expected).await;
    assert_eq!(tables(&lake).await, tables(&expected).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_azurite_that_goes_away_for_a_while_loses_and_poisons_nothing() {
    let azurite = Arc::new(Azurite::own());
    let place = Place::in_azurite(Arc::clone(&azurite)).await.with_contracts(contracts::ALL);
    let program = place
        .program()
        .env("ALLUVIUM_ARRIVAL_HOLD_MS", "50")
        .env("ALLUVIUM_COMMIT_AGE", "100ms")
        // What was in work when the storage went stays hidden for ten minutes: the comparison that follows an outage finds it.
        .env("COMMIT_SCHEDULE", "* * * * * *");
    for file in 0..20 {
        place.drop_file(&format!("sales/{file:03}.csv"), content(file)).await;
    }
    let mut host = program.start(&["local", "--no-port"]);
    eventually(PATIENCE, "the work has begun", || host.printed().contains("staged"));
    azurite.stop();
    eventually(PATIENCE, "the host misses its storage", || host.printed().contains("cannot be read"));
    azurite.start();
    for file in 20..30 {
        place.drop_file(&format!("sales/{file:03}.csv"), content(file)).await;
    }
    let lake = place.lake();
    let loaded = async {
        loop {
            let found = tables(&lake).await;
            if found["raw/sales"].len() == 120 && found["ledger"].len() == 30 {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, loaded).await.expect("not everything is loaded");
    assert!(found["ledger"].iter().all(|row| row.contains("status=loaded")), "{:#?}", found["ledger"]);
    let (queues, name) = (place.backends().queue(), place.config().queue_name);
    assert_eq!(queues.depth(&poison(&name)).await.unwrap().total(), 0);
    assert!(host.is_running());
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    settle(&lake).await;
    assert_ledger(&lake).await;
    assert_eq!(tables(&lake).await["aggregate/sales"].len(), 120);
}
