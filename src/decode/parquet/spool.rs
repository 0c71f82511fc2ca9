//! Parquet is read from its end, so the stream is first put where it can be read at any place: memory, or a nameless file.

use std::fs::File;
use std::io::{Read, Seek, Write};

use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};

use super::super::DecodeError;
use super::super::input::Content;

/// Content up to this size stays in memory.
const IN_MEMORY: usize = 8 << 20;

/// The whole content of a file.
pub(super) enum Spool {
    Memory(Bytes),
    /// Has no name: it is gone with the process, however that ends.
    Disk(File),
}

impl Spool {
    /// Reads `content` to its end.
    pub(super) fn new(mut content: Content) -> Result<Self, DecodeError> {
        let mut head = Vec::new();
        content.by_ref().take(IN_MEMORY as u64 + 1).read_to_end(&mut head)?;
        if head.len() <= IN_MEMORY {
            return Ok(Self::Memory(head.into()));
        }
        let mut file = tempfile::tempfile()?;
        file.write_all(&head)?;
        drop(head);
        std::io::copy(&mut content, &mut file)?;
        file.rewind()?;
        Ok(Self::Disk(file))
    }

    /// Up to `count` bytes of the beginning.
    pub(super) fn head(&self, count: usize) -> Vec<u8> {
        let wanted = count.min(usize::try_from(self.len()).unwrap_or(usize::MAX));
        self.get_bytes(0, wanted).map(|bytes| bytes.to_vec()).unwrap_or_default()
    }

    /// The last `count` bytes.
    pub(super) fn tail(&self, count: usize) -> Vec<u8> {
        let start = self.len().saturating_sub(count as u64);
        let wanted = usize::try_from(self.len() - start).unwrap_or(0);
        self.get_bytes(start, wanted).map(|bytes| bytes.to_vec()).unwrap_or_default()
    }
}

impl Length for Spool {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(file) => Length::len(file),
        }
    }
}

impl ChunkReader for Spool {
    type T = Box<dyn Read + Send>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                let rest = if start <= bytes.len() { bytes.slice(start..) } else { return Err(outside()) };
                Ok(Box::new(rest.reader()))
            }
            Self::Disk(file) => Ok(Box::new(file.get_read(start)?)),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        // A damaged footer may ask for anything: it is refused before memory is set aside for it.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(outside());
        }
        match self {
            Self::Memory(bytes) => bytes.get_bytes(start, length),
            Self::Disk(file) => file.get_bytes(start, length),
        }
    }
}

fn outside() -> ParquetError {
    ParquetError::EOF("the footer points outside of the file".to_owned())
}
