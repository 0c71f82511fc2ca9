use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tracing_subscriber::EnvFilter;

use super::*;
use crate::error::ErrorKind;
use crate::event::stream::StreamRecord;
use crate::event::{FileEvent, Refused, Scope};
use crate::name::TableName;
use crate::pipeline::deliver::KeyOf;
use crate::telemetry::{Captured, json_lines};

mod refused;

/// Steps that write down what they were asked, and fail for paths that say so.
#[derive(Default)]
struct Recorder {
    calls: Mutex<Vec<String>>,
    missing: usize,
    /// What was put back, and whether the queue takes it.
    back: Mutex<Vec<Vec<u8>>>,
    queue_is_away: bool,
}

impl Recorder {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

#[async_trait]
impl Steps for Recorder {
    fn scope(&self) -> Scope {
        Scope::local()
    }

    async fn ingest(&self, event: &FileEvent) -> Result<Value> {
        self.note(format!("ingest {} {}", event.path, event.etag.as_deref().unwrap_or("-")));
        match event.path.as_str() {
            "outage.csv" => Err(Error::unavailable("the store is away")),
            "denied.csv" => Err(Error::new(ErrorKind::Denied, "no right to read")),
            "bad.csv" => Err(Error::invalid("a fault").remedy("mend it")),
            "panic.csv" => panic!("boom"),
            _ => Ok(json!([{ "path": event.path }])),
        }
    }

    async fn note_failure(&self, event: &FileEvent, reason: &str, transient: bool, attempts: u32) -> Result<()> {
        self.note(format!("note {} transient={transient} attempts={attempts}: {reason}", event.path));
        Ok(())
    }

    async fn give_up(&self, event: &FileEvent, attempts: u32) -> Result<Vec<String>> {
        self.note(format!("give up {} attempts={attempts}", event.path));
        Ok(vec!["raw/t: a fault".to_owned()])
    }

    async fn note_unreadable(&self, name: &str, bytes: u64, reason: &str, attempts: u32) -> Result<()> {
        self.note(format!("unreadable {name} of {bytes} bytes, attempts={attempts}: {reason}"));
        Ok(())
    }

    async fn deliver(&self, records: Vec<StreamRecord>, key_of: KeyOf) -> Result<Value> {
        for record in &records {
            let text =
                |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let StreamRecord { topic, partition, offset, key, value, .. } = record;
            self.note(format!("{key_of:?} {topic}/{partition}/{offset} {:?} {:?}", text(key), text(value)));
        }
        match records.iter().any(|record| record.topic == "away") {
            true => Err(Error::unavailable("the store is away")),
            false => Ok(json!([])),
        }
    }

    async fn put_back(&self, message: Vec<u8>, delay: Duration) -> Result<()> {
        if self.queue_is_away {
            return Err(Error::unavailable("the queue is away"));
        }
        self.note(format!("put back in {} s", delay.as_secs()));
        self.back.lock().unwrap().push(message);
        Ok(())
    }

    async fn commit(&self, force: bool) -> Result<Value> {
        self.note(format!("commit force={force}"));
        Ok(json!({ "tables": 0 }))
    }

    async fn maintain(&self) -> Result<Value> {
        self.note("maintain".to_owned());
        Ok(json!({ "tables": [] }))
    }

    async fn backfill(&self, table: Option<&TableName>) -> Result<Value> {
        self.note(format!("backfill {}", table.map_or_else(|| "all".to_owned(), ToString::to_string)));
        Ok(json!({ "tables": [] }))
    }

    async fn note_refused(&self, refused: &Refused) -> Result<()> {
        self.note(format!("refused {} {}", refused.name, refused.etag.as_deref().unwrap_or("-")));
        match self.queue_is_away {
            true => Err(Error::unavailable("the store is away")),
            false => Ok(()),
        }
    }

    async fn reconcile(&self) -> Result<usize> {
        self.note("reconcile".to_owned());
        Ok(self.missing)
    }

