//! The hot parts beside what anybody would use instead, in one run: what counts is the ratio of a pair, not its times.
//!
//! `cargo bench` runs them all, `cargo bench decimals` one. `alluvium bench files` measures the whole.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench that cannot go on stops")]

use std::io::Cursor;
use std::sync::Arc;

use alluvium::cast::ColumnCaster;
use alluvium::catalog::Catalog;
use alluvium::clock::SystemClock;
use alluvium::decode::{Options, open};
use alluvium::generate::Trips;
use alluvium::schema::{Contract, declared_schema};
use alluvium::store::Store;
use alluvium::table::{Change, DataFile, Table, TableSpec};
use arrow::array::{ArrayRef, StringArray, TimestampMicrosecondArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, SchemaRef};
use chrono::NaiveDateTime;
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};

const VALUES: usize = 20_000;

/// Columns of the trips that the pairs are about, without rules: the peers know none.
const CONTRACT: &str = r#"
version: 1
table: raw/trips
source: { path: "trips/**/*.csv*", format: csv }
unknown_columns: ignore
columns:
  - { name: trip_id, type: int64, nullable: false }
  - { name: pickup_ts, type: timestamp_ntz, nullable: false, format: "%Y-%m-%d %H:%M:%S" }
  - { name: dropoff_ts, type: timestamp_ntz, format: "%Y-%m-%d %H:%M:%S" }
  - { name: pickup_zone, type: string }
  - { name: dropoff_zone, type: string }
  - { name: passenger_count, type: int32 }
  - { name: distance_km, type: float64 }
  - { name: fare, type: "decimal(10,2)" }
  - { name: tip, type: "decimal(10,2)" }
  - { name: payment_type, type: string }
"#;

fn main() {
    divan::main();
}

fn contract() -> Arc<Contract> {
    let sources = vec![("raw/trips.yaml".to_owned(), CONTRACT.to_owned())];
    let catalog = Catalog::from_sources(sources).unwrap_or_else(|found| panic!("{found:#?}"));
    Arc::clone(&catalog.tables()[0])
}

fn column(name: &str) -> ColumnCaster {
    let contract = contract();
    let column = contract.columns.iter().find(|column| column.name == name).unwrap();
    ColumnCaster::new(column, &[String::new()]).unwrap()
}

fn ours(caster: &ColumnCaster, texts: &[String]) -> ArrayRef {
    let mut sink = caster.begin(texts.len());
    for text in texts {
        sink.push_text(black_box(text.as_bytes()), false).unwrap();
    }
    sink.finish().unwrap()
}

fn arrows(texts: &ArrayRef, data_type: &DataType) -> ArrayRef {
    cast_with_options(black_box(texts), data_type, &CastOptions { safe: false, ..CastOptions::default() }).unwrap()
}

/// Texts -> decimal(10,2).
mod decimals {
    use super::*;

    fn texts() -> Vec<String> {
        (0..VALUES).map(|at| format!("{}.{:02}", at * 7 % 1_000, at % 100)).collect()
    }

    #[divan::bench]
    fn alluvium(bencher: Bencher) {
        let (caster, texts) = (column("fare"), texts());
        bencher.counter(ItemsCount::new(VALUES)).bench(|| ours(&caster, &texts));
    }

    #[divan::bench]
    fn arrow_cast(bencher: Bencher) {
        let texts: ArrayRef = Arc::new(StringArray::from(texts()));
        bencher.counter(ItemsCount::new(VALUES)).bench(|| arrows(&texts, &DataType::Decimal128(10, 2)));
    }
}

/// Texts of one format -> microseconds.
mod timestamps {
    use super::*;

    fn texts() -> Vec<String> {
        (0..VALUES).map(|at| format!("2024-03-{:02} {:02}:{:02}:07", at % 28 + 1, at % 24, at % 60)).collect()
    }

    #[divan::bench]
    fn alluvium(bencher: Bencher) {
        let (caster, texts) = (column("pickup_ts"), texts());
        bencher.counter(ItemsCount::new(VALUES)).bench(|| ours(&caster, &texts));
    }

    #[divan::bench]
    fn arrow_cast(bencher: Bencher) {
        let texts: ArrayRef = Arc::new(StringArray::from(texts()));
        let data_type = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
        bencher.counter(ItemsCount::new(VALUES)).bench(|| arrows(&texts, &data_type));
    }

    #[divan::bench]
    fn chrono(bencher: Bencher) {
        let texts = texts();
        bencher.counter(ItemsCount::new(VALUES)).bench(|| {
            let micros = texts.iter().map(|text| {
                let time = NaiveDateTime::parse_from_str(black_box(text), "%Y-%m-%d %H:%M:%S").unwrap();
                time.and_utc().timestamp_micros()
            });
            TimestampMicrosecondArray::from_iter_values(micros)
        });
    }
}

/// A file of trips -> typed rows.
mod csv {
    use super::*;

    fn content() -> Vec<u8> {
        Trips { files: 1, rows: VALUES as u64, days: 5, seed: 7 }.file(0).into_bytes()
    }

