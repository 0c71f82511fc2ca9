//! Storage that is away for a while poisons nothing; what fails for good ends in the ledger with its cause; what no event
//! told is found.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium::app::App;
use alluvium::clock::ManualClock;
use alluvium::config::Config;
use alluvium::event::FileEvent;
use alluvium::http::router;
use alluvium::pipeline::notes::{give_up, note_failure};
use alluvium::pipeline::reconcile::missing;
use alluvium::queue::{Depth, Queue};
use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::contracts::{self, sales};
use crate::support::functions_host::request;
use crate::support::{TestLake, drop_file, manual_clock, rows, write_contracts};

const QUEUE: &str = "landing-events";
const POISON: &str = "landing-events-poison";

/// The handler over local folders, with a clock and a queue that the test plays the host with.
struct World {
    home: tempfile::TempDir,
    clock: Arc<ManualClock>,
    queue: Queue,
    address: SocketAddr,
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        write_contracts(home.path(), contracts::ALL);
        let clock = manual_clock();
        let queue = Queue::local(&home.path().join("queue"), Arc::<ManualClock>::clone(&clock), false);
        let address = handler(home.path(), &clock).await;
        Self { home, clock, queue, address }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    fn land(&self, path: &str, id: i64) {
        drop_file(&self.path("landing"), path, sales(&[(id, 1, "north", "1.00")]).as_bytes());
    }

    async fn send(&self, path: &str) {
        let event = json!({
            "subject": format!("/blobServices/default/containers/landing/blobs/{path}"), "id": path,
            "eventType": "Microsoft.Storage.BlobCreated", "data": { "api": "PutBlob", "contentLength": 9 },
        });
        self.queue.send(QUEUE, event.to_string().into_bytes(), Duration::ZERO).await.unwrap();
    }

    /// Delivers what is visible in a queue, once, by the host's rules; how many deliveries failed.
    async fn deliver(&self, function: &str, queue: &str) -> usize {
        let mut failed = 0;
        for message in self.queue.receive(queue, 1000, Duration::from_secs(600)).await.unwrap() {
            let text = String::from_utf8(message.body.clone()).unwrap();
            let metadata = json!({ "DequeueCount": message.dequeue_count.to_string() });
            let body = json!({ "Data": { "msg": Value::from(text).to_string() }, "Metadata": metadata });
            match self.invoke(function, &body).await {
                Ok(_) => assert!(self.queue.delete(&message).await.unwrap()),
                Err(_) if queue == POISON => failed += 1,
                Err(_) if message.dequeue_count >= 5 => {
                    failed += 1;
                    self.queue.send(POISON, message.body.clone(), Duration::ZERO).await.unwrap();
                    assert!(self.queue.delete(&message).await.unwrap());
                }
                Err(_) => {
                    failed += 1;
                    self.queue.extend(&message, Duration::from_secs(30)).await.unwrap();
                }
            }
        }
        failed
    }

    async fn invoke(&self, function: &str, body: &Value) -> Result<Value, String> {
        let body = body.to_string();
        request(self.address, "POST", &format!("/{function}"), Some(body.as_bytes())).await.unwrap().judged()
    }

    async fn timer(&self, function: &str) -> Result<Value, String> {
        self.invoke(function, &json!({ "Data": { "timer": {} }, "Metadata": {} })).await
    }

    /// Delivers until both queues are empty.
    async fn drain(&self) {
        for _ in 0..50 {
            self.clock.advance(TimeDelta::minutes(11));
            self.deliver("ingest", QUEUE).await;
            self.deliver("poison", POISON).await;
            if self.depth(QUEUE).await + self.depth(POISON).await == 0 {
                return;
            }
        }
        panic!("the queues are never drained");
    }

    async fn depth(&self, queue: &str) -> usize {
        Depth::total(self.queue.depth(queue).await.unwrap())
    }

    /// Rows of the ledger after everything was committed.
    async fn ledger(&self, columns: &[&str]) -> Vec<Vec<String>> {
        let lake = crate::support::open(
            self.home.path(),
            alluvium::store::Store::local(&self.path("lake")).unwrap(),
            manual_clock(),
            alluvium::pipeline::lake::Settings::default(),
        );
        crate::support::settle(&lake).await;
        let mut rows = rows::select(&lake, "ledger", columns).await;
        rows.sort();
        rows
    }

    /// A folder is away: a file is in its place.
    fn take_away(&self, folder: &str) {
        std::fs::create_dir_all(self.path(folder)).unwrap();
        std::fs::rename(self.path(folder), self.path(&format!("{folder}.away"))).unwrap();
        std::fs::write(self.path(folder), "").unwrap();
    }

    fn bring_back(&self, folder: &str) {
        std::fs::remove_file(self.path(folder)).unwrap();
        std::fs::rename(self.path(&format!("{folder}.away")), self.path(folder)).unwrap();
    }
}

