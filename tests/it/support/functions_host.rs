//! A small Functions host, written for the tests alone: it starts the handler of a script root as the real one does, calls
//! its functions with the real one's bytes, and treats their messages by the real one's rules. It shares no code with the
//! local host of the product.

mod wire;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alluvium::queue::{Message, Queue};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::root;
pub use wire::{Answer, queue_body, request, timer_body};

/// A received message is hidden for this long, whatever host.json says.
const HIDDEN: Duration = Duration::from_secs(600);
/// A new handler is asked this often whether it answers ...
const ASK_EVERY: Duration = Duration::from_millis(25);
/// ... for this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Longest wait of a test for something that must come.
const PATIENCE: Duration = Duration::from_secs(180);

/// Lays out a script root: host.json, a folder for each function, and the built program. Failed messages come back after
/// `visibility` instead of half a minute.
pub fn lay_out(folder: &Path, visibility: Duration) {
    std::fs::create_dir_all(folder).unwrap();
    let mut host = read_json(&root().join("host.json"));
    let seconds = visibility.as_secs_f64();
    host["extensions"]["queues"]["visibilityTimeout"] = json!(format!("00:00:{seconds:06.3}"));
    std::fs::write(folder.join("host.json"), host.to_string()).unwrap();
    for entry in std::fs::read_dir(root().join("functions")).unwrap().flatten() {
        let function = folder.join(entry.file_name());
        std::fs::create_dir_all(&function).unwrap();
        std::fs::copy(entry.path().join("function.json"), function.join("function.json")).unwrap();
    }
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_alluvium"), folder.join("alluvium")).unwrap();
}

fn read_json(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// What the host works with. Other queues and other settings make it a host beside Azurite.
pub struct Options {
    /// The script root.
    pub root: PathBuf,
    /// The app settings, which the handler gets too.
    pub settings: Vec<(String, String)>,
    /// The account's queues.
    pub queue: Queue,
    /// Numbers of queue invocations (from 1) that run out of their time while others are under way.
    pub timeouts: BTreeSet<usize>,
    /// Pause between two runs of the committer; the other timers' functions run by [`FunctionsHost::run_timer`] alone.
    pub timers_every: Option<Duration>,
}

/// A running host.
pub struct FunctionsHost {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    supervisor: tokio::task::JoinHandle<()>,
}

struct Shared {
    options: Options,
    host: Value,
    address: watch::Receiver<Option<SocketAddr>>,
    kill: mpsc::Sender<()>,
    begun: AtomicUsize,
    progress: watch::Sender<Progress>,
    kills: AtomicUsize,
    stopping: watch::Sender<bool>,
    log: Mutex<Log>,
}

/// Queue invocations.
#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    under_way: usize,
    ended: usize,
}

#[derive(Default)]
struct Log {
    lines: Vec<Value>,
    /// What the real host would show as errors, or could not read.
    strange: Vec<String>,
}

/// What starts a function.
enum Trigger {
    Queue { binding: String, queue: String },
    Timer { binding: String },
    Other,
}

impl FunctionsHost {
    /// Starts the handler and all triggers, within a runtime.
    pub fn start(options: Options) -> Self {
        let host = read_json(&options.root.join("host.json"));
        let (report, address) = watch::channel(None);
        let (kill, killed) = mpsc::channel(1);
        let timers_every = options.timers_every;
        let shared = Arc::new(Shared {
            options,
            host,
            address,
            kill,
            begun: AtomicUsize::new(0),
            progress: watch::channel(Progress::default()).0,
            kills: AtomicUsize::new(0),
            stopping: watch::channel(false).0,
            log: Mutex::default(),
        });
        let supervisor = tokio::spawn(supervise(Arc::clone(&shared), report, killed));
        let mut tasks = JoinSet::new();
        for (function, trigger) in shared.functions() {
            let shared = Arc::clone(&shared);
            match trigger {
                Trigger::Queue { binding, queue } => {
                    tasks.spawn(async move { shared.run_queue(&function, &binding, &queue).await });
                }
                Trigger::Timer { binding } if timers_every.is_some() && function == "commit" => {
                    tasks.spawn(async move { shared.run_timer(&function, &binding).await });
                }
                Trigger::Timer { .. } | Trigger::Other => {}
            }
        }
        Self { shared, tasks, supervisor }
    }

    /// Runs a timer's function once; whether it succeeded.
    pub async fn run_timer(&self, function: &str) -> Result<Value, String> {
        let functions = self.shared.functions();
        let found = functions.into_iter().find(|(name, _)| name == function);
        let Some((_, Trigger::Timer { binding })) = found else { panic!("{function} has no timer") };
        self.shared.invoke(function, &timer_body(function, &binding)).await
    }

