//! What waits in the quarantine of a table that files feed: the records that no redrive brought yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use crate::decode::again::Kept;
use crate::error::{Error, Result};
use crate::layout;
use crate::name::BatchId;
use crate::pipeline::lake::Lake;
use crate::quarantine::HEADER;
use crate::schema::Contract;
use crate::schema::lineage::EVENT;
use crate::table::{DataFile, Snapshot};

/// Unresolved quarantine rows of one batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Waiting {
    /// Whether the file was refused whole.
    pub(crate) whole: bool,
    /// Numbers of its refused records, and where each begins in its file.
    pub(crate) records: BTreeMap<i64, Option<i64>>,
    /// What they need to be read again without their file, as it is stored.
    pub(crate) header: Option<String>,
    /// Data files of the quarantine table that hold them.
    files: Vec<DataFile>,
}

/// Unresolved quarantine rows of a table, by batch.
pub(crate) async fn waiting(lake: &Lake, contract: &Contract) -> Result<BTreeMap<BatchId, Waiting>> {
    let mut found: BTreeMap<BatchId, Waiting> = BTreeMap::new();
    let Some(snapshot) = snapshot(lake, contract).await? else { return Ok(found) };
    // A line that is no change event stays none; what can be redriven of such a table is a whole file.
    let event = contract.events().map(|_| EVENT);
    let header = snapshot.schema().field_with_name(HEADER).is_ok().then_some(HEADER);
    let names = ["batch_id", "record", "byte_offset", "resolved"];
    let names: Vec<String> = names.into_iter().chain(event).chain(header).map(str::to_owned).collect();
    for file in snapshot.files()?.iter() {
        let mut batches = snapshot.read(file, Some(&names)).await?;
        while let Some(batch) = batches.try_next().await? {
            let rows = Rows::of(&batch)?;
            let events = event.map(|name| column(&batch, name)).transpose()?;
            let headers = header.map(|name| texts(&batch, name)).transpose()?;
            for row in 0..batch.num_rows() {
                let of = rows.batch(row);
                // The row that carries it may be out of quarantine long since.
                if let Some(headers) = headers.filter(|headers| headers.is_valid(row)) {
                    found.entry(of.clone()).or_default().header = Some(headers.value(row).to_owned());
                }
                if rows.is_resolved(row) || events.is_some_and(|events| events.is_valid(row)) {
                    continue;
                }
                let waiting = found.entry(of).or_default();
                match rows.record(row) {
                    None => waiting.whole = true,
                    Some(record) => drop(waiting.records.insert(record, rows.byte_offset(row))),
                }
                if waiting.files.last().is_none_or(|last| last.path != file.path) {
                    waiting.files.push(file.clone());
                }
            }
        }
    }
    found.retain(|_, waiting| waiting.whole || !waiting.records.is_empty());
    Ok(found)
}

/// The refused records of many batches, as far as they fit into memory together: reading the table once for each batch would
/// take the longer the more there are.
pub(crate) struct Shelf {
    snapshot: Option<Snapshot>,
    whole: BTreeMap<BatchId, Vec<Kept>>,
}

impl Shelf {
    /// Takes up to `most` bytes of records.
    pub(crate) async fn fill(
        lake: &Lake,
        contract: &Contract,
        waiting: &BTreeMap<BatchId, Waiting>,
        most: usize,
    ) -> Result<Self> {
        let mut shelf = Self { snapshot: snapshot(lake, contract).await?, whole: BTreeMap::new() };
        let Some(snapshot) = &shelf.snapshot else { return Ok(shelf) };
        let wanted: BTreeSet<&str> = waiting
            .values()
            .filter(|it| it.header.is_some())
            .flat_map(|it| &it.files)
            .map(|file| file.path.as_str())
            .collect();
        let mut spilled: BTreeSet<BatchId> = BTreeSet::new();
        let mut bytes = 0;
        for file in snapshot.files()?.iter().filter(|file| wanted.contains(file.path.as_str())) {
            let mut batches = snapshot.read(file, Some(&columns())).await?;
            while let Some(batch) = batches.try_next().await? {
                for (of, kept) in records(&batch, |of| waiting.get(of).is_some_and(|it| it.header.is_some()))? {
                    bytes += kept.raw.len();
                    if bytes > most {
                        shelf.whole.remove(&of);
                        spilled.insert(of);
                    } else if !spilled.contains(&of) {
                        shelf.whole.entry(of).or_default().push(kept);
                    }
                }
            }
        }
        Ok(shelf)
    }

