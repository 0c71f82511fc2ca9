//! Storage events: what a message of the landing queue says, and the messages that we write ourselves.
//!
//! A message is one event or an array of them, in Event Grid's schema or as CloudEvents 1.0, as plain JSON or as base64
//! of it. The file's path comes from `subject` (never from `url`, whose encoding differs), percent-decoded once.
//! What brings no file is skipped. What is about somebody else's blobs, or about a blob that must not be followed, is refused:
//! no delivery could do better, so it is recorded once and done. What is no storage event at all is an error of that event
//! alone, which leaves its message to the host and, at last, to the poison queue.

pub mod stream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::manifest::FileVersion;

/// `data.api` of events that come from a listing of the landing zone rather than from the storage service. A listing
/// has seen the file whole and at rest, so such an event may tell of a file without content.
pub const LISTED: &str = "Listed";

/// A landed file, as far as its event tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEvent {
    /// Path below the landing zone, with `/`, decoded.
    pub path: String,
    /// The version's etag, without quotes.
    pub etag: Option<String>,
    /// Orders versions of one path, compared as text.
    pub sequencer: Option<String>,
    /// Size in bytes.
    pub bytes: Option<u64>,
}

/// Which storage account and container events must be about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The account; none takes any (local folders have none).
    pub account: Option<String>,
    /// The landing zone's container.
    pub container: String,
}

impl Scope {
    /// The scope of a landing zone in a local folder: container `landing`, no account.
    #[must_use]
    pub fn local() -> Self {
        Self { account: None, container: "landing".to_owned() }
    }
}

/// Where an event says how often it was tried and put back. A name that CloudEvents allows, too.
const ATTEMPTS: &str = "alluviumattempts";

/// An event as it came, so that it can be sent again.
#[derive(Debug, Clone, PartialEq)]
pub struct Original(Map<String, Value>);

impl Original {
    /// How often it was put back so far.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.get(ATTEMPTS).and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok()).unwrap_or_default()
    }

    /// Whether it comes from a listing of the landing zone, which is made again and again.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.0.get("data").and_then(|data| data.get("api")).and_then(Value::as_str) == Some(LISTED)
    }

    /// The message that sends it again, tried once more.
    #[must_use]
    pub fn again(&self) -> Vec<u8> {
        let mut event = self.0.clone();
        event.insert(ATTEMPTS.to_owned(), self.attempts().saturating_add(1).into());
        Value::Object(event).to_string().into_bytes()
    }
}

/// What one event of a message is.
#[derive(Debug)]
pub enum Item {
    /// A file has landed.
    File(FileEvent, Original),
    /// Nothing to do, and why. The message is done as far as this event goes.
    Skipped {
        /// The event's subject, as it came.
        subject: String,
        /// Why, for the log.
        reason: String,
    },
    /// It must not be followed.
    Refused(Refused),
    /// It cannot be understood.
    Broken(Error),
}

/// An event that must not be followed, however often it is delivered.
#[derive(Debug)]
pub struct Refused {
    /// What it is known as: the blob's path, or whose events they are. Events of one stranger share a name: each write of ours
    /// may bring one, and must not bring another write.
    pub name: String,
    /// The version's etag, if it is about a blob of ours.
    pub etag: Option<String>,
    /// Size in bytes.
    pub bytes: Option<u64>,
    /// Why, and what to do about it.
    pub error: Error,
}

/// Reads a message: plain JSON or base64 of it, one event or an array.
///
/// # Errors
/// The message is no JSON object or array, plain or in base64. Trouble of one event of several is its own
/// [`Item::Broken`].
pub fn parse(message: &[u8], scope: &Scope) -> Result<Vec<Item>> {
    let decoded;
    let text = match is_json_start(message) {
        true => message,
        false => {
            decoded = from_base64(message)?;
            decoded.as_slice()
        }
    };
    let value: Value = serde_json::from_slice(without_bom(text))
        .map_err(|error| Error::invalid("the message is no JSON").because(error).remedy(REMEDY))?;
    Ok(match value {
        Value::Array(events) => events.into_iter().map(|event| item(event, scope)).collect(),
        event => vec![item(event, scope)],
    })
}

