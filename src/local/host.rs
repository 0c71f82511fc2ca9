//! The local host put together: start, run now, wait until nothing is left, stop.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bindings::{self, HostSettings, Trigger};
use super::caller::Caller;
use super::child::{self, Launch};
use super::landing::{Progress, Watcher};
use super::queues::QueueTrigger;
use super::timers::TimerTrigger;
use super::web::{self, HttpFunction};
use super::{Activity, Shared};
use crate::app::{self, Backends};
use crate::clock::{Clock, SystemClock};
use crate::config::{self, Config};
use crate::error::{Error, Result};
use crate::http::{Answer, Function};

/// Where the tools of Azure Functions serve HTTP functions too.
const USUAL_PORT: u16 = 7071;

/// How often [`LocalHost::drained`] looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Pauses between tries of the reconcile that every start begins with, in seconds; the last one repeats.
const RECONCILE_AGAIN: [u64; 5] = [1, 2, 5, 10, 30];

/// A port of the local host, on 127.0.0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// 7071 or, when that is taken, any.
    Usual,
    /// This one; 0 is any.
    Exactly(u16),
    /// None.
    None,
}

/// What the local host is to do.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The configuration, which the handler gets too.
    pub config: Config,
    /// Where HTTP functions and `POST /admin/functions/<name>` answer, on 127.0.0.1.
    pub port: Port,
    /// Messages worked on at a time, instead of what `host.json` says.
    pub workers: Option<usize>,
    /// Whether timers fire by themselves.
    pub timers: bool,
    /// How the handler is started; none is this very program.
    pub handler: Option<Launch>,
    /// Time and fresh names.
    pub clock: Arc<dyn Clock>,
}

impl LocalOptions {
    /// As `alluvium local` runs it: timers on, workers by `host.json`, this program as the handler.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, port: Port::Usual, workers: None, timers: true, handler: None, clock: Arc::new(SystemClock) }
    }
}

/// A running local host. Dropping it stops everything at once; nothing is lost by that.
#[derive(Debug)]
pub struct LocalHost {
    shared: Shared,
    timers: Vec<TimerTrigger>,
    queues: Vec<String>,
    address: Option<SocketAddr>,
    landed: watch::Receiver<Progress>,
    reconciled: watch::Receiver<bool>,
    /// Ends when nothing new may be begun.
    stop: CancellationToken,
    /// Ends the handler, after what runs has ended.
    end: CancellationToken,
    work: JoinSet<()>,
    supervision: JoinSet<()>,
}

impl LocalHost {
    /// Starts the handler, the watching of the landing folder, and all triggers.
    ///
    /// # Errors
    /// A binding, a contract or a folder is wrong, a port cannot be had, or the handler does not start.
    pub async fn start(options: LocalOptions) -> Result<Self> {
        let LocalOptions { config, port, workers, timers: with_timers, handler, clock } = options;
        let (functions, settings) = bindings::read(&config.root, &|name| config.lookup(name))?;
        let launch = match handler {
            Some(launch) => launch,
            None => own_program(&config)?,
        };
        let backends = Backends::open(&config, Arc::clone(&clock))?;
        let landing = backends.landing()?;
        let shared = Shared {
            queue: backends.queue(),
            clock,
            client: client()?,
            activity: Activity::default(),
            sent: Arc::new(Notify::new()),
            compare: Arc::new(Notify::new()),
        };
        let (stop, end) = (CancellationToken::new(), CancellationToken::new());
        // A port that is taken is told before anything runs.
        let listener = listen(port).await?;
        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut supervision = JoinSet::new();
        let handler = child::start(launch, &shared, &mut supervision, end.clone()).await?;
        let caller = Caller { shared: shared.clone(), handler, limit: settings.function_timeout, stop: stop.clone() };

        let mut work = JoinSet::new();
        let (progress, landed) = watch::channel(Progress::default());
        let mut watcher = Watcher {
            shared: shared.clone(),
            landing,
            scope: backends.scope(),
            queue: config.queue_name.clone(),
            hold: config.arrival_hold,
            progress,
            left_out: BTreeSet::new(),
            troubles: BTreeSet::new(),
        };
        let known = watcher.seeded().await;
        work.spawn(watcher.run(known, stop.clone()));

        let mut host = Self {
            timers: Vec::new(),
            queues: Vec::new(),
            address,
            landed,
            reconciled: watch::channel(true).1,
            stop,
            end,
            work,
            supervision,
            shared,
        };
        let mut routes = Vec::new();
        for function in functions {
            let (caller, function, trigger) = (caller.clone(), function.name, function.trigger);
            match trigger {
                Trigger::Queue { binding, queue, binary, .. } => {
                    let limit = workers.unwrap_or_else(|| concurrency(&settings)).max(1);
                    let settings = settings.clone();
                    host.queues.push(queue.clone());
                    let trigger = QueueTrigger { caller, function, binding, binary, queue, settings, limit };
                    host.work.spawn(trigger.run(host.stop.clone()));
                }
                Trigger::Timer { binding, schedule, monitored, retry } => {
                    let last = Arc::default();
                    host.timers.push(TimerTrigger { caller, function, binding, schedule, monitored, retry, last });
                }
                Trigger::Http { methods, route } => {
                    let path = format!("/{}/{route}", settings.route_prefix.trim_matches('/')).replace("//", "/");
                    routes.push(HttpFunction { methods, path });
                }
                Trigger::Stream(binding) => match binding.not_run() {
                    Some(why) => tracing::info!(function, "not run: {why}"),
                    #[cfg(feature = "kafka")]
                    None => {
                        let trigger = super::kafka::KafkaTrigger::new(caller, function, binding, &settings, &config)?;
                        host.work.spawn(trigger.run(host.stop.clone()));
                    }
                    #[cfg(not(feature = "kafka"))]
                    None => {}
                },
            }
        }
        host.reconcile_first();
        if with_timers {
            for trigger in host.timers.clone() {
                host.work.spawn(trigger.run(host.stop.clone()));
            }
        }
        if let (Some(listener), Some(address)) = (listener, address) {
            let router = web::router(caller, host.timers.clone(), routes);
            let served = axum::serve(listener, router).with_graceful_shutdown(host.stop.clone().cancelled_owned());
            host.work.spawn(async move {
                if let Err(error) = served.await {
                    tracing::error!("http: {error}");
                }
            });
            tracing::info!("status: http://{address}/api/status");
        }
        Ok(host)
    }

