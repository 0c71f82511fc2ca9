//! JSON and NDJSON -> chunks. Records are found in the stream, each is read on its own, numbers stay text until they are cast.

mod names;
mod parse;
mod records;

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use bytes::Bytes;
use serde_json::value::RawValue;

use self::parse::{ShapeFault, Values};
use self::records::Span;
pub(in crate::decode) use self::records::{Layout, Records};
pub(in crate::decode) use names::{Names, ROOT};
pub(in crate::decode) use parse::members;

use super::again::{Form, Header};
use super::assemble::{self, Added, Texts};
use super::input::Content;
use super::{Chunk, DecodeError, Decoder, Fault, FaultKind, Options, Raw, Reason, Reject};
use crate::cast::{CastFault, ColumnCaster, ColumnSink, Scalar};
use crate::error::Result;
use crate::schema::{Contract, Format, Source, UnknownColumns};

/// Opens the decoder for JSON text in UTF-8.
pub(super) fn open(
    contract: &Arc<Contract>,
    source: &Source,
    content: Content,
    options: &Options,
) -> Result<Box<dyn Decoder>, DecodeError> {
    let layout = if source.format == Format::Json { Layout::Values } else { Layout::Lines };
    let casters = contract
        .columns
        .iter()
        .map(|column| ColumnCaster::new(column, &source.csv.null_values))
        .collect::<Result<Vec<_>>>()?;
    Ok(Box::new(JsonDecoder {
        contract: Arc::clone(contract),
        names: Names::new(&contract.columns),
        casters,
        records: Records::new(content, layout, options.record_limit),
        one_a_line: layout == Layout::Lines,
        options: options.clone(),
        added: Added::new(&contract.columns),
        seen: 0,
        stopped: None,
    }))
}

struct JsonDecoder {
    contract: Arc<Contract>,
    names: Names,
    casters: Vec<ColumnCaster>,
    records: Records,
    one_a_line: bool,
    options: Options,
    added: Added,
    /// Records so far.
    seen: i64,
    /// What stopped the reading behind the records that were given last.
    stopped: Option<DecodeError>,
}

impl Decoder for JsonDecoder {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, DecodeError> {
        if let Some(error) = self.stopped.take() {
            return Err(error);
        }
        let mut buffer = Vec::new();
        let mut spans = Vec::new();
        while spans.len() < self.options.chunk_rows.max(1)
            && (spans.is_empty() || buffer.len() < self.options.chunk_bytes)
        {
            match self.records.next(&mut buffer) {
                Ok(Some(span)) => spans.push(span),
                Ok(None) => break,
                Err(error) if spans.is_empty() => return Err(error),
                // The records before it come first: of two faults of a file the first one counts, for any size of chunks.
                Err(error) => {
                    self.stopped = Some(error);
                    break;
                }
            }
        }
        if spans.is_empty() {
            return Ok(None);
        }
        self.chunk(Bytes::from(buffer), &spans).map(Some)
    }

    fn unknown_columns(&self) -> Vec<String> {
        self.added.reported()
    }

    fn header(&self) -> Option<Header> {
        Some(Header::new(Form::Json, None, false))
    }
}

/// What is built for one chunk.
struct Building {
    sinks: Vec<ColumnSink>,
    faults: Vec<Fault>,
    raw: Vec<StringBuilder>,
    rescued: Option<StringBuilder>,
    added: Texts,
    numbers: Vec<i64>,
    spans: Vec<(u32, u32)>,
    lines: Vec<i64>,
    offsets: Vec<i64>,
    rejects: Vec<Reject>,
}

impl JsonDecoder {
    fn chunk(&mut self, bytes: Bytes, spans: &[Span]) -> Result<Chunk, DecodeError> {
        let rescues = self.contract.unknown_columns == UnknownColumns::Rescue;
        let mut building = Building {
            sinks: self.casters.iter().map(|caster| caster.begin(spans.len())).collect(),
            faults: Vec::new(),
            raw: self.options.raw_columns.iter().map(|_| StringBuilder::new()).collect(),
            rescued: rescues.then(StringBuilder::new),
            added: Texts::default(),
            numbers: Vec::with_capacity(spans.len()),
            spans: Vec::with_capacity(spans.len()),
            lines: Vec::with_capacity(spans.len()),
            offsets: Vec::with_capacity(spans.len()),
            rejects: Vec::new(),
        };
        let mut values = Values::default();
        for span in spans {
            self.seen += 1;
            let text = &bytes[span.start..span.end];
            match self.read(text, &mut values) {
                Ok(()) => self.push(span, &values, &mut building)?,
                Err(fault) => building.rejects.push(reject(self.seen, span, text, fault)),
            }
        }
        self.finish(bytes, building)
    }

