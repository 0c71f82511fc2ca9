//! Parquet as other writers write it.

use std::sync::Arc;

use alluvium::pipeline::lake::Settings;
use arrow::array::{
    ArrayRef, BinaryArray, DictionaryArray, Float64Array, Int32Array, Int64Array, LargeStringArray, RecordBatch,
    StringArray, StringViewArray,
};
use arrow::datatypes::{Field, Int8Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::run::{contract, load, load_with, outcome};
use crate::support::TestLake;

/// A file of one batch.
pub(super) fn file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    groups(&[RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()])
}

/// A file of one row group a batch.
fn groups(batches: &[RecordBatch]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batches[0].schema(), None).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    out
}

/// A file of one INT96 column `t`: Julian day and nanoseconds of the day.
pub(super) fn int96(values: &[(u32, u64)]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message m { required int96 t; }").unwrap());
    let mut out = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut out, schema, Arc::new(WriterProperties::builder().build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let of = |(day, nanos): &(u32, u64)| {
        let mut value = Int96::new();
        value.set_data(*nanos as u32, (*nanos >> 32) as u32, *day);
        value
    };
    let values: Vec<Int96> = values.iter().map(of).collect();
    column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    out
}

fn longs(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn parquet(columns: &[&str]) -> String {
    contract("format: parquet", columns, "")
}

#[tokio::test]
async fn pqt_02_a_file_that_is_not_whole_is_refused_and_its_next_version_loads() {
    let good = file(vec![("id", longs(&[Some(1), Some(2)]))]);
    let lake = TestLake::new(&[("raw/t", &parquet(&["id int64"]))]);
    for content in [&good[..good.len() - 1], &good[..good.len() / 2], b"", b"PAR1"] {
        lake.load("t/a.parquet", content).await;
    }
    let refused = outcome(&lake).await;
    assert_eq!((refused.rows.len(), refused.refused.len()), (0, 4), "{refused:#?}");
    for size in [good.len() - 1, good.len() / 2, 0, 4] {
        refused.says(&["a.parquet", &format!("{size} bytes")]);
    }
    lake.load("t/a.parquet", &good).await;
    assert_eq!(outcome(&lake).await.rows, ["a.parquet:1 1", "a.parquet:2 2"]);
}

#[tokio::test]
async fn pqt_04_each_file_may_have_its_own_type() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x9"]));
    let files = [
        file(vec![("a", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]),
        file(vec![("a", longs(&[Some(3_000_000_000)]))]),
        file(vec![("a", text)]),
        file(vec![("a", Arc::new(Float64Array::from(vec![2.0])) as ArrayRef)]),
    ];
    let files: Vec<(&str, &[u8])> = ["1", "2", "3", "4"].into_iter().zip(files.iter().map(Vec::as_slice)).collect();
    load(&parquet(&["a int64"]), &files)
        .await
        .is(&["1:1 1", "2:1 3000000000", "4:1 2"], &["3:1 a_invalid <{\"a\":\"x9\"}>"]);
}

#[tokio::test]
async fn pqt_05_names_that_delta_refuses_are_mapped_or_refused() {
    let columns = || {
        vec![
            ("Unit Price (EUR)", longs(&[Some(5)])),
            ("a.b", longs(&[Some(1)])),
            ("1inch", longs(&[Some(2)])),
            ("x=y", longs(&[Some(3)])),
        ]
    };
    let content = file(columns());
    let mapped = [
        "unit_price int64 from: \"Unit Price (EUR)\"",
        "a_b int64 from: \"a.b\"",
        "inch int64 from: 1inch",
        "x_y int64 from: \"x=y\"",
    ];
    load(&parquet(&mapped), &[("a", &content)]).await.is(&["a:1 5|1|2|3"], &[]);
    let adding = contract("format: parquet", &["inch int64 from: 1inch"], "unknown_columns: add");
    let refused = load(&adding, &[("a", &content)]).await;
    refused.is(&[], &["a column_name"]);
    refused.says(&["Unit Price (EUR)", "from"]);
}

#[tokio::test]
async fn pqt_06_strings_of_every_flavour_and_bytes_that_are_none() {
    let flavours: [ArrayRef; 5] = [
        Arc::new(StringArray::from(vec!["ok"])),
        Arc::new(LargeStringArray::from(vec!["ok"])),
        Arc::new(StringViewArray::from(vec!["ok"])),
        Arc::new(vec!["ok"].into_iter().collect::<DictionaryArray<Int8Type>>()),
        Arc::new(BinaryArray::from_vec(vec![b"ok", b"\xff\xfe"])),
    ];
    let files: Vec<Vec<u8>> = flavours.into_iter().map(|array| file(vec![("s", array)])).collect();
    let files: Vec<(&str, &[u8])> =
        ["1", "2", "3", "4", "5"].into_iter().zip(files.iter().map(Vec::as_slice)).collect();
    load(&parquet(&["s string"]), &files)
        .await
        .is(&["1:1 ok", "2:1 ok", "3:1 ok", "4:1 ok", "5:1 ok"], &["5:2 s_invalid <{\"s\":\"0xfffe\"}>"]);
}

#[tokio::test]
async fn pqt_07_files_and_row_groups_without_rows() {
    let batch = |values: &[Option<i64>]| {
        let schema = Arc::new(Schema::new(vec![Field::new("id", arrow::datatypes::DataType::Int64, true)]));
        RecordBatch::try_new(schema, vec![longs(values)]).unwrap()
    };
    let none = groups(&[batch(&[])]);
    let some = groups(&[batch(&[Some(1), Some(2), Some(3)]), batch(&[]), batch(&[Some(4), Some(5)])]);
    for adopt_bytes in [1, u64::MAX / 4] {
        let settings = Settings { adopt_bytes, ..Settings::default() };
        let outcome = load_with(&parquet(&["id int64"]), &[("a", &none), ("b", &some)], settings).await;
        outcome.is(&["b:1 1", "b:2 2", "b:3 3", "b:4 4", "b:5 5"], &[]);
        assert_eq!(outcome.ledger, ["a empty 0=0+0+0", "b loaded 5=5+0+0"]);
    }
}

#[tokio::test]
async fn pqt_08_nulls_and_absence_in_required_columns() {
    let required = parquet(&["id int64 nullable: false", "v int32"]);
    let lacking = file(vec![("v", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]);
    let nulls = file(vec![("id", longs(&[Some(1), None]))]);
    let outcome = load(&required, &[("1", &lacking), ("2", &nulls)]).await;
    outcome.is(&["2:1 1|∅"], &["1 missing_column", "2:2 id_missing <{\"id\":null}>"]);
    outcome.says(&["1 id", "required columns are missing: id"]);
}
