//! Stage what a change stream delivered: each run of consecutive offsets of a partition becomes one batch. Deliveries may
//! repeat, overlap and come in any order: the plan keeps of each batch what no other brought.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::runtime::Handle;

use crate::decode::Options;
use crate::decode::debezium::{EventRows, Place, RecordKey, record_line};
use crate::error::{Error, Result};
use crate::event::stream::StreamRecord;
use crate::layout;
use crate::manifest::{Apart, Manifest, StagedFile, Status, StreamRange};
use crate::name::{BatchId, TableName};
use crate::offsets;
use crate::pipeline::ingest::Action;
use crate::pipeline::lake::Lake;
use crate::pipeline::staging::ArrowSink;
use crate::pipeline::{ledger, sift, staging, tables};
use crate::quarantine;
use crate::schema::Contract;

/// Where the key columns of delivered records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOf {
    /// In the record's key; null is no key.
    Record,
    /// In the record's value: the stream has no keys of its own.
    Value,
}

/// What was done with one run of records.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Delivered {
    /// The table.
    pub table: TableName,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The first offset.
    pub first: i64,
    /// The last offset.
    pub last: i64,
    /// What was done.
    pub action: Action,
}

/// Takes delivered records and stages them for every table that takes their topics. Every run is worked on, whatever becomes
/// of its neighbours; the records are safe when this succeeds, and must be delivered again when it does not.
///
/// # Errors
/// No contract takes a topic, or something that a later delivery may cure.
pub async fn deliver(lake: &Lake, records: Vec<StreamRecord>, key_of: KeyOf) -> Result<Vec<Delivered>> {
    let mut done = Vec::new();
    let mut failed: Option<Error> = None;
    for run in runs(records) {
        let claims = lake.catalog.topic_claims(&run.topic);
        if claims.is_empty() {
            let error = Error::invalid(format!("no contract takes the topic `{}`", run.topic)).remedy(
                "add it to `topics` of a contract with `format: debezium`; until then its records wait in the stream",
            );
            failed.get_or_insert(error);
            continue;
        }
        let run = Arc::new(run);
        for contract in claims {
            match stage(lake, &contract, &run, key_of).await {
                Ok(delivered) => done.push(delivered),
                Err(error) => {
                    failed.get_or_insert(error.within(format!("{}/{} from {}", run.topic, run.partition, run.first())));
                }
            }
        }
    }
    failed.map_or(Ok(done), Err)
}

/// Closes offsets at which a topic has no record (markers of transactions, records of aborted ones, compacted ones), so that
/// they are no gap. The stretch may hold offsets that the ledger has, so that many holes are closed by one entry; every other
/// offset of it must be known to have no record, for nobody reads it again.
///
/// # Errors
/// Something that a later try may cure.
pub async fn close(
    lake: &Lake,
    contract: &Arc<Contract>,
    topic: &str,
    partition: i32,
    (first, last): (i64, i64),
) -> Result<()> {
    let snapshot = tables::ensure(lake, contract).await?.snapshot().await?;
    let table_id = snapshot.table_id();
    let epoch = contract.events().and_then(|source| source.epoch.clone());
    let range = StreamRange { topic: topic.to_owned(), epoch, partition, first, last, bytes: 0, newest: None };
    if ledger::index(lake).await?.table(table_id).is_some_and(|known| known.missing(&range).is_empty()) {
        return Ok(());
    }
    let batch_id = BatchId::of_range(table_id, topic, range.epoch.as_deref(), partition, (first, last));
    let generation = staging::next_generation(lake, &contract.table, &batch_id).await?;
    if staging::has_manifest(lake, &contract.table, &batch_id, generation).await? {
        return Ok(());
    }
    let manifest = Manifest::without_rows(
        contract,
        table_id,
        (batch_id, generation),
        range.into(),
        (Status::Empty, "the topic has no records at these offsets"),
        lake.clock.now(),
    );
    staging::put_manifest(lake, &manifest).await
}

/// Records of one partition, their offsets consecutive: what lies between two runs was not delivered, and is not taken for it.
#[derive(Debug)]
struct Run {
    topic: String,
    partition: i32,
    /// At least one.
    records: Vec<StreamRecord>,
}

impl Run {
    fn first(&self) -> i64 {
        self.records.first().map_or(0, |record| record.offset)
    }

    fn last(&self) -> i64 {
        self.records.last().map_or(0, |record| record.offset)
    }

