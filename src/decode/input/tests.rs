use std::io::Write as _;

use super::super::testing::{contract, decode, decode_with, refusal};
use super::super::{DecodeError, Options};
use super::*;

const IDS: &str = "columns: [{ name: id, type: int64 }]";

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(content, 1).unwrap()
}

fn read(content: &[u8], label: &str) -> Result<String, String> {
    let reader: Content = Box::new(Cursor::new(content.to_vec()));
    let mut out = Vec::new();
    let read = decompressed(reader, 27).map_err(super::super::DecodeError::from).and_then(|content| {
        let (mut content, _) = text(content, label)?;
        content.read_to_end(&mut out)?;
        Ok(())
    });
    match read {
        Ok(()) => Ok(String::from_utf8_lossy(&out).into_owned()),
        Err(DecodeError::Refused(refusal)) => Err(refusal.rule),
        Err(DecodeError::Read(error)) => Err(format!("read: {error}")),
    }
}

#[test]
fn magic_bytes_decide_and_all_members_are_read() {
    let two = |one: Vec<u8>, other: Vec<u8>| [one, other].concat();
    let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 9, 9][..], &zstd(b"ab")].concat();
    let cases = [
        (b"ab".to_vec(), "ab"),
        (Vec::new(), ""),
        (b"a".to_vec(), "a"),
        (two(gzip(b"a"), gzip(b"b")), "ab"),
        (two(zstd(b"a"), zstd(b"b")), "ab"),
        (skippable, "ab"),
        (gzip(b""), ""),
        (zstd(&gzip(b"no more than one layer")[..0]), ""),
    ];
    for (content, wanted) in cases {
        assert_eq!(read(&content, "utf-8").as_deref(), Ok(wanted), "{content:?}");
    }
}

/// The beginning of an archive with one file of a short name, filled up with `filler`.
fn tar(filler: u8, mark: &[u8]) -> Vec<u8> {
    let mut block = b"trips.csv".to_vec();
    block.resize(257, filler);
    block.extend_from_slice(mark);
    block
}

