//! Helpers of tests that decode: contracts from YAML, readers that dribble, chunks as text.

use std::io::{Cursor, Read};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};

use super::{Chunk, DecodeError, Decoder, Options, Refusal, open, value_text};
use crate::schema::Contract;

/// A contract of table raw/t: `format` is the flow mapping's content after `path`, `rest` the YAML from `columns` on.
pub(crate) fn contract(format: &str, rest: &str) -> Arc<Contract> {
    let text = format!("version: 1\ntable: raw/t\nsource: {{ path: \"t/**\", {format} }}\n{rest}\n");
    let (contract, _) = crate::schema::yaml::parse("t.yaml", &text)
        .unwrap_or_else(|found| panic!("{text}\n{:?}", found.iter().map(|one| &one.message).collect::<Vec<_>>()));
    Arc::new(contract)
}

/// Everything that a file decodes to.
pub(crate) struct Decoded {
    pub chunks: Vec<Chunk>,
    pub unknown: Vec<String>,
}

/// Gives at most `step` bytes at a time.
pub(crate) struct Dribble {
    content: Cursor<Vec<u8>>,
    step: usize,
}

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.step);
        self.content.read(&mut buffer[..count])
    }
}

/// Opens and decodes.
pub(crate) fn decode_with(
    contract: &Arc<Contract>,
    content: &[u8],
    step: usize,
    options: &Options,
) -> Result<Decoded, DecodeError> {
    let reader = Box::new(Dribble { content: Cursor::new(content.to_vec()), step });
    let mut decoder: Box<dyn Decoder> = open(contract, contract.files().unwrap(), reader, options)?;
    let mut chunks = Vec::new();
    while let Some(chunk) = decoder.next_chunk()? {
        chunks.push(chunk);
    }
    Ok(Decoded { chunks, unknown: decoder.unknown_columns() })
}

/// Decodes with everything at its default and all columns as raw texts.
pub(crate) fn decode(contract: &Arc<Contract>, content: &[u8]) -> Decoded {
    let options = Options { raw_columns: (0..contract.columns.len()).collect(), ..Options::default() };
    decode_with(contract, content, 1 << 20, &options).unwrap()
}

/// The refusal of a file.
pub(crate) fn refusal(contract: &Arc<Contract>, content: &[u8]) -> Refusal {
    match decode_with(contract, content, 1 << 20, &Options::default()) {
        Err(DecodeError::Refused(refusal)) => refusal,
        Err(DecodeError::Read(error)) => panic!("read: {error}"),
        Ok(decoded) => panic!("taken: {:?}", decoded.lines()),
    }
}

/// A row as text, null as ∅.
pub(crate) fn row_text(batch: &RecordBatch, row: usize) -> String {
    let cells = batch.columns().iter().map(|column| value_text(column, row).unwrap().unwrap_or("∅".to_owned()));
    cells.collect::<Vec<_>>().join("|")
}

impl Decoded {
    /// Rows (columns in order, then `_row`), faults and rejects, one a line, by record.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<(i64, String)> = Vec::new();
        for chunk in &self.chunks {
            let numbers = chunk.rows.column(chunk.rows.num_columns() - 1);
            for row in 0..chunk.rows.num_rows() {
                let number: i64 = value_text(numbers, row).unwrap().unwrap().parse().unwrap();
                let mut line = row_text(&chunk.rows, row);
                for fault in chunk.faults.iter().filter(|fault| fault.row == row) {
                    let name = chunk.rows.schema().field(fault.column).name().clone();
                    line.push_str(&format!(" !{name} {:?} {}", fault.kind, fault.value.as_deref().unwrap_or("-")));
                    assert!(chunk.rows.column(fault.column).is_null(row), "a fault leaves null: {line}");
                }
                lines.push((number, line));
            }
            for reject in &chunk.rejects {
                let reason = reject.reasons[0].value.clone().unwrap();
                let (raw, rule) = (String::from_utf8_lossy(&reject.raw), &reject.rules[0]);
                let (line, at) = (reject.line.unwrap_or(0), reject.byte_offset.unwrap_or(-1));
                lines.push((reject.record.unwrap(), format!("REJECT {line}@{at} {rule}: {reason} <{raw}>")));
            }
        }
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }
}
