//! Parquet -> chunks: columns by name, values through the same cast as every other format.

mod convert;
mod feed;
mod fields;
mod footer;
mod spool;
mod text;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;

use self::convert::Converter;
use self::fields::Fields;
use self::footer::{guarded, refusal};
use self::spool::Spool;
use super::again::Header;
use super::assemble::{self, Added, Texts};
use super::input::Content;
use super::{Chunk, DecodeError, Decoder, Fault, Options, Raw, row_json};
use crate::error::Result;
use crate::schema::{Contract, UnknownColumns};

/// Opens the decoder for a Parquet file.
pub(super) fn open(
    contract: &Arc<Contract>,
    content: Content,
    options: &Options,
) -> Result<Box<dyn Decoder>, DecodeError> {
    let spool = Spool::new(content)?;
    let footer = footer::read(&spool)?;
    let fields = Fields::new(contract, footer.reader.schema())?;
    let mut added = Added::new(&contract.columns);
    let mut add_to = Vec::new();
    for unknown in &fields.unknown {
        match contract.unknown_columns {
            UnknownColumns::Reject => return Err(assemble::unknown_refused(&unknown.name, None).into()),
            UnknownColumns::Rescue | UnknownColumns::Ignore => added.report(&unknown.name),
            UnknownColumns::Add => {
                let column = added.column(&unknown.name, None)?;
                if add_to.contains(&column) {
                    return Err(assemble::twice_refused(&unknown.name, None).into());
                }
                add_to.push(column);
            }
        }
    }
    // `chunk_bytes` is about text; columns are held once as they came and once converted.
    let rows = (options.chunk_bytes * 2 / footer.row_bytes.max(1)).clamp(1, options.chunk_rows.max(1));
    let reader = guarded(|| {
        ParquetRecordBatchReaderBuilder::new_with_metadata(spool, footer.reader.clone()).with_batch_size(rows).build()
    })
    .map_err(damaged)?;
    Ok(Box::new(ParquetDecoder {
        converters: contract.columns.iter().map(Converter::new).collect::<Result<_>>()?,
        contract: Arc::clone(contract),
        declared: footer.declared,
        is_int96: footer.is_int96,
        fields,
        added,
        add_to,
        raw_columns: options.raw_columns.clone(),
        reader,
        seen: 0,
    }))
}

/// A column to be added and its name.
type Named = (String, ArrayRef);

struct ParquetDecoder {
    contract: Arc<Contract>,
    converters: Vec<Converter>,
    declared: Vec<DataType>,
    is_int96: Vec<bool>,
    fields: Fields,
    added: Added,
    /// For each unknown field the number of the column that it is added as; empty unless unknown columns are added.
    add_to: Vec<usize>,
    raw_columns: Vec<usize>,
    reader: ParquetRecordBatchReader,
    /// Rows so far.
    seen: i64,
}

impl Decoder for ParquetDecoder {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, DecodeError> {
        loop {
            let batch = guarded(|| self.reader.next().transpose().map_err(ParquetError::from)).map_err(damaged)?;
            let Some(batch) = batch else { return Ok(None) };
            if batch.num_rows() > 0 {
                let batch = self.with_text(&batch)?;
                return Ok(Some(self.chunk(batch)?));
            }
        }
    }

    fn unknown_columns(&self) -> Vec<String> {
        self.added.reported()
    }

    /// A row is kept as JSON, which does not tell its types.
    fn header(&self) -> Option<Header> {
        None
    }
}

/// A data page that cannot be read. A disk that cannot be read looks different: the spool is memory or a file of ours.
fn damaged(error: ParquetError) -> DecodeError {
    if let ParquetError::External(inner) = error {
        return match inner.downcast::<std::io::Error>() {
            Ok(io) => (*io).into(),
            Err(other) => refusal("corrupt_parquet", format!("damaged content: {other}; write the file anew")).into(),
        };
    }
    refusal("corrupt_parquet", format!("damaged content: {error}; write the file anew")).into()
}

