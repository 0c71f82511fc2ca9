//! `alluvium demo --cdc`: the changes of a made-up shop, from its database through Debezium and Kafka when those are there,
//! else from files of the same events, and what becomes of them.

pub mod services;
pub mod shop;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use chrono::TimeDelta;

use super::steps::{many, settle};
use super::{DemoArgs, home, look, shipped};
use crate::app::Backends;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::producer::Producer;
use crate::cli::sql::{Engine, Pins};
use crate::error::{Error, Result};
use crate::local::{LocalHost, LocalOptions, Port};
use crate::pipeline::lake::Lake;
use crate::render::human_duration;
use crate::render::rows::{table, value_text};
use services::Services;

/// The newest change of a customer is in silver within this time, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often the committer is called while changes come.
const COMMIT_EVERY: Duration = Duration::from_millis(500);

/// A customer with a product and three orders comes to about so many.
const EVENTS_OF_A_CUSTOMER: u64 = 25;

const HISTORY: &str = "select version, city, valid_from, valid_to, is_current from silver.customers_history \
                       where id = 1 order by version";

/// Runs the demo.
///
/// # Errors
/// The home is somebody else's, a service does not answer, or a step failed.
pub async fn run(context: &Context, args: &DemoArgs) -> Result<Exit> {
    let started = Instant::now();
    let name = format!("demo_{}", &context.clock.fresh()[..12]);
    let services = Services::named(&context.config, name)?;
    if services.is_some() && !cfg!(feature = "kafka") {
        return Err(Error::invalid("this program is built without the feature `kafka`, so it reads no topic").remedy(
            "build it with `--features kafka`, or unset CDC_POSTGRES, CDC_BROKERS and CDC_CONNECT to replay files",
        ));
    }
    let home = home::prepare(&context.config.home, args.fresh)?;
    let mut ready = shipped::configure(context, &home)?;
    match &services {
        None => {
            // Whatever brokers the settings name: nothing is read from them.
            ready.context.config = ready.context.config.with([("CDC_BROKERS", "")])?;
        }
        Some(services) => {
            with_topics(&mut ready, &home, services.prefix())?;
        }
    }
    let mut show =
        Show::begin(ready.context, (args.files * args.rows / EVENTS_OF_A_CUSTOMER).clamp(10, 100_000)).await?;
    let shown = show.all(services.as_ref()).await;
    let stopped = show.host.stop().await;
    // Also after a failure: a slot that nobody reads makes the database keep its log for ever.
    let ended = match &services {
        None => Ok(()),
        Some(services) => services.end().await,
    };
    shown.and(stopped).and(ended)?;
    home::done(&context.config.home)?;
    output::data(&look::next(&ready.shown, &look::program(), started.elapsed(), &look::OF_CHANGES))?;
    Ok(Exit::Done)
}

/// Has a home take the topics of one run alone, by the shipped contracts: Kafka keeps those of earlier runs.
///
/// # Errors
/// The home cannot be written.
pub fn with_topics(ready: &mut shipped::Ready, home: &Path, prefix: &str) -> Result<()> {
    let folder = home.join("schemas");
    shipped::write_all(&folder, &shipped::CONTRACTS)?;
    let file = folder.join("bronze/shop.yaml");
    let within = |error: std::io::Error| Error::from(error).within(file.display());
    let text = std::fs::read_to_string(&file).map_err(within)?;
    std::fs::write(&file, text.replace("lake.public.*", &format!("{prefix}.public.*"))).map_err(within)?;
    let schemas = shipped::text(&folder)?;
    ready.context.config = ready.context.config.with([
        ("ALLUVIUM_SCHEMAS", schemas.as_str()),
        ("CDC_CONSUMER_GROUP", prefix),
        ("CDC_TOPIC", ""),
    ])?;
    ready.shown = ready.shown.with([("ALLUVIUM_SCHEMAS", schemas.as_str())])?;
    Ok(())
}

