use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::decode::testing::{Decoded, contract, decode_with, row_text};

const COLUMNS: &str = "columns: [{ name: id, type: int64 }, { name: name, type: string }, { name: at, type: date }]";

fn options(contract: &Contract) -> Options {
    Options { raw_columns: (0..contract.columns.len()).collect(), ..Options::default() }
}

/// What a file says of its records, and each of them as quarantine would keep it.
fn kept(contract: &Arc<Contract>, content: &[u8]) -> Option<(Header, Vec<Kept>, Decoded)> {
    let reader = Box::new(Cursor::new(content.to_vec()));
    let header = super::super::open(contract, contract.files().unwrap(), reader, &options(contract)).ok()?.header();
    let decoded = decode_with(contract, content, 1 << 20, &options(contract)).ok()?;
    let mut kept = Vec::new();
    for chunk in &decoded.chunks {
        let Raw::Text { bytes, spans, lines, offsets } = &chunk.raw else { panic!("text has bytes") };
        let numbers = chunk.rows.column_by_name(ROW).unwrap().as_primitive::<Int64Type>();
        for (row, (start, end)) in spans.iter().enumerate() {
            let raw = bytes[*start as usize..*end as usize].to_vec();
            kept.push(Kept { record: numbers.value(row), line: lines[row], byte_offset: offsets[row], raw });
        }
        kept.extend(chunk.rejects.iter().map(|reject| Kept {
            record: reject.record.unwrap(),
            line: reject.line.unwrap(),
            byte_offset: reject.byte_offset.unwrap(),
            raw: reject.raw.clone(),
        }));
    }
    // From the stored form, as it comes back.
    Some((Header::from_json(&header?.to_json().unwrap()).unwrap(), kept, decoded))
}

/// Rows with their faults and places, by record.
fn rows(chunks: &[Chunk]) -> BTreeMap<i64, String> {
    let mut found = BTreeMap::new();
    for chunk in chunks {
        let Raw::Text { bytes, spans, lines, offsets } = &chunk.raw else { panic!("text has bytes") };
        let numbers = chunk.rows.column_by_name(ROW).unwrap().as_primitive::<Int64Type>();
        for row in 0..chunk.rows.num_rows() {
            let faults: Vec<_> = chunk
                .faults
                .iter()
                .filter(|fault| fault.row == row)
                .map(|fault| (fault.column, fault.kind, &fault.value, &fault.reason))
                .collect();
            let raw = bytes[spans[row].0 as usize..spans[row].1 as usize].escape_ascii();
            let cells = row_text(&chunk.rows, row);
            let texts = row_text(&chunk.raw_columns, row);
            let line = format!("{cells} {texts} {faults:?} {}@{} <{raw}>", lines[row], offsets[row]);
            assert!(found.insert(numbers.value(row), line).is_none(), "record {} twice", numbers.value(row));
        }
    }
    found
}

fn reread(contract: &Arc<Contract>, header: &Header, kept: &[Kept]) -> Result<BTreeMap<i64, String>, Hindrance> {
    let reader = Rereader::new(contract, contract.files().unwrap(), header, options(contract))?;
    Ok(rows(&reader.read(kept)?))
}

fn utf16(text: &str) -> Vec<u8> {
    [0xFF, 0xFE].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

#[test]
fn records_of_every_kind_of_file_are_read_again_without_it() {
    let csv = "id,name,at\n1,\"a\nb\",2024-01-01\r\nx,c,\n3,\"say \"\"hi\"\"\",2024-01-03\n4,d\n\n5,é,2024-13-01\n";
    let bare = csv.split_once('\n').unwrap().1;
    let json = "[{\"id\":1,\"name\":\"a\"},\n {\"id\":\"x\",\n \"new\":[1]}, 5,{\"id\":3,\"at\":\"2024-01-01\"}]";
    let lines = "{\"id\":1}\r\n{\"id\":\n{\"id\":3,\"name\":\"é\"}\n";
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("format: csv", csv.as_bytes().to_vec()),
        ("format: csv", [b"\xEF\xBB\xBF", csv.as_bytes()].concat()),
        ("format: csv", utf16(csv)),
        (
            "format: csv, encoding: windows-1252",
            csv.replace('é', "?").as_bytes().iter().map(|b| if *b == b'?' { 0xE9 } else { *b }).collect(),
        ),
        ("format: csv, header: false", bare.as_bytes().to_vec()),
        ("format: csv, skip_rows: 2, comment: \"#\"", format!("x\ny\n# z\n{csv}").into_bytes()),
        ("format: csv, delimiter: \";\"", format!("sep=;\n{}", csv.replace(',', ";")).into_bytes()),
        ("format: csv", csv.replace('\n', "\r").into_bytes()),
        ("format: csv", b"id,name,at\n1,\xff,2024-01-01\n2,b,\n".to_vec()),
        ("format: json", json.as_bytes().to_vec()),
        ("format: ndjson", lines.as_bytes().to_vec()),
        ("format: ndjson", utf16(lines)),
        ("format: ndjson", [b"\xEF\xBB\xBF", lines.as_bytes()].concat()),
    ];
    for (format, content) in cases {
        for unknown in ["rescue", "add", "ignore"] {
            let contract = contract(format, &format!("{COLUMNS}\nunknown_columns: {unknown}"));
            let (header, kept, decoded) = kept(&contract, &content).unwrap();
            let wanted = rows(&decoded.chunks);
            assert!(wanted.len() > 1, "{format}");
            assert_eq!(reread(&contract, &header, &kept).unwrap(), wanted, "{format}, {unknown}: {header:?}");
            // Each by itself gives the same; of added columns it has those that it shows.
            for one in kept.iter().filter(|_| unknown != "add") {
                let alone = reread(&contract, &header, std::slice::from_ref(one)).unwrap();
                let expected = wanted.get(&one.record).map(|row| (one.record, row.clone()));
                assert_eq!(alone.into_iter().next(), expected, "{format}, record {}", one.record);
            }
        }
    }
}

