//! A first contract from a file: what the first 10,000 records look like, as YAML for a person to read and correct.
//!
//! Every proposed column is checked: the sample is decoded with it, and a column that refuses a sampled value is given up
//! for a wider one. What was guessed is said in comments.

mod guess;
mod sample;
mod seen;
mod yaml;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use self::guess::Proposal;
use self::sample::Sample;
use crate::decode::{self, DecodeError, Decoder, Options};
use crate::error::{Error, Result};
use crate::name::TableName;
use crate::schema::{
    ColumnType, Contract, CsvDialect, Format, OnOverwrite, Origin, Rounding, Source, UnknownColumns, WriteMode,
};

/// Most records that are looked at.
const RECORDS: usize = 10_000;

/// Proposes a contract for `table` from the content of one file.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when the file has no records to learn from or cannot be read in its format.
pub fn infer(reader: Box<dyn Read + Send>, file_name: &str, table: &TableName) -> Result<String> {
    let sample = Sample::take(reader, file_name).map_err(|error| plain(error, file_name))?;
    let path = path_for(table, sample.format, file_name);
    let source = Source { csv: sample.dialect.clone(), ..Source::new(path, sample.format) };
    let learned = seen::learn(&sample, table, &source).map_err(|error| plain(error, file_name))?;
    if learned.records == 0 {
        return Err(Error::invalid(format!("{file_name}: no records to learn from")).remedy("give a file with data"));
    }
    let mut proposals = learned.proposals;
    let left_out = settle(&mut proposals, &sample, table, &source).map_err(|error| plain(error, file_name))?;
    let notes: Vec<String> = sample.notes.iter().cloned().chain(left_out).collect();
    Ok(yaml::render(&yaml::Draft {
        table,
        source: &source,
        proposals: &proposals,
        file_name,
        records: learned.records,
        refused: learned.refused,
        notes: &notes,
    }))
}

/// Decodes the sample under the proposals and gives up what refuses a value, until nothing does. Tells what was given up.
fn settle(
    proposals: &mut Vec<Proposal>,
    sample: &Sample,
    table: &TableName,
    source: &Source,
) -> Result<Vec<String>, DecodeError> {
    let mut left_out = Vec::new();
    // Each round widens or drops at least one proposal, and none can be widened more than twice.
    for _ in 0..=proposals.len() * 3 {
        let columns = proposals.iter().map(|proposal| proposal.column.clone()).collect();
        let contract = Arc::new(draft(table, source, columns, UnknownColumns::Ignore));
        let mut decoder = open(sample, &contract, source, Vec::new())?;
        let mut failed: BTreeMap<usize, String> = BTreeMap::new();
        let mut records = 0;
        while records < RECORDS
            && let Some(chunk) = decoder.next_chunk()?
        {
            records += chunk.rows.num_rows() + chunk.rejects.len();
            for fault in chunk.faults {
                let value = fault.value.unwrap_or_else(|| "null".to_owned());
                failed.entry(fault.column).or_insert_with(|| format!("`{value}`: {}", fault.reason));
            }
        }
        if failed.is_empty() {
            break;
        }
        for (index, reason) in failed.into_iter().rev() {
            if !widen(&mut proposals[index], source.format, &reason) {
                let name = proposals.remove(index).column.name;
                left_out.push(format!("`{name}` is not declared, and kept in _rescued: no type takes {reason}"));
            }
        }
    }
    Ok(left_out)
}

/// A wider proposal; false when there is none.
fn widen(proposal: &mut Proposal, format: Format, reason: &str) -> bool {
    let column = &mut proposal.column;
    let is_time = matches!(column.data_type, ColumnType::Timestamp | ColumnType::TimestampNtz);
    if !column.nullable && reason.contains("null") {
        column.nullable = true;
        return true;
    }
    if is_time && column.rounding == Rounding::Reject {
        column.rounding = Rounding::Down;
        proposal.notes.push("digits beyond microseconds are dropped".to_owned());
        return true;
    }
    if format == Format::Parquet || column.data_type == ColumnType::String {
        return false;
    }
    column.data_type = ColumnType::String;
    column.formats.clear();
    column.null_values = None;
    column.rounding = Rounding::Reject;
    column.decimal_separator = b'.';
    column.group_separator = None;
    proposal.notes = vec![format!("text, because of {}", reason.chars().take(120).collect::<String>())];
    true
}

fn open(
    sample: &Sample,
    contract: &Arc<Contract>,
    source: &Source,
    raw_columns: Vec<usize>,
) -> Result<Box<dyn Decoder>, DecodeError> {
    let options = Options { raw_columns, ..Options::default() };
    decode::open(contract, source, sample.content()?, &options)
}

/// A contract that serves for decoding and nothing else.
fn draft(table: &TableName, source: &Source, columns: Vec<crate::schema::Column>, unknown: UnknownColumns) -> Contract {
    Contract {
        table: table.clone(),
        description: None,
        origin: Origin::Files(source.clone()),
        columns,
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        partition_by: Vec::new(),
        sequence_by: Vec::new(),
        on_overwrite: OnOverwrite::Replace,
        unknown_columns: unknown,
        rules: Vec::new(),
        max_quarantine: None,
        properties: BTreeMap::new(),
        hash: String::new(),
        file: String::new(),
        positions: crate::schema::Positions::default(),
    }
}

fn path_for(table: &TableName, format: Format, file_name: &str) -> String {
    let name = file_name.to_ascii_lowercase();
    let known = [".csv", ".tsv", ".psv", ".txt", ".ndjson", ".jsonl", ".json", ".parquet"];
    let extension = known.into_iter().find(|extension| name.contains(extension)).unwrap_or(match format {
        Format::Csv => ".csv",
        Format::Json => ".json",
        Format::Ndjson => ".ndjson",
        Format::Parquet => ".parquet",
        Format::Debezium => ".ndjson",
    });
    format!("{}/**/*{extension}*", table.table())
}

fn plain(error: DecodeError, file_name: &str) -> Error {
    match error {
        DecodeError::Refused(refusal) => Error::invalid(format!("{file_name}: {}", refusal.reason)),
        DecodeError::Read(error) => error.within(file_name),
    }
}

/// The dialect of files that are no CSV.
fn no_dialect() -> CsvDialect {
    CsvDialect::default()
}

#[cfg(test)]
mod tests;
