//! The promises of a table, against real files: what the tests share, and creating and reading.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use chrono::{DateTime, Utc};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use super::*;
use crate::clock::{Clock, ManualClock};

mod data;
mod faults;
mod log;
mod widen;

struct Lake {
    _folder: tempfile::TempDir,
    store: Store,
    clock: Arc<ManualClock>,
}

fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000, 0).unwrap()
}

fn lake() -> Lake {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(start(), 7));
    let store = Store::local(folder.path()).unwrap().with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    Lake { _folder: folder, store, clock }
}

fn spec(fields: Vec<Field>, partition_by: &[&str]) -> TableSpec {
    TableSpec {
        schema: Arc::new(Schema::new(fields)),
        partition_by: partition_by.iter().map(|name| (*name).to_owned()).collect(),
        properties: BTreeMap::new(),
        description: None,
    }
}

fn int(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn ints(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

impl Lake {
    async fn table(&self, fields: Vec<Field>, partition_by: &[&str]) -> Table {
        Table::create(&self.store, "raw/t", &spec(fields, partition_by)).await.unwrap()
    }

    async fn files(&self, snapshot: &Snapshot, batches: &[RecordBatch]) -> Vec<DataFile> {
        self.files_with(snapshot, batches, WriterOptions::default()).await
    }

    async fn files_with(&self, snapshot: &Snapshot, batches: &[RecordBatch], options: WriterOptions) -> Vec<DataFile> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let mut writer =
            Writer::new(&self.store, snapshot.folder(), snapshot.schema(), snapshot.partition_by(), options, clock);
        for batch in batches {
            writer.write(batch).await.unwrap();
        }
        writer.finish().await.unwrap()
    }

    async fn append(&self, table: &Table, batches: &[RecordBatch]) -> Snapshot {
        let base = table.snapshot().await.unwrap();
        let adds = self.files(&base, batches).await;
        committed(table.commit(&base, Change { adds, ..Change::default() }).await.unwrap())
    }

    fn session(&self) -> SessionContext {
        engine::session(&self.store, 64 << 20, 2).unwrap()
    }

    /// Rows of a query over the snapshot as `t`, as text, sorted.
    async fn sql(&self, snapshot: &Snapshot, query: &str) -> Vec<String> {
        let session = self.session();
        session.register_table("t", snapshot.provider(None).unwrap()).unwrap();
        let batches = session.sql(query).await.unwrap().collect().await.unwrap();
        let text = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
        let mut rows: Vec<String> = text
            .lines()
            .skip(3)
            .filter(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join("|"))
            .collect();
        rows.sort();
        rows
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

async fn column(snapshot: &Snapshot, file: &DataFile, name: &str) -> Vec<Option<i64>> {
    let columns = [name.to_owned()];
    let batches: Vec<RecordBatch> = snapshot.read(file, Some(&columns)).await.unwrap().try_collect().await.unwrap();
    batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn a_table_is_created_empty_once_and_written_and_read() {
    let lake = lake();
    assert!(Table::open(&lake.store, "raw/t").await.unwrap().is_none());
    let table = lake.table(vec![int("id"), text("name")], &[]).await;
    let first = table.snapshot().await.unwrap();
    assert_eq!((first.version(), first.files().unwrap().len()), (0, 0));
    assert_eq!(first.properties()["delta.enableExpiredLogCleanup"], "false");
    assert_eq!(first.committed_at(), Some(start()));

    let names: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]));
    let rows = batch(vec![("id", ints([1, 2, 3])), ("name", names)]);
    let second = lake.append(&table, &[rows]).await;
    assert_eq!(second.version(), 1);
    assert_eq!(lake.sql(&second, "select * from t").await, ["1|a", "2|", "3|c"]);
    assert_eq!(lake.sql(&second, "select count(*) from t").await, ["3"]);
    assert_eq!(column(&second, &second.files().unwrap()[0], "id").await, [Some(1), Some(2), Some(3)]);

    let again = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!(again.files().unwrap(), second.files().unwrap());
    assert_eq!(again.table_id(), first.table_id());
    assert_eq!(again.schema(), first.schema());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_creators_one_creates() {
    let lake = lake();
    let other = spec(vec![text("other")], &[]);
    let one = spec(vec![int("id")], &[]);
    let (a, b) = tokio::join!(Table::create(&lake.store, "raw/t", &one), Table::create(&lake.store, "raw/t", &other));
    let (a, b) = (a.unwrap().snapshot().await.unwrap(), b.unwrap().snapshot().await.unwrap());
    assert_eq!((a.version(), b.version()), (0, 0));
    assert_eq!(a.table_id(), b.table_id());
    assert_eq!(a.schema(), b.schema());
}
