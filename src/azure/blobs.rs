//! Containers of an account, as object stores.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::policies::Policy;
use azure_core::http::{Context, Method, Pipeline, Request};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::azure::{AzureCredential, AzureCredentialProvider, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, CopyOptions, Error as StoreError, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result as StoreResult, RetryConfig, StaticCredentialProvider,
};
use url::Url;

use super::identity::{Bearer, Tokens};
use super::{API_VERSION, Access, Account, below, error_code, remedy, trouble};
use crate::error::{Error, ErrorKind, Result, causes};

/// Blobs that one request deletes at most, by the service's rule.
const AT_ONCE: usize = 256;

/// Blobs that are deleted one by one at the same time.
const DELETING: usize = 16;

impl Account {
    /// A container's blobs. Nothing is asked over the network.
    ///
    /// # Errors
    /// The key is no base64, or TLS cannot be set up.
    pub fn container(&self, name: &str) -> Result<Blobs> {
        let endpoint = self.blobs.as_str().trim_end_matches('/').to_owned();
        let builder = MicrosoftAzureBuilder::new()
            .with_account(self.name())
            .with_container_name(name)
            .with_endpoint(endpoint)
            .with_client_options(
                ClientOptions::new()
                    .with_timeout(self.patience.request())
                    .with_connect_timeout(self.patience.connect())
                    .with_allow_http(self.blobs.scheme() == "http"),
            )
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: self.patience.longest_pause(),
                    base: 2.0,
                },
                // Time is what ends them.
                max_retries: 1000,
                retry_timeout: self.patience.whole(),
            });
        let builder = match &self.access {
            Access::Key(key) => builder.with_access_key(key.reveal()),
            Access::Sas(pairs) => builder.with_credentials(fixed(AzureCredential::SASToken(pairs.to_vec()))),
            Access::Identity(credential) => {
                builder.with_credentials(Arc::new(Tokens::new(Arc::clone(credential), Arc::clone(&self.clock))))
            }
        };
        let inner = builder.build().map_err(|error| Error::from(error).within(format!("container {name}")))?;
        // The errors of the requests that delete many show their URL, and a signature is in the URL.
        let in_batches = !matches!(self.access, Access::Sas(_));
        let (url, pipeline) = (below(&self.blobs, name)?, Arc::new(self.pipeline()));
        Ok(Blobs { inner: Arc::new(inner), name: name.into(), url, pipeline, in_batches })
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
        let mut request = Request::new(url, Method::Put);
        request.insert_header("x-ms-version", API_VERSION);
        request.insert_header("content-length", "0");
        match self.pipeline().send(&Context::default(), &mut request, None).await {
            Ok(_) => Ok(()),
            Err(error) if error_code(&error) == Some("ContainerAlreadyExists") => Ok(()),
            Err(error) => Err(trouble(&format!("creating the container {name}"), &error)),
        }
    }

    /// Sends requests of our own by the account's right.
    fn pipeline(&self) -> Pipeline {
        let (options, credential) = self.client_options();
        let bearer = credential
            .map(|credential| Arc::new(Bearer(Tokens::new(credential, Arc::clone(&self.clock)))) as Arc<dyn Policy>);
        let (name, version) = (option_env!("CARGO_PKG_NAME"), option_env!("CARGO_PKG_VERSION"));
        Pipeline::new(name, version, options, Vec::new(), bearer.into_iter().collect(), None)
    }
}

/// A container's blobs: `object_store`'s, but for deleting (and, in [`super::listing`], for listing what others write). Its requests that delete many at once are not taken by every
/// account, nor ever made with a signature; what they do not do is done one by one.
#[derive(Debug, Clone)]
pub struct Blobs {
    inner: Arc<MicrosoftAzure>,
    name: Arc<str>,
    url: Url,
    pipeline: Arc<Pipeline>,
    in_batches: bool,
}

impl std::fmt::Display for Blobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Blobs {
    /// The container's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the container is there and may be read.
    ///
    /// # Errors
    /// It is not, the account refused, or it did not answer.
    pub async fn reach(&self) -> Result<()> {
        self.ask(&[("restype", "container"), ("comp", "list"), ("maxresults", "1")], "reaching").await.map(drop)
    }

    /// The body of the answer to a request about the container as a whole; `doing` says what for.
    pub(super) async fn ask(&self, query: &[(&str, &str)], doing: &str) -> Result<Bytes> {
        let mut url = self.url.clone();
        url.query_pairs_mut().extend_pairs(query);
        let mut request = Request::new(url, Method::Get);
        request.insert_header("x-ms-version", API_VERSION);
        match self.pipeline.send(&Context::default(), &mut request, None).await {
            Ok(answer) => Ok(Bytes::from(answer.into_body())),
            Err(error) => Err(trouble(&format!("{doing} the container {}", self.name), &error)),
        }
    }

