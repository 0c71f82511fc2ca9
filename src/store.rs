//! The object store below everything: one root, `/`-separated paths, put-if-absent, and no overwriting.
//!
//! There is no trait of our own: [`object_store::ObjectStore`] is the seam where a faulty store can be put in.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use url::Url;

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::safeguard::Safeguard;

mod durable;

/// A prefix of an object store, and the clock that the commits to its tables are stamped with. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    url: Url,
    folder: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    #[cfg(feature = "mutations")]
    removed: Option<Safeguard>,
}

/// What is known after a put-if-absent.
#[derive(Debug)]
#[must_use = "whether the object is there is what was asked"]
pub enum Put {
    /// The object is there and it is ours.
    Created,
    /// Something was there before (perhaps our own write whose answer was lost).
    Exists,
    /// It cannot be known without looking.
    Unknown(Error),
}

impl Put {
    /// Whether the object is ours, where somebody else's says the same.
    ///
    /// # Errors
    /// It is not known whether there is one.
    pub fn is_new(self) -> Result<bool> {
        match self {
            Self::Created => Ok(true),
            Self::Exists => Ok(false),
            Self::Unknown(error) => Err(error),
        }
    }
}

impl Store {
    /// A local folder, created when absent.
    pub fn local(folder: &FsPath) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::from(e).within(folder.display()))?;
        let folder = folder.canonicalize().map_err(|e| Error::from(e).within(folder.display()))?;
        let url = Url::from_directory_path(&folder)
            .map_err(|()| Error::invalid(format!("{} is no absolute folder", folder.display())))?;
        let inner = LocalFileSystem::new_with_prefix(&folder)?;
        Ok(Self::over(Arc::new(inner), url, Some(folder)))
    }

    /// Makes every write of a local store survive the loss of the machine's power: file and parent folders are flushed to
    /// disk before a write is answered. Other stores answer durable writes only, and stay as they are.
    #[must_use]
    pub fn durable(mut self) -> Self {
        if let Some(folder) = &self.folder {
            self.inner = Arc::new(durable::Durable::new(self.inner, folder.clone()));
        }
        self
    }

    /// Stamps commits with another clock than the machine's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The clock that commits are stamped with.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Any object store whose root is known by `url` (ending in `/`). A `folder` is where the same objects are as local
    /// files: data files are then read directly. Leave it out when every read must go through `inner`.
    #[must_use]
    pub fn over(inner: Arc<dyn ObjectStore>, url: Url, folder: Option<PathBuf>) -> Self {
        Self {
            inner,
            url,
            folder,
            clock: Arc::new(SystemClock),
            #[cfg(feature = "mutations")]
            removed: None,
        }
    }

    /// The same without a safeguard, in a build that can take one away; in any other as it is.
    #[must_use]
    #[cfg_attr(not(feature = "mutations"), expect(unused_mut, reason = "this build takes nothing away"))]
    pub fn without(mut self, safeguard: Option<Safeguard>) -> Self {
        #[cfg(feature = "mutations")]
        {
            self.removed = safeguard;
        }
        #[cfg(not(feature = "mutations"))]
        let _ = safeguard;
        self
    }

    /// Whether a safeguard is in place: always, but for builds that test what happens without it.
    #[must_use]
    pub fn keeps(&self, safeguard: Safeguard) -> bool {
        #[cfg(feature = "mutations")]
        return self.removed != Some(safeguard);
        #[cfg(not(feature = "mutations"))]
        {
            let _ = safeguard;
            true
        }
    }

    /// The store itself.
    #[must_use]
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.inner)
    }

    /// The root's URL, ending in `/`.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// The root as a local folder, if it is one.
    #[must_use]
    pub fn folder(&self) -> Option<&FsPath> {
        self.folder.as_deref()
    }

    /// The object's path; `text` is relative, with `/`, not percent-encoded.
    pub fn path(&self, text: &str) -> Result<Path> {
        Path::parse(text).map_err(|e| Error::internal(format!("`{text}` is no object path")).because(e))
    }

    /// Puts an object where none is. Never overwrites.
    pub async fn put_if_absent(&self, path: &str, bytes: impl Into<Bytes> + Send) -> Result<Put> {
        Ok(self.put_new(path, bytes.into()).await?.0)
    }

    /// Puts an object where none is, and tells its etag if the store does.
    pub async fn put_new(&self, path: &str, bytes: Bytes) -> Result<(Put, Option<String>)> {
        let path = self.path(path)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.inner.put_opts(&path, bytes.into(), options).await {
            Ok(result) => Ok((Put::Created, result.e_tag)),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok((Put::Exists, None))
            }
            Err(error) => Ok((Put::Unknown(Error::from(error).within(path)), None)),
        }
    }

    /// The object's bytes; none when it is not there.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>> {
        let path = self.path(path)?;
        let result = match self.inner.get(&path).await {
            Ok(result) => result,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(Error::from(error).within(path)),
        };
        match result.bytes().await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(Error::from(error).within(path)),
        }
    }

    /// Some of the object's bytes.
    ///
    /// # Errors
    /// Not found, or it has no such range.
    pub async fn get_range(&self, path: &str, range: std::ops::Range<u64>) -> Result<Bytes> {
        let path = self.path(path)?;
        self.inner.get_range(&path, range).await.map_err(|error| Error::from(error).within(path))
    }

    /// The object's bytes, size, times and etag; none when it is not there.
    pub async fn get_with_meta(&self, path: &str) -> Result<Option<(Bytes, ObjectMeta)>> {
        let path = self.path(path)?;
        let result = match self.inner.get(&path).await {
            Ok(result) => result,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(Error::from(error).within(path)),
        };
        let meta = result.meta.clone();
        match result.bytes().await {
            Ok(bytes) => Ok(Some((bytes, meta))),
            Err(error) => Err(Error::from(error).within(path)),
        }
    }

    /// The object's size and times; none when it is not there.
    pub async fn head(&self, path: &str) -> Result<Option<ObjectMeta>> {
        let path = self.path(path)?;
        match self.inner.head(&path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::from(error).within(path)),
        }
    }

    /// All objects below a folder, in no order; none when the folder is not there.
    pub async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>> {
        let path = self.path(folder)?;
        match self.inner.list(Some(&path)).try_collect().await {
            Ok(found) => Ok(found),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(Error::from(error).within(path)),
        }
    }

    /// Deletes objects; one that is gone already is fine.
    pub async fn delete(&self, paths: &[String]) -> Result<()> {
        let mut parsed = Vec::with_capacity(paths.len());
        for path in paths {
            parsed.push(self.path(path)?);
        }
        let mut deleted = self.inner.delete_stream(futures::stream::iter(parsed.into_iter().map(Ok)).boxed());
        while let Some(outcome) = deleted.next().await {
            match outcome {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