async fn handler(home: &Path, clock: &Arc<ManualClock>) -> SocketAddr {
    let config = Config::from_pairs([
        ("ALLUVIUM_HOME", home.to_str().unwrap()),
        ("ALLUVIUM_SCHEMAS", home.join("schemas").to_str().unwrap()),
        ("ALLUVIUM_ARRIVAL_HOLD_MS", "10"),
    ]);
    let app = Arc::new(App::new(config.unwrap(), Arc::<ManualClock>::clone(clock)).unwrap());
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router(app)).await });
    address
}

/// Ten files are announced while storage is away for two hours, in which the host delivers whatever is visible.
async fn outage(begins_before_the_first_call: bool) {
    let world = World::new().await;
    if !begins_before_the_first_call {
        world.land("sales/before.csv", 0);
        world.send("sales/before.csv").await;
        assert_eq!(world.deliver("ingest", QUEUE).await, 0);
    }
    world.take_away("lake");
    for file in 1..=10 {
        world.land(&format!("sales/{file}.csv"), file);
        world.send(&format!("sales/{file}.csv")).await;
    }
    for _ in 0..30 {
        assert_eq!(world.deliver("ingest", QUEUE).await, 0, "no message is the host's to count");
        assert_eq!((world.depth(QUEUE).await, world.depth(POISON).await), (10, 0));
        world.clock.advance(TimeDelta::minutes(4));
    }
    assert!(world.timer("reconcile").await.is_err(), "reconcile cannot look either");
    assert_eq!(world.depth(QUEUE).await, 10);
    world.bring_back("lake");
    world.drain().await;
    let loaded = world.ledger(&["path", "status"]).await;
    assert_eq!(loaded.len(), 10 + usize::from(!begins_before_the_first_call));
    assert!(loaded.iter().all(|row| row[1] == "loaded"), "{loaded:?}");
}

#[tokio::test]
async fn a_storage_outage_poisons_nothing_when_the_handler_was_at_work() {
    outage(false).await;
}

#[tokio::test]
async fn a_storage_outage_poisons_nothing_when_the_handler_starts_in_it() {
    outage(true).await;
}

#[tokio::test]
async fn que_04_a_bad_file_ends_with_its_cause_and_an_outage_costs_no_good_one() {
    const GOOD: i64 = 20;
    let world = World::new().await;
    let outside = world.path("outside.csv");
    std::fs::write(&outside, sales(&[(1, 1, "north", "1.00")])).unwrap();
    std::fs::create_dir_all(world.path("landing/sales")).unwrap();
    std::os::unix::fs::symlink(&outside, world.path("landing/sales/link.csv")).unwrap();
    world.send("sales/link.csv").await;
    for file in 0..GOOD {
        world.land(&format!("sales/{file}.csv"), file);
        world.send(&format!("sales/{file}.csv")).await;
    }
    world.take_away("lake");
    // Three minutes, with deliveries all the time.
    for _ in 0..18 {
        world.deliver("ingest", QUEUE).await;
        world.clock.advance(TimeDelta::seconds(10));
    }
    assert_eq!(world.depth(POISON).await, 0, "not even the bad one: what is wrong with it could not be kept");
    world.bring_back("lake");
    world.drain().await;
    let ledger = world.ledger(&["path", "status", "reason", "attempts"]).await;
    let (good, bad): (Vec<_>, Vec<_>) = ledger.into_iter().partition(|row| row[1] == "loaded");
    assert_eq!(good.len() as i64, GOOD);
    let [bad] = bad.as_slice() else { panic!("{bad:#?}") };
    assert_eq!((bad[0].as_str(), bad[1].as_str()), ("sales/link.csv", "failed"));
    assert!(bad[2].contains("a link leads out of it") && bad[3].parse::<u32>().unwrap() >= 5, "{bad:?}");
    // The cause was mended: one delivery loads it, once.
    std::fs::remove_file(world.path("landing/sales/link.csv")).unwrap();
    world.land("sales/link.csv", 1000);
    world.timer("reconcile").await.unwrap();
    world.drain().await;
    let ledger = world.ledger(&["path", "status"]).await;
    assert_eq!(ledger.iter().filter(|row| row[0] == "sales/link.csv" && row[1] == "loaded").count(), 1, "{ledger:?}");
}

#[tokio::test]
async fn when_storage_and_queue_are_away_the_message_stays_the_hosts() {
    let world = World::new().await;
    world.land("sales/a.csv", 1);
    world.send("sales/a.csv").await;
    let message = world.queue.receive(QUEUE, 1, Duration::from_secs(600)).await.unwrap().remove(0);
    world.take_away("lake");
    world.take_away("queue");
    let text = String::from_utf8(message.body.clone()).unwrap();
    let body = json!({ "Data": { "msg": Value::from(text).to_string() }, "Metadata": { "DequeueCount": "1" } });
    let refused = world.invoke("ingest", &body).await.unwrap_err();
    assert!(refused.starts_with("503"), "{refused}");
    world.bring_back("queue");
    world.bring_back("lake");
    world.clock.advance(TimeDelta::minutes(11));
    world.drain().await;
    assert_eq!(world.ledger(&["path", "status"]).await, [["sales/a.csv", "loaded"]]);
}

