//! The store below everything: put-if-absent, listing, deleting, and an answer that is lost on the wire.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium::error::ErrorKind;
use alluvium::manifest::FileVersion;
use alluvium::store::Put;
use alluvium::table::{Change, Outcome, Table, TableSpec};
use arrow::datatypes::{DataType, Field, Schema};
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::ODD_NAMES;
use crate::support::azurite::ACCOUNT;
use crate::support::place::Place;

#[tokio::test]
async fn an_object_is_put_once_and_never_overwritten() {
    for place in Place::both().await {
        let store = place.backends().store().unwrap();
        assert!(
            matches!(store.put_if_absent("a/b.json", b"one".to_vec()).await.unwrap(), Put::Created),
            "{}",
            place.name()
        );
        assert!(
            matches!(store.put_if_absent("a/b.json", b"two".to_vec()).await.unwrap(), Put::Exists),
            "{}",
            place.name()
        );
        assert_eq!(store.get("a/b.json").await.unwrap().unwrap(), "one", "{}", place.name());
        let (bytes, meta) = store.get_with_meta("a/b.json").await.unwrap().unwrap();
        assert_eq!((bytes.len() as u64, meta.size), (3, 3));
        assert_eq!(store.head("a/b.json").await.unwrap().unwrap().e_tag, meta.e_tag);
        assert!(store.head("a").await.unwrap().is_none());
        assert!(store.get("none").await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_writers_one_creates() {
    for place in Place::both().await {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8_u8 {
            let store = place.backends().store().unwrap();
            writers.spawn(async move { (writer, store.put_if_absent("one", vec![writer]).await.unwrap()) });
        }
        let outcomes = writers.join_all().await;
        let created: Vec<u8> =
            outcomes.into_iter().filter(|(_, put)| matches!(put, Put::Created)).map(|(writer, _)| writer).collect();
        assert_eq!(created.len(), 1, "{}: {created:?}", place.name());
        assert_eq!(place.backends().store().unwrap().get("one").await.unwrap().unwrap(), created);
    }
}

#[tokio::test]
async fn listing_and_deleting_know_every_name() {
    for place in Place::both().await {
        let store = place.backends().store().unwrap();
        assert!(store.list("sales").await.unwrap().is_empty(), "a folder that is not there is empty");
        let mut names: Vec<String> = ODD_NAMES.iter().map(|name| (*name).to_owned()).collect();
        // More than one request of a batch can name, and a neighbour whose name only begins alike.
        names.extend((0..300).map(|n| format!("sales/many/{n:03}")));
        for name in names.iter().map(String::as_str).chain(["sales2/other"]) {
            store.put_if_absent(name, name.as_bytes().to_vec()).await.unwrap().is_new().unwrap();
        }
        let mut listed: Vec<String> =
            store.list("sales").await.unwrap().into_iter().map(|found| found.location.to_string()).collect();
        listed.sort();
        names.sort();
        assert_eq!(listed, names, "{}", place.name());
        for name in &names {
            assert_eq!(store.get(name).await.unwrap().unwrap(), name.as_bytes(), "{}", place.name());
        }
        names.push("sales/never there".to_owned());
        store.delete(&names).await.unwrap();
        store.delete(&names).await.unwrap();
        assert!(store.list("sales").await.unwrap().is_empty(), "{}", place.name());
        assert!(store.head("sales2/other").await.unwrap().is_some());
    }
}

fn spec() -> TableSpec {
    TableSpec {
        schema: Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)])),
        partition_by: Vec::new(),
        properties: BTreeMap::new(),
        description: None,
    }
}

fn change(plan: i64) -> Change {
    Change { txns: vec![("alluvium".to_owned(), plan)], ..Change::default() }
}

#[tokio::test]
async fn a_version_is_committed_by_one_of_two() {
    for place in Place::both().await {
        let [first, second] = [(); 2].map(|()| place.backends().store().unwrap());
        let (first, second) = (
            Table::create(&first, "raw/t", &spec()).await.unwrap(),
            Table::create(&second, "raw/t", &spec()).await.unwrap(),
        );
        let (base, same) = (first.snapshot().await.unwrap(), second.snapshot().await.unwrap());
        assert_eq!(base.table_id(), same.table_id(), "{}", place.name());
        assert!(matches!(first.commit(&base, change(1)).await.unwrap(), Outcome::Committed(_)));
        assert!(matches!(second.commit(&same, change(2)).await.unwrap(), Outcome::Unknown(_)));
        let now = second.snapshot().await.unwrap();
        assert_eq!(
            (now.version(), now.txn("alluvium").await.unwrap()),
            (base.version() + 1, Some(1)),
            "{}",
            place.name()
        );
    }
}

