//! The CSV reader against Python's `csv` and DuckDB, on messy files made by chance. Record by record they agree, or differ by
//! one of the differences that are named here; and each of those is met.
//!
//! Python's reader is strict and stops at what it does not take; DuckDB passes over records that it does not take.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use alluvium::decode::{self, DecodeError, Options};
use alluvium::schema::{Contract, yaml};
use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::Int64Type;
use serde::Deserialize;
use serde_json::json;

use crate::support::chance::Chance;
use crate::support::python::differential;

const FILES: u64 = 600;

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Record {
    /// Its fields; none for null.
    Row(Vec<Option<String>>),
    /// The rule, and its bytes.
    Refused(String, String),
}

/// What we make of a file.
#[derive(Debug)]
struct Ours {
    records: Vec<Record>,
    /// The rule by which the file is refused behind those records.
    stopped: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Theirs {
    python: Python,
    duckdb: DuckDb,
}

#[derive(Debug, Deserialize)]
struct Python {
    rows: Vec<Vec<String>>,
    stopped: Option<String>,
}

#[derive(Debug, Deserialize)]
struct DuckDb {
    rows: Vec<Vec<Option<String>>>,
    refused: Option<String>,
}

/// A file and how it was made.
struct Messy {
    delimiter: char,
    content: String,
    /// A blank stands beside a quote, outside of it.
    has_blank_at_quote: bool,
}

fn pick<'a>(chance: &mut Chance, of: &[&'a str]) -> &'a str {
    of[usize::try_from(chance.below(of.len() as u64)).unwrap()]
}

fn field(chance: &mut Chance, delimiter: char) -> String {
    match chance.below(24) {
        0..8 => pick(chance, &["x", "abc", "12", "-1.50", "é", "東京", "o'k", "a b"]).to_owned(),
        8..10 => String::new(),
        10..12 => pick(chance, &["\"q\"", "\"\"", "\" s \"", "\"é\""]).to_owned(),
        12..14 => format!("\"a{delimiter}b\""),
        14..16 => pick(chance, &["\"l\nm\"", "\"l\r\nm\"", "\"l\n\nm\""]).to_owned(),
        16..18 => "\"say \"\"hi\"\"\"".to_owned(),
        18..20 => pick(chance, &["3\" pipe", "a\"\"b", "x\""]).to_owned(),
        20 => "n\0n".to_owned(),
        21 => pick(chance, &[" lead", "trail ", "'q'", "#c"]).to_owned(),
        _ => "\"\"\"\"".to_owned(),
    }
}

fn messy(seed: u64) -> Messy {
    let mut chance = Chance::new(seed);
    let delimiter = [',', ';', '\t', '|'][usize::try_from(chance.below(4)).unwrap()];
    let line_end = pick(&mut chance, &["\n", "\n", "\r\n", "\r", "\r\r\n"]);
    let mut has_blank_at_quote = false;
    let mut lines = vec![["a", "b", "c"].join(&delimiter.to_string())];
    for _ in 0..chance.below(13) {
        let count = if chance.below(8) == 0 { 1 + chance.below(5) } else { 3 };
        let mut fields: Vec<String> = (0..count).map(|_| field(&mut chance, delimiter)).collect();
        let last = fields.len() - 1;
        match chance.below(200) {
            0..3 => fields[last] = "\"x\"y".to_owned(),
            3..5 => fields[last] = "\"open".to_owned(),
            5..8 => {
                fields[0] = pick(&mut chance, &[" \"q\"", "\"q\" "]).to_owned();
                has_blank_at_quote = true;
            }
            8..11 => fields[last] = "a\rb".to_owned(),
            // Fields too many, all of them empty.
            11..16 => fields.resize(4 + last % 2, String::new()),
            _ => {}
        }
        lines.push(fields.join(&delimiter.to_string()));
        if chance.below(15) == 0 {
            lines.push(String::new());
        }
    }
    let mut content = lines.join(line_end);
    if chance.below(4) > 0 {
        content.push_str(line_end);
    }
    if chance.below(20) == 0 {
        content = content.replacen(line_end, "\r\n", 1);
    }
    if chance.below(10) == 0 {
        content.insert(0, '\u{feff}');
    }
    Messy { delimiter, content, has_blank_at_quote }
}

