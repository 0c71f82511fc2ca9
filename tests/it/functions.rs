//! The functions under a host that behaves as the real one does: everything that lands arrives exactly once, though the
//! host kills the handler in the middle of its work and delivers again what it was doing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium::clock::SystemClock;
use alluvium::queue::Queue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::support::chance::Chance;
use crate::support::contracts::{self, sales};
use crate::support::functions_host::{FunctionsHost, Options, lay_out};
use crate::support::program::{Program, assert_sales_exactly_once};
use crate::support::{drop_file, write_contracts};

const QUEUES: [&str; 2] = ["landing-events", "landing-events-poison"];

/// A home on local folders with a script root, and a host's options for it.
fn home() -> (tempfile::TempDir, Options) {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    lay_out(&home.path().join("root"), Duration::from_millis(200));
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let settings = [
        ("ALLUVIUM_HOME", path("")),
        ("ALLUVIUM_SCHEMAS", path("schemas")),
        ("ALLUVIUM_COMMIT_AGE", "100ms".to_owned()),
        ("ALLUVIUM_ARRIVAL_HOLD_MS", "10".to_owned()),
    ];
    let options = Options {
        root: home.path().join("root"),
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        queue: Queue::local(&home.path().join("queue"), Arc::new(SystemClock), false),
        timeouts: BTreeSet::new(),
        timers_every: Some(Duration::from_millis(100)),
    };
    (home, options)
}

fn program(home: &Path) -> Program {
    Program::new(home).schemas(&home.join("schemas"))
}

/// What the storage service says about a landed file, in one of the forms that it may choose.
fn event(path: &str, form: u64) -> Vec<u8> {
    let topic = "/subscriptions/S/resourceGroups/R/providers/Microsoft.Storage/storageAccounts/acct";
    let subject = format!("/blobServices/default/containers/landing/blobs/{path}");
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
async fn land(home: &Path, queue: &Queue, files: std::ops::Range<i64>) {
    let mut chance = Chance::new(7);
    let mut events = Vec::new();
    for file in files {
        let path = format!("sales/{file:04}.csv");
        let rows = [(file * 2, 1, "north", "1.00"), (file * 2 + 1, 2, "south", "2.00")];
        drop_file(&home.join("landing"), &path, sales(&rows).as_bytes());
        for _ in 0..=u64::from(file % 3 == 0) {
            events.push(event(&path, chance.below(4)));
        }
    }
    chance.shuffle(&mut events);
    queue.send_all(QUEUES[0], events, Duration::ZERO).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_files_arrive_exactly_once_though_the_host_kills_the_handler() {
    let (home, mut options) = home();
    // In the thick of it each time, and once near the end.
    options.timeouts = (1..=8).map(|kill| kill * 160).collect();
    let queue = options.queue.clone();
    land(home.path(), &queue, 0..1000).await;
    let host = FunctionsHost::start(options);
    host.drained(&QUEUES).await;
    assert!(host.kills() >= 7, "the handler was killed {} times only", host.kills());
    // One run of each timer's function: what a kill left between two steps, and what no event told.
    host.run_timer("reconcile").await.unwrap();
    host.drained(&QUEUES).await;
    settled(&host, &program(home.path()), 1000).await;
    host.stop().await;
    assert_sales_exactly_once(&program(home.path()), 1000);
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
    let (home, options) = home();
    let queue = options.queue.clone();
    let host = FunctionsHost::start(options);
    let (status, body) = host.get("/api/status?x=1").await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["tables"].as_array().unwrap().len(), contracts::ALL.len());
    queue.send(QUEUES[0], b"b'no event'".to_vec(), Duration::ZERO).await.unwrap();
    host.drained(&QUEUES).await;
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
    let ledger = program(home.path()).query("select path, status, reason, attempts from ledger");
    assert_eq!(ledger.len(), 1);
    assert!(ledger[0]["path"].as_str().unwrap().starts_with("unreadable-message-"), "{ledger:?}");
    assert_eq!((&ledger[0]["status"], ledger[0]["attempts"].to_string()), (&json!("failed"), "5".to_owned()));
}
