//! The commands, run as a person or a script runs them: output, formats and exit codes.

use std::path::Path;

use crate::support::contracts::{self, sales};
use crate::support::program::Program;
use crate::support::{drop_file, root, write_contracts};

/// A home with the tests' contracts and two loaded files, one with a bad record.
fn loaded() -> (tempfile::TempDir, Program) {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    let landing = home.path().join("landing");
    drop_file(&landing, "sales/a.csv", sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "2.50")]).as_bytes());
    drop_file(&landing, "sales/b.csv", sales(&[(3, 2, "north", "3.00"), (4, 2, "north", "oops")]).as_bytes());
    program.ok(&["ingest", landing.to_str().unwrap()]);
    (home, program)
}

fn schema(folder: &Path, table: &str, yaml: &str) {
    let file = folder.join(format!("{table}.yaml"));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, yaml).unwrap();
}

#[test]
fn the_shipped_contracts_are_right() {
    let home = tempfile::tempdir().unwrap();
    let done = Program::new(home.path()).run(&["check"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
}

#[test]
fn check_finds_every_mistake_with_its_place_and_a_suggestion() {
    let home = tempfile::tempdir().unwrap();
    let schemas = home.path().join("schemas");
    schema(&schemas, "raw/sales", contracts::RAW);
    schema(&schemas, "aggregate/sales", &contracts::AGGREGATE.replace("from: raw/sales", "from: raw/sale"));
    schema(&schemas, "raw/typo", &contracts::RAW.replace("raw/sales", "raw/typo").replace("write_mode", "write_mod"));
    let done = Program::new(home.path()).schemas(&schemas).run(&["check"]);
    assert_eq!(done.code, Some(3), "{}", done.text());
    let text = done.text();
    for expected in
        ["aggregate/sales.yaml:4:", "raw/sales", "raw/typo.yaml:", "write_mod", "write_mode", "did you mean"]
    {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn a_contract_that_infer_wrote_is_right_and_takes_its_file() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("visits.csv");
    std::fs::write(&file, "id,at,who,paid\n1,2026-01-02T03:04:05Z,Ada,1.50\n2,2026-01-03T03:04:05Z,,20.25\n").unwrap();
    let schemas = home.path().join("schemas");
    std::fs::create_dir_all(&schemas).unwrap();
    let program = Program::new(home.path()).schemas(&schemas);
    let yaml = program.ok(&["infer", file.to_str().unwrap()]);
    let table = yaml.lines().find_map(|line| line.strip_prefix("table: ")).unwrap_or_else(|| panic!("{yaml}")).trim();
    schema(&schemas, table, &yaml);
    program.ok(&["check"]);
    program.ok(&["ingest", file.to_str().unwrap(), "--table", table]);
    let name = table.replace('/', ".");
    assert_eq!(program.value(&format!("select count(*) from {name}")), "2");
    assert_eq!(program.value(&format!("select sum(paid) from {name}")), "21.75", "money is decimal");
}

#[test]
fn ingest_prints_the_row_arithmetic_and_says_what_nobody_takes() {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    let landing = home.path().join("landing");
    drop_file(&landing, "sales/a.csv", sales(&[(1, 1, "north", "1.00"), (4, 2, "north", "oops")]).as_bytes());
    let done = program.run(&["ingest", landing.join("sales").to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "quarantined rows are no failure: {}", done.text());
    drop_file(&landing, "strange/z.txt", b"what is this");
    let done = program.run(&["ingest", landing.join("strange/z.txt").to_str().unwrap()]);
    assert_eq!(done.code, Some(3), "{}", done.text());
    assert!(done.text().contains("strange/z.txt"), "{}", done.text());
    drop_file(&landing, "sales/bad.csv", b"no,such,header\n1,2,3\n");
    let done = program.run(&["ingest", landing.join("sales/bad.csv").to_str().unwrap()]);
    assert_eq!(done.code, Some(3), "a refused file: {}", done.text());
    assert!(done.text().contains("sales/bad.csv"), "{}", done.text());
}

#[test]
fn ingest_copies_what_lies_elsewhere_and_takes_it_once() {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("mine.csv");
    std::fs::write(&file, sales(&[(1, 1, "north", "1.00")])).unwrap();
    for told in ["1 loaded", "1 already loaded"] {
        let said = program.ok(&["ingest", file.to_str().unwrap(), "--table", "raw/sales"]);
        assert!(said.contains(told), "{said}");
    }
    assert!(file.exists());
    assert_eq!(program.value("select count(*) from raw.sales"), "1");
    assert_eq!(program.value("select min(_file) from raw.sales"), "sales/mine.csv");
}

/// Another file of the same name is its next version, whose rows take the place of the old ones: only when that is meant.
#[test]
fn ingest_replaces_a_landed_file_only_when_told_so() {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    let elsewhere = tempfile::tempdir().unwrap();
    let file = |day: &str, id: i64| {
        let file = elsewhere.path().join(day).join("data.csv");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, sales(&[(id, 1, "north", "1.00")])).unwrap();
        file.to_str().unwrap().to_owned()
    };
    program.ok(&["ingest", &file("one", 1), "--table", "raw/sales"]);
    let second = file("two", 2);
    let refused = program.run(&["ingest", &second, "--table", "raw/sales"]);
    assert_eq!(refused.code, Some(1), "{}", refused.text());
    assert!(
        refused.stderr.contains("another file at sales/data.csv") && refused.stderr.contains("--replace"),
        "{}",
        refused.text()
    );
    assert_eq!(program.value("select min(id) from raw.sales"), "1");
    program.ok(&["ingest", &second, "--table", "raw/sales", "--replace"]);
    assert_eq!(program.value("select sum(id) from raw.sales"), "2");
}

/// A contract with a mistake stops who writes, and nobody who looks.
#[test]
fn commands_that_only_look_do_without_a_contract_that_is_wrong() {
    let (home, program) = loaded();
    schema(
        &home.path().join("schemas"),
        "raw/typo",
        &contracts::RAW.replace("raw/sales", "raw/typo").replace("write_mode", "write_mod"),
    );
    for words in [
        &["status"][..],
        &["tables"],
        &["ledger"],
        &["history", "raw/sales"],
        &["quarantine", "list"],
        &["sql", "select 1"],
    ] {
        let done = program.run(words);
        assert_eq!(done.code, Some(0), "{words:?} {}", done.text());
        assert!(done.stderr.contains("raw/typo.yaml") && done.stderr.contains("alluvium check"), "{}", done.text());
    }
    assert_eq!(program.value("select count(*) from raw.sales"), "3");
    let landing = home.path().join("landing");
    assert_eq!(program.run(&["ingest", landing.to_str().unwrap()]).code, Some(1));
}

#[test]
fn ingest_for_a_table_copies_only_what_the_table_takes() {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    let elsewhere = tempfile::tempdir().unwrap();
    let notes = elsewhere.path().join("notes.txt");
    std::fs::write(&notes, "no sales").unwrap();
    let done = program.run(&["ingest", notes.to_str().unwrap(), "--table", "raw/sales"]);
    assert_eq!(done.code, Some(3), "{}", done.text());
    assert!(done.stderr.contains("raw/sales takes sales/**/*.csv*, not sales/notes.txt"), "{}", done.text());
    std::fs::write(elsewhere.path().join("mine.csv"), sales(&[(1, 1, "north", "1.00")])).unwrap();
    let done = program.run(&["ingest", elsewhere.path().to_str().unwrap(), "--table", "raw/sales"]);
    assert_eq!(done.code, Some(3), "the others are loaded: {}", done.text());
    assert_eq!(program.value("select count(*) from raw.sales"), "1");
    let landed: Vec<_> = std::fs::read_dir(home.path().join("landing/sales")).unwrap().flatten().collect();
    assert_eq!(landed.len(), 1, "{landed:?}");
}

#[test]
fn sql_prints_tables_csv_json_and_ndjson() {
    let (_home, program) = loaded();
    let query = "select id, shop, amount from raw.sales order by id limit 2";
    assert_eq!(program.ok(&["sql", query, "--format", "csv"]), "id,shop,amount\n1,north,1.00\n2,south,2.50\n");
    let lines = program.ok(&["sql", query, "--format", "ndjson"]);
    let rows: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows, program.query(query));
    assert_eq!(rows[1]["shop"], "south");
    let table = program.ok(&["sql", query]);
    assert!(table.contains("shop") && table.contains("south"), "{table}");
}

#[test]
fn sql_says_how_a_table_is_written_there() {
    let (_home, program) = loaded();
    let done = program.run(&["sql", "select * from raw/sales"]);
    assert_eq!(done.code, Some(1), "{}", done.text());
    assert!(done.stderr.contains("have a dot between them"), "{}", done.text());
}

#[test]
fn infer_of_an_empty_file_says_that_it_is_empty() {
    let (home, program) = loaded();
    let empty = home.path().join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let done = program.run(&["infer", empty.to_str().unwrap(), "--table", "raw/empty"]);
    assert_eq!(done.code, Some(1), "{}", done.text());
    assert!(done.stderr.contains("the file is empty"), "{}", done.text());
}

#[test]
fn sql_reads_every_table_but_writes_none() {
    let (_home, program) = loaded();
    for (table, rows) in [
        ("raw.sales", "3"),
        ("aggregate.sales", "3"),
        ("curated.sales_daily", "3"),
        ("quarantine.raw.sales", "1"),
        ("ledger", "2"),
    ] {
        assert_eq!(program.value(&format!("select count(*) from {table}")), rows, "{table}");
    }
    for query in [
        "insert into raw.sales select * from raw.sales",
        "delete from raw.sales",
        "drop table raw.sales",
        "create table x as select 1",
        "copy raw.sales to '/tmp/x.csv'",
    ] {
        let done = program.run(&["sql", query]);
        assert!(matches!(done.code, Some(1 | 2)), "{query}: {:?} {}", done.code, done.text());
    }
    assert_eq!(program.value("select count(*) from raw.sales"), "3");
    let done = program.run(&["sql", "select * from raw.sale"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("raw.sale"), "{}", done.text());
}

#[test]
fn sql_reads_an_older_version() {
    let (home, program) = loaded();
    let landing = home.path().join("landing");
    drop_file(&landing, "sales/late.csv", sales(&[(9, 1, "north", "9.00")]).as_bytes());
    let before: i64 =
        program.query("select count(*) as n from raw.sales").first().and_then(|row| row["n"].as_i64()).unwrap();
    let history: Vec<serde_json::Value> =
        serde_json::from_str(&program.ok(&["history", "raw/sales", "-o", "json"])).unwrap();
    let newest = history.iter().filter_map(|entry| entry["version"].as_i64()).max().unwrap();
    program.ok(&["ingest", landing.to_str().unwrap()]);
    assert_eq!(program.value("select count(*) from raw.sales"), (before + 1).to_string());
    let query = "select count(*) as n from raw.sales";
    let old = program.ok(&["sql", query, "--format", "csv", "--version", &format!("raw.sales={newest}")]);
    assert_eq!(old, format!("n\n{before}\n"));
}

#[test]
fn every_listing_is_json_when_asked() {
    let (_home, program) = loaded();
    for arguments in [
        &["tables", "-o", "json"][..],
        &["status", "-o", "json"],
        &["ledger", "-o", "json"],
        &["quarantine", "list", "-o", "json"],
        &["history", "raw/sales", "-o", "json"],
        &["doctor", "-o", "json"],
        &["check", "-o", "json"],
    ] {
        let text = program.ok(arguments);
        let value: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?}: {e}\n{text}"));
        assert!(value.is_array() || value.is_object(), "{arguments:?}: {value}");
    }
    let ledger = program.query("select rows_in, loaded, quarantined, ignored from ledger where path = 'sales/b.csv'");
    assert_eq!(ledger, [serde_json::json!({"rows_in": 2, "loaded": 1, "quarantined": 1, "ignored": 0})]);
}

#[test]
fn quarantine_shows_the_record_with_its_line_column_and_reason() {
    let (_home, program) = loaded();
    let text = program.ok(&["quarantine", "list"]);
    for expected in ["sales/b.csv", "3", "amount"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let text = program.ok(&["quarantine", "show", "raw/sales"]);
    for expected in ["sales/b.csv", "amount", "oops", "4,2026-01-02,north,oops"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn every_command_has_help_with_an_example_and_usage_errors_are_two() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path());
    let commands = [
        "demo",
        "local",
        "serve",
        "ingest",
        "commit",
        "check",
        "infer",
        "status",
        "tables",
        "sql",
        "history",
        "ledger",
        "quarantine",
        "doctor",
        "selftest",
        "repair",
        "vacuum",
        "completions",
    ];
    let all = program.ok(&["--help"]);
    for command in commands {
        assert!(all.contains(command), "{command} is not in\n{all}");
        let help = program.ok(&[command, "--help"]);
        assert!(help.contains(&format!("alluvium {command}")), "no example in\n{help}");
        assert_eq!(program.run(&[command, "--no-such-flag"]).code, Some(2), "{command}");
    }
    assert_eq!(program.run(&["no-such-command"]).code, Some(2));
    assert_eq!(program.run(&["sql"]).code, Some(2));
    for shell in ["bash", "zsh", "fish"] {
        assert!(program.ok(&["completions", shell]).contains("alluvium"), "{shell}");
    }
}

#[test]
fn logs_never_mix_with_data() {
    let (_home, program) = loaded();
    let program = program.env("ALLUVIUM_LOG", "debug");
    let done = program.run(&["sql", "select 1 as one", "--format", "csv"]);
    assert_eq!(done.stdout, "one\n1\n", "{}", done.stderr);
}

#[test]
fn a_setting_that_cannot_be_used_is_named_with_what_is_expected() {
    let home = tempfile::tempdir().unwrap();
    let done = Program::new(home.path()).env("ALLUVIUM_COMMIT_AGE", "soon").run(&["commit"]);
    assert!(matches!(done.code, Some(1 | 2)), "{}", done.text());
    assert!(done.stderr.contains("ALLUVIUM_COMMIT_AGE") && done.stderr.contains("soon"), "{}", done.text());
}

#[test]
fn the_repository_has_what_the_commands_need() {
    for file in [".env.example", "host.json", "schemas/raw/trips.yaml", "functions/ingest/function.json"] {
        assert!(root().join(file).exists(), "{file}");
    }
}

#[test]
fn check_against_the_lake_says_what_a_contract_would_do_to_its_table() {
    let (home, program) = loaded();
    let before = program.ok(&["history", "raw/sales", "-o", "json"]);
    let done = program.run(&["check", "--against-lake"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
    assert!(done.stderr.contains("stay as they are"), "{}", done.text());
    let next = home.path().join("next");
    let all = [("aggregate/sales", contracts::AGGREGATE), ("curated/sales_daily", contracts::CURATED)];
    all.iter().for_each(|(table, yaml)| schema(&next, table, yaml));
    let path = next.to_str().unwrap().to_owned();
    let wider = contracts::RAW.replace("  - { name: note", "  - { name: clerk, type: string }\n  - { name: note");
    schema(&next, "raw/sales", &wider);
    let done = program.run(&["check", &path, "--against-lake"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
    assert!(done.stdout.contains("raw/sales: column `clerk` is added to the table"), "{}", done.text());
    schema(&next, "raw/sales", &contracts::RAW.replace("decimal(10,2)", "decimal(12,2)"));
    let done = program.run(&["check", &path, "--against-lake"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
    for table in ["raw/sales", "aggregate/sales"] {
        let expected = format!("{table}: column `amount` becomes Decimal128(12, 2) (Decimal128(10, 2) in the table)");
        assert!(done.stdout.contains(&expected), "{expected} is not in\n{}", done.text());
    }
    schema(&next, "raw/sales", &wider.replace("decimal(10,2)", "decimal(8,2)").replace("name: note", "name: Note"));
    let done = program.run(&["check", &path, "--against-lake"]);
    assert_eq!(done.code, Some(3), "{}", done.text());
    for expected in ["raw/sales.yaml:9:", "column `amount` is Decimal128(10, 2)", "`Note` is `note`", "new name"] {
        assert!(done.text().contains(expected), "{expected} is not in\n{}", done.text());
    }
    assert_eq!(program.ok(&["history", "raw/sales", "-o", "json"]), before);
}