/// An account that answers everything with one status, as services and emulators each have their own.
async fn answers(status: u16) -> (SocketAddr, tokio::task::JoinHandle<std::io::Result<()>>) {
    let answer = move || async move {
        let code = match status {
            404 => "BlobNotFound",
            409 => "BlobAlreadyExists",
            _ => "ConditionNotMet",
        };
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>RequestId:1</Message></Error>");
        (StatusCode::from_u16(status).unwrap(), [("x-ms-error-code", code)], body)
    };
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(answer);
    (address, tokio::spawn(async move { axum::serve(listener, router).await }))
}

#[tokio::test(flavor = "multi_thread")]
async fn azr_09_answers_count_by_what_they_mean_and_not_by_whose_they_are() {
    // The real ones, whatever their codes are.
    for place in Place::both().await {
        let store = place.backends().store().unwrap();
        for expected in [true, false] {
            let put = store.put_if_absent("a", b"x".to_vec()).await.unwrap();
            assert_eq!(matches!(put, Put::Created), expected, "{}: {put:?}", place.name());
        }
        let landing = place.backends().landing().unwrap();
        place.drop_file("a.csv", "x").await;
        let version = landing.head("a.csv").await.unwrap().unwrap();
        place.delete_file("a.csv").await;
        let opened = tokio::task::spawn_blocking(move || landing.open(&version).err()).await.unwrap();
        let kind = opened.unwrap().kind();
        assert!(matches!(kind, ErrorKind::NotFound | ErrorKind::Conflict), "{}: {kind:?}", place.name());
    }
    // Codes that one has and another has not.
    for (status, put_exists, read) in
        [(404, false, ErrorKind::NotFound), (409, true, ErrorKind::Conflict), (412, true, ErrorKind::Conflict)]
    {
        let mut place = Place::azurite().await;
        let (address, serving) = answers(status).await;
        place.variables.push(("AZURE_STORAGE_ENDPOINT".to_owned(), format!("http://{address}/{ACCOUNT}")));
        let put = place.backends().store().unwrap().put_if_absent("a", b"x".to_vec()).await.unwrap();
        // Not there is no answer to a put: then it is only not known.
        assert_eq!(matches!(put, Put::Exists), put_exists, "{status}: {put:?}");
        assert!(!matches!(put, Put::Created), "{status}: {put:?}");
        let landing = place.backends().landing().unwrap();
        let version = FileVersion {
            path: "a.csv".to_owned(),
            etag: "0x1".to_owned(),
            bytes: 3,
            last_modified: chrono::DateTime::UNIX_EPOCH,
            sequencer: None,
        };
        let opened = tokio::task::spawn_blocking(move || landing.open(&version).err()).await.unwrap();
        assert_eq!(opened.unwrap().kind(), read, "{status}");
        serving.abort();
    }
}

/// Hands requests on to Azurite. Of the first requests that create a commit, as many as `losing` are done and then answered
/// as a server answers that broke down: the client sends them again by itself, and is told that the object is there.
#[derive(Clone)]
struct LosesAnswers {
    to: String,
    client: reqwest::Client,
    losing: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

async fn hand_on(State(wire): State<LosesAnswers>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let url = format!("{}{}", wire.to, parts.uri);
    let is_commit = parts.method == Method::PUT && parts.uri.path().contains("/_delta_log/");
    let mut headers = parts.headers;
    headers.remove("host");
    let answer = wire.client.request(parts.method, url).headers(headers).body(body).send().await.unwrap();
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    headers.remove("transfer-encoding");
    let body = answer.bytes().await.unwrap();
    let loses = is_commit
        && status.is_success()
        && wire.losing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    if loses {
        wire.lost.fetch_add(1, Ordering::SeqCst);
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    (status, headers, body).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_and_asked_for_again_is_no_failure_of_a_commit() {
    let mut place = Place::azurite().await;
    let blobs = place.backends().account().unwrap().blob_endpoint().clone();
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (losing, lost) = (Arc::new(AtomicUsize::new(2)), Arc::new(AtomicUsize::new(0)));
    let wire = LosesAnswers {
        to: format!("http://{}", blobs.authority()),
        client: reqwest::Client::builder().no_proxy().build().unwrap(),
        losing: Arc::clone(&losing),
        lost: Arc::clone(&lost),
    };
    let router = axum::Router::new().fallback(hand_on).with_state(wire);
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    place.variables.push(("AZURE_STORAGE_ENDPOINT".to_owned(), format!("http://{address}{}", blobs.path())));

    // The answer to the creation is lost: the table is opened as it is.
    let table = Table::create(&place.backends().store().unwrap(), "raw/t", &spec()).await.unwrap();
    assert_eq!(lost.load(Ordering::SeqCst), 1);
    let base = table.snapshot().await.unwrap();
    // The answer to the commit is lost: nothing is assumed, and the log says that it was ours.
    let outcome = table.commit(&base, change(7)).await.unwrap();
    assert_eq!(lost.load(Ordering::SeqCst), 2);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let now = table.snapshot().await.unwrap();
    assert_eq!((now.version(), now.txn("alluvium").await.unwrap()), (base.version() + 1, Some(7)));
    serving.abort();
}
