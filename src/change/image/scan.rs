//! Walking over JSON text that is known to be valid, without copying: events were read as a whole when they came.
//!
//! Nothing here panics on other text; it gives up, and the event counts as one that cannot be read.

use std::borrow::Cow;

/// The text from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// First byte.
    pub(super) start: usize,
    /// Behind the last byte.
    pub(super) end: usize,
}

impl Span {
    /// The text itself.
    pub(super) fn of(self, text: &str) -> Option<&str> {
        text.get(self.start..self.end)
    }
}

/// The first byte from `at` on that is no blank.
#[inline]
pub(super) fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// The place behind the string that begins at `at`.
#[inline]
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The place behind the value that begins at `at`.
#[inline]
pub(super) fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => nested_end(bytes, at),
        _ => {
            let length = bytes[at..]
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'))
                .unwrap_or(bytes.len() - at);
            Some(at + length)
        }
    }
}

fn nested_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Walks over the members of the object that begins at `at`. `member` gets a name and where its value begins, and gives the
/// place behind the value. Gives the place behind the object.
pub(super) fn members<'a>(
    text: &'a str,
    at: usize,
    mut member: impl FnMut(&str, usize) -> Option<usize>,
) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    let mut at = skip_blanks(bytes, at + 1);
    if bytes.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    loop {
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        let end = string_end(bytes, at)?;
        let name: Cow<'a, str> = unquoted(text.get(at..end)?)?;
        at = skip_blanks(bytes, end);
        if bytes.get(at) != Some(&b':') {
            return None;
        }
        at = skip_blanks(bytes, member(&name, skip_blanks(bytes, at + 1))?);
        match bytes.get(at)? {
            b',' => at = skip_blanks(bytes, at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// What a JSON string means; none for half of a surrogate pair, which means nothing.
#[inline]
pub(super) fn unquoted(quoted: &str) -> Option<Cow<'_, str>> {
    let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(quoted).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn walked(text: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        let end = members(text, 0, |name, at| {
            let end = value_end(text.as_bytes(), at)?;
            found.push((name.to_owned(), text.get(at..end)?.to_owned()));
            Some(end)
        })?;
        (end == text.len()).then_some(found)
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<i32>().prop_map(|eighths| (f64::from(eighths) / 8.0).into()),
            "[\\PC\"\\\\{}\\[\\],: \n]{0,12}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 24, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                proptest::collection::vec(("[a-c\"\\\\ é]{0,4}", inner), 0..4)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn members_are_those_of_the_parser(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let wanted = value.as_object().map(|members| {
                members.iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>()
            });
            let found = walked(&text).map(|found| {
                found.into_iter().map(|(name, value)| (name, serde_json::from_str(&value).unwrap())).collect::<Vec<_>>()
            });
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn no_text_breaks_the_walk(text in "[\\PC\"\\\\{}\\[\\],: é]{0,40}", at in 0_usize..50) {
            walked(&text);
            value_end(text.as_bytes(), at);
        }
    }
}
