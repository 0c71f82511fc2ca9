//! Storage that does not answer, refuses, or is not there: told soon, in short, and with what to do.

use std::sync::Arc;
use std::time::Duration;

use alluvium::app::App;
use alluvium::clock::SystemClock;
use alluvium::http::Steps as _;
use alluvium::queue::poison;

use crate::support::azurite::{ACCOUNT, Azurite, KEY};
use crate::support::contracts::{self, sales};
use crate::support::place::Place;
use crate::support::program::{eventually, signal};

const PATIENCE: Duration = Duration::from_secs(90);

/// A connection string of an account where nobody listens.
fn nobody() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!(
        "AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};\
         QueueEndpoint=http://127.0.0.1:{port}/{ACCOUNT}"
    )
}

const COMMANDS: [&[&str]; 9] = [
    &["status"],
    &["sql", "select 1"],
    &["tables"],
    &["history", "raw/sales"],
    &["ledger"],
    &["quarantine", "list"],
    &["check", "--against-lake"],
    &["commit"],
    &["backfill", "--verify"],
];

/// An error is short, says each thing once, and holds no document.
fn assert_short(told: &str) {
    let error = told.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{told}"));
    assert!(error.len() < 400, "{error}");
    assert!(!error.contains("<?xml") && !error.contains("</"), "{error}");
    for cause in error.split(": ").filter(|cause| cause.len() > 12) {
        assert_eq!(error.matches(cause).count(), 1, "`{cause}` is said again: {error}");
    }
    assert!(told.contains("help: "), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_people_wait_for_say_soon_that_storage_is_away() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    // A tenth of what they have by themselves.
    let program = place.program().env("AzureWebJobsStorage", &nobody()).env("ALLUVIUM_STORAGE_PATIENCE", "500ms");
    for command in COMMANDS {
        let done = program.run(command);
        assert_eq!(done.code, Some(1), "{command:?}: {}", done.text());
        assert_short(&done.stderr);
        assert!(done.stderr.contains("endpoint can be reached from here"), "{command:?}: {}", done.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_what_it_knows_while_an_account_does_not_answer() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    // Connections are made and nothing is ever answered.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let program = place
        .program()
        .env("AZURE_STORAGE_ENDPOINT", &format!("http://{address}/{ACCOUNT}"))
        .env("ALLUVIUM_STORAGE_PATIENCE", "60s");
    let mut doctor = program.start(&["doctor"]);
    eventually(PATIENCE, "the settings and the account are told", || {
        let printed = doctor.printed();
        printed.contains("AZURE_STORAGE_CONTAINER") && printed.contains("storage account")
    });
    assert!(doctor.is_running() && !doctor.printed().contains("landing zone   "), "{}", doctor.printed());
    doctor.signal("KILL");
    doctor.ended(PATIENCE);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_one_short_cause_with_its_code_and_request() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    let connection = &place.variables.iter().find(|(name, _)| name == "AzureWebJobsStorage").unwrap().1;
    let program = place.program().env("AzureWebJobsStorage", &connection.replace(KEY, "c2VzYW1lLW9wZW4teW91cnNlbGY="));
    for command in COMMANDS {
        let done = program.run(command);
        assert_eq!(done.code, Some(1), "{command:?}: {}", done.text());
        assert_short(&done.stderr);
        assert!(done.stderr.contains("(403, request "), "{command:?}: {}", done.stderr);
        assert!(done.stderr.contains("Storage Blob Data Contributor"), "{command:?}: {}", done.stderr);
    }
    let doctor = program.run(&["doctor", "-o", "json"]);
    let checks: Vec<serde_json::Value> = serde_json::from_str(&doctor.stdout).unwrap();
    for check in checks.iter().filter(|check| check["level"] == "fail") {
        let detail = check["detail"].as_str().unwrap();
        assert!(detail.len() < 400 && !detail.contains("</") && !check["remedy"].is_null(), "{check:#}");
        // The queue's client and the blobs' own say the code in their own way; each says it.
        assert!(detail.contains("403") && detail.contains("request "), "{check:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_not_there_is_named_with_what_creates_it() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    let program = place.program().env("AZURE_STORAGE_CONTAINER", "nowhere-at-all");
    for command in COMMANDS {
        let done = program.run(command);
        assert_eq!(done.code, Some(1), "{command:?}: {}", done.text());
        assert_short(&done.stderr);
        for part in ["there is no container nowhere-at-all", "az storage container create --name nowhere-at-all"] {
            assert!(done.stderr.contains(part), "{command:?}: {}", done.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_has_the_queues_and_a_comparison_that_failed() {
    let mut place = Place::azurite().await.with_contracts(contracts::ALL);
    let handler = |place: &Place| App::new(place.config(), Arc::new(SystemClock)).unwrap();
    place.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    assert_eq!(handler(&place).reconcile().await.unwrap(), 1);
    let (queues, name) = (place.backends().queue(), place.config().queue_name);
    queues.send(&name, b"hidden".to_vec(), Duration::from_secs(600)).await.unwrap();
    queues.send(&poison(&name), b"poison".to_vec(), Duration::ZERO).await.unwrap();
    place.variables.push(("AZURE_LANDING_CONTAINER".to_owned(), "nowhere-at-all".to_owned()));
    let error = handler(&place).reconcile().await.unwrap_err();
    assert!(error.describe().contains("az storage container create"), "{}", error.describe());

    let program = place.program();
    let status: serde_json::Value = serde_json::from_str(&program.ok(&["status", "-o", "json"])).unwrap();
    let expected = serde_json::json!({ "queue": name, "visible": 1, "invisible": 1, "poison": 1, "error": null });
    assert_eq!(status["queues"], expected);
    let told = status["compared"]["error"].as_str().unwrap();
    assert!(told.contains("ContainerNotFound"), "{told}");
    assert!(status["compared"]["well_at"].as_str().unwrap() < status["compared"]["at"].as_str().unwrap());
    let text = program.run(&["status"]).text();
    for part in ["1 messages wait, 1 are in work", "1 messages failed too often", "reconcile failed at"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // What the functions answer is the same.
    let answered = handler(&place).status().await.unwrap();
    assert_eq!((&answered["queues"], &answered["compared"]), (&status["queues"], &status["compared"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_azurite_of_the_hosts_own_is_started_again_when_it_ends() {
    let home = tempfile::tempdir().unwrap();
    crate::support::write_contracts(home.path(), contracts::ALL);
    let port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let connection = format!(
        "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};\
         BlobEndpoint=http://127.0.0.1:{}/{ACCOUNT};QueueEndpoint=http://127.0.0.1:{}/{ACCOUNT};",
        port(),
        port()
    );
    let mut place = Place::local();
    place.home = home;
    let program = place
        .program()
        .env("ALLUVIUM_AZURITE", &Azurite::program())
        .env("AzureWebJobsStorage", &connection)
        .env("ALLUVIUM_ARRIVAL_HOLD_MS", "20")
        .env("ALLUVIUM_COMMIT_AGE", "10ms")
        .env("COMMIT_SCHEDULE", "* * * * * *");
    let mut host = program.start(&["local", "--no-port", "--storage", "azurite"]);
    eventually(PATIENCE, "the host runs", || !host.children("serve").is_empty());
    for (name, value) in
        [("STORAGE_BACKEND", "azure"), ("QUEUE_BACKEND", "azure"), ("AzureWebJobsStorage", connection.as_str())]
    {
        place.variables.push((name.to_owned(), value.to_owned()));
    }
    let looking = place.program();
    let loaded = |files: &str| {
        let done = looking.run(&["sql", "select count(*) as n from raw.sales", "--format", "csv"]);
        done.stdout.lines().nth(1) == Some(files)
    };
    let blobs = place.landing_blobs().unwrap();
    let land = async |name: &str, id: i64| {
        let content = sales(&[(id, 1, "north", "1.00")]).into_bytes();
        object_store::ObjectStoreExt::put(&*blobs, &name.into(), content.into()).await.unwrap();
    };
    land("sales/a.csv", 1).await;
    eventually(PATIENCE, "the first file is loaded", || loaded("1"));
    for ended in host.children("node") {
        signal(ended, "TERM");
    }
    eventually(PATIENCE, "Azurite is started again", || host.printed().matches("Azurite was started").count() == 2);
    land("sales/b.csv", 2).await;
    eventually(PATIENCE, "the second file is loaded", || loaded("2"));
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    assert!(host.printed().contains("Azurite ended"), "{}", host.printed());
}
