//! What goes wrong outside: each time an error that names the thing and says what to do, and nothing lost.

use std::path::Path;
use std::process::Command;

use alluvium::error::Directive;
use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::ingest::ingest;

use crate::support::contracts::{self, sales};
use crate::support::program::Program;
use crate::support::{TestLake, rows, settle, write_contracts};

/// Makes the newest version of a table one that asks for features of the future, and gives the commit's file.
fn upgrade_beyond_us(folder: &Path) -> std::path::PathBuf {
    let log = folder.join("_delta_log");
    let commits = std::fs::read_dir(&log).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let last: u64 = commits.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).max().unwrap();
    let file = log.join(format!("{:020}.json", last + 1));
    let protocol = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["quantumPages"],"writerFeatures":["quantumPages"]}}"#;
    std::fs::write(&file, format!("{protocol}\n")).unwrap();
    file
}

#[tokio::test]
async fn a_table_of_a_newer_writer_stops_that_table_and_no_other() {
    let other = contracts::RAW.replace("raw/sales", "raw/other").replace("sales/**", "other/**");
    let lake = TestLake::new(&[("raw/sales", contracts::RAW), ("raw/other", &other)]);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    let staged = lake.drop_file("sales/b.csv", sales(&[(2, 1, "north", "2.00")]));
    lake.ingest(&staged).await;
    let future = upgrade_beyond_us(&lake.folder("raw/sales"));
    let others = lake.drop_file("other/c.csv", sales(&[(3, 1, "north", "3.00")]));
    lake.ingest(&others).await;

    let fresh = lake.another();
    let report = commit(&fresh, CommitOptions { force: true, deadline: None }).await.unwrap();
    assert_eq!(report.failed.len(), 1, "{report:#?}");
    let error = &report.failed[0].error;
    assert_eq!(report.failed[0].table.to_string(), "raw/sales");
    assert!(error.contains("raw/sales") && error.contains("quantumPages"), "{error}");
    assert_eq!(rows::brief(&fresh, "raw/other", &["id"]).await, ["3"], "the other table went on");
    let late = lake.drop_file("sales/c.csv", sales(&[(4, 1, "north", "4.00")]));
    let refused = ingest(&fresh, &late).await.unwrap_err();
    assert!(refused.describe().contains("quantumPages"), "{}", refused.describe());
    assert!(refused.remedy_text().is_some(), "says what to do: {}", refused.describe());

    // The other writer takes its change back (or this program is upgraded): everything arrives.
    std::fs::remove_file(future).unwrap();
    let fresh = lake.another();
    ingest(&fresh, &late).await.unwrap();
    settle(&fresh).await;
    assert_eq!(rows::brief(&fresh, "raw/sales", &["id"]).await, ["1", "2", "4"]);
}

#[tokio::test]
async fn an_event_of_a_file_that_is_gone_is_noted_and_the_file_is_taken_when_it_comes_back() {
    let lake = TestLake::new(contracts::ALL);
    let event = lake.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00")]));
    std::fs::remove_file(lake.landed("sales/a.csv")).unwrap();
    lake.ingest(&event).await;
    lake.settle().await;
    assert_eq!(rows::select(&lake.lake, "ledger", &["path", "status"]).await, [["sales/a.csv", "missing"]]);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1"]);
}

#[tokio::test]
async fn a_path_out_of_the_landing_zone_is_refused() {
    let lake = TestLake::new(contracts::ALL);
    for path in ["../lake/ledger", "sales/../../secret.csv", "/etc/hostname", "sales/./a.csv"] {
        let event = alluvium::event::FileEvent { path: path.to_owned(), etag: None, sequencer: None, bytes: None };
        match ingest(&lake.lake, &event).await {
            Err(error) => assert_eq!(error.kind().directive(), Directive::Reject, "{path}: {}", error.describe()),
            Ok(done) => {
                let taken: Vec<_> =
                    done.iter().filter(|done| done.status == Some(alluvium::manifest::Status::Loaded)).collect();
                assert!(taken.is_empty(), "{path} was read: {taken:?}");
            }
        }
    }
    assert_eq!(lake.rows("raw/sales").await, Vec::<String>::new());
}

