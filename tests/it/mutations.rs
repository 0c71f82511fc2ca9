//! Without a safeguard the matrix of faults finds what is wrong: each is needed, and the matrix would notice.

use alluvium::safeguard::Safeguard;
use alluvium::selftest::ground::Ground;
use alluvium::selftest::matrix::{Options, run};
use alluvium::selftest::mutations::witness;

use crate::support::program::Program;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_one_safeguard_something_breaks() {
    let mut unnoticed = Vec::new();
    for safeguard in Safeguard::ALL {
        let witness = witness(safeguard);
        let options = Options {
            scenarios: vec![witness.number().unwrap()],
            faults: vec![witness.fault],
            kinds: vec![witness.kind],
            threads: 2,
            removed: Some(safeguard),
            ..Options::default()
        };
        let begun = std::time::Instant::now();
        let certificate = run(&Ground::Memory, &options, |_| {}).await.unwrap();
        match certificate.findings.first() {
            Some(finding) => println!(
                "{} in {:.1} s, {} of {} points: {}: {}",
                safeguard.name(),
                begun.elapsed().as_secs_f64(),
                certificate.run,
                certificate.points,
                finding.point,
                finding.broken.join("; ")
            ),
            None => unnoticed.push(format!("{}: {}", safeguard.name(), certificate.lines().join("; "))),
        }
    }
    assert!(unnoticed.is_empty(), "{}", unnoticed.join("\n"));
}

#[test]
fn the_safeguards_are_listed_with_what_they_prevent() {
    let home = tempfile::tempdir().unwrap();
    let listed = Program::new(home.path()).ok(&["selftest", "--mutations", "-o", "json"]);
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let names: Vec<&str> = listed.iter().map(|line| line["safeguard"].as_str().unwrap()).collect();
    assert_eq!(names, Safeguard::ALL.map(Safeguard::name));
    assert!(listed.iter().all(|line| line["switch"] == "in this build"), "{listed:?}");
}
