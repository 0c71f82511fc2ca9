//! The beginning of a file, its format, and how it is written if it is CSV.

use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};

use super::no_dialect;
use crate::decode::{DecodeError, plain_content};
use crate::error::Error;
use crate::schema::{CsvDialect, Format};

/// Most bytes of text that are looked at.
const BYTES: usize = 16 << 20;
/// Records that the delimiter is judged by.
const SNIFFED: usize = 50;

/// A part of a file that can be decoded any number of times.
pub(super) struct Sample {
    pub format: Format,
    pub dialect: CsvDialect,
    /// Names of the header, or made up ones; CSV only.
    pub header: Vec<String>,
    /// What a person should know about the guesses.
    pub notes: Vec<String>,
    body: Body,
}

enum Body {
    Text(Vec<u8>),
    Columnar(File),
}

impl Sample {
    /// Reads as much of a file as is needed.
    pub(super) fn take(reader: Box<dyn Read + Send>, file_name: &str) -> Result<Self, DecodeError> {
        let mut content = plain_content(reader)?;
        let mut text = Vec::new();
        content.by_ref().take(4).read_to_end(&mut text)?;
        if text.starts_with(b"PAR1") {
            let mut file = tempfile::tempfile()?;
            std::io::copy(&mut Cursor::new(text).chain(content), &mut file)?;
            let (dialect, header, notes) = (no_dialect(), Vec::new(), Vec::new());
            return Ok(Self { format: Format::Parquet, dialect, header, notes, body: Body::Columnar(file) });
        }
        content.by_ref().take(BYTES as u64).read_to_end(&mut text)?;
        if text.is_empty() {
            let empty = Error::invalid("the file is empty").remedy("give a file with data");
            return Err(DecodeError::Read(empty));
        }
        if text.len() > BYTES {
            // The last line may be cut; without it the sample is whole.
            let end = memchr::memrchr(b'\n', &text).map_or(text.len(), |last| last + 1);
            text.truncate(end);
        }
        let mut sample = Self {
            format: Format::Csv,
            dialect: no_dialect(),
            header: Vec::new(),
            notes: Vec::new(),
            body: Body::Text(Vec::new()),
        };
        let readable = sample.readable(&text);
        sample.format = format_of(&readable, file_name);
        if sample.format == Format::Csv {
            sample.sniff(&readable)?;
        }
        sample.body = Body::Text(text);
        Ok(sample)
    }

    /// The sample's content, from its beginning.
    pub(super) fn content(&self) -> Result<Box<dyn Read + Send>, DecodeError> {
        match &self.body {
            Body::Text(text) => Ok(Box::new(Cursor::new(text.clone()))),
            Body::Columnar(file) => {
                let mut again = file.try_clone()?;
                again.seek(SeekFrom::Start(0))?;
                Ok(Box::new(again))
            }
        }
    }

    /// The sample as text, for looking at. Declares an encoding when it is not UTF-8.
    fn readable(&mut self, bytes: &[u8]) -> String {
        if let Some((encoding, mark)) = encoding_rs::Encoding::for_bom(bytes) {
            return encoding.decode_without_bom_handling(&bytes[mark..]).0.into_owned();
        }
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => return text.to_owned(),
            Err(error) => error,
        };
        // A character cut by the sample's end is no reason to doubt.
        if error.error_len().is_some() {
            self.dialect.encoding = "windows-1252".to_owned();
            self.notes.push(format!("byte {} is not UTF-8; windows-1252 is a guess", error.valid_up_to()));
        }
        encoding_rs::WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned()
    }

    fn sniff(&mut self, text: &str) -> Result<(), DecodeError> {
        let mut best = (1, b',');
        for delimiter in *b",;\t|" {
            let records = records(text, delimiter, SNIFFED);
            let Some(first) = records.first() else { continue };
            let alike = records.iter().filter(|record| record.len() == first.len()).count();
            if first.len() > best.0 && alike * 10 >= records.len() * 8 {
                best = (first.len(), delimiter);
            }
        }
        self.dialect.delimiter = best.1;
        let records = records(text, best.1, SNIFFED);
        let Some(first) = records.first() else { return Ok(()) };
        if looks_like_header(first) {
            for (index, name) in first.iter().enumerate() {
                if first[..index].contains(name) {
                    let message = format!("the header has column `{name}` twice");
                    return Err(Error::invalid(message).remedy("give the columns different names").into());
                }
            }
            self.header.clone_from(first);
            return Ok(());
        }
        self.dialect.header = false;
        self.notes.push("the first line looks like data, so the columns have made up names".to_owned());
        self.header = (1..=first.len()).map(|number| format!("column_{number}")).collect();
        Ok(())
    }
}

/// Names are words: not empty, all different in kind from numbers and dates.
fn looks_like_header(fields: &[String]) -> bool {
    fields.iter().all(|field| {
        let text = field.trim();
        !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
            || text.contains(|c: char| c.is_alphabetic()) && text.parse::<f64>().is_err()
    })
}

fn format_of(text: &str, file_name: &str) -> Format {
    let name = file_name.to_ascii_lowercase();
    if [".csv", ".tsv", ".psv"].iter().any(|extension| name.contains(extension)) {
        return Format::Csv;
    }
    let start = text.trim_start();
    if start.starts_with('[') {
        return Format::Json;
    }
    if !start.starts_with('{') {
        return Format::Csv;
    }
    let first_line = start.lines().next().unwrap_or_default();
    if serde_json::from_str::<serde::de::IgnoredAny>(first_line).is_ok() { Format::Ndjson } else { Format::Json }
}

/// The first records of CSV text: quotes are doubled, blank lines are none.
fn records(text: &str, delimiter: u8, most: usize) -> Vec<Vec<String>> {
    let mut records = Vec::new();
    let mut record: Vec<String> = Vec::new();
    let mut field = String::new();
    let (mut quoted, mut was_quoted) = (false, false);
    let mut chars = text.chars().peekable();
    let delimiter = char::from(delimiter);
    while let Some(c) = chars.next() {
        if quoted {
            match c {
                '"' if chars.peek() == Some(&'"') => {
                    chars.next();
                    field.push('"');
                }
                '"' => quoted = false,
                other => field.push(other),
            }
            continue;
        }
        match c {
            '"' if field.is_empty() && !was_quoted => (quoted, was_quoted) = (true, true),
            '\r' if chars.peek().is_none_or(|next| matches!(next, '\n' | '\r')) => {}
            '\n' => {
                if !(record.is_empty() && field.is_empty() && !was_quoted) {
                    record.push(std::mem::take(&mut field));
                    records.push(std::mem::take(&mut record));
                }
                was_quoted = false;
                if records.len() == most {
                    return records;
                }
            }
            other if other == delimiter => {
                record.push(std::mem::take(&mut field));
                was_quoted = false;
            }
            other => field.push(other),
        }
    }
    if !record.is_empty() || !field.is_empty() {
        record.push(field);
        records.push(record);
    }
    records
}
