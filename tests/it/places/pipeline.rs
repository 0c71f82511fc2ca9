//! Files to tables, end to end, in both places: the same tables, and real names in them.

use std::collections::BTreeMap;

use alluvium::event::{self, FileEvent, Item};

use super::ODD_NAMES;
use crate::support::contracts::{self, sales};
use crate::support::place::Place;
use crate::support::{Delivery, assert_ledger, deliver, rows, settle, tables};

fn content(file: u32) -> String {
    let first = i64::from(file) * 3;
    let amount = |row: i64| if (first + row) % 11 == 10 { "-1.00" } else { "2.50" };
    let rows: Vec<(i64, u32, &str, &str)> =
        (0..3).map(|row| (first + row, file % 4 + 1, if row == 0 { "north" } else { "south" }, amount(row))).collect();
    sales(&rows)
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
        deliver(&lake, &events, Delivery { seed: 5, times: 2, workers: 4, commits: 30 }).await;
        // A file is corrected and one goes, seen by another process.
        let other = place.lake();
        let corrected = place.drop_file("sales/03.csv", content(30)).await;
        place.delete_file("sales/04.csv").await;
        deliver(&other, &[corrected], Delivery { seed: 6, times: 2, workers: 1, commits: 50 }).await;
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
            let [Item::File(event)] = items.as_slice() else { panic!("{items:?}") };
            assert_eq!(event.path, name);
            alluvium::pipeline::ingest::ingest(&lake, &FileEvent::clone(event)).await.unwrap();
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
        alluvium::pipeline::ingest::ingest(&lake, &event).await.unwrap();
        let missing = alluvium::pipeline::reconcile::missing(&lake).await.unwrap();
        let paths: Vec<&str> = missing.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["sales/0.csv", "sales/2.csv"], "{}", place.name());
    }
}
