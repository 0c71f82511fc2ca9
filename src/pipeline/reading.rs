//! Reading one file version: bytes -> decoded, judged, staged. Streams, so that memory does not depend on the file's size.

mod again;
mod sinks;

pub use again::read_kept;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use crate::decode::debezium::EventFile;
use crate::decode::{self, Chunk, DecodeError, Options, Raw, Refusal, Reject};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Counts, FileVersion, StagedFile, Status};
use crate::name::{BatchId, hex};
use crate::pipeline::lake::Lake;
use crate::quality::{Judge, Judged};
use crate::quarantine::{self, events::QuarantinedEvent};
use crate::safeguard::Safeguard;
use crate::schema::lineage::ROW;
use crate::schema::{Contract, Source, Threshold};
use crate::table::Snapshot;
use sinks::{RejectSink, RowSink};

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
    /// Numbers of the records that are wanted, if they are good, and where each begins as far as that is known; none for
    /// all, bad ones going to quarantine.
    pub records: Option<Arc<BTreeMap<i64, Option<i64>>>>,
    /// Nothing is staged: only what would come is counted.
    pub dry_run: bool,
}

impl Scope {
    /// Numbers of the wanted rows of a chunk; none for all. One that does not begin where it did is another record: the
    /// contract counts otherwise now.
    fn wanted(&self, chunk: &Chunk) -> Result<Option<BTreeSet<i64>>> {
        let Some(wanted) = &self.records else { return Ok(None) };
        let begins = |row: usize| match &chunk.raw {
            Raw::Text { offsets, .. } => offsets.get(row).copied(),
            Raw::Rows(_) => None,
        };
        let is_wanted = |row: usize, number: &i64| match (wanted.get(number), begins(row)) {
            (Some(Some(known)), Some(begins)) => *known == begins,
            (found, _) => found.is_some(),
        };
        let numbers = row_numbers(&chunk.rows)?.values().iter().enumerate();
        Ok(Some(numbers.filter(|(row, number)| is_wanted(*row, number)).map(|(_, number)| *number).collect()))
    }
}

