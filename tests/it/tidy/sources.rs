//! Each source file by itself: its head, its size, and the crates that it may name.

use std::path::{Path, PathBuf};

use crate::support::root;

/// Most lines of a file before its tests.
const MOST_LINES: usize = 500;
/// Most lines of tests within the file that they test.
const MOST_TEST_LINES: usize = 200;

/// A Rust source file of the package.
pub(super) struct Source {
    /// Path below the repository's root.
    pub path: String,
    /// Its lines, without the tests within it.
    pub code: Vec<String>,
    /// Lines of the tests within it.
    pub test_lines: usize,
}

impl Source {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut code: Vec<String> = text.lines().map(str::to_owned).collect();
        let tests = code.iter().position(|line| line == "#[cfg(test)]");
        // `mod tests;` names a file; `mod tests {` holds the tests up to the end.
        let is_inline = tests.is_some_and(|at| code.get(at + 1).is_some_and(|line| line.ends_with('{')));
        let inline = tests.filter(|_| is_inline).map(|at| code.split_off(at)).unwrap_or_default();
        let path = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        Self { path, code, test_lines: inline.len() }
    }

    /// Whether the whole file is tests.
    pub fn is_tests(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/") || self.path.starts_with("tests/")
    }

    /// Lines with their numbers, without comments.
    pub fn statements(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .iter()
            .enumerate()
            .map(|(at, line)| (at + 1, line.as_str()))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// All `.rs` files below a folder.
pub(super) fn sources(folder: &str) -> Vec<Source> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no sources in {folder}");
    found.iter().map(|path| Source::read(path)).collect()
}

#[track_caller]
pub(super) fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

#[test]
fn every_file_says_at_its_top_what_it_is() {
    let all = sources("src").into_iter().chain(sources("tests")).chain(sources("benches"));
    let bare: Vec<String> = all
        .filter(|source| !source.path.ends_with("/tests.rs"))
        .filter(|source| !source.code.first().is_some_and(|line| line.starts_with("//! ")))
        .map(|source| source.path)
        .collect();
    assert_none(&bare, "a file begins with `//! ` and what it is");
}

#[test]
fn files_are_small() {
    let all: Vec<Source> = sources("src").into_iter().chain(sources("tests")).collect();
    let long: Vec<String> = all
        .iter()
        .filter(|source| !source.is_tests() && source.code.len() > MOST_LINES)
        .map(|source| format!("{}: {} lines", source.path, source.code.len()))
        .collect();
    assert_none(&long, "a file has at most 500 lines before its tests: split it by what it decides");
    let long: Vec<String> = all
        .iter()
        .filter(|source| source.test_lines > MOST_TEST_LINES)
        .map(|source| format!("{}: {} lines", source.path, source.test_lines))
        .collect();
    assert_none(&long, "tests over 200 lines move to `<file>/tests.rs`");
}

#[test]
fn nothing_is_left_to_do() {
    let mut found = Vec::new();
    for source in sources("src").iter().filter(|source| !source.is_tests()) {
        for (number, line) in source.statements() {
            if ["todo!(", "unimplemented!(", "dbg!("].iter().any(|word| line.contains(word)) {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_none(&found, "no stub is shipped");
}

#[test]
fn crates_are_named_only_where_they_belong() {
    // What is looked for, and the only places that may have it.
    let rules: [(&str, &[&str]); 10] = [
        ("deltalake::", &["src/table/"]),
        ("axum::", &["src/http/", "src/local/"]),
        // `render` is how results are shown; its formats are flags.
        ("clap::", &["src/cli/", "src/cli.rs", "src/main.rs", "src/render.rs", "src/render/"]),
        ("clap_complete::", &["src/cli/", "src/cli.rs"]),
        ("serde_saphyr::", &["src/schema/"]),
        ("std::env::", &["src/config.rs", "src/config/", "src/main.rs"]),
        ("println!(", &["src/cli/", "src/cli.rs", "src/main.rs"]),
        ("reqwest::", &["src/local/", "src/http/", "src/azure/patience.rs", "src/cli/demo/"]),
        ("azure_core::", &["src/azure/", "src/queue/"]),
        ("azure_identity::", &["src/azure/"]),
    ];
    let mut found = Vec::new();
    for source in sources("src").iter().filter(|source| !source.is_tests()) {
        for (number, line) in source.statements() {
            for (word, places) in rules {
                let is_named = line.match_indices(word).any(|(at, _)| {
                    // `eprintln!(` is no `println!(`, nor is `my_axum::` axum.
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
                });
                if is_named && !places.iter().any(|place| source.path.starts_with(place)) {
                    found.push(format!("{}:{number}: {}", source.path, line.trim()));
                }
            }
        }
    }
    assert_none(&found, "each of these crates is confined to its places");
}
