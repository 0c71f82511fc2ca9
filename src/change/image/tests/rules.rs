//! Rules: what each row breaks, what is left open by placeholders, and the answer when they are known.

use super::*;

const RULES: &str = "columns: [{ name: id, type: int64 }, { name: price, type: \"decimal(10,2)\", nullable: false }, { name: doc, type: string }]
rules:
  - { name: price_bad, check: \"raw.price is not null and regexp_like(raw.price, '^[0-9.]+$')\", covers: [price] }
  - { name: doc_long, check: \"length(doc) < 5\" }
  - { name: doc_spelled, check: \"raw.doc <> 'bad' or price > 5\", covers: [price] }
  - { name: no_reads, check: \"op <> 'r'\" }
  - { name: in_time, check: \"source.ts_ms < 6000 and Source.LSN > 50\" }";

/// For each row the rules that it breaks, with what else is kept of it when it does.
fn broken(rows: &RecordBatch) -> Vec<String> {
    let place = [
        "id",
        "_partition",
        "_offset",
        "_rank",
        "_digest",
        "_event",
        "_topic",
        "_ts_ms",
        "_lsn",
        "price",
        "doc",
        "_raw_price",
        "_raw_doc",
    ];
    shown_without(rows, &place)
}

#[test]
fn rows_are_judged_by_what_came_and_by_the_event() {
    let contract = contract(RULES);
    let key = r#"{"id":1}"#;
    let lines = [
        create(r#"{"id":1,"price":"1.50","doc":"abc"}"#),
        create(r#"{"id":1,"price":"+1.50","doc":"abcde"}"#),
        create(r#"{"id":1,"price":"x","doc":null}"#),
        create(r#"{"id":1,"price":null}"#),
        create(r#"{"id":1,"price":1.505,"doc":"a"}"#),
        record(key, &envelope("r", "null", r#"{"id":1,"price":"2","doc":"bad"}"#)),
        record(key, &envelope("u", "null", r#"{"id":1,"price":"2"}"#).replace("5000", "6000")),
        record(key, &envelope("u", "null", r#"{"id":1,"price":"2"}"#).replace(":100", ":50")),
        // A delete is never judged.
        record(key, &envelope("d", r#"{"id":1,"price":"x","doc":"abcdefg"}"#, "null").replace("5000", "6000")),
    ];
    insta::assert_snapshot!(broken(&read(&contract, &lines)).join("\n"), @r#"
    _broken=["doc_long","price_bad"] _key={"id":1} _op=c
    _broken=["price_bad"] _key={"id":1} _op=c
    _broken=["price_bad"] _key={"id":1} _op=c
    _broken=["price_invalid"] _key={"id":1} _op=c
    _broken=["doc_spelled","no_reads"] _key={"id":1} _op=r
    _broken=["in_time"] _key={"id":1} _op=u
    _broken=["in_time"] _key={"id":1} _op=u
    "#);
}

#[test]
fn the_quarantined_key_is_as_it_came() {
    let contract = contract(
        "primary_key: [b, a]\ncolumns: [{ name: a, type: string }, { name: b, type: string, from: bee }, { name: n, type: int32, nullable: false }]",
    );
    let row = r#"{ "a" : "x\u0079 z", "bee": "é", "n": null}"#;
    let key = r#"{ "a" : "x\u0079 z", "bee": "é" }"#;
    let rows = read(&contract, &[record(key, &envelope("c", "null", row)), envelope("c", "null", row)]);
    let keys = rows.column_by_name("_key").unwrap().as_string::<i32>();
    assert_eq!([keys.value(0), keys.value(1)], [r#"{"a":"xy z","bee":"é"}"#, r#"{"bee":"é","a":"xy z"}"#]);
}

#[test]
fn rules_wait_for_the_values_of_placeholders() {
    // CDC-04
    let contract = contract(RULES);
    let gone = "\"__debezium_unavailable_value\"";
    let lines = [
        create(&format!(r#"{{"id":1,"price":"2","doc":{gone}}}"#)),
        create(&format!(r#"{{"id":1,"price":"x","doc":{gone}}}"#)),
        create(&format!(r#"{{"id":1,"price":{gone},"doc":"abcdef"}}"#)),
        create(&format!(r#"{{"id":1,"price":{gone},"doc":"bad"}}"#)),
    ];
    let rows = read(&contract, &lines);
    insta::assert_snapshot!(broken(&rows).join("\n"), @r#"
    _unavailable=["doc"] _key={"id":1} _op=c
    _unavailable=["doc"] _broken=["price_bad"] _faults=["price_invalid"] _key={"id":1} _op=c
    _unavailable=["price"] _broken=["doc_long"] _key={"id":1} _op=c
    _unavailable=["price"] _key={"id":1} _op=c
    "#);

    // With the values of an earlier row in their place.
    let resolved = |doc: Option<&str>, price: Option<(i128, &str)>| {
        let schema = rows.schema();
        let columns = schema.fields().iter().zip(rows.columns()).map(|(field, array)| -> ArrayRef {
            let texts = |at: [usize; 2], text: Option<&str>| -> ArrayRef {
                let known = array.as_string::<i32>();
                Arc::new(
                    (0..4)
                        .map(|row| if at.contains(&row) { text } else { known.is_valid(row).then(|| known.value(row)) })
                        .collect::<StringArray>(),
                )
            };
            match field.name().as_str() {
                "doc" | "_raw_doc" => texts([0, 1], doc),
                "_raw_price" => texts([2, 3], price.map(|(_, text)| text)),
                "price" => {
                    let known = array.as_primitive::<arrow::datatypes::Decimal128Type>();
                    let of = |row: usize| {
                        if row > 1 {
                            price.map(|(units, _)| units)
                        } else {
                            known.is_valid(row).then(|| known.value(row))
                        }
                    };
                    Arc::new(
                        (0..4)
                            .map(of)
                            .collect::<arrow::array::Decimal128Array>()
                            .with_precision_and_scale(10, 2)
                            .unwrap(),
                    )
                }
                _ => Arc::clone(array),
            }
        });
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap();
        Images::new(&contract).unwrap().rejudge(&rows).unwrap()
    };
    let names = |rules: &[&[&str]]| {
        rules.iter().map(|rules| rules.iter().map(ToString::to_string).collect()).collect::<Vec<Vec<String>>>()
    };
    assert_eq!(resolved(Some("abc"), Some((600, "6"))), names(&[&[], &["price_bad"], &["doc_long"], &[]]));
    assert_eq!(
        resolved(Some("bad"), Some((400, "+4"))),
        names(&[&["doc_spelled"], &["price_bad"], &["doc_long", "price_bad"], &["doc_spelled", "price_bad"],])
    );
    assert_eq!(
        resolved(Some("abcdef"), Some((600, "6"))),
        names(&[&["doc_long"], &["doc_long", "price_bad"], &["doc_long"], &[]])
    );
}

#[test]
fn a_rule_that_warns_refuses_nothing() {
    let contract = contract(&format!("{COLUMNS}\nrules: [{{ name: small, check: \"n < 3\", on_fail: warn }}]"));
    let rows = read(&contract, &[create(r#"{"id":1,"n":5}"#)]);
    assert!(rows.column_by_name("_broken").unwrap().is_null(0));
}

#[test]
fn mistakes_in_rules_are_told_when_they_are_compiled() {
    for check in ["missing > 1", "source.nothing > 1", "sum(n) > 1", "n"] {
        let contract = contract(COLUMNS);
        let rule = crate::schema::Rule {
            name: "r".to_owned(),
            check: check.to_owned(),
            on_fail: crate::schema::OnFail::Quarantine,
            covers: Vec::new(),
        };
        let error = Images::new(&Contract { rules: vec![rule], ..contract }).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Invalid, "{check}");
        assert!(error.to_string().contains("silver/t: rule r"), "{error}");
    }
}
