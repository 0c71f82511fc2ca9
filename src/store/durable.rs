//! A local object store whose writes survive the loss of power: it flushes what the inner store wrote.

use std::fs::File;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

/// Flushes every written file and the folders that lead to it before a write is answered.
#[derive(Debug)]
pub(super) struct Durable {
    inner: Arc<dyn ObjectStore>,
    root: Arc<FsPath>,
}

impl Durable {
    /// Wraps a store whose objects are the files below `root`.
    pub(super) fn new(inner: Arc<dyn ObjectStore>, root: PathBuf) -> Self {
        Self { inner, root: root.into() }
    }
}

impl std::fmt::Display for Durable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "durable {}", self.inner)
    }
}

/// Flushes the file of an object, then each folder from its own up to the root: any of them may be new.
async fn flush(root: Arc<FsPath>, location: Path) -> Result<()> {
    let failed =
        |e: Box<dyn std::error::Error + Send + Sync>| object_store::Error::Generic { store: "fsync", source: e };
    let work = move || -> std::io::Result<()> {
        let mut path = root.to_path_buf();
        path.extend(location.parts().map(|part| part.as_ref().to_owned()));
        File::open(&path)?.sync_all()?;
        while path.pop() && path.starts_with(&root) {
            File::open(&path)?.sync_all()?;
        }
        Ok(())
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|e| failed(e.into())),
        Err(e) => Err(failed(e.into())),
    }
}

#[derive(Debug)]
struct DurableUpload {
    inner: Box<dyn MultipartUpload>,
    root: Arc<FsPath>,
    location: Path,
}

#[async_trait]
impl MultipartUpload for DurableUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let result = self.inner.complete().await?;
        flush(Arc::clone(&self.root), self.location.clone()).await?;
        Ok(result)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[async_trait]
impl ObjectStore for Durable {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let result = self.inner.put_opts(location, payload, opts).await?;
        flush(Arc::clone(&self.root), location.clone()).await?;
        Ok(result)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(DurableUpload { inner, root: Arc::clone(&self.root), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await?;
        flush(Arc::clone(&self.root), to.clone()).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await?;
        flush(Arc::clone(&self.root), to.clone()).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;

    use crate::store::{Put, Store};

    #[tokio::test]
    async fn a_durable_store_writes_what_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::local(folder.path()).unwrap().durable();
        let put = store.put_if_absent("a/b c/ü.json", "x").await.unwrap();
        assert!(matches!(put, Put::Created), "{put:?}");
        assert!(matches!(store.put_if_absent("a/b c/ü.json", "y").await.unwrap(), Put::Exists));
        assert_eq!(std::fs::read(folder.path().join("a/b c/ü.json")).unwrap(), b"x");

        let path = store.path("a/big").unwrap();
        let mut upload = store.object_store().put_multipart(&path).await.unwrap();
        upload.put_part(vec![7u8; 10].into()).await.unwrap();
        upload.put_part(vec![8u8; 10].into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(store.get("a/big").await.unwrap().unwrap().len(), 20);
        store.delete(&["a/big".to_owned(), "a/none".to_owned()]).await.unwrap();
        assert!(store.head("a/big").await.unwrap().is_none());
    }
}
