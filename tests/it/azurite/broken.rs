//! Connections that break at random between the program and its storage account.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use alluvium::clock::{Clock as _, SystemClock};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::ledger;
use alluvium::pipeline::status::status;
use alluvium::queue::poison;
use alluvium::selftest::same::{Differences, Picture};

use super::{PATIENCE, content, rounds};
use crate::support::azurite::{Azurite, connection_by};
use crate::support::contracts;
use crate::support::place::Place;
use crate::support::proxy::Proxy;
use crate::support::{assert_ledger, settle};

/// Trouble at one request in so many: of blobs, and of queues, which are fewer.
const ONE_IN: [u64; 2] = [25, 10];

/// Rounds of new and overwritten files; a long run by hand has a multiple.
const ROUNDS: u32 = 5;

/// New files of a round.
const FILES: u32 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_at_random_lose_double_and_poison_nothing() {
    let seed = u64::from_str_radix(&SystemClock.fresh()[..6], 16).unwrap();
    println!("seed {seed}");
    let azurite = Azurite::shared();
    let ports = azurite.ports();
    let proxies = [Proxy::start(ports[0], seed, ONE_IN[0]).await, Proxy::start(ports[1], seed + 1, ONE_IN[1]).await];
    let place = Place::in_azurite(azurite).await.with_contracts(contracts::ALL);
    let program = place
        .program()
        .env("AzureWebJobsStorage", &connection_by([proxies[0].port, proxies[1].port]))
        .env("ALLUVIUM_COMMIT_AGE", "100ms")
        .env("COMMIT_SCHEDULE", "* * * * * *")
        // A message whose receiving got no answer stays hidden for ten minutes: the comparison finds its file.
        .env("RECONCILE_SCHEDULE", "*/3 * * * * *");
    let mut host = program.start(&["local", "--no-port"]);
    // Producers and this test have better lines.
    let lake = place.lake();
    let mut landed: BTreeMap<String, String> = BTreeMap::new();
    let mut overwritten = BTreeSet::new();
    for round in 0..ROUNDS * rounds() {
        let path = |round: u32, file: u32| format!("sales/{round:05}-{file}.csv");
        let mut files: Vec<_> = (0..FILES).map(|file| (path(round, file), content(round * FILES + file))).collect();
        if let Some(earlier) = round.checked_sub(1) {
            files.push((path(earlier, 0), content(1_000_000 + round)));
            overwritten.insert(path(earlier, 0));
        }
        for (path, text) in files {
            place.drop_file(&path, &text).await;
            landed.insert(path, text);
        }
        let all = async {
            while loaded(&lake).await < landed.len() + overwritten.len() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, all).await;
        assert!(came.is_ok(), "seed {seed}, round {round}: {} loaded\n{}", loaded(&lake).await, host.printed());
        assert!(host.is_running());
    }
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "seed {seed}: {}", host.printed());
    settle(&lake).await;
    assert_ledger(&lake).await;
    for table in &status(&lake).await.unwrap().tables {
        assert_eq!((table.failed, table.staged), (0, 0), "seed {seed}: {}: {:?}", table.table, table.last_error);
    }
    let queue = poison(&place.config().queue_name);
    assert_eq!(place.backends().queue().depth(&queue).await.unwrap().total(), 0, "seed {seed}");

    let plain = Place::local().with_contracts(contracts::ALL);
    let expected = plain.lake();
    for (path, text) in &landed {
        let event = plain.drop_file(path, text).await;
        ingest(&expected, &event).await.unwrap();
    }
    settle(&expected).await;
    let expected = Picture::of(&expected.store, &overwritten).await.unwrap();
    let found = Picture::of(&lake.store, &overwritten).await.unwrap();
    assert_eq!(expected.compare(&found), Differences::default(), "seed {seed}");
    for (what, proxy) in ["blobs", "queues"].into_iter().zip(&proxies) {
        let (requests, troubles) = proxy.counts();
        println!("{what}: {requests} requests, {troubles:?} killed, cut, unanswered, cut answers");
        assert!(requests > 100 && troubles.iter().all(|count| *count > 0), "{what}: {requests} {troubles:?}");
    }
}

/// File versions that the ledger calls loaded.
async fn loaded(lake: &alluvium::pipeline::lake::Lake) -> usize {
    let Some(table) = lake.table("raw/sales").await.unwrap() else { return 0 };
    let snapshot = table.snapshot().await.unwrap();
    let index = ledger::index(lake).await.unwrap();
    let Some(known) = index.table(snapshot.table_id()) else { return 0 };
    known.batches.values().filter(|row| row.status == alluvium::manifest::Status::Loaded).count()
}
