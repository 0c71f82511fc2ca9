//! Copy-on-write: files that lose rows are written again without them, together with the new rows.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use futures::TryStreamExt;
use hashbrown::HashMap;

use super::bits::Bits;
use super::scan::side_by_side;
use super::{Doomed, NewRows, Replacement};
use crate::error::{Error, Result};
use crate::pipeline::lake::Lake;
use crate::table::{DataFile, Snapshot, Writer, WriterOptions, conform};

/// Takes the doomed rows out and puts the new ones in.
pub(super) async fn rewrite(
    lake: &Lake,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    doomed: Vec<Doomed>,
    new: NewRows,
) -> Result<Replacement> {
    let mut doomed = doomed;
    let mut done = Replacement::default();
    let held = match new {
        NewRows::Held(batches) => {
            let mut conformed = Vec::with_capacity(batches.len());
            for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
                conformed.push(conform(batch, schema)?);
            }
            spare_equals(snapshot, schema, &mut doomed, conformed, lake.settings.threads).await?
        }
        NewRows::Written { files, rows } => {
            done.adds = files;
            done.rows_added = rows;
            Vec::new()
        }
    };
    let mut stays = Vec::new();
    for Doomed { file, rows } in doomed {
        if rows.is_empty() {
            continue;
        }
        done.rows_removed += rows.count();
        if file.rows != Some(rows.count()) {
            stays.push(Stays { within: 0..rows_in(snapshot, &file).await?, file: file.clone(), lost: Arc::new(rows) });
        }
        done.removes.push(file);
    }
    done.rows_added += held.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
    let shares = shares_of(lake, &stays);
    let mut shares = shared(stays, shares);
    if shares.is_empty() && !held.is_empty() {
        shares.push(Vec::new());
    }
    let (writers, mut held) = (shares.len(), Some(held));
    let work = shares.into_iter().enumerate().map(|(at, stays)| {
        let writer = writer(lake, snapshot, schema, writers);
        let new = if at + 1 == writers { held.take().unwrap_or_default() } else { Vec::new() };
        write_again(snapshot.clone(), Arc::clone(schema), stays, new, writer)
    });
    for files in side_by_side(work, lake.settings.threads).await? {
        done.adds.extend(files);
    }
    Ok(done)
}

/// Rows of a file that are written again: those of a range that are not lost.
struct Stays {
    file: DataFile,
    lost: Arc<Bits>,
    within: Range<usize>,
}

/// In how many shares so much is written again: each of a good size, so that files do not get smaller with every change.
fn shares_of(lake: &Lake, stays: &[Stays]) -> usize {
    let bytes: u64 = stays.iter().map(|stays| stays.file.size).sum();
    let good = (lake.settings.target_file_bytes / 2).max(1);
    usize::try_from(bytes / good).unwrap_or(usize::MAX).clamp(1, lake.settings.threads.max(1))
}

/// Splits rows into shares of about as many rows, in order.
fn shared(all: Vec<Stays>, shares: usize) -> Vec<Vec<Stays>> {
    let rows: usize = all.iter().map(|stays| stays.within.len()).sum();
    let most = rows.div_ceil(shares.max(1)).max(1);
    let (mut found, mut share, mut free) = (Vec::new(), Vec::new(), most);
    for Stays { file, lost, mut within } in all {
        while !within.is_empty() {
            let end = within.end.min(within.start + free);
            share.push(Stays { file: file.clone(), lost: Arc::clone(&lost), within: within.start..end });
            free -= end - within.start;
            within.start = end;
            if free == 0 {
                found.push(std::mem::take(&mut share));
                free = most;
            }
        }
    }
    found.extend((!share.is_empty()).then_some(share));
    found
}

async fn write_again(
    snapshot: Snapshot,
    schema: SchemaRef,
    stays: Vec<Stays>,
    new: Vec<RecordBatch>,
    mut writer: Writer,
) -> Result<Vec<DataFile>> {
    for Stays { file, lost, within } in stays {
        let mut stream = snapshot.read_rows(&file, None, lost.runs(within, false)).await?;
        while let Some(batch) = stream.try_next().await? {
            writer.write(&conform(&batch, &schema)?).await?;
        }
    }
    for batch in &new {
        writer.write(batch).await?;
    }
    writer.finish().await
}

/// How many rows a file has.
pub(crate) async fn rows_in(snapshot: &Snapshot, file: &DataFile) -> Result<usize> {
    let mut rows = 0;
    if let Some(known) = file.rows {
        return Ok(usize::try_from(known).unwrap_or(usize::MAX));
    }
    let mut batches = snapshot.read(file, Some(&[])).await?;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
    }
    Ok(rows)
}

/// A writer of rows of `schema` into the snapshot's table, as one of `writers` that write at once.
pub(crate) fn writer(lake: &Lake, snapshot: &Snapshot, schema: &SchemaRef, writers: usize) -> Writer {
    let options = writer_options(lake, writers);
    let (folder, partition_by) = (snapshot.folder(), snapshot.partition_by());
    Writer::new(&lake.store, folder, Arc::clone(schema), partition_by, options, Arc::clone(&lake.clock))
}

