//! The lake under the contracts that are in force. Contracts that change are followed without a restart; those that are
//! wrong change nothing: the last good ones stay in force, and the log and the status say so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::sync::Mutex;

use super::contract_mistakes;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::pipeline::lake::Lake;

/// The lake as it was last opened or changed; none until somebody needs it.
#[derive(Debug, Default)]
pub(super) struct Current {
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    lake: Lake,
    seen: Seen,
    broken: Option<String>,
}

/// Size and time of each file in the folder of the contracts.
type Seen = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

impl Current {
    /// The lake, opened at the first call; its contracts are those of `schemas` now, as far as they can be read.
    ///
    /// # Errors
    /// It cannot be opened. A failure is not kept: what was mended is read anew.
    pub(super) async fn lake(
        &self,
        schemas: &Path,
        open: impl FnOnce() -> Result<Lake> + Send + 'static,
    ) -> Result<Lake> {
        let mut kept = self.kept.lock().await;
        let folder = schemas.to_owned();
        // Before the contracts are read: whatever changes while they are is seen by the next call.
        let seen = blocking(move || Ok(look(&folder))).await?;
        let Some(known) = kept.as_mut() else {
            let lake = blocking(open).await?;
            *kept = Some(Kept { lake: lake.clone(), seen, broken: None });
            return Ok(lake);
        };
        if known.seen != seen {
            known.seen = seen;
            let folder = schemas.to_owned();
            match blocking(move || Catalog::load(&folder).map_err(|found| contract_mistakes(&found))).await {
                Ok(catalog) => {
                    known.lake = known.lake.with_catalog(catalog);
                    known.broken = None;
                    tracing::info!("the contracts changed: the new ones are in force");
                }
                Err(error) => {
                    tracing::error!(
                        error.kind = error.kind().as_str(),
                        "the contracts changed, and those from before stay in force: {}",
                        error.describe()
                    );
                    known.broken = Some(error.describe());
                }
            }
        }
        Ok(known.lake.clone())
    }

    /// Why changed contracts are not in force.
    pub(super) async fn broken(&self) -> Option<String> {
        self.kept.lock().await.as_ref()?.broken.clone()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal("opening the lake").because(error))?
}

/// What cannot be read is left out: reading the contracts says what is wrong with it.
fn look(folder: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = std::fs::metadata(entry.path()) else { continue };
            if meta.is_file() {
                seen.insert(entry.path(), (meta.len(), meta.modified().ok()));
            } else if depth < Catalog::DEPTH {
                folders.push((entry.path(), depth + 1));
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::app::open_lake;
    use crate::clock::SystemClock;
    use crate::config::Config;

    const RAW: &str =
        "version: 1\ntable: raw/a\nsource: { path: 'a/*.csv', format: csv }\ncolumns: [{ name: x, type: int64 }]\n";

    #[tokio::test]
    async fn contracts_are_followed_and_wrong_ones_change_nothing() {
        let home = tempfile::tempdir().unwrap();
        let schemas = home.path().join("schemas");
        let write = |table: &str, text: &str| {
            let file = schemas.join(format!("{table}.yaml"));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let config = Config::from_pairs([
            ("ALLUVIUM_HOME", home.path().to_str().unwrap()),
            ("ALLUVIUM_SCHEMAS", schemas.to_str().unwrap()),
        ])
        .unwrap();
        let current = Current::default();
        let tables = async || {
            let config = config.clone();
            let lake = current.lake(&schemas, move || open_lake(&config, Arc::new(SystemClock))).await?;
            Ok::<_, Error>(lake.catalog.tables().iter().map(|found| found.table.to_string()).collect::<Vec<_>>())
        };
        write("raw/a", "version: 1\n");
        assert!(tables().await.is_err(), "nothing is opened under wrong contracts");
        write("raw/a", RAW);
        assert_eq!(tables().await.unwrap(), ["raw/a"]);
        write("raw/b", &RAW.replace("raw/a", "raw/b").replace("a/*", "b/*"));
        assert_eq!(tables().await.unwrap(), ["raw/a", "raw/b"]);
        assert_eq!(current.broken().await, None);

        write("raw/b", "version: 1\ntable: raw/b\nsauce: {}\n");
        assert_eq!(tables().await.unwrap(), ["raw/a", "raw/b"]);
        let broken = current.broken().await.unwrap();
        assert!(broken.contains("raw/b.yaml:3:1") && broken.contains("sauce"), "{broken}");
        assert_eq!(tables().await.unwrap(), ["raw/a", "raw/b"]);
        assert!(current.broken().await.is_some(), "it stays told until it is mended");

        std::fs::remove_file(schemas.join("raw/b.yaml")).unwrap();
        assert_eq!(tables().await.unwrap(), ["raw/a"]);
        assert_eq!(current.broken().await, None);
    }
}
