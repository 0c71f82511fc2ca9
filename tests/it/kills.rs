//! The real program, killed (`kill -9`) before each of its calls to storage and queue, once for each call: started again it
//! finishes the work, everything is delivered again, and every table is what it is without.
//!
//! Nothing lists the calls. A run in which the program lives until the end had fewer of them; so the runs before it were all.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use alluvium::catalog::Catalog;
use alluvium::clock::SystemClock;
use alluvium::event::{self, Scope};
use alluvium::landing::Landing;
use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::queue::{Queue, poison};
use alluvium::store::Store;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::support::contracts::{self, sales};
use crate::support::functions_host::{queue_body, request, timer_body};
use crate::support::program::{Program, assert_sales_exactly_once, eventually};
use crate::support::{assert_ledger, drop_file, tables, write_contracts};

const QUEUE: &str = "landing-events";

/// Runs at the same time.
const AT_ONCE: usize = 2;

/// Runs of the committer after which it must have come to rest.
const RUNS: usize = 6;

const PATIENCE: Duration = Duration::from_secs(60);

/// A handler as the Functions host starts it.
struct Handler {
    child: Child,
    address: SocketAddr,
}

/// The host of one run: it calls the functions one after the other, and starts the handler again when it is dead.
struct Host {
    home: tempfile::TempDir,
    queue: Queue,
    dies_at: Option<u64>,
    handler: Option<Handler>,
    was_killed: bool,
    events: Vec<Vec<u8>>,
}

impl Host {
    fn new(dies_at: Option<u64>) -> Self {
        let home = tempfile::tempdir().unwrap();
        write_contracts(home.path(), contracts::ALL);
        let queue = Queue::local(&home.path().join("queue"), Arc::new(SystemClock), false);
        Self { home, queue, dies_at, handler: None, was_killed: false, events: Vec::new() }
    }

    fn program(&self) -> Program {
        Program::new(self.home.path())
            .schemas(&self.home.path().join("schemas"))
            .env("ALLUVIUM_COMMIT_AGE", "0ms")
            .env("ALLUVIUM_COMMIT_ROWS", "1")
            .env("ALLUVIUM_ARRIVAL_HOLD_MS", "0")
    }

    /// The address of a handler that answers.
    async fn handler(&mut self) -> SocketAddr {
        if let Some(handler) = &self.handler {
            return handler.address;
        }
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let log = std::fs::File::options().create(true).append(true).open(self.home.path().join("log")).unwrap();
        let mut command = self.program().command(&["serve"]);
        if let Some(call) = self.dies_at.take() {
            command.env("ALLUVIUM_TEST_DIES_AT", call.to_string());
        }
        let child = command
            .env("FUNCTIONS_CUSTOMHANDLER_PORT", address.port().to_string())
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        self.handler = Some(Handler { child, address });
        let asked = async {
            while request(address, "GET", "/", None).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("the handler answers");
        address
    }

    /// Calls a function; none when the handler died of it. Nothing else may go wrong.
    async fn call(&mut self, function: &str, body: &Value) -> Option<Value> {
        let address = self.handler().await;
        match request(address, "POST", &format!("/{function}"), Some(body.to_string().as_bytes())).await {
            Ok(answer) => {
                let log = || std::fs::read_to_string(self.home.path().join("log")).unwrap();
                Some(answer.judged().unwrap_or_else(|error| panic!("{function}: {error}\n{}", log())))
            }
            Err(_) => {
                let mut dead = self.handler.take().unwrap();
                assert_eq!(dead.child.wait().unwrap().signal(), Some(9), "{function}");
                assert!(!self.was_killed, "it is killed once");
                self.was_killed = true;
                None
            }
        }
    }

    /// The function of a timer, which comes again.
    async fn timer(&mut self, function: &str) -> Value {
        let body = timer_body(function, "timer");
        match self.call(function, &body).await {
            Some(answer) => answer,
            None => self.call(function, &body).await.expect("it is killed once"),
        }
    }

    /// Delivers what is in the queue, again and again until it is acknowledged.
    async fn deliver(&mut self) {
        while let Some(message) = self.queue.receive(QUEUE, 1, PATIENCE * 10).await.unwrap().pop() {
            if self.call("ingest", &queue_body("ingest", "msg", &message)).await.is_some() {
                self.queue.delete(&message).await.unwrap();
            } else {
                self.queue.extend(&message, Duration::ZERO).await.unwrap();
            }
        }
    }

    /// Commits until nothing is left to do.
    async fn settle(&mut self) {
        for _ in 0..RUNS {
            let answer = self.timer("commit").await;
            let report: Value = serde_json::from_str(answer["Logs"][0].as_str().unwrap()).unwrap();
            self.deliver().await;
            if report["commits"] == json!([]) && report["restage"] == json!([]) {
                return;
            }
        }
        panic!("the committer does not come to rest in {RUNS} runs");
    }

    async fn land(&mut self, path: &str, content: &str, has_event: bool) {
        let landing = self.home.path().join("landing");
        drop_file(&landing, path, content.as_bytes());
        if has_event {
            let version = Landing::local(&landing).unwrap().head(path).await.unwrap().unwrap();
            self.events.push(event::announcement(&version, &Scope::local(), &SystemClock));
            self.queue.send(QUEUE, self.events.last().unwrap().clone(), Duration::ZERO).await.unwrap();
        }
    }

    async fn tables(&self) -> BTreeMap<String, Vec<String>> {
        let catalog = Catalog::load(&self.home.path().join("schemas")).unwrap();
        let store = Store::local(&self.home.path().join("lake")).unwrap();
        let landing = Landing::local(&self.home.path().join("landing")).unwrap();
        let lake = Lake::new(catalog, store, landing, Arc::new(SystemClock), Settings::default());
        assert_ledger(&lake).await;
        tables(&lake).await
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut handler) = self.handler.take() {
            let _ = handler.child.kill();
            let _ = handler.child.wait();
        }
    }
}

