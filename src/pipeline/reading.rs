//! Reading one file version: bytes -> decoded, judged, staged. Streams, so that memory does not depend on the file's size.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use crate::decode::debezium::EventFile;
use crate::decode::{self, DecodeError, Options, Refusal, Reject};
use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::manifest::{Counts, FileVersion, StagedFile, StagedFormat, Status};
use crate::name::{BatchId, hex};
use crate::pipeline::lake::Lake;
use crate::pipeline::staging::ArrowSink;
use crate::pipeline::{lineage_columns, tables};
use crate::quality::{Judge, Judged};
use crate::quarantine::{self, events::QuarantinedEvent};
use crate::safeguard::Safeguard;
use crate::schema::lineage::ROW;
use crate::schema::{Contract, Source, Threshold};
use crate::table::{Snapshot, Writer, WriterOptions, conform};

/// What reading a file version gave. The files are written, but belong to nothing until a manifest names them.
#[derive(Debug)]
pub struct Read {
    /// `loaded`, `empty`, `refused`, `ignored`, or `superseded` when the file changed under the reader.
    pub status: Status,
    /// Why, where a reason is needed.
    pub reason: Option<String>,
    /// The row arithmetic.
    pub counts: Counts,
    /// SHA-256 of the stored bytes, when they were read to the end.
    pub sha256: Option<String>,
    /// Columns to be added to the table.
    pub add_columns: Vec<String>,
    /// Staged rows.
    pub files: Vec<StagedFile>,
    /// Staged rejects.
    pub rejects: Option<StagedFile>,
    /// Numbers of the records taken, when only some were wanted.
    pub records: Vec<i64>,
}

impl Read {
    /// A file that is not read at all.
    #[must_use]
    pub fn ignored(reason: &str) -> Self {
        Self { reason: Some(reason.to_owned()), ..Self::bare(Status::Ignored) }
    }

    const fn bare(status: Status) -> Self {
        Self {
            status,
            reason: None,
            counts: Counts { rows_in: 0, loaded: 0, quarantined: 0, ignored: 0 },
            sha256: None,
            add_columns: Vec::new(),
            files: Vec::new(),
            rejects: None,
            records: Vec::new(),
        }
    }
}

/// Which records of a file are wanted, and for whom.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The batch that the rows are of.
    pub batch_id: BatchId,
    /// Numbers of the records that are wanted, if they are good; none for all, bad ones going to quarantine.
    pub records: Option<Arc<BTreeSet<i64>>>,
    /// Nothing is staged: only what would come is counted.
    pub dry_run: bool,
}

impl Scope {
    /// The wanted ones among judged records; those that are still refused stay where they are.
    fn restrict(&self, judged: Judged) -> Result<Judged> {
        let Some(wanted) = &self.records else { return Ok(judged) };
        let keep: BooleanArray =
            row_numbers(&judged.rows)?.iter().map(|row| Some(row.is_some_and(|row| wanted.contains(&row)))).collect();
        let rows = filter_record_batch(&judged.rows, &keep)?;
        Ok(Judged { records: rows.num_rows() as u64, rows, rejects: Vec::new(), ignored: 0, ..judged })
    }
}

fn row_numbers(rows: &RecordBatch) -> Result<&Int64Array> {
    let column = rows.column_by_name(ROW).and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.ok_or_else(|| Error::internal("rows without record numbers"))
}

/// Reads `version` under `contract` and stages its rows and rejects.
///
/// # Errors
/// Storage that did not answer. A bad file is `refused`, a changed one `superseded`.
pub async fn read(lake: &Lake, contract: &Arc<Contract>, version: &FileVersion, table: &Snapshot) -> Result<Read> {
    let batch_id = BatchId::of_file(table.table_id(), &version.path, &version.etag);
    read_scoped(lake, contract, version, Scope { batch_id, records: None, dry_run: false }).await
}

/// The same for some records, or without staging anything.
///
/// # Errors
/// As [`read`].
pub async fn read_scoped(lake: &Lake, contract: &Arc<Contract>, version: &FileVersion, scope: Scope) -> Result<Read> {
    let read = run(lake, contract, version, scope, None).await?;
    if read.status != Status::Superseded && !lake.landing.unchanged(version).await? {
        return Ok(Read::bare(Status::Superseded));
    }
    Ok(read)
}

/// Reads content that lies in no landing zone, such as what a measurement makes up while it is read.
///
/// # Errors
/// As [`read`].
pub async fn read_content(
    lake: &Lake,
    contract: &Arc<Contract>,
    version: &FileVersion,
    scope: Scope,
    content: Box<dyn std::io::Read + Send>,
) -> Result<Read> {
    run(lake, contract, version, scope, Some(content)).await
}

