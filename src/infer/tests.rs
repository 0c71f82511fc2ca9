use std::io::Cursor;

use super::*;
use crate::decode::testing::decode;

fn inferred(content: &[u8], file_name: &str) -> String {
    let table: TableName = "raw/t".parse().unwrap();
    let text = infer(Box::new(Cursor::new(content.to_vec())), file_name, &table).unwrap();
    loads(&text, content);
    text
}

/// The text is a contract without a mistake, and takes every record that it was made from.
fn loads(text: &str, content: &[u8]) {
    let (contract, found) = crate::schema::yaml::parse("t.yaml", text)
        .unwrap_or_else(|found| panic!("{text}\n{:?}", found.iter().map(|one| &one.message).collect::<Vec<_>>()));
    assert!(found.is_empty(), "{text}\n{:?}", found.iter().map(|one| &one.message).collect::<Vec<_>>());
    let decoded = decode(&Arc::new(contract), content);
    assert!(decoded.chunks.iter().all(|chunk| chunk.faults.is_empty()), "{text}\n{:?}", decoded.lines());
}

#[test]
fn csv() {
    let content = concat!(
        "trip id;zip;at;day;fare;km;ok;note;empty;n;Ort\r\n",
        "1;00501;2024-01-02 03:04:05;2024-01-02;12,50;1.5;true;x;;NA;NA\r\n",
        "2;02134;2024-01-03 03:04:05;2024-01-03;1.012,5;1e3;FALSE;\"a;b\";;4;Oslo\r\n",
        "3;99999;2024-01-04 03:04:05;;0,25;2;true;;;5;Bodø\r\n",
    );
    insta::assert_snapshot!(inferred(content.as_bytes(), "trips.csv"), @r#"
    # A first contract, inferred from 3 records of trips.csv. Read it before you trust it:
    # types and `nullable: false` say what these records had, not what the next file will have.
    version: 1
    table: raw/t
    source:
      path: "t/**/*.csv*"
      format: csv
      header: true
      delimiter: ";"
    columns:
      - { name: trip_id, type: int64, from: "trip id", nullable: false }
      - { name: zip, type: string, nullable: false }                                      # text, because leading zeros would be lost
      - { name: at, type: timestamp_ntz, nullable: false }                                # without a zone; declare timezone and type timestamp if it is an instant
      - { name: day, type: date }
      - { name: fare, type: "decimal(10,2)", nullable: false, decimal_separator: ",", group_separator: "." }
      - { name: km, type: float64, nullable: false }
      - { name: ok, type: boolean, nullable: false }
      - { name: note, type: string }
      - { name: empty, type: string }                                                     # always empty in the sample
      - { name: "n", type: int64, null_values: ["", "NA"] }
      - { name: Ort, type: string, nullable: false }                                      # kept as text: NA; list it in null_values if it means null
    # primary_key: [...]          # what makes a row one row
    write_mode: append           # append | upsert | overwrite
    unknown_columns: rescue      # rescue | add | ignore | reject
    # rules:
    #   - { name: ..., check: "...", on_fail: quarantine }   # quarantine | warn | fail
    "#);
}

#[test]
fn texts_take_the_narrowest_type_that_takes_them_all() {
    let cases: [(&[&str], &str); 20] = [
        (&["1", "-7", "9223372036854775807"], "int64"),
        (&["1", "9223372036854775808"], "\"decimal(38,0)\""),
        (&["007", "1"], "string"),
        (&["1.50", "12.25"], "\"decimal(10,2)\""),
        (&["1.50", "12.5"], "float64"),
        (&["1.5", "2.5"], "float64"),
        (&["1.23456", "2"], "float64"),
        (&["1e5", "2"], "float64"),
        (&["1.5", "NaN"], "float64"),
        (&["true", "False"], "boolean"),
        (&["yes", "no"], "string"),
        (&["2024-02-29", "1999-12-31"], "date"),
        (&["2023-02-29"], "string"),
        (&["2024-01-01T00:00:00Z", "2024-01-01T00:00:00+05:30"], "timestamp"),
        (&["2024-01-01 00:00:00"], "timestamp_ntz"),
        (&["2024-01-01T00:00:00Z", "2024-01-01T00:00:00"], "string"),
        (&["25/12/2024", "01/02/2024"], "date, format: \"%d/%m/%Y\""),
        (&["03/04/2024"], "string"),
        (&["NA", "x"], "string"),
        (&["NA", "3", "N/A"], "int64, null_values: [\"\", \"NA\", \"N/A\"]"),
    ];
    for (texts, wanted) in cases {
        let content = format!("v,w\n{}", texts.iter().map(|text| format!("{text},x\n")).collect::<String>());
        let text = inferred(content.as_bytes(), "v.csv");
        let line = text.lines().find(|line| line.contains("name: v,")).unwrap();
        let found = line.split("type: ").nth(1).unwrap();
        assert!(
            found.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(" }")
                || rest.starts_with(", nullable: false }")
                || rest.starts_with(", nullable: false, format"))
                || line.contains(&wanted.replace(", format", ", nullable: false, format")),
            "{texts:?}: {line}"
        );
    }
}

