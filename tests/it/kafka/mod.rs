//! Real Kafka and real Debezium: what the local host reads of topics is in the tables once, whatever dies meanwhile.

mod chain;
mod consumer;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::pipeline::ledger;
use alluvium::store::Store;

use crate::support::changes::Record;
use crate::support::program::{Program, eventually};
use crate::support::services::Services;
use crate::support::{assert_ledger, manual_clock, open, rows, write_contracts};

const PATIENCE: Duration = Duration::from_secs(60);

/// A home whose host reads the topics with one prefix.
struct World {
    home: tempfile::TempDir,
    prefix: String,
}

impl World {
    /// `name` is nobody else's: topics and group have it too.
    fn new(name: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let prefix = format!("{name}-{}", &home.path().file_name().unwrap().to_string_lossy().trim_start_matches('.'));
        let contract =
            format!("version: 1\ntable: bronze/shop\nsource: {{ format: debezium, topics: [\"{prefix}.*\"] }}\n");
        write_contracts(home.path(), &[("bronze/shop", &contract)]);
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

    /// Waits until the ledger has each partition from its first record to its last without a gap.
    fn wait_for(&self, records: &[Record]) {
        let mut whole: BTreeMap<(String, i32), (i64, i64)> = BTreeMap::new();
        for record in records {
            let ends = whole.entry((record.topic.clone(), record.partition)).or_insert((record.offset, record.offset));
            *ends = (ends.0.min(record.offset), ends.1.max(record.offset));
        }
        let wanted: BTreeMap<_, _> = whole.into_iter().map(|(at, ends)| (at, vec![ends])).collect();
        eventually(PATIENCE, "the ledger has all offsets, and no gap between them", || {
            let found = self.intervals();
            if found != wanted {
                std::thread::sleep(Duration::from_millis(200));
            }
            found == wanted
        });
    }

    /// Each record is in the table once, byte for byte.
    fn assert_all_there_once(&self, records: &[Record]) {
        let mut wanted: Vec<String> = records.iter().map(Record::line).collect();
        wanted.sort();
        block_on(async {
            let lake = self.lake();
            let found = rows::events(&lake, "bronze/shop").await;
            assert_eq!(found.len(), wanted.len(), "rows and records");
            assert!(found == wanted, "the same number, but others");
            assert_ledger(&lake).await;
        });
    }

    /// Files below a folder of the lake.
    fn folder(&self, path: &str) -> std::path::PathBuf {
        Path::new(self.home.path()).join("lake").join(path)
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}
