//! Finds the records of a JSON file in a stream: one line after the other, or one value after the other. It looks at no more
//! than brackets and strings; whether a record is good JSON is for others to say.

use std::io::Read;

use super::super::input::Content;
use super::super::{DecodeError, Refusal};

const BLOCK: usize = 64 << 10;

/// How records follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) enum Layout {
    /// One record a line, without carriage returns at its end.
    Lines,
    /// One record a line, up to the line feed and no more: what is kept byte for byte.
    WholeLines,
    /// Values one after the other; the elements of a top-level array are records.
    Values,
}

/// Where a record lies in the buffer that it was written to, and where it began in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) struct Span {
    pub start: usize,
    pub end: usize,
    /// Physical line, from 1.
    pub line: i64,
    /// Offset in the content.
    pub offset: i64,
}

/// Where the scanner stands between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Outside of any array.
    Top,
    /// After `[`.
    Opened,
    /// In an array, after an element.
    AfterElement,
    /// In an array, after a comma.
    AfterComma,
}

/// The records of a stream.
pub(in crate::decode) struct Records {
    content: Content,
    layout: Layout,
    limit: usize,
    buffer: Vec<u8>,
    /// First byte of `buffer` that was not taken.
    at: usize,
    ended: bool,
    line: i64,
    offset: i64,
    place: Place,
}

impl Records {
    /// Records of `content`; one longer than `limit` bytes refuses the file.
    pub(in crate::decode) fn new(content: Content, layout: Layout, limit: usize) -> Self {
        let limit = limit.min(u32::MAX as usize);
        let (buffer, place) = (Vec::new(), Place::Top);
        Self { content, layout, limit, buffer, at: 0, ended: false, line: 1, offset: 0, place }
    }

    /// Appends the next record to `out`; none at the end.
    pub(in crate::decode) fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Span>, DecodeError> {
        match self.layout {
            Layout::Lines | Layout::WholeLines => self.next_line(out),
            Layout::Values => self.next_value(out),
        }
    }

    fn next_line(&mut self, out: &mut Vec<u8>) -> Result<Option<Span>, DecodeError> {
        loop {
            let Some(length) = self.line_length()? else { return Ok(None) };
            let line = &self.buffer[self.at..self.at + length];
            let content = match self.layout {
                Layout::WholeLines => line.strip_suffix(b"\n").unwrap_or(line),
                _ => trim_line_end(line),
            };
            if content.iter().all(u8::is_ascii_whitespace) {
                self.take(length);
                continue;
            }
            let content = content.len();
            let span = self.copy(content, out);
            self.take(length);
            return Ok(Some(span));
        }
    }

    /// Bytes up to and with the next line feed; none at the end.
    fn line_length(&mut self) -> Result<Option<usize>, DecodeError> {
        let mut searched = 0;
        loop {
            let rest = &self.buffer[self.at..];
            if let Some(found) = memchr::memchr(b'\n', &rest[searched..]) {
                return Ok(Some(searched + found + 1));
            }
            searched = rest.len();
            self.within_limit(searched)?;
            if !self.fill()? {
                return Ok((searched > 0).then_some(searched));
            }
        }
    }

    fn next_value(&mut self, out: &mut Vec<u8>) -> Result<Option<Span>, DecodeError> {
        loop {
            let Some(byte) = self.skip_blank()? else {
                return if self.place == Place::Top { Ok(None) } else { Err(self.unclosed().into()) };
            };
            match (byte, self.place) {
                (b'[', Place::Top) => self.enter(Place::Opened),
                (b']', Place::Opened | Place::AfterElement) => self.enter(Place::Top),
                (b',', Place::AfterElement) => self.enter(Place::AfterComma),
                (b']' | b'}' | b',' | b':', _) | (_, Place::AfterElement) => return Err(self.unexpected(byte).into()),
                _ => break,
            }
        }
        let length = self.value_length()?;
        let span = self.copy(length, out);
        self.take(length);
        if self.place != Place::Top {
            self.place = Place::AfterElement;
        }
        Ok(Some(span))
    }

    fn enter(&mut self, place: Place) {
        self.take(1);
        self.place = place;
    }

