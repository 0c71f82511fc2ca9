//! The CPU-bound half of a writer: rows in, pieces of Parquet files out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::WriterOptions;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::table::DataFile;
use crate::table::conform;
use crate::table::open::ENGINE;
use crate::table::partition::{folders, positions, split};
use crate::table::schema::file_schema;
use crate::table::stats::{FloatBounds, file_stats};

/// Encoded bytes of a file that are handed over at once.
const PIECE_BYTES: u64 = 8 << 20;

/// Rows of a partitioned table are collected up to this many before they are split, so that each file gets runs of rows.
const COLLECT_ROWS: usize = 128 << 10;

/// A row group is closed at about this many encoded bytes: the unit that readers skip and share out.
const ROW_GROUP_BYTES: u64 = 32 << 20;

/// A file is closed at this many chunks of columns: what is known of them is held until the footer is written, and a wide
/// table has thousands in each row group.
const MOST_CHUNKS: usize = 10_000;

/// Encoded bytes of a file, in order.
pub(super) struct Piece {
    /// The file's path below the table's folder.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    /// The file that ends with this piece.
    pub(super) last: Option<DataFile>,
}

/// Files that are being encoded.
pub(super) struct Encoder {
    schema: SchemaRef,
    file_schema: SchemaRef,
    partition_by: Vec<String>,
    partition_at: Vec<usize>,
    others_at: Vec<usize>,
    options: WriterOptions,
    properties: WriterProperties,
    clock: Arc<dyn Clock>,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    pending_bytes: usize,
    open: HashMap<Vec<Option<String>>, OpenFile>,
}

struct OpenFile {
    path: String,
    values: BTreeMap<String, Option<String>>,
    writer: ArrowWriter<Vec<u8>>,
    floats: FloatBounds,
    /// Bytes handed over already.
    handed: u64,
}

fn failed(error: parquet::errors::ParquetError) -> Error {
    Error::internal("writing Parquet").because(error)
}

impl Encoder {
    pub(super) fn new(
        schema: SchemaRef,
        partition_by: &[String],
        options: WriterOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let file_schema = file_schema(&schema, partition_by);
        let (partition_at, others_at) = positions(&schema, partition_by);
        Self {
            properties: properties(&file_schema, options.target_bytes),
            schema,
            file_schema,
            partition_by: partition_by.to_vec(),
            partition_at,
            others_at,
            options,
            clock,
            pending: Vec::new(),
            pending_rows: 0,
            pending_bytes: 0,
            open: HashMap::new(),
        }
    }

