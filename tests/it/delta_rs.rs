//! What `deltalake` does when it commits by itself, as far as it is compiled in here, and that our commit rule holds against
//! it, on local folders and on Azurite. An upgrade that changes one of these is noticed. (Its write, delete, merge and
//! optimize need the feature `datafusion`, which is off: their commits are made here through its commit builder, as they
//! make them.)

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium::clock::{Clock, SystemClock};
use alluvium::error::{Error, ErrorKind};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::Settings;
use alluvium::store::{Put, Store};
use alluvium::table::{Change, DataFile, Log, Outcome, Snapshot, Table, TableSpec, Writer, WriterOptions};
use arrow::array::{AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use deltalake::DeltaTable;
use deltalake::kernel::transaction::{CommitBuilder, CommitProperties};
use deltalake::kernel::{Action, Transaction};
use deltalake::operations::vacuum::{self, VacuumMode};
use deltalake::protocol::{DeltaOperation, SaveMode};
use futures::TryStreamExt as _;
use serde_json::json;

use crate::support::contracts::{self, sales};
use crate::support::place::Place;
use crate::support::{assert_ledger, rows, settle};

/// A store in one of the places that lakes may be in.
struct Spot {
    place: Place,
    store: Store,
}

async fn spots() -> Vec<Spot> {
    let spot = |place: Place| Spot { store: place.backends().store().unwrap(), place };
    Place::both().await.into_iter().map(spot).collect()
}

impl Spot {
    /// A table of one column, created empty.
    async fn table(&self, folder: &str) -> Table {
        let spec = TableSpec {
            schema: Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)])),
            partition_by: Vec::new(),
            properties: BTreeMap::new(),
            description: None,
        };
        Table::create(&self.store, folder, &spec).await.unwrap()
    }

    /// Files that hold some ids, and belong to no version.
    async fn files(&self, base: &Snapshot, ids: &[i64]) -> Vec<DataFile> {
        let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
        let options = WriterOptions::default();
        let mut writer = Writer::new(&self.store, base.folder(), base.schema(), base.partition_by(), options, clock);
        let column = Arc::new(Int64Array::from(ids.to_vec()));
        writer.write(&RecordBatch::try_new(base.schema(), vec![column]).unwrap()).await.unwrap();
        writer.finish().await.unwrap()
    }

    async fn append(&self, table: &Table, id: i64) -> Snapshot {
        let base = table.snapshot().await.unwrap();
        let adds = self.files(&base, &[id]).await;
        committed(table.commit(&base, Change { adds, ..Change::default() }).await.unwrap())
    }

    /// A table with the rows 1 and 2, a file each, and a handle of `deltalake`'s that saw both.
    async fn two_rows(&self) -> (Table, Snapshot, DeltaTable) {
        let table = self.table("raw/t").await;
        self.append(&table, 1).await;
        let base = self.append(&table, 2).await;
        (table, base, self.foreign("raw/t").await)
    }

    async fn foreign(&self, folder: &str) -> DeltaTable {
        let mut table = DeltaTable::new(Log::new(&self.store, folder).unwrap().store);
        table.load().await.unwrap();
        table
    }
}

fn committed(outcome: Outcome) -> Snapshot {
    match outcome {
        Outcome::Committed(snapshot) => snapshot,
        Outcome::Unknown(error) => panic!("not committed: {error}"),
    }
}

fn refused(outcome: Outcome) -> Error {
    match outcome {
        Outcome::Committed(snapshot) => panic!("committed version {}", snapshot.version()),
        Outcome::Unknown(error) => error,
    }
}

fn write(mode: SaveMode) -> DeltaOperation {
    DeltaOperation::Write { mode, partition_by: None, predicate: None }
}

fn optimize() -> DeltaOperation {
    DeltaOperation::Optimize { predicate: None, target_size: 1 << 20 }
}

fn action(value: serde_json::Value) -> Action {
    serde_json::from_value(value).unwrap()
}

