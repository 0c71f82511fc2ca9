//! Every form in which a change event comes, and what it says of itself.

use std::io::{Cursor, Write as _};

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::{Int32Type, Int64Type};
use proptest::prelude::*;

use super::*;
use crate::decode::{DecodeError, Options};

const SOURCE: &str =
    r#""source":{"connector":"postgresql","ts_ms":5000,"schema":"public","table":"customers","txId":7,"lsn":100}"#;

/// `kind table op key ts_ms lsn tx_id @topic/partition/offset`, with `-` for what is not said; a reason ends the line.
fn told(line: &str) -> String {
    let facts = read(line.as_bytes());
    let kind = match &facts.kind {
        Kind::Change => "change",
        Kind::Ignored => "ignored",
        Kind::Malformed(_) => "malformed",
    };
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let number = |number: Option<i64>| or(number.map(|number| number.to_string()));
    let place = facts
        .topic
        .as_deref()
        .map(|topic| format!("@{topic}/{}/{}", number(facts.partition.map(i64::from)), number(facts.offset)));
    let mut told = format!(
        "{kind} {} {} {} {} {} {} {}",
        or(facts.table),
        facts.op.unwrap_or("-"),
        facts.key.as_deref().unwrap_or("-"),
        number(facts.ts_ms),
        number(facts.lsn),
        number(facts.tx_id),
        or(place),
    );
    if let Kind::Malformed(reason) = &facts.kind {
        told.push_str(&format!(": {reason}"));
    }
    told
}

fn record(key: &str, value: &str) -> String {
    format!(
        r#"{{"topic":"lake.public.customers","partition":2,"offset":41,"timestamp":5001,"key":{key},"value":{value}}}"#
    )
}

