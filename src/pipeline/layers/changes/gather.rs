//! Changes in the order in which they are walked, within a bounded memory: at once when they fit, else sorted on the disk and
//! cut between keys.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, partition, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::Column;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::Work;
use crate::change::walk::{READ_AT, ordering, sorted};
use crate::error::{Error, Result};
use crate::lineage::engine_error;
use crate::pipeline::replace::bits::Bits;
use crate::pipeline::replace::columns_of;
use crate::pipeline::replace::keys::KeyIndex;
use crate::pipeline::replace::scan::find_rows;
use crate::schema::lineage;
use crate::table::{DataFile, Snapshot, engine};

/// Batches of kept changes.
pub(super) type Rows = BoxStream<'static, Result<RecordBatch>>;

/// Kept changes have one more column than what is read of an event: the version of bronze that it was read with.
pub(super) fn kept_schema(work: &Work<'_>) -> SchemaRef {
    let mut fields: Vec<_> = work.images.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(READ_AT, DataType::Int64, true)));
    Arc::new(Schema::new(fields))
}

/// The changes that files of bronze bring, read by several threads.
pub(super) fn of_events(work: &Work<'_>, bronze: &Snapshot, files: Vec<DataFile>) -> Rows {
    let (images, schema) = (Arc::clone(&work.images), kept_schema(work));
    let (bronze, read_at) = (bronze.clone(), bronze.version());
    let columns: Vec<String> = [
        lineage::EVENT,
        lineage::TABLE,
        "op",
        "key",
        "ts_ms",
        "lsn",
        "tx_id",
        lineage::TOPIC,
        lineage::PARTITION,
        lineage::OFFSET,
        lineage::FILE,
        lineage::ROW,
    ]
    .map(str::to_owned)
    .to_vec();
    let batches = futures::stream::iter(files).then(move |file| {
        let (bronze, columns) = (bronze.clone(), columns.clone());
        async move { bronze.read(&file, Some(&columns)).await }
    });
    batches
        .try_flatten()
        .map(move |batch| {
            let (images, schema) = (Arc::clone(&images), Arc::clone(&schema));
            async move {
                let batch = batch?;
                let read = tokio::task::spawn_blocking(move || -> Result<RecordBatch> {
                    let read = images.read(&batch)?;
                    let version: ArrayRef = Arc::new(Int64Array::from(vec![read_at; read.num_rows()]));
                    let columns = read.columns().iter().cloned().chain([version]).collect();
                    Ok(RecordBatch::try_new(schema, columns)?)
                });
                read.await.map_err(|e| Error::internal("reading change events").because(e))?
            }
        })
        .buffered(work.lake.settings.threads.max(1))
        .try_filter(|batch| futures::future::ready(batch.num_rows() > 0))
        .boxed()
}

/// The kept changes of some files: of all keys, or of those of a set. The key columns alone are read first: most files that
/// can hold a key by their bounds have few of them, or none.
pub(super) async fn of_files(
    state: &Snapshot,
    files: Vec<DataFile>,
    keys: Option<&Arc<KeyIndex>>,
    threads: usize,
) -> Result<Rows> {
    let files: Vec<(DataFile, Option<Bits>)> = match keys {
        None => files.into_iter().map(|file| (file, None)).collect(),
        Some(keys) => {
            let found = find_rows(state, files, keys, threads).await?;
            let holds = found.into_iter().filter(|(_, rows)| !rows.is_empty());
            holds.map(|(file, rows)| (file, Some(rows))).collect()
        }
    };
    let state = state.clone();
    let batches = futures::stream::iter(files).then(move |(file, rows)| {
        let state = state.clone();
        async move {
            match rows {
                None => state.read(&file, None).await,
                Some(rows) => state.read_rows(&file, None, rows.runs(0..rows.end(), true)).await,
            }
        }
    });
    Ok(batches.try_flatten().boxed())
}

/// Changes in order, some whole keys at a time.
pub(super) enum Slices {
    /// All of them.
    Held(Option<RecordBatch>),
    /// Sorted on the disk.
    Spilled(Cuts),
}

