mod exact;

use arrow::array::{Array, AsArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array};
use arrow::util::display::array_value_to_string;
use proptest::prelude::*;

use super::*;
use crate::schema::{OnInfinity, OnOverlap, Rounding, TimeUnit as Unit};

fn column(column_type: ColumnType) -> Column {
    Column::new("c", column_type)
}

fn caster(column: &Column) -> ColumnCaster {
    ColumnCaster::new(column, &[String::new()]).unwrap()
}

/// What became of one value, through the row-wise and the column-wise way at once.
fn field(column: &Column, text: &[u8], quoted: bool) -> Result<Option<String>, FaultKind> {
    let caster = caster(column);
    let mut one = caster.begin(1);
    let outcome = one.push_text(text, quoted);
    let mut many = caster.begin(1);
    let mut faults = Vec::new();
    many.push_fields(std::iter::once((text, quoted)), &mut |row, fault| faults.push((row, fault)));
    let (one, many) = (one.finish().unwrap(), many.finish().unwrap());
    assert_eq!(one.to_data(), many.to_data(), "{text:?}: both ways give the same");
    assert_eq!(outcome.clone().err().map(|fault| (0, fault)), faults.pop());
    if let (true, Ok(text)) = (caster.begin(0).prefers_str(), std::str::from_utf8(text)) {
        let mut strs = caster.begin(1);
        strs.push_strs(std::iter::once((text, quoted)), &mut |_, _| ());
        assert_eq!(strs.finish().unwrap().to_data(), one.to_data(), "{text:?}: all ways give the same");
    }
    shown(outcome, &one)
}

fn shown(outcome: Result<(), CastFault>, array: &ArrayRef) -> Result<Option<String>, FaultKind> {
    assert_eq!(array.len(), 1);
    match outcome {
        Err(fault) => {
            assert!(array.is_null(0) && !fault.reason.is_empty());
            Err(fault.kind)
        }
        Ok(()) if array.is_null(0) => Ok(None),
        Ok(()) => Ok(Some(array_value_to_string(array, 0).unwrap())),
    }
}

fn scalar(column: &Column, value: Scalar<'_>) -> Result<Option<String>, FaultKind> {
    let mut sink = caster(column).begin(1);
    let outcome = sink.push_scalar(value);
    shown(outcome, &sink.finish().unwrap())
}

const BAD: Result<Option<&str>, FaultKind> = Err(FaultKind::Invalid);

fn check_fields(case: &str, column: &Column, expected: &[(&str, Result<Option<&str>, FaultKind>)]) {
    for (text, expected) in expected {
        let expected = expected.map(|value| value.map(str::to_owned));
        assert_eq!(field(column, text.as_bytes(), false), expected, "{case}: {text:?}");
    }
}

#[test]
fn integers() {
    let int32 = column(ColumnType::Int32);
    check_fields(
        "TYP-05",
        &int32,
        &[
            ("2147483647", Ok(Some("2147483647"))),
            ("-2147483648", Ok(Some("-2147483648"))),
            ("2147483648", BAD),
            ("-2147483649", BAD),
            ("99999999999999999999999", BAD),
        ],
    );
    check_fields(
        "TYP-14",
        &int32,
        &[
            (" 42 ", Ok(Some("42"))),
            ("\t+42", Ok(Some("42"))),
            ("1_000", BAD),
            ("0x1F", BAD),
            ("４２", BAD),
            ("4\u{202f}200", BAD),
            ("\u{a0}42", BAD),
        ],
    );
    check_fields("TYP-03", &int32, &[("007", Ok(Some("7"))), ("7.0", Ok(Some("7"))), ("7.5", BAD), ("", Ok(None))]);
    check_fields(
        "int8",
        &column(ColumnType::Int8),
        &[("127", Ok(Some("127"))), ("128", BAD), ("-128", Ok(Some("-128")))],
    );
    check_fields(
        "int64",
        &column(ColumnType::Int64),
        &[
            ("9223372036854775807", Ok(Some("9223372036854775807"))),
            ("-9223372036854775808", Ok(Some("-9223372036854775808"))),
            ("9223372036854775808", BAD),
            ("NaN", BAD),
        ],
    );
}

