//! Contracts and files that no longer agree: drift, by the declared policy.

use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::lake::Settings;
use alluvium::pipeline::redrive::redrive;
use alluvium::table::{At, Table};
use arrow::datatypes::DataType;

use super::run::{contract, csv, load, ndjson, outcome};
use crate::support::contracts::{self, sales};
use crate::support::{TestLake, assert_ledger, rows, settle};

#[tokio::test]
async fn sch_01_extra_and_missing_columns_follow_the_policy() {
    let files: [(&str, &[u8]); 4] =
        [("1.csv", b"id,a\n1,x\n"), ("2.csv", b"id,a,new\n2,y,9\n"), ("3.csv", b"id\n3\n"), ("4.csv", b"a\nz\n")];
    let columns = ["id int64 nullable: false", "a string"];
    for (policy, second) in [
        ("rescue", Ok("2.csv:1 2|y +{\"new\":\"9\"}")),
        ("ignore", Ok("2.csv:1 2|y")),
        ("reject", Err("2.csv unknown_column")),
    ] {
        let declared = contract("format: csv", &columns, &format!("unknown_columns: {policy}"));
        let outcome = load(&declared, &files).await;
        let mut expected = vec!["1.csv:1 1|x", "3.csv:1 3|∅"];
        let mut refused = vec!["4.csv missing_column"];
        match second {
            Ok(row) => expected.insert(1, row),
            Err(whole) => refused.insert(0, whole),
        }
        outcome.is(&expected, &refused);
        outcome.says(&["4.csv", "required column id"]);
    }
    let lake = TestLake::new(&[("raw/t", &contract("format: csv", &columns, "unknown_columns: add"))]);
    for (name, content) in files {
        lake.load(&format!("t/{name}"), content).await;
    }
    outcome(&lake).await.is(&["1.csv:1 1|x|∅", "2.csv:1 2|y|9", "3.csv:1 3|∅|∅"], &["4.csv missing_column"]);
    let log = lake.folder("raw/t/_delta_log");
    let reasons: Vec<String> = std::fs::read_dir(log)
        .unwrap()
        .flatten()
        .map(|entry| std::fs::read_to_string(entry.path()).unwrap_or_default())
        .filter(|text| text.contains("schemaChange"))
        .collect();
    assert_eq!(reasons.len(), 1, "one change of the table");
    assert!(reasons[0].contains("unknown_columns: add found new"), "{}", reasons[0]);
}

#[tokio::test]
async fn columns_that_come_to_light_in_the_middle_of_a_file_are_added() {
    // More chunks than one, staged as rows and (big files) as what may be a file of the table.
    for adopt_bytes in [1, u64::MAX / 8] {
        let settings = Settings { memory_bytes: 4 << 20, adopt_bytes, ..Settings::default() };
        let declared = contract("format: ndjson", &["id int64", "pad string"], "unknown_columns: add");
        let lake = TestLake::with_settings(&[("raw/t", &declared)], settings);
        let pad = "x".repeat(100);
        let line = |id: u32| {
            let late = if id >= 2500 { format!(",\"late\":\"{id}\"") } else { String::new() };
            let later = if id >= 2900 { format!(",\"later\":{id}") } else { String::new() };
            format!("{{\"id\":{id},\"pad\":\"{pad}\"{late}{later}}}\n")
        };
        lake.load("t/a.ndjson", (0..3000).map(line).collect::<String>()).await;
        let found = rows::select(&lake.lake, "raw/t", &["id", "_row", "late", "later", "pad"]).await;
        assert_eq!(found.len(), 3000);
        for row in found {
            let id: u32 = row[0].parse().unwrap();
            let told = |from: u32| if id >= from { id.to_string() } else { "null".to_owned() };
            assert_eq!(row, [id.to_string(), (id + 1).to_string(), told(2500), told(2900), pad.clone()]);
        }
    }
}

#[tokio::test]
async fn sch_02_a_value_of_another_type_is_refused_and_never_null() {
    let upsert =
        contract("format: csv", &["id int64 nullable: false", "v int64"], "write_mode: upsert\nprimary_key: [id]");
    load(&upsert, &[("1.csv", b"id,v\n1,10\n"), ("2.csv", b"id,v\n2,abc\n1,11\n")])
        .await
        .is(&["2.csv:2 1|11"], &["2.csv:1@2 v_invalid <2,abc>"]);
}

