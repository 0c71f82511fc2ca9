//! The handler's process: started on a free port, asked until it answers, its log relayed, started again when it dies.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::error::{Error, Result};
use crate::render::one_line;

/// How often a new handler is asked whether it answers.
const ASK_EVERY: Duration = Duration::from_millis(25);

/// How long a new handler may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How long the last lines of a handler that ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The exit code by which a handler asks to be started again.
const WANTS_RESTART: i32 = 200;

/// How a handler comes to be.
#[derive(Debug, Clone)]
pub enum Launch {
    /// A program that serves on `FUNCTIONS_CUSTOMHANDLER_PORT`.
    Program {
        /// The program.
        path: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
        /// Variables over those that it inherits.
        environment: Vec<(String, String)>,
    },
    /// It runs already, and is nobody's child.
    Running(SocketAddr),
}

/// What is known about the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// It was started and does not answer yet, or waits to be started.
    Starting,
    /// It answers there.
    Up(SocketAddr),
    /// It ended, and why; it is started again after a pause.
    Down(String),
}

/// The running handler, seen from those who call it.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    state: watch::Receiver<State>,
    kill: mpsc::Sender<()>,
}

impl Handler {
    /// Where it answers; waits while it does not, up to `limit`.
    pub(super) async fn address(&self, limit: Duration) -> Result<SocketAddr> {
        let mut state = self.state.clone();
        let up = state.wait_for(|state| matches!(state, State::Up(_)));
        match tokio::time::timeout(limit, up).await {
            Ok(Ok(state)) => match *state {
                State::Up(address) => Ok(address),
                State::Starting | State::Down(_) => Err(Error::internal("the handler is not up")),
            },
            Ok(Err(_)) => Err(Error::unavailable("the handler was stopped")),
            Err(_) => Err(Error::unavailable("the handler does not answer").remedy("see its log")),
        }
    }

    /// Kills the process, with all that runs in it; it is started again.
    pub(super) fn kill(&self) {
        // A kill that waits already is enough.
        let _ = self.kill.try_send(());
    }
}

/// When a handler that died is started again. The Functions host gives up after three errors, each within 30 minutes of
/// the one before; here it goes on, at growing intervals.
#[derive(Debug, Default)]
struct Restarts {
    errors: u32,
    last: Option<DateTime<Utc>>,
}

impl Restarts {
    /// The pause before the next start. `code`: the exit code, none for a signal.
    fn died(&mut self, code: Option<i32>, now: DateTime<Utc>) -> Duration {
        if code == Some(WANTS_RESTART) {
            return Duration::ZERO;
        }
        if self.last.is_some_and(|last| now - last > TimeDelta::minutes(30)) {
            self.errors = 0;
        }
        self.last = Some(now);
        self.errors = self.errors.saturating_add(1);
        if self.errors == 3 {
            tracing::error!("the handler failed three times: the Functions host would stop here");
        }
        let doubled = 100_u64.saturating_mul(1 << self.errors.saturating_sub(1).min(10));
        Duration::from_millis(doubled.min(10_000))
    }
}

/// Starts the handler and, among `tasks`, what keeps it running until `stop`; returns when it answers for the first time.
///
/// # Errors
/// It cannot be started, or ends before it answers.
pub(super) async fn start(
    launch: Launch,
    shared: &Shared,
    tasks: &mut JoinSet<()>,
    stop: CancellationToken,
) -> Result<Handler> {
    let (kill, killed) = mpsc::channel(1);
    let (report, state) = watch::channel(State::Starting);
    let mut handler = Handler { state, kill };
    match launch {
        Launch::Running(address) => {
            // The sender stays alive as long as the host, so that the state stays readable.
            let _ = report.send(State::Up(address));
            tasks.spawn(async move {
                stop.cancelled().await;
                drop((report, killed));
            });
        }
        Launch::Program { path, arguments, environment } => {
            let program = Program { path, arguments, environment };
            let supervisor = Supervisor { program, shared: shared.clone(), report, killed, stop };
            tasks.spawn(supervisor.run());
        }
    }
    let settled = handler.state.wait_for(|state| *state != State::Starting).await;
    match settled.map(|state| state.clone()) {
        Ok(State::Down(why)) => {
            Err(Error::unavailable(format!("the handler did not start: {why}"))
                .remedy("its own log lines above say why"))
        }
        Ok(_) => Ok(handler),
        Err(_) => Err(Error::internal("the handler was stopped while it started")),
    }
}

struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

struct Supervisor {
    program: Program,
    shared: Shared,
    report: watch::Sender<State>,
    killed: mpsc::Receiver<()>,
    stop: CancellationToken,
}

