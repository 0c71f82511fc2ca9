//! Reading values out of a YAML tree: each helper reports what is wrong with a value and goes on.

use super::diagnostic::{At, Diagnostic, Positions};
use super::node::{Node, Value};
use super::suggest;

/// Collects what is found in one file.
#[derive(Debug)]
pub(super) struct Report<'a> {
    file: &'a str,
    source: &'a str,
    /// Everything found so far, in the order of reading.
    pub(super) found: Vec<Diagnostic>,
}

impl<'a> Report<'a> {
    pub(super) fn new(file: &'a str, source: &'a str) -> Self {
        Self { file, source, found: Vec::new() }
    }

    pub(super) fn add(&mut self, at: At, message: impl Into<String>, help: Option<String>) {
        self.found.push(Diagnostic::error(self.file, at, message).maybe_help(help).in_source(self.source));
    }

    pub(super) fn error(&mut self, at: At, message: impl Into<String>) {
        self.add(at, message, None);
    }

    pub(super) fn help(&mut self, at: At, message: impl Into<String>, help: impl Into<String>) {
        self.add(at, message, Some(help.into()));
    }

    pub(super) fn warn(&mut self, at: At, message: impl Into<String>, help: impl Into<String>) {
        self.found.push(Diagnostic::error(self.file, at, message).help(help).in_source(self.source).into_warning());
    }

    /// An error some characters into the text of a scalar that stands on one line.
    pub(super) fn add_within(&mut self, node: &Node, text: &str, shift: u64, message: String, help: Option<String>) {
        let mut positions = Positions::new(self.source);
        positions.insert("value".to_owned(), node.at);
        let at = positions.within("value", text, usize::try_from(shift).unwrap_or(0));
        self.add(at, message, help);
    }

    pub(super) fn expected(&mut self, node: &Node, what: &str) {
        self.error(node.at, format!("expected {what}, found {}", node.kind()));
    }
}

/// The entries of a mapping whose keys are known words.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    entries: Vec<(&'a str, At, &'a Node)>,
    // Known keys that unknown ones were probably meant to be.
    misspelt: Vec<String>,
}

/// What a mapping may hold.
pub(super) struct Words<'w> {
    /// What the mapping describes, with its article: `a contract`.
    pub(super) of: &'w str,
    /// Keys that are taken.
    pub(super) known: &'w [&'w str],
}

impl<'a> Fields<'a> {
    /// Reads a mapping, refusing keys that are unknown or occur twice.
    pub(super) fn read(node: &'a Node, words: &Words<'_>, report: &mut Report<'_>) -> Option<Self> {
        let Value::Map(all) = &node.value else {
            report.expected(node, &format!("{} as a mapping", words.of));
            return None;
        };
        let mut entries: Vec<(&str, At, &Node)> = Vec::with_capacity(all.len());
        let mut misspelt = Vec::new();
        for (key, value) in all {
            let name = key.name.as_str();
            if !words.known.contains(&name) {
                let near = suggest::nearest(name, words.known.iter().copied());
                misspelt.extend(near.map(str::to_owned));
                let help = near
                    .map(|near| format!("did you mean `{near}`?"))
                    .or_else(|| quoting_help(name, value))
                    .unwrap_or_else(|| format!("keys of {} are {}", words.of, words.known.join(", ")));
                report.help(key.at, format!("unknown key `{name}` in {}", words.of), help);
            } else if entries.iter().any(|(other, ..)| *other == name) {
                report.error(key.at, format!("key `{name}` occurs twice in {}", words.of));
            } else {
                entries.push((name, key.at, value));
            }
        }
        Some(Self { entries, misspelt })
    }

    /// Whether nothing was written for a key, not even with a slip of the pen (which has been reported).
    pub(super) fn lacks(&self, name: &str) -> bool {
        self.get(name).is_none() && !self.misspelt.iter().any(|meant| meant == name)
    }

    /// The value of a key; none when it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Node> {
        self.raw(name).filter(|node| !matches!(node.value, Value::Null))
    }

    /// The value of a key, null included.
    pub(super) fn raw(&self, name: &str) -> Option<&'a Node> {
        self.entries.iter().find(|(key, ..)| *key == name).map(|(_, _, node)| *node)
    }

    /// The place of a key.
    pub(super) fn key_at(&self, name: &str) -> Option<At> {
        self.entries.iter().find(|(key, ..)| *key == name).map(|(_, at, _)| *at)
    }
}

