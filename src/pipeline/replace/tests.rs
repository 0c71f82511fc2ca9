//! Upserts and replaced units against a map in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};
use proptest::prelude::*;

use super::*;
use crate::catalog::Catalog;
use crate::clock::{Clock, ManualClock};
use crate::error::Error;
use crate::landing::Landing;
use crate::pipeline::lake::Settings;
use crate::store::Store;
use crate::table::{Change, Outcome, Table, TableSpec};

/// key, order, zone (the partition), value
type Row = (Option<i64>, Option<i64>, &'static str, i64);

struct World {
    lake: Lake,
    table: Table,
    _folder: tempfile::TempDir,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("seq", DataType::Int64, true),
        Field::new("zone", DataType::Utf8, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| Some(row.2)).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| Some(row.3)).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// Memory that everything fits into.
const ROOMY: u64 = 64 << 20;

async fn world(threads: usize, memory_bytes: u64) -> World {
    let folder = tempfile::tempdir().unwrap();
    let now: DateTime<Utc> = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(now, 3));
    let store = Store::local(&folder.path().join("lake")).unwrap();
    let landing = Landing::local(&folder.path().join("landing")).unwrap();
    let spec = TableSpec {
        schema: schema(),
        partition_by: vec!["zone".to_owned()],
        properties: BTreeMap::new(),
        description: None,
    };
    let table = Table::create(&store, "silver/t", &spec).await.unwrap();
    // Files of any size are shared out.
    let settings = Settings { memory_bytes, target_file_bytes: 1, threads, ..Settings::default() };
    World { lake: Lake::new(Catalog::default(), store, landing, clock, settings), table, _folder: folder }
}

impl World {
    async fn commit(&self, base: &Snapshot, done: Replacement) {
        let change = Change { adds: done.adds, removes: done.removes, ..Change::default() };
        assert!(matches!(self.table.commit(base, change).await.unwrap(), Outcome::Committed(_)));
    }

    async fn upsert(&self, rows: &[Row]) -> (u64, u64) {
        let base = self.table.snapshot().await.unwrap();
        let (key, order) = (["k".to_owned()], ["seq".to_owned()]);
        // Two batches: the order counts over both.
        let half = rows.len() / 2;
        let new = vec![batch(&rows[..half]), batch(&rows[half..])];
        let new = || stream::iter(new.clone()).map(Ok::<_, Error>).boxed();
        let done = by_key(&self.lake, &base, &schema(), &key, Newer { columns: &order }, new).await.unwrap();
        let counts = (done.rows_added, done.rows_removed);
        self.commit(&base, done).await;
        counts
    }

    async fn rows(&self) -> Vec<Row> {
        let snapshot = self.table.snapshot().await.unwrap();
        let mut rows = Vec::new();
        for file in snapshot.files().unwrap().iter() {
            let batches: Vec<RecordBatch> = snapshot.read(file, None).await.unwrap().try_collect().await.unwrap();
            for batch in &batches {
                let number = |at: usize| batch.column(at).as_primitive::<Int64Type>();
                let get = |at: usize, row: usize| number(at).is_valid(row).then(|| number(at).value(row));
                for row in 0..batch.num_rows() {
                    let zone = if batch.column(2).as_string::<i32>().value(row) == "n" { "n" } else { "s" };
                    rows.push((get(0, row), get(1, row), zone, number(3).value(row)));
                }
            }
        }
        rows.sort_unstable();
        rows
    }
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop::option::weighted(0.9, 0_i64..5),
        prop::option::weighted(0.8, 0_i64..4),
        prop::sample::select(vec!["n", "s"]),
        0_i64..3,
    );
    prop::collection::vec(row, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_newest_row_of_each_key_stays(
        upserts in prop::collection::vec(rows(), 1..5),
        threads in 1_usize..5,
        // In little memory, rows are read again for every few keys.
        memory_bytes in prop::sample::select(vec![ROOMY, 1_200]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = world(threads, memory_bytes).await;
            let mut expected: BTreeMap<Option<i64>, Row> = BTreeMap::new();
            for rows in &upserts {
                let before = expected.clone();
                for row in rows {
                    // A row without an order is older than any other; among equals the later one is newer.
                    if expected.get(&row.0).is_none_or(|held| row.1 >= held.1) {
                        expected.insert(row.0, *row);
                    }
                }
                let (added, removed) = world.upsert(rows).await;
                let changed = expected.iter().filter(|(key, row)| before.get(*key) != Some(*row)).count() as u64;
                if memory_bytes == ROOMY {
                    prop_assert_eq!(added, changed);
                } else {
                    // What was written before it was compared takes the place even of its equal.
                    prop_assert!(added >= changed);
                }
                prop_assert_eq!(removed, added - (expected.len() - before.len()) as u64);
                let mut sorted: Vec<Row> = expected.values().copied().collect();
                sorted.sort_unstable();
                prop_assert_eq!(world.rows().await, sorted);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn only_files_that_lose_rows_are_rewritten() {
    let world = world(2, ROOMY).await;
    world.upsert(&[(Some(1), Some(1), "n", 1), (Some(2), Some(1), "n", 2), (Some(3), Some(1), "s", 3)]).await;
    let base = world.table.snapshot().await.unwrap();
    let keys = |values: Vec<i64>| {
        let mut keys = KeyIndex::over(&schema(), &["k".to_owned()]).unwrap();
        keys.insert(&[Arc::new(Int64Array::from(values)) as ArrayRef]).unwrap();
        Arc::new(keys)
    };
    // 1 stays as it is, 2 changes, 4 is new; the file of 3 is not touched.
    let new = NewRows::Held(vec![batch(&[
        (Some(1), Some(1), "n", 1),
        (Some(2), Some(2), "n", 20),
        (Some(4), Some(1), "s", 4),
    ])]);
    let done = by_units(&world.lake, &base, &schema(), &keys(vec![1, 2, 4]), new).await.unwrap();
    assert_eq!((done.rows_added, done.rows_removed, done.removes.len()), (2, 1, 1));
    assert_eq!(done.removes[0].partition_values["zone"].as_deref(), Some("n"));
    world.commit(&base, done).await;
    // Nothing differs: nothing is done.
    let base = world.table.snapshot().await.unwrap();
    let same = NewRows::Held(vec![batch(&[(Some(3), Some(1), "s", 3)])]);
    let done = by_units(&world.lake, &base, &schema(), &keys(vec![3]), same).await.unwrap();
    assert!(done.adds.is_empty() && done.removes.is_empty(), "{done:?}");
    // A unit without new rows vanishes.
    let done = by_units(&world.lake, &base, &schema(), &keys(vec![3]), NewRows::Held(vec![])).await.unwrap();
    assert_eq!((done.rows_added, done.rows_removed, done.adds.len()), (0, 1, 0));
    world.commit(&base, done).await;
    assert_eq!(
        world.rows().await,
        [(Some(1), Some(1), "n", 1), (Some(2), Some(2), "n", 20), (Some(4), Some(1), "s", 4)]
    );
}
