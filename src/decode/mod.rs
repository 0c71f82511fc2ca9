//! Bytes of a landed file -> typed rows, faults and refused records. Pure: no async, no storage.
//!
//! [`open`] looks at the content (magic bytes decide about compression), reads the header and gives a [`Decoder`] that
//! streams [`Chunk`]s. A record whose *shape* is wrong (too few fields, no JSON object) is a [`Reject`] at once; a record
//! with a cell that cannot be cast stays in `rows` with null in that cell and a [`Fault`], because declared rules may
//! speak for it or be broken as well. `quality` turns both into accepted rows and rejects.

pub mod again;
mod assemble;
pub mod columns;
pub mod csv;
pub mod debezium;
mod input;
mod json;
mod parquet;
mod places;
mod row_json;
#[cfg(test)]
pub(crate) mod testing;
mod transcode;

use std::fmt;
use std::io::Read;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;

use crate::error::Error;
use crate::schema::{Contract, Format, Source};

/// Records of one file, in file order.
#[derive(Debug)]
pub struct Chunk {
    /// One row per record of usable shape: the contract's columns in contract order, then `_rescued` (Utf8; only under
    /// `unknown_columns: rescue`), then columns to be added (Utf8; only under `add`), then `_row` (Int64, from 1).
    pub rows: RecordBatch,
    /// Cells of `rows` that could not be cast or are missing; ordered by row.
    pub faults: Vec<Fault>,
    /// For each row of `rows`, the text (or JSON text) of the wanted raw columns as they came: Utf8, in the order wanted.
    pub raw_columns: RecordBatch,
    /// The record behind each row of `rows`.
    pub raw: Raw,
    /// Records of unusable shape.
    pub rejects: Vec<Reject>,
    /// Records left out by declaration.
    pub ignored: u64,
}

/// A cell that did not become a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Row of the chunk, from 0.
    pub row: usize,
    /// Column of the contract, from 0.
    pub column: usize,
    /// Cast failed, or null where null is not allowed.
    pub kind: FaultKind,
    /// The text as it came (lossy only where it is not UTF-8); none when there was none.
    pub value: Option<String>,
    /// Why, for people: lower case, without a full stop.
    pub reason: String,
}

/// What is wrong with a cell; names the built-in rule `<column>_invalid` or `<column>_missing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The value fails its cast, its length or its format.
    Invalid,
    /// Null in a column that is not nullable.
    Missing,
}

/// A refused record, whole. DESIGN section 1, quarantine of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Number of the record, from 1; none for a whole file.
    pub record: Option<i64>,
    /// Physical line on which it begins, from 1; none for Parquet.
    pub line: Option<i64>,
    /// Offset of its first byte in the decompressed, undecoded content; none for Parquet.
    pub byte_offset: Option<i64>,
    /// Its bytes without the line end (for Parquet the row as JSON).
    pub raw: Vec<u8>,
    /// Names of all rules it breaks.
    pub rules: Vec<String>,
    /// One entry for each broken column or rule.
    pub reasons: Vec<Reason>,
}

/// Why a record was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The column; none for a fault of the record's shape.
    pub column: Option<String>,
    /// The rule: `<column>_invalid`, `<column>_missing`, a declared name, or a shape rule such as `field_count`.
    pub rule: String,
    /// The offending text and why, for people.
    pub value: Option<String>,
}

/// The bytes behind the rows of a chunk.
#[derive(Debug, Clone)]
pub enum Raw {
    /// Text formats: a buffer and, for each row, where its record lies.
    Text {
        /// The buffer.
        bytes: Bytes,
        /// For each row: start and end in `bytes`, without the line end.
        spans: Vec<(u32, u32)>,
        /// For each row: the physical line where it begins, from 1.
        lines: Vec<i64>,
        /// For each row: offset of its first byte in the decompressed content.
        offsets: Vec<i64>,
    },
    /// Columnar formats: the rows as they came; a record's bytes are its JSON text.
    Rows(RecordBatch),
}

/// A whole file that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The rule, such as `header_mismatch`, `not_utf8`, `truncated_gzip`.
    pub rule: String,
    /// What is wrong, where, and what to do; names columns and lines.
    pub reason: String,
    /// Physical line, when there is one.
    pub line: Option<i64>,
    /// Offset in the decompressed content, when there is one.
    pub byte_offset: Option<i64>,
    /// The column, when it is about one.
    pub column: Option<String>,
}

/// Why decoding stopped.
#[derive(Debug)]
pub enum DecodeError {
    /// The file is refused whole.
    Refused(Refusal),
    /// Reading failed; nothing is known about the file.
    Read(Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.reason)
    }
}

