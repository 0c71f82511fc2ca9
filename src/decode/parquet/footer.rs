//! The footer of a Parquet file, and the schema under which its columns are read.
//!
//! Two things are read differently from what the file says. Text is read as bytes, because one value that is not UTF-8
//! must not fail its neighbours. INT96 is read as microseconds, because nanoseconds cannot hold the years beyond 2262.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::Length;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use super::super::Refusal;
use super::spool::Spool;

/// What the footer says.
pub(super) struct Footer {
    /// How to read the file.
    pub reader: ArrowReaderMetadata,
    /// The types that the file itself declares: text is text.
    pub declared: Vec<DataType>,
    /// By column of the file: whether it is INT96, of which nothing says whether it is an instant.
    pub is_int96: Vec<bool>,
    /// Bytes of an average row, not compressed.
    pub row_bytes: usize,
}

/// Reads the footer.
pub(super) fn read(spool: &Spool) -> Result<Footer, Refusal> {
    if let Some(refusal) = obviously_bad(spool) {
        return Err(refusal);
    }
    guarded(|| footer(spool)).map_err(|error| {
        let reason =
            format!("no readable Parquet footer in a file of {} bytes: {error}; write the file anew", spool.len());
        refusal("corrupt_parquet", reason)
    })
}

fn obviously_bad(spool: &Spool) -> Option<Refusal> {
    let size = spool.len();
    let (head, tail) = (spool.head(4), spool.tail(4));
    if tail == b"PARE" {
        let reason = "the Parquet footer is encrypted; write the file without encryption".to_owned();
        return Some(refusal("encrypted_parquet", reason));
    }
    if head == b"PAR1" || size == 0 {
        if size >= 12 && tail == b"PAR1" {
            return None;
        }
        let reason = format!(
            "the file has {size} bytes and no Parquet footer at its end: it is cut or still being written; upload it whole"
        );
        return Some(refusal("truncated_parquet", reason));
    }
    let reason = format!("the file of {size} bytes does not begin as Parquet does (PAR1); is `format` right for it?");
    Some(refusal("not_parquet", reason))
}

fn footer(spool: &Spool) -> ParquetResult<Footer> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(spool)?;
    let declared = parquet_to_arrow_schema(metadata.file_metadata().schema_descr(), None)?;
    let declared = declared.fields().iter().map(|field| field.data_type().clone()).collect();
    let metadata = with_text_as_bytes(&metadata)?;
    let descriptor = metadata.file_metadata().schema_descr();
    let inferred = parquet_to_arrow_schema(descriptor, None)?;
    let is_int96 = (0..inferred.fields().len())
        .map(|root| {
            let mut leaves = (0..descriptor.num_columns()).filter(|leaf| descriptor.get_column_root_idx(*leaf) == root);
            leaves.any(|leaf| descriptor.column(leaf).physical_type() == Physical::INT96)
        })
        .collect();
    let schema = with_micros_for_int96(&inferred, descriptor);
    let rows = usize::try_from(metadata.file_metadata().num_rows()).unwrap_or(0).max(1);
    let bytes: i64 = metadata.row_groups().iter().map(|group| group.total_byte_size().max(0)).sum();
    let row_bytes = usize::try_from(bytes).unwrap_or(usize::MAX) / rows;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(schema);
    let reader = ArrowReaderMetadata::try_new(Arc::new(metadata), options)?;
    Ok(Footer { reader, declared, is_int96, row_bytes })
}

fn with_text_as_bytes(metadata: &ParquetMetaData) -> ParquetResult<ParquetMetaData> {
    let file = metadata.file_metadata();
    let root = as_bytes(&file.schema_descr().root_schema_ptr(), true)?;
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        Arc::new(SchemaDescriptor::new(root)),
        file.column_orders().cloned(),
    );
    Ok(ParquetMetaData::new(file, metadata.row_groups().to_vec()))
}

fn as_bytes(node: &TypePtr, is_root: bool) -> ParquetResult<TypePtr> {
    let info = node.get_basic_info();
    let id = info.has_id().then(|| info.id());
    if node.is_primitive() {
        let is_decimal = matches!(info.logical_type_ref(), Some(LogicalType::Decimal(_)))
            || info.converted_type() == ConvertedType::DECIMAL;
        if node.get_physical_type() != Physical::BYTE_ARRAY || is_decimal {
            return Ok(Arc::clone(node));
        }
        let plain = Type::primitive_type_builder(node.name(), Physical::BYTE_ARRAY)
            .with_repetition(info.repetition())
            .with_id(id)
            .build()?;
        return Ok(Arc::new(plain));
    }
    let children = node.get_fields().iter().map(|child| as_bytes(child, false)).collect::<ParquetResult<Vec<_>>>()?;
    let mut group = Type::group_type_builder(node.name())
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_fields(children)
        .with_id(id);
    if !is_root && info.has_repetition() {
        group = group.with_repetition(info.repetition());
    }
    Ok(Arc::new(group.build()?))
}

fn with_micros_for_int96(schema: &Schema, descriptor: &SchemaDescriptor) -> SchemaRef {
    let mut leaf = 0;
    let fields: Vec<FieldRef> = schema.fields().iter().map(|field| micros(field, descriptor, &mut leaf)).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Arrow's leaves come in the order of Parquet's columns.
fn micros(field: &FieldRef, descriptor: &SchemaDescriptor, leaf: &mut usize) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Struct(children) => {
            DataType::Struct(children.iter().map(|child| micros(child, descriptor, leaf)).collect::<Fields>())
        }
        DataType::List(child) => DataType::List(micros(child, descriptor, leaf)),
        DataType::LargeList(child) => DataType::LargeList(micros(child, descriptor, leaf)),
        DataType::FixedSizeList(child, length) => DataType::FixedSizeList(micros(child, descriptor, leaf), *length),
        DataType::Map(child, sorted) => DataType::Map(micros(child, descriptor, leaf), *sorted),
        plain => {
            let is_int96 =
                *leaf < descriptor.num_columns() && descriptor.column(*leaf).physical_type() == Physical::INT96;
            *leaf += 1;
            match plain {
                DataType::Timestamp(TimeUnit::Nanosecond, zone) if is_int96 => {
                    DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
                }
                other => other.clone(),
            }
        }
    };
    Arc::new(Field::clone(field).with_data_type(data_type))
}

/// Runs a call into the Parquet reader, which may panic on content that contradicts itself.
pub(super) fn guarded<T>(call: impl FnOnce() -> ParquetResult<T>) -> ParquetResult<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(ParquetError::General(text.unwrap_or("the content contradicts itself").to_owned()))
    })
}

/// A refusal that is about no single place.
pub(super) fn refusal(rule: &str, reason: String) -> Refusal {
    Refusal { rule: rule.to_owned(), reason, line: None, byte_offset: None, column: None }
}
