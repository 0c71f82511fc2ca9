//! The ledger: one row for every file version and every piece of a stream that was ever decided about. A Delta table like
//! any other, partitioned by table, kept in memory as an index that grows with the files added since it was last read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use chrono::{DateTime, Utc};
use futures::TryStreamExt;

use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::manifest::{BatchSource, Counts, FileVersion, PlannedRow, Status, StreamRange};
use crate::name::{BatchId, TableName};
use crate::offsets::Offsets;
use crate::pipeline::lake::Lake;
use crate::safeguard::Safeguard;
use crate::table::{Change, DataFile, Outcome, Snapshot, Table, TableSpec, Writer, WriterOptions};

mod stored;

pub use stored::schema;
use stored::{row_at, to_batch};

/// How often a commit to the ledger is tried again when somebody else was quicker.
const ATTEMPTS: usize = 50;

/// The app id under which the ledger records a table's plan number.
#[must_use]
pub fn app_id(table_id: &str) -> String {
    format!("alluvium/{table_id}")
}

/// One row of the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRow {
    /// The table; none for a file that no contract takes.
    pub table: Option<TableName>,
    /// The table's Delta id.
    pub table_id: Option<String>,
    /// The batch.
    pub batch_id: BatchId,
    /// Where its records came from.
    pub source: BatchSource,
    /// SHA-256 of the content.
    pub sha256: Option<String>,
    /// What became of it.
    pub status: Status,
    /// Why.
    pub reason: Option<String>,
    /// The row arithmetic.
    pub counts: Counts,
    /// The contract it was read under.
    pub contract_hash: Option<String>,
    /// The plan that brought the row; none for files that no contract takes.
    pub txn: Option<i64>,
    /// Delivery attempts.
    pub attempts: u32,
    /// When the batch was first seen.
    pub first_seen: DateTime<Utc>,
    /// When the row was settled.
    pub settled_at: DateTime<Utc>,
}

impl LedgerRow {
    /// The row that settles one batch of a plan.
    #[must_use]
    pub fn of_plan(
        table: &TableName,
        table_id: &str,
        number: i64,
        row: &PlannedRow,
        settled_at: DateTime<Utc>,
    ) -> Self {
        Self {
            table: Some(table.clone()),
            table_id: Some(table_id.to_owned()),
            batch_id: row.batch_id.clone(),
            source: row.source.clone(),
            sha256: row.sha256.clone(),
            status: row.status,
            reason: row.reason.clone(),
            counts: row.counts,
            contract_hash: Some(row.contract_hash.clone()),
            txn: Some(number),
            attempts: row.attempts,
            first_seen: row.first_seen,
            settled_at,
        }
    }
}

/// What the ledger says about one table (by its Delta id).
#[derive(Debug, Default, Clone)]
pub struct TableLedger {
    /// The row that counts for each batch: the terminal one, else the last.
    pub batches: HashMap<BatchId, LedgerRow>,
    /// All terminal batches of each path, in the ledger's order.
    pub paths: HashMap<String, Vec<BatchId>>,
    /// The offsets of each stream that were delivered.
    pub streams: HashMap<Stream, Offsets>,
}

/// One partition of one incarnation of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// The topic.
    pub topic: String,
    /// Its incarnation.
    pub epoch: Option<String>,
    /// The partition.
    pub partition: i32,
}

impl From<&StreamRange> for Stream {
    fn from(range: &StreamRange) -> Self {
        Self { topic: range.topic.clone(), epoch: range.epoch.clone(), partition: range.partition }
    }
}

impl TableLedger {
    /// Whether nothing more will happen to a batch.
    #[must_use]
    pub fn is_terminal(&self, batch: &BatchId) -> bool {
        self.batches.get(batch).is_some_and(|row| row.status.is_terminal())
    }

    /// The versions of a path that stand or stood (`loaded`, `empty`, `duplicate`), in the ledger's order; the last one
    /// is the standing version.
    pub fn standing<'a>(&'a self, path: &str) -> impl DoubleEndedIterator<Item = &'a LedgerRow> {
        self.paths
            .get(path)
            .into_iter()
            .flatten()
            .filter_map(|batch| self.batches.get(batch))
            .filter(|row| row.status.stands())
    }

    /// Records in quarantine that were not redriven. Of one version of a file the first row that stands says how many were
    /// refused; what comes later of the same version took records out.
    #[must_use]
    pub fn quarantined(&self) -> u64 {
        let delivered = self.batches.values().filter(|row| row.source.range().is_some());
        let mut waiting: u64 = delivered.map(|row| row.counts.quarantined).sum();
        for path in self.paths.keys() {
            let mut known = HashSet::new();
            for row in self.standing(path) {
                if known.insert(row.source.file().map(|version| version.etag.as_str())) {
                    waiting += row.counts.quarantined;
                } else {
                    waiting = waiting.saturating_sub(row.counts.loaded);
                }
            }
        }
        waiting
    }

    /// The offsets of a piece of a stream that no batch brought yet, as intervals.
    #[must_use]
    pub fn missing(&self, range: &StreamRange) -> Vec<(i64, i64)> {
        match self.streams.get(&Stream::from(range)) {
            Some(delivered) => delivered.missing(range.first, range.last),
            None => vec![(range.first, range.last)],
        }
    }

    fn insert(&mut self, row: LedgerRow) {
        if self.is_terminal(&row.batch_id) {
            return;
        }
        if row.status.is_terminal() {
            match &row.source {
                BatchSource::File(version) => {
                    self.paths.entry(version.path.clone()).or_default().push(row.batch_id.clone());
                }
                BatchSource::Stream(range) => {
                    self.streams.entry(Stream::from(range)).or_default().insert(range.first, range.last);
                }
            }
        }
        self.batches.insert(row.batch_id.clone(), row);
    }
}

