use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::util::display::array_value_to_string;
use proptest::prelude::*;

use super::*;
use crate::decode::{FaultKind, Raw, Reject};
use crate::schema::{Column, ColumnType, CsvDialect, Format, OnOverwrite, Origin, UnknownColumns, WriteMode};

/// A contract of a CSV source with these columns.
pub(crate) fn contract(columns: Vec<Column>) -> Contract {
    let source = Source::new("t/*.csv", Format::Csv);
    Contract {
        table: "raw/t".parse().unwrap(),
        description: None,
        origin: Origin::Files(source),
        columns,
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        partition_by: Vec::new(),
        sequence_by: Vec::new(),
        on_overwrite: OnOverwrite::Replace,
        unknown_columns: UnknownColumns::Ignore,
        rules: Vec::new(),
        max_quarantine: None,
        properties: BTreeMap::new(),
        hash: String::new(),
        file: String::new(),
        positions: Default::default(),
    }
}

/// Columns `name:type`, `!` after the type for columns that need a value.
fn table(columns: &str) -> Contract {
    let column = |declared: &str| {
        let (name, kind) = declared.split_once(':').unwrap_or((declared, "s"));
        let column_type = match kind.trim_end_matches('!') {
            "i" => ColumnType::Int64,
            "f" => ColumnType::Float64,
            "d" => ColumnType::Decimal(12, 2),
            _ => ColumnType::String,
        };
        let mut column = Column::new(name, column_type);
        column.nullable = !kind.ends_with('!');
        column
    };
    contract(columns.split(' ').map(column).collect())
}

/// Everything that a file gave, without the borders of its chunks.
#[derive(Debug, Default, PartialEq)]
struct Read {
    /// `_row: value|value`, null as `~`.
    rows: Vec<String>,
    /// record, column, kind, value
    faults: Vec<(i64, usize, FaultKind, Option<String>)>,
    rejects: Vec<Reject>,
    /// record, line, offset, bytes
    places: Vec<(i64, i64, i64, Vec<u8>)>,
    raw: Vec<String>,
    refused: Option<Refusal>,
    unknown: Vec<String>,
    chunks: usize,
}

fn read_with(contract: &Contract, dialect: &CsvDialect, bytes: &[u8], options: &Options) -> Read {
    let source = Source { csv: dialect.clone(), ..contract.files().unwrap().clone() };
    let content = Box::new(std::io::Cursor::new(bytes.to_vec()));
    let mut read = Read::default();
    let mut decoder = match open(&Arc::new(contract.clone()), &source, content, options) {
        Ok(decoder) => decoder,
        Err(DecodeError::Refused(refusal)) => return Read { refused: Some(refusal), ..read },
        Err(DecodeError::Read(error)) => panic!("{error}"),
    };
    read.unknown = decoder.unknown_columns();
    loop {
        match decoder.next_chunk() {
            Ok(Some(chunk)) => take(&mut read, &chunk, bytes),
            Ok(None) => break,
            Err(DecodeError::Refused(refusal)) => {
                read.refused = Some(refusal);
                break;
            }
            Err(DecodeError::Read(error)) => panic!("{error}"),
        }
    }
    assert!(decoder.next_chunk().is_ok_and(|chunk| chunk.is_none()) || read.refused.is_some());
    read
}

