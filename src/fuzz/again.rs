//! What is kept of records is enough to read them again: each gives the row that it gave in its file.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

use super::{Finding, describe};
use crate::decode::again::{Kept, Rereader};
use crate::decode::{self, Chunk, Decoder, Options, Raw};
use crate::schema::lineage::ROW;
use crate::schema::{Contract, Source};

/// Reads the records of a file again, as if each of them had been refused.
pub(super) fn reread(contract: &Arc<Contract>, source: &Source, content: &[u8], options: &Options) -> Finding {
    let reader = Box::new(Cursor::new(content.to_vec()));
    let Ok(mut decoder) = decode::open(contract, source, reader, options) else { return Ok(()) };
    let Some((mut wanted, kept)) = everything(decoder.as_mut())? else { return Ok(()) };
    let Some(header) = decoder.header().filter(|_| !kept.is_empty()) else { return Ok(()) };
    let again = Rereader::new(contract, source, &header, options.clone()).map_err(|why| format!("{why:?}"))?;
    let mut found = Vec::new();
    for chunk in again.read(&kept).map_err(|error| error.describe())? {
        describe(&chunk, &mut found)?;
    }
    wanted.sort();
    found.sort();
    if found == wanted {
        return Ok(());
    }
    Err(format!("records give\n{wanted:#?}\nin their file, and by themselves under {header:?}\n{found:#?}"))
}

/// The rows of a file as text, and all its records.
type Everything = (Vec<String>, Vec<Kept>);

/// All of a file; none when it is refused.
fn everything(decoder: &mut dyn Decoder) -> Result<Option<Everything>, String> {
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    loop {
        let chunk = match decoder.next_chunk() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(Some((rows, kept))),
            Err(_) => return Ok(None),
        };
        kept.extend(records(&chunk)?);
        describe(&Chunk { rejects: Vec::new(), ..chunk }, &mut rows)?;
    }
}

fn records(chunk: &Chunk) -> Result<Vec<Kept>, String> {
    let Raw::Text { bytes, spans, lines, offsets } = &chunk.raw else { return Ok(Vec::new()) };
    let numbers = chunk.rows.column_by_name(ROW).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let numbers = numbers.ok_or("a chunk without record numbers")?.values().iter();
    let places = spans.iter().zip(lines).zip(offsets);
    let rows = numbers.zip(places).map(|(record, (((start, end), line), byte_offset))| Kept {
        record: *record,
        line: *line,
        byte_offset: *byte_offset,
        raw: bytes.slice(*start as usize..*end as usize).to_vec(),
    });
    let rejects = chunk.rejects.iter().filter_map(|reject| {
        let (record, line, byte_offset) = (reject.record?, reject.line?, reject.byte_offset?);
        Some(Kept { record, line, byte_offset, raw: reject.raw.clone() })
    });
    Ok(rows.chain(rejects).collect())
}
