//! The steps of the demo. Each does one thing through the host and shows what came of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::look::{self, Day};
use crate::app::{self, Backends};
use crate::cli::context::Context;
use crate::cli::output;
use crate::cli::producer::Producer;
use crate::cli::sql::{Engine, Pin, Pins};
use crate::error::{Error, Result};
use crate::generate::Trips;
use crate::layout;
use crate::local::{LocalHost, LocalOptions, Port};
use crate::pipeline::lake::Lake;
use crate::pipeline::maintain::compact_table;
use crate::pipeline::status::{count, status};
use crate::quarantine::{Quarantined, from_batch};
use crate::render::{grouped, human_duration};
use crate::table::{DataFile, Snapshot};
use arrow::array::RecordBatch;
use futures::TryStreamExt;

/// The three tables that the trips go through.
const TABLES: [&str; 3] = ["raw/trips", "aggregate/trips", "curated/trips_daily"];

/// How long a step may take before something is wrong with the host.
const PATIENCE: Duration = Duration::from_secs(600);

/// How often the committer is called before the demo says that it does not come to rest.
const COMMITS: usize = 100;

/// The day, from 0, of which trips come late.
const LATE_DAY: u64 = 1;

/// A running demo.
pub struct Show {
    context: Context,
    producer: Producer,
    trips: Trips,
    lake: Lake,
    host: LocalHost,
    /// The curated table's version before the late file came.
    before_late: i64,
}

impl Show {
    /// Starts the host.
    ///
    /// # Errors
    /// The host cannot be started, or the lake cannot be opened.
    pub async fn begin(context: Context, trips: Trips, workers: usize) -> Result<Self> {
        let started = Instant::now();
        let lake = context.lake().await?;
        let producer = Producer::open(&Backends::open(&context.config, std::sync::Arc::clone(&context.clock))?)?;
        let options = LocalOptions {
            port: Port::None,
            workers: Some(workers),
            timers: false,
            clock: std::sync::Arc::clone(&context.clock),
            ..LocalOptions::new(context.config.clone())
        };
        let host = LocalHost::start(options).await?;
        let took = human_duration(started.elapsed());
        output::data(&look::step(
            "host",
            &format!("started in {took}: {workers} workers; handlers in a process of their own, called over HTTP"),
        ))?;
        Ok(Self { context, producer, trips, lake, host, before_late: 0 })
    }

    /// Trips files land, are staged, committed, and move through the layers.
    ///
    /// # Errors
    /// A file cannot be written, or the host failed.
    pub async fn files(&mut self) -> Result<()> {
        let mut bytes = 0;
        let mut made = Vec::new();
        for index in 0..self.trips.files {
            let content = self.trips.file(index);
            bytes += content.len() as u64;
            made.push(self.producer.prepare(&format!("trips/{}", Trips::name(index)), content.into_bytes())?);
        }
        let started = Instant::now();
        for file in made {
            self.producer.land(file).await?;
        }
        self.settle().await?;
        let took = started.elapsed();
        let rows = self.trips.files * self.trips.rows;
        output::data(&look::step("land", &look::landed(self.trips.files, rows, bytes, took)))?;
        let mut lines = Vec::new();
        for name in TABLES {
            let snapshot = self.snapshot(name).await?;
            lines.push((name, count(&snapshot).await?, snapshot.files()?.len(), snapshot.version()));
        }
        output::data(&look::tables(&lines))
    }

    /// Every event is delivered again: nothing changes.
    ///
    /// # Errors
    /// The queue cannot be written, the host failed, or something changed.
    pub async fn redelivery(&mut self) -> Result<()> {
        let before = self.state().await?;
        let landed: Vec<_> = self.lake.landing.list().try_collect().await?;
        let backends = Backends::open(&self.context.config, std::sync::Arc::clone(&self.context.clock))?;
        let (name, clock) = (&self.context.config.queue_name, &*self.context.clock);
        app::announce(&backends.queue(), name, &landed, &backends.scope(), clock).await?;
        self.settle().await?;
        if self.state().await? != before {
            return Err(Error::internal("a second delivery changed a table"));
        }
        let text = format!("all {} events delivered again: every table has the same version and rows", landed.len());
        output::data(&look::step("again", &text))
    }

    /// A file of which no record can be taken.
    ///
    /// # Errors
    /// The host failed, or the records are not in quarantine.
    pub async fn bad_file(&mut self) -> Result<()> {
        let before = count(&self.snapshot(TABLES[0]).await?).await?;
        self.land("bad.csv", &Trips::bad_file()).await?;
        let after = count(&self.snapshot(TABLES[0]).await?).await?;
        let query = "select * from quarantine.raw.trips where file = 'trips/bad.csv' order by record";
        let mut refused: Vec<Quarantined> = Vec::new();
        for batch in self.sql(query, Pins::default()).await? {
            refused.extend(from_batch(&batch)?);
        }
        if refused.is_empty() || before != after {
            return Err(Error::internal("the bad records are not in quarantine alone"));
        }
        output::data(&look::quarantined(&refused))
    }

    /// A file with trips of one day that is over: that day changes and nothing else.
    ///
    /// # Errors
    /// The host failed.
    pub async fn late_file(&mut self) -> Result<()> {
        let (days, aggregate) = (self.days().await?, self.snapshot(TABLES[1]).await?);
        self.before_late = self.snapshot(TABLES[2]).await?.version();
        let rows = (self.trips.rows / 20).max(10);
        self.land("late.csv", &self.trips.late_file(LATE_DAY, rows)).await?;
        let now = self.days().await?;
        let changed: Vec<(String, Option<Day>, Option<Day>)> = now
            .keys()
            .chain(days.keys().filter(|day| !now.contains_key(*day)))
            .filter(|day| days.get(*day) != now.get(*day))
            .map(|day| (day.clone(), days.get(day).cloned(), now.get(day).cloned()))
            .collect();
        let touched = touched_partitions(&aggregate, &self.snapshot(TABLES[1]).await?)?;
        output::data(&look::late(rows, &changed, now.len(), &touched))
    }

