//! Upkeep deletes what nobody needs, and nothing else: whatever else runs, wherever it is stopped, however time passes.

use std::sync::Arc;
use std::time::Duration;

use alluvium::catalog::Catalog;
use alluvium::clock::{Clock as _, ManualClock};
use alluvium::event::FileEvent;
use alluvium::landing::Landing;
use alluvium::pipeline::backfill::{BackfillOptions, backfill};
use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::pipeline::layers::Mode;
use alluvium::pipeline::maintain::{MaintainReport, Upkept, maintain};
use alluvium::store::Store;
use alluvium::table::{At, Snapshot, Table};
use chrono::TimeDelta;
use futures::TryStreamExt as _;
use object_store::ObjectStore;
use tempfile::TempDir;
use url::Url;

use crate::support::chance::Chance;
use crate::support::contracts::{self, sales};
use crate::support::times::TimedStore;
use crate::support::{
    assert_ledger, commit_once, drop_file, manual_clock, open, rows, settle, tables, write_contracts,
};

/// A lake in memory whose store and processes share one clock.
struct World {
    home: TempDir,
    disk: Arc<dyn ObjectStore>,
    clock: Arc<ManualClock>,
    settings: Settings,
}

impl World {
    fn new(settings: Settings) -> Self {
        let clock = manual_clock();
        Self::over(Arc::new(TimedStore::new(Arc::clone(&clock))), clock, settings)
    }

    fn over(disk: Arc<dyn ObjectStore>, clock: Arc<ManualClock>, settings: Settings) -> Self {
        let home = tempfile::tempdir().unwrap();
        write_contracts(home.path(), contracts::ALL);
        Self { home, disk, clock, settings }
    }

    /// A process.
    fn lake(&self) -> Lake {
        let store = Store::over(Arc::clone(&self.disk), Url::parse("memory:///").unwrap(), None)
            .with_clock(Arc::clone(&self.clock) as Arc<dyn alluvium::clock::Clock>);
        open(self.home.path(), store, Arc::clone(&self.clock), self.settings.clone())
    }

    /// A process that knows the contract of `raw/sales` alone.
    fn raw_only(&self) -> Lake {
        let lake = self.lake();
        let catalog = Catalog::from_sources(vec![("raw/sales.yaml".to_owned(), contracts::RAW.to_owned())]).unwrap();
        let landing = Landing::local(&self.home.path().join("landing")).unwrap();
        let clock = Arc::clone(&self.clock) as Arc<dyn alluvium::clock::Clock>;
        Lake::new(catalog, lake.store.clone(), landing, clock, self.settings.clone())
    }

    fn drop_file(&self, path: &str, content: &str) -> FileEvent {
        drop_file(&self.home.path().join("landing"), path, content.as_bytes())
    }

    async fn load(&self, lake: &Lake, path: &str, content: &str) {
        self.clock.advance(TimeDelta::minutes(1));
        ingest(lake, &self.drop_file(path, content)).await.unwrap();
        settle(lake).await;
    }

    fn days(&self, days: i64) {
        self.clock.advance(TimeDelta::days(days));
    }

    async fn put(&self, path: &str, content: &str) {
        let lake = self.lake();
        lake.store.put_if_absent(path, content.to_owned().into_bytes()).await.unwrap().is_new().unwrap();
    }

    /// Three files, a correction, and what crashes may leave.
    async fn history(&self, lake: &Lake) {
        self.load(lake, "sales/a.csv", &sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")])).await;
        self.load(lake, "sales/b.csv", &sales(&[(3, 2, "north", "3.00"), (4, 2, "south", "-4.00")])).await;
        self.load(lake, "sales/c.csv", &sales(&[(5, 1, "north", "5.00"), (1, 3, "north", "9.00")])).await;
        self.load(lake, "sales/a.csv", &sales(&[(1, 1, "north", "1.50")])).await;
        for path in LITTER {
            self.put(path, "left by a crash").await;
        }
    }
}

/// What crashes leave: data files that no version has, staged data without a manifest, a plan that nobody committed.
const LITTER: [&str; 6] = [
    "raw/sales/part-orphan.parquet",
    "aggregate/sales/day=2026-01-01/part-orphan.parquet",
    "quarantine/raw/sales/part-orphan.parquet",
    "ledger/table=raw%2Fsales/part-orphan.parquet",
    "_alluvium/staged/raw/sales/data/orphan.arrow",
    "_alluvium/plans/raw/sales/7.json",
];

async fn run(lake: &Lake) -> MaintainReport {
    let report = maintain(lake, None).await.unwrap();
    assert!(report.failed.is_empty() && report.left.is_empty(), "{report:#?}");
    report
}

fn of<'a>(report: &'a MaintainReport, table: &str) -> &'a Upkept {
    report.tables.iter().find(|upkept| upkept.table == table).unwrap()
}

