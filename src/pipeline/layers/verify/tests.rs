//! Whatever two sides hold, and however little memory there is: the difference is what a plain count of rows says.

use std::collections::BTreeMap;

use arrow::array::{Float64Array, Int64Array};
use arrow::datatypes::Schema;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::store::Store;
use crate::table::{Table, TableSpec, Writer, WriterOptions};

type Rows = Vec<(i64, i64)>;

struct World {
    _folder: tempfile::TempDir,
    store: Store,
    clock: Arc<dyn Clock>,
    schema: SchemaRef,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::local(folder.path()).unwrap();
        let clock = Arc::new(ManualClock::new(chrono::DateTime::UNIX_EPOCH, 1));
        let fields = vec![Field::new("key", DataType::Int64, true), Field::new("value", DataType::Int64, true)];
        Self { _folder: folder, store, clock, schema: Arc::new(Schema::new(fields)) }
    }

    async fn side(&self, folder: &str, files: &[Rows], sign: Sign) -> Side {
        let spec = TableSpec {
            schema: Arc::clone(&self.schema),
            partition_by: Vec::new(),
            properties: BTreeMap::new(),
            description: None,
        };
        let table = Table::create(&self.store, folder, &spec).await.unwrap();
        let snapshot = table.snapshot().await.unwrap();
        let mut found = Vec::new();
        for rows in files {
            let clock = Arc::clone(&self.clock);
            let options = WriterOptions::default();
            let mut writer = Writer::new(&self.store, folder, Arc::clone(&self.schema), &[], options, clock);
            let keys: Int64Array = rows.iter().map(|row| Some(row.0)).collect();
            let values: Int64Array = rows.iter().map(|row| Some(row.1)).collect();
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::new(keys), Arc::new(values)]).unwrap();
            writer.write(&batch).await.unwrap();
            found.extend(writer.finish().await.unwrap());
        }
        (snapshot, found, sign)
    }
}

fn plainly(stored: &Rows, made: &Rows, by_key: bool) -> Difference {
    let mut net: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    stored.iter().for_each(|row| *net.entry(*row).or_default() += 1);
    made.iter().for_each(|row| *net.entry(*row).or_default() -= 1);
    let mut keys: BTreeMap<(i64, i64), (u64, u64)> = BTreeMap::new();
    for ((key, value), count) in net {
        let sums = keys.entry((key, if by_key { 0 } else { value })).or_default();
        if count < 0 { sums.0 += count.unsigned_abs() } else { sums.1 += count.unsigned_abs() }
    }
    let mut difference = Difference::default();
    for (missing, extra) in keys.into_values() {
        let both = missing.min(extra);
        difference.different += both;
        difference.missing += missing - both;
        difference.extra += extra - both;
    }
    difference
}

#[tokio::test]
async fn the_difference_is_that_of_a_plain_count() {
    let world = World::new();
    let key = ["key".to_owned()];
    let mut state = 1_u64;
    let mut chance = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((state >> 33) % below).unwrap()
    };
    let mut differing = 0;
    for round in 0..24 {
        let made: Rows = (0..chance(60)).map(|_| (chance(40), chance(3))).collect();
        let mut stored = made.clone();
        for _ in 0..chance(4) {
            match chance(3) {
                0 => stored.push((chance(40), chance(3))),
                1 if !stored.is_empty() => {
                    stored.remove(usize::try_from(chance(stored.len() as u64)).unwrap());
                }
                _ => stored.iter_mut().take(1).for_each(|row| row.1 += 1),
            }
        }
        let halves = |rows: &Rows| [rows[..rows.len() / 2].to_vec(), rows[rows.len() / 2..].to_vec()];
        let mut other_order = stored.clone();
        other_order.reverse();
        let sides = [
            world.side(&format!("raw/stored{round}"), &halves(&other_order), Sign::Stored).await,
            world.side(&format!("raw/made{round}"), std::slice::from_ref(&made), Sign::Made).await,
        ];
        for (key, by_key) in [(&key[..], true), (&[][..], false)] {
            let expected = plainly(&stored, &made, by_key);
            differing += usize::from(!expected.is_none());
            for limit in [0, 3, 1_000_000] {
                let comparison = Comparison::new(&world.schema, key).unwrap();
                let found = comparison.run(&sides, limit).await.unwrap();
                assert_eq!(found, expected, "round {round}, by key {by_key}, limit {limit}");
            }
        }
    }
    assert!(differing > 10, "{differing} rounds had a difference");
}

#[test]
fn floats_are_the_same_when_their_sums_are() {
    let field = Field::new("x", DataType::Float64, true);
    let of = |values: Vec<f64>| {
        let column: ArrayRef = Arc::new(Float64Array::from(values));
        comparable(&field, &column).unwrap()
    };
    assert_eq!(of(vec![0.1 + 0.2, -0.0, 1e300]).as_ref(), of(vec![0.3, 0.0, 1e301]).as_ref());
    assert_ne!(of(vec![0.3001]).as_ref(), of(vec![0.3]).as_ref());
}
