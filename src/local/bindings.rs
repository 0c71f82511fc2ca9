//! Reads `functions/*/function.json` and `host.json` as the Functions host does, and says what it would not take.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::timer::Schedule;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::Secret;

/// A function and what starts it.
#[derive(Debug, Clone)]
pub struct FunctionBinding {
    /// Name of its folder, and its path at the handler.
    pub name: String,
    /// What starts it.
    pub trigger: Trigger,
}

/// What starts a function.
#[derive(Debug, Clone)]
pub enum Trigger {
    /// Messages of a queue.
    Queue {
        /// Name of the binding, the key in `Data`.
        binding: String,
        /// The queue, with `%NAME%` resolved.
        queue: String,
        /// Where the Functions host finds the queue: a setting of this name, or settings that begin with it.
        connection: String,
        /// Whether the message is handed over as bytes.
        binary: bool,
    },
    /// A schedule.
    Timer {
        /// Name of the binding, the key in `Data`.
        binding: String,
        /// When.
        schedule: Schedule,
        /// Whether the host keeps its status.
        monitored: bool,
        /// How a run that failed is tried again, before its next time.
        retry: Option<Retry>,
    },
    /// Requests from outside, forwarded as they are.
    Http {
        /// Upper case; empty for all.
        methods: Vec<String>,
        /// Path below the route prefix.
        route: String,
    },
    /// Records of a change stream.
    Stream(StreamBinding),
}

/// A binding of a change stream.
#[derive(Debug, Clone)]
pub struct StreamBinding {
    /// Name of the binding, the key in `Data`.
    pub name: String,
    /// Where the records come from.
    pub source: StreamSource,
    /// Settings that the binding names and nobody has set. Then the Functions host would call the function broken,
    /// and its folder is not deployed.
    pub unset: Vec<String>,
    /// The pause after the first failure; each further one is twice as long ...
    pub shortest_pause: Duration,
    /// ... up to this one.
    pub longest_pause: Duration,
    settings: BTreeMap<String, Secret>,
}

impl StreamBinding {
    /// A value of the binding, with `%NAME%` resolved; none when it is not given or names what nobody has set.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(Secret::reveal)
    }

    /// Why the local host does not run it, if it does not.
    #[must_use]
    pub fn not_run(&self) -> Option<String> {
        match self.source {
            StreamSource::EventHubs if self.unset.is_empty() => Some("this host delivers no event hubs".to_owned()),
            StreamSource::Kafka if self.setting("brokerList").is_some() => {
                (!cfg!(feature = "kafka")).then(|| "this program is built without the feature `kafka`".to_owned())
            }
            _ => Some(format!("{} not set", self.unset.join(", "))),
        }
    }
}

/// How the host tries a run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// So often; none is until it succeeds.
    pub most: Option<u64>,
    /// The first pause; each further one is twice as long ...
    pub first: Duration,
    /// ... up to this one.
    pub longest: Duration,
}

impl Retry {
    /// The pause after so many tries; none when there is to be no further one.
    #[must_use]
    pub fn pause(&self, tries: u64) -> Option<Duration> {
        let doubled = self.first.saturating_mul(1 << tries.min(20));
        self.most.is_none_or(|most| tries < most).then(|| doubled.min(self.longest))
    }
}

/// Where records of a change stream come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamSource {
    /// A Kafka topic.
    Kafka,
    /// An event hub.
    EventHubs,
}

/// What `host.json` says, with the host's defaults for what it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSettings {
    /// Messages received at once.
    pub batch_size: usize,
    /// Further messages are received while at most this many run.
    pub new_batch_threshold: usize,
    /// Deliveries after which a message is poison.
    pub max_dequeue_count: u32,
    /// Delay before a failed message is delivered again.
    pub visibility_timeout: Duration,
    /// Longest wait between looks at an empty queue.
    pub max_polling_interval: Duration,
    /// Longest run of a function; none is no limit.
    pub function_timeout: Option<Duration>,
    /// First part of the path of HTTP functions.
    pub route_prefix: String,
    /// Most records of Kafka delivered at once.
    pub kafka_batch: usize,
    /// How long records of Kafka wait to be delivered together.
    pub kafka_interval: Duration,
}

