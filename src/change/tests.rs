//! The cases of the field one by one, and any set of events against definitions that are written another way.

use proptest::prelude::*;

use super::Op::{Create as C, Read as R, Update as U};
use super::*;

/// A row of a tracked text, an untracked number, and a big text that may not have been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Person {
    name: &'static str,
    visits: i64,
    bio: Option<&'static str>,
}

impl Row for Person {
    fn has_placeholder(&self) -> bool {
        self.bio.is_none()
    }

    fn resolved(&self, earlier: &Self) -> Self {
        Self { bio: self.bio.or(earlier.bio), ..self.clone() }
    }
}

fn at(ts_ms: i64, lsn: i64, op: Op) -> Position {
    Position::new(&[ts_ms, lsn], op).unwrap()
}

fn place(offset: i64) -> Place {
    Place::Record { partition: 0, offset }
}

fn upsert(ts_ms: i64, lsn: i64, op: Op, name: &'static str, bio: Option<&'static str>) -> Change<Person> {
    Change { position: at(ts_ms, lsn, op), place: place(lsn), row: Some(Person { name, visits: lsn, bio }) }
}

fn delete(ts_ms: i64, lsn: i64) -> Change<Person> {
    Change { position: at(ts_ms, lsn, Op::Delete), place: place(lsn), row: None }
}

/// Names are not `bad`.
fn judge(person: &Person, _: &Position) -> Vec<String> {
    if person.name == "bad" { vec!["name_bad".to_owned()] } else { Vec::new() }
}

fn is_same(a: &Person, b: &Person) -> bool {
    a.name == b.name
}

/// The present row (`name/visits/bio`), then each version of the history as `name[from,to)`.
fn told(deliveries: Vec<Change<Person>>, truncates: &[Position]) -> (String, Vec<String>) {
    let (changes, _) = distinct(deliveries);
    let settled = settle(&changes, truncates, judge);
    let present = newest(&settled, truncates)
        .map_or("-".to_owned(), |(_, row)| format!("{}/{}/{}", row.name, row.visits, row.bio.unwrap_or("?")));
    let versions = history(&settled, truncates, is_same)
        .iter()
        .map(|interval| {
            let to = interval.to.map_or("∞".to_owned(), |to| to.sequence()[0].to_string());
            format!("{}[{},{to})", interval.row.name, interval.from.sequence()[0])
        })
        .collect();
    (present, versions)
}

