//! Dates, times, zones and the calendar's edges.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, StructArray, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Field, Int32Type, TimeUnit};

use super::parquet::{file, int96};
use super::run::{contract, csv, load};

#[tokio::test]
async fn tim_01_a_format_is_never_guessed() {
    let content = "d\n03/04/2025\n25/12/2025\n";
    csv(&["d date format: \"%d/%m/%Y\""], content).await.is(&["a.csv:1 2025-04-03", "a.csv:2 2025-12-25"], &[]);
    csv(&["d date format: \"%m/%d/%Y\""], content)
        .await
        .is(&["a.csv:1 2025-03-04"], &["a.csv:2@3 d_invalid <25/12/2025>"]);
    let undeclared = csv(&["d date"], content).await;
    assert_eq!((undeclared.rows.len(), undeclared.refused.len()), (0, 2));
}

#[tokio::test]
async fn tim_03_offsets_count_once_and_days_are_utc() {
    let content =
        b"t\n2024-03-01T00:30:00+05:30\n2024-03-01T00:30:00Z\n2024-03-01T00:30:00-0300\n2024-03-01 00:30:00\n";
    let outcome = load(&contract("format: csv", &["t timestamp"], ""), &[("a.csv", content)]).await;
    outcome.is(
        &["a.csv:1 2024-02-29T19:00:00Z", "a.csv:2 2024-03-01T00:30:00Z", "a.csv:3 2024-03-01T03:30:00Z"],
        &["a.csv:4@5 t_invalid <2024-03-01 00:30:00>"],
    );
    let zoned =
        load(&contract("format: csv", &["t timestamp timezone: America/Sao_Paulo"], ""), &[("a.csv", content)]).await;
    assert_eq!(zoned.rows[3], "a.csv:4 2024-03-01T03:30:00Z");
    // The day that a derived table is partitioned by is the instant's in UTC.
    let raw = contract("format: csv", &["t timestamp"], "");
    let derived = "version: 1\ntable: aggregate/t\nfrom: raw/t\nprimary_key: [_file, _row]\nkeep: first\norder_by: [_file, _row]\n\
                   partition_by: [day]\nsql: select *, cast(t as date) as day from input\n";
    let lake = crate::support::TestLake::new(&[("raw/t", &raw), ("aggregate/t", derived)]);
    lake.load("t/a.csv", content).await;
    let days = crate::support::rows::brief(&lake.lake, "aggregate/t", &["_row", "day"]).await;
    assert_eq!(days, ["1 2024-02-29", "2 2024-03-01", "3 2024-03-01"]);
    assert!(lake.folder("aggregate/t/day=2024-02-29").exists());
}

#[tokio::test]
async fn tim_05_nanoseconds_become_microseconds_at_every_depth() {
    let nanos = |value: i64| -> ArrayRef { Arc::new(TimestampNanosecondArray::from(vec![value, value - 1])) };
    let instant = 1_704_067_200_000_000_001; // 2024-01-01T00:00:00.000000001
    let element = Arc::new(Field::new("element", DataType::Timestamp(TimeUnit::Nanosecond, None), true));
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(0)]), Some([Some(0)])]);
    let lists = ListArray::new(Arc::clone(&element), lists.offsets().clone(), nanos(instant), None);
    let nested = StructArray::from(vec![(
        Arc::new(Field::new("e", DataType::List(element), true)),
        Arc::new(lists) as ArrayRef,
    )]);
    let content = file(vec![("ts", nanos(instant)), ("s", Arc::new(nested))]);
    let columns =
        |rounding: &str| [format!("ts timestamp_ntz{rounding}"), format!("s struct<e:list<timestamp_ntz>>{rounding}")];
    let [ts, s] = columns("");
    let outcome = load(&contract("format: parquet", &[&ts, &s], ""), &[("a", &content)]).await;
    outcome.is(
        &["a:2 2024-01-01T00:00:00|{e: [2024-01-01T00:00:00]}"],
        &["a:1 ts_invalid,s_invalid <{\"ts\":\"2024-01-01T00:00:00.000000001\",\"s\":{\"e\":[\"2024-01-01T00:00:00.000000001\"]}}>"],
    );
}

#[tokio::test]
async fn tim_06_int96_reaches_every_year() {
    let content = int96(&[(5_373_484, 0), (1_721_426, 0), (2_460_463, 0)]);
    let outcome = load(&contract("format: parquet", &["t timestamp timezone: UTC"], ""), &[("a", &content)]).await;
    outcome.is(&["a:1 9999-12-31T00:00:00Z", "a:2 0001-01-01T00:00:00Z", "a:3 2024-06-01T00:00:00Z"], &[]);
}

#[tokio::test]
async fn tim_07_the_unit_of_a_number_is_declared_and_not_guessed() {
    let outcome = csv(&["e timestamp unit: ms"], "e\n1700000000\n1700000000000\n1700000000000000\n-86400\n").await;
    outcome.is(
        &["a.csv:1 1970-01-20T16:13:20Z", "a.csv:2 2023-11-14T22:13:20Z", "a.csv:4 1969-12-31T23:58:33.600Z"],
        &["a.csv:3@4 e_invalid <1700000000000000>"],
    );
}

#[tokio::test]
async fn tim_08_leap_seconds_and_the_end_of_a_day_are_refused() {
    let outcome = csv(
        &["t timestamp"],
        "t\n2016-12-31T23:59:60Z\n2024-05-05T10:20:60Z\n2024-05-05T24:00:00Z\n2024-05-05T23:59:59.999999Z\n",
    )
    .await;
    assert_eq!(outcome.rows, ["a.csv:4 2024-05-05T23:59:59.999999Z"]);
    assert_eq!(outcome.refused.len(), 3);
}

#[tokio::test]
async fn tim_09_the_edges_of_the_calendar() {
    csv(&["d date"], "d\n2023-02-29\n0000-00-00\n0001-01-01\n9999-12-31\n10000-01-01\n1582-10-10\n").await.is(
        &["a.csv:3 0001-01-01", "a.csv:4 9999-12-31", "a.csv:6 1582-10-10"],
        &["a.csv:1@2 d_invalid <2023-02-29>", "a.csv:2@3 d_invalid <0000-00-00>", "a.csv:5@6 d_invalid <10000-01-01>"],
    );
}

#[tokio::test]
async fn tim_10_years_have_four_digits_and_serial_numbers_are_no_dates() {
    csv(&["d date format: \"%d/%m/%Y\""], "d\n01/02/19\n1/2/2019\n45351\n")
        .await
        .is(&["a.csv:2 2019-02-01"], &["a.csv:1@2 d_invalid <01/02/19>", "a.csv:3@4 d_invalid <45351>"]);
}

#[tokio::test]
async fn tim_11_naive_and_zoned_times_of_one_column() {
    let files: [(&str, &[u8]); 2] = [("1.csv", b"t\n2024-01-01T10:00:00\n"), ("2.csv", b"t\n2024-01-01T10:00:00Z\n")];
    load(&contract("format: csv", &["t timestamp timezone: Europe/Oslo"], ""), &files)
        .await
        .is(&["1.csv:1 2024-01-01T09:00:00Z", "2.csv:1 2024-01-01T10:00:00Z"], &[]);
    load(&contract("format: csv", &["t timestamp"], ""), &files)
        .await
        .is(&["2.csv:1 2024-01-01T10:00:00Z"], &["1.csv:1@2 t_invalid <2024-01-01T10:00:00>"]);
}
