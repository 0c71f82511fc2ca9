//! Runs one case through the real pipeline: a lake of one contract, files dropped, ingested and committed, and what became
//! of every record as text. What holds for every case is asserted here: the row arithmetic, nothing on redelivery, refused
//! bytes that are the file's own.

use alluvium::event::FileEvent;
use alluvium::pipeline::lake::Settings;
use alluvium::quarantine::{Quarantined, from_batch};

use crate::support::{TestLake, assert_ledger, rows};

/// What became of some files.
#[derive(Debug, Default)]
pub struct Outcome {
    /// `path status rows_in=loaded+quarantined+ignored`, by path.
    pub ledger: Vec<String>,
    /// `path:record value|value`, null as `∅`, what was rescued behind ` +`; by path and record.
    pub rows: Vec<String>,
    /// `path:record@line rule,rule <bytes>`; a file that was refused whole has neither record nor line.
    pub refused: Vec<String>,
    /// `path:record column: value and why`, one for each reason.
    pub reasons: Vec<String>,
    /// Why files have their status, and failures that are noted: `path: reason`.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Asserts that a reason or note has all of these texts.
    #[track_caller]
    pub fn says(&self, texts: &[&str]) {
        let said = self.reasons.iter().chain(&self.notes);
        assert!(said.clone().any(|line| texts.iter().all(|text| line.contains(text))), "{texts:?} in {self:#?}");
    }

    /// Asserts rows and refused records.
    #[track_caller]
    pub fn is(&self, rows: &[&str], refused: &[&str]) {
        assert_eq!(self.rows, rows, "rows, with {self:#?}");
        assert_eq!(self.refused, refused, "refused, with {self:#?}");
    }
}

/// The contract of `raw/t`. `source` is what follows the path in its flow mapping; a column is `name type` and what else
/// its flow mapping has: `amount decimal(10,2) nullable: false`.
pub fn contract(source: &str, columns: &[&str], more: &str) -> String {
    let mut text = format!("version: 1\ntable: raw/t\nsource: {{ path: \"t/**\", {source} }}\ncolumns:\n");
    for column in columns {
        let mut parts = column.splitn(3, ' ');
        let (name, kind, rest) = (parts.next().unwrap(), parts.next().unwrap(), parts.next());
        let rest = rest.map_or_else(String::new, |rest| format!(", {rest}"));
        text.push_str(&format!("  - {{ name: {name}, type: \"{kind}\"{rest} }}\n"));
    }
    format!("{text}{more}\n")
}

/// A lake of that one contract.
pub fn lake(contract: &str) -> TestLake {
    TestLake::new(&[("raw/t", contract)])
}

/// Loads files below `t/` in one batch and tells what became of them.
pub async fn load(contract: &str, files: &[(&str, &[u8])]) -> Outcome {
    load_with(contract, files, Settings::default()).await
}

/// The same, with other sizes.
pub async fn load_with(contract: &str, files: &[(&str, &[u8])], settings: Settings) -> Outcome {
    let lake = TestLake::with_settings(&[("raw/t", contract)], settings);
    let events = drop_all(&lake, files);
    for event in &events {
        lake.ingest(event).await;
    }
    lake.settle().await;
    assert_ledger(&lake.lake).await;
    assert_origin(&lake, files).await;
    let versions = versions(&lake).await;
    for event in &events {
        lake.ingest(event).await;
    }
    lake.settle().await;
    assert_eq!(self::versions(&lake).await, versions, "a file that is announced again changes nothing");
    outcome(&lake).await
}

/// One CSV file.
pub async fn csv(columns: &[&str], content: impl AsRef<[u8]>) -> Outcome {
    load(&contract("format: csv", columns, ""), &[("a.csv", content.as_ref())]).await
}

/// One file of JSON lines.
pub async fn ndjson(columns: &[&str], content: impl AsRef<[u8]>) -> Outcome {
    load(&contract("format: ndjson", columns, ""), &[("a.ndjson", content.as_ref())]).await
}

/// Drops files below `t/`.
pub fn drop_all(lake: &TestLake, files: &[(&str, &[u8])]) -> Vec<FileEvent> {
    files.iter().map(|(name, content)| lake.drop_file(&format!("t/{name}"), content)).collect()
}

/// Versions of the three tables.
async fn versions(lake: &TestLake) -> Vec<i64> {
    let mut found = Vec::new();
    for folder in ["raw/t", "quarantine/raw/t", "ledger"] {
        let is_there = lake.folder(folder).join("_delta_log").exists();
        found.push(if is_there { rows::version(&lake.lake, folder).await } else { -1 });
    }
    found
}

