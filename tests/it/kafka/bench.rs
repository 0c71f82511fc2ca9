//! `alluvium bench cdc --services` over the real chain: what it measures really went through.

use super::*;

#[test]
fn records_of_topics_and_commits_of_the_database_are_timed_to_gold() {
    let services = Services::shared();
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::new(folder.path());
    for (name, value) in services.addresses() {
        program = program.env(name, value);
    }
    let words = ["bench", "cdc", "--services", "--events", "3000", "--rate", "50", "--seconds", "3", "--reps", "1"];
    let dir = folder.path().join("bench");
    let done = program.run(&[&words[..], &["-o", "json", "--dir", dir.to_str().unwrap()]].concat());
    assert_eq!(done.code, Some(0), "{}", done.text());
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let run = &report["services"][0];
    // Of the made-up records those of tables are sent; some are delivered twice, and deletions leave tombstones.
    assert!(run["records"].as_u64().unwrap() > 3000, "{run}");
    assert!(run["gold_s"].as_f64().unwrap() > 0.0 && run["rate"].as_f64().unwrap() > 0.0, "{run}");
    assert!(!run["commits_s"].as_array().unwrap().is_empty(), "{run}");
    let left = "select (select count(*) from pg_database where datname like 'bench%')
                     + (select count(*) from pg_replication_slots where slot_name like 'bench%');";
    assert_eq!(services.sql(None, left).trim(), "0");
}