/// Leaves stored rows alone that equal a new row in every column, and takes these new rows out.
async fn spare_equals(
    snapshot: &Snapshot,
    schema: &SchemaRef,
    doomed: &mut [Doomed],
    new: Vec<RecordBatch>,
    threads: usize,
) -> Result<Vec<RecordBatch>> {
    if doomed.is_empty() || new.is_empty() {
        return Ok(new);
    }
    let converter =
        RowConverter::new(schema.fields().iter().map(|field| SortField::new(field.data_type().clone())).collect())?;
    let mut known: HashMap<OwnedRow, Vec<(usize, usize)>> = HashMap::new();
    for (at, batch) in new.iter().enumerate() {
        let encoded = converter.convert_columns(batch.columns())?;
        for (row, key) in encoded.iter().enumerate() {
            known.entry(key.owned()).or_default().push((at, row));
        }
    }
    let sought = Arc::new((converter, known));
    let scans = doomed.iter().map(|Doomed { file, rows }| {
        let (snapshot, schema, sought) = (snapshot.clone(), Arc::clone(schema), Arc::clone(&sought));
        equals_in(snapshot, schema, file.clone(), rows.clone(), sought)
    });
    let found = side_by_side(scans, threads).await?;
    let mut known = Arc::into_inner(sought).map(|(_, known)| known).unwrap_or_default();
    let mut stays = vec![Bits::default(); new.len()];
    for (Doomed { rows, .. }, equals) in doomed.iter_mut().zip(found) {
        for (row, key) in equals {
            if let Some((at, new_row)) = known.get_mut(&key).and_then(Vec::pop) {
                rows.clear(row);
                stays[at].set(new_row);
            }
        }
    }
    let mut rest = Vec::with_capacity(new.len());
    for (batch, stays) in new.iter().zip(&stays) {
        rest.push(if stays.is_empty() {
            batch.clone()
        } else {
            filter_record_batch(batch, &stays.absent_mask(0, batch.num_rows()))?
        });
    }
    Ok(rest)
}

/// The new rows, by what they have in all columns.
type Sought = (RowConverter, HashMap<OwnedRow, Vec<(usize, usize)>>);

/// The rows of a file, of those given, that equal a new row.
async fn equals_in(
    snapshot: Snapshot,
    schema: SchemaRef,
    file: DataFile,
    rows: Bits,
    sought: Arc<Sought>,
) -> Result<Vec<(usize, OwnedRow)>> {
    let mut stream = snapshot.read_rows(&file, None, rows.runs(0..rows.end(), true)).await?;
    let (converter, known) = sought.as_ref();
    let (mut numbers, mut equals) = (rows.rows(), Vec::new());
    while let Some(batch) = stream.try_next().await? {
        let encoded = converter.convert_columns(conform(&batch, &schema)?.columns())?;
        for (key, row) in encoded.iter().zip(&mut numbers) {
            let key = key.owned();
            if known.contains_key(&key) {
                equals.push((row, key));
            }
        }
    }
    Ok(equals)
}

/// Writer sizes when `writers` write at once.
pub(crate) fn writer_options(lake: &Lake, writers: usize) -> WriterOptions {
    WriterOptions {
        target_bytes: lake.settings.target_file_bytes,
        memory_bytes: lake.settings.memory_bytes / 3 / writers.max(1) as u64,
    }
}

/// Rows that are collected up to a limit and written beyond it.
pub(crate) struct Collector<'a> {
    lake: &'a Lake,
    snapshot: &'a Snapshot,
    schema: SchemaRef,
    writers: usize,
    limit: usize,
    held: Vec<RecordBatch>,
    bytes: usize,
    writer: Option<Writer>,
    rows: u64,
}

impl<'a> Collector<'a> {
    /// Collects rows of `schema` for the snapshot's table, as one of `writers` that collect at once.
    pub(crate) fn new(lake: &'a Lake, snapshot: &'a Snapshot, schema: &SchemaRef, writers: usize) -> Self {
        let limit = usize::try_from(lake.settings.memory_bytes / 12).unwrap_or(usize::MAX);
        let schema = Arc::clone(schema);
        Self { lake, snapshot, schema, writers, limit, held: Vec::new(), bytes: 0, writer: None, rows: 0 }
    }

    /// Adds rows.
    pub(crate) async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = conform(batch, &self.schema)?;
        self.rows += batch.num_rows() as u64;
        if let Some(writer) = &mut self.writer {
            return writer.write(&batch).await;
        }
        self.bytes += batch.get_array_memory_size();
        self.held.push(batch);
        if self.bytes > self.limit {
            self.spill().await?;
        }
        Ok(())
    }

    async fn spill(&mut self) -> Result<()> {
        let mut writer = writer(self.lake, self.snapshot, &self.schema, self.writers);
        for batch in self.held.drain(..) {
            writer.write(&batch).await?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    /// What was collected.
    pub(crate) async fn finish(self) -> Result<NewRows> {
        match self.writer {
            Some(writer) => {
                let files = writer.finish().await?;
                let rows = files.iter().map(|file| file.rows.unwrap_or(0)).sum::<u64>();
                if rows != self.rows {
                    return Err(Error::internal(format!("{} rows went in, {rows} were written", self.rows)));
                }
                Ok(NewRows::Written { files, rows })
            }
            None => Ok(NewRows::Held(self.held)),
        }
    }
}
