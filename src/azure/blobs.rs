//! Containers of an account, as object stores.

use std::sync::Arc;
use std::time::Duration;

use azure_core::http::policies::Policy;
use azure_core::http::policies::auth::BearerTokenAuthorizationPolicy;
use azure_core::http::{Method, Pipeline, Request};
use object_store::azure::{AzureCredential, AzureCredentialProvider, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::{BackoffConfig, ClientOptions, RetryConfig, StaticCredentialProvider};
use url::Url;

use super::identity::Tokens;
use super::{API_VERSION, Access, Account, below, error_code, trouble};
use crate::error::{Error, Result};

/// A request is given up after this long and tried again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Retries of a call end after this long; then the caller is told. Long enough for a service that starts again, short
/// enough for the time of one function.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

impl Account {
    /// A container's blobs. Nothing is asked over the network.
    ///
    /// # Errors
    /// The key is no base64, or TLS cannot be set up.
    pub fn container(&self, name: &str) -> Result<MicrosoftAzure> {
        let endpoint = self.blobs.as_str().trim_end_matches('/').to_owned();
        let builder = MicrosoftAzureBuilder::new()
            .with_account(self.name())
            .with_container_name(name)
            .with_endpoint(endpoint)
            .with_client_options(
                ClientOptions::new().with_timeout(REQUEST_TIMEOUT).with_allow_http(self.blobs.scheme() == "http"),
            )
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_secs(5),
                    base: 2.0,
                },
                max_retries: 20,
                retry_timeout: RETRY_TIMEOUT,
            });
        let builder = match &self.access {
            Access::Key(key) => builder.with_access_key(key.reveal()),
            Access::Sas(pairs) => builder.with_credentials(fixed(AzureCredential::SASToken(pairs.to_vec()))),
            Access::Identity(credential) => {
                builder.with_credentials(Arc::new(Tokens::new(Arc::clone(credential), Arc::clone(&self.clock))))
            }
        };
        builder.build().map_err(|error| Error::from(error).within(format!("container {name}")))
    }

    /// The address by which a container's root is known, ending in `/`.
    ///
    /// # Errors
    /// The names make no URL.
    pub fn container_url(&self, container: &str, prefix: &str) -> Result<Url> {
        let mut text = format!("az://{}/{container}/", self.name());
        if !prefix.is_empty() {
            text.push_str(prefix);
            text.push('/');
        }
        Url::parse(&text)
            .map_err(|error| Error::invalid(format!("`{text}` is no address of a container")).because(error))
    }

    /// Creates a container where none is.
    ///
    /// # Errors
    /// The account refused, or did not answer.
    pub async fn create_container(&self, name: &str) -> Result<()> {
        let mut url = below(&self.blobs, name)?;
        url.query_pairs_mut().append_pair("restype", "container");
        let (options, credential) = self.client_options();
        let bearer = credential.map(|credential| {
            let scopes = vec!["https://storage.azure.com/.default"];
            Arc::new(BearerTokenAuthorizationPolicy::new(credential, scopes)) as Arc<dyn Policy>
        });
        let policies = bearer.into_iter().collect();
        let pipeline = Pipeline::new(
            option_env!("CARGO_PKG_NAME"),
            option_env!("CARGO_PKG_VERSION"),
            options,
            Vec::new(),
            policies,
            None,
        );
        let mut request = Request::new(url, Method::Put);
        request.insert_header("x-ms-version", API_VERSION);
        request.insert_header("content-length", "0");
        match pipeline.send(&azure_core::http::Context::default(), &mut request, None).await {
            Ok(_) => Ok(()),
            Err(error) if error_code(&error) == Some("ContainerAlreadyExists") => Ok(()),
            Err(error) => Err(trouble(&format!("creating the container {name}"), &error)),
        }
    }
}

fn fixed(credential: AzureCredential) -> AzureCredentialProvider {
    Arc::new(StaticCredentialProvider::new(credential))
}