/// A name, what is delivered, the truncates, the present row, and the history.
type Case<'a> = (&'a str, Vec<Change<Person>>, Vec<Position>, &'a str, &'a [&'a str]);

#[test]
fn cases_of_the_field() {
    let bio = Some("b");
    let cases: Vec<Case<'_>> = vec![
        (
            "CDC-07 delete and re-insert in one transaction",
            vec![upsert(4000, 90, C, "a", bio), delete(5000, 100), upsert(5000, 101, C, "b", bio)],
            vec![],
            "b/101/b",
            &["a[4000,5000)", "b[5000,∞)"],
        ),
        (
            "CDC-08 insert and delete in one batch",
            vec![upsert(1, 1, C, "a", bio), delete(2, 2)],
            vec![],
            "-",
            &["a[1,2)"],
        ),
        (
            "CDC-09 equal ts_ms, arrival reversed",
            vec![upsert(9000, 200, U, "b", bio), upsert(9000, 199, U, "a", bio)],
            vec![],
            "b/200/b",
            &["a[9000,9000)", "b[9000,∞)"],
        ),
        (
            "ts_ms before lsn: lsn alone is no commit order",
            vec![upsert(10, 900, U, "old", bio), upsert(11, 100, U, "new", bio)],
            vec![],
            "new/100/b",
            &["old[10,11)", "new[11,∞)"],
        ),
        (
            "CDC-11 a replay changes nothing",
            vec![
                upsert(1, 10, C, "a", bio),
                upsert(2, 20, U, "b", bio),
                upsert(3, 30, U, "c", bio),
                upsert(2, 20, U, "b", bio),
                upsert(3, 30, U, "c", bio),
                upsert(4, 40, U, "d", bio),
            ],
            vec![],
            "d/40/b",
            &["a[1,2)", "b[2,3)", "c[3,4)", "d[4,∞)"],
        ),
        (
            "CDC-13 a snapshot read after newer changes",
            vec![upsert(9, 90, U, "new", bio), upsert(8, 80, R, "old", bio)],
            vec![],
            "new/90/b",
            &["old[8,9)", "new[9,∞)"],
        ),
        (
            "CDC-13 a snapshot read does not resurrect",
            vec![delete(9, 95), upsert(8, 80, R, "old", bio)],
            vec![],
            "-",
            &["old[8,9)"],
        ),
        ("CDC-15 truncate", vec![upsert(1, 1, C, "a", bio)], vec![at(5, 50, Op::Truncate)], "-", &["a[1,5)"]),
        (
            "CDC-15 a key written after it lives on",
            vec![upsert(1, 1, C, "a", bio), upsert(6, 60, C, "a", bio)],
            vec![at(5, 50, Op::Truncate)],
            "a/60/b",
            &["a[1,5)", "a[6,∞)"],
        ),
        (
            "a truncate comes after a delete of its position",
            vec![delete(5, 50), upsert(5, 50, C, "x", bio)],
            vec![at(5, 50, Op::Truncate)],
            "-",
            &["x[5,5)"],
        ),
        (
            "CDC-01 an unchanged value",
            vec![upsert(1, 10, C, "A", Some("9 kB")), upsert(2, 20, U, "B", None)],
            vec![],
            "B/20/9 kB",
            &["A[1,2)", "B[2,∞)"],
        ),
        ("CDC-04 no earlier value", vec![upsert(2, 20, U, "B", None)], vec![], "-", &[]),
        (
            "never across a delete",
            vec![upsert(1, 10, C, "A", bio), delete(2, 20), upsert(3, 30, C, "B", None)],
            vec![],
            "-",
            &["A[1,2)"],
        ),
        (
            "never across a truncate",
            vec![upsert(1, 10, C, "A", bio), upsert(3, 30, C, "B", None)],
            vec![at(2, 20, Op::Truncate)],
            "-",
            &["A[1,2)"],
        ),
        (
            "not from a quarantined row",
            vec![
                upsert(1, 10, C, "A", Some("first")),
                upsert(2, 20, U, "bad", Some("second")),
                upsert(3, 30, U, "B", None),
            ],
            vec![],
            "B/30/first",
            &["A[1,3)", "B[3,∞)"],
        ),
        (
            "nor from an unresolved one, until an earlier row comes",
            vec![upsert(2, 20, U, "A", None), upsert(3, 30, U, "B", None), upsert(1, 10, C, "Z", Some("late"))],
            vec![],
            "B/30/late",
            &["Z[1,2)", "A[2,3)", "B[3,∞)"],
        ),
        (
            "QAR-06 last known good",
            vec![upsert(1, 10, C, "A", bio), upsert(2, 20, U, "bad", bio)],
            vec![],
            "A/10/b",
            &["A[1,∞)"],
        ),
        ("only quarantined versions", vec![upsert(1, 10, C, "bad", bio)], vec![], "-", &[]),
        (
            "a delete always applies",
            vec![upsert(1, 10, C, "A", bio), upsert(2, 20, U, "bad", bio), delete(3, 30)],
            vec![],
            "-",
            &["A[1,3)"],
        ),
        (
            "SCD-01 a late change splits its interval",
            vec![upsert(10, 1, C, "a", bio), upsert(30, 3, U, "c", bio), upsert(20, 2, U, "b", bio)],
            vec![],
            "c/3/b",
            &["a[10,20)", "b[20,30)", "c[30,∞)"],
        ),
        (
            "a late delete shortens it",
            vec![upsert(10, 1, C, "a", bio), upsert(30, 3, U, "a", bio), delete(20, 2)],
            vec![],
            "a/3/b",
            &["a[10,20)", "a[30,∞)"],
        ),
        (
            "SCD-04 what is not tracked opens nothing",
            vec![upsert(10, 1, C, "a", bio), upsert(20, 2, U, "a", bio), upsert(25, 3, U, "a", Some("x"))],
            vec![],
            "a/3/x",
            &["a[10,∞)"],
        ),
        (
            "SCD-05 deleted and back with equal values",
            vec![upsert(10, 1, C, "a", bio), delete(20, 2), upsert(40, 4, C, "a", bio)],
            vec![],
            "a/4/b",
            &["a[10,20)", "a[40,∞)"],
        ),
        (
            "a no-op between, then late",
            vec![upsert(10, 1, C, "a", bio), upsert(30, 3, U, "a", bio), upsert(20, 2, U, "b", bio)],
            vec![],
            "a/3/b",
            &["a[10,20)", "b[20,30)", "a[30,∞)"],
        ),
    ];
    for (case, mut deliveries, truncates, present, versions) in cases {
        for _ in 0..2 {
            let (found, found_versions) = told(deliveries.clone(), &truncates);
            assert_eq!(found, present, "{case}");
            assert_eq!(found_versions, versions, "{case}");
            deliveries.reverse();
        }
    }
}

