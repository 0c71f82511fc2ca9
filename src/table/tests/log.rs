//! The log: commits, transactions, changes, history, checkpoints, other writers.

use chrono::TimeDelta;
use object_store::ObjectStoreExt;
use serde_json::json;

use super::*;
use crate::error::ErrorKind;
use crate::store::Put;

fn txn(app: &str, version: i64) -> Change {
    Change { txns: vec![(app.to_owned(), version)], ..Change::default() }
}

fn numbers(from: i64) -> RecordBatch {
    batch(vec![("id", ints(from..from + 3))])
}

/// Replaces commit `version` of the table by an edited one.
async fn edit(lake: &Lake, version: i64, edit: impl Fn(String) -> String) {
    let path = super::super::log::commit_path("raw/t", version);
    let text = String::from_utf8(lake.store.get(&path).await.unwrap().unwrap().to_vec()).unwrap();
    let location = lake.store.path(&path).unwrap();
    lake.store.object_store().put(&location, edit(text).into_bytes().into()).await.unwrap();
}

#[tokio::test]
async fn a_commit_from_an_old_snapshot_is_refused() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    let base = table.snapshot().await.unwrap();
    committed(table.commit(&base, txn("a", 1)).await.unwrap());
    let error = refused(table.commit(&base, txn("a", 1)).await.unwrap());
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let now = table.snapshot().await.unwrap();
    assert_eq!((now.version(), now.txn("a").await.unwrap(), now.txn("b").await.unwrap()), (1, Some(1), None));
}

