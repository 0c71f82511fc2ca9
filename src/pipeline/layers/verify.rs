//! Whether a derived table is what its sources make it: everything is recomputed beside it, by the code that makes it, and
//! compared, in a bounded memory.
//!
//! Rows are compared by 128-bit digests. The first pass adds up the digests of each of many buckets, stored ones plus and
//! recomputed ones minus: a bucket that is not zero holds a difference. Only rows of such buckets are told apart by the
//! second pass. A bucket has all rows of a key, so that a changed row is seen as one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use serde::Serialize;

use super::pins::{self, Digest};
use super::{CONTRACT_HASH, Work, evolved, rebuild, watermark_id};
use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::lineage::{analyse, visible};
use crate::pipeline::lake::Lake;
use crate::schema::{Contract, Derivation};
use crate::table::{At, DataFile, Snapshot};

/// Buckets of the first pass.
const BUCKETS: usize = 1 << 16;

/// About what a row takes in the second pass, in bytes.
pub(super) const ROW_BYTES: u64 = 96;

/// Rows by which a stored table is not what its sources make it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Rows that should be there and are not.
    pub missing: u64,
    /// Rows that are there and should not be.
    pub extra: u64,
    /// Rows that are there under their primary key with other values.
    pub different: u64,
}

impl Difference {
    /// Whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The rows of this many were compared.
    Compared {
        /// Rows that its sources make.
        rows: u64,
        /// What the stored rows lack.
        difference: Difference,
    },
    /// It could not be compared, and why.
    Skipped(String),
}

/// Compares a derived table with what its sources make of it, at the versions that it has read. Writes nothing that anybody
/// reads.
///
/// # Errors
/// As [`super::advance`].
pub async fn verify(lake: &Lake, target: &Contract) -> Result<Verdict> {
    let Some(derivation) = target.derivation() else {
        return Err(Error::internal(format!("{} is not derived from other tables", target.table)));
    };
    let folder = layout::scratch_of(&target.table, &lake.clock.fresh());
    let work = match prepare(lake, target, derivation, folder).await.map_err(|e| e.within(&target.table))? {
        Ok(work) => work,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let compared = look(&work).await;
    // Nobody else knows the folder.
    let left: Vec<String> =
        lake.store.list(&work.folder).await?.into_iter().map(|object| object.location.to_string()).collect();
    lake.store.delete(&left).await?;
    match compared {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(Verdict::Skipped(format!("a source's files of that version are gone ({})", error.message())))
        }
        compared => compared.map_err(|e| e.within(&target.table)),
    }
}

async fn look(work: &Work<'_>) -> Result<Verdict> {
    let made = rebuild::whole(work, String::new()).await?.rows;
    let stored = (work.base.clone(), work.base.files()?.to_vec(), Sign::Stored);
    let fresh = (work.base.in_folder(&work.folder), made.adds, Sign::Made);
    let comparison = Comparison::new(&work.schema, &work.contract.primary_key)?;
    let limit = work.lake.settings.memory_bytes / 4 / ROW_BYTES;
    let difference = comparison.run(&[stored, fresh], limit).await?;
    Ok(Verdict::Compared { rows: made.rows_added, difference })
}

/// The table with its sources at the versions that it has read, or why that cannot be had.
async fn prepare<'a>(
    lake: &'a Lake,
    target: &'a Contract,
    derivation: &'a Derivation,
    folder: String,
) -> Result<Result<Work<'a>, String>> {
    let Some(table) = lake.table(&layout::table(&target.table)).await? else {
        return Ok(Err("it is not made yet".to_owned()));
    };
    let base = table.snapshot().await?;
    if base.properties().get(CONTRACT_HASH) != Some(&target.hash) {
        return Ok(Err("its contract changed: the next commit makes it anew".to_owned()));
    }
    let txns = base.txns().await?;
    let mut pins = pins::pin(lake, derivation).await?;
    for pin in &mut pins {
        let Some(newest) = &pin.snapshot else { continue };
        let read = txns.get(&watermark_id(&pin.table, newest.table_id())).copied();
        let Some(version) = read else {
            return Ok(Err(format!("it has not read {} yet", pin.table)));
        };
        let Some(source) = lake.table(&layout::table(&pin.table)).await? else {
            return Ok(Err(format!("{} is gone", pin.table)));
        };
        match source.snapshot_at(At::Version(version)).await {
            Ok(snapshot) => {
                pin.schema = visible(&snapshot.schema());
                pin.snapshot = Some(snapshot);
                pin.watermark = read;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Err(format!("version {version} of {} can no longer be read", pin.table)));
            }
            Err(error) => return Err(error),
        }
    }
    if pins.iter().all(|pin| pin.snapshot.is_none()) {
        return Ok(Err("it has no source yet".to_owned()));
    }
    let lineage = analyse(target, &pins::inputs(&pins))?;
    let schema = evolved(target, &base, &lineage.output)?;
    if schema != base.schema() {
        return Ok(Err("its SQL gives other columns: the next commit makes it anew".to_owned()));
    }
    Ok(Ok(Work { lake, contract: target, derivation, base, pins, lineage, schema, folder }))
}

/// Which side a row is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Stored,
    Made,
}

/// Files with the snapshot that reads them.
pub(super) type Side = (Snapshot, Vec<DataFile>, Sign);

/// Turns rows into digests.
pub(super) struct Comparison {
    rows: RowConverter,
    keys: Option<(RowConverter, Vec<usize>)>,
    digest: Digest,
}

/// The digests of one row.
#[derive(Clone, Copy)]
struct Digests {
    row: u128,
    key: Option<u128>,
}