#[test]
fn a_tie_is_decided_by_the_smallest_place_and_counted_once() {
    let of = |offset, name| Change { place: place(offset), ..upsert(5, 50, U, name, Some("b")) };
    let deliveries = vec![
        of(9, "b"),
        of(3, "a"),
        of(7, "c"),
        of(12, "a"),
        upsert(6, 60, U, "d", Some("b")),
        upsert(6, 60, U, "d", Some("b")),
    ];
    let (changes, ties) = distinct(deliveries);
    assert_eq!((changes.len(), ties), (2, 1));
    assert_eq!(changes[0].row.as_ref().unwrap().name, "a");
    let line = |path: &str, row| Place::Line { path: path.to_owned(), row };
    let other = Place::Record { partition: 1, offset: 0 };
    assert!(place(9) < other && other < line("a", 2) && line("a", 2) < line("a", 10) && line("a", 10) < line("b", 1));
}

#[test]
fn positions_order_by_sequence_then_by_op() {
    let in_order = [
        at(1, 900, Op::Truncate),
        at(2, -5, R),
        at(2, -5, C),
        at(2, -5, U),
        at(2, -5, Op::Delete),
        at(2, -5, Op::Truncate),
        at(2, 9, R),
    ];
    assert!(in_order.is_sorted());
    assert_eq!(at(2, 9, U).as_delete(), at(2, 9, Op::Delete));
    assert!(Position::new(&[0; 5], R).is_none());
    for op in [R, C, U, Op::Delete, Op::Truncate] {
        assert_eq!(Op::of_letter(op.letter()), Some(op));
    }
    assert_eq!(Op::of_letter("m"), None);
}

/// The definitions, event by event, with nothing carried along.
struct Plain<'a> {
    changes: &'a [Change<Person>],
    truncates: &'a [Position],
}

impl Plain<'_> {
    /// What the key shows just before a position: the row of the last visible change, if nothing took it away.
    fn before(&self, position: Position) -> Option<Person> {
        let earlier = self.changes.iter().filter(|change| change.position < position);
        let last = earlier
            .filter(|change| change.row.is_none() || self.row(change).is_some())
            .max_by_key(|change| change.position)?;
        let is_cut = self.truncates.iter().any(|cut| *cut > last.position && *cut < position);
        if is_cut { None } else { self.row(last) }
    }

    /// The row of a change as it is visible; none when it is quarantined or a delete.
    fn row(&self, change: &Change<Person>) -> Option<Person> {
        let mut row = change.row.clone()?;
        if row.bio.is_none() {
            row.bio = Some(self.before(change.position)?.bio.unwrap());
        }
        (row.name != "bad").then_some(row)
    }

    /// Name, and from when to when.
    fn history(&self) -> Vec<(&'static str, Position, Option<Position>)> {
        let opens = |change: &&Change<Person>| {
            self.row(change)
                .is_some_and(|row| self.before(change.position).is_none_or(|before| before.name != row.name))
        };
        let ends =
            self.changes.iter().filter(|change| change.row.is_none() || opens(change)).map(|change| change.position);
        let ends: Vec<Position> = ends.chain(self.truncates.iter().copied()).collect();
        let mut versions: Vec<(&'static str, Position, Option<Position>)> = self
            .changes
            .iter()
            .filter(opens)
            .map(|change| {
                let end = ends.iter().copied().filter(|end| *end > change.position).min();
                (change.row.as_ref().unwrap().name, change.position, end)
            })
            .collect();
        versions.sort_by_key(|version| version.1);
        versions
    }
}

