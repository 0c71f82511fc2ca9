//! Real Kafka and real Debezium: what the local host reads of topics is in the tables once, whatever dies meanwhile.

mod bench;
mod chain;
mod consumer;
mod demo;
mod shop;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::pipeline::ledger;
use alluvium::store::Store;
use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::support::changes::Record;
use crate::support::program::{Program, eventually};
use crate::support::services::Services;
use crate::support::{assert_ledger, manual_clock, open, root, rows, write_contracts};

const PATIENCE: Duration = Duration::from_secs(60);

/// A home whose host reads the topics with one prefix.
struct World {
    home: tempfile::TempDir,
    prefix: String,
}

impl World {
    /// `name` is nobody else's: topics and group have it too.
    fn new(name: &str) -> Self {
        let contract = |prefix: &str| {
            format!("version: 1\ntable: bronze/shop\nsource: {{ format: debezium, topics: [\"{prefix}.*\"] }}\n")
        };
        Self::with(name, |prefix| vec![("bronze/shop".to_owned(), contract(prefix))])
    }

    /// The tables of the shop as they are shipped, from topics of its own.
    fn of_the_shop(name: &str) -> Self {
        Self::with(name, |prefix| {
            let mut contracts = Vec::new();
            for layer in ["bronze", "silver", "gold"] {
                for entry in std::fs::read_dir(root().join("schemas").join(layer)).unwrap() {
                    let path = entry.unwrap().path();
                    let table = format!("{layer}/{}", path.file_stem().unwrap().to_string_lossy());
                    contracts.push((table, std::fs::read_to_string(path).unwrap().replace("lake", prefix)));
                }
            }
            contracts
        })
    }

    fn with(name: &str, contracts: impl Fn(&str) -> Vec<(String, String)>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let prefix = format!("{name}-{}", &home.path().file_name().unwrap().to_string_lossy().trim_start_matches('.'));
        let contracts = contracts(&prefix);
        let contracts: Vec<(&str, &str)> =
            contracts.iter().map(|(table, yaml)| (table.as_str(), yaml.as_str())).collect();
        write_contracts(home.path(), &contracts);
        std::fs::create_dir_all(home.path().join("landing")).unwrap();
        Self { home, prefix }
    }

    /// The program over this home; the committer runs every second.
    fn program(&self, services: &Services) -> Program {
        let mut program = Program::new(self.home.path())
            .schemas(&self.home.path().join("schemas"))
            .env("ALLUVIUM_ARRIVAL_HOLD_MS", "50")
            .env("ALLUVIUM_COMMIT_AGE", "100ms")
            .env("COMMIT_SCHEDULE", "* * * * * *")
            .env("CDC_CONSUMER_GROUP", &self.prefix);
        for (name, value) in services.addresses() {
            program = program.env(name, value);
        }
        program
    }

    /// A process of the test's own over the same lake.
    fn lake(&self) -> Lake {
        let store = Store::local(&self.home.path().join("lake")).unwrap();
        open(self.home.path(), store, manual_clock(), Settings::default())
    }

    /// The intervals of offsets that the ledger has, by topic and partition.
    fn intervals(&self) -> BTreeMap<(String, i32), Vec<(i64, i64)>> {
        block_on(async {
            let lake = self.lake();
            let index = ledger::index(&lake).await.unwrap();
            let Some(table) = lake.table("bronze/shop").await.unwrap() else { return BTreeMap::new() };
            let snapshot = table.snapshot().await.unwrap();
            let Some(known) = index.table(snapshot.table_id()) else { return BTreeMap::new() };
            let streams = known.streams.iter();
            streams.map(|(at, offsets)| ((at.topic.clone(), at.partition), offsets.intervals().collect())).collect()
        })
    }

    /// Waits until the ledger has each partition of the records from its first one to its last without a gap.
    fn wait_for(&self, records: &[Record]) {
        let mut whole: BTreeMap<(String, i32), (i64, i64)> = BTreeMap::new();
        for record in records {
            let ends = whole.entry((record.topic.clone(), record.partition)).or_insert((record.offset, record.offset));
            *ends = (ends.0.min(record.offset), ends.1.max(record.offset));
        }
        let wanted: BTreeMap<_, _> = whole.into_iter().map(|(at, ends)| (at, vec![ends])).collect();
        eventually(PATIENCE, "the ledger has all offsets, and no gap between them", || {
            let mut found = self.intervals();
            found.retain(|partition, _| wanted.contains_key(partition));
            if found != wanted {
                std::thread::sleep(Duration::from_millis(200));
            }
            found == wanted
        });
    }

    /// Each record is in the table once, byte for byte, and nothing else of their topics.
    fn assert_kept_once(&self, records: &[Record]) {
        let mut wanted: Vec<String> = records.iter().map(Record::line).collect();
        wanted.sort();
        let topics: BTreeSet<String> =
            records.iter().map(|record| format!("{{\"topic\":\"{}\",", record.topic)).collect();
        let mut found = block_on(async { rows::events(&self.lake(), "bronze/shop").await });
        found.retain(|line| topics.iter().any(|topic| line.starts_with(topic)));
        assert_eq!(found.len(), wanted.len(), "rows and records");
        assert!(found == wanted, "the same number, but others");
    }

    /// The same, when the host has stopped: and the ledger's arithmetic is right.
    fn assert_all_there_once(&self, records: &[Record]) {
        self.assert_kept_once(records);
        block_on(async { assert_ledger(&self.lake()).await });
    }

    /// Some columns of a table as text, instants as microseconds; the rows are sorted. No table: no rows.
    fn content(&self, table: &str, columns: &[String]) -> shop::Content {
        let batches = block_on(async { rows::batches(&self.lake(), table, Some(columns)).await });
        let mut rows = Vec::new();
        for batch in batches {
            let named =
                columns.iter().map(|name| batch.column_by_name(name).unwrap_or_else(|| panic!("{table}: {name}")));
            let values = named.map(|values| match values.data_type() {
                DataType::Timestamp(_, _) => cast(values, &DataType::Int64).unwrap(),
                _ => Arc::clone(values),
            });
            let batch = RecordBatch::try_from_iter(columns.iter().zip(values)).unwrap();
            rows.extend(rows::text_with(&batch, "null"));
        }
        rows.sort();
        shop::Content { columns: columns.to_vec(), rows }
    }

    /// Files below a folder of the lake.
    fn folder(&self, path: &str) -> std::path::PathBuf {
        Path::new(self.home.path()).join("lake").join(path)
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}