impl std::error::Error for Refusal {}

/// A stream that is broken by itself travels as an I/O error until a decoder meets it.
impl From<Refusal> for std::io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, refusal)
    }
}

/// A broken stream (see [`Refusal`]) refuses the file; any other I/O error says nothing about it.
impl From<std::io::Error> for DecodeError {
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<Refusal>() {
            Ok(refusal) => Self::Refused(refusal),
            Err(other) => Self::Read(other.into()),
        }
    }
}

impl From<Error> for DecodeError {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl From<Refusal> for DecodeError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// How to decode, beyond what the contract says.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most records in a chunk.
    pub chunk_rows: usize,
    /// Most bytes of text in a chunk (one longer record makes a chunk of its own).
    pub chunk_bytes: usize,
    /// Longest record in bytes; a longer one refuses the file and names this limit.
    pub record_limit: usize,
    /// Greatest window that a zstd stream may ask for, as a power of two: what one stream holds in memory.
    pub zstd_window_log: u32,
    /// Contract columns whose raw text the rules ask for.
    pub raw_columns: Vec<usize>,
}

impl Options {
    /// What fits into `memory` bytes: a record is held up to three times while it is read, and a chunk once as text and
    /// once as columns.
    #[must_use]
    pub fn within(memory: u64) -> Self {
        let default = Self::default();
        let share = |part: u64, most: usize| usize::try_from(memory / part).unwrap_or(usize::MAX).min(most);
        let window = share(4, 1 << default.zstd_window_log).max(1).ilog2();
        Self {
            chunk_bytes: share(64, default.chunk_bytes).max(LEAST),
            record_limit: share(8, default.record_limit).max(LEAST),
            zstd_window_log: window.max(LEAST_WINDOW_LOG),
            ..default
        }
    }
}

/// Fewer bytes than this are no chunk.
const LEAST: usize = 64 << 10;
/// Windows that every writer of zstd may ask for: 8 MiB, as the format recommends.
const LEAST_WINDOW_LOG: u32 = 23;

impl Default for Options {
    fn default() -> Self {
        Self {
            chunk_rows: 16_384,
            chunk_bytes: 4 << 20,
            record_limit: 256 << 20,
            zstd_window_log: 27,
            raw_columns: Vec::new(),
        }
    }
}

/// One value as text: strings as they are, null as none, nested values as JSON.
pub(crate) fn value_text(array: &arrow::array::ArrayRef, row: usize) -> crate::error::Result<Option<String>> {
    row_json::text(array, row)
}

/// Each row of a columnar file as a JSON object, nulls included: the bytes of its record.
pub(crate) fn row_objects(rows: &RecordBatch) -> crate::error::Result<Vec<Vec<u8>>> {
    row_json::objects(rows, true)
}

/// The members of the one JSON object that `text` is, in order, values as text.
pub(crate) fn json_members(
    text: &str,
) -> Result<Vec<(std::borrow::Cow<'_, str>, &serde_json::value::RawValue)>, serde_json::Error> {
    json::members(text)
}

/// Content without its gzip or zstd layer, for looking at.
pub(crate) fn plain_content(reader: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>, DecodeError> {
    Ok(input::decompressed(reader, Options::default().zstd_window_log)?)
}

/// A stream of chunks.
pub trait Decoder: Send {
    /// The next chunk; none at the end of the file.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, DecodeError>;
    /// Columns of the file that the contract does not name, as far as they are known by now.
    fn unknown_columns(&self) -> Vec<String>;
    /// What a refused record needs, beside its own bytes, to be read again; none when its bytes are not enough all the same.
    fn header(&self) -> Option<again::Header>;
}

/// Looks at the content and opens the decoder that the contract's format names.
///
/// # Errors
/// [`DecodeError::Refused`] when the file cannot be taken as a whole (header mismatch, bad compression, no Parquet). Files of
/// change events are not decoded into columns: see [`debezium::EventFile`].
pub fn open(
    contract: &Arc<Contract>,
    source: &Source,
    reader: Box<dyn Read + Send>,
    options: &Options,
) -> Result<Box<dyn Decoder>, DecodeError> {
    if source.format == Format::Debezium {
        return Err(Error::internal(format!("{}: change events have no columns", contract.table)).into());
    }
    let content = input::decompressed(reader, options.zstd_window_log)?;
    if source.format == Format::Parquet {
        return parquet::open(contract, content, options);
    }
    let (text, places) = input::text(content, &source.csv.encoding)?;
    let decoder = match source.format {
        Format::Csv => csv::open(contract, source, text, options)?,
        _ => json::open(contract, source, text, options)?,
    };
    Ok(places::Placed::wrap(decoder, places))
}