#[test]
fn decimals() {
    let mut decimal = column(ColumnType::Decimal(10, 2));
    check_fields(
        "TYP-02",
        &decimal,
        &[
            ("€ 1\u{a0}200.50", BAD),
            ("(15.00)", BAD),
            ("1'000.00", BAD),
            ("12%", BAD),
            ("15.00-", BAD),
            ("NaN", BAD),
            ("12,5x", BAD),
            ("-0.05", Ok(Some("-0.05"))),
            ("99999999.99", Ok(Some("99999999.99"))),
            ("100000000", BAD),
        ],
    );
    decimal.rounding = Rounding::HalfUp;
    check_fields(
        "TYP-07",
        &decimal,
        &[
            ("99999999.99", Ok(Some("99999999.99"))),
            ("99999999.995", BAD),
            ("123456789012345678901234567890123456789", BAD),
            ("-1.005", Ok(Some("-1.01"))),
        ],
    );
    check_fields(
        "widest",
        &column(ColumnType::Decimal(38, 0)),
        &[
            ("99999999999999999999999999999999999999", Ok(Some("99999999999999999999999999999999999999"))),
            ("100000000000000000000000000000000000000", BAD),
        ],
    );
    let mut german = column(ColumnType::Decimal(12, 2));
    (german.decimal_separator, german.group_separator) = (b',', Some('.'));
    check_fields(
        "TYP-01",
        &german,
        &[
            ("7.410,50", Ok(Some("7410.50"))),
            ("-2,40", Ok(Some("-2.40"))),
            ("1,234.56", BAD),
            ("1.234", Ok(Some("1234.00"))),
        ],
    );
    assert_eq!(scalar(&german, Scalar::Number("1.25")), Ok(Some("1.25".to_owned())), "JSON has its own grammar");
}

#[test]
fn one_rule_for_digits_beyond_the_scale_on_all_paths() {
    // TYP-06
    for rounding in [Rounding::Reject, Rounding::HalfUp] {
        let mut decimal = column(ColumnType::Decimal(10, 2));
        decimal.rounding = rounding;
        for (text, unscaled, rounded) in [
            ("1.005", 10_050, "1.01"),
            ("1.995", 19_950, "2.00"),
            ("-1.005", -10_050, "-1.01"),
            ("2.355", 23_550, "2.36"),
        ] {
            let expected =
                if rounding == Rounding::Reject { Err(FaultKind::Invalid) } else { Ok(Some(rounded.to_owned())) };
            assert_eq!(field(&decimal, text.as_bytes(), false), expected, "CSV {text}");
            assert_eq!(scalar(&decimal, Scalar::Number(text)), expected, "JSON number {text}");
            assert_eq!(scalar(&decimal, Scalar::Text(text)), expected, "JSON string {text}");
            let exact = Scalar::Decimal { unscaled: i256::from_i128(unscaled), scale: 4 };
            assert_eq!(scalar(&decimal, exact), expected, "Parquet {text}");
            assert_eq!(scalar(&decimal, Scalar::Float(text.parse().unwrap())), expected, "float {text}");
        }
    }
    // Beyond 53 bits a float stands for several numbers: which of them was meant, nobody knows.
    let whole = column(ColumnType::Decimal(38, 0));
    assert_eq!(scalar(&whole, Scalar::Float(9_007_199_254_740_992.0)), Ok(Some("9007199254740992".to_owned())));
    assert_eq!(scalar(&whole, Scalar::Float(1.234_567_890_123_456_8e22)), Err(FaultKind::Invalid));
}

