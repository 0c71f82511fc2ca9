//! The content of a file as a buffer that slides forward: what was read and not yet used, and where it lies in the file.

use std::io::Read;

use bytes::Bytes;

use crate::decode::DecodeError;

/// Largest step, so that places in a buffer fit their 31 bits together with the longest record.
const MAX_STEP: usize = 1 << 28;

/// A reader and the buffer before it.
pub(super) struct Feed {
    reader: Box<dyn Read + Send>,
    /// What is in memory.
    pub(super) buffer: Bytes,
    /// Everything before it is used.
    pub(super) position: usize,
    /// Offset of the buffer's first byte in the content.
    pub(super) base: i64,
    /// Whether the buffer holds the rest of the content.
    pub(super) at_end: bool,
    step: usize,
}

impl Feed {
    /// Nothing read yet; `step` is how many bytes to read at least at a time.
    pub(super) fn new(reader: Box<dyn Read + Send>, step: usize) -> Self {
        let step = step.clamp(1, MAX_STEP);
        Self { reader, buffer: Bytes::new(), position: 0, base: 0, at_end: false, step }
    }

    /// Bytes not used yet.
    pub(super) fn rest(&self) -> &[u8] {
        self.buffer.get(self.position..).unwrap_or_default()
    }

    /// Whether everything is used.
    pub(super) fn is_done(&self) -> bool {
        self.at_end && self.position >= self.buffer.len()
    }

    /// Drops what is used and reads on. Reads at least as much as is kept, so that a long record costs linear time.
    pub(super) fn fill(&mut self) -> Result<(), DecodeError> {
        if self.at_end {
            return Ok(());
        }
        let kept = self.buffer.slice(self.position..);
        let wanted = self.step.max(kept.len()).min(MAX_STEP);
        let mut next = Vec::with_capacity(kept.len() + wanted);
        next.extend_from_slice(&kept);
        let read = (&mut self.reader).take(wanted as u64).read_to_end(&mut next)?;
        self.at_end = read < wanted;
        self.base += i64::try_from(self.position).unwrap_or(i64::MAX);
        self.position = 0;
        self.buffer = Bytes::from(next);
        Ok(())
    }
}
