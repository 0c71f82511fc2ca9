//! One storage account of Azure (or of Azurite), as everything that talks to it needs it: where its blobs and queues
//! answer, and by what right.
//!
//! The right is one of three: the account's key, a shared access signature, or an identity of Entra. An identity is an
//! `azure_identity` credential, and the only home of tokens: the queue crate takes it as it is, `object_store` through a
//! small bridge ([`identity`]). So both services get the same token of the same identity, found by the same rules, and
//! `object_store`'s own search, which knows other variables in another order, is never asked.

pub mod blobs;
pub mod connection;
pub mod identity;
pub mod listing;
pub mod patience;
pub mod sas;

use std::fmt;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::policies::Policy;
use azure_core::http::{ClientOptions, Transport};
use url::Url;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::Secret;
use connection::Connection;
use identity::Login;
use patience::Patience;

/// The API version of requests that this program makes by itself.
const API_VERSION: &str = "2021-12-02";

/// What is known about an account before it is used.
#[derive(Debug, Clone, Default)]
pub struct AccountSettings {
    /// A connection string that names the account. It goes before everything else.
    pub connection: Option<Secret>,
    /// The account's name, to be used with an identity.
    pub account: Option<String>,
    /// The connection string of the Functions host, used when nothing else names an account.
    pub host_connection: Option<Secret>,
    /// Where blobs answer, if not at the account's usual address.
    pub blob_endpoint: Option<Url>,
    /// Where queues answer, if not at the account's usual address.
    pub queue_endpoint: Option<Url>,
    /// How an identity is found.
    pub login: Login,
    /// How long its services are waited for.
    pub patience: Patience,
}

/// A storage account. Cheap to clone.
#[derive(Clone)]
pub struct Account {
    name: Arc<str>,
    blobs: Url,
    queues: Url,
    access: Access,
    clock: Arc<dyn Clock>,
    patience: Patience,
    transport: Transport,
}

/// By what right an account is used.
#[derive(Clone)]
enum Access {
    Key(Secret),
    Sas(Arc<[(String, String)]>),
    Identity(Arc<dyn TokenCredential>),
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("name", &self.name).field("access", &self.access_name()).finish_non_exhaustive()
    }
}

impl Account {
    /// The account that the settings name. Nothing is asked over the network.
    ///
    /// # Errors
    /// Nothing names an account, a connection string is wrong, or the identity's settings contradict each other.
    pub fn open(settings: &AccountSettings, clock: Arc<dyn Clock>) -> Result<Self> {
        let connection = match (&settings.connection, &settings.account, &settings.host_connection) {
            (Some(text), ..) => Some(Connection::parse(text, "AZURE_STORAGE_CONNECTION_STRING")?),
            (None, None, Some(text)) => Some(Connection::parse(text, "AzureWebJobsStorage")?),
            _ => None,
        };
        if let Some(connection) = connection {
            if let Some(account) = settings.account.as_deref().filter(|name| *name != connection.account) {
                return Err(Error::invalid(format!(
                    "AZURE_STORAGE_CONNECTION_STRING is of the account `{}`, AZURE_STORAGE_ACCOUNT is `{account}`",
                    connection.account
                ))
                .remedy("unset one of the two"));
            }
            return Self::connected(connection, settings, clock);
        }
        let Some(name) = settings.account.clone() else {
            return Err(Error::invalid("no storage account is named").remedy(
                "set AZURE_STORAGE_ACCOUNT (and give the identity a role on it), or AZURE_STORAGE_CONNECTION_STRING; \
                 AzureWebJobsStorage=UseDevelopmentStorage=true is Azurite",
            ));
        };
        let usual = |service: &str| {
            Url::parse(&format!("https://{name}.{service}.core.windows.net/"))
                .map_err(|error| Error::invalid(format!("`{name}` is no storage account's name")).because(error))
        };
        let blobs = settings.blob_endpoint.clone().map_or_else(|| usual("blob"), Ok)?;
        let queues = settings.queue_endpoint.clone().map_or_else(|| usual("queue"), Ok)?;
        let access = Access::Identity(settings.login.credential()?);
        let (patience, transport) = (settings.patience, settings.patience.transport()?);
        Ok(Self { name: name.into(), blobs, queues, access, clock, patience, transport })
    }

    fn connected(connection: Connection, settings: &AccountSettings, clock: Arc<dyn Clock>) -> Result<Self> {
        let access = match connection.right {
            connection::Right::Key(key) => Access::Key(key),
            connection::Right::Sas(token) => Access::Sas(sas::pairs(&token).into()),
        };
        Ok(Self {
            name: connection.account.into(),
            blobs: settings.blob_endpoint.clone().unwrap_or(connection.blobs),
            queues: settings.queue_endpoint.clone().unwrap_or(connection.queues),
            access,
            clock,
            patience: settings.patience,
            transport: settings.patience.transport()?,
        })
    }