fn take(read: &mut Read, chunk: &Chunk, content: &[u8]) {
    read.chunks += 1;
    let last = chunk.rows.num_columns() - 1;
    let numbers = chunk.rows.column(last).as_primitive::<arrow::datatypes::Int64Type>();
    let text = |array: &dyn Array, row: usize| {
        if array.is_null(row) { "~".to_owned() } else { array_value_to_string(array, row).unwrap() }
    };
    let Raw::Text { bytes, spans, lines, offsets } = &chunk.raw else { panic!("CSV is text") };
    assert_eq!((spans.len(), lines.len(), offsets.len()), (chunk.rows.num_rows(), spans.len(), spans.len()));
    assert_eq!(chunk.raw_columns.num_rows(), spans.len());
    for row in 0..chunk.rows.num_rows() {
        let cells: Vec<String> = (0..last).map(|column| text(chunk.rows.column(column), row)).collect();
        read.rows.push(format!("{}: {}", numbers.value(row), cells.join("|")));
        let raw = &bytes[spans[row].0 as usize..spans[row].1 as usize];
        let offset = usize::try_from(offsets[row]).unwrap();
        assert_eq!(raw, &content[offset..offset + raw.len()], "the offset is where the bytes are");
        read.places.push((numbers.value(row), lines[row], offsets[row], raw.to_vec()));
        let cells: Vec<String> = chunk.raw_columns.columns().iter().map(|column| text(column, row)).collect();
        read.raw.push(cells.join("|"));
    }
    for fault in &chunk.faults {
        read.faults.push((numbers.value(fault.row), fault.column, fault.kind, fault.value.clone()));
    }
    for reject in &chunk.rejects {
        let offset = usize::try_from(reject.byte_offset.unwrap()).unwrap();
        assert_eq!(reject.raw, &content[offset..offset + reject.raw.len()]);
        assert_eq!(1, reject.reasons.len());
    }
    read.rejects.extend(chunk.rejects.iter().cloned());
}

fn read(contract: &Contract, text: impl AsRef<[u8]>) -> Read {
    read_with(contract, &CsvDialect::default(), text.as_ref(), &Options::default())
}

fn reject(read: &Read, index: usize) -> (i64, i64, &str, &str) {
    let reject = &read.rejects[index];
    let value = reject.reasons[0].value.as_deref().unwrap();
    (reject.record.unwrap(), reject.line.unwrap(), reject.rules[0].as_str(), value)
}

#[test]
fn csv_01_quoted_header() {
    assert_eq!(read(&table("id:i name"), "\"id\",\"name\"\r\n\"7\",\"Ann\"\r\n").rows, ["1: 7|Ann"]);
}

#[test]
fn csv_03_quoted_newlines_anywhere() {
    let mut text = String::from("id,t\n");
    for id in 0..3000 {
        text.push_str(&format!("{id},\"first {id}\nsecond, {id}\"\n"));
    }
    for chunk_bytes in [1, 100, 4096, 65_536, 1 << 20] {
        let options = Options { chunk_bytes, ..Options::default() };
        let read = read_with(&table("id:i t"), &CsvDialect::default(), text.as_bytes(), &options);
        assert_eq!((read.rows.len(), read.rejects.len(), read.refused), (3000, 0, None));
        assert_eq!(read.rows[2999], "3000: 2999|first 2999\nsecond, 2999");
        assert_eq!(read.places[2999].1, 2 + 2 * 2999);
    }
}

#[test]
fn csv_04_doubled_returns() {
    let mut text = String::from("id,v\r\r\n");
    for id in 0..500 {
        text.push_str(&format!("{id},x\r\r\n"));
    }
    let read = read(&table("id:i v"), &text);
    assert_eq!((read.rows.len(), read.rejects.len()), (500, 0));
    assert_eq!(read.rows[499], "500: 499|x");
    assert_eq!(read.places[499].1, 501);
}

#[test]
fn old_line_ends_and_none_at_the_end() {
    for text in ["id,v\r1,a\r2,b", "id,v\r1,a\r2,b\r", "id,v\n1,a\n2,b", "id,v\r\n1,a\r\n2,b\r\n"] {
        let read = read(&table("id:i v"), text);
        assert_eq!(read.rows, ["1: 1|a", "2: 2|b"], "{text:?}");
        assert_eq!(read.places[1].1, 3, "{text:?}");
    }
}

#[test]
fn csv_05_stray_quotes_are_text() {
    let read = read(&table("sku desc qty:i"), "sku,desc,qty\nP1,Pipe 24\",5\nP2,Hose,6\nP3,Nut 3/8\",7\n");
    assert_eq!(read.rows, ["1: P1|Pipe 24\"|5", "2: P2|Hose|6", "3: P3|Nut 3/8\"|7"]);
}

