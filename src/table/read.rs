//! Reading the rows of one data file in order.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::{
    ArrowReaderBuilder, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::schema::types::SchemaDescriptor;
use tokio::sync::mpsc;

use super::conform::conform_column;
use super::partition::constant;
use super::{DataFile, Snapshot};
use crate::error::{Error, Result};

/// Rows of a batch.
const BATCH_ROWS: usize = 16_384;

/// Batches that are decoded ahead of who reads them.
const BATCHES_AHEAD: usize = 2;

impl Snapshot {
    /// The rows of one file in file order, with the given columns (all in table order when none are given).
    ///
    /// The file need not be live: a file of an older version, or one that was just written, is read the same way.
    pub async fn read(
        &self,
        file: &DataFile,
        columns: Option<&[String]>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        self.read_some(file, columns, None).await
    }

    /// As [`Self::read`], but only the rows of the given ranges, which count from the file's first row, ascend and do not
    /// touch. What lies between them is not decoded, and whole pages of it not even decompressed.
    pub async fn read_rows(
        &self,
        file: &DataFile,
        columns: Option<&[String]>,
        rows: Vec<Range<usize>>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        self.read_some(file, columns, Some(rows)).await
    }

    async fn read_some(
        &self,
        file: &DataFile,
        columns: Option<&[String]>,
        rows: Option<Vec<Range<usize>>>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let path = format!("{}/{}", self.folder(), file.path);
        let shape = Arc::new(Shape { rows, ..Shape::new(self, file, columns)? });
        match self.store.folder() {
            Some(folder) => Ok(read_local(folder.join(&path), path, shape)),
            None => read_remote(self.store.object_store(), self.store.path(&path)?, file.size, shape).await,
        }
    }
}

/// How rows of a file become rows of the table.
struct Shape {
    target: SchemaRef,
    /// For a partition column the value, else none.
    constants: Vec<Option<Option<String>>>,
    /// The rows that are read; none for all.
    rows: Option<Vec<Range<usize>>>,
}

impl Shape {
    fn new(snapshot: &Snapshot, file: &DataFile, columns: Option<&[String]>) -> Result<Self> {
        let schema = snapshot.schema();
        let target = match columns {
            None => schema,
            Some(names) => {
                let mut fields = Vec::with_capacity(names.len());
                for name in names {
                    let field = schema
                        .field_with_name(name)
                        .map_err(|_| Error::internal(format!("table {} has no column {name}", snapshot.folder())))?;
                    fields.push(field.clone());
                }
                Arc::new(Schema::new(fields))
            }
        };
        let constants = target
            .fields()
            .iter()
            .map(|field| {
                let is_partition = snapshot.partition_by().contains(field.name());
                is_partition.then(|| file.partition_values.get(field.name()).cloned().flatten())
            })
            .collect();
        Ok(Self { target, constants, rows: None })
    }

    /// The columns that are read from the file.
    fn mask(&self, stored: &SchemaDescriptor) -> ProjectionMask {
        let wanted = |name: &str| {
            self.target
                .fields()
                .iter()
                .zip(&self.constants)
                .any(|(field, constant)| constant.is_none() && field.name() == name)
        };
        let roots = stored.root_schema().get_fields().iter().enumerate();
        ProjectionMask::roots(stored, roots.filter(|(_, root)| wanted(root.name())).map(|(at, _)| at))
    }

    /// The builder of a reader, told what is read from the file.
    fn select<T>(&self, builder: ArrowReaderBuilder<T>) -> ArrowReaderBuilder<T> {
        let mask = self.mask(builder.parquet_schema());
        let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
        let Some(rows) = &self.rows else { return builder };
        let all = usize::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or_default();
        builder.with_row_selection(RowSelection::from_consecutive_ranges(rows.iter().cloned(), all))
    }

    fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.constants.len());
        for (field, value) in self.target.fields().iter().zip(&self.constants) {
            columns.push(match value {
                Some(text) => constant(field.name(), field.data_type(), text.as_deref(), rows)?,
                None => conform_column(batch.column_by_name(field.name()), field, rows)?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.target), columns, &options)?)
    }
}

fn unreadable(path: &str, error: ParquetError) -> Error {
    if let ParquetError::External(source) = error {
        return match source.downcast::<object_store::Error>() {
            Ok(error) => Error::from(*error).within(path),
            Err(source) => Error::unavailable(format!("data file {path}")).because(source),
        };
    }
    Error::corrupt(format!("data file {path} cannot be read")).because(error)
}

/// Reads on a blocking thread, straight from the file.
fn read_local(file: PathBuf, path: String, shape: Arc<Shape>) -> BoxStream<'static, Result<RecordBatch>> {
    let (send, mut receive) = mpsc::channel(BATCHES_AHEAD);
    tokio::task::spawn_blocking(move || {
        let batches = match open_local(&file, &path, &shape) {
            Ok(batches) => batches,
            Err(error) => {
                // Nobody listens any more: nothing to tell.
                let _ = send.blocking_send(Err(error));
                return;
            }
        };
        for batch in batches {
            let batch = batch.map_err(|e| Error::corrupt(format!("data file {path} cannot be read")).because(e));
            let batch = batch.and_then(|batch| shape.apply(&batch).map_err(|e| e.within(&path)));
            let stop = batch.is_err();
            if send.blocking_send(batch).is_err() || stop {
                return;
            }
        }
    });
    futures::stream::poll_fn(move |cx| receive.poll_recv(cx)).boxed()
}

fn open_local(
    file: &std::path::Path,
    path: &str,
    shape: &Shape,
) -> Result<parquet::arrow::arrow_reader::ParquetRecordBatchReader> {
    let file = File::open(file).map_err(|e| Error::from(e).within(format!("data file {path}")))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| unreadable(path, e))?;
    shape.select(builder).build().map_err(|e| unreadable(path, e))
}

/// Reads through the object store.
async fn read_remote(
    store: Arc<dyn ObjectStore>,
    location: Path,
    size: u64,
    shape: Arc<Shape>,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let path = location.to_string();
    let reader = StoredFile { store, location, size };
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await.map_err(|e| unreadable(&path, e))?;
    let rows = shape.select(builder).build().map_err(|e| unreadable(&path, e))?;
    let batches = rows.map(move |batch| {
        let batch = batch.map_err(|e| unreadable(&path, e))?;
        shape.apply(&batch).map_err(|e| e.within(&path))
    });
    Ok(batches.boxed())
}

/// A Parquet file in an object store.
struct StoredFile {
    store: Arc<dyn ObjectStore>,
    location: Path,
    size: u64,
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for StoredFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move { self.store.get_range(&self.location, range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        async move { self.store.get_ranges(&self.location, &ranges).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move {
            let size = self.size;
            let reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(64 << 10));
            Ok(Arc::new(reader.load_and_finish(self, size).await?))
        }
        .boxed()
    }
}