fn a_change() -> impl Strategy<Value = Change<Person>> {
    let ops = prop::sample::select(vec![R, C, U, U, Op::Delete]);
    let names = prop::sample::select(vec!["a", "b", "bad"]);
    let bios = prop::sample::select(vec![None, Some("x"), Some("y")]);
    (0_i64..4, 0_i64..3, ops, 0_i64..50, names, bios).prop_map(|(ts_ms, lsn, op, offset, name, bio)| Change {
        position: at(ts_ms, lsn, op),
        place: place(offset),
        row: (op != Op::Delete).then_some(Person { name, visits: offset, bio }),
    })
}

proptest! {
    #[test]
    fn any_events_in_any_order_come_to_what_the_definitions_say(
        deliveries in prop::collection::vec(a_change(), 0..14),
        truncates in prop::collection::btree_set((0_i64..4, 0_i64..3), 0..3),
        seed in any::<u64>(),
    ) {
        let truncates: Vec<Position> = truncates.into_iter().map(|(ts_ms, lsn)| at(ts_ms, lsn, Op::Truncate)).collect();
        // One place is one delivery.
        let mut deliveries = deliveries;
        deliveries.sort_by(|a, b| a.place.cmp(&b.place));
        deliveries.dedup_by(|a, b| a.place == b.place);
        let (changes, ties) = distinct(deliveries.clone());

        let mut shuffled: Vec<Change<Person>> = deliveries.iter().chain(&deliveries).cloned().collect();
        let mut state = seed | 1;
        for last in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(last, usize::try_from(state >> 33).unwrap() % (last + 1));
        }
        prop_assert_eq!((&changes, ties), {
            let (again, ties) = distinct(shuffled);
            prop_assert_eq!(&again, &changes);
            (&changes, ties)
        });

        let plain = Plain { changes: &changes, truncates: &truncates };
        let settled = settle(&changes, &truncates, judge);
        prop_assert_eq!(settled.len(), changes.len());
        for (change, (position, outcome)) in changes.iter().zip(&settled) {
            prop_assert_eq!(*position, change.position);
            let expected = plain.row(change);
            match outcome {
                Outcome::Row(row) => prop_assert_eq!(Some(row), expected.as_ref()),
                Outcome::Gone => prop_assert!(change.row.is_none()),
                Outcome::Refused(rules) => {
                    prop_assert!(change.row.is_some() && expected.is_none());
                    let row = change.row.as_ref().unwrap();
                    prop_assert_eq!(rules.contains(&"name_bad".to_owned()), row.name == "bad");
                    let is_unknown = row.bio.is_none() && plain.before(change.position).is_none();
                    prop_assert_eq!(rules.contains(&VALUE_UNAVAILABLE.to_owned()), is_unknown);
                }
            }
        }
        let end = at(i64::MAX, i64::MAX, Op::Truncate);
        prop_assert_eq!(newest(&settled, &truncates).map(|(_, row)| row.clone()), plain.before(end));
        let versions = history(&settled, &truncates, is_same);
        let found: Vec<(&str, Position, Option<Position>)> =
            versions.iter().map(|version| (version.row.name, version.from, version.to)).collect();
        prop_assert_eq!(found, plain.history());
        let numbers: Vec<i64> = versions.iter().map(|version| version.version).collect();
        prop_assert_eq!(numbers, (1..=i64::try_from(versions.len()).unwrap()).collect::<Vec<_>>());
        let is_present = versions.last().is_some_and(|last| last.to.is_none());
        prop_assert_eq!(is_present, newest(&settled, &truncates).is_some());
    }
}
