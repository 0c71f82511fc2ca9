//! What is deployed: host.json, one folder for each function, the contracts, and the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::app;
use crate::cli::demo::shipped;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::http::Function;
use crate::name::TableName;

const EXECUTABLE: u32 = 0o755;
const READABLE: u32 = 0o644;

/// One file of the package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path below the script root, with `/`.
    pub path: String,
    /// Its content.
    pub source: Source,
    /// Unix mode.
    pub mode: u32,
}

/// Where a file's content is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Here.
    Text(String),
    /// In a file.
    File(PathBuf),
}

impl Entry {
    pub(super) fn text(path: impl Into<String>, text: String) -> Self {
        Self { path: path.into(), source: Source::Text(text), mode: READABLE }
    }
}

/// Everything that is deployed.
#[derive(Debug)]
pub(super) struct Content {
    /// The files, by path.
    pub entries: Vec<Entry>,
    /// The functions' bindings, by name.
    pub functions: BTreeMap<String, Value>,
    /// How many contracts there are.
    pub contracts: usize,
    /// Name of the program's file.
    executable: String,
}

impl Content {
    /// How many bytes the files that are copied have.
    pub(super) fn bytes(&self) -> u64 {
        let sizes = self.entries.iter().filter_map(|entry| match &entry.source {
            Source::File(file) => fs::metadata(file).ok().map(|meta| meta.len()),
            Source::Text(_) => None,
        });
        sizes.sum()
    }

    /// Whether a package may have a file or folder of this name at its top: this one, or one made with other arguments.
    pub(super) fn could_hold(&self, name: &str) -> bool {
        let is_function = Function::ALL.iter().any(|function| function.name() == name);
        is_function || name == self.executable || ["host.json", "schemas"].contains(&name)
    }
}

/// Gathers what is deployed. host.json and the functions are those of the configuration's root or, where there are none,
/// those that the program was built with.
///
/// # Errors
/// A contract, a binding or host.json is wrong, or a function has no route in this program.
pub(super) fn gather(config: &Config, binary: &Path, with: &[String]) -> Result<Content> {
    let mut functions = BTreeMap::new();
    let mut entries = Vec::new();
    let mut executable = None;
    let mut streams = Vec::new();
    for (path, text) in host_files(config)? {
        let value: Value = serde_json::from_str(&text).map_err(|error| Error::invalid(path.clone()).because(error))?;
        let Some(name) = path.strip_prefix("functions/").and_then(|rest| rest.strip_suffix("/function.json")) else {
            executable = Some(executable_of(&value).map_err(|error| error.within(&path))?);
            entries.push(Entry::text(path, text));
            continue;
        };
        if !Function::ALL.iter().any(|function| function.name() == name) {
            return Err(Error::invalid(format!("{path}: this program has no function `{name}`"))
                .remedy("remove its folder, or deploy the program that it belongs to"));
        }
        if is_stream(&value) {
            streams.push(name.to_owned());
            if !with.iter().any(|wanted| wanted == name) {
                continue;
            }
        }
        functions.insert(name.to_owned(), value);
        entries.push(Entry::text(format!("{name}/function.json"), text));
    }
    if let Some(unknown) = with.iter().find(|wanted| !streams.contains(wanted)) {
        return Err(Error::invalid(format!("--with {unknown}: there is no such function of a change stream")).remedy(
            format!("there are: {}", if streams.is_empty() { "none".to_owned() } else { streams.join(", ") }),
        ));
    }
    let executable = executable.ok_or_else(|| Error::not_found("host.json is not among the files of the host"))?;
    entries.push(Entry { path: executable.clone(), source: Source::File(binary.to_owned()), mode: EXECUTABLE });
    let declared = contracts(config)?;
    let contracts = declared.len();
    entries.extend(declared);
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Content { entries, functions, contracts, executable })
}

/// host.json and `functions/*/function.json`, by their paths in the repository.
fn host_files(config: &Config) -> Result<Vec<(String, String)>> {
    if !config.root.join("host.json").is_file() || !config.root.join("functions").is_dir() {
        return Ok(shipped::HOST.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect());
    }
    let mut paths = vec!["host.json".to_owned()];
    let folder = config.root.join("functions");
    for entry in fs::read_dir(&folder).map_err(|error| Error::from(error).within(folder.display()))? {
        let entry = entry.map_err(|error| Error::from(error).within(folder.display()))?;
        let path = format!("functions/{}/function.json", entry.file_name().to_string_lossy());
        if config.root.join(&path).is_file() {
            paths.push(path);
        }
    }
    paths.into_iter().map(|path| Ok((path.clone(), read(&config.root.join(path))?))).collect()
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| Error::from(error).within(file.display()))
}

/// The zip's entry must have this very name, or the program loses its right to run on the way.
fn executable_of(host: &Value) -> Result<String> {
    let path = host.pointer("/customHandler/description/defaultExecutablePath").and_then(Value::as_str);
    let is_plain = |name: &&str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    path.filter(is_plain).map(str::to_owned).ok_or_else(|| {
        Error::invalid("customHandler.description.defaultExecutablePath is no plain file name")
            .remedy("make it `alluvium`, without a folder")
    })
}

fn is_stream(function: &Value) -> bool {
    let bindings = function["bindings"].as_array().map(Vec::as_slice).unwrap_or_default();
    bindings.iter().any(|binding| matches!(binding["type"].as_str(), Some("kafkaTrigger" | "eventHubTrigger")))
}

/// The contracts, which must be without a mistake.
fn contracts(config: &Config) -> Result<Vec<Entry>> {
    let schemas = &config.schemas;
    if !schemas.is_dir() {
        return Err(Error::not_found(format!("there is no folder of contracts at {}", schemas.display()))
            .remedy("name it with --schemas or ALLUVIUM_SCHEMAS"));
    }
    let catalog = app::open_catalog(config)?;
    // A contract stands in the file that its table's name says.
    let entry = |table: &TableName| {
        let file = format!("{table}.yaml");
        Entry { path: format!("schemas/{file}"), source: Source::File(schemas.join(&file)), mode: READABLE }
    };
    // A history has no file: its contract follows from that of the table beside it.
    let written = catalog.tables().iter().filter(|contract| contract.history_of().is_none());
    Ok(written.map(|contract| entry(&contract.table)).collect())
}