#[tokio::test]
async fn a_message_that_fails_five_times_ends_in_the_ledger_with_its_cause_and_rests() {
    let world = World::new().await;
    let outside = world.path("outside.csv");
    std::fs::write(&outside, sales(&[(1, 1, "north", "1.00")])).unwrap();
    std::fs::create_dir_all(world.path("landing/sales")).unwrap();
    std::os::unix::fs::symlink(&outside, world.path("landing/sales/link.csv")).unwrap();
    world.send("sales/link.csv").await;
    for delivery in 1..=5 {
        assert_eq!(world.deliver("ingest", QUEUE).await, 1, "delivery {delivery}");
        world.clock.advance(TimeDelta::minutes(1));
    }
    assert_eq!((world.depth(QUEUE).await, world.depth(POISON).await), (0, 1));
    assert_eq!(world.deliver("poison", POISON).await, 0);
    assert_eq!(world.depth(POISON).await, 0);
    let ledger = world.ledger(&["path", "status", "reason", "attempts"]).await;
    assert_eq!(ledger.len(), 1, "{ledger:?}");
    assert_eq!(
        (ledger[0][0].as_str(), ledger[0][1].as_str(), ledger[0][3].as_str()),
        ("sales/link.csv", "failed", "5")
    );
    assert!(ledger[0][2].contains("a link leads out of it"), "{ledger:?}");
    world.timer("reconcile").await.unwrap();
    assert_eq!(world.depth(QUEUE).await, 0);
}

#[tokio::test]
async fn an_event_that_is_never_delivered_is_ingested_within_one_reconcile_run() {
    let world = World::new().await;
    world.land("sales/a.csv", 1);
    world.land("sales/b.csv", 2);
    world.send("sales/a.csv").await;
    world.deliver("ingest", QUEUE).await;
    let answer = world.timer("reconcile").await.unwrap();
    assert_eq!(answer["Logs"], json!([r#"{"announced":1}"#]));
    assert_eq!(world.deliver("ingest", QUEUE).await, 0);
    let ledger = world.ledger(&["path", "status"]).await;
    assert_eq!(ledger, [["sales/a.csv", "loaded"], ["sales/b.csv", "loaded"]]);
    assert_eq!(world.timer("reconcile").await.unwrap()["Logs"], json!([r#"{"announced":0}"#]));
}

/// A landed file, and its event, which nobody ingests.
fn landed(lake: &TestLake) -> FileEvent {
    lake.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00")]))
}

/// Paths that reconcile would enqueue, before and after the committer has taken note of everything.
async fn missing_paths(lake: &TestLake) -> Vec<String> {
    let paths = async || missing(&lake.lake).await.unwrap().into_iter().map(|file| file.path).collect::<Vec<_>>();
    let before = paths().await;
    lake.settle().await;
    assert_eq!(before, paths().await, "notes and ledger say the same");
    before
}

#[tokio::test]
async fn reconcile_takes_up_what_failed_for_the_moment_and_leaves_what_failed_for_good() {
    let mut lake = TestLake::new(contracts::ALL);
    let event = landed(&lake);
    for (transient, is_missing) in [(true, true), (false, false), (true, true), (true, true), (false, false)] {
        lake.clock.advance(TimeDelta::minutes(1));
        note_failure(&lake.lake, &event, "the last cause", transient, 5).await.unwrap();
        assert_eq!(!missing_paths(&lake).await.is_empty(), is_missing, "the last cause may pass: {transient}");
        assert_eq!(give_up(&lake.lake, &event, 5).await.unwrap(), ["raw/sales: the last cause"]);
        assert_eq!(!missing_paths(&lake).await.is_empty(), is_missing, "given up with a cause on record");
    }
    let ledger = rows::select(&lake.lake, "ledger", &["status", "reason"]).await;
    assert_eq!(ledger.len(), 4, "what the last row says already is no news: {ledger:?}");
    // Another contract may do better.
    let raw = contracts::raw_with("max_quarantine: 50%");
    lake.redeploy(&[("raw/sales", &raw)]);
    assert_eq!(missing_paths(&lake).await, ["sales/a.csv"]);
    // A person may know better.
    lake.ingest(&event).await;
    lake.settle().await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1"]);
    assert_eq!(give_up(&lake.lake, &event, 5).await.unwrap(), ["raw/sales: it was staged all the same"]);
}

#[tokio::test]
async fn what_fails_without_a_cause_is_taken_up_once_more_and_then_rests() {
    let lake = TestLake::new(contracts::ALL);
    let event = landed(&lake);
    assert_eq!(missing_paths(&lake).await, ["sales/a.csv"]);
    for is_missing in [true, false, false] {
        lake.clock.advance(TimeDelta::minutes(1));
        give_up(&lake.lake, &event, 5).await.unwrap();
        assert_eq!(!missing_paths(&lake).await.is_empty(), is_missing);
    }
}
