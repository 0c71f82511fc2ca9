//! The upsert: of the rows of one key, stored and new, the newest stays. New rows may be more than memory holds: then they are
//! read again and again, each time for as many keys as fit.

use std::collections::BTreeMap;

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use hashbrown::DefaultHashBuilder;

use super::bits::Bits;
use super::keys::KeyIndex;
use super::rewrite::Collector;
use super::{Newer, Ranking, Replacement, columns_of, exchange, union_of};
use crate::error::{Error, Result};
use crate::pipeline::lake::Lake;
use crate::table::{DataFile, Snapshot, conform};

/// So large a part of the memory may be taken by the keys that are looked at together.
const KEYS_SHARE: u64 = 4;

/// So large a part of the memory may be taken by new rows that are held instead of being read again.
const HELD_SHARE: u64 = 12;

/// Keys are split into no more classes than this: every class is a reading of all new rows.
const MOST_CLASSES: u64 = 1 << 12;

/// What a key takes besides its bytes and those of its rank: its winner, two allocations, the place of a stored row.
const KEY_BYTES: usize = size_of::<Winner>() + 32 + size_of::<(usize, u32)>();

/// Upsert: of the rows of one key, stored and new, the newest stays. `schema` is the table's schema after the commit
/// (the snapshot's, or more), which the new rows have or can be conformed to. `new` gives all new rows whenever it is called,
/// in the order in which they count: that order decides between equals.
///
/// # Errors
/// Storage that fails, rows that do not fit the schema, or keys so large that a four-thousandth of them takes more than the
/// memory; and what `new` fails with.
pub async fn by_key<'n, E: From<Error>>(
    lake: &Lake,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    key: &[String],
    newer: Newer<'_>,
    new: impl Fn() -> BoxStream<'n, Result<RecordBatch, E>>,
) -> Result<Replacement, E> {
    let memory = lake.settings.memory_bytes;
    let held = hold(new(), memory / HELD_SHARE).await?;
    let read = || match &held {
        Some(batches) => stream::iter(batches.clone()).map(Ok).boxed(),
        None => new(),
    };
    let upsert = Upsert {
        snapshot,
        schema,
        key,
        wanted: union_of(key, newer.columns),
        ranking: Ranking::greatest_first(schema, newer.columns)?,
        hasher: DefaultHashBuilder::default(),
        budget: usize::try_from(memory / KEYS_SHARE).unwrap_or(usize::MAX),
    };
    let mut classes = 1;
    let Decided { stay, lost } = loop {
        match upsert.decide(classes, &read).await? {
            Some(decided) => break decided,
            None if classes < MOST_CLASSES => classes *= 2,
            None => {
                let error =
                    Error::invalid(format!("the keys of the new rows do not fit into the limit of {memory} bytes"));
                return Err(error.remedy("raise ALLUVIUM_MEMORY").into());
            }
        }
    };
    let mut rows = Collector::new(lake, snapshot, schema, 1);
    let mut first = 0;
    let mut batches = read();
    while let Some(batch) = batches.try_next().await? {
        let mask = stay.mask(first, batch.num_rows());
        rows.push(&filter_record_batch(&conform(&batch, schema)?, &mask).map_err(Error::from)?).await?;
        first += batch.num_rows();
    }
    drop(batches);
    let rows = rows.finish().await?;
    Ok(exchange(lake, snapshot, schema, lost, rows).await?)
}

/// All batches, if they take no more than `limit` bytes.
async fn hold<E>(
    mut batches: BoxStream<'_, Result<RecordBatch, E>>,
    limit: u64,
) -> Result<Option<Vec<RecordBatch>>, E> {
    let mut held = Vec::new();
    let mut bytes = 0;
    while let Some(batch) = batches.try_next().await? {
        bytes += bytes_of(&batch);
        if bytes > limit {
            return Ok(None);
        }
        held.push(batch);
    }
    Ok(Some(held))
}

/// Bytes of a batch by itself: columns that were read together share their memory.
fn bytes_of(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter();
    let bytes = columns.map(|column| {
        column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()) as u64
    });
    bytes.sum()
}

/// What every step needs.
struct Upsert<'a> {
    snapshot: &'a Snapshot,
    schema: &'a SchemaRef,
    key: &'a [String],
    /// The columns of the key and those that decide.
    wanted: Vec<String>,
    ranking: Ranking,
    hasher: DefaultHashBuilder,
    /// Bytes that keys may take at a time.
    budget: usize,
}

/// What the upsert comes to.
struct Decided {
    /// The new rows that stay, by their numbers.
    stay: Bits,
    /// The stored rows that go, file by file.
    lost: Vec<(DataFile, Bits)>,
}

/// The newest of the new rows of one key.
struct Winner {
    /// Its number among all new rows.
    row: usize,
    /// Comparable bytes: the smallest wins.
    rank: Box<[u8]>,
    /// A stored row is newer.
    is_beaten: bool,
}

/// The keys of one class, each with its winner, by the key's number.
struct Winners {
    keys: KeyIndex,
    rows: Vec<Winner>,
}

