//! `source`: where files lie and how they are written.

use super::super::model::{CsvDialect, Format, Source};
use super::super::node::{Node, Value};
use super::super::read::{self, Fields, Report, Words};
use super::super::suggest;

const KNOWN: [&str; 13] = [
    "path",
    "format",
    "ignore",
    "header",
    "delimiter",
    "quote",
    "escape",
    "skip_rows",
    "comment",
    "encoding",
    "null_values",
    "topics",
    "epoch",
];
const CSV_ONLY: [&str; 8] =
    ["header", "delimiter", "quote", "escape", "skip_rows", "comment", "encoding", "null_values"];
const EVENTS_ONLY: [&str; 2] = ["topics", "epoch"];

// Labels of the encoding standard that people write; all its labels are taken.
const ENCODINGS: [&str; 12] = [
    "utf-8",
    "utf-16",
    "utf-16le",
    "utf-16be",
    "windows-1252",
    "windows-1250",
    "windows-1251",
    "iso-8859-1",
    "iso-8859-2",
    "iso-8859-15",
    "shift_jis",
    "gbk",
];

/// Reads `source`; what is wrong or absent becomes a default.
pub(super) fn source(node: Option<&Node>, report: &mut Report<'_>) -> Source {
    let mut source = Source::new("", Format::Csv);
    // Its absence was reported where the origin was decided.
    let Some(node) = node else { return source };
    let Some(fields) = Fields::read(node, &Words { of: "`source`", known: &KNOWN }, report) else {
        return source;
    };
    match fields.get("path") {
        Some(path) => source.path = glob(path, report).unwrap_or_default(),
        None if !fields.lacks("path") || fields.get("topics").is_some() => {}
        None => report.help(
            node.at,
            "`source` has no `path`",
            "a glob below the landing zone, such as `path: \"trips/**/*.csv*\"`",
        ),
    }
    match fields.get("format") {
        Some(found) => source.format = format(found, report).unwrap_or(Format::Csv),
        None if !fields.lacks("format") => {}
        None => {
            report.help(node.at, "`source` has no `format`", "write `format: csv` (or json, ndjson, parquet, debezium)")
        }
    }
    if let Some(found) = fields.get("ignore") {
        source.ignore =
            read::list(found, "a list of globs", report).into_iter().filter_map(|item| glob(item, report)).collect();
    }
    for key in CSV_ONLY {
        if source.format != Format::Csv
            && let Some(at) = fields.key_at(key)
        {
            report.error(at, format!("`{key}` is for `format: csv`"));
        }
    }
    for key in EVENTS_ONLY {
        if source.format != Format::Debezium
            && let Some(at) = fields.key_at(key)
        {
            report.error(at, format!("`{key}` is for `format: debezium`"));
        }
    }
    dialect(&fields, &mut source.csv, report);
    if let Some(found) = fields.get("topics") {
        source.topics = topics(found, report);
    }
    source.epoch = fields.get("epoch").and_then(|node| read::scalar(node, "the topics' incarnation", report));
    source
}

fn topics(node: &Node, report: &mut Report<'_>) -> Vec<String> {
    const HELP: &str = "a topic's name such as `lake.public.orders`, or a pattern such as `lake.public.*`";
    let mut topics: Vec<String> = Vec::new();
    for item in read::list(node, "a list of topics", report) {
        let Some(topic) = read::text(item, "a topic", report) else { continue };
        let is_name = topic.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*'));
        if topic.is_empty() || !is_name {
            report.help(item.at, format!("`{}` is no topic", read::visible(&topic)), HELP);
        } else if topics.contains(&topic) {
            report.error(item.at, format!("`{topic}` occurs twice"));
        } else {
            topics.push(topic);
        }
    }
    topics
}

fn format(node: &Node, report: &mut Report<'_>) -> Option<Format> {
    let words = [
        ("csv", Format::Csv),
        ("json", Format::Json),
        ("ndjson", Format::Ndjson),
        ("parquet", Format::Parquet),
        ("debezium", Format::Debezium),
    ];
    match node.scalar() {
        Some(spelled @ ("tsv" | "jsonl" | "jsonlines" | "gzip" | "gz" | "zstd")) => {
            let help = match spelled {
                "tsv" => "write `format: csv` and `delimiter: \"\\t\"`",
                "jsonl" | "jsonlines" => "did you mean `ndjson`?",
                _ => "gzip and zstd are seen in the content; `format` is what they hold",
            };
            report.help(node.at, format!("unknown format `{spelled}`"), help);
            None
        }
        _ => read::word(node, "format", &words, report),
    }
}

