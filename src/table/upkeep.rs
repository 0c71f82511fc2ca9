//! What the upkeep of a table needs to know about its log: its files with the store's times, and what commits removed.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt};

use super::Table;
use super::load::{load, try_commit};
use super::log::{LOG, LogName, commit_path, decode_path};
use crate::error::{Error, Result};

/// Commits are read this many at a time.
const AHEAD: usize = 16;

/// A file of a table's log that belongs to one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Path below the store's root.
    pub path: String,
    /// The version.
    pub version: i64,
    /// What it is.
    pub kind: LogKind,
    /// When the store took it, by the store's clock.
    pub modified: DateTime<Utc>,
    /// Bytes.
    pub bytes: u64,
}

/// What a file of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// The commit of the version.
    Commit,
    /// The whole version in one file. A checkpoint in several parts, which only others write, counts as [`Self::Other`].
    Checkpoint,
    /// Anything else that is named by the version, such as a checksum.
    Other,
}

impl Table {
    /// The files of the log that belong to a version, ordered by version and name.
    pub async fn log_files(&self) -> Result<Vec<LogFile>> {
        let mut files = Vec::new();
        for object in self.inner.store.list(&format!("{}/{LOG}", self.inner.folder)).await? {
            let name = object.location.filename().unwrap_or_default();
            let version = name.split_once('.').filter(|(digits, _)| digits.len() == 20);
            let Some(Ok(version)) = version.map(|(digits, _)| digits.parse()) else { continue };
            let kind = match LogName::parse(name) {
                Some(LogName::Commit(_)) => LogKind::Commit,
                Some(LogName::Checkpoint(_)) if name.ends_with(".checkpoint.parquet") && name.len() == 39 => {
                    LogKind::Checkpoint
                }
                _ => LogKind::Other,
            };
            let path = object.location.to_string();
            files.push(LogFile { path, version, kind, modified: object.last_modified, bytes: object.size });
        }
        files.sort_unstable_by(|a, b| (a.version, &a.path).cmp(&(b.version, &b.path)));
        Ok(files)
    }

    /// Paths (below the table's folder) of all files that these versions removed, compactions included; none when one of
    /// the commits is not there.
    pub async fn removed(&self, versions: RangeInclusive<i64>) -> Result<Option<BTreeSet<String>>> {
        let commits = futures::stream::iter(versions)
            .map(|version| try_commit(&self.inner.store, &self.inner.folder, version))
            .buffered(AHEAD);
        let mut commits = std::pin::pin!(commits);
        let mut removed = BTreeSet::new();
        while let Some(commit) = commits.try_next().await? {
            let Some((_, actions)) = commit else { return Ok(None) };
            for remove in actions.removes {
                removed.insert(decode_path(&remove.path)?);
            }
        }
        Ok(Some(removed))
    }

    /// When a version's commit was taken, by the store's clock; none when there is no such commit.
    pub async fn stored_at(&self, version: i64) -> Result<Option<DateTime<Utc>>> {
        let meta = self.inner.store.head(&commit_path(&self.inner.folder, version)).await?;
        Ok(meta.map(|meta| meta.last_modified))
    }

    /// Opens a version anew from the store, to be sure that it can be.
    ///
    /// # Errors
    /// It cannot be opened.
    pub async fn must_open(&self, version: i64) -> Result<()> {
        match load(&self.inner.store, &self.inner.folder, Some(version)).await? {
            Some(_) => Ok(()),
            None => Err(Error::corrupt(format!("version {version} of table {} cannot be opened", self.inner.folder))
                .remedy("restore the table's _delta_log from a backup")),
        }
    }
}
