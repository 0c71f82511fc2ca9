//! Vacuum: files in a table's folder that no readable version, manifest or plan needs, and plans that never came to
//! anything.
//!
//! ```text
//! look  without a fence: nothing to delete, nothing done
//! fence a commit: whoever took a snapshot before it can no longer commit what is old now
//! cut   the fence's time by the store's clock, less what is kept
//! read  manifests, unsettled plans, log: in this order, all after the fence
//! delete
//! ```
//!
//! A file becomes part of a table only if it is younger than half of what is kept, seen after a snapshot: younger than
//! the cut of any fence that this snapshot may have missed.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, json};

use super::retention::{PLANS, Retention};
use super::{Upkeep, Upkept, staged, watermark};
use crate::error::{Error, Result};
use crate::pipeline::{APP_ID, ledger};
use crate::safeguard::Safeguard;
use crate::table::{Change, LogKind, Outcome, Snapshot};

/// How often the fence is tried when the store does not answer.
const ATTEMPTS: usize = 20;

/// The files below a table's folder, without those that readers of Delta pass over: path, then time and bytes.
type Folder = BTreeMap<String, (DateTime<Utc>, u64)>;

/// Deletes what nobody needs.
pub(super) async fn vacuum(upkeep: &Upkeep<'_>, done: &mut Upkept) -> Result<()> {
    // The snapshot comes before the listing: each of its files must be in it.
    let snapshot = upkeep.table.snapshot().await?;
    let folder = list(upkeep).await?;
    all_listed(&snapshot, &folder)?;
    let mut removed = Removed::default();
    let files = doomed_files(upkeep, &folder, upkeep.now, &mut removed).await?;
    let plans = doomed_plans(upkeep, upkeep.now).await?;
    if files.is_empty() && plans.is_empty() {
        return Ok(());
    }
    let (version, at) = match upkeep.lake.store.keeps(Safeguard::VacuumFence) {
        true => fence(upkeep).await?,
        false => (snapshot.version(), upkeep.now),
    };
    done.fence = Some(version);
    let files = doomed_files(upkeep, &folder, at, &mut removed).await?;
    upkeep.delete(files, &mut done.data).await?;
    let plans = doomed_plans(upkeep, at).await?;
    upkeep.delete(plans, &mut done.plans).await
}

async fn list(upkeep: &Upkeep<'_>) -> Result<Folder> {
    let prefix = format!("{}/", upkeep.table.folder());
    let objects = upkeep.lake.store.list(upkeep.table.folder()).await?;
    let files = objects.into_iter().filter_map(|object| {
        let path = object.location.as_ref().strip_prefix(&prefix)?;
        (!is_hidden(path)).then(|| (path.to_owned(), (object.last_modified, object.size)))
    });
    Ok(files.collect())
}

/// Delta's rule: names that begin with `_` or `.` are none of the table's files, unless they are those of a partition.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.') || (part.starts_with('_') && !part.contains('=')))
}

/// Whether the listing is what the log speaks of. If it were not, live files would look like files that nobody names.
fn all_listed(snapshot: &Snapshot, folder: &Folder) -> Result<()> {
    match snapshot.files()?.iter().find(|file| !folder.contains_key(&file.path)) {
        None => Ok(()),
        Some(file) => Err(Error::corrupt(format!(
            "{}: version {} has file {}, which is not in its folder; nothing was deleted",
            snapshot.folder(),
            snapshot.version(),
            file.path
        ))
        .remedy("restore the file from a backup, or go back to a version that is whole")),
    }
}

/// Files older than what is kept at `at` that no manifest, no unsettled plan and no version within its time names.
async fn doomed_files(
    upkeep: &Upkeep<'_>,
    folder: &Folder,
    at: DateTime<Utc>,
    removed: &mut Removed,
) -> Result<Vec<(String, u64)>> {
    let table = upkeep.table.folder();
    let base = upkeep.table.snapshot().await?;
    let retention = Retention::of(&upkeep.lake.settings, base.properties());
    let old: Vec<(&String, u64)> = folder
        .iter()
        .filter(|(path, (modified, _))| *modified < at - retention.orphans && base.file(path).is_none())
        .map(|(path, (_, bytes))| (path, *bytes))
        .collect();
    if old.is_empty() {
        return Ok(Vec::new());
    }
    let named = match upkeep.ingested {
        Some(contract) => staged::named(upkeep, contract, base.table_id()).await?,
        None => BTreeSet::new(),
    };
    // After the names: what was named no longer is in the log by now.
    let snapshot = upkeep.table.snapshot().await?;
    if !removed.read(upkeep, &snapshot, at - retention.removed).await? {
        tracing::warn!(table.folder = table, "the log does not tell what was removed lately: no file is deleted");
        return Ok(Vec::new());
    }
    let doomed = old.into_iter().map(|(path, bytes)| (path, format!("{table}/{path}"), bytes));
    Ok(doomed
        .filter(|(path, full, _)| {
            snapshot.file(path).is_none() && !removed.paths.contains(*path) && !named.contains(full)
        })
        .map(|(_, full, bytes)| (full, bytes))
        .collect())
}

