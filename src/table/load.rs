//! Reading a version of a table: `deltalake` finds and replays its log, this file takes over what the version consists of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use deltalake::kernel::engine::arrow_data::ArrowEngineData;
use deltalake::kernel::{DataType as DeltaType, Snapshot, StructField, StructType};
use deltalake::logstore::LogStore;
use deltalake::{DeltaResult, DeltaTableError};
use futures::TryStreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::log::{Actions, Add, LOG, LogName, commit_path};
use super::logstore::Log;
use super::state::{Meta, State};
use crate::error::{Error, Result};
use crate::store::Store;

/// The state at version `at`, or the newest; none when there is no table, or no such version.
pub(super) async fn load(store: &Store, folder: &str, at: Option<i64>) -> Result<Option<State>> {
    let Ok(version) = at.map(u64::try_from).transpose() else { return Ok(None) };
    // Asked first: the kernel logs an error of its own for a folder without a log.
    if store.list(&format!("{folder}/{LOG}")).await?.is_empty() {
        return Ok(None);
    }
    let log = Log::new(store, folder)?;
    let snapshot = match Snapshot::try_new(log.store.as_ref(), version).await {
        Ok(snapshot) => snapshot,
        Err(DeltaTableError::NotATable(_)) => return Ok(None),
        Err(error) => return Err(unreadable(store, folder, &log, error).await),
    };
    let number = snapshot.version();
    let number = i64::try_from(number).map_err(|e| Error::corrupt(format!("version {number}")).because(e))?;
    // First of all: what is not understood must not be read.
    let meta = Meta::new(folder, same(snapshot.protocol())?, same(snapshot.metadata())?)?;
    let mut state = State::bare(folder, number, meta);
    match transactions(&snapshot, log.store.as_ref()).await {
        Ok(txns) => state.txns = Arc::new(txns),
        Err(error) => return Err(unreadable(store, folder, &log, error).await),
    }
    let mut files = snapshot.files(log.store.as_ref(), None);
    loop {
        match files.try_next().await {
            Ok(Some(batch)) => add_files(&mut state, &batch).map_err(|e| e.within(format!("table {folder}")))?,
            Ok(None) => break,
            Err(error) => return Err(unreadable(store, folder, &log, error).await),
        }
    }
    Ok(Some(stamp(store, state).await?))
}

/// An action of `deltalake`'s as ours: the same JSON.
fn same<T: DeserializeOwned>(action: &impl Serialize) -> Result<T> {
    let value = serde_json::to_value(action).map_err(|e| Error::internal("delta action").because(e))?;
    serde_json::from_value(value).map_err(|e| Error::internal("delta action").because(e))
}

/// All application transactions of a version, whatever their age.
async fn transactions(snapshot: &Snapshot, log: &dyn LogStore) -> DeltaResult<BTreeMap<String, i64>> {
    let snapshot = Arc::clone(snapshot.scan_builder().build()?.snapshot());
    let engine = log.engine(None);
    let app_id = StructField::not_null("appId", DeltaType::STRING);
    let version = StructField::not_null("version", DeltaType::LONG);
    let txn = DeltaType::from(StructType::try_new([app_id, version])?);
    let schema = Arc::new(StructType::try_new([StructField::nullable("txn", txn)])?);
    let replay = move || {
        let mut found = BTreeMap::new();
        for actions in snapshot.log_segment().read_actions(engine.as_ref(), schema)? {
            let data = ArrowEngineData::try_from_engine_data(actions?.actions)?;
            for (app_id, version) in transactions_in(data.record_batch())? {
                // The newest commits come first.
                found.entry(app_id).or_insert(version);
            }
        }
        Ok(found)
    };
    tokio::task::spawn_blocking(replay).await.map_err(|e| DeltaTableError::GenericError { source: e.into() })?
}

fn transactions_in(batch: &RecordBatch) -> DeltaResult<Vec<(String, i64)>> {
    let txns = batch.column_by_name("txn").and_then(|txn| txn.as_struct_opt());
    let Some(txns) = txns else { return Ok(Vec::new()) };
    let (Some(app_ids), Some(versions)) = (txns.column_by_name("appId"), txns.column_by_name("version")) else {
        return Ok(Vec::new());
    };
    let app_ids = cast(app_ids, &DataType::Utf8)?;
    let versions = cast(versions, &DataType::Int64)?;
    let (app_ids, versions) = (app_ids.as_string::<i32>(), versions.as_primitive::<Int64Type>());
    Ok((0..txns.len())
        .filter(|row| txns.is_valid(*row) && app_ids.is_valid(*row) && versions.is_valid(*row))
        .map(|row| (app_ids.value(row).to_owned(), versions.value(row)))
        .collect())
}