/// The message that tells of a file found by listing, in Event Grid's schema.
#[must_use]
pub fn announcement(version: &FileVersion, scope: &Scope, clock: &dyn Clock) -> Vec<u8> {
    let path = utf8_percent_encode(&version.path, IN_SUBJECT);
    let mut data =
        json!({ "api": LISTED, "eTag": version.etag, "contentLength": version.bytes, "blobType": "BlockBlob" });
    if let Some(sequencer) = &version.sequencer {
        data["sequencer"] = json!(sequencer);
    }
    json!({
        "topic": scope.account.as_ref().map_or_else(|| "local".to_owned(), |name| format!("{ACCOUNTS}{name}")),
        "subject": format!("{CONTAINERS}{}{BLOBS}{path}", scope.container),
        "eventType": CREATED,
        "eventTime": clock.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
        "id": clock.fresh(),
        "data": data,
        "dataVersion": "",
        "metadataVersion": "1",
    })
    .to_string()
    .into_bytes()
}

const CONTAINERS: &str = "/blobServices/default/containers/";
const BLOBS: &str = "/blobs/";
const ACCOUNTS: &str = "/storageAccounts/";
const CREATED: &str = "Microsoft.Storage.BlobCreated";
const RENAMED: &str = "Microsoft.Storage.BlobRenamed";
const REMEDY: &str = "send Event Grid or CloudEvents messages of blobs, as JSON or as base64 of it";

/// Everything that could be read as something else is encoded; the path's own slashes are not.
const IN_SUBJECT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn is_json_start(message: &[u8]) -> bool {
    let first = without_bom(message).iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'['))
}

/// Decodes base64 once; what comes out must begin like JSON, so that doubly encoded messages are refused, not guessed.
fn from_base64(message: &[u8]) -> Result<Vec<u8>> {
    let packed: Vec<u8> = message.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    if packed.is_empty() {
        return Err(Error::invalid("the message is empty").remedy(REMEDY));
    }
    let decoded = BASE64
        .decode(&packed)
        .map_err(|error| Error::invalid("the message is neither JSON nor base64").because(error).remedy(REMEDY))?;
    match is_json_start(&decoded) {
        true => Ok(decoded),
        false => Err(Error::invalid("the message is base64, but not of a JSON object or array").remedy(REMEDY)),
    }
}

fn item(event: Value, scope: &Scope) -> Item {
    let Value::Object(event) = event else {
        return Item::Broken(Error::invalid("an event is no JSON object").remedy(REMEDY));
    };
    match understand(&event, scope) {
        Ok(Understood::File(file)) => Item::File(file, Original(event)),
        Ok(Understood::Refused(refused)) => Item::Refused(refused),
        Ok(Understood::Skipped(reason)) => {
            let subject = event.get("subject").and_then(Value::as_str).unwrap_or_default().to_owned();
            Item::Skipped { subject, reason }
        }
        Err(error) => Item::Broken(error),
    }
}

enum Understood {
    File(FileEvent),
    Skipped(String),
    Refused(Refused),
}

