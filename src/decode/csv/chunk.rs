//! From batches of fields to a chunk: columns, faults, raw texts.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;

use super::batch::Batch;
use super::split::FieldAt;
use crate::cast::{CastFault, ColumnCaster, ColumnSink, arrow_type};
use crate::decode::columns::Matching;
use crate::decode::{Chunk, DecodeError, Fault, FaultKind, Options, Raw, Reason};
use crate::error::{Error, Result};
use crate::schema::lineage::{RESCUED, ROW};
use crate::schema::{Contract, Source, UnknownColumns};

/// What is the same for all chunks of a file.
pub(super) struct Layout {
    casters: Vec<ColumnCaster>,
    matching: Matching,
    /// How many fields a record has.
    stride: usize,
    unknown: UnknownColumns,
    /// Names of the unknown columns as JSON strings, for `_rescued`.
    rescue_keys: Vec<String>,
    nulls: Vec<String>,
    raw_columns: Vec<usize>,
    rows_schema: SchemaRef,
    raw_schema: SchemaRef,
}

impl Layout {
    pub(super) fn new(
        contract: &Contract,
        source: &Source,
        matching: Matching,
        stride: usize,
        options: &Options,
    ) -> Result<Self> {
        let nulls = &source.csv.null_values;
        let casters =
            contract.columns.iter().map(|column| ColumnCaster::new(column, nulls)).collect::<Result<Vec<_>>>()?;
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        // A cell that is no value stays null here until the rules have spoken, whatever the contract says.
        let mut fields: Vec<Field> = contract
            .columns
            .iter()
            .map(|column| Field::new(&column.name, arrow_type(&column.data_type), true))
            .collect();
        match contract.unknown_columns {
            UnknownColumns::Rescue => fields.push(text(RESCUED)),
            UnknownColumns::Add => fields.extend(matching.unknown.iter().map(|(_, name)| text(name))),
            UnknownColumns::Ignore | UnknownColumns::Reject => {}
        }
        fields.push(Field::new(ROW, DataType::Int64, false));
        let raw_fields = options.raw_columns.iter().map(|wanted| {
            let column = contract.columns.get(*wanted);
            column.map(|column| text(&column.name)).ok_or_else(|| Error::internal(format!("no raw column {wanted}")))
        });
        let raw_schema = Schema::new(raw_fields.collect::<Result<Vec<_>>>()?);
        let rescue_keys = matching.unknown.iter().map(|(_, name)| json_text(name)).collect();
        Ok(Self {
            casters,
            matching,
            stride: stride.max(1),
            unknown: contract.unknown_columns,
            rescue_keys,
            nulls: nulls.clone(),
            raw_columns: options.raw_columns.clone(),
            rows_schema: Arc::new(Schema::new(fields)),
            raw_schema: Arc::new(raw_schema),
        })
    }

    /// How many fields a record has; at least 1.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Whether the texts of unknown columns are kept.
    fn keeps_unknown(&self) -> bool {
        matches!(self.unknown, UnknownColumns::Rescue | UnknownColumns::Add)
    }

    fn unknown_text<'a>(&self, field: FieldAt, texts: &Texts<'a>) -> Option<std::borrow::Cow<'a, str>> {
        let text = String::from_utf8_lossy(field.bytes(texts.buffer, texts.side));
        let is_null = !field.quoted() && self.nulls.iter().any(|token| *token == text);
        (!is_null).then_some(text)
    }
}

/// JSON of a text.
fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A chunk that grows.
pub(super) struct Building {
    sinks: Vec<ColumnSink>,
    rescued: StringBuilder,
    added: Vec<StringBuilder>,
    raw: Vec<StringBuilder>,
    faults: Vec<Fault>,
    rejects: Vec<crate::decode::Reject>,
    spans: Vec<(u32, u32)>,
    lines: Vec<i64>,
    offsets: Vec<i64>,
    numbers: Vec<i64>,
}

/// Where the fields of a batch have their texts.
struct Texts<'a> {
    buffer: &'a [u8],
    side: &'a [u8],
    /// The same as text, if all of it is UTF-8: the part of the buffer that the batch lies in, and the side text.
    valid: Option<(&'a str, &'a str)>,
    part: Range<usize>,
}