    /// Where HTTP functions answer, unless no port was wanted.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Runs a timer function now, and says what it answered; waits for a run of it that is under way. `force`: the
    /// committer commits what is not due yet.
    ///
    /// # Errors
    /// There is no such timer function, or it failed.
    pub async fn run_now(&self, function: &str, force: bool) -> Result<Answer> {
        find(&self.timers, function)?.run_now(force).await
    }

    /// Waits until every file that has landed before this call was announced and every queue is empty. A message that
    /// fails waits for its next try, and so does this; put a time limit around it.
    ///
    /// # Errors
    /// A queue cannot be read.
    pub async fn drained(&self) -> Result<()> {
        let already_begun = self.landed.borrow().begun;
        loop {
            let landed = *self.landed.borrow();
            let quiet = self.shared.activity.quiet();
            let seen_all = landed.done > already_begun && landed.pending == 0 && *self.reconciled.borrow();
            if seen_all && quiet.is_some() && self.waiting().await? == 0 && self.shared.activity.quiet() == quiet {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Messages in the queues of all functions, visible or not.
    async fn waiting(&self) -> Result<usize> {
        let mut waiting = 0;
        for queue in &self.queues {
            waiting += self.shared.queue.depth(queue).await?.total();
        }
        Ok(waiting)
    }

    /// Begins nothing new, waits for what runs, and ends the handler.
    ///
    /// # Errors
    /// A part of the host broke off.
    pub async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        let mut broken = None;
        while let Some(ended) = self.work.join_next().await {
            broken = ended.err().or(broken);
        }
        self.end.cancel();
        while let Some(ended) = self.supervision.join_next().await {
            broken = ended.err().or(broken);
        }
        broken.map_or(Ok(()), |error| Err(Error::internal("a part of the local host broke off").because(error)))
    }

    /// What landed while no host ran, or while storage was away, is found by one reconcile at every start and whenever
    /// storage is back, tried until it succeeds.
    fn reconcile_first(&mut self) {
        let Ok(trigger) = find(&self.timers, Function::Reconcile.name()).cloned() else { return };
        let (done, reconciled) = watch::channel(false);
        self.reconciled = reconciled;
        let (stop, shared) = (self.stop.clone(), self.shared.clone());
        self.work.spawn(async move {
            // The first one, and one more whenever somebody asks for it.
            loop {
                if !until_compared(&trigger, &stop).await {
                    return;
                }
                shared.sent.notify_waiters();
                let _ = done.send(true);
                tokio::select! {
                    () = shared.compare.notified() => {}
                    () = stop.cancelled() => return,
                }
            }
        });
    }
}

/// Compares the landing zone with the ledger, again and again until it succeeds; false when the host stops before.
async fn until_compared(trigger: &TimerTrigger, stop: &CancellationToken) -> bool {
    for tries in 0_usize.. {
        match trigger.run_now(false).await {
            Ok(_) => return true,
            Err(error) => tracing::warn!("the landing zone is not compared yet: {}", error.describe()),
        }
        let pause = Duration::from_secs(RECONCILE_AGAIN[tries.min(RECONCILE_AGAIN.len() - 1)]);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return false,
        }
    }
    false
}

/// The timer function of a name.
pub(super) fn find<'a>(timers: &'a [TimerTrigger], function: &str) -> Result<&'a TimerTrigger> {
    timers.iter().find(|trigger| trigger.function == function).ok_or_else(|| {
        let names: Vec<&str> = timers.iter().map(|trigger| trigger.function.as_str()).collect();
        Error::not_found(format!("`{function}` is no timer function"))
            .remedy(format!("there are: {}", names.join(", ")))
    })
}

/// This program as the handler. The contracts are read first: a mistake in them is told before anything starts.
fn own_program(config: &Config) -> Result<Launch> {
    app::open_catalog(config)?;
    Ok(Launch::Program {
        path: config::this_program()?,
        arguments: vec!["serve".to_owned()],
        environment: config.for_child()?,
    })
}

fn client() -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| Error::internal("the HTTP client").because(error))
}

fn concurrency(settings: &HostSettings) -> usize {
    settings.batch_size + settings.new_batch_threshold
}

async fn listen(port: Port) -> Result<Option<TcpListener>> {
    let at = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let bound = match port {
        Port::None => return Ok(None),
        Port::Usual => match at(USUAL_PORT).await {
            Err(_) => at(0).await,
            bound => bound,
        },
        Port::Exactly(port) => at(port).await,
    };
    bound.map(Some).map_err(|error| {
        Error::from(error)
            .within("listening for requests")
            .remedy("stop what uses the port, or give another with --port")
    })
}
