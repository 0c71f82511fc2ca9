//! The local host against a handler that only writes down what it is asked.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};

use super::*;
use crate::clock::SystemClock;
use crate::config::{self, Config};
use crate::event::{self, Item, Scope};
use crate::http::Invocation;

const PATIENCE: Duration = Duration::from_secs(30);

/// What the handler answers to the n-th call (from 1) of a function about a path.
type Answering = dyn Fn(&str, &str, usize) -> StatusCode + Send + Sync;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    function: String,
    query: String,
    /// The file of the message, if there is one.
    path: String,
    dequeue_count: u32,
}

#[derive(Default)]
struct Seen {
    calls: Vec<Call>,
    running: HashMap<String, usize>,
    most: HashMap<String, usize>,
}

/// A handler that writes down what it is asked.
struct Fake {
    seen: Mutex<Seen>,
    answering: Box<Answering>,
    /// Invocations of `ingest` end only with a permit of this.
    gate: Semaphore,
    changed: Notify,
}

impl Fake {
    fn new(permits: usize, answering: impl Fn(&str, &str, usize) -> StatusCode + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
            answering: Box::new(answering),
            gate: Semaphore::new(permits),
            changed: Notify::new(),
        })
    }

    fn willing() -> Arc<Self> {
        Self::new(1000, |_, _, _| StatusCode::OK)
    }

    fn calls(&self, function: &str) -> Vec<Call> {
        self.seen.lock().unwrap().calls.iter().filter(|call| call.function == function).cloned().collect()
    }

    fn paths(&self, function: &str) -> Vec<String> {
        let mut paths: Vec<String> = self.calls(function).into_iter().map(|call| call.path).collect();
        paths.sort();
        paths
    }

    fn running(&self, function: &str) -> usize {
        self.seen.lock().unwrap().running.get(function).copied().unwrap_or(0)
    }

    fn most(&self, function: &str) -> usize {
        self.seen.lock().unwrap().most.get(function).copied().unwrap_or(0)
    }

    fn router(self: &Arc<Self>) -> axum::Router {
        axum::Router::new().fallback(answer).with_state(Arc::clone(self))
    }

    async fn serve(self: &Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = self.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }
}

async fn answer(State(fake): State<Arc<Fake>>, request: Request) -> Response {
    let function = request.uri().path().trim_start_matches('/').to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    if function.is_empty() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let invocation = Invocation::parse(&body).unwrap();
    let items = invocation.message().ok().and_then(|message| event::parse(&message, &Scope::local()).ok());
    let path = match items.as_deref() {
        Some([Item::File(file, _)]) => file.path.clone(),
        _ => String::new(),
    };
    let nth = {
        let mut seen = fake.seen.lock().unwrap();
        let dequeue_count = invocation.dequeue_count();
        seen.calls.push(Call { function: function.clone(), query, path: path.clone(), dequeue_count });
        let running = seen.running.entry(function.clone()).or_default();
        *running += 1;
        let running = *running;
        let most = seen.most.entry(function.clone()).or_default();
        *most = running.max(*most);
        seen.calls.iter().filter(|call| call.function == function && call.path == path).count()
    };
    fake.changed.notify_waiters();
    match function.as_str() {
        "ingest" => fake.gate.acquire().await.unwrap().forget(),
        // Long enough for another run to be seen, were there one.
        "commit" => {
            let overlapped = async {
                while fake.running("commit") < 2 {
                    fake.changed.notified().await;
                }
            };
            let _ = tokio::time::timeout(Duration::from_millis(150), overlapped).await;
        }
        _ => {}
    }
    *fake.seen.lock().unwrap().running.entry(function.clone()).or_default() -= 1;
    let status = (fake.answering)(&function, &path, nth);
    (status, Json(json!({ "Outputs": {}, "Logs": [function], "ReturnValue": null }))).into_response()
}