/// The line ends of a file outside of quotes, roughly: those that stand in quoted fields are told by their letters.
fn line_ends(content: &str) -> Vec<&str> {
    let outside = content.split("\"l").enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once("m\"").map_or(part, |(_, behind)| behind),
    });
    let mut found = Vec::new();
    for part in outside {
        let mut rest = part;
        while let Some(at) = rest.find(['\r', '\n']) {
            let returns = rest[at..].len() - rest[at..].trim_start_matches('\r').len();
            let length = returns + usize::from(rest[at + returns..].starts_with('\n'));
            // Returns without a line feed are line ends by themselves.
            let end = if length == returns { "\r" } else { &rest[at..at + length] };
            if !found.contains(&end) {
                found.push(end);
            }
            rest = &rest[at + length..];
        }
    }
    found
}

fn contract(delimiter: char) -> Arc<Contract> {
    let delimiter = if delimiter == '\t' { "\\t".to_owned() } else { delimiter.to_string() };
    let text = format!(
        "version: 1\ntable: raw/t\nsource: {{ path: \"t/**\", format: csv, delimiter: \"{delimiter}\" }}\ncolumns:\n  \
         - {{ name: a, type: string }}\n  - {{ name: b, type: string }}\n  - {{ name: c, type: string }}\n"
    );
    Arc::new(yaml::parse("t.yaml", &text).unwrap_or_else(|found| panic!("{found:#?}")).0)
}

fn ours(file: &Messy, chunk_rows: usize) -> (Ours, bool) {
    let contract = contract(file.delimiter);
    let content = Box::new(Cursor::new(file.content.clone().into_bytes()));
    let options = Options { chunk_rows, ..Options::default() };
    let mut decoder = match decode::open(&contract, contract.files().unwrap(), content, &options) {
        Ok(decoder) => decoder,
        Err(error) => panic!("{:?}: {error:?}", file.content),
    };
    let mut records: BTreeMap<i64, Record> = BTreeMap::new();
    let stopped = loop {
        let chunk = match decoder.next_chunk() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break None,
            Err(DecodeError::Refused(refusal)) => break Some(refusal.rule),
            Err(DecodeError::Read(error)) => panic!("{error}"),
        };
        assert!(chunk.faults.is_empty(), "text is text: {:?}", chunk.faults);
        let numbers = chunk.rows.column_by_name("_row").unwrap().as_primitive::<Int64Type>();
        for row in 0..chunk.rows.num_rows() {
            let fields = (0..3).map(|column| {
                let column = chunk.rows.column(column).as_string::<i32>();
                column.is_valid(row).then(|| column.value(row).to_owned())
            });
            records.insert(numbers.value(row), Record::Row(fields.collect()));
        }
        for reject in chunk.rejects {
            let raw = String::from_utf8(reject.raw).unwrap();
            records.insert(reject.record.unwrap(), Record::Refused(reject.rules[0].clone(), raw));
        }
    };
    assert_eq!(records.keys().copied().collect::<Vec<_>>(), (1..=records.len() as i64).collect::<Vec<_>>());
    let lone_returns = decoder.header().unwrap().lone_returns;
    (Ours { records: records.into_values().collect(), stopped }, lone_returns)
}

/// Python sees the same records, up to one that it stops at and we refuse. Gives its difference, if there is one.
fn compare_with_python(ours: &Ours, python: &Python) -> Result<Option<&'static str>, String> {
    let mut theirs = python.rows.iter();
    for record in &ours.records {
        let differs = |row: Option<&Vec<String>>| Err(format!("python has {row:?} for {record:?}"));
        match record {
            Record::Refused(rule, _) if rule == "quote" => {
                let is_stopped = python.stopped.as_ref().is_some_and(|error| error.ends_with("expected after '\"'"));
                return match theirs.next() {
                    None if is_stopped => Ok(Some("python: stops at text behind a closing quote")),
                    row => differs(row),
                };
            }
            Record::Refused(_, _) => match theirs.next() {
                Some(row) if row.len() != 3 => {}
                row => return differs(row),
            },
            Record::Row(fields) => match theirs.next() {
                Some(row) if fields.iter().map(|field| field.clone().unwrap_or_default()).eq(row.iter().cloned()) => {}
                row => return differs(row),
            },
        }
    }
    match (ours.stopped.as_deref(), theirs.next(), python.stopped.as_deref()) {
        (None, None, None) => Ok(None),
        (Some("unterminated_quote"), None, Some("unexpected end of data")) => {
            Ok(Some("python: stops at a quote that is never closed"))
        }
        found => Err(format!("at the end: {found:?}")),
    }
}