// `type: decimal(10,2)` within braces ends at the comma, and `2)` becomes a key without a value.
fn quoting_help(name: &str, value: &Node) -> Option<String> {
    let torn = matches!(value.value, Value::Null) && !name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    torn.then(|| "within braces a value with a comma needs quotes, as in `type: \"decimal(10,2)\"`".to_owned())
}

/// Text that is a name or a word: numbers and booleans are mistakes.
pub(super) fn text(node: &Node, what: &str, report: &mut Report<'_>) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        _ => {
            report.expected(node, what);
            None
        }
    }
}

/// Text of any scalar as it is spelled (`0.00`, `true`, `NA`).
pub(super) fn scalar(node: &Node, what: &str, report: &mut Report<'_>) -> Option<String> {
    let found = node.scalar().map(str::to_owned);
    if found.is_none() {
        report.expected(node, what);
    }
    found
}

/// True or false.
pub(super) fn boolean(node: &Node, report: &mut Report<'_>) -> Option<bool> {
    match node.value {
        Value::Bool(value, _) => Some(value),
        _ => {
            report.expected(node, "true or false");
            None
        }
    }
}

/// A number from 0 on.
pub(super) fn count(node: &Node, report: &mut Report<'_>) -> Option<u64> {
    match &node.value {
        Value::Number(number, spelled) => {
            let value = number.as_u64();
            if value.is_none() {
                report.error(node.at, format!("expected a whole number from 0 on, found `{spelled}`"));
            }
            value
        }
        _ => {
            report.expected(node, "a whole number from 0 on");
            None
        }
    }
}

/// One of a few words.
pub(super) fn word<T: Copy>(node: &Node, what: &str, words: &[(&str, T)], report: &mut Report<'_>) -> Option<T> {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let Some(found) = node.scalar() else {
        report.expected(node, &suggest::one_of(&names));
        return None;
    };
    if let Some((_, value)) = words.iter().find(|(name, _)| *name == found) {
        return Some(*value);
    }
    let help = suggest::did_you_mean_or_list(found, &names);
    report.help(node.at, format!("unknown value `{found}` for `{what}`"), help);
    None
}

/// The items of a list.
pub(super) fn list<'a>(node: &'a Node, what: &str, report: &mut Report<'_>) -> Vec<&'a Node> {
    match &node.value {
        Value::List(items) => items.iter().collect(),
        Value::Text(text) => {
            report.help(node.at, format!("expected {what}, found text"), format!("write `[{text}]`"));
            Vec::new()
        }
        _ => {
            report.expected(node, what);
            Vec::new()
        }
    }
}

/// A list of names, each at most once (compared without case).
pub(super) fn names(node: &Node, what: &str, report: &mut Report<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for item in list(node, what, report) {
        let Some(name) = text(item, "a name", report) else { continue };
        if name.is_empty() {
            report.error(item.at, "a name is empty");
        } else if names.iter().any(|other| other.to_lowercase() == name.to_lowercase()) {
            report.error(item.at, format!("`{name}` occurs twice"));
        } else {
            names.push(name);
        }
    }
    names
}

/// A list of scalars as they are spelled; `null` stands for the empty text.
pub(super) fn tokens(node: &Node, what: &str, report: &mut Report<'_>) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for item in list(node, what, report) {
        let Some(token) = scalar(item, "text (in quotes when it is empty or `null`)", report) else { continue };
        if tokens.contains(&token) {
            report.error(item.at, format!("`{token}` occurs twice"));
        } else {
            tokens.push(token);
        }
    }
    tokens
}

/// One text, or a list of texts.
pub(super) fn one_or_many(node: &Node, what: &str, report: &mut Report<'_>) -> Vec<String> {
    if node.scalar().is_none() {
        return tokens(node, what, report);
    }
    scalar(node, what, report).into_iter().collect()
}

/// A text with its invisible characters escaped.
pub(super) fn visible(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        if c.is_control() {
            out.extend(c.escape_debug())
        } else {
            out.push(c)
        }
        out
    })
}

/// One ASCII character that is no line end, as its byte.
pub(super) fn byte(node: &Node, what: &str, report: &mut Report<'_>) -> Option<u8> {
    let Some(found) = node.scalar() else {
        report.expected(node, what);
        return None;
    };
    match (found, found.as_bytes()) {
        // Plain YAML text keeps the backslash; what is meant is plain enough.
        ("\\t" | "tab", _) => Some(b'\t'),
        (_, [one]) if one.is_ascii() && !matches!(one, b'\r' | b'\n' | 0) => Some(*one),
        _ => {
            report.help(
                node.at,
                format!("expected {what}, found `{}`", visible(found)),
                "one ASCII character; a tab is \"\\t\"",
            );
            None
        }
    }
}