#[tokio::test]
async fn a_commit_after_a_compaction_is_refused() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    lake.append(&table, &[numbers(0)]).await;
    let base = lake.append(&table, &[numbers(10)]).await;
    // Another process: it has its own handle.
    let other = Table::open(&lake.store, "raw/t").await.unwrap().unwrap();
    let report =
        compact(&other, CompactOptions::to(128 << 20), Arc::<ManualClock>::clone(&lake.clock)).await.unwrap().unwrap();
    assert_eq!((report.version, report.files_before, report.files_after, report.rows), (3, 2, 1, 6));
    assert_eq!(
        compact(&other, CompactOptions::to(128 << 20), Arc::<ManualClock>::clone(&lake.clock)).await.unwrap(),
        None
    );

    let removes = base.files().unwrap().to_vec();
    let adds = lake.files(&base, &[numbers(20)]).await;
    let change = Change { adds, removes, ..Change::default() };
    assert_eq!(refused(table.commit(&base, change).await.unwrap()).kind(), ErrorKind::Conflict);
    let now = table.snapshot().await.unwrap();
    assert_eq!(lake.sql(&now, "select * from t").await, ["0", "1", "10", "11", "12", "2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_lose_nothing() {
    let lake = Arc::new(lake());
    lake.table(vec![int("id")], &[]).await;
    let mut writers = Vec::new();
    for writer in 0..4_i64 {
        let lake = Arc::clone(&lake);
        writers.push(tokio::spawn(async move {
            let table = Table::open(&lake.store, "raw/t").await.unwrap().unwrap();
            let adds = lake.files(&table.snapshot().await.unwrap(), &[numbers(writer * 10)]).await;
            loop {
                let base = table.snapshot().await.unwrap();
                let change = Change { adds: adds.clone(), ..Change::default() };
                if let Outcome::Committed(_) = table.commit(&base, change).await.unwrap() {
                    return;
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let now = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!((now.version(), now.files().unwrap().len()), (4, 4));
    assert_eq!(lake.sql(&now, "select count(*), count(distinct id) from t").await, ["12|12"]);
}

#[tokio::test]
async fn transactions_are_kept_across_commits_and_checkpoints() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    for (app, version) in [("a", 5), ("b/x", 1), ("a", 6)] {
        let base = table.snapshot().await.unwrap();
        committed(table.commit(&base, txn(app, version)).await.unwrap());
    }
    table.checkpoint().await.unwrap();
    let base = table.snapshot().await.unwrap();
    committed(table.commit(&base, txn("c", 9)).await.unwrap());
    let expected: BTreeMap<String, i64> = [("a", 6), ("b/x", 1), ("c", 9)].map(|(k, v)| (k.to_owned(), v)).into();
    assert_eq!(table.snapshot().await.unwrap().txns().await.unwrap(), expected);
    let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!(opened.txns().await.unwrap(), expected);
}

#[tokio::test]
async fn a_change_that_contradicts_the_snapshot_is_an_error() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    let base = lake.append(&table, &[numbers(0)]).await;
    let live = base.files().unwrap()[0].clone();
    let gone = DataFile { path: "gone.parquet".to_owned(), ..live.clone() };
    let mut wrong = gone.clone();
    wrong.partition_values.insert("day".to_owned(), None);
    for (change, says) in [
        (Change { removes: vec![gone.clone()], ..Change::default() }, "is not in version 1"),
        (Change { removes: vec![live.clone(), live.clone()], ..Change::default() }, "removed twice"),
        (Change { adds: vec![live.clone()], ..Change::default() }, "there already"),
        (Change { adds: vec![gone.clone(), gone.clone()], ..Change::default() }, "there already"),
        (Change { adds: vec![wrong], ..Change::default() }, "partition columns"),
    ] {
        let error = table.commit(&base, change).await.unwrap_err();
        assert!(error.message().contains(says), "{error}");
    }
    assert_eq!(table.snapshot().await.unwrap().version(), 1);
}

#[tokio::test]
async fn append_only_tables_lose_no_rows_but_may_be_compacted() {
    let lake = lake();
    let mut spec = spec(vec![int("id")], &[]);
    spec.properties.insert("delta.appendOnly".to_owned(), "true".to_owned());
    let table = Table::create(&lake.store, "raw/t", &spec).await.unwrap();
    lake.append(&table, &[numbers(0)]).await;
    let base = lake.append(&table, &[numbers(3)]).await;
    let change = Change { removes: base.files().unwrap().to_vec(), ..Change::default() };
    assert_eq!(table.commit(&base, change).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(
        compact(&table, CompactOptions::to(128 << 20), Arc::<ManualClock>::clone(&lake.clock)).await.unwrap().is_some()
    );
}

#[tokio::test]
async fn changes_are_the_rows_that_came_and_went() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    let one = lake.append(&table, &[numbers(0)]).await;
    let old = one.files().unwrap()[0].clone();
    let two = lake.append(&table, &[numbers(10)]).await;
    let new = two.files().unwrap().iter().find(|file| **file != old).unwrap().clone();

    let changes = table.changes(1, &two).await.unwrap().unwrap();
    assert_eq!((changes.added, changes.removed.len()), (vec![new.clone()], 0));
    let none = table.changes(2, &two).await.unwrap().unwrap();
    assert!(none.added.is_empty() && none.removed.is_empty());

    // Old and new rows are compacted together: the new file is still what was added.
    compact(&table, CompactOptions::to(128 << 20), Arc::<ManualClock>::clone(&lake.clock)).await.unwrap().unwrap();
    let three = table.snapshot().await.unwrap();
    let changes = table.changes(1, &three).await.unwrap().unwrap();
    assert_eq!(changes.added, std::slice::from_ref(&new));
    assert_eq!(column(&three, &changes.added[0], "id").await, [Some(10), Some(11), Some(12)]);
    // Seen from the beginning, only new files were compacted: what they became stands for them.
    let changes = table.changes(0, &three).await.unwrap().unwrap();
    assert_eq!(changes.added, *three.files().unwrap());
    assert!(changes.removed.is_empty());

    // The compacted file is replaced.
    let adds = lake.files(&three, &[numbers(20)]).await;
    let compacted = three.files().unwrap()[0].clone();
    let change = Change { adds: adds.clone(), removes: vec![compacted.clone()], ..Change::default() };
    let four = committed(table.commit(&three, change).await.unwrap());
    let changes = table.changes(0, &four).await.unwrap().unwrap();
    assert_eq!((changes.added, changes.removed.len()), (adds.clone(), 0));
    let changes = table.changes(2, &four).await.unwrap().unwrap();
    assert_eq!(changes.added, adds);
    assert_eq!(changes.removed.iter().map(|file| &file.path).collect::<Vec<_>>(), [&compacted.path]);
    assert_eq!(changes.removed[0].rows, Some(6));
    // Since version 1: plus the new file and what replaced it, minus the compacted one. As rows that is right.
    let changes = table.changes(1, &four).await.unwrap().unwrap();
    let rows = |files: &[DataFile]| files.iter().map(|file| i64::try_from(file.rows.unwrap()).unwrap()).sum::<i64>();
    assert_eq!(rows(&changes.added) - rows(&changes.removed), 3 - 3);

    assert!(table.changes(5, &four).await.unwrap().is_none());
    lake.store.delete(&[super::super::log::commit_path("raw/t", 2)]).await.unwrap();
    assert!(table.changes(1, &four).await.unwrap().is_none());
    assert!(table.changes(2, &four).await.unwrap().is_some());
}

#[tokio::test]
async fn history_tells_every_commit_and_older_versions_are_read() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    for step in 1..=3 {
        lake.clock.advance(TimeDelta::hours(1));
        let base = table.snapshot().await.unwrap();
        let adds = lake.files(&base, &[numbers(step * 10)]).await;
        let mut info = Map::new();
        info.insert("batches".to_owned(), json!(step));
        let change = Change { operation: "STEP".to_owned(), adds, info, ..Change::default() };
        committed(table.commit(&base, change).await.unwrap());
    }
    let history = table.history(None).await.unwrap();
    assert_eq!(history.iter().map(|entry| entry.version).collect::<Vec<_>>(), [3, 2, 1, 0]);
    assert_eq!(history[3].operation, "CREATE TABLE");
    assert_eq!((history[0].operation.as_str(), &history[0].info["batches"]), ("STEP", &json!(3)));
    assert_eq!(history[0].info["engineInfo"], json!(super::super::open::ENGINE));
    assert_eq!(history[0].at, Some(start() + TimeDelta::hours(3)));
    assert_eq!(table.history(Some(2)).await.unwrap().len(), 2);

    for (at, expected) in [
        (At::Version(0), Ok(0)),
        (At::Version(2), Ok(2)),
        (At::Version(3), Ok(3)),
        (At::Version(4), Err("versions 0 to 3")),
        (At::Version(-1), Err("versions 0 to 3")),
        (At::Instant(start()), Ok(0)),
        (At::Instant(start() + TimeDelta::minutes(119)), Ok(1)),
        (At::Instant(start() + TimeDelta::days(9)), Ok(3)),
        (At::Instant(start() - TimeDelta::seconds(1)), Err("its log begins at")),
    ] {
        match (table.snapshot_at(at).await, expected) {
            (Ok(snapshot), Ok(version)) => assert_eq!(snapshot.version(), version, "{at:?}"),
            (Err(error), Err(text)) => assert!(error.message().contains(text), "{at:?}: {error}"),
            (found, expected) => panic!("{at:?}: {found:?} instead of {expected:?}"),
        }
    }
    let two = table.snapshot_at(At::Version(2)).await.unwrap();
    assert_eq!(lake.sql(&two, "select sum(id) from t").await, ["96"]);
}

#[tokio::test]
async fn a_cleaned_log_is_read_from_its_checkpoint() {
    let lake = lake();
    let partition = vec![int("id"), text("day")];
    let table = lake.table(partition, &["day"]).await;
    for step in 0..4 {
        let days: ArrayRef = Arc::new(StringArray::from(vec![Some("é 1"), None, Some("a%b")]));
        lake.append(&table, &[batch(vec![("id", ints([step, 1, 2])), ("day", days)])]).await;
        if step == 2 {
            table.checkpoint().await.unwrap();
        }
    }
    let known = table.snapshot().await.unwrap();
    let cleaned: Vec<String> = (0..3).map(|version| super::super::log::commit_path("raw/t", version)).collect();
    lake.store.delete(&cleaned).await.unwrap();

    let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap();
    let now = opened.snapshot().await.unwrap();
    assert_eq!(now.version(), 4);
    assert_eq!(now.files().unwrap(), known.files().unwrap());
    assert_eq!((now.schema(), now.table_id()), (known.schema(), known.table_id()));
    assert_eq!(now.properties(), known.properties());
    assert_eq!(opened.snapshot_at(At::Version(3)).await.unwrap().files().unwrap().len(), 9);
    let error = opened.snapshot_at(At::Version(2)).await.unwrap_err();
    assert!(error.message().contains("versions 3 to 4"), "{error}");
    assert_eq!(opened.history(None).await.unwrap().len(), 2);
    assert!(opened.changes(1, &now).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_are_written_at_their_interval_and_used() {
    let lake = lake();
    let mut spec = spec(vec![int("id")], &[]);
    spec.properties.insert("delta.checkpointInterval".to_owned(), "5".to_owned());
    let table = Table::create(&lake.store, "raw/t", &spec).await.unwrap();
    for step in 1..=11 {
        let base = table.snapshot().await.unwrap();
        committed(table.commit(&base, txn("a", step)).await.unwrap());
    }
    let log: Vec<String> =
        lake.store.list("raw/t/_delta_log").await.unwrap().iter().map(|m| m.location.to_string()).collect();
    let checkpoints = log.iter().filter(|path| path.ends_with(".checkpoint.parquet")).count();
    assert_eq!(checkpoints, 2, "{log:?}");
    // Everything before the newest checkpoint may go.
    let cleaned: Vec<String> = (0..=10).map(|version| super::super::log::commit_path("raw/t", version)).collect();
    lake.store.delete(&cleaned).await.unwrap();
    let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!((opened.version(), opened.txn("a").await.unwrap()), (11, Some(11)));
}

#[tokio::test]
async fn a_gap_in_the_log_is_corrupt() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    for step in 1..=3 {
        let base = table.snapshot().await.unwrap();
        committed(table.commit(&base, txn("a", step)).await.unwrap());
    }
    lake.store.delete(&[super::super::log::commit_path("raw/t", 2)]).await.unwrap();
    let error = Table::open(&lake.store, "raw/t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("version 2"), "{error}");
}

#[tokio::test]
async fn a_table_that_was_dropped_and_made_anew_is_noticed() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    let before = lake.append(&table, &[numbers(0)]).await;
    let folder = lake.store.folder().unwrap().join("raw/t");
    std::fs::remove_dir_all(&folder).unwrap();
    let error = table.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");

    let anew = Table::create(&lake.store, "raw/t", &spec(vec![int("other")], &[])).await.unwrap();
    for step in 1..=3 {
        let base = anew.snapshot().await.unwrap();
        committed(anew.commit(&base, txn("a", step)).await.unwrap());
    }
    let now = table.snapshot().await.unwrap();
    assert_ne!(now.table_id(), before.table_id());
    assert_eq!(now.version(), 3);
}

#[tokio::test]
async fn tables_of_newer_writers_are_refused_by_the_name_of_the_feature() {
    let plain = |reader: i32, writer: i32| format!("\"minReaderVersion\":{reader},\"minWriterVersion\":{writer}");
    let protocol = |reader: i32, writer: i32, features: [&str; 2]| {
        let list = |name: &str| if name.is_empty() { "[]".to_owned() } else { format!("[\"{name}\"]") };
        format!(
            "\"minReaderVersion\":{reader},\"minWriterVersion\":{writer},\"readerFeatures\":{},\"writerFeatures\":{}",
            list(features[0]),
            list(features[1])
        )
    };
    const OLD: &str = "\"minReaderVersion\":1,\"minWriterVersion\":2";
    // Whether it can be opened, and the feature that an error must name.
    for (new, opens, names) in [
        (protocol(3, 7, ["variantType", "variantType"]), false, "variantType"),
        (plain(4, 8), false, "reader version 4"),
        (protocol(4, 8, ["", ""]), false, "a protocol that is not known"),
        (plain(1, 8), true, "writer version 8"),
        (protocol(3, 7, ["", "rowTracking"]), true, "rowTracking"),
        (protocol(3, 7, ["deletionVectors", "deletionVectors"]), true, ""),
    ] {
        let lake = lake();
        lake.table(vec![int("id")], &[]).await;
        edit(&lake, 0, |text| {
            assert!(text.contains(OLD));
            text.replace(OLD, &new)
        })
        .await;
        let table = match Table::open(&lake.store, "raw/t").await {
            Ok(table) => table.unwrap(),
            Err(error) => {
                assert!(!opens, "{error}");
                assert_eq!(error.kind(), ErrorKind::Invalid, "{new}: {}", error.describe());
                assert!(error.message().contains(names) && error.remedy_text().is_some(), "{error}");
                continue;
            }
        };
        assert!(opens, "{new}");
        let base = table.snapshot().await.unwrap();
        match table.commit(&base, txn("a", 1)).await {
            Ok(_) => assert_eq!(names, "", "{new}"),
            Err(error) => assert!(!names.is_empty() && error.message().contains(names), "{error}"),
        }
    }
}

#[tokio::test]
async fn files_with_deletion_vectors_are_refused() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    lake.append(&table, &[numbers(0)]).await;
    const VECTOR: &str = r#""deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6},"dataChange""#;
    edit(&lake, 1, |text| text.replace("\"dataChange\"", VECTOR)).await;
    let error = Table::open(&lake.store, "raw/t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("deletionVectors") && error.remedy_text().is_some(), "{error}");
}

#[tokio::test]
async fn rules_of_other_writers_that_are_not_kept_here_refuse_a_commit() {
    for (from, to, names) in [
        ("\"configuration\":{", "\"configuration\":{\"delta.constraints.x\":\"id > 0\",", "checkConstraints"),
        ("\"configuration\":{", "\"configuration\":{\"delta.enableInCommitTimestamps\":\"true\",", "inCommitTimestamp"),
        ("\\\"metadata\\\":{}", "\\\"metadata\\\":{\\\"delta.invariants\\\":\\\"x\\\"}", "invariants"),
    ] {
        let lake = lake();
        lake.table(vec![int("id")], &[]).await;
        edit(&lake, 0, |text| {
            assert!(text.contains(from), "{text}");
            text.replacen(from, to, 1)
        })
        .await;
        let table = Table::open(&lake.store, "raw/t").await.unwrap().unwrap();
        let base = table.snapshot().await.unwrap();
        let error = table.commit(&base, txn("a", 1)).await.unwrap_err();
        assert!(error.message().contains(names), "{error}");
    }
    let lake = lake();
    for key in ["delta.enableDeletionVectors", "delta.constraints.x", "delta.enableRowTracking"] {
        let mut spec = spec(vec![int("id")], &[]);
        spec.properties.insert(key.to_owned(), "true".to_owned());
        let error = Table::create(&lake.store, "raw/t", &spec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{key}");
    }
}

#[tokio::test]
async fn what_other_writers_commit_is_followed() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    lake.append(&table, &[numbers(0)]).await;
    // Unknown actions and members, no commitInfo, a path with escapes.
    let text = "{\"domainMetadata\":{\"domain\":\"x\",\"configuration\":\"\",\"removed\":false}}\n\
        {\"cdc\":{\"path\":\"_change_data/x.parquet\",\"partitionValues\":{},\"size\":1,\"dataChange\":false}}\n\
        {\"add\":{\"path\":\"a%20b%25.parquet\",\"partitionValues\":{},\"size\":9,\"modificationTime\":5,\
        \"dataChange\":true,\"tags\":{\"k\":\"v\"}}}\n\n";
    let put = lake.store.put_if_absent(&super::super::log::commit_path("raw/t", 2), text).await.unwrap();
    assert!(matches!(put, Put::Created));
    let now = table.snapshot().await.unwrap();
    assert_eq!(now.version(), 2);
    let file = now.file("a b%.parquet").unwrap();
    assert_eq!((file.size, file.modified_ms, file.rows), (9, 5, None));
    let error = now.read(file, None).await.unwrap().try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("raw/t/a b%.parquet"), "{error}");

    for path in ["../x.parquet", "/x.parquet", "s3://b/x.parquet", "a/%2e%2e/x"] {
        assert!(super::super::log::decode_path(path).is_err(), "{path}");
    }
}

#[tokio::test]
async fn columns_come_but_do_not_change() {
    let lake = lake();
    let table = lake.table(vec![int("id"), text("day")], &["day"]).await;
    let days: ArrayRef = Arc::new(StringArray::from(vec!["x"; 3]));
    let base = lake.append(&table, &[batch(vec![("id", ints(0..3)), ("day", days)])]).await;
    let ntz = Field::new("at", DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None), true);
    let change = |fields: Vec<Field>| Change { schema: Some(Arc::new(Schema::new(fields))), ..Change::default() };
    for (fields, says) in [
        (vec![text("day")], "column id cannot leave"),
        (vec![int("id")], "partition column day"),
        (vec![text("id"), text("day")], "column id cannot change"),
        (vec![Field::new("id", DataType::Int64, false), text("day")], "column id has been nullable"),
        (vec![int("id"), text("day"), Field::new("n", DataType::Int64, false)], "column n is new"),
    ] {
        let error = table.commit(&base, change(fields)).await.unwrap_err();
        assert!(error.message().contains(says), "{error}");
    }
    let id = base.table_id().to_owned();
    let widened = committed(table.commit(&base, change(vec![text("new"), int("id"), text("day"), ntz])).await.unwrap());
    assert_eq!(widened.table_id(), id);
    let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!(opened.schema(), widened.schema());
    assert_eq!(lake.sql(&opened, "select * from t").await, ["|0|x|", "|1|x|", "|2|x|"]);
    assert_eq!(lake.sql(&opened, "select count(*) from t where new is null and at is null").await, ["3"]);
    assert!(lake.sql(&opened, "select id from t where new = 'a'").await.is_empty());

    // Properties alone.
    let properties = BTreeMap::from([("alluvium.contract".to_owned(), "abc".to_owned())]);
    let next = committed(table.commit(&opened, Change { properties, ..Change::default() }).await.unwrap());
    assert_eq!(next.properties()["alluvium.contract"], "abc");
    assert_eq!(next.schema(), opened.schema());
}
