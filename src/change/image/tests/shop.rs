//! The shop's contracts as they are shipped, against their rules written out by hand.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

const TS_MS: i64 = 1_709_251_200_000;
const DAY_MICROS: i64 = 86_400_000_000;

fn shipped(table: &str) -> Contract {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/silver/{table}.yaml"));
    let text = std::fs::read_to_string(path).unwrap();
    yaml::parse(&format!("schemas/silver/{table}.yaml"), &text).unwrap_or_else(|found| panic!("{found:?}")).0
}

fn text(row: &Map<String, Value>, column: &str) -> Option<String> {
    row.get(column).and_then(Value::as_str).map(str::to_owned)
}

fn is_blank(text: Option<&String>) -> bool {
    text.is_none_or(|text| text.chars().all(|c| c == ' '))
}

/// Cents of a text of up to ten digits and at most two after the point, each spelled out.
fn cents(text: Option<&String>) -> Option<i64> {
    let text = text?;
    let (sign, digits) = text.strip_prefix('-').map_or((1, text.as_str()), |digits| (-1, digits));
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) if (1..=2).contains(&fraction.len()) => (whole, fraction),
        Some(_) => return None,
        None => (digits, ""),
    };
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !(1..=10).contains(&whole.len()) || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    Some(sign * format!("{whole}{fraction:0<2}").parse::<i64>().unwrap())
}

fn is_email(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.contains(['@', ' ', '\t', '\r', '\n']);
    let Some((local, domain)) = text.split_once('@') else { return false };
    let inner = domain
        .char_indices()
        .filter(|(_, c)| *c == '.')
        .any(|(at, _)| is_part(&domain[..at]) && is_part(&domain[at + 1..]));
    is_part(local) && inner
}

/// Names of the rules that a row breaks.
fn expected(table: &str, row: &Map<String, Value>) -> Vec<&'static str> {
    let mut broken = Vec::new();
    let mut rule = |name: &'static str, is_broken: bool| broken.extend(is_broken.then_some(name));
    let number = |column: &str| row.get(column).and_then(Value::as_i64);
    match table {
        "customers" => {
            let email = text(row, "email");
            rule(
                "customer_email_invalid",
                !is_blank(email.as_ref()) && !is_email(email.as_deref().unwrap_or_default()),
            );
            rule("customer_email_missing", is_blank(email.as_ref()));
            rule("customer_name_missing", is_blank(text(row, "name").as_ref()));
            let segment = text(row, "segment");
            rule(
                "customer_segment_unknown",
                !["consumer", "corporate", "smb", "vip"].contains(&segment.as_deref().unwrap_or_default()),
            );
        }
        "products" => {
            let price = cents(text(row, "price").as_ref());
            rule("product_price_malformed", price.is_none());
            rule("product_price_not_positive", price.is_some_and(|price| price <= 0));
            rule("product_sku_missing", is_blank(text(row, "sku").as_ref()));
        }
        "orders" => {
            let total = cents(text(row, "total").as_ref());
            rule("order_customer_missing", number("customer_id").is_none());
            let statuses = ["pending", "paid", "shipped", "delivered", "cancelled", "returned"];
            rule("order_status_unknown", !statuses.contains(&text(row, "status").as_deref().unwrap_or_default()));
            rule("order_total_malformed", total.is_none());
            rule("order_total_negative", total.is_some_and(|total| total < 0));
            rule("order_ts_in_future", number("order_ts").is_some_and(|at| at > TS_MS * 1000 + DAY_MICROS));
        }
        _ => {
            let price = cents(text(row, "unit_price").as_ref());
            rule("item_product_missing", number("product_id").is_none());
            rule("item_quantity_not_positive", number("quantity").is_none_or(|quantity| quantity <= 0));
            rule("item_unit_price_malformed", price.is_none());
            rule("item_unit_price_negative", price.is_some_and(|price| price < 0));
        }
    }
    broken.sort_unstable();
    broken
}

fn one_of(values: &'static [&'static str]) -> impl Strategy<Value = Value> {
    proptest::sample::select(values).prop_map(|text| if text == "null" { Value::Null } else { text.into() })
}

fn decimal() -> impl Strategy<Value = Value> {
    one_of(&[
        "null",
        "1",
        "-1",
        "0",
        "0.00",
        "-0",
        "-0.00",
        "0.01",
        "-0.01",
        "1.5",
        "1.555",
        "1.500",
        "12345678901",
        "1234567890.12",
        "-9999999999.99",
        "0000000001",
        "00000000001",
        "+1",
        ".5",
        "1.",
        "-.5",
        "-5.",
        "1e3",
        "-1e3",
        " 1",
        "1 ",
        "-2\n",
        "NaN",
        "inf",
        "",
        " ",
        "-",
        "abc",
        "1,5",
        "٣",
        "--1",
    ])
}