    /// The next byte that is not white space, which stays; none at the end.
    fn skip_blank(&mut self) -> Result<Option<u8>, DecodeError> {
        loop {
            let rest = &self.buffer[self.at..];
            let blank = rest.iter().take_while(|byte| is_blank(**byte)).count();
            let found = rest.get(blank).copied();
            self.take(blank);
            if found.is_some() {
                return Ok(found);
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Length of the value that begins here. A value that the file's end cuts is as long as what is there, except in an
    /// array: that cannot be told from a file which is not complete.
    fn value_length(&mut self) -> Result<usize, DecodeError> {
        let mut scan = Scan::default();
        loop {
            let rest = &self.buffer[self.at..];
            if let Some(length) = scan.advance(rest) {
                return Ok(length);
            }
            self.within_limit(scan.seen)?;
            if self.fill()? {
                continue;
            }
            if scan.is_scalar() || self.place == Place::Top {
                return Ok(trim_end(&self.buffer[self.at..]).len());
            }
            return Err(self.unclosed().into());
        }
    }

    fn copy(&self, length: usize, out: &mut Vec<u8>) -> Span {
        let start = out.len();
        out.extend_from_slice(&self.buffer[self.at..self.at + length]);
        Span { start, end: out.len(), line: self.line, offset: self.offset }
    }

    fn take(&mut self, length: usize) {
        let taken = &self.buffer[self.at..self.at + length];
        self.line += i64::try_from(memchr::memchr_iter(b'\n', taken).count()).unwrap_or(i64::MAX);
        self.offset += i64::try_from(length).unwrap_or(i64::MAX);
        self.at += length;
    }

    /// Reads more; false at the end.
    fn fill(&mut self) -> Result<bool, DecodeError> {
        if self.ended {
            return Ok(false);
        }
        if self.at > 0 && self.at >= self.buffer.len() / 2 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        let filled = self.buffer.len();
        self.buffer.resize(filled + BLOCK, 0);
        let count = loop {
            match self.content.read(&mut self.buffer[filled..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(filled + *count.as_ref().unwrap_or(&0));
        self.ended = count? == 0;
        Ok(!self.ended)
    }

    fn within_limit(&self, length: usize) -> Result<(), DecodeError> {
        if length <= self.limit {
            return Ok(());
        }
        let reason = format!(
            "the record that begins on line {} is longer than the limit of {} bytes; is `format` right for this file?",
            self.line, self.limit
        );
        Err(self.refusal("record_too_long", reason).into())
    }

    fn unclosed(&self) -> Refusal {
        let reason = format!("unexpected end on line {}: the array is not closed; upload the whole file", self.line);
        self.refusal("truncated_json", reason)
    }

    fn unexpected(&self, byte: u8) -> Refusal {
        let wanted = match self.place {
            Place::AfterElement => "`,` or `]`",
            Place::Opened => "a value or `]`",
            Place::Top | Place::AfterComma => "a value",
        };
        let found = char::from(byte);
        let reason =
            format!("line {}, byte {}: expected {wanted}, found `{}`", self.line, self.offset, found.escape_default());
        self.refusal("json_syntax", reason)
    }

    fn refusal(&self, rule: &str, reason: String) -> Refusal {
        let (line, byte_offset) = (Some(self.line), Some(self.offset));
        Refusal { rule: rule.to_owned(), reason, line, byte_offset, column: None }
    }
}

/// How far a value was looked at.
#[derive(Default)]
struct Scan {
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Looks at `rest`, of which the first `seen` bytes are known; the value's length once it is complete.
    fn advance(&mut self, rest: &[u8]) -> Option<usize> {
        while let Some(&byte) = rest.get(self.seen) {
            if self.in_string {
                self.seen += 1;
                if self.escaped {
                    self.escaped = false;
                    continue;
                }
                match byte {
                    b'\\' => self.escaped = true,
                    b'"' => {
                        self.in_string = false;
                        if self.depth == 0 {
                            return Some(self.seen);
                        }
                    }
                    _ => {
                        self.seen += memchr::memchr2(b'"', b'\\', &rest[self.seen..]).unwrap_or(rest.len() - self.seen)
                    }
                }
                continue;
            }
            let is_first = self.seen == 0;
            match byte {
                b'"' if is_first || self.depth > 0 => self.in_string = true,
                b'{' | b'[' if is_first || self.depth > 0 => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(self.seen + 1);
                    }
                }
                b' ' | b'\t' | b'\r' | b'\n' | b',' | b']' | b'}' | b'{' | b'[' | b'"' if self.depth == 0 => {
                    return Some(self.seen);
                }
                _ => {}
            }
            self.seen += 1;
        }
        None
    }

    fn is_scalar(&self) -> bool {
        self.depth == 0 && !self.in_string
    }
}

fn trim_line_end(line: &[u8]) -> &[u8] {
    let mut line = line.strip_suffix(b"\n").unwrap_or(line);
    while let Some(shorter) = line.strip_suffix(b"\r") {
        line = shorter;
    }
    line
}

/// White space between values (RFC 8259, section 2). A form feed is none: what begins with one is a value, and no good one.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn trim_end(text: &[u8]) -> &[u8] {
    let blank = text.iter().rev().take_while(|byte| is_blank(**byte)).count();
    &text[..text.len() - blank]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans(content: &[u8], layout: Layout, step: usize) -> Result<Vec<(String, i64, i64)>, String> {
        let mut records = Records::new(Box::new(Dribble(content.to_vec(), 0, step)), layout, 1 << 20);
        let mut found = Vec::new();
        loop {
            let mut out = Vec::new();
            match records.next(&mut out) {
                Ok(None) => return Ok(found),
                Ok(Some(span)) => found.push((String::from_utf8_lossy(&out).into_owned(), span.line, span.offset)),
                Err(DecodeError::Refused(refusal)) => return Err(refusal.rule),
                Err(DecodeError::Read(error)) => return Err(error.to_string()),
            }
        }
    }

    /// Gives at most so many bytes at a time.
    struct Dribble(Vec<u8>, usize, usize);

    impl Read for Dribble {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = (self.0.len() - self.1).min(self.2).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[self.1..self.1 + count]);
            self.1 += count;
            Ok(count)
        }
    }

    #[test]
    fn values_are_found_wherever_the_stream_is_cut() {
        let pretty = "[\n {\"a\": [1, {\"b\": \"}]\\\"\"}]},\n  \"x\" , 12,null\n]\n{\"c\":1}{\"d\":{}}\n";
        let wanted = vec![
            ("{\"a\": [1, {\"b\": \"}]\\\"\"}]}".to_owned(), 2, 3),
            ("\"x\"".to_owned(), 3, 32),
            ("12".to_owned(), 3, 38),
            ("null".to_owned(), 3, 41),
            ("{\"c\":1}".to_owned(), 5, 48),
            ("{\"d\":{}}".to_owned(), 5, 55),
        ];
        for step in [1, 2, 3, 7, 4096] {
            assert_eq!(spans(pretty.as_bytes(), Layout::Values, step).unwrap(), wanted, "{step} bytes at a time");
        }
    }

    #[test]
    fn a_broken_structure_refuses_the_file() {
        let cases = [
            ("[{\"a\":1},{\"a\":2", "truncated_json"),
            ("[{\"a\":1}", "truncated_json"),
            ("[{\"a\":1} {\"a\":2}]", "json_syntax"),
            ("[,]", "json_syntax"),
            ("[1,]", "json_syntax"),
            ("{}]", "json_syntax"),
            ("{},{}", "json_syntax"),
        ];
        for (content, rule) in cases {
            assert_eq!(spans(content.as_bytes(), Layout::Values, 3).unwrap_err(), rule, "{content}");
        }
    }

    #[test]
    fn a_value_cut_at_the_end_is_a_record() {
        let found = spans(b"{\"a\":1}\n{\"a\":\"Re \n", Layout::Values, 2).unwrap();
        assert_eq!(found[1], ("{\"a\":\"Re".to_owned(), 2, 8));
    }

    #[test]
    fn a_form_feed_is_a_value_that_is_none() {
        for (content, wanted) in [("1\u{c}", &["1\u{c}"][..]), ("1 \u{c}", &["1", "\u{c}"]), ("\u{c} \n", &["\u{c}"])] {
            let found = spans(content.as_bytes(), Layout::Values, 1).unwrap();
            assert_eq!(found.into_iter().map(|(text, ..)| text).collect::<Vec<_>>(), wanted, "{content:?}");
        }
    }

    #[test]
    fn lines_are_records_and_blank_lines_are_none() {
        let found = spans(b"{1}\r\n\r\n \t\n{2}\r\r\n{3", Layout::Lines, 2).unwrap();
        let wanted = [("{1}", 1, 0), ("{2}", 4, 10), ("{3", 5, 16)].map(|(text, line, at)| (text.to_owned(), line, at));
        assert_eq!(found, wanted);
        let whole = spans(b"{1}\r\n\r\n \t\n{2}\r\r\n{3", Layout::WholeLines, 2).unwrap();
        assert_eq!(whole.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>(), ["{1}\r", "{2}\r\r", "{3"]);
    }

    #[test]
    fn a_record_beyond_the_limit_refuses_the_file() {
        for layout in [Layout::Lines, Layout::Values] {
            let content = format!("{{\"a\":\"{}\"}}\n", "x".repeat(200_000));
            let mut records = Records::new(Box::new(std::io::Cursor::new(content)), layout, 100_000);
            let Err(DecodeError::Refused(refusal)) = records.next(&mut Vec::new()) else { panic!("{layout:?}") };
            assert_eq!(refusal.rule, "record_too_long");
            assert!(refusal.reason.contains("100000"), "{}", refusal.reason);
        }
    }

    proptest! {
        #[test]
        fn any_content_gives_the_same_records_for_any_step(content in "[\\[\\]{},:\"\\\\a1 \n\t\r\u{b}\u{c}]{0,60}", step in 1_usize..9) {
            for layout in [Layout::Lines, Layout::Values] {
                prop_assert_eq!(spans(content.as_bytes(), layout, step), spans(content.as_bytes(), layout, 4096));
            }
        }
    }
}
