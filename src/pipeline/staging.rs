//! Staged objects: writing rows and rejects under fresh names, putting manifests and notes, listing what is staged.
//! Workers only ever add here; deleting is the committer's, after the ledger has the batch.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::buffered::BufWriter;
use serde::de::DeserializeOwned;
use tokio_util::io::SyncIoBridge;

use crate::error::{Error, Result};
use crate::layout::{self, StagedName};
use crate::manifest::{Manifest, Note, StagedFile, StagedFormat};
use crate::name::{BatchId, TableName};
use crate::pipeline::lake::Lake;
use crate::safeguard::Safeguard;
use crate::store::{Put, Store};

/// Bytes that are collected before an upload in parts begins.
const PART_BYTES: usize = 4 << 20;

/// Parts that are uploaded while the next one is written.
const PARTS_AHEAD: usize = 2;

/// Counts what goes through it, so that a staged file's size is known without asking the store.
struct Counting<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// Writes one staged Arrow file, batch by batch, from a blocking thread.
pub struct ArrowSink {
    path: String,
    rows: u64,
    writer: StreamWriter<Counting<SyncIoBridge<BufWriter>>>,
}

impl ArrowSink {
    /// Opens a new object at `path`. Must be called on a thread that may block, within the runtime `handle`.
    pub fn create(store: &Store, path: String, schema: &SchemaRef, handle: &tokio::runtime::Handle) -> Result<Self> {
        let upload = BufWriter::with_capacity(store.object_store(), store.path(&path)?, PART_BYTES)
            .with_max_concurrency(PARTS_AHEAD);
        let bridge = SyncIoBridge::new_with_handle(upload, handle.clone());
        let writer = StreamWriter::try_new(Counting { inner: bridge, bytes: 0 }, schema)?;
        Ok(Self { path, rows: 0, writer })
    }

    /// Adds rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|e| Error::from(e).within(&self.path))
    }

    /// Completes the object. Until then nothing is visible at the path.
    pub fn finish(self) -> Result<StagedFile> {
        let Self { path, rows, writer } = self;
        let mut counting = writer.into_inner().map_err(|e| Error::from(e).within(&path))?;
        counting.inner.shutdown().map_err(|e| Error::from(e).within(&path))?;
        Ok(StagedFile {
            path,
            format: StagedFormat::Arrow,
            rows,
            bytes: counting.bytes,
            partition_values: BTreeMap::new(),
            stats: None,
        })
    }
}

/// What is staged for one batch.
#[derive(Debug, Clone, Default)]
pub struct StagedBatch {
    /// Generations that have a manifest.
    pub manifests: Vec<u32>,
    /// Generations marked gone.
    pub gone: Vec<u32>,
    /// Generations marked failed.
    pub failed: Vec<u32>,
    /// Paths of notes.
    pub notes: Vec<String>,
    /// When the first of the manifests was put, by the store's clock.
    pub since: Option<DateTime<Utc>>,
}

impl StagedBatch {
    /// The generation that counts: the newest with a manifest, unless it is marked gone.
    #[must_use]
    pub fn current(&self) -> Option<u32> {
        self.manifests.iter().copied().max().filter(|generation| !self.gone.contains(generation))
    }

    /// Whether the batch must be staged anew: its newest generation is marked gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.current().is_none() && !self.gone.is_empty()
    }
}

/// Everything in a table's manifest folder, by batch.
pub async fn list(lake: &Lake, table: &TableName) -> Result<BTreeMap<BatchId, StagedBatch>> {
    let mut batches: BTreeMap<BatchId, StagedBatch> = BTreeMap::new();
    for object in lake.store.list(&layout::manifests(table)).await? {
        let path = object.location.to_string();
        let file_name = path.rsplit('/').next().unwrap_or_default();
        match layout::parse_staged(file_name) {
            Some(StagedName::Manifest(batch, generation)) => {
                let found = batches.entry(batch).or_default();
                found.manifests.push(generation);
                let put = Some(object.last_modified);
                found.since = if found.since.is_none() { put } else { found.since.min(put) };
            }
            Some(StagedName::Gone(batch, generation)) => batches.entry(batch).or_default().gone.push(generation),
            Some(StagedName::Failed(batch, generation)) => batches.entry(batch).or_default().failed.push(generation),
            Some(StagedName::Note(batch)) => batches.entry(batch).or_default().notes.push(path),
            None => tracing::warn!(%path, "unknown object among the manifests, left alone"),
        }
    }
    Ok(batches)
}

