//! CSV text -> records and fields, as places in a buffer.
//!
//! Delimiters, line ends and quotes are found eight bytes at a time; a quote opens a quoted field only as the first byte
//! of a field and is text anywhere else. The splitter never looks beyond a whole record, so where a buffer ends changes
//! nothing.

use memchr::{memchr, memchr2};

use crate::schema::CsvDialect;

const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const QUOTED: u32 = 1 << 31;
const UNESCAPED: u32 = 1 << 31;

/// Where a field's text lies: in the buffer, or (with its escapes resolved) in the side text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldAt {
    start: u32,
    end: u32,
}

impl FieldAt {
    #[expect(clippy::cast_possible_truncation, reason = "buffers are kept below 2^31 bytes")]
    fn new(start: usize, end: usize, quoted: bool, unescaped: bool) -> Self {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        Self { start: start as u32 | flag(quoted, QUOTED), end: end as u32 | flag(unescaped, UNESCAPED) }
    }

    /// Whether the field was quoted.
    pub(super) fn quoted(self) -> bool {
        self.start & QUOTED != 0
    }

    /// Whether the text is in the side text.
    pub(super) fn unescaped(self) -> bool {
        self.end & UNESCAPED != 0
    }

    /// The place, without the flags.
    pub(super) fn range(self) -> std::ops::Range<usize> {
        (self.start & !QUOTED) as usize..(self.end & !UNESCAPED) as usize
    }

    /// The field's bytes.
    pub(super) fn bytes<'a>(self, buffer: &'a [u8], side: &'a [u8]) -> &'a [u8] {
        let text = if self.unescaped() { side } else { buffer };
        text.get(self.range()).unwrap_or_default()
    }
}

/// What begins at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// A record of fields: where its text ends and where the next piece begins.
    Record { end: usize, next: usize, quotes: bool },
    /// A record with text after a closing quote.
    Broken { end: usize, next: usize },
    /// A blank line or a comment.
    Skipped { next: usize },
    /// More bytes are needed to tell.
    Incomplete,
    /// A quote that opens here is never closed.
    Unterminated { quote: usize },
}

/// Places of special bytes, eight bytes at a time.
pub(super) struct Marks<'a> {
    bytes: &'a [u8],
    needles: [u64; 4],
    base: usize,
    mask: u64,
}

impl<'a> Marks<'a> {
    #[inline]
    fn mask_at(&self, base: usize) -> u64 {
        let word = match self.bytes.get(base..base + 8) {
            Some(word) => word.try_into().map_or(0, u64::from_le_bytes),
            None => {
                let mut padded = [0_u8; 8];
                let tail = self.bytes.get(base..).unwrap_or_default();
                padded[..tail.len()].copy_from_slice(tail);
                u64::from_le_bytes(padded)
            }
        };
        // The high bit of each byte that equals a needle: exact, without carries between bytes.
        let equals = |needle: u64| {
            let difference = word ^ needle;
            !(((difference & LOW_BITS) + LOW_BITS) | difference | LOW_BITS)
        };
        equals(self.needles[0]) | equals(self.needles[1]) | equals(self.needles[2]) | equals(self.needles[3])
    }

    /// Goes on from `position`.
    #[inline]
    fn seek(&mut self, position: usize) {
        self.base = position & !7;
        self.mask = self.mask_at(self.base) & (u64::MAX << ((position & 7) * 8));
    }

    /// The next special byte; the length of the text when there is none.
    #[inline]
    fn next(&mut self) -> usize {
        while self.mask == 0 {
            self.base += 8;
            if self.base >= self.bytes.len() {
                self.base = self.bytes.len();
                return self.bytes.len();
            }
            self.mask = self.mask_at(self.base);
        }
        let position = self.base + (self.mask.trailing_zeros() / 8) as usize;
        self.mask &= self.mask - 1;
        position.min(self.bytes.len())
    }
}

/// A dialect, ready to split.
#[derive(Debug, Clone)]
pub(super) struct Splitter {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
    /// Whether a carriage return alone ends a line (the file's first line ends so).
    pub(super) lone_returns: bool,
}

impl Splitter {
    pub(super) fn new(dialect: &CsvDialect) -> Self {
        Self {
            delimiter: dialect.delimiter,
            quote: dialect.quote,
            escape: dialect.escape,
            comment: dialect.comment,
            lone_returns: false,
        }
    }