    /// Small files become one.
    ///
    /// # Errors
    /// Storage failed, or rows changed.
    pub async fn compaction(&mut self) -> Result<()> {
        let mut lines = Vec::new();
        for name in &TABLES[..2] {
            let table = self.lake.table(name).await?.ok_or_else(|| Error::not_found(format!("no table {name}")))?;
            let before = table.snapshot().await?;
            let started = Instant::now();
            compact_table(&self.lake, &table, None).await?;
            let after = table.snapshot().await?;
            let (rows, rows_after) = (count(&before).await?, count(&after).await?);
            if rows != rows_after {
                return Err(Error::internal(format!("compaction of {name} changed its rows")));
            }
            lines.push((*name, before.files()?.len(), after.files()?.len(), started.elapsed()));
        }
        // Whoever reads these tables takes note that nothing changed, so that the lake is at rest when the demo ends.
        self.settle().await?;
        output::data(&look::compacted(&lines))
    }

    /// The late day now, and as it was before.
    ///
    /// # Errors
    /// The query fails.
    pub async fn time_travel(&mut self) -> Result<()> {
        let version = self.before_late;
        let query = "select cast(sum(trips) as bigint) as trips, sum(revenue) as revenue from curated.trips_daily";
        let old = Pins { at: None, versions: vec![Pin { table: None, version }] };
        let then = self.sql(query, old).await?;
        let now = self.sql(query, Pins::default()).await?;
        output::data(&look::travel(version, &then, &now)?)
    }

    /// The five best rows, by SQL.
    ///
    /// # Errors
    /// The query fails.
    pub async fn top(&mut self) -> Result<()> {
        let rows = self.sql(look::TOP, Pins::default()).await?;
        output::data(&look::top(&rows)?)
    }

    /// Stops the host.
    ///
    /// # Errors
    /// A part of it broke off.
    pub async fn end(self) -> Result<()> {
        self.host.stop().await
    }

    async fn land(&self, name: &str, content: &str) -> Result<()> {
        let file = self.producer.prepare(&format!("trips/{name}"), content.as_bytes().to_vec())?;
        self.producer.land(file).await?;
        self.settle().await
    }

    async fn settle(&self) -> Result<()> {
        settle(&self.lake, &self.host).await
    }

    async fn snapshot(&self, name: &str) -> Result<Snapshot> {
        let table = self.lake.table(name).await?;
        table.ok_or_else(|| Error::not_found(format!("there is no table {name}")))?.snapshot().await
    }

    /// Version and rows of everything that a delivery could change.
    async fn state(&self) -> Result<BTreeMap<String, (i64, u64)>> {
        let mut state = BTreeMap::new();
        for folder in TABLES.iter().copied().chain([layout::LEDGER]) {
            let snapshot = self.snapshot(folder).await?;
            state.insert(folder.to_owned(), (snapshot.version(), count(&snapshot).await?));
        }
        Ok(state)
    }

    async fn sql(&self, query: &str, pins: Pins) -> Result<Vec<RecordBatch>> {
        Engine::over(&self.lake, pins)?.rows(query).await
    }

    async fn days(&self) -> Result<BTreeMap<String, Day>> {
        look::days(&self.sql(look::DAYS, Pins::default()).await?)
    }
}

/// Waits until everything that landed is staged, then has the committer called until it has nothing left.
///
/// # Errors
/// The host failed, a table stopped, or nothing comes to rest.
pub async fn settle(lake: &Lake, host: &LocalHost) -> Result<()> {
    let staged = tokio::time::timeout(PATIENCE, host.drained()).await;
    staged.map_err(|_| Error::unavailable("staging does not come to rest").remedy("see `alluvium status`"))??;
    for _ in 0..COMMITS {
        host.run_now("commit", true).await?;
        let now = status(lake).await?;
        if let Some(error) = now.tables.iter().find_map(|table| table.last_error.as_ref()) {
            return Err(Error::internal(error.clone()));
        }
        let rests = |table: &crate::pipeline::status::TableStatus| {
            table.staged == 0 && table.behind.values().all(|versions| *versions <= 0)
        };
        if now.tables.iter().all(rests) {
            return Ok(());
        }
    }
    Err(Error::unavailable("the committer does not come to rest").remedy("see `alluvium status`"))
}

/// Partition values of files that came or went between two snapshots.
fn touched_partitions(before: &Snapshot, after: &Snapshot) -> Result<Vec<String>> {
    let (old, new) = (before.files()?, after.files()?);
    let is_in = |file: &DataFile, files: &[DataFile]| files.iter().any(|other| other.path == file.path);
    let went = old.iter().filter(|file| !is_in(file, &new));
    let came = new.iter().filter(|file| !is_in(file, &old));
    let value = |file: &DataFile| {
        let values = file.partition_values.values();
        values.map(|value| value.clone().unwrap_or_else(|| "null".to_owned())).collect::<Vec<_>>().join("/")
    };
    let mut touched: Vec<String> = went.chain(came).map(value).collect();
    touched.sort();
    touched.dedup();
    Ok(touched)
}

/// Rows in words, for the steps' sentences.
#[must_use]
pub fn many(number: u64) -> String {
    grouped(i64::try_from(number).unwrap_or(i64::MAX))
}