#[test]
fn floats() {
    // TYP-12
    let double = column(ColumnType::Float64);
    check_fields(
        "TYP-12",
        &double,
        &[
            ("1.5", Ok(Some("1.5"))),
            ("NaN", Ok(Some("NaN"))),
            ("-Infinity", Ok(Some("-inf"))),
            ("inf", Ok(Some("inf"))),
            ("1e400", BAD),
            ("1e-400", BAD),
            ("-0.0", Ok(Some("-0.0"))),
            ("nan", BAD),
            ("infinity", BAD),
            ("-NaN", BAD),
            ("0.1", Ok(Some("0.1"))),
            (".5", Ok(Some("0.5"))),
            ("1e999999999999", BAD),
            ("0e999999999999", Ok(Some("0.0"))),
        ],
    );
    check_fields(
        "float32",
        &column(ColumnType::Float32),
        &[("0.1", Ok(Some("0.1"))), ("1e39", BAD), ("16777217", Ok(Some("16777216.0")))],
    );
    // JSN-02
    assert_eq!(scalar(&double, Scalar::Text("7")), Ok(Some("7.0".to_owned())));
    assert_eq!(scalar(&double, Scalar::Bool(true)), Err(FaultKind::Invalid));
    let object = RawValue::from_string("{\"b\":1}".to_owned()).unwrap();
    assert_eq!(scalar(&double, Scalar::Json(&object)), Err(FaultKind::Invalid));
}

#[test]
fn wide_numbers_keep_every_digit() {
    let long = column(ColumnType::Int64);
    for (value, expected) in [
        // JSN-01, TYP-15
        (Scalar::Number("9007199254740993"), Some("9007199254740993")),
        (Scalar::Number("9007199254740993.0"), Some("9007199254740993")),
        (Scalar::Number("9223372036854775808"), None),
        (Scalar::Number("3.0"), Some("3")),
        (Scalar::Number("3.5"), None),
        (Scalar::Number("1e19"), None),
        (Scalar::Float(3.0), Some("3")),
        (Scalar::Float(3.5), None),
        (Scalar::Float(9_007_199_254_740_994.0), None),
        (Scalar::Float(f64::NAN), None),
        // TYP-13, PQT-04
        (Scalar::Int(5), Some("5")),
        (Scalar::Int(18_446_744_073_709_551_615), None),
        (Scalar::Text("x9"), None),
        (Scalar::Decimal { unscaled: i256::from_i128(700), scale: 2 }, Some("7")),
        (Scalar::Decimal { unscaled: i256::MAX, scale: 0 }, None),
    ] {
        assert_eq!(scalar(&long, value).ok().flatten().as_deref(), expected, "{value:?}");
    }
    let wide = column(ColumnType::Decimal(20, 0));
    assert_eq!(scalar(&wide, Scalar::Int(18_446_744_073_709_551_615)), Ok(Some("18446744073709551615".to_owned())));
}

#[test]
fn booleans() {
    let mut boolean = column(ColumnType::Boolean);
    boolean.true_values = ["true", "Yes", "y", "1"].map(str::to_owned).to_vec();
    boolean.false_values = ["false", "no", "n", "0"].map(str::to_owned).to_vec();
    check_fields(
        "TYP-11",
        &boolean,
        &[
            ("TRUE", Ok(Some("true"))),
            (" no ", Ok(Some("false"))),
            ("0", Ok(Some("false"))),
            ("N", Ok(Some("false"))),
            ("2", BAD),
            ("faux", BAD),
            ("", Ok(None)),
        ],
    );
    assert_eq!(field(&boolean, b"", true), Err(FaultKind::Invalid));
    assert_eq!(scalar(&boolean, Scalar::Number("1")), Ok(Some("true".to_owned())));
    assert_eq!(scalar(&column(ColumnType::Boolean), Scalar::Number("1")), Err(FaultKind::Invalid));
}

