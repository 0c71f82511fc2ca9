//! What `deltalake` does when it commits by itself, as far as it is compiled in here, and that our commit rule holds against
//! it. An upgrade that changes one of these is noticed. (Its write, delete, merge and optimize need the feature `datafusion`,
//! which is off: their commits are made here through its commit builder, as they make them.)

use std::time::{Duration, SystemTime};

use deltalake::DeltaTable;
use deltalake::kernel::transaction::{CommitBuilder, CommitProperties};
use deltalake::kernel::{Action, Transaction};
use deltalake::operations::vacuum::VacuumMode;
use deltalake::protocol::{DeltaOperation, SaveMode};
use serde_json::json;

use super::*;
use crate::table::logstore::Log;

/// A table with the rows 1 and 2, a file each, and a handle of `deltalake`'s that saw both.
async fn two_rows(lake: &Lake) -> (Table, Snapshot, DeltaTable) {
    let table = lake.table(vec![int("id")], &[]).await;
    lake.append(&table, &[batch(vec![("id", ints([1]))])]).await;
    let base = lake.append(&table, &[batch(vec![("id", ints([2]))])]).await;
    (table, base, foreign(lake).await)
}

async fn foreign(lake: &Lake) -> DeltaTable {
    let mut table = DeltaTable::new(Log::new(&lake.store, "raw/t").unwrap().store);
    table.load().await.unwrap();
    table
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

/// Files that hold some ids, and belong to no version.
async fn files_of(lake: &Lake, base: &Snapshot, ids: &[i64]) -> Vec<DataFile> {
    lake.files(base, &[batch(vec![("id", ints(ids.iter().copied()))])]).await
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

async fn ids(lake: &Lake, table: &Table) -> Vec<String> {
    lake.sql(&table.snapshot().await.unwrap(), "select id from t").await
}

/// The same change as ours, from a snapshot that is no longer the newest: refused, and nothing is different.
async fn ours_is_refused(lake: &Lake, table: &Table, base: &Snapshot, change: Change) {
    let before = ids(lake, table).await;
    assert_eq!(refused(table.commit(base, change).await.unwrap()).kind(), crate::error::ErrorKind::Conflict);
    assert_eq!(ids(lake, table).await, before);
}

#[tokio::test]
async fn a_commit_that_creates_a_table_is_not_checked_for_conflicts() {
    let lake = lake();
    // The columns of the table to be, and files of its rows.
    let elsewhere = Table::create(&lake.store, "raw/model", &spec(vec![int("id")], &[])).await.unwrap();
    let model = elsewhere.snapshot().await.unwrap();
    let files = files_of(&lake, &model.in_folder("raw/t"), &[1]).await;
    let again = files_of(&lake, &model.in_folder("raw/t"), &[1]).await;
    let schema = crate::table::schema::to_delta(&model.schema()).unwrap();
    let create = |file: &DataFile| {
        vec![
            action(json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } })),
            action(json!({ "metaData": {
                "id": "8a0a3c1e-0000-4000-8000-000000000001", "format": { "provider": "parquet", "options": {} },
                "schemaString": schema, "partitionColumns": [], "configuration": {}, "createdTime": 1,
            }})),
            added(file, true),
        ]
    };
    let log = Log::new(&lake.store, "raw/t").unwrap().store;
    for (file, expected) in [(&files[0], 0), (&again[0], 1)] {
        let builder = CommitBuilder::from(with_txn(1).with_create_checkpoint(false)).with_actions(create(file));
        let done = builder.build(None, Arc::clone(&log), write(SaveMode::Append)).await.unwrap();
        assert_eq!(done.version(), expected, "the second creator becomes the second version");
    }
    let table = Table::open(&lake.store, "raw/t").await.unwrap().unwrap();
    assert_eq!(ids(&lake, &table).await, ["1", "1"], "rows and txn are there twice");

    // Ours: created empty by both, then one of two first commits is refused.
    let one = lake.table_in("raw/ours", vec![int("id")]).await;
    let other = lake.table_in("raw/ours", vec![int("id")]).await;
    let (seen, also) = (one.snapshot().await.unwrap(), other.snapshot().await.unwrap());
    let first = Change { adds: files_of(&lake, &seen, &[1]).await, ..Change::default() };
    let second = Change { adds: files_of(&lake, &also, &[1]).await, ..Change::default() };
    committed(one.commit(&seen, first).await.unwrap());
    ours_is_refused(&lake, &other, &also, second).await;
}

