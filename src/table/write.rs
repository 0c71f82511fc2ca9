//! Writing rows as Parquet files: encoding on blocking threads, uploading as it goes, within a memory budget.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use object_store::MultipartUpload;
use tokio::task::JoinHandle;

use super::DataFile;
use super::schema::plain;
use crate::error::{Error, Result};
use crate::store::{Put, Store};

mod encode;

use encode::{Encoder, Piece};

/// Sizes of what a [`Writer`] makes.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// A file is closed when it has reached about this many bytes.
    pub target_bytes: u64,
    /// Most bytes that all open files together hold in memory.
    pub memory_bytes: u64,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { target_bytes: 128 << 20, memory_bytes: 256 << 20 }
    }
}

/// Writes rows as Parquet files into a table's folder, one or more for each partition value, under fresh names. The files
/// belong to no version until they are committed.
///
/// One batch is encoded on another thread while the caller makes the next one. A writer that is dropped leaves at most
/// files that nobody names.
pub struct Writer {
    store: Store,
    folder: String,
    /// At rest, or none while the task below has it.
    encoder: Option<Encoder>,
    running: Option<JoinHandle<(Encoder, Result<Vec<Piece>>)>>,
    uploads: HashMap<String, Box<dyn MultipartUpload>>,
    done: Vec<DataFile>,
}

impl Writer {
    /// A writer for rows of `schema` (partition columns included, which go into the paths).
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "the schema and the clock are shared with the writer")]
    pub fn new(
        store: &Store,
        folder: &str,
        schema: SchemaRef,
        partition_by: &[String],
        options: WriterOptions,
        clock: Arc<dyn crate::clock::Clock>,
    ) -> Self {
        // A schema that has no stored form is refused by the first row that is written.
        let stored = plain(&schema).unwrap_or_else(|_| Arc::clone(&schema));
        Self {
            store: store.clone(),
            folder: folder.to_owned(),
            encoder: Some(Encoder::new(stored, partition_by, options, clock)),
            running: None,
            uploads: HashMap::new(),
            done: Vec::new(),
        }
    }

    /// Adds rows; columns are matched by name and must have the schema's types (see [`conform`](super::conform())). What goes wrong with
    /// these rows may be told by the next call.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = batch.clone();
        self.step(move |encoder| encoder.write(&batch)).await
    }

    /// Closes all files and gives them back, ready for [`Change::adds`](super::Change::adds).
    pub async fn finish(mut self) -> Result<Vec<DataFile>> {
        self.step(Encoder::finish).await?;
        self.settle().await?;
        self.done.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(self.done)
    }

    /// Starts work on the encoder, after what it was doing.
    async fn step(&mut self, work: impl FnOnce(&mut Encoder) -> Result<Vec<Piece>> + Send + 'static) -> Result<()> {
        self.settle().await?;
        let Some(mut encoder) = self.encoder.take() else {
            return Err(Error::internal(format!("writer of table {} is used after it failed", self.folder)));
        };
        self.running = Some(tokio::task::spawn_blocking(move || {
            let pieces = work(&mut encoder);
            (encoder, pieces)
        }));
        Ok(())
    }

    /// Waits for the encoder and uploads what it made.
    async fn settle(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let (encoder, pieces) = running.await.map_err(|e| Error::internal("writing Parquet").because(e))?;
        let pieces = pieces.map_err(|e| e.within(format!("table {}", self.folder)))?;
        for piece in pieces {
            self.upload(piece).await?;
        }
        // Only now: after an error the writer stays unusable.
        self.encoder = Some(encoder);
        Ok(())
    }

    async fn upload(&mut self, piece: Piece) -> Result<()> {
        let path = format!("{}/{}", self.folder, piece.path);
        let failed = |e: object_store::Error| Error::from(e).within(&path);
        match (self.uploads.remove(&piece.path), piece.last) {
            (None, Some(file)) => {
                match self.store.put_new(&path, piece.bytes.into()).await? {
                    (Put::Created, _) => {}
                    // The name is fresh: what is there is our own write, repeated below us after its answer was lost.
                    (Put::Exists, _) => check_size(&self.store, &path, file.size).await?,
                    (Put::Unknown(error), _) => return Err(error),
                }
                self.done.push(file);
            }
            (upload, last) => {
                let mut upload = match upload {
                    Some(upload) => upload,
                    None => {
                        let location = self.store.path(&path)?;
                        self.store
                            .object_store()
                            .put_multipart_opts(&location, Default::default())
                            .await
                            .map_err(failed)?
                    }
                };
                if !piece.bytes.is_empty() {
                    upload.put_part(piece.bytes.into()).await.map_err(failed)?;
                }
                match last {
                    Some(file) => {
                        upload.complete().await.map_err(failed)?;
                        self.done.push(file);
                    }
                    None => {
                        self.uploads.insert(piece.path, upload);
                    }
                }
            }
        }
        Ok(())
    }
}

async fn check_size(store: &Store, path: &str, size: u64) -> Result<()> {
    let found = store.head(path).await?.map(|meta| meta.size);
    if found == Some(size) {
        return Ok(());
    }
    Err(Error::unavailable(format!("{path} was written with {size} bytes and is there with {found:?}")))
}
