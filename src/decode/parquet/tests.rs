use std::collections::HashMap;

use arrow::array::{
    AsArray, BinaryArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int8Array,
    Int32Array, Int64Array, Int64Builder, LargeStringArray, ListArray, MapBuilder, RecordBatchOptions, StringBuilder,
    StringViewArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt8Array, UInt64Array,
};
use arrow::datatypes::{Int8Type, Int64Type};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::super::testing::{contract, decode, decode_with, refusal};
use super::*;

fn file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    written(&[batch])
}

fn written(batches: &[RecordBatch]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batches[0].schema(), None).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    out
}

fn parquet(rest: &str) -> Arc<Contract> {
    contract("format: parquet", rest)
}

fn lines(rest: &str, columns: Vec<(&str, ArrayRef)>) -> Vec<String> {
    decode(&parquet(rest), &file(columns)).lines()
}

#[test]
fn a_file_that_is_cut_is_refused_with_its_size() {
    // PQT-02
    let good = file(vec![("id", Arc::new(Int64Array::from(vec![1, 2])))]);
    let contract = parquet("columns: [{ name: id, type: int64 }]");
    let cut = [&good[..good.len() - 1], &good[..good.len() / 2], b"", b"PAR1", b"PAR1PAR1"];
    for content in cut {
        let refused = refusal(&contract, content);
        assert_eq!(refused.rule, "truncated_parquet");
        assert!(refused.reason.contains(&format!("{} bytes", content.len())), "{}", refused.reason);
    }
    assert_eq!(refusal(&contract, b"id\n1\n").rule, "not_parquet");
    let mut damaged = good.clone();
    let footer = damaged.len() - 20;
    damaged[footer - 40..footer].fill(0xFF);
    assert_eq!(refusal(&contract, &damaged).rule, "corrupt_parquet");
    let mut huge = good;
    let length = huge.len() - 8;
    huge[length..length + 4].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0x7F]);
    assert_eq!(refusal(&contract, &huge).rule, "corrupt_parquet");
}

#[test]
fn damage_anywhere_refuses_and_never_panics() {
    let good = file(vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..500))),
        ("s", Arc::new(StringArray::from_iter_values((0..500).map(|n| format!("text {n}"))))),
    ]);
    let contract = parquet("columns: [{ name: id, type: int64 }, { name: s, type: string }]");
    for at in (4..good.len() - 8).step_by(37) {
        let mut damaged = good.clone();
        damaged[at] ^= 0xA5;
        // Damage in a value is not seen by Parquet; everything else must be a refusal and nothing worse.
        match decode_with(&contract, &damaged, 1 << 20, &Options::default()) {
            Ok(_) | Err(DecodeError::Refused(_)) => {}
            Err(DecodeError::Read(error)) => panic!("byte {at}: {error}"),
        }
    }
}

#[test]
fn one_column_in_different_types() {
    // PQT-04
    let rest = "columns: [{ name: a, type: int64 }]";
    assert_eq!(lines(rest, vec![("a", Arc::new(Int32Array::from(vec![1])))]), ["1|∅|1"]);
    assert_eq!(lines(rest, vec![("a", Arc::new(Int64Array::from(vec![3_000_000_000])))]), ["3000000000|∅|1"]);
    assert_eq!(lines(rest, vec![("a", Arc::new(StringArray::from(vec!["x9"])))]), ["∅|∅|1 !a Invalid x9"]);
    // TYP-15
    let floats = Float64Array::from(vec![2.0, 3.5, 1e19, f64::NAN]);
    let wanted = ["2|∅|1", "∅|∅|2 !a Invalid 3.5", "∅|∅|3 !a Invalid 1e19", "∅|∅|4 !a Invalid NaN"];
    assert_eq!(lines(rest, vec![("a", Arc::new(floats))]), wanted);
}

#[test]
fn unsigned_integers_never_wrap() {
    // TYP-13
    let columns = || -> Vec<(&str, ArrayRef)> {
        vec![("u", Arc::new(UInt64Array::from(vec![5, u64::MAX]))), ("b", Arc::new(UInt8Array::from(vec![7, 200])))]
    };
    let rest = "columns: [{ name: u, type: int64 }, { name: b, type: int32 }]\nunknown_columns: ignore";
    assert_eq!(lines(rest, columns()), ["5|7|1", "∅|200|2 !u Invalid 18446744073709551615"]);
    let rest = "columns: [{ name: u, type: \"decimal(20,0)\" }, { name: b, type: int8 }]\nunknown_columns: ignore";
    assert_eq!(lines(rest, columns()), ["5|7|1", "18446744073709551615|∅|2 !b Invalid 200"]);
}

