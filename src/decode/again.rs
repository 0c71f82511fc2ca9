//! Refused records, read again from what was kept of them: their own text, and what their file said of all its records.
//!
//! Many are read at once, as a file made of nothing but them. One whose text is another number of records today (a quote or
//! a comment was declared since) would speak for its neighbours: then they are halved, until it is alone and stays refused.

use std::borrow::Cow;
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use encoding_rs::{Encoding, UTF_8};
use serde::{Deserialize, Serialize};

use super::{Chunk, DecodeError, Decoder, Options, Raw, Refusal, csv, json};
use crate::error::{Error, Result};
use crate::schema::lineage::ROW;
use crate::schema::{Contract, Format, Source};

/// What a record of a text file needs, beside its own bytes, to be read again. Stored once for the refused records of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Format version, 1.
    pub version: u32,
    /// What the file was read as.
    pub form: Form,
    /// The header line of a CSV file without its line end; none when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Whether a carriage return alone ends a line of a CSV file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lone_returns: bool,
    /// The encoding that what is kept was decoded from; none when it is the file's own bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Whether the file's byte order mark named the encoding, and not the contract.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub marked: bool,
}

/// How records of text follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// CSV.
    Csv,
    /// JSON, a value a line or not.
    Json,
}

impl Form {
    fn of(format: Format) -> Option<Self> {
        match format {
            Format::Csv => Some(Self::Csv),
            Format::Json | Format::Ndjson => Some(Self::Json),
            Format::Parquet | Format::Debezium => None,
        }
    }
}

impl Header {
    /// Of a file of UTF-8 without a byte order mark.
    pub(super) const fn new(form: Form, line: Option<String>, lone_returns: bool) -> Self {
        Self { version: 1, form, line, lone_returns, encoding: None, marked: false }
    }

    /// The stored form.
    ///
    /// # Errors
    /// None that is known of.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::internal("a header has no JSON form").because(e))
    }

    /// From the stored form.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Corrupt`] when it is another.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| {
            Error::corrupt("quarantine: the header of a batch cannot be read")
                .because(e)
                .remedy("it was written by a newer version of this program: upgrade")
        })
    }
}

/// Why records cannot be read again from what was kept of them.
#[derive(Debug)]
pub enum Hindrance {
    /// Their file can be read all the same.
    NeedsFile(String),
    /// The contract reads their file in another way now: the numbers of its records mean other records.
    OtherRecords(String),
    /// The contract refuses what their file said of all of them.
    Refused(Refusal),
    /// Nothing is known about them.
    Failed(Error),
}

impl From<Error> for Hindrance {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<DecodeError> for Hindrance {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Refused(refusal) => Self::Refused(refusal),
            DecodeError::Read(error) => Self::Failed(error),
        }
    }
}

/// A refused record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its number in its file.
    pub record: i64,
    /// The physical line on which it begins.
    pub line: i64,
    /// Where it begins in its file.
    pub byte_offset: i64,
    /// Its bytes, as quarantine keeps them.
    pub raw: Vec<u8>,
}

/// Reads the refused records of one file again, under today's contract.
#[derive(Debug)]
pub struct Rereader {
    contract: Arc<Contract>,
    source: Source,
    options: Options,
    /// What the kept bytes are decoded from; none when they are text.
    encoding: Option<&'static Encoding>,
    lone_returns: bool,
    /// What the made file begins with.
    head: Vec<u8>,
}

impl Rereader {
    /// For records of a file that said `header`.
    ///
    /// # Errors
    /// What is in the way under the contract of today.
    pub fn new(
        contract: &Arc<Contract>,
        source: &Source,
        header: &Header,
        options: Options,
    ) -> Result<Self, Hindrance> {
        let encoding = encoding(source, header)?;
        let mut reader = Self {
            contract: Arc::clone(contract),
            source: source.clone(),
            options,
            encoding,
            lone_returns: header.lone_returns,
            head: Vec::new(),
        };
        if let Some(line) = header.line.as_ref().filter(|_| source.csv.header) {
            let Some(text) = reader.text(line.as_bytes()) else {
                let name = encoding.unwrap_or(UTF_8).name();
                return Err(Hindrance::Refused(refusal("not_utf8", format!("header `{line}` is not {name}"))));
            };
            let text = text.into_owned();
            reader.head.extend_from_slice(&text);
            reader.head.push(b'\n');
        }
        // A header that the contract refuses is refused once, and not once for each record.
        reader.open(reader.head.clone())?;
        Ok(reader)
    }

    /// Reads records. Those that have no usable shape, or are not one record today, are in no chunk.
    ///
    /// # Errors
    /// Only what no record is the cause of.
    pub fn read(&self, kept: &[Kept]) -> Result<Vec<Chunk>> {
        let texts: Vec<(&Kept, Cow<'_, [u8]>)> =
            kept.iter().filter_map(|record| Some((record, self.text(&record.raw)?))).collect();
        let mut chunks = Vec::new();
        let mut open = vec![texts.as_slice()];
        while let Some(part) = open.pop() {
            match self.together(part)? {
                Some(found) => chunks.extend(found),
                None if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    open.extend([second, first]);
                }
                None => {}
            }
        }
        Ok(chunks)
    }

