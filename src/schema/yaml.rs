//! The YAML form of a contract: `version: 1`, every key known, all mistakes reported at their place.
//!
//! Reading is lenient: a value that is wrong is reported and replaced by its default, so that one pass finds everything.
//! [`Parsed::contract`] may be used only when [`Parsed::found`] holds no error.

mod changes;
mod checks;
mod column;
mod derive;
mod source;

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::diagnostic::{At, Diagnostic};
use super::hash;
use super::lineage;
use super::model::{
    Body, Contract, Derivation, Format, OnFail, OnOverwrite, Origin, Rule, Threshold, UnknownColumns, WriteMode,
};
use super::node::{Node, Value};
use super::read::{self, Fields, Report, Words};
use super::suggest;
use crate::name::{LAYERS, TableName};

/// What was read from one file.
#[derive(Debug)]
pub struct Parsed {
    /// The contract with every mistake replaced by a default; none when not even its table is known.
    pub contract: Option<Contract>,
    /// Mistakes and warnings, in the order of the file.
    pub found: Vec<Diagnostic>,
}

// Keys that tables of some origins alone may have.
const FOR_SOME: [(&str, &[Kind]); 16] = [
    ("source", &[Kind::Files]),
    ("on_overwrite", &[Kind::Files]),
    ("max_quarantine", &[Kind::Files]),
    ("unknown_columns", &[Kind::Files, Kind::Changes]),
    ("rules", &[Kind::Files, Kind::Changes]),
    ("sequence_by", &[Kind::Files, Kind::Changes]),
    ("write_mode", &[Kind::Files, Kind::Derived]),
    ("sql", &[Kind::Derived]),
    ("transform", &[Kind::Derived]),
    ("keep", &[Kind::Derived]),
    ("order_by", &[Kind::Derived]),
    ("recompute_by", &[Kind::Derived]),
    ("touched", &[Kind::Derived]),
    ("source_table", &[Kind::Changes]),
    ("history", &[Kind::Changes]),
    ("unavailable_value", &[Kind::Changes]),
];
const KEYS: [&str; 23] = [
    "version",
    "table",
    "description",
    "source",
    "from",
    "sql",
    "transform",
    "columns",
    "write_mode",
    "primary_key",
    "sequence_by",
    "keep",
    "order_by",
    "partition_by",
    "recompute_by",
    "touched",
    "on_overwrite",
    "unknown_columns",
    "rules",
    "max_quarantine",
    "source_table",
    "history",
    "unavailable_value",
];
// What other tables of files may say and a table of change events may not.
const NOT_FOR_EVENTS: [&str; 8] = [
    "columns",
    "write_mode",
    "primary_key",
    "sequence_by",
    "partition_by",
    "unknown_columns",
    "rules",
    "max_quarantine",
];

/// What a contract's keys say about where its rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Files,
    Derived,
    Changes,
}

impl Kind {
    /// The tables of the kind, for people.
    const fn tables(self) -> &'static str {
        match self {
            Self::Files => "tables fed by files (`source`)",
            Self::Derived => "derived tables (`from`)",
            Self::Changes => "tables of changes (`from` change events)",
        }
    }
}

/// Reads a contract.
///
/// # Errors
/// All mistakes, and the warnings with them, when there is at least one mistake.
pub fn parse(file: &str, text: &str) -> Result<(Contract, Vec<Diagnostic>), Vec<Diagnostic>> {
    let parsed = read(file, text, None);
    match parsed.contract {
        Some(contract) if !parsed.found.iter().any(|diagnostic| diagnostic.is_error) => Ok((contract, parsed.found)),
        _ => Err(parsed.found),
    }
}

/// Reads a contract that stands where the table `expected` belongs.
#[must_use]
pub fn read(file: &str, text: &str, expected: Option<&TableName>) -> Parsed {
    let mut report = Report::new(file, text);
    let root = match Node::parse(text) {
        Ok(root) => root,
        Err((at, words)) => {
            report.error(at, format!("this is no YAML: {words}"));
            return Parsed { contract: None, found: report.found };
        }
    };
    let contract = contract(&root, file, text, expected, &mut report);
    let mut found = report.found;
    found.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
    Parsed { contract, found }
}

