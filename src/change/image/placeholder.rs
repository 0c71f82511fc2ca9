//! What stands in place of a value that was not sent because it had not changed: a text for texts, its bytes for bytes, one
//! element for lists of texts, an element for each of its bytes for other lists.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::value::RawValue;

use super::scan::unquoted;
use crate::schema::UNAVAILABLE_VALUE;

/// What Debezium makes of its placeholder for lists of UUIDs: the UUID of version 3 over its bytes.
const UNAVAILABLE_UUID: &str = "b68a35a7-17ad-35b3-af2a-ae46edb4545a";

/// The longest text of an element of a list that stands for one byte.
const LONGEST_ELEMENT: usize = 8;

/// A placeholder in all its forms.
#[derive(Debug)]
pub(super) struct Placeholder {
    /// Texts that stand for a value: the placeholder, and its bytes in the encodings of bytes.
    texts: Vec<String>,
    bytes: Vec<u8>,
    /// Longest text of a list that can be one.
    longest_list: usize,
}

impl Placeholder {
    /// The placeholder that a contract declares: a text, or `hex:` and the bytes of one.
    pub(super) fn new(declared: &str) -> Self {
        let bytes = declared.strip_prefix("hex:").and_then(of_hex).unwrap_or_else(|| declared.as_bytes().to_vec());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let map = serde_json::to_string(&serde_json::Map::from_iter([(text.clone(), text.clone().into())]));
        let mut texts = vec![STANDARD.encode(&bytes), URL_SAFE.encode(&bytes), format!("\\x{hex}"), hex];
        // A map of text, and a document, where they come as text.
        texts.extend(map.ok());
        texts.extend(serde_json::to_string(&text).ok());
        texts.extend((text == UNAVAILABLE_VALUE).then(|| UNAVAILABLE_UUID.to_owned()));
        texts.push(text);
        texts.sort_unstable();
        texts.dedup();
        let longest = texts.iter().map(String::len).max().unwrap_or_default();
        let longest_list = (longest * 2 + 8).max(bytes.len() * (LONGEST_ELEMENT + 2) + 2);
        Self { texts, bytes, longest_list }
    }

    /// Whether the text of a JSON value is a placeholder.
    #[inline]
    pub(super) fn is(&self, value: &str) -> bool {
        match value.as_bytes().first() {
            Some(b'"') => self.is_text(value),
            Some(b'[') if value.len() <= self.longest_list => self.is_list(value),
            Some(b'{') if value.len() <= self.longest_list => self.is_map(value),
            _ => false,
        }
    }

    #[inline]
    fn is_text(&self, quoted: &str) -> bool {
        let inner = quoted.len().saturating_sub(2);
        // Escapes only make a text longer.
        if !quoted.contains('\\') {
            return self.texts.iter().any(|text| text.len() == inner && quoted.get(1..=inner) == Some(text));
        }
        inner <= self.longest_list && unquoted(quoted).is_some_and(|text| self.texts.iter().any(|known| *known == text))
    }

    fn is_list(&self, value: &str) -> bool {
        let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(value) else { return false };
        if let [only] = elements.as_slice()
            && self.is_text_value(only)
        {
            return true;
        }
        elements.len() == self.bytes.len()
            && elements.iter().zip(&self.bytes).all(|(element, byte)| stands_for(element.get(), *byte))
    }

    fn is_map(&self, value: &str) -> bool {
        let Ok(members) = crate::decode::json_members(value) else { return false };
        matches!(members.as_slice(), [(name, value)]
            if self.texts.iter().any(|text| text == name) && self.is_text_value(value))
    }

    fn is_text_value(&self, value: &RawValue) -> bool {
        value.get().starts_with('"') && self.is_text(value.get())
    }
}

/// Whether an element of a list is the number of a byte, as a number or a text.
fn stands_for(element: &str, byte: u8) -> bool {
    let text = element.trim_matches('"');
    text.len() <= LONGEST_ELEMENT && text.parse::<f64>().is_ok_and(|number| number == f64::from(byte))
}

fn of_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_known_in_every_form() {
        let default = Placeholder::new(UNAVAILABLE_VALUE);
        let codes = |form: fn(u8) -> String| {
            let codes: Vec<String> = UNAVAILABLE_VALUE.bytes().map(form).collect();
            format!("[{}]", codes.join(","))
        };
        for (value, is_one) in [
            ("\"__debezium_unavailable_value\"", true),
            ("\"__debezium\\u005funavailable_value\"", true),
            ("\"__debezium_unavailable_value \"", false),
            ("\"\\\"__debezium_unavailable_value\\\"\"", true),
            ("\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\"", true),
            ("\"5f5f646562657a69756d5f756e617661696c61626c655f76616c7565\"", true),
            ("[\"__debezium_unavailable_value\"]", true),
            ("[ \"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\" ]", true),
            ("[\"b68a35a7-17ad-35b3-af2a-ae46edb4545a\"]", true),
            ("[\"__debezium_unavailable_value\",\"b\"]", false),
            ("[]", false),
            ("{\"__debezium_unavailable_value\":\"__debezium_unavailable_value\"}", true),
            ("\"{\\\"__debezium_unavailable_value\\\":\\\"__debezium_unavailable_value\\\"}\"", true),
            ("{\"a\":\"__debezium_unavailable_value\"}", false),
            ("null", false),
            ("95", false),
            ("\"\"", false),
            (&codes(|byte| byte.to_string()), true),
            (&codes(|byte| format!("{byte}.0")), true),
            (&codes(|byte| format!("\"{byte}\"")), true),
            (&codes(|byte| (byte + 1).to_string()), false),
        ] {
            assert_eq!(default.is(value), is_one, "{value}");
        }
    }

    #[test]
    fn another_placeholder_may_be_declared() {
        let text = Placeholder::new("n/a!");
        assert!(text.is("\"n/a!\"") && text.is("\"n\\/a!\"") && text.is("\"bi9hIQ==\"") && text.is("[110,47,97,33]"));
        assert!(!text.is("\"__debezium_unavailable_value\""));
        let hex = Placeholder::new("hex:6e2f6121");
        assert!(hex.is("\"n/a!\"") && hex.is("\"6e2f6121\""));
    }
}
