//! How files arrive: events of every shape and order, versions of one path, names.

use alluvium::event::{FileEvent, Item, Scope, parse};
use alluvium::pipeline::reconcile;
use serde_json::{Value, json};

use super::run::{contract, drop_all, lake, outcome};
use crate::support::rows;

fn ids() -> String {
    contract("format: csv", &["id int64", "v string"], "")
}

fn event(path: &str, kind: &str, data: Value) -> Value {
    json!({
        "topic": "/subscriptions/s/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/acct",
        "subject": format!("/blobServices/default/containers/landing/blobs/{path}"),
        "eventType": format!("Microsoft.Storage.{kind}"), "eventTime": "2026-01-15T10:00:00Z", "id": "1", "data": data,
    })
}

/// What is to be ingested, what is passed over or refused, what is broken.
fn sorted(message: &[u8]) -> (Vec<FileEvent>, usize, usize) {
    let (mut files, mut skipped, mut broken) = (Vec::new(), 0, 0);
    for item in parse(message, &Scope::local()).unwrap() {
        match item {
            Item::File(file, _) => files.push(file),
            Item::Skipped { .. } | Item::Refused(_) => skipped += 1,
            Item::Broken(_) => broken += 1,
        }
    }
    (files, skipped, broken)
}

#[tokio::test]
async fn azr_01_a_created_file_without_content_is_not_taken_for_done() {
    let created = event("t/a.csv", "BlobCreated", json!({"api": "CreateFile", "contentLength": 0, "eTag": "E1"}));
    let flushed = event("t/a.csv", "BlobCreated", json!({"api": "FlushWithClose", "contentLength": 12}));
    for order in [[&created, &flushed], [&flushed, &created]] {
        let lake = lake(&ids());
        drop_all(&lake, &[("a.csv", b"id,v\n1,x\n")]);
        for message in order {
            for file in sorted(message.to_string().as_bytes()).0 {
                lake.ingest(&file).await;
                lake.settle().await;
            }
        }
        let outcome = outcome(&lake).await;
        assert_eq!(
            (outcome.rows, outcome.ledger),
            (vec!["a.csv:1 1|x".to_owned()], vec!["a.csv loaded 1=1+0+0".to_owned()])
        );
    }
}

#[tokio::test]
async fn azr_02_a_file_whose_closing_event_never_comes_is_found_and_counts_once() {
    let lake = lake(&ids());
    let events = drop_all(&lake, &[("a.csv", b"id,v\n1,x\n"), ("b.csv", b"id,v\n2,y\n")]);
    lake.ingest(&events[1]).await;
    let found = reconcile::missing(&lake.lake).await.unwrap();
    assert_eq!(found.iter().map(|version| version.path.as_str()).collect::<Vec<_>>(), ["t/a.csv"]);
    for version in found {
        lake.ingest(&FileEvent { path: version.path, etag: Some(version.etag), sequencer: None, bytes: None }).await;
    }
    // The event comes after all.
    lake.ingest(&events[0]).await;
    lake.settle().await;
    assert_eq!(outcome(&lake).await.rows, ["a.csv:1 1|x", "b.csv:1 2|y"]);
}

#[tokio::test]
async fn azr_04_a_late_event_of_an_old_version_is_superseded() {
    let lake = lake(&ids());
    let first = lake.drop_file("t/a.csv", "id,v\n1,old\n");
    let old = FileEvent { etag: lake.lake.landing.head("t/a.csv").await.unwrap().map(|it| it.etag), ..first };
    let second = lake.drop_file("t/a.csv", "id,v\n1,new\n");
    let new = FileEvent { etag: lake.lake.landing.head("t/a.csv").await.unwrap().map(|it| it.etag), ..second };
    assert_ne!(old.etag, new.etag);
    for delivery in [&new, &old, &new] {
        lake.ingest(delivery).await;
        lake.settle().await;
    }
    let outcome = outcome(&lake).await;
    assert_eq!(outcome.rows, ["a.csv:1 1|new"]);
    assert_eq!(outcome.ledger, ["a.csv loaded 1=1+0+0", "a.csv superseded 0=0+0+0"]);
}

#[tokio::test]
async fn azr_05_a_path_that_is_overwritten_shows_its_last_version() {
    let (a, b) = ("id,v\n1,x\n2,x\n", "id,v\n1,x\n2,x\n3,x\n");
    // Before it is read, between staging and commit, after the commit.
    for settle_first in [false, true] {
        let lake = lake(&ids());
        let event = lake.drop_file("t/day.csv", a);
        lake.ingest(&event).await;
        if settle_first {
            lake.settle().await;
        }
        let event = lake.drop_file("t/day.csv", b);
        lake.ingest(&event).await;
        lake.settle().await;
        assert_eq!(outcome(&lake).await.rows, ["day.csv:1 1|x", "day.csv:2 2|x", "day.csv:3 3|x"], "{settle_first}");
    }
    let lake = lake(&ids());
    let event = lake.drop_file("t/day.csv", a);
    lake.drop_file("t/day.csv", b);
    lake.ingest(&event).await;
    lake.settle().await;
    assert_eq!(outcome(&lake).await.rows.len(), 3);
}

