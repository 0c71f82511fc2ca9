//! A proposed contract as YAML with comments for the person who reads it.

use std::fmt::Write as _;

use super::guess::Proposal;
use crate::name::TableName;
use crate::schema::{Column, ColumnType, Format, Rounding, Source};

/// What is to be written.
pub(super) struct Draft<'a> {
    pub table: &'a TableName,
    pub source: &'a Source,
    pub proposals: &'a [Proposal],
    pub file_name: &'a str,
    pub records: usize,
    pub refused: usize,
    pub notes: &'a [String],
}

/// The YAML text.
pub(super) fn render(draft: &Draft<'_>) -> String {
    let mut text = String::new();
    let file_name = draft.file_name.replace(['\n', '\r'], " ");
    let records = if draft.records == 1 { "1 record".to_owned() } else { format!("{} records", draft.records) };
    // Writing to a string does not fail.
    let _ = writeln!(text, "# A first contract, inferred from {records} of {file_name}. Read it before you trust it:");
    text.push_str("# types and `nullable: false` say what these records had, not what the next file will have.\n");
    if draft.refused > 0 {
        let _ = writeln!(text, "# {} of the records could not be read and will go to quarantine.", draft.refused);
    }
    for note in draft.notes {
        let _ = writeln!(text, "# {note}.");
    }
    let _ = writeln!(text, "version: 1\ntable: {}\nsource:\n{}columns:", draft.table, source(draft.source));
    let lines: Vec<String> = draft.proposals.iter().map(|proposal| column(&proposal.column)).collect();
    let width = lines.iter().map(String::len).max().unwrap_or(0).min(80);
    for (line, proposal) in lines.iter().zip(draft.proposals) {
        if proposal.notes.is_empty() {
            let _ = writeln!(text, "  - {line}");
        } else {
            let note = proposal.notes.join("; ").replace(['\n', '\r'], " ");
            let _ = writeln!(text, "  - {line:width$}  # {note}");
        }
    }
    text.push_str("# primary_key: [...]          # what makes a row one row\n");
    text.push_str("write_mode: append           # append | upsert | overwrite\n");
    text.push_str("unknown_columns: rescue      # rescue | add | ignore | reject\n");
    text.push_str("# rules:\n#   - { name: ..., check: \"...\", on_fail: quarantine }   # quarantine | warn | fail\n");
    text
}

fn source(source: &Source) -> String {
    let format = match source.format {
        Format::Csv => "csv",
        Format::Json => "json",
        Format::Ndjson => "ndjson",
        Format::Parquet => "parquet",
        Format::Debezium => "debezium",
    };
    let mut text = format!("  path: {}\n  format: {format}\n", quoted(&source.path));
    if source.format == Format::Csv {
        let _ = writeln!(text, "  header: {}", source.csv.header);
        if source.csv.delimiter != b',' {
            let _ = writeln!(text, "  delimiter: {}", quoted(&char::from(source.csv.delimiter).to_string()));
        }
        if source.csv.encoding != "utf-8" {
            let _ = writeln!(text, "  encoding: {}", source.csv.encoding);
        }
    }
    text
}

fn column(column: &Column) -> String {
    let mut parts = vec![format!("name: {}", word(&column.name)), format!("type: {}", type_text(&column.data_type))];
    if let [from] = column.from.as_slice() {
        parts.push(format!("from: {}", quoted(from)));
    }
    if !column.nullable {
        parts.push("nullable: false".to_owned());
    }
    if let Some(tokens) = &column.null_values {
        let tokens: Vec<String> = tokens.iter().map(|token| quoted(token)).collect();
        parts.push(format!("null_values: [{}]", tokens.join(", ")));
    }
    if let [format] = column.formats.as_slice() {
        parts.push(format!("format: {}", quoted(format)));
    }
    if column.decimal_separator != b'.' {
        parts.push(format!("decimal_separator: {}", quoted(&char::from(column.decimal_separator).to_string())));
    }
    if let Some(separator) = column.group_separator {
        parts.push(format!("group_separator: {}", quoted(&separator.to_string())));
    }
    if column.rounding == Rounding::Down {
        parts.push("rounding: down".to_owned());
    }
    format!("{{ {} }}", parts.join(", "))
}

/// A name without quotes where YAML takes it for a word.
fn word(text: &str) -> String {
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let lower = text.to_ascii_lowercase();
    let is_keyword = matches!(lower.as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n");
    if is_word && !is_keyword { text.to_owned() } else { quoted(text) }
}

/// A JSON string is a YAML string in double quotes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn type_text(data_type: &ColumnType) -> String {
    let text = type_name(data_type);
    if text.contains(['(', '<']) { quoted(&text) } else { text }
}

fn type_name(data_type: &ColumnType) -> String {
    match data_type {
        ColumnType::Boolean => "boolean".to_owned(),
        ColumnType::Int8 => "int8".to_owned(),
        ColumnType::Int16 => "int16".to_owned(),
        ColumnType::Int32 => "int32".to_owned(),
        ColumnType::Int64 => "int64".to_owned(),
        ColumnType::Float32 => "float32".to_owned(),
        ColumnType::Float64 => "float64".to_owned(),
        ColumnType::Decimal(precision, scale) => format!("decimal({precision},{scale})"),
        ColumnType::String => "string".to_owned(),
        ColumnType::Binary => "binary".to_owned(),
        ColumnType::Date => "date".to_owned(),
        ColumnType::Timestamp => "timestamp".to_owned(),
        ColumnType::TimestampNtz => "timestamp_ntz".to_owned(),
        ColumnType::List(of) => format!("list<{}>", type_name(of)),
        ColumnType::Struct(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, of)| format!("{name}:{}", type_name(of))).collect();
            format!("struct<{}>", fields.join(","))
        }
        ColumnType::Map(key, value) => format!("map<{},{}>", type_name(key), type_name(value)),
    }
}
