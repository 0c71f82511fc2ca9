//! JSON: one value, arrays, values one after the other, and lines.

use super::run::{contract, load, ndjson};

#[tokio::test]
async fn jsn_01_integers_keep_every_digit() {
    let content = "{\"id\":9007199254740993,\"s\":\"1344800117571260417\"}\n{\"id\":9223372036854775808,\"s\":\"x\"}\n";
    ndjson(&["id int64", "s string"], content).await.is(
        &["a.ndjson:1 9007199254740993|1344800117571260417"],
        &["a.ndjson:2@2 id_invalid <{\"id\":9223372036854775808,\"s\":\"x\"}>"],
    );
    // A number read as text is the text that was written.
    ndjson(&["s string"], "{\"s\":1.50}\n{\"s\":12345678901234567890123}\n")
        .await
        .is(&["a.ndjson:1 1.50", "a.ndjson:2 12345678901234567890123"], &[]);
}

#[tokio::test]
async fn jsn_02_types_may_change_between_lines() {
    let content = "{\"a\":0}\n{\"a\":0.5}\n{\"a\":\"7\"}\n{\"a\":{\"b\":1}}\n{\"a\":[1]}\n{\"a\":true}";
    let outcome = ndjson(&["a float64"], content).await;
    assert_eq!(outcome.rows, ["a.ndjson:1 0.0", "a.ndjson:2 0.5", "a.ndjson:3 7.0"]);
    let lines: Vec<&str> = outcome.refused.iter().map(|row| row.split_once(" a_invalid").unwrap().0).collect();
    assert_eq!(lines, ["a.ndjson:4@4", "a.ndjson:5@5", "a.ndjson:6@6"]);
}

#[tokio::test]
async fn jsn_03_duplicate_keys_refuse_the_record() {
    let outcome =
        ndjson(&["id int64"], "{\"id\":1,\"id\":2}\n{\"id\":3,\"ID\":4}\n{\"id\":5,\"\\u0069d\":6}\n{\"id\":7}\n")
            .await;
    assert!(
        outcome.rows.iter().all(|row| !row.contains(" 4") && !row.contains(" 6") && !row.contains(" 2")),
        "{outcome:#?}"
    );
    assert!(outcome.rows.contains(&"a.ndjson:4 7".to_owned()), "{outcome:#?}");
    outcome.says(&["a.ndjson:1", "duplicate", "id"]);
    assert_eq!(outcome.rows.len() + outcome.refused.len(), 4, "{outcome:#?}");
}

#[tokio::test]
async fn jsn_04_json_is_arrays_pretty_values_and_several_on_a_line() {
    let json = contract("format: json", &["id int64"], "");
    let files: [(&str, &[u8]); 3] =
        [("1", b"[{\"id\":1},{\"id\":2}]"), ("2", b"{\n \"id\": 3\n}\n"), ("3", b"{\"id\":4}{\"id\":5}\n")];
    load(&json, &files).await.is(&["1:1 1", "1:2 2", "2:1 3", "3:1 4", "3:2 5"], &[]);
    let lines = load(&contract("format: ndjson", &["id int64"], ""), &files).await;
    assert_eq!(lines.rows, Vec::<String>::new());
    assert!(["1", "2", "3"].iter().all(|name| lines.refused.iter().any(|row| row.starts_with(name))), "{lines:#?}");
}

#[tokio::test]
async fn jsn_05_a_cut_last_line_is_kept_in_quarantine() {
    let outcome = ndjson(&["id int64", "n string"], "{\"id\":1}\r\n\r\n{\"id\":2}\n{\"id\":3,\"n\":\"Re").await;
    assert_eq!(outcome.rows, ["a.ndjson:1 1|∅", "a.ndjson:2 2|∅"]);
    assert_eq!(outcome.refused.len(), 1);
    assert!(outcome.refused[0].starts_with("a.ndjson:3@4 ") && outcome.refused[0].contains("Re>"), "{outcome:#?}");
    outcome.says(&["a.ndjson:3", "end"]);
}

#[tokio::test]
async fn jsn_07_missing_null_and_empty_are_three_things() {
    let content = "{\"id\":1}\n{\"id\":2,\"items\":null}\n{\"id\":3,\"items\":[]}\n{\"id\":4,\"items\":[null]}\n{}\n";
    let outcome = ndjson(&["id int64 nullable: false", "items list<int32>"], content).await;
    outcome.is(
        &["a.ndjson:1 1|∅", "a.ndjson:2 2|∅", "a.ndjson:3 3|[]", "a.ndjson:4 4|[∅]"],
        &["a.ndjson:5@5 id_missing <{}>"],
    );
    // A default stands for the absent key, never for an explicit null.
    ndjson(&["id int64", "v int64 default: \"9\""], "{\"id\":1}\n{\"id\":2,\"v\":null}\n")
        .await
        .is(&["a.ndjson:1 1|9", "a.ndjson:2 2|∅"], &[]);
}

#[tokio::test]
async fn jsn_08_what_is_no_json_refuses_its_record() {
    let content = "\u{feff}{\"id\":1,\"f\":NaN}\n{\"id\":2,\"f\":2.0}\n{\"id\":3,} \n{'id':4}\n{\"id\":5} // five\n";
    let outcome = ndjson(&["id int64", "f float64"], content).await;
    assert_eq!(outcome.rows, ["a.ndjson:2 2|2.0"]);
    let places: Vec<&str> = outcome.refused.iter().map(|row| row.split(' ').next().unwrap()).collect();
    assert_eq!(places, ["a.ndjson:1@1", "a.ndjson:3@3", "a.ndjson:4@4", "a.ndjson:5@5"]);
}

#[tokio::test]
async fn jsn_09_an_unknown_nested_field_is_rescued() {
    let content = "{\"id\":1,\"a\":{\"b\":1}}\n{\"id\":2,\"a\":{\"b\":2,\"c\":\"new\"}}\n";
    ndjson(&["id int64", "a struct<b:int32>"], content)
        .await
        .is(&["a.ndjson:1 1|{b: 1}", "a.ndjson:2 2|{b: 2} +{\"a.c\":\"new\"}"], &[]);
}