impl<'a> Texts<'a> {
    /// The text of a field, in a batch that is UTF-8.
    #[inline]
    fn text(&self, field: FieldAt) -> Option<&'a str> {
        let (buffer, side) = self.valid?;
        let range = field.range();
        if field.unescaped() {
            return side.get(range);
        }
        buffer.get(range.start.checked_sub(self.part.start)?..range.end.checked_sub(self.part.start)?)
    }
}

impl Building {
    /// An empty chunk with room for `rows`.
    pub(super) fn new(layout: &Layout, rows: usize) -> Self {
        let added = if layout.unknown == UnknownColumns::Add { layout.matching.unknown.len() } else { 0 };
        Self {
            sinks: layout.casters.iter().map(|caster| caster.begin(rows)).collect(),
            rescued: StringBuilder::new(),
            added: (0..added).map(|_| StringBuilder::new()).collect(),
            raw: layout.raw_columns.iter().map(|_| StringBuilder::new()).collect(),
            faults: Vec::new(),
            rejects: Vec::new(),
            spans: Vec::with_capacity(rows),
            lines: Vec::with_capacity(rows),
            offsets: Vec::with_capacity(rows),
            numbers: Vec::with_capacity(rows),
        }
    }

    /// Records so far, of any shape.
    pub(super) fn records(&self) -> usize {
        self.spans.len() + self.rejects.len()
    }

    /// Casts a batch whose fields lie in `buffer`.
    pub(super) fn take(&mut self, layout: &Layout, batch: &mut Batch, buffer: &[u8]) -> Result<()> {
        let part = batch.text.clone();
        let text = std::str::from_utf8(buffer.get(part.clone()).unwrap_or_default()).ok();
        if text.is_none() && layout.keeps_unknown() {
            refuse_bytes_of_unknown_columns(layout, batch, buffer);
        }
        let valid = text.zip(std::str::from_utf8(&batch.side).ok());
        let texts = Texts { buffer, side: &batch.side, valid, part };
        let first_row = self.spans.len();
        let columns = self.sinks.iter_mut().zip(&layout.matching.sources).enumerate();
        for (column, (sink, source)) in columns {
            cast_column(sink, *source, column, layout.stride, first_row, batch, &texts, &mut self.faults);
        }
        self.keep_raw(layout, batch, &texts);
        self.keep_unknown(layout, batch, &texts);
        self.spans.extend_from_slice(&batch.spans);
        self.lines.extend_from_slice(&batch.lines);
        self.offsets.extend_from_slice(&batch.offsets);
        self.numbers.extend_from_slice(&batch.numbers);
        self.rejects.append(&mut batch.rejects);
        Ok(())
    }

    fn keep_raw(&mut self, layout: &Layout, batch: &Batch, texts: &Texts<'_>) {
        for (builder, wanted) in self.raw.iter_mut().zip(&layout.raw_columns) {
            let Some(source) = layout.matching.sources.get(*wanted).copied().flatten() else {
                builder.append_nulls(batch.rows());
                continue;
            };
            for row in batch.fields.chunks_exact(layout.stride) {
                // Bytes that are no text make a fault of the cell; here they are only looked at.
                builder.append_value(String::from_utf8_lossy(row[source].bytes(texts.buffer, texts.side)));
            }
        }
    }

    fn keep_unknown(&mut self, layout: &Layout, batch: &Batch, texts: &Texts<'_>) {
        if layout.unknown == UnknownColumns::Rescue && layout.matching.unknown.is_empty() {
            self.rescued.append_nulls(batch.rows());
            return;
        }
        if !layout.keeps_unknown() {
            return;
        }
        for row in batch.fields.chunks_exact(layout.stride) {
            if layout.unknown == UnknownColumns::Add {
                for (builder, (position, _)) in self.added.iter_mut().zip(&layout.matching.unknown) {
                    builder.append_option(layout.unknown_text(row[*position], texts));
                }
                continue;
            }
            let mut object = String::from("{");
            for (key, (position, _)) in layout.rescue_keys.iter().zip(&layout.matching.unknown) {
                if object.len() > 1 {
                    object.push(',');
                }
                object.push_str(key);
                object.push(':');
                match layout.unknown_text(row[*position], texts) {
                    Some(text) => object.push_str(&json_text(&text)),
                    None => object.push_str("null"),
                }
            }
            object.push('}');
            self.rescued.append_value(object);
        }
    }

