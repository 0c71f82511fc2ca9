//! One record of JSON text -> the values that columns ask for, and what nobody asks for. Values stay text, so that no digit
//! of a number is lost on the way.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::names::{Names, ROOT};
use crate::decode::columns::fold;
use crate::schema::ColumnType;

/// Objects and arrays deeper than this refuse the record.
const DEPTH_LIMIT: usize = 128;

/// Why a record is no usable object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShapeFault {
    pub rule: &'static str,
    pub reason: String,
}

impl ShapeFault {
    fn new(rule: &'static str, reason: impl Into<String>) -> Self {
        Self { rule, reason: reason.into() }
    }
}

/// The values of one record.
#[derive(Debug, Default)]
pub(super) struct Values<'a> {
    /// By slot.
    pub found: Vec<Option<&'a RawValue>>,
    /// Fields that no column asks for: dotted path and value.
    pub unknown: Vec<(String, &'a RawValue)>,
    /// By node: whether this record had it.
    met: Vec<bool>,
}

impl<'a> Values<'a> {
    /// Reads the object in `text`.
    pub(super) fn read(&mut self, names: &Names, text: &'a str, one_a_line: bool) -> Result<(), ShapeFault> {
        self.found.clear();
        self.found.resize(names.slots(), None);
        self.met.clear();
        self.met.resize(names.nodes(), false);
        self.unknown.clear();
        let members = match members(text) {
            Ok(members) => members,
            Err(error) => return Err(explain(text, &error, one_a_line)),
        };
        self.walk(names, ROOT, members, "", true, 1)
    }

    fn walk(
        &mut self,
        names: &Names,
        node: usize,
        members: Vec<Member<'a>>,
        prefix: &str,
        reports_unknown: bool,
        depth: usize,
    ) -> Result<(), ShapeFault> {
        let mut others: Vec<Cow<'a, str>> = Vec::new();
        for (key, value) in members {
            let Some(child) = names.find(node, &key) else {
                if reports_unknown {
                    self.unknown.push((format!("{prefix}{key}"), value));
                }
                others.push(key);
                continue;
            };
            if std::mem::replace(&mut self.met[child], true) {
                return Err(duplicate(&format!("{prefix}{key}")));
            }
            let slot = names.slot_of(child);
            if let Some(slot) = slot {
                self.found[slot] = Some(value);
            }
            if names.has_children(child) {
                self.descend(names, child, value, &format!("{prefix}{key}"), slot.is_none() && reports_unknown, depth)?;
            }
        }
        refuse_duplicates(&mut others, prefix)
    }

    /// Goes below a value that some column's path leads through.
    fn descend(
        &mut self,
        names: &Names,
        node: usize,
        value: &'a RawValue,
        path: &str,
        reports_unknown: bool,
        depth: usize,
    ) -> Result<(), ShapeFault> {
        let text = value.get();
        if text.starts_with('{') {
            if depth >= DEPTH_LIMIT {
                return Err(too_deep());
            }
            let members = members(text).map_err(|error| explain(text, &error, false))?;
            return self.walk(names, node, members, &format!("{path}."), reports_unknown, depth + 1);
        }
        if text == "null" {
            // What lies below null is null, not absent: no default takes its place.
            let mut slots = Vec::new();
            names.slots_below(node, &mut slots);
            for slot in slots {
                self.found[slot] = Some(value);
            }
        } else if reports_unknown {
            self.unknown.push((path.to_owned(), value));
        }
        Ok(())
    }

    /// Looks into a declared nested value and into unknown ones: duplicate keys and depth refuse the record; fields that a
    /// declared struct does not have are added to `unknown`.
    pub(super) fn inspect(
        &mut self,
        value: &'a RawValue,
        declared: Option<&ColumnType>,
        path: &str,
    ) -> Result<(), ShapeFault> {
        inspect(value, declared, path, 2, &mut self.unknown)
    }
}

