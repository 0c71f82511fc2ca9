//! Where decoded rows and rejects go: files that belong to nothing until a manifest names them.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::sync::Arc;

use super::Job;
use crate::error::{Error, Result};
use crate::layout;
use crate::manifest::{StagedFile, StagedFormat};
use crate::pipeline::staging::ArrowSink;
use crate::pipeline::{lineage_columns, tables};
use crate::safeguard::Safeguard;
use crate::schema::{Format, UnknownColumns};
use crate::table::{Writer, WriterOptions, conform};

/// Staged rows: Arrow for small files, final Parquet for files that are good table files by themselves.
pub(super) struct RowSink<'a> {
    job: &'a Job,
    target: Target,
    done: Vec<StagedFile>,
    add_columns: Vec<String>,
}

enum Target {
    None,
    Nowhere,
    Arrow(Box<ArrowSink>, SchemaRef),
    Parquet(Box<Writer>, SchemaRef),
}

impl<'a> RowSink<'a> {
    pub(super) const fn new(job: &'a Job) -> Self {
        Self { job, target: Target::None, done: Vec::new(), add_columns: Vec::new() }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let job = self.job;
        if matches!(&self.target, Target::Arrow(_, schema) if *schema != batch.schema()) {
            // A column that the file had not shown before: a stream of Arrow has one schema, so another begins.
            let before = std::mem::replace(&mut self.target, Target::None);
            self.done.extend(self.finished(before)?);
        }
        if matches!(self.target, Target::None) {
            for name in lineage_columns::added(batch, &job.contract) {
                if !self.add_columns.contains(&name) {
                    self.add_columns.push(name);
                }
            }
            self.target = if job.scope.dry_run { Target::Nowhere } else { self.open(batch)? };
        }
        match &mut self.target {
            Target::Arrow(sink, _) => sink.write(batch),
            Target::Parquet(writer, schema) => {
                let (now, batch_id) = (job.lake.clock.now(), &job.scope.batch_id);
                let whole = lineage_columns::complete(batch, schema, Some(&job.version.path), batch_id, now)?;
                job.handle.block_on(writer.write(&conform(&whole, schema)?))
            }
            Target::Nowhere => Ok(()),
            Target::None => Err(Error::internal("rows without a target")),
        }
    }

    fn open(&self, batch: &RecordBatch) -> Result<Target> {
        let job = self.job;
        let lake = &job.lake;
        let table = &job.contract.table;
        let is_whole = job.scope.records.is_none();
        let is_adoptable = is_whole && self.add_columns.is_empty() && !self.may_grow();
        if is_adoptable && tables::stages_parquet(lake, &job.contract, job.version.bytes) {
            let schema = crate::schema::arrow::ingested_schema(&job.contract);
            let options = WriterOptions {
                target_bytes: lake.settings.target_file_bytes,
                memory_bytes: lake.settings.memory_bytes / (4 * lake.settings.threads as u64),
            };
            let writer = Writer::new(
                &lake.store,
                &layout::table(table),
                Arc::clone(&schema),
                &job.contract.partition_by,
                options,
                Arc::clone(&lake.clock),
            );
            return Ok(Target::Parquet(Box::new(writer), schema));
        }
        let name = match lake.store.keeps(Safeguard::FreshNames) {
            true => lake.clock.fresh(),
            false => job.scope.batch_id.to_string(),
        };
        let path = layout::staged_rows(table, &name);
        let sink = ArrowSink::create(&lake.store, path, &batch.schema(), &job.handle)?;
        Ok(Target::Arrow(Box::new(sink), batch.schema()))
    }

    /// Whether a column that is to be added may come to light in the middle of the file.
    fn may_grow(&self) -> bool {
        let is_json = matches!(self.job.source.format, Format::Json | Format::Ndjson);
        is_json && self.job.contract.unknown_columns == UnknownColumns::Add
    }

    /// Staged rows, and the columns that are to be added for them.
    pub(super) fn finish(mut self) -> Result<(Vec<StagedFile>, Vec<String>)> {
        let last = std::mem::replace(&mut self.target, Target::None);
        self.done.extend(self.finished(last)?);
        Ok((self.done, self.add_columns))
    }

    fn finished(&self, target: Target) -> Result<Vec<StagedFile>> {
        match target {
            Target::None | Target::Nowhere => Ok(Vec::new()),
            Target::Arrow(sink, _) => Ok(vec![sink.finish()?]),
            Target::Parquet(writer, _) => {
                let folder = layout::table(&self.job.contract.table);
                let files = self.job.handle.block_on(writer.finish())?;
                Ok(files
                    .into_iter()
                    .map(|file| StagedFile {
                        path: format!("{folder}/{}", file.path),
                        format: StagedFormat::Parquet,
                        rows: file.rows.unwrap_or_default(),
                        bytes: file.size,
                        partition_values: file.partition_values,
                        stats: file.stats,
                    })
                    .collect())
            }
        }
    }
}

/// Staged rejects: one Arrow file, opened with the first reject.
pub(super) struct RejectSink<'a> {
    job: &'a Job,
    sink: Option<ArrowSink>,
}

impl<'a> RejectSink<'a> {
    pub(super) const fn new(job: &'a Job) -> Self {
        Self { job, sink: None }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let job = self.job;
        if job.scope.dry_run {
            return Ok(());
        }
        if self.sink.is_none() {
            let path = layout::staged_rejects(&job.contract.table, &job.lake.clock.fresh());
            self.sink = Some(ArrowSink::create(&job.lake.store, path, &batch.schema(), &job.handle)?);
        }
        match &mut self.sink {
            Some(sink) => sink.write(batch),
            None => Err(Error::internal("rejects without a sink")),
        }
    }

    pub(super) fn finish(self) -> Result<Option<StagedFile>> {
        self.sink.map(ArrowSink::finish).transpose()
    }
}
