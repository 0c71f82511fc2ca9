//! The beginning of a file: line ends, skipped lines, `sep=`, header.

use super::feed::Feed;
use super::split::{Piece, Splitter};
use super::{refusal, shown};
use crate::decode::columns::{Matching, by_position, match_columns};
use crate::decode::{DecodeError, Refusal};
use crate::schema::{Contract, CsvDialect};

/// What a file begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Whatever files begin with.
    File,
    /// The header line, or the first record: the lines before it are not there, and how lines end is known.
    Header { lone_returns: bool },
}

/// The first part of a file, read.
pub(super) struct Head {
    /// Which column is which; none when the file ends before its header.
    pub(super) matching: Option<Matching>,
    /// How many fields a record has.
    pub(super) fields: usize,
    /// The header without its line end; none in a file without one.
    pub(super) text: Option<String>,
    /// The physical line that comes next.
    pub(super) line: i64,
}

/// Reads up to the first record.
pub(super) fn read(
    contract: &Contract,
    dialect: &CsvDialect,
    splitter: &mut Splitter,
    feed: &mut Feed,
    limit: usize,
    start: Start,
) -> Result<Head, DecodeError> {
    let mut line = 1;
    let mut declared = None;
    match start {
        Start::Header { lone_returns } => splitter.lone_returns = lone_returns,
        Start::File => {
            splitter.lone_returns = lone_returns(feed, limit)?;
            for _ in 0..dialect.skip_rows {
                match physical_line(splitter, feed, line, limit)? {
                    Some((_, next)) => feed.position = next,
                    None => break,
                }
                line += 1;
            }
            declared = separator_line(contract, dialect, splitter, feed, line, limit)?;
            line += i64::from(declared.is_some());
        }
    }
    if !dialect.header {
        let fields = contract.columns.len();
        return Ok(Head { matching: Some(by_position(contract)), fields, text: None, line });
    }
    let Some(header) = header(splitter, feed, &mut line, limit)? else {
        return Ok(Head { matching: None, fields: 1, text: None, line });
    };
    let matching = match_columns(contract, &header.names, &header.text).map_err(|mut refused| {
        refused.line = Some(header.line);
        refused.byte_offset = Some(header.offset);
        if let Some(separator) = declared.filter(|separator| *separator != dialect.delimiter) {
            refused.reason.push_str(&format!(
                "; the file's sep= line says `{}`, the contract's delimiter is `{}`",
                char::from(separator),
                char::from(dialect.delimiter)
            ));
        }
        refused
    })?;
    Ok(Head { matching: Some(matching), fields: header.names.len(), text: Some(header.text), line })
}

/// Whether carriage returns alone end lines: the first line end of the file tells.
fn lone_returns(feed: &mut Feed, limit: usize) -> Result<bool, DecodeError> {
    loop {
        let bytes = feed.rest();
        let first = memchr::memchr2(b'\n', b'\r', bytes);
        let after = first.and_then(|at| bytes.get(at..)).and_then(|rest| rest.iter().find(|byte| **byte != b'\r'));
        match (first.and_then(|at| bytes.get(at)), after) {
            (Some(b'\r'), Some(after)) => return Ok(*after != b'\n'),
            (Some(b'\n'), _) => return Ok(false),
            _ if feed.at_end => return Ok(false),
            _ if bytes.len() > limit => return Err(too_long(1, limit).into()),
            _ => feed.fill()?,
        }
    }
}

/// End of the physical line at the feed's position, and where the next begins; none at the end of the file.
fn physical_line(
    splitter: &Splitter,
    feed: &mut Feed,
    line: i64,
    limit: usize,
) -> Result<Option<(usize, usize)>, DecodeError> {
    loop {
        if feed.is_done() {
            return Ok(None);
        }
        if let Some(found) = splitter.line_end(&feed.buffer, feed.position, feed.at_end) {
            return Ok(Some(found));
        }
        if feed.rest().len() > limit {
            return Err(too_long(line, limit).into());
        }
        feed.fill()?;
    }
}