/// The generation under which a batch is to be staged: the lowest without a marker `.gone`.
pub async fn next_generation(lake: &Lake, table: &TableName, batch: &BatchId) -> Result<u32> {
    let mut generation = 0;
    while lake.store.head(&layout::marker_gone(table, batch, generation)).await?.is_some() {
        generation += 1;
    }
    Ok(generation)
}

/// Whether a batch has its manifest in this generation.
pub async fn has_manifest(lake: &Lake, table: &TableName, batch: &BatchId, generation: u32) -> Result<bool> {
    Ok(lake.store.head(&layout::manifest(table, batch, generation)).await?.is_some())
}

/// Puts a manifest where none is. Somebody else's manifest for the same generation is as good as ours.
pub async fn put_manifest(lake: &Lake, manifest: &Manifest) -> Result<()> {
    balanced(lake, manifest)?;
    let path = layout::manifest(&manifest.table, &manifest.batch_id, manifest.generation);
    #[cfg(feature = "mutations")]
    if !lake.store.keeps(Safeguard::WorkersDeleteNothing) {
        return put_or_give_up(lake, manifest, &path).await;
    }
    let outcome = put(lake, &path, &to_json(manifest)?).await;
    if lake.store.keeps(Safeguard::AcknowledgeAfterManifest) { outcome } else { Ok(()) }
}

/// Who finds a manifest of somebody else takes his own data away again: it may be his own manifest, though.
#[cfg(feature = "mutations")]
async fn put_or_give_up(lake: &Lake, manifest: &Manifest, path: &str) -> Result<()> {
    match lake.store.put_if_absent(path, to_json(manifest)?).await? {
        Put::Created => Ok(()),
        Put::Exists => {
            let data = manifest.files.iter().chain(&manifest.rejects).map(|file| file.path.clone());
            lake.store.delete(&data.collect::<Vec<_>>()).await
        }
        Put::Unknown(error) => Err(error),
    }
}

/// Asserts the row arithmetic of a batch.
fn balanced(lake: &Lake, manifest: &Manifest) -> Result<()> {
    let what = format_args!("{} {}", manifest.table, manifest.source);
    match lake.catalog.get(&manifest.table).and_then(|contract| contract.events()) {
        Some(_) => manifest.counts.all_kept(what),
        None => manifest.counts.balanced(what),
    }
}

/// Puts an empty marker.
pub async fn put_marker(lake: &Lake, path: &str) -> Result<()> {
    put(lake, path, &[]).await
}

/// Puts a note under a fresh name.
pub async fn put_note(lake: &Lake, note: &Note) -> Result<()> {
    let path = layout::note(&note.table, &note.batch_id, &lake.clock.fresh());
    put(lake, &path, &to_json(note)?).await
}

/// Put if absent; an unknown outcome is settled by looking.
async fn put(lake: &Lake, path: &str, bytes: &[u8]) -> Result<()> {
    match lake.store.put_if_absent(path, bytes.to_vec()).await? {
        Put::Created | Put::Exists => Ok(()),
        Put::Unknown(error) => match lake.store.head(path).await {
            Ok(Some(_)) => Ok(()),
            _ => Err(error),
        },
    }
}

/// Reads a stored JSON object; none when it is gone.
pub async fn read_json<T: DeserializeOwned>(lake: &Lake, path: &str) -> Result<Option<T>> {
    let Some(bytes) = lake.store.get(path).await? else { return Ok(None) };
    let parsed = serde_json::from_slice(&bytes).map_err(|e| {
        Error::corrupt(format!("{path} cannot be read"))
            .because(e)
            .remedy("it was written by a newer version, or damaged: upgrade, or move the object away")
    })?;
    Ok(Some(parsed))
}

/// The newest of some notes; those that are gone or damaged count for nothing.
pub async fn newest_note(lake: &Lake, paths: &[String]) -> Result<Option<Note>> {
    let mut newest: Option<Note> = None;
    for path in paths {
        let note = match read_stored::<Note>(lake, path).await? {
            Stored::There(note, _) => note,
            Stored::Gone => continue,
            Stored::Damaged(error) => {
                tracing::warn!("{}: a damaged note says nothing", error.describe());
                continue;
            }
        };
        if newest.as_ref().is_none_or(|other| other.at < note.at) {
            newest = Some(note);
        }
    }
    Ok(newest)
}

