//! Repair: a ledger that was lost is made again from what is left: the plans that are still there say all of what they
//! committed, and the lineage columns of the table and its quarantine say of every row which batch brought it. What cannot be
//! known again is null, and said; a file without a row in either is read again by `reconcile`, which harms nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, TimestampMicrosecondType};
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::layout;
use crate::manifest::{Counts, FileVersion, Plan, Status, StreamRange};
use crate::name::{BatchId, TableName, hex};
use crate::offsets::Offsets;
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::{self, LedgerRow, TableLedger};
use crate::pipeline::staging::{self, Stored};
use crate::pipeline::{APP_ID, settle};
use crate::schema::lineage::{BATCH_ID, FILE, INGESTED_AT, OFFSET, PARTITION, TOPIC};
use crate::schema::{Contract, WriteMode};
use crate::table::{Snapshot, Table};

/// What a row says that was made again from the table.
const REBUILT: &str = "rebuilt from the table's rows";

/// What was done about the ledger of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// The table.
    pub table: TableName,
    /// Whether anything was missing.
    pub outcome: Outcome,
    /// Batches whose rows are known by plans.
    pub by_plans: u64,
    /// Batches whose rows were made again from the table and its quarantine.
    pub by_rows: u64,
    /// Rows of the table that they account for.
    pub rows: u64,
    /// What cannot be known again.
    pub unknown: Vec<String>,
}

/// What came of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The ledger has everything that the table has.
    Whole,
    /// It would be made again.
    Missing,
    /// It was made again.
    Rebuilt,
}

impl Outcome {
    /// The outcome as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Missing => "missing",
            Self::Rebuilt => "rebuilt",
        }
    }
}

/// Makes the ledger of each table again that is ahead of it; `dry_run` only tells. All tables, or some.
///
/// # Errors
/// A table or the ledger cannot be read or written.
pub async fn repair_ledger(lake: &Lake, only: &[TableName], dry_run: bool) -> Result<Vec<Repaired>> {
    let mut repaired = Vec::new();
    for contract in lake.catalog.tables().iter().filter(|contract| contract.files().is_some()) {
        if !only.is_empty() && !only.contains(&contract.table) {
            continue;
        }
        let Some(table) = lake.table(&layout::table(&contract.table)).await? else { continue };
        let done = repair_table(lake, contract, &table, dry_run).await;
        repaired.push(done.map_err(|error| error.within(&contract.table))?);
    }
    Ok(repaired)
}

async fn repair_table(lake: &Lake, contract: &Arc<Contract>, table: &Table, dry_run: bool) -> Result<Repaired> {
    // In this order, as everywhere: the table, then the ledger.
    let snapshot = table.snapshot().await?;
    let table_id = snapshot.table_id().to_owned();
    let current = snapshot.txn(APP_ID).await?.unwrap_or_default();
    let index = ledger::index(lake).await?;
    let settled = index.txn(&table_id);
    let mut done = Repaired {
        table: contract.table.clone(),
        outcome: Outcome::Whole,
        by_plans: 0,
        by_rows: 0,
        rows: 0,
        unknown: Vec::new(),
    };
    if settled >= current {
        return Ok(done);
    }
    done.outcome = Outcome::Missing;
    let chain = Chain::read(lake, contract, &table_id, settled, current).await?;
    let none = TableLedger::default();
    let known = index.table(&table_id).unwrap_or(&none);
    let mut rows = Vec::new();
    if !chain.is_whole {
        let mut found = Found::default();
        found.read_table(&snapshot).await?;
        let quarantine = match lake.table(&layout::quarantine(&contract.table)).await? {
            Some(quarantine) => Some(quarantine.snapshot().await?),
            None => None,
        };
        if let Some(quarantine) = &quarantine {
            found.read_quarantine(quarantine).await?;
        }
        let rebuild = Rebuild { lake, contract, table_id: &table_id, now: lake.clock.now() };
        rows = rebuild.rows(found, known, &chain.batches()).await?;
        done.unknown = unknown(contract, &chain, current, quarantine.as_ref()).await?;
    }
    done.by_rows = rows.len() as u64;
    rows.extend(chain.rows(lake.clock.now()).into_iter().filter(|row| !known.is_terminal(&row.batch_id)));
    done.by_plans = rows.len() as u64 - done.by_rows;
    done.rows = rows.iter().map(|row| row.counts.loaded).sum();
    if dry_run {
        return Ok(done);
    }
    // As after a commit: quarantine first, then the ledger, then what was staged goes.
    if let Some(last) = chain.plans.first().filter(|plan| plan.number == current) {
        settle::settle_rejects(lake, contract, last).await?;
    }
    ledger::settle(lake, &table_id, current, &rows).await?;
    for plan in &chain.plans {
        settle::sweep(lake, contract, plan).await?;
    }
    done.outcome = Outcome::Rebuilt;
    Ok(done)
}