#[test]
fn strings_of_every_flavour_are_one_string() {
    // PQT-06
    let rest = "columns: [{ name: s, type: string }]\nunknown_columns: ignore";
    let flavours: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![Some("a"), None])),
        Arc::new(LargeStringArray::from(vec![Some("a"), None])),
        Arc::new(StringViewArray::from(vec![Some("a"), None])),
        Arc::new(vec![Some("a"), None].into_iter().collect::<DictionaryArray<Int8Type>>()),
        Arc::new(BinaryArray::from_opt_vec(vec![Some(b"a".as_slice()), None])),
    ];
    for flavour in flavours {
        let decoded = decode(&parquet(rest), &file(vec![("s", Arc::clone(&flavour))]));
        assert_eq!(decoded.lines(), ["a|1", "∅|2"], "{}", flavour.data_type());
        assert_eq!(decoded.chunks[0].rows.column(0).data_type(), &DataType::Utf8);
    }
    let binary = BinaryArray::from_vec(vec![b"ok", b"\xff\xfe"]);
    assert_eq!(lines(rest, vec![("s", Arc::new(binary))]), ["ok|1", "∅|2 !s Invalid 0xfffe"]);
    let trimmed = "columns: [{ name: s, type: string, trim: true, max_length: 3, null_values: [NA] }]";
    let texts = StringArray::from(vec![" a ", "NA", "long", ""]);
    assert_eq!(lines(trimmed, vec![("s", Arc::new(texts))]), ["a|∅|1", "∅|∅|2", "∅|∅|3 !s Invalid long", "|∅|4"]);
}

#[test]
fn one_text_that_is_not_utf8_does_not_fail_its_neighbours() {
    let message = "message m { required int64 id; optional binary s (UTF8); }";
    let mut out = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let schema = Arc::new(parse_message_type(message).unwrap());
    let mut writer = SerializedFileWriter::new(&mut out, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<parquet::data_type::Int64Type>().write_batch(&[1, 2, 3], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let texts = [b"a".to_vec(), vec![0xff, b'x'], b"c".to_vec()].map(parquet::data_type::ByteArray::from);
    column.typed::<parquet::data_type::ByteArrayType>().write_batch(&texts, Some(&[1, 1, 1]), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let decoded = decode(&parquet("columns: [{ name: id, type: int64 }, { name: s, type: string }]"), &out);
    assert_eq!(decoded.lines(), ["1|a|∅|1", "2|∅|∅|2 !s Invalid 0xff78", "3|c|∅|3"]);
    let Raw::Rows(rows) = &decoded.chunks[0].raw else { panic!("no rows") };
    let objects = super::super::row_objects(rows).unwrap();
    assert_eq!(String::from_utf8_lossy(&objects[1]), "{\"id\":2,\"s\":\"0xff78\"}");
    assert_eq!(String::from_utf8_lossy(&objects[2]), "{\"id\":3,\"s\":\"c\"}");
    let rescued = decode(&parquet("columns: [{ name: id, type: int64 }]"), &out);
    assert_eq!(rescued.lines()[0], "1|{\"s\":\"a\"}|1");
}

#[test]
fn empty_files_and_empty_groups() {
    // PQT-07
    let contract = parquet("columns: [{ name: id, type: int64 }]");
    let ids = |numbers: Vec<i64>| {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(numbers))]).unwrap()
    };
    assert!(decode(&contract, &written(&[ids(vec![])])).chunks.is_empty());
    let three = written(&[ids(vec![1, 2, 3]), ids(vec![]), ids(vec![4, 5])]);
    assert_eq!(decode(&contract, &three).lines().len(), 5);
}

