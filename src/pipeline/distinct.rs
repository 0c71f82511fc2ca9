//! Change events in quarantine: each distinct text once, however often and by whatever way it was delivered.

use std::collections::HashSet;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::DataType;
use futures::TryStreamExt;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::schema::lineage::EVENT;
use crate::table::Snapshot;

/// Hashes of the texts that are in quarantine.
#[derive(Debug, Default)]
pub struct Seen(HashSet<[u8; 32]>);

impl Seen {
    /// The texts of a quarantine table.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn in_table(quarantine: &Snapshot) -> Result<Self> {
        let mut seen = Self::default();
        for file in quarantine.files()?.iter() {
            let mut batches = quarantine.read(file, Some(&[EVENT.to_owned()])).await?;
            while let Some(batch) = batches.try_next().await? {
                seen.news(&batch)?;
            }
        }
        Ok(seen)
    }

    /// The rows whose text was not seen before, and now is. Rows without a text (files that were refused whole) stay.
    ///
    /// # Errors
    /// The rows are no change events.
    pub fn keep_new(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let news = self.news(batch)?;
        Ok(filter_record_batch(batch, &news)?)
    }

    fn news(&mut self, batch: &RecordBatch) -> Result<BooleanArray> {
        let column = batch
            .column_by_name(EVENT)
            .ok_or_else(|| Error::corrupt("quarantine of change events: no column `event`"))?;
        let column = cast(column, &DataType::Binary)?;
        let events = column.as_binary::<i32>();
        let is_new = |row: usize| events.is_null(row) || self.0.insert(Sha256::digest(events.value(row)).into());
        Ok((0..events.len()).map(is_new).map(Some).collect())
    }
}