    /// A request from outside to an HTTP function, forwarded.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.shared.send("GET", path, None).await.unwrap();
        (answer.status, answer.body)
    }

    /// Waits until the queues are empty and nothing is under way.
    pub async fn drained(&self, queues: &[&str]) {
        let empty = async {
            loop {
                let mut left = self.shared.progress.borrow().under_way;
                for queue in queues {
                    left += self.shared.options.queue.depth(queue).await.unwrap().total();
                }
                if left == 0 {
                    return;
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        tokio::time::timeout(PATIENCE, empty).await.expect("the queues are drained");
    }

    /// How often the handler was killed.
    pub fn kills(&self) -> usize {
        self.shared.kills.load(Ordering::SeqCst)
    }

    /// The handler's log lines by now, of all its lives.
    pub fn log(&self) -> Vec<Value> {
        self.shared.log.lock().unwrap().lines.clone()
    }

    /// Lets what is under way end, kills the handler, and checks that it wrote nothing but JSON lines to standard output.
    pub async fn stop(mut self) {
        self.shared.stopping.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.shared.kill.send(()).await.unwrap();
        self.supervisor.await.unwrap();
        let strange = self.shared.log.lock().unwrap().strange.clone();
        assert_eq!(strange, Vec::<String>::new(), "lines on standard error, or without JSON");
    }
}

impl Shared {
    fn setting(&self, name: &str) -> Option<&str> {
        let found = self.options.settings.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).or(match name {
            "AZURE_QUEUE_NAME" => Some("landing-events"),
            _ => None,
        })
    }

    /// Direct sub-folders of the script root that hold a function.json.
    fn functions(&self) -> Vec<(String, Trigger)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.options.root).unwrap().flatten() {
            let file = entry.path().join("function.json");
            if !file.is_file() {
                continue;
            }
            let value = read_json(&file);
            let bindings = value["bindings"].as_array().unwrap();
            let trigger =
                bindings.iter().find(|binding| binding["type"].as_str().unwrap().ends_with("Trigger")).unwrap();
            let binding = trigger["name"].as_str().unwrap().to_owned();
            let trigger = match trigger["type"].as_str().unwrap() {
                "queueTrigger" => {
                    Trigger::Queue { binding, queue: self.resolved(trigger["queueName"].as_str().unwrap()) }
                }
                "timerTrigger" => Trigger::Timer { binding },
                _ => Trigger::Other,
            };
            found.push((entry.file_name().into_string().unwrap(), trigger));
        }
        found
    }

    fn resolved(&self, template: &str) -> String {
        let mut parts: Vec<&str> = template.split('%').collect();
        for name in parts.iter_mut().skip(1).step_by(2) {
            *name = self.setting(name).unwrap_or_else(|| panic!("%{name}% is not set"));
        }
        parts.concat()
    }

    fn number(&self, key: &str) -> usize {
        usize::try_from(self.host["extensions"]["queues"][key].as_u64().unwrap()).unwrap()
    }

    fn visibility(&self) -> Duration {
        let text = self.host["extensions"]["queues"]["visibilityTimeout"].as_str().unwrap();
        let seconds: Vec<f64> = text.split(':').map(|part| part.parse().unwrap()).collect();
        Duration::from_secs_f64((seconds[0] * 60.0 + seconds[1]) * 60.0 + seconds[2])
    }

    async fn run_queue(self: &Arc<Self>, function: &str, binding: &str, queue: &str) {
        let most = self.number("batchSize") + self.number("newBatchThreshold");
        let mut running = JoinSet::new();
        while !*self.stopping.borrow() {
            while running.try_join_next().transpose().unwrap().is_some() {}
            let room = (most - running.len()).min(self.number("batchSize"));
            let received = match room {
                0 => Vec::new(),
                room => self.options.queue.receive(queue, room, HIDDEN).await.unwrap_or_default(),
            };
            if received.is_empty() {
                tokio::time::sleep(ASK_EVERY).await;
            }
            for message in received {
                self.progress.send_modify(|progress| progress.under_way += 1);
                let (shared, function, binding) = (Arc::clone(self), function.to_owned(), binding.to_owned());
                running.spawn(async move {
                    shared.process(&function, &binding, message).await;
                    shared.progress.send_modify(|progress| {
                        progress.under_way -= 1;
                        progress.ended += 1;
                    });
                });
            }
        }
        while let Some(ended) = running.join_next().await {
            ended.unwrap();
        }
    }

    async fn process(&self, function: &str, binding: &str, message: Message) {
        let body = queue_body(function, binding, &message);
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let call = self.invoke(function, &body);
        let outcome = if self.options.timeouts.contains(&number) { self.out_of_time(call).await } else { call.await };
        let queues = &self.options.queue;
        if outcome.is_ok() {
            // A receipt that no longer holds is ignored.
            queues.delete(&message).await.unwrap();
        } else if message.queue.ends_with("-poison") {
            // It stays hidden until its time is over.
        } else if usize::try_from(message.dequeue_count).unwrap() >= self.number("maxDequeueCount") {
            queues.send(&format!("{}-poison", message.queue), message.body.clone(), Duration::ZERO).await.unwrap();
            queues.delete(&message).await.unwrap();
        } else {
            queues.extend(&message, self.visibility()).await.unwrap();
        }
    }

    /// The time of an invocation is over: the handler is killed with everything that it does, this and the others. It is
    /// over when others have come to their end meanwhile and further ones are under way or, without others, with its own
    /// end, whose answer comes too late.
    async fn out_of_time(&self, call: impl Future<Output = Result<Value, String>>) -> Result<Value, String> {
        let mut progress = self.progress.subscribe();
        let ended = progress.borrow().ended;
        tokio::select! {
            _ = call => {}
            others = progress.wait_for(|now| now.ended > ended + 1 && now.under_way > 1) => { others.unwrap(); }
        }
        self.kills.fetch_add(1, Ordering::SeqCst);
        let mut address = self.address.clone();
        let before = *address.borrow();
        self.kill.send(()).await.unwrap();
        address.wait_for(|now| *now != before).await.unwrap();
        Err("it ran out of its time".to_owned())
    }

    async fn run_timer(&self, function: &str, binding: &str) {
        let pause = self.options.timers_every.unwrap();
        while !*self.stopping.borrow() {
            // A run that failed is no news: the timer comes again. One that was begun is awaited, so none overlap.
            let _ = self.invoke(function, &timer_body(function, binding)).await;
            tokio::time::sleep(pause).await;
        }
    }

    /// One invocation, judged as the real host does.
    async fn invoke(&self, function: &str, body: &Value) -> Result<Value, String> {
        let answer = self.send("POST", &format!("/{function}"), Some(body.to_string().as_bytes())).await?;
        answer.judged()
    }

    async fn send(&self, method: &str, path: &str, body: Option<&[u8]>) -> Result<Answer, String> {
        let mut address = self.address.clone();
        let address = address.wait_for(Option::is_some).await.map_err(|error| error.to_string())?.unwrap();
        request(address, method, path, body).await.map_err(|error| error.to_string())
    }
}

