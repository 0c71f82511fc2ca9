//! The functions under a host that behaves as the real one does: everything that lands arrives exactly once, though the
//! host kills the handler in the middle of its work and delivers again what it was doing.

use std::collections::BTreeSet;
use std::time::Duration;

use alluvium::queue::poison;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::support::azurite::ACCOUNT;
use crate::support::chance::Chance;
use crate::support::contracts::{self, sales};
use crate::support::functions_host::{FunctionsHost, Options, lay_out};
use crate::support::place::Place;
use crate::support::program::{Program, assert_sales_exactly_once};
use crate::support::rounds;

/// A host's options for a place, with a script root in its home.
fn host_of(place: &Place) -> Options {
    let home = place.home.path();
    lay_out(&home.join("root"), Duration::from_millis(200));
    let path = |name: &str| home.join(name).to_str().unwrap().to_owned();
    let settings = [
        ("ALLUVIUM_HOME", path("")),
        ("ALLUVIUM_SCHEMAS", path("schemas")),
        ("ALLUVIUM_COMMIT_AGE", "100ms".to_owned()),
        ("ALLUVIUM_ARRIVAL_HOLD_MS", "10".to_owned()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).into_iter();
    Options {
        root: home.join("root"),
        settings: settings.chain(place.variables.iter().cloned()).collect(),
        queue: place.backends().queue(),
        timeouts: BTreeSet::new(),
        timers_every: Some(Duration::from_millis(100)),
    }
}

/// The queue of landed files of a place, and its poison queue.
fn queues(place: &Place) -> [String; 2] {
    let name = place.config().queue_name;
    let poison = poison(&name);
    [name, poison]
}

/// What the storage service says about a landed file, in one of the forms that it may choose.
fn event(container: &str, path: &str, form: u64) -> Vec<u8> {
    let topic = format!("/subscriptions/S/resourceGroups/R/providers/Microsoft.Storage/storageAccounts/{ACCOUNT}");
    let subject = format!("/blobServices/default/containers/{container}/blobs/{path}");
    let data = json!({ "api": "PutBlob", "contentLength": 9, "blobType": "BlockBlob" });
    let grid = json!({
        "topic": topic, "subject": subject, "eventType": "Microsoft.Storage.BlobCreated", "id": path, "data": data,
        "eventTime": "2026-01-15T10:00:00.1234567Z", "dataVersion": "", "metadataVersion": "1",
    });
    let cloud = json!({
        "source": topic, "subject": subject, "type": "Microsoft.Storage.BlobCreated", "id": path, "data": data,
        "time": "2026-01-15T10:00:00.1234567Z", "specversion": "1.0",
    });
    match form {
        0 => grid.to_string().into_bytes(),
        1 => BASE64.encode(cloud.to_string()).into_bytes(),
        2 => BASE64.encode(json!([grid]).to_string()).into_bytes(),
        _ => BASE64.encode(grid.to_string()).into_bytes(),
    }
}

/// Lands files of two rows each; every third event is sent twice.
async fn land(place: &Place, files: i64) {
    let container = place.config().azure.landing_container;
    let mut chance = Chance::new(7);
    let mut events = Vec::new();
    for file in 0..files {
        let path = format!("sales/{file:04}.csv");
        let rows = [(file * 2, 1, "north", "1.00"), (file * 2 + 1, 2, "south", "2.00")];
        place.drop_file(&path, sales(&rows)).await;
        for _ in 0..=u64::from(file % 3 == 0) {
            events.push(event(&container, &path, chance.below(4)));
        }
    }
    chance.shuffle(&mut events);
    place.backends().queue().send_all(&queues(place)[0], events, Duration::ZERO).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_files_arrive_exactly_once_though_the_host_kills_the_handler() {
    arrive_exactly_once(Place::local(), 1000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_in_a_storage_account_arrive_exactly_once_though_the_host_kills_the_handler() {
    // A thousand when there is time for more rounds.
    arrive_exactly_once(Place::azurite().await, (200 * i64::from(rounds())).min(1000)).await;
}

/// Lands files, lets a host work on them that kills the handler eight times, and counts what arrived.
async fn arrive_exactly_once(place: Place, files: i64) {
    let place = place.with_contracts(contracts::ALL);
    let mut options = host_of(&place);
    // In the thick of it each time, and once near the end: there are four events for three files.
    let events = usize::try_from(files).unwrap() * 4 / 3;
    options.timeouts = (1..=8).map(|kill| kill * events / 8 - events / 100).collect();
    land(&place, files).await;
    let host = FunctionsHost::start(options);
    let queues = queues(&place);
    let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
    host.drained(&queues).await;
    assert!(host.kills() >= 7, "the handler was killed {} times only", host.kills());
    // One run of each timer's function: what a kill left between two steps, and what no event told.
    host.run_timer("reconcile").await.unwrap();
    host.drained(&queues).await;
    settled(&host, &place.program(), files).await;
    host.stop().await;
    assert_sales_exactly_once(&place.program(), files);
}

/// Waits until the committer has taken every file and has nothing left to do.
async fn settled(host: &FunctionsHost, program: &Program, files: i64) {
    for _ in 0..100 {
        // The timer's own run may be under way at the same time: two committers are safe.
        let report = host.run_timer("commit").await.unwrap();
        let loaded = "select count(*) from ledger where status = 'loaded'";
        let report: Value = serde_json::from_str(report["Logs"][0].as_str().unwrap()).unwrap();
        if report["commits"] == json!([]) && program.value(loaded) == files.to_string() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the committer never comes to rest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_forwards_requests_and_reads_the_log_of_a_failure() {
    let place = Place::local().with_contracts(contracts::ALL);
    let [events, poison] = queues(&place);
    let host = FunctionsHost::start(host_of(&place));
    let (status, body) = host.get("/api/status?x=1").await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["tables"].as_array().unwrap().len(), contracts::ALL.len());
    place.backends().queue().send(&events, b"b'no event'".to_vec(), Duration::ZERO).await.unwrap();
    host.drained(&[&events, &poison]).await;
    let is_failure = |line: &Value| line["level"] == "ERROR" && line["span"]["function.name"] == "ingest";
    let failures: Vec<Value> = host.log().into_iter().filter(is_failure).collect();
    assert_eq!(failures.len(), 5, "one line for each delivery");
    for failure in &failures {
        let message = failure["message"].as_str().unwrap();
        assert!(message.starts_with("the message is neither JSON nor base64"), "{message}");
        assert_eq!(failure["span"]["invocation.id"].as_str().unwrap().len(), 36);
    }
    host.run_timer("commit").await.unwrap();
    host.stop().await;
    let ledger = place.program().query("select path, status, reason, attempts from ledger");
    assert_eq!(ledger.len(), 1);
    assert!(ledger[0]["path"].as_str().unwrap().starts_with("unreadable-message-"), "{ledger:?}");
    assert_eq!((&ledger[0]["status"], ledger[0]["attempts"].to_string()), (&json!("failed"), "5".to_owned()));
}
