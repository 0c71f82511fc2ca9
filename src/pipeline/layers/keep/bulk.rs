//! Rows whose key occurs more than once, by the key column alone: 16 bytes a row, in buckets that fit the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::Array;
use futures::TryStreamExt;

use super::super::{Work, rows};
use super::too_many;
use crate::error::{Error, Result};
use crate::lineage::RowMap;
use crate::pipeline::replace::bits::Bits;
use crate::pipeline::replace::keys::{integers, is_integer_like};
use crate::table::{DataFile, Snapshot};

/// Buckets of one pass.
const BUCKETS: usize = 256;

/// Bytes of a row in a bucket.
const ROW_BYTES: u64 = 16;

/// The share of the memory that buckets take.
const MEMORY_SHARE: u64 = 3;

/// What the key column says.
pub(super) struct Found {
    /// Rows that come out of each file.
    pub rows: Vec<usize>,
    /// Rows of each file whose key is not alone.
    pub contenders: Vec<Bits>,
}

/// A key and its place: file number and row number.
type Entry = (i64, u64);

/// The contenders among the rows of some files; none for keys that are not one integer-like column.
pub(super) async fn contenders(work: &Work<'_>, files: &[DataFile]) -> Result<Option<Found>> {
    let [key] = work.contract.primary_key.as_slice() else { return Ok(None) };
    let integer_like = work.lineage.output.field_with_name(key).is_ok_and(|field| is_integer_like(field.data_type()));
    let Some(rows) = files.iter().map(|file| file.rows).sum::<Option<u64>>() else { return Ok(None) };
    if !integer_like || u32::try_from(files.len()).is_err() {
        return Ok(None);
    }
    let map = Arc::new(rows::compile(work, Some(std::slice::from_ref(key)))?);
    let memory = (work.lake.settings.memory_bytes / MEMORY_SHARE).max(1);
    let passes = usize::try_from((rows * ROW_BYTES).div_ceil(memory)).unwrap_or(usize::MAX).max(1);
    let mut found = Found { rows: vec![0; files.len()], contenders: vec![Bits::default(); files.len()] };
    for pass in 0..passes {
        let scan = Arc::new(Scan {
            source: rows::source(work)?.clone(),
            files: files.to_vec(),
            map: Arc::clone(&map),
            pass,
            passes,
            next: AtomicUsize::new(0),
        });
        one_pass(work.lake.settings.threads.max(1), scan, &mut found).await?;
    }
    Ok(Some(found))
}

