//! A table follows a changed contract: columns that are new, or wider.

use std::sync::Arc;

use arrow::datatypes::{Field, SchemaRef};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::pipeline::drift;
use crate::pipeline::lake::Lake;
use crate::pipeline::replace::rewrite::writer_options;
use crate::table::{Change, Outcome, Snapshot, Table, widen};

/// Bytes of a table's files that are surely written anew in a second, by one core and over a network.
const REWRITTEN_PER_SECOND: u64 = 8 << 20;

/// A commit of nothing but new and wider columns: its version and what it did. None when it was refused or its outcome is
/// not known: the next look at the table tells.
///
/// # Errors
/// The table is too big for the time that is left; what storage says.
pub async fn follow(
    lake: &Lake,
    table: &Table,
    snapshot: &Snapshot,
    schema: SchemaRef,
    deadline: Option<DateTime<Utc>>,
) -> Result<Option<(i64, String)>> {
    let stored = snapshot.schema();
    let is_wider = |field: &&Arc<Field>| {
        schema.field_with_name(field.name()).is_ok_and(|now| drift::is_wider(field.data_type(), now.data_type()))
    };
    let wider: Vec<&str> = stored.fields().iter().filter(is_wider).map(|field| field.name().as_str()).collect();
    let (how, outcome) = if wider.is_empty() {
        let how = "columns follow the contract".to_owned();
        let change = Change {
            operation: "ADD COLUMNS".to_owned(),
            schema: Some(schema),
            info: Map::from_iter([("schemaChange".to_owned(), Value::from(how.clone()))]),
            ..Change::default()
        };
        (how, table.commit(snapshot, change).await?)
    } else {
        check_time(lake, snapshot, &wider, deadline)?;
        let how = format!("columns follow the contract: {} became wider", wider.join(", "));
        tracing::info!(table.folder = %snapshot.folder(), "{how}: its files are written anew");
        let (options, clock) = (writer_options(lake, 1), Arc::clone(&lake.clock));
        let outcome = widen(table, snapshot, &schema, options, clock, how.clone()).await?;
        (how, outcome)
    };
    Ok(match outcome {
        Outcome::Committed(now) => Some((now.version(), how)),
        Outcome::Unknown(_) => None,
    })
}

/// What would be killed in the middle is not begun: it would be begun again at each tick, and never end.
fn check_time(lake: &Lake, snapshot: &Snapshot, wider: &[&str], deadline: Option<DateTime<Utc>>) -> Result<()> {
    let Some(deadline) = deadline else { return Ok(()) };
    let bytes: u64 = snapshot.files()?.iter().map(|file| file.size).sum();
    let seconds = (deadline - lake.clock.now()).num_seconds().max(0).unsigned_abs();
    if bytes <= seconds.saturating_mul(REWRITTEN_PER_SECOND) {
        return Ok(());
    }
    let (columns, mib) = (wider.join(", "), bytes >> 20);
    Err(Error::invalid(format!(
        "{columns} became wider in the contract, and writing the table's {mib} MiB anew may take longer than a run may"
    ))
    .remedy("run `alluvium commit` once, which takes the time that it needs"))
}