#[test]
fn null_tokens_are_declared_and_never_quoted() {
    let text = column(ColumnType::String);
    check_fields(
        "TYP-10",
        &text,
        &[("NA", Ok(Some("NA"))), ("Null", Ok(Some("Null"))), ("", Ok(None)), ("NULL", Ok(Some("NULL")))],
    );
    assert_eq!(field(&text, b"", true), Ok(Some(String::new())));
    let mut declared = column(ColumnType::Int32);
    declared.null_values = Some(vec!["NA".to_owned(), "-1".to_owned()]);
    check_fields(
        "declared",
        &declared,
        &[("NA", Ok(None)), (" NA ", Ok(None)), ("-1", Ok(None)), ("1", Ok(Some("1"))), ("", BAD)],
    );
    assert_eq!(field(&declared, b"NA", true), Err(FaultKind::Invalid));
    assert_eq!(scalar(&declared, Scalar::Text("NA")), Ok(None));
    let mut required = column(ColumnType::Int32);
    required.nullable = false;
    check_fields("required", &required, &[("", Err(FaultKind::Missing)), ("  ", Err(FaultKind::Missing)), ("x", BAD)]);
    assert_eq!(scalar(&required, Scalar::Null), Err(FaultKind::Missing));
}

#[test]
fn defaults_fill_what_is_empty_or_absent_and_nothing_else() {
    let mut tip = column(ColumnType::Decimal(10, 2));
    tip.default = Some("0.00".to_owned());
    tip.nullable = false;
    tip.null_values = Some(vec![String::new(), "NA".to_owned()]);
    check_fields("default", &tip, &[("", Ok(Some("0.00"))), ("NA", Err(FaultKind::Missing)), ("x", BAD)]);
    let mut sink = caster(&tip).begin(3);
    assert!(sink.push_absent().is_ok());
    assert_eq!(sink.push_null().map_err(|fault| fault.kind), Err(FaultKind::Missing));
    let array = sink.finish().unwrap();
    assert_eq!((array.len(), array.null_count()), (2, 1));
    let mut absent = caster(&column(ColumnType::String)).begin(1);
    assert!(absent.push_absent().is_ok());
    tip.default = Some("much".to_owned());
    let error = ColumnCaster::new(&tip, &[]).unwrap_err();
    assert!(error.message().contains("default `much` is no decimal(10,2)"), "{error}");
}

#[test]
fn text_is_kept_byte_for_byte() {
    let mut text = column(ColumnType::String);
    // TYP-03, ENC-06, CSV-15
    for same in ["00501", "caf\u{e9}", "cafe\u{301}", "caf\u{e9}\u{200b}", " x ", "head\0tail", "\u{a0}"] {
        assert_eq!(field(&text, same.as_bytes(), false), Ok(Some(same.to_owned())), "{same:?}");
    }
    text.trim = true;
    check_fields("trim", &text, &[(" x\t", Ok(Some("x"))), ("\u{a0}x", Ok(Some("\u{a0}x"))), (" \t", Ok(None))]);
    let mut short = column(ColumnType::String);
    short.max_length = Some(3);
    check_fields("max_length", &short, &[("東京駅", Ok(Some("東京駅"))), ("abcd", BAD), ("abc", Ok(Some("abc")))]);
}

#[test]
fn bytes_that_are_no_text_are_named() {
    // ENC-01, PQT-06
    let text = column(ColumnType::String);
    let mut sink = caster(&text).begin(2);
    let fault = sink.push_text(b"Jos\xe9", false).unwrap_err();
    assert_eq!(fault.reason, "not UTF-8: byte 0xE9 at position 4 of the value");
    let fault = sink.push_scalar(Scalar::Bytes(b"\xff\xfe")).unwrap_err();
    assert!(fault.reason.contains("0xFF"));
    assert_eq!(sink.finish().unwrap().null_count(), 2);
    assert_eq!(field(&column(ColumnType::Int32), b"1\xff", false), Err(FaultKind::Invalid));
    let mut binary = caster(&column(ColumnType::Binary)).begin(1);
    binary.push_text(b"\xff\xfe", false).unwrap();
    assert_eq!(binary.finish().unwrap().as_binary::<i32>().value(0), b"\xff\xfe");
}

