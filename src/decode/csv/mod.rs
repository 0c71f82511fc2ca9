//! CSV: split, match, cast, a chunk at a time.
//!
//! Records are split in batches that fit the cache; each batch is then cast column by column. The chunks' borders mean
//! nothing: any chunk size gives the same rows, faults and rejects.

mod batch;
mod chunk;
mod feed;
mod head;
mod split;

use std::io::Read;
use std::sync::Arc;

use batch::{Batch, Stop};
use chunk::{Building, Layout};
use feed::Feed;
use head::Start;
use split::Splitter;

use super::again::{Form, Header};
use super::columns::Matching;
use super::{Chunk, DecodeError, Decoder, Options, Refusal};
use crate::error::Error;
use crate::schema::{Contract, Source};

/// Longest record that places of 31 bits allow, whatever the options say.
const MAX_RECORD: usize = 1 << 29;

/// Records of one batch: their text and fields stay in the cache while the columns are cast.
const BATCH_RECORDS: usize = 1024;

/// Opens decompressed content that is UTF-8, or bytes that are declared to be. A byte order mark is gone already.
///
/// # Errors
/// [`DecodeError::Refused`] when the header does not fit the contract or cannot be read.
pub fn open(
    contract: &Arc<Contract>,
    source: &Source,
    content: Box<dyn Read + Send>,
    options: &Options,
) -> Result<Box<dyn Decoder>, DecodeError> {
    begin(contract, source, content, options, Start::File)
}

/// The same for content made of a header line, if there is one, and records: nothing else is expected at its beginning.
///
/// # Errors
/// As [`open`].
pub(super) fn reopen(
    contract: &Arc<Contract>,
    source: &Source,
    content: Box<dyn Read + Send>,
    options: &Options,
    lone_returns: bool,
) -> Result<Box<dyn Decoder>, DecodeError> {
    begin(contract, source, content, options, Start::Header { lone_returns })
}

fn begin(
    contract: &Arc<Contract>,
    source: &Source,
    content: Box<dyn Read + Send>,
    options: &Options,
    start: Start,
) -> Result<Box<dyn Decoder>, DecodeError> {
    let dialect = &source.csv;
    if !dialect.delimiter.is_ascii() || dialect.quote.is_some_and(|quote| !quote.is_ascii()) {
        let error = Error::invalid(format!("{}: the delimiter and the quote must be ASCII", contract.table));
        return Err(error.remedy("declare a single ASCII character").into());
    }
    if contract.columns.is_empty() {
        return Err(Error::invalid(format!("{}: a CSV source needs declared columns", contract.table)).into());
    }
    let limit = options.record_limit.min(MAX_RECORD);
    let mut splitter = Splitter::new(dialect);
    let mut feed = Feed::new(content, options.chunk_bytes);
    let head = head::read(contract, dialect, &mut splitter, &mut feed, limit, start)?;
    let ended = head.matching.is_none();
    let matching = head.matching.unwrap_or_else(|| Matching { sources: Vec::new(), unknown: Vec::new() });
    let unknown_names = matching.unknown_names();
    let layout = Layout::new(contract, source, matching, head.fields, options)?;
    Ok(Box::new(CsvDecoder {
        splitter,
        feed,
        layout,
        batch: Batch::default(),
        header: head.text,
        unknown_names,
        line: head.line,
        record: 0,
        chunk_rows: options.chunk_rows.max(1),
        chunk_bytes: options.chunk_bytes.max(1),
        limit,
        ended,
    }))
}

struct CsvDecoder {
    splitter: Splitter,
    feed: Feed,
    layout: Layout,
    batch: Batch,
    /// The header line.
    header: Option<String>,
    unknown_names: Vec<String>,
    /// The physical line that comes next.
    line: i64,
    /// Records read so far.
    record: i64,
    chunk_rows: usize,
    chunk_bytes: usize,
    limit: usize,
    ended: bool,
}

impl Decoder for CsvDecoder {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, DecodeError> {
        let mut begin = self.feed.position;
        let mut building: Option<Building> = None;
        while !self.ended {
            if self.feed.is_done() {
                self.ended = true;
                break;
            }
            let (records, bytes) =
                building.as_ref().map_or((0, 0), |built| (built.records(), self.feed.position - begin));
            if records >= self.chunk_rows || bytes >= self.chunk_bytes {
                break;
            }
            let stop = self.split(begin, self.chunk_rows - records, self.chunk_bytes - bytes)?;
            if !self.batch.is_empty() {
                let room = self.room();
                let built = building.get_or_insert_with(|| Building::new(&self.layout, room));
                built.take(&self.layout, &mut self.batch, &self.feed.buffer)?;
            }
            if stop == Stop::Incomplete {
                if building.is_some() {
                    break;
                }
                self.feed.fill()?;
                begin = 0;
            } else if building.is_none() {
                begin = self.feed.position;
            }
        }
        let text = self.feed.buffer.slice(begin.min(self.feed.position)..self.feed.position);
        building.map(|built| built.finish(&self.layout, text)).transpose()
    }

    fn unknown_columns(&self) -> Vec<String> {
        self.unknown_names.clone()
    }

    fn header(&self) -> Option<Header> {
        Some(Header::new(Form::Csv, self.header.clone(), self.splitter.lone_returns))
    }
}

impl CsvDecoder {
    /// Splits one batch at the feed's position and moves behind it.
    fn split(&mut self, begin: usize, records: usize, bytes: usize) -> Result<Stop, DecodeError> {
        let outcome = self.batch.split(&batch::Text {
            splitter: &self.splitter,
            buffer: &self.feed.buffer,
            at_end: self.feed.at_end,
            base: self.feed.base,
            begin,
            stride: self.layout.stride(),
            records: records.min(BATCH_RECORDS),
            bytes,
            limit: self.limit,
            position: self.feed.position,
            line: self.line,
            record: self.record,
        })?;
        self.feed.position = outcome.position;
        self.line = outcome.line;
        self.record = outcome.record;
        Ok(outcome.stop)
    }

    /// How many rows the buffer can still hold, up to a chunk.
    fn room(&self) -> usize {
        let records_left = self.feed.rest().len() / (2 * self.layout.stride());
        (records_left + self.batch.rows()).min(self.chunk_rows)
    }
}

/// A refusal about a line.
fn refusal(rule: &str, reason: String, line: i64) -> Refusal {
    Refusal { rule: rule.to_owned(), reason, line: Some(line), byte_offset: None, column: None }
}

/// A text for messages: lossy, and not longer than a message may be.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(200).collect()
}

#[cfg(test)]
pub(crate) mod tests;
