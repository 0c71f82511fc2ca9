//! Row-by-row transforms over files: compiled once, run by several workers, each with a writer of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::{Work, sql_of};
use crate::error::{Error, Result};
use crate::lineage::RowMap;
use crate::pipeline::replace::bits::Bits;
use crate::pipeline::replace::rewrite::writer_options;
use crate::schema::Body;
use crate::table::{DataFile, Snapshot, Writer, conform};
use crate::transform::transform;

/// The compiled transform of a row-by-row table, restricted to some output columns.
pub(super) fn compile(work: &Work<'_>, wanted: Option<&[String]>) -> Result<RowMap> {
    let [pin] = work.pins.as_slice() else { return Err(Error::internal("a row-by-row table has one source")) };
    match &work.derivation.body {
        Body::Sql(sql) => RowMap::of_sql(sql, (&pin.name, &pin.schema), wanted)?
            .ok_or_else(|| Error::internal("the SQL is not row by row after all")),
        Body::Named { name, args } => RowMap::of_transform(transform(name)?, args, &pin.schema, wanted),
    }
}

/// The one source of a row-by-row table.
pub(super) fn source<'a>(work: &'a Work<'_>) -> Result<&'a Snapshot> {
    work.pins
        .first()
        .and_then(|pin| pin.snapshot.as_ref())
        .ok_or_else(|| Error::internal("the source of a row-by-row table is absent"))
}

/// The transformed rows of one file, in order. `chosen` numbers the rows that come out; none means all.
pub(super) async fn transformed(
    source: &Snapshot,
    file: &DataFile,
    map: Arc<RowMap>,
    chosen: Option<Bits>,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let batches = source.read(file, Some(map.reads())).await?;
    let mut first = 0;
    let rows = batches.map(move |batch| {
        let batch = in_order(batch?, map.reads())?;
        let Some(chosen) = &chosen else { return map.apply(batch) };
        if map.keeps_rows() {
            let length = batch.num_rows();
            let some = choose(batch, chosen, first)?;
            first += length;
            return map.apply(some);
        }
        let made = map.apply(batch)?;
        let length = made.num_rows();
        let some = choose(made, chosen, first)?;
        first += length;
        Ok(some)
    });
    Ok(rows.boxed())
}

fn choose(batch: RecordBatch, chosen: &Bits, first: usize) -> Result<RecordBatch> {
    let mask = chosen.mask(first, batch.num_rows());
    match mask.true_count() {
        0 => Ok(batch.slice(0, 0)),
        all if all == batch.num_rows() => Ok(batch),
        _ => Ok(filter_record_batch(&batch, &mask)?),
    }
}

/// A reader may give columns in table order; the compiled transform counts on its own.
fn in_order(batch: RecordBatch, names: &[String]) -> Result<RecordBatch> {
    let same = batch.num_columns() == names.len()
        && batch.schema_ref().fields().iter().zip(names).all(|(field, name)| field.name() == name);
    if same {
        return Ok(batch);
    }
    let mut indices = Vec::with_capacity(names.len());
    for name in names {
        indices.push(batch.schema_ref().index_of(name)?);
    }
    Ok(batch.project(&indices)?)
}

/// Transforms files and writes the rows into the derived table's folder. `chosen` has the rows of each file; none means
/// all rows of all files.
pub(super) async fn write_files(
    work: &Work<'_>,
    files: Vec<DataFile>,
    chosen: Option<Vec<Bits>>,
) -> Result<(Vec<DataFile>, u64)> {
    let map = Arc::new(compile(work, None)?);
    let workers = work.lake.settings.threads.clamp(1, files.len().max(1));
    let job = Arc::new(Job {
        source: source(work)?.clone(),
        files,
        chosen,
        map,
        schema: Arc::clone(&work.schema),
        next: AtomicUsize::new(0),
    });
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let writer = Writer::new(
            &work.lake.store,
            &work.folder,
            Arc::clone(&work.schema),
            work.base.partition_by(),
            writer_options(work.lake, workers),
            Arc::clone(&work.lake.clock),
        );
        running.spawn(Arc::clone(&job).run(writer));
    }
    let (mut written, mut rows) = (Vec::new(), 0);
    while let Some(finished) = running.join_next().await {
        let (files, count) = finished.map_err(|e| Error::internal("a worker stopped").because(e))??;
        written.extend(files);
        rows += count;
    }
    Ok((written, rows))
}

struct Job {
    source: Snapshot,
    files: Vec<DataFile>,
    chosen: Option<Vec<Bits>>,
    map: Arc<RowMap>,
    schema: SchemaRef,
    next: AtomicUsize,
}

impl Job {
    async fn run(self: Arc<Self>, mut writer: Writer) -> Result<(Vec<DataFile>, u64)> {
        let mut rows = 0;
        while let Some((at, file)) = self.take() {
            let chosen = self.chosen.as_ref().map(|chosen| chosen[at].clone());
            if chosen.as_ref().is_some_and(Bits::is_empty) {
                continue;
            }
            let mut stream = transformed(&self.source, file, Arc::clone(&self.map), chosen).await?;
            while let Some(batch) = stream.try_next().await? {
                rows += batch.num_rows() as u64;
                writer.write(&conform(&batch, &self.schema)?).await?;
            }
        }
        Ok((writer.finish().await?, rows))
    }

    fn take(&self) -> Option<(usize, &DataFile)> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.files.get(at).map(|file| (at, file))
    }
}

/// The SQL, for steps that only the SQL engine can do.
pub(super) fn sql<'a>(work: &'a Work<'_>) -> Result<&'a str> {
    sql_of(work.derivation).ok_or_else(|| Error::internal("a named transform is row by row"))
}