async fn one_pass(workers: usize, scan: Arc<Scan>, found: &mut Found) -> Result<()> {
    let stopped = |error| Error::internal("a worker stopped").because(error);
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..workers {
        running.spawn(Arc::clone(&scan).run());
    }
    let mut parts = Vec::with_capacity(workers);
    while let Some(finished) = running.join_next().await {
        let part = finished.map_err(stopped)??;
        for (lane, rows) in &part.rows {
            found.rows[*lane] = *rows;
        }
        for place in &part.nulls {
            mark(&mut found.contenders, *place);
        }
        parts.push(part.buckets);
    }
    let parts = Arc::new(parts);
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let (parts, next) = (Arc::clone(&parts), Arc::clone(&next));
        running.spawn(async move {
            let mut repeated = Vec::new();
            loop {
                let bucket = next.fetch_add(1, Ordering::Relaxed);
                if bucket >= BUCKETS {
                    return repeated;
                }
                repeated_places(parts.iter().map(|part| part[bucket].as_slice()), &mut repeated);
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(finished) = running.join_next().await {
        for place in finished.map_err(stopped)? {
            mark(&mut found.contenders, place);
        }
    }
    Ok(())
}

fn mark(contenders: &mut [Bits], place: u64) {
    let (lane, row) = split(place);
    contenders[lane].set(row);
}

const fn split(place: u64) -> (usize, usize) {
    ((place >> 32) as usize, (place & 0xffff_ffff) as usize)
}

/// Places of all entries whose key another entry has too.
fn repeated_places<'a>(parts: impl Iterator<Item = &'a [Entry]> + Clone, repeated: &mut Vec<u64>) {
    let entries: Vec<Entry> = parts.flatten().copied().collect();
    let slots = (entries.len() * 2).next_power_of_two().max(2);
    // Positions in `entries`, from 1; 0 is a free slot.
    let mut table = vec![0_u32; slots];
    let mut told = Bits::default();
    for (at, (key, place)) in entries.iter().enumerate() {
        let mut slot = spread(*key) as usize & (slots - 1);
        loop {
            let held = table[slot];
            if held == 0 {
                table[slot] = u32::try_from(at + 1).unwrap_or(u32::MAX);
                break;
            }
            let first = held as usize - 1;
            if entries[first].0 == *key {
                if !told.get(first) {
                    told.set(first);
                    repeated.push(entries[first].1);
                }
                repeated.push(*place);
                break;
            }
            slot = (slot + 1) & (slots - 1);
        }
    }
}

/// Spreads keys that count up over all bits.
const fn spread(key: i64) -> u64 {
    let mixed = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

struct Scan {
    source: Snapshot,
    files: Vec<DataFile>,
    map: Arc<RowMap>,
    pass: usize,
    passes: usize,
    next: AtomicUsize,
}

struct Part {
    buckets: Vec<Vec<Entry>>,
    rows: Vec<(usize, usize)>,
    nulls: Vec<u64>,
}

impl Scan {
    async fn run(self: Arc<Self>) -> Result<Part> {
        let mut part = Part { buckets: vec![Vec::new(); BUCKETS], rows: Vec::new(), nulls: Vec::new() };
        loop {
            let lane = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.files.get(lane) else { return Ok(part) };
            let mut row: u64 = 0;
            let mut stream = rows::transformed(&self.source, file, Arc::clone(&self.map), None).await?;
            while let Some(batch) = stream.try_next().await? {
                let keys = integers(batch.column(0))?;
                let first = (lane as u64) << 32 | row;
                if keys.null_count() > 0 {
                    for at in 0..keys.len() {
                        if keys.is_null(at) {
                            part.nulls.push(first + at as u64);
                        } else {
                            self.put(&mut part.buckets, keys.value(at), first + at as u64);
                        }
                    }
                } else {
                    for (at, key) in keys.values().iter().enumerate() {
                        self.put(&mut part.buckets, *key, first + at as u64);
                    }
                }
                row += keys.len() as u64;
            }
            if row > u64::from(u32::MAX) {
                return Err(too_many("rows"));
            }
            part.rows.push((lane, usize::try_from(row).unwrap_or(usize::MAX)));
        }
    }

    fn put(&self, buckets: &mut [Vec<Entry>], key: i64, place: u64) {
        let hash = spread(key);
        // The low bits choose a slot within a bucket, so the bucket is chosen by the high ones.
        if self.passes > 1 && (hash >> 32) as usize % self.passes != self.pass {
            return;
        }
        buckets[(hash >> 56) as usize].push((key, place));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exactly_the_entries_whose_key_repeats_are_found(keys in prop::collection::vec(-20_i64..20, 0..60), cut in 0_usize..60) {
            let entries: Vec<Entry> = keys.iter().enumerate().map(|(at, key)| (*key, at as u64)).collect();
            let (left, right) = entries.split_at(cut.min(entries.len()));
            let mut repeated = Vec::new();
            repeated_places([left, right].into_iter(), &mut repeated);
            repeated.sort_unstable();
            let expected: Vec<u64> = entries
                .iter()
                .filter(|(key, _)| keys.iter().filter(|other| *other == key).count() > 1)
                .map(|(_, place)| *place)
                .collect();
            prop_assert_eq!(repeated, expected);
        }
    }
}