fn row(table: &'static str) -> BoxedStrategy<Map<String, Value>> {
    let number =
        |values: &'static [i64]| prop_oneof![Just(Value::Null), proptest::sample::select(values).prop_map(Value::from)];
    let members: Vec<(&str, BoxedStrategy<Value>)> = match table {
        "customers" => vec![
            ("name", one_of(&["null", "", "   ", "\t", "\u{a0}", "Ann", " é "]).boxed()),
            (
                "email",
                one_of(&[
                    "null",
                    "",
                    "  ",
                    "a@b.c",
                    "a@b",
                    "@b.c",
                    "a@.c",
                    "a@b.",
                    "a b@c.d",
                    "a@b..c",
                    "a@@b.c",
                    " a@b.c",
                    "a@b.c\n",
                    "a\t@b.c",
                    "é@ü.ö",
                    "a@b.c d",
                    "\t",
                    "a.b@c.d.e",
                    "a@b@c.d",
                    "a@.b.c",
                ])
                .boxed(),
            ),
            ("segment", one_of(&["null", "", "consumer", "Consumer", "vip", "smb ", "corporate"]).boxed()),
            ("city", one_of(&["null", "x"]).boxed()),
            ("updated_at", number(&[0, 1_709_251_200_000_000]).boxed()),
            ("bio", one_of(&["null", "", "long"]).boxed()),
        ],
        "products" => vec![
            ("sku", one_of(&["null", "", " ", "S-1"]).boxed()),
            ("name", one_of(&["null", "x"]).boxed()),
            ("price", decimal().boxed()),
        ],
        "orders" => vec![
            ("customer_id", number(&[0, -5, 7]).boxed()),
            ("status", one_of(&["null", "", "paid", "Paid", "cancelled", "returned", "pending", "paid "]).boxed()),
            ("order_ts", number(&[0, TS_MS * 1000 + DAY_MICROS, TS_MS * 1000 + DAY_MICROS + 1, TS_MS * 1000]).boxed()),
            ("total", decimal().boxed()),
        ],
        _ => vec![
            ("product_id", number(&[0, 5]).boxed()),
            ("quantity", number(&[0, -1, 1, 5_000_000_000]).boxed()),
            ("unit_price", decimal().boxed()),
        ],
    };
    let (names, values): (Vec<&str>, Vec<BoxedStrategy<Value>>) = members.into_iter().unzip();
    (values, proptest::bool::weighted(0.1))
        .prop_map(move |(values, lacks)| {
            let mut row: Map<String, Value> = names.iter().map(|name| (*name).to_owned()).zip(values).collect();
            if lacks {
                row.retain(|_, value| !value.is_null());
            }
            row
        })
        .boxed()
}

fn tables() -> impl Strategy<Value = (&'static str, Vec<Map<String, Value>>)> {
    proptest::sample::select(&["customers", "products", "orders", "order_items"])
        .prop_flat_map(|table| (Just(table), proptest::collection::vec(row(table), 1..40)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_rules_are_these((table, rows) in tables()) {
        let contract = shipped(table);
        let line = |(at, row): (usize, &Map<String, Value>)| {
            let key = if table == "order_items" { json!({"order_id": at, "line_no": 1}) } else { json!({"id": at}) };
            let mut after = row.clone();
            after.extend(key.as_object().unwrap().clone());
            let source = json!({"ts_ms": TS_MS, "lsn": 9, "schema": "public", "table": table});
            record(&key.to_string(), &json!({"op": "c", "before": null, "after": after, "source": source}).to_string())
        };
        let lines: Vec<String> = rows.iter().enumerate().map(line).collect();
        let read = read(&contract, &lines);
        let broken = read.column_by_name("_broken").unwrap();
        for (at, row) in rows.iter().enumerate() {
            let found = value_text(broken, at).unwrap().unwrap_or_else(|| "[]".to_owned());
            let found: Vec<String> = serde_json::from_str(&found).unwrap();
            prop_assert_eq!(&found, &expected(table, row), "{}", serde_json::to_string(row).unwrap());
        }
    }
}

#[test]
fn every_shipped_rule_is_one_of_these() {
    let names = |table: &str| shipped(table).rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>();
    let all: Vec<String> =
        ["customers", "products", "orders", "order_items"].iter().flat_map(|table| names(table)).collect();
    assert_eq!(all.len(), 16);
    for contract in ["customers", "products", "orders", "order_items"].map(shipped) {
        let source = contract.changes().unwrap();
        assert_eq!(source.source_table, format!("public.{}", contract.table.table()));
        assert_eq!(source.sequence_columns(), ["_ts_ms", "_lsn"]);
    }
    let customers = shipped("customers");
    let names: Vec<&str> = customers.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "name", "email", "segment", "city", "created_at", "updated_at", "bio"]);
    let history = customers.changes().unwrap().history.clone().unwrap();
    assert_eq!(
        (history.table.to_string().as_str(), history.track),
        ("silver/customers_history", ["name", "email", "segment", "city"].map(str::to_owned).to_vec())
    );
}
