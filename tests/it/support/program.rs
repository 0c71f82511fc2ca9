//! The built binary, run as a person or a script would.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::root;

/// A home for the binary: a temporary folder, and an environment with nothing of this machine in it.
pub struct Program {
    home: PathBuf,
    schemas: PathBuf,
    /// Further variables.
    pub env: Vec<(String, String)>,
}

/// What a finished run left.
pub struct Finished {
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Program {
    /// The shipped contracts over `home`.
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), schemas: root().join("schemas"), env: Vec::new() }
    }

    /// Other contracts.
    pub fn schemas(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.schemas);
        self
    }

    /// One more variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command, ready to run from the repository's root.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_alluvium"));
        command
            .args(arguments)
            .current_dir(root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("ALLUVIUM_HOME", &self.home)
            .env("ALLUVIUM_SCHEMAS", &self.schemas)
            .stdin(Stdio::null());
        for (name, value) in &self.env {
            command.env(name, value);
        }
        command
    }

    /// Runs to the end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        Finished::of(self.command(arguments).output().unwrap())
    }

    /// Runs to the end, which must be exit code 0, and gives standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, Some(0), "alluvium {arguments:?}\n{}\n{}", done.stdout, done.stderr);
        done.stdout
    }

    /// The one value that a query gives, as text.
    pub fn value(&self, query: &str) -> String {
        let rows = self.query(query);
        assert_eq!(rows.len(), 1, "{query}: {rows:?}");
        let row = rows[0].as_object().unwrap();
        assert_eq!(row.len(), 1, "{query}: {rows:?}");
        plain(row.values().next().unwrap())
    }

    /// The rows that a query gives.
    pub fn query(&self, query: &str) -> Vec<serde_json::Value> {
        let text = self.ok(&["sql", query, "--format", "json"]);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{query}: {e}: {text}"))
    }

    /// Starts in the background.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let log = tempfile::NamedTempFile::new().unwrap();
        let output = log.reopen().unwrap();
        let child = self.command(arguments).stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        Running { child, log }
    }
}

/// A JSON value as plain text: numbers and strings alike, so that `12.50` and `"12.50"` are the same.
pub fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Finished {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Both streams.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }
}

/// A process in the background. It is killed when the test is done with it.
pub struct Running {
    child: Child,
    log: tempfile::NamedTempFile,
}

impl Running {
    /// What it has printed by now.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    /// Sends a signal, such as `INT`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Its child processes whose command line has `word`.
    pub fn children(&self, word: &str) -> Vec<u32> {
        children(self.child.id(), word)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end and gives the exit code.
    pub fn ended(&mut self, patience: Duration) -> Option<i32> {
        let mut status = None;
        eventually(patience, "the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.children("") {
            signal(child, "KILL");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- printed by the process\n{}", self.printed());
        }
    }
}

/// Sends a signal to a process.
pub fn signal(process: u32, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap();
}

fn children(parent: u32, word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(status) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // "pid (name) state parent ...": the name may have blanks and brackets.
        let Some((_, rest)) = status.rsplit_once(')') else { continue };
        let is_child = rest.split_whitespace().nth(1) == Some(&parent.to_string());
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if is_child && String::from_utf8_lossy(&line).contains(word) {
            found.push(process);
        }
    }
    found
}

/// Looks again and again until something holds. Other processes give no other sign.
pub fn eventually(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < patience, "waited {patience:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files of [`super::contracts::sales`], two rows each, are in every layer once, and the ledger knows of nothing else.
pub fn assert_sales_exactly_once(program: &Program, files: i64) {
    let rows = (files * 2).to_string();
    assert_eq!(program.value("select count(*) from raw.sales"), rows);
    assert_eq!(program.value("select count(distinct id) from raw.sales"), rows);
    assert_eq!(program.value("select count(*) from aggregate.sales"), rows);
    assert_eq!(program.value("select sum(sales) from curated.sales_daily"), rows);
    assert_eq!(program.value("select count(*) from ledger where status = 'loaded'"), files.to_string());
    assert_eq!(program.value("select count(*) from ledger"), files.to_string());
}
