//! What the tests share: a lake in a temporary folder, files dropped into it, tables read back as sorted text rows.

pub mod azurite;
pub mod changes;
pub mod contracts;
pub mod functions_host;
pub mod place;
pub mod program;
pub mod proxy;
pub mod python;
pub mod racers;
pub mod raw;
pub mod rows;
#[cfg(feature = "kafka")]
pub mod services;
pub mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium::catalog::Catalog;
use alluvium::clock::{Clock as _, ManualClock, SystemClock};
use alluvium::event::FileEvent;
use alluvium::landing::Landing;
use alluvium::pipeline::commit::{CommitOptions, CommitReport, commit};
use alluvium::pipeline::ingest::{Ingested, ingest};
use alluvium::pipeline::lake::{Lake, Settings};
pub use alluvium::selftest::{chance, times};
use alluvium::store::Store;
use tempfile::TempDir;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// How often the work of a test is done that can be made longer by hand: `ALLUVIUM_TEST_ROUNDS`.
pub fn rounds() -> u32 {
    std::env::var("ALLUVIUM_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A lake on local folders that goes away with the test.
pub struct TestLake {
    /// Holds `landing/`, `lake/` and `schemas/`.
    pub home: TempDir,
    /// What the pipeline's steps take.
    pub lake: Lake,
    /// Stands still unless a test moves it.
    pub clock: Arc<ManualClock>,
}

impl TestLake {
    /// A lake of these contracts: (table name, YAML).
    pub fn new(contracts: &[(&str, &str)]) -> Self {
        Self::with_settings(contracts, Settings::default())
    }

    /// The same, with other sizes and ages.
    pub fn with_settings(contracts: &[(&str, &str)], settings: Settings) -> Self {
        let home = tempfile::tempdir().unwrap();
        write_contracts(home.path(), contracts);
        Self::in_home(home, settings)
    }

    fn in_home(home: TempDir, settings: Settings) -> Self {
        let clock = manual_clock();
        let store = Store::local(&home.path().join("lake")).unwrap();
        let lake = open(home.path(), store, Arc::clone(&clock), settings);
        Self { home, lake, clock }
    }

    /// Another process over the same folders: nothing in memory is shared.
    pub fn another(&self) -> Lake {
        let store = Store::local(&self.home.path().join("lake")).unwrap();
        open(self.home.path(), store, manual_clock(), Settings::clone(&self.lake.settings))
    }

    /// The same lake under other contracts, as after a deployment.
    pub fn redeploy(&mut self, contracts: &[(&str, &str)]) {
        write_contracts(self.home.path(), contracts);
        self.lake = self.another();
    }

    /// Puts a file whole into the landing zone by a rename, replacing what was there, and gives its event.
    pub fn drop_file(&self, path: &str, content: impl AsRef<[u8]>) -> FileEvent {
        drop_file(&self.home.path().join("landing"), path, content.as_ref())
    }

    /// Drops a file, ingests it and commits until nothing is left to do.
    pub async fn load(&self, path: &str, content: impl AsRef<[u8]>) {
        let event = self.drop_file(path, content);
        self.ingest(&event).await;
        self.settle().await;
    }

    /// Ingests one event, which must succeed.
    pub async fn ingest(&self, event: &FileEvent) -> Vec<Ingested> {
        self.clock.advance(chrono::TimeDelta::milliseconds(1));
        ingest(&self.lake, event).await.unwrap()
    }

    /// Commits until nothing is left to do.
    pub async fn settle(&self) -> Vec<CommitReport> {
        settle(&self.lake).await
    }

    /// All rows of a table as sorted text, without what depends on arrival.
    pub async fn rows(&self, table: &str) -> Vec<String> {
        rows::sorted(&self.lake, table).await
    }

    /// Every table of the lake that can be compared, by folder.
    pub async fn tables(&self) -> BTreeMap<String, Vec<String>> {
        tables(&self.lake).await
    }

    /// The landing folder's file.
    pub fn landed(&self, path: &str) -> PathBuf {
        self.home.path().join("landing").join(path)
    }

    /// A folder of the lake on disk.
    pub fn folder(&self, folder: &str) -> PathBuf {
        self.home.path().join("lake").join(folder)
    }
}

/// A clock that all processes of a test start from, with fresh names of its own.
pub fn manual_clock() -> Arc<ManualClock> {
    // Fresh names must differ between the processes of one lake; time starts at the same instant for all.
    let fresh = SystemClock.fresh();
    let seed = u64::from_str_radix(&fresh[..16], 16).unwrap();
    Arc::new(ManualClock::new("2026-01-15T10:00:00Z".parse().unwrap(), seed))
}

/// Replaces the contracts of a home.
pub fn write_contracts(home: &Path, contracts: &[(&str, &str)]) {
    let folder = home.join("schemas");
    let _ = std::fs::remove_dir_all(&folder);
    for (table, yaml) in contracts {
        let file = folder.join(format!("{table}.yaml"));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, yaml).unwrap();
    }
}

/// A lake over any store, with the home's landing zone and contracts.
pub fn open(home: &Path, store: Store, clock: Arc<ManualClock>, settings: Settings) -> Lake {
    let catalog = Catalog::load(&home.join("schemas")).unwrap_or_else(|found| panic!("contracts: {found:#?}"));
    let landing = Landing::local(&home.join("landing")).unwrap();
    Lake::new(catalog, store, landing, clock, settings)
}

/// Puts a file whole into a landing folder and gives its event.
pub fn drop_file(landing: &Path, path: &str, content: &[u8]) -> FileEvent {
    let target = landing.join(path);
    let folder = target.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let mut file = tempfile::Builder::new().prefix("_").tempfile_in(folder).unwrap();
    std::io::Write::write_all(&mut file, content).unwrap();
    file.persist(&target).unwrap();
    FileEvent { path: path.to_owned(), etag: None, sequencer: None, bytes: Some(content.len() as u64) }
}

/// One forced run of the committer, in which no table may stop.
pub async fn commit_once(lake: &Lake) -> CommitReport {
    let report = commit(lake, CommitOptions { force: true, deadline: None }).await.unwrap();
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    report
}

/// Commits until nothing is left to do, ingesting again what the committer asks for.
pub async fn settle(lake: &Lake) -> Vec<CommitReport> {
    let mut reports = Vec::new();
    for _ in 0..20 {
        let report = commit_once(lake).await;
        for version in &report.restage {
            let event = FileEvent { path: version.path.clone(), etag: None, sequencer: None, bytes: None };
            ingest(lake, &event).await.unwrap();
        }
        let is_quiet = report.is_quiet();
        reports.push(report);
        if is_quiet {
            return reports;
        }
    }
    panic!("the committer never comes to rest: {reports:#?}");
}

/// Every table of the lake that can be compared, by folder.
pub async fn tables(lake: &Lake) -> BTreeMap<String, Vec<String>> {
    let mut tables = BTreeMap::new();
    for contract in lake.catalog.tables() {
        let name = contract.table.to_string();
        tables.insert(name.clone(), rows::sorted(lake, &name).await);
        if contract.files().is_some() {
            let quarantine = format!("quarantine/{name}");
            tables.insert(quarantine.clone(), rows::sorted(lake, &quarantine).await);
        }
    }
    tables.insert("ledger".to_owned(), rows::sorted(lake, "ledger").await);
    tables
}

/// Asserts the row arithmetic of every ledger row, and that each file version has one terminal row for each table.
pub async fn assert_ledger(lake: &Lake) {
    let index = alluvium::pipeline::ledger::index(lake).await.unwrap();
    for contract in lake.catalog.tables().iter().filter(|contract| contract.files().is_some()) {
        let Some(table) = lake.table(&contract.table.to_string()).await.unwrap() else { continue };
        let snapshot = table.snapshot().await.unwrap();
        let Some(known) = index.table(snapshot.table_id()) else { continue };
        let loaded: u64 = known.batches.values().map(|row| row.counts.loaded).sum();
        for row in known.batches.values() {
            match contract.events() {
                Some(_) => row.counts.all_kept(&row.source).unwrap(),
                None => row.counts.balanced(&row.source).unwrap(),
            }
        }
        let replaces = known.paths.values().any(|versions| versions.len() > 1);
        if !replaces && contract.write_mode == alluvium::schema::WriteMode::Append {
            let stored = alluvium::pipeline::status::count(&snapshot).await.unwrap();
            assert_eq!(loaded, stored, "{}: rows that the ledger calls loaded", contract.table);
        }
    }
    let terminal = rows::select(lake, "ledger", &["table", "path", "batch_id", "status"]).await;
    let mut seen = std::collections::BTreeSet::new();
    for row in &terminal {
        let is_note = row[3] == "missing" || row[3] == "failed";
        assert!(is_note || seen.insert(row[..3].to_vec()), "twice in the ledger: {row:?}");
    }
}
