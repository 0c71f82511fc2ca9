//! Records that come out of quarantine: once, wherever a process dies, and where they would have stood.

mod kept;

use std::sync::Arc;

use alluvium::event::FileEvent;
use alluvium::faults::Fault;
use alluvium::faults::store::FaultyStore;
use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::pipeline::redrive::{Action, Redriven, redrive};
use alluvium::store::Store;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use url::Url;

use crate::support::program::Program;
use crate::support::{TestLake, assert_ledger, drop_file, open, rows, settle, tables, write_contracts};

const STRICT: &str = "
version: 1
table: raw/t
source: { path: \"t/**\", format: csv }
columns:
  - { name: id, type: int64, nullable: false }
  - { name: amt, type: \"decimal(10,2)\" }
rules:
  - { name: positive, check: \"amt > 0\" }
";

/// Takes digits beyond the scale, and what is negative.
fn lenient() -> String {
    STRICT.replace("\"decimal(10,2)\" }", "\"decimal(10,2)\", rounding: half_up }").replace("amt > 0", "amt > -100")
}

const CONTENT: &str = "id,amt\n1,1.00\n2,2.005\n3,-3.00\n4,x\n5,5.00\n";

const ROWS: [&str; 3] = ["id", "amt", "_row"];

async fn redrive_all(lake: &Lake, dry_run: bool) -> Vec<Redriven> {
    let mut found = Vec::new();
    for contract in lake.catalog.tables().iter().filter(|contract| contract.files().is_some()) {
        found.extend(redrive(lake, contract, dry_run).await.unwrap());
    }
    found
}

/// Record numbers in quarantine: unresolved, resolved.
async fn quarantine(lake: &Lake) -> (Vec<String>, Vec<String>) {
    let mut found = (Vec::new(), Vec::new());
    for row in rows::select(lake, "quarantine/raw/t", &["record", "resolved"]).await {
        if row[1] == "null" { found.0.push(row[0].clone()) } else { found.1.push(row[0].clone()) }
    }
    found.0.sort();
    found.1.sort();
    found
}

#[tokio::test]
async fn what_is_good_under_todays_contract_enters_once_and_is_marked() {
    let mut lake = TestLake::new(&[("raw/t", STRICT)]);
    lake.load("t/a.csv", CONTENT).await;
    assert_eq!(redrive_all(&lake.lake, true).await[0].action, Action::Refused, "nothing changed");
    let batches = rows::select(&lake.lake, "raw/t", &["_batch_id"]).await;
    lake.redeploy(&[("raw/t", &lenient())]);
    let before = (rows::version(&lake.lake, "raw/t").await, lake.tables().await);
    let planned = redrive_all(&lake.lake, true).await;
    assert_eq!((planned[0].action, planned[0].waiting, planned[0].cured), (Action::Redriven, Some(3), 2));
    settle(&lake.lake).await;
    assert_eq!((rows::version(&lake.lake, "raw/t").await, lake.tables().await), before, "a dry run changes nothing");

    assert_eq!(redrive_all(&lake.lake, false).await[0].cured, 2);
    assert_eq!(redrive_all(&lake.lake, false).await[0].action, Action::AlreadyStaged);
    settle(&lake.lake).await;
    let expected = ["1 1.00 1", "2 2.01 2", "3 -3.00 3", "5 5.00 5"];
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, expected);
    let now = rows::select(&lake.lake, "raw/t", &["_batch_id", "_file"]).await;
    assert!(now.iter().all(|row| row[0] == batches[0][0] && row[1] == "t/a.csv"), "{now:?}");
    assert_eq!(quarantine(&lake.lake).await, (vec!["4".to_owned()], vec!["2".to_owned(), "3".to_owned()]));
    assert_eq!(
        rows::brief(&lake.lake, "ledger", &["path", "status", "rows_in", "loaded", "quarantined"]).await,
        ["t/a.csv loaded 2 2 0", "t/a.csv loaded 5 2 3"]
    );
    assert_ledger(&lake.lake).await;

    let status = alluvium::pipeline::status::status(&lake.lake).await.unwrap();
    assert_eq!(status.tables[0].quarantined, 1, "what was redriven no longer counts");
    let again = redrive_all(&lake.lake, false).await;
    assert_eq!((again[0].action, again[0].waiting), (Action::Refused, Some(1)));
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, expected);
}

#[tokio::test]
async fn a_file_that_was_refused_whole_is_read_whole() {
    let mut lake = TestLake::new(&[("raw/t", STRICT)]);
    lake.load("t/a.csv", "id,amt\n1,1.00\n").await;
    lake.load("t/a.csv", "number,amt\n7,7.00\n8,x\n").await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, ["1 1.00 1"], "the last good version stands");
    lake.redeploy(&[("raw/t", &STRICT.replace("{ name: id,", "{ name: id, from: [id, number],"))]);
    let found = redrive_all(&lake.lake, false).await;
    assert_eq!((found[0].action, found[0].waiting, found[0].cured), (Action::Redriven, None, 1));
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, ["7 7.00 1"], "it took the older version's place");
    assert_eq!(quarantine(&lake.lake).await, (vec!["2".to_owned()], vec!["null".to_owned()]));
    // Its own bad record can be redriven in turn.
    let wider = STRICT
        .replace("{ name: id,", "{ name: id, from: [id, number],")
        .replace("\"decimal(10,2)\" }", "\"decimal(10,2)\", null_values: [x] }");
    lake.redeploy(&[("raw/t", &wider)]);
    assert_eq!(redrive_all(&lake.lake, false).await[0].cured, 1);
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, ["7 7.00 1", "8 null 2"]);
    assert_eq!(quarantine(&lake.lake).await.0, Vec::<String>::new());
    assert_ledger(&lake.lake).await;
}