async fn run(
    lake: &Lake,
    contract: &Arc<Contract>,
    version: &FileVersion,
    scope: Scope,
    content: Option<Box<dyn std::io::Read + Send>>,
) -> Result<Read> {
    let source =
        contract.files().cloned().ok_or_else(|| Error::internal(format!("{}: not fed by files", contract.table)))?;
    let job = Job {
        lake: lake.clone(),
        contract: Arc::clone(contract),
        source,
        version: version.clone(),
        scope,
        handle: Handle::current(),
    };
    let path = version.path.clone();
    let is_landed = content.is_none();
    let read = tokio::task::spawn_blocking(move || match content {
        Some(content) => job.read(content),
        None => job.read_landed(),
    })
    .await
    .map_err(|e| Error::internal(format!("{path}: reading stopped")).because(e))?;
    match read {
        // A remote file says so in the middle; that it is this file's trouble is seen by a look at it.
        Err(error) if is_landed && error.kind() == ErrorKind::Conflict && !lake.landing.unchanged(version).await? => {
            Ok(Read::bare(Status::Superseded))
        }
        read => read,
    }
}

/// Takes the hash of everything that is read through it.
struct Hashing<R> {
    inner: R,
    hash: Arc<Mutex<Sha256>>,
}

impl<R: std::io::Read> std::io::Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.lock().unwrap_or_else(PoisonError::into_inner).update(&buffer[..read]);
        Ok(read)
    }
}

struct Job {
    lake: Lake,
    contract: Arc<Contract>,
    source: Source,
    version: FileVersion,
    scope: Scope,
    handle: Handle,
}

impl Job {
    fn read_landed(&self) -> Result<Read> {
        match self.lake.landing.open(&self.version) {
            Ok(reading) => self.read(reading.content),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {
                Ok(Read::bare(Status::Superseded))
            }
            Err(error) => Err(error),
        }
    }

    fn read(&self, content: Box<dyn std::io::Read + Send>) -> Result<Read> {
        let hash = Arc::new(Mutex::new(Sha256::new()));
        let content = Hashing { inner: content, hash: Arc::clone(&hash) };
        let shared = SharedReader(Arc::new(Mutex::new(content)));
        let outcome = match self.contract.events() {
            Some(_) => self.stage_events(Box::new(shared.clone())),
            None => self.stage_rows(Box::new(shared.clone())),
        };
        match outcome {
            Ok(mut read) => {
                // What the decoder did not need (bytes after the last record) belongs to the content too.
                std::io::copy(&mut shared.clone(), &mut std::io::sink())?;
                let digest = hash.lock().unwrap_or_else(PoisonError::into_inner).clone().finalize();
                read.sha256 = Some(hex(&digest));
                Ok(read)
            }
            Err(DecodeError::Refused(refusal)) => self.refuse(&refusal),
            Err(DecodeError::Read(error)) => Err(error.within(&self.version.path)),
        }
    }

    fn stage_rows(&self, content: Box<dyn std::io::Read + Send>) -> Result<Read, DecodeError> {
        let judge = Judge::new(&self.contract)?;
        let options = Options { raw_columns: judge.raw_columns(), ..self.lake.settings.decode_options() };
        let mut decoder = decode::open(&self.contract, &self.source, content, &options)?;
        let mut rows = RowSink::new(self);
        let mut rejects = RejectSink::new(self);
        let mut counts = Counts::default();
        let mut records = Vec::new();
        while let Some(chunk) = decoder.next_chunk()? {
            let judged = judge.judge(chunk)?;
            if let Some(refusal) = judged.fail {
                return Err(refusal.into());
            }
            let judged = self.scope.restrict(judged)?;
            for (rule, broken) in &judged.warned {
                tracing::warn!(path = %self.version.path, %rule, records = broken, "rule broken, records kept");
            }
            counts.rows_in += judged.records;
            counts.ignored += judged.ignored;
            counts.loaded += judged.rows.num_rows() as u64;
            counts.quarantined += judged.rejects.len() as u64;
            if self.scope.records.is_some() {
                records.extend(row_numbers(&judged.rows)?.values());
            }
            if !judged.rejects.is_empty() {
                rejects.write(&self.quarantined(&judged.rejects)?)?;
            }
            rows.write(&judged.rows)?;
        }
        self.check_threshold(&counts)?;
        let unknown = decoder.unknown_columns();
        if !unknown.is_empty() {
            tracing::info!(path = %self.version.path, columns = ?unknown, "columns that the contract does not name");
        }
        let status = if counts.rows_in == 0 { Status::Empty } else { Status::Loaded };
        Ok(Read {
            status,
            counts,
            add_columns: rows.add_columns.clone(),
            files: rows.finish()?,
            rejects: rejects.finish()?,
            records,
            ..Read::bare(status)
        })
    }

