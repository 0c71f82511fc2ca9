//! Rows of one key that `order_by` does not tell apart: their full content decides, so that arrival does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow::row::{OwnedRow, RowConverter, SortField};
use futures::{StreamExt, TryStreamExt};
use hashbrown::HashMap;

use super::super::{Work, rows};
use super::tournament::{Entrants, Place};
use crate::error::{Error, Result};
use crate::pipeline::replace::bits::Bits;
use crate::table::conform;

/// The winner of each key: the least full row; of equal rows a stored one, so that nothing is written anew.
pub(super) async fn winners(
    work: &Work<'_>,
    entrants: &Entrants<'_>,
    ties: &HashMap<u32, Vec<Place>>,
) -> Result<HashMap<u32, Place>> {
    let source_lanes = entrants.source.len();
    let mut lanes: BTreeMap<u32, Bits> = BTreeMap::new();
    for place in ties.values().flatten() {
        lanes.entry(place.lane).or_default().set(place.row as usize);
    }
    let converter = RowConverter::new(
        work.schema.fields().iter().map(|field| SortField::new(field.data_type().clone())).collect(),
    )?;
    let map = Arc::new(rows::compile(work, None)?);
    let mut contents: HashMap<Place, OwnedRow> = HashMap::new();
    for (lane, wanted) in lanes {
        let numbers: Vec<usize> = wanted.rows().collect();
        let mut stream = match (lane as usize).checked_sub(source_lanes) {
            None => {
                let file = &entrants.source[lane as usize].file;
                rows::transformed(rows::source(work)?, file, Arc::clone(&map), Some(wanted)).await?
            }
            Some(stored) => {
                let mut first = 0;
                let batches = work.base.read(&entrants.stored[stored].file, None).await?;
                batches
                    .map(move |batch| {
                        let batch = batch?;
                        let mask = wanted.mask(first, batch.num_rows());
                        first += batch.num_rows();
                        Ok(filter_record_batch(&batch, &mask)?)
                    })
                    .boxed()
            }
        };
        let mut at = 0;
        while let Some(batch) = stream.try_next().await? {
            for row in &converter.convert_columns(conform(&batch, &work.schema)?.columns())? {
                let row_number = *numbers.get(at).ok_or_else(|| Error::internal("more rows than were asked for"))?;
                let place = Place { lane, row: u32::try_from(row_number).unwrap_or(u32::MAX) };
                contents.insert(place, row.owned());
                at += 1;
            }
        }
        if at != numbers.len() {
            return Err(Error::internal("fewer rows than were asked for"));
        }
    }
    let mut winners = HashMap::with_capacity(ties.len());
    for (key, places) in ties {
        let order = |place: &&Place| {
            let is_new = (place.lane as usize) < source_lanes;
            (contents.get(*place).map(OwnedRow::as_ref), is_new, **place)
        };
        let winner = places.iter().min_by(|a, b| order(a).cmp(&order(b)));
        winners.insert(*key, *winner.ok_or_else(|| Error::internal("a tie of nobody"))?);
    }
    Ok(winners)
}
