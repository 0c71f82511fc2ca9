//! Upsert straight from files: one stored row per key, the newest by `sequence_by`, else by `[_file, version, _row]`.
//!
//! A stored row needs no version column: what is planned for its path is newer than what is stored, because older versions
//! were judged `superseded` before, and among equals a new row wins.

use arrow::datatypes::SchemaRef;
use futures::{StreamExt, TryStreamExt, stream};

use crate::manifest::{Plan, PlannedRow};
use crate::pipeline::lake::Lake;
use crate::pipeline::replace::{self, Newer, Replacement};
use crate::pipeline::rows::{self, Failure};
use crate::schema::lineage::{FILE, ROW};
use crate::schema::{Contract, FILE_VERSION};
use crate::table::{Snapshot, conform};

/// What the plan's batches add to the table and take out of it.
pub async fn apply(
    lake: &Lake,
    contract: &Contract,
    snapshot: &Snapshot,
    schema: &SchemaRef,
    plan: &Plan,
) -> Result<Replacement, Failure> {
    // In the plan's order: by path, older versions first; within a file by record.
    let files = || plan.rows.iter().enumerate().flat_map(|(at, row)| row.files.iter().map(move |file| (at, row, file)));
    let incoming = || {
        let opened = stream::iter(files()).then(move |(at, row, file)| async move {
            let staged = rows::staged_rows(lake, snapshot, row, file, plan.made_at).await;
            let staged = staged.map_err(|error| rows::blame(at, error))?;
            Ok::<_, Failure>(staged.map(move |batch| {
                let batch = batch.map_err(|error| rows::blame(at, error))?;
                conform(&batch, schema).map_err(|error| Failure::Batch(at, error))
            }))
        });
        opened.try_flatten().boxed()
    };
    // The rows come in the order of their versions: what the version decides, and what stands behind it, their order does.
    let decides = |name: &&String| **name != FILE_VERSION || contract.column(FILE_VERSION).is_some();
    let mut columns: Vec<String> = contract.sequence_by.iter().take_while(decides).cloned().collect();
    if !columns.iter().any(|name| name == FILE) {
        columns.push(FILE.to_owned());
    }
    // A record that comes out of quarantine late stands where it would have stood: behind it in its file is newer.
    if plan.rows.iter().any(PlannedRow::brings_single_records) {
        columns.push(ROW.to_owned());
    }
    let newer = Newer { columns: &columns };
    replace::by_key(lake, snapshot, schema, &contract.primary_key, newer, incoming).await
}
