//! A store whose time is a clock that somebody moves: what is put gets the clock's time, and every call may take its time.
//! It remembers what was overwritten, which nobody may do.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

use super::chance::Chance;
use crate::clock::{Clock as _, ManualClock};

type Times = Arc<Mutex<HashMap<Path, DateTime<Utc>>>>;

/// Objects dated by a [`ManualClock`].
#[derive(Debug)]
pub struct TimedStore {
    inner: Arc<dyn ObjectStore>,
    clock: Arc<ManualClock>,
    times: Times,
    overwritten: Arc<Mutex<Vec<Path>>>,
    /// Whether the store below knows etags without the quotes that HTTP has around them.
    has_bare_etags: bool,
    /// Decides how long each call takes; none: no time at all.
    slow: Option<Mutex<Chance>>,
}

impl TimedStore {
    /// A store in memory, in which time passes only as the clock is moved.
    #[must_use]
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self { has_bare_etags: true, ..Self::over(Arc::new(InMemory::new()), clock) }
    }

    /// The same over any store that is empty when this begins.
    #[must_use]
    pub fn over(inner: Arc<dyn ObjectStore>, clock: Arc<ManualClock>) -> Self {
        Self { inner, clock, times: Times::default(), overwritten: Arc::default(), has_bare_etags: false, slow: None }
    }

    /// A store in memory in which each call takes up to some hours, and lets others go first or not.
    #[must_use]
    pub fn slow(clock: Arc<ManualClock>, seed: u64) -> Self {
        Self { slow: Some(Mutex::new(Chance::new(seed))), ..Self::new(clock) }
    }

    /// Objects that somebody put where one was.
    #[must_use]
    pub fn overwritten(&self) -> Vec<String> {
        lock(&self.overwritten).iter().map(ToString::to_string).collect()
    }

    /// Lets time pass, and others run.
    async fn wait(&self) {
        let Some(slow) = &self.slow else { return };
        let (turns, minutes) = {
            let mut chance = lock(slow);
            // Mostly quick; now and then somebody sleeps for half a day.
            let minutes = if chance.below(40) == 0 { chance.below(12 * 60) } else { chance.below(20) };
            (chance.below(6), minutes)
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        self.clock.advance(TimeDelta::minutes(i64::try_from(minutes).unwrap_or_default()));
    }

    fn date(&self, path: &Path) {
        put_at(&self.times, &self.overwritten, path, self.clock.now());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn put_at(times: &Times, overwritten: &Mutex<Vec<Path>>, path: &Path, now: DateTime<Utc>) {
    let before = lock(times).insert(path.clone(), now);
    if before.is_some() && !may_be_overwritten(path) {
        lock(overwritten).push(path.clone());
    }
}

/// The hint where the last checkpoint is, and checkpoints: two of one version say the same.
fn may_be_overwritten(path: &Path) -> bool {
    let name = path.filename().unwrap_or_default();
    name == "_last_checkpoint" || name.ends_with(".checkpoint.parquet")
}

fn dated(times: &Times, mut meta: ObjectMeta) -> ObjectMeta {
    if let Some(time) = lock(times).get(&meta.location) {
        meta.last_modified = *time;
    }
    meta
}

impl fmt::Display for TimedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed")
    }
}

#[async_trait]
impl ObjectStore for TimedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.wait().await;
        let put = self.inner.put_opts(location, payload, options).await?;
        self.date(location);
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.wait().await;
        let inner = self.inner.put_multipart_opts(location, options).await?;
        let (clock, times) = (Arc::clone(&self.clock), Arc::clone(&self.times));
        let (location, overwritten) = (location.clone(), Arc::clone(&self.overwritten));
        Ok(Box::new(TimedUpload { inner, location, clock, times, overwritten }))
    }

    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        self.wait().await;
        if self.has_bare_etags {
            options.if_match = options.if_match.map(|etag| etag.trim_matches('"').to_owned());
        }
        let mut got = self.inner.get_opts(location, options).await?;
        // A store below a prefix tells the whole path here, and the rest of it everywhere else.
        got.meta.location = location.clone();
        got.meta = dated(&self.times, got.meta);
        Ok(got)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let times = Arc::clone(&self.times);
        self.inner
            .delete_stream(locations)
            .inspect(move |deleted| {
                if let Ok(path) = deleted {
                    lock(&times).remove(path);
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let times = Arc::clone(&self.times);
        self.inner.list(prefix).map(move |meta| meta.map(|meta| dated(&times, meta))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await?;
        self.date(to);
        Ok(())
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await?;
        self.date(to);
        Ok(())
    }
}

#[derive(Debug)]
struct TimedUpload {
    inner: Box<dyn MultipartUpload>,
    location: Path,
    clock: Arc<ManualClock>,
    times: Times,
    overwritten: Arc<Mutex<Vec<Path>>>,
}

#[async_trait]
impl MultipartUpload for TimedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.inner.complete().await?;
        put_at(&self.times, &self.overwritten, &self.location, self.clock.now());
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