struct Show {
    lake: Lake,
    host: LocalHost,
    producer: Producer,
    customers: u64,
    began_us: i64,
}

impl Show {
    async fn begin(context: Context, customers: u64) -> Result<Self> {
        let started = Instant::now();
        let lake = context.lake().await?;
        let producer = Producer::open(&Backends::open(&context.config, Arc::clone(&context.clock))?)?;
        let options = LocalOptions {
            port: Port::None,
            timers: false,
            clock: Arc::clone(&context.clock),
            ..LocalOptions::new(context.config.clone())
        };
        let host = LocalHost::start(options).await?;
        let took = human_duration(started.elapsed());
        output::data(&look::step("host", &format!("started in {took}; handlers in a process of their own")))?;
        let began_us = (context.clock.now() - TimeDelta::days(9)).timestamp_micros();
        Ok(Self { lake, host, producer, customers, began_us })
    }

    /// Everything that there is to see.
    async fn all(&mut self, services: Option<&Services>) -> Result<()> {
        match services {
            None => self.replay().await?,
            Some(services) => self.follow(services).await?,
        }
        self.tables().await?;
        self.quarantined().await?;
        self.late(services.map_or("lake", Services::prefix)).await?;
        self.gold().await
    }

    /// The events as files.
    async fn replay(&mut self) -> Result<()> {
        let transactions = shop::transactions(self.customers, self.began_us);
        let (lines, events) = shop::events(&transactions, self.began_us / 1000);
        let started = Instant::now();
        self.land("changes.ndjson", lines).await?;
        self.told(&format!("{} events from a file, as Debezium sends them", many(events)), events, started)
    }

