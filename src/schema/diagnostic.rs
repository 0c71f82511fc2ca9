//! Mistakes in contracts, shown where they are.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A place in a file: line and column, both from 1, columns counted in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Line, from 1.
    pub line: u64,
    /// Column, from 1.
    pub column: u64,
}

impl At {
    /// The beginning of a file.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The same line, some characters further right.
    #[must_use]
    pub const fn right(self, characters: u64) -> Self {
        Self { line: self.line, column: self.column + characters }
    }
}

/// One mistake (or warning) found in a contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The contract's file, as it was found below the schemas folder's path.
    pub file: String,
    /// Line, from 1.
    pub line: u64,
    /// Column, from 1.
    pub column: u64,
    /// What is wrong; lower case, without a full stop.
    pub message: String,
    /// A suggestion, such as: did you mean `raw/trips`?
    pub help: Option<String>,
    /// False for a warning.
    pub is_error: bool,
    /// The text of the line, if it is known: shown with a mark below the place.
    pub snippet: Option<String>,
}

impl Diagnostic {
    /// An error in `file` at a place.
    pub fn error(file: impl Into<String>, at: At, message: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: at.line,
            column: at.column,
            message: message.into(),
            help: None,
            is_error: true,
            snippet: None,
        }
    }

    /// The same as a warning: it is shown and stops nothing.
    #[must_use]
    pub fn into_warning(mut self) -> Self {
        self.is_error = false;
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says what to do about it, if that is known.
    #[must_use]
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        if help.is_some() {
            self.help = help;
        }
        self
    }

    /// Takes the line to show from the file's text.
    #[must_use]
    pub fn in_source(mut self, source: &str) -> Self {
        let index = usize::try_from(self.line.saturating_sub(1)).unwrap_or(usize::MAX);
        self.snippet = source.lines().nth(index).map(|line| line.trim_end().to_owned());
        self
    }
}

