//! Identities of Entra: which one is meant, and its tokens for `object_store`.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, Secret as Hidden, TokenCredential};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};
use azure_identity::{
    AzureCliCredential, ClientSecretCredential, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use object_store::CredentialProvider;
use object_store::azure::AzureCredential;
use tokio::sync::Mutex;

use super::sas::go_on;
use super::trouble;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// What tokens are for.
const SCOPE: &str = "https://storage.azure.com/.default";

/// A token is replaced this long before it expires: every retry of a request must still be good.
const RENEWED_BEFORE: chrono::TimeDelta = chrono::TimeDelta::minutes(5);

/// How an identity is found.
#[derive(Debug, Clone, Default)]
pub struct Login {
    /// The kind, if it was named.
    pub kind: Option<Kind>,
    /// The application's, or the user-assigned managed identity's, client id.
    pub client_id: Option<String>,
    /// The tenant.
    pub tenant_id: Option<String>,
    /// The application's secret.
    pub client_secret: Option<Secret>,
    /// A file with a token that stands for the application (workload identity).
    pub federated_token_file: Option<PathBuf>,
    /// Whether the platform offers a managed identity, as Functions do.
    pub has_identity_endpoint: bool,
}

/// Kinds of identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A token file that stands for an application, as in Kubernetes.
    Workload,
    /// An application's secret.
    ClientSecret,
    /// The machine's or function app's own.
    Managed,
    /// Who is logged in with `az login`.
    AzureCli,
}

impl Login {
    /// The kind that was named; else the first whose settings are there; else who is logged in with `az login`.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.kind {
            Some(kind) => kind,
            None if self.federated_token_file.is_some() => Kind::Workload,
            None if self.client_secret.is_some() => Kind::ClientSecret,
            None if self.has_identity_endpoint => Kind::Managed,
            None => Kind::AzureCli,
        }
    }

    /// The identity's credential. No token is asked for yet.
    ///
    /// # Errors
    /// A setting that the kind needs is missing or wrong.
    pub fn credential(&self) -> Result<Arc<dyn TokenCredential>> {
        let needed = |value: &Option<String>, name: &str| {
            value.clone().ok_or_else(|| {
                Error::invalid(format!("{name} is not set, but the identity needs it"))
                    .remedy(format!("set {name}, or AZURE_TOKEN_CREDENTIALS to another kind"))
            })
        };
        let failed = |error: azure_core::Error| trouble("the identity", &error);
        Ok(match self.kind() {
            Kind::Workload => {
                let options = WorkloadIdentityCredentialOptions {
                    client_id: Some(needed(&self.client_id, "AZURE_CLIENT_ID")?),
                    tenant_id: Some(needed(&self.tenant_id, "AZURE_TENANT_ID")?),
                    token_file_path: self.federated_token_file.clone(),
                    ..WorkloadIdentityCredentialOptions::default()
                };
                WorkloadIdentityCredential::new(Some(options)).map_err(failed)?
            }
            Kind::ClientSecret => {
                let secret = self.client_secret.as_ref().map(|secret| secret.reveal().to_owned());
                let secret = needed(&secret, "AZURE_CLIENT_SECRET")?;
                let tenant = needed(&self.tenant_id, "AZURE_TENANT_ID")?;
                let client = needed(&self.client_id, "AZURE_CLIENT_ID")?;
                ClientSecretCredential::new(&tenant, client, Hidden::new(secret), None).map_err(failed)?
            }
            Kind::Managed => {
                let options = ManagedIdentityCredentialOptions {
                    user_assigned_id: self.client_id.clone().map(UserAssignedId::ClientId),
                    ..ManagedIdentityCredentialOptions::default()
                };
                ManagedIdentityCredential::new(Some(options)).map_err(failed)?
            }
            Kind::AzureCli => AzureCliCredential::new(None).map_err(failed)?,
        })
    }
}

/// Tokens of an identity for `object_store`. Keeps the last one, since some credentials start a process for each.
#[derive(Debug)]
pub(super) struct Tokens {
    credential: Arc<dyn TokenCredential>,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<(AccessToken, Arc<AzureCredential>)>>,
}

impl Tokens {
    pub(super) fn new(credential: Arc<dyn TokenCredential>, clock: Arc<dyn Clock>) -> Self {
        Self { credential, clock, last: Mutex::new(None) }
    }
}

/// Puts a token on every try of a request. (The SDK's own policy takes no endpoint without TLS, not even an emulator's.)
#[derive(Debug)]
pub(super) struct Bearer(pub(super) Tokens);

#[async_trait]
impl Policy for Bearer {
    async fn send(&self, ctx: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        let credential = self.0.get_credential().await.map_err(|error| {
            let own = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            azure_core::Error::with_message(azure_core::error::ErrorKind::Credential, own)
        })?;
        if let AzureCredential::BearerToken(token) = &*credential {
            request.insert_header("authorization", format!("Bearer {token}"));
        }
        go_on(ctx, request, next).await
    }
}

#[async_trait]
impl CredentialProvider for Tokens {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        let mut last = self.last.lock().await;
        let soon = (self.clock.now() + RENEWED_BEFORE).timestamp();
        if let Some((token, credential)) = &*last
            && token.expires_on.unix_timestamp() > soon
        {
            return Ok(Arc::clone(credential));
        }
        let token =
            self.credential.get_token(&[SCOPE], None).await.map_err(|error| object_store::Error::Unauthenticated {
                path: String::new(),
                source: Box::new(trouble("the identity gives no token", &error)),
            })?;
        let credential = Arc::new(AzureCredential::BearerToken(token.token.secret().to_owned()));
        *last = Some((token, Arc::clone(&credential)));
        Ok(credential)
    }
}
