//! The content of a landed file: decompressed by what it is (not by its name), decoded to UTF-8, streamed.
//!
//! A broken stream is the file's fault and not the disk's: it surfaces as an [`io::Error`] that carries a [`Refusal`], so
//! that a decoder which meets it in the middle of a file still refuses the file as a whole.

use std::fmt;
use std::io::{self, BufReader, Cursor, Read};

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::Refusal;
use super::places::Places;
use super::transcode::Transcoder;
use crate::error::{Error, Result};

const BUFFER: usize = 64 << 10;

/// Content being read, blocking.
pub(super) type Content = Box<dyn Read + Send>;

/// Bytes by which text is told from other formats: the first block of a tar archive.
const HEAD: usize = 512;

/// How files begin that are no text and that nobody unpacks here, what they are called, and what to do with them. Each is
/// long enough that no text begins so.
const OTHERS: [(&[u8], &str, &str); 9] = [
    (b"PK\x03\x04", "a zip archive or an Excel workbook", UNPACK),
    (b"PK\x05\x06", "an empty zip archive", UNPACK),
    (b"\xFD7zXZ\0", "compressed by xz", UNPACK),
    (b"7z\xBC\xAF\x27\x1C", "a 7z archive", UNPACK),
    (b"\x04\x22\x4D\x18", "compressed by lz4", UNPACK),
    (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "an old Excel workbook", UNPACK),
    (b"\x1F\x8B\x08", "compressed by gzip once more", UNPACK),
    (b"\x28\xB5\x2F\xFD", "compressed by zstd once more", UNPACK),
    (b"PAR1\x15", "a Parquet file", "say `format: parquet`"),
];

const UNPACK: &str = "land its content as text, plain or compressed by gzip or zstd";

/// The content of `reader` without its gzip or zstd layer. Magic bytes decide; all members and frames are read.
/// A zstd stream whose window is greater than 2^`window_log` bytes is refused.
pub(super) fn decompressed(reader: Content, window_log: u32) -> io::Result<Content> {
    let mut reader = Origin(reader);
    let head = read_head(&mut reader, 4)?;
    let magic = head.clone();
    let source = BufReader::with_capacity(BUFFER, Cursor::new(head).chain(reader));
    if magic.starts_with(&[0x1f, 0x8b]) {
        let inner = flate2::bufread::MultiGzDecoder::new(source);
        return Ok(Box::new(Guard { inner, codec: Codec::Gzip, window_log, given: 0 }));
    }
    if is_zstd(&magic) {
        let mut inner = zstd::stream::read::Decoder::with_buffer(source)?;
        inner.window_log_max(window_log)?;
        return Ok(Box::new(Guard { inner, codec: Codec::Zstd, window_log, given: 0 }));
    }
    Ok(Box::new(Guard { inner: source, codec: Codec::None, window_log, given: 0 }))
}

/// Decompressed content as UTF-8 without a byte order mark, and how offsets in it map to offsets in what came.
///
/// A byte order mark wins over `label`. Content in UTF-8 is passed through untouched, valid or not.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when `label` names no encoding; a [`Refusal`] for UTF-32 and for what is no text at all.
pub(super) fn text(mut content: Content, label: &str) -> Result<(Content, Places), super::DecodeError> {
    let head = read_head(&mut content, HEAD)?;
    if head.starts_with(&[0xFF, 0xFE, 0, 0]) || head.starts_with(&[0, 0, 0xFE, 0xFF]) {
        return Err(Refusal {
            rule: "utf_32".to_owned(),
            reason: "the file begins with a UTF-32 byte order mark; write it as UTF-8 or UTF-16".to_owned(),
            line: None,
            byte_offset: Some(0),
            column: None,
        }
        .into());
    }
    let declared = Encoding::for_label(label.as_bytes()).ok_or_else(|| {
        Error::invalid(format!("`{label}` is no character encoding"))
            .remedy("use a label of the WHATWG encoding standard, such as utf-8, windows-1252 or utf-16")
    })?;
    // Any bytes are text where a character has two.
    if declared != UTF_16LE
        && declared != UTF_16BE
        && let Some(refusal) = of_other_format(&head)
    {
        return Err(refusal.into());
    }
    let (encoding, mark) = match head.as_slice() {
        [0xEF, 0xBB, 0xBF, ..] => (UTF_8, 3),
        [0xFF, 0xFE, ..] => (UTF_16LE, 2),
        [0xFE, 0xFF, ..] => (UTF_16BE, 2),
        _ => (declared, 0),
    };
    let rest = Cursor::new(head[mark..].to_vec()).chain(content);
    if encoding == UTF_8 {
        return Ok((Box::new(rest), Places::shifted(mark as u64)));
    }
    let places = Places::transcoded(encoding, mark as u64);
    Ok((Box::new(Transcoder::new(rest, encoding, places.clone())), places))
}