/// A home with the tests' contracts, for the binary.
fn home() -> (tempfile::TempDir, Program) {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    (home, program)
}

fn land(home: &Path, path: &str, content: &str) -> String {
    let landing = home.join("landing");
    crate::support::drop_file(&landing, path, content.as_bytes());
    landing.join(path).to_str().unwrap().to_owned()
}

#[test]
fn a_missing_folder_of_contracts_is_named() {
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("no-such-folder");
    for arguments in [&["check"][..], &["commit"], &["ingest", "Cargo.toml"]] {
        let done = Program::new(home.path()).schemas(&missing).run(arguments);
        assert!(matches!(done.code, Some(1 | 3)), "{arguments:?}: {:?}\n{}", done.code, done.text());
        assert!(done.text().contains("no-such-folder"), "{arguments:?}: {}", done.text());
        assert!(!done.text().contains("panicked"), "{arguments:?}: {}", done.text());
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (_home, program) = home();
    let done = program.run(&["ingest", "no-such-file.csv", "--table", "raw/sales"]);
    assert_eq!(done.code, Some(1), "{}", done.text());
    assert!(done.stderr.contains("no-such-file.csv"), "{}", done.text());
}

#[test]
fn an_unreadable_file_is_named_and_is_taken_once_it_can_be_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, program) = home();
    let file = land(home.path(), "sales/a.csv", &sales(&[(1, 1, "north", "1.00")]));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = program.command(&["ingest", &file]);
    if std::fs::read(&file).is_ok() {
        // The superuser reads everything, unless that right is taken away from the process.
        let rights = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"];
        command = wrapped(&command, "setpriv", &rights);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("sales/a.csv") && text.to_lowercase().contains("permission"), "{text}");

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    program.ok(&["ingest", &file]);
    assert_eq!(program.value("select count(*) from raw.sales"), "1");
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    let (home, program) = home();
    let rows: Vec<(i64, u32, &str, &str)> = (0..20_000).map(|id| (id, 1, "north", "1.00")).collect();
    let file = land(home.path(), "sales/big.csv", &sales(&rows));
    // No file may grow beyond 64 blocks of 1,024 bytes; without the trap the signal would end the process.
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"";
    let output = wrapped(&program.command(&["ingest", &file]), "bash", &["-c", limited]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("free space"), "says what to do: {text}");
    assert!(!text.contains("panicked"), "{text}");

    program.ok(&["ingest", &file]);
    assert_eq!(program.value("select count(*) from raw.sales"), "20000");
    assert_eq!(program.value("select count(*) from ledger where status = 'loaded'"), "1");
}

/// `wrapper arguments... program its-arguments...`, with the environment and folder of `command`.
fn wrapped(command: &Command, wrapper: &str, arguments: &[&str]) -> Command {
    let mut outer = Command::new(wrapper);
    outer.args(arguments).arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            outer.env(name, value);
        }
    }
    if let Some(folder) = command.get_current_dir() {
        outer.current_dir(folder);
    }
    outer
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_hides_none_of_its_neighbours() {
    let lake = TestLake::new(&[("raw/sales", contracts::RAW)]);
    lake.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00")]));
    lake.drop_file("sales/z.csv", sales(&[(2, 1, "north", "1.00")]));
    let outside = lake.folder("outside.csv");
    std::fs::write(&outside, "id\n1\n").unwrap();
    std::os::unix::fs::symlink(&outside, lake.landed("sales/m.csv")).unwrap();
    let missing = alluvium::pipeline::reconcile::missing(&lake.lake).await.unwrap();
    let paths: Vec<&str> = missing.iter().map(|version| version.path.as_str()).collect();
    assert_eq!(paths, ["sales/a.csv", "sales/z.csv"]);
}

