//! Every environment variable of the program, in one table, and the only reader of the environment.
//!
//! `doctor` and `.env.example` are made from [`SETTINGS`]. Values are checked here once; a bad one gives an error that
//! names the variable, the value and what is expected. Values of variables that this table does not know are kept as
//! [`Secret`]s, because function bindings may refer to any of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
pub use crate::secret::Secret;
use crate::secret::shown;

mod azure;
mod settings;

pub use azure::AzureSettings;
pub use settings::{SETTINGS, Setting};

/// Where something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// In local folders below [`Config::home`].
    Local,
    /// In a storage account of Azure, or in Azurite.
    Azure,
}

/// The checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder that holds `landing/`, `lake/` and `queue/` when the backends are local.
    pub home: PathBuf,
    /// Folder of the contracts.
    pub schemas: PathBuf,
    /// Folder with `host.json` and `functions/`.
    pub root: PathBuf,
    /// Where lake and landing zone are.
    pub storage_backend: Backend,
    /// Where the queues are.
    pub queue_backend: Backend,
    /// Queue of landed files.
    pub queue_name: String,
    /// The storage account, and what is where in it.
    pub azure: AzureSettings,
    /// Azurite's program.
    pub azurite: PathBuf,
    /// When the committer runs: six cron fields, UTC.
    pub commit_schedule: String,
    /// When the landing zone is compared with the ledger: six cron fields, UTC.
    pub reconcile_schedule: String,
    /// How long a local file must hold still to have arrived.
    pub arrival_hold: Duration,
    /// Staged rows that make a commit due.
    pub commit_rows: u64,
    /// Staged bytes that make a commit due.
    pub commit_bytes: u64,
    /// Age of the oldest staged batch that makes a commit due.
    pub commit_age: Duration,
    /// How long files in a table's folder that no version names are kept; at least 24 hours.
    pub orphan_retention: Duration,
    /// Memory for SQL and writers, in bytes.
    pub memory_bytes: u64,
    /// Threads for CPU-bound work; none is one a core.
    pub threads: Option<usize>,
    /// Whether writes are flushed to the disk before they count.
    pub fsync: bool,
    /// What is logged.
    pub log: String,
    /// Port of the custom handler, if the host named one.
    pub handler_port: Option<u16>,
    /// Whether `serve` ends when its standard input closes.
    pub leash: bool,
    /// The call to storage or queue before which this process kills itself: in builds for tests alone.
    #[cfg(feature = "mutations")]
    pub dies_at: Option<u64>,
    /// Values as they were given, by name.
    given: BTreeMap<String, Secret>,
}

impl Config {
    /// Reads the process environment.
    ///
    /// # Errors
    /// The first variable whose value cannot be used.
    pub fn from_env() -> Result<Self> {
        Self::from_env_and::<&str, &str>([])
    }

    /// Reads the process environment, with some values put over it (from a command line).
    ///
    /// # Errors
    /// The first variable whose value cannot be used.
    pub fn from_env_and<N: Into<String>, V: Into<String>>(over: impl IntoIterator<Item = (N, V)>) -> Result<Self> {
        let mut values = environment();
        values.extend(over.into_iter().map(|(name, value)| (name.into(), value.into())));
        Self::from_pairs(values)
    }