#[test]
fn a_record_that_is_another_number_of_records_today_stays_out_alone() {
    let before = contract("format: csv", COLUMNS);
    let content = b"id,name,at\n1,\"a\nb\",\n#2,c,\n3,d,\n'4,e,\n5,f',\n";
    let (header, kept, _) = kept(&before, content).unwrap();
    assert_eq!(kept.len(), 5);
    for (today, wanted) in [
        ("format: csv", vec![1, 2, 3, 4, 5]),
        ("format: csv, comment: \"#\"", vec![1, 3, 4, 5]),
        ("format: csv, quote: null", vec![2, 3, 4, 5]),
        ("format: csv, quote: \"'\"", vec![2, 3, 5]),
    ] {
        let found = reread(&contract(today, COLUMNS), &header, &kept).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), wanted, "{today}: {found:#?}");
    }
}

#[test]
fn bytes_that_were_no_utf8_are_read_in_the_encoding_that_is_declared_now() {
    let (header, kept, _) = kept(&contract("format: csv", COLUMNS), b"id,name,at\n1,Jos\xe9,\n").unwrap();
    let today = contract("format: csv, encoding: windows-1252", COLUMNS);
    let found = reread(&today, &header, &kept).unwrap();
    assert!(found[&1].starts_with("1|José|"), "{found:?}");
    // The file's own mark wins over whatever is declared.
    let marked = [b"\xEF\xBB\xBF".as_slice(), "id,name,at\n1,José,x\n".as_bytes()].concat();
    let (header, kept, _) = super::tests::kept(&contract("format: csv", COLUMNS), &marked).unwrap();
    assert!(reread(&today, &header, &kept).unwrap()[&1].starts_with("1|José|"));
}

#[test]
fn what_is_in_the_way_is_told() {
    let plain = contract("format: csv", COLUMNS);
    let text = b"id,name,at\n1,a,x\n";
    let latin = contract("format: csv, encoding: windows-1252", COLUMNS);
    let bare = contract("format: csv, header: false", COLUMNS);
    let other = COLUMNS.replace("name: id", "name: number").replace("int64 }", "int64, nullable: false }");
    let cases = [
        (&plain, "format: ndjson", COLUMNS, "OtherRecords"),
        (&bare, "format: csv", COLUMNS, "OtherRecords"),
        (&latin, "format: csv", COLUMNS, "NeedsFile"),
        (&latin, "format: csv, encoding: windows-1250", COLUMNS, "NeedsFile"),
        (&plain, "format: csv, encoding: utf-16", COLUMNS, "NeedsFile"),
        (&plain, "format: csv", &other, "Refused(Refusal { rule: \"missing_column\""),
    ];
    for (before, today, columns, wanted) in cases {
        let (header, kept, _) = kept(before, text).unwrap();
        let found = format!("{:?}", reread(&contract(today, columns), &header, &kept).unwrap_err());
        assert!(found.starts_with(wanted), "{today}: {found}");
    }
}

#[test]
fn a_header_that_is_none_is_damage() {
    for text in ["", "{}", "{\"version\":1,\"form\":\"csv\",\"new\":1}"] {
        assert_eq!(Header::from_json(text).unwrap_err().kind(), crate::error::ErrorKind::Corrupt, "{text}");
    }
    let plain = Header::new(Form::Json, None, false).to_json().unwrap();
    assert_eq!(plain, "{\"version\":1,\"form\":\"json\"}");
}

/// Text of the pieces that a format's reader decides by.
fn text(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(pieces), 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_csv_is_read_again_as_it_was_read(
        body in text(&["1", "x", ",", ",", "\"", "\"\"", "'", "\\", "\n", "\n", "\r", "\r\n", "#", " ", "é", "2024-01-01"]),
        dialect in prop::sample::select(vec![
            "format: csv", "format: csv, header: false", "format: csv, comment: \"#\"", "format: csv, escape: \"\\\\\"",
            "format: csv, quote: \"'\"", "format: csv, encoding: utf-16",
        ]),
    ) {
        let contract = contract(dialect, COLUMNS);
        let head = if dialect.contains("header: false") { "" } else { "id,name,at\n" };
        let content = format!("{head}{body}");
        let content = if dialect.contains("utf-16") { utf16(&content) } else { content.into_bytes() };
        if let Some((header, kept, decoded)) = kept(&contract, &content) {
            prop_assert_eq!(reread(&contract, &header, &kept).unwrap(), rows(&decoded.chunks), "{:?}", header);
        }
    }

    #[test]
    fn any_json_is_read_again_as_it_was_read(
        body in text(&["{\"id\":1}", "{\"id\":\"x\",\n\"new\":{}}", "{", "}", "[", "]", ",", "\"", "\\", "\n", "\r\n", " ", "1", "null"]),
        format in prop::sample::select(vec!["format: json", "format: ndjson"]),
    ) {
        let contract = contract(format, COLUMNS);
        if let Some((header, kept, decoded)) = kept(&contract, body.as_bytes()) {
            prop_assert_eq!(reread(&contract, &header, &kept).unwrap(), rows(&decoded.chunks));
        }
    }
}
