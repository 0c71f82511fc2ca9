//! One measured run of `bench cdc --services`: from Kafka's topics to gold, and from PostgreSQL's commits to gold.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::topics;
use crate::cli::context::Context;
use crate::cli::demo::cdc::services::Services;
use crate::cli::demo::cdc::with_topics;
use crate::cli::demo::shipped;
use crate::cli::demo::steps::settle;
use crate::cli::sql::{Engine, Pins};
use crate::error::{Error, Result};
use crate::local::{LocalHost, LocalOptions, Port};
use crate::pipeline::lake::Lake;
use crate::pipeline::status::count;

/// Customers that the changes fall on.
const CUSTOMERS: u64 = 10_000;
/// Transactions of the workload in a second.
const TRANSACTIONS: u64 = 10;
/// The keys of the customers whose way to gold is timed begin here.
const PROBES: u64 = 1_000_000;
/// How often the committer is called while topics are read.
const COMMIT_EVERY: Duration = Duration::from_millis(250);
/// How often gold is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Something is wrong when it takes longer.
const PATIENCE: Duration = Duration::from_secs(600);

/// Arguments of a measured run.
#[derive(Debug, Args)]
pub struct ServicesChildArgs {
    /// A folder of files of events, which fill the topics
    #[arg(long)]
    pub data: PathBuf,
    /// Changes of a second while commits are timed
    #[arg(long)]
    pub rate: u64,
    /// Seconds of them
    #[arg(long)]
    pub seconds: u64,
}

/// What a run took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Records that the topics held beforehand.
    pub records: u64,
    /// Seconds from the start of the host until they were in gold.
    pub gold_s: f64,
    /// Seconds from each timed commit of PostgreSQL, before its connection was made, until gold showed it.
    pub commits_s: Vec<f64>,
    /// Changes of a second that the database committed meanwhile.
    pub rate: f64,
}

/// Measures both.
///
/// # Errors
/// The services are not named or do not answer, or a step failed.
pub async fn measure(context: &Context, args: &ServicesChildArgs) -> Result<Served> {
    let name = format!("bench_{}", &context.clock.fresh()[..12]);
    let (Some(services), Some(brokers)) =
        (Services::named(&context.config, name)?, context.config.lookup("CDC_BROKERS"))
    else {
        return Err(Error::invalid("CDC_POSTGRES, CDC_BROKERS and CDC_CONNECT are not set")
            .remedy("`tests/services start`, then eval \"$(tests/services env)\""));
    };
    let mut found = Served::default();
    let prefix = format!("{}_filled", services.prefix());
    found.records = topics::fill(&brokers, &prefix, &args.data).await?;
    let filled = configured(context, "topics", &prefix, "")?;
    found.gold_s = of_topics(&filled, found.records).await?;
    let followed = configured(context, "commits", services.prefix(), "* * * * * *")?;
    let timed = of_commits(&followed, &services, args, &mut found).await;
    // Also after a failure: a slot that nobody reads makes the database keep its log for ever.
    let ended = services.end().await;
    timed.and(ended)?;
    Ok(found)
}

/// The settings of a home of its own, whose contracts take the topics of one prefix.
fn configured(context: &Context, folder: &str, prefix: &str, schedule: &str) -> Result<Context> {
    let home = context.config.home.join(folder);
    let mut ready = shipped::configure(context, &home)?;
    with_topics(&mut ready, &home, prefix)?;
    if !schedule.is_empty() {
        // The committer runs every second, and takes what is there.
        ready.context.config =
            ready.context.config.with([("COMMIT_SCHEDULE", schedule), ("ALLUVIUM_COMMIT_AGE", "100ms")])?;
    }
    Ok(ready.context)
}

async fn host(context: &Context, timers: bool) -> Result<LocalHost> {
    let clock = Arc::clone(&context.clock);
    LocalHost::start(LocalOptions { port: Port::None, timers, clock, ..LocalOptions::new(context.config.clone()) })
        .await
}

async fn of_topics(context: &Context, records: u64) -> Result<f64> {
    let lake = context.lake().await?;
    let started = Instant::now();
    let host = host(context, false).await?;
    let read = async {
        while rows(&lake, "bronze/shop").await? < records {
            if started.elapsed() > PATIENCE {
                return Err(Error::unavailable("the records do not arrive").remedy("see `tests/services status`"));
            }
            tokio::time::sleep(COMMIT_EVERY).await;
            host.run_now("commit", true).await?;
        }
        settle(&lake, &host).await?;
        Ok(started.elapsed().as_secs_f64())
    };
    let took = read.await;
    let stopped = host.stop().await;
    let took = took?;
    stopped.map(|()| took)
}

