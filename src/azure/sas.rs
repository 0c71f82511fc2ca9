//! Shared access signatures: made from the account's key for clients that take no key, put on requests, kept out of texts.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use url::Url;

use super::API_VERSION;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// A signature that is made for one request holds this long before and after now: clocks differ.
const VALID_AROUND: TimeDelta = TimeDelta::minutes(15);

/// Services, kinds of resources and rights that a signature made here is good for: all that blobs and queues need.
const SERVICES: &str = "bq";
const RESOURCES: &str = "sco";
const RIGHTS: &str = "rwdlacup";

/// The query of an account's shared access signature that is valid around `now`.
///
/// # Errors
/// The key is no base64.
pub fn sign(account: &str, key: &Secret, now: DateTime<Utc>) -> Result<Vec<(String, String)>> {
    let bytes = BASE64.decode(key.reveal()).map_err(|_| {
        Error::invalid(format!("the key of the storage account `{account}` is no base64"))
            .remedy("copy it anew from the account's `Access keys`")
    })?;
    let at = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    let (start, expiry) = (at(now - VALID_AROUND), at(now + VALID_AROUND));
    // Account, rights, services, kinds, start, expiry, addresses, protocols, version, encryption scope: each with an end of line.
    let text =
        format!("{account}\n{RIGHTS}\n{SERVICES}\n{RESOURCES}\n{start}\n{expiry}\n\nhttps,http\n{API_VERSION}\n\n");
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&bytes).map_err(|error| Error::internal("a signature").because(error))?;
    mac.update(text.as_bytes());
    let signature = BASE64.encode(mac.finalize().into_bytes());
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Ok(vec![
        pair("sv", API_VERSION),
        pair("ss", SERVICES),
        pair("srt", RESOURCES),
        pair("sp", RIGHTS),
        pair("st", &start),
        pair("se", &expiry),
        pair("spr", "https,http"),
        pair("sig", &signature),
    ])
}

/// The pairs of a signature that is given as a query string.
#[must_use]
pub fn pairs(token: &Secret) -> Vec<(String, String)> {
    url::form_urlencoded::parse(token.reveal().trim_start_matches('?').as_bytes()).into_owned().collect()
}

/// Puts a signature on a URL, in place of one that it may have from an earlier try.
fn put_on(url: &mut Url, signature: &[(String, String)]) {
    let others: Vec<(String, String)> =
        url.query_pairs().into_owned().filter(|(name, _)| !signature.iter().any(|(own, _)| own == name)).collect();
    url.query_pairs_mut().clear().extend_pairs(others).extend_pairs(signature);
}

/// Signs every try of every request anew, so that no long-lived process holds a signature that expires.
#[derive(Debug)]
pub(super) struct SignEach {
    account: String,
    key: Secret,
    clock: Arc<dyn Clock>,
}

impl SignEach {
    pub(super) fn new(account: &str, key: Secret, clock: Arc<dyn Clock>) -> Self {
        Self { account: account.to_owned(), key, clock }
    }
}

#[async_trait]
impl Policy for SignEach {
    async fn send(&self, ctx: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        let signature = sign(&self.account, &self.key, self.clock.now()).map_err(|error| {
            azure_core::Error::with_message(azure_core::error::ErrorKind::Credential, error.describe())
        })?;
        put_on(request.url_mut(), &signature);
        go_on(ctx, request, next).await
    }
}

/// Puts one given signature on every request.
pub(super) struct Carry {
    signature: Arc<[(String, String)]>,
}

impl Carry {
    pub(super) const fn new(signature: Arc<[(String, String)]>) -> Self {
        Self { signature }
    }
}

impl std::fmt::Debug for Carry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carry").finish_non_exhaustive()
    }
}

#[async_trait]
impl Policy for Carry {
    async fn send(&self, ctx: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        put_on(request.url_mut(), &self.signature);
        go_on(ctx, request, next).await
    }
}

pub(super) async fn go_on(ctx: &Context<'_>, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
    match next.split_first() {
        Some((policy, rest)) => policy.send(ctx, request, rest).await,
        None => Err(azure_core::Error::with_message(azure_core::error::ErrorKind::Other, "no transport")),
    }
}