/// The quarantine of `raw/t`, by file and record.
pub async fn quarantined(lake: &TestLake) -> Vec<Quarantined> {
    let mut found: Vec<Quarantined> = Vec::new();
    for batch in rows::batches(&lake.lake, "quarantine/raw/t", None).await {
        found.extend(from_batch(&batch).unwrap());
    }
    found.sort_by(|a, b| (&a.file, a.reject.record, &a.batch_id).cmp(&(&b.file, b.reject.record, &b.batch_id)));
    found
}

/// Everything that the lake says about its files.
pub async fn outcome(lake: &TestLake) -> Outcome {
    let mut outcome = Outcome::default();
    let columns = ["path", "status", "rows_in", "loaded", "quarantined", "ignored", "reason"];
    for row in rows::select(&lake.lake, "ledger", &columns).await {
        let path = short(&row[0]).to_owned();
        outcome.ledger.push(format!("{path} {} {}={}+{}+{}", row[1], row[2], row[3], row[4], row[5]));
        if row[6] != "null" {
            outcome.notes.push(format!("{path}: {}", row[6]));
        }
    }
    outcome.ledger.sort();
    outcome.rows = table_rows(lake).await;
    for row in quarantined(lake).await {
        let reject = &row.reject;
        let place = match (reject.record, reject.line) {
            (Some(record), Some(line)) => format!(":{record}@{line}"),
            (Some(record), None) => format!(":{record}"),
            _ => String::new(),
        };
        let (file, rules) = (short(&row.file), reject.rules.join(","));
        outcome.refused.push(match reject.record {
            Some(_) => format!("{file}{place} {rules} <{}>", printable(&reject.raw)),
            None => format!("{file} {rules}"),
        });
        for reason in &reject.reasons {
            let column = reason.column.as_deref().unwrap_or("-");
            let record = reject.record.map_or_else(String::new, |record| format!(":{record}"));
            outcome.reasons.push(format!("{file}{record} {column}: {}", reason.value.as_deref().unwrap_or("-")));
        }
    }
    outcome
}

/// Printable ASCII as it is, other bytes as `\xNN`.
fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(shown).collect()
}

fn short(path: &str) -> &str {
    path.strip_prefix("t/").unwrap_or(path)
}

async fn table_rows(lake: &TestLake) -> Vec<String> {
    let mut found: Vec<(String, i64, String)> = Vec::new();
    for batch in rows::batches(&lake.lake, "raw/t", None).await {
        let schema = batch.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        for values in rows::text_with(&batch, "∅") {
            let value = |name: &str| names.iter().position(|known| *known == name).map(|at| values[at].clone());
            let file = short(&value("_file").unwrap()).to_owned();
            let record: i64 = value("_row").unwrap().parse().unwrap();
            let shown: Vec<&str> = names
                .iter()
                .zip(&values)
                .filter(|(name, _)| !alluvium::schema::lineage::RESERVED.contains(name))
                .map(|(_, value)| value.as_str())
                .collect();
            let rescued = value("_rescued").filter(|text| text != "∅").map_or_else(String::new, |it| format!(" +{it}"));
            let text = format!("{file}:{record} {}{rescued}", shown.join("|"));
            found.push((file, record, text));
        }
    }
    found.sort();
    found.into_iter().map(|(_, _, text)| text).collect()
}

/// What is kept of a refused record are the file's own bytes, at the place that is said.
async fn assert_origin(lake: &TestLake, files: &[(&str, &[u8])]) {
    for row in quarantined(lake).await {
        let (_, content) = files.iter().find(|(name, _)| *name == short(&row.file)).unwrap();
        // Compressed, or another encoding: what is kept is the text.
        let marks: [&[u8]; 4] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], &[0xff, 0xfe], &[0xfe, 0xff]];
        let is_packed = marks.iter().any(|mark| content.starts_with(mark));
        let (Some(_), Some(offset), false) = (row.reject.record, row.reject.byte_offset, is_packed) else { continue };
        let line = row.reject.line.unwrap();
        let rest = &content[usize::try_from(offset).unwrap()..];
        assert!(rest.starts_with(&row.reject.raw), "{}: the bytes at {offset}", row.file);
        let before = &content[..content.len() - rest.len()];
        assert!(line as usize <= 1 + before.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count());
    }
}
