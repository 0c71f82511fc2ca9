//! Files of more bytes, columns, text or window than there is memory: streamed within the limit, or refused with a limit
//! that is named. What each takes is the kernel's `VmHWM` of a process of its own.

use crate::support::program::Program;

/// The least that `ALLUVIUM_MEMORY` takes.
const LIMIT: &str = "64MiB";

/// Loads a file of `size`, made while it is read.
fn measure(kind: &str, size: &str) {
    let home = tempfile::tempdir().unwrap();
    // glibc keeps freed blocks of megabytes, more of them with every run: held still, big blocks are given back at once, and
    // what is measured is what the program holds.
    let program = Program::new(home.path()).env("ALLUVIUM_MEMORY", LIMIT).env("MALLOC_MMAP_THRESHOLD_", "1048576");
    let done = program.run(&["bench", "memory", "--size", size, "--kind", kind, "-o", "json"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
    let taken: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!((&taken[0]["within"], &taken[0]["limit"]), (&"yes".into(), &"64.0 MiB".into()), "{}", taken[0]);
}

#[test]
fn very_many_records_are_streamed() {
    measure("csv", "512MiB");
}

#[test]
fn five_thousand_columns_are_streamed() {
    measure("wide", "64MiB");
}

#[test]
fn fields_of_three_megabytes_are_streamed() {
    measure("field", "512MiB");
}

#[test]
fn a_bomb_is_streamed() {
    measure("bomb", "512MiB");
}

#[test]
fn a_file_of_nothing_but_refused_records_is_streamed() {
    measure("refused", "256MiB");
}

#[test]
fn a_quote_that_never_closes_is_refused_with_the_limit() {
    measure("quote", "512MiB");
}

#[test]
fn one_huge_row_group_is_streamed() {
    measure("row_group", "512MiB");
}

#[test]
fn very_many_keys_are_merged_in_parts() {
    measure("upsert", "64MiB");
}
