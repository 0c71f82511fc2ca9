//! One event -> where its rows lie: `after` and `before` of an envelope, with or without a schema part, in a record or as a
//! bare value, or the flattened row itself. One pass: a row is read where it is met.
//!
//! What an event is was decided when it came; here the same text is gone through for its rows. The rules by which a form is
//! told from another are those of [`crate::decode::debezium`].

use super::names::{Names, Values};
use super::scan::{Span, members, skip_blanks, value_end};

/// Where the rows of an event lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// The row as it is afterwards.
    pub(super) after: Option<Span>,
    /// The row as it was.
    pub(super) before: Option<Span>,
}

/// What is noted of an object that may turn out to be the value.
#[derive(Debug, Clone, Copy, Default)]
struct Object {
    span: Option<Span>,
    after: Option<Span>,
    before: Option<Span>,
    count: usize,
    has_payload: bool,
    has_schema: bool,
    is_flattened: bool,
}

impl Object {
    fn is_wrapped(&self) -> bool {
        self.has_payload && self.count == 1 + usize::from(self.has_schema)
    }

    fn parts(&self) -> Parts {
        if self.is_flattened {
            return Parts { after: self.span, before: self.span };
        }
        Parts { after: self.after, before: self.before }
    }
}

/// Finds the rows of an event and reads the one that `after` is; none for text that is no event.
pub(super) fn read(text: &str, names: &Names, values: &mut Values) -> Option<Parts> {
    values.at = None;
    let bytes = text.as_bytes();
    let begin = skip_blanks(bytes, 0);
    let (mut top, mut value, mut inner, mut inner_of_value) =
        (Object::default(), Object::default(), Object::default(), Object::default());
    let mut has_topic = false;
    let end = members(text, begin, |name, at| match name {
        "topic" => {
            has_topic = true;
            top.count += 1;
            value_end(bytes, at)
        }
        "value" => {
            top.count += 1;
            value = Object::default();
            object(text, at, names, values, &mut value, Some(&mut inner_of_value))
        }
        _ => member(text, name, at, names, values, &mut top, Some(&mut inner)),
    })?;
    top.span = Some(Span { start: begin, end });
    let (mut chosen, payload) = if has_topic && !top.is_flattened { (value, inner_of_value) } else { (top, inner) };
    if chosen.is_wrapped() {
        chosen = payload;
    }
    let parts = chosen.parts();
    if let Some(row) = parts.after.filter(|row| values.at != Some(row.start)) {
        names.read(text, row.start, values)?;
    }
    Some(parts)
}

/// Reads an object that may be a value.
fn object(
    text: &str,
    at: usize,
    names: &Names,
    values: &mut Values,
    found: &mut Object,
    mut payload: Option<&mut Object>,
) -> Option<usize> {
    if text.as_bytes().get(at) != Some(&b'{') {
        return value_end(text.as_bytes(), at);
    }
    let end = members(text, at, |name, at| member(text, name, at, names, values, found, payload.as_deref_mut()))?;
    found.span = Some(Span { start: at, end });
    Some(end)
}

/// One member of an object that may be a value. Its payload is looked into where it may have one.
fn member(
    text: &str,
    name: &str,
    at: usize,
    names: &Names,
    values: &mut Values,
    found: &mut Object,
    payload: Option<&mut Object>,
) -> Option<usize> {
    let bytes = text.as_bytes();
    found.count += 1;
    match name {
        "after" if bytes.get(at) == Some(&b'{') => {
            let end = names.read(text, at, values)?;
            found.after = Some(Span { start: at, end });
            Some(end)
        }
        "before" => {
            let end = value_end(bytes, at)?;
            found.before = Some(Span { start: at, end }).filter(|_| bytes.get(at) == Some(&b'{'));
            Some(end)
        }
        "payload" => {
            found.has_payload = true;
            match payload {
                Some(payload) => {
                    *payload = Object::default();
                    object(text, at, names, values, payload, None)
                }
                None => value_end(bytes, at),
            }
        }
        "schema" => {
            found.has_schema = true;
            value_end(bytes, at)
        }
        "__op" | "__deleted" => {
            found.is_flattened = true;
            value_end(bytes, at)
        }
        _ => value_end(bytes, at),
    }
}