    /// The shop's database at work, and everything that Debezium sends of it.
    async fn follow(&mut self, services: &Services) -> Result<()> {
        services.create().await?;
        services.follow().await?;
        let started = Instant::now();
        let transactions = shop::transactions(self.customers, self.began_us);
        let mut script = String::new();
        for changes in &transactions {
            let _ = writeln!(script, "begin;");
            changes.iter().for_each(|change| script.push_str(&change.sql()));
            let _ = writeln!(script, "commit;");
        }
        services.sql(&script).await?;
        let worked = human_duration(started.elapsed());
        let text = format!("PostgreSQL committed {} transactions in {worked}", many(transactions.len() as u64));
        output::data(&look::step("database", &text))?;
        let begun = Instant::now();
        let gone = format!("select count(*) from silver.customers where id = {}", self.customers);
        let mut wanted = Vec::new();
        for table in shop::TABLES {
            // All others of the shop's rows are good.
            let good = if table == "customers" { " where email like '%@%'" } else { "" };
            wanted.push((table, services.sql(&format!("select count(*) from {table}{good};")).await?));
        }
        loop {
            self.host.run_now("commit", true).await?;
            // The deletion of the last customer is the last change.
            let mut is_whole = self.value(&gone).await.is_ok_and(|found| found == "0");
            for (table, wanted) in &wanted {
                let found = self.value(&format!("select count(*) from silver.{table}")).await;
                is_whole &= found.is_ok_and(|found| found == wanted.trim());
            }
            if is_whole {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::unavailable("the changes do not arrive").remedy("see `tests/services status`"));
            }
            tokio::time::sleep(COMMIT_EVERY).await;
        }
        settle(&self.lake, &self.host).await?;
        let events = self.value("select count(*) from bronze.shop").await?.parse().unwrap_or(0);
        self.told(&format!("{} events from PostgreSQL by Debezium and Kafka", many(events)), events, begun)
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "for people"
    )]
    fn told(&self, what: &str, events: u64, started: Instant) -> Result<()> {
        let took = started.elapsed();
        let rate = (events as f64 / took.as_secs_f64().max(1e-6)) as u64;
        output::data(&look::step(
            "changes",
            &format!("{what}: gold in {} ({} events/s)", human_duration(took), many(rate)),
        ))
    }

    /// Rows of every table that the shop's changes go through.
    async fn tables(&self) -> Result<()> {
        let mut lines = Vec::new();
        let contracts = self.lake.catalog.tables();
        let names: Vec<String> = contracts.iter().map(|contract| contract.table.to_string()).collect();
        for name in
            names.iter().filter(|name| ["bronze/", "silver/", "gold/"].iter().any(|layer| name.starts_with(layer)))
        {
            let Some(found) = self.lake.table(name).await? else { continue };
            let snapshot = found.snapshot().await?;
            let rows = crate::pipeline::status::count(&snapshot).await?;
            lines.push((name.as_str(), rows, snapshot.files()?.len(), snapshot.version()));
        }
        output::data(&look::tables(&lines))
    }

    /// Events that broke a rule.
    async fn quarantined(&self) -> Result<()> {
        let query = "select key, op, rules from quarantine.silver.customers order by ts_ms";
        let rows = self.rows(query).await?;
        let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
        if count == 0 {
            return Err(Error::internal("no event is in quarantine"));
        }
        output::data(&look::step("quarantine", &format!("{count} event of a customer whose address is none, whole")))?;
        shown(&rows)
    }

    /// A change that becomes known after later ones: history takes it where its position puts it.
    async fn late(&self, prefix: &str) -> Result<()> {
        let before = self.rows(HISTORY).await?;
        output::data(&look::step("history", "customer 1, as versions of a slowly changing dimension"))?;
        shown(&before)?;
        let places = self
            .rows("select ts_ms, lsn from bronze.shop where \"table\" = 'public.customers' and key = '{\"id\":1}' order by 1, 2")
            .await?;
        let places: Vec<(i64, i64)> = pairs(&places)?;
        let [.., (at_ms, lsn), _last] = places.as_slice() else {
            return Err(Error::internal("customer 1 did not move twice"));
        };
        let topic = format!("{prefix}.public.customers");
        self.land("late.ndjson", shop::late(&topic, *at_ms, lsn + 1, self.began_us)).await?;
        let after = self.rows(HISTORY).await?;
        if after == before {
            return Err(Error::internal("the late event changed nothing"));
        }
        output::data(&look::step(
            "late",
            "an event from between the two moves comes last, and lands where it belongs",
        ))?;
        shown(&after)
    }

    /// The best customers.
    async fn gold(&self) -> Result<()> {
        let query = "select name, segment, orders, lifetime_revenue from gold.customer_ltv \
                     order by lifetime_revenue desc, customer_id limit 5";
        output::data(&look::step("gold", "the five best customers"))?;
        shown(&self.rows(query).await?)
    }

    async fn land(&self, name: &str, content: String) -> Result<()> {
        let file = self.producer.prepare(&format!("shop/{name}"), content.into_bytes())?;
        self.producer.land(file).await?;
        settle(&self.lake, &self.host).await
    }

    async fn rows(&self, query: &str) -> Result<Vec<RecordBatch>> {
        Engine::over(&self.lake, Pins::default())?.rows(query).await
    }

    async fn value(&self, query: &str) -> Result<String> {
        let rows = self.rows(query).await?;
        let first = rows.iter().find(|batch| batch.num_rows() > 0);
        let text = first.map(|batch| value_text(batch.column(0), 0)).transpose()?.flatten();
        Ok(text.unwrap_or_default())
    }
}

fn pairs(rows: &[RecordBatch]) -> Result<Vec<(i64, i64)>> {
    let mut pairs = Vec::new();
    for batch in rows {
        for row in 0..batch.num_rows() {
            let text = |column: usize| value_text(batch.column(column), row);
            if let (Some(left), Some(right)) = (text(0)?, text(1)?)
                && let (Ok(left), Ok(right)) = (left.parse(), right.parse())
            {
                pairs.push((left, right));
            }
        }
    }
    Ok(pairs)
}

fn shown(rows: &[RecordBatch]) -> Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    output::data(&look::more(&table(&first.schema(), rows, None)?))
}