fn understand(event: &Map<String, Value>, scope: &Scope) -> Result<Understood> {
    let text = |name: &str| event.get(name).and_then(Value::as_str);
    let is_cloud_event = event.contains_key("specversion");
    let kind = match is_cloud_event {
        true => text("type"),
        false => text("eventType").or_else(|| text("type")),
    };
    let Some(kind) = kind else {
        return Err(Error::invalid("an event has neither `eventType` nor `type`").remedy(REMEDY));
    };
    let subject = text("subject").unwrap_or_default();
    let skipped = |reason: String| Ok(Understood::Skipped(reason));
    if kind != CREATED && kind != RENAMED {
        return skipped(format!("an event of type {kind} brings no file"));
    }
    let source = text("topic").or_else(|| text("source")).unwrap_or_default();
    if let Some(account) = &scope.account
        && !is_account(source, account)
    {
        let why = format!("it is about another account than `{account}`: `{}`", short(source));
        return Ok(Understood::Refused(foreign("account", source.rsplit('/').next().unwrap_or_default(), &why)));
    }
    let Some((container, encoded)) = subject.strip_prefix(CONTAINERS).and_then(|rest| rest.split_once(BLOBS)) else {
        return Err(Error::invalid(format!(
            "`{subject}` is no blob's subject: expected {CONTAINERS}<container>{BLOBS}<path>"
        ))
        .remedy(REMEDY));
    };
    if container != scope.container {
        let landing = &scope.container;
        let why = format!("it is about the container `{}`, not the landing zone `{landing}`", short(container));
        return Ok(Understood::Refused(foreign("container", container, &why)));
    }
    let empty = Map::new();
    let data = event.get("data").and_then(Value::as_object).unwrap_or(&empty);
    let api = data.get("api").and_then(Value::as_str).unwrap_or_default();
    if api == "CreateFile" {
        return skipped("the file was only created; its flush follows".to_owned());
    }
    let bytes = data.get("contentLength").and_then(Value::as_u64);
    if kind == CREATED && bytes == Some(0) && api != LISTED {
        return skipped("the file has no content yet; if it stays so, the next reconcile takes it".to_owned());
    }
    let etag = data.get("eTag").and_then(Value::as_str).map(bare_etag).filter(|etag| !etag.is_empty());
    let path = match decoded_path(encoded) {
        Ok(path) => path,
        Err(error) => {
            // As a listing names the same blob.
            let name = percent_decode_str(encoded).decode_utf8_lossy().into_owned();
            return Ok(Understood::Refused(Refused { name, etag, bytes, error }));
        }
    };
    Ok(Understood::File(FileEvent {
        path,
        etag,
        sequencer: data.get("sequencer").and_then(Value::as_str).map(str::to_owned),
        bytes: bytes.filter(|_| kind == CREATED),
    }))
}

/// Event Grid's samples show etags with and without quotes.
fn bare_etag(etag: &str) -> String {
    etag.trim().trim_matches('"').to_owned()
}

/// Names of resources are the same in any case. The account's own must be the last part, and no part may take back another.
fn is_account(source: &str, account: &str) -> bool {
    let mut parts = source.rsplit('/');
    let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(account));
    let is_account = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(ACCOUNTS.trim_matches('/')));
    is_named && is_account && parts.all(|part| part != "." && part != "..")
}

fn foreign(whose: &str, name: &str, why: &str) -> Refused {
    let error = Error::invalid(why).remedy(
        "let the Event Grid subscription send events of the landing container alone (a filter on the subject), or set \
         AZURE_STORAGE_ACCOUNT and AZURE_LANDING_CONTAINER to what is meant",
    );
    Refused { name: format!("events-of-{whose}-{}", short(name)), etag: None, bytes: None, error }
}

/// The beginning of what a sender wrote.
fn short(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Decodes a path once, and refuses what could lead out of the landing zone or be read in two ways.
fn decoded_path(encoded: &str) -> Result<String> {
    let refused = |why: &str| {
        Err(Error::invalid(format!("the path `{encoded}` of an event is refused: {why}"))
            .remedy("rename the file; its event will not be followed"))
    };
    if encoded.to_ascii_lowercase().contains("%2f") {
        return refused("it has an encoded slash");
    }
    let Ok(path) = percent_decode_str(encoded).decode_utf8() else {
        return refused("it is not UTF-8");
    };
    if path.contains('\0') {
        return refused("it has a NUL");
    }
    if path.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return refused("it has an empty part, `.` or `..`");
    }
    Ok(path.into_owned())
}

#[cfg(test)]
mod tests;