    /// The refused records of one batch.
    pub(crate) fn take(&mut self, of: &BatchId, waiting: &Waiting) -> BoxStream<'static, Result<Vec<Kept>>> {
        if let Some(kept) = self.whole.remove(of) {
            return futures::stream::iter([Ok(kept)]).boxed();
        }
        let Some(snapshot) = self.snapshot.clone() else { return futures::stream::empty().boxed() };
        let of = Arc::new(of.clone());
        futures::stream::iter(waiting.files.clone())
            .then(move |file| {
                let snapshot = snapshot.clone();
                async move { snapshot.read(&file, Some(&columns())).await }
            })
            .try_flatten()
            .map(move |batch| {
                let found = records(&batch?, |other| *other == *of)?;
                Ok(found.into_iter().map(|(_, kept)| kept).collect())
            })
            .boxed()
    }
}

async fn snapshot(lake: &Lake, contract: &Contract) -> Result<Option<Snapshot>> {
    match lake.table(&layout::quarantine(&contract.table)).await? {
        Some(table) => Ok(Some(table.snapshot().await?)),
        None => Ok(None),
    }
}

/// What a record is read again from.
fn columns() -> Vec<String> {
    ["batch_id", "record", "line", "byte_offset", "raw", "resolved"].map(str::to_owned).to_vec()
}

/// Unresolved records of some batches, in the order of their rows.
fn records(batch: &RecordBatch, is_wanted: impl Fn(&BatchId) -> bool) -> Result<Vec<(BatchId, Kept)>> {
    let rows = Rows::of(batch)?;
    let lines = numbers(batch, "line")?;
    let wrong = || Error::corrupt("quarantine: `raw` is no binary");
    let raw: &BinaryArray = column(batch, "raw")?.as_binary_opt::<i32>().ok_or_else(wrong)?;
    let mut found = Vec::new();
    for row in (0..batch.num_rows()).filter(|row| !rows.is_resolved(*row)) {
        // Text has all three; a row of Parquet has but its number.
        let (Some(record), Some(byte_offset), true) = (rows.record(row), rows.byte_offset(row), lines.is_valid(row))
        else {
            continue;
        };
        let of = rows.batch(row);
        if is_wanted(&of) {
            found.push((of, Kept { record, line: lines.value(row), byte_offset, raw: raw.value(row).to_vec() }));
        }
    }
    Ok(found)
}

/// The columns that tell which record a row is of.
struct Rows<'a> {
    batches: &'a StringArray,
    records: &'a Int64Array,
    offsets: &'a Int64Array,
    resolved: &'a ArrayRef,
}

impl<'a> Rows<'a> {
    fn of(batch: &'a RecordBatch) -> Result<Self> {
        let resolved = column(batch, "resolved")?;
        if resolved.as_primitive_opt::<TimestampMicrosecondType>().is_none() {
            return Err(Error::corrupt("quarantine: `resolved` is no timestamp"));
        }
        Ok(Self {
            batches: texts(batch, "batch_id")?,
            records: numbers(batch, "record")?,
            offsets: numbers(batch, "byte_offset")?,
            resolved,
        })
    }

    fn batch(&self, row: usize) -> BatchId {
        BatchId::from(self.batches.value(row).to_owned())
    }

    fn record(&self, row: usize) -> Option<i64> {
        self.records.is_valid(row).then(|| self.records.value(row))
    }

    fn byte_offset(&self, row: usize) -> Option<i64> {
        self.offsets.is_valid(row).then(|| self.offsets.value(row))
    }

    fn is_resolved(&self, row: usize) -> bool {
        self.resolved.is_valid(row)
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("quarantine has no column `{name}`")))
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let wrong = || Error::corrupt(format!("quarantine: `{name}` is no text"));
    column(batch, name)?.as_string_opt::<i32>().ok_or_else(wrong)
}

fn numbers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    let wrong = || Error::corrupt(format!("quarantine: `{name}` is no number"));
    column(batch, name)?.as_primitive_opt::<Int64Type>().ok_or_else(wrong)
}