    /// Takes rows in; gives what can be handed over.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<Vec<Piece>> {
        let batch = conform(batch, &self.schema)?;
        let mut pieces = Vec::new();
        if self.partition_by.is_empty() {
            self.append(Vec::new(), &batch, &mut pieces)?;
        } else {
            self.pending_rows += batch.num_rows();
            self.pending_bytes += batch.get_array_memory_size();
            self.pending.push(batch);
            if self.pending_rows >= COLLECT_ROWS || self.pending_bytes as u64 > self.options.memory_bytes / 4 {
                self.distribute(&mut pieces)?;
            }
        }
        self.keep_to_budget(&mut pieces)?;
        Ok(pieces)
    }

    /// Closes every file.
    pub(super) fn finish(&mut self) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        self.distribute(&mut pieces)?;
        for (_, file) in std::mem::take(&mut self.open) {
            pieces.push(self.close(file)?);
        }
        Ok(pieces)
    }

    /// Splits the collected rows by partition.
    fn distribute(&mut self, pieces: &mut Vec<Piece>) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        self.pending_rows = 0;
        self.pending_bytes = 0;
        let rows = match pending.as_slice() {
            [one] => one.clone(),
            several => concat_batches(&self.schema, several)?,
        };
        drop(pending);
        let keys: Vec<ArrayRef> = self.partition_at.iter().map(|at| Arc::clone(rows.column(*at))).collect();
        let groups = split(&self.partition_by, &keys)?;
        let rows = rows.project(&self.others_at)?;
        if let [group] = groups.as_slice() {
            return self.append(group.values.clone(), &rows, pieces);
        }
        for group in groups {
            let part = take_record_batch(&rows, &group.rows)?;
            self.append(group.values, &part, pieces)?;
        }
        Ok(())
    }

    /// Writes rows without partition columns to the open file of their partition.
    fn append(&mut self, key: Vec<Option<String>>, rows: &RecordBatch, pieces: &mut Vec<Piece>) -> Result<()> {
        let mut file = match self.open.remove(&key) {
            Some(file) => file,
            None => self.begin(&key)?,
        };
        file.floats.look(rows);
        file.writer.write(rows).map_err(failed)?;
        let size = file.handed + buffered(&file) as u64 + file.writer.in_progress_size() as u64;
        let chunks = file.writer.flushed_row_groups().len() * self.file_schema.fields().len();
        if size >= self.options.target_bytes || chunks >= MOST_CHUNKS {
            pieces.push(self.close(file)?);
            return Ok(());
        }
        if buffered(&file) as u64 >= PIECE_BYTES.min(self.options.memory_bytes / 4) {
            pieces.push(hand_over(&mut file)?);
        }
        self.open.insert(key, file);
        Ok(())
    }

    fn begin(&self, key: &[Option<String>]) -> Result<OpenFile> {
        let values: BTreeMap<_, _> = self.partition_by.iter().cloned().zip(key.iter().cloned()).collect();
        let folders = folders(&self.partition_by, &values);
        let slash = if folders.is_empty() { "" } else { "/" };
        let path = format!("{folders}{slash}part-{}.snappy.parquet", self.clock.fresh());
        let options = ArrowWriterOptions::new().with_properties(self.properties.clone()).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(&self.file_schema), options)
            .map_err(|e| Error::invalid("the schema cannot be written as Parquet").because(e))?;
        Ok(OpenFile { path, values, writer, floats: FloatBounds::default(), handed: 0 })
    }

    fn close(&self, mut file: OpenFile) -> Result<Piece> {
        let footer = file.writer.finish().map_err(failed)?;
        let stats = file_stats(&self.file_schema, &footer, &file.floats);
        let bytes = std::mem::take(file.writer.inner_mut());
        let last = DataFile {
            path: file.path.clone(),
            size: file.handed + bytes.len() as u64,
            modified_ms: self.clock.now().timestamp_millis(),
            partition_values: file.values,
            rows: u64::try_from(footer.file_metadata().num_rows()).ok(),
            stats: Some(stats),
        };
        Ok(Piece { path: file.path, bytes, last: Some(last) })
    }

    /// Bytes that the open files hold.
    fn held(&self) -> u64 {
        self.open.values().map(|file| memory(file) as u64).sum()
    }

    /// Ends row groups, the largest first, until all open files fit into memory; closes files if that is not enough.
    fn keep_to_budget(&mut self, pieces: &mut Vec<Piece>) -> Result<()> {
        let budget = self.options.memory_bytes.saturating_sub(self.pending_bytes as u64);
        let mut held = self.held();
        if held <= budget {
            return Ok(());
        }
        let mut largest: Vec<(usize, Vec<Option<String>>)> =
            self.open.iter().map(|(key, file)| (memory(file), key.clone())).collect();
        largest.sort_unstable_by_key(|(held, _)| std::cmp::Reverse(*held));
        // Half the budget, so that the next rows do not bring the writer here again.
        for (_, key) in &largest {
            if held <= budget / 2 {
                return Ok(());
            }
            let Some(file) = self.open.get_mut(key) else { continue };
            held -= (memory(file) as u64).min(held);
            file.writer.flush().map_err(failed)?;
            pieces.push(hand_over(file)?);
            held += memory(file) as u64;
        }
        for (_, key) in largest {
            if held <= budget {
                return Ok(());
            }
            let Some(file) = self.open.remove(&key) else { continue };
            held -= (memory(&file) as u64).min(held);
            pieces.push(self.close(file)?);
        }
        Ok(())
    }
}

