//! Reading a table's state from its log: the newest checkpoint that fits, then the commits after it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use arrow::json::WriterBuilder;
use arrow::json::writer::LineDelimited;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;

use super::log::{Actions, LOG, Line, LogName, commit_path};
use super::state::State;
use crate::error::{Error, Result};
use crate::store::Store;

/// Commits are read this many at a time.
const AHEAD: usize = 16;

/// What is in the log's folder.
#[derive(Debug, Default)]
pub(super) struct Listing {
    commits: BTreeSet<i64>,
    /// The paths of complete checkpoints' files by version.
    checkpoints: BTreeMap<i64, Vec<String>>,
}

#[derive(Deserialize)]
struct LastCheckpoint {
    version: i64,
}

impl Listing {
    /// Lists the whole log.
    pub(super) async fn whole(store: &Store, folder: &str) -> Result<Self> {
        Ok(Self::of(store.list(&format!("{folder}/{LOG}")).await?.iter().map(|meta| meta.location.as_ref())))
    }

    /// Lists the log from the checkpoint on that `_last_checkpoint` names; the whole log if that leads nowhere.
    async fn newest(store: &Store, folder: &str) -> Result<Self> {
        let hint = store.get(&format!("{folder}/{LOG}/_last_checkpoint")).await?;
        if let Some(hint) = hint.and_then(|text| serde_json::from_slice::<LastCheckpoint>(&text).ok()) {
            let offset = format!("{folder}/{LOG}/{:020}", hint.version);
            let found = store.list_after(&format!("{folder}/{LOG}"), &offset).await?;
            let listing = Self::of(found.iter().map(|meta| meta.location.as_ref()));
            if !listing.checkpoints.is_empty() {
                return Ok(listing);
            }
        }
        Self::whole(store, folder).await
    }

    fn of<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        let mut commits = BTreeSet::new();
        let mut parts: BTreeMap<(i64, u32), BTreeMap<u32, String>> = BTreeMap::new();
        for path in paths {
            match path.rsplit('/').next().and_then(LogName::parse) {
                Some(LogName::Commit(version)) => {
                    commits.insert(version);
                }
                Some(LogName::Checkpoint(version, part, of)) => {
                    parts.entry((version, of)).or_default().insert(part, path.to_owned());
                }
                None => {}
            }
        }
        let mut checkpoints = BTreeMap::new();
        for ((version, of), files) in parts {
            if files.len() == usize::try_from(of).unwrap_or(usize::MAX) {
                checkpoints.entry(version).or_insert_with(|| files.into_values().collect());
            }
        }
        Self { commits, checkpoints }
    }

    /// The versions that can be read; none when there is no table.
    pub(super) fn readable(&self) -> Option<RangeInclusive<i64>> {
        let newest = self.commits.last().copied().max(self.checkpoints.keys().last().copied())?;
        // Versions are readable from a start (the first commit, or a checkpoint) if every later commit is there.
        let mut oldest = newest;
        while self.commits.contains(&oldest) && oldest > 0 {
            oldest -= 1;
        }
        if oldest == 0 && self.commits.contains(&0) {
            return Some(0..=newest);
        }
        let start = self.checkpoints.range(oldest..).next().map_or(newest, |(version, _)| *version);
        Some(start..=newest)
    }
}

/// The state at version `at`, or the newest; none when there is no table, or no such version.
pub(super) async fn load(store: &Store, folder: &str, at: Option<i64>) -> Result<Option<State>> {
    let listing = match at {
        None => Listing::newest(store, folder).await?,
        Some(_) => Listing::whole(store, folder).await?,
    };
    let highest = at.unwrap_or(i64::MAX);
    let checkpoint = listing.checkpoints.range(..=highest).next_back();
    let first = checkpoint.map_or(0, |(version, _)| version + 1);
    let last = listing.commits.range(..=highest).next_back().copied();
    let last = last.max(checkpoint.map(|(version, _)| *version));
    let Some(last) = last else { return Ok(None) };
    if at.is_some_and(|at| at != last) {
        return Ok(None);
    }
    let mut state = match checkpoint {
        Some((version, files)) => {
            let actions = read_checkpoint(store, folder, files).await?;
            Some(State::first(folder, *version, None, actions)?)
        }
        None => None,
    };
    let commits = futures::stream::iter(first..=last).map(|version| read_commit(store, folder, version));
    let mut commits = std::pin::pin!(commits.buffered(AHEAD));
    while let Some((version, etag, actions)) = commits.try_next().await? {
        state = Some(match state {
            Some(state) => state.next(version, etag, actions)?,
            None => State::first(folder, version, etag, actions)?,
        });
    }
    match state {
        Some(state) if state.committed_ms.is_none() => Ok(Some(stamp(store, state).await?)),
        state => Ok(state),
    }
}