async fn names(lake: &Lake, folder: &str) -> Vec<String> {
    let found = lake.store.list(folder).await.unwrap();
    let mut names: Vec<String> = found.into_iter().map(|object| object.location.to_string()).collect();
    names.sort();
    names
}

/// Rows of a version, read from its files.
async fn rows_at(lake: &Lake, folder: &str, version: i64) -> usize {
    let table = Table::open(&lake.store, folder).await.unwrap().unwrap();
    let snapshot = table.snapshot_at(At::Version(version)).await.unwrap();
    let mut found = 0;
    for file in snapshot.files().unwrap().iter() {
        let batches: Vec<_> = snapshot.read(file, None).await.unwrap().try_collect().await.unwrap();
        found += batches.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>();
    }
    found
}

#[tokio::test]
async fn a_run_deletes_what_nobody_needs_and_a_second_one_finds_nothing() {
    let world = World::new(Settings::default());
    let lake = world.lake();
    world.history(&lake).await;
    let before = tables(&lake).await;
    let version = rows::version(&lake, "raw/sales").await;

    // Too young to be touched.
    world.clock.advance(TimeDelta::hours(23));
    let early = run(&lake).await;
    for path in LITTER {
        assert!(lake.store.head(path).await.unwrap().is_some(), "{path}");
    }
    assert!(early.tables.iter().all(|upkept| upkept.fence.is_none()), "{early:#?}");
    let raw = of(&early, "raw/sales").compacted.clone().unwrap();
    assert_eq!((raw.files_before, raw.files_after, raw.rows), (3, 1, 4));
    assert_eq!(rows_at(&lake, "raw/sales", version).await, 4, "what was compacted away is read by older versions");

    world.days(8);
    commit_once(&lake).await;
    let late = run(&lake).await;
    for path in LITTER {
        assert!(lake.store.head(path).await.unwrap().is_none(), "{path}");
    }
    let raw = of(&late, "raw/sales");
    assert_eq!(raw.fence, Some(rows::version(&lake, "raw/sales").await));
    // The orphan, the file that the correction removed and those that were compacted.
    assert_eq!(raw.data.files, 1 + 1 + 3);
    assert_eq!(raw.plans.files, 1 + 4);
    assert_eq!(raw.staged.files, 1);
    let left = names(&lake, "_alluvium").await;
    assert!(left.is_empty(), "{left:?}");
    let live = names(&lake, "raw/sales").await.into_iter().filter(|path| path.ends_with(".parquet")).count();
    assert_eq!(live, 1);

    let idle = run(&lake).await;
    assert!(idle.tables.iter().all(Upkept::is_nothing), "{idle:#?}");
    assert_eq!(tables(&lake).await, before);
    commit_once(&lake).await;
    assert_eq!(tables(&world.lake()).await, before);
}

#[tokio::test]
async fn what_the_slowest_reader_has_not_seen_stays() {
    let world = World::new(Settings::default());
    let lake = world.lake();
    world.load(&lake, "sales/a.csv", &sales(&[(1, 1, "north", "1.00")])).await;
    let raw_only = world.raw_only();
    for turn in 0..12 {
        // Each correction removes the file of the one before.
        world.load(&raw_only, "sales/a.csv", &sales(&[(1, 1, "north", &format!("{turn}.00"))])).await;
        world.load(&raw_only, &format!("sales/{turn}.csv"), &sales(&[(100 + turn, 1, "south", "1.00")])).await;
    }
    let behind = lake.table("aggregate/sales").await.unwrap().unwrap().snapshot().await.unwrap().version();
    world.days(40);
    let report = run(&lake).await;
    let raw = of(&report, "raw/sales");
    assert!(raw.checkpoint.is_some() && raw.compacted.is_some(), "{raw:#?}");
    assert_eq!((raw.log.files, raw.data.files), (0, 0), "{raw:#?}");

    let fresh = world.lake();
    let advanced = commit_once(&fresh).await.layers;
    let sales_layer = advanced.iter().find(|advanced| advanced.table.to_string() == "aggregate/sales").unwrap();
    assert_eq!(sales_layer.mode, Mode::Incremental);
    assert!(sales_layer.version.unwrap() > behind);

    // Now everybody has seen it. The log goes down to the checkpoint, and removed files go.
    world.days(40);
    let report = run(&fresh).await;
    let raw = of(&report, "raw/sales");
    assert!(raw.log.files > 20 && raw.data.files > 20, "{raw:#?}");
    let anew = world.lake();
    assert_eq!(rows::sorted(&anew, "raw/sales").await.len(), 13);
    let table = Table::open(&anew.store, "raw/sales").await.unwrap().unwrap();
    let error = table.snapshot_at(At::Version(2)).await.unwrap_err();
    assert!(error.message().contains("can be read"), "{error}");
    // Whoever had the table open all the time goes on as well.
    world.load(&lake, "sales/z.csv", &sales(&[(999, 1, "north", "1.00")])).await;
    assert_eq!(rows::sorted(&lake, "aggregate/sales").await.len(), 14);
}

