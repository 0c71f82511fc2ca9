//! A store whose time is a test's own clock: what is put gets the clock's time, and every call may take its time.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use alluvium::clock::{Clock as _, ManualClock};
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

type Times = Arc<Mutex<HashMap<Path, DateTime<Utc>>>>;

/// Objects in memory, dated by a [`ManualClock`].
#[derive(Debug)]
pub struct TimedStore {
    inner: InMemory,
    clock: Arc<ManualClock>,
    times: Times,
    /// Decides how long each call takes; none: no time at all.
    slow: Option<Mutex<Chance>>,
}

impl TimedStore {
    /// A store in which time passes only as the clock is moved.
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self { inner: InMemory::new(), clock, times: Times::default(), slow: None }
    }

    /// A store in which each call takes up to some hours, and lets others go first or not.
    pub fn slow(clock: Arc<ManualClock>, seed: u64) -> Self {
        Self { slow: Some(Mutex::new(Chance::new(seed))), ..Self::new(clock) }
    }

    /// Lets time pass, and others run.
    async fn wait(&self) {
        let Some(slow) = &self.slow else { return };
        let (turns, minutes) = {
            let mut chance = slow.lock().unwrap();
            // Mostly quick; now and then somebody sleeps for half a day.
            let minutes = if chance.below(40) == 0 { chance.below(12 * 60) } else { chance.below(20) };
            (chance.below(6), minutes)
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        self.clock.advance(TimeDelta::minutes(i64::try_from(minutes).unwrap()));
    }

    fn date(&self, path: &Path) {
        self.times.lock().unwrap().insert(path.clone(), self.clock.now());
    }
}

fn dated(times: &Times, mut meta: ObjectMeta) -> ObjectMeta {
    if let Some(time) = times.lock().unwrap().get(&meta.location) {
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
        Ok(Box::new(TimedUpload { inner, location: location.clone(), clock, times }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.wait().await;
        let mut got = self.inner.get_opts(location, options).await?;
        got.meta = dated(&self.times, got.meta);
        Ok(got)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
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
}

#[async_trait]
impl MultipartUpload for TimedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.inner.complete().await?;
        self.times.lock().unwrap().insert(self.location.clone(), self.clock.now());
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