fn added(file: &DataFile, data_change: bool) -> Action {
    action(json!({ "add": {
        "path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": file.modified_ms,
        "dataChange": data_change, "stats": file.stats,
    }}))
}

fn removed(file: &DataFile, data_change: bool) -> Action {
    action(json!({ "remove": {
        "path": file.path, "partitionValues": {}, "size": file.size, "deletionTimestamp": file.modified_ms,
        "dataChange": data_change, "extendedFileMetadata": true,
    }}))
}

/// A commit as `deltalake` makes it, from what `handle` has seen.
async fn commit(
    handle: &DeltaTable,
    actions: Vec<Action>,
    operation: DeltaOperation,
    properties: CommitProperties,
) -> Result<u64, String> {
    let builder = CommitBuilder::from(properties.with_create_checkpoint(false)).with_actions(actions);
    let seen = handle.snapshot().unwrap();
    let done = builder.build(Some(seen), handle.log_store(), operation).await;
    done.map(|done| done.version()).map_err(|e| e.to_string())
}

fn with_txn(version: i64) -> CommitProperties {
    CommitProperties::default().with_application_transaction(Transaction::new("alluvium", version))
}

/// All rows of the newest version, sorted.
async fn ids(table: &Table) -> Vec<i64> {
    let snapshot = table.snapshot().await.unwrap();
    let mut found = Vec::new();
    for file in snapshot.files().unwrap().iter() {
        let batches: Vec<RecordBatch> = snapshot.read(file, None).await.unwrap().try_collect().await.unwrap();
        found.extend(batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()));
    }
    found.sort_unstable();
    found
}

/// The same change as ours, from a snapshot that is no longer the newest: refused, and nothing is different.
async fn ours_is_refused(table: &Table, base: &Snapshot, change: Change) {
    let before = ids(table).await;
    assert_eq!(refused(table.commit(base, change).await.unwrap()).kind(), ErrorKind::Conflict);
    assert_eq!(ids(table).await, before);
}

#[tokio::test]
async fn a_commit_that_creates_a_table_is_not_checked_for_conflicts() {
    for spot in spots().await {
        // The columns of the table to be, and files of its rows.
        let model = spot.table("raw/model").await.snapshot().await.unwrap().in_folder("raw/t");
        let (files, again) = (spot.files(&model, &[1]).await, spot.files(&model, &[1]).await);
        let schema = json!({ "type": "struct", "fields": [
            { "name": "id", "type": "long", "nullable": true, "metadata": {} },
        ] });
        let create = |file: &DataFile| {
            vec![
                action(json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } })),
                action(json!({ "metaData": {
                    "id": "8a0a3c1e-0000-4000-8000-000000000001", "format": { "provider": "parquet", "options": {} },
                    "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {}, "createdTime": 1,
                }})),
                added(file, true),
            ]
        };
        let log = Log::new(&spot.store, "raw/t").unwrap().store;
        for (file, expected) in [(&files[0], 0), (&again[0], 1)] {
            let builder = CommitBuilder::from(with_txn(1).with_create_checkpoint(false)).with_actions(create(file));
            let done = builder.build(None, Arc::clone(&log), write(SaveMode::Append)).await.unwrap();
            assert_eq!(done.version(), expected, "the second creator becomes the second version");
        }
        let table = Table::open(&spot.store, "raw/t").await.unwrap().unwrap();
        assert_eq!(ids(&table).await, [1, 1], "rows and txn are there twice");

        // Ours: created empty by both, then one of two first commits is refused.
        let (one, other) = (spot.table("raw/ours").await, spot.table("raw/ours").await);
        let (seen, also) = (one.snapshot().await.unwrap(), other.snapshot().await.unwrap());
        let first = Change { adds: spot.files(&seen, &[1]).await, ..Change::default() };
        let second = Change { adds: spot.files(&also, &[1]).await, ..Change::default() };
        committed(one.commit(&seen, first).await.unwrap());
        ours_is_refused(&other, &also, second).await;
    }
}

