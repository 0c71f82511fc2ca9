//! What a snapshot knows without reading data.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use chrono::{DateTime, Utc};

use super::{DataFile, Snapshot};
use crate::error::Result;

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("folder", &self.state.folder)
            .field("version", &self.state.version)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The version.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.state.version
    }

    /// When this version was committed, as far as the log says.
    #[must_use]
    pub fn committed_at(&self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(self.state.committed_ms?)
    }

    /// The Delta metadata id.
    #[must_use]
    pub fn table_id(&self) -> &str {
        &self.state.meta.metadata.id
    }

    /// The table's folder below the store's root.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.state.folder
    }

    /// All columns in table order, partition columns included.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.state.meta.schema)
    }

    /// Partition columns.
    #[must_use]
    pub fn partition_by(&self) -> &[String] {
        &self.state.meta.metadata.partition_columns
    }

    /// Table properties.
    #[must_use]
    pub fn properties(&self) -> &BTreeMap<String, String> {
        &self.state.meta.properties
    }

    /// What the table is, for people.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.state.meta.metadata.description.as_deref()
    }

    /// The version that an application last committed with; none when it never did.
    #[expect(clippy::unused_async, reason = "all transactions are in memory today; a caller must not rely on it")]
    pub async fn txn(&self, app_id: &str) -> Result<Option<i64>> {
        Ok(self.state.txns.get(app_id).copied())
    }

    /// All application transactions.
    #[expect(clippy::unused_async, reason = "all transactions are in memory today; a caller must not rely on it")]
    pub async fn txns(&self) -> Result<BTreeMap<String, i64>> {
        Ok(BTreeMap::clone(&self.state.txns))
    }

    /// Live files, ordered by path.
    pub fn files(&self) -> Result<Arc<Vec<DataFile>>> {
        Ok(self.state.files())
    }

    /// The same columns over files of another folder: for rows that were written to be looked at.
    #[must_use]
    pub fn in_folder(&self, folder: &str) -> Self {
        let mut state = self.state.as_ref().clone();
        state.folder = folder.into();
        Self { store: self.store.clone(), state: state.into() }
    }

    /// Whether the table has any data file.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.state.has_files()
    }

    /// The live file at a path below the table's folder; none when it is not live.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&DataFile> {
        self.state.live.get(path).map(AsRef::as_ref)
    }
}