    /// A configuration of exactly these variables: nothing is read from the process environment.
    ///
    /// # Errors
    /// The first variable whose value cannot be used.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Result<Self> {
        let mut given = BTreeMap::new();
        for (name, value) in pairs {
            given.insert(name.into(), Secret::new(value.into()));
        }
        let values = Values { given: &given };
        let config = Self {
            home: PathBuf::from(values.text("ALLUVIUM_HOME")),
            schemas: PathBuf::from(values.text("ALLUVIUM_SCHEMAS")),
            root: PathBuf::from(values.text("ALLUVIUM_ROOT")),
            storage_backend: values.parsed("STORAGE_BACKEND", parse_backend)?,
            queue_backend: values.parsed("QUEUE_BACKEND", parse_backend)?,
            queue_name: values.parsed("AZURE_QUEUE_NAME", parse_queue_name)?,
            azure: AzureSettings::read(&values)?,
            azurite: PathBuf::from(values.text("ALLUVIUM_AZURITE")),
            commit_schedule: values.text("COMMIT_SCHEDULE"),
            reconcile_schedule: values.text("RECONCILE_SCHEDULE"),
            arrival_hold: Duration::from_millis(values.parsed("ALLUVIUM_ARRIVAL_HOLD_MS", parse_whole)?),
            commit_rows: values.parsed("ALLUVIUM_COMMIT_ROWS", parse_positive)?,
            commit_bytes: values.parsed("ALLUVIUM_COMMIT_BYTES", parse_bytes)?,
            commit_age: values.parsed("ALLUVIUM_COMMIT_AGE", parse_duration)?,
            orphan_retention: values.parsed("ALLUVIUM_ORPHAN_RETENTION", parse_retention)?,
            memory_bytes: values.parsed("ALLUVIUM_MEMORY", parse_memory)?,
            threads: values.optional("ALLUVIUM_THREADS", parse_threads)?,
            fsync: values.parsed("ALLUVIUM_FSYNC", parse_switch)?,
            log: values.parsed("ALLUVIUM_LOG", parse_filter)?,
            handler_port: values.optional("FUNCTIONS_CUSTOMHANDLER_PORT", parse_port)?,
            leash: values.parsed("ALLUVIUM_LEASH", parse_switch)?,
            #[cfg(feature = "mutations")]
            dies_at: values.optional("ALLUVIUM_TEST_DIES_AT", parse_positive)?,
            given: BTreeMap::new(),
        };
        Ok(Self { given, ..config })
    }

    /// This configuration with some values put over it.
    ///
    /// # Errors
    /// The first variable whose value cannot be used.
    pub fn with<N: Into<String>, V: Into<String>>(&self, over: impl IntoIterator<Item = (N, V)>) -> Result<Self> {
        let mut pairs: BTreeMap<String, String> =
            self.given.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect();
        pairs.extend(over.into_iter().map(|(name, value)| (name.into(), value.into())));
        Self::from_pairs(pairs)
    }

    /// The landing zone's folder (local storage).
    #[must_use]
    pub fn landing_folder(&self) -> PathBuf {
        self.home.join("landing")
    }

    /// The lake's folder (local storage).
    #[must_use]
    pub fn lake_folder(&self) -> PathBuf {
        self.home.join("lake")
    }

    /// The folder of all queues (local queues).
    #[must_use]
    pub fn queue_folder(&self) -> PathBuf {
        self.home.join("queue")
    }

    /// What `%name%` stands for in a binding: the value given, else the default. An empty value counts as unset, as
    /// it does for the Functions host.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<String> {
        let given = self.given.get(name).map(|value| value.reveal().to_owned());
        let default = || SETTINGS.iter().find(|known| known.name == name).map(|known| known.default.to_owned());
        given.filter(|text| !text.is_empty()).or_else(default).filter(|text| !text.is_empty())
    }

    /// A setting's value, if it was given and is not its default: for `doctor`. A secret is given as stars.
    #[must_use]
    pub fn given(&self, setting: &Setting) -> Option<String> {
        let given = self.given.get(setting.name).map(Secret::reveal);
        let given = given.filter(|text| !text.is_empty() && *text != setting.default);
        given.map(|text| if setting.is_secret { "***".to_owned() } else { shown(text) })
    }

    /// Names that were given and look like this program's but are not known, each with the known name nearest to it.
    #[must_use]
    pub fn unknown_names(&self) -> Vec<(String, Option<&'static str>)> {
        let known = |name: &str| SETTINGS.iter().any(|known| known.name == name);
        let ours = self.given.keys().filter(|name| name.starts_with("ALLUVIUM_") && !known(name));
        ours.map(|name| (name.clone(), nearest(name))).collect()
    }

    /// The variables that a child process needs to have this very configuration, folders made absolute. The child
    /// inherits the rest of the environment.
    ///
    /// # Errors
    /// The current folder is gone.
    pub fn for_child(&self) -> Result<Vec<(String, String)>> {
        let mut variables: Vec<(String, String)> = Vec::new();
        for known in SETTINGS {
            match self.lookup(known.name) {
                Some(value) => variables.push((known.name.to_owned(), value)),
                // The child inherits what this process has: what was taken away is taken away there too.
                None if self.given.contains_key(known.name) => variables.push((known.name.to_owned(), String::new())),
                None => {}
            }
        }
        for (name, folder) in [
            ("ALLUVIUM_HOME", &self.home),
            ("ALLUVIUM_SCHEMAS", &self.schemas),
            ("ALLUVIUM_ROOT", &self.root),
            ("ALLUVIUM_AZURITE", &self.azurite),
        ] {
            let absolute = absolute(folder)?;
            let text = absolute.to_str().ok_or_else(|| {
                Error::invalid(format!("{name}: {} is no UTF-8 path", absolute.display()))
                    .remedy("use a folder whose name is UTF-8")
            })?;
            variables.retain(|(known, _)| known != name);
            variables.push((name.to_owned(), text.to_owned()));
        }
        Ok(variables)
    }
}

