//! JSON text without blanks and with no more escapes than it needs. Numbers stay as they are spelled.

use std::borrow::Cow;

/// The compact form of valid JSON text.
pub(crate) fn compact(text: &str) -> Cow<'_, str> {
    let is_compact = !text.bytes().any(|byte| matches!(byte, b'\\' | b' ' | b'\t' | b'\r' | b'\n'));
    if is_compact {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', ' ', '\t', '\r', '\n']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if from.starts_with('"') {
            let (string, after) = from.split_at(string_length(from));
            push_string(string, &mut out);
            rest = after;
        } else {
            rest = &from[1..];
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Length of the string that `text` begins with, both quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A string in quotes, its escapes undone where nothing asks for them. Half of a surrogate pair has no other form.
fn push_string(quoted: &str, out: &mut String) {
    let plain = if quoted.contains('\\') { serde_json::from_str::<String>(quoted).ok() } else { None };
    match plain.and_then(|plain| serde_json::to_string(&plain).ok()) {
        Some(shortest) => out.push_str(&shortest),
        None => out.push_str(quoted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_needless_escapes_go_and_digits_stay() {
        for (text, wanted) in [
            (r#"{"id":1}"#, r#"{"id":1}"#),
            (r#"{ "id" : 1 , "b":[ 1, 2 ] }"#, r#"{"id":1,"b":[1,2]}"#),
            (r#"{"id": 12345678901234567890.10, "e": 1E+3}"#, r#"{"id":12345678901234567890.10,"e":1E+3}"#),
            (r#"{"a b": "c  d\u0020e"}"#, r#"{"a b":"c  d e"}"#),
            (r#"{"k":"caf\u00e9 \/ \"x\" \\ \n"}"#, r#"{"k":"café / \"x\" \\ \n"}"#),
            (r#"{"k":"\ud83d\ude80","half":"\ud83d"}"#, r#"{"k":"🚀","half":"\ud83d"}"#),
            ("{\"k\":\"\u{2028} \\u2028\"}", "{\"k\":\"\u{2028} \u{2028}\"}"),
            ("[\n\t1 ,\r\n {} ]", "[1,{}]"),
        ] {
            assert_eq!(compact(text), wanted, "{text}");
        }
    }
}
