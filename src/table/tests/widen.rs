//! Columns that become wider.

use super::*;
use crate::error::ErrorKind;

fn txn(version: i64) -> Change {
    Change { txns: vec![("a".to_owned(), version)], ..Change::default() }
}

#[tokio::test]
async fn a_column_becomes_wider_in_one_commit_that_changes_no_row() {
    let lake = lake();
    let narrow = |name: &str| Field::new(name, DataType::Int32, true);
    let table = lake.table(vec![narrow("id"), narrow("day")], &["day"]).await;
    let rows = |from: i32| {
        let ids: ArrayRef = Arc::new(arrow::array::Int32Array::from_iter_values(from..from + 3));
        let days: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![Some(1), Some(2), None]));
        batch(vec![("id", ids), ("day", days)])
    };
    lake.append(&table, &[rows(0)]).await;
    let base = lake.append(&table, &[rows(10)]).await;
    let base = committed(table.commit(&base, txn(7)).await.unwrap());
    let wide: arrow::datatypes::SchemaRef = Arc::new(Schema::new(vec![int("id"), int("day"), text("new")]));
    let clock = || Arc::clone(&lake.clock) as Arc<dyn Clock>;
    let ask = || widen(&table, &base, &wide, WriterOptions::default(), clock(), "wider".to_owned());
    // Somebody else is quicker: nothing of it is in the table.
    let other = Table::open(&lake.store, "raw/t").await.unwrap().unwrap();
    let taken = committed(other.commit(&base, txn(8)).await.unwrap());
    assert_eq!(refused(ask().await.unwrap()).kind(), ErrorKind::Conflict);
    assert_eq!(table.snapshot().await.unwrap().schema(), base.schema());

    let before = lake.sql(&taken, "select * from t").await;
    let widened =
        committed(widen(&table, &taken, &wide, WriterOptions::default(), clock(), "wider".to_owned()).await.unwrap());
    let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!((opened.version(), opened.schema()), (widened.version(), Arc::clone(&wide)));
    assert_eq!(lake.sql(&opened, "select id, day from t").await, before);
    assert_eq!(lake.sql(&opened, "select count(*) from t where new is null and day = 1").await, ["2"]);
    assert_eq!(opened.txn("a").await.unwrap(), Some(8));
    assert_eq!(opened.files().unwrap().len(), 3, "one for each partition");
    // For who reads changes, nothing happened; older versions are what they were.
    let changes = table.changes(taken.version(), &opened).await.unwrap().unwrap();
    assert!(changes.added.is_empty() && changes.removed.is_empty());
    let older = table.snapshot_at(At::Version(taken.version())).await.unwrap();
    assert_eq!(older.schema(), base.schema());
    let ids: ArrayRef = ints([i64::MAX]);
    let wide_row = batch(vec![("id", ids), ("day", ints([1]))]);
    let now = lake.append(&table, &[conform(&wide_row, &wide).unwrap()]).await;
    assert_eq!(lake.sql(&now, "select max(id) from t").await, [i64::MAX.to_string()]);
    // What was added since a watermark is read with the columns of today.
    let since = table.changes(1, &now).await.unwrap().unwrap();
    let mut read = Vec::new();
    for file in &since.added {
        read.extend(column(&now, file, "id").await);
    }
    read.sort_unstable();
    assert_eq!(read, [10, 11, 12, i64::MAX].map(Some));

    let narrower: arrow::datatypes::SchemaRef = Arc::new(Schema::new(vec![narrow("id"), int("day"), text("new")]));
    let error = widen(&table, &now, &narrower, WriterOptions::default(), clock(), String::new()).await.unwrap_err();
    assert!(error.describe().contains("id"), "{}", error.describe());
}
