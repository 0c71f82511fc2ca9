//! The lines of a commit in `_delta_log`, and the names of the log's files.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::DataFile;
use crate::error::{Error, Result};

/// What must not stand as it is in the path of an `add` or `remove`, which is a relative URI.
const URI_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b':');

/// The log's folder below the table's.
pub(super) const LOG: &str = "_delta_log";

/// The path of commit `version`.
pub(super) fn commit_path(folder: &str, version: i64) -> String {
    format!("{folder}/{LOG}/{version:020}.json")
}

/// A file of the log, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogName {
    /// A commit and its version.
    Commit(i64),
    /// A checkpoint's version, or that of a part of one.
    Checkpoint(i64),
}

impl LogName {
    /// Reads a file name; none for what is neither a commit nor a checkpoint.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (digits, rest) = name.split_once('.')?;
        if digits.len() != 20 {
            return None;
        }
        let version = digits.parse().ok()?;
        match rest {
            "json" => Some(Self::Commit(version)),
            rest => rest.starts_with("checkpoint.").then_some(Self::Checkpoint(version)),
        }
    }
}

/// A protocol action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub(super) min_reader_version: i32,
    pub(super) min_writer_version: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reader_features: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) writer_features: Option<Vec<String>>,
}

/// How data files are stored; always Parquet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Format {
    pub(super) provider: String,
    #[serde(default)]
    pub(super) options: BTreeMap<String, Option<String>>,
}

/// A metaData action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    pub(super) format: Format,
    pub(super) schema_string: String,
    pub(super) partition_columns: Vec<String>,
    #[serde(default)]
    pub(super) configuration: BTreeMap<String, Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) created_time: Option<i64>,
}

/// An add action.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    pub(super) path: String,
    pub(super) partition_values: BTreeMap<String, Option<String>>,
    pub(super) size: i64,
    pub(super) modification_time: i64,
    pub(super) data_change: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stats: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deletion_vector: Option<Value>,
}

/// A remove action.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remove {
    pub(super) path: String,
    #[serde(default)]
    pub(super) deletion_timestamp: Option<i64>,
    #[serde(default = "yes")]
    pub(super) data_change: bool,
    #[serde(default)]
    pub(super) extended_file_metadata: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) partition_values: Option<BTreeMap<String, Option<String>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stats: Option<String>,
}

const fn yes() -> bool {
    true
}

/// A txn action.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Txn {
    pub(super) app_id: String,
    pub(super) version: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_updated: Option<i64>,
}

/// One line of a commit. Actions that change neither rows nor schema (domain metadata, change files) are passed over.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) commit_info: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meta_data: Option<Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) txn: Option<Txn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) add: Option<Add>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remove: Option<Remove>,
}

/// The actions of one commit.
#[derive(Debug, Default)]
pub(super) struct Actions {
    pub(super) info: Option<Map<String, Value>>,
    pub(super) protocol: Option<Protocol>,
    pub(super) metadata: Option<Metadata>,
    pub(super) txns: Vec<Txn>,
    pub(super) adds: Vec<Add>,
    pub(super) removes: Vec<Remove>,
}