    fn newest(&self) -> Option<DateTime<Utc>> {
        self.records.iter().filter_map(|record| record.timestamp).max().and_then(DateTime::from_timestamp_millis)
    }
}

/// Sorts records into runs. Of records with one offset the first counts: they are the same one.
fn runs(records: Vec<StreamRecord>) -> Vec<Run> {
    let mut partitions: BTreeMap<(String, i32), Vec<StreamRecord>> = BTreeMap::new();
    for record in records {
        partitions.entry((record.topic.clone(), record.partition)).or_default().push(record);
    }
    let mut runs: Vec<Run> = Vec::new();
    for ((topic, partition), mut records) in partitions {
        records.sort_by_key(|record| record.offset);
        records.dedup_by_key(|record| record.offset);
        let mut run = Run { topic, partition, records: Vec::new() };
        for record in records {
            if !run.records.is_empty() && run.last().checked_add(1) != Some(record.offset) {
                let next = Run { topic: run.topic.clone(), partition, records: Vec::new() };
                runs.push(std::mem::replace(&mut run, next));
            }
            run.records.push(record);
        }
        runs.push(run);
    }
    runs
}

async fn stage(lake: &Lake, contract: &Arc<Contract>, run: &Arc<Run>, key_of: KeyOf) -> Result<Delivered> {
    let table = tables::ensure(lake, contract).await?;
    let snapshot = table.snapshot().await?;
    let table_id = snapshot.table_id();
    let mut range = StreamRange {
        topic: run.topic.clone(),
        epoch: contract.events().and_then(|source| source.epoch.clone()),
        partition: run.partition,
        first: run.first(),
        last: run.last(),
        bytes: 0,
        newest: run.newest(),
    };
    let answer = |action: Action| Delivered {
        table: contract.table.clone(),
        topic: run.topic.clone(),
        partition: run.partition,
        first: run.first(),
        last: run.last(),
        action,
    };
    let offsets = (range.first, range.last);
    let batch_id = BatchId::of_range(table_id, &range.topic, range.epoch.as_deref(), range.partition, offsets);
    let _staging = lake.in_flight.enter(&batch_id).await;
    if ledger::index(lake).await?.table(table_id).is_some_and(|known| known.missing(&range).is_empty()) {
        return Ok(answer(Action::AlreadySettled));
    }
    let generation = staging::next_generation(lake, &contract.table, &batch_id).await?;
    if staging::has_manifest(lake, &contract.table, &batch_id, generation).await? {
        return Ok(answer(Action::AlreadyStaged));
    }
    let first_seen = lake.clock.now();
    let job = Job {
        lake: lake.clone(),
        contract: Arc::clone(contract),
        run: Arc::clone(run),
        key_of,
        batch_id: batch_id.clone(),
        handle: Handle::current(),
    };
    let staged = tokio::task::spawn_blocking(move || job.run())
        .await
        .map_err(|e| Error::internal("staging delivered records stopped").because(e))??;
    range.bytes = staged.bytes;
    let manifest = Manifest {
        version: 1,
        table: contract.table.clone(),
        table_id: table_id.to_owned(),
        batch_id,
        generation,
        source: range.into(),
        sha256: None,
        contract_hash: contract.hash.clone(),
        status: Status::Loaded,
        reason: None,
        counts: staged.apart.counts(&[offsets]),
        apart: Some(staged.apart),
        add_columns: Vec::new(),
        files: vec![staged.rows],
        rejects: staged.rejects,
        redrive: None,
        first_seen,
        staged_at: lake.clock.now(),
    };
    staging::put_manifest(lake, &manifest).await?;
    // Data that lay unnamed for long may be what the upkeep takes, and nobody delivers again what was acknowledged: so it is
    // not, and the next delivery stages it anew.
    if lake.clock.now().signed_duration_since(first_seen) >= sift::UNNAMED / 2 {
        let gone = layout::marker_gone(&manifest.table, &manifest.batch_id, generation);
        staging::put_marker(lake, &gone).await?;
        return Err(Error::unavailable(format!("{}: staging took too long", manifest.source))
            .remedy("nothing is lost: it is delivered again"));
    }
    tracing::info!(
        table.name = %contract.table,
        source = %manifest.source,
        batch.id = %manifest.batch_id,
        rows.in = manifest.counts.rows_in,
        rows.quarantined = manifest.counts.quarantined,
        "staged"
    );
    Ok(answer(Action::Staged))
}

