//! Whatever goes wrong at a call to the store, a fresh process brings the tables to where they would have been.

use alluvium::faults::Fault;
use alluvium::pipeline::backfill::{BackfillOptions, Outcome, backfill};
use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::Settings;
use alluvium::table::{Change, Table};

use super::orders::events;
use super::{ALL, PEOPLE, UNSENT, assert_backfill_agrees, content, told, upsert};
use crate::support::world::World;
use crate::support::{TestLake, commit_once, rows, settle, write_contracts};

/// A lake in memory that has some events, and more of them staged.
async fn world() -> World {
    let world = World::in_memory(Settings::default());
    write_contracts(world.home.path(), ALL);
    let all = events(11, 120, 5);
    let lake = world.process();
    for (name, some) in [("shop/0.ndjson", &all[..70]), ("shop/1.ndjson", &all[70..])] {
        ingest(&lake, &world.drop_file(name, content(some))).await.unwrap();
        if name == "shop/0.ndjson" {
            settle(&lake).await;
        }
    }
    world
}

#[tokio::test]
async fn wherever_a_committer_dies_the_next_one_mends_it() {
    let calm = world().await;
    let (lake, calls) = calm.process_with(0, Fault::None);
    commit_once(&lake).await;
    let all_calls = calls();
    settle(&lake).await;
    let expected = told(&lake).await;
    assert!(expected.iter().all(|rows| !rows.is_empty()), "{expected:#?}");
    assert!(all_calls > 50, "only {all_calls} calls");
    let faults = [Fault::DeadBefore, Fault::DeadAfter, Fault::AnswerLost, Fault::Refused];
    for (number, at) in (1..=all_calls).step_by(3).enumerate() {
        let fault = faults[number % faults.len()];
        let world = world().await;
        let (dying, _) = world.process_with(at, fault);
        // Whatever comes of it.
        let _ = commit(&dying, CommitOptions { force: true, deadline: None }).await;
        let lake = world.process();
        settle(&lake).await;
        assert_eq!(told(&lake).await, expected, "{fault:?} at call {at}");
    }
}

#[tokio::test]
async fn a_committer_that_another_overtakes_doubles_nothing() {
    let calm = world().await;
    let (lake, calls) = calm.process_with(0, Fault::None);
    commit_once(&lake).await;
    let all_calls = calls();
    settle(&lake).await;
    let expected = told(&lake).await;
    for at in (1..=all_calls).step_by(4) {
        let world = world().await;
        commit_once(&world.overtaken_at(at)).await;
        let lake = world.process();
        settle(&lake).await;
        assert_eq!(told(&lake).await, expected, "overtaken before call {at}");
    }
}

#[tokio::test]
async fn a_difference_is_found_and_mended() {
    let lake = TestLake::new(ALL);
    lake.load("shop/0.ndjson", content(&events(13, 150, 6))).await;
    let expected = told(&lake.lake).await;
    for folder in ["silver/people", "silver/people_history", "quarantine/silver/people"] {
        // Somebody takes the rows away.
        let table = Table::open(&lake.lake.store, folder).await.unwrap().unwrap();
        let base = table.snapshot().await.unwrap();
        let removes = base.files().unwrap().to_vec();
        table.commit(&base, Change { removes, ..Change::default() }).await.unwrap();
        let options = BackfillOptions { verify: true, ..BackfillOptions::default() };
        let report = backfill(&lake.lake, &options, |_| {}).await.unwrap();
        let differ = report.tables.iter().filter(|table| table.outcome == Outcome::Differs).count();
        assert_eq!(differ, 1, "{folder}: {:#?}", report.tables);
        assert_ne!(told(&lake.lake).await, expected);
        backfill(&lake.lake, &BackfillOptions::default(), |_| {}).await.unwrap();
        assert_eq!(told(&lake.lake).await, expected, "{folder}");
    }
}

