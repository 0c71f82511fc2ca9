//! Checkpoints, written by `deltalake` through our own object store.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use deltalake::DeltaTable;
use deltalake::checkpoints::create_checkpoint;
use deltalake::logstore::{StorageConfig, default_logstore};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};

use crate::error::{Error, Result};
use crate::store::Store;

/// Writes the checkpoint of a version.
pub(super) async fn write_checkpoint(store: &Store, folder: &str, version: i64) -> Result<()> {
    let failed = |e: deltalake::DeltaTableError| {
        Error::unavailable(format!("checkpoint of version {version} of table {folder}")).because(e)
    };
    let number = u64::try_from(version).map_err(|e| Error::internal(format!("version {version}")).because(e))?;
    // A made-up root: the log store finds every object by its path below the lake, whatever the real address is.
    let url = url::Url::parse("alluvium://lake/")
        .and_then(|root| root.join(&format!("{folder}/")))
        .map_err(|e| Error::internal(format!("table folder {folder}")).because(e))?;
    let root: Arc<dyn ObjectStore> = Arc::new(Sorted(store.object_store()));
    let prefixed = Arc::new(PrefixStore::new(Arc::clone(&root), store.path(folder)?));
    let log_store = default_logstore(prefixed, root, &url, &StorageConfig::default());
    let mut table = DeltaTable::new(log_store);
    table.load_version(number).await.map_err(failed)?;
    create_checkpoint(&table, None).await.map_err(failed)
}

/// A store whose listings are in the order of names, which `deltalake` counts on and a local folder does not keep.
#[derive(Debug)]
struct Sorted(Arc<dyn ObjectStore>);

impl fmt::Display for Sorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sorted {}", self.0)
    }
}

type Listed = BoxStream<'static, object_store::Result<ObjectMeta>>;

fn sorted(listed: Listed) -> Listed {
    let all = async move {
        let mut found: Vec<ObjectMeta> = listed.try_collect().await?;
        found.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok::<_, object_store::Error>(futures::stream::iter(found.into_iter().map(Ok)))
    };
    futures::stream::once(all).try_flatten().boxed()
}

#[async_trait]
impl ObjectStore for Sorted {
    fn list(&self, prefix: Option<&Path>) -> Listed {
        sorted(self.0.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> Listed {
        sorted(self.0.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, to: &Path, payload: PutPayload, opts: PutOptions) -> object_store::Result<PutResult> {
        self.0.put_opts(to, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(to, opts).await
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.0.get_opts(from, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.0.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}