/// Brings changes into their order: those that are held already, and the rest.
pub(super) async fn gather(work: &Work<'_>, held: Vec<RecordBatch>, mut rest: Rows) -> Result<Slices> {
    let limit = work.held_bytes();
    let mut held: Vec<RecordBatch> = held;
    let mut bytes: usize = held.iter().map(RecordBatch::get_array_memory_size).sum();
    while bytes <= limit {
        match rest.try_next().await? {
            Some(batch) => {
                bytes += batch.get_array_memory_size();
                held.push(batch);
            }
            None if held.is_empty() => return Ok(Slices::Held(None)),
            None => {
                let shape = work.shape.clone();
                let all = tokio::task::spawn_blocking(move || sorted(&shape, &held));
                return Ok(Slices::Held(Some(all.await.map_err(|e| Error::internal("sorting").because(e))??)));
            }
        }
    }
    let schema = kept_schema(work);
    let rows = in_pieces(futures::stream::iter(held.into_iter().map(Ok)).chain(rest).boxed(), limit / 8);
    let partition = Arc::new(Unsorted { schema: Arc::clone(&schema), rows: Mutex::new(Some(rows)) });
    let table = StreamingTable::try_new(schema, vec![partition]).map_err(engine_error)?;
    let context = engine::session(&work.lake.store, work.lake.settings.memory_bytes / 3, 1)?;
    let order = ordering(&work.shape)
        .into_iter()
        .map(|(name, nulls_first)| Expr::Column(Column::new_unqualified(name)).sort(true, nulls_first));
    let frame = context.read_table(Arc::new(table)).map_err(engine_error)?;
    let stream = frame.sort(order.collect()).map_err(engine_error)?.execute_stream().await.map_err(engine_error)?;
    Ok(Slices::Spilled(Cuts {
        stream,
        key: work.shape.key.clone(),
        limit: limit / 4,
        ready: VecDeque::new(),
        bytes: 0,
    }))
}

/// Batches of at most so many bytes: a sort has to hold some whole ones, whatever its memory.
fn in_pieces(rows: Rows, most: usize) -> Rows {
    let pieces = rows.map_ok(move |batch| {
        let count = batch.get_array_memory_size().div_ceil(most.max(1)).max(1);
        let rows = batch.num_rows().div_ceil(count).max(1);
        futures::stream::iter((0..batch.num_rows()).step_by(rows).map(move |first| {
            let piece = batch.slice(first, rows.min(batch.num_rows() - first));
            if count == 1 { Ok(piece) } else { copied(&piece) }
        }))
    });
    pieces.try_flatten().boxed()
}

/// The rows by themselves: a slice holds all of what it was cut from.
fn copied(batch: &RecordBatch) -> Result<RecordBatch> {
    Ok(take_record_batch(batch, &UInt64Array::from_iter_values(0..batch.num_rows() as u64))?)
}

impl Slices {
    /// The next keys.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            Self::Held(all) => Ok(all.take()),
            Self::Spilled(cuts) => cuts.next().await,
        }
    }
}

/// A sorted stream, cut between keys.
pub(super) struct Cuts {
    stream: SendableRecordBatchStream,
    key: Vec<String>,
    limit: usize,
    ready: VecDeque<RecordBatch>,
    bytes: usize,
}

impl Cuts {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let batch = self.stream.try_next().await.map_err(engine_error)?;
            let Some(batch) = batch else { return self.all() };
            if batch.num_rows() == 0 {
                continue;
            }
            self.bytes += batch.get_array_memory_size();
            self.ready.push_back(batch);
            if self.bytes < self.limit {
                continue;
            }
            let Some(all) = self.all()? else { continue };
            let ranges = partition(&columns_of(&all, &self.key)?)?.ranges();
            let last = ranges.last().map_or(0, |range| range.start);
            // The last key may go on. What belongs to no key comes first, and is not cut either.
            let (whole, rest) = (all.slice(0, last), all.slice(last, all.num_rows() - last));
            let rest = copied(&rest)?;
            self.bytes = rest.get_array_memory_size();
            self.ready.push_back(rest);
            if whole.num_rows() > 0 {
                return Ok(Some(whole));
            }
        }
    }

    fn all(&mut self) -> Result<Option<RecordBatch>> {
        let ready: Vec<RecordBatch> = self.ready.drain(..).collect();
        self.bytes = 0;
        let Some(first) = ready.first() else { return Ok(None) };
        Ok(Some(concat_batches(&first.schema(), &ready)?))
    }
}

/// Changes as a table of the engine that is read once.
struct Unsorted {
    schema: SchemaRef,
    rows: Mutex<Option<Rows>>,
}

impl fmt::Debug for Unsorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsorted").finish_non_exhaustive()
    }
}

#[async_trait]
impl PartitionStream for Unsorted {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let rows: BoxStream<'static, Result<RecordBatch, DataFusionError>> = match rows {
            Some(rows) => rows.map_err(|error| DataFusionError::External(Box::new(error))).boxed(),
            None => {
                let again = DataFusionError::Internal("changes are read once".to_owned());
                futures::stream::once(futures::future::ready(Err(again))).boxed()
            }
        };
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}