impl Upsert<'_> {
    /// Looks at class after class of the keys. None when a class does not fit into the memory.
    async fn decide<'n, E: From<Error>>(
        &self,
        classes: u64,
        read: &impl Fn() -> BoxStream<'n, Result<RecordBatch, E>>,
    ) -> Result<Option<Decided>, E> {
        let mut stay = Bits::default();
        let mut lost: BTreeMap<String, (DataFile, Bits)> = BTreeMap::new();
        for class in 0..classes {
            let Some(mut winners) = self.winners(class, classes, read()).await? else { return Ok(None) };
            self.beat(&mut winners, &mut lost).await?;
            winners.rows.iter().filter(|winner| !winner.is_beaten).for_each(|winner| stay.set(winner.row));
        }
        Ok(Some(Decided { stay, lost: lost.into_values().collect() }))
    }

    async fn winners<E: From<Error>>(
        &self,
        class: u64,
        classes: u64,
        mut batches: BoxStream<'_, Result<RecordBatch, E>>,
    ) -> Result<Option<Winners>, E> {
        let mut keys = KeyIndex::over(self.schema, self.key)?.with_hasher(self.hasher.clone());
        let mut rows: Vec<Winner> = Vec::new();
        let (mut first, mut rank_bytes) = (0, 0);
        while let Some(batch) = batches.try_next().await? {
            let count = batch.num_rows();
            let (batch, places) = self.of_class(&keys, &batch, class, classes)?;
            let numbers = keys.insert(&columns_of(&batch, self.key)?)?;
            let ranks = self.ranking.rows(&batch)?;
            for ((number, place), rank) in numbers.into_iter().zip(places).zip(&ranks) {
                let (number, row, rank) = (number as usize, first + place, rank.as_ref());
                match rows.get_mut(number) {
                    None => {
                        rank_bytes += rank.len();
                        rows.push(Winner { row, rank: rank.into(), is_beaten: false });
                    }
                    Some(winner) if *rank <= *winner.rank => {
                        winner.row = row;
                        if *rank < *winner.rank {
                            rank_bytes = rank_bytes + rank.len() - winner.rank.len();
                            winner.rank = rank.into();
                        }
                    }
                    Some(_) => {}
                }
            }
            first += count;
            if keys.memory() + rank_bytes + rows.len() * KEY_BYTES > self.budget {
                return Ok(None);
            }
        }
        Ok(Some(Winners { keys, rows }))
    }

    /// The rows whose key is of a class, with the columns that matter, and their places in the batch.
    fn of_class(
        &self,
        keys: &KeyIndex,
        batch: &RecordBatch,
        class: u64,
        classes: u64,
    ) -> Result<(RecordBatch, Vec<usize>)> {
        let batch = conform(batch, self.schema)?;
        let wanted = self.wanted.iter().map(|name| batch.schema().index_of(name)).collect::<Result<Vec<_>, _>>()?;
        let batch = batch.project(&wanted)?;
        if classes == 1 {
            let places = (0..batch.num_rows()).collect();
            return Ok((batch, places));
        }
        // The table of the keys goes by the lowest and the highest bits.
        let is_one = |hash: u64| ((hash >> 32) & 0xFF_FFFF) % classes == class;
        let mask: Vec<bool> = keys.hashes(&columns_of(&batch, self.key)?)?.into_iter().map(is_one).collect();
        let places = mask.iter().enumerate().filter(|(_, is_in)| **is_in).map(|(place, _)| place).collect();
        Ok((filter_record_batch(&batch, &BooleanArray::from(mask))?, places))
    }

    /// Compares the winners with what is stored: who is older than its stored row is beaten, and other stored rows are lost.
    async fn beat(&self, winners: &mut Winners, lost: &mut BTreeMap<String, (DataFile, Bits)>) -> Result<()> {
        if winners.keys.is_empty() {
            return Ok(());
        }
        let mut found: Vec<(DataFile, Vec<(usize, u32)>)> = Vec::new();
        for file in winners.keys.pruner()?.among(&self.snapshot.files()?) {
            let mut rows = Vec::new();
            let mut first = 0;
            let mut stream = self.snapshot.read(&file, Some(&self.wanted)).await?;
            while let Some(batch) = stream.try_next().await? {
                let numbers = winners.keys.find(&columns_of(&batch, self.key)?)?;
                if numbers.iter().any(Option::is_some) {
                    let stored = self.ranking.rows(&batch)?;
                    for (row, number) in numbers.into_iter().enumerate() {
                        let Some(number) = number else { continue };
                        let winner = &mut winners.rows[number as usize];
                        if *stored.row(row).as_ref() < *winner.rank {
                            winner.is_beaten = true;
                        } else {
                            rows.push((first + row, number));
                        }
                    }
                }
                first += batch.num_rows();
            }
            found.push((file, rows));
        }
        for (file, rows) in found {
            let rows = rows.into_iter().filter(|(_, number)| !winners.rows[*number as usize].is_beaten);
            let bits = &mut lost.entry(file.path.clone()).or_insert_with(|| (file, Bits::default())).1;
            rows.for_each(|(row, _)| bits.set(row));
        }
        Ok(())
    }
}
