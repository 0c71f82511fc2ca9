use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, ListBuilder,
    MapBuilder, StringArray, StringBuilder, StringViewArray, StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Int64Type, Schema};

use super::*;

fn batch() -> RecordBatch {
    let mut tags = ListBuilder::new(StringBuilder::new());
    tags.append_value([Some("a\"b"), None]);
    tags.append_null();
    let mut map = MapBuilder::new(None, StringBuilder::new(), arrow::array::PrimitiveBuilder::<Int64Type>::new());
    map.keys().append_value("k");
    map.values().append_value(1);
    map.append(true).unwrap();
    map.append(true).unwrap();
    let inner: ArrayRef = Arc::new(Decimal128Array::from(vec![150, -1]).with_precision_and_scale(10, 2).unwrap());
    let pair = StructArray::from(vec![(Arc::new(Field::new("v", inner.data_type().clone(), true)), inner)]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![Some(i64::MAX), None]))),
        ("ok", Arc::new(BooleanArray::from(vec![true, false]))),
        (
            "big",
            Arc::new(
                Decimal128Array::from(vec![12_345_678_901_234_567_890_123_456_789_i128, -5])
                    .with_precision_and_scale(38, 10)
                    .unwrap(),
            ),
        ),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![1_709_287_445_123_456, 0]).with_timezone("UTC"))),
        ("wall", Arc::new(TimestampMicrosecondArray::from(vec![-1, 1_000_000]))),
        ("day", Arc::new(Date32Array::from(vec![19_783, -1]))),
        ("x", Arc::new(Float64Array::from(vec![0.1, f64::NAN]))),
        ("text", Arc::new(StringArray::from(vec!["a,\"b\"\nc", ""]))),
        ("view", Arc::new(StringViewArray::from(vec!["東京駅", "x"]))),
        ("bytes", Arc::new(BinaryArray::from(vec![&[0_u8, 255][..], &[][..]]))),
        ("tags", Arc::new(tags.finish())),
        ("map", Arc::new(map.finish())),
        ("pair", Arc::new(pair)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn written(format: Format, batches: &[RecordBatch], schema: SchemaRef) -> String {
    let mut writer = RowWriter::new(format, schema);
    let mut text = writer.begin();
    for batch in batches {
        text.push_str(&writer.batch(batch).unwrap());
    }
    text.push_str(&writer.end());
    text
}

#[test]
fn every_format_keeps_every_digit() {
    let rows = batch();
    insta::assert_snapshot!("csv", written(Format::Csv, std::slice::from_ref(&rows), rows.schema()));
    insta::assert_snapshot!("ndjson", written(Format::Ndjson, std::slice::from_ref(&rows), rows.schema()));
    insta::assert_snapshot!("table", table(&rows.schema(), std::slice::from_ref(&rows), None).unwrap());
}

#[test]
fn json_is_one_array_over_all_batches() {
    let rows = batch();
    let text = written(Format::Json, &[rows.clone(), rows.clone()], rows.schema());
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed.as_array().map(Vec::len), Some(4));
    assert_eq!(parsed[0]["id"], i64::MAX);
    assert_eq!(parsed[0]["text"], "a,\"b\"\nc");
    assert_eq!(parsed[0]["map"]["k"], 1);
    assert_eq!(parsed[1]["pair"]["v"], -0.01);
    assert_eq!(parsed[1]["id"], serde_json::Value::Null);
}

#[test]
fn no_rows_are_still_a_valid_answer() {
    let schema = Arc::new(Schema::new(vec![Field::new("a,b", DataType::Int64, true)]));
    assert_eq!(written(Format::Json, &[], Arc::clone(&schema)), "[]\n");
    assert_eq!(written(Format::Ndjson, &[], Arc::clone(&schema)), "");
    assert_eq!(written(Format::Csv, &[], schema), "\"a,b\"\n");
}

#[test]
fn floats_read_back_as_they_were() {
    for value in [0.0, -0.0, 1e300, 5e-324, 123_456_789.123, 1e21, -2.5] {
        let Shape::Bare(text) = float(value) else { panic!("{value} is a number") };
        assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap().is_number(), "{text}");
    }
}
