use super::*;
use crate::schema::Column;

fn text<'a>(value: &'a str) -> Value<'a> {
    Value::Text(Cow::Borrowed(value))
}

fn cast_json(column_type: ColumnType, json: &str) -> Result<Value<'static>, String> {
    let column = Column::new("c", column_type);
    let settings = Settings::new(&column).unwrap();
    let raw: Box<RawValue> = RawValue::from_string(json.to_owned()).unwrap();
    cast(&Shape::new(&column.data_type), &raw, &settings, "")
}

fn list(element: ColumnType) -> ColumnType {
    ColumnType::List(Box::new(element))
}

fn record(fields: &[(&str, ColumnType)]) -> ColumnType {
    ColumnType::Struct(fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())).collect())
}

#[test]
fn missing_null_and_empty_stay_apart() {
    // JSN-07
    let ints = || list(ColumnType::Int64);
    assert_eq!(cast_json(ints(), "null").unwrap(), Value::Null);
    assert_eq!(cast_json(ints(), "[]").unwrap(), Value::List(vec![]));
    assert_eq!(cast_json(ints(), "[null, 1]").unwrap(), Value::List(vec![Value::Null, Value::Int(1)]));
    let both = record(&[("a", ColumnType::Int32), ("b", ColumnType::String)]);
    assert_eq!(cast_json(both, "{\"a\":1}").unwrap(), Value::Struct(vec![Value::Int(1), Value::Null]));
}

#[test]
fn numbers_keep_their_text_at_every_depth() {
    // JSN-01
    let deep = list(record(&[("id", ColumnType::Int64), ("s", ColumnType::String)]));
    let value = cast_json(deep.clone(), r#"[{"id":9007199254740993,"s":1344800117571260417}]"#).unwrap();
    let expected = Value::Struct(vec![Value::Int(9_007_199_254_740_993), text("1344800117571260417")]);
    assert_eq!(value, Value::List(vec![expected]));
    let reason = cast_json(deep, r#"[{"id":1},{"id":9223372036854775808}]"#).unwrap_err();
    assert!(reason.starts_with("[1].id: outside the range"), "{reason}");
}

#[test]
fn fields_that_the_type_does_not_name_are_no_part_of_the_value() {
    // JSN-09
    let nested = record(&[("b", ColumnType::Int64), ("in", record(&[("x", ColumnType::Int64)]))]);
    let value = cast_json(nested, r#"{"b":2,"c":"new","in":{"x":1,"y":[1,2]}}"#).unwrap();
    assert_eq!(value, Value::Struct(vec![Value::Int(2), Value::Struct(vec![Value::Int(1)])]));
}

#[test]
fn keys_are_matched_exactly_then_folded_and_never_twice() {
    let one = || record(&[("id", ColumnType::Int64)]);
    assert_eq!(cast_json(one(), r#"{" ID ":4}"#).unwrap(), Value::Struct(vec![Value::Int(4)]));
    // JSN-03: the exact name wins, the other is no field.
    assert_eq!(cast_json(one(), r#"{"ID":4,"id":3}"#).unwrap(), Value::Struct(vec![Value::Int(3)]));
    for (column_type, json, says) in [
        (one(), r#"{"id":1,"id":2}"#, "duplicate key `id`"),
        (one(), r#"{"id":1,"\u0069d":2}"#, "duplicate key `id`"),
        (one(), r#"{"Id":1,"ID":2}"#, "both mean id"),
        (one(), "[1]", "not a struct"),
        (list(ColumnType::Int64), r#"{"a":1}"#, "not a list"),
        (list(ColumnType::Int64), r#"[1,true]"#, "[1]: a boolean is no int64"),
        (list(ColumnType::String), r#"[{"a":1}]"#, "[0]: an object is no string"),
        (
            ColumnType::Map(Box::new(ColumnType::String), Box::new(ColumnType::Int64)),
            r#"{"a":1,"a":2}"#,
            "duplicate key",
        ),
        (ColumnType::Map(Box::new(ColumnType::Int64), Box::new(ColumnType::Int64)), r#"{"1":1,"01":2}"#, "duplicate"),
        (ColumnType::Map(Box::new(ColumnType::Int64), Box::new(ColumnType::Int64)), r#"{"x":1}"#, "key `x`"),
    ] {
        let reason = cast_json(column_type, json).unwrap_err();
        assert!(reason.contains(says), "{json}: {reason}");
    }
}

#[test]
fn maps_hold_typed_keys_and_values() {
    let map = ColumnType::Map(Box::new(ColumnType::String), Box::new(ColumnType::Decimal(4, 1)));
    let value = cast_json(map, r#"{"a\"b":1.5,"c":null}"#).unwrap();
    let expected = vec![(text("a\"b"), Value::Decimal(15)), (text("c"), Value::Null)];
    assert_eq!(value, Value::Map(expected));
}