    async fn delete_all(&self, paths: Vec<Path>) -> Vec<StoreResult<Path>> {
        if self.in_batches {
            let named = futures::stream::iter(paths.clone().into_iter().map(Ok)).boxed();
            let outcomes: Vec<StoreResult<Path>> = self.inner.delete_stream(named).collect().await;
            let is_done = |outcome: &StoreResult<Path>| matches!(outcome, Ok(_) | Err(StoreError::NotFound { .. }));
            if outcomes.len() == paths.len() && outcomes.iter().all(is_done) {
                return outcomes;
            }
        }
        futures::stream::iter(paths).map(|path| self.delete_one(path)).buffered(DELETING).collect().await
    }

    async fn delete_one(&self, path: Path) -> StoreResult<Path> {
        let failed = |error: Error| StoreError::Generic { store: "azure", source: Box::new(error) };
        let mut url = self.url.clone();
        url.path_segments_mut().map_err(|()| failed(Error::internal("a container's URL")))?.extend(path.parts());
        let mut request = Request::new(url, Method::Delete);
        request.insert_header("x-ms-version", API_VERSION);
        match self.pipeline.send(&Context::default(), &mut request, None).await {
            Ok(_) => Ok(path),
            Err(error) if error.http_status().map(u16::from) == Some(404) => {
                Err(StoreError::NotFound { path: path.to_string(), source: "it is gone already".into() })
            }
            Err(error) => Err(failed(trouble(&format!("deleting {path}"), &error))),
        }
    }
}

#[async_trait]
impl ObjectStore for Blobs {
    async fn put_opts(&self, to: &Path, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        self.inner.put_opts(to, payload, options).await.map_err(told)
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(to, options).await.map_err(told)
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> StoreResult<GetResult> {
        let mut found = self.inner.get_opts(from, options).await.map_err(told)?;
        if let GetResultPayload::Stream(bytes) = found.payload {
            found.payload = GetResultPayload::Stream(bytes.map_err(told).boxed());
        }
        Ok(found)
    }

    fn delete_stream(&self, paths: BoxStream<'static, StoreResult<Path>>) -> BoxStream<'static, StoreResult<Path>> {
        let blobs = self.clone();
        let chunks = paths.try_chunks(AT_ONCE).then(move |chunk| {
            let blobs = blobs.clone();
            async move {
                let chunk = chunk.map_err(|broken| broken.1)?;
                Ok::<_, StoreError>(futures::stream::iter(blobs.delete_all(chunk).await))
            }
        });
        chunks.try_flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.inner.list(prefix).map_err(told).boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset).map_err(told).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.inner.list_with_delimiter(prefix).await.map_err(told)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.inner.copy_opts(from, to, options).await.map_err(told)
    }
}

/// The same error in short, and with what to do about it: what `object_store` says repeats itself and holds documents.
fn told(error: StoreError) -> StoreError {
    type Source = Box<dyn std::error::Error + Send + Sync>;
    let short = |kind: ErrorKind, source: Source| -> Source {
        // Credentials tell their own trouble in full.
        if source.is::<Error>() {
            return source;
        }
        let text = causes("", &*source);
        let remedy = remedy(kind, if text.contains("ContainerNotFound") { Some("ContainerNotFound") } else { None });
        let error = Error::new(kind, text);
        Box::new(match remedy {
            Some(remedy) => error.remedy(remedy),
            None => error,
        })
    };
    match error {
        StoreError::Generic { store, source } => {
            StoreError::Generic { store, source: short(ErrorKind::Unavailable, source) }
        }
        StoreError::NotFound { path, source } => {
            StoreError::NotFound { path, source: short(ErrorKind::NotFound, source) }
        }
        StoreError::AlreadyExists { path, source } => {
            StoreError::AlreadyExists { path, source: short(ErrorKind::Conflict, source) }
        }
        StoreError::Precondition { path, source } => {
            StoreError::Precondition { path, source: short(ErrorKind::Conflict, source) }
        }
        StoreError::PermissionDenied { path, source } => {
            StoreError::PermissionDenied { path, source: short(ErrorKind::Denied, source) }
        }
        StoreError::Unauthenticated { path, source } => {
            StoreError::Unauthenticated { path, source: short(ErrorKind::Denied, source) }
        }
        other => other,
    }
}

fn fixed(credential: AzureCredential) -> AzureCredentialProvider {
    Arc::new(StaticCredentialProvider::new(credential))
}
