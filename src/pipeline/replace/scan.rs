//! Looking for keys in stored files, several files at once.

use std::future::Future;
use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio_util::task::AbortOnDropHandle;

use super::bits::Bits;
use super::columns_of;
use super::keys::KeyIndex;
use crate::error::{Error, Result};
use crate::table::{DataFile, Snapshot};

/// The rows of a file that have one of the keys. Only the key's columns are read.
async fn rows_with_keys(snapshot: &Snapshot, file: &DataFile, keys: &KeyIndex) -> Result<Bits> {
    let names = keys.names();
    let mut rows = Bits::default();
    let mut first = 0;
    let mut stream = snapshot.read(file, Some(&names)).await?;
    while let Some(batch) = stream.try_next().await? {
        for (row, number) in keys.find(&columns_of(&batch, &names)?)?.into_iter().enumerate() {
            if number.is_some() {
                rows.set(first + row);
            }
        }
        first += batch.num_rows();
    }
    Ok(rows)
}

/// The rows that have one of the keys, of each of the files, in the order of the files.
pub(crate) async fn find_rows(
    snapshot: &Snapshot,
    files: Vec<DataFile>,
    keys: &Arc<KeyIndex>,
    threads: usize,
) -> Result<Vec<(DataFile, Bits)>> {
    let scans = files.into_iter().map(|file| {
        let (snapshot, keys) = (snapshot.clone(), Arc::clone(keys));
        async move {
            let rows = rows_with_keys(&snapshot, &file, &keys).await?;
            Ok((file, rows))
        }
    });
    side_by_side(scans, threads).await
}

/// Runs futures, so many at a time on threads of their own, and gives what they gave in order. Those that still run when one
/// fails, or when nobody waits any more, are stopped.
pub(crate) async fn side_by_side<T, F>(work: impl IntoIterator<Item = F>, threads: usize) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let running = work.into_iter().map(|work| {
        async move {
            if threads <= 1 {
                return work.await;
            }
            let task = AbortOnDropHandle::new(tokio::spawn(work));
            task.await.map_err(|error| Error::internal("work on a thread of its own").because(error))?
        }
        .boxed()
    });
    // Collected first: a lazy iterator of futures is more than the compiler can prove to be `Send`.
    let running: Vec<_> = running.collect();
    stream::iter(running).buffered(threads.max(1)).try_collect().await
}
