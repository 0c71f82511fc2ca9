//! Values in the forms of every mode of the connector.

use super::*;

/// What a column of a type makes of a JSON value: the value, `null`, `placeholder`, or the rule that it breaks.
fn cell(settings: &str, value: &str) -> String {
    let contract = contract(&format!("columns: [{{ name: id, type: int64 }}, {{ name: c, {settings} }}]"));
    let rows = read(&contract, &[create(&format!(r#"{{"id":1,"c":{value}}}"#))]);
    assert_eq!(rows.num_rows(), 1, "{value}");
    let text = |name: &str| value_text(rows.column_by_name(name).unwrap(), 0).unwrap();
    match (text("_unavailable"), text("_broken"), text("c")) {
        (Some(_), None, None) => "placeholder".to_owned(),
        (None, Some(broken), None) => broken.trim_matches(['[', ']', '"']).to_owned(),
        (None, None, value) => value.unwrap_or_else(|| "null".to_owned()),
        other => panic!("{value}: {other:?}"),
    }
}

#[track_caller]
fn cells(settings: &str, cases: &[(&str, &str)]) {
    for (value, wanted) in cases {
        assert_eq!(cell(settings, value), *wanted, "{settings}: {value}");
    }
}

#[test]
fn decimals_of_every_mode() {
    // CDC-19
    cells(
        "type: \"decimal(12,2)\", encoding: base64",
        &[
            ("\"DxIG\"", "9876.54"),
            ("\"/u0=\"", "-2.75"),
            ("\"AIA=\"", "1.28"),
            ("\"/4A=\"", "-1.28"),
            ("\"AA==\"", "0.00"),
            ("\"AA\"", "0.00"),
            ("null", "null"),
            ("\"\"", "c_invalid"),
            ("\"1.50\"", "c_invalid"),
            ("1.5", "1.50"),
            ("\"f////////////////////w==\"", "c_invalid"),
            (r#"{"scale":3,"value":"AJxA"}"#, "40.00"),
            (r#"{"scale":3,"value":"AJxB"}"#, "c_invalid"),
        ],
    );
    cells(
        "type: \"decimal(12,2)\"",
        &[
            ("\"1E+3\"", "1000.00"),
            ("\"9876.54\"", "9876.54"),
            ("9876.54", "9876.54"),
            ("\"NaN\"", "c_invalid"),
            ("\"Infinity\"", "c_invalid"),
            ("\"DxIG\"", "c_invalid"),
            (r#"{"scale":0,"value":"Kg=="}"#, "42.00"),
            (r#"{"scale":-2,"value":"Kg=="}"#, "4200.00"),
            (r#"{"scale":3,"value":"AJxB"}"#, "c_invalid"),
            (r#"{"scale":3}"#, "c_invalid"),
            (r#"{"scale":3,"value":"AJxB","x":1}"#, "c_invalid"),
        ],
    );
    cells("type: \"decimal(12,3)\"", &[(r#"{"scale":3,"value":"AJxB"}"#, "40.001")]);
    cells("type: \"decimal(12,2)\", rounding: half_even", &[(r#"{"scale":3,"value":"AJxB"}"#, "40.00")]);
    cells("type: \"list<decimal(6,1)>\", encoding: base64", &[("[\"DQ==\",null,\"/w==\"]", "[1.3,null,-0.1]")]);
    cells("type: float64", &[("\"NaN\"", "NaN"), ("1.5", "1.5"), ("\"-Infinity\"", "-inf")]);
}

#[test]
fn times_of_every_mode() {
    // CDC-20: one instant, in every unit; without a unit a number is no time.
    let instant = "2024-02-29T23:59:58.123456Z";
    cells("type: timestamp, unit: ms", &[("1709251198123", "2024-02-29T23:59:58.123Z")]);
    cells(
        "type: timestamp, unit: us",
        &[
            ("1709251198123456", instant),
            ("\"2024-02-29T23:59:58.123456Z\"", instant),
            ("\"2024-03-01T00:59:58.123456+01:00\"", instant),
            ("-1", "1969-12-31T23:59:59.999999Z"),
            ("253402300800000000", "c_invalid"),
        ],
    );
    cells("type: timestamp, unit: ns", &[("1709251198123456000", instant), ("1709251198123456001", "c_invalid")]);
    cells("type: timestamp", &[("\"2024-02-29T23:59:58.123456Z\"", instant), ("1709251198123456", "c_invalid")]);
    cells("type: timestamp_ntz, unit: us", &[("1709251198123456", "2024-02-29T23:59:58.123456")]);
    cells("type: timestamp_ntz, unit: ms", &[("1709251198123", "2024-02-29T23:59:58.123")]);
    cells("type: date, unit: days", &[("19782", "2024-02-29"), ("\"2024-02-29\"", "2024-02-29"), ("-1", "1969-12-31")]);
    cells("type: date", &[("\"2024-02-29\"", "2024-02-29"), ("19782", "c_invalid")]);
    // A time of day has no type of its own: it stays what it is.
    cells("type: int64", &[("86398123456", "86398123456")]);
    cells("type: string", &[("\"23:59:58.123456Z\"", "23:59:58.123456Z")]);
}

#[test]
fn infinite_times_follow_their_rule() {
    let (future, past) = ("9223372036825200000", "-9223372036832400000");
    for (settings, future, past) in [
        ("type: timestamp, unit: us", future, past),
        ("type: timestamp, unit: ms", "9223372036825200", "-9223372036832400"),
        ("type: timestamp, unit: ms", future, past),
        ("type: timestamp, unit: ns", "9223372036854775807", "-9223372036854775808"),
        ("type: timestamp", "\"infinity\"", "\"-infinity\""),
        ("type: timestamp", "\"+294247-01-10T04:00:25.200Z\"", "\"-290308-12-21T19:59:27.600Z\""),
        ("type: timestamp", "\"+292278994-08-16T23:00:00Z\"", "\"-292275055-05-16T23:00:00Z\""),
        ("type: timestamp_ntz, unit: us", future, past),
        ("type: date, unit: days", "2146033979", "-2147472692"),
        ("type: date", "\"infinity\"", "\"-infinity\""),
        ("type: date", "\"+5877611-06-21\"", "\"-5877611-06-22\""),
    ] {
        cells(settings, &[(future, "c_invalid"), (past, "c_invalid")]);
        cells(&format!("{settings}, on_infinity: null"), &[(future, "null"), (past, "null")]);
        let max = format!("{settings}, on_infinity: max");
        assert!(cell(&max, future).starts_with("9999-12-31"), "{max}");
        assert!(cell(&max, past).starts_with("0001-01-01"), "{max}");
    }
    // A day that the database has and the calendar here has not.
    cells("type: date, unit: days, on_infinity: null", &[("2145042905", "c_invalid")]);
}

#[test]
fn bytes_documents_lists_and_maps() {
    cells("type: binary", &[("\"AP8=\"", "0x00ff"), ("\"AP8\"", "0x00ff"), ("\"!\"", "c_invalid"), ("\"\"", "")]);
    cells("type: binary, encoding: hex", &[("\"00fF\"", "0x00ff"), ("\"0\"", "c_invalid")]);
    cells("type: binary, encoding: base64url", &[("\"-_8=\"", "0xfbff")]);
    cells("type: binary, encoding: text", &[("\"ab\"", "ab")]);
    cells("type: \"list<binary>\"", &[("[\"AP8=\",null]", "[\"0x00ff\",null]")]);
    cells(
        "type: string",
        &[
            ("\"5e2a8c1e-0b1d-4b9e-8f3a-000000000001\"", "5e2a8c1e-0b1d-4b9e-8f3a-000000000001"),
            (r#""{\"a\": 1}""#, r#"{"a": 1}"#),
            ("5", "5"),
            (r#"{"a":1}"#, "c_invalid"),
            (r#""\ud83d""#, "c_invalid"),
            ("\"a\\u0000b\"", "a\0b"),
        ],
    );
    // JSON comes as a text, and may be read as what it holds.
    cells(
        "type: \"struct<a:int32,b:list<string>>\"",
        &[
            (r#""{\"a\": 1, \"b\": [\"x\"], \"c\": 2}""#, r#"{"a":1,"b":["x"]}"#),
            (r#"{"a":1,"b":null}"#, r#"{"a":1,"b":null}"#),
            (r#""{""#, "c_invalid"),
            (r#""null""#, "null"),
        ],
    );
    cells("type: \"map<string,string>\"", &[(r#""{\"k\":\"v\"}""#, r#"{"k":"v"}"#), (r#"{"k":"v"}"#, r#"{"k":"v"}"#)]);
    cells("type: \"list<int64>\"", &[("[1,null,3]", "[1,null,3]"), ("[1,\"x\"]", "c_invalid"), ("[]", "[]")]);
    cells("type: boolean", &[("true", "true"), ("\"false\"", "false"), ("1", "c_invalid")]);
}

#[test]
fn placeholders_in_every_type() {
    // CDC-01, CDC-02
    let codes = "__debezium_unavailable_value".bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(",");
    for (settings, value) in [
        ("type: string", "\"__debezium_unavailable_value\"".to_owned()),
        ("type: string, nullable: false", "\"__debezium_unavailable_value\"".to_owned()),
        ("type: \"decimal(12,2)\"", "\"__debezium_unavailable_value\"".to_owned()),
        ("type: int64", "\"__debezium_unavailable_value\"".to_owned()),
        ("type: binary", "\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\"".to_owned()),
        ("type: binary, encoding: hex", "\"5f5f646562657a69756d5f756e617661696c61626c655f76616c7565\"".to_owned()),
        ("type: \"list<string>\"", "[\"__debezium_unavailable_value\"]".to_owned()),
        ("type: \"list<int32>\"", format!("[{codes}]")),
        ("type: \"struct<a:int32>\"", "\"__debezium_unavailable_value\"".to_owned()),
    ] {
        assert_eq!(cell(settings, &value), "placeholder", "{settings}: {value}");
    }
    let declared = contract(&format!("unavailable_value: gone\n{COLUMNS}"));
    let rows = read(
        &declared,
        &[create(r#"{"id":1,"v":"gone","n":1}"#), create(r#"{"id":1,"v":"__debezium_unavailable_value","n":1}"#)],
    );
    let place = ["_partition", "_offset", "_ts_ms", "_lsn", "_rank", "_digest", "_event", "_topic"];
    assert_eq!(
        shown_without(&rows, &place),
        [r#"id=1 n=1 _unavailable=["v"] _key={"id":1} _op=c"#, "id=1 v=__debezium_unavailable_value n=1",]
    );
}