/// Takes a line `sep=X`, which spreadsheets write for each other; gives X.
fn separator_line(
    contract: &Contract,
    dialect: &CsvDialect,
    splitter: &Splitter,
    feed: &mut Feed,
    line: i64,
    limit: usize,
) -> Result<Option<u8>, DecodeError> {
    let Some((end, next)) = physical_line(splitter, feed, line, limit)? else {
        return Ok(None);
    };
    let separator = match feed.buffer.get(feed.position..end) {
        Some([name @ .., b'=', separator]) if name.eq_ignore_ascii_case(b"sep") => *separator,
        _ => return Ok(None),
    };
    // In a file of one column without header the line could be data.
    if !dialect.header && contract.columns.len() < 2 {
        return Ok(None);
    }
    if !dialect.header && separator != dialect.delimiter {
        let reason = format!(
            "the file's sep= line says `{}`, the contract's delimiter is `{}`",
            char::from(separator),
            char::from(dialect.delimiter)
        );
        return Err(refusal("header_mismatch", reason, line).into());
    }
    feed.position = next;
    Ok(Some(separator))
}

struct Header {
    names: Vec<String>,
    text: String,
    line: i64,
    offset: i64,
}

/// Reads the first record; none when there is none.
fn header(splitter: &Splitter, feed: &mut Feed, line: &mut i64, limit: usize) -> Result<Option<Header>, DecodeError> {
    let (mut fields, mut side) = (Vec::new(), Vec::new());
    loop {
        if feed.is_done() {
            return Ok(None);
        }
        fields.clear();
        side.clear();
        let start = feed.position;
        let mut marks = splitter.marks(&feed.buffer, start);
        match splitter.piece(&mut marks, start, feed.at_end, &mut fields, &mut side) {
            Piece::Skipped { next } => {
                *line += 1;
                feed.position = next;
            }
            Piece::Record { end, next, .. } => {
                let text = feed.buffer.slice(start..end);
                if text.len() > limit {
                    return Err(too_long(*line, limit).into());
                }
                let name = |field: &super::split::FieldAt| {
                    std::str::from_utf8(field.bytes(&feed.buffer, &side)).map(str::to_owned)
                };
                let names = fields.iter().map(name).collect::<Result<Vec<_>, _>>().map_err(|_| {
                    let reason = format!("header `{}` is not UTF-8", shown(&text));
                    refusal("not_utf8", reason, *line)
                })?;
                let offset = feed.base + i64::try_from(start).unwrap_or(i64::MAX);
                let text_shown = String::from_utf8_lossy(&text).into_owned();
                let header = Header { names, text: text_shown, line: *line, offset };
                *line += 1 + splitter.line_ends(&text);
                feed.position = next;
                return Ok(Some(header));
            }
            Piece::Broken { end, .. } => {
                let text = shown(feed.buffer.get(start..end).unwrap_or_default());
                return Err(refusal("quote", format!("text after a closing quote in header `{text}`"), *line).into());
            }
            Piece::Unterminated { quote } => {
                let opened = *line + splitter.line_ends(feed.buffer.get(start..quote).unwrap_or_default());
                return Err(unterminated(opened).into());
            }
            Piece::Incomplete => {
                if feed.rest().len() > limit {
                    return Err(too_long(*line, limit).into());
                }
                feed.fill()?;
            }
        }
    }
}

/// A record longer than the limit.
pub(super) fn too_long(line: i64, limit: usize) -> Refusal {
    let reason = format!(
        "the record on line {line} is longer than the limit of {limit} bytes; a quote that is never closed does this too"
    );
    refusal("record_too_long", reason, line)
}

/// A quote that is open at the end of the file.
pub(super) fn unterminated(line: i64) -> Refusal {
    refusal("unterminated_quote", format!("the quote that opens on line {line} is never closed"), line)
}
