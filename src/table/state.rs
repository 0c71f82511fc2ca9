//! A version of a table in memory, and the step from one version to the next.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;

use super::DataFile;
use super::log::{Actions, Add, Metadata, Protocol, decode_path, encode_path};
use super::protocol::{Access, check_protocol};
use super::schema::from_delta;
use crate::error::{Error, Result};

/// Live files are kept in this many shards, so that a commit copies the few shards that it touches.
const SHARDS: usize = 128;

/// Protocol and metadata of a table, with what is derived from them.
#[derive(Debug, Clone)]
pub(super) struct Meta {
    pub(super) protocol: Protocol,
    pub(super) metadata: Metadata,
    pub(super) schema: SchemaRef,
    pub(super) properties: BTreeMap<String, String>,
}

impl Meta {
    pub(super) fn new(folder: &str, protocol: Protocol, metadata: Metadata) -> Result<Self> {
        check_protocol(folder, &protocol, &metadata, Access::Read)?;
        let schema = from_delta(&metadata.schema_string).map_err(|e| e.within(format!("table {folder}")))?;
        let properties =
            metadata.configuration.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
        Ok(Self { protocol, metadata, schema, properties })
    }
}

/// The live files by path. Cloning is cheap; a change copies only the shards it touches.
#[derive(Clone)]
pub(super) struct Live {
    shards: Vec<Arc<HashMap<String, Arc<DataFile>>>>,
    /// The paths that another writer spells differently from us in the log, as it spells them. A removal must repeat the
    /// spelling: readers compare the text.
    spelled: Arc<HashMap<String, String>>,
}

impl Live {
    fn new() -> Self {
        Self { shards: vec![Arc::default(); SHARDS], spelled: Arc::default() }
    }

    fn shard(path: &str) -> usize {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(path);
        usize::try_from(hash % SHARDS as u64).unwrap_or(0)
    }

    pub(super) fn get(&self, path: &str) -> Option<&Arc<DataFile>> {
        self.shards.get(Self::shard(path))?.get(path)
    }

    fn insert(&mut self, add: Add) -> Result<()> {
        let spelling = add.path.clone();
        let file = DataFile::from_add(add)?;
        if spelling != encode_path(&file.path) {
            Arc::make_mut(&mut self.spelled).insert(file.path.clone(), spelling);
        }
        if let Some(shard) = self.shards.get_mut(Self::shard(&file.path)) {
            Arc::make_mut(shard).insert(file.path.clone(), Arc::new(file));
        }
        Ok(())
    }

    fn remove(&mut self, path: &str) {
        if let Some(shard) = self.shards.get_mut(Self::shard(path))
            && shard.contains_key(path)
        {
            Arc::make_mut(shard).remove(path);
        }
        if self.spelled.contains_key(path) {
            Arc::make_mut(&mut self.spelled).remove(path);
        }
    }

    /// The path of a live file as the log spells it.
    pub(super) fn spelling(&self, path: &str) -> String {
        self.spelled.get(path).cloned().unwrap_or_else(|| encode_path(path))
    }

    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.is_empty())
    }

    fn sorted(&self) -> Vec<DataFile> {
        let mut files: Vec<&Arc<DataFile>> = self.shards.iter().flat_map(|shard| shard.values()).collect();
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        files.into_iter().map(|file| DataFile::clone(file)).collect()
    }
}

/// One version of a table.
#[derive(Clone)]
pub(super) struct State {
    pub(super) folder: Arc<str>,
    pub(super) version: i64,
    /// Which object the version's commit is, if it was seen: tells that a table was replaced by another one.
    pub(super) etag: Option<String>,
    pub(super) committed_ms: Option<i64>,
    pub(super) meta: Arc<Meta>,
    pub(super) txns: Arc<BTreeMap<String, i64>>,
    pub(super) live: Live,
    files: Arc<OnceLock<Arc<Vec<DataFile>>>>,
}

impl State {
    /// A version without files, transactions, time and identity; the caller adds what the version has.
    pub(super) fn bare(folder: &str, version: i64, meta: Meta) -> Self {
        Self {
            folder: folder.into(),
            version,
            etag: None,
            committed_ms: None,
            meta: Arc::new(meta),
            txns: Arc::default(),
            live: Live::new(),
            files: Arc::default(),
        }
    }

    /// The state that the first commit makes.
    pub(super) fn first(folder: &str, etag: Option<String>, mut actions: Actions) -> Result<Self> {
        let missing = |what: &str| Error::internal(format!("the first commit of table {folder} has no {what}"));
        let protocol = actions.protocol.take().ok_or_else(|| missing("protocol"))?;
        let metadata = actions.metadata.take().ok_or_else(|| missing("metadata"))?;
        Self::bare(folder, -1, Meta::new(folder, protocol, metadata)?).next(0, etag, actions)
    }

    /// The state after the commit `version`.
    pub(super) fn next(mut self, version: i64, etag: Option<String>, actions: Actions) -> Result<Self> {
        self.version = version;
        self.etag = etag;
        self.committed_ms = actions.committed_ms();
        self.files = Arc::default();
        if actions.protocol.is_some() || actions.metadata.is_some() {
            let protocol = actions.protocol.unwrap_or_else(|| self.meta.protocol.clone());
            let metadata = actions.metadata.unwrap_or_else(|| self.meta.metadata.clone());
            self.meta = Arc::new(Meta::new(&self.folder, protocol, metadata)?);
        }
        if !actions.txns.is_empty() {
            let txns = Arc::make_mut(&mut self.txns);
            txns.extend(actions.txns.into_iter().map(|txn| (txn.app_id, txn.version)));
        }
        for remove in actions.removes {
            self.live.remove(&decode_path(&remove.path)?);
        }
        for add in actions.adds {
            self.add(add)?;
        }
        Ok(self)
    }

    /// Takes a live file in.
    pub(super) fn add(&mut self, add: Add) -> Result<()> {
        if add.deletion_vector.is_some() {
            return Err(Error::invalid(format!(
                "table {} has files with deletion vectors (table feature deletionVectors), which cannot be read",
                self.folder
            ))
            .remedy("purge them with the writer that made them (REORG TABLE ... APPLY (PURGE)) and switch delta.enableDeletionVectors off"));
        }
        self.live.insert(add)
    }

    /// Live files ordered by path, made once.
    pub(super) fn files(&self) -> Arc<Vec<DataFile>> {
        Arc::clone(self.files.get_or_init(|| Arc::new(self.live.sorted())))
    }

    pub(super) fn has_files(&self) -> bool {
        !self.live.is_empty()
    }
}