#[tokio::test]
async fn records_of_a_version_that_was_replaced_stay_out() {
    let mut lake = TestLake::new(&[("raw/t", STRICT)]);
    lake.load("t/a.csv", CONTENT).await;
    lake.redeploy(&[("raw/t", &lenient())]);
    // Staged while its version stood; a newer one is committed before it.
    redrive_all(&lake.lake, false).await;
    let event = lake.drop_file("t/a.csv", "id,amt\n9,9.00\n");
    lake.ingest(&event).await;
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, ["9 9.00 1"]);
    assert_eq!(quarantine(&lake.lake).await.1, Vec::<String>::new());
    assert_eq!(redrive_all(&lake.lake, true).await[0].action, Action::Replaced);
    assert_eq!(
        rows::brief(&lake.lake, "ledger", &["status", "loaded"]).await,
        ["loaded 1", "loaded 2", "superseded 0"]
    );
}

#[tokio::test]
async fn two_redrives_under_two_contracts_bring_a_record_once() {
    let mut lake = TestLake::new(&[("raw/t", STRICT)]);
    lake.load("t/a.csv", CONTENT).await;
    lake.redeploy(&[("raw/t", &STRICT.replace("amt > 0", "amt > -100"))]);
    assert_eq!(redrive_all(&lake.lake, false).await[0].cured, 1);
    lake.redeploy(&[("raw/t", &lenient())]);
    assert_eq!(redrive_all(&lake.lake, false).await[0].cured, 2);
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &["id"]).await, ["1", "2", "3", "5"]);
    assert_eq!(quarantine(&lake.lake).await.0, ["4"]);
    assert_ledger(&lake.lake).await;
}

#[tokio::test]
async fn of_one_key_the_later_record_stays_the_newest() {
    let upsert = format!("{STRICT}write_mode: upsert\nprimary_key: [id]\n");
    let mut lake = TestLake::new(&[("raw/t", &upsert)]);
    lake.load("t/a.csv", "id,amt\n1,1.005\n1,2.00\n2,3.00\n2,4.005\n").await;
    lake.redeploy(&[("raw/t", &format!("{}write_mode: upsert\nprimary_key: [id]\n", lenient()))]);
    assert_eq!(redrive_all(&lake.lake, false).await[0].cured, 2);
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, ["1 2.00 2", "2 4.01 4"]);
}

#[tokio::test]
async fn formats_of_every_kind_are_redriven() {
    let json = STRICT.replace("format: csv", "format: ndjson");
    let mut lake = TestLake::new(&[("raw/t", &json)]);
    lake.load("t/a.ndjson", "{\"id\":1,\"amt\":1.005}\n{\"id\":\n{\"id\":3,\"amt\":3}\n").await;
    lake.redeploy(&[("raw/t", &lenient().replace("format: csv", "format: ndjson"))]);
    assert_eq!(redrive_all(&lake.lake, false).await[0].cured, 1);
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, ["1 1.01 1", "3 3.00 3"]);
    assert_eq!(quarantine(&lake.lake).await.0, ["2"]);
}

/// A lake over a disk of its own that survives its processes.
struct World {
    home: tempfile::TempDir,
    disk: Arc<dyn ObjectStore>,
}