/// The committed plans that are still there, newest first: each names the one before it.
struct Chain {
    plans: Vec<Plan>,
    /// Whether it goes back to what the ledger has.
    is_whole: bool,
}

impl Chain {
    async fn read(lake: &Lake, contract: &Contract, table_id: &str, settled: i64, current: i64) -> Result<Self> {
        let mut plans: Vec<Plan> = Vec::new();
        let mut number = current;
        while number > settled {
            let path = layout::plan(&contract.table, number);
            match staging::read_stored::<Plan>(lake, &path).await? {
                Stored::There(plan, _) if plan.table_id == table_id && plan.prev < number => {
                    number = plan.prev;
                    plans.push(plan);
                }
                _ => break,
            }
        }
        Ok(Self { plans, is_whole: number == settled })
    }

    fn batches(&self) -> BTreeSet<BatchId> {
        self.plans.iter().flat_map(|plan| &plan.rows).map(|row| row.batch_id.clone()).collect()
    }

    /// The ledger's rows, older plans first.
    fn rows(&self, now: DateTime<Utc>) -> Vec<LedgerRow> {
        let of = |plan: &Plan| {
            let (table, id, number) = (plan.table.clone(), plan.table_id.clone(), plan.number);
            let rows = plan.rows.iter().map(|row| LedgerRow::of_plan(&table, &id, number, row, now));
            rows.collect::<Vec<_>>()
        };
        self.plans.iter().rev().flat_map(of).collect()
    }
}

/// What a table and its quarantine remember of a file's batch.
#[derive(Debug, Default)]
struct Batch {
    path: String,
    loaded: u64,
    quarantined: u64,
    is_refused: bool,
    /// As quarantine says it.
    etag: Option<String>,
    contract_hash: Option<String>,
    first: Option<i64>,
    last: Option<i64>,
}

#[derive(Default)]
struct Found {
    files: BTreeMap<String, Batch>,
    streams: HashMap<(String, i32), Offsets>,
}

fn text_at(batch: &RecordBatch, name: &str, row: usize) -> Option<String> {
    let column = batch.column_by_name(name)?.as_string_opt::<i32>()?;
    column.is_valid(row).then(|| column.value(row).to_owned())
}

fn long_at(batch: &RecordBatch, name: &str, row: usize) -> Option<i64> {
    let column = batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
    column.is_valid(row).then(|| column.value(row))
}

fn time_at(batch: &RecordBatch, name: &str, row: usize) -> Option<i64> {
    let column = batch.column_by_name(name)?.as_primitive_opt::<TimestampMicrosecondType>()?;
    column.is_valid(row).then(|| column.value(row))
}

impl Found {
    async fn read_table(&mut self, snapshot: &Snapshot) -> Result<()> {
        let schema = snapshot.schema();
        let wanted = [BATCH_ID, FILE, INGESTED_AT, TOPIC, PARTITION, OFFSET];
        let columns: Vec<String> =
            wanted.iter().filter(|name| schema.field_with_name(name).is_ok()).map(ToString::to_string).collect();
        for file in snapshot.files()?.iter() {
            let mut batches = snapshot.read(file, Some(&columns)).await?;
            while let Some(batch) = batches.try_next().await? {
                for row in 0..batch.num_rows() {
                    self.take_row(&batch, row)?;
                }
            }
        }
        Ok(())
    }