#[test]
fn csv_06_a_quote_that_never_closes_refuses_the_file() {
    let text = "a,b\n1,\"ok\"\n2,\"oops\n3,x\n4,y\n";
    for chunk_bytes in [1, 8, 1 << 20] {
        let options = Options { chunk_bytes, ..Options::default() };
        let refused = read_with(&table("a:i b"), &CsvDialect::default(), text.as_bytes(), &options).refused.unwrap();
        assert_eq!((refused.rule.as_str(), refused.line), ("unterminated_quote", Some(3)));
        let options = Options { record_limit: 10, ..options };
        let refused = read_with(&table("a:i b"), &CsvDialect::default(), text.as_bytes(), &options).refused.unwrap();
        assert_eq!((refused.rule.as_str(), refused.line), ("record_too_long", Some(3)));
        assert!(refused.reason.contains("10 bytes"));
    }
    let refused = read(&table("a:i b"), "a,b\n1,\"x\ny\nz\",\"oops\n").refused.unwrap();
    assert_eq!(refused.line, Some(4), "the line where the quote opens, not where the record begins");
}

#[test]
fn csv_07_ragged_rows() {
    let read = read(&table("a:i b:i c:i"), "a,b,c\n1,2,3\n4,5\n6,7,8,9\n10,11,12\n");
    assert_eq!(read.rows, ["1: 1|2|3", "4: 10|11|12"]);
    assert_eq!(reject(&read, 0), (2, 3, "field_count", "expected 3 fields, got 2"));
    assert_eq!(reject(&read, 1), (3, 4, "field_count", "expected 3 fields, got 4"));
    assert_eq!(read.rejects[1].raw, b"6,7,8,9");
}

#[test]
fn csv_09_10_12_headers_that_do_not_fit() {
    for (columns, text, rule, says) in [
        ("id:i amt:i", "id,amt,amt,note\n1,10,20,hello\n", "duplicate_column", "column amt at positions 2 and 3"),
        ("id:i name", "id,ID\n1,2\n", "duplicate_column", "`ID`"),
        ("id:i name", "1,Ann\n2,Bob\n", "header_mismatch", "0 of 2 expected columns found in header `1,Ann`"),
        ("id:i! a", "a\nz\n", "missing_column", "id"),
        ("id:i v:i", "Report 2025\nid,v\n1,2\n", "header_mismatch", "Report 2025"),
    ] {
        let read = read(&table(columns), text);
        assert!(read.rows.is_empty());
        let refused = read.refused.unwrap();
        assert_eq!(refused.rule, rule, "{text}");
        assert_eq!(refused.line, Some(1));
        assert!(refused.reason.contains(says), "{}", refused.reason);
    }
    assert_eq!(read(&table("id:i name"), " Id ,NAME\u{a0}\n1,Ann\n").rows, ["1: 1|Ann"]);
}

#[test]
fn csv_11_order_is_the_file_s() {
    let prices = table("id:i price:f cost:f");
    assert_eq!(read(&prices, "id,price,cost\n1,9.0,4.0\n").rows, ["1: 1|9.0|4.0"]);
    assert_eq!(read(&prices, "id,cost,price\n2,3.5,8.5\n").rows, ["1: 2|8.5|3.5"]);
}

#[test]
fn csv_13_files_without_records() {
    for text in ["", "id,name\n", "id,name", "\n", "\r\n\r\n", "\r"] {
        let read = read(&table("id:i name"), text);
        assert_eq!((read.chunks, read.refused), (0, None), "{text:?}");
    }
}

#[test]
fn csv_14_blank_lines_are_no_records() {
    let two = read(&table("a:i b:i"), "a,b\n1,2\n\n,\n3,4\n\n");
    assert_eq!(two.rows, ["1: 1|2", "2: ~|~", "3: 3|4"]);
    assert_eq!(two.places.iter().map(|place| place.1).collect::<Vec<_>>(), [2, 4, 5]);
    assert_eq!(read(&table("a"), "a\nx\n\n\"\"\ny\n").rows, ["1: x", "2: ", "3: y"]);
}

