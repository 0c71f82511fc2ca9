//! Rows of changes on their way into a batch.

use arrow::array::StringBuilder;
use serde_json::value::RawValue;

use super::Images;
use super::digest::Digest;
use super::scan::unquoted;
use crate::cast::{CastFault, ColumnSink, Scalar};
use crate::change::Op;
use crate::decode::FaultKind;
use crate::decode::debezium::compact;
use crate::schema::Column;

/// Growing rows. Each is begun by its key's columns and ended by the rest.
#[derive(Debug)]
pub(super) struct Rows {
    /// A column each, in the contract's order.
    pub(super) sinks: Vec<ColumnSink>,
    /// The texts that rules ask for.
    pub(super) raw: Vec<StringBuilder>,
    /// The event of each row.
    pub(super) events: Vec<usize>,
    /// What each row does.
    pub(super) ranks: Vec<i8>,
    /// The hash of each upsert.
    pub(super) digests: Vec<Option<i64>>,
    /// Whether a row came or changed.
    pub(super) is_upsert: Vec<bool>,
    /// Cells that are no value: row, column and why.
    pub(super) faults: Vec<(usize, usize, FaultKind)>,
    /// Cells that a placeholder stands for: row and column.
    pub(super) unavailable: Vec<(usize, usize)>,
    /// Rows that are no change of this table.
    pub(super) malformed: Vec<usize>,
}

impl Rows {
    pub(super) fn new(images: &Images, rows: usize) -> Self {
        Self {
            sinks: images.casters.iter().map(|caster| caster.begin(rows)).collect(),
            raw: images.judge.raw_columns().iter().map(|_| StringBuilder::new()).collect(),
            events: Vec::with_capacity(rows),
            ranks: Vec::with_capacity(rows),
            digests: Vec::with_capacity(rows),
            is_upsert: Vec::with_capacity(rows),
            faults: Vec::new(),
            unavailable: Vec::new(),
            malformed: Vec::new(),
        }
    }

    fn end(&mut self, event: usize, rank: i8, digest: Option<i64>, is_upsert: bool) {
        self.events.push(event);
        self.ranks.push(rank);
        self.digests.push(digest);
        self.is_upsert.push(is_upsert);
    }

    /// A row without key and values.
    pub(super) fn push_blank(&mut self, event: usize, op: Op) {
        // That null may not be allowed is nobody's fault here.
        self.sinks.iter_mut().for_each(|sink| drop(sink.push_null()));
        self.raw.iter_mut().for_each(StringBuilder::append_null);
        self.end(event, op.rank(), None, false);
    }

    /// What is no change of this table.
    pub(super) fn push_malformed(&mut self, event: usize) {
        self.malformed.push(self.events.len());
        self.push_blank(event, Op::Truncate);
    }

    /// The same, when values were pushed for the key's columns already.
    pub(super) fn push_malformed_after_key(&mut self, images: &Images, event: usize) {
        self.malformed.push(self.events.len());
        self.push_rest_blank(images, event, Op::Truncate);
    }

    /// The values of the key's columns; false when one is none.
    pub(super) fn push_key<'a>(&mut self, images: &Images, text: impl Fn(usize) -> Option<&'a str>) -> bool {
        let mut is_whole = true;
        for (part, column) in images.key_columns.iter().enumerate() {
            let pushed = push_value(&mut self.sinks[*column], text(part), &images.contract.columns[*column]);
            is_whole &= pushed.is_ok();
        }
        is_whole
    }

    /// The rest of a row that has a key alone.
    pub(super) fn push_rest_blank(&mut self, images: &Images, event: usize, op: Op) {
        for (column, sink) in self.sinks.iter_mut().enumerate() {
            if !images.key_columns.contains(&column) {
                drop(sink.push_null());
            }
        }
        self.raw.iter_mut().for_each(StringBuilder::append_null);
        self.end(event, op.rank(), None, false);
    }

    /// The rest of a row that came or changed.
    pub(super) fn push_rest<'a>(
        &mut self,
        images: &Images,
        event: usize,
        op: Op,
        text: impl Fn(usize) -> Option<&'a str>,
    ) {
        let row = self.events.len();
        let mut digest = Digest::new();
        for (column, sink) in self.sinks.iter_mut().enumerate() {
            let value = text(column);
            digest_value(&mut digest, value);
            if images.key_columns.contains(&column) {
                continue;
            }
            if value.is_some_and(|value| images.placeholder.is(value)) {
                self.unavailable.push((row, column));
                drop(sink.push_null());
            } else if let Err(fault) = push_value(sink, value, &images.contract.columns[column]) {
                self.faults.push((row, column, fault.kind));
            }
        }
        for (builder, column) in self.raw.iter_mut().zip(images.judge.raw_columns()) {
            let value = text(*column).filter(|value| *value != "null" && !images.placeholder.is(value));
            match value {
                Some(value) if value.starts_with('"') => {
                    builder.append_value(unquoted(value).as_deref().unwrap_or(value));
                }
                value => builder.append_option(value),
            }
        }
        self.end(event, op.rank(), Some(digest.finish()), true);
    }
}

/// Adds a value to the hash of its row: the same for the same value, however its text is escaped.
#[inline]
fn digest_value(digest: &mut Digest, value: Option<&str>) {
    match value {
        None | Some("null") => digest.add_null(),
        // A text and a number of the same digits are two values: the quote stays. Blanks within a text are its own.
        Some(text) if text.starts_with('"') && memchr::memchr(b'\\', text.as_bytes()).is_none() => {
            digest.add(text.as_bytes());
        }
        Some(text) => digest.add(compact(text).as_bytes()),
    }
}

/// Gives a value to a column; absence and null are different things.
#[inline]
pub(super) fn push_value(sink: &mut ColumnSink, value: Option<&str>, column: &Column) -> Result<(), CastFault> {
    let Some(text) = value else { return sink.push_absent() };
    match text.as_bytes().first() {
        Some(b'n') => sink.push_null(),
        Some(b't') => sink.push_scalar(Scalar::Bool(true)),
        Some(b'f') => sink.push_scalar(Scalar::Bool(false)),
        Some(b'"') => match unquoted(text) {
            // A document in a text: so connectors send JSON and maps of text.
            Some(document) if column.data_type.is_nested() => push_document(sink, &document),
            Some(text) => sink.push_scalar(Scalar::Text(&text)),
            None => refuse(sink, "half of a surrogate pair"),
        },
        Some(b'{' | b'[') => push_document(sink, text),
        _ => sink.push_scalar(Scalar::Number(text)),
    }
}

fn push_document(sink: &mut ColumnSink, text: &str) -> Result<(), CastFault> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) if raw.get() == "null" => sink.push_null(),
        Ok(raw) => sink.push_scalar(Scalar::Json(raw)),
        Err(_) => refuse(sink, "no JSON document"),
    }
}

/// Null in the place of what is no value at all.
fn refuse(sink: &mut ColumnSink, reason: &str) -> Result<(), CastFault> {
    drop(sink.push_null());
    Err(CastFault { kind: FaultKind::Invalid, reason: reason.to_owned() })
}