#[tokio::test]
async fn an_old_txn_is_accepted_from_a_fresh_snapshot() {
    for spot in spots().await {
        let (table, base, stale) = spot.two_rows().await;
        let (one, two) = (spot.files(&base, &[3]).await, spot.files(&base, &[3]).await);
        let append = |file: &DataFile| vec![added(file, true)];
        commit(&stale, append(&one[0]), write(SaveMode::Append), with_txn(7)).await.unwrap();
        let error = commit(&stale, append(&two[0]), write(SaveMode::Append), with_txn(7)).await.unwrap_err();
        assert!(error.to_lowercase().contains("transaction"), "a stale handle is refused: {error}");
        let fresh = spot.foreign("raw/t").await;
        commit(&fresh, append(&two[0]), write(SaveMode::Append), with_txn(7)).await.unwrap();
        assert_eq!(ids(&table).await, [1, 2, 3, 3], "the same txn, rows twice");
        // Ours asks the snapshot, and the snapshot knows.
        assert_eq!(table.snapshot().await.unwrap().txn("alluvium").await.unwrap(), Some(7));
        let adds = spot.files(&base, &[4]).await;
        let change = Change { adds, txns: vec![("alluvium".to_owned(), 7)], ..Change::default() };
        ours_is_refused(&table, &base, change).await;
    }
}

#[tokio::test]
async fn compaction_over_a_newer_compaction_is_accepted_and_doubles_rows() {
    for spot in spots().await {
        let (table, base, stale) = spot.two_rows().await;
        let live = base.files().unwrap();
        let (one, two) = (spot.files(&base, &[1, 2]).await, spot.files(&base, &[1, 2]).await);
        let compaction = |file: &DataFile| {
            let removes = live.iter().map(|file| removed(file, false));
            removes.chain([added(file, false)]).collect::<Vec<_>>()
        };
        let fresh = spot.foreign("raw/t").await;
        commit(&fresh, compaction(&one[0]), optimize(), CommitProperties::default()).await.unwrap();
        let strict = CommitProperties::default().with_max_retries(0);
        let error = commit(&stale, compaction(&two[0]), optimize(), strict).await.unwrap_err();
        assert!(error.contains("Failed to commit transaction"), "{error}");
        let change = Change { adds: two.clone(), removes: live.to_vec(), rearrange_only: true, ..Change::default() };
        ours_is_refused(&table, &base, change).await;
        commit(&stale, compaction(&two[0]), optimize(), CommitProperties::default()).await.unwrap();
        assert_eq!(ids(&table).await, [1, 1, 2, 2]);
    }
}

#[tokio::test]
async fn overwrite_over_a_newer_compaction_is_accepted_and_leaves_old_rows() {
    for spot in spots().await {
        let (table, base, stale) = spot.two_rows().await;
        let live = base.files().unwrap();
        let (compacted, new) = (spot.files(&base, &[1, 2]).await, spot.files(&base, &[9]).await);
        let removes = |data_change| live.iter().map(move |file| removed(file, data_change));
        let compaction = removes(false).chain([added(&compacted[0], false)]).collect();
        let fresh = spot.foreign("raw/t").await;
        commit(&fresh, compaction, optimize(), CommitProperties::default()).await.unwrap();
        let change = Change { adds: new.clone(), removes: live.to_vec(), ..Change::default() };
        ours_is_refused(&table, &base, change).await;
        let overwrite = removes(true).chain([added(&new[0], true)]).collect();
        commit(&stale, overwrite, write(SaveMode::Overwrite), CommitProperties::default()).await.unwrap();
        assert_eq!(ids(&table).await, [1, 2, 9], "it should be 9 alone");
    }
}

/// Eight days from now.
#[derive(Debug)]
struct NextWeek;