#[test]
fn csv_15_nul_bytes_are_text() {
    let read = read(&table("x y"), "x,y\nhead\0tail,R\n\0\0,S\nok,T\n");
    assert_eq!(read.rows, ["1: head\0tail|R", "2: \0\0|S", "3: ok|T"]);
}

#[test]
fn csv_16_long_fields_and_wide_files() {
    let text = format!("id,t\n1,{}\n2,y\n", "x".repeat(300_000));
    for chunk_bytes in [1000, 1 << 22] {
        let options = Options { chunk_bytes, ..Options::default() };
        let read = read_with(&table("id:i t"), &CsvDialect::default(), text.as_bytes(), &options);
        assert_eq!((read.rows.len(), read.rows[0].len(), read.rows[1].as_str()), (2, 300_005, "2: 2|y"));
        let options = Options { record_limit: 1000, ..options };
        let refused = read_with(&table("id:i t"), &CsvDialect::default(), text.as_bytes(), &options).refused.unwrap();
        assert_eq!((refused.rule.as_str(), refused.line), ("record_too_long", Some(2)));
    }
    let names: Vec<String> = (0..5000).map(|index| format!("c{index}:i")).collect();
    let header: Vec<String> = (0..5000).map(|index| format!("c{index}")).collect();
    let wide = format!("{}\n{}", header.join(","), format!("{}\n", vec!["1"; 5000].join(",")).repeat(20));
    let read = read(&table(&names.join(" ")), &wide);
    assert_eq!((read.rows.len(), read.rejects.len()), (20, 0));
}

#[test]
fn csv_17_separators() {
    let text = "sep=;\nland;loc;cnt\nNO;\"59.9;10.7\";9710,5\n";
    let mut countries = table("land loc cnt:d");
    let refused = read(&countries, text).refused.unwrap();
    assert!(refused.reason.contains("1 header column `land;loc;cnt`, expected 3"), "{}", refused.reason);
    assert!(refused.reason.contains("sep= line says `;`"), "{}", refused.reason);
    countries.columns[2].decimal_separator = b',';
    let dialect = CsvDialect { delimiter: b';', ..CsvDialect::default() };
    let read = read_with(&countries, &dialect, text.as_bytes(), &Options::default());
    assert_eq!(read.rows, ["1: NO|59.9;10.7|9710.50"]);
    assert_eq!(read.places[0].1, 3);
}

#[test]
fn csv_18_a_header_over_two_lines() {
    let mut priced = table("price:f qty:i");
    priced.columns[0].from = vec!["unit\nprice".to_owned()];
    let read = read(&priced, "\"unit\nprice\",qty\n1.5,2\n");
    assert_eq!(read.rows, ["1: 1.5|2"]);
    assert_eq!(read.places[0].1, 3);
}

#[test]
fn csv_19_backslashes_before_quotes() {
    let text = "id,t\n1,\"say \\\"hi\"\n2,plain\n3,\"bye \\\" now\"\n4,last\n";
    let plain = read(&table("id:i t"), text);
    assert_eq!(plain.rows, ["2: 2|plain", "4: 4|last"]);
    assert_eq!(reject(&plain, 0), (1, 2, "quote", "text after a closing quote"));
    assert_eq!(reject(&plain, 1).0, 3);
    let dialect = CsvDialect { escape: Some(b'\\'), ..CsvDialect::default() };
    let escaped = read_with(&table("id:i t"), &dialect, text.as_bytes(), &Options::default());
    assert_eq!(escaped.rows, ["1: 1|say \"hi", "2: 2|plain", "3: 3|bye \" now", "4: 4|last"]);
}

