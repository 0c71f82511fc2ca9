//! Names that are no paths: what bears one is left out, recorded and told of once; everything beside it arrives.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::contracts::{self, sales};
use crate::support::place::Place;
use crate::support::program::{Program, eventually};
use crate::support::raw;

const PATIENCE: Duration = Duration::from_secs(90);

/// The ledger's rows of what was refused: path and reason.
fn refused(program: &Program) -> Vec<(String, String)> {
    let rows = program.query("select path, reason, status from ledger where \"table\" is null order by path");
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    assert!(rows.iter().all(|row| row["status"] == "refused"), "{rows:#?}");
    rows.iter().map(|row| (text(row, "path"), text(row, "reason"))).collect()
}

/// The names that the status says are left out.
fn left_out(program: &Program) -> Vec<String> {
    let status: Value = serde_json::from_str(&program.ok(&["status", "-o", "json"])).unwrap();
    let named = status["compared"]["left_out"].as_array().cloned().unwrap_or_default();
    named.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_path_is_left_out_alone_and_told_of_once() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    let before = ["sales//x.csv", "sales/a/../x.csv", "sales/line\nbreak.csv"];
    for name in before {
        raw::put(&place, name, &sales(&[(1, 1, "north", "1.00")])).await;
    }
    for file in 0..4 {
        place.drop_file(&format!("sales/{file}.csv"), sales(&[(10 + file, 1, "north", "1.00")])).await;
    }
    let program = place
        .program()
        .env("ALLUVIUM_ARRIVAL_HOLD_MS", "20")
        .env("ALLUVIUM_COMMIT_AGE", "10ms")
        .env("COMMIT_SCHEDULE", "* * * * * *");
    let mut host = program.start(&["local", "--no-port"]);
    let loaded = |files: i64| {
        let count = "select count(*) as n from ledger where status = 'loaded'";
        let done = program.run(&["sql", count, "--format", "csv"]);
        done.stdout.lines().nth(1) == Some(files.to_string().as_str())
    };
    eventually(PATIENCE, "the neighbours are loaded", || loaded(4));
    // Another one while the host runs, and files beside it.
    raw::put(&place, "sales/b//later.csv", &sales(&[(1, 1, "north", "1.00")])).await;
    place.drop_file("sales/b/4.csv", sales(&[(14, 1, "north", "1.00")])).await;
    eventually(PATIENCE, "its neighbour is loaded", || loaded(5));
    eventually(PATIENCE, "all are recorded", || refused(&program).len() == 4);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());

    let mut names = before.map(str::to_owned).to_vec();
    names.push("sales/b//later.csv".to_owned());
    names.sort();
    for ((path, reason), name) in refused(&program).iter().zip(&names) {
        assert_eq!(path, name);
        assert!(reason.contains("give the blob another name"), "{reason}");
        // Nothing that a name holds makes another line.
        let shown = format!("path={} reason", name.replace('\n', "\\n"));
        let told = host.printed().lines().filter(|line| line.contains("WARN") && line.contains(&shown)).count();
        assert_eq!(told, 1, "{name}: {}", host.printed());
    }
    let mut told = left_out(&program);
    told.sort();
    assert_eq!(told, names);
    let text = program.run(&["status"]).text();
    assert!(text.contains("landing zone: left out: `sales//x.csv`") && text.contains("another name"), "{text}");
    let doctor = program.run(&["doctor", "-o", "json"]);
    let checks: Vec<Value> = serde_json::from_str(&doctor.stdout).unwrap();
    let warned = checks.iter().filter(|check| check["name"] == "landing zone: left out" && check["level"] == "warn");
    assert_eq!((doctor.code, warned.count()), (Some(3), 4), "{}", doctor.stdout);

    // Whoever does what is asked for is bothered no more; the ledger keeps what was.
    for name in &names {
        raw::delete(&place, name).await;
    }
    let handler = alluvium::app::App::new(place.config(), std::sync::Arc::new(alluvium::clock::SystemClock)).unwrap();
    assert_eq!(alluvium::http::Steps::reconcile(&handler).await.unwrap(), 0);
    assert_eq!(left_out(&program), Vec::<String>::new());
    assert_eq!(refused(&program).len(), 4);
}

#[tokio::test]
async fn an_event_and_a_listing_of_one_blob_are_one_record() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    raw::put(&place, "sales//x y.csv", "x").await;
    let handler = alluvium::app::App::new(place.config(), std::sync::Arc::new(alluvium::clock::SystemClock)).unwrap();
    let lake = place.lake();
    let entries: Vec<_> = futures::TryStreamExt::try_collect(lake.landing.entries()).await.unwrap();
    let [alluvium::landing::Entry::LeftOut(odd)] = entries.as_slice() else { panic!("{entries:?}") };
    let event = json!({
        "topic": "/subscriptions/S/resourceGroups/R/providers/Microsoft.Storage/storageAccounts/devstoreaccount1",
        "subject": format!(
            "/blobServices/default/containers/{}/blobs/sales//x%20y.csv", place.config().azure.landing_container
        ),
        "eventType": "Microsoft.Storage.BlobCreated", "data": {"api": "PutBlob", "eTag": odd.version.etag, "contentLength": 1},
    });
    let items = alluvium::event::parse(event.to_string().as_bytes(), &place.backends().scope()).unwrap();
    let [alluvium::event::Item::Refused(told)] = items.as_slice() else { panic!("{items:?}") };
    for _ in 0..2 {
        alluvium::http::Steps::note_refused(&handler, told).await.unwrap();
        alluvium::http::Steps::reconcile(&handler).await.unwrap();
        crate::support::settle(&lake).await;
    }
    let rows = crate::support::rows::select(&lake, "ledger", &["path", "status"]).await;
    assert_eq!(rows, [["sales//x y.csv", "refused"]]);
}
