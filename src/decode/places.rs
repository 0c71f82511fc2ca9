//! Where text came from: offsets in decoded text -> offsets in the content as it was before decoding.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::again::Header;
use super::{Chunk, DecodeError, Decoder, Raw};

/// Maps offsets of decoded text back. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub(super) struct Places {
    mark: u64,
    pieces: Option<Arc<Mutex<Pieces>>>,
}

/// Decoded text that was given out and not yet asked for.
struct Pieces {
    encoding: &'static Encoding,
    pieces: VecDeque<Piece>,
    decoded: u64,
    source: u64,
}

struct Piece {
    decoded: u64,
    source: u64,
    text: String,
}

impl Places {
    /// Text that came as it is, after a byte order mark of `mark` bytes.
    pub(super) fn shifted(mark: u64) -> Self {
        Self { mark, pieces: None }
    }

    /// Text that was decoded from `encoding`.
    pub(super) fn transcoded(encoding: &'static Encoding, mark: u64) -> Self {
        let pieces = Pieces { encoding, pieces: VecDeque::new(), decoded: 0, source: mark };
        Self { mark, pieces: Some(Arc::new(Mutex::new(pieces))) }
    }

    /// What the text was decoded from.
    fn encoding(&self) -> &'static Encoding {
        match &self.pieces {
            Some(pieces) => pieces.lock().unwrap_or_else(PoisonError::into_inner).encoding,
            None => UTF_8,
        }
    }

    /// Bytes of the byte order mark.
    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    /// Whether offsets are the same on both sides.
    pub(super) fn are_the_same(&self) -> bool {
        self.mark == 0 && self.pieces.is_none()
    }

    /// Remembers the next decoded text.
    pub(super) fn remember(&self, text: &str) {
        let Some(pieces) = &self.pieces else { return };
        let mut known = pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = Piece { decoded: known.decoded, source: known.source, text: text.to_owned() };
        known.decoded += text.len() as u64;
        known.source += encoded_len(known.encoding, text);
        known.pieces.push_back(piece);
    }

    /// The offset before decoding of the byte at `decoded`. Offsets are asked for in ascending order: what lies before the
    /// last answer is forgotten.
    pub(super) fn before_decoding(&self, decoded: i64) -> i64 {
        let wanted = u64::try_from(decoded).unwrap_or(0);
        let Some(pieces) = &self.pieces else { return signed(wanted + self.mark) };
        let mut known = pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let encoding = known.encoding;
        while known.pieces.front().is_some_and(|piece| piece.decoded + (piece.text.len() as u64) <= wanted) {
            known.pieces.pop_front();
        }
        let end = known.source;
        let Some(piece) = known.pieces.front_mut() else { return signed(end) };
        let Some(ahead) = wanted.checked_sub(piece.decoded).and_then(|ahead| usize::try_from(ahead).ok()) else {
            return signed(piece.source);
        };
        // What was counted once is cut off, so that many short records in a piece do not count it over and over.
        let rest = piece.text.split_off(ahead);
        piece.source += encoded_len(encoding, &piece.text);
        piece.decoded = wanted;
        piece.text = rest;
        signed(piece.source)
    }
}

fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

fn encoded_len(encoding: &'static Encoding, text: &str) -> u64 {
    if encoding == UTF_16LE || encoding == UTF_16BE {
        return 2 * text.encode_utf16().count() as u64;
    }
    if encoding.is_single_byte() {
        return text.chars().count() as u64;
    }
    encoding.encode(text).0.len() as u64
}

/// A decoder whose offsets are put back to where the records were before decoding.
pub(super) struct Placed {
    inner: Box<dyn Decoder>,
    places: Places,
}

impl Placed {
    /// Wraps `inner`, unless offsets are the same on both sides.
    pub(super) fn wrap(inner: Box<dyn Decoder>, places: Places) -> Box<dyn Decoder> {
        if places.are_the_same() { inner } else { Box::new(Self { inner, places }) }
    }
}

impl Decoder for Placed {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, DecodeError> {
        let Some(mut chunk) = self.inner.next_chunk()? else { return Ok(None) };
        let mut offsets: Vec<&mut i64> = Vec::new();
        if let Raw::Text { offsets: rows, .. } = &mut chunk.raw {
            offsets.extend(rows.iter_mut());
        }
        offsets.extend(chunk.rejects.iter_mut().filter_map(|reject| reject.byte_offset.as_mut()));
        offsets.sort_unstable_by_key(|offset| **offset);
        for offset in offsets {
            *offset = self.places.before_decoding(*offset);
        }
        Ok(Some(chunk))
    }

    fn unknown_columns(&self) -> Vec<String> {
        self.inner.unknown_columns()
    }

    fn header(&self) -> Option<Header> {
        let (encoding, marked) = (Some(self.places.encoding().name().to_owned()), self.places.mark > 0);
        Some(Header { encoding, marked, ..self.inner.header()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_the_bytes_as_they_came() {
        type Case<'a> = (&'static Encoding, u64, &'a [(i64, i64)]);
        let cases: [Case<'_>; 3] = [
            (encoding_rs::WINDOWS_1252, 0, &[(0, 0), (1, 1), (3, 2), (4, 3), (8, 5), (9, 6)]),
            (UTF_16LE, 2, &[(0, 2), (1, 4), (3, 6), (4, 8), (8, 12), (9, 14)]),
            (encoding_rs::SHIFT_JIS, 0, &[(0, 0), (1, 1)]),
        ];
        for (encoding, mark, wanted) in cases {
            let places = Places::transcoded(encoding, mark);
            // a é b | c € d
            places.remember("aéb");
            places.remember("c€d");
            for (decoded, source) in wanted {
                assert_eq!(places.before_decoding(*decoded), *source, "{} {decoded}", encoding.name());
            }
        }
    }
}