#[test]
fn csv_20_preamble_and_repeated_headers() {
    let text = "Report 2025\nid,v\n1,2\nid,v\n3,4\nTOTAL,6\n";
    let dialect = CsvDialect { skip_rows: 1, ..CsvDialect::default() };
    let read = read_with(&table("id:i v:i"), &dialect, text.as_bytes(), &Options::default());
    assert_eq!(read.rows, ["1: 1|2", "2: ~|~", "3: 3|4", "4: ~|6"]);
    let invalid = |record, column, value: &str| (record, column, FaultKind::Invalid, Some(value.to_owned()));
    assert_eq!(read.faults, [invalid(2, 0, "id"), invalid(2, 1, "v"), invalid(4, 0, "TOTAL")]);
    assert_eq!((read.places[1].1, read.places[3].1), (4, 6));
}

#[test]
fn enc_01_bytes_that_are_no_text_fault_their_own_row() {
    let people = table("id:i name");
    let read = read(&people, b"id,name\n1,Jos\xe9\n2,Ann\n3,Zo\xc3\xab\n");
    assert_eq!(read.rows, ["1: 1|~", "2: 2|Ann", "3: 3|Zoë"]);
    assert_eq!(read.faults, [(1, 1, FaultKind::Invalid, Some("Jos\u{fffd}".to_owned()))]);
    assert_eq!(read.places[0], (1, 2, 8, b"1,Jos\xe9".to_vec()));
}

#[test]
fn qar_04_places_and_bytes_survive() {
    let read = read(&table("id:i t"), b"id,t\n1,\"a\nb\"\n2x,\"c\xff\"\n");
    assert_eq!(read.rows, ["1: 1|a\nb", "2: ~|~"]);
    assert_eq!(read.faults.iter().map(|fault| (fault.0, fault.1)).collect::<Vec<_>>(), [(2, 0), (2, 1)]);
    assert_eq!(read.places[1], (2, 4, 13, b"2x,\"c\xff\"".to_vec()));
}

#[test]
fn required_cells_are_missing_not_invalid() {
    let read = read(&table("id:i! t"), "id,t\n,x\nq,y\n");
    let expected = [(1, 0, FaultKind::Missing, None), (2, 0, FaultKind::Invalid, Some("q".to_owned()))];
    assert_eq!(read.faults, expected);
}

#[test]
fn sch_01_absent_and_unknown_columns() {
    let mut policy = table("id:i! tip:d");
    policy.columns[1].default = Some("0.00".to_owned());
    let text = "new,id,x y\n9,1,\"a\"\"b\"\n,2,\n";
    let ignored = read(&policy, text);
    assert_eq!(
        (ignored.rows, ignored.unknown),
        (vec!["1: 1|0.00".to_owned(), "2: 2|0.00".to_owned()], vec!["new".to_owned(), "x y".to_owned()])
    );
    policy.unknown_columns = UnknownColumns::Rescue;
    let rescued = read(&policy, text);
    assert_eq!(rescued.rows, ["1: 1|0.00|{\"new\":\"9\",\"x y\":\"a\\\"b\"}", "2: 2|0.00|{\"new\":null,\"x y\":null}"]);
    assert_eq!(read(&policy, "id\n1\n").rows, ["1: 1|0.00|~"]);
    policy.unknown_columns = UnknownColumns::Add;
    assert_eq!(read(&policy, text).rows, ["1: 1|0.00|9|a\"b", "2: 2|0.00|~|~"]);
    policy.unknown_columns = UnknownColumns::Reject;
    assert_eq!(read(&policy, text).refused.unwrap().rule, "unknown_column");
    // What is kept must be text; the neighbours of a bad record are taken.
    policy.unknown_columns = UnknownColumns::Rescue;
    let bad = read(&policy, b"id,new\n1,\xff\n2,ok\n3\n");
    assert_eq!(bad.rows, ["2: 2|0.00|{\"new\":\"ok\"}"]);
    assert_eq!((reject(&bad, 0).2, reject(&bad, 1).2), ("not_utf8", "field_count"));
    assert_eq!(bad.rejects[0].raw, b"1,\xff");
}