impl Digests {
    const fn bucket(self) -> usize {
        match self.key {
            Some(key) => key as usize % BUCKETS,
            None => self.row as usize % BUCKETS,
        }
    }
}

impl Comparison {
    pub(super) fn new(schema: &SchemaRef, key: &[String]) -> Result<Self> {
        let fields: Vec<SortField> =
            schema.fields().iter().map(|field| SortField::new(comparable_type(field))).collect();
        let at: Vec<usize> = key.iter().filter_map(|name| schema.index_of(name).ok()).collect();
        let keys = if at.is_empty() || at.len() != key.len() {
            None
        } else {
            Some((RowConverter::new(at.iter().map(|at| fields[*at].clone()).collect())?, at))
        };
        Ok(Self { rows: RowConverter::new(fields)?, keys, digest: Digest::default() })
    }

    fn digests(&self, batch: &RecordBatch) -> Result<Vec<Digests>> {
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            columns.push(comparable(field, column)?);
        }
        let rows = self.rows.convert_columns(&columns)?;
        let keys = match &self.keys {
            Some((converter, at)) => {
                let chosen: Vec<ArrayRef> = at.iter().map(|at| Arc::clone(&columns[*at])).collect();
                Some(converter.convert_columns(&chosen)?)
            }
            None => None,
        };
        let digests = rows.iter().enumerate().map(|(at, row)| Digests {
            row: self.digest.of(row.as_ref()),
            key: keys.as_ref().map(|keys| self.digest.of(keys.row(at).as_ref())),
        });
        Ok(digests.collect())
    }

    async fn each(&self, sides: &[Side], mut take: impl FnMut(Sign, Digests)) -> Result<()> {
        for (snapshot, files, sign) in sides {
            for file in files {
                let mut stream = snapshot.read(file, None).await?;
                while let Some(batch) = stream.try_next().await? {
                    self.digests(&batch)?.into_iter().for_each(|digests| take(*sign, digests));
                }
            }
        }
        Ok(())
    }

    /// Counts the rows by which the sides differ, holding about `limit` rows at most.
    pub(super) async fn run(&self, sides: &[Side], limit: u64) -> Result<Difference> {
        let mut sums = vec![0_u128; BUCKETS];
        let mut rows = vec![0_u64; BUCKETS];
        self.each(sides, |sign, digests| {
            let bucket = digests.bucket();
            rows[bucket] += 1;
            sums[bucket] = match sign {
                Sign::Stored => sums[bucket].wrapping_add(digests.row),
                Sign::Made => sums[bucket].wrapping_sub(digests.row),
            };
        })
        .await?;
        let mut difference = Difference::default();
        let mut from = 0;
        while from < BUCKETS {
            // As many buckets as fit, at least one.
            let (mut held, mut to) = (0, from);
            while to < BUCKETS && (held == 0 || sums[to] == 0 || held + rows[to] <= limit) {
                held += if sums[to] == 0 { 0 } else { rows[to] };
                to += 1;
            }
            if held > 0 {
                let wanted = |bucket: usize| (from..to).contains(&bucket) && sums[bucket] != 0;
                self.tell_apart(sides, wanted, &mut difference).await?;
            }
            from = to;
        }
        Ok(difference)
    }

    async fn tell_apart(
        &self,
        sides: &[Side],
        wanted: impl Fn(usize) -> bool,
        difference: &mut Difference,
    ) -> Result<()> {
        let mut net: HashMap<u128, (i64, Option<u128>)> = HashMap::new();
        self.each(sides, |sign, digests| {
            if wanted(digests.bucket()) {
                let (count, _) = net.entry(digests.row).or_insert((0, digests.key));
                *count += if sign == Sign::Stored { 1 } else { -1 };
            }
        })
        .await?;
        let mut of_keys: HashMap<u128, (u64, u64)> = HashMap::new();
        for (count, key) in net.into_values() {
            let rows = count.unsigned_abs();
            let (missing, extra) = if count < 0 { (rows, 0) } else { (0, rows) };
            match key {
                Some(key) => {
                    let sums = of_keys.entry(key).or_default();
                    *sums = (sums.0 + missing, sums.1 + extra);
                }
                None => {
                    difference.missing += missing;
                    difference.extra += extra;
                }
            }
        }
        for (missing, extra) in of_keys.into_values() {
            let both = missing.min(extra);
            difference.different += both;
            difference.missing += missing - both;
            difference.extra += extra - both;
        }
        Ok(())
    }
}

/// Floats are compared to about seven digits: the last ones of a sum depend on the order in which it was made. What cannot be
/// compared as it is is compared as text.
fn comparable_type(field: &Field) -> DataType {
    match field.data_type() {
        DataType::Float64 | DataType::Float32 => DataType::Float32,
        other if RowConverter::supports_fields(&[SortField::new(other.clone())]) => other.clone(),
        _ => DataType::Utf8,
    }
}

fn comparable(field: &Field, column: &ArrayRef) -> Result<ArrayRef> {
    match comparable_type(field) {
        DataType::Float32 => {
            let column = cast(column, &DataType::Float32)?;
            let plain = |value: f32| {
                if value == 0.0 {
                    0.0
                } else if value.is_nan() {
                    f32::NAN
                } else {
                    value
                }
            };
            let same: Float32Array = column.as_primitive::<Float32Type>().unary(plain);
            Ok(Arc::new(same))
        }
        kind if kind == *field.data_type() => Ok(Arc::clone(column)),
        _ => {
            let options = FormatOptions::default().with_null("null");
            let formatter = ArrayFormatter::try_new(column, &options)?;
            let texts = (0..column.len()).map(|row| Some(formatter.value(row).to_string()));
            Ok(Arc::new(texts.collect::<StringArray>()))
        }
    }
}

#[cfg(test)]
mod tests;