fn contract(
    root: &Node,
    file: &str,
    text: &str,
    expected: Option<&TableName>,
    report: &mut Report<'_>,
) -> Option<Contract> {
    if matches!(root.value, Value::Null) {
        report.help(
            At::START,
            "the contract is empty",
            "a contract begins with `version: 1` and `table: <layer>/<table>`",
        );
        return None;
    }
    let known: Vec<&str> = KEYS.into_iter().chain(["properties"]).collect();
    let fields = Fields::read(root, &Words { of: "a contract", known: &known }, report)?;
    version(&fields, report);
    let named = table(&fields, expected, report).or_else(|| expected.cloned());

    let kind = origin_kind(&fields, report);
    refuse_misplaced(&fields, kind, report);
    let origin = match kind {
        Kind::Files => Origin::Files(source::source(fields.get("source"), report)),
        Kind::Derived => Origin::Derived(derive::derivation(&fields, report)),
        Kind::Changes => Origin::Changes(changes::source(&fields, named.as_ref(), report)?),
    };
    let format = match &origin {
        Origin::Files(source) => Some(source.format),
        Origin::Changes(_) => Some(Format::Debezium),
        Origin::Derived(_) | Origin::History { .. } => None,
    };
    let (is_events, is_changes) = (kind == Kind::Files && format == Some(Format::Debezium), kind == Kind::Changes);
    let names = |key: &str, report: &mut Report<'_>| -> Vec<String> {
        fields.get(key).map(|node| read::names(node, "a list of columns", report)).unwrap_or_default()
    };
    let mut contract = Contract {
        // Without a name the rest is read for its mistakes alone.
        table: named.clone().or_else(|| "raw/unnamed".parse().ok())?,
        description: fields.get("description").and_then(|node| read::scalar(node, "text", report)),
        origin,
        columns: fields.get("columns").map(|node| column::columns(node, format, report)).unwrap_or_default(),
        write_mode: fields.get("write_mode").and_then(|node| write_mode(node, report)).unwrap_or_default(),
        primary_key: names("primary_key", report),
        partition_by: names("partition_by", report),
        sequence_by: if is_changes { Vec::new() } else { names("sequence_by", report) },
        on_overwrite: fields.get("on_overwrite").and_then(|node| on_overwrite(node, report)).unwrap_or_default(),
        unknown_columns: fields
            .get("unknown_columns")
            .and_then(|node| unknown_columns(node, report))
            .unwrap_or(if is_changes { UnknownColumns::Ignore } else { UnknownColumns::Rescue }),
        rules: fields.get("rules").map(|node| rules(node, report)).unwrap_or_default(),
        max_quarantine: fields.get("max_quarantine").and_then(|node| threshold(node, report)),
        properties: fields.get("properties").map(|node| properties(node, report)).unwrap_or_default(),
        hash: String::new(),
        file: file.to_owned(),
        positions: root.positions(text),
    };
    if is_events {
        keep_events(&mut contract, &fields, report);
    }
    checks::check(&contract, &fields, report);
    contract.hash = hash::of(&contract);
    named.map(|_| contract)
}

/// A table of change events: every line whole, in columns that are the same for all such tables, and only ever added to.
fn keep_events(contract: &mut Contract, fields: &Fields<'_>, report: &mut Report<'_>) {
    for key in NOT_FOR_EVENTS {
        if let Some(at) = fields.key_at(key) {
            report.help(
                at,
                format!("`{key}` is not for `format: debezium`"),
                "the columns of such a table are fixed and every event is kept whole; what is derived from it is typed and checked",
            );
        }
    }
    match fields.get("on_overwrite") {
        Some(node) if contract.on_overwrite == OnOverwrite::Replace && node.scalar() == Some("replace") => report.help(
            node.at,
            "`on_overwrite: replace` is not for `format: debezium`: events are only ever added",
            "`append` adds the events of a new version (those that are there already change nothing); `ignore` keeps the first",
        ),
        Some(_) => {}
        None => contract.on_overwrite = OnOverwrite::Append,
    }
    contract.columns.clear();
    contract.rules.clear();
    contract.partition_by = vec![lineage::TABLE.to_owned(), lineage::INGEST_DATE.to_owned()];
    contract.unknown_columns = UnknownColumns::Ignore;
}