#[test]
fn a_file_of_another_format_is_named_and_text_that_looks_alike_is_read() {
    let (posix, gnu) = (tar(0, b"ustar\x0000"), tar(0, b"ustar  \0"));
    for (content, named) in [
        (posix.as_slice(), "a tar archive"),
        (&gnu, "a tar archive"),
        (b"PK\x03\x04\x14\0\0\0\x08\0", "zip archive or an Excel"),
        (b"PK\x05\x06\0\0", "empty zip"),
        (b"\xFD7zXZ\0\0\x04", "xz"),
        (b"7z\xBC\xAF\x27\x1C\0\x04", "7z"),
        (b"\x04\x22\x4D\x18\x64\x40", "lz4"),
        (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1\0\0", "old Excel"),
        (b"Obj\x01\x04\x16avro.schema\x02{", "Avro"),
        (b"PAR1\x15\x04\x15", "format: parquet"),
        (b"BZh91AY&SY\x12", "bzip2"),
    ] {
        for kind in ["csv", "ndjson", "json"] {
            let refused = refusal(&contract(&format!("format: {kind}"), IDS), content);
            assert_eq!(refused.rule, "other_format", "{kind}: {content:?}");
            assert!(refused.reason.contains(named), "{}", refused.reason);
        }
    }
    let twice = gzip(&gzip(b"id\n1\n"));
    assert!(refusal(&contract("format: csv", IDS), &twice).reason.contains("gzip once more"));
    assert!(refusal(&contract("format: csv", IDS), &gzip(&posix)).reason.contains("a tar archive"));
    for text in [tar(b' ', b"ustar\x0000"), tar(0, b"ustard"), tar(0, b"ustar   ")] {
        assert!(read(&text, "utf-8").is_ok(), "{text:?}");
    }
    let wide: String = read(b"PK\x03\x04", "utf-16le").unwrap();
    assert_eq!(wide, "\u{4B50}\u{403}");
    for text in
        ["PK,a\n", "BZh9,id\n", "BZh91AY&S", "PAR1,x\n", "ORC\n1", "Obj\t1\n", "Obj\u{1}B\n1\u{1}2\n", "7z", "\u{4}\"M"]
    {
        assert_eq!(read(text.as_bytes(), "utf-8").as_deref(), Ok(text));
    }
}

#[test]
fn a_broken_stream_refuses_the_file() {
    let text: String = (1..20_000).map(|number| format!("{number}\n")).collect();
    let (gz, zst) = (gzip(text.as_bytes()), zstd(text.as_bytes()));
    let mut flipped = gz.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x55;
    let mut wrong_sum = gz.clone();
    let sum = wrong_sum.len() - 6;
    wrong_sum[sum] ^= 1;
    let cases = [
        (gz[..gz.len() - 20].to_vec(), "truncated_gzip"),
        (gz[..gz.len() - 1].to_vec(), "truncated_gzip"),
        (gz[..5].to_vec(), "truncated_gzip"),
        (wrong_sum, "corrupt_gzip"),
        ([gz.clone(), b"more than a header of garbage".to_vec()].concat(), "corrupt_gzip"),
        (zst[..zst.len() - 3].to_vec(), "truncated_zstd"),
        ([zst.clone(), b"not a frame".to_vec()].concat(), "corrupt_zstd"),
    ];
    for (content, rule) in cases {
        assert_eq!(read(&content, "utf-8"), Err(rule.to_owned()));
    }
    // A flipped bit may look like an early end.
    assert!(read(&flipped, "utf-8").unwrap_err().ends_with("_gzip"));
}

#[test]
fn a_cut_stream_delivers_no_part_of_the_file() {
    let rows: String = (1..=100_000).map(|number| format!("{{\"id\":{number}}}\n")).collect();
    let cut = gzip(rows.as_bytes());
    let cut = &cut[..cut.len() - 20];
    let refused = refusal(&contract("format: ndjson", IDS), cut);
    assert_eq!(refused.rule, "truncated_gzip");
    assert!(refused.reason.contains("decompressed bytes"), "{}", refused.reason);
    let csv = format!("id\n{}", (1..=100_000).map(|number| format!("{number}\n")).collect::<String>());
    let cut = gzip(csv.as_bytes());
    assert_eq!(refusal(&contract("format: csv", IDS), &cut[..cut.len() - 20]).rule, "truncated_gzip");
}

#[test]
fn a_disk_that_cannot_be_read_is_not_the_file_s_fault() {
    struct Broken(Cursor<Vec<u8>>);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the disk is gone")),
                count => Ok(count),
            }
        }
    }
    for content in [gzip(b"{\"id\":1}"), zstd(b"{\"id\":1}"), b"{\"id\":1}".to_vec()] {
        let cut = content[..content.len() - 2].to_vec();
        let contract = contract("format: ndjson", IDS);
        let source = contract.files().unwrap();
        let opened = super::super::open(&contract, source, Box::new(Broken(Cursor::new(cut))), &Options::default());
        let read = opened.and_then(|mut decoder| decoder.next_chunk().map(|_| ()));
        let Err(DecodeError::Read(error)) = read else { panic!("not a failed read: {read:?}") };
        assert!(error.to_string().contains("the disk is gone"), "{error}");
    }
}

