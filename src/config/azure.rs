//! Settings of the storage account. Read always, used only when a backend is `azure`.

use std::time::Duration;

use url::Url;

use super::{Config, Expected, Values, parse_duration};
use crate::azure::AccountSettings;
use crate::azure::connection::has_userinfo;
use crate::azure::identity::{Kind, Login};
use crate::azure::patience::Patience;
use crate::error::Result;
use crate::secret::Secret;

/// The storage account, and what is where in it.
#[derive(Debug, Clone)]
pub struct AzureSettings {
    /// Which account, and by what right.
    pub account: AccountSettings,
    /// Container that holds the lake.
    pub lake_container: String,
    /// Folder of that container that holds the lake, without slashes at its ends; empty is the container itself.
    pub lake_prefix: String,
    /// Container that producers write to.
    pub landing_container: String,
}

impl AzureSettings {
    pub(super) fn read(values: &Values<'_>) -> Result<Self> {
        let text = |name: &str| Some(values.text(name)).filter(|text| !text.is_empty());
        let secret = |name: &str| text(name).map(Secret::new);
        let login = Login {
            kind: values.optional("AZURE_TOKEN_CREDENTIALS", parse_kind)?,
            client_id: text("AZURE_CLIENT_ID"),
            tenant_id: text("AZURE_TENANT_ID"),
            client_secret: secret("AZURE_CLIENT_SECRET"),
            federated_token_file: text("AZURE_FEDERATED_TOKEN_FILE").map(Into::into),
            has_identity_endpoint: text("IDENTITY_ENDPOINT").is_some(),
        };
        let account = AccountSettings {
            connection: secret("AZURE_STORAGE_CONNECTION_STRING"),
            account: values.optional("AZURE_STORAGE_ACCOUNT", parse_account)?,
            host_connection: secret("AzureWebJobsStorage"),
            blob_endpoint: values.optional("AZURE_STORAGE_ENDPOINT", parse_endpoint)?,
            queue_endpoint: values.optional("AZURE_QUEUE_ACCOUNT_URL", parse_endpoint)?,
            login,
            patience: values
                .optional("ALLUVIUM_STORAGE_PATIENCE", parse_patience)?
                .map_or_else(Patience::default, Patience::of),
        };
        Ok(Self {
            account,
            lake_container: values.parsed("AZURE_STORAGE_CONTAINER", parse_container)?,
            lake_prefix: values.parsed("AZURE_STORAGE_PREFIX", parse_prefix)?,
            landing_container: values.parsed("AZURE_LANDING_CONTAINER", parse_container)?,
        })
    }
}

impl Config {
    /// The same for a command that somebody waits for: a storage account that does not answer is told soon, unless it was
    /// said how long it may take.
    #[must_use]
    pub fn for_a_person(mut self) -> Self {
        if self.lookup("ALLUVIUM_STORAGE_PATIENCE").is_none() {
            self.azure.account.patience = Patience::SHORT;
        }
        self
    }

    /// Where the account's queues answer, as far as the settings say.
    #[must_use]
    pub fn queue_service(&self) -> Option<String> {
        let usual =
            || self.lookup("AZURE_STORAGE_ACCOUNT").map(|name| format!("https://{name}.queue.core.windows.net"));
        self.lookup("AZURE_QUEUE_ACCOUNT_URL").or_else(usual)
    }
}

fn parse_account(text: &str) -> Result<String, Expected> {
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if plain && (3..=24).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err("the account's name alone: 3 to 24 lower-case letters and digits")
}

fn parse_container(text: &str) -> Result<String, Expected> {
    let letters = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let edges = !text.starts_with('-') && !text.ends_with('-') && !text.contains("--");
    if letters && edges && (3..=63).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err("3 to 63 lower-case letters, digits and single hyphens, none of them at an end")
}

fn parse_prefix(text: &str) -> Result<String, Expected> {
    let trimmed = text.trim_matches('/');
    let plain = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'='))
    };
    if trimmed.is_empty() || trimmed.split('/').all(plain) {
        return Ok(trimmed.to_owned());
    }
    Err("folder names of letters, digits, `-`, `_`, `.` and `=`, with `/` between them")
}

fn parse_endpoint(text: &str) -> Result<Url, Expected> {
    let url = Url::parse(text).ok().filter(|url| url.has_host() && url.query().is_none() && !has_userinfo(url));
    url.filter(|url| matches!(url.scheme(), "https" | "http"))
        .ok_or("a URL such as https://account.blob.core.windows.net, without a name or password before the host")
}

fn parse_patience(text: &str) -> Result<Duration, Expected> {
    parse_duration(text).ok().filter(|time| !time.is_zero()).ok_or("a time above 0, such as 5s or 1m")
}

fn parse_kind(text: &str) -> Result<Kind, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "workloadidentitycredential" => Ok(Kind::Workload),
        "clientsecretcredential" => Ok(Kind::ClientSecret),
        "managedidentitycredential" => Ok(Kind::Managed),
        "azureclicredential" => Ok(Kind::AzureCli),
        _ => Err("WorkloadIdentityCredential, ClientSecretCredential, ManagedIdentityCredential or AzureCliCredential"),
    }
}
