//! A store that loses answers, fails, or holds what other writers wrote.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};

use super::*;
use crate::error::ErrorKind;

#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn ObjectStore>,
    loses_answers: AtomicBool,
    refuses_reads: AtomicBool,
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty({})", self.inner)
    }
}

fn fault() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "the answer is lost".into() }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, to: &Path, payload: PutPayload, opts: PutOptions) -> object_store::Result<PutResult> {
        let result = self.inner.put_opts(to, payload, opts).await?;
        if self.loses_answers.load(Ordering::SeqCst) { Err(fault()) } else { Ok(result) }
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(to, opts).await
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        if self.refuses_reads.load(Ordering::SeqCst) {
            return Err(fault());
        }
        self.inner.get_opts(from, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A lake over a store whose faults are switched on and off.
fn faulty_lake() -> (Lake, Arc<Faulty>) {
    let mut lake = lake();
    let faulty = Arc::new(Faulty {
        inner: lake.store.object_store(),
        loses_answers: AtomicBool::new(false),
        refuses_reads: AtomicBool::new(false),
    });
    let store = Store::over(Arc::clone(&faulty) as Arc<dyn ObjectStore>, lake.store.url().clone(), None);
    lake.store = store.with_clock(Arc::clone(&lake.clock) as Arc<dyn Clock>);
    (lake, faulty)
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unknown_and_then_seen() {
    let (lake, faulty) = faulty_lake();
    let table = lake.table(vec![int("id")], &[]).await;
    let base = table.snapshot().await.unwrap();
    let adds = lake.files(&base, &[batch(vec![("id", ints(0..3))])]).await;
    let change = Change { adds: adds.clone(), txns: vec![("a".to_owned(), 1)], ..Change::default() };
    faulty.loses_answers.store(true, Ordering::SeqCst);
    let error = refused(table.commit(&base, change.clone()).await.unwrap());
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    faulty.loses_answers.store(false, Ordering::SeqCst);

    let now = table.snapshot().await.unwrap();
    assert_eq!((now.version(), now.txn("a").await.unwrap()), (1, Some(1)));
    assert_eq!(*now.files().unwrap(), adds);
    // Trying the same again is refused: it is there once.
    assert_eq!(refused(table.commit(&base, change).await.unwrap()).kind(), ErrorKind::Conflict);
    assert_eq!(lake.sql(&now, "select count(*) from t").await, ["3"]);
}

#[tokio::test]
async fn a_table_whose_creation_is_not_answered_is_there() {
    let (lake, faulty) = faulty_lake();
    faulty.loses_answers.store(true, Ordering::SeqCst);
    let table = lake.table(vec![int("id")], &[]).await;
    assert_eq!(table.snapshot().await.unwrap().version(), 0);
}

#[tokio::test]
async fn a_store_that_fails_is_not_taken_for_a_broken_or_missing_table() {
    let (lake, faulty) = faulty_lake();
    let table = lake.table(vec![int("id")], &[]).await;
    for step in 0..2 {
        lake.append(&table, &[batch(vec![("id", ints(step..step + 3))])]).await;
        // First only commits, then a checkpoint too.
        faulty.refuses_reads.store(true, Ordering::SeqCst);
        let error = Table::open(&lake.store, "raw/t").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        faulty.refuses_reads.store(false, Ordering::SeqCst);
        assert!(Table::open(&lake.store, "raw/t").await.unwrap().is_some());
        table.checkpoint().await.unwrap();
    }
}

#[tokio::test]
async fn a_file_of_another_writer_is_removed_as_that_writer_spells_it() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    lake.append(&table, &[batch(vec![("id", ints(0..3))])]).await;
    // We would write `a=b c.parquet` with `=` as it is.
    let text = "{\"add\":{\"path\":\"a%3Db%20c.parquet\",\"partitionValues\":{},\"size\":9,\"modificationTime\":5,\
        \"dataChange\":true}}\n";
    lake.store.put_if_absent(&super::super::log::commit_path("raw/t", 2), text).await.unwrap().is_new().unwrap();
    for handle in [table, Table::open(&lake.store, "raw/t").await.unwrap().unwrap()] {
        let base = handle.snapshot().await.unwrap();
        let foreign = base.file("a=b c.parquet").unwrap().clone();
        let removal = Change { removes: vec![foreign], ..Change::default() };
        let after = committed(handle.commit(&base, removal).await.unwrap());
        assert!(after.file("a=b c.parquet").is_none());
        // Whoever opens the table replays the log anew.
        let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
        assert_eq!((opened.version(), opened.files().unwrap()), (3, after.files().unwrap()));
        let commit = [super::super::log::commit_path("raw/t", 3)];
        lake.store.delete(&commit).await.unwrap();
    }
}
