use arrow::array::{Decimal128Array, Int64Array, StringArray};

use super::*;
use crate::decode::testing::{contract, decode_with};
use crate::decode::{DecodeError, Options};

fn judged(format: &str, rest: &str, content: &str) -> Judged {
    let contract = contract(&format!("format: {format}"), rest);
    let judge = Judge::new(&contract).unwrap();
    let options = Options { raw_columns: judge.raw_columns(), ..Options::default() };
    let decoded = decode_with(&contract, content.as_bytes(), 1 << 20, &options);
    let mut chunks = decoded.unwrap_or_else(|error: DecodeError| panic!("{error:?}")).chunks;
    assert_eq!(chunks.len(), 1);
    judge.judge(chunks.remove(0)).unwrap()
}

fn shown(judged: &Judged) -> String {
    let mut text = format!("{} of {} accepted\n", judged.rows.num_rows(), judged.records);
    for reject in &judged.rejects {
        text.push_str(&format!("{:?} line {:?} {:?}\n", reject.record.unwrap(), reject.line, reject.rules));
        for reason in &reject.reasons {
            let (column, value) = (reason.column.as_deref().unwrap_or("-"), reason.value.as_deref().unwrap_or("-"));
            text.push_str(&format!("    {column} {}: {value}\n", reason.rule));
        }
    }
    text
}

const COLUMNS: &str = "columns: [{ name: id, type: int64, nullable: false }, { name: price, type: \"decimal(10,2)\" }, { name: Email, type: string }]";