/// The ledger at one version, indexed.
#[derive(Debug, Default, Clone)]
pub struct Index {
    files: HashSet<String>,
    version: i64,
    txns: BTreeMap<String, i64>,
    tables: HashMap<String, TableLedger>,
    unclaimed: HashMap<String, HashSet<String>>,
    unreadable: u64,
    refused: u64,
}

impl Index {
    /// The plan number up to which a table is settled; 0 for none.
    #[must_use]
    pub fn txn(&self, table_id: &str) -> i64 {
        self.txns.get(&app_id(table_id)).copied().unwrap_or_default()
    }

    /// What is known about a table; none when it has no row.
    #[must_use]
    pub fn table(&self, table_id: &str) -> Option<&TableLedger> {
        self.tables.get(table_id)
    }

    /// Whether a file version is recorded as no table's: no contract takes it, or nobody can.
    #[must_use]
    pub fn is_unclaimed(&self, path: &str, etag: &str) -> bool {
        self.unclaimed.get(path).is_some_and(|etags| etags.contains(etag))
    }

    /// How many file versions no contract takes.
    #[must_use]
    pub fn unclaimed_count(&self) -> u64 {
        self.unclaimed.values().map(|etags| etags.len() as u64).sum::<u64>() - self.unreadable - self.refused
    }

    /// How many things were refused that can be no file of any table.
    #[must_use]
    pub const fn refused_count(&self) -> u64 {
        self.refused
    }

    /// How many messages named no file.
    #[must_use]
    pub const fn unreadable_count(&self) -> u64 {
        self.unreadable
    }

    async fn read(&mut self, snapshot: &Snapshot) -> Result<()> {
        let files = snapshot.files()?;
        let live: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        // A rewritten ledger (compaction) is read anew: its rows keep their order by txn, not by file.
        if !self.files.iter().all(|known| live.contains(known.as_str())) {
            *self = Self::default();
        }
        let mut rows = Vec::new();
        for file in files.iter().filter(|file| !self.files.contains(&file.path)) {
            let mut batches = snapshot.read(file, None).await?;
            while let Some(batch) = batches.try_next().await? {
                for row in 0..batch.num_rows() {
                    rows.push(row_at(&batch, row)?);
                }
            }
        }
        // The order of plans; within a plan a path has at most one standing version that matters.
        rows.sort_by_key(|row| row.txn.unwrap_or_default());
        for row in rows {
            match row.table_id.clone() {
                Some(id) => self.tables.entry(id).or_default().insert(row),
                None => {
                    self.unreadable += u64::from(row.status == Status::Failed);
                    self.refused += u64::from(row.status == Status::Refused);
                    if let BatchSource::File(version) = row.source {
                        self.unclaimed.entry(version.path).or_default().insert(version.etag);
                    }
                }
            }
        }
        self.files = files.iter().map(|file| file.path.clone()).collect();
        self.txns = snapshot.txns().await?;
        self.version = snapshot.version();
        Ok(())
    }
}

/// The ledger's table, created empty when it is not there.
pub async fn table(lake: &Lake) -> Result<Table> {
    if let Some(table) = lake.table(layout::LEDGER).await? {
        return Ok(table);
    }
    let spec = TableSpec {
        schema: schema(),
        partition_by: vec!["table".to_owned()],
        properties: BTreeMap::new(),
        description: Some("every file version ever seen and what became of it".to_owned()),
    };
    let table = Table::create(&lake.store, layout::LEDGER, &spec).await?;
    lake.keep(layout::LEDGER, &table);
    Ok(table)
}

/// The newest state of the ledger. Incremental: only files added since the last call are read.
pub async fn index(lake: &Lake) -> Result<Arc<Index>> {
    let snapshot = table(lake).await?.snapshot().await?;
    index_at(lake, &snapshot).await
}

async fn index_at(lake: &Lake, snapshot: &Snapshot) -> Result<Arc<Index>> {
    let mut kept = lake.ledger.lock().await;
    if kept.version != snapshot.version() || kept.files.is_empty() {
        let mut next = Index::clone(&kept);
        next.read(snapshot).await.map_err(|e| e.within("ledger"))?;
        *kept = Arc::new(next);
    }
    Ok(Arc::clone(&kept))
}

