//! Checkpoints, written by `deltalake` through our own object store.

use deltalake::DeltaTable;
use deltalake::checkpoints::create_checkpoint;
use deltalake::logstore::{StorageConfig, default_logstore};
use object_store::prefix::PrefixStore;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::store::Store;

/// Writes the checkpoint of a version.
pub(super) async fn write_checkpoint(store: &Store, folder: &str, version: i64) -> Result<()> {
    let failed = |e: deltalake::DeltaTableError| {
        Error::unavailable(format!("checkpoint of version {version} of table {folder}")).because(e)
    };
    let number = u64::try_from(version).map_err(|e| Error::internal(format!("version {version}")).because(e))?;
    // A made-up root: the log store finds every object by its path below the lake, whatever the real address is.
    let url = url::Url::parse("alluvium://lake/")
        .and_then(|root| root.join(&format!("{folder}/")))
        .map_err(|e| Error::internal(format!("table folder {folder}")).because(e))?;
    let prefixed = Arc::new(PrefixStore::new(store.object_store(), store.path(folder)?));
    let log_store = default_logstore(prefixed, store.object_store(), &url, &StorageConfig::default());
    let mut table = DeltaTable::new(log_store);
    table.load_version(number).await.map_err(failed)?;
    create_checkpoint(&table, None).await.map_err(failed)
}
