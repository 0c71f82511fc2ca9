//! CSV as people, spreadsheets and exports write it.

use super::run::{contract, csv, load, load_with};
use alluvium::pipeline::lake::Settings;

const ID_NAME: [&str; 2] = ["id int64 nullable: false", "name string"];

#[tokio::test]
async fn csv_01_a_byte_order_mark_is_no_part_of_a_name() {
    for content in ["\u{feff}\"id\",\"name\"\r\n\"7\",\"Ann\"\r\n", "\u{feff}id,name\n7,Ann\n"] {
        csv(&ID_NAME, content).await.is(&["a.csv:1 7|Ann"], &[]);
    }
    let only_a_mark = csv(&ID_NAME, "\u{feff}").await;
    assert_eq!(only_a_mark.ledger, ["a.csv empty 0=0+0+0"]);
    // The mark is one at the beginning alone: further in it is data.
    csv(&ID_NAME, "id,name\n7,\u{feff}Ann\n").await.is(&["a.csv:1 7|\u{feff}Ann"], &[]);
}

#[tokio::test]
async fn csv_03_a_quoted_line_end_never_splits_a_record() {
    let records = 30_000_i64;
    let mut text = String::from("id,t\n");
    for id in 0..records {
        text.push_str(&format!("{id},\"first {id}\nsecond, {id}\"\n"));
    }
    let rules = "rules:\n  - { name: one_line_end, check: \"t = concat('first ', id, chr(10), 'second, ', id)\" }";
    let contract = contract("format: csv", &["id int64", "t string"], rules);
    let mut former: Option<Vec<String>> = None;
    for threads in [1, 4, 16] {
        let settings = Settings { threads, ..Settings::default() };
        let outcome = load_with(&contract, &[("a.csv", text.as_bytes())], settings).await;
        assert_eq!(outcome.ledger, [format!("a.csv loaded {records}={records}+0+0")]);
        let ids = outcome.rows.iter().map(|row| row.split([' ', '|']).nth(1).unwrap().parse::<i64>().unwrap());
        assert_eq!(ids.sum::<i64>(), records * (records - 1) / 2);
        assert!(former.is_none_or(|former| former == outcome.rows), "{threads} threads");
        former = Some(outcome.rows);
    }
}

#[tokio::test]
async fn csv_04_doubled_returns_double_no_record() {
    let mut text = String::from("id,v\r\r\n");
    for id in 0..50_000 {
        text.push_str(&format!("{id},x\r\r\n"));
    }
    let rules = "rules:\n  - { name: v_is_x, check: \"v = 'x'\", on_fail: fail }";
    let outcome = load(&contract("format: csv", &["id int64", "v string"], rules), &[("a.csv", text.as_bytes())]).await;
    assert_eq!(outcome.ledger, ["a.csv loaded 50000=50000+0+0"]);
    assert!(outcome.rows.iter().enumerate().all(|(at, row)| *row == format!("a.csv:{} {at}|x", at + 1)));
}

#[tokio::test]
async fn csv_05_a_quote_within_a_field_is_text() {
    let columns = ["sku string", "desc string", "qty int32"];
    csv(&columns, "sku,desc,qty\nP1,Pipe 24\",5\nP2,Hose,6\nP3,Nut 3/8\",7\n")
        .await
        .is(&["a.csv:1 P1|Pipe 24\"|5", "a.csv:2 P2|Hose|6", "a.csv:3 P3|Nut 3/8\"|7"], &[]);
    csv(&columns, "sku,desc,qty\nP1, \"a\",5\nP2,b\"\"c,6\n")
        .await
        .is(&["a.csv:1 P1| \"a\"|5", "a.csv:2 P2|b\"\"c|6"], &[]);
}

#[tokio::test]
async fn csv_06_a_quote_that_never_closes_refuses_the_file_with_its_line() {
    let mut long = String::from("a,b\n1,\"ok\"\n2,\"oops\n");
    for id in 0..100_000 {
        long.push_str(&format!("{id},a good row\n"));
    }
    for content in ["a,b\n1,\"ok\"\n2,\"oops\n3,x\n4,y\n", &long] {
        let outcome = csv(&["a int64", "b string"], content).await;
        outcome.is(&[], &["a.csv unterminated_quote"]);
        assert_eq!(outcome.ledger, ["a.csv refused 0=0+0+0"]);
        outcome.says(&["a.csv", "line 3"]);
    }
}

