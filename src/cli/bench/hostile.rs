//! Files of a hostile size, made while they are read and never stored.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Columns of the wide file.
const COLUMNS: usize = 5_000;
/// Bytes of the long field.
const FIELD: usize = 3_000_000;
/// Bytes of a block of lines.
const BLOCK: usize = 1 << 20;
/// Values that are given to the Parquet writer at a time.
const VALUES: usize = 1_024;
/// Bytes of a Parquet value.
const VALUE: usize = 1_024;

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Hostile {
    /// A CSV of very many records.
    Csv,
    /// A CSV of 5,000 columns.
    Wide,
    /// A CSV whose fields have 3 MB each.
    Field,
    /// zstd whose content is thousands of times its size.
    Bomb,
    /// A CSV in which every record is refused.
    Refused,
    /// A CSV with a quote that never closes.
    Quote,
    /// A Parquet file of one row group.
    RowGroup,
    /// A CSV of very many records, each with a key of its own, for a table that is merged by key.
    Upsert,
}

impl Hostile {
    /// All kinds.
    pub const ALL: [Self; 8] =
        [Self::Csv, Self::Wide, Self::Field, Self::Bomb, Self::Refused, Self::Quote, Self::RowGroup, Self::Upsert];

    /// Its word on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Wide => "wide",
            Self::Field => "field",
            Self::Bomb => "bomb",
            Self::Refused => "refused",
            Self::Quote => "quote",
            Self::RowGroup => "row_group",
            Self::Upsert => "upsert",
        }
    }

    /// Whether the file can only be refused.
    #[must_use]
    pub const fn is_refused(self) -> bool {
        matches!(self, Self::Quote)
    }

    /// The contract of table `raw/t` that takes it.
    #[must_use]
    pub fn contract(self) -> String {
        let format = if self == Self::RowGroup { "parquet" } else { "csv" };
        let columns = match self {
            Self::Wide => (0..COLUMNS).map(|number| format!("  - {{ name: c{number}, type: int32 }}\n")).collect(),
            Self::RowGroup => "  - { name: t, type: string }\n".to_owned(),
            _ => "  - { name: id, type: int64 }\n  - { name: t, type: string }\n".to_owned(),
        };
        let mode = if self == Self::Upsert { "write_mode: upsert\nprimary_key: [id]\n" } else { "" };
        format!("version: 1\ntable: raw/t\nsource: {{ path: \"t/**\", format: {format} }}\n{mode}columns:\n{columns}")
    }

    /// The file: `bytes` of content, uncompressed.
    ///
    /// # Errors
    /// No pipe or no thread can be had.
    pub fn content(self, bytes: u64) -> Result<Box<dyn Read + Send>> {
        let lines = |line: String| line.repeat((BLOCK / line.len()).max(1));
        Ok(match self {
            Self::Csv => {
                Box::new(Repeated::new("id,t\n", lines(format!("123456,{}\n", "some text ".repeat(20))), bytes))
            }
            Self::Wide => {
                let names: Vec<String> = (0..COLUMNS).map(|number| format!("c{number}")).collect();
                let row = vec!["12345"; COLUMNS].join(",");
                Box::new(Repeated::new(&format!("{}\n", names.join(",")), lines(format!("{row}\n")), bytes))
            }
            Self::Field => Box::new(Repeated::new("id,t\n", format!("1,{}\n", "x".repeat(FIELD)), bytes)),
            Self::Bomb => {
                let content = Repeated::new("id,t\n", lines(format!("1,{}\n", "0".repeat(998))), bytes);
                Box::new(zstd::stream::read::Encoder::new(content, 1)?)
            }
            Self::Refused => {
                Box::new(Repeated::new("id,t\n", lines(format!("no number,{}\n", "some text ".repeat(20))), bytes))
            }
            Self::Quote => {
                Box::new(Repeated::new("id,t\n1,\"", lines("a line of a field that never ends\n".to_owned()), bytes))
            }
            Self::RowGroup => row_group(bytes)?,
            Self::Upsert => Box::new(Numbered::new(bytes)),
        })
    }
}

