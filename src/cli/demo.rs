//! `alluvium demo`: the whole way on made-up trips (or with the changes of a made-up shop), through the real local host, and
//! what it promises, shown.

pub mod cdc;
pub mod home;
pub mod look;
pub mod shipped;
pub mod steps;

use std::sync::Arc;
use std::time::Instant;

use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::host::Storage;
use super::output;
use crate::error::Result;
use crate::generate::Trips;
use crate::local::azurite;
use steps::Show;

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium demo
  alluvium demo --files 20 --rows 50000 --home /tmp/lake
  alluvium demo --storage azurite
  alluvium demo --cdc          the changes of a database instead, from files of events
                               (from PostgreSQL by Debezium and Kafka with the variables of `tests/services env`)
  alluvium demo --fresh        begin anew, although the last demo's lake was changed

The demo leaves its lake in --home (default ./data) and replaces only what an earlier demo made and nobody changed.")]
pub struct DemoArgs {
    /// Trips files
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub files: u64,
    /// Rows in each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rows: u64,
    /// Seed of the made-up trips: the same seed makes the same files
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub seed: u64,
    /// Files that are staged at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,
    /// The changes of a shop's database instead of files: by Debezium and Kafka when the variables say where they are (see
    /// `tests/services env`), else from files of the same events; --files times --rows is about how many
    #[arg(long, conflicts_with = "storage")]
    pub cdc: bool,
    /// Delete what an earlier demo left, changed or not
    #[arg(long)]
    pub fresh: bool,
    /// Where the demo keeps everything: in folders of the home, or in an Azurite of its own with its data there
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Storage::Local)]
    pub storage: Storage,
}

/// Runs `demo`.
///
/// # Errors
/// The home is somebody else's, or a step failed.
pub async fn run(context: &Context, args: &DemoArgs) -> Result<Exit> {
    if args.cdc {
        return Box::pin(cdc::run(context, args)).await;
    }
    let started = Instant::now();
    let home = home::prepare(&context.config.home, args.fresh)?;
    let mut ready = shipped::configure(context, &home)?;
    let mut azurite = None;
    if args.storage == Storage::Azurite {
        let (started, config) = azurite::own(&ready.context.config, Arc::clone(&context.clock)).await?;
        azurite = Some(started);
        ready.context.config = config;
        ready.shown = azurite::configure(&ready.shown)?;
    }
    let trips = Trips { files: args.files, rows: args.rows, days: args.files.clamp(5, 60), seed: args.seed };
    let mut show = Show::begin(ready.context, trips, usize::from(args.workers)).await?;
    show.files().await?;
    show.redelivery().await?;
    show.bad_file().await?;
    show.late_file().await?;
    show.compaction().await?;
    show.time_travel().await?;
    show.top().await?;
    show.end().await?;
    if let Some(azurite) = azurite {
        azurite.stop().await?;
    }
    home::done(&context.config.home)?;
    output::data(&look::next(&ready.shown, &look::program(), started.elapsed(), &look::OF_TRIPS))?;
    Ok(Exit::Done)
}