#[tokio::test]
async fn csv_07_ragged_rows_are_refused_one_by_one() {
    let outcome = csv(&["a int64", "b int64", "c int64"], "a,b,c\n1,2,3\n4,5\n6,7,8,9\n10,11,12\n").await;
    outcome.is(
        &["a.csv:1 1|2|3", "a.csv:4 10|11|12"],
        &["a.csv:2@3 field_count <4,5>", "a.csv:3@4 field_count <6,7,8,9>"],
    );
    assert_eq!(outcome.ledger, ["a.csv loaded 4=2+2+0"]);
    outcome.says(&["a.csv:2 ", "expected 3 fields, got 2"]);
    outcome.says(&["a.csv:3 ", "expected 3 fields, got 4"]);
}

#[tokio::test]
async fn csv_09_duplicate_columns_refuse_the_file() {
    let columns = ["id int64", "amt int64", "note string"];
    let outcome = csv(&columns, "id,amt,amt,note\n1,10,20,hello\n").await;
    outcome.is(&[], &["a.csv duplicate_column"]);
    outcome.says(&["amt", "2 and 3"]);
    let by_position = contract(
        "format: csv, header: false, skip_rows: 1",
        &["id int64", "amt int64", "amt2 int64", "note string"],
        "",
    );
    load(&by_position, &[("a.csv", b"id,amt,amt,note\n1,10,20,hello\n")]).await.is(&["a.csv:1 1|10|20|hello"], &[]);
}

#[tokio::test]
async fn csv_10_headers_match_without_case_and_blanks_when_that_is_unique() {
    csv(&ID_NAME, " Id ,NAME\u{a0}\n1,Ann\n").await.is(&["a.csv:1 1|Ann"], &[]);
    let outcome = csv(&["id int64"], " Id,ID \n1,2\n").await;
    outcome.is(&[], &["a.csv duplicate_column"]);
    outcome.says(&[" Id", "ID "]);
    let outcome = csv(&["id int64"], "id,ID\n1,2\n").await;
    outcome.is(&[], &["a.csv duplicate_column"]);
    outcome.says(&["`id`", "`ID`"]);
}

#[tokio::test]
async fn csv_11_each_file_has_its_own_order_of_columns() {
    let contract = contract("format: csv", &["id int64", "price decimal(6,2)", "cost decimal(6,2)"], "");
    load(&contract, &[("1.csv", b"id,price,cost\n1,9.0,4.0\n"), ("2.csv", b"id,cost,price\n2,3.5,8.5\n")])
        .await
        .is(&["1.csv:1 1|9.00|4.00", "2.csv:1 2|8.50|3.50"], &[]);
}

#[tokio::test]
async fn csv_12_a_header_that_is_data_refuses_the_file() {
    let outcome = csv(&ID_NAME, "1,Ann\n2,Bob\n").await;
    outcome.is(&[], &["a.csv header_mismatch"]);
    outcome.says(&["0 of 2 expected columns", "1,Ann"]);
}

#[tokio::test]
async fn csv_13_files_without_records_are_settled_as_empty() {
    let contract = contract("format: csv", &ID_NAME, "");
    let files: [(&str, &[u8]); 5] =
        [("a.csv", b""), ("b.csv", b"id,name\n"), ("c.csv", b"\n"), ("d.csv", b"id,name"), ("e.csv", b"\r\n\r\n")];
    let outcome = load(&contract, &files).await;
    outcome.is(&[], &[]);
    assert_eq!(outcome.ledger, ["a", "b", "c", "d", "e"].map(|name| format!("{name}.csv empty 0=0+0+0")));
}

#[tokio::test]
async fn csv_14_blank_lines_are_no_records_and_rows_of_nothing_are() {
    let nullable = ["a int64", "b int64"];
    csv(&nullable, "a,b\n1,2\n\n,\n3,4\n\n").await.is(&["a.csv:1 1|2", "a.csv:2 ∅|∅", "a.csv:3 3|4"], &[]);
    let outcome = csv(&["a int64 nullable: false", "b int64"], "a,b\n1,2\n\n,\n3,4\n\n").await;
    outcome.is(&["a.csv:1 1|2", "a.csv:3 3|4"], &["a.csv:2@4 a_missing <,>"]);
    // The declared policy for a file of one column: a blank line is no record there either; an empty text is `\"\"`.
    csv(&["a string"], "a\nx\n\n\"\"\ny\n").await.is(&["a.csv:1 x", "a.csv:2 ", "a.csv:3 y"], &[]);
}

