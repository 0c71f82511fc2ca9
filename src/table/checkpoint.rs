//! Checkpoints, written by `deltalake` through our own object store.

use deltalake::DeltaTable;
use deltalake::checkpoints::create_checkpoint;
use tokio::runtime::Handle;

use super::logstore::Log;
use crate::error::{Error, Result};
use crate::store::Store;

/// Writes the checkpoint of a version.
pub(super) async fn write_checkpoint(store: &Store, folder: &str, version: i64) -> Result<()> {
    let failed = |e: deltalake::DeltaTableError| {
        Error::unavailable(format!("checkpoint of version {version} of table {folder}")).because(e)
    };
    let number = u64::try_from(version).map_err(|e| Error::internal(format!("version {version}")).because(e))?;
    let mut table = DeltaTable::new(Log::new(store, folder)?.store);
    table.load_version(number).await.map_err(failed)?;
    // It waits for storage on the thread that it is called on. Where that is the only one, nobody would bring the answer.
    let handle = Handle::current();
    let written = tokio::task::spawn_blocking(move || handle.block_on(create_checkpoint(&table, None))).await;
    written.map_err(|e| Error::internal(format!("a checkpoint of table {folder}")).because(e))?.map_err(failed)
}