#[tokio::test]
async fn an_old_txn_is_accepted_from_a_fresh_snapshot() {
    let lake = lake();
    let (table, base, stale) = two_rows(&lake).await;
    let (one, two) = (files_of(&lake, &base, &[3]).await, files_of(&lake, &base, &[3]).await);
    let append = |file: &DataFile| vec![added(file, true)];
    commit(&stale, append(&one[0]), write(SaveMode::Append), with_txn(7)).await.unwrap();
    let error = commit(&stale, append(&two[0]), write(SaveMode::Append), with_txn(7)).await.unwrap_err();
    assert!(error.to_lowercase().contains("transaction"), "a stale handle is refused: {error}");
    let fresh = foreign(&lake).await;
    commit(&fresh, append(&two[0]), write(SaveMode::Append), with_txn(7)).await.unwrap();
    assert_eq!(ids(&lake, &table).await, ["1", "2", "3", "3"], "the same txn, rows twice");
    // Ours asks the snapshot, and the snapshot knows.
    assert_eq!(table.snapshot().await.unwrap().txn("alluvium").await.unwrap(), Some(7));
    let change = Change {
        adds: files_of(&lake, &base, &[4]).await,
        txns: vec![("alluvium".to_owned(), 7)],
        ..Change::default()
    };
    ours_is_refused(&lake, &table, &base, change).await;
}

#[tokio::test]
async fn compaction_over_a_newer_compaction_is_accepted_and_doubles_rows() {
    let lake = lake();
    let (table, base, stale) = two_rows(&lake).await;
    let live = base.files().unwrap();
    let (one, two) = (files_of(&lake, &base, &[1, 2]).await, files_of(&lake, &base, &[1, 2]).await);
    let compaction = |file: &DataFile| {
        let removes = live.iter().map(|file| removed(file, false));
        removes.chain([added(file, false)]).collect::<Vec<_>>()
    };
    commit(&foreign(&lake).await, compaction(&one[0]), optimize(), CommitProperties::default()).await.unwrap();
    let strict = CommitProperties::default().with_max_retries(0);
    let error = commit(&stale, compaction(&two[0]), optimize(), strict).await.unwrap_err();
    assert!(error.contains("Failed to commit transaction"), "{error}");
    let change = Change { adds: two.clone(), removes: live.to_vec(), rearrange_only: true, ..Change::default() };
    ours_is_refused(&lake, &table, &base, change).await;
    commit(&stale, compaction(&two[0]), optimize(), CommitProperties::default()).await.unwrap();
    assert_eq!(ids(&lake, &table).await, ["1", "1", "2", "2"]);
}

#[tokio::test]
async fn overwrite_over_a_newer_compaction_is_accepted_and_leaves_old_rows() {
    let lake = lake();
    let (table, base, stale) = two_rows(&lake).await;
    let live = base.files().unwrap();
    let (compacted, new) = (files_of(&lake, &base, &[1, 2]).await, files_of(&lake, &base, &[9]).await);
    let removes = |data_change| live.iter().map(move |file| removed(file, data_change));
    let compaction = removes(false).chain([added(&compacted[0], false)]).collect();
    commit(&foreign(&lake).await, compaction, optimize(), CommitProperties::default()).await.unwrap();
    let change = Change { adds: new.clone(), removes: live.to_vec(), ..Change::default() };
    ours_is_refused(&lake, &table, &base, change).await;
    let overwrite = removes(true).chain([added(&new[0], true)]).collect();
    commit(&stale, overwrite, write(SaveMode::Overwrite), CommitProperties::default()).await.unwrap();
    assert_eq!(ids(&lake, &table).await, ["1", "2", "9"], "it should be 9 alone");
}

#[tokio::test]
async fn a_full_vacuum_takes_files_that_are_not_committed_yet_and_a_lite_one_does_not() {
    let lake = lake();
    let (_, base, _) = two_rows(&lake).await;
    let waiting = files_of(&lake, &base, &[3]).await.remove(0);
    let hidden = lake.store.put_if_absent("raw/t/_in/part.parquet", "staged").await.unwrap();
    assert!(matches!(hidden, crate::store::Put::Created));
    // Years ago, by the machine's clock.
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for path in [&waiting.path, "_in/part.parquet"] {
        let file = lake.store.folder().unwrap().join("raw/t").join(path);
        std::fs::File::options().write(true).open(file).unwrap().set_modified(old).unwrap();
    }
    let doomed = |mode| {
        let lake = &lake;
        async move { foreign(lake).await.vacuum().with_mode(mode).with_dry_run(true).await.unwrap().1.files_deleted }
    };
    assert_eq!(doomed(VacuumMode::Lite).await, Vec::<String>::new());
    assert_eq!(doomed(VacuumMode::Full).await, [waiting.path]);
}

#[tokio::test]
async fn a_restore_keeps_the_txn_of_what_it_takes_back() {
    let lake = lake();
    let (table, base, _) = two_rows(&lake).await;
    let adds = files_of(&lake, &base, &[3]).await;
    let change = Change { adds, txns: vec![("alluvium".to_owned(), 5)], ..Change::default() };
    committed(table.commit(&base, change).await.unwrap());
    foreign(&lake).await.restore().with_version_to_restore(2).await.unwrap();
    assert_eq!(ids(&lake, &table).await, ["1", "2"]);
    assert_eq!(table.snapshot().await.unwrap().txn("alluvium").await.unwrap(), Some(5));
    let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!(opened.txn("alluvium").await.unwrap(), Some(5));
    // A restore is a commit like any other to whoever had decided before it.
    let late = Change { adds: files_of(&lake, &base, &[4]).await, ..Change::default() };
    ours_is_refused(&lake, &table, &base, late).await;
}