#[tokio::test]
async fn a_table_with_a_file_missing_is_not_touched() {
    let world = World::new(Settings::default());
    let lake = world.lake();
    world.history(&lake).await;
    world.days(8);
    let live = rows::files(&lake, "raw/sales").await.remove(0);
    lake.store.delete(&[format!("raw/sales/{live}")]).await.unwrap();
    let report = maintain(&lake, None).await.unwrap();
    let failure = report.failed.iter().find(|failure| failure.table == "raw/sales").unwrap();
    assert!(failure.error.contains(&live), "{}", failure.error);
    assert!(lake.store.head(LITTER[0]).await.unwrap().is_some());
    assert!(lake.store.head(LITTER[1]).await.unwrap().is_none(), "the neighbours are maintained");
}

#[tokio::test]
async fn when_the_time_is_over_the_rest_is_left() {
    let world = World::new(Settings::default());
    let lake = world.lake();
    world.history(&lake).await;
    world.days(8);
    let report = maintain(&lake, Some(world.clock.now())).await.unwrap();
    assert!(report.tables.is_empty() && report.failed.is_empty());
    assert!(report.left.contains(&"raw/sales".to_owned()) && report.left.contains(&"ledger".to_owned()));
    assert!(lake.store.head(LITTER[0]).await.unwrap().is_some());
}

/// What a reader reads, file by file, of a version that it opened, while others go on; none when a file is gone.
async fn read_slowly(snapshot: &Snapshot, meanwhile: impl AsyncFnOnce()) -> Option<usize> {
    let files = snapshot.files().unwrap();
    let mut meanwhile = Some(meanwhile);
    let mut found = 0;
    for file in files.iter() {
        let read = snapshot.read(file, None).await;
        let batches: Vec<_> = match read {
            Ok(rows) => rows.try_collect().await.ok()?,
            Err(_) => return None,
        };
        found += batches.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>();
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile().await;
        }
    }
    Some(found)
}