    #[divan::bench]
    fn alluvium(bencher: Bencher) {
        let (contract, content) = (contract(), content());
        let source = contract.files().unwrap();
        bencher.counter(BytesCount::new(content.len())).bench(|| {
            let reader = Box::new(Cursor::new(black_box(content.clone())));
            let mut decoder = open(&contract, source, reader, &Options::default()).unwrap();
            let mut rows = 0;
            while let Some(chunk) = decoder.next_chunk().unwrap() {
                rows += chunk.rows.num_rows();
            }
            assert_eq!(rows, VALUES);
        });
    }

    #[divan::bench]
    fn arrow_csv(bencher: Bencher) {
        let (contract, content) = (contract(), content());
        let schema: SchemaRef = declared_schema(&contract);
        bencher.counter(BytesCount::new(content.len())).bench(|| {
            let reader = Cursor::new(black_box(content.clone()));
            let builder = arrow::csv::ReaderBuilder::new(Arc::clone(&schema)).with_header(true).with_batch_size(16_384);
            let rows: usize = builder.build(reader).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(rows, VALUES);
        });
    }
}

/// Kept change events -> judged changes of the shop's orders, beside a parse of every event into a tree.
mod changes {
    use alluvium::change::image::Images;
    use alluvium::decode::debezium::{EventRows, Place};
    use alluvium::generate::shop::{Shop, Trouble};
    use alluvium::schema::{lineage, yaml};
    use arrow::array::RecordBatch;
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn lines() -> Vec<Vec<u8>> {
        Shop { events: VALUES as u64, seed: 1, trouble: Trouble::USUAL }.lines().collect()
    }

    fn images() -> Images {
        let text = include_str!("../schemas/silver/orders.yaml");
        let (contract, _) = yaml::parse("orders.yaml", text).unwrap_or_else(|found| panic!("{found:#?}"));
        Images::new(&contract).unwrap()
    }

    fn kept(lines: &[Vec<u8>]) -> RecordBatch {
        let mut rows = EventRows::default();
        for (at, line) in (1..).zip(lines) {
            rows.push(line, Place::Line { record: at, line: at, byte_offset: 0 });
        }
        let rows = rows.finish().unwrap().rows;
        let file: ArrayRef = Arc::new(StringArray::from(vec!["a"; rows.num_rows()]));
        let mut fields: Vec<_> = rows.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(lineage::FILE, DataType::Utf8, true)));
        let columns = rows.columns().iter().cloned().chain([file]).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    #[divan::bench]
    fn alluvium(bencher: Bencher) {
        let (images, lines) = (images(), lines());
        let kept = kept(&lines);
        let bytes: usize = lines.iter().map(Vec::len).sum();
        bencher.counter(BytesCount::new(bytes)).bench(|| images.read(black_box(&kept)).unwrap());
    }

    #[divan::bench]
    fn serde_json_values(bencher: Bencher) {
        let lines = lines();
        let bytes: usize = lines.iter().map(Vec::len).sum();
        bencher.counter(BytesCount::new(bytes)).bench(|| {
            lines.iter().filter_map(|line| serde_json::from_slice::<serde_json::Value>(black_box(line)).ok()).count()
        });
    }
}

/// One commit that adopts a thousand files, beside writing its text alone.
mod commit {
    use super::*;

    const FILES: u64 = 1_000;

    fn adds() -> Vec<DataFile> {
        let stats =
            r#"{"numRecords":50000,"minValues":{"trip_id":1},"maxValues":{"trip_id":50000},"nullCount":{"trip_id":0}}"#;
        let add = |file| DataFile {
            path: format!("part-{file:05}.parquet"),
            size: 1_234_567,
            modified_ms: 1_700_000_000_000,
            partition_values: std::collections::BTreeMap::new(),
            rows: Some(50_000),
            stats: Some(stats.to_owned()),
        };
        (0..FILES).map(add).collect()
    }

    #[divan::bench]
    fn alluvium(bencher: Bencher) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let contract = contract();
        bencher
            .with_inputs(|| {
                let home = tempfile::tempdir().unwrap();
                let store = Store::local(home.path()).unwrap().with_clock(Arc::new(SystemClock));
                let spec = TableSpec {
                    schema: declared_schema(&contract),
                    partition_by: Vec::new(),
                    properties: std::collections::BTreeMap::new(),
                    description: None,
                };
                let table = runtime.block_on(Table::create(&store, "raw/trips", &spec)).unwrap();
                let base = runtime.block_on(table.snapshot()).unwrap();
                (home, table, base, Change { operation: "WRITE".to_owned(), adds: adds(), ..Change::default() })
            })
            .bench_local_values(|(home, table, base, change)| {
                let outcome = runtime.block_on(table.commit(&base, change)).unwrap();
                assert!(matches!(outcome, alluvium::table::Outcome::Committed(_)), "{outcome:?}");
                home
            });
    }

    #[divan::bench]
    fn text_alone(bencher: Bencher) {
        let adds = adds();
        bencher.with_inputs(|| tempfile::tempdir().unwrap()).bench_local_values(|home| {
            let mut text = String::new();
            for add in black_box(&adds) {
                let line = serde_json::json!({"add": {
                    "path": add.path, "size": add.size, "modificationTime": add.modified_ms,
                    "partitionValues": add.partition_values, "stats": add.stats, "dataChange": true,
                }});
                text.push_str(&line.to_string());
                text.push('\n');
            }
            std::fs::write(home.path().join("0.json"), text).unwrap();
            home
        });
    }
}
