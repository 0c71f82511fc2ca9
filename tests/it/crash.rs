//! Every call to storage and queue is a point where something may go wrong: a sample of all points, drawn by a seed that is
//! printed. `alluvium selftest --in-memory --full` runs all of them.

use std::sync::Arc;
use std::time::Duration;

use alluvium::clock::{Clock as _, SystemClock};
use alluvium::faults::Fault;
use alluvium::selftest::ground::Ground;
use alluvium::selftest::matrix::{Options, run};
use alluvium::selftest::point::Point;
use alluvium::selftest::scenario::SCENARIOS;
use alluvium::selftest::soak::soak;

use crate::support::azurite::Azurite;
use crate::support::place::Place;
use crate::support::program::Program;
use crate::support::raw;

/// Points of the sample.
const SAMPLE: usize = 450;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_something_goes_wrong_a_fresh_process_finishes_the_work() {
    let seed = u64::from_str_radix(&SystemClock.fresh()[..6], 16).unwrap();
    println!("seed {seed}");
    let options = Options { seed, points: Some(SAMPLE), threads: 2, ..Options::default() };
    let certificate = run(&Ground::Memory, &options, |_| {}).await.unwrap();
    assert!(certificate.holds(), "{}", certificate.lines().join("\n"));
    assert_eq!((certificate.run, certificate.lost, certificate.doubled), (SAMPLE as u64, 0, 0));
    // The order of some calls is not fixed, so a late one may not come; nearly all must.
    assert!(certificate.met * 100 >= certificate.run * 97, "{}", certificate.lines().join("\n"));
    assert_eq!(certificate.scenarios.len(), SCENARIOS.len());
    let silent = certificate.scenarios.iter().find(|covered| covered.calls < 40 || covered.points < 150);
    assert!(silent.is_none(), "the faults fall on hardly any calls: {silent:?}");
}

/// Notes are the only trace of a file that no contract takes: a write that fails must not be taken for done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_write_fails_every_file_is_in_the_ledger() {
    let scenario = SCENARIOS.iter().position(|scenario| scenario.name == "quarantine").unwrap();
    let options =
        Options { scenarios: vec![scenario], faults: vec![Fault::DiskFull], threads: 2, ..Options::default() };
    let certificate = run(&Ground::Memory, &options, |_| {}).await.unwrap();
    assert!(certificate.holds() && certificate.met > 20, "{}", certificate.lines().join("\n"));
}

/// How long everything is left to chance; `alluvium selftest --in-memory --soak 30m` takes longer.
const SOAK: Duration = Duration::from_secs(20);

#[tokio::test]
async fn files_deaths_and_clocks_at_random_break_nothing() {
    let seed = u64::from_str_radix(&SystemClock.fresh()[..6], 16).unwrap();
    println!("seed {seed}");
    let soaked = soak(&Ground::Memory, seed, SOAK, |_| {}).await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert!(soaked.holds(), "{}", soaked.lines().join("\n"));
    assert!(soaked.rounds > 20 && soaked.files > 5 && soaked.comparisons > 0, "{soaked:?}");
}

#[test]
fn a_point_is_run_again_from_its_number() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path());
    let number = Point { scenario: 1, call: 20, fault: Fault::DeadAfter }.number().to_string();
    let told = program.ok(&["selftest", "--in-memory", "--replay", &number]);
    assert_eq!(told, "adopt: dead after at call 20\neverything holds\n");
    let done = program.run(&["selftest", "--replay", "99"]);
    assert_eq!(done.code, Some(1), "{}", done.text());
    assert!(done.stderr.contains("99 is no number of a point"), "{}", done.text());
}

#[test]
fn a_selftest_on_local_folders_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path());
    let arguments = ["selftest", "--scenario", "append", "--scenario", "stream", "--points", "6", "-o", "json"];
    let certificate: serde_json::Value = serde_json::from_str(&program.ok(&arguments)).unwrap();
    for (name, expected) in [("run", 6), ("lost", 0), ("doubled", 0)] {
        assert_eq!(certificate[name], expected, "{certificate}");
    }
    assert!(certificate["ground"].as_str().unwrap().starts_with("file://"), "{certificate}");
    let mut left: Vec<String> = Vec::new();
    let mut folders = vec![home.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path())
            } else {
                left.push(entry.path().display().to_string())
            }
        }
    }
    assert_eq!(left, Vec::<String>::new());
}

/// Points of the sample in a storage account.
const IN_ACCOUNT: usize = 100;

/// A selftest in an account of its own, which leaves nothing behind; what it covered of each scenario.
async fn selftest_in_an_account(scenarios: &[&str], points: usize) -> Vec<(String, u64)> {
    let seed = u64::from_str_radix(&SystemClock.fresh()[..6], 16).unwrap().to_string();
    eprintln!("seed {seed}");
    // Nobody else's: others wait for theirs with less patience.
    let place = Place::in_azurite(Arc::new(Azurite::alone())).await;
    let mut arguments = vec!["selftest".to_owned(), "-o".to_owned(), "json".to_owned()];
    arguments.extend(["--seed".to_owned(), seed, "--points".to_owned(), points.to_string()]);
    arguments.extend(scenarios.iter().flat_map(|name| ["--scenario".to_owned(), (*name).to_owned()]));
    let program = place.program();
    let run = move || program.ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let told = tokio::task::spawn_blocking(run).await.unwrap();
    let certificate: serde_json::Value = serde_json::from_str(&told).unwrap();
    for (name, expected) in [("run", points), ("lost", 0), ("doubled", 0)] {
        assert_eq!(certificate[name], expected, "{certificate}");
    }
    assert_eq!(certificate["findings"], serde_json::json!([]));
    assert!(place.backends().store().unwrap().list("_alluvium").await.unwrap().is_empty());
    assert_eq!(raw::queues(&place).await, Vec::<String>::new());
    let covered = certificate["scenarios"].as_array().unwrap().iter();
    covered.map(|one| (one["scenario"].as_str().unwrap().to_owned(), one["run"].as_u64().unwrap())).collect()
}

/// Without the long ones, of which one point costs as much as ten of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selftest_in_a_storage_account_holds_and_leaves_nothing_behind() {
    let long = ["layers", "upkeep", "adopted upkeep", "stream"];
    let scenarios: Vec<&str> =
        SCENARIOS.iter().map(|scenario| scenario.name).filter(|name| !long.contains(name)).collect();
    let covered = selftest_in_an_account(&scenarios, IN_ACCOUNT).await;
    assert_eq!(covered.len(), scenarios.len());
    assert!(covered.iter().filter(|(_, points)| *points > 0).count() * 2 > scenarios.len(), "{covered:?}");
}

/// Compactions, checkpoints, vacuums, with and without a fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upkeep_of_a_long_past_holds_in_a_storage_account() {
    assert_eq!(selftest_in_an_account(&["upkeep"], 1).await, [("upkeep".to_owned(), 1)]);
}
