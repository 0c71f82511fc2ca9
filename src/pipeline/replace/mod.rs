//! Replacing stored rows by key: find the files that can hold the keys, read their key columns, and rewrite only the
//! files that really lose rows, all for one commit.
//!
//! [`by_key`] is the upsert: a new row takes the place of the stored row of its key unless that one is newer.
//! [`by_units`] replaces everything that is stored of some units of work. A stored row that equals its replacement stays
//! where it is, so a commit tells its readers of real changes only.

pub mod bits;
pub mod keys;
mod prune;
pub(crate) mod rewrite;
pub(crate) mod scan;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};
use futures::TryStreamExt;

use crate::error::Result;
use crate::pipeline::lake::Lake;
use crate::table::{DataFile, Snapshot, conform};
use bits::Bits;
use keys::{KeyIndex, fields_of};
pub use prune::Pruner;
use rewrite::rewrite;
use scan::find_rows;

/// What replacing does to a table: goes into one commit against the snapshot that it was made from.
#[derive(Debug, Default)]
pub struct Replacement {
    /// New files, written.
    pub adds: Vec<DataFile>,
    /// Files that leave the table.
    pub removes: Vec<DataFile>,
    /// Rows that were not in the table before.
    pub rows_added: u64,
    /// Rows that are no more in the table.
    pub rows_removed: u64,
}

/// New rows for a table.
pub enum NewRows {
    /// In memory: rows that are stored already, equal in all columns, are left alone.
    Held(Vec<RecordBatch>),
    /// Written already; they take the place of whatever is stored.
    Written {
        /// The files.
        files: Vec<DataFile>,
        /// Rows in them.
        rows: u64,
    },
}

/// Stored rows of one file that go.
struct Doomed {
    file: DataFile,
    rows: Bits,
}

/// Which of two rows of one key is newer.
#[derive(Debug, Clone, Copy)]
pub struct Newer<'a> {
    /// The greatest wins, most significant column first; a row without a value loses. Among rows that are equal here the
    /// later one of the new rows wins, and a new row wins over a stored one.
    pub columns: &'a [String],
}

/// Upsert: of the rows of one key, stored and new, the newest stays. `schema` is the table's schema after the commit
/// (the snapshot's, or more), which the new rows have or can be conformed to. Give new rows in the order in which they
/// count: that order decides between equals.
///
/// # Errors
/// Storage that fails, or rows that do not fit the schema.
pub async fn by_key(
    lake: &Lake,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    key: &[String],
    newer: Newer<'_>,
    new: Vec<RecordBatch>,
) -> Result<Replacement> {
    let mut keys = KeyIndex::over(schema, key)?;
    let ranking = Ranking::greatest_first(schema, newer.columns)?;
    let mut batches = Vec::with_capacity(new.len());
    let mut best: Vec<(usize, usize)> = Vec::new();
    let mut ranks: Vec<Rows> = Vec::with_capacity(new.len());
    for batch in new {
        let batch = conform(&batch, schema)?;
        let numbers = keys.insert(&columns_of(&batch, key)?)?;
        ranks.push(ranking.rows(&batch)?);
        let at = batches.len();
        for (row, number) in numbers.into_iter().enumerate() {
            let number = number as usize;
            if number == best.len() {
                best.push((at, row));
                continue;
            }
            let (before_at, before_row) = best[number];
            if ranks[at].row(row) <= ranks[before_at].row(before_row) {
                best[number] = (at, row);
            }
        }
        batches.push(batch);
    }
    if keys.is_empty() {
        return Ok(Replacement::default());
    }
    let mut beaten = vec![false; best.len()];
    let mut lost: Vec<(DataFile, Vec<(usize, u32)>)> = Vec::new();
    let wanted = union_of(key, newer.columns);
    for file in keys.pruner()?.among(&snapshot.files()?) {
        let mut rows = Vec::new();
        let mut first = 0;
        let mut stream = snapshot.read(&file, Some(&wanted)).await?;
        while let Some(batch) = stream.try_next().await? {
            let found = keys.find(&columns_of(&batch, key)?)?;
            if found.iter().any(Option::is_some) {
                let stored = ranking.rows(&batch)?;
                for (row, number) in found.into_iter().enumerate() {
                    let Some(number) = number else { continue };
                    let (at, new_row) = best[number as usize];
                    if stored.row(row) < ranks[at].row(new_row) {
                        beaten[number as usize] = true;
                    } else {
                        rows.push((first + row, number));
                    }
                }
            }
            first += batch.num_rows();
        }
        lost.push((file, rows));
    }
    let mut doomed = Vec::new();
    for (file, rows) in lost {
        let mut bits = Bits::default();
        rows.into_iter().filter(|(_, number)| !beaten[*number as usize]).for_each(|(row, _)| bits.set(row));
        if !bits.is_empty() {
            doomed.push(Doomed { file, rows: bits });
        }
    }
    let mut chosen = vec![Bits::default(); batches.len()];
    for ((at, row), beaten) in best.into_iter().zip(beaten) {
        if !beaten {
            chosen[at].set(row);
        }
    }
    let mut held = Vec::with_capacity(batches.len());
    for (batch, chosen) in batches.iter().zip(&chosen) {
        held.push(arrow::compute::filter_record_batch(batch, &chosen.mask(0, batch.num_rows()))?);
    }
    rewrite(lake, snapshot, schema, doomed, NewRows::Held(held)).await
}

