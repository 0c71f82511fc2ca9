//! The cases of the field: each in one file, an event a file, and backwards, and then looked at again by the backfill.

use super::{ALL, Event, UNSENT, assert_backfill_agrees, content, delete, told, truncate, upsert};
use crate::support::TestLake;

/// A name, the events, the present rows as `id name bio`, the history as `id name [from,to)`, and the rules of quarantine.
type Case = (&'static str, Vec<Event>, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

fn cases() -> Vec<Case> {
    let (c, u, r) = ("c", "u", "r");
    vec![
        (
            "SCD-01 CDC-24 a late event inside a closed interval",
            vec![upsert(c, 1, 10, "a"), upsert(u, 1, 30, "c"), upsert(u, 1, 20, "b")],
            &["1 c b"],
            &["1 a [10,20)", "1 b [20,30)", "1 c [30,)"],
            &[],
        ),
        (
            "SCD-03 two rows of one sequence: the smaller offset counts",
            vec![upsert(u, 1, 10, "b").at(1, 9), upsert(u, 1, 10, "a").at(1, 3)],
            &["1 a b"],
            &["1 a [10,)"],
            &[],
        ),
        (
            "SCD-04 CDC-11 replays, and what is not tracked",
            vec![
                upsert(c, 1, 10, "a"),
                upsert(u, 1, 20, "b"),
                upsert(c, 1, 10, "a").at(100, 50),
                upsert(u, 1, 20, "b").at(200, 51),
                upsert(u, 1, 25, "b"),
            ],
            &["1 b b"],
            &["1 a [10,20)", "1 b [20,)"],
            &[],
        ),
        (
            "SCD-05 deleted and back with equal values",
            vec![upsert(c, 1, 10, "a"), delete(1, 20), upsert(c, 1, 40, "a")],
            &["1 a b"],
            &["1 a [10,20)", "1 a [40,)"],
            &[],
        ),
        (
            "SCD-08 four changes of a key at once",
            vec![upsert(c, 1, 1, "a"), upsert(u, 1, 2, "b"), upsert(u, 1, 3, "c"), upsert(u, 1, 4, "d")],
            &["1 d b"],
            &["1 a [1,2)", "1 b [2,3)", "1 c [3,4)", "1 d [4,)"],
            &[],
        ),
        (
            "CDC-01 a value that was not sent",
            vec![upsert(c, 1, 10, "a").with_bio(Some("long")), upsert(u, 1, 20, "b").with_bio(Some(UNSENT))],
            &["1 b long"],
            &["1 a [10,20)", "1 b [20,)"],
            &[],
        ),
        (
            "CDC-04 nobody knows it",
            vec![upsert(u, 5, 20, "b").with_bio(Some(UNSENT))],
            &[],
            &[],
            &["5 [value_unavailable]"],
        ),
        (
            "never across a delete",
            vec![upsert(c, 1, 10, "a"), delete(1, 15), upsert(c, 1, 20, "b").with_bio(Some(UNSENT))],
            &[],
            &["1 a [10,15)"],
            &["1 [value_unavailable]"],
        ),
        (
            "a rule of two columns is judged again with the value",
            vec![upsert(c, 1, 10, "a").with_bio(Some("LOUD")), upsert(u, 1, 20, "quiet").with_bio(Some(UNSENT))],
            &["1 a LOUD"],
            &["1 a [10,)"],
            &["1 [shouting_bio]"],
        ),
        (
            "CDC-06 a key that changes, both ways",
            vec![
                upsert(c, 1, 1, "a"),
                upsert(c, 3, 2, "b"),
                delete(1, 5).at(47, 5),
                upsert(c, 2, 5, "a").at(47, 7),
                upsert(u, 4, 6, "b").was(3),
            ],
            &["2 a b", "4 b b"],
            &["1 a [1,5)", "2 a [5,)", "3 b [2,6)", "4 b [6,)"],
            &[],
        ),
        (
            "CDC-07 deleted and inserted in one transaction",
            vec![upsert(c, 3, 40, "a"), delete(3, 50).at(100, 7), upsert(c, 3, 50, "b").at(101, 8)],
            &["3 b b"],
            &["3 a [40,50)", "3 b [50,)"],
            &[],
        ),
        (
            "CDC-08 come and gone in one batch",
            vec![upsert(c, 9, 1, "a"), delete(9, 2), upsert(c, 8, 3, "a"), upsert(u, 8, 4, "b")],
            &["8 b b"],
            &["8 a [3,4)", "8 b [4,)", "9 a [1,2)"],
            &[],
        ),
        (
            "CDC-09 equal times",
            vec![upsert(u, 1, 90, "b").at(200, 1), upsert(u, 1, 90, "a").at(199, 2)],
            &["1 b b"],
            &["1 a [90,90)", "1 b [90,)"],
            &[],
        ),
        (
            "CDC-10 many events of one position",
            vec![
                upsert(c, 1, 5, "a").at(500, 1),
                upsert(c, 2, 5, "b").at(500, 2),
                upsert(c, 3, 5, "c").at(500, 3),
                upsert(u, 1, 5, "z").at(500, 4),
            ],
            &["1 z b", "2 b b", "3 c b"],
            &["1 a [5,5)", "1 z [5,)", "2 b [5,)", "3 c [5,)"],
            &[],
        ),
        (
            "CDC-13 snapshot reads behind newer events",
            vec![upsert(u, 1, 90, "new"), delete(2, 95), upsert(r, 1, 80, "old"), upsert(r, 2, 80, "old")],
            &["1 new b"],
            &["1 new [90,)", "1 old [80,90)", "2 old [80,95)"],
            &[],
        ),
        (
            "CDC-15 a truncate",
            vec![upsert(c, 1, 10, "a"), upsert(c, 2, 20, "b"), truncate(50), upsert(c, 3, 60, "c")],
            &["3 c b"],
            &["1 a [10,50)", "2 b [20,50)", "3 c [60,)"],
            &[],
        ),
        (
            "last known good, and cured",
            vec![
                upsert(c, 1, 10, "a"),
                upsert(u, 1, 20, "bad"),
                upsert(u, 2, 30, "b").with_bio(Some(UNSENT)),
                upsert(c, 2, 25, "a").with_bio(Some("late")),
            ],
            &["1 a b", "2 b late"],
            &["1 a [10,)", "2 a [25,30)", "2 b [30,)"],
            &["1 [name_bad]"],
        ),
    ]
}

/// The results in the words of the cases.
async fn in_short(lake: &TestLake) -> [Vec<String>; 3] {
    let [rows, history, quarantine] = told(&lake.lake).await;
    let word = |row: &str, at: usize| row.split(' ').nth(at).unwrap_or_default().to_owned();
    // `1970-01-01T00:00:00.010Z`, or `1970-01-01T00:00:00Z`.
    let millis = |text: &str| match text.split_once('.') {
        Some((_, rest)) => rest.trim_end_matches('Z').parse::<i64>().unwrap().to_string(),
        None if text == "null" => String::new(),
        None => "0".to_owned(),
    };
    let version = |row: &String| {
        format!("{} {} [{},{})", word(row, 0), word(row, 2), millis(&word(row, 3)), millis(&word(row, 4)))
    };
    let refused = |row: &String| {
        let id = word(row, 1).trim_start_matches("{\"id\":").trim_end_matches('}').to_owned();
        format!("{id} {}", word(row, 5))
    };
    let mut short = [
        rows.iter().map(|row| format!("{} {} {}", word(row, 0), word(row, 1), word(row, 3))).collect::<Vec<_>>(),
        history.iter().map(version).collect(),
        quarantine.iter().map(refused).collect(),
    ];
    short.iter_mut().for_each(|rows| rows.sort());
    short
}

#[tokio::test]
async fn cases_of_the_field() {
    for (case, events, rows, history, quarantine) in cases() {
        let mut backwards = events.clone();
        backwards.reverse();
        let ways: [Vec<Vec<Event>>; 3] = [
            vec![events.clone()],
            events.into_iter().map(|event| vec![event]).collect(),
            backwards.into_iter().map(|event| vec![event]).collect(),
        ];
        for files in ways {
            let lake = TestLake::new(ALL);
            for (number, file) in files.iter().enumerate() {
                lake.load(&format!("shop/{number}.ndjson"), content(file)).await;
            }
            let [found_rows, found_history, found_quarantine] = in_short(&lake).await;
            assert_eq!(found_rows, rows, "{case}");
            let mut expected: Vec<&str> = history.to_vec();
            expected.sort_unstable();
            assert_eq!(found_history, expected, "{case}");
            assert_eq!(found_quarantine, quarantine, "{case}");
            assert_backfill_agrees(&lake.lake).await;
        }
    }
}
