//! The commit rule: one version after the snapshot that a change was decided from, or not at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use serde_json::{Map, Value, json};

use super::checkpoint::write_checkpoint;
use super::log::{Actions, Metadata, Txn, commit_path};
use super::open::ENGINE;
use super::protocol::{Access, check_protocol, in_use, with_timestamp_ntz};
use super::schema::{has_timestamp_ntz, to_delta};
use super::{Change, Outcome, Snapshot, Table};
use crate::error::{Error, Result};
#[cfg(feature = "mutations")]
use crate::safeguard::Safeguard;
use crate::store::Put;

/// A checkpoint is due at every version that this divides, unless `delta.checkpointInterval` says otherwise.
const CHECKPOINT_INTERVAL: i64 = 100;

impl Table {
    /// The commit rule: at exactly `base.version() + 1`, or not at all.
    ///
    /// An error means that nothing was tried: the change contradicts the snapshot, or the table may not be written.
    pub async fn commit(&self, base: &Snapshot, change: Change) -> Result<Outcome> {
        let folder = &self.inner.folder;
        if base.folder() != self.folder() {
            return Err(Error::internal(format!("a change to table {} was committed to {folder}", base.folder())));
        }
        let meta = &base.state.meta;
        check_protocol(folder, &meta.protocol, &meta.metadata, Access::Write)?;
        let actions = self.actions(base, change).map_err(|e| e.within(format!("table {folder}")))?;
        let version = base.version() + 1;
        let text = actions.to_text()?;
        let store = &self.inner.store;
        #[cfg(feature = "mutations")]
        let again = text.clone();
        let (put, etag) = store.put_new(&commit_path(folder, version), text.into()).await?;
        match put {
            Put::Created => {}
            #[cfg(feature = "mutations")]
            Put::Exists if self.may_commit_anywhere(version) => return self.commit_anywhere(version, &again).await,
            Put::Exists => {
                let taken = format!("table {folder} has a version {version} that somebody else committed");
                return Ok(Outcome::Unknown(Error::conflict(taken)));
            }
            Put::Unknown(error) => return Ok(Outcome::Unknown(error)),
        }
        let state = Arc::new(base.state.as_ref().clone().next(version, etag, actions)?);
        self.keep(&state).await;
        let snapshot = Snapshot { store: store.clone(), state };
        self.checkpoint_if_due(&snapshot).await;
        Ok(Outcome::Committed(snapshot))
    }

    /// Whether the commit rule is taken away, for every version or for a table's first.
    #[cfg(feature = "mutations")]
    fn may_commit_anywhere(&self, version: i64) -> bool {
        let store = &self.inner.store;
        !store.keeps(Safeguard::SnapshotPlusOne) || version == 1 && !store.keeps(Safeguard::CreateEmptyFirst)
    }

    /// What other writers of Delta do: the same actions at the next version that is free.
    #[cfg(feature = "mutations")]
    async fn commit_anywhere(&self, taken: i64, text: &[u8]) -> Result<Outcome> {
        let (store, folder) = (&self.inner.store, &self.inner.folder);
        for version in taken + 1.. {
            match store.put_if_absent(&commit_path(folder, version), text.to_vec()).await? {
                Put::Created => break,
                Put::Exists => {}
                Put::Unknown(error) => return Ok(Outcome::Unknown(error)),
            }
        }
        Ok(Outcome::Committed(self.snapshot().await?))
    }

    async fn keep(&self, state: &Arc<super::state::State>) {
        let mut newest = self.inner.newest.lock().await;
        if newest.version < state.version {
            *newest = Arc::clone(state);
        }
    }

    /// A checkpoint only makes opening faster: the commit is done whether it succeeds or not.
    async fn checkpoint_if_due(&self, snapshot: &Snapshot) {
        let interval = snapshot.properties().get("delta.checkpointInterval").and_then(|text| text.parse().ok());
        let interval: i64 = interval.filter(|interval| *interval > 0).unwrap_or(CHECKPOINT_INTERVAL);
        let version = snapshot.version();
        if version % interval == 0
            && let Err(error) = write_checkpoint(&self.inner.store, &self.inner.folder, version).await
        {
            tracing::warn!(table.folder = %self.inner.folder, table.version = version, %error, "no checkpoint was written");
        }
    }

    fn actions(&self, base: &Snapshot, change: Change) -> Result<Actions> {
        check_files(base, &change)?;
        let now = self.inner.store.clock().now().timestamp_millis();
        let data_change = !change.rearrange_only;
        let mut actions = Actions { info: Some(commit_info(base, &change, now)), ..Actions::default() };
        let mut metadata = base.state.meta.metadata.clone();
        if let Some(schema) = &change.schema {
            check_schema(base, schema, &change)?;
            metadata.schema_string = to_delta(schema)?;
            if has_timestamp_ntz(schema) {
                actions.protocol = with_timestamp_ntz(&base.state.meta.protocol);
            }
        }
        for (key, value) in &change.properties {
            metadata.configuration.insert(key.clone(), Some(value.clone()));
        }
        if metadata != base.state.meta.metadata {
            check_properties(&metadata)?;
            actions.metadata = Some(metadata);
        }
        actions.txns =
            change.txns.into_iter().map(|(app_id, version)| Txn { app_id, version, last_updated: Some(now) }).collect();
        let removes = change.removes.iter();
        actions.removes =
            removes.map(|file| file.to_remove(base.state.live.spelling(&file.path), now, data_change)).collect();
        actions.adds = change.adds.iter().map(|file| file.to_add(data_change)).collect();
        Ok(actions)
    }