#[test]
fn dates_and_times() {
    check_fields(
        "TIM-09",
        &column(ColumnType::Date),
        &[
            ("2023-02-29", BAD),
            ("0000-00-00", BAD),
            ("0001-01-01", Ok(Some("0001-01-01"))),
            ("9999-12-31", Ok(Some("9999-12-31"))),
            ("10000-01-01", BAD),
            ("1582-10-10", Ok(Some("1582-10-10"))),
            (" 2024-02-29 ", Ok(Some("2024-02-29"))),
            ("2024-02-29T00:00:00", Ok(Some("2024-02-29"))),
            ("2024-02-29T00:00:01", BAD),
            ("45351", BAD),
            ("infinity", BAD),
        ],
    );
    let mut time = column(ColumnType::Timestamp);
    time.formats = vec!["%Y-%m-%d %H:%M:%S".to_owned()];
    time.timezone = Some("UTC".to_owned());
    check_fields(
        "trips",
        &time,
        &[
            ("2024-03-01 10:20:30", Ok(Some("2024-03-01T10:20:30Z"))),
            ("2024-03-01 10:20:30", Ok(Some("2024-03-01T10:20:30Z"))),
            ("2024-03-01T10:20:30", BAD),
            ("2024-03-01 10:20:30Z", BAD),
            ("2024-03-01 24:00:00", BAD),
            ("2024-02-30 10:20:30", BAD),
            ("not-a-time", BAD),
            ("2024-3-1 1:2:3", Ok(Some("2024-03-01T01:02:03Z"))),
        ],
    );
    time.formats.clear();
    time.timezone = None;
    check_fields(
        "TIM-03",
        &time,
        &[("2024-03-01T10:20:30Z", Ok(Some("2024-03-01T10:20:30Z"))), ("2024-03-01T10:20:30", BAD)],
    );
    time.on_infinity = OnInfinity::Max;
    check_fields(
        "max",
        &time,
        &[("infinity", Ok(Some("9999-12-31T23:59:59.999999Z"))), ("-infinity", Ok(Some("0001-01-01T00:00:00Z")))],
    );
    time.on_infinity = OnInfinity::Null;
    check_fields("null", &time, &[("infinity", Ok(None))]);
    time.nullable = false;
    check_fields("null", &time, &[("infinity", Err(FaultKind::Missing))]);
    let mut oslo = column(ColumnType::Timestamp);
    oslo.timezone = Some("Europe/Oslo".to_owned());
    check_fields(
        "TIM-11",
        &oslo,
        &[
            ("2024-01-01T10:00:00", Ok(Some("2024-01-01T09:00:00Z"))),
            ("2024-01-01T10:00:00Z", Ok(Some("2024-01-01T10:00:00Z"))),
            ("2024-03-31 02:30:00", BAD),
            ("0001-01-01 00:00:00", BAD),
        ],
    );
    let mut epoch = column(ColumnType::Timestamp);
    epoch.unit = Some(Unit::Millis);
    check_fields(
        "TIM-07",
        &epoch,
        &[
            ("1700000000000", Ok(Some("2023-11-14T22:13:20Z"))),
            ("1700000000000000", BAD),
            ("2024-01-01T00:00:00Z", Ok(Some("2024-01-01T00:00:00Z"))),
        ],
    );
    assert_eq!(scalar(&epoch, Scalar::Number("1500")), Ok(Some("1970-01-01T00:00:01.500Z".to_owned())));
    assert_eq!(scalar(&column(ColumnType::Timestamp), Scalar::Number("1500")), Err(FaultKind::Invalid));
    let mut compact = column(ColumnType::Date);
    compact.formats = vec!["%Y%m%d".to_owned()];
    assert_eq!(scalar(&compact, Scalar::Number("20240229")), Ok(Some("2024-02-29".to_owned())));
    assert_eq!(scalar(&compact, Scalar::Int(20_240_229)), Ok(Some("2024-02-29".to_owned())));
}