#[tokio::test]
async fn a_column_that_differs_by_case_stops_its_file_alone() {
    let raw = contracts::RAW.replace("unknown_columns: ignore", "unknown_columns: add");
    let lake = TestLake::new(&[("raw/sales", &raw)]);
    for (file, header) in [("a", "extra"), ("b", "Extra"), ("c", "extra")] {
        let event = lake.drop_file(
            &format!("sales/{file}.csv"),
            format!("id,day,shop,amount,note,{header}\n1,2026-01-01,{file},1.00,,x\n"),
        );
        lake.ingest(&event).await;
    }
    lake.settle().await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["shop", "extra"]).await, ["a x", "c x"]);
    let failed: Vec<Vec<String>> = rows::select(&lake.lake, "ledger", &["path", "status", "reason"]).await;
    let failed: Vec<_> = failed.into_iter().filter(|row| row[1] == "failed").collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0][0] == "sales/b.csv" && failed[0][2].contains("`Extra`"), "{failed:?}");
}

#[tokio::test]
async fn damaged_staged_rows_are_staged_anew() {
    let lake = TestLake::new(&[("raw/sales", contracts::RAW)]);
    let event = lake.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00")]));
    lake.ingest(&event).await;
    let staged = lake.folder("_alluvium/staged/raw/sales/data");
    for entry in std::fs::read_dir(&staged).unwrap() {
        let path = entry.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    }
    lake.settle().await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1"]);
}

#[tokio::test]
async fn a_manifest_that_is_cut_off_costs_its_own_file_a_second_reading_and_nobody_else_anything() {
    let lake = TestLake::new(&[("raw/sales", contracts::RAW)]);
    let event = lake.drop_file("sales/a.csv", sales(&[(1, 1, "north", "1.00")]));
    lake.ingest(&event).await;
    let manifests = lake.folder("_alluvium/staged/raw/sales/manifests");
    for entry in std::fs::read_dir(&manifests).unwrap() {
        let path = entry.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    }
    let other = lake.drop_file("sales/b.csv", sales(&[(2, 1, "north", "1.00")]));
    lake.ingest(&other).await;
    let report = crate::support::commit_once(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["2"]);
    let again: Vec<&str> = report.restage.iter().map(|version| version.path.as_str()).collect();
    assert_eq!(again, ["sales/a.csv"]);
    // If that message is lost: the file is found by listing as well.
    let missing = alluvium::pipeline::reconcile::missing(&lake.another()).await.unwrap();
    assert_eq!(missing.iter().map(|version| version.path.as_str()).collect::<Vec<_>>(), ["sales/a.csv"]);
    lake.ingest(&event).await;
    lake.settle().await;
    assert_eq!(rows::brief(&lake.lake, "raw/sales", &["id"]).await, ["1", "2"]);
    assert_eq!(std::fs::read_dir(&manifests).unwrap().count(), 0);
}

#[tokio::test]
async fn why_a_derived_table_stopped_is_seen_from_anywhere_until_it_works_again() {
    use alluvium::pipeline::status::{TableStatus, status};
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    let future = upgrade_beyond_us(&lake.folder("aggregate/sales"));
    let late = lake.drop_file("sales/b.csv", sales(&[(2, 1, "north", "2.00")]));
    lake.ingest(&late).await;
    async fn stopped(lake: &alluvium::pipeline::lake::Lake) -> Vec<TableStatus> {
        status(lake).await.unwrap().tables.into_iter().filter(|table| table.stopped_since.is_some()).collect()
    }
    let notes = lake.folder("_alluvium/stopped/aggregate/sales");
    for _ in 0..3 {
        let report = commit(&lake.another(), CommitOptions { force: true, deadline: None }).await.unwrap();
        assert_eq!(report.failed.len(), 1, "{report:#?}");
        assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 1, "one reason is one note");
    }
    let now = status(&lake.another()).await.unwrap();
    let aggregate = now.tables.iter().find(|table| table.table.to_string() == "aggregate/sales").unwrap();
    assert!(aggregate.last_error.as_ref().unwrap().contains("quantumPages"), "{aggregate:#?}");
    let raw = now.tables.iter().find(|table| table.table.to_string() == "raw/sales").unwrap();
    assert_eq!((raw.last_error.as_deref(), raw.rows), (None, Some(2)));

    std::fs::remove_file(future).unwrap();
    let fresh = lake.another();
    assert_eq!(stopped(&fresh).await.len(), 1, "until a commit tried it");
    settle(&fresh).await;
    let now = status(&lake.another()).await.unwrap();
    assert!(now.tables.iter().all(|table| table.last_error.is_none() && table.stopped_since.is_none()), "{now:#?}");
    assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 0);
}