#[tokio::test]
async fn a_reader_of_an_older_version_reads_it_whole_or_is_told() {
    for (days, expected) in [(6, Some(4)), (8, None)] {
        let world = World::new(Settings::default());
        let lake = world.lake();
        world.load(&lake, "sales/a.csv", &sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")])).await;
        world.load(&lake, "sales/b.csv", &sales(&[(3, 2, "north", "3.00"), (4, 2, "south", "4.00")])).await;
        let reader = world.lake().table("raw/sales").await.unwrap().unwrap().snapshot().await.unwrap();
        let version = reader.version();
        // Both files leave: one by a correction, then what is left by a compaction; then the upkeep comes by again.
        let read = read_slowly(&reader, async || {
            world.load(&lake, "sales/a.csv", &sales(&[(1, 1, "north", "1.50")])).await;
            assert!(of(&run(&lake).await, "raw/sales").compacted.is_some());
            world.days(days);
            // What the layers have not read stays in any case.
            commit_once(&lake).await;
            let upkept = run(&lake).await;
            assert_eq!(of(&upkept, "raw/sales").data.files > 0, expected.is_none(), "{days} days");
        });
        assert_eq!(read.await, expected, "{days} days");
        let table = world.lake().table("raw/sales").await.unwrap().unwrap();
        let again = table.snapshot_at(At::Version(version)).await.unwrap();
        assert_eq!(read_slowly(&again, async || {}).await, expected, "{days} days");
        assert_eq!(rows::sorted(&lake, "raw/sales").await.len(), 3);
    }
}

/// A file staged as final Parquet, and everything that is not in the log and older than a week deleted by somebody else.
#[tokio::test]
async fn a_foreign_vacuum_costs_time_and_no_row() {
    let world = World::new(Settings { adopt_bytes: 1, ..Settings::default() });
    let lake = world.lake();
    world.load(&lake, "sales/a.csv", &sales(&[(1, 1, "north", "1.00")])).await;
    ingest(&lake, &world.drop_file("sales/b.csv", &sales(&[(2, 1, "north", "2.00")]))).await.unwrap();
    let live: Vec<String> =
        rows::files(&lake, "raw/sales").await.iter().map(|file| format!("raw/sales/{file}")).collect();
    let files = names(&lake, "raw/sales").await;
    let foreign: Vec<String> =
        files.into_iter().filter(|path| path.ends_with(".parquet") && !live.contains(path)).collect();
    assert_eq!(foreign.len(), 1, "the staged file");
    world.days(8);
    lake.store.delete(&foreign).await.unwrap();
    settle(&lake).await;
    assert_eq!(rows::sorted(&lake, "raw/sales").await.len(), 2);
    assert_ledger(&lake).await;
}

/// Our own vacuum keeps what a manifest names, however old; the committer then writes it anew.
#[tokio::test]
async fn a_staged_file_that_waits_for_weeks_is_kept() {
    let world = World::new(Settings { adopt_bytes: 1, ..Settings::default() });
    let lake = world.lake();
    world.load(&lake, "sales/a.csv", &sales(&[(1, 1, "north", "1.00")])).await;
    ingest(&lake, &world.drop_file("sales/b.csv", &sales(&[(2, 1, "north", "2.00"), (3, 1, "north", "-1.00")])))
        .await
        .unwrap();
    world.put(LITTER[0], "an orphan, so that there is something to do").await;
    world.days(30);
    let report = run(&lake).await;
    assert_eq!(of(&report, "raw/sales").data.files, 1);
    let reports = settle(&lake).await;
    assert_eq!(reports.iter().flat_map(|report| &report.commits).map(|done| done.adopted).sum::<usize>(), 0);
    assert!(reports.iter().all(|report| report.restage.is_empty()));
    assert_eq!(rows::sorted(&lake, "raw/sales").await.len(), 2);
    assert_eq!(rows::sorted(&lake, "quarantine/raw/sales").await.len(), 1);
    // The staged file itself is nobody's now.
    world.days(8);
    assert!(of(&run(&lake).await, "raw/sales").data.files >= 1);
    assert_eq!(rows::sorted(&lake, "raw/sales").await.len(), 2);
}

/// Workers, committers, runs of the upkeep and of the backfill, two of each at once, over a store whose calls take up to half a day.
async fn together(seed: u64, adopt_bytes: u64) {
    const FILES: i64 = 6;
    let content = |file: i64| sales(&[(file, 1, "north", "1.00"), (100 + file, 2, "south", "-2.00")]);
    let clock = manual_clock();
    let settings = Settings {
        adopt_bytes,
        // Short, so that much is over its time during a run.
        orphan_retention: Duration::from_secs(24 * 3600),
        ..Settings::default()
    };
    let world = World::over(Arc::new(TimedStore::slow(Arc::clone(&clock), seed)), clock, settings);
    let mut events: Vec<FileEvent> =
        (0..FILES).map(|file| world.drop_file(&format!("sales/{file}.csv"), &content(file))).collect();
    events.extend(events.clone());
    Chance::new(seed).shuffle(&mut events);
    let queue = Arc::new(tokio::sync::Mutex::new(events));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (lake, events) = (world.lake(), Arc::clone(&queue));
        tasks.spawn(async move {
            loop {
                let Some(event) = events.lock().await.pop() else { return };
                ingest(&lake, &event).await.unwrap();
            }
        });
        let (lake, again) = (world.lake(), Arc::clone(&queue));
        tasks.spawn(async move {
            for _ in 0..6 {
                let report = commit(&lake, CommitOptions { force: true, deadline: None }).await.unwrap();
                assert!(report.failed.is_empty(), "seed {seed}: {:#?}", report.failed);
                let restaged = report.restage.iter().map(|version| FileEvent {
                    path: version.path.clone(),
                    etag: None,
                    sequencer: None,
                    bytes: None,
                });
                again.lock().await.extend(restaged);
            }
        });
        let lake = world.lake();
        tasks.spawn(async move {
            for _ in 0..4 {
                let report = maintain(&lake, None).await.unwrap();
                assert!(report.failed.is_empty(), "seed {seed}: {:#?}", report.failed);
            }
        });
        let lake = world.lake();
        tasks.spawn(async move {
            for _ in 0..3 {
                let report = backfill(&lake, &BackfillOptions::default(), |_| {}).await.unwrap();
                assert!(report.failed.is_empty(), "seed {seed}: {:#?}", report.failed);
                let differing: Vec<_> = report.tables.iter().filter(|table| !table.difference.is_none()).collect();
                assert!(differing.is_empty(), "seed {seed}: {differing:#?}");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let lake = world.lake();
    for event in queue.lock().await.drain(..) {
        ingest(&lake, &event).await.unwrap();
    }
    settle(&lake).await;
    run(&lake).await;
    settle(&lake).await;
    for (table, count) in [("raw/sales", FILES), ("aggregate/sales", FILES), ("quarantine/raw/sales", FILES)] {
        assert_eq!(rows::sorted(&lake, table).await.len(), usize::try_from(count).unwrap(), "{table}, seed {seed}");
    }
    assert_ledger(&lake).await;
}

#[tokio::test]
async fn upkeep_and_backfill_beside_workers_and_committers_lose_and_double_nothing() {
    for seed in 0..8 {
        together(seed, u64::MAX / 8).await;
        together(100 + seed, 1).await;
    }
}