#[test]
fn typed_times_change_their_kind_only_by_declaration() {
    let nanos = |value| Scalar::Instant { value, unit: TimeUnit::Nanosecond };
    let local = |value| Scalar::Local { value, unit: TimeUnit::Microsecond };
    let instant = column(ColumnType::Timestamp);
    let mut wall = column(ColumnType::TimestampNtz);
    // TIM-05
    assert_eq!(scalar(&instant, nanos(1_000)), Ok(Some("1970-01-01T00:00:00.000001Z".to_owned())));
    assert_eq!(scalar(&instant, nanos(1)), Err(FaultKind::Invalid));
    assert_eq!(scalar(&instant, local(0)), Err(FaultKind::Invalid));
    assert_eq!(scalar(&wall, nanos(1_000)), Err(FaultKind::Invalid));
    assert_eq!(scalar(&wall, local(0)), Ok(Some("1970-01-01T00:00:00".to_owned())));
    wall.timezone = Some("Europe/Oslo".to_owned());
    assert_eq!(scalar(&wall, nanos(0)), Ok(Some("1970-01-01T01:00:00".to_owned())));
    let day = column(ColumnType::Date);
    assert_eq!(scalar(&day, Scalar::Date(1)), Ok(Some("1970-01-02".to_owned())));
    assert_eq!(scalar(&day, Scalar::Date(i32::MAX)), Err(FaultKind::Invalid));
    assert_eq!(scalar(&day, local(86_400_000_000)), Ok(Some("1970-01-02".to_owned())));
    assert_eq!(scalar(&day, local(1)), Err(FaultKind::Invalid));
    // TIM-06
    let seconds = |value| Scalar::Local { value, unit: TimeUnit::Second };
    assert_eq!(scalar(&wall, seconds(-62_135_596_800)), Ok(Some("0001-01-01T00:00:00".to_owned())));
    assert_eq!(scalar(&wall, seconds(i64::MAX)), Err(FaultKind::Invalid));
    let text = column(ColumnType::String);
    assert_eq!(scalar(&text, nanos(0)), Ok(Some("1970-01-01T00:00:00Z".to_owned())));
    assert_eq!(
        scalar(&text, Scalar::Decimal { unscaled: i256::from_i128(-5), scale: 2 }),
        Ok(Some("-0.05".to_owned()))
    );
    assert_eq!(scalar(&text, Scalar::Number("1.50")), Ok(Some("1.50".to_owned())));
    assert_eq!(scalar(&text, Scalar::Bool(true)), Err(FaultKind::Invalid));
}

#[test]
fn declarations_that_cannot_work_are_refused_when_compiled() {
    let mut zone = column(ColumnType::Timestamp);
    zone.timezone = Some("Europe/Zürich".to_owned());
    let mut format = column(ColumnType::Date);
    format.formats = vec!["%Q".to_owned()];
    let precision = column(ColumnType::List(Box::new(ColumnType::Decimal(39, 0))));
    for (column, says) in [(zone, "no time zone"), (format, "unknown specifier"), (precision, "does not exist")] {
        let error = ColumnCaster::new(&column, &[]).unwrap_err();
        assert!(error.message().contains(says) && error.message().contains("column c"), "{error}");
    }
}