    fn take_row(&mut self, batch: &RecordBatch, row: usize) -> Result<()> {
        let Some(path) = text_at(batch, FILE, row) else {
            let partition = batch.column_by_name(PARTITION).and_then(|column| column.as_primitive_opt::<Int32Type>());
            let partition = partition.filter(|column| column.is_valid(row)).map(|column| column.value(row));
            let (Some(topic), Some(partition), Some(offset)) =
                (text_at(batch, TOPIC, row), partition, long_at(batch, OFFSET, row))
            else {
                return Err(Error::corrupt("a row without `_file` and without `_topic`, `_partition` and `_offset`"));
            };
            self.streams.entry((topic, partition)).or_default().insert(offset, offset);
            return Ok(());
        };
        let id = text_at(batch, BATCH_ID, row).ok_or_else(|| Error::corrupt("a row without `_batch_id`"))?;
        let at = time_at(batch, INGESTED_AT, row);
        let found = self.files.entry(id).or_default();
        found.path = path;
        found.loaded += 1;
        found.first = found.first.into_iter().chain(at).min();
        found.last = found.last.into_iter().chain(at).max();
        Ok(())
    }

    async fn read_quarantine(&mut self, snapshot: &Snapshot) -> Result<()> {
        let columns = ["batch_id", "file", "etag", "record", "contract_hash", "resolved"].map(str::to_owned);
        for file in snapshot.files()?.iter() {
            let mut batches = snapshot.read(file, Some(&columns)).await?;
            while let Some(batch) = batches.try_next().await? {
                for row in 0..batch.num_rows() {
                    // Records of streams have no file: their offsets are in the table.
                    let (Some(path), Some(id)) = (text_at(&batch, "file", row), text_at(&batch, "batch_id", row))
                    else {
                        continue;
                    };
                    let found = self.files.entry(id).or_default();
                    found.path = path;
                    found.etag = text_at(&batch, "etag", row);
                    found.contract_hash = text_at(&batch, "contract_hash", row);
                    found.is_refused |= long_at(&batch, "record", row).is_none();
                    found.quarantined += u64::from(time_at(&batch, "resolved", row).is_none());
                }
            }
        }
        Ok(())
    }
}

struct Rebuild<'a> {
    lake: &'a Lake,
    contract: &'a Contract,
    table_id: &'a str,
    now: DateTime<Utc>,
}