/// Reads the functions below `root` (in `functions/`, or in `root` itself when it is a script root that was laid out
/// for deployment) and `host.json`. `resolve` gives what `%NAME%` stands for.
///
/// # Errors
/// The first thing that the Functions host would refuse, with its file.
pub fn read(root: &Path, resolve: &dyn Fn(&str) -> Option<String>) -> Result<(Vec<FunctionBinding>, HostSettings)> {
    let host_file = root.join("host.json");
    let host: HostFile = read_json(&host_file)?;
    let settings = host.settings().map_err(|error| error.within(host_file.display()))?;
    let nested = root.join("functions");
    let folder = if nested.is_dir() { nested } else { root.to_owned() };
    let mut functions = Vec::new();
    for function_folder in function_folders(&folder)? {
        let file = function_folder.join("function.json");
        let name = function_folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let read: FunctionFile = read_json(&file)?;
        if read.disabled == Value::Bool(true) {
            continue;
        }
        let binding = read.binding(name, &host, resolve).map_err(|error| error.within(file.display()))?;
        functions.push(binding);
    }
    if functions.is_empty() {
        return Err(missing(&folder.join("*").join("function.json"), "no function found"));
    }
    Ok((functions, settings))
}

fn missing(path: &Path, what: &str) -> Error {
    Error::not_found(format!("{}: {what}", path.display()))
        .remedy("run where host.json and functions/ are, or set ALLUVIUM_ROOT to that folder")
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).map_err(|error| {
        let error = Error::from(error);
        if error.kind() == ErrorKind::NotFound { missing(path, "not found") } else { error.within(path.display()) }
    })?;
    serde_json::from_slice(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text))
        .map_err(|error| Error::invalid(path.display().to_string()).because(error))
}