fn inspect<'a>(
    value: &'a RawValue,
    declared: Option<&ColumnType>,
    path: &str,
    depth: usize,
    unknown: &mut Vec<(String, &'a RawValue)>,
) -> Result<(), ShapeFault> {
    let text = value.get();
    if !text.starts_with(['{', '[']) {
        return Ok(());
    }
    if depth > DEPTH_LIMIT {
        return Err(too_deep());
    }
    if text.starts_with('[') {
        let elements: Vec<&'a RawValue> = serde_json::from_str(text).map_err(|error| explain(text, &error, false))?;
        let of = match declared {
            Some(ColumnType::List(of)) => Some(of.as_ref()),
            _ => None,
        };
        for (index, element) in elements.into_iter().enumerate() {
            if element.get().starts_with(['{', '[']) {
                inspect(element, of, &format!("{path}[{index}]"), depth + 1, unknown)?;
            }
        }
        return Ok(());
    }
    let members = members(text).map_err(|error| explain(text, &error, false))?;
    let mut others: Vec<Cow<'a, str>> = Vec::new();
    let mut taken: Vec<&str> = Vec::new();
    for (key, member) in members {
        let place = format!("{path}.{key}");
        let of = match declared {
            Some(ColumnType::Struct(fields)) => match field(fields, &key) {
                Some((name, of)) => {
                    if taken.contains(&name) {
                        return Err(duplicate(&place));
                    }
                    taken.push(name);
                    inspect(member, Some(of), &place, depth + 1, unknown)?;
                    continue;
                }
                None => {
                    unknown.push((place.clone(), member));
                    None
                }
            },
            Some(ColumnType::Map(_, of)) => Some(of.as_ref()),
            _ => None,
        };
        inspect(member, of, &place, depth + 1, unknown)?;
        others.push(key);
    }
    refuse_duplicates(&mut others, &format!("{path}."))
}

/// The declared field that a key names: exactly, else folded when that is unique.
fn field<'t>(fields: &'t [(String, ColumnType)], key: &str) -> Option<(&'t str, &'t ColumnType)> {
    if let Some((name, of)) = fields.iter().find(|(name, _)| name == key) {
        return Some((name, of));
    }
    let wanted = fold(key);
    let mut alike = fields.iter().filter(|(name, _)| fold(name) == wanted);
    match (alike.next(), alike.next()) {
        (Some((name, of)), None) => Some((name, of)),
        _ => None,
    }
}

fn refuse_duplicates(keys: &mut [Cow<'_, str>], prefix: &str) -> Result<(), ShapeFault> {
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(duplicate(&format!("{prefix}{}", pair[0]))),
        None => Ok(()),
    }
}

fn duplicate(path: &str) -> ShapeFault {
    ShapeFault::new("duplicate_key", format!("duplicate key {path}"))
}

fn too_deep() -> ShapeFault {
    ShapeFault::new("json_nesting", format!("objects and arrays are nested more than {DEPTH_LIMIT} deep"))
}

/// Why `text` could not be read as one object.
fn explain(text: &str, error: &serde_json::Error, one_a_line: bool) -> ShapeFault {
    let at = position(text, error);
    let first = text.trim_start();
    let hint = if one_a_line { "; with several records on a line use format: json" } else { "" };
    if error.is_data() {
        let found = match first.as_bytes().first() {
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b'n') => "null",
            Some(b't' | b'f') => "a boolean",
            _ => "a number",
        };
        return ShapeFault::new("not_an_object", format!("expected an object, found {found}{hint}"));
    }
    if error.is_eof() {
        return ShapeFault::new("json_syntax", format!("unexpected end at byte {} of the record", text.len()));
    }
    let rest = text.get(at..).unwrap_or_default();
    let message = error.to_string();
    let what = message.split(" at line ").next().unwrap_or_default();
    if what == "trailing characters" {
        if rest.starts_with(['{', '[']) {
            let reason = format!("a second value begins at byte {at} of the record{hint}");
            return ShapeFault::new("several_values", reason);
        }
        return ShapeFault::new("json_syntax", format!("text after the object at byte {at} of the record"));
    }
    let word: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '-').take(16).collect();
    let found = if word.is_empty() { rest.chars().take(1).collect() } else { word };
    ShapeFault::new(
        "json_syntax",
        format!("{what} at byte {at} of the record, found `{}`", found.replace(char::is_control, "\u{fffd}")),
    )
}

/// Byte of `text` that an error is about.
fn position(text: &str, error: &serde_json::Error) -> usize {
    let mut start = 0;
    for _ in 1..error.line() {
        match memchr::memchr(b'\n', &text.as_bytes()[start..]) {
            Some(length) => start += length + 1,
            None => break,
        }
    }
    (start + error.column().saturating_sub(1)).min(text.len())
}

/// A key and its value's text.
pub(in crate::decode) type Member<'a> = (Cow<'a, str>, &'a RawValue);

/// The members of the one object that `text` is, duplicates included.
pub(in crate::decode) fn members(text: &str) -> Result<Vec<Member<'_>>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let members = json.deserialize_map(Members)?;
    json.end()?;
    Ok(members)
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(16);
        while let Some(key) = access.next_key_seed(Key)? {
            members.push((key, access.next_value::<&'de RawValue>()?));
        }
        Ok(members)
    }
}

struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
