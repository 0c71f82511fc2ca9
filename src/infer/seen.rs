//! What the records of a sample hold, and the columns that follow from it.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, TimeUnit};
use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::guess::{self, Proposal};
use super::sample::Sample;
use super::{RECORDS, draft, open};
use crate::decode::{DecodeError, Raw, json_members};
use crate::name::TableName;
use crate::schema::{Column, ColumnType, Format, Source, UnknownColumns};

/// What was learned from a sample.
pub(super) struct Learned {
    pub proposals: Vec<Proposal>,
    /// Records looked at.
    pub records: usize,
    /// Records among them that no contract could take.
    pub refused: usize,
}

/// Learns the columns of a sample.
pub(super) fn learn(sample: &Sample, table: &TableName, source: &Source) -> Result<Learned, DecodeError> {
    match sample.format {
        Format::Csv => from_csv(sample, table, source),
        Format::Json | Format::Ndjson | Format::Debezium => from_json(sample, table, source),
        Format::Parquet => from_parquet(sample, table, source),
    }
}

fn from_csv(sample: &Sample, table: &TableName, source: &Source) -> Result<Learned, DecodeError> {
    let names = legal_names(&sample.header);
    let columns: Vec<Column> = names
        .iter()
        .zip(&sample.header)
        .map(|(name, header)| with_source(Column::new(name, ColumnType::String), header))
        .collect();
    let raw: Vec<usize> = (0..columns.len()).collect();
    let contract = Arc::new(draft(table, source, columns.clone(), UnknownColumns::Ignore));
    let mut decoder = open(sample, &contract, source, raw)?;
    let mut chunks = Vec::new();
    let (mut records, mut refused) = (0, 0);
    while records < RECORDS
        && let Some(chunk) = decoder.next_chunk()?
    {
        records += chunk.rows.num_rows() + chunk.rejects.len();
        refused += chunk.rejects.len();
        chunks.push(chunk.raw_columns);
    }
    let mut proposals = Vec::with_capacity(columns.len());
    for (index, column) in columns.into_iter().enumerate() {
        let texts = chunks.iter().flat_map(|chunk| chunk.column(index).as_string::<i32>().iter());
        let mut proposal = guess::of_texts(&column.name, texts.map(Option::unwrap_or_default));
        proposal.column.from = column.from;
        proposals.push(proposal);
    }
    Ok(Learned { proposals, records, refused })
}

/// Values of one JSON field.
#[derive(Default)]
struct Field {
    /// Records (or objects) that had it.
    present: usize,
    nulls: usize,
    booleans: usize,
    numbers: Vec<String>,
    texts: Vec<String>,
    objects: usize,
    members: IndexMap<String, Field>,
    lists: usize,
    elements: Option<Box<Field>>,
}

impl Field {
    fn see(&mut self, value: &RawValue) {
        self.present += 1;
        let text = value.get();
        match text.as_bytes().first() {
            Some(b'n') => self.nulls += 1,
            Some(b't' | b'f') => self.booleans += 1,
            Some(b'"') => self.texts.push(serde_json::from_str(text).unwrap_or_default()),
            Some(b'{') => {
                self.objects += 1;
                for (key, member) in json_members(text).unwrap_or_default() {
                    self.members.entry(key.into_owned()).or_default().see(member);
                }
            }
            Some(b'[') => {
                self.lists += 1;
                let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
                let seen = self.elements.get_or_insert_default();
                elements.into_iter().for_each(|element| seen.see(element));
            }
            _ => self.numbers.push(text.to_owned()),
        }
    }

