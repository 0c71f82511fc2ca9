//! The settings that the function app needs, with the values that are known here, and a `local.settings.json` for Azurite.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::config::{Config, SETTINGS};
use crate::error::{Error, Result};
use crate::local::setting_names;

/// Settings that mean something on this machine alone, or that the host sets itself.
const OF_THIS_MACHINE: &[&str] = &[
    "ALLUVIUM_HOME",
    "ALLUVIUM_SCHEMAS",
    "ALLUVIUM_ROOT",
    "ALLUVIUM_ARRIVAL_HOLD_MS",
    "ALLUVIUM_LEASH",
    "ALLUVIUM_AZURITE",
    "AzureWebJobsStorage",
    "FUNCTIONS_CUSTOMHANDLER_PORT",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "AZURE_FEDERATED_TOKEN_FILE",
];

/// One setting of the function app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AppSetting {
    /// Its name.
    pub name: String,
    /// Its value, if it is known here and no secret.
    pub value: Option<String>,
    /// What it is for.
    pub meaning: String,
    /// Whether the deployed app needs it.
    pub deployed: bool,
    /// Its value on this machine, with Azurite; none where it is not needed there.
    local: Option<String>,
}

/// All settings that the functions need, each once.
///
/// # Errors
/// A binding's value has a `%` without a partner.
pub(super) fn of(config: &Config, functions: &BTreeMap<String, Value>) -> Result<Vec<AppSetting>> {
    let mut list = List::default();
    list.fixed("FUNCTIONS_WORKER_RUNTIME", "custom", "the host runs a handler of its own");
    list.add("FUNCTIONS_EXTENSION_VERSION", Some("~4".to_owned()), "version of the host", None);
    list.add("AzureWebJobsStorage__accountName", None, "storage account of the host itself, for its locks", None);
    let identity = || Some("managedidentity".to_owned());
    list.add("AzureWebJobsStorage__credential", identity(), "the app's own identity", None);
    list.local_only("AzureWebJobsStorage", AZURITE);
    list.fixed("STORAGE_BACKEND", "azure", "lake and landing zone are in a storage account");
    list.fixed("QUEUE_BACKEND", "azure", "the queues are in a storage account");
    for (connection, kind) in connections(functions) {
        let (key, value, meaning) = match kind {
            Kind::Queue => ("queueServiceUri", config.queue_service(), "where the host finds the queues"),
            Kind::EventHubs => ("fullyQualifiedNamespace", None, "where the host finds the event hub"),
        };
        list.add(&format!("{connection}__{key}"), value, meaning, None);
        list.add(&format!("{connection}__credential"), identity(), "the app's own identity", None);
        if let Some(client) = config.lookup("AZURE_CLIENT_ID") {
            list.add(&format!("{connection}__clientId"), Some(client), "which of the app's identities", None);
        }
        match kind {
            Kind::Queue => list.local_only(&connection, AZURITE),
            Kind::EventHubs => list.local_only(&connection, ""),
        }
    }
    for name in named(functions)? {
        let value = config.lookup(&name);
        let known = SETTINGS.iter().find(|setting| setting.name == name);
        let meaning = known.map_or("named by a function's binding", |setting| setting.meaning);
        list.add(&name, value.clone(), meaning, Some(value.unwrap_or_default()));
    }
    list.add("AZURE_STORAGE_ACCOUNT", config.lookup("AZURE_STORAGE_ACCOUNT"), "account of lake and landing zone", None);
    for setting in SETTINGS.iter().filter(|setting| !OF_THIS_MACHINE.contains(&setting.name)) {
        if let Some(value) = config.given(setting) {
            // A secret is a person's to set, where it cannot be read.
            let value = (!setting.is_secret).then(|| value.to_owned());
            list.add(setting.name, value, setting.meaning, None);
        }
    }
    Ok(list.0)
}

/// `local.settings.json` for `func start` beside Azurite.
///
/// # Errors
/// It has no JSON form, which cannot be.
pub(super) fn local(settings: &[AppSetting]) -> Result<String> {
    let values: Map<String, Value> = settings
        .iter()
        .filter_map(|setting| Some((setting.name.clone(), Value::from(setting.local.clone()?))))
        .collect();
    let file = json!({ "IsEncrypted": false, "Values": values, "Host": { "LocalHttpPort": 7071 } });
    let text =
        serde_json::to_string_pretty(&file).map_err(|error| Error::internal("settings as JSON").because(error))?;
    Ok(format!("{text}\n"))
}

const AZURITE: &str = "UseDevelopmentStorage=true";

#[derive(Default)]
struct List(Vec<AppSetting>);

impl List {
    fn add(&mut self, name: &str, value: Option<String>, meaning: &str, local: Option<String>) {
        if !self.0.iter().any(|known| known.name == name) {
            let (name, meaning) = (name.to_owned(), meaning.to_owned());
            self.0.push(AppSetting { name, value, meaning, deployed: true, local });
        }
    }

    /// The same everywhere.
    fn fixed(&mut self, name: &str, value: &str, meaning: &str) {
        self.add(name, Some(value.to_owned()), meaning, Some(value.to_owned()));
    }

    /// Instead of the deployed app's that begin with its name.
    fn local_only(&mut self, name: &str, value: &str) {
        let (name, local) = (name.to_owned(), Some(value.to_owned()));
        self.0.push(AppSetting { name, value: None, meaning: String::new(), deployed: false, local });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Queue,
    EventHubs,
}

/// Connections that bindings name, each once, by what they lead to.
fn connections(functions: &BTreeMap<String, Value>) -> BTreeMap<String, Kind> {
    let mut found = BTreeMap::new();
    for binding in bindings(functions) {
        let kind = match binding["type"].as_str() {
            Some("queueTrigger") => Kind::Queue,
            Some("eventHubTrigger") => Kind::EventHubs,
            _ => continue,
        };
        if let Some(connection) = binding["connection"].as_str() {
            found.insert(connection.to_owned(), kind);
        }
    }
    found
}

/// Settings that bindings name as `%NAME%`, in the order of the functions, each once.
fn named(functions: &BTreeMap<String, Value>) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    for binding in bindings(functions) {
        for text in binding.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_str) {
            for name in setting_names(text)? {
                if !found.iter().any(|known| known == name) {
                    found.push(name.to_owned());
                }
            }
        }
    }
    Ok(found)
}

fn bindings(functions: &BTreeMap<String, Value>) -> impl Iterator<Item = &Value> {
    functions.values().filter_map(|function| function["bindings"].as_array()).flatten()
}