    /// Every line is kept; those that are no event are in quarantine besides.
    fn stage_events(&self, content: Box<dyn std::io::Read + Send>) -> Result<Read, DecodeError> {
        let mut file = EventFile::open(content, &self.lake.settings.decode_options())?;
        let mut rows = RowSink::new(self);
        let mut rejects = RejectSink::new(self);
        let mut counts = Counts::default();
        while let Some(events) = file.next_events()? {
            let lines = events.rows.num_rows() as u64;
            counts.rows_in += lines;
            counts.loaded += lines;
            counts.quarantined += events.malformed.len() as u64;
            counts.ignored += events.ignored.len() as u64;
            if !events.malformed.is_empty() {
                let malformed: Vec<QuarantinedEvent> = events.malformed.into_iter().map(Into::into).collect();
                rejects.write(&self.quarantined_events(&malformed)?)?;
            }
            rows.write(&events.rows)?;
        }
        let status = if counts.rows_in == 0 { Status::Empty } else { Status::Loaded };
        Ok(Read { counts, files: rows.finish()?, rejects: rejects.finish()?, ..Read::bare(status) })
    }

    fn quarantined(&self, rejects: &[Reject]) -> Result<RecordBatch> {
        let (version, hash) = (&self.version, &self.contract.hash);
        quarantine::to_batch(rejects, &version.path, &version.etag, self.scope.batch_id.as_str(), hash)
    }

    fn quarantined_events(&self, rejects: &[QuarantinedEvent]) -> Result<RecordBatch> {
        let file = Some((self.version.path.as_str(), self.version.etag.as_str()));
        quarantine::events::to_batch(rejects, file, self.scope.batch_id.as_str(), &self.contract.hash)
    }

    fn check_threshold(&self, counts: &Counts) -> Result<(), Refusal> {
        let (exceeded, limit) = match self.contract.max_quarantine {
            None => return Ok(()),
            Some(Threshold::Records(limit)) => (counts.quarantined > limit, limit.to_string()),
            #[expect(clippy::cast_precision_loss, reason = "a share of a record count needs no more digits")]
            Some(Threshold::Share(share)) => {
                (counts.quarantined as f64 > share * counts.rows_in as f64, format!("{}%", share * 100.0))
            }
        };
        if !exceeded {
            return Ok(());
        }
        Err(Refusal {
            rule: "max_quarantine".to_owned(),
            reason: format!(
                "{} of {} records would be quarantined, more than max_quarantine: {limit}; mend the file or the contract",
                counts.quarantined, counts.rows_in
            ),
            line: None,
            byte_offset: None,
            column: None,
        })
    }

    /// The whole file goes to quarantine as one row without a record.
    fn refuse(&self, refusal: &Refusal) -> Result<Read> {
        let mut rejects = RejectSink::new(self);
        let row = match self.contract.events() {
            Some(_) => self.quarantined_events(&[QuarantinedEvent::from(refusal)])?,
            None => self.quarantined(&[Reject::from(refusal)])?,
        };
        rejects.write(&row)?;
        Ok(Read {
            reason: Some(format!("{}: {}", refusal.rule, refusal.reason)),
            rejects: rejects.finish()?,
            ..Read::bare(Status::Refused)
        })
    }
}

/// A reader that can be read on after the decoder is done with it.
#[derive(Clone)]
struct SharedReader(Arc<Mutex<Hashing<Box<dyn std::io::Read + Send>>>>);

impl std::io::Read for SharedReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).read(buffer)
    }
}

/// Staged rows: Arrow for small files, final Parquet for files that are good table files by themselves.
struct RowSink<'a> {
    job: &'a Job,
    target: Target,
    add_columns: Vec<String>,
}

enum Target {
    None,
    Nowhere,
    Arrow(Box<ArrowSink>),
    Parquet(Box<Writer>, SchemaRef),
}

impl<'a> RowSink<'a> {
    const fn new(job: &'a Job) -> Self {
        Self { job, target: Target::None, add_columns: Vec::new() }
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let job = self.job;
        if matches!(self.target, Target::None) {
            self.add_columns = lineage_columns::added(batch, &job.contract);
            self.target = if job.scope.dry_run { Target::Nowhere } else { self.open(batch)? };
        }
        match &mut self.target {
            Target::Arrow(sink) => sink.write(batch),
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
        if is_whole && self.add_columns.is_empty() && tables::stages_parquet(lake, &job.contract, job.version.bytes) {
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
        Ok(Target::Arrow(Box::new(ArrowSink::create(&lake.store, path, &batch.schema(), &job.handle)?)))
    }

    fn finish(self) -> Result<Vec<StagedFile>> {
        match self.target {
            Target::None | Target::Nowhere => Ok(Vec::new()),
            Target::Arrow(sink) => Ok(vec![sink.finish()?]),
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
struct RejectSink<'a> {
    job: &'a Job,
    sink: Option<ArrowSink>,
}

impl<'a> RejectSink<'a> {
    const fn new(job: &'a Job) -> Self {
        Self { job, sink: None }
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
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

    fn finish(self) -> Result<Option<StagedFile>> {
        self.sink.map(ArrowSink::finish).transpose()
    }
}
