//! Looks at everything that must be right before the main job can run, and says how to make it right.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use crate::app::Backends;
use crate::catalog::Catalog;
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Backend, Config, SETTINGS};
use crate::error::{Error, Result};
use crate::local::{Trigger, read_functions};
use crate::pipeline::compared;
use crate::queue;
use crate::secret::presentable;

mod azure;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but look at it.
    Warn,
    /// It does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub level: Level,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), level: Level::Ok, detail: detail.into(), remedy: None }
    }

    fn warn(name: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), level: Level::Warn, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    fn fail(name: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), level: Level::Fail, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    fn of_error(name: impl Into<String>, error: &Error) -> Self {
        let remedy = error.remedy_text().map(str::to_owned);
        Self { name: name.into(), level: Level::Fail, detail: error.to_string(), remedy }
    }
}

/// Looks at settings, folders, contracts, functions and queues. Writes and deletes one empty probe file in each folder
/// that the program writes to. What is found is told as it is found.
pub async fn examine(config: &Config, mut found: impl FnMut(Check)) {
    settings(config).into_iter().for_each(&mut found);
    let mut folders = Vec::new();
    if config.storage_backend == Backend::Local {
        folders.extend([("landing zone", config.landing_folder()), ("lake", config.lake_folder())]);
    }
    if config.queue_backend == Backend::Local {
        folders.push(("queues", config.queue_folder()));
    }
    for (name, folder) in folders {
        found(match probe(&folder) {
            Ok(()) => Check::ok(name, format!("{} can be written", folder.display())),
            Err(error) => Check {
                remedy: Some(
                    "give this user the right to write there, or set ALLUVIUM_HOME to another folder".to_owned(),
                ),
                ..Check::of_error(name, &error)
            },
        });
    }
    // Opened once: one identity, one token.
    let backends = Backends::open(config, std::sync::Arc::new(SystemClock));
    let lake_answers = azure::examine(config, &backends, &mut found).await;
    contracts(config).into_iter().for_each(&mut found);
    functions(config).into_iter().for_each(&mut found);
    // Settings that are wrong were told by whoever looked at the account.
    let Ok(backends) = backends else { return };
    if lake_answers {
        landed(config, &backends).await.into_iter().for_each(&mut found);
    }
    queues(config, &backends, &mut found).await;
}

/// What the last comparison of the landing zone with the ledger came to.
async fn landed(config: &Config, backends: &Backends) -> Vec<Check> {
    let name = "reconcile";
    // Contracts that are wrong were told by whoever looked at them.
    let lake = match Catalog::load(&config.schemas).ok() {
        Some(catalog) => backends.lake(catalog),
        None => return Vec::new(),
    };
    let last = match lake {
        Ok(lake) => compared::last(&lake).await,
        Err(error) => Err(error),
    };
    let last = match last {
        Ok(Some(last)) => last,
        Ok(None) => return vec![Check::ok(name, "the landing zone was never compared with the ledger")],
        Err(error) => return vec![Check::of_error(name, &error)],
    };
    let mut checks = vec![match &last.error {
        Some(error) => Check::warn(
            name,
            format!("failed at {}: {error}", last.at.to_rfc3339()),
            "it is tried again; see that the landing zone can be listed, then `alluvium status`",
        ),
        None => Check::ok(name, format!("the landing zone was compared with the ledger at {}", last.at.to_rfc3339())),
    }];
    checks.extend(last.left_out.iter().map(|entry| {
        let remedy = "rename or remove it: nothing reads it; its neighbours have nothing to do with it";
        Check::warn("landing zone: left out", entry.reason_with_name(), remedy)
    }));
    checks
}

fn settings(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    for setting in SETTINGS {
        let detail = match config.given(setting) {
            Some(value) => format!("{value} (default {})", or_none(setting.default)),
            None => format!("{} (default)", or_none(setting.default)),
        };
        checks.push(Check::ok(setting.name, format!("{detail}: {}", setting.meaning)));
    }
    for (name, nearest) in config.unknown_names() {
        let remedy = match nearest {
            Some(known) => format!("did you mean {known}?"),
            None => "unset it".to_owned(),
        };
        checks.push(Check::warn(name, "it is set, but nothing reads it", remedy));
    }
    checks
}

const fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn probe(folder: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::from(error).within(folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    // Hidden names are no landed files, no messages and no tables.
    let (first, second) = (folder.join(format!(".probe-{}", SystemClock.fresh())), folder.join(".probe-renamed"));
    std::fs::write(&first, b"").map_err(failed)?;
    let renamed = std::fs::rename(&first, &second);
    let _ = std::fs::remove_file(&first);
    renamed.map_err(failed)?;
    std::fs::remove_file(&second).map_err(failed)
}

fn contracts(config: &Config) -> Vec<Check> {
    let name = "contracts";
    let folder = config.schemas.display();
    if !config.schemas.is_dir() {
        return vec![Check::fail(
            name,
            format!("{folder} is no folder"),
            "set ALLUVIUM_SCHEMAS to the folder of the contracts, <layer>/<table>.yaml",
        )];
    }
    match Catalog::load(&config.schemas) {
        Ok(catalog) if catalog.tables().is_empty() => {
            vec![Check::warn(name, format!("{folder} holds no contract"), "begin one with `alluvium infer FILE`")]
        }
        Ok(catalog) => vec![Check::ok(name, format!("{} tables in {folder}", catalog.tables().len()))],
        Err(mistakes) => mistakes
            .into_iter()
            .map(|mistake| {
                let detail = format!("{}:{}:{}: {}", mistake.file, mistake.line, mistake.column, mistake.message);
                let remedy = mistake.help.unwrap_or_else(|| "mend the contract; `alluvium check` says more".to_owned());
                match mistake.is_error {
                    true => Check::fail(name, detail, remedy),
                    false => Check::warn(name, detail, remedy),
                }
            })
            .collect(),
    }
}

fn functions(config: &Config) -> Vec<Check> {
    match read_functions(&config.root, &|name| config.lookup(name)) {
        Ok((functions, _)) => {
            let shown = functions.iter().map(|function| match &function.trigger {
                Trigger::Stream(binding) => match binding.not_run() {
                    Some(why) => format!("{} (not run: {why})", function.name),
                    None => function.name.clone(),
                },
                _ => function.name.clone(),
            });
            let mut checks = vec![Check::ok("functions", shown.collect::<Vec<_>>().join(", "))];
            let connections: BTreeSet<&str> =
                functions.iter().filter_map(|function| connection(&function.trigger)).collect();
            checks.extend(connections.into_iter().filter_map(|connection| led_to_the_queues(config, connection)));
            checks
        }
        Err(error) => vec![Check::of_error("functions", &error)],
    }
}

const fn connection(trigger: &Trigger) -> Option<&str> {
    match trigger {
        Trigger::Queue { connection, .. } => Some(connection.as_str()),
        _ => None,
    }
}

/// Whether the Functions host looks for messages where this program puts them. Without a host it needs no address.
fn led_to_the_queues(config: &Config, connection: &str) -> Option<Check> {
    if config.queue_backend != Backend::Azure || config.lookup(connection).is_some() {
        return None;
    }
    let name = format!("{connection}__queueServiceUri");
    let ours = config.queue_service();
    let shown = ours.as_deref().unwrap_or("the address of the account's queues");
    let same =
        |given: &str| ours.as_deref().is_some_and(|ours| ours.trim_end_matches('/') == given.trim_end_matches('/'));
    Some(match config.lookup(&name) {
        None => Check::ok(name, format!("not set; a function app needs it: {shown}")),
        Some(given) if same(&given) => Check::ok(name, presentable(&given)),
        Some(given) => Check::fail(
            name.clone(),
            presentable(&format!("{given}, but the queues are at {shown}")),
            format!("set {name} and AZURE_QUEUE_ACCOUNT_URL to the same address"),
        ),
    })
}

async fn queues(config: &Config, backends: &Backends, found: &mut impl FnMut(Check)) {
    let queues = backends.queue();
    let names = [config.queue_name.clone(), queue::poison(&config.queue_name)];
    let depths = names.map(|name| async { (queues.depth(&name).await, name) });
    for (depth, name) in futures::future::join_all(depths).await {
        let label = format!("queue {name}");
        found(match depth {
            Ok(depth) if depth.total() > 0 && name.ends_with("-poison") => Check::warn(
                label,
                format!("{} messages failed too often", depth.total()),
                "`alluvium status` names the files and the causes",
            ),
            Ok(depth) => Check::ok(label, format!("{} waiting, {} in work or delayed", depth.visible, depth.hidden)),
            Err(error) => Check::of_error(label, &error),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;

    fn config(home: &Path, more: &[(&str, &str)]) -> Config {
        let mut pairs = vec![
            ("ALLUVIUM_HOME".to_owned(), home.to_str().unwrap().to_owned()),
            ("ALLUVIUM_SCHEMAS".to_owned(), home.join("none").to_str().unwrap().to_owned()),
            ("ALLUVIUM_ROOT".to_owned(), env!("CARGO_MANIFEST_DIR").to_owned()),
        ];
        pairs.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Config::from_pairs(pairs).unwrap()
    }

    fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
        checks.iter().find(|check| check.name == name).unwrap()
    }

    async fn examine(config: &Config) -> Vec<Check> {
        let mut checks = Vec::new();
        super::examine(config, |check| checks.push(check)).await;
        checks
    }

    #[tokio::test]
    async fn every_setting_is_listed_and_misspelt_ones_are_noticed() {
        let home = tempfile::tempdir().unwrap();
        let checks = examine(&config(home.path(), &[("ALLUVIUM_TREADS", "4"), ("ALLUVIUM_THREADS", "3")])).await;
        for setting in SETTINGS {
            assert_eq!(find(&checks, setting.name).level, Level::Ok);
        }
        assert!(find(&checks, "ALLUVIUM_THREADS").detail.starts_with("3 (default none)"));
        let misspelt = find(&checks, "ALLUVIUM_TREADS");
        assert_eq!((misspelt.level, misspelt.remedy.as_deref()), (Level::Warn, Some("did you mean ALLUVIUM_THREADS?")));
    }

    #[tokio::test]
    async fn folders_are_tried_and_left_as_they_were() {
        let home = tempfile::tempdir().unwrap();
        let checks = examine(&config(home.path(), &[])).await;
        for name in ["landing zone", "lake", "queues", "functions"] {
            assert_eq!(find(&checks, name).level, Level::Ok, "{name}");
        }
        assert_eq!(std::fs::read_dir(home.path().join("landing")).unwrap().count(), 0);
        let contracts = find(&checks, "contracts");
        assert_eq!(contracts.level, Level::Fail);
        assert!(contracts.remedy.as_ref().unwrap().contains("ALLUVIUM_SCHEMAS"));
    }

    #[test]
    fn the_host_must_look_for_messages_where_we_put_them() {
        let home = tempfile::tempdir().unwrap();
        let url = "https://acct.queue.core.windows.net";
        let (ours, theirs) = ("AZURE_STORAGE_ACCOUNT", "LakeQueue__queueServiceUri");
        for (pairs, level) in [
            (vec![], None),
            (vec![("QUEUE_BACKEND", "azure"), (ours, "acct")], Some(Level::Ok)),
            (vec![("QUEUE_BACKEND", "azure"), (ours, "acct"), (theirs, url)], Some(Level::Ok)),
            (vec![("QUEUE_BACKEND", "azure"), (ours, "other"), (theirs, url)], Some(Level::Fail)),
            (
                vec![
                    ("QUEUE_BACKEND", "azure"),
                    ("AZURE_QUEUE_ACCOUNT_URL", "https://q.example/"),
                    (theirs, "https://q.example"),
                ],
                Some(Level::Ok),
            ),
            (vec![("QUEUE_BACKEND", "azure"), (theirs, url)], Some(Level::Fail)),
            (vec![("QUEUE_BACKEND", "azure"), ("LakeQueue", "UseDevelopmentStorage=true")], None),
        ] {
            let checks = functions(&config(home.path(), &pairs));
            let found = checks.iter().find(|check| check.name == theirs).map(|check| check.level);
            assert_eq!(found, level, "{pairs:?}");
        }
    }

    #[tokio::test]
    async fn a_home_that_is_a_file_fails_with_a_remedy() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let checks = examine(&config(&file, &[])).await;
        let lake = find(&checks, "lake");
        assert_eq!(lake.level, Level::Fail);
        assert!(lake.remedy.as_ref().unwrap().contains("ALLUVIUM_HOME"));
    }

    #[tokio::test]
    async fn messages_in_poison_are_a_warning() {
        let home = tempfile::tempdir().unwrap();
        let queue = Queue::local(&home.path().join("queue"), std::sync::Arc::new(SystemClock), false);
        queue.send("landing-events-poison", b"x".to_vec(), std::time::Duration::ZERO).await.unwrap();
        let checks = examine(&config(home.path(), &[])).await;
        assert_eq!(find(&checks, "queue landing-events").level, Level::Ok);
        assert_eq!(find(&checks, "queue landing-events-poison").level, Level::Warn);
    }
}