#[test]
fn every_rule_that_a_record_breaks_is_named() {
    let rest = format!(
        "{COLUMNS}\nrules:\n  - {{ name: positive, check: \"price > 0\" }}\n  - {{ name: mail, check: \"email like '%@%'\" }}\n  - {{ name: pair, check: \"price < 100 or id < 10\" }}"
    );
    let content = "id,price,Email\n1,2.00,a@b\nx,-1,ab\n,0,\n20,200,a@b\n5,,\n6,1,2,3\n";
    insta::assert_snapshot!(shown(&judged("csv", &rest, content)), @r#"
    2 of 6 accepted
    2 line Some(3) ["id_invalid", "positive", "mail"]
        id id_invalid: `x`: not an integer
        price positive: price = `-1.00`: not `price > 0`
        Email mail: Email = `ab`: not `email like '%@%'`
    3 line Some(4) ["id_missing", "positive"]
        id id_missing: null where a value is required
        price positive: price = `0.00`: not `price > 0`
    4 line Some(5) ["pair"]
        - pair: id = `20`, price = `200.00`: not `price < 100 or id < 10`
    6 line Some(7) ["field_count"]
        - field_count: expected 3 fields, got 4
    "#);
}

#[test]
fn a_rule_that_covers_a_column_speaks_for_it() {
    let rest = format!(
        "{COLUMNS}\nrules:\n  - {{ name: price_bad, check: \"raw.price is null or (price is not null and price >= 0)\", covers: [price] }}\n  - {{ name: id_bad, check: \"id is not null\", covers: [id] }}"
    );
    let content = "id,price,Email\n1,abc,\n2,-3,\n3,,\nx,1,\n";
    insta::assert_snapshot!(shown(&judged("csv", &rest, content)), @r#"
    0 of 4 accepted
    1 line Some(2) ["price_bad"]
        price price_bad: `abc`: not a number
    2 line Some(3) ["price_bad"]
        price price_bad: price = `-3.00`, raw.price = `-3`: not `raw.price is null or (price is not null and price >= 0)`
    3 line Some(4) ["price_bad"]
        price price_bad: price = null, raw.price = ``: not `raw.price is null or (price is not null and price >= 0)`
    4 line Some(5) ["id_bad"]
        id id_bad: `x`: not an integer
    "#);
}

#[test]
fn json_and_its_raw_values() {
    let rest = "columns: [{ name: a, type: int64 }]\nrules:\n  - { name: short, check: \"length(raw.a) < 3\" }";
    insta::assert_snapshot!(shown(&judged("ndjson", rest, "{\"a\":1}\n{\"a\":\"1000\"}\n{\"a\":{\"b\":1}}\n[]\n{}\n")), @r#"
    2 of 5 accepted
    2 line Some(2) ["short"]
        a short: raw.a = `1000`: not `length(raw.a) < 3`
    3 line Some(3) ["a_invalid", "short"]
        a a_invalid: `{"b":1}`: an object is no int64
        a short: raw.a = `{"b":1}`: not `length(raw.a) < 3`
    4 line Some(4) ["not_an_object"]
        - not_an_object: expected an object, found an array; with several records on a line use format: json
    "#);
}

#[test]
fn null_is_not_broken_and_warnings_stay() {
    let rest = format!(
        "{COLUMNS}\nrules:\n  - {{ name: cheap, check: \"price < 10\", on_fail: warn }}\n  - {{ name: known, check: \"id < 100\" }}"
    );
    let judged = judged("csv", &rest, "id,price,Email\n1,,\n2,50,\n3,5,\n400,60,\n");
    assert_eq!(judged.rows.num_rows(), 3);
    assert_eq!(judged.warned, BTreeMap::from([("cheap".to_owned(), 1)]));
    assert_eq!(judged.rejects[0].rules, ["cheap", "known"]);
    assert_eq!(judged.fail, None);
}

#[test]
fn a_rule_may_refuse_the_file() {
    let rest = format!("{COLUMNS}\nrules:\n  - {{ name: total, check: \"id <> 3\", on_fail: fail }}");
    let refusal = judged("csv", &rest, "id,price,Email\n1,,\n3,,\n3,,\n").fail.unwrap();
    insta::assert_snapshot!(refusal, @r#"total: record 2, line 3 breaks rule total, which refuses the file: id = `3`: not `id <> 3`"#);
    assert_eq!((refusal.line, refusal.byte_offset, refusal.column.as_deref()), (Some(3), Some(19), Some("id")));
}

#[test]
fn an_error_on_one_row_does_not_speak_for_its_neighbours() {
    let rest = "columns: [{ name: a, type: string }]\nrules:\n  - { name: small, check: \"cast(a as int) < 10\" }";
    let content: String = (0..100)
        .map(|row| match row {
            17 => "x\n".to_owned(),
            18 => "99\n".to_owned(),
            _ => format!("{}\n", row % 10),
        })
        .collect();
    let judged = judged("csv", rest, &format!("a\n{content}"));
    assert_eq!(judged.rows.num_rows(), 98);
    assert_eq!(judged.rejects.iter().map(|reject| reject.record.unwrap()).collect::<Vec<_>>(), [18, 19]);
    let value = judged.rejects[0].reasons[0].value.clone().unwrap();
    assert!(value.starts_with("a = `x`: `cast(a as int) < 10` cannot be evaluated: "), "{value}");
}

#[test]
fn a_rule_whose_arithmetic_does_not_fit_is_broken_by_that_record_alone() {
    let rest = "columns: [{ name: a, type: int64 }, { name: p, type: \"decimal(38,0)\" }]\nrules:\n  - { name: sum, check: \"a + 1 > 0\" }\n  - { name: product, check: \"p * 10 > 0\" }\n  - { name: ratio, check: \"10 / a > 0\" }";
    let huge = "9".repeat(38);
    let content = format!("a,p\n1,1\n9223372036854775807,1\n2,{huge}\n0,2\n3,3\n");
    insta::assert_snapshot!(shown(&judged("csv", rest, &content)), @r#"
    2 of 5 accepted
    2 line Some(3) ["sum", "ratio"]
        a sum: a = `9223372036854775807`: `a + 1 > 0` cannot be evaluated: `a + 1` does not fit into int64: Arithmetic overflow: Overflow happened on: 9223372036854775807 + 1
        a ratio: a = `9223372036854775807`: not `10 / a > 0`
    3 line Some(4) ["product"]
        p product: p = `99999999999999999999999999999999999999`: `p * 10 > 0` cannot be evaluated: `p * 10` does not fit into decimal(38,0): Arithmetic overflow: Overflow happened on: 99999999999999999999999999999999999999 * 10
    4 line Some(5) ["ratio"]
        a ratio: a = `0`: `10 / a > 0` cannot be evaluated: `10 / a` divides by zero
    "#);
}

#[test]
fn without_rules_and_faults_a_chunk_passes_unchanged() {
    let judged = judged("csv", "columns: [{ name: a, type: int64 }]", "a\n1\n2\n");
    assert_eq!((judged.rows.num_rows(), judged.records, judged.ignored), (2, 2, 0));
    assert!(judged.rejects.is_empty() && judged.warned.is_empty());
}

#[test]
fn parquet_rows_are_kept_as_json() {
    let contract = contract("format: parquet", "columns: [{ name: a, type: int64 }, { name: p, type: \"decimal(10,2)\" }]\nrules:\n  - { name: even, check: \"a % 2 = 0 and raw.x is null\" }".replace(" and raw.x is null", "").as_str());
    let batch = RecordBatch::try_from_iter([
        ("a", Arc::new(Int64Array::from(vec![Some(1), Some(2), None])) as ArrayRef),
        (
            "p",
            Arc::new(Decimal128Array::from(vec![150, 250, 999]).with_precision_and_scale(12, 2).unwrap()) as ArrayRef,
        ),
        ("x", Arc::new(StringArray::from(vec!["é", "", "z"])) as ArrayRef),
    ])
    .unwrap();
    let mut content = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut content, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let judge = Judge::new(&contract).unwrap();
    let mut chunks = decode_with(&contract, &content, 1 << 20, &Options::default()).unwrap().chunks;
    let judged = judge.judge(chunks.remove(0)).unwrap();
    assert_eq!(judged.rows.num_rows(), 2);
    let reject = &judged.rejects[0];
    assert_eq!(String::from_utf8_lossy(&reject.raw), "{\"a\":1,\"p\":1.50,\"x\":\"é\"}");
    assert_eq!((reject.record, reject.line, reject.byte_offset), (Some(1), None, None));
}

#[test]
fn mistakes_in_rules_are_errors_that_name_the_rule() {
    let mistake = |check: &str| {
        let mut contract = Contract::clone(&contract("format: csv", COLUMNS));
        contract.rules.push(crate::schema::Rule {
            name: "r".to_owned(),
            check: check.to_owned(),
            on_fail: OnFail::Quarantine,
            covers: Vec::new(),
        });
        let error = Judge::new(&contract).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Invalid);
        error.to_string()
    };
    let checks = [
        "fare >= 0",
        "price",
        "price >=",
        "1 = 1",
        "sum(price) > 1",
        "raw.nothing = ''",
        "random() < price",
        "id > 0 as x",
    ];
    insta::assert_snapshot!(checks.map(mistake).join("\n"), @r#"
    raw/t: rule r: Schema error: No field named fare. Valid fields are id, price, "Email", "raw.id", "raw.price", "raw.Email"
    raw/t: rule r: the check gives Decimal128(10, 2), not true or false
    raw/t: rule r: SQL error: ParserError("Expected: an expression, found: EOF")
    raw/t: rule r: the check names no column
    raw/t: rule r: the check cannot be answered from one record alone
    raw/t: rule r: Schema error: No field named "raw.nothing". Valid fields are id, price, "Email", "raw.id", "raw.price", "raw.Email"
    raw/t: rule r: the check gives another answer each time it is asked
    raw/t: rule r: the check has an alias
    "#);
    assert!(mistake("nofunc(id)").contains("Invalid function 'nofunc'"));
}
