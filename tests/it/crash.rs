//! Every call to storage and queue is a point where something may go wrong: a sample of all points, drawn by a seed that is
//! printed. `alluvium selftest --in-memory --full` runs all of them.

use std::time::Duration;

use alluvium::clock::{Clock as _, SystemClock};
use alluvium::faults::Fault;
use alluvium::selftest::ground::Ground;
use alluvium::selftest::matrix::{Options, run};
use alluvium::selftest::point::Point;
use alluvium::selftest::scenario::SCENARIOS;
use alluvium::selftest::soak::soak;

use crate::support::place::Place;
use crate::support::program::Program;

/// Points of the sample.
const SAMPLE: usize = 150;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selftest_in_a_storage_account_leaves_nothing_behind() {
    let place = Place::azurite().await;
    let program = place.program();
    let run = move || program.ok(&["selftest", "--scenario", "append", "--points", "4", "-o", "json"]);
    let told = tokio::task::spawn_blocking(run).await.unwrap();
    let certificate: serde_json::Value = serde_json::from_str(&told).unwrap();
    for (name, expected) in [("run", 4), ("lost", 0), ("doubled", 0)] {
        assert_eq!(certificate[name], expected, "{certificate}");
    }
    assert!(place.backends().store().unwrap().list("_alluvium").await.unwrap().is_empty());
}