fn version(fields: &Fields<'_>, report: &mut Report<'_>) {
    const HELP: &str = "write `version: 1`";
    let Some(node) = fields.get("version") else {
        if fields.lacks("version") {
            report.help(At::START, "the contract has no `version`", HELP);
        }
        return;
    };
    if !matches!(&node.value, Value::Number(number, _) if number.as_u64() == Some(1)) {
        let found = node.scalar().unwrap_or(node.kind());
        report.help(node.at, format!("unknown contract version `{found}`"), HELP);
    }
}

fn table(fields: &Fields<'_>, expected: Option<&TableName>, report: &mut Report<'_>) -> Option<TableName> {
    let Some(node) = fields.get("table") else {
        let example = expected.map_or_else(|| "<layer>/<table>".to_owned(), ToString::to_string);
        if fields.lacks("table") {
            report.help(At::START, "the contract has no `table`", format!("write `table: {example}`"));
        }
        return None;
    };
    let name = table_name(node, report)?;
    if let Some(expected) = expected.filter(|expected| **expected != name) {
        report.help(
            node.at,
            format!("the file declares table `{name}`, but stands where `{expected}` belongs"),
            format!("write `table: {expected}`, or move the file to {name}.yaml"),
        );
        return None;
    }
    Some(name)
}

/// A table's name, with a suggestion for the layer.
pub(super) fn table_name(node: &Node, report: &mut Report<'_>) -> Option<TableName> {
    let text = read::text(node, "a table as <layer>/<table>", report)?;
    match text.parse() {
        Ok(name) => Some(name),
        Err(error) => {
            let error: crate::error::Error = error;
            let help = text
                .split_once(['/', '.'])
                .filter(|(layer, _)| !LAYERS.contains(layer))
                .and_then(|(layer, table)| suggest::nearest(layer, LAYERS).map(|near| format!("{near}/{table}")))
                .map(|near| format!("did you mean `{near}`?"));
            report.add(node.at, error.message().to_owned(), help);
            None
        }
    }
}

// Where the rows come from; says so when the contract does not decide it.
fn origin_kind(fields: &Fields<'_>, report: &mut Report<'_>) -> Kind {
    let from = || if is_of_changes(fields) { Kind::Changes } else { Kind::Derived };
    match (fields.key_at("source"), fields.key_at("from")) {
        (Some(_), Some(from)) => {
            report.help(from, "a table has `source` or `from`, not both", "`source` reads files, `from` reads tables");
            Kind::Files
        }
        (Some(_), None) => Kind::Files,
        (None, Some(_)) => from(),
        (None, None) if !(fields.lacks("source") && fields.lacks("from")) => {
            if fields.lacks("from") {
                Kind::Files
            } else {
                from()
            }
        }
        (None, None) => {
            let at = fields.key_at("table").unwrap_or(At::START);
            report.help(
                at,
                "the contract does not say where the rows come from",
                "add `source: { path: ..., format: csv }` for files, or `from: <layer>/<table>` and `sql` for a derived table",
            );
            let has = |kinds: &[Kind]| FOR_SOME.iter().any(|(key, of)| *of == kinds && fields.key_at(key).is_some());
            match (has(&[Kind::Derived]), has(&[Kind::Changes])) {
                (true, _) => Kind::Derived,
                (false, true) => Kind::Changes,
                (false, false) => Kind::Files,
            }
        }
    }
}

// A table with `from` holds changes when it says so, or says what only such a table can mean.
fn is_of_changes(fields: &Fields<'_>) -> bool {
    let has = |key: &str| fields.key_at(key).is_some() || !fields.lacks(key);
    let has_transform = has("sql") || has("transform");
    has("source_table") || has("history") || (!has_transform && (has("sequence_by") || has("rules")))
}

fn refuse_misplaced(fields: &Fields<'_>, kind: Kind, report: &mut Report<'_>) {
    for (key, kinds) in FOR_SOME {
        // Of `source` and `from` together it was said that they do not go together.
        let is_told = key == "source" || kinds.contains(&kind);
        let Some(at) = fields.key_at(key).filter(|_| !is_told) else { continue };
        let lacks = kinds.iter().map(|kind| kind.tables()).collect::<Vec<_>>().join(" and ");
        let message = format!("`{key}` is for {lacks}, not for {}", kind.tables());
        let help = (key == "sequence_by").then(|| "`keep` with `order_by` decides which row of a key stays".to_owned());
        report.add(at, message, help);
    }
}

