//! Decoding to UTF-8, streamed. A malformed sequence refuses the file: no byte is ever replaced.

use std::io::{self, Read};

use encoding_rs::{Decoder, DecoderResult, Encoding};

use super::Refusal;
use super::places::Places;

const BLOCK: usize = 8 << 10;

/// Reads `inner` in `encoding` and gives UTF-8.
pub(super) struct Transcoder<R> {
    inner: R,
    encoding: &'static Encoding,
    decoder: Decoder,
    places: Places,
    block: Vec<u8>,
    /// Bytes of `inner` that were given to the decoder.
    taken: u64,
    text: String,
    given: usize,
    ended: bool,
}

impl<R: Read> Transcoder<R> {
    /// Content without a byte order mark.
    pub(super) fn new(inner: R, encoding: &'static Encoding, places: Places) -> Self {
        Self {
            inner,
            encoding,
            decoder: encoding.new_decoder_without_bom_handling(),
            places,
            block: vec![0; BLOCK],
            taken: 0,
            text: String::new(),
            given: 0,
            ended: false,
        }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.text.clear();
        self.given = 0;
        while self.text.is_empty() && !self.ended {
            let count = self.inner.read(&mut self.block)?;
            self.ended = count == 0;
            self.decode(count)?;
        }
        self.places.remember(&self.text);
        Ok(())
    }

    fn decode(&mut self, count: usize) -> io::Result<()> {
        let mut done = 0;
        loop {
            let rest = &self.block[done..count];
            let room = self.decoder.max_utf8_buffer_length_without_replacement(rest.len()).unwrap_or(BLOCK * 4);
            self.text.reserve(room);
            let (result, read) = self.decoder.decode_to_string_without_replacement(rest, &mut self.text, self.ended);
            done += read;
            self.taken += read as u64;
            match result {
                DecoderResult::InputEmpty => return Ok(()),
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(length, after) => {
                    return Err(self.malformed(u64::from(length), u64::from(after)));
                }
            }
        }
    }

    fn malformed(&self, length: u64, after: u64) -> io::Error {
        let offset = self.places.mark() + self.taken.saturating_sub(length + after);
        let name = self.encoding.name();
        Refusal {
            rule: "encoding_invalid".to_owned(),
            reason: format!(
                "the bytes at offset {offset} are not {name}; declare the encoding that the file is written in, or write it anew"
            ),
            line: None,
            byte_offset: i64::try_from(offset).ok(),
            column: None,
        }
        .into()
    }
}

impl<R: Read> Read for Transcoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.text.len() {
            self.refill()?;
        }
        let rest = &self.text.as_bytes()[self.given..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.given += count;
        Ok(count)
    }
}