/// `.env.example`, made from the table: every variable with its default, commented out.
#[must_use]
pub fn env_example() -> String {
    let mut text = String::from(
        "# Every variable that Alluvium reads, with its default. Made from src/config.rs; a test keeps both equal.\n",
    );
    for known in SETTINGS {
        // A shell and Compose both take the quotes off.
        let quote = if known.default.contains([' ', '*']) { "\"" } else { "" };
        text.push_str(&format!("\n# {}\n# {}={quote}{}{quote}\n", known.meaning, known.name, known.default));
    }
    text
}

/// The path of this program, to start it again as another process.
///
/// # Errors
/// The operating system does not say.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::from(error).within("the path of this program"))
}

/// An absolute path, whether or not it exists.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::from(error).within(path.display()))
}

/// All variables that are UTF-8; others cannot be settings of this program.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn nearest(name: &str) -> Option<&'static str> {
    SETTINGS
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known.name), known.name))
        .filter(|(distance, _)| *distance <= 3)
        .min()
        .map(|(_, known)| known)
}

/// The values given, read by name.
struct Values<'a> {
    given: &'a BTreeMap<String, Secret>,
}

/// What a value must be, when it is not.
type Expected = &'static str;

impl Values<'_> {
    /// The value, trimmed; the default when it is unset or empty.
    fn text(&self, name: &str) -> String {
        let given = self.given.get(name).map_or("", |value| value.reveal().trim());
        if !given.is_empty() {
            return given.to_owned();
        }
        SETTINGS.iter().find(|known| known.name == name).map_or_else(String::new, |known| known.default.to_owned())
    }

    fn parsed<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, Expected>) -> Result<T> {
        let text = self.text(name);
        parse(&text).map_err(|expected| {
            Error::invalid(format!("{name} is `{}`, expected {expected}", shown(&text)))
                .remedy(format!("set {name}, or unset it"))
        })
    }

    fn optional<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, Expected>) -> Result<Option<T>> {
        if self.text(name).is_empty() {
            return Ok(None);
        }
        self.parsed(name, parse).map(Some)
    }
}

fn parse_backend(text: &str) -> Result<Backend, Expected> {
    match text {
        "local" => Ok(Backend::Local),
        "azure" => Ok(Backend::Azure),
        _ => Err("local or azure"),
    }
}

/// The cloud's rules for a queue's name, less the room for `-poison`.
fn parse_queue_name(text: &str) -> Result<String, Expected> {
    let letters = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let edges = !text.starts_with('-') && !text.ends_with('-') && !text.contains("--");
    if letters && edges && (3..=56).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err("3 to 56 lower-case letters, digits and single hyphens, none of them at an end")
}

fn parse_whole(text: &str) -> Result<u64, Expected> {
    text.parse().map_err(|_| "a whole number from 0")
}

fn parse_positive(text: &str) -> Result<u64, Expected> {
    text.parse().ok().filter(|number| *number > 0).ok_or("a whole number from 1")
}

fn parse_threads(text: &str) -> Result<usize, Expected> {
    text.parse().ok().filter(|number| (1..=1024).contains(number)).ok_or("a whole number from 1 to 1024")
}