#[test]
fn delimiters_encodings_and_absent_headers() {
    for (content, wanted) in [
        (&b"a\tb\n1\t2\n"[..], "delimiter: \"\\t\""),
        (b"a|b\n1|2\n", "delimiter: \"|\""),
        (b"a,b\n\"x;y;z\",2\n", "header: true"),
        (b"n\nJos\xe9\n", "encoding: windows-1252"),
        (b"1,2\n3,4\n", "header: false"),
        (b"\xEF\xBB\xBFa,b\n1,2\n", "name: a,"),
        (b"a\n1\n", "name: a,"),
    ] {
        let text = inferred(content, "x.csv");
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn json() {
    let content = concat!(
        "{\"id\":9007199254740993,\"at\":\"2024-01-01T00:00:00Z\",\"tags\":[\"a\"],\"geo\":{\"lat\":1.5,\"lon\":2},\"mix\":1}\n",
        "{\"id\":2,\"at\":\"2024-01-01T00:00:01Z\",\"tags\":[],\"geo\":null,\"mix\":[1],\"zip\":\"00501\",\"Unit Price\":1}\n",
    );
    insta::assert_snapshot!(inferred(content.as_bytes(), "x.ndjson"), @r#"
    # A first contract, inferred from 2 records of x.ndjson. Read it before you trust it:
    # types and `nullable: false` say what these records had, not what the next file will have.
    # `mix` is not declared, and kept in _rescued: no type takes `[1]`: an array is no string.
    version: 1
    table: raw/t
    source:
      path: "t/**/*.ndjson*"
      format: ndjson
    columns:
      - { name: id, type: int64, nullable: false }
      - { name: at, type: timestamp, nullable: false }
      - { name: tags, type: "list<string>", nullable: false }
      - { name: geo, type: "struct<lat:float64,lon:int64>" }
      - { name: zip, type: string }
      - { name: unit_price, type: int64, from: "Unit Price" }
    # primary_key: [...]          # what makes a row one row
    write_mode: append           # append | upsert | overwrite
    unknown_columns: rescue      # rescue | add | ignore | reject
    # rules:
    #   - { name: ..., check: "...", on_fail: quarantine }   # quarantine | warn | fail
    "#);
    let array = inferred(b"[{\"a\":true},\n{\"a\":null}]", "x.json");
    assert!(array.contains("format: json\n") && array.contains("{ name: a, type: boolean }"), "{array}");
    let mixed = "{\"id\":1}\n{\"id\":\"A2\"}\n";
    let text = inferred(mixed.as_bytes(), "x.ndjson");
    assert!(text.contains("{ name: id, type: string, nullable: false }"), "{text}");
    assert!(text.contains("numbers and strings in the sample: kept as text"), "{text}");
    loads(&text, mixed.as_bytes());
}

#[test]
fn parquet() {
    use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array};
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef),
        ("u", Arc::new(UInt64Array::from(vec![1, u64::MAX]))),
        ("s", Arc::new(StringArray::from(vec!["a", "b"]))),
        ("ts", Arc::new(TimestampNanosecondArray::from(vec![1, 2]))),
    ])
    .unwrap();
    let mut content = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut content, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    insta::assert_snapshot!(inferred(&content, "x.parquet"), @r#"
    # A first contract, inferred from 2 records of x.parquet. Read it before you trust it:
    # types and `nullable: false` say what these records had, not what the next file will have.
    version: 1
    table: raw/t
    source:
      path: "t/**/*.parquet*"
      format: parquet
    columns:
      - { name: id, type: int32 }
      - { name: u, type: "decimal(20,0)", nullable: false }
      - { name: s, type: string, nullable: false }
      - { name: ts, type: timestamp_ntz, nullable: false, rounding: down }  # digits beyond microseconds are dropped
    # primary_key: [...]          # what makes a row one row
    write_mode: append           # append | upsert | overwrite
    unknown_columns: rescue      # rescue | add | ignore | reject
    # rules:
    #   - { name: ..., check: "...", on_fail: quarantine }   # quarantine | warn | fail
    "#);
}

#[test]
fn nothing_to_learn_from_is_an_error() {
    let table: TableName = "raw/t".parse().unwrap();
    for (content, name) in
        [(&b""[..], "a.csv"), (b"id,x\n", "b.csv"), (b"", "c.ndjson"), (b"PAR1", "d.parquet"), (b"a,a\n1,2\n", "e.csv")]
    {
        let error = infer(Box::new(Cursor::new(content.to_vec())), name, &table).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Invalid, "{error}");
        assert!(error.to_string().starts_with(name), "{error}");
    }
}
