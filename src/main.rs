//! The one binary: parse, start logging, run, exit code. Everything else is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use alluvium::cli::{Cli, exit};
use alluvium::telemetry;
use clap::Parser;

/// glibc gives each of many threads an arena of its own, and keeps what big buffers leave in each: a third more memory
/// than is in use. The number of arenas can only be set before a process begins, so it begins again with it set.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(clippy::disallowed_methods, reason = "before there is a configuration")]
fn bound_arenas() {
    use std::os::unix::process::CommandExt;
    const ARENAS: &str = "MALLOC_ARENA_MAX";
    if std::env::var_os(ARENAS).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let arguments: Vec<_> = std::env::args_os().collect();
    let Some((name, rest)) = arguments.split_first() else { return };
    // Only comes back when it failed; then this process goes on as it is.
    let _error = std::process::Command::new(program).arg0(name).args(rest).env(ARENAS, "2").exec();
}

fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    bound_arenas();
    let cli = Cli::parse();
    let outcome = cli.config().and_then(|config| {
        telemetry::start(cli.audience(), cli.log_filter(&config))?;
        cli.run(config)
    });
    exit::code(outcome)
}