/// The wanted ones among judged records; those that are still refused stay where they are.
fn restricted(judged: Judged, wanted: &BTreeSet<i64>) -> Result<Judged> {
    let numbers = row_numbers(&judged.rows)?.values();
    let keep: BooleanArray = numbers.iter().map(|number| Some(wanted.contains(number))).collect();
    let rows = filter_record_batch(&judged.rows, &keep)?;
    Ok(Judged { records: rows.num_rows() as u64, rows, rejects: Vec::new(), ignored: 0, ..judged })
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
    let is_pinned = lake.store.keeps(Safeguard::EtagPin);
    if read.status != Status::Superseded && is_pinned && !lake.landing.unchanged(version).await? {
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
    let job = Job::new(lake, contract, version, scope)?;
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
    fn new(lake: &Lake, contract: &Arc<Contract>, version: &FileVersion, scope: Scope) -> Result<Self> {
        let not_fed = || Error::internal(format!("{}: not fed by files", contract.table));
        let source = contract.files().cloned().ok_or_else(not_fed)?;
        let (lake, contract, version) = (lake.clone(), Arc::clone(contract), version.clone());
        Ok(Self { lake, contract, source, version, scope, handle: Handle::current() })
    }

    fn read_landed(&self) -> Result<Read> {
        #[cfg(feature = "mutations")]
        if !self.lake.store.keeps(Safeguard::EtagPin) {
            return self.read_whatever_is_there();
        }
        match self.lake.landing.open(&self.version) {
            Ok(reading) => self.read(reading.content),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {
                Ok(Read::bare(Status::Superseded))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads as many bytes as the version has, of whatever version is there.
    #[cfg(feature = "mutations")]
    fn read_whatever_is_there(&self) -> Result<Read> {
        let landing = &self.lake.landing;
        match self.handle.block_on(landing.head(&self.version.path))? {
            Some(now) => self.read(landing.open(&FileVersion { etag: now.etag, ..self.version.clone() })?.content),
            None => Ok(Read::bare(Status::Superseded)),
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
        let mut taking = Taking::new(self)?;
        let mut decoder = decode::open(&self.contract, &self.source, content, &taking.options())?;
        taking.header = decoder.header().map(|header| header.to_json()).transpose()?;
        while let Some(chunk) = decoder.next_chunk()? {
            taking.take(chunk)?;
        }
        self.check_threshold(&taking.counts)?;
        let unknown = decoder.unknown_columns();
        if !unknown.is_empty() {
            tracing::info!(path = %self.version.path, columns = ?unknown, "columns that the contract does not name");
        }
        Ok(taking.finish()?)
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
        Ok(Read { counts, files: rows.finish()?.0, rejects: rejects.finish()?, ..Read::bare(status) })
    }

    fn quarantined(&self, rejects: &[Reject], header: Option<&str>) -> Result<RecordBatch> {
        let (version, hash) = (&self.version, &self.contract.hash);
        quarantine::to_batch(rejects, &version.path, &version.etag, self.scope.batch_id.as_str(), hash, header)
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
            None => self.quarantined(&[Reject::from(refusal)], None)?,
        };
        rejects.write(&row)?;
        Ok(Read {
            reason: Some(format!("{}: {}", refusal.rule, refusal.reason)),
            rejects: rejects.finish()?,
            ..Read::bare(Status::Refused)
        })
    }
}

/// What is taken of the records of a file, chunk by chunk.
struct Taking<'a> {
    job: &'a Job,
    judge: Judge,
    rows: RowSink<'a>,
    rejects: RejectSink<'a>,
    counts: Counts,
    /// Numbers of the records taken, when only some are wanted.
    records: Vec<i64>,
    /// What refused records need to be read again: it goes to quarantine with the first of them.
    header: Option<String>,
}

impl<'a> Taking<'a> {
    fn new(job: &'a Job) -> Result<Self> {
        Ok(Self {
            job,
            judge: Judge::new(&job.contract)?,
            rows: RowSink::new(job),
            rejects: RejectSink::new(job),
            counts: Counts::default(),
            records: Vec::new(),
            header: None,
        })
    }

    fn options(&self) -> Options {
        Options { raw_columns: self.judge.raw_columns(), ..self.job.lake.settings.decode_options() }
    }

    fn take(&mut self, chunk: Chunk) -> Result<(), DecodeError> {
        let wanted = self.job.scope.wanted(&chunk)?;
        let mut judged = self.judge.judge(chunk)?;
        if let Some(refusal) = judged.fail {
            return Err(refusal.into());
        }
        if let Some(wanted) = &wanted {
            judged = restricted(judged, wanted)?;
            self.records.extend(row_numbers(&judged.rows)?.values());
        }
        for (rule, broken) in &judged.warned {
            tracing::warn!(path = %self.job.version.path, %rule, records = broken, "rule broken, records kept");
        }
        self.counts.rows_in += judged.records;
        self.counts.ignored += judged.ignored;
        self.counts.loaded += judged.rows.num_rows() as u64;
        self.counts.quarantined += judged.rejects.len() as u64;
        if !judged.rejects.is_empty() {
            let header = self.header.take();
            self.rejects.write(&self.job.quarantined(&judged.rejects, header.as_deref())?)?;
        }
        self.rows.write(&judged.rows)?;
        Ok(())
    }

    fn finish(self) -> Result<Read> {
        let status = if self.counts.rows_in == 0 { Status::Empty } else { Status::Loaded };
        let (files, add_columns) = self.rows.finish()?;
        let rejects = self.rejects.finish()?;
        Ok(Read { counts: self.counts, add_columns, files, rejects, records: self.records, ..Read::bare(status) })
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