impl ParquetDecoder {
    /// Text columns, which are read as bytes, as text again where all of it is UTF-8.
    fn with_text(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut fields = Vec::with_capacity(batch.num_columns());
        let mut columns = Vec::with_capacity(batch.num_columns());
        for ((field, column), declared) in batch.schema().fields().iter().zip(batch.columns()).zip(&self.declared) {
            let column = text::restored(column, declared)?;
            fields.push(Field::new(field.name(), column.data_type().clone(), true));
            columns.push(column);
        }
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }

    fn chunk(&mut self, batch: RecordBatch) -> Result<Chunk> {
        let rows = batch.num_rows();
        let mut columns = Vec::with_capacity(self.converters.len());
        let mut faults = Vec::new();
        let mut sources: Vec<Option<ArrayRef>> = Vec::with_capacity(self.converters.len());
        for (index, converter) in self.converters.iter().enumerate() {
            let place = self.fields.columns[index].as_ref();
            let source = place.map(|place| place.of(&batch)).transpose()?;
            let (array, cells) = match (&source, place) {
                (Some(source), Some(place)) => converter.convert(source, self.is_int96[place.root()])?,
                _ => converter.absent(rows)?,
            };
            columns.push(array);
            faults.extend(cells.into_iter().map(|cell| Fault {
                row: cell.row,
                column: index,
                kind: cell.fault.kind,
                value: cell.value,
                reason: cell.fault.reason,
            }));
            sources.push(source);
        }
        faults.sort_by_key(|fault| (fault.row, fault.column));
        let raw = self.raw_columns.iter().map(|index| texts(sources[*index].as_ref(), rows)).collect::<Result<_>>()?;
        let first = self.seen + 1;
        self.seen += i64::try_from(rows).unwrap_or(i64::MAX);
        let (rescued, added) = self.unknown(&batch)?;
        Ok(Chunk {
            rows: assemble::rows(&self.contract.columns, columns, rescued, added, (first..=self.seen).collect())?,
            faults,
            raw_columns: assemble::raw_columns(&self.contract.columns, &self.raw_columns, raw, rows)?,
            raw: Raw::Rows(batch),
            rejects: Vec::new(),
            ignored: 0,
        })
    }

    /// The rescued column, and the added ones.
    fn unknown(&self, batch: &RecordBatch) -> Result<(Option<ArrayRef>, Vec<Named>)> {
        let rows = batch.num_rows();
        match self.contract.unknown_columns {
            UnknownColumns::Rescue => {
                let columns = self.unknown_columns_of(batch)?;
                let fields: Vec<Field> =
                    columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
                if fields.is_empty() {
                    return Ok((Some(Arc::new(StringArray::new_null(rows))), Vec::new()));
                }
                let arrays = columns.into_iter().map(|(_, array)| array).collect();
                let unknown = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
                let objects = row_json::objects(&unknown, false)?;
                let texts: StringArray = objects
                    .into_iter()
                    .map(|object| Some(String::from_utf8_lossy(&object).into_owned()).filter(|text| text != "{}"))
                    .collect();
                Ok((Some(Arc::new(texts)), Vec::new()))
            }
            UnknownColumns::Add => {
                let mut added = Texts::default();
                for ((_, array), column) in self.unknown_columns_of(batch)?.iter().zip(&self.add_to) {
                    for row in 0..rows {
                        added.put(*column, row, row_json::text(array, row)?, None);
                    }
                }
                Ok((None, added.finish(self.added.columns(), rows)))
            }
            UnknownColumns::Ignore | UnknownColumns::Reject => Ok((None, Vec::new())),
        }
    }

    fn unknown_columns_of(&self, batch: &RecordBatch) -> Result<Vec<(&str, ArrayRef)>> {
        self.fields.unknown.iter().map(|unknown| Ok((unknown.name.as_str(), unknown.place.of(batch)?))).collect()
    }
}

fn texts(array: Option<&ArrayRef>, rows: usize) -> Result<ArrayRef> {
    let Some(array) = array else { return Ok(Arc::new(StringArray::new_null(rows))) };
    if array.data_type() == &DataType::Utf8 {
        return Ok(Arc::clone(array));
    }
    let texts = (0..rows).map(|row| row_json::text(array, row)).collect::<Result<StringArray>>()?;
    Ok(Arc::new(texts))
}

#[cfg(test)]
mod tests;