#[test]
fn a_bomb_is_streamed() {
    // 40 MB of text from a few KB: chunk by chunk, each within its limit.
    let row = format!("{{\"id\":1,\"x\":\"{}\"}}\n", "0".repeat(100_000));
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    for _ in 0..400 {
        encoder.write_all(row.as_bytes()).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let contract = contract("format: ndjson", "columns: [{ name: id, type: int64 }]\nunknown_columns: ignore");
    let source = contract.files().unwrap();
    let mut decoder = super::super::open(&contract, source, Box::new(Cursor::new(bomb)), &Options::default()).unwrap();
    let mut rows = 0;
    while let Some(chunk) = decoder.next_chunk().unwrap() {
        rows += chunk.rows.num_rows();
        let super::super::Raw::Text { bytes, .. } = chunk.raw else { panic!("no text") };
        assert!(bytes.len() < (4 << 20) + row.len());
    }
    assert_eq!(rows, 400);
}

#[test]
fn encodings() {
    let utf16 = |text: &str, mark: &[u8], big: bool| -> Vec<u8> {
        let units = text.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() });
        mark.iter().copied().chain(units).collect()
    };
    let cases: [(Vec<u8>, &str, Result<&str, &str>); 11] = [
        (b"\xEF\xBB\xBF{}".to_vec(), "utf-8", Ok("{}")),
        (b"\xEF\xBB\xBF".to_vec(), "utf-8", Ok("")),
        (b"\xEF\xBB\xBF\xC3\xA9".to_vec(), "windows-1252", Ok("é")),
        (utf16("id\tÆ\n", &[0xFF, 0xFE], false), "utf-8", Ok("id\tÆ\n")),
        (utf16("id\tÆ𝄞\n", &[0xFE, 0xFF], true), "utf-8", Ok("id\tÆ𝄞\n")),
        (utf16("Æ", &[], false), "utf-16", Ok("Æ")),
        (b"Jos\xE9 \x80".to_vec(), "windows-1252", Ok("José €")),
        (b"Jos\xE9".to_vec(), "iso-8859-1", Ok("José")),
        (b"a\0\0".to_vec(), "utf-16", Err("encoding_invalid")),
        (vec![0x00, 0xD8, b'a', 0], "utf-16", Err("encoding_invalid")),
        (vec![0xFF, 0xFE, 0, 0, b'a', 0, 0, 0], "utf-8", Err("utf_32")),
    ];
    for (content, label, wanted) in cases {
        assert_eq!(read(&content, label), wanted.map(str::to_owned).map_err(str::to_owned), "{content:?} as {label}");
    }
    assert!(read(b"a", "klingon").unwrap_err().contains("klingon"));
}

#[test]
fn a_malformed_sequence_names_its_offset() {
    let mut content = b"\xFF\xFE".to_vec();
    content.extend("x".repeat(10_000).encode_utf16().flat_map(u16::to_le_bytes));
    content.extend([0x00, 0xDC, b'y', 0]);
    let refused = refusal(&contract("format: ndjson", IDS), &content);
    assert_eq!((refused.rule.as_str(), refused.byte_offset), ("encoding_invalid", Some(20_002)));
}

#[test]
fn offsets_are_those_of_the_landed_content() {
    let utf16: Vec<u8> =
        "\u{feff}{\"id\":1}\n{\"n\":\"é\",\"id\":\"x\"}\nbad\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for step in [1, 3, 1 << 20] {
        let contract = contract("format: ndjson", "columns: [{ name: id, type: int64 }]\nunknown_columns: ignore");
        let decoded = decode_with(&contract, &utf16, step, &Options::default()).unwrap();
        let super::super::Raw::Text { offsets, .. } = &decoded.chunks[0].raw else { panic!("no text") };
        assert_eq!(offsets, &[2, 20]);
        assert_eq!(decoded.chunks[0].rejects[0].byte_offset, Some(58));
    }
    let marked = decode(&contract("format: csv", IDS), b"\xEF\xBB\xBFid\n1\n2,3\n");
    assert_eq!(marked.chunks[0].rejects[0].byte_offset, Some(8));
}

#[test]
fn limits_follow_memory() {
    let limits = |memory: u64| {
        let options = Options::within(memory);
        (options.chunk_bytes, options.record_limit, options.zstd_window_log)
    };
    assert_eq!(limits(64 << 20), (1 << 20, 8 << 20, 24));
    assert_eq!(limits(512 << 20), (4 << 20, 64 << 20, 27));
    assert_eq!(limits(u64::MAX), (4 << 20, 256 << 20, 27));
    assert_eq!(limits(1), (64 << 10, 64 << 10, 23));
    let mut wide = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    wide.window_log(25).unwrap();
    wide.write_all(&b"id\n1\n".repeat(6_000_000)).unwrap();
    let content = wide.finish().unwrap();
    let contract = contract("format: csv", IDS);
    let refused = |memory: u64| match decode_with(&contract, &content, 1 << 20, &Options::within(memory)) {
        Err(DecodeError::Refused(refusal)) => refusal,
        Err(DecodeError::Read(error)) => panic!("{error}"),
        Ok(_) => panic!("taken"),
    };
    let refusal = refused(64 << 20);
    assert_eq!(refusal.rule, "zstd_window");
    assert!(refusal.reason.contains("16777216 bytes"), "{}", refusal.reason);
}
