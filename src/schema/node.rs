//! YAML as a tree whose every value knows its place. Readers above it can then report all mistakes, not only the first.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::diagnostic::{At, Positions};

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The value.
    pub value: Value,
    /// Where it begins.
    pub at: At,
}

/// A YAML value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`, with its spelling.
    Bool(bool, String),
    /// A number, with its spelling: `0.00` is a text to a column's default.
    Number(serde_json::Number, String),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in the file's order; keys may occur twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping and its place.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// The key's text.
    pub name: String,
    /// Where it begins.
    pub at: At,
}

impl Node {
    /// Reads one YAML document.
    ///
    /// # Errors
    /// The place and the parser's words when the text is no YAML.
    pub(super) fn parse(source: &str) -> Result<Self, (At, String)> {
        let options = serde_saphyr::options! {
            // `yes` and `on` are texts, keys that occur twice are reported with the other mistakes.
            strict_booleans: true,
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
            non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::AsString,
        };
        // Editors of some systems put a byte order mark before the text.
        let text = source.strip_prefix('\u{feff}').unwrap_or(source);
        let root: Spanned<Raw> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error.location().map_or(At::START, |location| place(&location));
            let words = error.without_snippet().to_string();
            (at, clean(&words))
        })?;
        Ok(attach(root, text))
    }

    /// What kind of value this is, for messages.
    #[must_use]
    pub(super) const fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(..) => "true or false",
            Value::Number(..) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The text of a scalar as it is written; none for null, lists and mappings.
    #[must_use]
    pub(super) fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Bool(_, text) | Value::Number(_, text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The value as JSON, for arguments that only a transform understands.
    #[must_use]
    pub(super) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value, _) => Json::Bool(*value),
            Value::Number(number, _) => Json::Number(number.clone()),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => {
                Json::Object(entries.iter().map(|(key, node)| (key.name.clone(), node.to_json())).collect())
            }
        }
    }

    /// The places of all values below this one.
    #[must_use]
    pub(super) fn positions(&self, source: &str) -> Positions {
        let mut positions = Positions::new(source);
        self.collect_positions("", &mut positions);
        positions
    }

    fn collect_positions(&self, path: &str, positions: &mut Positions) {
        if !path.is_empty() {
            positions.insert(path.to_owned(), self.at);
        }
        match &self.value {
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.collect_positions(&format!("{path}[{index}]"), positions);
                }
            }
            Value::Map(entries) => {
                for (key, node) in entries {
                    let dot = if path.is_empty() { "" } else { "." };
                    node.collect_positions(&format!("{path}{dot}{}", key.name), positions);
                }
            }
            _ => {}
        }
    }
}

// The parser's words without the place (it is shown before them) and on one line.
fn clean(words: &str) -> String {
    let line = words.lines().next().unwrap_or_default().trim();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let without_place =
        line.split_once(": ").filter(|(head, _)| head.starts_with("line ")).map_or(line, |(_, tail)| tail);
    let without_place = without_place.split(" at line ").next().unwrap_or(without_place);
    without_place.trim_end_matches('.').to_owned()
}

fn place(location: &serde_saphyr::Location) -> At {
    if location.line() == 0 {
        return At::START;
    }
    At { line: location.line(), column: location.column() }
}

#[derive(Debug)]
enum Raw {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

fn attach(raw: Spanned<Raw>, source: &str) -> Node {
    let at = place(&raw.referenced);
    let span = raw.defined.span();
    let spelling = |fallback: String| -> String {
        let range = span.byte_offset().zip(span.byte_len()).and_then(|(offset, length)| {
            let start = usize::try_from(offset).ok()?;
            source.get(start..start.checked_add(usize::try_from(length).ok()?)?)
        });
        range.map(str::trim).filter(|text| !text.is_empty()).map_or(fallback, str::to_owned)
    };
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Bool(value) => Value::Bool(value, spelling(value.to_string())),
        Raw::Number(number) => {
            let text = spelling(number.to_string());
            Value::Number(number, text)
        }
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => Value::List(items.into_iter().map(|item| attach(item, source)).collect()),
        Raw::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, node)| {
                    let key = attach(key, source);
                    let name = key.scalar().map_or_else(|| format!("({})", key.kind()), str::to_owned);
                    (Key { name, at: key.at }, attach(node, source))
                })
                .collect(),
        ),
    };
    Node { value, at }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(serde_json::Number::from_f64(value).map_or_else(|| Raw::Text(value.to_string()), Raw::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element::<Spanned<Raw>>()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry::<Spanned<Raw>, Spanned<Raw>>()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(node: &'a Node, name: &str) -> (&'a Key, &'a Node) {
        let Value::Map(entries) = &node.value else { panic!("{}", node.kind()) };
        let (key, value) = entries.iter().find(|(key, _)| key.name == name).expect(name);
        (key, value)
    }

    #[test]
    fn every_value_and_key_knows_its_place_and_its_spelling() {
        let source =
            "# héad\na: 0.00\nb:\n  - { c: yes, d: \"é\", e: True }\n  - 007\nf: >\n  select 1\n  from x\ng:\n";
        let root = Node::parse(source).expect("parses");
        let (key, a) = entry(&root, "a");
        assert_eq!((key.at, a.at), (At { line: 2, column: 1 }, At { line: 2, column: 4 }));
        assert_eq!(a.scalar(), Some("0.00"));
        let positions = root.positions(source);
        for (path, place) in
            [("b[0].c", (4, 10)), ("b[0].d", (4, 18)), ("b[0].e", (4, 26)), ("b[1]", (5, 5)), ("f", (7, 3))]
        {
            assert_eq!(positions.at(path), Some(place), "{path}");
        }
        let Value::List(items) = &entry(&root, "b").1.value else { panic!("a list") };
        assert_eq!(entry(&items[0], "c").1.scalar(), Some("yes"));
        assert_eq!(entry(&items[0], "e").1.scalar(), Some("True"));
        assert_eq!(items[1].scalar(), Some("007"));
        assert_eq!(entry(&root, "f").1.scalar(), Some("select 1 from x\n"));
        assert!(matches!(entry(&root, "g").1.value, Value::Null));
    }

    #[test]
    fn keys_that_occur_twice_are_kept_for_the_reader() {
        let root = Node::parse("a: 1\na: 2\n").expect("parses");
        let Value::Map(entries) = &root.value else { panic!("a mapping") };
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1].0.at, At { line: 2, column: 1 });
    }

    #[test]
    fn text_that_is_no_yaml_is_refused_with_its_place() {
        for (source, line) in [("a: [1, 2\nb: 3\n", 2), ("a: \"open\n", 1), ("a: 1\n---\nb: 2\n", 2)] {
            let (at, words) = Node::parse(source).expect_err(source);
            assert!(at.line >= line && !words.is_empty() && !words.contains('\n'), "{source:?}: {at:?} {words}");
        }
    }

    #[test]
    fn anchors_and_a_byte_order_mark_are_read() {
        let root = Node::parse("\u{feff}a: &x { b: 1 }\nc: *x\n").expect("parses");
        assert_eq!(entry(&root, "c").1.at.line, 2);
        assert_eq!(root.to_json(), serde_json::json!({ "a": { "b": 1 }, "c": { "b": 1 } }));
    }
}
