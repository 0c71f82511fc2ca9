//! Files to tables, end to end, in both places: the same tables, and real names in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium::error::Directive;
use alluvium::event::{self, FileEvent, Item};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::Lake;

use super::ODD_NAMES;
use crate::support::chance::Chance;
use crate::support::contracts::{self, sales};
use crate::support::place::Place;
use crate::support::{assert_ledger, commit_once, rows, settle, tables};

fn content(file: u32) -> String {
    let first = i64::from(file) * 3;
    let amount = |row: i64| if (first + row) % 11 == 10 { "-1.00" } else { "2.50" };
    let rows: Vec<(i64, u32, &str, &str)> =
        (0..3).map(|row| (first + row, file % 4 + 1, if row == 0 { "north" } else { "south" }, amount(row))).collect();
    sales(&rows)
}

/// Delivers every event twice, in an order of chance, to some workers that call the committer now and then. What fails for
/// the moment is delivered again, as a queue does.
async fn deliver(lake: &Lake, events: &[FileEvent], workers: u64) {
    let mut chance = Chance::new(workers);
    let mut queue = [events, events].concat();
    chance.shuffle(&mut queue);
    let queue = Arc::new(tokio::sync::Mutex::new(queue));
    let mut running = tokio::task::JoinSet::new();
    for worker in 0..workers {
        let (lake, queue, mut chance) = (lake.clone(), Arc::clone(&queue), Chance::new(worker));
        running.spawn(async move {
            loop {
                let Some(event) = queue.lock().await.pop() else { return };
                match ingest(&lake, &event).await {
                    Ok(_) => {}
                    Err(error) if error.kind().directive() == Directive::Retry => queue.lock().await.insert(0, event),
                    Err(error) => panic!("{event:?}: {}", error.describe()),
                }
                if chance.below(3) == 0 {
                    commit_once(&lake).await;
                }
            }
        });
    }
    running.join_all().await;
    settle(lake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_place_gives_the_same_tables() {
    let mut seen: Vec<BTreeMap<String, Vec<String>>> = Vec::new();
    for place in Place::both().await {
        let place = place.with_contracts(contracts::ALL);
        let mut events = Vec::new();
        for file in 0..12 {
            events.push(place.drop_file(&format!("sales/{file:02}.csv"), content(file)).await);
        }
        events.push(place.drop_file("sales/empty.csv", "").await);
        events.push(place.drop_file("sales/refused.csv", "id,day\n1,2\n").await);
        events.push(place.drop_file("elsewhere/nobody.csv", "a\n1\n").await);
        let lake = place.lake();
        deliver(&lake, &events, 4).await;
        // A file is corrected and one goes, seen by another process.
        let other = place.lake();
        let corrected = place.drop_file("sales/03.csv", content(30)).await;
        place.delete_file("sales/04.csv").await;
        deliver(&other, &[corrected], 1).await;
        settle(&lake).await;
        assert_ledger(&lake).await;
        seen.push(tables(&lake).await);
    }
    let azurite = seen.pop().unwrap();
    let local = seen.pop().unwrap();
    assert!(!local["raw/sales"].is_empty() && !local["curated/sales_daily"].is_empty());
    for (table, rows) in &local {
        assert_eq!(&azurite[table], rows, "{table}");
    }
    assert_eq!(local.len(), azurite.len());
}

#[tokio::test]
async fn files_of_odd_names_are_loaded_under_their_real_names() {
    for place in Place::both().await {
        let place = place.with_contracts(contracts::ALL);
        let lake = place.lake();
        let (scope, clock) = (place.backends().scope(), alluvium::clock::SystemClock);
        for (file, name) in (0..).zip(ODD_NAMES) {
            place.drop_file(name, content(file)).await;
            let version = lake.landing.head(name).await.unwrap().unwrap();
            // The event that says so, through the message that carries it.
            let message = event::announcement(&version, &scope, &clock);
            let items = event::parse(&message, &scope).unwrap();
            let [Item::File(event, _)] = items.as_slice() else { panic!("{items:?}") };
            assert_eq!(event.path, name);
            ingest(&lake, &FileEvent::clone(event)).await.unwrap();
        }
        settle(&lake).await;
        let mut files: Vec<String> =
            rows::select(&lake, "raw/sales", &["_file"]).await.into_iter().map(|mut row| row.remove(0)).collect();
        files.sort();
        files.dedup();
        let mut names = ODD_NAMES.to_vec();
        names.sort_unstable();
        assert_eq!(files, names, "{}", place.name());
        assert_ledger(&lake).await;
    }
}

#[tokio::test]
async fn what_no_event_told_of_is_found_by_reconcile() {
    for place in Place::both().await {
        let place = place.with_contracts(contracts::ALL);
        let lake = place.lake();
        for file in 0..3 {
            place.drop_file(&format!("sales/{file}.csv"), content(file)).await;
        }
        let event = FileEvent { path: "sales/1.csv".to_owned(), etag: None, sequencer: None, bytes: None };
        ingest(&lake, &event).await.unwrap();
        let missing = alluvium::pipeline::reconcile::missing(&lake).await.unwrap();
        let paths: Vec<&str> = missing.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["sales/0.csv", "sales/2.csv"], "{}", place.name());
    }
}