    /// The account's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where blobs answer.
    #[must_use]
    pub const fn blob_endpoint(&self) -> &Url {
        &self.blobs
    }

    /// Where queues answer.
    #[must_use]
    pub const fn queue_endpoint(&self) -> &Url {
        &self.queues
    }

    /// By what right it is used, in a word for people.
    #[must_use]
    pub const fn access_name(&self) -> &'static str {
        match self.access {
            Access::Key(_) => "account key",
            Access::Sas(_) => "shared access signature",
            Access::Identity(_) => "identity",
        }
    }

    /// What a client of the Azure SDK needs besides its URL: its options, and the credential if the right is an identity.
    #[must_use]
    pub fn client_options(&self) -> (ClientOptions, Option<Arc<dyn TokenCredential>>) {
        let signing: Option<Arc<dyn Policy>> = match &self.access {
            Access::Identity(_) => None,
            Access::Key(key) => Some(Arc::new(sas::SignEach::new(&self.name, key.clone(), Arc::clone(&self.clock)))),
            Access::Sas(pairs) => Some(Arc::new(sas::Carry::new(Arc::clone(pairs)))),
        };
        let options = ClientOptions {
            per_try_policies: signing.into_iter().collect(),
            retry: self.patience.retries(),
            transport: Some(self.transport.clone()),
            ..ClientOptions::default()
        };
        let credential = match &self.access {
            Access::Identity(credential) => Some(Arc::clone(credential)),
            Access::Key(_) | Access::Sas(_) => None,
        };
        (options, credential)
    }
}

/// A URL below an endpoint.
///
/// # Errors
/// The endpoint cannot have anything below it.
pub(crate) fn below(endpoint: &Url, name: &str) -> Result<Url> {
    let mut url = endpoint.clone();
    url.path_segments_mut()
        .map_err(|()| Error::invalid(format!("{endpoint} is no endpoint of a storage account")))?
        .pop_if_empty()
        .push(name);
    Ok(url)
}

/// The service's own word for what went wrong.
pub(crate) fn error_code(error: &azure_core::Error) -> Option<&str> {
    match error.kind() {
        azure_core::error::ErrorKind::HttpResponse { error_code, .. } => error_code.as_deref(),
        _ => None,
    }
}

/// Trouble that the Azure SDK reports, by what a caller can do about it: what was tried, the service's code and the request's
/// id, by which its support finds it. What else it says is kept without signatures: a URL in it may carry one.
#[must_use]
pub fn trouble(what: &str, error: &azure_core::Error) -> Error {
    use azure_core::error::ErrorKind as Azure;
    let status = error.http_status().map(u16::from);
    let kind = match (status, error.kind()) {
        (Some(404), _) => ErrorKind::NotFound,
        (Some(409 | 412), _) => ErrorKind::Conflict,
        (Some(401 | 403), _) | (None, Azure::Credential) => ErrorKind::Denied,
        (Some(408 | 429 | 500..), _) | (None, Azure::Connection | Azure::Io) => ErrorKind::Unavailable,
        (Some(_), _) => ErrorKind::Invalid,
        (None, _) => ErrorKind::Internal,
    };
    let told = match error.kind() {
        Azure::HttpResponse { status, error_code, raw_response } => {
            let id = azure_core::http::headers::HeaderName::from_static("x-ms-request-id");
            let id = raw_response.as_ref().and_then(|answer| answer.headers().get_optional_str(&id));
            let id = id.map_or_else(String::new, |id| format!(", request {id}"));
            let code = error_code.as_deref().unwrap_or("no code");
            Error::new(kind, format!("{what}: {code} ({}{id})", u16::from(*status)))
        }
        _ => Error::new(kind, format!("{what}: {}", crate::error::causes("", error))),
    };
    match remedy(kind, error_code(error)) {
        Some(remedy) => told.remedy(remedy),
        None => told,
    }
}

/// What to do about trouble of a kind, or of one of the service's codes.
fn remedy(kind: ErrorKind, code: Option<&str>) -> Option<&'static str> {
    match (kind, code) {
        (ErrorKind::Denied, _) => Some(DENIED),
        (ErrorKind::Unavailable, _) => Some(AWAY),
        (_, Some("ContainerNotFound")) => Some(NO_CONTAINER),
        _ => None,
    }
}

/// What to do when an account does not answer.
const AWAY: &str = "see that the account's endpoint can be reached from here, and that its name is right; nothing is lost \
                    meanwhile";

/// What to do when a container is not there.
const NO_CONTAINER: &str = "create it (az storage container create --name NAME), or set AZURE_STORAGE_CONTAINER and \
                            AZURE_LANDING_CONTAINER to those that there are";

/// What to do when an account refuses.
pub const DENIED: &str = "give the identity the roles Storage Blob Data Contributor and Storage Queue Data Contributor \
                          on the account, or see that key or signature are of this account and not expired";

#[cfg(test)]
mod tests;