fn parse_port(text: &str) -> Result<u16, Expected> {
    text.parse().ok().filter(|port| *port > 0).ok_or("a port from 1 to 65535")
}

fn parse_switch(text: &str) -> Result<bool, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("0 or 1"),
    }
}

/// Reads a size in bytes: `128MiB`, `500MB` or a number.
///
/// # Errors
/// What was expected instead.
pub fn parse_bytes(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: Expected = "a size above 0, such as 134217728, 128MiB, 1GiB or 500MB";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(EXPECTED),
    };
    let number: u64 = number.parse().map_err(|_| EXPECTED)?;
    number.checked_mul(factor).filter(|bytes| *bytes > 0).ok_or(EXPECTED)
}

fn parse_memory(text: &str) -> Result<u64, Expected> {
    parse_bytes(text).ok().filter(|bytes| *bytes >= 64 << 20).ok_or("a size of at least 64MiB, such as 512MiB or 2GiB")
}

/// Reads a time such as `10s` or `2h`.
///
/// # Errors
/// What was expected.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: Expected = "a time such as 500ms, 10s, 2m, 1h or 7d";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| EXPECTED)?;
    let factor: u64 = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(EXPECTED),
    };
    number.checked_mul(factor).map(Duration::from_millis).ok_or(EXPECTED)
}

fn parse_retention(text: &str) -> Result<Duration, Expected> {
    const SHORTEST: Duration = Duration::from_secs(24 * 3600);
    parse_duration(text).ok().filter(|time| *time >= SHORTEST).ok_or("a time of at least 24h, such as 48h or 7d")
}