fn write_mode(node: &Node, report: &mut Report<'_>) -> Option<WriteMode> {
    let words = [("append", WriteMode::Append), ("upsert", WriteMode::Upsert), ("overwrite", WriteMode::Overwrite)];
    read::word(node, "write_mode", &words, report)
}

fn on_overwrite(node: &Node, report: &mut Report<'_>) -> Option<OnOverwrite> {
    let words = [("replace", OnOverwrite::Replace), ("append", OnOverwrite::Append), ("ignore", OnOverwrite::Ignore)];
    read::word(node, "on_overwrite", &words, report)
}

fn unknown_columns(node: &Node, report: &mut Report<'_>) -> Option<UnknownColumns> {
    let words = [
        ("rescue", UnknownColumns::Rescue),
        ("add", UnknownColumns::Add),
        ("ignore", UnknownColumns::Ignore),
        ("reject", UnknownColumns::Reject),
    ];
    read::word(node, "unknown_columns", &words, report)
}

fn rules(node: &Node, report: &mut Report<'_>) -> Vec<Rule> {
    const KNOWN: [&str; 4] = ["name", "check", "on_fail", "covers"];
    let mut rules: Vec<Rule> = Vec::new();
    for item in read::list(node, "a list of rules", report) {
        let Some(fields) = Fields::read(item, &Words { of: "a rule", known: &KNOWN }, report) else {
            continue;
        };
        let name = fields.get("name").and_then(|node| {
            let name = read::text(node, "the rule's name", report)?;
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') || name.is_empty() {
                report.help(node.at, format!("`{name}` is no name for a rule"), "letters, digits and _ only");
            } else if rules.iter().any(|rule| rule.name == name) {
                report.error(node.at, format!("rule `{name}` occurs twice"));
            }
            Some(name)
        });
        let check = fields.get("check").and_then(|node| read::text(node, "a SQL condition", report));
        for key in ["name", "check"] {
            if fields.lacks(key) {
                report.help(
                    item.at,
                    format!("a rule has no `{key}`"),
                    "write `{ name: fare_not_negative, check: \"fare >= 0\" }`",
                );
            }
        }
        let words = [("quarantine", OnFail::Quarantine), ("warn", OnFail::Warn), ("fail", OnFail::Fail)];
        rules.push(Rule {
            name: name.unwrap_or_default(),
            check: check.unwrap_or_default(),
            on_fail: fields
                .get("on_fail")
                .and_then(|node| read::word(node, "on_fail", &words, report))
                .unwrap_or_default(),
            covers: fields.get("covers").map(|node| read::names(node, "a list of columns", report)).unwrap_or_default(),
        });
    }
    rules
}

fn threshold(node: &Node, report: &mut Report<'_>) -> Option<Threshold> {
    const HELP: &str = "write a share such as `5%`, or a number of records such as `100`";
    match &node.value {
        Value::Number(number, spelled) => {
            let records = number.as_u64();
            if records.is_none() {
                report.help(node.at, format!("`{spelled}` is no number of records"), HELP);
            }
            records.map(Threshold::Records)
        }
        Value::Text(text) => {
            let share = text.strip_suffix('%').and_then(|digits| digits.trim().parse::<f64>().ok());
            match share {
                Some(percent) if (0.0..=100.0).contains(&percent) => Some(Threshold::Share(percent / 100.0)),
                _ => {
                    report.help(node.at, format!("`{text}` is no threshold"), HELP);
                    None
                }
            }
        }
        _ => {
            report.expected(node, "a share or a number of records");
            None
        }
    }
}

fn properties(node: &Node, report: &mut Report<'_>) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    let Value::Map(entries) = &node.value else {
        report.expected(node, "a mapping of Delta table properties");
        return properties;
    };
    for (key, value) in entries {
        checks::property(key, value, report);
        let Some(text) = read::scalar(value, "the property's value", report) else { continue };
        if properties.insert(key.name.clone(), text).is_some() {
            report.error(key.at, format!("property `{}` occurs twice", key.name));
        }
    }
    properties
}

/// A derivation of nothing, for contracts whose own could not be read.
pub(super) fn empty_derivation() -> Derivation {
    Derivation {
        inputs: IndexMap::new(),
        body: Body::Sql(String::new()),
        keep: None,
        order_by: Vec::new(),
        recompute_by: Vec::new(),
        touched: IndexMap::new(),
    }
}

#[cfg(test)]
mod tests;