#[test]
fn nested_columns_become_arrow() {
    let pairs = ColumnType::List(Box::new(ColumnType::Struct(vec![
        ("n".to_owned(), ColumnType::Int32),
        ("m".to_owned(), ColumnType::Map(Box::new(ColumnType::String), Box::new(ColumnType::Float64))),
    ])));
    let mut sink = caster(&column(pairs.clone())).begin(4);
    let json = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    sink.push_scalar(Scalar::Json(&json(r#"[{"n":1,"m":{"a":0.5}},null]"#))).unwrap();
    sink.push_scalar(Scalar::Null).unwrap();
    assert!(sink.push_scalar(Scalar::Json(&json(r#"[{"n":1},{"n":"x"}]"#))).is_err());
    assert!(sink.push_scalar(Scalar::Text("[]")).is_err());
    sink.push_scalar(Scalar::Json(&json("[]"))).unwrap();
    let array = sink.finish().unwrap();
    assert_eq!(array.data_type(), &arrow_type(&pairs));
    let lists = array.as_list::<i32>();
    let sizes: Vec<Option<usize>> = lists.iter().map(|list| list.map(|list| list.len())).collect();
    assert_eq!(sizes, [Some(2), None, None, None, Some(0)]);
    let first = lists.value(0);
    assert_eq!((first.is_null(0), first.is_null(1)), (false, true));
    assert_eq!(first.as_struct().column(1).as_map().value(0).len(), 1);
}

proptest! {
    #[test]
    fn a_column_of_texts_is_the_same_in_any_way(texts in prop::collection::vec("[-+0-9.:eT Z]{0,22}|[0-9]{1,9}\\.[0-9]{2}", 1..20)) {
        let mut time = column(ColumnType::Timestamp);
        time.timezone = Some("UTC".to_owned());
        let types = [ColumnType::Int32, ColumnType::Int64, ColumnType::Float64, ColumnType::Float32,
            ColumnType::Decimal(9, 2), ColumnType::Date, ColumnType::String];
        let mut oslo = time.clone();
        (oslo.timezone, oslo.on_overlap) = (Some("Europe/Oslo".to_owned()), OnOverlap::Reject);
        for column in types.into_iter().map(column).chain([time, oslo]) {
            for text in &texts {
                let _ = field(&column, text.as_bytes(), false);
                let by_field = field(&column, text.as_bytes(), true);
                prop_assert_eq!(scalar(&column, Scalar::Text(text)), by_field, "{:?}", text);
            }
        }
    }

    #[test]
    fn no_scalar_panics(int: i128, float: f64, value: i64, days: i32, scale: i8) {
        let types = [ColumnType::Boolean, ColumnType::Int8, ColumnType::Int64, ColumnType::Float32, ColumnType::Float64,
            ColumnType::Decimal(38, 10), ColumnType::String, ColumnType::Binary, ColumnType::Date,
            ColumnType::Timestamp, ColumnType::TimestampNtz];
        for column_type in types {
            let mut column = column(column_type);
            column.unit = Some(Unit::Seconds);
            column.timezone = Some("America/New_York".to_owned());
            for scalar_value in [Scalar::Int(int), Scalar::Float(float), Scalar::Date(days),
                Scalar::Instant { value, unit: TimeUnit::Second }, Scalar::Instant { value, unit: TimeUnit::Nanosecond },
                Scalar::Local { value, unit: TimeUnit::Millisecond },
                Scalar::Decimal { unscaled: i256::from_i128(int), scale }] {
                let _ = scalar(&column, scalar_value);
            }
        }
    }
}

#[test]
fn builders_give_the_declared_types() {
    let arrays: [(ColumnType, &str, ArrayRef); 5] = [
        (ColumnType::Boolean, "true", Arc::new(BooleanArray::from(vec![true]))),
        (ColumnType::Int32, "1", Arc::new(Int32Array::from(vec![1]))),
        (ColumnType::Int64, "1", Arc::new(Int64Array::from(vec![1]))),
        (ColumnType::Float64, "1", Arc::new(Float64Array::from(vec![1.0]))),
        (ColumnType::Date, "1970-01-02", Arc::new(Date32Array::from(vec![1]))),
    ];
    for (column_type, text, expected) in arrays {
        let mut sink = caster(&column(column_type)).begin(1);
        sink.push_text(text.as_bytes(), false).unwrap();
        assert_eq!(&sink.finish().unwrap(), &expected);
    }
    let mut sink = caster(&column(ColumnType::Decimal(5, 1))).begin(1);
    sink.push_text(b"1.5", false).unwrap();
    let expected = Decimal128Array::from(vec![15]).with_precision_and_scale(5, 1).unwrap();
    assert_eq!(sink.finish().unwrap().as_ref(), &expected as &dyn Array);
}