fn parse_filter(text: &str) -> Result<String, Expected> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("a level (error, warn, info, debug, trace) or pairs such as warn,alluvium=debug"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Result<Config> {
        Config::from_pairs(pairs.iter().copied())
    }

    #[test]
    fn everything_has_a_working_default() {
        let config = config(&[]).unwrap();
        assert_eq!(config.home, Path::new("./data"));
        assert_eq!(config.landing_folder(), Path::new("./data/landing"));
        assert_eq!(config.queue_name, "landing-events");
        assert_eq!(config.arrival_hold, Duration::from_millis(500));
        assert_eq!((config.commit_rows, config.commit_bytes), (1_000_000, 128 << 20));
        assert_eq!(config.commit_age, Duration::from_secs(10));
        assert_eq!(config.memory_bytes, 512 << 20);
        assert_eq!((config.threads, config.handler_port, config.fsync), (None, None, false));
    }

    #[test]
    fn an_empty_value_is_no_value() {
        let config = config(&[("ALLUVIUM_HOME", ""), ("AZURE_QUEUE_NAME", " ")]).unwrap();
        assert_eq!((config.home.to_str(), config.queue_name.as_str()), (Some("./data"), "landing-events"));
    }

    #[test]
    fn bad_values_name_variable_value_and_expectation() {
        for (name, value, expected) in [
            ("STORAGE_BACKEND", "s3", "STORAGE_BACKEND is `s3`, expected local or azure"),
            ("QUEUE_BACKEND", "kafka", "QUEUE_BACKEND is `kafka`, expected local or azure"),
            (
                "AZURE_QUEUE_NAME",
                "Landing",
                "AZURE_QUEUE_NAME is `Landing`, expected 3 to 56 lower-case letters, digits and single hyphens, none of them at an end",
            ),
            (
                "AZURE_QUEUE_NAME",
                "a/../b",
                "AZURE_QUEUE_NAME is `a/../b`, expected 3 to 56 lower-case letters, digits and single hyphens, none of them at an end",
            ),
            ("ALLUVIUM_ARRIVAL_HOLD_MS", "soon", "ALLUVIUM_ARRIVAL_HOLD_MS is `soon`, expected a whole number from 0"),
            ("ALLUVIUM_COMMIT_ROWS", "0", "ALLUVIUM_COMMIT_ROWS is `0`, expected a whole number from 1"),
            (
                "ALLUVIUM_COMMIT_BYTES",
                "12 parsec",
                "ALLUVIUM_COMMIT_BYTES is `12 parsec`, expected a size above 0, such as 134217728, 128MiB, 1GiB or 500MB",
            ),
            (
                "ALLUVIUM_COMMIT_AGE",
                "10 days",
                "ALLUVIUM_COMMIT_AGE is `10 days`, expected a time such as 500ms, 10s, 2m, 1h or 7d",
            ),
            (
                "ALLUVIUM_MEMORY",
                "1MiB",
                "ALLUVIUM_MEMORY is `1MiB`, expected a size of at least 64MiB, such as 512MiB or 2GiB",
            ),
            (
                "ALLUVIUM_ORPHAN_RETENTION",
                "23h",
                "ALLUVIUM_ORPHAN_RETENTION is `23h`, expected a time of at least 24h, such as 48h or 7d",
            ),
            ("ALLUVIUM_THREADS", "0", "ALLUVIUM_THREADS is `0`, expected a whole number from 1 to 1024"),
            ("ALLUVIUM_FSYNC", "maybe", "ALLUVIUM_FSYNC is `maybe`, expected 0 or 1"),
            (
                "FUNCTIONS_CUSTOMHANDLER_PORT",
                "70000",
                "FUNCTIONS_CUSTOMHANDLER_PORT is `70000`, expected a port from 1 to 65535",
            ),
        ] {
            let error = config(&[(name, value)]).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.remedy_text(), Some(format!("set {name}, or unset it").as_str()));
        }
    }

    #[test]
    fn sizes_and_times_have_units() {
        for (text, bytes) in [("1", 1), ("2KiB", 2048), ("3 MB", 3_000_000), ("1GiB", 1 << 30), ("7m", 7 << 20)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for (text, millis) in
            [("0", 0), ("1500ms", 1500), ("10", 10_000), ("2m", 120_000), ("1h", 3_600_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert!(parse_bytes("99999999999GiB").is_err() && parse_bytes("-1").is_err() && parse_duration("").is_err());
    }

    #[test]
    fn bindings_see_given_values_then_defaults() {
        let config = config(&[("AZURE_QUEUE_NAME", "incoming"), ("MY_TOPIC", "t"), ("EMPTY", "")]).unwrap();
        assert_eq!(config.lookup("AZURE_QUEUE_NAME").as_deref(), Some("incoming"));
        assert_eq!(config.lookup("COMMIT_SCHEDULE").as_deref(), Some("*/10 * * * * *"));
        assert_eq!(config.lookup("MY_TOPIC").as_deref(), Some("t"));
        assert_eq!((config.lookup("EMPTY"), config.lookup("NOWHERE")), (None, None));
    }

    #[test]
    fn values_of_the_environment_are_not_printed() {
        let config = config(&[("AzureWebJobsStorage", "AccountKey=sesame")]).unwrap();
        assert!(!format!("{config:?}").contains("sesame"));
        assert_eq!(format!("{0} {0:?}", Secret::new("sesame")), "*** ***");
    }

    #[test]
    fn misspelt_names_are_noticed() {
        let config = config(&[("ALLUVIUM_HOEM", "/x"), ("ALLUVIUM_WEATHER", "fine"), ("PATH", "/bin")]).unwrap();
        assert_eq!(
            config.unknown_names(),
            [("ALLUVIUM_HOEM".to_owned(), Some("ALLUVIUM_HOME")), ("ALLUVIUM_WEATHER".to_owned(), None)]
        );
    }

    #[test]
    fn a_child_gets_the_same_configuration_from_any_folder() {
        let parent = config(&[("ALLUVIUM_HOME", "some/where"), ("ALLUVIUM_COMMIT_AGE", "1s")]).unwrap();
        let child = Config::from_pairs(parent.for_child().unwrap()).unwrap();
        assert!(child.home.is_absolute() && child.home.ends_with("some/where"));
        assert!(child.schemas.is_absolute());
        assert_eq!(child.commit_age, Duration::from_secs(1));
    }

    #[test]
    fn the_example_file_is_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".env.example");
        assert_eq!(std::fs::read_to_string(path).unwrap(), env_example(), "write env_example() to .env.example");
    }
}
