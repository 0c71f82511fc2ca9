//! Imports run downwards: a module may use its own floor and those below it.

use super::sources::{assert_none, sources};

/// The floors, from the words up to the edges. A new module of `src/` gets its place here.
const FLOORS: [&[&str]; 7] = [
    &["error", "clock", "name", "secret", "safeguard"],
    &["schema", "catalog"],
    &[
        "arithmetic",
        "cast",
        "decode",
        "change",
        "quality",
        "quarantine",
        "manifest",
        "offsets",
        "layout",
        "event",
        "lineage",
        "transform",
        "infer",
    ],
    &["store", "landing", "queue", "table", "azure", "faults"],
    &["pipeline"],
    &["config", "telemetry", "app", "http", "render", "generate"],
    &["local", "doctor", "cli", "fuzz", "selftest"],
];

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|modules| modules.contains(&module))
}

/// The module of a path below `src/`: `src/table/log.rs` is of `table`.
fn module_of(path: &str) -> &str {
    let below = path.trim_start_matches("src/").trim_end_matches(".rs");
    below.split('/').next().unwrap_or(below)
}

/// Modules of this crate that a line names, by `crate::module`, also from `use crate::{a::B, c}`.
fn named(line: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for (at, marker) in line.match_indices("crate::") {
        if line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &line[at + marker.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let mut depth = 0;
                let mut start = true;
                for (position, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        ' ' => {}
                        _ if start && depth == 0 => {
                            found.push(word(&list[position..]));
                            start = false;
                        }
                        _ => {}
                    }
                    if depth < 0 {
                        break;
                    }
                }
            }
            None => found.push(word(rest)),
        }
    }
    found.retain(|name| name.chars().next().is_some_and(|first| first.is_lowercase()));
    found
}

#[test]
fn every_module_has_its_floor() {
    let homeless: Vec<String> = sources("src")
        .iter()
        .map(|source| module_of(&source.path).to_owned())
        .filter(|module| !["lib", "main"].contains(&module.as_str()) && floor(module).is_none())
        .collect();
    assert_none(&homeless, "a module stands on a floor (FLOORS in tests/it/tidy/floors.rs)");
}

#[test]
fn imports_run_downwards() {
    let mut upwards = Vec::new();
    for source in sources("src").iter().filter(|source| !source.is_tests()) {
        let Some(own) = floor(module_of(&source.path)) else { continue };
        for (number, line) in source.statements() {
            for module in named(line) {
                if floor(&module).is_some_and(|other| other > own) {
                    upwards.push(format!("{}:{number}: {}", source.path, line.trim()));
                }
            }
        }
    }
    assert_none(&upwards, "a file uses its own floor and those below it");
}

#[test]
fn names_are_found_in_lines() {
    assert_eq!(named("use crate::error::{Error, Result};"), ["error"]);
    assert_eq!(named("use crate::{error::{Error, Result}, table::Table, name};"), ["error", "table", "name"]);
    assert_eq!(named("    lake: &crate::pipeline::lake::Lake, store: crate::store::Store"), ["pipeline", "store"]);
    assert_eq!(named("use super::log;"), Vec::<String>::new());
    assert_eq!(named("crate::Something"), Vec::<String>::new());
}