    /// Reads one record and looks into all of it.
    fn read<'a>(&self, text: &'a [u8], values: &mut Values<'a>) -> Result<(), ShapeFault> {
        let text = std::str::from_utf8(text).map_err(|error| {
            let at = error.valid_up_to();
            let reason = format!("byte 0x{:02X} at byte {at} of the record is not UTF-8", text[at]);
            ShapeFault { rule: "not_utf8", reason }
        })?;
        values.read(&self.names, text, self.one_a_line)?;
        for index in 0..values.unknown.len() {
            let (name, value) = &values.unknown[index];
            if value.get().starts_with(['{', '[']) {
                let (name, value) = (name.clone(), *value);
                values.inspect(value, None, &name)?;
            }
        }
        for (index, column) in self.contract.columns.iter().enumerate() {
            if let Some(value) = self.value(values, index) {
                values.inspect(value, Some(&column.data_type), &column.name)?;
            }
        }
        Ok(())
    }

    /// The value of a column: that of the first of its names which the record has.
    fn value<'a>(&self, values: &Values<'a>, column: usize) -> Option<&'a RawValue> {
        self.names.of_column(column).iter().find_map(|slot| values.found[*slot])
    }

    fn push(&mut self, span: &Span, values: &Values<'_>, building: &mut Building) -> Result<(), DecodeError> {
        let row = building.numbers.len();
        for index in 0..self.casters.len() {
            let value = self.value(values, index);
            if let Err(fault) = push_value(&mut building.sinks[index], value) {
                let value = value.and_then(text_of);
                building.faults.push(Fault { row, column: index, kind: fault.kind, value, reason: fault.reason });
            }
        }
        for (builder, column) in building.raw.iter_mut().zip(&self.options.raw_columns) {
            builder.append_option(self.value(values, *column).and_then(text_of));
        }
        self.keep_unknown(row, span, values, building)?;
        building.numbers.push(self.seen);
        building.spans.push((narrow(span.start), narrow(span.end)));
        building.lines.push(span.line);
        building.offsets.push(span.offset);
        Ok(())
    }

    /// What the record has and the contract does not name: rescued, added, reported or a reason to refuse the file.
    fn keep_unknown(
        &mut self,
        row: usize,
        span: &Span,
        values: &Values<'_>,
        building: &mut Building,
    ) -> Result<(), DecodeError> {
        match self.contract.unknown_columns {
            UnknownColumns::Reject => {
                if let Some((name, _)) = values.unknown.first() {
                    return Err(assemble::unknown_refused(name, Some((span.line, span.offset))).into());
                }
            }
            UnknownColumns::Ignore => {
                for (name, _) in &values.unknown {
                    self.added.report(name);
                }
            }
            UnknownColumns::Rescue => {
                for (name, _) in &values.unknown {
                    self.added.report(name);
                }
                if let Some(builder) = &mut building.rescued {
                    let members = values.unknown.iter().map(|(name, value)| (name.as_str(), value.get()));
                    builder.append_option(assemble::object_text(members));
                }
            }
            UnknownColumns::Add => {
                for (name, value) in &values.unknown {
                    let column = self.added.column(name, Some((span.line, span.offset)))?;
                    let is_listed = name.contains('[');
                    if !building.added.put(column, row, text_of(value), is_listed.then(|| value.get())) {
                        return Err(assemble::twice_refused(name, Some((span.line, span.offset))).into());
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(&self, bytes: Bytes, building: Building) -> Result<Chunk, DecodeError> {
        let rows = building.numbers.len();
        let columns = building.sinks.into_iter().map(ColumnSink::finish).collect::<Result<Vec<ArrayRef>>>()?;
        let rescued = building.rescued.map(|mut builder| Arc::new(builder.finish()) as ArrayRef);
        let added = building.added.finish(self.added.columns(), rows);
        let raw = building.raw.into_iter().map(|mut builder| Arc::new(builder.finish()) as ArrayRef).collect();
        Ok(Chunk {
            rows: assemble::rows(&self.contract.columns, columns, rescued, added, building.numbers)?,
            faults: building.faults,
            raw_columns: assemble::raw_columns(&self.contract.columns, &self.options.raw_columns, raw, rows)?,
            raw: Raw::Text { bytes, spans: building.spans, lines: building.lines, offsets: building.offsets },
            rejects: building.rejects,
            ignored: 0,
        })
    }
}

/// Gives a value to a column; absence and null are different things.
fn push_value(sink: &mut ColumnSink, value: Option<&RawValue>) -> Result<(), CastFault> {
    let Some(value) = value else { return sink.push_absent() };
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'n') => sink.push_null(),
        Some(b't') => sink.push_scalar(Scalar::Bool(true)),
        Some(b'f') => sink.push_scalar(Scalar::Bool(false)),
        Some(b'"') => match unquoted(text) {
            Ok(text) => sink.push_scalar(Scalar::Text(&text)),
            Err(reason) => {
                // The row is null either way; what counts is why.
                let _ = sink.push_null();
                Err(CastFault { kind: FaultKind::Invalid, reason })
            }
        },
        Some(b'{' | b'[') => sink.push_scalar(Scalar::Json(value)),
        _ => sink.push_scalar(Scalar::Number(text)),
    }
}

/// The text that a JSON string means.
fn unquoted(text: &str) -> Result<std::borrow::Cow<'_, str>, String> {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Ok(inner.into());
    }
    serde_json::from_str::<String>(text).map(Into::into).map_err(|error| {
        let message = error.to_string();
        format!("not a string: {}", message.split(" at line ").next().unwrap_or_default())
    })
}

/// A value as text: strings without quotes, everything else as JSON; none for null.
fn text_of(value: &RawValue) -> Option<String> {
    match value.get() {
        "null" => None,
        text if text.starts_with('"') => Some(unquoted(text).map_or_else(|_| text.to_owned(), Into::into)),
        text => Some(text.to_owned()),
    }
}

fn reject(record: i64, span: &Span, text: &[u8], fault: ShapeFault) -> Reject {
    Reject {
        record: Some(record),
        line: Some(span.line),
        byte_offset: Some(span.offset),
        raw: text.to_vec(),
        rules: vec![fault.rule.to_owned()],
        reasons: vec![Reason { column: None, rule: fault.rule.to_owned(), value: Some(fault.reason) }],
    }
}

/// Positions in a chunk's buffer fit: a record is at most `u32::MAX` bytes and a chunk ends after a long one.
fn narrow(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
