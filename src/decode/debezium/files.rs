//! Files of events, one a line; gzip and zstd by content, as all landed files.

use std::io::Read;

use super::rows::{EventRows, Events, Place};
use crate::decode::json::{Layout, Records};
use crate::decode::places::Places;
use crate::decode::{DecodeError, Options, input};

/// A file of events that is being read.
pub struct EventFile {
    lines: Records,
    places: Places,
    options: Options,
    seen: i64,
}

impl EventFile {
    /// Looks at the content and opens it.
    ///
    /// # Errors
    /// [`DecodeError::Refused`] when the content is broken as a whole.
    pub fn open(reader: Box<dyn Read + Send>, options: &Options) -> Result<Self, DecodeError> {
        let (text, places) = input::text(input::decompressed(reader, options.zstd_window_log)?, "utf-8")?;
        let lines = Records::new(text, Layout::WholeLines, options.record_limit);
        Ok(Self { lines, places, options: options.clone(), seen: 0 })
    }

    /// The next events; none at the end of the file.
    ///
    /// # Errors
    /// The content is broken, or one line is longer than the limit.
    pub fn next_events(&mut self) -> Result<Option<Events>, DecodeError> {
        let mut rows = EventRows::default();
        let (mut count, mut bytes) = (0, 0);
        let mut line = Vec::new();
        while count < self.options.chunk_rows.max(1) && (count == 0 || bytes < self.options.chunk_bytes) {
            line.clear();
            let Some(span) = self.lines.next(&mut line)? else { break };
            self.seen += 1;
            count += 1;
            bytes += line.len();
            let byte_offset = self.places.before_decoding(span.offset);
            rows.push(&line, Place::Line { record: self.seen, line: span.line, byte_offset });
        }
        if count == 0 {
            return Ok(None);
        }
        Ok(Some(rows.finish()?))
    }
}
