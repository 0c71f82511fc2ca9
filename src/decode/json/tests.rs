use super::super::testing::{Decoded, contract, decode, decode_with, refusal};
use super::*;

fn ndjson(rest: &str) -> Arc<Contract> {
    contract("format: ndjson", rest)
}

fn lines(rest: &str, content: &str) -> Vec<String> {
    decode(&ndjson(rest), content.as_bytes()).lines()
}

#[test]
fn numbers_keep_every_digit() {
    // JSN-01, TYP-15
    let rest = "columns: [{ name: id, type: int64 }, { name: s, type: string }]";
    let content = concat!(
        "{\"id\":9007199254740993,\"s\":\"1344800117571260417\"}\n",
        "{\"id\":9223372036854775808,\"s\":\"x\"}\n",
        "{\"id\":3.0,\"s\":null}\n",
        "{\"id\":3.5}\n",
        "{\"id\":9007199254740993.0}\n",
        "{\"id\":1e19}\n",
    );
    insta::assert_snapshot!(lines(rest, content).join("\n"), @r#"
    9007199254740993|1344800117571260417|∅|1
    ∅|x|∅|2 !id Invalid 9223372036854775808
    3|∅|∅|3
    ∅|∅|∅|4 !id Invalid 3.5
    9007199254740993|∅|∅|5
    ∅|∅|∅|6 !id Invalid 1e19
    "#);
}

#[test]
fn types_that_change_between_lines() {
    // JSN-02
    let content = "{\"a\":0}\n{\"a\":0.5}\n{\"a\":\"7\"}\n{\"a\":{\"b\":1}}\n{\"a\":[1]}\n{\"a\":true}\n";
    insta::assert_snapshot!(lines("columns: [{ name: a, type: float64 }]", content).join("\n"), @r#"
    0.0|∅|1
    0.5|∅|2
    7.0|∅|3
    ∅|∅|4 !a Invalid {"b":1}
    ∅|∅|5 !a Invalid [1]
    ∅|∅|6 !a Invalid true
    "#);
}

#[test]
fn duplicate_keys_refuse_the_record() {
    // JSN-03; nested ones and those that only differ in case too
    let content = concat!(
        "{\"id\":1,\"id\":2}\n",
        "{\"id\":3,\"ID\":4}\n",
        "{\"ID\":5,\"x\":1}\n",
        "{\"id\":6,\"x\":1,\"x\":2}\n",
        "{\"id\":7,\"a\":{\"b\":1,\"b\":2}}\n",
        "{\"id\":8,\"x\":[{\"y\":1,\"y\":1}]}\n",
        "{\"id\":9,\"\\u0069d\":10}\n",
    );
    let rest = "columns: [{ name: id, type: int64 }, { name: a, type: \"struct<b:int32>\" }]\nunknown_columns: ignore";
    insta::assert_snapshot!(lines(rest, content).join("\n"), @r#"
    REJECT 1@0 duplicate_key: duplicate key id <{"id":1,"id":2}>
    REJECT 2@16 duplicate_key: duplicate key ID <{"id":3,"ID":4}>
    5|∅|3
    REJECT 4@47 duplicate_key: duplicate key x <{"id":6,"x":1,"x":2}>
    REJECT 5@68 duplicate_key: duplicate key a.b <{"id":7,"a":{"b":1,"b":2}}>
    REJECT 6@95 duplicate_key: duplicate key x[0].y <{"id":8,"x":[{"y":1,"y":1}]}>
    REJECT 7@124 duplicate_key: duplicate key id <{"id":9,"\u0069d":10}>
    "#);
}

#[test]
fn an_exactly_declared_name_is_no_duplicate_of_another() {
    let rest = "columns: [{ name: one, type: int64, from: id }, { name: two, type: int64, from: ID }]";
    assert_eq!(lines(rest, "{\"id\":3,\"ID\":4}\n"), ["3|4|∅|1"]);
}

#[test]
fn json_takes_arrays_pretty_values_and_several_on_a_line() {
    // JSN-04
    let json = contract("format: json", "columns: [{ name: id, type: int64 }]");
    for content in ["[{\"id\":1},{\"id\":2}]", "{\n \"id\": 1\n}\n{\n \"id\": 2 }", "{\"id\":1}{\"id\":2}\n"] {
        assert_eq!(decode(&json, content.as_bytes()).lines(), ["1|∅|1", "2|∅|2"], "{content}");
    }
    insta::assert_snapshot!(
        lines("columns: [{ name: id, type: int64 }]", "[{\"id\":1},{\"id\":2}]\n{\"id\":4}{\"id\":5}\n7\n\"x\"\nnull\n").join("\n"),
        @r#"
    REJECT 1@0 not_an_object: expected an object, found an array; with several records on a line use format: json <[{"id":1},{"id":2}]>
    REJECT 2@20 several_values: a second value begins at byte 8 of the record; with several records on a line use format: json <{"id":4}{"id":5}>
    REJECT 3@37 not_an_object: expected an object, found a number; with several records on a line use format: json <7>
    REJECT 4@39 not_an_object: expected an object, found a string; with several records on a line use format: json <"x">
    REJECT 5@43 not_an_object: expected an object, found null; with several records on a line use format: json <null>
    "#
    );
    assert_eq!(refusal(&json, b"[{\"id\":1},{\"id\":2").rule, "truncated_json");
    assert_eq!(refusal(&json, b"[{\"id\":1},{\"id\":2}").rule, "truncated_json");
    assert!(decode(&json, b" \n").chunks.is_empty());
}

#[test]
fn one_bad_element_does_not_stop_its_neighbours() {
    let json = contract("format: json", "columns: [{ name: id, type: int64 }]");
    let content = "[{\"id\":1},\n {\"id\":2,},\n 7, {\"id\": NaN},\n {\"id\":3}]";
    insta::assert_snapshot!(decode(&json, content.as_bytes()).lines().join("\n"), @r#"
    1|∅|1
    REJECT 2@12 json_syntax: trailing comma at byte 8 of the record, found `}` <{"id":2,}>
    REJECT 3@24 not_an_object: expected an object, found a number <7>
    REJECT 3@27 json_syntax: expected value at byte 7 of the record, found `NaN` <{"id": NaN}>
    3|∅|5
    "#);
}

#[test]
fn blank_lines_crlf_and_a_cut_last_line() {
    // JSN-05
    let content = "{\"id\":1}\r\n\r\n{\"id\":2}\n{\"id\":3,\"n\":\"Re";
    insta::assert_snapshot!(lines("columns: [{ name: id, type: int64 }]", content).join("\n"), @r#"
    1|∅|1
    2|∅|2
    REJECT 4@21 json_syntax: unexpected end at byte 15 of the record <{"id":3,"n":"Re>
    "#);
}

#[test]
fn missing_null_and_empty_are_three_things() {
    // JSN-07
    let rest = "columns: [{ name: id, type: int64, nullable: false }, { name: items, type: \"list<int32>\" }, { name: d, type: int32, default: \"7\" }]";
    let content =
        "{\"id\":1}\n{\"id\":2,\"items\":null,\"d\":null}\n{\"id\":3,\"items\":[]}\n{\"id\":4,\"items\":[null]}\n{}\n";
    insta::assert_snapshot!(lines(rest, content).join("\n"), @r#"
    1|∅|7|∅|1
    2|∅|∅|∅|2
    3|[]|7|∅|3
    4|[null]|7|∅|4
    ∅|∅|7|∅|5 !id Missing -
    "#);
}

#[test]
fn barewords_marks_and_trailing_commas() {
    // JSN-08
    let content =
        "\u{feff}{\"id\":1,\"f\":NaN}\n{\"id\":2,\"f\":2.0}\n{\"id\":3,} \n{'id':4}\n{\"id\":-Infinity}\n// no\n";
    let rest = "columns: [{ name: id, type: int64 }, { name: f, type: float64 }]";
    insta::assert_snapshot!(lines(rest, content).join("\n"), @r#"
    REJECT 1@3 json_syntax: expected value at byte 12 of the record, found `NaN` <{"id":1,"f":NaN}>
    2|2.0|∅|2
    REJECT 3@37 json_syntax: trailing comma at byte 8 of the record, found `}` <{"id":3,} >
    REJECT 4@48 json_syntax: key must be a string at byte 1 of the record, found `'` <{'id':4}>
    REJECT 5@57 json_syntax: invalid number at byte 7 of the record, found `Infinity` <{"id":-Infinity}>
    REJECT 6@74 json_syntax: expected value at byte 0 of the record, found `/` <// no>
    "#);
}

#[test]
fn unknown_fields_are_kept_however_deep() {
    // JSN-09
    let content = "{\"id\":1,\"a\":{\"b\":1}}\n{\"id\":2,\"new\":[1, 2],\"a\":{\"b\":2,\"c\":\"new\"},\"l\":[{\"x\":1},{\"x\":2,\"y\":3}]}\n";
    let columns = "columns: [{ name: id, type: int64 }, { name: a, type: \"struct<b:int32>\" }, { name: l, type: \"list<struct<x:int32>>\" }]";
    let rescued = decode(&ndjson(&format!("{columns}\nunknown_columns: rescue")), content.as_bytes());
    insta::assert_snapshot!(rescued.lines().join("\n"), @r#"
    1|{"b":1}|∅|∅|1
    2|{"b":2}|[{"x":1},{"x":2}]|{"new":[1, 2],"a.c":"new","l[1].y":3}|2
    "#);
    assert_eq!(rescued.unknown, ["new", "a.c", "l[].y"]);
    let ignored = decode(&ndjson(&format!("{columns}\nunknown_columns: ignore")), content.as_bytes());
    assert_eq!(ignored.unknown, rescued.unknown);
    let added = decode(&ndjson(&format!("{columns}\nunknown_columns: add")), content.as_bytes());
    insta::assert_snapshot!(added.lines().join("\n"), @r#"
    1|{"b":1}|∅|∅|∅|∅|1
    2|{"b":2}|[{"x":1},{"x":2}]|[1, 2]|new|[3]|2
    "#);
    let refused = refusal(&ndjson(&format!("{columns}\nunknown_columns: reject")), content.as_bytes());
    assert_eq!(
        (refused.rule.as_str(), refused.line, refused.column.as_deref()),
        ("unknown_column", Some(2), Some("new"))
    );
}

#[test]
fn added_columns_need_names_that_a_table_can_have() {
    let contract =
        ndjson("columns: [{ name: id, type: int64 }, { name: n, type: int64, from: m }]\nunknown_columns: add");
    for (content, column) in [("{\"a b\":1}", "a b"), ("{\"_row\":1}", "_row"), ("{\"n\":1}", "n"), ("{\"\":1}", "")] {
        let refused = refusal(&contract, content.as_bytes());
        assert_eq!((refused.rule.as_str(), refused.column.as_deref()), ("column_name", Some(column)), "{content}");
    }
    assert_eq!(refusal(&contract, b"{\"x\":1,\"X\":2}").rule, "duplicate_column");
    let later = decode(&contract, b"{\"id\":1}\n{\"id\":2,\"x\":\"a\"}\n{\"id\":3,\"X\":{\"y\":1}}\n");
    assert_eq!(later.lines(), ["1|∅|∅|1", "2|∅|a|2", "3|∅|{\"y\":1}|3"]);
}

#[test]
fn columns_are_found_by_path() {
    let rest = concat!(
        "columns:\n",
        "  - { name: city, type: string, from: [address.city, \"$.town\"] }\n",
        "  - { name: dotted, type: string, from: a.b }\n",
        "  - { name: price, type: int64, from: [price, Cost], default: \"0\" }\n",
        "unknown_columns: rescue",
    );
    let content = concat!(
        "{\"address\":{\"City\":\"Oslo\",\"zip\":1},\"price\":5}\n",
        "{\"address\":null,\"town\":\"Bergen\",\"a\":{\"b\":\"nested\"}}\n",
        "{\"address\":\"none\",\"a.b\":\"key\",\"cost\":9}\n",
        "{\"town\":\"Bod\\u00f8\"}\n",
    );
    insta::assert_snapshot!(lines(rest, content).join("\n"), @r#"
    Oslo|∅|5|{"address.zip":1}|1
    ∅|nested|0|∅|2
    ∅|key|9|{"address":"none"}|3
    Bodø|∅|0|∅|4
    "#);
}

#[test]
fn texts_that_are_no_text() {
    let content = b"{\"id\":1,\"s\":\"a\"}\n{\"id\":2,\"s\":\"Jos\xe9\"}\n{\"id\":3,\"s\":\"\\ud800\"}\n{\"id\":4,\"s\":\"a\\u0000b\"}\n";
    let contract = ndjson("columns: [{ name: id, type: int64 }, { name: s, type: string }]");
    let decoded = decode(&contract, content);
    insta::assert_snapshot!(decoded.lines().join("\n").replace('\0', "␀"), @r#"
    1|a|∅|1
    REJECT 2@17 not_utf8: byte 0xE9 at byte 16 of the record is not UTF-8 <{"id":2,"s":"Jos�"}>
    3|∅|∅|3 !s Invalid "\ud800"
    4|a␀b|∅|4
    "#);
    assert_eq!(decoded.chunks[0].rejects[0].raw, b"{\"id\":2,\"s\":\"Jos\xe9\"}");
}

#[test]
fn nesting_has_a_limit() {
    let deep = |depth: usize| format!("{{\"id\":1,\"x\":{}1{}}}\n", "[".repeat(depth), "]".repeat(depth));
    let contract = ndjson("columns: [{ name: id, type: int64 }]\nunknown_columns: ignore");
    assert_eq!(decode(&contract, deep(127).as_bytes()).lines(), ["1|1"]);
    for depth in [128, 100_000] {
        let decoded = decode(&contract, deep(depth).as_bytes());
        assert_eq!(decoded.chunks[0].rejects[0].rules, ["json_nesting"], "{depth}");
    }
    let objects = format!("{{\"id\":1,\"x\":{}1{}}}\n", "{\"y\":".repeat(50_000), "}".repeat(50_000));
    assert_eq!(decode(&contract, objects.as_bytes()).chunks[0].rejects[0].rules, ["json_nesting"]);
}

#[test]
fn raw_columns_are_the_text_or_the_json() {
    let contract = ndjson("columns: [{ name: a, type: string }, { name: b, type: int64 }]");
    let options = Options { raw_columns: vec![1], ..Options::default() };
    let content = b"{\"a\":\"x\",\"b\":\"1\\u0032\"}\n{\"b\":{\"c\": 1}}\n{\"b\":1.50}\n{\"b\":null}\n{}\n";
    let decoded = decode_with(&contract, content, 4096, &options).unwrap();
    let raw = &decoded.chunks[0].raw_columns;
    assert_eq!((raw.num_columns(), raw.schema().field(0).name().as_str()), (1, "b"));
    let texts: Vec<_> = (0..5).map(|row| super::super::value_text(raw.column(0), row).unwrap()).collect();
    let wanted = [Some("12"), Some("{\"c\": 1}"), Some("1.50"), None, None];
    assert_eq!(texts, wanted.map(|text| text.map(str::to_owned)));
}

/// Records, faults, rejects, lines, offsets and bytes do not depend on how the file is cut into chunks and reads.
#[test]
fn chunks_are_only_a_matter_of_memory() {
    let mut content = String::from("\n");
    for number in 0..200 {
        match number % 5 {
            0 => content.push_str(&format!("{{\"id\":{number},\"s\":\"{}\"}}\r\n", "y".repeat(number))),
            1 => content.push_str(&format!("{{\"id\":\"x{number}\"}}\n\n")),
            2 => content.push_str("{\"id\":}\n"),
            3 => content.push_str(&format!("  {{\"id\":{number},\"new{number}\":[1]}}\n")),
            _ => content.push_str(&format!("{{\"ID\":{number},\"s\":\"\\u00e9\"}}\n")),
        }
    }
    let places = |decoded: &Decoded| {
        let mut all = Vec::new();
        for chunk in &decoded.chunks {
            let Raw::Text { bytes, spans, lines, offsets } = &chunk.raw else { panic!("no text") };
            assert_eq!((spans.len(), lines.len(), offsets.len()), (chunk.rows.num_rows(), spans.len(), spans.len()));
            for ((span, line), offset) in spans.iter().zip(lines).zip(offsets) {
                let raw = bytes[span.0 as usize..span.1 as usize].to_vec();
                let at = usize::try_from(*offset).unwrap();
                assert_eq!(&content.as_bytes()[at..at + raw.len()], raw.as_slice());
                all.push((raw, *line));
            }
        }
        all
    };
    for format in ["format: ndjson", "format: json"] {
        let contract = contract(format, "columns: [{ name: id, type: int64 }, { name: s, type: string }]");
        let whole = decode(&contract, content.as_bytes());
        for (rows, bytes, step) in [(1, 1 << 20, 1), (7, 1 << 20, 5), (1_000, 300, 64), (16_384, 1, 4096)] {
            let options = Options { chunk_rows: rows, chunk_bytes: bytes, ..Options::default() };
            let parts = decode_with(&contract, content.as_bytes(), step, &options).unwrap();
            assert!(parts.chunks.len() > 1);
            assert_eq!(parts.lines(), whole.lines());
            assert_eq!(places(&parts), places(&whole));
            assert_eq!(parts.unknown, whole.unknown);
        }
    }
}