/// Takes over rows of `deltalake`'s file listing. Its rows are read rather than its file views: only they have the path as
/// the log spells it.
fn add_files(state: &mut State, batch: &RecordBatch) -> Result<()> {
    let column = |name: &str| {
        batch.column_by_name(name).ok_or_else(|| Error::internal(format!("the listing of files has no `{name}`")))
    };
    let texts = |array: &ArrayRef| cast(array, &DataType::Utf8);
    let (paths, stats) = (texts(column("path")?)?, texts(column("stats")?)?);
    let (paths, stats) = (paths.as_string::<i32>(), stats.as_string::<i32>());
    let sizes = column("size")?.as_primitive::<Int64Type>();
    let times = column("modificationTime")?.as_primitive::<Int64Type>();
    let vectors = column("deletionVector")?;
    let vector_kinds = vectors.as_struct().column_by_name("storageType");
    let constants = column("fileConstantValues")?.as_struct();
    let partitions = constants
        .column_by_name("partitionValues")
        .ok_or_else(|| Error::internal("the listing of files has no `partitionValues`"))?
        .as_map();
    let (keys, values) = (texts(partitions.keys())?, texts(partitions.values())?);
    let (keys, values) = (keys.as_string::<i32>(), values.as_string::<i32>());
    for row in 0..batch.num_rows() {
        let mut partition_values = BTreeMap::new();
        if constants.is_valid(row) && partitions.is_valid(row) {
            let offsets = partitions.value_offsets();
            let bounds = [offsets[row], offsets[row + 1]].map(|at| usize::try_from(at).unwrap_or(0));
            for at in bounds[0]..bounds[1] {
                let value = values.is_valid(at).then(|| values.value(at).to_owned());
                partition_values.insert(keys.value(at).to_owned(), value);
            }
        }
        let has_vector = vectors.is_valid(row) && vector_kinds.is_none_or(|kinds| kinds.is_valid(row));
        state.add(Add {
            path: paths.value(row).to_owned(),
            partition_values,
            size: sizes.value(row),
            modification_time: times.value(row),
            data_change: true,
            stats: stats.is_valid(row).then(|| stats.value(row).to_owned()),
            deletion_vector: has_vector.then_some(Value::Bool(true)),
        })?;
    }
    Ok(())
}

/// Takes time and identity of a version from its commit, if that is still there.
async fn stamp(store: &Store, mut state: State) -> Result<State> {
    let path = commit_path(&state.folder, state.version);
    if let Some((bytes, meta)) = store.get_with_meta(&path).await? {
        let committed_ms = Actions::parse(&bytes, &path)?.committed_ms();
        state.committed_ms = committed_ms.or(Some(meta.last_modified.timestamp_millis()));
        state.etag = meta.e_tag;
    }
    Ok(state)
}

/// Etag and actions of a commit; none when it is not there.
pub(super) async fn try_commit(store: &Store, folder: &str, version: i64) -> Result<Option<(Option<String>, Actions)>> {
    let path = commit_path(folder, version);
    let Some((bytes, meta)) = store.get_with_meta(&path).await? else { return Ok(None) };
    Ok(Some((meta.e_tag, Actions::parse(&bytes, &path)?)))
}

/// Why `deltalake` could not read a log, by what a caller can do about it.
async fn unreadable(store: &Store, folder: &str, log: &Log, error: DeltaTableError) -> Error {
    let message = format!("the log of table {folder} cannot be read");
    if log.store_failed() {
        return Error::unavailable(message).because(error);
    }
    if error.to_string().contains("Invalid protocol action") {
        return Error::invalid(format!("table {folder} cannot be read: it has a protocol that is not known"))
            .because(error)
            .remedy("it may be made by a newer writer: use a newer alluvium");
    }
    let listing = match Listing::of(store, folder).await {
        Ok(listing) => listing,
        Err(unlisted) => return unlisted,
    };
    if let Some(version) = listing.missing() {
        return Error::corrupt(format!("version {version} of table {folder} is missing in its log"))
            .because(error)
            .remedy("restore the missing file of _delta_log from a backup");
    }
    Error::corrupt(message).because(error).remedy("restore the table's _delta_log from a backup")
}

/// The versions in a log's folder, by the names of its files.
#[derive(Debug, Default)]
pub(super) struct Listing {
    commits: BTreeSet<i64>,
    checkpoints: BTreeSet<i64>,
}

impl Listing {
    pub(super) async fn of(store: &Store, folder: &str) -> Result<Self> {
        let mut listing = Self::default();
        for file in store.list(&format!("{folder}/{LOG}")).await? {
            match file.location.filename().and_then(LogName::parse) {
                Some(LogName::Commit(version)) => listing.commits.insert(version),
                Some(LogName::Checkpoint(version)) => listing.checkpoints.insert(version),
                None => false,
            };
        }
        Ok(listing)
    }

    /// The oldest version that can be read: every later commit must be there, and a start (the first commit, or a checkpoint).
    pub(super) fn oldest(&self) -> Option<i64> {
        let newest = self.commits.last().copied().max(self.checkpoints.last().copied())?;
        let mut oldest = newest;
        while self.commits.contains(&oldest) && oldest > 0 {
            oldest -= 1;
        }
        if oldest == 0 && self.commits.contains(&0) {
            return Some(0);
        }
        Some(self.checkpoints.range(oldest..).next().copied().unwrap_or(newest))
    }

    /// The first commit that is not there although the newest version cannot be read without it.
    fn missing(&self) -> Option<i64> {
        let start = self.checkpoints.last().map_or(0, |version| version + 1);
        let newest = self.commits.last().copied()?;
        (start..newest).find(|version| !self.commits.contains(version))
    }
}
