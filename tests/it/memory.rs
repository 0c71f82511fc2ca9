//! Files of more bytes, columns, text or window than there is memory: streamed within the limit, or refused with a limit
//! that is named. What each takes is the kernel's `VmHWM` of a process of its own.

use crate::support::program::Program;

/// Bytes of each file, made while it is read: eight times the limit.
const SIZE: &str = "512MiB";
/// The least that `ALLUVIUM_MEMORY` takes.
const LIMIT: &str = "64MiB";

fn measure(kinds: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path()).env("ALLUVIUM_MEMORY", LIMIT);
    let mut arguments = vec!["bench", "memory", "--size", SIZE, "-o", "json"];
    arguments.extend(kinds.iter().flat_map(|kind| ["--kind", kind]));
    let done = program.run(&arguments);
    assert_eq!(done.code, Some(0), "{}", done.text());
    let taken: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(taken.len(), kinds.len());
    for one in &taken {
        assert_eq!(one["within"], "yes", "{one}");
        assert_eq!(one["limit"], "64.0 MiB", "{one}");
    }
}

#[test]
fn very_many_records_and_columns_are_streamed() {
    measure(&["csv", "wide"]);
}

#[test]
fn long_fields_and_bombs_are_streamed() {
    measure(&["field", "bomb"]);
}

#[test]
fn a_file_of_nothing_but_refused_records_is_streamed() {
    measure(&["refused"]);
}

#[test]
fn a_quote_that_never_closes_is_refused_with_the_limit() {
    measure(&["quote"]);
}

#[test]
fn one_huge_row_group_is_streamed() {
    measure(&["row_group"]);
}
