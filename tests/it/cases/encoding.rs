//! Bytes that are not the UTF-8 that was expected, and what compression does to files.

use std::io::Write as _;

use super::run::{contract, csv, load};

const ID_NAME: [&str; 2] = ["id int64", "name string"];

/// gzip at its fastest.
pub(super) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}

fn utf16(text: &str) -> Vec<u8> {
    let mark = [0xFF, 0xFE];
    mark.into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

#[tokio::test]
async fn enc_01_bytes_that_are_no_utf8_refuse_their_own_record() {
    let content = b"id,name\n1,Jos\xe9\n2,Ann\n";
    let outcome = csv(&ID_NAME, content).await;
    outcome.is(&["a.csv:2 2|Ann"], &["a.csv:1@2 name_invalid <1,Jos\\xe9>"]);
    outcome.says(&["a.csv:1 name", "UTF-8", "0xE9"]);
    for label in ["windows-1252", "cp1252"] {
        let declared = contract(&format!("format: csv, encoding: {label}"), &ID_NAME, "");
        load(&declared, &[("a.csv", content)]).await.is(&["a.csv:1 1|José", "a.csv:2 2|Ann"], &[]);
    }
}

#[tokio::test]
async fn enc_02_utf_16_is_decoded_by_its_mark() {
    let content = utf16("id\tname\n1\tÆ\nx\t東京\n");
    let outcome = load(&contract("format: csv, delimiter: \"\\t\"", &ID_NAME, ""), &[("a.csv", &content)]).await;
    outcome.is(&["a.csv:1 1|Æ"], &["a.csv:2@3 id_invalid <x\\x09\\xe6\\x9d\\xb1\\xe4\\xba\\xac>"]);
    let big_endian: Vec<u8> = content.chunks(2).flat_map(|pair| [pair[1], pair[0]]).collect();
    let outcome = load(&contract("format: csv, delimiter: \"\\t\"", &ID_NAME, ""), &[("a.csv", &big_endian)]).await;
    assert_eq!(outcome.rows, ["a.csv:1 1|Æ"]);
    // Half a unit at the end: the file is not whole.
    let cut =
        load(&contract("format: csv, delimiter: \"\\t\"", &ID_NAME, ""), &[("a.csv", &content[..content.len() - 1])])
            .await;
    assert_eq!((cut.rows.len(), cut.refused.len()), (0, 1), "{cut:#?}");
}

#[tokio::test]
async fn enc_04_cut_streams_and_lying_names() {
    let numbers: String = std::iter::once("id\n".to_owned()).chain((1..=100_000).map(|n| format!("{n}\n"))).collect();
    let whole = gzip(numbers.as_bytes());
    let zstd = zstd::encode_all(numbers.as_bytes(), 1).unwrap();
    let cut = [
        ("t.csv.gz", &whole[..whole.len() - 20], "truncated_gzip"),
        ("t.csv.zst", &zstd[..zstd.len() - 20], "truncated_zstd"),
    ];
    for (name, content, rule) in cut {
        let outcome = load(&contract("format: csv", &["id int64"], ""), &[(name, content)]).await;
        outcome.is(&[], &[format!("{name} {rule}").as_str()]);
    }
    let plain = gzip(b"id\n1\n");
    load(&contract("format: csv", &["id int64"], ""), &[("p.csv.gz", b"id\n1\n"), ("q.csv", &plain)])
        .await
        .is(&["p.csv.gz:1 1", "q.csv:1 1"], &[]);
}

#[tokio::test]
async fn enc_05_a_bomb_is_streamed_and_its_neighbours_go_on() {
    // 100 MB in a few KB; tests/it/memory.rs measures what it takes.
    let line = format!("1,{}\n", "0".repeat(998));
    let content = "id,t\n".to_owned() + &line.repeat(100_000);
    let bomb = zstd::encode_all(content.as_bytes(), 1).unwrap();
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    let rules = "rules:\n  - { name: short, check: \"length(t) < 998\" }\nmax_quarantine: 10";
    let outcome = load(
        &contract("format: csv", &["id int64", "t string"], rules),
        &[("a.csv", &bomb), ("b.csv", b"id,t\n2,x\n")],
    )
    .await;
    outcome.is(&["b.csv:1 2|x"], &["a.csv max_quarantine"]);
}

#[tokio::test]
async fn enc_06_values_are_never_normalised() {
    csv(&["id int64", "k string"], "id,k\n1,caf\u{e9}\n2,cafe\u{301}\n3,caf\u{e9}\u{200b}\n4,x\u{a0}\n")
        .await
        .is(&["a.csv:1 1|caf\u{e9}", "a.csv:2 2|cafe\u{301}", "a.csv:3 3|caf\u{e9}\u{200b}", "a.csv:4 4|x\u{a0}"], &[]);
}
