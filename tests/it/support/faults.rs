//! A store that fails at a chosen call: before it is done, after it is done, or for good from there on. Or nothing fails,
//! and somebody else is quicker.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

/// What happens at the chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None: the store works.
    None,
    /// The call is refused and has no effect; the next ones work.
    Refused,
    /// The call has its effect, but its answer is lost; the next ones work.
    AnswerLost,
    /// The call has no effect, and neither has any later one: the process died before it.
    DeadBefore,
    /// The call has its effect, no later one has: the process died after it.
    DeadAfter,
    /// Nothing can be written from there on, while reading works: the disk is full.
    DiskFull,
}

/// Counts calls, and fails the one with the chosen number (from 1; 0 never fails).
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    script: Arc<Script>,
}

struct Script {
    calls: AtomicU64,
    at: u64,
    fault: Fault,
    /// What others do before the call number `at`, instead of a fault.
    meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at call {}", self.fault, self.at)
    }
}

/// What to do with one call.
enum Turn {
    Go,
    Fail,
    GoThenFail,
}

impl Script {
    fn turn(&self, writes: bool) -> Turn {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if self.at == 0 || call < self.at {
            return Turn::Go;
        }
        let is_now = call == self.at;
        match self.fault {
            Fault::None => Turn::Go,
            Fault::Refused if is_now => Turn::Fail,
            Fault::AnswerLost if is_now => Turn::GoThenFail,
            Fault::Refused | Fault::AnswerLost => Turn::Go,
            Fault::DeadAfter if is_now => Turn::GoThenFail,
            Fault::DeadBefore | Fault::DeadAfter => Turn::Fail,
            Fault::DiskFull if writes => Turn::Fail,
            Fault::DiskFull => Turn::Go,
        }
    }

    fn error(&self) -> Error {
        let text = match self.fault {
            Fault::DiskFull => std::io::Error::from(std::io::ErrorKind::StorageFull),
            fault => std::io::Error::other(format!("scripted fault: {fault:?}")),
        };
        Error::Generic { store: "faulty", source: Box::new(text) }
    }

    /// Lets others go first, if it is their turn. Listings do not wait: they are no futures.
    async fn wait(&self) {
        let is_now = self.at == self.calls.load(Ordering::SeqCst) + 1;
        let meanwhile = if is_now { self.meanwhile.lock().unwrap().take() } else { None };
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
        }
    }

    async fn run<T>(&self, writes: bool, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.wait().await;
        match self.turn(writes) {
            Turn::Go => call.await,
            Turn::Fail => Err(self.error()),
            Turn::GoThenFail => {
                call.await?;
                Err(self.error())
            }
        }
    }
}

impl FaultyStore {
    /// A store whose call number `at` meets `fault`.
    pub fn new(inner: Arc<dyn ObjectStore>, at: u64, fault: Fault) -> Self {
        Self::scripted(inner, at, fault, None)
    }

    /// A store that works, but lets `meanwhile` happen before its call number `at`.
    pub fn overtaken(inner: Arc<dyn ObjectStore>, at: u64, meanwhile: BoxFuture<'static, ()>) -> Self {
        Self::scripted(inner, at, Fault::None, Some(meanwhile))
    }

    fn scripted(inner: Arc<dyn ObjectStore>, at: u64, fault: Fault, meanwhile: Option<BoxFuture<'static, ()>>) -> Self {
        let script = Script { calls: AtomicU64::new(0), at, fault, meanwhile: Mutex::new(meanwhile) };
        Self { inner, script: Arc::new(script) }
    }

    /// Reads how many calls there have been, also after the store was given away.
    pub fn counter(&self) -> impl Fn() -> u64 + use<> {
        let script = Arc::clone(&self.script);
        move || script.calls.load(Ordering::SeqCst)
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.script.run(true, self.inner.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.script.run(true, self.inner.put_multipart_opts(location, options)).await?;
        Ok(Box::new(FaultyUpload { inner: upload, script: Arc::clone(&self.script) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.script.run(false, self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.script.run(false, self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        // One object a call, so that a fault can fall between two of them.
        let (inner, script) = (Arc::clone(&self.inner), Arc::clone(&self.script));
        locations
            .then(move |location| {
                let (inner, script) = (Arc::clone(&inner), Arc::clone(&script));
                async move {
                    let location = location?;
                    let delete = async {
                        let mut deleted = inner.delete_stream(stream::iter([Ok(location.clone())]).boxed());
                        deleted.next().await.unwrap_or(Ok(location))
                    };
                    script.run(true, delete).await
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.script.turn(false) {
            Turn::Go => self.inner.list(prefix),
            Turn::Fail | Turn::GoThenFail => stream::iter([Err(self.script.error())]).boxed(),
        }
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.script.turn(false) {
            Turn::Go => self.inner.list_with_offset(prefix, offset),
            Turn::Fail | Turn::GoThenFail => stream::iter([Err(self.script.error())]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.script.run(false, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.script.run(true, self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.script.run(true, self.inner.rename_opts(from, to, options)).await
    }
}

/// Parts fail one by one; what is not completed never becomes visible.
#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    script: Arc<Script>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        let script = Arc::clone(&self.script);
        Box::pin(async move { script.run(true, part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.script.run(true, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.script.run(true, self.inner.abort()).await
    }
}