fn glob(node: &Node, report: &mut Report<'_>) -> Option<String> {
    let path = read::text(node, "a glob below the landing zone", report)?;
    let complaint = if path.trim().is_empty() {
        Some("a path is empty".to_owned())
    } else if path.contains("://") || path.starts_with('/') {
        Some(format!("`{path}` must be relative: paths begin below the landing zone"))
    } else if path.split('/').any(|part| part == ".." || part == ".") {
        Some(format!("`{path}` must not hold `.` or `..`"))
    } else if path.contains('\\') {
        Some(format!("`{path}` must use `/` between folders"))
    } else {
        super::super::glob::compile(&path).err()
    };
    match complaint {
        Some(message) => {
            report.help(
                node.at,
                message,
                "a glob such as `trips/**/*.csv*`: `*` stays in one folder, `**` crosses folders and matches none too",
            );
            None
        }
        None => Some(path),
    }
}

fn dialect(fields: &Fields<'_>, csv: &mut CsvDialect, report: &mut Report<'_>) {
    if let Some(node) = fields.get("header") {
        csv.header = read::boolean(node, report).unwrap_or(csv.header);
    }
    if let Some(node) = fields.get("delimiter") {
        csv.delimiter = read::byte(node, "a delimiter", report).unwrap_or(csv.delimiter);
    }
    if let Some(node) = fields.raw("quote") {
        let off = matches!(node.value, Value::Null) || matches!(node.scalar(), Some("" | "none"));
        csv.quote = if off { None } else { read::byte(node, "a quote", report).or(csv.quote) };
    }
    if let Some(node) = fields.get("escape") {
        csv.escape = read::byte(node, "an escape character", report);
    }
    if let Some(node) = fields.get("comment") {
        csv.comment = read::byte(node, "a comment character", report);
    }
    if let Some(node) = fields.get("skip_rows") {
        csv.skip_rows =
            read::count(node, report).and_then(|count| usize::try_from(count).ok()).unwrap_or(csv.skip_rows);
    }
    if let Some(node) = fields.get("encoding") {
        csv.encoding = encoding(node, report).unwrap_or_else(|| csv.encoding.clone());
    }
    if let Some(node) = fields.get("null_values") {
        csv.null_values = read::tokens(node, "a list of texts", report);
    }
    // Doubled quotes are the default; naming the quote as its own escape says the same.
    if csv.escape == csv.quote {
        csv.escape = None;
    }
    let roles =
        [("delimiter", Some(csv.delimiter)), ("quote", csv.quote), ("escape", csv.escape), ("comment", csv.comment)];
    for (index, (name, character)) in roles.iter().enumerate() {
        let clash = roles[..index].iter().find(|(_, other)| character.is_some() && other == character);
        if let (Some((other, _)), Some(found)) = (clash, character) {
            let at = fields.key_at(name).or_else(|| fields.key_at(other));
            if let Some(at) = at {
                let shown = read::visible(&char::from(*found).to_string());
                report.error(at, format!("`{name}` and `{other}` are both `{shown}`"));
            }
        }
    }
}

fn encoding(node: &Node, report: &mut Report<'_>) -> Option<String> {
    let label = read::text(node, "an encoding", report)?.trim().to_ascii_lowercase();
    if encoding_rs::Encoding::for_label_no_replacement(label.as_bytes()).is_some() {
        return Some(label);
    }
    let help = match label.as_str() {
        "cp1252" | "ansi" => "did you mean `windows-1252`?".to_owned(),
        _ => suggest::did_you_mean(&label, ENCODINGS)
            .unwrap_or_else(|| format!("encodings are {} and the others of the WHATWG standard", ENCODINGS.join(", "))),
    };
    report.help(node.at, format!("unknown encoding `{label}`"), help);
    None
}