    async fn derived(&self) -> Result<Vec<TableName>> {
        Ok(["gold/x", "curated/days"].map(|name| name.parse().unwrap()).into())
    }

    async fn status(&self) -> Result<Value> {
        Ok(json!({ "tables": [] }))
    }
}

struct Served {
    recorder: Arc<Recorder>,
    address: SocketAddr,
}

impl Served {
    async fn start(recorder: Recorder) -> Self {
        let recorder = Arc::new(recorder);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router(Arc::clone(&recorder) as Arc<dyn Steps>);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { recorder, address }
    }

    async fn request(&self, method: &str, path: &str, body: impl Into<String>) -> (u16, String, String) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let response = client
            .request(method, format!("http://{}{path}", self.address))
            .header(INVOCATION_ID, "3f0c0f0e-2f9e-4c52-9c1a-0a7b8d0f1e22")
            .header("content-type", "application/json; charset=utf-8")
            .body(body.into())
            .send()
            .await
            .unwrap();
        let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        (response.status().as_u16(), kind.unwrap_or_default(), response.text().await.unwrap())
    }

    /// The answer's `Logs`, after checking that it is a success by the host's rules.
    async fn succeed(&self, function: &str, body: impl Into<String>) -> Vec<String> {
        let (status, kind, body) = self.request("POST", &format!("/{function}"), body).await;
        assert_eq!((status, kind.as_str()), (200, "application/json"), "{body}");
        let answer: Answer = serde_json::from_str(&body).unwrap();
        assert!(body.starts_with("{\"Outputs\":{"), "{body}");
        answer.logs
    }
}

fn event(path: &str) -> Value {
    json!({
        "topic": "/subscriptions/S/resourceGroups/R/providers/Microsoft.Storage/storageAccounts/acct",
        "subject": format!("/blobServices/default/containers/landing/blobs/{path}"),
        "eventType": "Microsoft.Storage.BlobCreated", "eventTime": "2026-01-15T10:00:00.1234567Z", "id": "831e1650",
        "data": {"api": "PutBlob", "eTag": "0x8D", "contentLength": 9, "dequeueCount": 77}, "dataVersion": "", "metadataVersion": "1",
    })
}

/// An invocation by a queue trigger without `dataType`, as the host makes it.
fn queue_invocation(message: &Value, dequeue_count: u32) -> String {
    let text = message.to_string();
    json!({
        "Data": {"msg": serde_json::to_string(&text).unwrap()},
        "Metadata": {
            "DequeueCount": dequeue_count.to_string(),
            "ExpirationTime": "2026-01-22T10:00:00+00:00",
            "Id": "\"6a1c1f7e-6f0e-4f1e-9d56-0d1f4a3b7c11\"",
            "InsertionTime": "2026-01-15T10:00:00+00:00",
            "NextVisibleTime": "2026-01-15T10:10:00+00:00",
            "PopReceipt": "\"AgAAAAMAAAAAAAAA8s3h2Q==\"",
            "subject": "\"/blobServices/default/containers/landing/blobs/shadow.csv\"",
            "sys": {"MethodName": "ingest", "UtcNow": "2026-01-15T10:00:01.1234567Z", "RandGuid": "b3f9d8a0"},
        },
    })
    .to_string()
}

const TIMER: &str = r#"{"Data":{"timer":{"Schedule":{"AdjustForDST":true},
   "ScheduleStatus":{"Last":"2026-01-15T09:55:00.0013+00:00","Next":"2026-01-15T10:00:00+00:00","LastUpdated":"2026-01-15T09:55:00.0013+00:00"},
   "IsPastDue":false}},
 "Metadata":{"sys":{"MethodName":"Commit","UtcNow":"2026-01-15T10:00:00.0123456Z","RandGuid":"x"}}}"#;

const HTTP: &str = r#"{"Data":{"req":{"Url":"http://localhost:7071/api/status?x=1","Method":"GET","Query":{"x":"1"},
  "Headers":{"Host":["localhost:7071"]},"Params":{},"Identities":[{}]}},
 "Metadata":{"Headers":{},"Query":{"x":"1"},"sys":{"MethodName":"status","UtcNow":"2026-01-15T10:00:00.0Z","RandGuid":"x"}}}"#;

