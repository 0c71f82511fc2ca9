//! Values that cannot be printed by accident, and texts without what must not be printed.

use std::fmt;

/// A value that cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one call that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The text with every shared access signature in it taken out: URLs carry them, and errors carry URLs.
#[must_use]
pub fn without_signatures(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("sig=") {
        let (before, found) = rest.split_at(at + "sig=".len());
        out.push_str(before);
        out.push_str("***");
        let end = found.find(|c: char| c == '&' || c == '"' || c == '\'' || c == ')' || c.is_whitespace());
        rest = &found[end.unwrap_or(found.len())..];
    }
    out.push_str(rest);
    out
}

/// The text without what lets anybody in: signatures, and names and passwords in URLs.
#[must_use]
pub fn presentable(text: &str) -> String {
    let text = without_signatures(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("://") {
        let (before, authority) = rest.split_at(at + "://".len());
        out.push_str(before);
        let end = authority.find(|c: char| "/?#\"'`<>".contains(c) || c.is_whitespace()).unwrap_or(authority.len());
        // A password may hold what ends an address elsewhere, so the last `@` of the word counts.
        let word = authority.find(|c: char| "\"'`<>".contains(c) || c.is_whitespace()).unwrap_or(authority.len());
        let userinfo = authority[..end].rfind('@').or_else(|| {
            let host = authority[..word].rfind('@')?;
            authority[..host].contains(':').then_some(host)
        });
        rest = match userinfo {
            Some(at) => {
                out.push_str("***");
                &authority[at..]
            }
            None => authority,
        };
    }
    out.push_str(rest);
    out
}

/// A setting's value as people may see it. Whoever leaves the scheme of a URL out may still have put a password into it.
#[must_use]
pub fn shown(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, host)) if !text.contains("://") => format!("***@{host}"),
        _ => presentable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_taken_out_of_texts() {
        for (text, clean) in [
            ("GET https://a/q?sig=ab%2B%3D&se=1 failed", "GET https://a/q?sig=***&se=1 failed"),
            ("(https://a/q?se=1&sig=ab) and \"?sig=cd\"", "(https://a/q?se=1&sig=***) and \"?sig=***\""),
            ("nothing of the kind", "nothing of the kind"),
            ("sig=", "sig=***"),
        ] {
            assert_eq!(without_signatures(text), clean);
        }
    }

    #[test]
    fn names_and_passwords_are_taken_out_of_urls() {
        for (text, clean) in [
            ("at https://me:pass@host/x failed", "at https://***@host/x failed"),
            ("https://me@host", "https://***@host"),
            ("`http://u:p/a?s#s@host:1/x` and http://plain/a", "`http://***@host:1/x` and http://plain/a"),
            ("http://host/a@b and me@example.com", "http://host/a@b and me@example.com"),
            ("az://account/landing?sig=abc", "az://account/landing?sig=***"),
            ("://", "://"),
        ] {
            assert_eq!(presentable(text), clean);
        }
        for (value, clean) in [
            ("me:pass@host:1/x", "***@host:1/x"),
            ("me:p@ss@host", "***@host"),
            ("https://me:pass@host", "https://***@host"),
            ("lake", "lake"),
        ] {
            assert_eq!(shown(value), clean);
        }
    }
}
