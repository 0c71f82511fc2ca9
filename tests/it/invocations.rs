//! Recorded invocations of every trigger, sent to the real handler in chunks and answered as the host needs it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use alluvium::app::App;
use alluvium::clock::SystemClock;
use alluvium::config::Config;
use alluvium::event::stream::{self, StreamHeader, StreamRecord};
use alluvium::http::{Invocation, router};
use alluvium::pipeline::lake::Settings;
use alluvium::store::Store;
use serde_json::Value;

use crate::support::contracts::{self, sales};
use crate::support::functions_host::request;
use crate::support::{drop_file, manual_clock, open, root, rows, write_contracts};

/// A handler over a home with two landed files.
async fn handler() -> (tempfile::TempDir, SocketAddr) {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let address = serve(home.path()).await;
    for path in ["sales/a b.csv", "sales/江#%.csv"] {
        drop_file(&home.path().join("landing"), path, sales(&[(1, 1, "north", "1.00")]).as_bytes());
    }
    (home, address)
}

/// The real handler over a home.
async fn serve(home: &Path) -> SocketAddr {
    let config = Config::from_pairs([
        ("ALLUVIUM_HOME", home.to_str().unwrap()),
        ("ALLUVIUM_SCHEMAS", home.join("schemas").to_str().unwrap()),
        ("ALLUVIUM_ARRIVAL_HOLD_MS", "10"),
    ]);
    let app = Arc::new(App::new(config.unwrap(), Arc::new(SystemClock)).unwrap());
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router(app)).await });
    address
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(root().join("tests/fixtures/invocations").join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What is sent, where to, and what the answer must be: its status, and what its log lines (of a failure: its body) hold.
const CASES: &[(&str, &str, u16, &[&str])] = &[
    ("queue-base64.json", "ingest", 200, &["sales/a b.csv", "\"action\":\"staged\"", "\"loaded\":1"]),
    ("queue-plain.json", "ingest", 200, &["sales/a b.csv", "\"action\":\"staged\""]),
    ("queue-cloudevents.json", "ingest", 200, &["sales/a b.csv", "\"action\":\"staged\""]),
    ("queue-array.json", "ingest", 200, &["sales/a b.csv", "sales/江#%.csv"]),
    ("queue-binary.json", "ingest", 200, &["sales/a b.csv", "\"action\":\"staged\""]),
    ("queue-encoded-once.json", "ingest", 200, &["sales/a b.csv", "\"action\":\"staged\""]),
    ("queue-renamed.json", "ingest", 200, &["sales/a b.csv", "\"action\":\"staged\""]),
    ("queue-created-empty.json", "ingest", 200, &["\"skipped\":", "only created"]),
    ("queue-foreign-container.json", "ingest", 200, &["\"refused\":", "it is about the container `lake`"]),
    ("queue-gone.json", "ingest", 200, &["\"action\":\"missing\""]),
    ("queue-path-outside.json", "ingest", 200, &["\"refused\":", "encoded slash"]),
    ("queue-unreadable.json", "ingest", 500, &["neither JSON nor base64"]),
    ("poison.json", "poison", 200, &["\"given_up\":[\"sales/a b.csv\"]"]),
    ("poison-unreadable.json", "poison", 200, &["\"given_up\":[\"unreadable-message-"]),
    ("timer.json", "reconcile", 200, &["\"announced\":2"]),
    ("timer-unmonitored.json", "commit", 200, &["\"commits\":[]"]),
    ("http.json", "status", 200, &[]),
];

#[tokio::test]
async fn recorded_invocations_are_answered_as_the_host_needs_it() {
    for (name, function, status, expected) in CASES {
        let (_home, address) = handler().await;
        let body = fixture(name);
        let answer = request(address, "POST", &format!("/{function}"), Some(&body)).await.unwrap();
        assert_eq!(
            (answer.status, answer.media_type.as_str()),
            (*status, "application/json"),
            "{name}: {}",
            answer.body
        );
        let told = match answer.judged() {
            Ok(value) => {
                let members: Vec<&String> = value.as_object().unwrap().keys().collect();
                assert_eq!(members, ["Outputs", "Logs", "ReturnValue"], "{name}");
                let logs: Vec<&str> = value["Logs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                logs.join("\n")
            }
            Err(reason) => reason,
        };
        for part in *expected {
            assert!(told.contains(part), "{name}: expected `{part}` in {told}");
        }
    }
}

#[tokio::test]
async fn an_http_invocation_is_answered_through_its_output_binding() {
    let (_home, address) = handler().await;
    let answer = request(address, "POST", "/status", Some(&fixture("http.json"))).await.unwrap().judged().unwrap();
    assert_eq!(answer["Outputs"]["res"]["statusCode"], 200);
    assert_eq!(answer["Outputs"]["res"]["body"]["tables"].as_array().unwrap().len(), contracts::ALL.len());
}

/// Where each recorded batch of a stream is, and whether it is Kafka's.
const STREAMS: &[(&str, bool)] = &[
    ("kafka-binary.json", true),
    ("kafka-string.json", true),
    ("eventhubs-binary.json", false),
    ("eventhubs-string.json", false),
];

#[test]
fn recorded_batches_of_streams_tell_the_same_records() {
    let event = br#"{"before":null,"after":{"id":1},"source":{"schema":"public","table":"customers","ts_ms":1768471200000,"lsn":7},"op":"c"}"#;
    for (name, is_kafka) in STREAMS {
        let invocation = Invocation::parse(&fixture(name)).unwrap();
        let value = invocation.value().unwrap();
        let records = if *is_kafka {
            stream::kafka(value, &invocation.metadata).unwrap()
        } else {
            stream::event_hubs(value, &invocation.metadata).unwrap()
        };
        let key = is_kafka.then(|| br#"{"id":1}"#.to_vec());
        let headers = vec![StreamHeader { name: "k".to_owned(), value: Some(b"v".to_vec()) }];
        let record = StreamRecord {
            topic: "cdc".to_owned(),
            partition: 3,
            offset: 101,
            timestamp: Some(1_768_471_200_123),
            key,
            value: Some(event.to_vec()),
            headers,
        };
        let at = if *is_kafka { 1_768_471_200_123 } else { 1_768_471_200_456 };
        let tombstone =
            StreamRecord { offset: 102, timestamp: Some(at), value: None, headers: Vec::new(), ..record.clone() };
        assert_eq!(records, [record, tombstone], "{name}");
    }
}

#[tokio::test]
async fn batches_of_streams_are_staged_once_and_fail_when_nobody_takes_them() {
    const TAKES: &str = "version: 1\ntable: bronze/cdc\nsource: { format: debezium, topics: [cdc] }\n";
    for (name, is_kafka) in STREAMS {
        let home = tempfile::tempdir().unwrap();
        let function = if *is_kafka { "/cdc_kafka" } else { "/cdc_eventhubs" };
        let body = fixture(name);
        let post = async |address, path: &str, body: &[u8]| request(address, "POST", path, Some(body)).await.unwrap();

        // The host's retry repeats what is not answered with success.
        write_contracts(home.path(), &[("bronze/cdc", &TAKES.replace("[cdc]", "[another]"))]);
        let refused = post(serve(home.path()).await, function, &body).await;
        assert_eq!(refused.status, 500, "{name}: {}", refused.body);
        assert!(refused.body.contains("no contract takes the topic `cdc`"), "{name}: {}", refused.body);

        write_contracts(home.path(), &[("bronze/cdc", TAKES)]);
        let address = serve(home.path()).await;
        let actions = ["staged", "already_staged", "already_settled"];
        for (times, action) in actions.into_iter().enumerate() {
            let answer = post(address, function, &body).await.judged().unwrap();
            let log = answer["Logs"][0].as_str().unwrap();
            assert!(log.contains(&format!("\"action\":\"{action}\"")), "{name}: {log}");
            if times == 1 {
                post(address, "/commit?force=true", &fixture("timer.json")).await.judged().unwrap();
            }
        }
        let store = Store::local(&home.path().join("lake")).unwrap();
        let lake = open(home.path(), store, manual_clock(), Settings::default());
        let key = if *is_kafka { "{\"id\":1}" } else { "null" };
        let told =
            rows::brief(&lake, "bronze/cdc", &["_topic", "_partition", "_offset", "table", "op", "key", "lsn"]).await;
        assert_eq!(
            told,
            [format!("cdc 3 101 public.customers c {key} 7"), format!("cdc 3 102 null null {key} null")],
            "{name}"
        );
    }
}

#[test]
fn every_recorded_invocation_has_its_case() {
    let folder = root().join("tests/fixtures/invocations");
    let files: BTreeSet<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let cases = CASES.iter().map(|case| case.0).chain(STREAMS.iter().map(|stream| stream.0));
    assert_eq!(files, cases.map(str::to_owned).collect());
}