/// The tables when all is done, and when all was delivered again.
type Done = [BTreeMap<String, Vec<String>>; 2];

/// A file with a bad record, a correction of it, a file that no event tells of, and all layers; whether the handler was killed
/// on the way.
async fn run(dies_at: Option<u64>) -> (bool, Done) {
    let mut host = Host::new(dies_at);
    host.land("sales/a.csv", &sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "-2.00")]), true).await;
    host.deliver().await;
    host.timer("commit").await;
    host.land("sales/a.csv", &sales(&[(1, 1, "north", "1.50"), (3, 2, "north", "3.00")]), true).await;
    host.land("sales/b.csv", &sales(&[(4, 2, "south", "4.00")]), false).await;
    host.deliver().await;
    host.timer("reconcile").await;
    host.deliver().await;
    host.settle().await;
    let done = host.tables().await;
    for event in host.events.clone() {
        host.queue.send(QUEUE, event, Duration::ZERO).await.unwrap();
    }
    host.deliver().await;
    host.settle().await;
    assert_eq!(host.queue.depth(&poison(QUEUE)).await.unwrap().total(), 0);
    (host.was_killed, [done, host.tables().await])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_killed_before_any_of_its_calls_loses_and_doubles_nothing() {
    let (was_killed, expected) = run(None).await;
    assert!(!was_killed);
    let rows = |table: &str| expected[0][table].len();
    assert_eq!((rows("raw/sales"), rows("aggregate/sales"), rows("ledger")), (3, 3, 3));
    let mut runs = futures::stream::iter(1..)
        .map(
            |call| async move { (call, tokio::spawn(run(Some(call))).await.unwrap_or_else(|e| panic!("{call}: {e}"))) },
        )
        .buffered(AT_ONCE);
    let mut calls = 0;
    while let Some((call, (was_killed, found))) = runs.next().await {
        assert_eq!(found, expected, "killed before call {call}");
        if !was_killed {
            break;
        }
        calls = call;
    }
    eprintln!("killed before each of {calls} calls");
    assert!(calls > 100, "there are hardly any calls: {calls}");
}

/// Calls of the local host after which it is killed: by then it has sent, received and deleted.
const HOST_CALLS: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_host_that_is_killed_before_any_of_its_first_calls_loses_and_doubles_nothing() {
    let kill = |call: u64| {
        tokio::task::spawn_blocking(move || {
            let host = Host::new(None);
            for file in 0..4 {
                let rows = [(file * 2, 1, "north", "1.00"), (file * 2 + 1, 2, "south", "2.00")];
                drop_file(&host.home.path().join("landing"), &format!("sales/{file}.csv"), sales(&rows).as_bytes());
            }
            let program = host.program().env("COMMIT_SCHEDULE", "* * * * * *");
            // Its handlers die of the same number of calls, again and again, until it is its own turn.
            let mut dying =
                host.program().env("ALLUVIUM_TEST_DIES_AT", &call.to_string()).start(&["local", "--no-port"]);
            assert_eq!(dying.ended(PATIENCE), None, "killed at call {call}: {}", dying.printed());
            let mut running = program.start(&["local", "--no-port"]);
            let loaded = "select count(*) as n from ledger where status = 'loaded'";
            eventually(PATIENCE, "all files are loaded", || {
                let told = program.run(&["sql", loaded, "--format", "csv"]);
                told.stdout.lines().nth(1) == Some("4")
            });
            running.signal("INT");
            assert_eq!(running.ended(PATIENCE), Some(0), "{}", running.printed());
            assert_sales_exactly_once(&program, 4);
        })
    };
    let runs: Vec<_> = futures::stream::iter(1..=HOST_CALLS).map(kill).buffered(AT_ONCE).collect().await;
    for (call, run) in (1..).zip(runs) {
        run.unwrap_or_else(|error| panic!("killed before call {call} of the host: {error}"));
    }
}