/// What a redrive has to go by.
#[derive(Debug, Clone, Copy)]
enum Left {
    /// What quarantine keeps: the file is gone.
    Records,
    /// The file: the quarantine table is of a former version.
    File,
}

impl World {
    /// With a file loaded under the strict contract, and the lenient one deployed since.
    async fn with_quarantine(left: Left) -> Self {
        let world = Self { home: tempfile::tempdir().unwrap(), disk: Arc::new(InMemory::new()) };
        write_contracts(world.home.path(), &[("raw/t", STRICT)]);
        let event: FileEvent = drop_file(&world.home.path().join("landing"), "t/a.csv", CONTENT.as_bytes());
        let (lake, _) = world.process(0, Fault::Refused);
        ingest(&lake, &event).await.unwrap();
        settle(&lake).await;
        match left {
            Left::Records => std::fs::remove_file(world.home.path().join("landing/t/a.csv")).unwrap(),
            Left::File => kept::as_left_by_a_former_version(&lake).await,
        }
        write_contracts(world.home.path(), &[("raw/t", &lenient())]);
        world
    }

    fn process(&self, at: u64, fault: Fault) -> (Lake, impl Fn() -> u64 + use<>) {
        let store = FaultyStore::new(Arc::clone(&self.disk), at, fault);
        let calls = store.counter();
        let store = Store::over(Arc::new(store), Url::parse("memory:///").unwrap(), None);
        (open(self.home.path(), store, crate::support::manual_clock(), Settings::default()), calls)
    }
}

/// One process that redrives and commits, whatever happens to it.
async fn attempt(lake: &Lake) {
    for contract in lake.catalog.tables() {
        let _ = redrive(lake, contract, false).await;
    }
    let _ = commit(lake, CommitOptions { force: true, deadline: None }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_a_redrive_of_kept_records_dies_a_fresh_process_finishes_it() {
    dies_at_every_call(Left::Records).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_a_redrive_from_the_file_dies_a_fresh_process_finishes_it() {
    dies_at_every_call(Left::File).await;
}

async fn dies_at_every_call(left: Left) {
    let calm = World::with_quarantine(left).await;
    let (lake, calls) = calm.process(0, Fault::Refused);
    attempt(&lake).await;
    let all_calls = calls();
    settle(&lake).await;
    let mut expected = tables(&lake).await;
    expected.remove("ledger");
    assert!(all_calls > 20, "the faults fall on {all_calls} calls");
    let faults = [Fault::Refused, Fault::AnswerLost, Fault::DeadBefore, Fault::DeadAfter];
    for at in 1..=all_calls {
        let fault = faults[usize::try_from(at).unwrap() % faults.len()];
        let world = World::with_quarantine(left).await;
        let (faulty, _) = world.process(at, fault);
        attempt(&faulty).await;
        drop(faulty);
        let (fresh, _) = world.process(0, Fault::Refused);
        redrive_all(&fresh, false).await;
        settle(&fresh).await;
        let mut found = tables(&fresh).await;
        found.remove("ledger");
        assert_eq!(found, expected, "{left:?}: {fault:?} at call {at} of {all_calls}");
        assert_eq!(quarantine(&fresh).await.1, ["2", "3"], "{left:?}: {fault:?} at call {at}");
        assert_ledger(&fresh).await;
    }
}

#[test]
fn the_command_says_what_would_come_and_brings_it() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    write_contracts(home.path(), &[("raw/t", STRICT)]);
    let file = home.path().join("a.csv");
    std::fs::write(&file, CONTENT).unwrap();
    program.ok(&["ingest", file.to_str().unwrap(), "--table", "raw/t"]);
    let done = program.run(&["quarantine", "redrive", "raw/t", "--dry-run"]);
    assert_eq!(done.code, Some(0), "nothing to bring: {}", done.text());
    write_contracts(home.path(), &[("raw/t", &lenient())]);
    let done = program.run(&["quarantine", "redrive", "--dry-run"]);
    assert_eq!(done.code, Some(3), "{}", done.text());
    assert!(done.stdout.contains("to be redriven") && done.stderr.contains("2 records would come"), "{}", done.text());
    let done = program.run(&["quarantine", "redrive", "raw/t"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
    assert!(done.stderr.contains("2 records redriven"), "{}", done.text());
    assert_eq!(program.value("select count(*) as n from raw.t"), "4");
    let listed = program.ok(&["quarantine", "show", "raw/t", "-o", "json"]);
    assert!(listed.contains("\"record\":4") && !listed.contains("\"record\":2"), "{listed}");
}
