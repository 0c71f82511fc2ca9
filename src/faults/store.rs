//! A store whose calls meet the fault of a [`Script`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

use super::{Fault, Kind, Meanwhile, Script, Turn};

/// Every call to it is one of the script's.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    script: Arc<Script>,
}

impl FaultyStore {
    /// A store whose calls are those of `script`.
    #[must_use]
    pub fn over(inner: Arc<dyn ObjectStore>, script: &Arc<Script>) -> Self {
        Self { inner, script: Arc::clone(script) }
    }

    /// A store whose call number `at` meets `fault`.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, at: u64, fault: Fault) -> Self {
        Self { inner, script: Script::new(at, fault) }
    }

    /// A store that works, but lets `meanwhile` happen before its call number `at`.
    #[must_use]
    pub fn overtaken(inner: Arc<dyn ObjectStore>, at: u64, meanwhile: Meanwhile) -> Self {
        Self { inner, script: Script::with_others(at, Fault::Overtaken, Some(meanwhile)) }
    }

    /// Reads how many calls there have been, also after the store was given away.
    pub fn counter(&self) -> impl Fn() -> u64 + use<> {
        let script = Arc::clone(&self.script);
        move || script.calls()
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty({})", self.inner)
    }
}

impl Script {
    fn store_error(&self) -> Error {
        Error::Generic { store: "faulty", source: Box::new(self.error()) }
    }

    /// What the effect of a call looks like to the same call, sent again.
    fn conflict(&self, kind: Kind, location: &Path) -> Error {
        let (path, source) = (location.to_string(), Box::new(self.error()));
        match kind {
            Kind::Create => Error::AlreadyExists { path, source },
            Kind::Delete => Error::NotFound { path, source },
            _ => self.store_error(),
        }
    }

    /// One call that may take effect later.
    async fn run<T: Send + 'static>(
        &self,
        kind: Kind,
        location: &Path,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match self.turn(kind).await {
            Turn::Later => {
                self.send_late(Box::pin(async move {
                    // Nobody hears what becomes of it.
                    drop(call.await);
                }));
                Err(self.store_error())
            }
            turn => self.finish(turn, kind, location, call).await,
        }
    }

    /// One call that takes effect now or never.
    async fn run_now<T>(&self, kind: Kind, location: &Path, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let turn = self.turn(kind).await;
        self.finish(turn, kind, location, call).await
    }

    async fn finish<T>(
        &self,
        turn: Turn,
        kind: Kind,
        location: &Path,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match turn {
            Turn::Go => call.await,
            Turn::Fail | Turn::Later => Err(self.store_error()),
            Turn::GoThenFail => {
                drop(call.await?);
                self.after().await;
                Err(self.store_error())
            }
            Turn::GoThenConflict => {
                drop(call.await?);
                self.after().await;
                Err(self.conflict(kind, location))
            }
        }
    }
}

fn kind_of(options: &PutOptions) -> Kind {
    match options.mode {
        PutMode::Create => Kind::Create,
        PutMode::Overwrite | PutMode::Update(_) => Kind::Put,
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (inner, to) = (Arc::clone(&self.inner), location.clone());
        let kind = kind_of(&options);
        self.script.run(kind, location, async move { inner.put_opts(&to, payload, options).await }).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let call = self.inner.put_multipart_opts(location, options);
        let upload = self.script.run_now(Kind::Part, location, call).await?;
        Ok(Box::new(FaultyUpload { inner: upload, location: location.clone(), script: Arc::clone(&self.script) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.script.run_now(Kind::Read, location, self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.script.run_now(Kind::Read, location, self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        // One object a call, so that a fault can fall between two of them.
        let (inner, script) = (Arc::clone(&self.inner), Arc::clone(&self.script));
        locations
            .then(move |location| {
                let (inner, script) = (Arc::clone(&inner), Arc::clone(&script));
                async move {
                    let location = location?;
                    let doomed = location.clone();
                    let delete = async move {
                        let mut deleted = inner.delete_stream(stream::iter([Ok(doomed.clone())]).boxed());
                        deleted.next().await.unwrap_or(Ok(doomed))
                    };
                    script.run(Kind::Delete, &location, delete).await
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix) = (Arc::clone(&self.inner), prefix.cloned());
        self.listed(move || inner.list(prefix.as_ref()))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix, offset) = (Arc::clone(&self.inner), prefix.cloned(), offset.clone());
        self.listed(move || inner.list_with_offset(prefix.as_ref(), &offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let root = Path::default();
        let call = self.inner.list_with_delimiter(prefix);
        self.script.run_now(Kind::Read, prefix.unwrap_or(&root), call).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.script.run_now(Kind::Put, to, self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.script.run_now(Kind::Put, to, self.inner.rename_opts(from, to, options)).await
    }
}

impl FaultyStore {
    /// A listing is one call: it is made when it is first asked for an entry.
    fn listed(
        &self,
        list: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let script = Arc::clone(&self.script);
        let begin = async move {
            match script.turn(Kind::Read).await {
                Turn::Go => list(),
                _ => stream::iter([Err(script.store_error())]).boxed(),
            }
        };
        stream::once(begin).flatten().boxed()
    }
}

/// Parts fail one by one; what is not completed never becomes visible.
#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    location: Path,
    script: Arc<Script>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        let (script, location) = (Arc::clone(&self.script), self.location.clone());
        Box::pin(async move { script.run_now(Kind::Part, &location, part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.script.run_now(Kind::Part, &self.location, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.script.run_now(Kind::Part, &self.location, self.inner.abort()).await
    }
}