    /// Writes a checkpoint of the newest version, and tells which that is.
    pub async fn checkpoint(&self) -> Result<i64> {
        let version = self.snapshot().await?.version();
        write_checkpoint(&self.inner.store, &self.inner.folder, version).await?;
        Ok(version)
    }
}

fn commit_info(base: &Snapshot, change: &Change, now: i64) -> Map<String, Value> {
    let operation = if change.operation.is_empty() { "WRITE" } else { &change.operation };
    let mut info = change.info.clone();
    for (key, value) in [
        ("timestamp", json!(now)),
        ("operation", json!(operation)),
        ("engineInfo", json!(ENGINE)),
        ("readVersion", json!(base.version())),
        ("isBlindAppend", json!(change.removes.is_empty() && change.txns.is_empty() && !change.rearrange_only)),
    ] {
        info.insert(key.to_owned(), value);
    }
    info.entry("operationParameters").or_insert_with(|| json!({}));
    info
}

/// The files must fit the snapshot: what leaves is live, what comes is not, and has a value for each partition column.
fn check_files(base: &Snapshot, change: &Change) -> Result<()> {
    let mut seen = BTreeSet::new();
    for file in &change.removes {
        if base.file(&file.path).is_none() {
            return Err(Error::internal(format!(
                "file {} is to be removed but is not in version {}",
                file.path,
                base.version()
            )));
        }
        if !seen.insert(file.path.as_str()) {
            return Err(Error::internal(format!("file {} is to be removed twice", file.path)));
        }
    }
    for file in &change.adds {
        if base.file(&file.path).is_some() || !seen.insert(file.path.as_str()) {
            return Err(Error::internal(format!("file {} is to be added but is there already", file.path)));
        }
        let fits = file.partition_values.len() == base.partition_by().len()
            && base.partition_by().iter().all(|column| file.partition_values.contains_key(column));
        if !fits {
            return Err(Error::internal(format!(
                "file {} has values for the partition columns {:?} but the table has {:?}",
                file.path,
                file.partition_values.keys().collect::<Vec<_>>(),
                base.partition_by()
            )));
        }
    }
    let append_only = base.properties().get("delta.appendOnly").is_some_and(|value| value == "true");
    if append_only && !change.rearrange_only && !change.removes.is_empty() {
        return Err(Error::invalid("rows are to be removed from a table with delta.appendOnly = true")
            .remedy("set the property to false"));
    }
    Ok(())
}

/// Columns may come; a column may not go or change its type while files with the old type are live.
fn check_schema(base: &Snapshot, schema: &Schema, change: &Change) -> Result<()> {
    let stays = base.state.files().len() > change.removes.len();
    for old in base.schema().fields() {
        let now = schema.field_with_name(old.name()).ok();
        if base.partition_by().contains(old.name()) && now.is_none() {
            return Err(Error::invalid(format!("partition column {} cannot leave the schema", old.name())));
        }
        if !stays {
            continue;
        }
        match now {
            None => {
                return Err(Error::invalid(format!(
                    "column {} cannot leave the schema of a table with rows",
                    old.name()
                )));
            }
            Some(now) if !same_type(old.data_type(), now.data_type()) => {
                return Err(Error::invalid(format!(
                    "column {} cannot change from {} to {} in a table with rows",
                    old.name(),
                    old.data_type(),
                    now.data_type()
                ))
                .remedy("write the table anew, or add a column under another name"));
            }
            Some(now) if old.is_nullable() && !now.is_nullable() => {
                return Err(Error::invalid(format!("column {} has been nullable and must stay so", old.name())));
            }
            Some(_) => {}
        }
    }
    let added = schema
        .fields()
        .iter()
        .find(|field| base.schema().field_with_name(field.name()).is_err() && !field.is_nullable());
    match added {
        Some(field) if stays => {
            Err(Error::invalid(format!("column {} is new in a table with rows and must be nullable", field.name())))
        }
        _ => Ok(()),
    }
}

/// Whether two types have the same stored form (views and names inside lists do not matter), or one is the other with more
/// fields inside.
fn same_type(old: &arrow::datatypes::DataType, new: &arrow::datatypes::DataType) -> bool {
    use arrow::datatypes::{DataType, Field};
    match (old, new) {
        (DataType::Struct(old), DataType::Struct(new)) => old.iter().all(|before| {
            new.iter().any(|now| now.name() == before.name() && same_type(before.data_type(), now.data_type()))
        }),
        (DataType::List(old), DataType::List(new)) => same_type(old.data_type(), new.data_type()),
        _ => {
            let stored = |kind: &DataType| to_delta(&Schema::new(vec![Field::new("x", kind.clone(), true)])).ok();
            stored(old) == stored(new)
        }
    }
}

fn check_properties(metadata: &Metadata) -> Result<()> {
    match in_use(metadata) {
        None => Ok(()),
        Some(feature) => {
            Err(Error::invalid(format!("a property asks for {feature}, which is not written here"))
                .remedy("leave it out"))
        }
    }
}
