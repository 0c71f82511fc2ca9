//! Connection strings of storage accounts, as the portal shows them.

use std::collections::BTreeMap;

use url::Url;

use crate::error::{Error, Result};
use crate::secret::Secret;

/// The account that Azurite has without being told.
const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";

/// Its key, which is public.
const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A connection string, understood.
#[derive(Debug)]
pub struct Connection {
    /// The account's name.
    pub account: String,
    /// Where blobs answer.
    pub blobs: Url,
    /// Where queues answer.
    pub queues: Url,
    /// Key or signature.
    pub right: Right,
}

/// By what right a connection string uses its account.
#[derive(Debug)]
pub enum Right {
    /// The account's key, in base64.
    Key(Secret),
    /// A shared access signature, as a query string.
    Sas(Secret),
}

impl Connection {
    /// Reads a connection string, which came from the variable `variable`.
    ///
    /// # Errors
    /// A part is missing or wrong; the message names the part and never its value.
    pub fn parse(text: &Secret, variable: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::invalid(format!("{variable} is no connection string of a storage account: {why}"))
                .remedy("copy it anew from the account's `Access keys`; UseDevelopmentStorage=true is Azurite")
        };
        let mut parts: BTreeMap<String, &str> = BTreeMap::new();
        for part in text.reveal().split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong("a part of it has no `=`"))?;
            parts.insert(name.trim().to_ascii_lowercase(), value.trim());
        }
        let part = |name: &str| parts.get(&name.to_ascii_lowercase()).copied().filter(|value| !value.is_empty());
        let url = |name: &str, text: &str| {
            let parsed = Url::parse(text).ok().filter(|url| url.has_host() && url.query().is_none());
            let parsed = parsed.ok_or_else(|| wrong(&format!("{name} is no URL")))?;
            match has_userinfo(&parsed) {
                true => Err(wrong(&format!("{name} has a name or password before the host"))),
                false => Ok(parsed),
            }
        };
        if part("UseDevelopmentStorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            let host = part("DevelopmentStorageProxyUri").unwrap_or("http://127.0.0.1");
            let at = |port: u16| {
                url(
                    "DevelopmentStorageProxyUri",
                    &format!("{}:{port}/{DEVELOPMENT_ACCOUNT}", host.trim_end_matches('/')),
                )
            };
            return Ok(Self {
                account: DEVELOPMENT_ACCOUNT.to_owned(),
                blobs: at(10_000)?,
                queues: at(10_001)?,
                right: Right::Key(Secret::new(DEVELOPMENT_KEY)),
            });
        }
        let protocol = part("DefaultEndpointsProtocol").unwrap_or("https");
        let suffix = part("EndpointSuffix").unwrap_or("core.windows.net");
        let named = part("AccountName");
        let endpoint = |name: &str, service: &str| match (part(name), named) {
            (Some(given), _) => url(name, given),
            (None, Some(account)) => url(name, &format!("{protocol}://{account}.{service}.{suffix}")),
            (None, None) => Err(wrong(&format!("it has neither AccountName nor {name}"))),
        };
        let (blobs, queues) = (endpoint("BlobEndpoint", "blob")?, endpoint("QueueEndpoint", "queue")?);
        let account = match named {
            Some(account) => account.to_owned(),
            // With a signature the name is only in the endpoint.
            None => named_by(&blobs).ok_or_else(|| wrong("neither AccountName nor BlobEndpoint names an account"))?,
        };
        let right = match (part("SharedAccessSignature"), part("AccountKey")) {
            (Some(signature), _) => Right::Sas(Secret::new(signature.trim_start_matches('?'))),
            (None, Some(key)) => Right::Key(Secret::new(key)),
            (None, None) => return Err(wrong("it has neither AccountKey nor SharedAccessSignature")),
        };
        Ok(Self { account, blobs, queues, right })
    }
}

/// Whether a URL has a name or a password before its host. Nothing here uses them, and they would be shown with the URL.
#[must_use]
pub fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// The account that an endpoint is of: the first part of its path where it has one, as emulators do, else of its host's name.
fn named_by(endpoint: &Url) -> Option<String> {
    let path = endpoint.path_segments().and_then(|mut parts| parts.next()).filter(|part| !part.is_empty());
    let host = match endpoint.host()? {
        url::Host::Domain(name) => name.split('.').next(),
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => None,
    };
    path.or(host).map(str::to_owned)
}