/// Files that versions removed which are too young to be forgotten, or above a reader's watermark.
#[derive(Default)]
struct Removed {
    paths: BTreeSet<String>,
    /// The newest version that was read.
    upto: Option<i64>,
}

impl Removed {
    /// Reads what the versions since `cut` removed, and those above the slowest watermark. False when the log does not
    /// reach back that far.
    async fn read(&mut self, upkeep: &Upkeep<'_>, snapshot: &Snapshot, cut: DateTime<Utc>) -> Result<bool> {
        let newest = snapshot.version();
        let from = match self.upto {
            Some(upto) => upto + 1,
            None => match Self::first(upkeep, snapshot, cut).await? {
                Some(first) => first,
                None => return Ok(false),
            },
        };
        if from <= newest {
            let Some(paths) = upkeep.table.removed(from..=newest).await? else { return Ok(false) };
            self.paths.extend(paths);
        }
        self.upto = Some(newest.max(from - 1));
        Ok(true)
    }

    async fn first(upkeep: &Upkeep<'_>, snapshot: &Snapshot, cut: DateTime<Utc>) -> Result<Option<i64>> {
        let files = upkeep.table.log_files().await?;
        let commits = || files.iter().filter(|file| file.kind == LogKind::Commit);
        let Some(oldest) = commits().min_by_key(|file| file.version) else { return Ok(None) };
        if oldest.version > 0 && oldest.modified >= cut {
            return Ok(None);
        }
        let young = commits().filter(|file| file.modified >= cut).map(|file| file.version).min();
        let young = young.unwrap_or(snapshot.version() + 1);
        // A reader whose next version is gone reads everything anew, and needs no removed file.
        let unread = watermark(upkeep, snapshot.table_id()).await?.map(|watermark| watermark + 1);
        let unread = unread.filter(|version| *version >= oldest.version);
        Ok(Some(unread.map_or(young, |version| version.min(young))))
    }
}

/// Plans that nobody committed and nobody can any more: older than what is kept at `at`, and not the table's last.
async fn doomed_plans(upkeep: &Upkeep<'_>, at: DateTime<Utc>) -> Result<Vec<(String, u64)>> {
    let Some(contract) = upkeep.ingested else { return Ok(Vec::new()) };
    let plans = staged::plans(upkeep, contract).await?;
    let snapshot = upkeep.table.snapshot().await?;
    let last = snapshot.txn(APP_ID).await?.unwrap_or_default();
    let settled = ledger::index(upkeep.lake).await?.txn(snapshot.table_id());
    let over =
        plans.into_iter().filter(|plan| plan.number > settled && plan.number != last && plan.modified < at - PLANS);
    Ok(over.map(|plan| (plan.path, plan.bytes)).collect())
}

/// A commit that changes nothing, and when the store took it. Somebody else's commit in its place fences as well.
pub(super) async fn fence(upkeep: &Upkeep<'_>) -> Result<(i64, DateTime<Utc>)> {
    let mut last = None;
    for attempt in 0..ATTEMPTS {
        let snapshot = upkeep.table.snapshot().await?;
        let retention = Retention::of(&upkeep.lake.settings, snapshot.properties());
        let kept = |kept: TimeDelta| json!(kept.num_milliseconds().to_string());
        let parameters = json!({ "orphans": kept(retention.orphans), "removed": kept(retention.removed) });
        let change = Change {
            operation: "VACUUM START".to_owned(),
            rearrange_only: true,
            info: Map::from_iter([("operationParameters".to_owned(), parameters)]),
            ..Change::default()
        };
        if let Outcome::Unknown(error) = upkeep.table.commit(&snapshot, change).await? {
            last = Some(error);
        }
        let version = snapshot.version() + 1;
        if let Some(at) = upkeep.table.stored_at(version).await? {
            return Ok((version, at));
        }
        upkeep.lake.pause(attempt).await;
    }
    Err(last.unwrap_or_else(|| Error::conflict(format!("{}: no fence could be set", upkeep.table.folder()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_none_of_the_tables_files() {
        for (path, hidden) in [
            ("part-1.parquet", false),
            ("day=2026-01-01/part-1.parquet", false),
            ("_day=2026-01-01/part-1.parquet", false),
            ("_delta_log/00000000000000000000.json", true),
            ("_change_data/x.parquet", true),
            ("day=1/_x/part.parquet", true),
            (".part.crc", true),
        ] {
            assert_eq!(is_hidden(path), hidden, "{path}");
        }
    }
}