#[tokio::test]
async fn sch_03_columns_become_wider_by_the_contract() {
    let narrow = contract("format: csv", &["id int64", "amt decimal(10,2)", "n int32"], "");
    let wide = contract("format: csv", &["id int64", "amt decimal(12,4)", "n int64"], "");
    // Staged as rows, and as what may be a file of the table.
    for adopt_bytes in [1, u64::MAX / 8] {
        let settings = Settings { adopt_bytes, ..Settings::default() };
        let mut lake = TestLake::with_settings(&[("raw/t", &narrow)], settings);
        lake.load("t/1.csv", "id,amt,n\n1,1.50,7\n").await;
        lake.load("t/2.csv", "id,amt,n\n2,2.50,3000000000\n").await;
        let event = lake.drop_file("t/3.csv", "id,amt,n\n3,3.50,8\n");
        lake.ingest(&event).await;
        let before = rows::version(&lake.lake, "raw/t").await;
        outcome(&lake).await.is(&["1.csv:1 1|1.50|7"], &["2.csv:1@2 n_invalid <2,2.50,3000000000>"]);

        lake.redeploy(&[("raw/t", &wide)]);
        settle(&lake.lake).await;
        let table = Table::open(&lake.lake.store, "raw/t").await.unwrap().unwrap();
        let history = table.history(None).await.unwrap();
        let changes: Vec<_> = history.iter().filter(|entry| entry.operation == "CHANGE COLUMN").collect();
        assert_eq!(changes.len(), 1, "{history:#?}");
        assert_eq!(changes[0].version, before + 1);
        assert_eq!(changes[0].info["schemaChange"], "columns follow the contract: amt, n became wider");
        // What was refused for a narrow column is taken by the wide one.
        redrive(&lake.lake, &lake.lake.catalog.tables()[0], false).await.unwrap();
        lake.load("t/4.csv", "id,amt,n\n4,4.5005,-3000000000\n").await;
        assert_eq!(
            outcome(&lake).await.rows,
            ["1.csv:1 1|1.5000|7", "2.csv:1 2|2.5000|3000000000", "3.csv:1 3|3.5000|8", "4.csv:1 4|4.5005|-3000000000"]
        );
        assert_ledger(&lake.lake).await;
        let older = table.snapshot_at(At::Version(before)).await.unwrap();
        assert_eq!(older.schema().field_with_name("n").unwrap().data_type(), &DataType::Int32);

        // Back again: that is said, and nothing happens to what is stored.
        lake.redeploy(&[("raw/t", &narrow)]);
        let event = lake.drop_file("t/5.csv", "id,amt,n\n5,5.50,9\n");
        lake.ingest(&event).await;
        let options = CommitOptions { force: true, deadline: None };
        let report = commit(&lake.lake, options).await.unwrap();
        assert!(report.failed[0].error.contains("new name"), "{report:#?}");
        assert_eq!(outcome(&lake).await.rows.len(), 4);
        lake.redeploy(&[("raw/t", &wide)]);
        settle(&lake.lake).await;
        assert_eq!(outcome(&lake).await.rows[4], "5.csv:1 5|5.5000|9");
    }
}

