//! Replacing stored rows by key: find the files that can hold the keys, read their key columns, and rewrite only the
//! files that really lose rows, all for one commit.
//!
//! [`by_key`] is the upsert: a new row takes the place of the stored row of its key unless that one is newer.
//! [`by_units`] replaces everything that is stored of some units of work. A stored row that equals its replacement stays
//! where it is, so a commit tells its readers of real changes only.

pub mod bits;
pub mod keys;
mod newest;
mod prune;
pub(crate) mod rewrite;
pub(crate) mod scan;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::Result;
use crate::pipeline::lake::Lake;
use crate::table::{DataFile, Snapshot};
use bits::Bits;
use keys::{KeyIndex, fields_of};
pub use newest::by_key;
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