impl Actions {
    /// Reads the lines of a commit; `path` is for messages.
    pub(super) fn parse(bytes: &[u8], path: &str) -> Result<Self> {
        let mut actions = Self::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line: Line = serde_json::from_slice(line)
                .map_err(|e| Error::corrupt(format!("{path} has a line that is no Delta action")).because(e))?;
            actions.push(line);
        }
        Ok(actions)
    }

    /// Takes one line in.
    pub(super) fn push(&mut self, line: Line) {
        self.info = line.commit_info.or(self.info.take());
        self.protocol = line.protocol.or(self.protocol.take());
        self.metadata = line.meta_data.or(self.metadata.take());
        self.txns.extend(line.txn);
        self.adds.extend(line.add);
        self.removes.extend(line.remove);
    }

    /// The text of the commit, commitInfo first.
    pub(super) fn to_text(&self) -> Result<Vec<u8>> {
        let mut text = Vec::with_capacity(1024 + self.adds.len() * 1024);
        let mut put = |line: Line| -> Result<()> {
            serde_json::to_writer(&mut text, &line).map_err(|e| Error::internal("delta action").because(e))?;
            text.push(b'\n');
            Ok(())
        };
        put(Line { commit_info: self.info.clone(), ..Line::default() })?;
        if self.protocol.is_some() {
            put(Line { protocol: self.protocol.clone(), ..Line::default() })?;
        }
        if self.metadata.is_some() {
            put(Line { meta_data: self.metadata.clone(), ..Line::default() })?;
        }
        for txn in &self.txns {
            put(Line { txn: Some(txn.clone()), ..Line::default() })?;
        }
        for remove in &self.removes {
            put(Line { remove: Some(remove.clone()), ..Line::default() })?;
        }
        for add in &self.adds {
            put(Line { add: Some(add.clone()), ..Line::default() })?;
        }
        Ok(text)
    }

    /// Milliseconds since 1970 of the commit, as commitInfo says.
    pub(super) fn committed_ms(&self) -> Option<i64> {
        let info = self.info.as_ref()?;
        info.get("inCommitTimestamp").or_else(|| info.get("timestamp"))?.as_i64()
    }
}

/// The form of a path in the log.
pub(super) fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, URI_PATH).to_string()
}

/// The path that an `add` or `remove` names, below the table's folder.
pub(super) fn decode_path(path: &str) -> Result<String> {
    let decoded = percent_decode_str(path)
        .decode_utf8()
        .map_err(|e| Error::corrupt(format!("`{path}` in the log is no UTF-8 path")).because(e))?;
    let is_absolute = decoded.starts_with('/') || decoded.split('/').next().is_some_and(|first| first.ends_with(':'));
    if is_absolute || decoded.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(Error::invalid(format!("the log names `{path}`, which is not below the table's folder"))
            .remedy("tables that share files with another one (shallow clones) cannot be read: copy them instead"));
    }
    Ok(decoded.into_owned())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RowCount {
    num_records: Option<u64>,
}

/// The number of rows that Delta statistics tell.
pub(super) fn rows_of(stats: Option<&str>) -> Option<u64> {
    serde_json::from_str::<RowCount>(stats?).ok()?.num_records
}

impl DataFile {
    pub(super) fn from_add(add: Add) -> Result<Self> {
        Ok(Self {
            path: decode_path(&add.path)?,
            size: u64::try_from(add.size).unwrap_or(0),
            modified_ms: add.modification_time,
            partition_values: add.partition_values,
            rows: rows_of(add.stats.as_deref()),
            stats: add.stats,
        })
    }

    pub(super) fn from_remove(remove: Remove) -> Result<Self> {
        Ok(Self {
            path: decode_path(&remove.path)?,
            size: remove.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
            modified_ms: remove.deletion_timestamp.unwrap_or(0),
            partition_values: remove.partition_values.unwrap_or_default(),
            rows: rows_of(remove.stats.as_deref()),
            stats: remove.stats,
        })
    }

    pub(super) fn to_add(&self, data_change: bool) -> Add {
        Add {
            path: encode_path(&self.path),
            partition_values: self.partition_values.clone(),
            size: i64::try_from(self.size).unwrap_or(i64::MAX),
            modification_time: self.modified_ms,
            data_change,
            stats: self.stats.clone(),
            deletion_vector: None,
        }
    }

    /// `path` is the file's, as its add spells it.
    pub(super) fn to_remove(&self, path: String, at_ms: i64, data_change: bool) -> Remove {
        Remove {
            path,
            deletion_timestamp: Some(at_ms),
            data_change,
            extended_file_metadata: Some(true),
            partition_values: Some(self.partition_values.clone()),
            size: Some(i64::try_from(self.size).unwrap_or(i64::MAX)),
            stats: self.rows.map(|rows| format!("{{\"numRecords\":{rows}}}")),
        }
    }
}