#[test]
fn required_columns() {
    // PQT-08
    let contract =
        parquet("columns: [{ name: id, type: int64, nullable: false }, { name: v, type: int32, default: \"9\" }]");
    let refused = refusal(&contract, &file(vec![("v", Arc::new(Int32Array::from(vec![1])))]));
    assert_eq!((refused.rule.as_str(), refused.column.as_deref()), ("missing_column", Some("id")));
    let ids = Int64Array::from(vec![Some(1), None]);
    assert_eq!(decode(&contract, &file(vec![("id", Arc::new(ids))])).lines(), ["1|9|∅|1", "∅|9|∅|2 !id Missing -"]);
    let other = refusal(
        &parquet("columns: [{ name: id, type: int64 }]"),
        &file(vec![("x", Arc::new(Int8Array::from(vec![1])))]),
    );
    assert_eq!(other.rule, "header_mismatch");
    let required = parquet("columns: [{ name: l, type: \"list<int64>\", nullable: false }]");
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![Some(1)]), None]);
    assert_eq!(decode(&required, &file(vec![("l", Arc::new(list))])).lines(), ["[1]|∅|1", "∅|∅|2 !l Missing -"]);
}

#[test]
fn names_match_by_case_only_when_that_is_unique() {
    let one = |number: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![number])) };
    let rest = "columns: [{ name: id, type: int64 }, { name: price, type: int64, from: [\"Unit Price (EUR)\"] }]";
    let found = lines(rest, vec![("ID ", one(1)), ("unit price (eur)", one(2)), ("x=y", one(3))]);
    assert_eq!(found, ["1|2|{\"x=y\":3}|1"]);
    let twice = refusal(&parquet(rest), &file(vec![("id", one(1)), ("ID", one(2))]));
    assert_eq!(twice.rule, "duplicate_column");
    assert!(twice.reason.contains("`id`") && twice.reason.contains("`ID`"), "{}", twice.reason);
    let adds = format!("{rest}\nunknown_columns: add");
    // PQT-05
    assert_eq!(refusal(&parquet(&adds), &file(vec![("id", one(1)), ("x=y", one(3))])).rule, "column_name");
    assert_eq!(lines(&adds, vec![("id", one(1)), ("x", one(3))]), ["1|∅|3|1"]);
    let rejects = format!("{rest}\nunknown_columns: reject");
    assert_eq!(refusal(&parquet(&rejects), &file(vec![("id", one(1)), ("x", one(3))])).rule, "unknown_column");
}