#[tokio::test]
async fn what_is_derived_becomes_wider_with_its_source() {
    let narrower = |(table, yaml): &(&'static str, &str)| (*table, yaml.replace("decimal(10,2)", "decimal(8,2)"));
    let narrow: Vec<(&str, String)> = contracts::ALL.iter().map(narrower).collect();
    let narrow: Vec<(&str, &str)> = narrow.iter().map(|(table, yaml)| (*table, yaml.as_str())).collect();
    let first = sales(&[(1, 1, "north", "1.00"), (2, 2, "south", "2.00")]);
    let second = sales(&[(3, 1, "north", "99999999.99"), (4, 3, "south", "4.00")]);
    let mut lake = TestLake::new(&narrow);
    lake.load("sales/a.csv", &first).await;
    lake.redeploy(contracts::ALL);
    lake.load("sales/b.csv", &second).await;
    let fresh = TestLake::new(contracts::ALL);
    fresh.load("sales/a.csv", &first).await;
    fresh.load("sales/b.csv", &second).await;
    assert_eq!(lake.tables().await, fresh.tables().await);
    for (table, _) in contracts::ALL {
        let schema = async |lake: &TestLake| {
            Table::open(&lake.lake.store, table).await.unwrap().unwrap().snapshot().await.unwrap().schema()
        };
        assert_eq!(schema(&lake).await, schema(&fresh).await, "{table}");
    }
}

#[tokio::test]
async fn sql_that_renames_what_is_inside_a_column_stops_its_table_with_the_way_out() {
    let derived = |names: [&str; 2]| {
        let [one, other] = names;
        format!(
            "version: 1\ntable: curated/st\nfrom: raw/t\nwrite_mode: upsert\nprimary_key: [g]\nrecompute_by: [g]\n\
             sql: select g, named_struct('{one}', min(v), '{other}', max(v)) as s from input group by g\n"
        )
    };
    let raw = contract("format: csv", &["g int64", "v int64"], "");
    let mut lake = TestLake::new(&[("raw/t", &raw), ("curated/st", &derived(["a", "b"]))]);
    lake.load("t/1.csv", "g,v\n1,7\n1,8\n").await;
    let stored = lake.rows("curated/st").await;
    lake.redeploy(&[("raw/t", &raw), ("curated/st", &derived(["x", "y"]))]);
    let found = alluvium::pipeline::drift::deployment(&lake.lake).await.unwrap();
    assert!(found.iter().any(|(_, differences)| differences.iter().any(|one| one.is_refused())), "{found:?}");
    let report = commit(&lake.lake, CommitOptions { force: true, deadline: None }).await.unwrap();
    assert!(report.failed[0].error.contains("give it another name"), "{report:#?}");
    assert_eq!(lake.rows("curated/st").await, stored);
}

#[tokio::test]
async fn a_table_that_is_too_big_for_one_run_is_left_to_the_command() {
    let declared = |kind: &str| contract("format: csv", &[&format!("id {kind}")], "");
    let mut lake = TestLake::new(&[("raw/t", &declared("int32"))]);
    lake.load("t/1.csv", "id\n1\n").await;
    lake.redeploy(&[("raw/t", &declared("int64"))]);
    let before = rows::version(&lake.lake, "raw/t").await;
    // Less than a second is left.
    let deadline = Some(lake.lake.clock.now() + chrono::TimeDelta::milliseconds(900));
    let report = commit(&lake.lake, CommitOptions { force: true, deadline }).await.unwrap();
    let error = &report.failed[0].error;
    assert!(error.contains("id became wider") && error.contains("run `alluvium commit` once"), "{error}");
    assert_eq!(rows::version(&lake.lake, "raw/t").await, before);
    let files = || std::fs::read_dir(lake.folder("raw/t")).unwrap().count();
    assert_eq!(files(), 2, "nothing was begun: a log and a file");
    commit(&lake.lake, CommitOptions { force: true, deadline: None }).await.unwrap();
    assert_eq!((rows::version(&lake.lake, "raw/t").await, files()), (before + 1, 3));
}

#[tokio::test]
async fn fields_inside_a_column_come_and_become_wider() {
    let before = contract("format: ndjson", &["id int64", "s struct<a:int32>", "l list<int32>"], "");
    let after = contract("format: ndjson", &["id int64", "s struct<a:int64,b:string>", "l list<int64>"], "");
    let mut lake = TestLake::new(&[("raw/t", &before)]);
    lake.load("t/1.ndjson", "{\"id\":1,\"s\":{\"a\":7},\"l\":[1]}\n{\"id\":2,\"l\":[]}\n").await;
    lake.redeploy(&[("raw/t", &after)]);
    lake.load("t/2.ndjson", "{\"id\":3,\"s\":{\"a\":3000000000,\"b\":\"x\"},\"l\":[3000000000]}\n").await;
    assert_eq!(
        rows::brief(&lake.lake, "raw/t", &["id", "s", "l"]).await,
        ["1 {a: 7, b: null} [1]", "2 null []", "3 {a: 3000000000, b: x} [3000000000]"]
    );
}

#[tokio::test]
async fn a_type_that_is_not_wider_is_refused_and_the_way_out_is_said() {
    for (before, after, first, second) in [
        ("int64", "int32", "7", "8"),
        ("int64", "string", "7", "x"),
        ("decimal(10,2)", "decimal(10,4)", "1.50", "1.5000"),
        ("string", "int64", "a", "8"),
        ("date", "timestamp", "2026-01-01", "2026-01-01T00:00:00Z"),
        ("int64", "float64", "7", "8.5"),
        ("struct<a:int32>", "struct<b:int32>", "{\"a\":1}", "{\"b\":2}"),
    ] {
        let is_json = before.starts_with("struct");
        let format = if is_json { "format: ndjson" } else { "format: csv" };
        let content = |id: u32, value: &str| match is_json {
            true => format!("{{\"id\":{id},\"v\":{value}}}\n"),
            false => format!("id,v\n{id},{value}\n"),
        };
        let declared = |kind: &str| contract(format, &["id int64", &format!("v {kind}")], "");
        let mut lake = TestLake::new(&[("raw/t", &declared(before))]);
        lake.load("t/1.csv", content(1, first)).await;
        let stored = lake.rows("raw/t").await;
        lake.redeploy(&[("raw/t", &declared(after))]);
        let event = lake.drop_file("t/2.csv", content(2, second));
        lake.ingest(&event).await;
        let report = commit(&lake.lake, CommitOptions { force: true, deadline: None }).await.unwrap();
        let error = &report.failed[0].error;
        assert!(error.contains("column `v`") && error.contains("new name"), "{before} to {after}: {error}");
        assert_eq!(lake.rows("raw/t").await, stored, "stored rows are as they were");
        // The way out: a new name beside the old column, and nothing was lost meanwhile.
        lake.redeploy(&[("raw/t", &contract(format, &["id int64", &format!("w {after} from: v")], ""))]);
        settle(&lake.lake).await;
        let found = rows::brief(&lake.lake, "raw/t", &["id", "v", "w"]).await;
        assert_eq!(found.len(), 2);
        // What was staged and fits the old column is committed to it, by its name.
        let second = if after == "int32" { "2 8 null" } else { "2 null " };
        assert!(found[0].ends_with(" null") && found[1].starts_with(second), "{found:?}");
        assert_ledger(&lake.lake).await;
    }
}

#[tokio::test]
async fn sch_05_staged_rows_are_committed_by_name_under_a_changed_contract() {
    let first = contract("format: csv", &["a int64", "b string"], "");
    let mut lake = TestLake::new(&[("raw/t", &first)]);
    let event = lake.drop_file("t/1.csv", "a,b\n1,x\n");
    lake.ingest(&event).await;
    lake.redeploy(&[("raw/t", &contract("format: csv", &["b string", "a int64", "c date"], ""))]);
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &["a", "b", "c"]).await, ["1 x null"]);
    let hashes = rows::select(&lake.lake, "ledger", &["contract_hash"]).await;
    assert_ne!(hashes[0][0], lake.lake.catalog.tables()[0].hash, "the ledger says under which contract it was read");
    // Staged under a contract whose type is no longer the table's: staged anew under today's.
    let event = lake.drop_file("t/2.csv", "a,b\n2,y\n");
    lake.ingest(&event).await;
    lake.redeploy(&[(
        "raw/t",
        &contract("format: csv", &["b string nullable: false", "a int64", "c date default: \"2026-01-01\""], ""),
    )]);
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &["a", "b"]).await, ["1 x", "2 y"]);
}

#[tokio::test]
async fn sch_06_a_name_that_differs_by_case_is_the_same_column() {
    let adding = |columns: &[&str]| contract("format: csv", columns, "unknown_columns: add");
    let files: [(&str, &[u8]); 2] = [("1.csv", b"id,amount\n1,5\n"), ("2.csv", b"id,Amount\n3,7\n")];
    load(&adding(&["id int64", "amount int64"]), &files).await.is(&["1.csv:1 1|5", "2.csv:1 3|7"], &[]);
    csv(&["id int64", "Amount int64"], "ID,AMOUNT\n1,2\n").await.is(&["a.csv:1 1|2"], &[]);
    // Nested: found by the declared name, and what differs by case does not make a second field.
    let nested = ndjson(
        &["id int64", "s struct<amount:int64>"],
        "{\"id\":1,\"s\":{\"amount\":1}}\n{\"id\":2,\"s\":{\"Amount\":2}}\n",
    )
    .await;
    assert_eq!(nested.rows.len() + nested.refused.len(), 2);
    assert_eq!(nested.rows[0], "a.ndjson:1 1|{amount: 1}");
    assert!(nested.rows.get(1).is_none_or(|row| row.contains("{amount: 2}") || row.contains("+{")), "{nested:#?}");
}
