//! The local host with its handler in a process of its own: everything that lands arrives exactly once, whatever dies.

use std::path::Path;
use std::time::Duration;

use crate::support::contracts::{self, sales};
use crate::support::program::{Program, Running, assert_sales_exactly_once, eventually, signal};
use crate::support::{drop_file, write_contracts};

const PATIENCE: Duration = Duration::from_secs(60);

fn home() -> (tempfile::TempDir, Program) {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path())
        .schemas(&home.path().join("schemas"))
        .env("ALLUVIUM_ARRIVAL_HOLD_MS", "50")
        .env("ALLUVIUM_COMMIT_AGE", "100ms")
        .env("COMMIT_SCHEDULE", "* * * * * *");
    (home, program)
}

fn land(home: &Path, files: std::ops::Range<i64>) {
    for file in files {
        let rows = [(file * 2, 1, "north", "1.00"), (file * 2 + 1, 2, "south", "2.00")];
        drop_file(&home.join("landing"), &format!("sales/{file:04}.csv"), sales(&rows).as_bytes());
    }
}

fn is_serving(host: &Running) -> bool {
    !host.children("serve").is_empty()
}

/// Files that the ledger calls loaded. No ledger yet: none.
fn loaded(program: &Program) -> i64 {
    let done = program.run(&["sql", "select count(*) as n from ledger where status = 'loaded'", "--format", "csv"]);
    done.stdout.lines().nth(1).and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[test]
fn files_that_land_are_committed_by_the_timer_and_ctrl_c_drains() {
    let (home, program) = home();
    let mut host = program.start(&["local", "--no-port"]);
    eventually(PATIENCE, "the handler runs", || is_serving(&host));
    land(home.path(), 0..10);
    eventually(PATIENCE, "all files are loaded", || loaded(&program) == 10);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    // The layers of the last commit are done too once the host has drained.
    assert_sales_exactly_once(&program, 10);
}

#[test]
fn a_handler_that_is_killed_is_started_again_and_nothing_is_lost_or_doubled() {
    let (home, program) = home();
    let mut host = program.start(&["local", "--no-port"]);
    eventually(PATIENCE, "the handler runs", || is_serving(&host));
    for round in 0..4 {
        land(home.path(), round * 10..round * 10 + 10);
        // Some way into the work of this round.
        eventually(PATIENCE, "some files are loaded", || loaded(&program) > round * 10 - 5);
        for handler in host.children("serve") {
            signal(handler, "KILL");
        }
        eventually(PATIENCE, "the handler runs again", || is_serving(&host));
    }
    eventually(PATIENCE, "all files are loaded", || loaded(&program) == 40);
    assert!(host.is_running());
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    assert_sales_exactly_once(&program, 40);
}

#[test]
fn a_second_ctrl_c_stops_at_once_and_the_next_run_finishes_the_work() {
    let (home, program) = home();
    let mut host = program.start(&["local", "--no-port"]);
    eventually(PATIENCE, "the handler runs", || is_serving(&host));
    land(home.path(), 0..30);
    eventually(PATIENCE, "the work has begun", || home.path().join("lake/raw/sales").exists());
    host.signal("INT");
    host.signal("INT");
    host.ended(PATIENCE);
    let mut host = program.start(&["local", "--no-port"]);
    eventually(PATIENCE, "all files are loaded", || loaded(&program) == 30);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    assert_sales_exactly_once(&program, 30);
}

#[test]
fn a_host_that_is_killed_with_everything_loses_nothing() {
    let (home, program) = home();
    let host = program.start(&["local", "--no-port"]);
    eventually(PATIENCE, "the handler runs", || is_serving(&host));
    land(home.path(), 0..20);
    eventually(PATIENCE, "the work has begun", || home.path().join("lake/raw/sales").exists());
    let handlers = host.children("serve");
    host.signal("KILL");
    for handler in handlers {
        signal(handler, "KILL");
    }
    drop(host);
    let mut host = program.start(&["local", "--no-port"]);
    eventually(PATIENCE, "all files are loaded", || loaded(&program) == 20);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    assert_sales_exactly_once(&program, 20);
}
