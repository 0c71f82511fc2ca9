//! Every form in which a change comes, and the row that is kept of it.

mod properties;
mod rules;
mod shop;
mod types;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use super::*;
use crate::decode::debezium::{EventRows, Place};
use crate::decode::value_text;
use crate::schema::lineage::FILE;
use crate::schema::yaml;

const COLUMNS: &str = "columns: [{ name: id, type: int64 }, { name: v, type: string }, { name: n, type: int32 }]";

/// A contract of changes of `public.t`.
fn contract(rest: &str) -> Contract {
    let key = if rest.contains("primary_key") { "" } else { "primary_key: [id]\n" };
    let text = format!("version: 1\ntable: silver/t\nfrom: bronze/shop\nsource_table: public.t\n{key}{rest}\n");
    yaml::parse("schemas/silver/t.yaml", &text).unwrap_or_else(|found| panic!("{found:?}")).0
}

/// Lines of a file of events, kept.
fn kept(lines: &[String]) -> RecordBatch {
    let mut rows = EventRows::default();
    for (at, line) in (1..).zip(lines) {
        rows.push(line.as_bytes(), Place::Line { record: at, line: at, byte_offset: 0 });
    }
    let rows = rows.finish().unwrap().rows;
    let file: ArrayRef = Arc::new(StringArray::from(vec!["shop/a.ndjson"; rows.num_rows()]));
    let mut fields: Vec<_> = rows.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(FILE, DataType::Utf8, true)));
    let columns = rows.columns().iter().cloned().chain([file]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn read(contract: &Contract, lines: &[String]) -> RecordBatch {
    let images = Images::new(contract).unwrap();
    let rows = images.read(&kept(lines)).unwrap();
    assert_eq!(rows.schema(), *images.schema());
    assert_eq!(*images.schema(), stored::state_schema(contract).unwrap());
    rows
}

/// The rows, a line each: every column that is not null, in the batch's order, without what `hidden` names.
fn shown_without(rows: &RecordBatch, hidden: &[&str]) -> Vec<String> {
    let schema = rows.schema();
    let line = |row: usize| {
        let cells = schema
            .fields()
            .iter()
            .zip(rows.columns())
            .filter(|(field, array)| !hidden.contains(&field.name().as_str()) && !array.is_null(row));
        let texts =
            cells.map(|(field, array)| format!("{}={}", field.name(), value_text(array, row).unwrap().unwrap()));
        texts.collect::<Vec<_>>().join(" ")
    };
    (0..rows.num_rows()).map(line).collect()
}

fn shown(rows: &RecordBatch) -> Vec<String> {
    shown_without(rows, &["_digest"])
}

/// Only the contract's columns.
fn values(contract: &Contract, lines: &[String]) -> Vec<String> {
    let rows = read(contract, lines);
    let schema = rows.schema();
    let hidden: Vec<&str> =
        schema.fields().iter().map(|field| field.name().as_str()).filter(|name| name.starts_with('_')).collect();
    shown_without(&rows, &hidden)
}

const SOURCE: &str = r#""source":{"version":"3.6","ts_ms":5000,"schema":"public","table":"t","txId":7,"lsn":100}"#;

fn envelope(op: &str, before: &str, after: &str) -> String {
    format!(r#"{{"before":{before},"after":{after},{SOURCE},"transaction":null,"op":"{op}","ts_ms":5001}}"#)
}

fn record(key: &str, value: &str) -> String {
    format!(r#"{{"topic":"lake.public.t","partition":2,"offset":41,"timestamp":5001,"key":{key},"value":{value}}}"#)
}

fn create(after: &str) -> String {
    record(r#"{"id":1}"#, &envelope("c", "null", after))
}

#[test]
fn each_kind_of_change_gives_its_row() {
    let contract = contract(COLUMNS);
    let (key, row) = (r#"{"id":1}"#, r#"{"id":1,"v":"a","n":3}"#);
    let lines = [
        record(key, &envelope("r", "null", row)),
        record(key, &envelope("u", row, row)),
        // CDC-18: what else a delete says of its row counts for nothing.
        record(key, &envelope("d", r#"{"id":1,"v":null,"n":null}"#, "null")),
        record(key, &envelope("d", "null", "null")),
        // CDC-15
        record("null", &envelope("t", "null", "null")),
        // Bare values: the key is in the row, the place is the line.
        envelope("c", "null", row),
        envelope("d", r#"{"id":1}"#, "null"),
        envelope("t", "null", "null"),
        // CDC-05, CDC-16: tombstones and the like, and other tables.
        record(key, "null"),
        record(key, r#"{"ts_ms":1}"#),
        record(key, r#"{"op":"m","source":{"ts_ms":9,"lsn":7,"table":""},"message":{"prefix":"hb"}}"#),
        record(key, &envelope("c", "null", row).replace(r#""table":"t""#, r#""table":"u""#)),
        record(key, &envelope("c", "null", row).replace(r#""schema":"public""#, r#""schema":"other""#)),
        "no event".to_owned(),
    ];
    insta::assert_snapshot!(shown(&read(&contract, &lines)).join("\n"), @r"
    id=1 _ts_ms=5000 _lsn=100 _rank=0 _partition=2 _offset=41 v=a n=3
    id=1 _ts_ms=5000 _lsn=100 _rank=2 _partition=2 _offset=41 v=a n=3
    id=1 _ts_ms=5000 _lsn=100 _rank=3 _partition=2 _offset=41
    id=1 _ts_ms=5000 _lsn=100 _rank=3 _partition=2 _offset=41
    _ts_ms=5000 _lsn=100 _rank=4 _partition=2 _offset=41
    id=1 _ts_ms=5000 _lsn=100 _rank=1 _file=shop/a.ndjson _row=6 v=a n=3
    id=1 _ts_ms=5000 _lsn=100 _rank=3 _file=shop/a.ndjson _row=7
    _ts_ms=5000 _lsn=100 _rank=4 _file=shop/a.ndjson _row=8
    ");
}

#[test]
fn every_envelope_gives_the_same_row() {
    // CDC-23
    let contract = contract(COLUMNS);
    let row = r#"{"id":1,"v":"a\"\u00e9","n":3}"#;
    let wrapped =
        |payload: &str| format!(r#"{{"schema":{{"type":"struct","fields":[{{"after":1}}]}},"payload":{payload}}}"#);
    let plain = envelope("u", r#"{"id":1,"v":"old","n":2}"#, row);
    let flat = r#""__op":"u","__table":"t","__schema":"public","__source_ts_ms":5000,"__source_lsn":100}"#;
    let flat = format!("{},{flat}", &row[..row.len() - 1]);
    let forms = [
        plain.clone(),
        wrapped(&plain),
        record(r#"{"id":1}"#, &plain),
        record(&wrapped(r#"{"id":1}"#), &wrapped(&plain)),
        flat.clone(),
        wrapped(&flat),
        record(r#"{"id":1}"#, &flat),
        record(r#"{"id":1}"#, &wrapped(&flat)),
        // Members in another order, blanks, escaped names, columns that are named like parts of an event.
        format!(
            r#" {{ "op" : "u" , {SOURCE} , "aft\u0065r" : {{ "n" : 3 , "v" : "a\"é" , "id" : 1 }} , "before" : null }} "#
        ),
        plain.replace(r#""n":3"#, r#""n":3,"after":{"id":9},"value":{"after":{"id":8}},"payload":{},"topic":"x""#),
        flat.replace(
            r#""n":3"#,
            r#""n":3,"after":{"id":9},"value":{"after":{"id":8}},"payload":{"after":{}},"topic":"x""#,
        ),
        record(r#"{"id":1}"#, &flat.replace(r#""n":3"#, r#""n":3,"after":{"id":9},"payload":{"__op":"d"}"#)),
    ];
    let rows = read(&contract, &forms);
    assert_eq!(rows.num_rows(), forms.len(), "one row each");
    let place = ["_partition", "_offset", "_file", "_row"];
    for (form, row) in forms.iter().zip(shown_without(&rows, &place)) {
        let digest = row.split("_digest=").nth(1).unwrap();
        assert_eq!(row, format!("id=1 _ts_ms=5000 _lsn=100 _rank=2 v=a\"é n=3 _digest={digest}"), "{form}");
    }
    // The same row is no tie of itself, however it came.
    let digests = rows.column_by_name("_digest").unwrap().as_primitive::<arrow::datatypes::Int64Type>();
    assert!(digests.values().windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
}

#[test]
fn a_delete_may_be_flattened() {
    // CDC-23
    let contract = contract(COLUMNS);
    let flat = |deleted: &str| {
        format!(
            r#"{{"id":1,"v":null,{deleted},"__table":"t","__schema":"public","__source_ts_ms":5000,"__source_lsn":7}}"#
        )
    };
    let lines =
        [flat(r#""__op":"d""#), flat(r#""__deleted":"true""#), record(r#"{"id":1}"#, &flat(r#""__deleted":true"#))];
    for row in shown_without(&read(&contract, &lines), &["_partition", "_offset", "_file", "_row"]) {
        assert_eq!(row, "id=1 _ts_ms=5000 _lsn=7 _rank=3");
    }
}

#[test]
fn a_changed_key_is_a_delete_of_the_old_one_too() {
    // CDC-06
    let contract = contract(&format!("primary_key: [id, n]\n{COLUMNS}"));
    let row = |id: &str, n: &str| format!(r#"{{"id":{id},"v":"a","n":{n}}}"#);
    let change = |before: &str, after: &str| envelope("u", before, after);
    for (before, is_changed) in [
        (row("3", "1"), true),
        (row("4", "2"), true),
        (row("4", "1"), false),
        (row("4.0", "1"), false),
        // Not complete, or no key at all.
        (row("null", "1"), false),
        (r#"{"n":1}"#.to_owned(), false),
        (row("\"x\"", "1"), false),
        ("null".to_owned(), false),
    ] {
        let bare = change(&before, &row("4", "1"));
        let lines = [bare.clone(), record(r#"{"id":4,"n":1}"#, &bare)];
        let rows = shown_without(&read(&contract, &lines), &["_digest", "_file", "_row", "_partition", "_offset"]);
        let upsert = "id=4 n=1 _ts_ms=5000 _lsn=100 _rank=2 v=a".to_owned();
        let one = if is_changed {
            let old =
                before.replace(r#","v":"a""#, "").replace(['{', '}', '"'], "").replace(':', "=").replace(',', " ");
            vec![upsert, format!("{old} _ts_ms=5000 _lsn=100 _rank=3")]
        } else {
            vec![upsert]
        };
        assert_eq!(rows, [one.clone(), one].concat(), "{before}");
    }
}

#[test]
fn what_is_no_change_of_this_table_is_kept_as_malformed() {
    let contract = contract(&format!("primary_key: [id, n]\n{COLUMNS}"));
    let good = r#"{"id":1,"v":"a","n":3}"#;
    let flat = r#"{"id":1,"n":3,"__op":"c","__table":"t","__schema":"public","__lsn":7}"#;
    let lines = [
        // CDC-17, SCD-07: a null in a key column, a key column that is not there, a value that is none.
        envelope("c", "null", r#"{"id":null,"v":"a","n":3}"#),
        envelope("c", "null", r#"{"id":1,"v":"a","n":null}"#),
        envelope("c", "null", r#"{"id":1,"v":"a"}"#),
        envelope("d", r#"{"id":1}"#, "null"),
        record(r#"{"id":1}"#, &envelope("c", "null", good)),
        record(r#"{"id":"x","n":3}"#, &envelope("c", "null", good)),
        record(r#"{"id":1,"n":3.5}"#, &envelope("d", good, "null")),
        // One name twice: nothing says which is meant.
        envelope("c", "null", r#"{"id":1,"n":3,"v":"a","v":"b"}"#),
        envelope("c", "null", r#"{"id":1,"n":3,"n":3}"#),
        record(r#"{"id":1,"n":3,"id":1}"#, &envelope("c", "null", good)),
        // A position that the contract orders by and the transform did not add.
        flat.to_owned(),
    ];
    let rows = read(&contract, &lines);
    let events = rows.column_by_name("_event").unwrap().as_binary::<i32>();
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(String::from_utf8_lossy(events.value(at)), *line);
    }
    let place = ["_partition", "_offset", "_file", "_row", "_event", "_digest", "_topic"];
    for (row, line) in shown_without(&rows, &place).iter().zip(&lines) {
        assert_eq!(row, r#"_rank=5 _broken=["event_malformed"]"#, "{line}");
    }
    let digests = rows.column_by_name("_digest").unwrap().as_primitive::<arrow::datatypes::Int64Type>();
    let distinct: std::collections::BTreeSet<i64> = digests.iter().flatten().collect();
    assert_eq!(distinct.len(), lines.len());
}

#[test]
fn what_a_delete_says_of_its_row_counts_for_nothing() {
    // CDC-18: the default replica identity sends nulls beside the key.
    let contract = contract(
        "columns: [{ name: id, type: int64 }, { name: name, type: string, nullable: false }, { name: amt, type: \"decimal(9,2)\", encoding: base64 }]\nrules: [{ name: named, check: name is not null }]",
    );
    let lines = [
        create(r#"{"id":1,"name":"Ann","amt":"DxIG"}"#),
        record(r#"{"id":1}"#, &envelope("d", r#"{"id":1,"name":null,"amt":null}"#, "null")),
        envelope("d", r#"{"id":1,"name":null,"amt":"broken"}"#, "null"),
    ];
    let rows = shown_without(&read(&contract, &lines), &["_digest", "_partition", "_offset", "_file", "_row"]);
    assert_eq!(
        rows,
        [
            "id=1 _ts_ms=5000 _lsn=100 _rank=1 name=Ann amt=9876.54",
            "id=1 _ts_ms=5000 _lsn=100 _rank=3",
            "id=1 _ts_ms=5000 _lsn=100 _rank=3",
        ]
    );
}

#[test]
fn columns_come_and_go_and_change_their_type() {
    // CDC-22
    let contract = contract("columns: [{ name: id, type: int64 }, { name: a, type: int32 }]");
    let lines = [
        r#"{"id":1,"a":1}"#,
        r#"{"id":2,"a":2,"b":"x"}"#,
        r#"{"id":1,"a":1,"b":"y"}"#,
        r#"{"id":3,"b":"z"}"#,
        r#"{"id":4,"a":"7"}"#,
        r#"{"id":5,"a":"q7"}"#,
    ];
    let rows = read(&contract, &lines.map(|row| envelope("c", "null", row)));
    let hidden = ["_ts_ms", "_lsn", "_rank", "_file", "_row", "_digest", "_event", "_op", "_key"];
    assert_eq!(
        shown_without(&rows, &hidden),
        ["id=1 a=1", "id=2 a=2", "id=1 a=1", "id=3", "id=4 a=7", r#"id=5 _broken=["a_invalid"]"#,]
    );
}

#[test]
fn other_fields_may_order_the_changes() {
    let contract = contract(&format!("sequence_by: [source.lsn, source.txId]\n{COLUMNS}"));
    let rows = read(&contract, &[create(r#"{"id":1}"#)]);
    assert_eq!(shown(&rows), ["id=1 _lsn=100 _txId=7 _ts_ms=5000 _rank=1 _partition=2 _offset=41"]);
    // Without it the position is not whole.
    let line = create(r#"{"id":1}"#).replace(r#""txId":7,"#, "");
    assert_eq!(
        shown_without(&read(&contract, &[line]), &["_event", "_digest"]),
        [r#"_rank=5 _partition=2 _offset=41 _broken=["event_malformed"] _topic=lake.public.t"#]
    );
}

#[test]
fn a_column_may_have_another_name_in_the_database() {
    let contract = contract(
        "columns: [{ name: id, type: int64, from: kunde_id }, { name: v, type: string, from: [neu, alt] }, { name: n, type: int64, default: 7 }]",
    );
    let change = |row: &str| envelope("c", "null", row);
    let lines = [
        change(r#"{"kunde_id":1,"alt":"a","n":null}"#),
        change(r#"{"kunde_id":2,"neu":"b","alt":"a"}"#),
        change(r#"{"kunde_id":3,"neu":null,"alt":"a","V":"x","id":9}"#),
        record(r#"{"kunde_id":4}"#, &change(r#"{"kunde_id":4}"#)),
    ];
    assert_eq!(values(&contract, &lines), ["id=1 v=a", "id=2 v=b n=7", "id=3 n=7", "id=4 n=7"]);
}

#[test]
fn ties_are_told_by_the_digest() {
    let contract = contract(COLUMNS);
    let rows = [
        "{\"id\":1,\"v\":\"a\",\"n\":1}",
        "{\"n\":1,\"v\":\"\\u0061\",\"id\":1,\"other\":5}",
        "{\"id\":1,\"v\":\"b\",\"n\":1}",
        "{\"id\":1,\"v\":\"a\"}",
        "{\"id\":1,\"v\":\"a\",\"n\":null}",
        "{\"id\":1,\"v\":\"1\",\"n\":null}",
        "{\"id\":1,\"v\":1,\"n\":null}",
    ];
    let rows = read(&contract, &rows.map(create));
    let digests = rows.column_by_name("_digest").unwrap().as_primitive::<arrow::datatypes::Int64Type>();
    let same = |a: usize, b: usize| digests.value(a) == digests.value(b);
    assert!(same(0, 1) && same(3, 4));
    assert!(!same(0, 2) && !same(0, 3) && !same(5, 6));
}