#[tokio::test]
async fn notes_about_stopped_tables_cannot_stop_a_table() {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    let future = upgrade_beyond_us(&lake.folder("aggregate/sales"));
    // A file where the folder of the notes should be: nothing can be noted.
    std::fs::write(lake.folder("_alluvium/stopped"), "in the way").unwrap();
    let report = commit(&lake.another(), CommitOptions { force: true, deadline: None }).await.unwrap();
    assert_eq!(report.failed.len(), 1);
    std::fs::remove_file(future).unwrap();
    let late = lake.drop_file("sales/b.csv", sales(&[(2, 1, "north", "2.00")]));
    let fresh = lake.another();
    ingest(&fresh, &late).await.unwrap();
    settle(&fresh).await;
    assert_eq!(rows::brief(&fresh, "aggregate/sales", &["id"]).await, ["1", "2"]);
    alluvium::pipeline::status::status(&fresh).await.unwrap();
}

#[test]
fn ingest_is_judged_by_the_tables_that_it_feeds() {
    let home = tempfile::tempdir().unwrap();
    let other = contracts::RAW.replace("raw/sales", "raw/other").replace("sales/**", "other/**");
    let mut contracts = contracts::ALL.to_vec();
    contracts.push(("raw/other", &other));
    write_contracts(home.path(), &contracts);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    let first = land(home.path(), "other/a.csv", &sales(&[(1, 1, "north", "1.00")]));
    program.ok(&["ingest", &first]);
    upgrade_beyond_us(&home.path().join("lake/raw/other"));
    let file = land(home.path(), "sales/a.csv", &sales(&[(1, 1, "north", "1.00")]));
    let done = program.run(&["ingest", &file]);
    assert_eq!(done.code, Some(0), "raw/other is none of its business: {}", done.text());
    // What is derived from a table that it feeds is.
    upgrade_beyond_us(&home.path().join("lake/curated/sales_daily"));
    let file = land(home.path(), "sales/b.csv", &sales(&[(2, 1, "north", "1.00")]));
    let done = program.run(&["ingest", &file]);
    assert_eq!(done.code, Some(1), "{}", done.text());
    let stopped: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("stopped: ")).collect();
    assert!(stopped.len() == 1 && stopped[0].contains("curated/sales_daily"), "{}", done.text());
}

/// An empty text in a column that the table is partitioned by is one record's trouble, not the table's.
#[tokio::test]
async fn an_empty_text_in_a_partition_column_is_quarantined() {
    let raw = "version: 1\ntable: raw/p\nsource: { path: \"p/*.csv\", format: csv }\npartition_by: [p]\ncolumns:\n  - { name: id, type: int64 }\n  - { name: p, type: string }\n";
    let lake = TestLake::new(&[("raw/p", raw)]);
    lake.load("p/1.csv", "id,p\n1,a\n2,\"\"\n3,\n").await;
    assert_eq!(rows::brief(&lake.lake, "raw/p", &["id", "p"]).await, ["1 a", "3 null"]);
    let refused = rows::select(&lake.lake, "quarantine/raw/p", &["record", "rules"]).await;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0][1].contains("p_invalid"), "{refused:?}");
}