/// What is made from a table of changes waits while that stops, and so does what is made from its history.
#[tokio::test]
async fn what_is_derived_from_a_stopped_table_or_its_history_waits() {
    let gold = |table: &str, from: &str| {
        format!(
            "version: 1\ntable: gold/{table}\nfrom: {from}\nwrite_mode: upsert\nprimary_key: [id]\nrecompute_by: [id]\n\
             sql: select id, count(*) as number from input group by id\n"
        )
    };
    let (rows, versions) = (gold("rows", "silver/people"), gold("versions", "silver/people_history"));
    // No table is partitioned anew where it lies.
    let wrong = format!("{PEOPLE}partition_by: [name]\n");
    let [people, wrong] = [PEOPLE, wrong.as_str()].map(|people| {
        [ALL[0], ("silver/people", people), ("gold/rows", rows.as_str()), ("gold/versions", versions.as_str())]
    });
    let mut lake = TestLake::new(ALL);
    lake.load("shop/0.ndjson", content(&events(13, 60, 4))).await;
    lake.redeploy(&wrong);
    let report = commit(&lake.lake, CommitOptions { force: true, deadline: None }).await.unwrap();
    let failed: Vec<String> = report.failed.iter().map(|failed| failed.table.to_string()).collect();
    assert_eq!(failed, ["silver/people"], "{report:#?}");
    for table in ["gold/rows", "gold/versions"] {
        assert!(lake.lake.table(table).await.unwrap().is_none(), "{table} was made");
    }
    lake.redeploy(&people);
    lake.settle().await;
    for table in ["gold/rows", "gold/versions"] {
        assert!(!lake.rows(table).await.is_empty(), "{table}");
    }
}

/// Deliveries of one place that say different things: which of them counts is never a matter of which came first.
#[tokio::test]
async fn what_stands_at_one_place_is_told_apart_by_what_it_says() {
    let at_one_place = ["CC", "A", "BB"].map(|name| upsert("c", 1, 1000, name).at(10, 5));
    let mut outcomes = Vec::new();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let lake = TestLake::new(ALL);
        for (file, at) in order.into_iter().enumerate() {
            lake.load(&format!("shop/{file}.ndjson"), content(&at_one_place[at..=at])).await;
        }
        assert_backfill_agrees(&lake.lake).await;
        outcomes.push(told(&lake.lake).await);
        // The same as versions of one file.
        let lake = TestLake::new(ALL);
        for at in order {
            lake.load("shop/0.ndjson", content(&at_one_place[at..=at])).await;
        }
        assert_backfill_agrees(&lake.lake).await;
        outcomes.push(told(&lake.lake).await);
    }
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:#?}");
}

/// An empty text in a column that the table is partitioned by is that change's trouble alone.
#[tokio::test]
async fn an_empty_text_in_a_partition_column_is_quarantined() {
    let people = format!("{PEOPLE}partition_by: [name]\n");
    let lake = TestLake::new(&[ALL[0], ("silver/people", people.as_str())]);
    let events = [upsert("c", 1, 1000, "Ada"), upsert("c", 2, 1001, ""), upsert("c", 3, 1002, "Bea")];
    lake.load("shop/0.ndjson", content(&events)).await;
    let [rows, _, quarantine] = told(&lake.lake).await;
    assert_eq!((rows.len(), quarantine.len()), (2, 1), "{rows:?} {quarantine:?}");
    assert!(quarantine[0].contains("name_invalid"), "{quarantine:?}");
    assert_backfill_agrees(&lake.lake).await;
}

/// Each refused row decides what the next one's placeholder stands for: they are judged one after the other, and not all of them
/// again with each.
#[tokio::test]
async fn placeholders_that_depend_on_one_another_are_resolved_one_by_one() {
    let pairs = "version: 1\ntable: silver/people\nfrom: bronze/shop\nsource_table: public.people\nprimary_key: [id]\n\
                 columns:\n  - { name: id, type: int64, nullable: false }\n  - { name: a, type: string }\n  - { name: b, type: string }\n\
                 rules:\n  - { name: pair, check: a <> b }\n";
    let lake = TestLake::new(&[ALL[0], ("silver/people", pairs)]);
    let lines: String = (0..300_i64)
        .map(|at| {
            let (a, b) = match at {
                0 => ("x", "y"),
                odd if odd % 2 == 1 => ("y", UNSENT),
                _ => (UNSENT, "x"),
            };
            let source = serde_json::json!({"schema": "public", "table": "people", "ts_ms": 1000 + at, "lsn": at});
            let value = serde_json::json!({"op": if at == 0 { "c" } else { "u" }, "before": null, "source": source,
                                           "after": {"id": 1, "a": a, "b": b}});
            let record = serde_json::json!({"topic": "lake.public.people", "partition": 0, "offset": at, "timestamp": 1,
                                            "key": {"id": 1}, "value": value});
            format!("{record}\n")
        })
        .collect();
    lake.load("shop/0.ndjson", lines).await;
    assert_eq!(rows::brief(&lake.lake, "silver/people", &["id", "a", "b"]).await, ["1 x y"]);
    let refused = rows::brief(&lake.lake, "quarantine/silver/people", &["rules"]).await;
    assert_eq!(refused.len(), 299);
    assert!(refused.iter().all(|rules| rules.contains("pair")), "{refused:?}");
}
