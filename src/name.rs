//! Names that are parsed once and never passed around as raw strings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// The layers a contract may declare tables in.
pub const LAYERS: [&str; 6] = ["raw", "aggregate", "curated", "bronze", "silver", "gold"];

/// A table's name, `<layer>/<table>`: the two folders below the lake, and `layer.table` in SQL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    layer: String,
    table: String,
}

impl TableName {
    /// The layer, the first folder.
    #[must_use]
    pub fn layer(&self) -> &str {
        &self.layer
    }

    /// The table within its layer.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }
}

fn is_word(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

impl FromStr for TableName {
    type Err = Error;

    /// Accepts `raw/trips` and `raw.trips`.
    fn from_str(text: &str) -> Result<Self> {
        let Some((layer, table)) = text.split_once(['/', '.']) else {
            return Err(Error::invalid(format!("`{text}` is no table name: expected <layer>/<table>")));
        };
        if !LAYERS.contains(&layer) {
            return Err(Error::invalid(format!("`{layer}` is no layer: expected one of {}", LAYERS.join(", "))));
        }
        if !is_word(table) {
            return Err(Error::invalid(format!(
                "`{table}` is no table name: lower-case letters, digits and _ only, beginning with a letter"
            )));
        }
        Ok(Self { layer: layer.to_owned(), table: table.to_owned() })
    }
}

impl TryFrom<String> for TableName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.layer, self.table)
    }
}

/// What a batch is, whoever delivers it and however often: 32 hex digits of a SHA-256 over its identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(String);

impl BatchId {
    /// The identity of a file version: table id, path below the landing zone, etag.
    #[must_use]
    pub fn of_file(table_id: &str, path: &str, etag: &str) -> Self {
        Self(short_hash(&["file", table_id, path, etag]))
    }

    /// The identity of a redrive: the batch whose refused records are read again, the contract that reads them, and which
    /// records (none for a file that was refused whole).
    #[must_use]
    pub fn of_redrive(table_id: &str, of: &Self, contract_hash: &str, records: &[i64]) -> Self {
        let records: Vec<String> = records.iter().map(ToString::to_string).collect();
        Self(short_hash(&["redrive", table_id, &of.0, contract_hash, &records.join(",")]))
    }

    /// The identity of a piece of a stream: table id, topic, incarnation, partition, first and last offset.
    #[must_use]
    pub fn of_range(table_id: &str, topic: &str, epoch: Option<&str>, partition: i32, offsets: (i64, i64)) -> Self {
        let numbers = [i64::from(partition), offsets.0, offsets.1].map(|number| number.to_string());
        // No incarnation is none of those that can be declared.
        let epoch = epoch.map_or_else(String::new, |epoch| format!("={epoch}"));
        let [partition, first, last] = &numbers;
        Self(short_hash(&["stream", table_id, topic, &epoch, partition, first, last]))
    }

    /// The text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for BatchId {
    /// A batch id read back from a file name or a table.
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// 32 hex digits of the SHA-256 of the parts, each preceded by its length so that no two lists of parts read alike.
#[must_use]
pub fn short_hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize()[..16])
}

/// Lower-case hex digits of some bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