impl Supervisor {
    async fn run(mut self) {
        let mut restarts = Restarts::default();
        while !self.stop.is_cancelled() {
            let ended = self.live_once().await;
            let (why, code) = match ended {
                Ok(None) => return,
                Ok(Some(status)) => (format!("it ended with {status}"), status.code()),
                Err(error) => (error.to_string(), None),
            };
            if code == Some(0) {
                tracing::error!("the handler ended with 0: the Functions host would not start it again");
            }
            tracing::error!("the handler is gone: {why}");
            let _ = self.report.send(State::Down(why));
            let pause = restarts.died(code, self.shared.clock.now());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// One life of the process; none when it was ended because the host stops.
    async fn live_once(&mut self) -> Result<Option<ExitStatus>> {
        let _ = self.report.send(State::Starting);
        let address = free_port().await?;
        let mut child = self.program.spawn(address)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        // The handler's leash: `wait` would close it, and the handler end.
        let leash = child.stdin.take();
        let mut relays = JoinSet::new();
        relays.spawn(relay(out, relay_log_line));
        relays.spawn(relay(err, |line| tracing::error!(target: "alluvium::handler", "{line}")));
        let ended = self.until_it_ends(child, address).await;
        drop(leash);
        // Its last words explain its end. Whoever else holds its pipes is not waited for.
        let _ = tokio::time::timeout(LAST_WORDS, async { while relays.join_next().await.is_some() {} }).await;
        ended
    }

    async fn until_it_ends(&mut self, mut child: Child, address: SocketAddr) -> Result<Option<ExitStatus>> {
        // Kills that were asked for in an earlier life.
        while self.killed.try_recv().is_ok() {}
        tokio::select! {
            status = child.wait() => return Ok(Some(status?)),
            () = self.stop.cancelled() => return end(child).await.map(|_| None),
            answered = until_it_answers(&self.shared.client, address) => {
                if let Err(error) = answered {
                    end(child).await?;
                    return Err(error);
                }
            }
        }
        let _ = self.report.send(State::Up(address));
        tokio::select! {
            status = child.wait() => Ok(Some(status?)),
            () = self.stop.cancelled() => end(child).await.map(|_| None),
            Some(()) = self.killed.recv() => end(child).await.map(Some),
        }
    }
}

impl Program {
    fn spawn(&self, address: SocketAddr) -> Result<Child> {
        let port = address.port().to_string();
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("FUNCTIONS_CUSTOMHANDLER_PORT", &port)
            .env("FUNCTIONS_HTTPWORKER_PORT", &port)
            .env("ALLUVIUM_LEASH", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // Ctrl-C at the terminal is for the host, which lets running work end first.
        #[cfg(unix)]
        command.process_group(0);
        command.spawn().map_err(|error| Error::from(error).within(format!("starting {}", self.path.display())))
    }
}

async fn end(mut child: Child) -> Result<ExitStatus> {
    child.start_kill().map_err(|error| Error::from(error).within("killing the handler"))?;
    Ok(child.wait().await?)
}

async fn free_port() -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(|error| Error::from(error).within("looking for a free port"))?;
    Ok(listener.local_addr()?)
}

/// Any HTTP answer will do, as it does for the Functions host.
async fn until_it_answers(client: &reqwest::Client, address: SocketAddr) -> Result<()> {
    let asking = async {
        while client.get(format!("http://{address}/")).send().await.is_err() {
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, asking)
        .await
        .map_err(|_| Error::unavailable(format!("the handler did not answer within {} s", ANSWER_WITHIN.as_secs())))
}

async fn relay(stream: Option<impl AsyncRead + Unpin>, each: impl Fn(&str)) {
    let Some(stream) = stream else { return };
    let mut lines = BufReader::new(stream).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            each(line.trim_end());
        }
    }
}

/// Writes a log line of the handler anew, for people.
fn relay_log_line(line: &str) {
    let (level, text) = readable(line);
    // What is told may hold names that others chose.
    let text = one_line(&text);
    match level {
        tracing::Level::ERROR => tracing::error!(target: "alluvium::handler", "{text}"),
        tracing::Level::WARN => tracing::warn!(target: "alluvium::handler", "{text}"),
        tracing::Level::INFO => tracing::info!(target: "alluvium::handler", "{text}"),
        _ => tracing::debug!(target: "alluvium::handler", "{text}"),
    }
}

/// Level and text of a line: of a JSON log line its message, function and own fields, else the line.
fn readable(line: &str) -> (tracing::Level, String) {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(line) else {
        return (tracing::Level::INFO, line.to_owned());
    };
    let string = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let level = fields.get("level").and_then(Value::as_str).and_then(|level| level.parse().ok());
    let mut text = String::new();
    if let Some(function) = fields.get("span").and_then(|span| span.get("function.name")) {
        text = format!("{}: ", string(function));
    }
    text.push_str(&fields.get("message").map(string).unwrap_or_default());
    for (name, value) in &fields {
        if !matches!(name.as_str(), "timestamp" | "level" | "target" | "span" | "message") && !value.is_null() {
            text.push_str(&format!(" {name}={}", string(value)));
        }
    }
    (level.unwrap_or(tracing::Level::INFO), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn a_dying_handler_is_started_again_at_growing_intervals() {
        let mut restarts = Restarts::default();
        let pauses: Vec<u128> = (0..9).map(|n| restarts.died(Some(1), at(n)).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(restarts.died(None, at(9 + 31 * 60)).as_millis(), 100, "the last error was long ago");
    }

    #[test]
    fn a_wanted_restart_is_no_error() {
        let mut restarts = Restarts::default();
        for n in 0..9 {
            assert_eq!(restarts.died(Some(200), at(n)), Duration::ZERO);
        }
        assert_eq!(restarts.died(Some(0), at(9)).as_millis(), 100, "an end with 0 is a fault here");
    }

    #[test]
    fn log_lines_become_readable() {
        let json = r#"{"timestamp":"2026-01-15T10:00:00Z","level":"WARN","message":"slow","rows":5,"remedy":null,"target":"alluvium::x","span":{"function.name":"ingest","invocation.id":"7","name":"invocation"}}"#;
        assert_eq!(readable(json), (tracing::Level::WARN, "ingest: slow rows=5".to_owned()));
        assert_eq!(readable("plain"), (tracing::Level::INFO, "plain".to_owned()));
        assert_eq!(readable("{\"level\":7}"), (tracing::Level::INFO, String::new()));
    }

    #[tokio::test]
    async fn lines_that_are_not_utf8_are_relayed_too() {
        let lines = std::sync::Mutex::new(Vec::new());
        relay(Some(b"a\r\n\xff\n\nlast".as_slice()), |line| lines.lock().unwrap().push(line.to_owned())).await;
        assert_eq!(*lines.lock().unwrap(), ["a", "\u{fffd}", "last"]);
    }
}