#[tokio::test]
async fn csv_15_nul_bytes_are_kept_in_text_and_refused_elsewhere() {
    let outcome = csv(&["x string", "y string"], b"x,y\nhead\0tail,R\n\0\0,S\nok,T\n").await;
    outcome.is(&["a.csv:1 head\0tail|R", "a.csv:2 \0\0|S", "a.csv:3 ok|T"], &[]);
    let outcome = csv(&["x int64", "y string"], b"x,y\n1\0,R\n2,S\n").await;
    outcome.is(&["a.csv:2 2|S"], &["a.csv:1@2 x_invalid <1\\x00,R>"]);
}

#[tokio::test]
async fn csv_16_long_fields_and_wide_files() {
    let long = format!("id,t\n1,{}\n2,y\n", "x".repeat(3_000_000));
    let outcome = csv(&["id int64", "t string"], &long).await;
    assert_eq!(
        outcome.rows.iter().map(String::len).collect::<Vec<_>>(),
        ["a.csv:1 1|".len() + 3_000_000, "a.csv:2 2|y".len()]
    );
    let limited = csv(&["id int64", "t string max_length: 1000"], &long).await;
    assert_eq!((limited.rows, limited.refused.len()), (vec!["a.csv:2 2|y".to_owned()], 1));
    let names: Vec<String> = (0..5000).map(|number| format!("c{number}")).collect();
    let columns: Vec<String> = names.iter().map(|name| format!("{name} int64")).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut wide = names.join(",");
    wide.push('\n');
    for _ in 0..20 {
        wide.push_str(&vec!["1"; 5000].join(","));
        wide.push('\n');
    }
    let outcome = csv(&columns, &wide).await;
    assert_eq!(outcome.ledger, ["a.csv loaded 20=20+0+0"]);
    assert!(outcome.rows.iter().all(|row| row.matches('1').count() >= 5000 && !row.contains('∅')));
}

#[tokio::test]
async fn csv_17_another_separator_than_declared_refuses_the_file() {
    let columns = ["land string", "loc string", "cnt decimal(10,2) decimal_separator: \",\""];
    let content = "sep=;\nland;loc;cnt\nNO;\"59.9;10.7\";9710,5\n";
    let outcome = csv(&columns, content).await;
    outcome.is(&[], &["a.csv header_mismatch"]);
    outcome.says(&["land;loc;cnt", "0 of 3 expected columns"]);
    let declared = contract("format: csv, delimiter: \";\"", &columns, "");
    load(&declared, &[("a.csv", content.as_bytes())]).await.is(&["a.csv:1 NO|59.9;10.7|9710.50"], &[]);
}

#[tokio::test]
async fn csv_18_a_header_may_have_a_line_end() {
    let columns = ["unit_price decimal(6,2) from: \"unit\\nprice\"", "qty int64"];
    csv(&columns, "\"unit\nprice\",qty\n1.5,2\n").await.is(&["a.csv:1 1.50|2"], &[]);
}

#[tokio::test]
async fn csv_19_backslashes_escape_quotes_only_when_declared() {
    let content = "id,t\n1,\"say \\\"hi\"\n2,plain\n3,\"bye \\\" now\"\n4,last\n";
    let columns = ["id int64", "t string"];
    load(&contract("format: csv, escape: \"\\\\\"", &columns, ""), &[("a.csv", content.as_bytes())])
        .await
        .is(&["a.csv:1 1|say \"hi", "a.csv:2 2|plain", "a.csv:3 3|bye \" now", "a.csv:4 4|last"], &[]);
    let outcome = csv(&columns, content).await;
    assert!(outcome.rows.iter().chain(&outcome.refused).all(|row| !row.contains("plain") || row == "a.csv:2 2|plain"));
    let is_whole = outcome.refused.iter().any(|row| row.starts_with("a.csv "));
    assert!(is_whole || outcome.rows == ["a.csv:2 2|plain", "a.csv:4 4|last"], "{outcome:#?}");
}

#[tokio::test]
async fn csv_20_preambles_repeated_headers_and_totals() {
    let content = b"Report 2025\nid,v\n1,2\nid,v\n3,4\nTOTAL,6\n";
    let columns = ["id int64", "v int64"];
    csv(&columns, content).await.is(&[], &["a.csv header_mismatch"]);
    load(&contract("format: csv, skip_rows: 1", &columns, ""), &[("a.csv", content)]).await.is(
        &["a.csv:1 1|2", "a.csv:3 3|4"],
        &["a.csv:2@4 id_invalid,v_invalid <id,v>", "a.csv:4@6 id_invalid <TOTAL,6>"],
    );
}