    /// The finished chunk; `text` is the part of the buffer that the records' places count from.
    pub(super) fn finish(mut self, layout: &Layout, text: Bytes) -> Result<Chunk, DecodeError> {
        let rows = self.spans.len();
        let mut columns = self.sinks.into_iter().map(ColumnSink::finish).collect::<Result<Vec<ArrayRef>>>()?;
        if layout.unknown == UnknownColumns::Rescue {
            columns.push(Arc::new(self.rescued.finish()));
        }
        columns.extend(self.added.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef));
        columns.push(Arc::new(Int64Array::from(self.numbers)));
        let raw: Vec<ArrayRef> = self
            .raw
            .iter_mut()
            .map(|builder| {
                let array: StringArray = builder.finish();
                Arc::new(array) as ArrayRef
            })
            .collect();
        let counted = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            |schema: &SchemaRef, columns| RecordBatch::try_new_with_options(Arc::clone(schema), columns, &counted);
        self.faults.sort_by_key(|fault| fault.row);
        self.rejects.sort_by_key(|reject| reject.record);
        Ok(Chunk {
            rows: batch(&layout.rows_schema, columns).map_err(Error::from)?,
            faults: self.faults,
            raw_columns: batch(&layout.raw_schema, raw).map_err(Error::from)?,
            raw: Raw::Text { bytes: text, spans: self.spans, lines: self.lines, offsets: self.offsets },
            rejects: self.rejects,
            ignored: 0,
        })
    }
}

/// Casts one column of a batch.
#[expect(clippy::too_many_arguments, reason = "one call, in the loop over the columns")]
fn cast_column(
    sink: &mut ColumnSink,
    source: Option<usize>,
    column: usize,
    stride: usize,
    first_row: usize,
    batch: &Batch,
    texts: &Texts<'_>,
    faults: &mut Vec<Fault>,
) {
    let mut note = |row: usize, fault: CastFault, text: Option<&[u8]>| {
        let value = text.map(|text| String::from_utf8_lossy(text).into_owned());
        let value = value.filter(|value| fault.kind == FaultKind::Invalid || !value.is_empty());
        faults.push(Fault { row: first_row + row, column, kind: fault.kind, value, reason: fault.reason });
    };
    let Some(source) = source else {
        for row in 0..batch.rows() {
            if let Err(fault) = sink.push_absent() {
                note(row, fault, None);
            }
        }
        return;
    };
    let fields = || batch.fields.chunks_exact(stride).map(|row| row[source]);
    let mut on_fault = |row: usize, fault: CastFault| {
        let text = batch.fields.get(row * stride + source).map(|field| field.bytes(texts.buffer, texts.side));
        note(row, fault, text);
    };
    if texts.valid.is_some() && sink.prefers_str() {
        let strs = fields().map(|field| (texts.text(field).unwrap_or_default(), field.quoted()));
        sink.push_strs(strs, &mut on_fault);
    } else {
        let bytes = fields().map(|field| (field.bytes(texts.buffer, texts.side), field.quoted()));
        sink.push_fields(bytes, &mut on_fault);
    }
}

/// Unknown columns are kept as text, and quarantine has no column of the contract to blame: the record is refused.
fn refuse_bytes_of_unknown_columns(layout: &Layout, batch: &mut Batch, buffer: &[u8]) {
    batch.refuse(layout.stride, buffer, |fields, side| {
        layout.matching.unknown.iter().find_map(|(position, name)| {
            let bytes = fields.get(*position)?.bytes(buffer, side);
            let error = std::str::from_utf8(bytes).err()?;
            let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
            let value = format!("{}: byte 0x{byte:02X} is not UTF-8", String::from_utf8_lossy(bytes));
            Some(Reason { column: Some(name.clone()), rule: "not_utf8".to_owned(), value: Some(value) })
        })
    });
}