/// Why a file that begins so cannot be read, if it cannot.
fn of_other_format(head: &[u8]) -> Option<Refusal> {
    // Behind the level, bzip2 has the first digits of pi.
    let is_bzip2 = head.starts_with(b"BZh") && head.get(4..10) == Some(b"\x31\x41\x59\x26\x53\x59");
    // Its metadata comes first, by names.
    let is_avro = head.starts_with(b"Obj\x01") && memchr::memmem::find(head, b"avro.").is_some();
    // Names are filled up with zeros; behind the mark POSIX has one and a version, GNU two spaces and one.
    let is_tar = matches!(head.get(257..265), Some(b"ustar\x0000" | b"ustar  \0")) && head[..257].contains(&0);
    let (what, help) = match (is_bzip2, is_avro, is_tar) {
        (true, ..) => ("compressed by bzip2", UNPACK),
        (_, true, _) => ("an Avro file", "land it as CSV, JSON or Parquet"),
        (.., true) => ("a tar archive", "land the files in it one by one, plain or compressed by gzip or zstd"),
        _ => OTHERS.iter().find(|(magic, ..)| head.starts_with(magic)).map(|(_, what, help)| (*what, *help))?,
    };
    Some(Refusal {
        rule: "other_format".to_owned(),
        reason: format!("by its first bytes the file is {what}; {help}"),
        line: None,
        byte_offset: Some(0),
        column: None,
    })
}

/// Up to `wanted` bytes; fewer only at the end of the content.
fn read_head(reader: &mut dyn Read, wanted: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(wanted);
    reader.take(wanted as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn is_zstd(head: &[u8]) -> bool {
    let Ok(magic) = <[u8; 4]>::try_from(head) else { return false };
    let magic = u32::from_le_bytes(magic);
    // Skippable frames may come first: pzstd and the seekable format write them.
    magic == 0xFD2F_B528 || (0x184D_2A50..=0x184D_2A5F).contains(&magic)
}

/// The landed file itself. Its errors are marked, so that they are not taken for a broken stream further up.
struct Origin(Content);

#[derive(Debug)]
struct ReadFault(io::Error);

impl fmt::Display for ReadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ReadFault {}

impl Read for Origin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| io::Error::new(error.kind(), ReadFault(error)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    None,
    Gzip,
    Zstd,
}

/// Sorts errors into those of the landed file and those of its compression.
struct Guard<R> {
    inner: R,
    codec: Codec,
    window_log: u32,
    given: u64,
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(count) => {
                self.given += count as u64;
                Ok(count)
            }
            Err(error) => Err(self.sorted(error)),
        }
    }
}

impl<R> Guard<R> {
    fn sorted(&self, error: io::Error) -> io::Error {
        if error.get_ref().is_some_and(|inner| inner.is::<ReadFault>()) {
            let kind = error.kind();
            return match error.into_inner().map(|inner| inner.downcast::<ReadFault>()) {
                Some(Ok(fault)) => fault.0,
                _ => io::Error::from(kind),
            };
        }
        let codec = match self.codec {
            Codec::None => return error,
            Codec::Gzip => "gzip",
            Codec::Zstd => "zstd",
        };
        if error.kind() == io::ErrorKind::Interrupted {
            return error;
        }
        let (rule, reason) = if error.kind() == io::ErrorKind::UnexpectedEof {
            let reason = format!(
                "the {codec} stream ends early, after {} decompressed bytes; upload the whole file",
                self.given
            );
            (format!("truncated_{codec}"), reason)
        } else if error.to_string().contains("too much memory") {
            let limit = 1_u64 << self.window_log;
            (
                "zstd_window".to_owned(),
                format!(
                    "the zstd stream asks for a window above the limit of {limit} bytes; compress it without --ultra --long, or raise ALLUVIUM_MEMORY"
                ),
            )
        } else {
            let reason = format!("the {codec} stream is damaged after {} decompressed bytes: {error}", self.given);
            (format!("corrupt_{codec}"), reason)
        };
        Refusal { rule, reason, line: None, byte_offset: i64::try_from(self.given).ok(), column: None }.into()
    }
}

#[cfg(test)]
mod tests;