/// A home, a script root with the shipped functions, and a retry delay that tests can wait for.
struct Bench {
    home: tempfile::TempDir,
    more: Vec<(&'static str, String)>,
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR"));
        for function in crate::http::Function::ALL {
            let file = format!("functions/{}/function.json", function.name());
            let copy = home.path().join("root").join(&file);
            std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
            std::fs::copy(shipped.join(&file), copy).unwrap();
        }
        let host = std::fs::read_to_string(shipped.join("host.json")).unwrap();
        let host = host.replace("00:00:30", "00:00:00.01");
        std::fs::write(home.path().join("root/host.json"), host).unwrap();
        std::fs::create_dir_all(home.path().join("landing")).unwrap();
        Self { home, more: Vec::new() }
    }

    fn config(&self) -> Config {
        let path = |name: &str| self.home.path().join(name).to_str().unwrap().to_owned();
        let mut pairs = vec![
            ("ALLUVIUM_HOME", path("")),
            ("ALLUVIUM_ROOT", path("root")),
            ("ALLUVIUM_ARRIVAL_HOLD_MS", "20".to_owned()),
            ("COMMIT_SCHEDULE", "0 0 0 1 1 *".to_owned()),
        ];
        pairs.extend(self.more.iter().cloned());
        Config::from_pairs(pairs).unwrap()
    }

    fn options(&self, handler: Launch) -> LocalOptions {
        LocalOptions { handler: Some(handler), port: Port::Exactly(0), ..LocalOptions::new(self.config()) }
    }

    async fn start(&self, fake: &Arc<Fake>, workers: Option<usize>) -> LocalHost {
        let options = self.options(Launch::Running(fake.serve().await));
        LocalHost::start(LocalOptions { workers, ..options }).await.unwrap()
    }

    fn land(&self, name: &str) {
        let file = self.home.path().join("landing").join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, name).unwrap();
    }

    async fn depth(&self, queue: &str) -> crate::queue::Depth {
        crate::app::Backends::open(&self.config(), Arc::new(SystemClock)).unwrap().queue().depth(queue).await.unwrap()
    }
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Waits for something that the handler sees.
async fn until(fake: &Fake, what: &str, holds: impl Fn(&Fake) -> bool) {
    let waiting = async {
        loop {
            let changed = fake.changed.notified();
            if holds(fake) {
                return;
            }
            changed.await;
        }
    };
    within(what, waiting).await;
}

#[tokio::test]
async fn landed_files_reach_the_handler_once_each_under_their_real_names() {
    let (bench, fake) = (Bench::new(), Fake::willing());
    let host = bench.start(&fake, None).await;
    let names = ["plain.csv", "deep/er/a b.csv", "100%25.csv", "a+b#c?.csv", "江.csv"];
    for name in names {
        bench.land(name);
    }
    bench.land("arriving.csv.tmp");
    within("all is done", host.drained()).await.unwrap();
    let mut expected = names.map(str::to_owned);
    expected.sort();
    assert_eq!(fake.paths("ingest"), expected);
    host.stop().await.unwrap();
    assert_eq!(bench.depth("landing-events").await.total(), 0);
}

#[tokio::test]
async fn what_lay_there_before_the_start_is_left_to_reconcile() {
    let (bench, fake) = (Bench::new(), Fake::willing());
    bench.land("old.csv");
    let host = bench.start(&fake, None).await;
    bench.land("new.csv");
    within("all is done", host.drained()).await.unwrap();
    assert_eq!(fake.paths("ingest"), ["new.csv"]);
    assert_eq!(fake.calls("reconcile").len(), 1);
    bench.land("old.csv");
    within("a changed file is a new version", host.drained()).await.unwrap();
    assert_eq!(fake.paths("ingest"), ["new.csv", "old.csv"]);
}

#[tokio::test]
async fn a_failed_message_is_delivered_again() {
    let bench = Bench::new();
    let fake = Fake::new(1000, |function, _, nth| match (function, nth) {
        ("ingest", 1 | 2) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    });
    let host = bench.start(&fake, None).await;
    bench.land("a.csv");
    within("all is done", host.drained()).await.unwrap();
    let counts: Vec<u32> = fake.calls("ingest").iter().map(|call| call.dequeue_count).collect();
    assert_eq!(counts, [1, 2, 3]);
    assert!(fake.calls("poison").is_empty());
}

