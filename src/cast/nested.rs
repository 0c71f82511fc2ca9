//! Lists, structs and maps from JSON text. Each element is cast by the rules of its own type; one bad element refuses
//! the whole value. Numbers keep their exact text and duplicate keys are seen. Fields that the type does not name are no part
//! of the value: the decoder reports or rescues them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Scalar;
use super::leaf::{Kind, Settings};
use super::value::Value;
use crate::schema::ColumnType;

/// A type with its scalar rules chosen.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Leaf(Kind),
    List(Box<Shape>),
    Struct(Vec<(String, Shape)>),
    Map(Box<Shape>, Box<Shape>),
}

impl Shape {
    pub(super) fn new(column_type: &ColumnType) -> Self {
        match column_type {
            ColumnType::Boolean => Self::Leaf(Kind::Boolean),
            ColumnType::Int8 => Self::Leaf(Kind::Int(8)),
            ColumnType::Int16 => Self::Leaf(Kind::Int(16)),
            ColumnType::Int32 => Self::Leaf(Kind::Int(32)),
            ColumnType::Int64 => Self::Leaf(Kind::Int(64)),
            ColumnType::Float32 => Self::Leaf(Kind::Float32),
            ColumnType::Float64 => Self::Leaf(Kind::Float64),
            ColumnType::Decimal(precision, scale) => Self::Leaf(Kind::Decimal(*precision, *scale)),
            ColumnType::String => Self::Leaf(Kind::String),
            ColumnType::Binary => Self::Leaf(Kind::Binary),
            ColumnType::Date => Self::Leaf(Kind::Date),
            ColumnType::Timestamp => Self::Leaf(Kind::Timestamp),
            ColumnType::TimestampNtz => Self::Leaf(Kind::TimestampNtz),
            ColumnType::List(element) => Self::List(Box::new(Self::new(element))),
            ColumnType::Struct(fields) => {
                Self::Struct(fields.iter().map(|(name, field)| (name.clone(), Self::new(field))).collect())
            }
            ColumnType::Map(key, value) => Self::Map(Box::new(Self::new(key)), Box::new(Self::new(value))),
        }
    }

    /// What a value must look like, for people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Leaf(kind) => kind.name(),
            Self::List(_) => "list".to_owned(),
            Self::Struct(_) => "struct".to_owned(),
            Self::Map(..) => "map".to_owned(),
        }
    }
}

/// Casts JSON text; `path` is where in the column it lies.
pub(super) fn cast(shape: &Shape, raw: &RawValue, settings: &Settings, path: &str) -> Result<Value<'static>, String> {
    let text = raw.get().trim();
    if text == "null" {
        return Ok(Value::Null);
    }
    let within = |reason: String| if path.is_empty() { reason } else { format!("{path}: {reason}") };
    match shape {
        Shape::Leaf(kind) => leaf(*kind, raw, settings).map_err(within),
        Shape::List(element) => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| within("not a list".to_owned()))?;
            let cast_one = |(index, element_text): (usize, &&RawValue)| {
                cast(element, element_text, settings, &format!("{path}[{index}]"))
            };
            elements.iter().enumerate().map(cast_one).collect::<Result<_, _>>().map(Value::List)
        }
        Shape::Struct(fields) => {
            let members = members(text).map_err(|reason| within(reason.replace("{}", "struct")))?;
            let mut values = Vec::with_capacity(fields.len());
            for (name, field) in fields {
                let Some(index) = find(&members, name, fields).map_err(within)? else {
                    values.push(Value::Null);
                    continue;
                };
                values.push(cast(field, members[index].1, settings, &below(path, name))?);
            }
            Ok(Value::Struct(values))
        }
        Shape::Map(key_shape, value_shape) => {
            let members = members(text).map_err(|reason| within(reason.replace("{}", "map")))?;
            let mut entries: Vec<(Value<'static>, Value<'static>)> = Vec::with_capacity(members.len());
            for (name, value) in &members {
                let Shape::Leaf(kind) = &**key_shape else {
                    return Err(within("the keys of a map from JSON must be scalars".to_owned()));
                };
                let key = kind.text(name, settings).map_err(|reason| within(format!("key `{name}`: {reason}")))?;
                let key = key.into_owned();
                // `1` and `01` are two names and one integer.
                let repeated = !matches!(kind, Kind::String) && entries.iter().any(|(earlier, _)| *earlier == key);
                if repeated || key == Value::Null {
                    return Err(within(format!("duplicate or null key `{name}`")));
                }
                entries.push((key, cast(value_shape, value, settings, &below(path, name))?));
            }
            Ok(Value::Map(entries))
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The member that a field means: the exact name, else the only one that differs by case and blanks around it.
fn find(
    members: &[(Cow<'_, str>, &RawValue)],
    name: &str,
    fields: &[(String, Shape)],
) -> Result<Option<usize>, String> {
    if let Some(index) = members.iter().position(|(member, _)| member == name) {
        return Ok(Some(index));
    }
    let folded = name.trim().to_lowercase();
    // A member that is another field's exact name is that field's.
    let mut similar = members.iter().enumerate().filter(|(_, (member, _))| {
        member.trim().to_lowercase() == folded && !fields.iter().any(|(field, _)| field == member)
    });
    match (similar.next(), similar.next()) {
        (Some((index, _)), None) => Ok(Some(index)),
        (Some((_, (one, _))), Some((_, (other, _)))) => Err(format!("`{one}` and `{other}` both mean {name}")),
        _ => Ok(None),
    }
}

/// A scalar inside a nested value.
fn leaf(kind: Kind, raw: &RawValue, settings: &Settings) -> Result<Value<'static>, String> {
    let text = raw.get().trim();
    let scalar = match text.as_bytes().first() {
        Some(b'"') => {
            let unescaped: String = serde_json::from_str(text).map_err(|_| "not a JSON string".to_owned())?;
            return kind.text(&unescaped, settings).map(Value::into_owned);
        }
        Some(b't') => Scalar::Bool(true),
        Some(b'f') => Scalar::Bool(false),
        Some(b'{' | b'[') => Scalar::Json(raw),
        _ => Scalar::Number(text),
    };
    kind.scalar(scalar, settings).map(Value::into_owned)
}

type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// The members of an object in order; refuses a key that occurs twice.
fn members(text: &str) -> Result<Members<'_>, String> {
    if !text.starts_with('{') {
        return Err("not a {}".to_owned());
    }
    let Object(members) = serde_json::from_str(text).map_err(|_| "not a {}".to_owned())?;
    let mut seen = HashSet::with_capacity(members.len());
    for (name, _) in &members {
        if !seen.insert(name.as_ref()) {
            return Err(format!("duplicate key `{name}`"));
        }
    }
    Ok(members)
}

/// An object's members as they come, duplicates included.
struct Object<'a>(Members<'a>);

/// A key, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(name), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    members.push((name, value));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests;
