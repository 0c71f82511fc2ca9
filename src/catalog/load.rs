//! Finding contracts: `<folder>/<layer>/<table>.yaml`.

use std::path::{Path, PathBuf};

use crate::catalog::Catalog;
use crate::name::{LAYERS, TableName};
use crate::schema::{At, Contract, Diagnostic, suggest, yaml};

/// What was found.
#[derive(Debug, Default, Clone)]
pub(super) struct Loaded {
    /// Contracts that could be read, mistakes replaced by defaults.
    pub(super) contracts: Vec<Contract>,
    /// Tables that have a contract, readable or not.
    pub(super) names: Vec<TableName>,
    /// Mistakes and warnings.
    pub(super) found: Vec<Diagnostic>,
}

pub(super) fn folder(folder: &Path) -> Loaded {
    let mut loaded = Loaded::default();
    let shown = show(folder);
    match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            loaded.found.push(Diagnostic::error(&shown, At::START, "this is a file, not a folder of contracts"));
            return loaded;
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            loaded.found.push(
                Diagnostic::error(&shown, At::START, "there is no such folder of contracts")
                    .help("create <folder>/<layer>/<table>.yaml, or name another folder with ALLUVIUM_SCHEMAS"),
            );
            return loaded;
        }
        Err(error) => {
            loaded.found.push(unreadable(&shown, &error));
            return loaded;
        }
    }
    let mut files = Vec::new();
    walk(folder, 0, &mut files, &mut loaded.found);
    files.sort();
    if files.is_empty() && loaded.found.is_empty() {
        loaded.found.push(
            Diagnostic::error(&shown, At::START, "the folder holds no contract")
                .help("add <layer>/<table>.yaml; `alluvium infer FILE` writes a first one from a file")
                .into_warning(),
        );
    }
    for path in files {
        let file = show(&path);
        let relative = path.strip_prefix(folder).map(show).unwrap_or_else(|_| file.clone());
        match read(&path) {
            Ok(text) => add(&mut loaded, file, &relative, &text),
            Err(error) => {
                loaded.names.extend(expected(&file, &relative).ok());
                loaded.found.push(unreadable(&file, &error));
            }
        }
    }
    loaded
}

pub(super) fn sources(sources: Vec<(String, String)>) -> Loaded {
    let mut loaded = Loaded::default();
    for (file, text) in sources {
        let cut = file.rmatch_indices('/').nth(1).map_or(0, |(index, _)| index + 1);
        let relative = file[cut..].to_owned();
        add(&mut loaded, file, &relative, &text);
    }
    loaded
}

fn read(path: &Path) -> std::io::Result<String> {
    let bytes = std::fs::read(path)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        std::io::Error::new(std::io::ErrorKind::InvalidData, format!("byte {at} is not UTF-8"))
    })
}

fn unreadable(file: &str, error: &std::io::Error) -> Diagnostic {
    Diagnostic::error(file, At::START, format!("cannot be read: {error}"))
}

fn show(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/").replace("//", "/")
}

// All files that look like contracts; hidden ones are not looked at.
fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>, found: &mut Vec<Diagnostic>) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            found.push(unreadable(&show(folder), &error));
            return;
        }
    };
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => {
                found.push(unreadable(&show(folder), &error));
                continue;
            }
        };
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            if depth < Catalog::DEPTH {
                walk(&path, depth + 1, files, found);
            }
        } else if path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml"))
        {
            files.push(path);
        }
    }
}

// The table that belongs into a file, by the file's place.
fn expected(file: &str, relative: &str) -> Result<TableName, Diagnostic> {
    const HELP: &str = "contracts stand in <layer>/<table>.yaml";
    let Some((stem, extension)) = relative.rsplit_once('.') else {
        return Err(Diagnostic::error(file, At::START, "the file's name has no `.yaml`").help(HELP));
    };
    if extension != "yaml" {
        let wanted = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        return Err(Diagnostic::error(file, At::START, format!("the file's name ends in `.{extension}`"))
            .help(format!("rename it to {wanted}.yaml")));
    }
    let parts: Vec<&str> = stem.split('/').collect();
    let [layer, table] = parts[..] else {
        return Err(Diagnostic::error(file, At::START, "the file does not stand in a layer's folder").help(HELP));
    };
    if !LAYERS.contains(&layer) {
        return Err(Diagnostic::error(file, At::START, format!("the folder `{layer}` is no layer"))
            .help(suggest::did_you_mean_or_list(layer, &LAYERS)));
    }
    format!("{layer}/{table}")
        .parse()
        .map_err(|error: crate::error::Error| Diagnostic::error(file, At::START, error.message()).help(HELP))
}

fn add(loaded: &mut Loaded, file: String, relative: &str, text: &str) {
    let expected = match expected(&file, relative) {
        Ok(expected) => Some(expected),
        Err(diagnostic) => {
            loaded.found.push(diagnostic);
            None
        }
    };
    let parsed = yaml::read(&file, text, expected.as_ref());
    loaded.found.extend(parsed.found);
    let name = expected.or_else(|| parsed.contract.as_ref().map(|contract| contract.table.clone()));
    let Some(name) = name else { return };
    if loaded.names.contains(&name) {
        let first = loaded.contracts.iter().find(|contract| contract.table == name);
        let first = first.map_or_else(String::new, |contract| format!(" (first in {})", contract.file));
        loaded.found.push(
            Diagnostic::error(&file, At::START, format!("table `{name}` is declared twice{first}"))
                .help("a table has one contract"),
        );
        return;
    }
    loaded.names.push(name);
    loaded.contracts.extend(parsed.contract);
}