    /// The one kind of value that it had, as a type; none for a mixture or something that a contract cannot say.
    fn data_type(&self) -> Option<Proposal> {
        let kinds = [self.booleans, self.numbers.len(), self.texts.len(), self.objects, self.lists];
        if kinds.iter().filter(|count| **count > 0).count() > 1 {
            return None;
        }
        let of = |data_type| Some(Proposal::new("", data_type));
        if self.booleans > 0 {
            return of(ColumnType::Boolean);
        }
        if !self.numbers.is_empty() {
            return Some(guess::of_texts("", self.numbers.iter().map(String::as_str)));
        }
        if self.lists > 0 {
            let element = self.elements.as_ref().map_or(Some(ColumnType::String), |field| field.nested())?;
            return of(ColumnType::List(Box::new(element)));
        }
        if self.objects > 0 {
            let is_plain =
                |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty();
            if self.members.is_empty() || !self.members.keys().all(is_plain) {
                return None;
            }
            let fields = self.members.iter().map(|(name, field)| Some((name.clone(), field.nested()?)));
            return of(ColumnType::Struct(fields.collect::<Option<_>>()?));
        }
        // A string that looks like a number is a string for a reason; one that looks like a time has no other form.
        let proposal = guess::of_texts("", self.texts.iter().map(String::as_str));
        let is_time =
            matches!(proposal.column.data_type, ColumnType::Date | ColumnType::Timestamp | ColumnType::TimestampNtz);
        let has_empty = self.texts.iter().any(|text| text.trim().is_empty());
        if is_time && !has_empty && proposal.column.null_values.is_none() {
            return Some(proposal);
        }
        of(ColumnType::String)
    }

    /// What no one type takes is kept as text.
    fn as_text(&self) -> Proposal {
        let kinds = [
            (self.booleans > 0, "booleans"),
            (!self.numbers.is_empty(), "numbers"),
            (!self.texts.is_empty(), "strings"),
            (self.objects > 0, "objects"),
            (self.lists > 0, "lists"),
        ];
        let seen: Vec<&str> = kinds.iter().filter(|(is_seen, _)| *is_seen).map(|(_, kind)| *kind).collect();
        let note = match seen.as_slice() {
            [_] => "no type says what it has in it: kept as JSON text".to_owned(),
            several => format!("{} in the sample: kept as text", several.join(" and ")),
        };
        Proposal { notes: vec![note], ..Proposal::new("", ColumnType::String) }
    }

    /// The type of a part of a nested value, where only types can be declared.
    fn nested(&self) -> Option<ColumnType> {
        let proposal = self.data_type()?;
        let column = proposal.column;
        let is_plain = column.formats.is_empty() && column.null_values.is_none() && column.decimal_separator == b'.';
        if is_plain { Some(column.data_type) } else { Some(ColumnType::String) }
    }
}

fn from_json(sample: &Sample, table: &TableName, source: &Source) -> Result<Learned, DecodeError> {
    // Without columns every field is unknown, and what is unknown is kept whole in `_rescued`.
    let contract = Arc::new(draft(table, source, Vec::new(), UnknownColumns::Rescue));
    let mut decoder = open(sample, &contract, source, Vec::new())?;
    let mut fields: IndexMap<String, Field> = IndexMap::new();
    let (mut records, mut refused) = (0, 0);
    while records < RECORDS
        && let Some(chunk) = decoder.next_chunk()?
    {
        records += chunk.rows.num_rows() + chunk.rejects.len();
        refused += chunk.rejects.len();
        for text in chunk.rows.column(0).as_string::<i32>().iter().flatten() {
            for (key, value) in json_members(text).unwrap_or_default() {
                fields.entry(key.into_owned()).or_default().see(value);
            }
        }
    }
    let keys: Vec<String> = fields.keys().cloned().collect();
    let mut proposals = Vec::with_capacity(keys.len());
    for ((key, field), name) in fields.iter().zip(legal_names(&keys)) {
        let mut proposal = field.data_type().unwrap_or_else(|| field.as_text());
        proposal.column.nullable = field.nulls > 0 || field.present < records - refused;
        if field.nulls == field.present {
            proposal.notes = vec!["always null in the sample".to_owned()];
        }
        proposal.column.name = name;
        proposal.column = with_source(proposal.column, key);
        proposals.push(proposal);
    }
    Ok(Learned { proposals, records, refused })
}

