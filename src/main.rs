//! The one binary: parse, start logging, run, exit code. Everything else is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use alluvium::cli::{Cli, exit};
use alluvium::telemetry;
use clap::Parser;

/// Bursts of big buffers on many threads: glibc's arenas keep a third more memory than is in use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = cli.config().and_then(|config| {
        telemetry::start(cli.audience(), cli.log_filter(&config))?;
        cli.run(config)
    });
    exit::code(outcome)
}
