//! What must hold at every moment, whatever was killed wherever; and what must hold once all is quiet and old enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use futures::TryStreamExt as _;

use super::same;
use super::world::World;
use crate::error::Result;
use crate::layout;
use crate::pipeline::APP_ID;
use crate::pipeline::ledger::app_id;
use crate::store::Store;
use crate::table::{Snapshot, Table};

/// Everything in a lake, as it is now.
struct Look {
    objects: BTreeSet<String>,
    tables: BTreeMap<String, Snapshot>,
}

impl Look {
    async fn at(store: &Store) -> Result<Self> {
        // The tables first: what they name must be among the objects that are listed after.
        let mut tables = BTreeMap::new();
        for folder in same::folders(store).await? {
            if let Some(table) = Table::open(store, &folder).await? {
                tables.insert(folder, table.snapshot().await?);
            }
        }
        let listed: Vec<_> = store.object_store().list(None).try_collect().await?;
        let objects = listed.into_iter().map(|object| object.location.to_string()).collect();
        Ok(Self { objects, tables })
    }

    /// Live files that are not there.
    fn dangling(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (folder, snapshot) in &self.tables {
            let live = snapshot.files()?;
            let missing = live.iter().filter(|file| !self.objects.contains(&format!("{folder}/{}", file.path)));
            found.extend(missing.map(|file| format!("{folder}: the live file {} is gone", file.path)));
        }
        Ok(found)
    }

    /// Watermarks and plan numbers that are ahead of what they speak of.
    async fn ahead(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (folder, snapshot) in &self.tables {
            for (id, version) in snapshot.txns().await? {
                let Some((source, table_id)) = id.split_once('@') else { continue };
                let Some(source) = self.tables.get(source).filter(|source| source.table_id() == table_id) else {
                    continue;
                };
                if version > source.version() {
                    found.push(format!("{folder}: its watermark {id} is {version}, ahead of {}", source.version()));
                }
            }
            let own = snapshot.txn(APP_ID).await?.unwrap_or_default();
            let mut behind = Vec::new();
            if let Some(ledger) = self.tables.get(layout::LEDGER) {
                behind.push((layout::LEDGER, ledger.txn(&app_id(snapshot.table_id())).await?));
            }
            if let Some(quarantine) = self.tables.get(&format!("quarantine/{folder}")) {
                behind.push(("quarantine", quarantine.txn(APP_ID).await?));
            }
            for (what, settled) in behind {
                if settled.is_some_and(|settled| settled > own) {
                    found.push(format!("{folder}: {what} is at plan {settled:?}, the table at {own}"));
                }
            }
        }
        Ok(found)
    }
}

/// What does not hold now.
///
/// # Errors
/// The lake cannot be read.
pub(super) async fn broken(world: &World) -> Result<Vec<String>> {
    let look = Look::at(&world.store()?).await?;
    let mut found = look.dangling()?;
    found.extend(look.ahead().await?);
    found.extend(world.overwritten().into_iter().map(|path| format!("{path} was overwritten")));
    let mut versions = world.versions.lock().unwrap_or_else(PoisonError::into_inner);
    for (folder, snapshot) in &look.tables {
        let before = versions.insert(folder.clone(), snapshot.version());
        if before.is_some_and(|before| before > snapshot.version()) {
            found.push(format!("{folder}: version {before:?} became {}", snapshot.version()));
        }
    }
    Ok(found)
}

/// What nights of upkeep should have removed and is still there.
///
/// # Errors
/// The lake cannot be read.
pub(super) async fn left_over(world: &World) -> Result<Vec<String>> {
    let look = Look::at(&world.store()?).await?;
    let mut live = BTreeSet::new();
    for (folder, snapshot) in &look.tables {
        live.extend(snapshot.files()?.iter().map(|file| format!("{folder}/{}", file.path)));
    }
    let is_state = |path: &str| look.tables.keys().any(|folder| path.starts_with(&format!("{folder}/")));
    let is_log = |path: &str| path.contains("/_delta_log/");
    let internal = |path: &str| path.starts_with(layout::INTERNAL) && !is_state(path);
    let left = look.objects.iter().filter(|path| {
        let path = path.as_str();
        internal(path) || is_state(path) && !is_log(path) && !live.contains(path)
    });
    Ok(left.map(|path| format!("{path} is left over")).collect())
}
