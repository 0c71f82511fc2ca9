//! A column becomes wider: all files of the table are written anew with its new type, in one commit that changes no row.
//!
//! Delta's own way (`typeWidening`) keeps the files and has every reader widen what it reads; few readers can. Files that
//! are written anew are read by all.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use serde_json::{Map, Value, json};

use super::compact::rewritten;
use super::{Change, Outcome, Snapshot, Table, WriterOptions};
use crate::clock::Clock;
use crate::error::Result;

/// Brings the table of a snapshot to a schema whose columns are as wide or wider ([`super::widens`]), or new and nullable.
/// Its rows, their order and its application transactions stay.
///
/// # Errors
/// A column that is not wider, or what storage says. Files that were written by then are no part of the table.
pub async fn widen(
    table: &Table,
    base: &Snapshot,
    schema: &SchemaRef,
    options: WriterOptions,
    clock: Arc<dyn Clock>,
    reason: String,
) -> Result<Outcome> {
    let removes = base.files()?.to_vec();
    let (adds, rows) = rewritten(base, &removes, schema, options, &clock).await?;
    let metrics = json!({
        "numRemovedFiles": removes.len().to_string(),
        "numAddedFiles": adds.len().to_string(),
        "numCopiedRows": rows.to_string(),
    });
    let info = [("schemaChange".to_owned(), Value::from(reason)), ("operationMetrics".to_owned(), metrics)];
    let change = Change {
        operation: "CHANGE COLUMN".to_owned(),
        adds,
        removes,
        rearrange_only: true,
        schema: Some(Arc::clone(schema)),
        info: Map::from_iter(info),
        ..Change::default()
    };
    table.commit(base, change).await
}
