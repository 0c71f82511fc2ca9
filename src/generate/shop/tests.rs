use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::decode::debezium::{Kind, read};
use crate::name::short_hash;

const HOSTILE: Shop = Shop { events: 4_000, seed: 7, trouble: Trouble::HOSTILE };

fn texts(shop: Shop) -> Vec<String> {
    shop.lines().map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
}

#[test]
fn the_lines_never_change() {
    let lines = texts(HOSTILE);
    insta::assert_snapshot!(format!("{} lines, {}", lines.len(), short_hash(&[&lines.join("\n")])), @"4960 lines, a3fa0cfb3fa04ca29015b7a6b9e1ea29");
    assert_eq!(lines, texts(HOSTILE));
    assert_ne!(lines, texts(Shop { seed: 8, ..HOSTILE }));
}

#[test]
fn a_hostile_stream_has_everything() {
    let lines: Vec<Vec<u8>> = HOSTILE.lines().collect();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut places = BTreeSet::new();
    let mut identities: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut newest: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for line in &lines {
        let facts = read(line);
        let mut count = |what: &str| *counts.entry(what.to_owned()).or_default() += 1;
        match &facts.kind {
            Kind::Malformed(_) => count("malformed"),
            Kind::Ignored => count(if facts.op == Some("m") { "message" } else { "ignored" }),
            Kind::Change => {
                let (table, op) = (facts.table.clone().unwrap_or_default(), facts.op.unwrap_or_default());
                count(op);
                count(&table);
                let place = (facts.topic.clone(), facts.partition, facts.offset);
                assert!(places.insert(format!("{place:?}")), "a place is taken once");
                let position = (facts.ts_ms.unwrap_or_default(), facts.lsn.unwrap_or_default());
                let key = format!("{table} {}", facts.key.as_deref().unwrap_or_default());
                let last = newest.entry(key.clone()).or_default();
                if *last > position {
                    count("late for its key");
                }
                *last = position.max(*last);
                let text = String::from_utf8_lossy(line).into_owned();
                let value = text.split("\"value\":").nth(1).unwrap_or_default().to_owned();
                let rows = identities.entry(format!("{key} {position:?} {op}")).or_default();
                if !rows.insert(value) {
                    count("again");
                } else if rows.len() > 1 {
                    count("tie");
                }
                if text.contains("__debezium_unavailable_value") {
                    count("left out");
                }
            }
        }
    }
    for what in [
        "r",
        "c",
        "u",
        "d",
        "t",
        "ignored",
        "message",
        "malformed",
        "late for its key",
        "again",
        "tie",
        "left out",
        "public.customers",
        "public.products",
        "public.orders",
        "public.order_items",
    ] {
        assert!(counts.get(what).is_some_and(|count| *count > 0), "{what}: {counts:?}");
    }
}

#[test]
fn without_trouble_events_come_in_order_and_once() {
    let none = Trouble { bad: 0, late: 0, twice: 0, others: 0, key_changes: 0, leaves_out: false, ..Trouble::USUAL };
    let mut last = (0, 0);
    for line in (Shop { events: 1_000, seed: 1, trouble: none }).lines() {
        let facts = read(&line);
        if facts.kind == Kind::Change {
            let position = (facts.ts_ms.unwrap_or_default(), facts.lsn.unwrap_or_default());
            assert!(position > last || facts.op == Some("r"), "{}", String::from_utf8_lossy(&line));
            last = position;
        }
    }
}