/// Direct sub-folders that hold a `function.json`, by name.
fn function_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| Error::from(error).within(folder.display()))?;
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Error::from(error).within(folder.display()))?.path();
        if path.join("function.json").is_file() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostFile {
    version: Option<String>,
    function_timeout: Option<String>,
    custom_handler: Map<String, Value>,
    extensions: Extensions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Extensions {
    queues: Queues,
    http: Http,
    kafka: Kafka,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kafka {
    max_batch_size: Option<usize>,
    subscriber_interval_in_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Queues {
    batch_size: Option<usize>,
    new_batch_threshold: Option<usize>,
    max_dequeue_count: Option<u32>,
    visibility_timeout: Option<String>,
    max_polling_interval: Option<String>,
    message_encoding: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Http {
    route_prefix: Option<String>,
}

impl HostFile {
    fn settings(&self) -> Result<HostSettings> {
        if self.version.as_deref() != Some("2.0") {
            return Err(Error::invalid("`version` must be \"2.0\""));
        }
        let queues = &self.extensions.queues;
        let batch_size = queues.batch_size.unwrap_or(16);
        if !(1..=32).contains(&batch_size) {
            return Err(Error::invalid(format!("extensions.queues.batchSize is {batch_size}, expected 1 to 32")));
        }
        let max_dequeue_count = queues.max_dequeue_count.unwrap_or(5);
        if max_dequeue_count == 0 {
            return Err(Error::invalid("extensions.queues.maxDequeueCount is 0, expected 1 or more"));
        }
        if queues.message_encoding.as_deref() != Some("none") {
            return Err(Error::invalid("extensions.queues.messageEncoding must be \"none\"")
                .remedy("the handlers decode base64 themselves; the host would hide what is not base64"));
        }
        let time = |name: &str, text: &Option<String>, default: Duration| match text {
            None => Ok(default),
            Some(text) => time_span(text)
                .ok_or_else(|| Error::invalid(format!("{name} is `{text}`, expected a time as \"00:00:30\""))),
        };
        let function_timeout = match self.function_timeout.as_deref() {
            Some("-1") => None,
            _ => Some(time("functionTimeout", &self.function_timeout, Duration::from_secs(30 * 60))?),
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(HostSettings {
            batch_size,
            new_batch_threshold: queues.new_batch_threshold.unwrap_or(batch_size / 2 * cores),
            max_dequeue_count,
            visibility_timeout: time("visibilityTimeout", &queues.visibility_timeout, Duration::ZERO)?,
            max_polling_interval: time("maxPollingInterval", &queues.max_polling_interval, Duration::from_secs(60))?
                .max(Duration::from_millis(100)),
            function_timeout,
            kafka_batch: self.extensions.kafka.max_batch_size.unwrap_or(64),
            kafka_interval: Duration::from_secs(self.extensions.kafka.subscriber_interval_in_seconds.unwrap_or(1)),
            route_prefix: self.extensions.http.route_prefix.clone().unwrap_or_else(|| "api".to_owned()),
        })
    }

    fn forwards_http(&self) -> bool {
        ["enableForwardingHttpRequest", "enableProxyingHttpRequest"]
            .iter()
            .any(|name| self.custom_handler.get(*name) == Some(&Value::Bool(true)))
    }
}

/// `hh:mm:ss`, with days before it and fractions after it if need be, as .NET writes a span of time.
fn time_span(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('.') {
        Some((days, clock)) if clock.contains(':') => (days.parse::<u64>().ok()?, clock),
        _ => (0, text),
    };
    let mut parts = clock.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds: f64 = seconds.parse().ok()?;
    let in_range = hours < 24 && minutes < 60 && (0.0..60.0).contains(&seconds) && days < 10_000;
    if parts.next().is_some() || !in_range {
        return None;
    }
    Some(Duration::from_secs(((days * 24 + hours) * 60 + minutes) * 60) + Duration::from_secs_f64(seconds))
}

#[derive(Debug, Deserialize)]
struct FunctionFile {
    #[serde(default)]
    bindings: Vec<Map<String, Value>>,
    #[serde(default)]
    disabled: Value,
    #[serde(default)]
    retry: Map<String, Value>,
}

impl FunctionFile {
    fn binding(
        &self,
        name: &str,
        host: &HostFile,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Result<FunctionBinding> {
        let word = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.len() <= 128
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !word || name.eq_ignore_ascii_case("host") {
            return Err(Error::invalid(format!("`{name}` cannot be a function's name"))
                .remedy("name the folder with letters, digits, _ and -, beginning with a letter"));
        }
        let is_trigger = |binding: &&Map<String, Value>| text(binding, "type").is_some_and(|t| t.ends_with("Trigger"));
        let triggers: Vec<_> = self.bindings.iter().filter(is_trigger).collect();
        let [trigger] = triggers.as_slice() else {
            return Err(Error::invalid(format!("{} triggers, expected exactly one", triggers.len())));
        };
        let needed = |key: &str| {
            let value = text(trigger, key).ok_or_else(|| Error::invalid(format!("the trigger has no `{key}`")))?;
            resolved(value, resolve)
        };
        let binding = needed("name")?;
        let trigger = match text(trigger, "type") {
            Some("queueTrigger") => {
                let binary = text(trigger, "dataType").is_some_and(|kind| kind.eq_ignore_ascii_case("binary"));
                Trigger::Queue { binding, queue: needed("queueName")?, connection: needed("connection")?, binary }
            }
            Some("timerTrigger") => Trigger::Timer {
                binding,
                schedule: Schedule::parse(&needed("schedule")?)?,
                monitored: trigger.get("useMonitor") != Some(&Value::Bool(false)),
                retry: self.retry()?,
            },
            Some("httpTrigger") => self.http(name, trigger, host, resolve)?,
            Some("kafkaTrigger") => self.stream(StreamSource::Kafka, binding, trigger, resolve)?,
            Some("eventHubTrigger") => self.stream(StreamSource::EventHubs, binding, trigger, resolve)?,
            other => {
                return Err(Error::invalid(format!("the local host has no trigger of type `{}`", other.unwrap_or("")))
                    .remedy("it knows queueTrigger, timerTrigger, httpTrigger, kafkaTrigger and eventHubTrigger"));
            }
        };
        Ok(FunctionBinding { name: name.to_owned(), trigger })
    }

    fn retry(&self) -> Result<Option<Retry>> {
        if self.retry.is_empty() {
            return Ok(None);
        }
        let wrong = || {
            Error::invalid("its `retry` is none that the Functions host takes").remedy(
                "give `strategy` fixedDelay with `delayInterval`, or exponentialBackoff with `minimumInterval` and \
                 `maximumInterval`, and `maxRetryCount`, which is -1 for no limit",
            )
        };
        let time = |key: &str| text(&self.retry, key).and_then(time_span).ok_or_else(wrong);
        let (first, longest) = match text(&self.retry, "strategy") {
            Some("fixedDelay") => (time("delayInterval")?, time("delayInterval")?),
            Some("exponentialBackoff") => (time("minimumInterval")?, time("maximumInterval")?),
            _ => return Err(wrong()),
        };
        let most = match self.retry.get("maxRetryCount").and_then(Value::as_i64) {
            Some(-1) => None,
            Some(count) => Some(u64::try_from(count).map_err(|_| wrong())?),
            None => return Err(wrong()),
        };
        Ok(Some(Retry { most, first, longest }))
    }

    /// A batch of a stream must be whole bytes, and must come again until it was taken: the triggers move on otherwise.
    fn stream(
        &self,
        source: StreamSource,
        name: String,
        trigger: &Map<String, Value>,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Trigger> {
        let says = |key: &str, value: &str| text(trigger, key).is_some_and(|given| given.eq_ignore_ascii_case(value));
        if !says("cardinality", "many") || !says("dataType", "binary") {
            return Err(Error::invalid("a stream's trigger must have `cardinality` many and `dataType` binary"));
        }
        if self.retry.get("maxRetryCount") != Some(&Value::from(-1)) {
            return Err(Error::invalid("a stream's function must have a `retry` with `maxRetryCount` -1")
                .remedy("its trigger moves on after a failure otherwise, and the batch is lost"));
        }
        let mut unset = Vec::new();
        let mut settings = BTreeMap::new();
        for (key, template) in trigger {
            let Some(template) = template.as_str() else { continue };
            let missing = names(template)?.into_iter().filter(|name| resolve(name).is_none());
            unset.extend(missing.map(str::to_owned));
            if let Ok(value) = resolved(template, resolve) {
                settings.insert(key.clone(), Secret::new(value));
            }
        }
        let pause = |key: &str, default| match text(&self.retry, key) {
            None => Ok(Duration::from_secs(default)),
            Some(text) => time_span(text).ok_or_else(|| Error::invalid(format!("`{key}` of `retry` is `{text}`"))),
        };
        let (shortest_pause, longest_pause) = (pause("minimumInterval", 1)?, pause("maximumInterval", 300)?);
        Ok(Trigger::Stream(StreamBinding { name, source, unset, shortest_pause, longest_pause, settings }))
    }

    /// Forwarding is for functions that have an HTTP trigger and an HTTP output, and nothing else.
    fn http(
        &self,
        name: &str,
        trigger: &Map<String, Value>,
        host: &HostFile,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Trigger> {
        if !host.forwards_http() || self.bindings.len() != 2 {
            return Err(Error::invalid("an HTTP function that is not forwarded is not run by the local host").remedy(
                "set customHandler.enableForwardingHttpRequest in host.json; bind an httpTrigger and an http output",
            ));
        }
        let route = resolved(text(trigger, "route").unwrap_or(name), resolve)?;
        if route.contains(['{', '}']) {
            return Err(Error::invalid(format!(
                "the route `{route}` has parameters, which the local host does not fill"
            )));
        }
        let listed = trigger.get("methods").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let methods = listed.iter().filter_map(Value::as_str).map(str::to_ascii_uppercase).collect();
        Ok(Trigger::Http { methods, route: route.trim_matches('/').to_owned() })
    }
}

fn text<'a>(binding: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    binding.get(key).and_then(Value::as_str).filter(|value| !value.is_empty())
}

/// The settings that a value of a binding names as `%NAME%`.
///
/// # Errors
/// A `%` has no partner.
pub fn names(template: &str) -> Result<Vec<&str>> {
    let parts: Vec<&str> = template.split('%').collect();
    if parts.len().is_multiple_of(2) {
        return Err(Error::invalid(format!("`{template}` has a single %")));
    }
    Ok(parts.into_iter().skip(1).step_by(2).collect())
}

/// Puts values in place of `%NAME%`.
fn resolved(template: &str, resolve: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    names(template)?;
    let mut out = String::new();
    for (at, part) in template.split('%').enumerate() {
        if at.is_multiple_of(2) {
            out.push_str(part);
            continue;
        }
        let value = resolve(part).ok_or_else(|| {
            Error::invalid(format!("`{template}`: {part} is not set")).remedy(format!("set the variable {part}"))
        })?;
        out.push_str(&value);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
