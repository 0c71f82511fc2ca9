//! The integration tests: one binary, one module for each promise. They use the library as `main.rs` does, or the built
//! binary itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on stops, and only tests read the clock and the environment by themselves"
)]
#![allow(unreachable_pub, reason = "a test binary is nobody's dependency")]

mod azurite;
mod backfill;
mod bronze;
mod cases;
mod changes;
mod command_line;
mod committers;
mod crash;
mod delivery;
mod delta_rs;
mod demo;
mod differential;
mod flights;
mod functions;
mod fuzz;
mod invocations;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "mutations")]
mod kills;
mod late;
mod local_host;
mod maintain;
mod memory;
#[cfg(feature = "mutations")]
mod mutations;
mod outage;
mod places;
mod readback;
mod redrive;
mod state_loss;
mod streams;
mod support;
mod tidy;
mod trouble;
mod versions;
