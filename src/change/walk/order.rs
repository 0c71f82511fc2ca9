//! The order in which kept changes are walked.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, concat_batches, take_record_batch};
use arrow::row::{RowConverter, SortField};

use super::Shape;
use crate::change::stored;
use crate::error::{Error, Result};

/// What changes are ordered by, ascending: a column, and whether null comes before all values (else behind them). First what
/// belongs to no key, then key by key: by position, then by place, those of a topic before those of files. Whatever stands at
/// one place all the same (the versions of a file, topics that were renamed) is told apart by what it says, never by when
/// it came.
#[must_use]
pub fn ordering(shape: &Shape) -> Vec<(String, bool)> {
    let positions = shape.key.iter().chain(&shape.sequence).map(|name| (name.clone(), true));
    let rank = (stored::RANK.to_owned(), true);
    let places = [stored::PARTITION, stored::OFFSET, stored::FILE, stored::ROW];
    let contents = [stored::DIGEST, stored::TOPIC, stored::EVENT];
    let last = places.into_iter().chain(contents).map(|name| (name.to_owned(), false));
    positions.chain([rank]).chain(last).collect()
}

/// The changes of some batches in [`ordering`].
///
/// # Errors
/// [`crate::error::ErrorKind::Internal`] when the columns are not those of kept changes, or there are too many for one
/// batch.
pub fn sorted(shape: &Shape, batches: &[RecordBatch]) -> Result<RecordBatch> {
    let Some(first) = batches.first() else { return Err(Error::internal("no changes to sort")) };
    let all = if batches.len() == 1 { first.clone() } else { concat_batches(&first.schema(), batches)? };
    let mut columns: Vec<ArrayRef> = Vec::new();
    let mut fields = Vec::new();
    for (name, nulls_first) in ordering(shape) {
        let column = all.column(all.schema_ref().index_of(&name)?);
        // A column without any value orders nothing; places have two of them.
        if column.null_count() < column.len() {
            let options = SortOptions { descending: false, nulls_first };
            fields.push(SortField::new_with_options(column.data_type().clone(), options));
            columns.push(Arc::clone(column));
        }
    }
    if columns.is_empty() {
        return Ok(all);
    }
    let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
    let mut order: Vec<(u128, u32)> = Vec::with_capacity(all.num_rows());
    for (at, row) in rows.iter().enumerate() {
        let at = u32::try_from(at).map_err(|_| Error::internal("too many changes for one batch"))?;
        order.push((beginning(row.as_ref()), at));
    }
    let of = |at: u32| rows.row(at as usize);
    // A stable sort: it finds the runs that are in order already.
    order.sort_by(|(a, a_at), (b, b_at)| a.cmp(b).then_with(|| of(*a_at).cmp(&of(*b_at))));
    if order.is_sorted_by_key(|(_, at)| *at) {
        return Ok(all);
    }
    let order = UInt32Array::from_iter_values(order.into_iter().map(|(_, at)| at));
    Ok(take_record_batch(&all, &order)?)
}

/// The first bytes as a number: mostly they decide.
fn beginning(bytes: &[u8]) -> u128 {
    let mut first = [0; 16];
    let length = bytes.len().min(first.len());
    first[..length].copy_from_slice(&bytes[..length]);
    u128::from_be_bytes(first)
}