#[tokio::test]
async fn azr_06_a_file_that_is_gone_stops_no_neighbour() {
    let lake = lake(&ids());
    let events = drop_all(&lake, &[("1.csv", b"id,v\n1,x\n"), ("gone.csv", b"id,v\n2,x\n"), ("3.csv", b"id,v\n3,x\n")]);
    std::fs::remove_file(lake.landed("t/gone.csv")).unwrap();
    for event in &events {
        lake.ingest(event).await;
    }
    lake.settle().await;
    let found = outcome(&lake).await;
    assert_eq!(found.rows, ["1.csv:1 1|x", "3.csv:1 3|x"]);
    assert_eq!(found.ledger[2], "gone.csv missing 0=0+0+0");
    lake.load("t/gone.csv", "id,v\n2,x\n").await;
    assert_eq!(outcome(&lake).await.rows.len(), 3);
}

#[tokio::test]
async fn azr_07_a_file_counts_under_its_final_name() {
    let lake = lake(&ids());
    lake.drop_file("t/a.csv.tmp", "id,v\n1,x\n");
    lake.drop_file("t/_b.csv", "id,v\n2,x\n");
    lake.drop_file("t/c.csv.part", "id,v\n3,x\n");
    assert_eq!(reconcile::missing(&lake.lake).await.unwrap(), []);
    std::fs::rename(lake.landed("t/a.csv.tmp"), lake.landed("t/a.csv")).unwrap();
    let renamed = event(
        "t/a.csv",
        "BlobRenamed",
        json!({"api": "RenameFile", "sourceUrl": "a.csv.tmp", "destinationUrl": "a.csv"}),
    );
    let (files, _, _) = sorted(renamed.to_string().as_bytes());
    assert_eq!(files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["t/a.csv"]);
    lake.ingest(&files[0]).await;
    lake.settle().await;
    assert_eq!(outcome(&lake).await.rows, ["a.csv:1 1|x"]);
}

#[tokio::test]
async fn azr_08_the_same_bytes_under_two_names_are_two_files() {
    let lake = lake(&ids());
    lake.load("t/a.csv", "id,v\n1,x\n").await;
    lake.load("t/a (1).csv", "id,v\n1,x\n").await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &["id", "_file"]).await, ["1 t/a (1).csv", "1 t/a.csv"]);
}

#[test]
fn azr_11_our_own_output_and_foreign_containers_are_passed_over() {
    let foreign = json!([
        {"topic": "x", "subject": "/blobServices/default/containers/lake/blobs/raw/t/part-0.parquet",
         "eventType": "Microsoft.Storage.BlobCreated", "data": {"api": "PutBlob", "contentLength": 5}},
        {"topic": "x", "subject": "/blobServices/default/containers/lake/blobs/raw/t/_delta_log/0001.json",
         "eventType": "Microsoft.Storage.BlobCreated", "data": {"api": "PutBlob", "contentLength": 5}},
    ]);
    assert_eq!(sorted(foreign.to_string().as_bytes()), (Vec::new(), 2, 0));
    let ours = event("t/a.csv", "BlobCreated", json!({"api": "PutBlob", "contentLength": 5}));
    let scope = Scope { account: Some("other".to_owned()), container: "landing".to_owned() };
    assert!(matches!(parse(ours.to_string().as_bytes(), &scope).unwrap().as_slice(), [Item::Refused(_)]));
}

#[test]
fn que_01_a_message_may_be_plain_or_base64() {
    use base64::Engine as _;
    let plain = event("t/a.csv", "BlobCreated", json!({"api": "PutBlob", "contentLength": 5})).to_string();
    let packed = base64::engine::general_purpose::STANDARD.encode(&plain);
    assert_eq!(sorted(plain.as_bytes()), sorted(packed.as_bytes()));
    assert_eq!(sorted(plain.as_bytes()).0.len(), 1);
    let error = parse(b"no message", &Scope::local()).unwrap_err();
    assert!(error.describe().contains("neither JSON nor base64"), "{}", error.describe());
}

#[test]
fn que_02_what_is_no_message_is_an_error_with_its_reason() {
    for (message, why) in [
        ("ZXlKaElqb3hmUT09", "base64, but not of a JSON object"),
        ("b'eyJhIjoxfQ=='", "neither JSON nor base64"),
        ("//4=", "base64, but not of a JSON object"),
        ("", "the message is empty"),
        ("null", "base64, but not of a JSON object"),
    ] {
        let error = parse(message.as_bytes(), &Scope::local()).unwrap_err().describe();
        assert!(error.contains(why), "{message:?}: {error}");
    }
}

#[test]
fn que_05_events_of_one_message_are_independent() {
    let data = || json!({"api": "PutBlob", "contentLength": 5, "eTag": "1"});
    let cloud = json!({
        "specversion": "1.0", "type": "Microsoft.Storage.BlobCreated", "source": "x", "id": "1",
        "subject": "/blobServices/default/containers/landing/blobs/t/cloud.csv", "data": data(),
    });
    let message = json!([
        event("t/a.csv", "BlobCreated", data()),
        event("t/b.csv", "BlobDeleted", data()),
        event("t/c.csv", "BlobTierChanged", data()),
        {"eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "data": {"validationCode": "x"}, "subject": ""},
        7,
        cloud,
    ]);
    let (files, skipped, broken) = sorted(message.to_string().as_bytes());
    assert_eq!(files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["t/a.csv", "t/cloud.csv"]);
    assert_eq!((skipped, broken), (3, 1));
}
