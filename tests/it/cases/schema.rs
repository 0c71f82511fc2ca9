//! Contracts and files that no longer agree: drift, by the declared policy.

use super::run::{contract, csv, load, ndjson, outcome};
use crate::support::{TestLake, rows, settle};

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
    use alluvium::pipeline::lake::Settings;
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
async fn sch_03_a_column_keeps_its_type_and_the_way_out_is_said() {
    let narrow = ["id int64", "amt decimal(10,2)", "n int32"];
    let wide = ["id int64", "amt decimal(12,4)", "n int64"];
    let mut lake = TestLake::new(&[("raw/t", &contract("format: csv", &narrow, ""))]);
    lake.load("t/1.csv", "id,amt,n\n1,1.50,7\n").await;
    lake.redeploy(&[("raw/t", &contract("format: csv", &wide, ""))]);
    let event = lake.drop_file("t/2.csv", "id,amt,n\n2,1.5000,3000000000\n");
    let ingested = alluvium::pipeline::ingest::ingest(&lake.lake, &event).await;
    let options = alluvium::pipeline::commit::CommitOptions { force: true, deadline: None };
    let report = alluvium::pipeline::commit::commit(&lake.lake, options).await.unwrap();
    let said: Vec<String> = ingested
        .err()
        .map(|error| error.describe())
        .into_iter()
        .chain(report.failed.iter().map(|failure| failure.error.clone()))
        .collect();
    assert!(said.iter().any(|error| error.contains("amt") && error.contains("new name")), "{said:?}");
    assert_eq!(outcome(&lake).await.rows, ["1.csv:1 1|1.50|7"], "stored rows are as they were");
    // The way out: new names beside the old columns, and nothing was lost meanwhile.
    let renamed = ["id int64", "amt4 decimal(12,4) from: amt", "n8 int64 from: n"];
    lake.redeploy(&[("raw/t", &contract("format: csv", &renamed, ""))]);
    lake.ingest(&event).await;
    settle(&lake.lake).await;
    assert_eq!(
        rows::brief(&lake.lake, "raw/t", &["id", "amt", "n", "amt4", "n8"]).await,
        ["1 1.50 7 null null", "2 null null 1.5000 3000000000"]
    );
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