#[tokio::test]
async fn a_message_that_fails_five_times_goes_to_poison() {
    let bench = Bench::new();
    let fake = Fake::new(1000, |function, path, _| match (function, path) {
        ("ingest", "bad.csv") => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    });
    let host = bench.start(&fake, None).await;
    bench.land("bad.csv");
    bench.land("good.csv");
    within("all is done", host.drained()).await.unwrap();
    let ingested = fake.paths("ingest");
    assert_eq!(ingested.iter().filter(|path| *path == "bad.csv").count(), 5);
    assert_eq!(ingested.iter().filter(|path| *path == "good.csv").count(), 1);
    assert_eq!(fake.paths("poison"), ["bad.csv"]);
    host.stop().await.unwrap();
}

#[tokio::test]
async fn no_more_messages_are_worked_on_than_there_are_workers() {
    let (bench, fake) = (Bench::new(), Fake::new(0, |_, _, _| StatusCode::OK));
    let host = bench.start(&fake, Some(3)).await;
    for n in 0..12 {
        bench.land(&format!("{n:02}.csv"));
    }
    until(&fake, "three run", |fake| fake.running("ingest") == 3).await;
    for done in 1..=9 {
        fake.gate.add_permits(1);
        until(&fake, "the next is begun", |fake| fake.calls("ingest").len() == 3 + done).await;
    }
    fake.gate.add_permits(100);
    within("all is done", host.drained()).await.unwrap();
    assert_eq!((fake.calls("ingest").len(), fake.most("ingest")), (12, 3));
}

#[tokio::test]
async fn runs_of_a_timer_never_overlap_by_schedule_or_by_hand() {
    let (mut bench, fake) = (Bench::new(), Fake::willing());
    bench.more.push(("COMMIT_SCHEDULE", "* * * * * *".to_owned()));
    let host = bench.start(&fake, None).await;
    let (first, second, third) =
        tokio::join!(host.run_now("commit", false), host.run_now("commit", true), host.run_now("commit", false));
    for answer in [first, second, third] {
        assert_eq!(answer.unwrap().logs, ["commit"]);
    }
    until(&fake, "the schedule runs it too", |fake| fake.calls("commit").len() > 3).await;
    host.stop().await.unwrap();
    assert_eq!(fake.most("commit"), 1);
    assert_eq!(fake.calls("commit").iter().filter(|call| call.query == "force=true").count(), 1);
}

#[tokio::test]
async fn only_timer_functions_run_by_hand() {
    let (bench, fake) = (Bench::new(), Fake::willing());
    let host = bench.start(&fake, None).await;
    let error = host.run_now("comit", false).await.unwrap_err();
    assert_eq!(error.to_string(), "`comit` is no timer function");
    assert_eq!(error.remedy_text(), Some("there are: backfill, commit, maintain, reconcile"));
}

#[tokio::test]
async fn a_stop_waits_for_what_runs_and_begins_nothing_new() {
    let (bench, fake) = (Bench::new(), Fake::new(0, |_, _, _| StatusCode::OK));
    let host = bench.start(&fake, Some(1)).await;
    bench.land("1.csv");
    bench.land("2.csv");
    until(&fake, "one runs", |fake| fake.running("ingest") == 1).await;
    let stopping = tokio::spawn(host.stop());
    tokio::task::yield_now().await;
    assert!(!stopping.is_finished());
    fake.gate.add_permits(100);
    within("the host stops", stopping).await.unwrap().unwrap();
    assert_eq!(fake.calls("ingest").len(), 1);
    assert_eq!(bench.depth("landing-events").await.visible, bench.depth("landing-events").await.total());
    // The next host does the rest.
    let host = bench.start(&fake, None).await;
    within("all is done", host.drained()).await.unwrap();
    assert!(fake.paths("ingest").len() <= 2);
}

#[tokio::test]
async fn a_host_that_is_dropped_leaves_its_messages_in_the_queue() {
    let (bench, fake) = (Bench::new(), Fake::new(0, |_, _, _| StatusCode::OK));
    let host = bench.start(&fake, None).await;
    bench.land("1.csv");
    until(&fake, "it runs", |fake| fake.running("ingest") == 1).await;
    drop(host);
    assert_eq!(bench.depth("landing-events").await.hidden, 1);
}

