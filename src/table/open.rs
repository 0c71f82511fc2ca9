//! Opening, creating and following a table.

use std::fmt;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::Mutex;

use super::load::{load, try_commit};
use super::log::{Actions, Format, Metadata, commit_path};
use super::protocol::{in_use, protocol_for};
use super::schema::{has_timestamp_ntz, to_delta};
use super::state::State;
use super::{Snapshot, Table, TableSpec};
use crate::error::{Error, Result};
use crate::store::{Put, Store};

/// What writes the log, in every commitInfo.
pub(super) const ENGINE: &str = concat!("alluvium/", env!("CARGO_PKG_VERSION"));

/// Properties of every table that is created here. Log clean-up is ours alone: nobody else may take away what a slow reader
/// still needs.
const DEFAULTS: [(&str, &str); 2] =
    [("delta.enableExpiredLogCleanup", "false"), ("delta.logRetentionDuration", "interval 30 days")];

pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) folder: Arc<str>,
    pub(super) newest: Mutex<Arc<State>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Table {
    /// Opens the table in `folder` below the store's root; none when there is no table.
    pub async fn open(store: &Store, folder: &str) -> Result<Option<Self>> {
        let state = load(store, folder, None).await?;
        Ok(state.map(|state| Self::at(store, state)))
    }

    fn at(store: &Store, state: State) -> Self {
        let folder = Arc::clone(&state.folder);
        Self { inner: Arc::new(Inner { store: store.clone(), folder, newest: Mutex::new(Arc::new(state)) }) }
    }

    /// Creates the table empty, or opens it when somebody did before.
    pub async fn create(store: &Store, folder: &str, spec: &TableSpec) -> Result<Self> {
        if let Some(table) = Self::open(store, folder).await? {
            return Ok(table);
        }
        let actions = first_commit(store, folder, spec)?;
        let text = actions.to_text()?;
        let (put, etag) = store.put_new(&commit_path(folder, 0), text.into()).await?;
        match put {
            Put::Created => Ok(Self::at(store, State::first(folder, etag, actions)?)),
            Put::Exists => Self::open(store, folder).await?.ok_or_else(|| {
                Error::unavailable(format!("table {folder} was created by somebody else and cannot be seen yet"))
            }),
            // The answer may be lost and the table created all the same.
            Put::Unknown(error) => match Self::open(store, folder).await {
                Ok(Some(table)) => Ok(table),
                _ => Err(error.within(format!("table {folder} could not be created"))),
            },
        }
    }

    /// The newest snapshot, updated incrementally from the last one.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let mut newest = self.inner.newest.lock().await;
        let state = follow(&self.inner.store, Arc::clone(&newest)).await?;
        *newest = Arc::clone(&state);
        Ok(Snapshot { store: self.inner.store.clone(), state })
    }

    /// The table's folder below the store's root.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.inner.folder
    }
}

/// The newest state from an older one.
async fn follow(store: &Store, from: Arc<State>) -> Result<Arc<State>> {
    let known_path = commit_path(&from.folder, from.version);
    let (next, known) = tokio::join!(try_commit(store, &from.folder, from.version + 1), store.head(&known_path));
    let mut next = next?;
    // The commit that is known must still be there and be the same object. Else the log was cleaned beyond it, and a missing
    // next commit says nothing; or the table was dropped and made anew.
    let same = known?.is_some_and(|meta| match (&meta.e_tag, &from.etag) {
        (Some(now), Some(then)) => now == then,
        _ => true,
    });
    if !same {
        let folder = &from.folder;
        let state = load(store, folder, None).await?;
        return state.map(Arc::new).ok_or_else(|| Error::not_found(format!("table {folder} is gone")));
    }
    let mut state = from;
    while let Some((etag, actions)) = next {
        let version = state.version + 1;
        state = Arc::new(Arc::unwrap_or_clone(state).next(version, etag, actions)?);
        next = try_commit(store, &state.folder, version + 1).await?;
    }
    Ok(state)
}

fn first_commit(store: &Store, folder: &str, spec: &TableSpec) -> Result<Actions> {
    let named = |e: Error| e.within(format!("table {folder}"));
    check_columns(spec).map_err(named)?;
    let now = store.clock().now().timestamp_millis();
    let mut configuration: std::collections::BTreeMap<String, Option<String>> =
        DEFAULTS.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned()))).collect();
    configuration.extend(spec.properties.iter().map(|(key, value)| (key.clone(), Some(value.clone()))));
    let metadata = Metadata {
        id: as_uuid(&store.clock().fresh()),
        name: None,
        description: spec.description.clone(),
        format: Format { provider: "parquet".to_owned(), options: std::collections::BTreeMap::new() },
        schema_string: to_delta(&spec.schema).map_err(named)?,
        partition_columns: spec.partition_by.clone(),
        configuration,
        created_time: Some(now),
    };
    if let Some(feature) = in_use(&metadata) {
        return Err(named(
            Error::invalid(format!("a property or the schema asks for {feature}, which is not written here"))
                .remedy("leave it out"),
        ));
    }
    let info = json!({
        "timestamp": now,
        "operation": "CREATE TABLE",
        "operationParameters": {},
        "engineInfo": ENGINE,
    });
    Ok(Actions {
        info: info.as_object().cloned(),
        protocol: Some(protocol_for(has_timestamp_ntz(&spec.schema), &metadata)),
        metadata: Some(metadata),
        ..Actions::default()
    })
}

/// Column names are unique whatever their case; partition columns are there, of a plain type, and not all columns.
fn check_columns(spec: &TableSpec) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for field in spec.schema.fields() {
        if !seen.insert(field.name().to_lowercase()) {
            return Err(Error::invalid(format!("column {} is there twice (case is ignored)", field.name())));
        }
    }
    for name in &spec.partition_by {
        let field = spec
            .schema
            .field_with_name(name)
            .map_err(|_| Error::invalid(format!("partition column {name} is no column")))?;
        if field.data_type().is_nested() || field.data_type().is_binary() {
            return Err(Error::invalid(format!("column {name} cannot be a partition column: {}", field.data_type())));
        }
    }
    if spec.partition_by.len() >= spec.schema.fields().len() {
        return Err(Error::invalid("every column is a partition column").remedy("leave one out of partition_by"));
    }
    Ok(())
}

/// 32 hex digits in the form of a UUID.
fn as_uuid(fresh: &str) -> String {
    let cut = |from: usize, to: usize| fresh.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", cut(0, 8), cut(8, 12), cut(12, 16), cut(16, 20), cut(20, 32))
}
