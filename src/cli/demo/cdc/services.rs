//! The real chain behind the demo: the shop's database, Debezium in Kafka Connect, Kafka.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::shop;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};

const REMEDY: &str = "see `tests/services status`; without CDC_POSTGRES the demo replays files";

/// Where the services answer.
pub struct Services {
    postgres: String,
    connect: String,
    name: String,
    client: reqwest::Client,
}

impl Services {
    /// Those that the configuration names, all three; none when it names none. `name` is nobody else's.
    ///
    /// # Errors
    /// Only some are named.
    pub fn named(config: &Config, name: String) -> Result<Option<Self>> {
        let named = ["CDC_POSTGRES", "CDC_BROKERS", "CDC_CONNECT"].map(|name| config.lookup(name).ok_or(name));
        match named {
            [Ok(postgres), Ok(_), Ok(connect)] => {
                let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build();
                let client = client.map_err(|error| Error::internal("an HTTP client").because(error))?;
                Ok(Some(Self { postgres, connect, name, client }))
            }
            [Err(_), Err(_), Err(_)] => Ok(None),
            some => {
                let missing: Vec<&str> = some.iter().filter_map(|named| named.as_ref().err().copied()).collect();
                Err(Error::invalid(format!("{} not set", missing.join(", ")))
                    .remedy("eval \"$(tests/services env)\" sets all three; with none of them the demo replays files"))
            }
        }
    }

    /// What the topics begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.name
    }

    /// Makes the shop's database.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn create(&self) -> Result<()> {
        self.psql(&self.postgres, &format!("create database {};", self.name)).await?;
        self.sql(shop::SCHEMA).await.map(drop)
    }

    /// Runs SQL in the shop's database, and gives what it prints.
    ///
    /// # Errors
    /// The database does not answer, or refuses it.
    pub async fn sql(&self, script: &str) -> Result<String> {
        let mut url = url::Url::parse(&self.postgres).map_err(|error| Error::invalid("CDC_POSTGRES").because(error))?;
        url.set_path(&self.name);
        self.psql(url.as_str(), script).await
    }

    async fn psql(&self, url: &str, script: &str) -> Result<String> {
        let started = Command::new("psql")
            .args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut psql = started.map_err(|error| {
            let error = Error::from(error);
            let remedy = if error.kind() == ErrorKind::NotFound { "install postgresql-client" } else { REMEDY };
            error.within("psql").remedy(remedy)
        })?;
        if let Some(mut input) = psql.stdin.take() {
            input.write_all(script.as_bytes()).await.map_err(|error| Error::from(error).within("psql"))?;
        }
        let done = psql.wait_with_output().await.map_err(|error| Error::from(error).within("psql"))?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        Err(Error::unavailable(format!("psql: {}", String::from_utf8_lossy(&done.stderr).trim())).remedy(REMEDY))
    }

    /// Has Debezium follow the shop's tables, and waits until it reads the database's log: what is written from then on comes
    /// as changes, and nothing by its first look at the tables.
    ///
    /// # Errors
    /// Kafka Connect does not answer, or refuses it.
    pub async fn follow(&self) -> Result<()> {
        let database =
            url::Url::parse(&self.postgres).map_err(|error| Error::invalid("CDC_POSTGRES").because(error))?;
        let config = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": database.host_str().unwrap_or("127.0.0.1"),
            "database.port": database.port().unwrap_or(5432).to_string(),
            "database.user": database.username(),
            "database.password": database.password().unwrap_or_default(),
            "database.dbname": self.name,
            "topic.prefix": self.name,
            "plugin.name": "pgoutput",
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "filtered",
            "table.include.list": shop::TABLES.map(|table| format!("public.{table}")).join(","),
            "decimal.handling.mode": "string",
            "poll.interval.ms": "50",
        });
        self.ask(reqwest::Method::PUT, "/config", Some(&config)).await?;
        let reads = format!(
            "do $$ begin
               for i in 1..600 loop
                 exit when exists (select from pg_replication_slots s join pg_stat_replication r on r.pid = s.active_pid
                                   where s.slot_name = '{}' and r.state in ('catchup', 'streaming'));
                 if i = 600 then raise 'Debezium does not read the log'; end if;
                 perform pg_sleep(0.1);
                 perform pg_stat_clear_snapshot();
               end loop;
             end $$;",
            self.name
        );
        self.psql(&self.postgres, &reads).await.map(drop)
    }

    /// Ends what the demo began, as far as it came: connector, slot and database. The topics stay.
    ///
    /// # Errors
    /// A service does not answer.
    pub async fn end(&self) -> Result<()> {
        self.ask(reqwest::Method::DELETE, "", None).await?;
        let name = &self.name;
        // The slot is free when the connector has let go of it.
        let drop_slot = format!(
            "do $$ begin
               for i in 1..100 loop
                 exit when not exists (select from pg_replication_slots where slot_name = '{name}' and active);
                 perform pg_sleep(0.1);
               end loop;
               perform pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{name}';
             end $$;"
        );
        self.psql(&self.postgres, &drop_slot).await?;
        self.psql(&self.postgres, &format!("drop database if exists {name} with (force);")).await.map(drop)
    }

    async fn ask(&self, method: reqwest::Method, path: &str, body: Option<&Value>) -> Result<()> {
        let url = format!("{}/connectors/{}{path}", self.connect.trim_end_matches('/'), self.name);
        let is_end = method == reqwest::Method::DELETE;
        let mut request = self.client.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let unavailable = |error: reqwest::Error| Error::unavailable("Kafka Connect").because(error).remedy(REMEDY);
        let answer = request.send().await.map_err(unavailable)?;
        let status = answer.status();
        if status.is_success() || (is_end && status == reqwest::StatusCode::NOT_FOUND) {
            return Ok(());
        }
        let words = answer.text().await.map_err(unavailable)?;
        Err(Error::unavailable(format!("Kafka Connect answered {status}: {words}")).remedy(REMEDY))
    }
}
