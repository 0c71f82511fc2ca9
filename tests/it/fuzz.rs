//! The fuzz targets with a fixed number of made-up inputs, and with everything in their corpora: see `src/fuzz.rs`.

use alluvium::fuzz::{self, Finding, TARGETS, Target};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::root;

/// Files of a corpus.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = root().join("fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() })
}

fn assert_holds(cases: u32, bytes: impl Strategy<Value = Vec<u8>>, target: Target) {
    let outcome = runner(cases).run(&bytes, |bytes| {
        target(&bytes).map_err(TestCaseError::fail)?;
        Ok(())
    });
    if let Err(found) = outcome {
        panic!("{found}");
    }
}

/// Files of the corpus with pieces cut out, doubled, and bytes changed.
fn mutated(name: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let seeds = corpus(name);
    assert!(!seeds.is_empty(), "{name}");
    let edits =
        prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..6);
    (prop::sample::select(seeds), edits).prop_map(|(mut bytes, edits)| {
        for (from, to, byte, edit) in edits {
            if bytes.is_empty() {
                break;
            }
            let (mut start, mut end) = (from.index(bytes.len()), to.index(bytes.len()));
            if start > end {
                std::mem::swap(&mut start, &mut end);
            }
            match edit {
                0 => bytes[start] = byte,
                1 => drop(bytes.drain(start..end.min(start + 20))),
                2 => {
                    let piece = bytes[start..end.min(start + 40)].to_vec();
                    bytes.splice(end..end, piece);
                }
                _ => bytes.insert(start, byte),
            }
        }
        bytes
    })
}

/// Text made of the pieces that a format's parser decides by, behind bytes that choose how it is read.
fn pieces(header: usize, of: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(of.to_vec()).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..3),
    ];
    (prop::collection::vec(any::<u8>(), header), prop::collection::vec(piece, 0..40))
        .prop_map(|(header, pieces)| [header, pieces.concat()].concat())
}

#[test]
fn every_file_of_every_corpus_holds() {
    for (name, target) in TARGETS {
        for bytes in corpus(name) {
            let outcome: Finding = target(&bytes);
            assert_eq!(outcome, Ok(()), "{name}: {}", bytes.escape_ascii());
        }
    }
}

#[test]
fn csv() {
    assert_holds(300, mutated("csv"), fuzz::csv);
    let parts = &[
        "id,amount,at,name,flag\n",
        "id;name\n",
        "1",
        "2.5",
        ",",
        ";",
        "\"",
        "\"\"",
        "'",
        "\\",
        "\n",
        "\r",
        "\r\n",
        " ",
        "a",
        "é",
        "#",
        "true",
        "\u{feff}",
        "2024-01-01T00:00:00Z",
    ];
    assert_holds(400, pieces(3, parts), fuzz::csv);
    let with_header =
        pieces(0, parts).prop_map(|text| [&[0_u8, 0, 0x21], b"id,amount,name\n".as_slice(), &text].concat());
    assert_holds(400, with_header, fuzz::csv);
}

#[test]
fn json() {
    assert_holds(300, mutated("json"), fuzz::json);
    let parts = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"id\"",
        "\"ID\"",
        "\"name\"",
        "\"new\"",
        "\"tags\"",
        "1",
        "-0",
        "1e5",
        "null",
        "true",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\n",
        "\r\n",
        " ",
        "{\"id\":1}",
        "{\"id\":1}\n",
    ];
    assert_holds(800, pieces(2, parts), fuzz::json);
}

#[test]
fn debezium() {
    assert_holds(600, mutated("debezium"), fuzz::debezium);
    let parts = &[
        "{",
        "}",
        ",",
        ":",
        "\"op\":\"u\"",
        "\"op\":\"t\"",
        "\"before\":null",
        "\"after\":{\"id\":1}",
        "\"source\":{\"schema\":\"public\",\"table\":\"t\",\"ts_ms\":5,\"lsn\":7}",
        "\"payload\":",
        "\"schema\":{}",
        "\"value\":",
        "\"key\":{\"id\":1}",
        "\"topic\":\"a.b.c\"",
        "\"partition\":0",
        "\"offset\":41",
        "\"__op\":\"c\"",
        "\"__deleted\":\"true\"",
        "null",
        "1e400",
        "\"\\ud800\"",
        "\n",
        "\r\n",
        " ",
        "{\"op\":\"c\",\"after\":{\"id\":1},\"source\":{\"schema\":\"p\",\"table\":\"t\",\"ts_ms\":1}}\n",
    ];
    assert_holds(800, pieces(1, parts), fuzz::debezium);
}

#[test]
fn cast() {
    assert_holds(2000, mutated("cast"), fuzz::cast);
    let parts = &[
        "1",
        "0",
        "9",
        "-",
        "+",
        ".",
        ",",
        "e",
        "E",
        ":",
        "T",
        "Z",
        "/",
        " ",
        "\t",
        "NaN",
        "inf",
        "2024-02-29",
        "23:59:59",
        "+05:30",
        "true",
        "999999999999",
    ];
    assert_holds(4000, pieces(2, parts), fuzz::cast);
}

#[test]
fn contract() {
    assert_holds(600, mutated("contract"), fuzz::contract);
    let parts = &[
        "version: 1\n",
        "table: raw/t\n",
        "source: ",
        "{ ",
        "} ",
        "[",
        "]",
        "path: \"t\"",
        ", ",
        "format: csv",
        "\ncolumns:\n",
        "  - ",
        "name: a",
        "type: int",
        "type: \"list<",
        "&a ",
        "*a ",
        "\n",
        "\"",
        "'",
        "|\n ",
        "# ",
        ": ",
        "rules: ",
    ];
    assert_holds(1000, pieces(0, parts), fuzz::contract);
}

#[test]
fn invocation() {
    assert_holds(2000, mutated("invocation"), fuzz::invocation);
}

#[test]
fn events() {
    assert_holds(2000, mutated("events"), fuzz::events);
    let parts = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"subject\":",
        "\"/blobServices/default/containers/landing/blobs/",
        "..",
        "/",
        "%2e",
        "%2F",
        "%00",
        "a",
        "\"",
        "\"eventType\":\"Microsoft.Storage.BlobCreated\"",
        "\"data\":",
        "\"eTag\":",
        "{}",
    ];
    assert_holds(2000, pieces(0, parts), fuzz::events);
}