/// Replaces what is stored of some units (or keys) by new rows, all of which belong to these units.
///
/// # Errors
/// Storage that fails, or rows that do not fit the schema.
pub async fn by_units(
    lake: &Lake,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    units: &Arc<KeyIndex>,
    new: NewRows,
) -> Result<Replacement> {
    let files = units.pruner()?.among(&snapshot.files()?);
    let lost = find_rows(snapshot, files, units, lake.settings.threads).await?;
    exchange(lake, snapshot, schema, lost, new).await
}

/// Takes the given rows of stored files out and puts new rows in.
pub(crate) async fn exchange(
    lake: &Lake,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    lost: Vec<(DataFile, Bits)>,
    new: NewRows,
) -> Result<Replacement> {
    let doomed =
        lost.into_iter().filter(|(_, rows)| !rows.is_empty()).map(|(file, rows)| Doomed { file, rows }).collect();
    rewrite(lake, snapshot, schema, doomed, new).await
}

/// Comparable bytes of some columns such that the row that wins is the smallest; null always loses.
pub(crate) struct Ranking {
    columns: Vec<String>,
    converter: RowConverter,
}

impl Ranking {
    /// The greatest wins.
    pub(crate) fn greatest_first(schema: &SchemaRef, columns: &[String]) -> Result<Self> {
        Self::new(schema, columns, true)
    }

    /// The smallest wins.
    pub(crate) fn smallest_first(schema: &SchemaRef, columns: &[String]) -> Result<Self> {
        Self::new(schema, columns, false)
    }

    fn new(schema: &SchemaRef, columns: &[String], descending: bool) -> Result<Self> {
        let options = SortOptions { descending, nulls_first: false };
        let fields = fields_of(schema, columns)?
            .iter()
            .map(|field| SortField::new_with_options(field.data_type().clone(), options))
            .collect();
        Ok(Self { columns: columns.to_vec(), converter: RowConverter::new(fields)? })
    }

    /// The rank of each row of a batch.
    pub(crate) fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        let columns = columns_of(batch, &self.columns)?;
        if columns.is_empty() {
            // Without columns all rows are equal; the converter needs the count from a column.
            let mut rows = self.converter.empty_rows(batch.num_rows(), 0);
            let empty = self.converter.parser();
            (0..batch.num_rows()).for_each(|_| rows.push(empty.parse(&[])));
            return Ok(rows);
        }
        Ok(self.converter.convert_columns(&columns)?)
    }
}

/// Columns of a batch by name.
pub(crate) fn columns_of(batch: &RecordBatch, names: &[String]) -> Result<Vec<ArrayRef>> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let index = batch.schema_ref().index_of(name)?;
        columns.push(Arc::clone(batch.column(index)));
    }
    Ok(columns)
}

/// Names of both lists, each once, in order.
pub(crate) fn union_of(first: &[String], second: &[String]) -> Vec<String> {
    let mut all = first.to_vec();
    all.extend(second.iter().filter(|name| !first.contains(name)).cloned());
    all
}

#[cfg(test)]
mod tests;