/// DuckDB sees the same rows in the same order. Gives the differences that were met.
fn compare_with_duckdb(file: &Messy, ours: &Ours, duckdb: &DuckDb) -> Result<Vec<&'static str>, String> {
    let mut met = Vec::new();
    let ends = line_ends(&file.content);
    if ends.len() > 1 || ends.contains(&"\r\r\n") {
        // It wants one kind of line end, of those that it knows; what it makes of others is its own affair.
        return Ok(vec!["duckdb: line ends of several kinds, or \\r\\r\\n"]);
    }
    if file.has_blank_at_quote {
        return Ok(vec!["duckdb: drops blanks between delimiter and quote"]);
    }
    if let Some(refused) = &duckdb.refused {
        return Err(format!("duckdb refuses the file: {refused}"));
    }
    let mut theirs = duckdb.rows.iter();
    for record in &ours.records {
        let expected = match record {
            Record::Row(fields) => fields.clone(),
            Record::Refused(rule, _) if rule == "quote" => {
                met.push("duckdb: passes over what follows text behind a closing quote");
                return Ok(met);
            }
            Record::Refused(_, raw) => match without_empty(raw, file.delimiter) {
                Some(fields) => {
                    met.push("duckdb: takes a record with empty fields too many");
                    fields
                }
                None => continue,
            },
        };
        match theirs.next() {
            Some(row) if *row == expected => {}
            row => return Err(format!("duckdb has {row:?} for {record:?}")),
        }
    }
    match (ours.stopped.as_deref(), theirs.next()) {
        (None, None) => Ok(met),
        (Some("unterminated_quote"), None) => {
            met.push("duckdb: passes over a quote that is never closed");
            Ok(met)
        }
        found => Err(format!("at the end: {found:?}")),
    }
}

/// The three fields of a record that has but empty ones behind them.
fn without_empty(raw: &str, delimiter: char) -> Option<Vec<Option<String>>> {
    for surplus in 1..4 {
        let Some(shorter) = raw.strip_suffix(&delimiter.to_string().repeat(surplus)) else { break };
        let one =
            Messy { delimiter, content: format!("a{delimiter}b{delimiter}c\n{shorter}\n"), has_blank_at_quote: false };
        if let (Ours { records, .. }, _) = ours(&one, 1)
            && let [Record::Row(fields)] = records.as_slice()
        {
            return Some(fields.clone());
        }
    }
    None
}

#[test]
fn every_difference_from_python_and_duckdb_has_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let files: BTreeMap<String, Messy> = (0..FILES).map(|seed| (format!("{seed:04}.csv"), messy(seed))).collect();
    let mut seen = BTreeMap::new();
    let mut index = Vec::new();
    for (name, file) in &files {
        std::fs::write(folder.path().join(name), &file.content).unwrap();
        let (ours, lone_returns) = ours(file, 1);
        index.push(json!({ "file": name, "delimiter": file.delimiter, "lone_returns": lone_returns }));
        seen.insert(name, ours);
    }
    std::fs::write(folder.path().join("index.json"), json!(index).to_string()).unwrap();
    let theirs: BTreeMap<String, Theirs> = serde_json::from_value(differential(folder.path())).unwrap();
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    let mut same = (0, 0);
    let mut unexplained = Vec::new();
    for (name, file) in &files {
        let (ours, theirs) = (&seen[name], &theirs[name]);
        match compare_with_python(ours, &theirs.python) {
            Ok(None) => same.0 += 1,
            Ok(Some(difference)) => *met.entry(difference).or_default() += 1,
            Err(what) => unexplained.push(format!("{name} {:?}: {what}", file.content)),
        }
        match compare_with_duckdb(file, ours, &theirs.duckdb) {
            Ok(found) if found.is_empty() => same.1 += 1,
            Ok(found) => found.into_iter().for_each(|difference| *met.entry(difference).or_default() += 1),
            Err(what) => unexplained.push(format!("{name} {:?}: {what}", file.content)),
        }
    }
    assert_eq!(unexplained, Vec::<String>::new(), "{} differences without a name", unexplained.len());
    assert_eq!(met.len(), 7, "each difference that has a name is met: {met:#?}");
    assert!(same.0 > FILES * 3 / 4 && same.1 > FILES / 4, "most files are read alike: {same:?}, {met:#?}");
}