    /// Kept bytes as UTF-8; none when the encoding has no such text. Bytes of UTF-8 stay as they are, valid or not.
    fn text<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let Some(encoding) = self.encoding else { return Some(Cow::Borrowed(bytes)) };
        match encoding.decode_without_bom_handling_and_without_replacement(bytes)? {
            Cow::Borrowed(text) => Some(Cow::Borrowed(text.as_bytes())),
            Cow::Owned(text) => Some(Cow::Owned(text.into_bytes())),
        }
    }

    fn open(&self, content: Vec<u8>) -> Result<Box<dyn Decoder>, DecodeError> {
        let content = Box::new(Cursor::new(content));
        match self.source.format {
            Format::Csv => csv::reopen(&self.contract, &self.source, content, &self.options, self.lone_returns),
            _ => json::open(&self.contract, &self.source, content, &self.options),
        }
    }

    /// The chunks of some records; none when their texts together are other records than theirs.
    fn together(&self, part: &[(&Kept, Cow<'_, [u8]>)]) -> Result<Option<Vec<Chunk>>> {
        let mut content = self.head.clone();
        for (_, text) in part {
            content.extend_from_slice(text);
            content.push(b'\n');
        }
        let mut chunks = Vec::new();
        let mut seen = 0;
        let outcome = self.open(content).and_then(|mut decoder| {
            while let Some(chunk) = decoder.next_chunk()? {
                let records = chunk.rows.num_rows() + chunk.rejects.len();
                let Some(chunk) = placed(chunk, part)? else { return Ok(false) };
                seen += records;
                chunks.push(chunk);
            }
            Ok(seen == part.len())
        });
        match outcome {
            Ok(true) => Ok(Some(chunks)),
            Ok(false) | Err(DecodeError::Refused(_)) => Ok(None),
            Err(DecodeError::Read(error)) => Err(error),
        }
    }
}

/// The encoding that kept bytes are in; none when they are text already.
fn encoding(source: &Source, header: &Header) -> Result<Option<&'static Encoding>, Hindrance> {
    let label = &source.csv.encoding;
    let today = Encoding::for_label(label.as_bytes())
        .ok_or_else(|| Hindrance::Failed(Error::invalid(format!("`{label}` is no character encoding"))))?;
    if Form::of(source.format) != Some(header.form) {
        return Err(Hindrance::OtherRecords("the contract declares another format now".to_owned()));
    }
    if header.form == Form::Csv && source.csv.header && header.line.is_none() {
        return Err(Hindrance::OtherRecords(
            "they were read without a header line, and now one is declared".to_owned(),
        ));
    }
    match &header.encoding {
        Some(_) if header.marked => Ok(None),
        Some(name) if name == today.name() => Ok(None),
        Some(name) => Err(Hindrance::NeedsFile(format!(
            "they are kept as text that was read as {}, and now {label} is declared",
            name.to_lowercase()
        ))),
        None if today == UTF_8 => Ok(None),
        None if today.is_ascii_compatible() => Ok(Some(today)),
        None => Err(Hindrance::NeedsFile(format!("they were not read as {label}, which is declared now"))),
    }
}

/// A chunk of a made file with the places of its records in their own file; none when its records are not theirs.
fn placed(chunk: Chunk, part: &[(&Kept, Cow<'_, [u8]>)]) -> Result<Option<Chunk>> {
    let of = |number: i64| usize::try_from(number - 1).ok().and_then(|index| part.get(index));
    let Raw::Text { bytes, spans, .. } = &chunk.raw else {
        return Err(Error::internal("a record of text that was read as none"));
    };
    for reject in &chunk.rejects {
        let is_same = reject.record.and_then(of).is_some_and(|(_, text)| text[..] == reject.raw[..]);
        if !is_same {
            return Ok(None);
        }
    }
    let numbers = chunk.rows.column_by_name(ROW).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let numbers = numbers.ok_or_else(|| Error::internal("a chunk without record numbers"))?;
    let mut found: Vec<&Kept> = Vec::with_capacity(spans.len());
    for (number, (start, end)) in numbers.values().iter().zip(spans) {
        match of(*number) {
            Some((kept, text)) if bytes.get(*start as usize..*end as usize) == Some(text) => found.push(kept),
            _ => return Ok(None),
        }
    }
    let schema = chunk.rows.schema();
    let mut columns: Vec<ArrayRef> = chunk.rows.columns().to_vec();
    let position = schema.index_of(ROW).map_err(Error::from)?;
    columns[position] = Arc::new(found.iter().map(|kept| kept.record).collect::<Int64Array>());
    let raw = Raw::Text {
        bytes: bytes.clone(),
        spans: spans.clone(),
        lines: found.iter().map(|kept| kept.line).collect(),
        offsets: found.iter().map(|kept| kept.byte_offset).collect(),
    };
    let rows = RecordBatch::try_new(schema, columns)?;
    Ok(Some(Chunk { rows, raw, rejects: Vec::new(), ..chunk }))
}

fn refusal(rule: &str, reason: String) -> Refusal {
    Refusal { rule: rule.to_owned(), reason, line: None, byte_offset: None, column: None }
}

#[cfg(test)]
mod tests;
