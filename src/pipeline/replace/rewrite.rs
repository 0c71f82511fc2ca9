//! Copy-on-write: files that lose rows are written again without them, together with the new rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use futures::TryStreamExt;
use hashbrown::HashMap;

use super::bits::Bits;
use super::{Doomed, NewRows, Replacement};
use crate::error::{Error, Result};
use crate::pipeline::lake::Lake;
use crate::table::{Snapshot, Writer, WriterOptions, conform};

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
            spare_equals(snapshot, schema, &mut doomed, conformed).await?
        }
        NewRows::Written { files, rows } => {
            done.adds = files;
            done.rows_added = rows;
            Vec::new()
        }
    };
    let mut writer = Writer::new(
        &lake.store,
        snapshot.folder(),
        Arc::clone(schema),
        snapshot.partition_by(),
        writer_options(lake, 1),
        Arc::clone(&lake.clock),
    );
    for Doomed { file, rows } in doomed {
        if rows.is_empty() {
            continue;
        }
        done.rows_removed += rows.count();
        if file.rows != Some(rows.count()) {
            let mut first = 0;
            let mut stream = snapshot.read(&file, None).await?;
            while let Some(batch) = stream.try_next().await? {
                let stays = filter_record_batch(&batch, &rows.absent_mask(first, batch.num_rows()))?;
                first += batch.num_rows();
                if stays.num_rows() > 0 {
                    writer.write(&conform(&stays, schema)?).await?;
                }
            }
        }
        done.removes.push(file);
    }
    for batch in held.iter().filter(|batch| batch.num_rows() > 0) {
        done.rows_added += batch.num_rows() as u64;
        writer.write(batch).await?;
    }
    done.adds.extend(writer.finish().await?);
    Ok(done)
}

/// Leaves stored rows alone that equal a new row in every column, and takes these new rows out.
async fn spare_equals(
    snapshot: &Snapshot,
    schema: &SchemaRef,
    doomed: &mut [Doomed],
    new: Vec<RecordBatch>,
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
    let mut stays = vec![Bits::default(); new.len()];
    for Doomed { file, rows } in doomed {
        let mut first = 0;
        let mut stream = snapshot.read(file, None).await?;
        while let Some(batch) = stream.try_next().await? {
            let within: Vec<usize> = (0..batch.num_rows()).filter(|row| rows.get(first + row)).collect();
            if !within.is_empty() {
                let going = filter_record_batch(&batch, &rows.mask(first, batch.num_rows()))?;
                let encoded = converter.convert_columns(conform(&going, schema)?.columns())?;
                for (key, row) in encoded.iter().zip(within) {
                    if let Some((at, new_row)) = known.get_mut(&key.owned()).and_then(Vec::pop) {
                        rows.clear(first + row);
                        stays[at].set(new_row);
                    }
                }
            }
            first += batch.num_rows();
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
    limit: usize,
    held: Vec<RecordBatch>,
    bytes: usize,
    writer: Option<Writer>,
    rows: u64,
}

impl<'a> Collector<'a> {
    /// Collects rows of `schema` for the snapshot's table.
    pub(crate) fn new(lake: &'a Lake, snapshot: &'a Snapshot, schema: &SchemaRef) -> Self {
        let limit = usize::try_from(lake.settings.memory_bytes / 12).unwrap_or(usize::MAX);
        Self { lake, snapshot, schema: Arc::clone(schema), limit, held: Vec::new(), bytes: 0, writer: None, rows: 0 }
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
        let mut writer = Writer::new(
            &self.lake.store,
            self.snapshot.folder(),
            Arc::clone(&self.schema),
            self.snapshot.partition_by(),
            writer_options(self.lake, 1),
            Arc::clone(&self.lake.clock),
        );
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
