//! The lake's store as `deltalake` wants it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use deltalake::logstore::{LogStore, StorageConfig, default_logstore};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

use crate::error::{Error, Result};
use crate::store::Store;

/// The log of a table as `deltalake` works with it, over our own object store.
#[derive(Debug)]
pub struct Log {
    /// What `deltalake` opens a table of. Commits that it makes through this do not keep the commit rule.
    pub store: Arc<dyn LogStore>,
    failed: Arc<AtomicBool>,
}

impl Log {
    /// The log of the table in `folder`.
    ///
    /// # Errors
    /// The folder is no path.
    pub fn new(store: &Store, folder: &str) -> Result<Self> {
        // A made-up root: the log store finds every object by its path below the lake, whatever the real address is.
        let url = url::Url::parse("alluvium://lake/")
            .and_then(|root| root.join(&format!("{folder}/")))
            .map_err(|e| Error::internal(format!("table folder {folder}")).because(e))?;
        let failed = Arc::new(AtomicBool::new(false));
        let root: Arc<dyn ObjectStore> = Arc::new(Objects { inner: store.object_store(), failed: Arc::clone(&failed) });
        let prefixed = Arc::new(PrefixStore::new(Arc::clone(&root), store.path(folder)?));
        Ok(Self { store: default_logstore(prefixed, root, &url, &StorageConfig::default()), failed })
    }

    /// Whether a read failed for another reason than that there is no such object: `deltalake`'s errors do not tell.
    pub(super) fn store_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }
}

/// A store whose listings are in the order of names, which `deltalake` counts on and a local folder does not keep.
#[derive(Debug)]
struct Objects {
    inner: Arc<dyn ObjectStore>,
    failed: Arc<AtomicBool>,
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sorted {}", self.inner)
    }
}

type Listed = BoxStream<'static, object_store::Result<ObjectMeta>>;

fn note(failed: &AtomicBool, error: &object_store::Error) {
    if !matches!(error, object_store::Error::NotFound { .. }) {
        failed.store(true, Ordering::SeqCst);
    }
}

impl Objects {
    fn sorted(&self, listed: Listed) -> Listed {
        let failed = Arc::clone(&self.failed);
        let all = async move {
            let listed = listed.inspect_err(|error| note(&failed, error));
            let mut found: Vec<ObjectMeta> = listed.try_collect().await?;
            found.sort_unstable_by(|a, b| a.location.cmp(&b.location));
            Ok::<_, object_store::Error>(futures::stream::iter(found.into_iter().map(Ok)))
        };
        futures::stream::once(all).try_flatten().boxed()
    }
}

#[async_trait]
impl ObjectStore for Objects {
    fn list(&self, prefix: Option<&Path>) -> Listed {
        self.sorted(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> Listed {
        // An emulator may take no notice of the offset, and it is counted on.
        let (listed, offset) = (self.inner.list_with_offset(prefix, offset), offset.clone());
        self.sorted(listed.try_filter(move |meta| std::future::ready(meta.location > offset)).boxed())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, to: &Path, payload: PutPayload, opts: PutOptions) -> object_store::Result<PutResult> {
        self.inner.put_opts(to, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(to, opts).await
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let mut result = self.inner.get_opts(from, options).await.inspect_err(|error| note(&self.failed, error))?;
        if let GetResultPayload::Stream(bytes) = result.payload {
            let failed = Arc::clone(&self.failed);
            result.payload = GetResultPayload::Stream(bytes.inspect_err(move |error| note(&failed, error)).boxed());
        }
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
