//! A batch of records on its way from text to columns.

use super::head::{too_long, unterminated};
use super::split::{FieldAt, Piece, Splitter};
use crate::decode::{DecodeError, Reason, Reject};

/// Where to split, and how much.
pub(super) struct Text<'a> {
    pub(super) splitter: &'a Splitter,
    pub(super) buffer: &'a [u8],
    /// Whether the content ends with the buffer.
    pub(super) at_end: bool,
    /// Offset of the buffer in the content.
    pub(super) base: i64,
    /// Where the chunk begins in the buffer.
    pub(super) begin: usize,
    /// How many fields a record has.
    pub(super) stride: usize,
    /// Most records.
    pub(super) records: usize,
    /// Bytes after which to stop.
    pub(super) bytes: usize,
    /// Longest record in bytes.
    pub(super) limit: usize,
    pub(super) position: usize,
    pub(super) line: i64,
    pub(super) record: i64,
}

/// Where splitting stopped.
pub(super) struct Outcome {
    pub(super) stop: Stop,
    pub(super) position: usize,
    pub(super) line: i64,
    pub(super) record: i64,
}

/// Why splitting stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The batch is full, or the content is used up.
    Full,
    /// The next record is not, or not whole, in the buffer.
    Incomplete,
}

/// Records of usable shape as fields, and the others as rejects.
#[derive(Default)]
pub(super) struct Batch {
    /// Row after row.
    pub(super) fields: Vec<FieldAt>,
    /// Texts of fields with escapes, resolved.
    pub(super) side: Vec<u8>,
    /// Start and end of each record, counted from the chunk's begin.
    pub(super) spans: Vec<(u32, u32)>,
    pub(super) lines: Vec<i64>,
    pub(super) offsets: Vec<i64>,
    pub(super) numbers: Vec<i64>,
    pub(super) rejects: Vec<Reject>,
    /// The part of the buffer that the records lie in.
    pub(super) text: std::ops::Range<usize>,
    /// Where the chunk begins in the buffer.
    begin: usize,
}

impl Batch {
    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.rejects.is_empty()
    }

    /// Rows of usable shape.
    pub(super) fn rows(&self) -> usize {
        self.spans.len()
    }

    fn clear(&mut self) {
        self.fields.clear();
        self.side.clear();
        self.spans.clear();
        self.lines.clear();
        self.offsets.clear();
        self.numbers.clear();
        self.rejects.clear();
    }

    /// Fills the batch anew.
    ///
    /// # Errors
    /// Refused: a record that is too long, a quote that is never closed.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "buffers are kept below 2^31 bytes"
    )]
    pub(super) fn split(&mut self, text: &Text<'_>) -> Result<Outcome, DecodeError> {
        self.clear();
        let Text { splitter, buffer, stride, .. } = *text;
        let (mut position, mut line, mut record) = (text.position, text.line, text.record);
        let mut marks = splitter.marks(buffer, position);
        let mut stop = Stop::Full;
        let mut left = text.records;
        while left > 0 && position < buffer.len() && position - text.position < text.bytes {
            let before = self.fields.len();
            let piece = splitter.piece(&mut marks, position, text.at_end, &mut self.fields, &mut self.side);
            let (end, next, quotes, broken) = match piece {
                Piece::Record { end, next, quotes } => (end, next, quotes, false),
                Piece::Broken { end, next } => (end, next, true, true),
                Piece::Skipped { next } => {
                    line += 1;
                    position = next;
                    continue;
                }
                Piece::Incomplete | Piece::Unterminated { .. } => {
                    self.fields.truncate(before);
                    let rest = &buffer[position..];
                    let returns = rest.iter().rev().take_while(|byte| **byte == b'\r').count();
                    if rest.len() - returns > text.limit {
                        return Err(too_long(line, text.limit).into());
                    }
                    if let Piece::Unterminated { quote } = piece {
                        return Err(unterminated(line + splitter.line_ends(&buffer[position..quote])).into());
                    }
                    stop = Stop::Incomplete;
                    break;
                }
            };
            if end - position > text.limit {
                return Err(too_long(line, text.limit).into());
            }
            left -= 1;
            record += 1;
            let offset = text.base + position as i64;
            let found = self.fields.len() - before;
            if found == stride && !broken {
                self.spans.push(((position - text.begin) as u32, (end - text.begin) as u32));
                self.lines.push(line);
                self.offsets.push(offset);
                self.numbers.push(record);
            } else {
                self.fields.truncate(before);
                let raw = &buffer[position..end];
                self.rejects.push(if broken {
                    reject(record, line, offset, raw, "quote", "text after a closing quote".to_owned())
                } else {
                    let reason = format!("expected {stride} fields, got {found}");
                    reject(record, line, offset, raw, "field_count", reason)
                });
            }
            line += 1;
            if quotes {
                line += splitter.line_ends(&buffer[position..end]);
            }
            position = next;
        }
        if position >= buffer.len() && !text.at_end {
            stop = Stop::Incomplete;
        }
        self.text = text.position..position;
        self.begin = text.begin;
        Ok(Outcome { stop, position, line, record })
    }

    /// Takes the rows out for which `keep` gives a reason, and makes rejects of them.
    pub(super) fn refuse(
        &mut self,
        stride: usize,
        buffer: &[u8],
        refused: impl Fn(&[FieldAt], &[u8]) -> Option<Reason>,
    ) {
        let mut kept = 0;
        for row in 0..self.rows() {
            let fields = row * stride..(row + 1) * stride;
            if let Some(reason) = refused(&self.fields[fields.clone()], &self.side) {
                let (start, end) = self.spans[row];
                self.rejects.push(Reject {
                    record: Some(self.numbers[row]),
                    line: Some(self.lines[row]),
                    byte_offset: Some(self.offsets[row]),
                    raw: buffer[self.begin + start as usize..self.begin + end as usize].to_vec(),
                    rules: vec![reason.rule.clone()],
                    reasons: vec![reason],
                });
                continue;
            }
            self.fields.copy_within(fields, kept * stride);
            self.spans[kept] = self.spans[row];
            self.lines[kept] = self.lines[row];
            self.offsets[kept] = self.offsets[row];
            self.numbers[kept] = self.numbers[row];
            kept += 1;
        }
        self.fields.truncate(kept * stride);
        self.spans.truncate(kept);
        self.lines.truncate(kept);
        self.offsets.truncate(kept);
        self.numbers.truncate(kept);
    }
}

fn reject(record: i64, line: i64, offset: i64, raw: &[u8], rule: &str, reason: String) -> Reject {
    Reject {
        record: Some(record),
        line: Some(line),
        byte_offset: Some(offset),
        raw: raw.to_vec(),
        rules: vec![rule.to_owned()],
        reasons: vec![Reason { column: None, rule: rule.to_owned(), value: Some(reason) }],
    }
}