/// Keeps a handler running; each message on `killed` kills it with SIGKILL.
async fn supervise(shared: Arc<Shared>, report: watch::Sender<Option<SocketAddr>>, mut killed: mpsc::Receiver<()>) {
    loop {
        let (mut child, address) = spawn(&shared).await;
        let mut relays = JoinSet::new();
        relays.spawn(relay(Arc::clone(&shared), child.stdout.take().unwrap(), true));
        relays.spawn(relay(Arc::clone(&shared), child.stderr.take().unwrap(), false));
        answers(address).await;
        report.send_replace(Some(address));
        tokio::select! {
            status = child.wait() => panic!("the handler ended by itself: {status:?}"),
            asked = killed.recv() => asked.unwrap(),
        }
        report.send_replace(None);
        child.kill().await.unwrap();
        while relays.join_next().await.is_some() {}
        if *shared.stopping.borrow() {
            return;
        }
    }
}

async fn spawn(shared: &Shared) -> (Child, SocketAddr) {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let root = &shared.options.root;
    let description = &shared.host["customHandler"]["description"];
    let arguments = description["arguments"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let child = Command::new(root.join(description["defaultExecutablePath"].as_str().unwrap()))
        .args(arguments)
        .current_dir(root)
        .env_clear()
        .envs(shared.options.settings.iter().map(|(name, value)| (name, value)))
        .env("FUNCTIONS_CUSTOMHANDLER_PORT", address.port().to_string())
        .env("FUNCTIONS_HTTPWORKER_PORT", address.port().to_string())
        .env("FUNCTIONS_APP_ROOT_PATH", root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    (child, address)
}

/// Any answer will do; only a refused connection means not yet.
async fn answers(address: SocketAddr) {
    let asked = async {
        while request(address, "GET", "/", None).await.is_err() {
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, asked).await.expect("the handler answers within 30 s");
}

async fn relay(shared: Arc<Shared>, stream: impl tokio::io::AsyncRead + Unpin, is_output: bool) {
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let parsed = serde_json::from_str::<Value>(&line).ok().filter(|_| is_output);
        let mut log = shared.log.lock().unwrap();
        match parsed {
            Some(value) => log.lines.push(value),
            None => log.strange.push(line),
        }
    }
}
