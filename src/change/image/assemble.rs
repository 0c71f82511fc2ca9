//! Pushed rows -> the batch that is kept: judged, with place, and with what quarantine shows of those that need it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryBuilder, BooleanArray, Int8Array, Int32Array, Int64Array, ListBuilder, RecordBatch,
    StringArray, StringBuilder,
};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field};

use super::bronze::Bronze;
use super::build::Rows;
use super::digest::Digest;
use super::names::Values;
use super::{Images, event};
use crate::cast::ColumnSink;
use crate::change::Op;
use crate::change::stored::MALFORMED_RANK;
use crate::decode::debezium::compact;
use crate::error::Result;
use crate::quality::Changes;
use crate::quarantine::events::MALFORMED;

/// Names by row; rows without one are left out.
type ByRow = BTreeMap<usize, Vec<String>>;

/// The batch of all pushed rows.
pub(super) fn assemble(pushed: Rows, images: &Images, events: &Bronze<'_>) -> Result<RecordBatch> {
    let rows = pushed.events.len();
    let Rows { sinks, raw, events: of_row, mut ranks, mut digests, is_upsert, faults, unavailable, malformed } = pushed;
    let mut columns = sinks.into_iter().map(ColumnSink::finish).collect::<Result<Vec<ArrayRef>>>()?;
    let raw: Vec<ArrayRef> = raw.into_iter().map(|mut raw| Arc::new(raw.finish()) as ArrayRef).collect();
    let field = |values: &Int64Array| -> ArrayRef {
        Arc::new(of_row.iter().map(|row| values.is_valid(*row).then(|| values.value(*row))).collect::<Int64Array>())
    };
    let mut fields: Vec<ArrayRef> = events.fields.iter().map(|values| field(values)).collect();
    if !malformed.is_empty() {
        let mut mask = vec![false; rows];
        for row in &malformed {
            mask[*row] = true;
            ranks[*row] = MALFORMED_RANK;
            let mut digest = Digest::new();
            digest.add(events.event(of_row[*row]));
            digests[*row] = Some(digest.finish());
        }
        let mask = BooleanArray::from(mask);
        for column in &images.key_columns {
            columns[*column] = nullif(&columns[*column], &mask)?;
        }
        for field in &mut fields {
            *field = nullif(field, &mask)?;
        }
    }
    let shown_ranks = ranks.clone();
    let ranks: ArrayRef = Arc::new(Int8Array::from(ranks));
    let names = images.source.fields();
    let field_of = |wanted: &str| {
        let position = names.iter().position(|name| *name == wanted).unwrap_or_default();
        Ok(Arc::clone(&fields[position]))
    };
    let changes = Changes {
        rows,
        judged: Some(&is_upsert),
        columns: columns.clone(),
        raw: raw.clone(),
        variables: images.variables(&ranks, field_of)?,
        faults: &faults,
        unavailable: &unavailable,
    };
    let mut broken: ByRow = images.judge.broken(&changes)?;
    for row in &malformed {
        broken.insert(*row, vec![MALFORMED.to_owned()]);
    }
    let mut placeholders = ByRow::new();
    for (row, column) in &unavailable {
        placeholders.entry(*row).or_default().push(images.contract.columns[*column].name.clone());
    }
    let mut kept_faults = ByRow::new();
    for (row, column, kind) in faults.iter().filter(|(row, ..)| placeholders.contains_key(row)) {
        kept_faults.entry(*row).or_default().push(images.judge.built_in(*column, *kind));
    }

    let mut all: Vec<ArrayRef> = images.key_columns.iter().map(|column| Arc::clone(&columns[*column])).collect();
    all.extend(fields);
    all.push(ranks);
    all.extend(places(&of_row, events));
    let others = (0..columns.len()).filter(|column| !images.key_columns.contains(column));
    all.extend(others.map(|column| Arc::clone(&columns[column])));
    all.extend(raw);
    all.extend([lists(rows, &placeholders), lists(rows, &broken), lists(rows, &kept_faults)]);
    let is_shown = |row: usize| broken.contains_key(&row) || placeholders.contains_key(&row);
    all.extend(shown(images, events, &of_row, &shown_ranks, is_shown));
    all.push(Arc::new(Int64Array::from(digests)));
    Ok(RecordBatch::try_new(Arc::clone(&images.schema), all)?)
}

/// Partition and offset of records; file and line of bare values.
fn places(of_row: &[usize], events: &Bronze<'_>) -> [ArrayRef; 4] {
    let record = || of_row.iter().map(|row| Some(*row).filter(|row| events.is_record(*row)));
    let line = || of_row.iter().map(|row| Some(*row).filter(|row| !events.is_record(*row)));
    let file = |row: usize| events.file.is_valid(row).then(|| events.file.value(row));
    let number = |row: usize| events.row.is_valid(row).then(|| events.row.value(row));
    [
        Arc::new(record().map(|row| row.map(|row| events.partition.value(row))).collect::<Int32Array>()),
        Arc::new(record().map(|row| row.map(|row| events.offset.value(row))).collect::<Int64Array>()),
        Arc::new(line().map(|row| row.and_then(file)).collect::<StringArray>()),
        Arc::new(line().map(|row| row.and_then(number)).collect::<Int64Array>()),
    ]
}

/// A list of names for each row; null where there is none.
fn lists(rows: usize, names: &ByRow) -> ArrayRef {
    let element = Arc::new(Field::new("element", DataType::Utf8, true));
    let mut builder = ListBuilder::new(StringBuilder::new()).with_field(element);
    let mut of_rows = names.iter().peekable();
    for row in 0..rows {
        match of_rows.next_if(|(other, _)| **other == row) {
            Some((_, names)) => builder.append_value(names.iter().map(Some)),
            None => builder.append_null(),
        }
    }
    Arc::new(builder.finish())
}

/// What quarantine shows of a row: key, op, topic and the whole event. Of what is malformed it shows no key and no op.
fn shown(
    images: &Images,
    events: &Bronze<'_>,
    of_row: &[usize],
    ranks: &[i8],
    is_shown: impl Fn(usize) -> bool,
) -> [ArrayRef; 4] {
    let (mut key, mut op, mut topic) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
    let mut event = BinaryBuilder::new();
    for (row, at) in of_row.iter().enumerate() {
        if !is_shown(row) {
            key.append_null();
            op.append_null();
            topic.append_null();
            event.append_null();
            continue;
        }
        let of_change = Op::of_rank(ranks[row]);
        match (of_change, events.key(*at)) {
            (None, _) => key.append_null(),
            (Some(_), Some(text)) => key.append_value(text),
            (Some(_), None) => key.append_option(key_of_row(images, events.event(*at))),
        }
        op.append_option(of_change.map(Op::letter));
        topic.append_option(events.topic(*at));
        event.append_value(events.event(*at));
    }
    [Arc::new(key.finish()), Arc::new(op.finish()), Arc::new(topic.finish()), Arc::new(event.finish())]
}

/// The key of a bare value as compact JSON: the key's columns as the row has them.
fn key_of_row(images: &Images, event: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(event).ok()?;
    let mut values = Values::default();
    event::read(text, &images.names, &mut values)?;
    let member = |column: &usize| {
        let name = serde_json::to_string(images.names.used(&values, *column)).ok()?;
        Some(format!("{name}:{}", compact(images.names.text(&values, *column, text)?)))
    };
    let members = images.key_columns.iter().map(member).collect::<Option<Vec<String>>>()?;
    Some(format!("{{{}}}", members.join(",")))
}