struct Job {
    lake: Lake,
    contract: Arc<Contract>,
    run: Arc<Run>,
    key_of: KeyOf,
    batch_id: BatchId,
    handle: Handle,
}

/// What was written, under fresh names: it belongs to nothing until a manifest names it.
struct Staged {
    rows: StagedFile,
    rejects: Option<StagedFile>,
    apart: Apart,
    bytes: u64,
}

impl Job {
    fn run(&self) -> Result<Staged> {
        let records = &self.run.records;
        let mut rows: Option<ArrowSink> = None;
        let mut rejects: Option<ArrowSink> = None;
        let (mut quarantined, mut ignored) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        let mut at = 0;
        while at < records.len() {
            let begin = at;
            let mut events = EventRows::default();
            let mut held = 0;
            while at < records.len() && (at == begin || held < Options::default().chunk_bytes) {
                let line = self.line(&records[at]);
                let StreamRecord { topic, partition, offset, .. } = &records[at];
                events.push(&line, Place::Record { topic, partition: *partition, offset: *offset });
                held += line.len();
                at += 1;
            }
            bytes += held as u64;
            let events = events.finish()?;
            quarantined.extend(events.malformed.iter().map(|event| records[begin + event.row].offset));
            ignored.extend(events.ignored.iter().map(|row| records[begin + row].offset));
            if !events.malformed.is_empty() {
                let malformed: Vec<_> = events.malformed.into_iter().map(Into::into).collect();
                let hash = &self.contract.hash;
                let batch = quarantine::events::to_batch(&malformed, None, self.batch_id.as_str(), hash)?;
                self.sink(&mut rejects, layout::staged_rejects, &batch)?;
            }
            self.sink(&mut rows, layout::staged_rows, &events.rows)?;
        }
        let rows = rows.ok_or_else(|| Error::internal("a run without records"))?.finish()?;
        let apart = Apart { quarantined: offsets::runs(quarantined), ignored: offsets::runs(ignored) };
        Ok(Staged { rows, rejects: rejects.map(ArrowSink::finish).transpose()?, apart, bytes })
    }

    fn line(&self, record: &StreamRecord) -> Vec<u8> {
        let key = match (self.key_of, &record.key) {
            (KeyOf::Value, _) => RecordKey::InValue,
            (KeyOf::Record, None) => RecordKey::Null,
            (KeyOf::Record, Some(bytes)) => RecordKey::Bytes(bytes),
        };
        let StreamRecord { topic, partition, offset, timestamp, .. } = record;
        record_line(topic, *partition, *offset, *timestamp, key, record.value.as_deref())
    }

    fn sink(
        &self,
        sink: &mut Option<ArrowSink>,
        path: fn(&TableName, &str) -> String,
        batch: &arrow::array::RecordBatch,
    ) -> Result<()> {
        let sink = match sink {
            Some(sink) => sink,
            None => {
                let path = path(&self.contract.table, &self.lake.clock.fresh());
                sink.insert(ArrowSink::create(&self.lake.store, path, &batch.schema(), &self.handle)?)
            }
        };
        sink.write(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(topic: &str, partition: i32, offset: i64) -> StreamRecord {
        let topic = topic.to_owned();
        StreamRecord { topic, partition, offset, timestamp: None, key: None, value: None, headers: Vec::new() }
    }

    #[test]
    fn a_run_has_no_hole() {
        let delivered = [
            ("b", 0, 7),
            ("a", 1, 5),
            ("a", 0, 3),
            ("a", 0, 1),
            ("a", 0, 2),
            ("a", 0, 3),
            ("a", 0, 5),
            ("a", 1, i64::MAX),
        ];
        let records = delivered.iter().map(|(topic, partition, offset)| record(topic, *partition, *offset)).collect();
        let found: Vec<(String, i32, i64, i64, usize)> = runs(records)
            .iter()
            .map(|run| (run.topic.clone(), run.partition, run.first(), run.last(), run.records.len()))
            .collect();
        let wanted = [
            ("a", 0, 1, 3, 3),
            ("a", 0, 5, 5, 1),
            ("a", 1, 5, 5, 1),
            ("a", 1, i64::MAX, i64::MAX, 1),
            ("b", 0, 7, 7, 1),
        ];
        assert_eq!(
            found,
            wanted.map(|(topic, partition, first, last, count)| (topic.to_owned(), partition, first, last, count))
        );
        assert!(runs(Vec::new()).is_empty());
    }
}
