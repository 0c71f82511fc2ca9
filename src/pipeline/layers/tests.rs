//! Whatever happens to the sources, in whatever steps the layers follow: the same rows as computing everything at once.

mod commits;
mod oracle;
mod sequences;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use chrono::{DateTime, Utc};
use futures::TryStreamExt;

use super::*;
use crate::catalog::Catalog;
use crate::clock::{Clock, ManualClock};
use crate::landing::Landing;
use crate::pipeline::lake::Settings;
use crate::schema::ingested_schema;
use crate::store::Store;
use crate::table::{CompactOptions, DataFile, Writer, WriterOptions, compact};

/// A row of the source: id, day, zone, amount; which file and record it is of; who brought it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Trip {
    id: Option<i64>,
    day: Option<i32>,
    zone: &'static str,
    amount: Option<i64>,
    file: String,
    row: i64,
}

struct World {
    lake: Lake,
    _folder: tempfile::TempDir,
}

const TRIPS: (&str, &str) = (
    "raw/trips",
    "version: 1
table: raw/trips
source: { path: 'trips/*.csv', format: csv }
unknown_columns: ignore
columns:
  - { name: id, type: int64 }
  - { name: day, type: date }
  - { name: zone, type: string }
  - { name: amount, type: int64 }
",
);

fn derived(table: &str, text: &str) -> (String, String) {
    (table.to_owned(), format!("version: 1\ntable: {table}\n{text}"))
}

fn world(contracts: &[(String, String)], settings: Settings) -> World {
    let folder = tempfile::tempdir().unwrap();
    let now: DateTime<Utc> = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(now, 7));
    let mut sources = vec![(format!("{}.yaml", TRIPS.0), TRIPS.1.to_owned())];
    sources.extend(contracts.iter().map(|(name, text)| (format!("{name}.yaml"), text.clone())));
    let catalog = Catalog::from_sources(sources).unwrap_or_else(|found| panic!("{found:#?}"));
    assert_eq!(crate::lineage::check_catalog(&catalog), []);
    let store = Store::local(&folder.path().join("lake")).unwrap();
    let landing = Landing::local(&folder.path().join("landing")).unwrap();
    World { lake: Lake::new(catalog, store, landing, clock, settings), _folder: folder }
}

fn settings() -> Settings {
    Settings { memory_bytes: 64 << 20, threads: 2, ..Settings::default() }
}

fn batch_of(trips: &[Trip], batch_id: &str) -> RecordBatch {
    let fields = vec![
        Field::new("id", DataType::Int64, true),
        Field::new("day", DataType::Date32, true),
        Field::new("zone", DataType::Utf8, true),
        Field::new("amount", DataType::Int64, true),
        Field::new("_file", DataType::Utf8, false),
        Field::new("_row", DataType::Int64, false),
        Field::new("_batch_id", DataType::Utf8, true),
    ];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(trips.iter().map(|trip| trip.id).collect::<Int64Array>()),
        Arc::new(trips.iter().map(|trip| trip.day).collect::<Date32Array>()),
        Arc::new(trips.iter().map(|trip| Some(trip.zone)).collect::<StringArray>()),
        Arc::new(trips.iter().map(|trip| trip.amount).collect::<Int64Array>()),
        Arc::new(trips.iter().map(|trip| Some(trip.file.as_str())).collect::<StringArray>()),
        Arc::new(trips.iter().map(|trip| Some(trip.row)).collect::<Int64Array>()),
        Arc::new(trips.iter().map(|_| Some(batch_id)).collect::<StringArray>()),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

impl World {
    async fn table(&self, name: &str) -> Table {
        let folder = layout::table(&name.parse().unwrap());
        if let Some(table) = self.lake.table(&folder).await.unwrap() {
            return table;
        }
        let contract = self.lake.catalog.get(&name.parse().unwrap()).unwrap();
        let spec = TableSpec {
            schema: ingested_schema(contract),
            partition_by: contract.partition_by.clone(),
            properties: BTreeMap::new(),
            description: None,
        };
        let table = Table::create(&self.lake.store, &folder, &spec).await.unwrap();
        self.lake.keep(&folder, &table);
        table
    }

    /// One commit to a source: the rows of `gone` files leave, one new file comes for each of `new`.
    async fn put(&self, name: &str, gone: Vec<DataFile>, new: &[Vec<Trip>]) {
        let table = self.table(name).await;
        let base = table.snapshot().await.unwrap();
        let mut adds = Vec::new();
        for trips in new.iter().filter(|trips| !trips.is_empty()) {
            let mut writer = Writer::new(
                &self.lake.store,
                base.folder(),
                base.schema(),
                base.partition_by(),
                WriterOptions::default(),
                Arc::clone(&self.lake.clock),
            );
            let brought_by = self.lake.clock.fresh();
            writer.write(&crate::table::conform(&batch_of(trips, &brought_by), &base.schema()).unwrap()).await.unwrap();
            adds.extend(writer.finish().await.unwrap());
        }
        let change = Change { operation: "WRITE".to_owned(), adds, removes: gone, ..Change::default() };
        match table.commit(&base, change).await.unwrap() {
            Outcome::Committed(_) => {}
            Outcome::Unknown(error) => panic!("{error}"),
        }
    }

    async fn files(&self, name: &str) -> Vec<DataFile> {
        self.table(name).await.snapshot().await.unwrap().files().unwrap().to_vec()
    }

    async fn compact(&self, name: &str) {
        compact(&self.table(name).await, CompactOptions::to(1 << 30), Arc::clone(&self.lake.clock)).await.unwrap();
    }

    async fn advance(&self, name: &str) -> Advanced {
        let contract = self.lake.catalog.get(&name.parse().unwrap()).unwrap();
        advance(&self.lake, contract).await.unwrap_or_else(|e| panic!("{name}: {}", e.describe()))
    }

    /// Advances every derived table; none may fail.
    async fn advance_all(&self) -> Vec<Advanced> {
        let outcomes = advance_each(&self.lake, None).await.into_iter();
        outcomes.map(|(table, done)| done.unwrap_or_else(|e| panic!("{table}: {}", e.describe()))).collect()
    }

    /// All rows as texts, sorted; empty when there is no table.
    async fn rows(&self, name: &str) -> Vec<String> {
        let Some(table) = self.lake.table(&layout::table(&name.parse().unwrap())).await.unwrap() else {
            return Vec::new();
        };
        let snapshot = table.snapshot().await.unwrap();
        let mut rows = Vec::new();
        for file in snapshot.files().unwrap().iter() {
            let batches: Vec<RecordBatch> = snapshot.read(file, None).await.unwrap().try_collect().await.unwrap();
            rows.extend(batches.iter().flat_map(texts));
        }
        rows.sort();
        rows
    }
}

fn texts(batch: &RecordBatch) -> Vec<String> {
    let columns: Vec<ArrayRef> = batch.columns().iter().map(|column| cast(column, &DataType::Utf8).unwrap()).collect();
    (0..batch.num_rows())
        .map(|row| {
            let cells = columns.iter().map(|column| {
                let column = column.as_string::<i32>();
                if column.is_null(row) { "null" } else { column.value(row) }
            });
            cells.collect::<Vec<_>>().join("|")
        })
        .collect()
}

fn trip(id: i64, day: i32, zone: &'static str, amount: i64, file: &str, row: i64) -> Trip {
    Trip { id: Some(id), day: Some(day), zone, amount: Some(amount), file: file.to_owned(), row }
}