    /// A cursor over `bytes` for [`Splitter::piece`], at `position`.
    pub(super) fn marks<'a>(&self, bytes: &'a [u8], position: usize) -> Marks<'a> {
        let spread = |byte: u8| u64::from(byte) * 0x0101_0101_0101_0101;
        let quote = self.quote.unwrap_or(b'\n');
        let line_return = if self.lone_returns { b'\r' } else { b'\n' };
        let needles = [spread(self.delimiter), spread(b'\n'), spread(quote), spread(line_return)];
        let mut marks = Marks { bytes, needles, base: 0, mask: 0 };
        marks.seek(position);
        marks
    }

    /// Where the line that holds `from` ends, and where the next begins; none when more bytes are needed.
    pub(super) fn line_end(&self, bytes: &[u8], from: usize, at_end: bool) -> Option<(usize, usize)> {
        let rest = bytes.get(from..).unwrap_or_default();
        let found = if self.lone_returns { memchr2(b'\n', b'\r', rest) } else { memchr(b'\n', rest) };
        match found {
            Some(offset) if bytes.get(from + offset) == Some(&b'\r') => {
                let (end, next) = self.returns(bytes, from + offset, at_end)?;
                Some((end, next))
            }
            Some(offset) => Some((without_returns(bytes, from, from + offset), from + offset + 1)),
            None if at_end => Some((without_returns(bytes, from, bytes.len()), bytes.len())),
            None => None,
        }
    }

    /// A line end that begins with a carriage return at `at`, in a file where those may stand alone.
    fn returns(&self, bytes: &[u8], at: usize, at_end: bool) -> Option<(usize, usize)> {
        let run = bytes.get(at..).unwrap_or_default().iter().take_while(|byte| **byte == b'\r').count();
        match bytes.get(at + run) {
            Some(b'\n') => Some((at, at + run + 1)),
            None if !at_end => None,
            _ => Some((at, at + 1)),
        }
    }

    /// Reads the piece at `start`, which is before the end of `bytes`. Fields go to `fields`, resolved texts to `side`.
    #[inline]
    pub(super) fn piece(
        &self,
        marks: &mut Marks<'_>,
        start: usize,
        at_end: bool,
        fields: &mut Vec<FieldAt>,
        side: &mut Vec<u8>,
    ) -> Piece {
        let bytes = marks.bytes;
        if self.comment.is_some() && bytes.get(start) == self.comment.as_ref() {
            let Some((_, next)) = self.line_end(bytes, start, at_end) else {
                return Piece::Incomplete;
            };
            marks.seek(next);
            return Piece::Skipped { next };
        }
        let mut field_start = start;
        let mut quotes = false;
        loop {
            let at = marks.next();
            let Some(&byte) = bytes.get(at) else {
                return self.last_field(bytes, start, field_start, quotes, at_end, fields);
            };
            if byte == self.delimiter {
                fields.push(FieldAt::new(field_start, at, false, false));
                field_start = at + 1;
            } else if byte == b'\n' {
                let end = without_returns(bytes, field_start, at);
                if end == start {
                    return Piece::Skipped { next: at + 1 };
                }
                fields.push(FieldAt::new(field_start, end, false, false));
                return Piece::Record { end, next: at + 1, quotes };
            } else if byte == b'\r' && Some(byte) != self.quote {
                let Some((end, next)) = self.returns(bytes, at, at_end) else {
                    return Piece::Incomplete;
                };
                marks.seek(next);
                if end == start {
                    return Piece::Skipped { next };
                }
                fields.push(FieldAt::new(field_start, end, false, false));
                return Piece::Record { end, next, quotes };
            } else if at == field_start {
                quotes = true;
                match self.quoted(bytes, at, at_end, fields, side) {
                    AfterQuote::Field { next } => {
                        field_start = next;
                        marks.seek(next);
                    }
                    AfterQuote::Piece(piece) => {
                        if let Piece::Record { next, .. } | Piece::Broken { next, .. } = piece {
                            marks.seek(next);
                        }
                        return piece;
                    }
                }
            }
        }
    }

    /// The text ends within a field.
    #[cold]
    fn last_field(
        &self,
        bytes: &[u8],
        start: usize,
        field_start: usize,
        quotes: bool,
        at_end: bool,
        fields: &mut Vec<FieldAt>,
    ) -> Piece {
        if !at_end {
            return Piece::Incomplete;
        }
        let end = without_returns(bytes, field_start, bytes.len());
        if end == start {
            return Piece::Skipped { next: bytes.len() };
        }
        fields.push(FieldAt::new(field_start, end, false, false));
        Piece::Record { end, next: bytes.len(), quotes }
    }

    /// Reads the quoted field that opens at `open`, and the line end if one follows.
    fn quoted(
        &self,
        bytes: &[u8],
        open: usize,
        at_end: bool,
        fields: &mut Vec<FieldAt>,
        side: &mut Vec<u8>,
    ) -> AfterQuote {
        let quote = bytes[open];
        let Some((close, escapes)) = self.closing(bytes, open + 1, quote, at_end) else {
            return AfterQuote::Piece(if at_end { Piece::Unterminated { quote: open } } else { Piece::Incomplete });
        };
        let field = if escapes {
            let begin = side.len();
            self.resolve(bytes.get(open + 1..close).unwrap_or_default(), quote, side);
            FieldAt::new(begin, side.len(), true, true)
        } else {
            FieldAt::new(open + 1, close, true, false)
        };
        let after = close + 1;
        let (end, next) = match bytes.get(after) {
            Some(byte) if *byte == self.delimiter => {
                fields.push(field);
                return AfterQuote::Field { next: after + 1 };
            }
            None if !at_end => return AfterQuote::Piece(Piece::Incomplete),
            None => (after, after),
            Some(b'\n') => (after, after + 1),
            Some(b'\r') => {
                let run = bytes[after..].iter().take_while(|byte| **byte == b'\r').count();
                match bytes.get(after + run) {
                    Some(b'\n') => (after, after + run + 1),
                    None if !at_end => return AfterQuote::Piece(Piece::Incomplete),
                    None => (after, after + run),
                    Some(_) if self.lone_returns => (after, after + 1),
                    Some(_) => return self.broken(bytes, after, at_end),
                }
            }
            Some(_) => return self.broken(bytes, after, at_end),
        };
        fields.push(field);
        AfterQuote::Piece(Piece::Record { end, next, quotes: true })
    }

    /// Text after a closing quote: the record ends with its line, whatever is in it.
    #[cold]
    fn broken(&self, bytes: &[u8], after: usize, at_end: bool) -> AfterQuote {
        AfterQuote::Piece(match self.line_end(bytes, after, at_end) {
            Some((end, next)) => Piece::Broken { end, next },
            None => Piece::Incomplete,
        })
    }

    /// Where the quote closes and whether the text before has escapes; none when it is not in `bytes` (or, before the
    /// end, might still turn out to be doubled).
    fn closing(&self, bytes: &[u8], from: usize, quote: u8, at_end: bool) -> Option<(usize, bool)> {
        let escape = self.escape.filter(|escape| *escape != quote);
        let mut at = from;
        let mut escapes = false;
        loop {
            let rest = bytes.get(at..)?;
            let found = match escape {
                Some(escape) => memchr2(quote, escape, rest),
                None => memchr(quote, rest),
            };
            at += found?;
            if bytes.get(at) != Some(&quote) {
                // Whatever follows the escape is text.
                escapes = true;
                at += 2;
                continue;
            }
            match bytes.get(at + 1) {
                Some(next) if *next == quote => {
                    escapes = true;
                    at += 2;
                }
                None if !at_end => return None,
                _ => return Some((at, escapes)),
            }
        }
    }

    /// Appends the text of a quoted field with its escapes resolved.
    fn resolve(&self, text: &[u8], quote: u8, side: &mut Vec<u8>) {
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            let escapes = *byte == quote || Some(*byte) == self.escape;
            side.push(if escapes { bytes.next().copied().unwrap_or(*byte) } else { *byte });
        }
    }

    /// How many line ends a text holds, as they count physical lines.
    pub(super) fn line_ends(&self, text: &[u8]) -> i64 {
        let feeds = memchr::memchr_iter(b'\n', text).count();
        let alone = if self.lone_returns {
            text.iter().enumerate().filter(|(at, byte)| **byte == b'\r' && text.get(at + 1) != Some(&b'\n')).count()
        } else {
            0
        };
        i64::try_from(feeds + alone).unwrap_or(i64::MAX)
    }
}

/// What follows a quoted field.
enum AfterQuote {
    /// Another field, here.
    Field { next: usize },
    /// Nothing: the piece is decided.
    Piece(Piece),
}

/// `end` without the carriage returns before it, but not before `start`.
#[inline]
fn without_returns(bytes: &[u8], start: usize, mut end: usize) -> usize {
    while end > start && bytes.get(end - 1) == Some(&b'\r') {
        end -= 1;
    }
    end
}

#[cfg(test)]
mod tests;