impl vacuum::Clock for NextWeek {
    fn current_timestamp_millis(&self) -> i64 {
        SystemClock.now().timestamp_millis() + 8 * 24 * 3_600_000
    }
}

/// A vacuum as others run it, next week, with the usual week of retention.
fn next_week(table: DeltaTable, mode: VacuumMode) -> vacuum::VacuumBuilder {
    table.vacuum().with_mode(mode).with_clock(Arc::new(NextWeek))
}

#[tokio::test]
async fn a_full_vacuum_takes_files_that_are_not_committed_yet_and_a_lite_one_does_not() {
    for spot in spots().await {
        let (_, base, _) = spot.two_rows().await;
        let waiting = spot.files(&base, &[3]).await.remove(0);
        let hidden = spot.store.put_if_absent("raw/t/_in/part.parquet", "staged").await.unwrap();
        assert!(matches!(hidden, Put::Created));
        let doomed = |table: DeltaTable, mode| async move {
            next_week(table, mode).with_dry_run(true).await.unwrap().1.files_deleted
        };
        let name = spot.place.name();
        let none = Vec::<String>::new();
        assert_eq!(doomed(spot.foreign("raw/t").await, VacuumMode::Lite).await, none, "{name}");
        assert_eq!(doomed(spot.foreign("raw/t").await, VacuumMode::Full).await, [waiting.path], "{name}");
    }
}

#[tokio::test]
async fn a_foreign_vacuum_of_seven_days_costs_another_reading_and_no_row() {
    for place in Place::both().await {
        let place = place.with_contracts(contracts::ALL);
        // Every file is staged as what it is to be in the table.
        let mut lake = place.lake();
        lake.settings = Arc::new(Settings { adopt_bytes: 1, ..Settings::clone(&lake.settings) });
        let first = place.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00"), (2, 1, "north", "-1.00")])).await;
        ingest(&lake, &first).await.unwrap();
        settle(&lake).await;
        let second = place.drop_file("sales/b.csv", sales(&[(3, 1, "north", "3.00"), (4, 1, "north", "-1.00")])).await;
        ingest(&lake, &second).await.unwrap();
        let mut foreign = DeltaTable::new(Log::new(&lake.store, "raw/sales").unwrap().store);
        foreign.load().await.unwrap();
        let (_, done) = next_week(foreign, VacuumMode::Full).await.unwrap();
        assert_eq!(done.files_deleted.len(), 1, "the staged file: {:?}", done.files_deleted);
        let reports = settle(&lake).await;
        assert_eq!(reports.iter().map(|report| report.restage.len()).sum::<usize>(), 1, "{}", place.name());
        assert_eq!(rows::brief(&lake, "raw/sales", &["id"]).await, ["1", "3"], "{}", place.name());
        assert_eq!(rows::sorted(&lake, "quarantine/raw/sales").await.len(), 2);
        assert_eq!(rows::sorted(&lake, "aggregate/sales").await.len(), 2);
        assert_ledger(&lake).await;
    }
}

#[tokio::test]
async fn a_restore_keeps_the_txn_of_what_it_takes_back() {
    for spot in spots().await {
        let (table, base, _) = spot.two_rows().await;
        let adds = spot.files(&base, &[3]).await;
        let change = Change { adds, txns: vec![("alluvium".to_owned(), 5)], ..Change::default() };
        committed(table.commit(&base, change).await.unwrap());
        spot.foreign("raw/t").await.restore().with_version_to_restore(2).await.unwrap();
        assert_eq!(ids(&table).await, [1, 2]);
        assert_eq!(table.snapshot().await.unwrap().txn("alluvium").await.unwrap(), Some(5));
        let opened = Table::open(&spot.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
        assert_eq!(opened.txn("alluvium").await.unwrap(), Some(5));
        // A restore is a commit like any other to whoever had decided before it.
        let late = Change { adds: spot.files(&base, &[4]).await, ..Change::default() };
        ours_is_refused(&table, &base, late).await;
    }
}