/// A head, then a block over and over.
struct Repeated {
    parts: [Bytes; 2],
    part: usize,
    at: usize,
    left: u64,
}

impl Repeated {
    /// Whole blocks up to about `bytes`.
    fn new(head: &str, block: String, bytes: u64) -> Self {
        let blocks = (bytes / block.len() as u64).max(1);
        let left = head.len() as u64 + blocks * block.len() as u64;
        Self { parts: [Bytes::from(head.to_owned()), Bytes::from(block)], part: 0, at: 0, left }
    }
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        if self.at == self.parts[self.part].len() {
            (self.part, self.at) = (1, 0);
        }
        let rest = &self.parts[self.part][self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Records that count up.
struct Numbered {
    block: Vec<u8>,
    at: usize,
    next: u64,
    left: u64,
}

impl Numbered {
    fn new(bytes: u64) -> Self {
        Self { block: b"id,t\n".to_vec(), at: 0, next: 0, left: bytes }
    }

    fn fill(&mut self) {
        self.block.clear();
        self.at = 0;
        while self.left > 0 && self.block.len() < BLOCK {
            let line = format!("{},{}\n", self.next, "some text ".repeat(6));
            self.next += 1;
            self.left = self.left.saturating_sub(line.len() as u64);
            self.block.extend_from_slice(line.as_bytes());
        }
    }
}

impl Read for Numbered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            self.fill();
        }
        let count = self.block[self.at..].len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// One row group of one text column, page by page through a pipe.
fn row_group(bytes: u64) -> Result<Box<dyn Read + Send>> {
    let (reader, writer) = io::pipe()?;
    let schema = parse_message_type("message m { required binary t (UTF8); }")
        .map_err(|error| Error::internal("the schema of the made-up file").because(error))?;
    std::thread::Builder::new().name("made-up parquet".to_owned()).spawn(move || {
        // Whoever reads it is done with it, or says what is wrong with it.
        let _ = write_row_group(writer, Arc::new(schema), bytes);
    })?;
    Ok(Box::new(reader))
}

fn write_row_group(
    sink: io::PipeWriter,
    schema: parquet::schema::types::TypePtr,
    bytes: u64,
) -> parquet::errors::Result<()> {
    let properties =
        WriterProperties::builder().set_dictionary_enabled(false).set_compression(Compression::UNCOMPRESSED).build();
    let mut writer = SerializedFileWriter::new(sink, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    if let Some(mut column) = group.next_column()? {
        let values = vec![ByteArray::from("0123456789abcdef".repeat(VALUE / 16).into_bytes()); VALUES];
        for _ in 0..(bytes / (VALUE * VALUES) as u64).max(1) {
            column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_file_has_its_size_and_whole_lines() {
        for kind in [Hostile::Csv, Hostile::Wide, Hostile::Refused, Hostile::Upsert] {
            let mut text = String::new();
            kind.content(3 << 20).unwrap().read_to_string(&mut text).unwrap();
            assert!(text.ends_with('\n') && (2 << 20..4 << 20).contains(&text.len()), "{kind:?}: {}", text.len());
            let fields: Vec<usize> = text.lines().map(|line| line.matches(',').count()).collect();
            assert!(fields.iter().all(|count| *count == fields[0]), "{kind:?}");
        }
    }

    #[test]
    fn a_bomb_is_small() {
        let mut packed = Vec::new();
        Hostile::Bomb.content(8 << 20).unwrap().read_to_end(&mut packed).unwrap();
        assert!(packed.len() < 20_000, "{}", packed.len());
    }

    #[test]
    fn a_row_group_is_one() {
        use parquet::file::reader::FileReader;
        let mut content = Vec::new();
        Hostile::RowGroup.content(4 << 20).unwrap().read_to_end(&mut content).unwrap();
        let reader = parquet::file::serialized_reader::SerializedFileReader::new(Bytes::from(content)).unwrap();
        assert_eq!((reader.num_row_groups(), reader.metadata().file_metadata().num_rows()), (1, 4_096));
    }
}
