//! Any order, split and repetition of events comes to the same tables, in large memory and in small.

use alluvium::pipeline::lake::Settings;
use alluvium::pipeline::maintain::maintain;
use alluvium::pipeline::status::status;
use alluvium::table::Table;
use arrow::datatypes::DataType;

use super::{ALL, Event, PEOPLE, UNSENT, assert_backfill_agrees, content, told};
use crate::support::TestLake;
use crate::support::chance::Chance;

/// Events of some people over some time, with ties, bad names, texts that were not sent, deletes, truncates, changed keys.
pub(super) fn events(seed: u64, count: i64, people: i64) -> Vec<Event> {
    let mut chance = Chance::new(seed);
    let mut below = |most: i64| i64::try_from(chance.below(u64::try_from(most).unwrap())).unwrap();
    let mut events = Vec::new();
    for offset in 0..count {
        let id = below(people);
        let (ts_ms, lsn) = (1_000 + below(count / 4 + 1), below(3));
        let op = ["r", "c", "u", "u", "u", "u", "d", "t"]
            [usize::try_from(if below(count) == 0 { 7 } else { below(7) }).unwrap()];
        let name = ["a", "b", "quiet", "bad"][usize::try_from(below(4)).unwrap()];
        let bio = [UNSENT, UNSENT, "LOUD", "soft"][usize::try_from(below(4)).unwrap()];
        let row = (op != "d" && op != "t").then(|| (Some(name), offset, Some(bio.to_owned())));
        let was = (op == "u" && below(12) == 0).then(|| (id + 1) % people);
        events.push(Event { id, ts_ms, lsn, op, offset, row, was });
    }
    events
}

#[tokio::test]
async fn any_order_and_split_comes_to_the_same_tables() {
    let all = events(3, 300, 7);
    let at_once = TestLake::new(ALL);
    at_once.load("shop/all.ndjson", content(&all)).await;
    let expected = told(&at_once.lake).await;
    assert!(expected.iter().all(|rows| rows.len() > 3), "{expected:#?}");
    let ties = status(&at_once.lake).await.unwrap().tables.iter().map(|table| table.ties).max().unwrap();
    assert!(ties > 0, "there are ties");
    for seed in 0..3 {
        // Some events twice, in pieces; now and then somebody compacts.
        let mut again: Vec<Event> = all.iter().chain(all.iter().step_by(5)).cloned().collect();
        let mut chance = Chance::new(seed);
        chance.shuffle(&mut again);
        let lake = TestLake::new(ALL);
        for (number, piece) in again.chunks(60).enumerate() {
            lake.load(&format!("shop/{number}.ndjson"), content(piece)).await;
            if number % 3 == 2 {
                let report = maintain(&lake.lake, None).await.unwrap();
                assert!(report.failed.is_empty(), "{:#?}", report.failed);
            }
        }
        assert_eq!(told(&lake.lake).await, expected, "seed {seed}");
        let state = status(&lake.lake).await.unwrap();
        let of = |name: &str| state.tables.iter().find(|table| table.table.to_string() == name).unwrap();
        let people = of("silver/people");
        assert_eq!((people.ties, people.quarantined), (ties, expected[2].len() as u64), "seed {seed}");
        for table in [people, of("silver/people_history")] {
            assert_eq!((table.behind["bronze/shop"], table.lag_seconds, &table.last_error), (0, 0, &None));
        }
        assert_backfill_agrees(&lake.lake).await;
    }
}

#[tokio::test]
async fn what_does_not_fit_into_memory_is_sorted_on_the_disk() {
    let mut all = events(9, 4_000, 300);
    for event in &mut all {
        // Rows that are large.
        if let Some((.., Some(bio))) = &mut event.row
            && bio != UNSENT
        {
            bio.push_str(&"x".repeat(3_000));
        }
    }
    let roomy = TestLake::new(ALL);
    roomy.load("shop/all.ndjson", content(&all)).await;
    let settings = Settings { memory_bytes: 12 << 20, threads: 1, ..Settings::default() };
    let narrow = TestLake::with_settings(ALL, settings);
    let (some, rest) = all.split_at(3_500);
    narrow.load("shop/0.ndjson", content(rest)).await;
    narrow.load("shop/1.ndjson", content(some)).await;
    assert_eq!(told(&narrow.lake).await, told(&roomy.lake).await);
    assert_backfill_agrees(&narrow.lake).await;
}

#[tokio::test]
async fn another_contract_makes_everything_anew() {
    let all = events(5, 200, 6);
    let mut lake = TestLake::new(ALL);
    lake.load("shop/0.ndjson", content(&all[..150])).await;
    let changed = PEOPLE.replace("name <> 'bad'", "name <> 'a'").replace("track: [name]", "track: [name, bio]");
    let contracts = [ALL[0], ("silver/people", changed.as_str())];
    lake.redeploy(&contracts);
    lake.settle().await;
    lake.load("shop/1.ndjson", content(&all[150..])).await;
    let fresh = TestLake::new(&contracts);
    fresh.load("shop/0.ndjson", content(&all)).await;
    // The history's new column stands behind the others in one of them.
    assert_eq!(told(&lake.lake).await, told(&fresh.lake).await);
    assert_backfill_agrees(&lake.lake).await;
}

#[tokio::test]
async fn a_contract_with_a_wider_column_makes_everything_anew() {
    let all = events(6, 200, 6);
    let narrow = PEOPLE.replace("visits, type: int64", "visits, type: int32");
    let mut lake = TestLake::new(&[ALL[0], ("silver/people", narrow.as_str())]);
    lake.load("shop/0.ndjson", content(&all[..150])).await;
    lake.redeploy(ALL);
    lake.load("shop/1.ndjson", content(&all[150..])).await;
    let fresh = TestLake::new(ALL);
    fresh.load("shop/0.ndjson", content(&all)).await;
    assert_eq!(told(&lake.lake).await, told(&fresh.lake).await);
    let table = Table::open(&lake.lake.store, "silver/people").await.unwrap().unwrap();
    let schema = table.snapshot().await.unwrap().schema();
    assert_eq!(schema.field_with_name("visits").unwrap().data_type(), &DataType::Int64);
    assert_backfill_agrees(&lake.lake).await;
}