impl Rebuild<'_> {
    /// Rows for all batches that neither the ledger nor a plan knows, in the order in which they were ingested.
    async fn rows(&self, found: Found, known: &TableLedger, planned: &BTreeSet<BatchId>) -> Result<Vec<LedgerRow>> {
        let mut with_rows: BTreeSet<String> = BTreeSet::new();
        with_rows.extend(found.files.values().filter(|batch| batch.loaded > 0).map(|batch| batch.path.clone()));
        let mut files: Vec<(String, Batch)> = found.files.into_iter().collect();
        files.sort_by(|(_, a), (_, b)| (a.last, &a.path).cmp(&(b.last, &b.path)));
        let mut rows = Vec::new();
        for (id, batch) in files {
            let id = BatchId::from(id);
            if !known.is_terminal(&id) && !planned.contains(&id) {
                rows.push(self.file_row(id, batch, &with_rows).await?);
            }
        }
        let mut streams: Vec<_> = found.streams.into_iter().collect();
        streams.sort_by(|(a, _), (b, _)| a.cmp(b));
        for ((topic, partition), offsets) in streams {
            for (first, last) in offsets.intervals() {
                rows.extend(self.stream_rows(&topic, partition, (first, last), known));
            }
        }
        Ok(rows)
    }

    async fn file_row(&self, id: BatchId, batch: Batch, with_rows: &BTreeSet<String>) -> Result<LedgerRow> {
        let status = if batch.is_refused {
            Status::Refused
        } else if batch.loaded == 0 && with_rows.contains(&batch.path) {
            // Its good rows left with the version that took its place.
            Status::Superseded
        } else {
            Status::Loaded
        };
        let gives_rows = status == Status::Loaded;
        let counts = Counts {
            rows_in: batch.loaded + batch.quarantined,
            loaded: batch.loaded,
            quarantined: batch.quarantined,
            ignored: 0,
        };
        let landed = self.landed(&id, &batch.path).await?;
        let (source, sha256) = landed.unwrap_or_else(|| {
            let version = FileVersion {
                path: batch.path,
                etag: batch.etag.unwrap_or_default(),
                bytes: 0,
                last_modified: DateTime::UNIX_EPOCH,
                sequencer: None,
            };
            (version, None)
        });
        let ingested = batch.first.and_then(DateTime::from_timestamp_micros);
        Ok(LedgerRow {
            table: Some(self.contract.table.clone()),
            table_id: Some(self.table_id.to_owned()),
            batch_id: id,
            source: source.into(),
            sha256,
            status,
            reason: Some(REBUILT.to_owned()),
            counts: if gives_rows { counts } else { Counts::default() },
            contract_hash: batch.contract_hash,
            txn: None,
            attempts: 0,
            first_seen: ingested.unwrap_or(self.now),
            settled_at: self.now,
        })
    }

    /// The version that the landing zone has, if it is the batch's: then etag, size, time and content are known again.
    async fn landed(&self, id: &BatchId, path: &str) -> Result<Option<(FileVersion, Option<String>)>> {
        let Some(version) = self.lake.landing.head(path).await? else { return Ok(None) };
        if BatchId::of_file(self.table_id, path, &version.etag) != *id {
            return Ok(None);
        }
        let (landing, read) = (self.lake.landing.clone(), version.clone());
        let hash = tokio::task::spawn_blocking(move || -> Result<String> {
            let mut hash = Sha256::new();
            let mut content = landing.open(&read)?.content;
            let mut buffer = vec![0; 1 << 16];
            loop {
                match content.read(&mut buffer)? {
                    0 => return Ok(hex(&hash.finalize())),
                    count => hash.update(&buffer[..count]),
                }
            }
        });
        let hash = hash.await.map_err(|e| Error::internal("reading a landed file").because(e))?;
        // One that changes while it is read is another version by now.
        let is_same = self.lake.landing.unchanged(&version).await?;
        Ok(Some((version, hash.ok().filter(|_| is_same))))
    }

    /// A row for each stretch of an interval that the ledger lacks.
    fn stream_rows(
        &self,
        topic: &str,
        partition: i32,
        (first, last): (i64, i64),
        known: &TableLedger,
    ) -> Vec<LedgerRow> {
        let epoch = self.contract.events().and_then(|source| source.epoch.clone());
        let range = StreamRange { topic: topic.to_owned(), epoch, partition, first, last, bytes: 0, newest: None };
        let missing = known.missing(&range).into_iter();
        missing
            .map(|(first, last)| {
                let range = StreamRange { first, last, ..range.clone() };
                let rows = u64::try_from(last - first + 1).unwrap_or_default();
                let epoch = range.epoch.as_deref();
                LedgerRow {
                    table: Some(self.contract.table.clone()),
                    table_id: Some(self.table_id.to_owned()),
                    batch_id: BatchId::of_range(self.table_id, topic, epoch, partition, (first, last)),
                    source: range.into(),
                    sha256: None,
                    status: Status::Loaded,
                    reason: Some(REBUILT.to_owned()),
                    counts: Counts { rows_in: rows, loaded: rows, quarantined: 0, ignored: 0 },
                    contract_hash: None,
                    txn: None,
                    attempts: 0,
                    first_seen: self.now,
                    settled_at: self.now,
                }
            })
            .collect()
    }
}

/// What cannot be known again, in words.
async fn unknown(
    contract: &Contract,
    chain: &Chain,
    current: i64,
    quarantine: Option<&Snapshot>,
) -> Result<Vec<String>> {
    let mut told = vec![
        "files that brought no row and no refused record: `reconcile` reads them again".to_owned(),
        "contracts, attempts and plans of rebuilt batches; etags, sizes and content of files that are not landed as they \
         were"
        .to_owned(),
    ];
    if contract.write_mode == WriteMode::Upsert {
        told.push("rows of a batch that later ones replaced: its count is of those that are left".to_owned());
    }
    if contract.events().is_some() {
        told.push(
            "the incarnation of a topic before the contract's `epoch`; which events of a stream were malformed or ignored"
                .to_owned(),
        );
    }
    let has_plan = chain.plans.first().is_some_and(|plan| plan.number == current);
    let settled = match quarantine {
        Some(quarantine) => quarantine.txn(APP_ID).await?.unwrap_or_default(),
        None => 0,
    };
    if !has_plan && settled < current {
        told.push(format!(
            "whether the last plan, {current}, had refused records that are not in quarantine yet: the plan is gone too"
        ));
    }
    Ok(told)
}