async fn rows(lake: &Lake, table: &str) -> Result<u64> {
    match lake.table(table).await? {
        Some(table) => count(&table.snapshot().await?).await,
        None => Ok(0),
    }
}

async fn of_commits(
    context: &Context,
    services: &Services,
    args: &ServicesChildArgs,
    found: &mut Served,
) -> Result<()> {
    services.create().await?;
    services.follow().await?;
    let lake = context.lake().await?;
    let host = host(context, true).await?;
    let timed = async {
        services.sql(&customers()).await?;
        seen(&lake, &format!("select count(*) = {CUSTOMERS} from gold.customer_ltv")).await?;
        let (started, begin_ms) = (Instant::now(), context.clock.now().timestamp_millis());
        let working = async {
            services.sql(&workload(args.rate, args.seconds, begin_ms)).await?;
            Ok::<f64, Error>(started.elapsed().as_secs_f64())
        };
        let timing = async {
            let mut took = Vec::new();
            while started.elapsed() < Duration::from_secs(args.seconds) {
                let (at, id) = (Instant::now(), PROBES + took.len() as u64);
                services.sql(&probe(id)).await?;
                let shows =
                    format!("select count(*) = 1 from gold.customer_ltv where customer_id = {id} and orders = 1");
                seen(&lake, &shows).await?;
                took.push(at.elapsed().as_secs_f64());
            }
            Ok(took)
        };
        tokio::try_join!(working, timing)
    };
    let timed = timed.await;
    let stopped = host.stop().await;
    let (worked_s, commits_s) = timed?;
    found.commits_s = commits_s;
    #[expect(clippy::cast_precision_loss, reason = "rates are shown to a few digits")]
    let changes = (args.rate / TRANSACTIONS * TRANSACTIONS * args.seconds) as f64;
    found.rate = changes / worked_s.max(1e-9);
    stopped
}

/// Waits until a query says `true`; a table that is not there yet says nothing.
async fn seen(lake: &Lake, query: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let rows = Engine::over(lake, Pins::default())?.rows(query).await.unwrap_or_default();
        let says = |batch: &arrow::array::RecordBatch| {
            arrow::array::AsArray::as_boolean_opt(batch.column(0)).is_some_and(|says| says.true_count() > 0)
        };
        if rows.iter().any(says) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(Error::unavailable("a commit of PostgreSQL does not arrive in gold")
                .remedy("see `tests/services status`"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The customers of whom some change all the time.
fn customers() -> String {
    format!(
        "insert into customers select id, 'Customer ' || id, 'c' || id || '@example.org', \
         (array['consumer', 'corporate', 'smb', 'vip'])[1 + id % 4], 'Wien', localtimestamp, localtimestamp, null \
         from generate_series(1, {CUSTOMERS}) id;\n"
    )
}

/// Transactions that move customers, each begun at its time, however long the ones before it took.
fn workload(rate: u64, seconds: u64, begin_ms: i64) -> String {
    let each = (rate / TRANSACTIONS).clamp(1, CUSTOMERS);
    let mut script = String::new();
    for at in 0..seconds * TRANSACTIONS {
        let first = 1 + at * each % (CUSTOMERS - each + 1);
        let due = begin_ms + i64::try_from(at * 1000 / TRANSACTIONS).unwrap_or_default();
        let _ = writeln!(
            script,
            "select pg_sleep(greatest(0, {due} / 1000.0 - extract(epoch from clock_timestamp())));\n\
             update customers set city = 'city {at}', updated_at = localtimestamp where id between {first} and {};",
            first + each - 1
        );
    }
    script
}

/// A customer with an order, in one transaction.
fn probe(id: u64) -> String {
    format!(
        "begin;\n\
         insert into customers values ({id}, 'Probe {id}', 'p{id}@example.org', 'vip', 'Cork', localtimestamp, localtimestamp, null);\n\
         insert into orders values ({id}, {id}, 'paid', localtimestamp, 1.00);\n\
         commit;\n"
    )
}

/// Files of events in a folder, in order.
///
/// # Errors
/// The folder cannot be read.
pub fn event_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let within = |error: std::io::Error| Error::from(error).within(folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(within)? {
        let path = entry.map_err(within)?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().contains(".ndjson")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
