//! `alluvium local` and `alluvium serve`: the host on this machine, and the handlers behind any host.

use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::app::Backends;
use crate::config::Config;
use crate::error::Result;
use crate::local::{LocalOptions, Port, azurite};

/// Arguments of `local`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium local                        watch ./data/landing until Ctrl-C
  alluvium local --workers 4 --port 7080
  alluvium local --storage azurite      the same against Azurite: containers landing and lake, queues
  curl -X POST http://127.0.0.1:7071/admin/functions/commit      commit now
  alluvium status                                                in another terminal

Put files into <home>/landing under a name of their own (write, then rename). Ctrl-C waits for what runs, a second
Ctrl-C stops at once; either loses nothing.")]
pub struct LocalArgs {
    /// Files that are staged at the same time; what host.json says when not given
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Port on 127.0.0.1 for the status and for running a timer's function now; 0 for any that is free
    /// [default: 7071 or, when that is taken, any]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Listen on no port
    #[arg(long, conflicts_with = "port")]
    pub no_port: bool,
    /// Where everything is kept; what the settings say when not given
    #[arg(long, value_enum, value_name = "WHERE")]
    pub storage: Option<Storage>,
}

/// Where a command keeps everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Storage {
    /// Folders of this machine
    Local,
    /// Azurite, which is started when none answers
    Azurite,
}

impl Storage {
    /// The configuration with everything kept there.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn configure(self, config: &Config) -> Result<Config> {
        match self {
            Self::Local => config.with([("STORAGE_BACKEND", "local"), ("QUEUE_BACKEND", "local")]),
            Self::Azurite => azurite::configure(config),
        }
    }
}

/// Arguments of `serve`: all comes from the environment, as the Functions host sets it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  FUNCTIONS_CUSTOMHANDLER_PORT=7072 alluvium serve")]
pub struct ServeArgs {}

/// Runs the local host until Ctrl-C.
///
/// # Errors
/// It cannot be started, or was stopped at once.
pub async fn local(context: &Context, args: &LocalArgs) -> Result<Exit> {
    let port = match args.port {
        _ if args.no_port => Port::None,
        Some(port) => Port::Exactly(port),
        None => Port::Usual,
    };
    let config =
        args.storage.map_or_else(|| Ok(context.config.clone()), |storage| storage.configure(&context.config))?;
    let azurite = match args.storage {
        Some(Storage::Azurite) => azurite::ensure(&config, Arc::clone(&context.clock)).await?,
        Some(Storage::Local) | None => None,
    };
    if args.storage == Some(Storage::Azurite) {
        output::note(
            "other commands find it with STORAGE_BACKEND=azure and QUEUE_BACKEND=azure, and \
             AzureWebJobsStorage=UseDevelopmentStorage=true unless you set it otherwise",
        );
    }
    let landing = Backends::open(&config, Arc::clone(&context.clock))?.landing()?.name();
    let options =
        LocalOptions { port, workers: args.workers, clock: Arc::clone(&context.clock), ..LocalOptions::new(config) };
    output::note(&format!("watching {landing}; Ctrl-C stops"));
    let ran = crate::local::run(options).await;
    if let Some(azurite) = azurite {
        azurite.stop().await?;
    }
    ran?;
    Ok(Exit::Done)
}

/// Serves the functions until the process is ended.
///
/// # Errors
/// The port is not given or cannot be had.
pub async fn serve(context: &Context) -> Result<Exit> {
    crate::http::serve(context.config.clone()).await?;
    Ok(Exit::Done)
}