#[test]
fn times() {
    // TIM-05: nanoseconds at both levels; digits beyond microseconds by declared rule
    let nanos = TimestampNanosecondArray::from(vec![1_704_067_200_000_000_001, 1_704_067_200_000_001_000]);
    let inner: ArrayRef = Arc::new(nanos.clone());
    let element = Arc::new(Field::new("item", inner.data_type().clone(), true));
    let list: ArrayRef =
        Arc::new(ListArray::try_new(element, arrow::buffer::OffsetBuffer::from_lengths([1, 1]), inner, None).unwrap());
    let field = Arc::new(Field::new("e", list.data_type().clone(), true));
    let structure: ArrayRef = Arc::new(StructArray::from(vec![(field, list)]));
    let columns = || -> Vec<(&str, ArrayRef)> { vec![("ts", Arc::new(nanos.clone())), ("s", Arc::clone(&structure))] };
    let rest = |rounding: &str| {
        format!(
            "columns: [{{ name: ts, type: timestamp_ntz{rounding} }}, {{ name: s, type: \"struct<e:list<timestamp_ntz>>\" }}]\nunknown_columns: ignore"
        )
    };
    insta::assert_snapshot!(lines(&rest(""), columns()).join("\n"), @r#"
    ∅|∅|1 !ts Invalid 2024-01-01T00:00:00.000000001 !s Invalid {"e":["2024-01-01T00:00:00.000000001"]}
    2024-01-01T00:00:00.000001|{"e":["2024-01-01T00:00:00.000001"]}|2
    "#);
    insta::assert_snapshot!(lines(&rest(", rounding: down"), columns()).join("\n"), @r#"
    2024-01-01T00:00:00|∅|1 !s Invalid {"e":["2024-01-01T00:00:00.000000001"]}
    2024-01-01T00:00:00.000001|{"e":["2024-01-01T00:00:00.000001"]}|2
    "#);
    // a zone makes an instant, none makes none
    let instants = TimestampMillisecondArray::from(vec![1_000]).with_timezone("UTC");
    let locals = TimestampMicrosecondArray::from(vec![1_000_000]);
    let both = || -> Vec<(&str, ArrayRef)> { vec![("i", Arc::new(instants.clone())), ("l", Arc::new(locals.clone()))] };
    let rest = "columns: [{ name: i, type: timestamp }, { name: l, type: timestamp_ntz }]\nunknown_columns: ignore";
    assert_eq!(lines(rest, both()), ["1970-01-01T00:00:01Z|1970-01-01T00:00:01|1"]);
    let rest = "columns: [{ name: i, type: string }, { name: l, type: timestamp }]\nunknown_columns: ignore";
    insta::assert_snapshot!(lines(rest, both()).join("\n"), @r#"1970-01-01T00:00:01Z|∅|1 !l Invalid 1970-01-01T00:00:01"#);
    let far = TimestampMicrosecondArray::from(vec![i64::MAX, 0]).with_timezone("UTC");
    let rest = "columns: [{ name: i, type: timestamp }]\nunknown_columns: ignore";
    let far = lines(rest, vec![("i", Arc::new(far))]);
    assert_eq!(far, ["∅|1 !i Invalid 9223372036854775807", "1970-01-01T00:00:00Z|2"]);
    let odd = TimestampMicrosecondArray::from(vec![i64::MIN]);
    let rest = "columns: [{ name: i, type: int64 }]";
    let odd = lines(rest, vec![("i", Arc::new(Int8Array::from(vec![1]))), ("odd", Arc::new(odd))]);
    assert_eq!(odd, ["1|{\"odd\":-9223372036854775808}|1"]);
    let days = Date32Array::from(vec![0, i32::MAX]);
    let days = lines("columns: [{ name: d, type: date }]\nunknown_columns: ignore", vec![("d", Arc::new(days))]);
    assert!(days[0].starts_with("1970-01-01|1") && days[1].starts_with("∅|2 !d Invalid"), "{days:?}");
    let clock = Time64MicrosecondArray::from(vec![3_661_000_001]);
    let clock = lines("columns: [{ name: t, type: string }]\nunknown_columns: ignore", vec![("t", Arc::new(clock))]);
    assert_eq!(clock, ["01:01:01.000001|1"]);
}

#[test]
fn int96_reaches_all_years() {
    // TIM-06
    let day = 86_400_000_000_i64;
    let of = |micros: i64| {
        let mut value = Int96::new();
        let (days, rest) = (micros.div_euclid(day), micros.rem_euclid(day) * 1_000);
        value.set_data(rest as u32, (rest >> 32) as u32, u32::try_from(days + 2_440_588).unwrap());
        value
    };
    let micros = [253_402_214_400_000_000, -62_135_596_800_000_000, 1_717_200_000_000_000];
    let schema = Arc::new(parse_message_type("message m { required int96 t; }").unwrap());
    let mut out = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut out, schema, Arc::new(WriterProperties::builder().build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(&micros.map(of), None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    for data_type in ["timestamp", "timestamp_ntz"] {
        let contract = parquet(&format!("columns: [{{ name: t, type: {data_type} }}]"));
        let decoded = decode(&contract, &out);
        let found = decoded.chunks[0].rows.column(0).as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
        assert_eq!(found.values().as_ref(), micros, "{data_type}");
        assert!(decoded.chunks[0].faults.is_empty());
    }
}

#[test]
fn decimals_and_floats() {
    // TYP-06 by Parquet
    let decimals =
        Decimal128Array::from(vec![10_050, 19_950, -10_050, 23_500]).with_precision_and_scale(12, 4).unwrap();
    let columns = || -> Vec<(&str, ArrayRef)> { vec![("d", Arc::new(decimals.clone()))] };
    let rest = |more: &str| format!("columns: [{{ name: d, type: \"decimal(10,2)\"{more} }}]\nunknown_columns: ignore");
    let found = lines(&rest(""), columns());
    assert_eq!(found[3], "2.35|4");
    assert!(found[..3].iter().all(|line| line.contains("!d Invalid")), "{found:?}");
    assert_eq!(lines(&rest(", rounding: half_up"), columns()), ["1.01|1", "2.00|2", "-1.01|3", "2.35|4"]);
    let floats = Float32Array::from(vec![0.1, -0.0]);
    let found = lines("columns: [{ name: f, type: float32 }]\nunknown_columns: ignore", vec![("f", Arc::new(floats))]);
    assert_eq!(found, ["0.1|1", "-0.0|2"]);
}

#[test]
fn nested_values() {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
        Some(vec![Some(5_000_000_000), Some(6_000_000_000)]),
    ]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for (key, value) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        map.keys().append_value(key);
        map.values().append_value(value);
        map.append(true).unwrap();
    }
    let columns =
        || -> Vec<(&str, ArrayRef)> { vec![("l", Arc::new(list.clone())), ("m", Arc::new(map.finish_cloned()))] };
    let rest = "columns: [{ name: l, type: \"list<int32>\" }, { name: m, type: \"map<string,int32>\" }]\nunknown_columns: ignore";
    insta::assert_snapshot!(lines(rest, columns()).join("\n"), @r#"
    [1,null]|{"a":1}|1
    ∅|{"b":2}|2
    []|{"c":3}|3
    ∅|{"d":4}|4 !l Invalid [5000000000,6000000000]
    "#);
    let rest = "columns: [{ name: l, type: string }, { name: m, type: \"map<int64,int32>\" }]\nunknown_columns: ignore";
    insta::assert_snapshot!(lines(rest, columns()).join("\n"), @r#"
    ∅|∅|1 !l Invalid [1,null] !m Invalid {"a":1}
    ∅|∅|2 !m Invalid {"b":2}
    ∅|∅|3 !l Invalid [] !m Invalid {"c":3}
    ∅|∅|4 !l Invalid [5000000000,6000000000] !m Invalid {"d":4}
    "#);
}

#[test]
fn paths_and_unknown_fields_of_structs() {
    let field = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
    let (b, c): (ArrayRef, ArrayRef) =
        (Arc::new(Int64Array::from(vec![1, 2])), Arc::new(StringArray::from(vec![Some("x"), None])));
    let nulls = arrow::buffer::NullBuffer::from(vec![true, false]);
    let fields = vec![field("b", &b), field("c", &c)];
    let a: ArrayRef = Arc::new(StructArray::try_new(fields.into(), vec![b, c], Some(nulls)).unwrap());
    let content = file(vec![("a", a), ("n", Arc::new(Float64Array::from(vec![Some(f64::NAN), None])))]);
    let whole = parquet("columns: [{ name: a, type: \"struct<b:int64>\" }]");
    let decoded = decode(&whole, &content);
    assert_eq!(decoded.lines(), ["{\"b\":1}|{\"n\":\"NaN\",\"a.c\":\"x\"}|1", "∅|∅|2"]);
    assert_eq!(decoded.unknown, ["n", "a.c"]);
    let path = parquet("columns: [{ name: b, type: int64, from: a.b }]\nunknown_columns: add");
    assert_eq!(decode(&path, &content).lines(), ["1|x|NaN|1", "∅|∅|∅|2"]);
    let raw = &decoded.chunks[0].raw_columns;
    assert_eq!(super::super::value_text(raw.column(0), 0).unwrap().as_deref(), Some("{\"b\":1,\"c\":\"x\"}"));
}

#[test]
fn a_big_file_goes_through_a_nameless_file_in_chunks() {
    let numbers = Int64Array::from_iter_values((0..400_000).map(|number| number * 7_919 % 1_000_003));
    let texts = StringArray::from_iter_values((0..400_000).map(|number| format!("{number:>20}{}", number * 31 % 977)));
    let content = file(vec![("id", Arc::new(numbers)), ("s", Arc::new(texts))]);
    let padded = content.len();
    assert!(padded > 8 << 20, "{padded} bytes stay in memory");
    let contract = parquet("columns: [{ name: id, type: int64 }]\nunknown_columns: ignore");
    let options = Options { chunk_rows: 1_000, ..Options::default() };
    let decoded = decode_with(&contract, &content, 1 << 20, &options).unwrap();
    assert_eq!(decoded.chunks.len(), 400);
    let rows: i64 = decoded.chunks.iter().map(|chunk| chunk.rows.num_rows() as i64).sum();
    assert_eq!(rows, 400_000);
    let last = &decoded.chunks[399].rows;
    assert_eq!(last.column(1).as_primitive::<Int64Type>().value(999), 400_000);
}

#[test]
fn rows_without_columns_of_the_contract_are_rows() {
    let schema = Arc::new(Schema::new_with_metadata(vec![Field::new("x", DataType::Int64, true)], HashMap::new()));
    let options = RecordBatchOptions::new();
    let batch =
        RecordBatch::try_new_with_options(schema, vec![Arc::new(Int64Array::from(vec![1, 2]))], &options).unwrap();
    let mut contract = Contract::clone(&parquet("columns: [{ name: id, type: int64 }]"));
    contract.columns.clear();
    let decoded = decode(&Arc::new(contract), &written(&[batch]));
    assert_eq!(decoded.lines(), ["{\"x\":1}|1", "{\"x\":2}|2"]);
}
