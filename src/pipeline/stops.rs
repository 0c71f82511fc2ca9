//! Why a table stopped: a note in the lake, so that the status of any process on any machine can tell, gone as soon as the
//! table works again. Notes are best effort: nothing about them can stop a table.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::layout;
use crate::name::{TableName, short_hash};
use crate::pipeline::lake::Lake;
use crate::pipeline::staging::{self, Stored};

/// Why a table stopped, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Format version, 1.
    pub version: u32,
    /// The table.
    pub table: TableName,
    /// Why, and what to do.
    pub error: String,
    /// When it was first met.
    pub since: DateTime<Utc>,
}

/// The notes that there were when a run began.
#[derive(Debug, Default)]
pub struct Stops {
    paths: BTreeMap<TableName, Vec<String>>,
}

impl Stops {
    /// Lists the notes of all tables, with one call to the store.
    pub async fn list(lake: &Lake) -> Self {
        match lake.store.list(&layout::stops()).await {
            Err(error) => {
                tracing::warn!("the notes of stopped tables cannot be listed: {}", error.describe());
                Self::default()
            }
            Ok(objects) => {
                let mut paths: BTreeMap<TableName, Vec<String>> = BTreeMap::new();
                for object in objects {
                    let path = object.location.to_string();
                    if let Some(table) = layout::stopped_table(&path) {
                        paths.entry(table).or_default().push(path);
                    }
                }
                Self { paths }
            }
        }
    }

    /// Notes that a table stopped. The same reason is noted once, and keeps its time; another one takes its place.
    pub async fn stopped(&self, lake: &Lake, table: &TableName, error: &str) {
        let path = layout::stop(table, &short_hash(&[error]));
        let known = self.paths.get(table);
        if known.is_some_and(|known| known.contains(&path)) {
            return;
        }
        let note = Stop { version: 1, table: table.clone(), error: error.to_owned(), since: lake.clock.now() };
        let put = async {
            lake.store.put_if_absent(&path, staging::to_json(&note)?).await?.is_new()?;
            lake.store.delete(known.map_or(&[], Vec::as_slice)).await
        };
        forgive(table, put.await);
    }

    /// Removes what was noted about a table: it works.
    pub async fn works(&self, lake: &Lake, table: &TableName) {
        if let Some(paths) = self.paths.get(table) {
            forgive(table, lake.store.delete(paths).await);
        }
    }

    /// The newest note of each table that has one.
    pub async fn read(lake: &Lake) -> BTreeMap<TableName, Stop> {
        let mut found: BTreeMap<TableName, Stop> = BTreeMap::new();
        for path in Self::list(lake).await.paths.into_values().flatten() {
            // One that is gone again, or unreadable, tells nothing.
            let Ok(Stored::There(note, _)) = staging::read_stored::<Stop>(lake, &path).await else { continue };
            if found.get(&note.table).is_none_or(|other| other.since < note.since) {
                found.insert(note.table.clone(), note);
            }
        }
        found
    }
}

fn forgive(table: &TableName, outcome: Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!(table.name = %table, "the note of why it stopped could not be kept: {}", error.describe());
    }
}