#[tokio::test]
async fn the_ping_is_answered_by_any_method() {
    let served = Served::start(Recorder::default()).await;
    for method in ["GET", "POST", "HEAD"] {
        assert_eq!(served.request(method, "/", "").await.0, 200);
    }
    assert!(served.recorder.calls().is_empty());
}

#[tokio::test]
async fn a_queue_message_is_ingested_by_what_data_says() {
    let served = Served::start(Recorder::default()).await;
    let logs = served.succeed("ingest", queue_invocation(&event("trips/a%20b.csv"), 1)).await;
    assert_eq!(served.recorder.calls(), ["ingest trips/a b.csv 0x8D"]);
    assert_eq!(logs, [r#"[{"path":"trips/a b.csv"}]"#]);
}

#[tokio::test]
async fn a_batch_of_a_stream_is_delivered_whole_and_fails_whole() {
    let served = Served::start(Recorder::default()).await;
    let batch = |topic: &str| {
        let at =
            json!({ "Topic": topic, "Partition": 2, "Offset": 41, "Key": "{\"id\":1}", "Value": "{}" }).to_string();
        json!({ "Data": { "events": [at] }, "Metadata": {} }).to_string()
    };
    served.succeed("cdc_kafka", batch("t")).await;
    assert_eq!(served.recorder.calls(), [r#"Record t/2/41 Some("{\"id\":1}") Some("{}")"#]);
    assert_eq!(served.request("POST", "/cdc_kafka", batch("away")).await.0, 503);
    assert_eq!(served.request("POST", "/cdc_eventhubs", batch("t")).await.0, 500);
}

#[tokio::test]
async fn events_of_one_message_are_independent_and_a_failure_fails_the_message() {
    let served = Served::start(Recorder::default()).await;
    let message = json!([
        event("bad.csv"),
        event("outage.csv"),
        {"eventType": "Microsoft.Storage.BlobDeleted", "subject": "x", "data": {}},
        event("good.csv"),
    ]);
    let (status, kind, body) = served.request("POST", "/ingest", queue_invocation(&message, 3)).await;
    assert_eq!((status, kind.as_str()), (500, "application/json"));
    assert_eq!(body, r#"{"error":{"kind":"invalid","message":"bad.csv: a fault","remedy":"mend it"}}"#);
    assert_eq!(
        served.recorder.calls(),
        [
            "ingest bad.csv 0x8D",
            "note bad.csv transient=false attempts=3: bad.csv: a fault; mend it",
            "ingest outage.csv 0x8D",
            "put back in 1 s",
            "ingest good.csv 0x8D",
        ]
    );
}

/// Delivers an event, and whatever is put back for it, so many times in all.
async fn delivered_again_and_again(served: &Served, event: Value, times: usize) {
    let mut message = event;
    for delivery in 0..times {
        served.succeed("ingest", queue_invocation(&message, 1)).await;
        let Some(back) = served.recorder.back.lock().unwrap().pop() else {
            assert_eq!(delivery + 1, times, "it ended too soon");
            return;
        };
        message = serde_json::from_slice(&back).unwrap();
    }
}

#[tokio::test]
async fn an_event_that_meets_a_transient_fault_is_put_back_at_growing_intervals_and_never_fails() {
    let served = Served::start(Recorder::default()).await;
    delivered_again_and_again(&served, event("outage.csv"), 12).await;
    let calls = served.recorder.calls();
    let delays: Vec<&str> = calls.iter().filter_map(|call| call.strip_prefix("put back in ")).collect();
    let expected = ["1 s", "2 s", "4 s", "8 s", "16 s", "32 s", "64 s", "128 s", "256 s", "512 s", "600 s", "600 s"];
    assert_eq!(delays, expected);
    let notes: Vec<&String> = calls.iter().filter(|call| call.starts_with("note")).collect();
    assert_eq!(notes.len(), 8, "from the fifth time on");
    assert_eq!(notes[0], "note outage.csv transient=true attempts=5: outage.csv: the store is away");
}

#[tokio::test]
async fn an_event_of_a_listing_is_left_to_the_next_listing_after_a_while() {
    let served = Served::start(Recorder::default()).await;
    let mut listed = event("outage.csv");
    listed["data"]["api"] = json!(crate::event::LISTED);
    delivered_again_and_again(&served, listed, 11).await;
    let calls = served.recorder.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("put back")).count(), 10);
    assert_eq!(calls.last().unwrap(), "note outage.csv transient=true attempts=11: outage.csv: the store is away");
}

#[tokio::test]
async fn when_the_queue_is_away_too_the_message_stays_with_the_host_and_its_cause_is_kept() {
    let served = Served::start(Recorder { queue_is_away: true, ..Recorder::default() }).await;
    let (status, kind, body) = served.request("POST", "/ingest", queue_invocation(&event("outage.csv"), 2)).await;
    assert_eq!((status, kind.as_str()), (503, "application/json"));
    assert_eq!(body, r#"{"error":{"kind":"unavailable","message":"outage.csv: the store is away","remedy":null}}"#);
    assert_eq!(
        served.recorder.calls(),
        ["ingest outage.csv 0x8D", "note outage.csv transient=true attempts=2: outage.csv: the store is away"]
    );
}

#[tokio::test]
async fn a_missing_right_fails_the_message_but_may_pass() {
    let served = Served::start(Recorder::default()).await;
    let (status, ..) = served.request("POST", "/ingest", queue_invocation(&event("denied.csv"), 1)).await;
    assert_eq!(status, 500);
    assert_eq!(served.recorder.calls()[1], "note denied.csv transient=true attempts=1: denied.csv: no right to read");
}

#[tokio::test]
async fn an_empty_message_is_done() {
    let served = Served::start(Recorder::default()).await;
    served.succeed("ingest", queue_invocation(&json!([]), 1)).await;
    assert!(served.recorder.calls().is_empty());
}

#[tokio::test]
async fn a_failure_is_logged_as_one_json_line_with_the_invocation_id() {
    let captured = Captured::default();
    let writer = captured.clone();
    let _logging = tracing::subscriber::set_default(json_lines(EnvFilter::new("info"), move || writer.clone()));
    let served = Served::start(Recorder::default()).await;
    let (status, ..) = served.request("POST", "/ingest", queue_invocation(&event("bad.csv"), 1)).await;
    assert_eq!(status, 500);
    let failures: Vec<Value> = captured.lines().into_iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0]["message"], "bad.csv: a fault");
    assert_eq!(failures[0]["remedy"], "mend it");
    assert_eq!(failures[0]["span"]["invocation.id"], "3f0c0f0e-2f9e-4c52-9c1a-0a7b8d0f1e22");
    assert_eq!(failures[0]["span"]["function.name"], "ingest");
}

#[tokio::test]
async fn a_panic_is_a_failure_and_the_handler_lives_on() {
    let served = Served::start(Recorder::default()).await;
    let (status, _, body) = served.request("POST", "/ingest", queue_invocation(&event("panic.csv"), 1)).await;
    assert_eq!(status, 500, "{body}");
    assert_eq!(served.request("GET", "/", "").await.0, 200);
}

#[tokio::test]
async fn what_is_no_message_fails_and_never_reaches_a_step() {
    let served = Served::start(Recorder::default()).await;
    for body in [
        "",
        "[]",
        "{}",
        r#"{"Data":{"msg":"\"b'eyJhIjoxfQ=='\""}}"#,
        r#"{"Data":{"msg":"\"null\""}}"#,
        r#"{"Data":{"msg":"\"\""}}"#,
    ] {
        let (status, kind, text) = served.request("POST", "/ingest", body).await;
        assert_eq!((status, kind.as_str()), (500, "application/json"), "{body} {text}");
    }
    assert!(served.recorder.calls().is_empty());
}

#[tokio::test]
async fn poison_gives_files_up_and_records_unreadable_messages_by_their_content() {
    let served = Served::start(Recorder::default()).await;
    served.succeed("poison", queue_invocation(&event("trips/a.csv"), 1)).await;
    let unreadable = r#"{"Data":{"msg":"\"b'eyJhIjoxfQ=='\""},"Metadata":{"DequeueCount":"1"}}"#;
    served.succeed("poison", unreadable).await;
    served.succeed("poison", unreadable).await;
    let mut put_back = event("trips/b.csv");
    put_back["alluviumattempts"] = json!(4);
    served.succeed("poison", queue_invocation(&put_back, 1)).await;
    let calls = served.recorder.calls();
    assert_eq!(calls[0], "give up trips/a.csv attempts=5");
    assert_eq!(calls[3], "give up trips/b.csv attempts=9");
    assert!(calls[1].starts_with("unreadable unreadable-message-"), "{}", calls[1]);
    assert!(calls[1].contains(" of 15 bytes, attempts=5: "), "{}", calls[1]);
    assert!(calls[1].contains("neither JSON nor base64"), "{}", calls[1]);
    assert_eq!(calls[1], calls[2]);
}

#[tokio::test]
async fn timers_run_their_step() {
    let served = Served::start(Recorder { missing: 2, ..Recorder::default() }).await;
    assert_eq!(served.succeed("commit", TIMER).await, [r#"{"tables":0}"#]);
    assert_eq!(served.succeed("commit?force=true", TIMER).await.len(), 1);
    assert_eq!(served.succeed("reconcile", TIMER).await, [r#"{"announced":2}"#]);
    assert_eq!(served.recorder.calls(), ["commit force=false", "commit force=true", "reconcile"]);
}

#[tokio::test]
async fn the_status_is_given_to_the_host_and_to_forwarded_requests() {
    let served = Served::start(Recorder::default()).await;
    let (status, _, body) = served.request("POST", "/status", HTTP).await;
    assert_eq!(status, 200);
    assert_eq!(
        body,
        r#"{"Outputs":{"res":{"statusCode":200,"headers":{"Content-Type":"application/json"},"body":{"tables":[]}}},"Logs":[],"ReturnValue":null}"#
    );
    let (status, kind, body) = served.request("GET", "/api/status?x=1", "").await;
    assert_eq!((status, kind.as_str(), body.as_str()), (200, "application/json", r#"{"tables":[]}"#));
}

#[tokio::test]
async fn wrong_routes_and_methods_say_what_there_is() {
    let served = Served::start(Recorder::default()).await;
    let (status, kind, body) = served.request("POST", "/ingset", "{}").await;
    assert_eq!((status, kind.as_str()), (404, "application/json"));
    assert!(body.contains("/ingset is no function: there are ingest, commit"), "{body}");
    let (status, kind, _) = served.request("GET", "/ingest", "").await;
    assert_eq!((status, kind.as_str()), (405, "application/json"));
}

#[tokio::test]
async fn a_chunked_body_of_many_megabytes_is_read() {
    let served = Served::start(Recorder::default()).await;
    let events: Vec<Value> = (0..12_000).map(|n| event(&format!("many/{n}.csv"))).collect();
    let body = queue_invocation(&Value::Array(events), 1);
    assert!(body.len() > 3 << 20);
    let mut stream = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let head = "POST /ingest HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    for chunk in body.as_bytes().chunks(65_521) {
        stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.unwrap();
        stream.write_all(chunk).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{}", &answer[..200]);
    assert_eq!(served.recorder.calls().len(), 12_000);
}

#[test]
fn the_host_gives_a_message_up_when_this_handler_thinks_so() {
    let host: Value = serde_json::from_str(include_str!("../../host.json")).unwrap();
    assert_eq!(host["extensions"]["queues"]["maxDequeueCount"], handlers::MOST_DELIVERIES);
}