/// A stored JSON object as it was found.
#[derive(Debug)]
pub enum Stored<T> {
    /// There, and when the store took it.
    There(T, DateTime<Utc>),
    /// Not there.
    Gone,
    /// There, and not what was written: cut off, or of another kind.
    Damaged(Error),
}

/// The one key that every version of every stored format has.
#[derive(serde::Deserialize)]
struct Versioned {
    version: u32,
}

/// Reads a stored JSON object and tells what is damaged from what a newer program wrote.
///
/// # Errors
/// The store does not answer, or a newer version of this program wrote the object: that is not to be touched.
pub async fn read_stored<T: DeserializeOwned>(lake: &Lake, path: &str) -> Result<Stored<T>> {
    let Some((bytes, meta)) = lake.store.get_with_meta(path).await? else { return Ok(Stored::Gone) };
    match serde_json::from_slice(&bytes) {
        Ok(parsed) => Ok(Stored::There(parsed, meta.last_modified)),
        Err(error) => {
            let error = Error::corrupt(format!("{path} cannot be read")).because(error);
            match serde_json::from_slice::<Versioned>(&bytes) {
                Ok(newer) if newer.version > 1 => {
                    Err(error.remedy("it was written by a newer version of this program: upgrade"))
                }
                _ => Ok(Stored::Damaged(error)),
            }
        }
    }
}

/// The JSON form of a stored object.
pub fn to_json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::internal("a stored object has no JSON form").because(e))
}

/// Bytes of a staged file that are read at a time.
const READ_BYTES: u64 = 4 << 20;

/// The rows of a staged Arrow file, batch by batch: it may be larger than memory.
pub fn read_arrow(lake: &Lake, file: &StagedFile) -> BoxStream<'static, Result<RecordBatch>> {
    let reading = ArrowReading {
        lake: lake.clone(),
        file: file.clone(),
        decoder: StreamDecoder::new(),
        buffer: Buffer::from(Vec::<u8>::new()),
        read: 0,
        rows: 0,
    };
    futures::stream::try_unfold(reading, |mut reading| async move {
        Ok(reading.next().await?.map(|batch| (batch, reading)))
    })
    .boxed()
}

struct ArrowReading {
    lake: Lake,
    file: StagedFile,
    decoder: StreamDecoder,
    buffer: Buffer,
    read: u64,
    rows: u64,
}

impl ArrowReading {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.decoder.decode(&mut self.buffer).map_err(|e| self.corrupt(e))? {
                self.rows += batch.num_rows() as u64;
                return Ok(Some(batch));
            }
            if self.read == self.file.bytes {
                break;
            }
            let end = (self.read + READ_BYTES).min(self.file.bytes);
            self.buffer = Buffer::from(self.part(self.read..end).await?);
            self.read = end;
        }
        self.decoder.finish().map_err(|e| self.corrupt(e))?;
        if self.rows != self.file.rows {
            let StagedFile { path, rows, .. } = &self.file;
            return Err(Error::corrupt(format!("staged file {path} has {} rows, its manifest says {rows}", self.rows)));
        }
        Ok(None)
    }

    async fn part(&self, range: Range<u64>) -> Result<Bytes> {
        let path = &self.file.path;
        match self.lake.store.get_range(path, range).await {
            Ok(bytes) => Ok(bytes),
            // A file that was cut has no such range: that is damage, and no trouble of the store's.
            Err(error) => match self.lake.store.head(path).await? {
                None => Err(Error::not_found(format!("staged file {path} is gone"))),
                Some(meta) if meta.size != self.file.bytes => Err(Error::corrupt(format!(
                    "staged file {path} has {} bytes, its manifest says {}",
                    meta.size, self.file.bytes
                ))),
                Some(_) => Err(error),
            },
        }
    }

    fn corrupt(&self, error: arrow::error::ArrowError) -> Error {
        Error::corrupt(format!("staged file {}", self.file.path)).because(error)
    }
}

/// Shared handle for code that writes staged files from blocking threads.
pub fn runtime() -> Result<Arc<tokio::runtime::Handle>> {
    tokio::runtime::Handle::try_current()
        .map(Arc::new)
        .map_err(|e| Error::internal("no runtime on this thread").because(e))
}
