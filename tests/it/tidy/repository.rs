//! Parts of the repository that must agree with each other.

use std::collections::BTreeSet;
use std::path::Path;

use alluvium::config::SETTINGS;
use alluvium::http::Function;

use super::sources::assert_none;
use crate::support::program::Program;
use crate::support::root;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn entries(folder: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root().join(folder))
        .unwrap_or_else(|e| panic!("{folder}: {e}"))
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Lines within code fences whose language is one of `languages`.
fn fenced(text: &str, languages: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = None;
    for line in text.lines() {
        match (inside, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => inside = Some(languages.contains(&language.trim())),
            (Some(_), Some(_)) => inside = None,
            (Some(true), None) => found.push(line.to_owned()),
            _ => {}
        }
    }
    found
}

#[test]
fn every_function_folder_has_a_route_and_every_route_its_folder() {
    let folders: BTreeSet<String> = entries("functions").into_iter().collect();
    let routes: BTreeSet<String> = Function::ALL.iter().map(|function| function.name().to_owned()).collect();
    assert_eq!(folders, routes);
    for name in folders {
        let text = read(&format!("functions/{name}/function.json"));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let bindings = value["bindings"].as_array().unwrap();
        let triggers = bindings
            .iter()
            .filter(|binding| binding["type"].as_str().is_some_and(|kind| kind.to_lowercase().ends_with("trigger")));
        assert_eq!(triggers.count(), 1, "functions/{name}/function.json has one trigger");
    }
}

#[test]
fn the_example_environment_lists_every_setting_with_its_default() {
    let text = read(".env.example");
    let listed: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.trim_start_matches("# ").split_once('='))
        .filter(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        // Values with blanks are quoted, for shells.
        .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
        .collect();
    let known: Vec<(String, String)> =
        SETTINGS.iter().map(|setting| (setting.name.to_owned(), setting.default.to_owned())).collect();
    assert_eq!(listed, known);
}

#[test]
fn the_readme_shows_commands_that_exist() {
    let readme = read("README.md");
    let lines = fenced(&readme, &["sh", "console"]);
    assert!(lines.iter().any(|line| line.trim() == "cargo run --release -- demo"), "the first of the two commands");
    assert!(lines.iter().any(|line| line.trim() == "tests/run"), "the second of the two commands");
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path());
    let mut seen = BTreeSet::new();
    for line in lines {
        let line = line.trim().trim_start_matches("$ ");
        let Some(rest) = line.strip_prefix("alluvium ").or_else(|| line.strip_prefix("cargo run --release -- ")) else {
            continue;
        };
        let words: Vec<&str> = rest.split_whitespace().take_while(|word| *word != "#").collect();
        let help = program.ok(&[words[0], "--help"]);
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            let flag = flag.split('=').next().unwrap();
            assert!(help.contains(flag), "README: `{line}`, but {flag} is not in\n{help}");
        }
        seen.insert(words[0].to_owned());
    }
    assert!(seen.len() >= 8, "the README shows the commands: {seen:?}");
}

#[test]
fn settings_that_documents_name_exist() {
    let known: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    let mut unknown = Vec::new();
    for document in ["README.md", "docs/contracts.md"] {
        for word in read(document).split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if word.starts_with("ALLUVIUM_")
                && !known.contains(word)
                && !["ALLUVIUM_TARGET", "ALLUVIUM_TEST_ROUNDS"].contains(&word)
            {
                unknown.push(format!("{document}: {word}"));
            }
        }
    }
    assert_none(&unknown, "a document names a setting that is not in src/config.rs");
    let readme = read("README.md");
    let silent: Vec<String> =
        known.iter().filter(|name| !readme.contains(**name)).map(|name| (*name).to_owned()).collect();
    assert_none(&silent, "the README's table of settings is whole");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for document in ["README.md", "CHANGELOG.md", "docs/contracts.md", "infra/README.md", "tests/fixtures/README.md"] {
        let folder = root().join(document).parent().unwrap().to_owned();
        for target in read(document).split("](").skip(1).filter_map(|rest| rest.split(')').next().map(str::to_owned)) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !folder.join(file).exists() {
                broken.push(format!("{document}: {target}"));
            }
        }
    }
    assert_none(&broken, "a link leads to a file of the repository");
}

#[test]
fn the_contract_reference_has_every_key() {
    let keys = [
        "version",
        "table",
        "description",
        "source",
        "path",
        "format",
        "ignore",
        "header",
        "delimiter",
        "quote",
        "escape",
        "skip_rows",
        "comment",
        "encoding",
        "null_values",
        "topics",
        "epoch",
        "columns",
        "name",
        "type",
        "from",
        "nullable",
        "max_length",
        "default",
        "true_values",
        "false_values",
        "trim",
        "decimal_separator",
        "group_separator",
        "rounding",
        "unit",
        "timezone",
        "on_gap",
        "on_overlap",
        "on_infinity",
        "write_mode",
        "primary_key",
        "partition_by",
        "sequence_by",
        "on_overwrite",
        "unknown_columns",
        "rules",
        "check",
        "on_fail",
        "covers",
        "max_quarantine",
        "properties",
        "keep",
        "order_by",
        "recompute_by",
        "touched",
        "sql",
        "transform",
    ];
    let reference = read("docs/contracts.md");
    let silent: Vec<String> = keys
        .iter()
        .filter(|key| !reference.contains(&format!("`{key}")) && !reference.contains(&format!("{key}:")))
        .map(|key| (*key).to_owned())
        .collect();
    assert_none(&silent, "docs/contracts.md explains every key of a contract");
}

#[test]
fn the_index_of_fixtures_is_whole() {
    let index = read("tests/fixtures/README.md");
    let unlisted: Vec<String> = entries("tests/fixtures")
        .into_iter()
        .filter(|name| name != "README.md" && !index.contains(&format!("`{name}")))
        .collect();
    assert_none(&unlisted, "tests/fixtures/README.md names every fixture");
}

#[test]
fn every_shipped_contract_is_where_its_name_says() {
    let mut found = Vec::new();
    for layer in entries("schemas") {
        for file in entries(&format!("schemas/{layer}")) {
            let table = Path::new(&file).file_stem().unwrap().to_str().unwrap();
            let text = read(&format!("schemas/{layer}/{file}"));
            if !text.lines().any(|line| line.trim_end() == format!("table: {layer}/{table}")) {
                found.push(format!("schemas/{layer}/{file}"));
            }
        }
    }
    assert_none(&found, "schemas/<layer>/<table>.yaml declares <layer>/<table>");
    for table in ["raw/trips.yaml", "raw/flights.yaml", "aggregate/trips.yaml", "curated/trips_daily.yaml"] {
        assert!(root().join("schemas").join(table).exists(), "{table}");
    }
}

#[test]
fn the_frame_is_there() {
    for path in ["LICENSE", "CHANGELOG.md", ".env.example", "host.json", "infra/README.md", "deny.toml", "clippy.toml"]
    {
        assert!(root().join(path).exists(), "{path}");
    }
    assert!(read("LICENSE").contains("the Alluvium authors"));
    for script in ["tests/run", ".ci/run"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(root().join(script)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{script} can be run");
    }
    assert!(read(".ci/run").contains("tests/run"));
}