fn change(op: &str, before: &str, after: &str) -> String {
    format!(r#"{{"before":{before},"after":{after},{SOURCE},"transaction":null,"op":"{op}","ts_ms":5001}}"#)
}

fn wrapped(payload: &str) -> String {
    format!(r#"{{"schema":{{"type":"struct","fields":[{{"field":"op"}}]}},"payload":{payload}}}"#)
}

#[test]
fn records_of_a_topic() {
    const PLACE: &str = "@lake.public.customers/2/41";
    let key = r#"{"id":1}"#;
    let row = r#"{"id":1,"name":"Ann"}"#;
    let about = |op: &str, key: &str| format!("change public.customers {op} {key} 5000 100 7 {PLACE}");
    let cases = [
        // Every kind of change.
        (record(key, &change("r", "null", row)), about("r", key)),
        (record(key, &change("c", "null", row)), about("c", key)),
        (record(key, &change("u", row, row)), about("u", key)),
        (record(key, &change("d", row, "null")), about("d", key)),
        // CDC-18: a delete whose `before` has no more than the key, or is not sent at all.
        (record(key, &change("d", r#"{"id":1,"name":null}"#, "null")), about("d", key)),
        (record(key, &change("d", "null", "null")), about("d", key)),
        // CDC-15
        (record("null", &change("t", "null", "null")), about("t", "-")),
        (record(key, &change("t", "null", "null")), about("t", "-")),
        // CDC-23: with the schema part, of the value, of the key, of both.
        (record(key, &wrapped(&change("u", "null", row))), about("u", key)),
        (record(&wrapped(key), &wrapped(&change("u", "null", row))), about("u", key)),
        // Keys are compact and lose no digit.
        (
            record(r#"{ "order_id": 12345678901234567890.10, "line": "a\u00e9 b" }"#, &change("u", "null", row)),
            about("u", r#"{"order_id":12345678901234567890.10,"line":"aé b"}"#),
        ),
        // CDC-05, CDC-16: nothing of these changes a row.
        (record(key, "null"), format!("ignored - - {key} - - - {PLACE}")),
        (record(&wrapped(key), &wrapped("null")), format!("ignored - - {key} - - - {PLACE}")),
        (record("null", "null"), format!("ignored - - - - - - {PLACE}")),
        (record(key, r#"{"ts_ms":1}"#), format!("ignored - - - - - - {PLACE}")),
        (record(key, &wrapped(r#"{"ts_ms":1}"#)), format!("ignored - - - - - - {PLACE}")),
        (record(key, r#"{"status":"BEGIN","id":"571:1","ts_ms":1}"#), format!("ignored - - - - - - {PLACE}")),
        (record(key, r#"{"status":"END","id":"571:1","event_count":2}"#), format!("ignored - - - - - - {PLACE}")),
        (
            record(key, &format!(r#"{{{SOURCE},"ddl":"COMMENT","tableChanges":[]}}"#)),
            format!("ignored - - - - - - {PLACE}"),
        ),
        (record(key, r#"{"tableChanges":[]}"#), format!("ignored - - - - - - {PLACE}")),
        (
            record(
                r#"{"prefix":"hb"}"#,
                r#"{"op":"m","source":{"ts_ms":9,"lsn":7,"table":""},"message":{"prefix":"hb"}}"#,
            ),
            format!("ignored - m - 9 7 - {PLACE}"),
        ),
        (record(key, r#"{"op":"m"}"#), format!("ignored - m - - - - {PLACE}")),
    ];
    for (line, wanted) in cases {
        assert_eq!(told(&line), wanted, "{line}");
    }
}

#[test]
fn bare_values() {
    let row = r#"{"id":1}"#;
    for (line, wanted) in [
        (change("c", "null", row), "change public.customers c - 5000 100 7 -"),
        (change("d", row, "null"), "change public.customers d - 5000 100 7 -"),
        (change("t", "null", "null"), "change public.customers t - 5000 100 7 -"),
        (wrapped(&change("u", "null", row)), "change public.customers u - 5000 100 7 -"),
        ("null".to_owned(), "ignored - - - - - - -"),
        (" null\r".to_owned(), "ignored - - - - - - -"),
        (wrapped("null"), "ignored - - - - - - -"),
        (r#"{"ts_ms":1}"#.to_owned(), "ignored - - - - - - -"),
        // A record that brings no key: its key is that of the value, as of an event hub's events.
        (
            format!(r#"{{"topic":"hub","partition":0,"offset":5,"timestamp":1,"value":{}}}"#, change("c", "null", row)),
            "change public.customers c - 5000 100 7 @hub/0/5",
        ),
        (r#"{"topic":"hub","partition":0,"offset":6,"value":null}"#.to_owned(), "ignored - - - - - - @hub/0/6"),
        // Other databases say no schema.
        (
            r#"{"before":null,"after":{"id":1},"source":{"ts_ms":1,"db":"shop","table":"t","lsn":2},"op":"c"}"#.to_owned(),
            "change shop.t c - 1 2 - -",
        ),
        (
            r#"{"after":{"id":1},"source":{"ts_ms":1,"schema":"a\u00e9","table":"t \"x\"","lsn":2,"txId":"3"},"op":"c"}"#.to_owned(),
            "change aé.t \"x\" c - 1 2 - -",
        ),
    ] {
        assert_eq!(told(&line), wanted, "{line}");
    }
}

#[test]
fn flattened_rows() {
    let flat = |added: &str| format!(r#"{{"id":1,"op":"not ours","source":"web","v":"a",{added}}}"#);
    let key = r#"{"id":1}"#;
    const AT: &str = r#""__source_ts_ms":5000,"__source_lsn":7"#;
    let cases = [
        (
            record(key, &flat(&format!(r#""__op":"u","__table":"t",{AT}"#))),
            "change t u {\"id\":1} 5000 7 - @lake.public.customers/2/41",
        ),
        // The table is the topic's last part for this form alone.
        (
            record(key, &flat(&format!(r#""__op":"c",{AT}"#))),
            "change customers c {\"id\":1} 5000 7 - @lake.public.customers/2/41",
        ),
        (
            flat(&format!(r#""__op":"r","__table":"t","__schema":"public","__source_txId":3,{AT}"#)),
            "change public.t r - 5000 7 3 -",
        ),
        // CDC-23: a delete that was rewritten to a row.
        (
            record(key, &flat(&format!(r#""__op":"d","__deleted":"true",{AT}"#))),
            "change customers d {\"id\":1} 5000 7 - @lake.public.customers/2/41",
        ),
        (flat(&format!(r#""__deleted":true,"__table":"t",{AT}"#)), "change t d - 5000 7 - -"),
        (flat(&format!(r#""__deleted":"false","__table":"t",{AT}"#)), "change t u - 5000 7 - -"),
        (flat(r#""__op":"c","__table":"t","__lsn":7"#), "change t c - - 7 - -"),
        (wrapped(&flat(&format!(r#""__op":"u","__table":"t",{AT}"#))), "change t u - 5000 7 - -"),
        // A row that has columns named like parts of a record.
        (format!(r#"{{"topic":"x","value":3,"__op":"u","__table":"t",{AT}}}"#), "change t u - 5000 7 - -"),
        (
            flat(r#""__op":"c","__table":"t""#),
            "malformed - - - - - - -: no source position: let the transform add source.ts_ms and source.lsn",
        ),
        (
            flat(r#""__op":"c","__table":"t","__source_lsn":"7""#),
            "malformed - - - - - - -: `__source_lsn` is no whole number",
        ),
        (
            flat(r#""__op":"c","__source_lsn":7"#),
            "malformed - - - - - - -: `__table` names no table, and there is no topic that does",
        ),
        (
            flat(r#""__deleted":"maybe","__table":"t""#),
            "malformed - - - - - - -: `__deleted` is neither true nor false",
        ),
    ];
    for (line, wanted) in cases {
        assert_eq!(told(&line), wanted, "{line}");
    }
}

#[test]
fn what_is_no_event_says_why_and_keeps_its_place() {
    let key = r#"{"id":1}"#;
    let row = r#"{"id":1}"#;
    let good = change("u", "null", row);
    let without = |from: &str, to: &str| {
        let changed = good.replace(from, to);
        assert_ne!(changed, good);
        record(key, &changed)
    };
    for (line, reason) in [
        (record("null", &good), "the record's key is null"),
        (record("7", &good), "the record's key is no object of key columns"),
        (record("{}", &good), "the record's key has no column"),
        (record(r#"{"id":null}"#, &good), "key column `id` is null"),
        (record(r#"{"a":1,"b":null}"#, &change("d", row, "null")), "key column `b` is null"),
        (record(key, &change("u", row, "null")), "`after` is no row on op `u`"),
        (record(key, &change("c", "null", "[1]")), "`after` is no row on op `c`"),
        (record(key, &change("x", "null", row)), "`op` is \"x\", which is none of Debezium's"),
        (record(key, &change("C", "null", row)), "`op` is \"C\", which is none of Debezium's"),
        (without("\"op\":\"u\",", ""), "there is no `op`: this is no change event"),
        (without("\"op\":\"u\"", "\"op\":null"), "there is no `op`: this is no change event"),
        (without(",\"lsn\":100", ""), "`source.lsn` is no whole number"),
        (without("\"lsn\":100", "\"lsn\":\"100\""), "`source.lsn` is no whole number"),
        (without("\"lsn\":100", "\"lsn\":1e2"), "`source.lsn` is no whole number"),
        (without("\"lsn\":100", "\"lsn\":9223372036854775808"), "`source.lsn` is no whole number"),
        (without("\"ts_ms\":5000", "\"ts_ms\":5000.0"), "`source.ts_ms` is no whole number"),
        (without("\"table\":\"customers\"", "\"table\":\" \""), "`source.table` names no table"),
        (without("\"table\":\"customers\"", "\"table\":7"), "`source.table` names no table"),
        (record(key, r#"{"op":"u","after":{},"source":"x"}"#), "`source` is no JSON object"),
        (record(key, "[]"), "`value` is no JSON object"),
        (record(key, "\"text\""), "`value` is no JSON object"),
        (record(key, r#"{"status":"PENDING"}"#), "there is no `op`: this is no change event"),
        (record(key, r#"{"ts_ms":1,"more":2}"#), "there is no `op`: this is no change event"),
        (record(key, &wrapped("[1]")), "`payload` is no JSON object"),
        (record(key, r#"{"op":"u","op":"c"}"#), "`value` is no JSON object: `op` is there twice"),
    ] {
        let told = told(&line);
        let wanted = format!("malformed - - - - - - @lake.public.customers/2/41: {reason}");
        assert!(told.starts_with(&wanted), "{line}\n{told}\n{wanted}");
    }
    for (line, wanted) in [
        ("", "malformed - - - - - - -: the line ends early"),
        (
            "{\"topic\":\"t\",\"partition\":0,\"offset\":3,\"value\":{\"be",
            "malformed - - - - - - -: the line ends early",
        ),
        ("7", "malformed - - - - - - -: the line is no JSON object"),
        ("{} {}", "malformed - - - - - - -: the line is no JSON object"),
        ("{'op':1}", "malformed - - - - - - -: the line is no JSON object"),
        ("{}", "malformed - - - - - - -: there is no `op`"),
        (
            r#"{"topic":"t","partition":0,"value":null}"#,
            "malformed - - - - - - @t/0/-: the record has no usable `offset`",
        ),
        (
            r#"{"topic":"t","partition":"0","offset":1,"value":null}"#,
            "malformed - - - - - - @t/-/1: the record has no usable `partition`",
        ),
        (
            r#"{"topic":"t","partition":0,"offset":1.5,"value":null}"#,
            "malformed - - - - - - @t/0/-: the record has no usable `offset`",
        ),
        (
            r#"{"topic":"","partition":0,"offset":1,"value":null}"#,
            "malformed - - - - - - -: the record has no usable `topic`",
        ),
        (
            r#"{"topic":"t","partition":0,"offset":1,"key":null}"#,
            "malformed - - - - - - @t/0/1: the record has no usable `value`",
        ),
        (
            r#"{"op":"c","after":null,"source":{"table":"t","ts_ms":1,"lsn":2}}"#,
            "malformed - - - - - - -: `after` is no row on op `c`",
        ),
        (
            r#"{"op":"d","before":null,"source":{"table":"t","ts_ms":1,"lsn":2}}"#,
            "malformed - - - - - - -: `before` is no row on op `d`",
        ),
    ] {
        let told = told(line);
        assert!(told.starts_with(wanted), "{line}\n{told}\n{wanted}");
    }
    let facts = read(b"{\"op\":\"c\xff\"}");
    assert_eq!(facts.kind, Kind::Malformed("byte 0xFF at byte 8 is not UTF-8".to_owned()));
}

#[test]
fn depth_is_no_danger() {
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(200_000), close.repeat(200_000));
    let row = format!(r#"{{"id":1,"x":{}}}"#, deep("[", "]"));
    assert!(told(&record(r#"{"id":1}"#, &change("c", "null", &row))).starts_with("change"));
    let key = format!(r#"{{"id": {}}}"#, deep("[", "]"));
    assert!(told(&record(&key, &change("c", "null", "{}"))).starts_with("change"));
    let payloads = deep("{\"payload\":", "}");
    assert!(told(&payloads).starts_with("malformed"));
}

fn decoded(content: Vec<u8>, options: &Options) -> Vec<Events> {
    let mut file = EventFile::open(Box::new(Cursor::new(content)), options).unwrap_or_else(|error| panic!("{error:?}"));
    let mut all = Vec::new();
    while let Some(events) = file.next_events().unwrap_or_else(|error| panic!("{error:?}")) {
        all.push(events);
    }
    all
}

fn lines(all: &[Events]) -> Vec<Vec<u8>> {
    let of = |events: &Events| {
        let column = events.rows.column(0).as_binary::<i32>().clone();
        (0..column.len()).map(move |row| column.value(row).to_vec()).collect::<Vec<_>>()
    };
    all.iter().flat_map(of).collect()
}

#[test]
fn a_file_gives_every_line_byte_for_byte() {
    let good = record(r#"{"id":1}"#, &change("c", "null", r#"{"id":1,"name":"sep\u2028\u0000"}"#));
    let broken = b"{\"topic\":\"t\",\"part\xffition\":0".to_vec();
    let mut content = b"\xef\xbb\xbf".to_vec();
    content.extend(format!("{good}\n\n{good}\r\nnull\n{}\u{2028}\n", good.replace("Ann", "\u{2028}")).into_bytes());
    content.extend(&broken);
    let whole = decoded(content.clone(), &Options::default());
    let expected: Vec<Vec<u8>> = vec![
        good.clone().into_bytes(),
        good.clone().into_bytes(),
        b"null".to_vec(),
        format!("{good}\u{2028}").into_bytes(),
        broken.clone(),
    ];
    let mut expected_lines = expected.clone();
    expected_lines[1].push(b'\r');
    assert_eq!(lines(&whole), expected_lines);
    let [events] = whole.as_slice() else { panic!("one chunk") };
    assert_eq!(events.ignored, [2]);
    let [trailing, cut] = events.malformed.as_slice() else { panic!("{:?}", events.malformed) };
    assert!(trailing.reason.contains("trailing"), "{}", trailing.reason);
    // A blank line is no record but a line.
    assert_eq!((cut.row, cut.record, cut.line), (4, Some(5), Some(6)));
    assert_eq!(cut.event, broken);
    let offset = usize::try_from(cut.byte_offset.unwrap()).unwrap();
    assert_eq!(content[offset..], broken);
    let rows = &events.rows;
    let number = |name: &str| rows.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
    assert_eq!(number("_row").values(), &[1, 2, 3, 4, 5]);
    assert_eq!(number("_offset").iter().collect::<Vec<_>>(), [Some(41), Some(41), None, None, None]);
    assert_eq!(rows.column_by_name("_partition").unwrap().as_primitive::<Int32Type>().value(0), 2);
    for step in 1..4 {
        let options = Options { chunk_rows: step, ..Options::default() };
        assert_eq!(lines(&decoded(content.clone(), &options)), expected_lines);
    }

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&content).unwrap();
    assert_eq!(lines(&decoded(gzip.finish().unwrap(), &Options::default())), expected_lines);
    assert_eq!(lines(&decoded(zstd::encode_all(content.as_slice(), 1).unwrap(), &Options::default())), expected_lines);
    assert!(decoded(Vec::new(), &Options::default()).is_empty());
}

#[test]
fn a_file_that_is_broken_as_a_whole_is_refused() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let noise: Vec<u8> = (0..100_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    gzip.write_all(&noise).unwrap();
    let mut cut = gzip.finish().unwrap();
    cut.truncate(cut.len() / 2);
    let mut file =
        EventFile::open(Box::new(Cursor::new(cut)), &Options::default()).unwrap_or_else(|error| panic!("{error:?}"));
    let refusal = loop {
        match file.next_events() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the file ended well"),
            Err(DecodeError::Refused(refusal)) => break refusal,
            Err(DecodeError::Read(error)) => panic!("{error}"),
        }
    };
    assert_eq!(refusal.rule, "truncated_gzip");
}

proptest! {
    #[test]
    fn any_bytes_are_a_row_and_nothing_else_happens(content in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..20)) {
        let content: Vec<Vec<u8>> = content.into_iter()
            .map(|line| line.into_iter().filter(|byte| *byte != b'\n').collect::<Vec<u8>>())
            .filter(|line| !line.iter().all(u8::is_ascii_whitespace))
            .collect();
        let mut rows = EventRows::default();
        for (offset, line) in (100_i64..).zip(&content) {
            rows.push(line, Place::Record { topic: "t", partition: 3, offset });
        }
        let events = rows.finish().unwrap();
        let offsets = events.rows.column_by_name("_offset").unwrap().as_primitive::<Int64Type>();
        prop_assert!(offsets.iter().eq((100_i64..).take(content.len()).map(Some)));
        prop_assert_eq!(lines(std::slice::from_ref(&events)), content.clone());
        // Random bytes are next to never an event, and each that is none is named once.
        prop_assert!(events.malformed.len() + events.ignored.len() <= content.len());
        for malformed in &events.malformed {
            prop_assert_eq!(&malformed.event, &content[malformed.row]);
        }
    }

    #[test]
    fn values_of_any_kind_never_break_the_reader(value in "[{}\\[\\]\",:a1opnulsrcefty_ ]{0,60}") {
        let _ = told(&value);
        let _ = told(&record(&value, &value));
        let _ = told(&record("{\"id\":1}", &value));
    }
}
