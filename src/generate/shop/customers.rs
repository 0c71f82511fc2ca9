//! Customers by the million: the snapshot of a table of many rows, and changes of some of them. Rows are made one by one,
//! each from its number alone.

use super::super::Random;
use crate::decode::debezium::{RecordKey, record_line};

/// The moment of the snapshot: 2024-03-01, in milliseconds since 1970.
const BEGIN_MS: u64 = 1_709_251_200_000;
/// The log position of the snapshot.
const BEGIN_LSN: u64 = 20_000_000;
/// Of 100 changes so many fall on the newest keys ...
const ON_NEWEST: u64 = 80;
/// ... which are the newest so many of 100.
const NEWEST: u64 = 5;

const SEGMENTS: [&str; 4] = ["consumer", "corporate", "smb", "vip"];
const CITIES: [&str; 5] = ["Zürich", "Lagos", "São Paulo", "Wien", "東京"];

/// A table of customers, and its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Customers {
    /// Rows of the snapshot; their keys count up from 1.
    pub keys: u64,
    /// Seed of the changes.
    pub seed: u64,
}

/// Which keys change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Four of five changes fall on the newest twentieth of the keys.
    Newest,
    /// All keys alike.
    Even,
}

impl Customers {
    /// The events of the snapshot for the keys from `first` (from 1) up to, not including, `end`.
    pub fn snapshot(&self, first: u64, end: u64) -> impl Iterator<Item = Vec<u8>> {
        let end = end.min(self.keys + 1);
        (first..end).map(|id| {
            let row = row(id, 0);
            line("r", id, "null", &row, BEGIN_MS, BEGIN_LSN, id - 1)
        })
    }

    /// `count` updates. Those of another `round` come later, and are others.
    pub fn changes(&self, round: u64, count: u64, spread: Spread) -> impl Iterator<Item = Vec<u8>> {
        let mut random = Random::new(self.seed, round + 1);
        let keys = self.keys.max(1);
        (0..count).map(move |index| {
            let newest = (keys * NEWEST / 100).max(1);
            let id = if spread == Spread::Newest && random.below(100) < ON_NEWEST {
                keys - random.below(newest)
            } else {
                1 + random.below(keys)
            };
            let at = round * count + index + 1;
            let (before, after) = (row(id, at - 1), row(id, at));
            line("u", id, &before, &after, BEGIN_MS + at, BEGIN_LSN + 8 * at, keys + at)
        })
    }
}

/// A row after the change number `at`; 0 is the snapshot.
fn row(id: u64, at: u64) -> String {
    let pick = |of: usize, salt: u64| usize::try_from((id + at * salt) % of as u64).unwrap_or_default();
    let (segment, city) = (SEGMENTS[pick(SEGMENTS.len(), 3)], CITIES[pick(CITIES.len(), 7)]);
    let (created, updated) = (BEGIN_MS * 1000 + id, BEGIN_MS * 1000 + id + at);
    format!(
        r#"{{"id":{id},"name":"Customer {id}","email":"c{id}@example.org","segment":"{segment}","city":"{city}","created_at":{created},"updated_at":{updated},"bio":null}}"#
    )
}

fn line(op: &str, id: u64, before: &str, after: &str, ts_ms: u64, lsn: u64, offset: u64) -> Vec<u8> {
    let snapshot = op == "r";
    let value = format!(
        r#"{{"before":{before},"after":{after},"source":{{"version":"3.6.1.Final","connector":"postgresql","name":"lake","ts_ms":{ts_ms},"snapshot":"{snapshot}","db":"shop","schema":"public","table":"customers","txId":700,"lsn":{lsn}}},"transaction":null,"op":"{op}","ts_ms":{sent}}}"#,
        sent = ts_ms + 5
    );
    let key = format!(r#"{{"id":{id}}}"#);
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let time = Some(signed(ts_ms + 6));
    record_line(
        "lake.public.customers",
        0,
        signed(offset),
        time,
        RecordKey::Bytes(key.as_bytes()),
        Some(value.as_bytes()),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::decode::debezium::{Kind, read};

    #[test]
    fn every_key_has_a_snapshot_and_changes_are_later_and_lie_elsewhere() {
        let customers = Customers { keys: 200, seed: 7 };
        let snapshot: Vec<_> = customers.snapshot(1, 120).chain(customers.snapshot(120, 999)).collect();
        let first = customers.changes(0, 50, Spread::Newest);
        let changes: Vec<_> = first.chain(customers.changes(1, 50, Spread::Even)).collect();
        let (mut offsets, mut positions, mut keys) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (line, op) in snapshot.iter().map(|line| (line, "r")).chain(changes.iter().map(|line| (line, "u"))) {
            let facts = read(line);
            assert_eq!((facts.kind, facts.op), (Kind::Change, Some(op)));
            assert!(offsets.insert(facts.offset));
            positions.insert((facts.ts_ms, facts.lsn));
            keys.insert(facts.key.unwrap().into_owned());
        }
        assert_eq!((keys.len(), offsets.len(), positions.len()), (200, 300, 101));
    }

    #[test]
    fn most_changes_fall_on_the_newest_keys() {
        let customers = Customers { keys: 1_000, seed: 7 };
        let newest = |spread| {
            let lines = customers.changes(0, 1_000, spread);
            let id =
                |line: Vec<u8>| read(&line).key.unwrap().trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>();
            lines.filter_map(|line| id(line).ok()).filter(|id| *id > 950).count()
        };
        assert!((760..860).contains(&newest(Spread::Newest)), "{}", newest(Spread::Newest));
        assert!((20..90).contains(&newest(Spread::Even)), "{}", newest(Spread::Even));
    }
}