/// What says that rows are in the ledger already.
enum Guard<'a> {
    /// The table's txn has reached the plan's number.
    Txn(String, i64),
    /// Each file version is recorded.
    Unclaimed(&'a [LedgerRow]),
}

impl Guard<'_> {
    async fn is_done(&self, lake: &Lake, snapshot: &Snapshot) -> Result<bool> {
        match self {
            Self::Txn(..) if !lake.store.keeps(Safeguard::LedgerTxn) => Ok(false),
            Self::Txn(app, number) => Ok(snapshot.txn(app).await?.unwrap_or_default() >= *number),
            Self::Unclaimed(rows) => {
                let index = index_at(lake, snapshot).await?;
                let is_known = |version: &FileVersion| index.is_unclaimed(&version.path, &version.etag);
                Ok(rows.iter().all(|row| row.source.file().is_some_and(is_known)))
            }
        }
    }

    fn txns(&self) -> Vec<(String, i64)> {
        match self {
            Self::Txn(app, number) => vec![(app.clone(), *number)],
            Self::Unclaimed(_) => Vec::new(),
        }
    }
}

/// Appends a plan's rows exactly once: under the table's own txn, at snapshot + 1, or not at all when they are there.
pub async fn settle(lake: &Lake, table_id: &str, number: i64, rows: &[LedgerRow]) -> Result<()> {
    append(lake, rows, &Guard::Txn(app_id(table_id), number)).await
}

/// Appends rows of files that no contract takes, those that are not there yet.
pub async fn record_unclaimed(lake: &Lake, rows: &[LedgerRow]) -> Result<()> {
    append(lake, rows, &Guard::Unclaimed(rows)).await
}

async fn append(lake: &Lake, rows: &[LedgerRow], guard: &Guard<'_>) -> Result<()> {
    let ledger = table(lake).await?;
    let batch = to_batch(rows)?;
    let mut written: Option<(DateTime<Utc>, Vec<DataFile>)> = None;
    let mut refused = None;
    for attempt in 0..ATTEMPTS {
        let snapshot = ledger.snapshot().await?;
        if guard.is_done(lake, &snapshot).await? {
            return Ok(());
        }
        // After the snapshot: files that waited too long may be what a vacuum is about to take.
        let may_repeat = lake.store.keeps(Safeguard::LedgerTxn);
        let (at, adds) = match written.take().filter(|(at, _)| may_repeat && !lake.is_too_old(*at)) {
            Some(before) => before,
            None => (lake.clock.now(), write(lake, &batch).await?),
        };
        written = Some((at, adds.clone()));
        let change = Change { operation: "WRITE".to_owned(), adds, txns: guard.txns(), ..Change::default() };
        match ledger.commit(&snapshot, change).await? {
            Outcome::Committed(_) => return Ok(()),
            Outcome::Unknown(error) => {
                tracing::debug!(attempt, error = %error, "ledger commit refused or unknown, looking again");
                let is_denied = error.kind() == ErrorKind::Denied;
                refused = Some(error);
                if is_denied {
                    break;
                }
                lake.pause(attempt).await;
            }
        }
    }
    match refused {
        Some(error) if error.kind() != ErrorKind::Conflict => Err(error.within("ledger")),
        _ => Err(Error::conflict("ledger: other writers were quicker every time")
            .remedy("nothing is lost: the next tick settles it")),
    }
}

fn order_of_stream(row: &LedgerRow) -> Option<(Stream, i64)> {
    row.source.range().map(|range| (Stream::from(range), range.first))
}

/// Rows as files that belong to no version yet.
async fn write(lake: &Lake, batch: &RecordBatch) -> Result<Vec<DataFile>> {
    let partition_by = ["table".to_owned()];
    let options = WriterOptions::default();
    let mut writer =
        Writer::new(&lake.store, layout::LEDGER, schema(), &partition_by, options, Arc::clone(&lake.clock));
    writer.write(batch).await?;
    writer.finish().await
}

/// All rows of the ledger as batches, for commands that show it.
pub async fn rows(lake: &Lake, only: Option<&TableName>) -> Result<Vec<LedgerRow>> {
    let snapshot = table(lake).await?.snapshot().await?;
    let mut found = Vec::new();
    for file in snapshot.files()?.iter() {
        let mut batches = snapshot.read(file, None).await?;
        while let Some(batch) = batches.try_next().await? {
            for row in 0..batch.num_rows() {
                let row = row_at(&batch, row)?;
                if only.is_none() || row.table.as_ref() == only {
                    found.push(row);
                }
            }
        }
    }
    found.sort_by_cached_key(|row| (row.settled_at, row.source.path().map(str::to_owned), order_of_stream(row)));
    Ok(found)
}