fn buffered(file: &OpenFile) -> usize {
    file.writer.inner().len()
}

fn memory(file: &OpenFile) -> usize {
    file.writer.memory_size() + buffered(file)
}

fn hand_over(file: &mut OpenFile) -> Result<Piece> {
    file.writer.sync()?;
    let bytes = std::mem::take(file.writer.inner_mut());
    file.handed += bytes.len() as u64;
    Ok(Piece { path: file.path.clone(), bytes, last: None })
}

/// Dictionaries for text and binary only: numbers and times seldom repeat enough to pay for them. No bounds for floats:
/// see [`FloatBounds`]. At least four row groups make a file: the size of an unfinished one is a rough guess, and a file
/// much smaller than its target would be compacted again and again.
fn properties(schema: &Schema, target_bytes: u64) -> WriterProperties {
    let row_group = usize::try_from(ROW_GROUP_BYTES.min(target_bytes / 4).max(64 << 10)).unwrap_or(usize::MAX);
    let mut builder = WriterProperties::builder()
        .set_created_by(ENGINE.to_owned())
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(1 << 20))
        .set_max_row_group_bytes(Some(row_group));
    for field in schema.fields() {
        let mut path = vec![field.name().clone()];
        for (leaf, kind) in leaves(field.data_type(), &mut path) {
            let leaf = ColumnPath::new(leaf);
            builder = match kind {
                DataType::Utf8 | DataType::Binary => builder.set_column_dictionary_enabled(leaf, true),
                DataType::Float32 | DataType::Float64 => {
                    builder.set_column_statistics_enabled(leaf, EnabledStatistics::None)
                }
                _ => builder,
            };
        }
    }
    builder.build()
}

/// The Parquet paths of the leaves below a column, with their types.
fn leaves<'a>(kind: &'a DataType, path: &mut Vec<String>) -> Vec<(Vec<String>, &'a DataType)> {
    let below = |parts: &[&str], kind: &'a DataType, path: &mut Vec<String>| {
        let depth = path.len();
        path.extend(parts.iter().map(|part| (*part).to_owned()));
        let found = leaves(kind, path);
        path.truncate(depth);
        found
    };
    match kind {
        DataType::Struct(fields) => {
            fields.iter().flat_map(|field| below(&[field.name()], field.data_type(), path)).collect()
        }
        DataType::List(item) => below(&["list", item.name()], item.data_type(), path),
        DataType::Map(entries, _) => below(&[entries.name()], entries.data_type(), path),
        leaf => vec![(path.clone(), leaf)],
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::Field;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn open_files_keep_to_their_budget() {
        const BUDGET: u64 = 2 << 20;
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("p", DataType::Int64, false),
            Field::new("note", DataType::Utf8, false),
        ]));
        let clock = Arc::new(ManualClock::new(chrono::DateTime::UNIX_EPOCH, 1));
        let options = WriterOptions { target_bytes: 128 << 20, memory_bytes: BUDGET };
        let mut encoder = Encoder::new(Arc::clone(&schema), &["p".to_owned()], options, clock);
        let mut handed = 0;
        for step in 0..60_i64 {
            let ids = step * 1000..(step + 1) * 1000;
            let hash = |id: i64| crate::name::short_hash(&[&id.to_string()]).repeat(10);
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(ids.clone())),
                Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id % 20))),
                Arc::new(StringArray::from_iter_values(ids.map(hash))),
            ];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
            for piece in encoder.write(&batch).unwrap() {
                handed += piece.bytes.len();
            }
            let held = encoder.held() + encoder.pending_bytes as u64;
            assert!(held <= BUDGET, "{held} bytes are held after step {step}");
        }
        assert!(handed as u64 > BUDGET, "{handed} bytes in all: the budget was never met");
    }
}
