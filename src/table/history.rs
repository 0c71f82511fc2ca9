//! Looking back: the history of a table, and its older versions.

use chrono::{DateTime, Utc};
use futures::StreamExt;
use serde_json::{Map, Value};

use super::load::{Listing, load};
use super::log::{Line, commit_path};
use super::{At, HistoryEntry, Snapshot, Table};
use crate::error::{Error, Result};

/// Commits are read this many at a time.
const AHEAD: usize = 16;

impl Table {
    /// The newest `limit` versions, newest first. Ends early where the log was cleaned up.
    pub async fn history(&self, limit: Option<usize>) -> Result<Vec<HistoryEntry>> {
        let newest = self.snapshot().await?.version();
        let limit = limit.unwrap_or(usize::MAX);
        let mut entries = Vec::new();
        let commits = futures::stream::iter((0..=newest).rev()).map(|version| self.entry(version));
        let mut commits = std::pin::pin!(commits.buffered(AHEAD.min(limit.max(1))));
        while entries.len() < limit {
            match commits.next().await {
                Some(Ok(Some(entry))) => entries.push(entry),
                Some(Err(error)) => return Err(error),
                Some(Ok(None)) | None => break,
            }
        }
        Ok(entries)
    }

    /// An older snapshot. The error names the oldest readable version when it cannot be read any more.
    pub async fn snapshot_at(&self, at: At) -> Result<Snapshot> {
        let newest = self.snapshot().await?;
        let version = match at {
            At::Version(version) => version,
            At::Instant(instant) => self.version_at(&newest, instant).await?,
        };
        if version == newest.version() {
            return Ok(newest);
        }
        let store = &self.inner.store;
        let folder = &self.inner.folder;
        let listing = Listing::whole(store, folder).await?;
        let oldest = listing.readable().map_or(newest.version(), |readable| *readable.start());
        let range = format!("versions {oldest} to {} of table {folder} can be read", newest.version());
        if version < oldest || version > newest.version() {
            return Err(Error::not_found(format!("version {version} cannot be read: {range}")));
        }
        match load(store, folder, Some(version)).await? {
            Some(state) => Ok(Snapshot { store: store.clone(), state: state.into() }),
            None => Err(Error::not_found(format!("version {version} is not there: {range}"))),
        }
    }

    async fn version_at(&self, newest: &Snapshot, instant: DateTime<Utc>) -> Result<i64> {
        if newest.committed_at().is_some_and(|at| at <= instant) {
            return Ok(newest.version());
        }
        let mut oldest = newest.committed_at();
        let commits = futures::stream::iter((0..newest.version()).rev()).map(|version| self.entry(version));
        let mut commits = std::pin::pin!(commits.buffered(AHEAD));
        while let Some(entry) = commits.next().await {
            let Some(entry) = entry? else { break };
            oldest = entry.at.or(oldest);
            if entry.at.is_some_and(|at| at <= instant) {
                return Ok(entry.version);
            }
        }
        let folder = &self.inner.folder;
        let from = oldest.map_or_else(|| "an unknown time".to_owned(), |at| at.to_rfc3339());
        Err(Error::not_found(format!(
            "table {folder} had no readable version at {}: its log begins at {from}",
            instant.to_rfc3339()
        )))
    }

    /// What a commit says about itself; none when it is not there.
    async fn entry(&self, version: i64) -> Result<Option<HistoryEntry>> {
        let path = commit_path(&self.inner.folder, version);
        let Some((bytes, meta)) = self.inner.store.get_with_meta(&path).await? else { return Ok(None) };
        let mut info = commit_info(&bytes, &path)?;
        let stamp = info.remove("inCommitTimestamp").or_else(|| info.get("timestamp").cloned());
        info.remove("timestamp");
        let at = stamp.and_then(|ms| DateTime::from_timestamp_millis(ms.as_i64()?)).unwrap_or(meta.last_modified);
        let operation = match info.remove("operation") {
            Some(Value::String(operation)) => operation,
            _ => "unknown".to_owned(),
        };
        Ok(Some(HistoryEntry { version, at: Some(at), operation, info }))
    }
}

/// The commitInfo of a commit, which is usually its first line; empty when it has none.
fn commit_info(bytes: &[u8], path: &str) -> Result<Map<String, Value>> {
    const KEY: &[u8] = b"\"commitInfo\"";
    for line in bytes.split(|byte| *byte == b'\n') {
        if memchr::memmem::find(&line[..line.len().min(64)], KEY).is_none() {
            continue;
        }
        let line: Line = serde_json::from_slice(line)
            .map_err(|e| Error::corrupt(format!("{path} has a line that is no Delta action")).because(e))?;
        return Ok(line.commit_info.unwrap_or_default());
    }
    Ok(Map::new())
}