/// `file:line:column: error: message`, then the line with a mark below the place, then the help.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.is_error { "error" } else { "warning" };
        write!(f, "{}:{}:{}: {severity}: {}", self.file, self.line, self.column, self.message)?;
        if let Some(snippet) = self.snippet.as_deref().filter(|text| !text.trim().is_empty()) {
            let number = self.line.to_string();
            let gutter = " ".repeat(number.len());
            let before = usize::try_from(self.column.saturating_sub(1)).unwrap_or(0);
            // Tabs keep their width in the line of marks, whatever the terminal makes of them.
            let indent: String = snippet.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let rest: String = snippet.chars().skip(before).collect();
            let marks = "^".repeat(marked_width(&rest));
            write!(f, "\n{gutter} |\n{number} | {snippet}\n{gutter} | {indent}{marks}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

// How much of a line belongs to the value that begins there: a quoted text, a word, or a bracket.
fn marked_width(rest: &str) -> usize {
    let mut characters = rest.chars();
    let width = match characters.next() {
        Some(quote @ ('"' | '\'')) => characters.position(|c| c == quote).map_or(1, |inner| inner + 2),
        Some(_) => rest.chars().take_while(|c| c.is_alphanumeric() || "_-./*+<>()%".contains(*c)).count(),
        None => 1,
    };
    width.max(1)
}

/// Where the values of a contract stand in its file, by path: `sql`, `recompute_by[0]`, `touched.items`,
/// `columns[2].type`. Two contracts that differ in layout alone are equal, so positions never make a difference.
#[derive(Clone, Default)]
pub struct Positions {
    places: HashMap<String, At>,
    source: Arc<str>,
}

impl Positions {
    /// Positions of a file with the given text.
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self { places: HashMap::new(), source: source.into() }
    }

    /// Records the place of a value.
    pub fn insert(&mut self, path: String, at: At) {
        self.places.insert(path, at);
    }

    /// Line and column of the value at `path`, both from 1; none when the contract does not give it.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<(u64, u64)> {
        self.places.get(path).map(|at| (at.line, at.column))
    }

    /// The place of the value at `path`, else of the nearest value that holds it, else the file's beginning.
    #[must_use]
    pub fn nearest(&self, path: &str) -> At {
        let mut rest = path;
        loop {
            if let Some(at) = self.places.get(rest) {
                return *at;
            }
            match rest.rfind(['.', '[']) {
                Some(cut) => rest = &rest[..cut],
                None => return At::START,
            }
        }
    }

    /// The place `offset` characters (from 0) into the text of the value at `path`. YAML may have quoted the text, broken
    /// it into lines or indented it, so both are walked without their blanks; where they differ the value's beginning is
    /// given.
    #[must_use]
    pub fn within(&self, path: &str, text: &str, offset: usize) -> At {
        let start = self.nearest(path);
        let first_line = usize::try_from(start.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let first_column = usize::try_from(start.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let mut source = self.source.lines().enumerate().skip(first_line).flat_map(|(index, line)| {
            let skipped = if index == first_line { first_column } else { 0 };
            line.chars()
                .enumerate()
                .skip(skipped)
                .filter(|(_, c)| !c.is_whitespace())
                .map(move |(column, c)| (index, column, c))
        });
        let inked = text.chars().enumerate().filter(|(_, c)| !c.is_whitespace());
        let mut last = None;
        for (index, (position, wanted)) in inked.enumerate() {
            let mut next = source.next();
            if index == 0 && matches!(next, Some((_, _, '"' | '\''))) && next.map(|(_, _, c)| c) != Some(wanted) {
                next = source.next();
            }
            let Some((line, column, _)) = next.filter(|(_, _, found)| *found == wanted) else { return start };
            let at = At { line: line as u64 + 1, column: column as u64 + 1 };
            if position >= offset {
                return at;
            }
            last = Some(at);
        }
        // Past the last character: right behind it.
        last.map_or(start, |at| at.right(1))
    }

    /// The text of the contract's file.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

impl PartialEq for Positions {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Positions({})", self.places.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_shows_the_place() {
        let source = "version: 1\ncolumns:\n  - { name: fare, typ: int64 }\n";
        let diagnostic = Diagnostic::error("schemas/raw/trips.yaml", At { line: 3, column: 19 }, "unknown key `typ`")
            .help("did you mean `type`?")
            .in_source(source);
        insta::assert_snapshot!(diagnostic, @r"
        schemas/raw/trips.yaml:3:19: error: unknown key `typ`
          |
        3 |   - { name: fare, typ: int64 }
          |                   ^^^
          help: did you mean `type`?
        ");
    }

    #[test]
    fn without_a_line_only_the_words_are_shown() {
        let diagnostic = Diagnostic::error("a.yaml", At::START, "nothing here").into_warning();
        assert_eq!(diagnostic.to_string(), "a.yaml:1:1: warning: nothing here");
        assert_eq!(diagnostic.clone().in_source("").to_string(), diagnostic.to_string());
    }

    #[test]
    fn marks_cover_the_value() {
        for (rest, width) in [("\"a b\", c", 5), ("it's", 2), ("'open", 1), ("[a]", 1), ("", 1), ("5% }", 2)] {
            assert_eq!(marked_width(rest), width, "{rest}");
        }
    }

    #[test]
    fn a_place_inside_a_value_is_found_on_its_line() {
        let mut positions = Positions::new("check: \"fare >= 0\"\nplain: fare >= 0\nsql: >\n  select 1,\n  b from c\n");
        for (path, line, column) in [("check", 1, 8), ("plain", 2, 8), ("sql", 4, 3)] {
            positions.insert(path.to_owned(), At { line, column });
        }
        assert_eq!(positions.within("check", "fare >= 0", 5), At { line: 1, column: 14 });
        assert_eq!(positions.within("plain", "fare >= 0", 5), At { line: 2, column: 13 });
        assert_eq!(positions.within("plain", "fare >= 0", 99), At { line: 2, column: 17 });
        assert_eq!(positions.within("plain", "fare < 0", 6), At { line: 2, column: 8 });
        assert_eq!(positions.within("sql", "select 1, b from c", 12), At { line: 5, column: 5 });
        assert_eq!(positions.nearest("sql[0].x"), At { line: 4, column: 3 });
        assert_eq!(positions.nearest("other"), At::START);
        assert_eq!(positions.at("other"), None);
    }
}