#[test]
fn files_without_header_are_read_by_position() {
    let dialect = CsvDialect { header: false, comment: Some(b'#'), ..CsvDialect::default() };
    let read = read_with(&table("id:i name"), &dialect, b"# made today\n1,Ann\n#x\n2,Bob\n3\n", &Options::default());
    assert_eq!(read.rows, ["1: 1|Ann", "2: 2|Bob"]);
    assert_eq!(reject(&read, 0), (3, 5, "field_count", "expected 2 fields, got 1"));
}

#[test]
fn raw_columns_are_the_text_as_it_came() {
    let mut with_raw = table("id:i t gone");
    with_raw.columns[1].trim = true;
    let options = Options { raw_columns: vec![1, 0, 2], ..Options::default() };
    let read = read_with(&with_raw, &CsvDialect::default(), b"id,t\n 1,\"a\"\"b \"\nx,\n", &options);
    assert_eq!(read.raw, ["a\"b | 1|~", "|x|~"]);
    assert_eq!(read.rows, ["1: 1|a\"b|~", "2: ~|~|~"]);
}

#[test]
fn chunks_have_no_more_records_than_asked_for() {
    let text = format!("a\n{}", "1\n".repeat(10));
    let options = Options { chunk_rows: 3, ..Options::default() };
    let read = read_with(&table("a:i"), &CsvDialect::default(), text.as_bytes(), &options);
    assert_eq!((read.rows.len(), read.chunks), (10, 4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn chunk_sizes_change_nothing(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("a"), Just(","), Just("\n"), Just("\r\n"), Just("\r"), Just("\""), Just("\"\""), Just("\"x\ny\""),
                Just("12"), Just("é"), Just("#"), Just("\\"), Just("\0"), Just("1,b\n"), Just("2,\"q\"\n"),
            ],
            0..60,
        ),
        bad_byte in any::<Option<prop::sample::Index>>(),
        escape: bool,
        header: bool,
        chunk_bytes in prop_oneof![1_usize..40, Just(1024), Just(65_536)],
        chunk_rows in 1_usize..9,
    ) {
        let mut text: Vec<u8> = if header { b"id,t\n".to_vec() } else { Vec::new() };
        text.extend(pieces.concat().bytes());
        if let Some(index) = bad_byte && !text.is_empty() {
            let at = index.index(text.len());
            if at > 5 {
                text[at] = 0xff;
            }
        }
        let dialect = CsvDialect {
            header, escape: escape.then_some(b'\\'), comment: Some(b'#'), ..CsvDialect::default()
        };
        let mut lenient = table("id:i t");
        lenient.unknown_columns = UnknownColumns::Rescue;
        let whole = read_with(&lenient, &dialect, &text, &Options::default());
        let options = Options { chunk_bytes, chunk_rows, ..Options::default() };
        let mut small = read_with(&lenient, &dialect, &text, &options);
        if whole.refused.is_some() {
            // Chunks before the trouble may have been given out; the file is refused all the same.
            prop_assert_eq!(&small.refused, &whole.refused);
            return Ok(());
        }
        small.chunks = whole.chunks;
        prop_assert_eq!(&small, &whole);
        // Every record is somewhere, numbered without gaps.
        let mut numbers: Vec<i64> = whole.places.iter().map(|place| place.0).collect();
        numbers.extend(whole.rejects.iter().filter_map(|reject| reject.record));
        numbers.sort_unstable();
        prop_assert_eq!(numbers.clone(), (1..=numbers.len() as i64).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_writer_quotes_comes_back(rows in prop::collection::vec(("[ -~éß\r\n\0]{0,12}", "[ -~東\r\n]{0,12}"), 0..20), crlf: bool) {
        let end = if crlf { "\r\n" } else { "\n" };
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let mut text = format!("a,b{end}");
        for (a, b) in &rows {
            text.push_str(&format!("{},{}{end}", quoted(a), quoted(b)));
        }
        let read = read(&table("a b"), &text);
        prop_assert!(read.rejects.is_empty() && read.faults.is_empty() && read.refused.is_none());
        let expected: Vec<String> = rows.iter().enumerate().map(|(at, (a, b))| format!("{}: {a}|{b}", at + 1)).collect();
        prop_assert_eq!(read.rows, expected);
    }
}