fn from_parquet(sample: &Sample, table: &TableName, source: &Source) -> Result<Learned, DecodeError> {
    let contract = Arc::new(draft(table, source, Vec::new(), UnknownColumns::Ignore));
    let mut decoder = open(sample, &contract, source, Vec::new())?;
    let mut proposals: Vec<Proposal> = Vec::new();
    let mut records = 0;
    while records < RECORDS
        && let Some(chunk) = decoder.next_chunk()?
    {
        let Raw::Rows(batch) = chunk.raw else { break };
        if records == 0 {
            let keys: Vec<String> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
            for (field, name) in batch.schema().fields().iter().zip(legal_names(&keys)) {
                let column = Column::new(name, declared(field.data_type()).unwrap_or(ColumnType::Binary));
                let mut column = with_source(column, field.name());
                column.nullable = false;
                proposals.push(Proposal { column, notes: Vec::new() });
            }
        }
        records += batch.num_rows();
        for (proposal, array) in proposals.iter_mut().zip(batch.columns()) {
            proposal.column.nullable |= array.null_count() > 0;
        }
    }
    Ok(Learned { proposals, records, refused: 0 })
}

/// The contract's word for a type of a Parquet file.
fn declared(data_type: &DataType) -> Option<ColumnType> {
    Some(match data_type {
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int8 => ColumnType::Int8,
        DataType::Int16 | DataType::UInt8 => ColumnType::Int16,
        DataType::Int32 | DataType::UInt16 => ColumnType::Int32,
        DataType::Int64 | DataType::UInt32 => ColumnType::Int64,
        DataType::UInt64 => ColumnType::Decimal(20, 0),
        DataType::Float16 | DataType::Float32 => ColumnType::Float32,
        DataType::Float64 => ColumnType::Float64,
        DataType::Decimal128(precision, scale) => ColumnType::Decimal(*precision, *scale),
        DataType::Utf8 | DataType::Null => ColumnType::String,
        DataType::Binary | DataType::FixedSizeBinary(_) => ColumnType::Binary,
        DataType::Date32 | DataType::Date64 => ColumnType::Date,
        DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) => ColumnType::String,
        DataType::Timestamp(
            TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond,
            zone,
        ) => {
            if zone.is_some() {
                ColumnType::Timestamp
            } else {
                ColumnType::TimestampNtz
            }
        }
        DataType::List(of) => ColumnType::List(Box::new(declared(of.data_type())?)),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| Some((field.name().clone(), declared(field.data_type())?)));
            ColumnType::Struct(fields.collect::<Option<_>>()?)
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                ColumnType::Map(Box::new(declared(fields[0].data_type())?), Box::new(declared(fields[1].data_type())?))
            }
            _ => return None,
        },
        _ => return None,
    })
}

fn with_source(mut column: Column, source_name: &str) -> Column {
    if column.name != source_name {
        column.from = vec![source_name.to_owned()];
    }
    column
}

/// Names that every engine takes, all different.
fn legal_names(names: &[String]) -> Vec<String> {
    let mut taken: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        let is_legal = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let legal = if is_legal { name.clone() } else { made_legal(name) };
        let is_taken = |name: &str, taken: &[String]| taken.iter().any(|known| known.eq_ignore_ascii_case(name));
        let mut unique = legal.clone();
        let mut number = 2;
        while is_taken(&unique, &taken) {
            unique = format!("{legal}_{number}");
            number += 1;
        }
        taken.push(unique);
    }
    taken
}

fn made_legal(name: &str) -> String {
    let mut legal = String::with_capacity(name.len());
    for c in name.trim().to_lowercase().chars() {
        if c.is_ascii_alphanumeric() {
            legal.push(c);
        } else if !legal.is_empty() && !legal.ends_with('_') {
            legal.push('_');
        }
    }
    let legal = legal.trim_end_matches('_');
    if legal.is_empty() {
        return "column".to_owned();
    }
    if legal.starts_with(|c: char| c.is_ascii_digit()) { format!("n{legal}") } else { legal.to_owned() }
}