/// Takes time and identity of a version that was read from a checkpoint from its commit, if that is still there.
async fn stamp(store: &Store, mut state: State) -> Result<State> {
    let path = commit_path(&state.folder, state.version);
    if let Some((bytes, meta)) = store.get_with_meta(&path).await? {
        state.committed_ms =
            Actions::parse(&bytes, &path)?.committed_ms().or(Some(meta.last_modified.timestamp_millis()));
        state.etag = meta.e_tag;
    }
    Ok(state)
}

/// Version, etag and actions of a commit that must be there.
async fn read_commit(store: &Store, folder: &str, version: i64) -> Result<(i64, Option<String>, Actions)> {
    match try_commit(store, folder, version).await? {
        Some((etag, actions)) => Ok((version, etag, actions)),
        None => Err(Error::corrupt(format!("version {version} of table {folder} is missing in its log"))
            .remedy("restore the missing file of _delta_log from a backup")),
    }
}

/// Etag and actions of a commit; none when it is not there.
pub(super) async fn try_commit(store: &Store, folder: &str, version: i64) -> Result<Option<(Option<String>, Actions)>> {
    let path = commit_path(folder, version);
    let Some((bytes, meta)) = store.get_with_meta(&path).await? else { return Ok(None) };
    Ok(Some((meta.e_tag, Actions::parse(&bytes, &path)?)))
}

async fn read_checkpoint(store: &Store, folder: &str, files: &[String]) -> Result<Actions> {
    let mut actions = Actions::default();
    let mut sidecars = Vec::new();
    for path in files {
        sidecars.extend(read_checkpoint_file(store, path, &mut actions).await?);
    }
    for name in sidecars {
        read_checkpoint_file(store, &format!("{folder}/{LOG}/_sidecars/{name}"), &mut actions).await?;
    }
    Ok(actions)
}

/// Adds a file's actions and gives back the names of the sidecars that it refers to.
async fn read_checkpoint_file(store: &Store, path: &str, actions: &mut Actions) -> Result<Vec<String>> {
    let Some(bytes) = store.get(path).await? else {
        return Err(Error::corrupt(format!("checkpoint file {path} is missing")));
    };
    let is_json = path.ends_with(".json");
    let text = if is_json {
        bytes
    } else {
        let converted = tokio::task::spawn_blocking(move || checkpoint_lines(bytes)).await;
        let converted = converted.map_err(|e| Error::internal("reading a checkpoint").because(e))?;
        converted.map_err(|e| Error::corrupt(format!("checkpoint file {path} cannot be read")).because(e))?.into()
    };
    let mut sidecars = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut line: Line = serde_json::from_slice(line)
            .map_err(|e| Error::corrupt(format!("{path} has a line that is no Delta action")).because(e))?;
        sidecars.extend(line.sidecar.take().map(|sidecar| sidecar.path));
        line.remove = None;
        actions.push(line);
    }
    Ok(sidecars)
}

/// A checkpoint's rows as the lines of a commit: one form to parse.
fn checkpoint_lines(bytes: Bytes) -> parquet::errors::Result<Vec<u8>> {
    const WANTED: [&str; 11] = [
        "protocol.",
        "metaData.",
        "txn.",
        "sidecar.",
        "add.path",
        "add.partitionValues.",
        "add.size",
        "add.modificationTime",
        "add.dataChange",
        "add.stats",
        "add.deletionVector.",
    ];
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let schema = builder.parquet_schema();
    let leaves: Vec<usize> = (0..schema.num_columns())
        .filter(|leaf| {
            let name = schema.column(*leaf).path().string();
            WANTED.iter().any(|wanted| if wanted.ends_with('.') { name.starts_with(wanted) } else { name == *wanted })
        })
        .collect();
    let mask = ProjectionMask::leaves(schema, leaves);
    let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(Vec::new());
    for batch in builder.with_projection(mask).build()? {
        writer.write(&batch?)?;
    }
    writer.finish()?;
    Ok(writer.into_inner())
}