#[tokio::test]
async fn http_functions_are_forwarded_and_functions_run_by_request() {
    let (bench, fake) = (Bench::new(), Fake::willing());
    let host = bench.start(&fake, None).await;
    let base = format!("http://{}", host.address().unwrap());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(format!("{base}/api/status?x=1")).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let answer: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(answer["Logs"], json!(["api/status"]));
    assert_eq!(fake.calls("api/status")[0].query, "x=1");
    let run = |path: &str| client.post(format!("{base}/admin/functions/{path}"));
    assert_eq!(run("commit?force=true").send().await.unwrap().status().as_u16(), 200);
    assert_eq!(fake.calls("commit")[0].query, "force=true");
    for (request, status) in [
        (run("nothing"), 404),
        (run("commit").header("origin", "https://example.com"), 403),
        (run("commit").header("host", "rebound.example.com"), 403),
        (client.post(format!("{base}/api/status")), 405),
        (client.get(format!("{base}/api/other")), 404),
        (client.get(format!("{base}/")), 200),
    ] {
        assert_eq!(request.send().await.unwrap().status().as_u16(), status);
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_taken_port_is_told_when_it_was_asked_for_and_avoided_when_not() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let (bench, fake) = (Bench::new(), Fake::willing());
    let options = bench.options(Launch::Running(fake.serve().await));
    let error = LocalHost::start(LocalOptions { port: Port::Exactly(port), ..options.clone() }).await.unwrap_err();
    assert!(error.remedy_text().unwrap().contains("--port"), "{error}");
    // Two hosts at once, neither of which asked for a port.
    let first = LocalHost::start(LocalOptions { port: Port::Usual, ..options.clone() }).await.unwrap();
    let second = LocalHost::start(LocalOptions { port: Port::Usual, ..options }).await.unwrap();
    assert_ne!(first.address(), second.address());
}

#[tokio::test]
async fn a_handler_that_does_not_start_is_told() {
    let bench = Bench::new();
    let program = |path: &str| Launch::Program { path: path.into(), arguments: Vec::new(), environment: Vec::new() };
    for (path, expected) in
        [("/nowhere/alluvium", "starting /nowhere/alluvium"), ("false", "it ended with exit status: 1")]
    {
        let error = within("the start fails", LocalHost::start(bench.options(program(path)))).await.unwrap_err();
        assert!(error.to_string().starts_with("the handler did not start: "), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// Not a test of its own: the handler process of the next one, which dies at the first file it sees.
#[tokio::test]
#[ignore = "the handler process of another test"]
async fn handler_process() {
    let config = Config::from_env().unwrap();
    let Some(port) = config.handler_port else { return };
    let home = config.home.clone();
    std::fs::write(home.join(format!("life-{port}")), "").unwrap();
    let fake = Fake::new(1000, move |function, _, _| {
        if function == "ingest" && !home.join("died").exists() {
            std::fs::write(home.join("died"), "").unwrap();
            std::process::exit(3);
        }
        StatusCode::OK
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    tokio::select! {
        served = axum::serve(listener, fake.router()).into_future() => served.unwrap(),
        () = crate::http::standard_input_closed(), if config.leash => {}
    }
}

#[tokio::test]
async fn a_handler_that_dies_is_started_again_and_its_message_comes_back() {
    let bench = Bench::new();
    let handler = Launch::Program {
        path: config::this_program().unwrap(),
        arguments: ["--exact", "local::tests::handler_process", "--ignored", "--nocapture"].map(str::to_owned).to_vec(),
        environment: bench.config().for_child().unwrap(),
    };
    let host = LocalHost::start(bench.options(handler)).await.unwrap();
    bench.land("a.csv");
    within("all is done", host.drained()).await.unwrap();
    let lives = std::fs::read_dir(bench.home.path()).unwrap();
    let lives =
        lives.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("life-")).count();
    assert!(bench.home.path().join("died").exists());
    assert_eq!(lives, 2);
    within("the host stops", host.stop()).await.unwrap();
}
