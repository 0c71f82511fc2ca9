use serde_json::json;

use super::*;

/// A batch as the host sends it: text that holds JSON, in a JSON string.
fn twice(value: &Value) -> Value {
    Value::String(value.to_string())
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other}"),
    }
}

fn base64(text: &str) -> String {
    BASE64.encode(text)
}

fn header(name: &str, value: Option<&str>) -> StreamHeader {
    StreamHeader { name: name.to_owned(), value: value.map(|text| text.as_bytes().to_vec()) }
}

fn record(partition: i32, offset: i64, key: Option<&str>, value: Option<&str>) -> StreamRecord {
    StreamRecord {
        topic: "pg.public.t".to_owned(),
        partition,
        offset,
        timestamp: Some(1_768_471_200_123),
        key: key.map(|text| text.as_bytes().to_vec()),
        value: value.map(|text| text.as_bytes().to_vec()),
        headers: Vec::new(),
    }
}

/// What the host tells beside three Kafka records, the last of them a tombstone of a record without a key.
fn kafka_metadata() -> Value {
    let at = "2026-01-15T10:00:00.123Z";
    json!({
        "PartitionArray": "[0,1,0]", "OffsetArray": "[42,9007199254740993,43]",
        "TimestampArray": twice(&json!([at, at, at])),
        "TopicArray": twice(&json!(["pg.public.t", "pg.public.t", "pg.public.t"])),
        "KeyArray": twice(&json!(["{\"id\":1}", "江", null])),
        "HeadersArray": twice(&json!([[{"Key": "h", "Value": "dmFs"}, {"Key": "h", "Value": null}], [], null])),
        "LeaderEpochArray": "[5,5,null]", "IsPartitionEOFArray": "[false,false,false]",
        "sys": {"MethodName": "cdc_kafka", "UtcNow": "2026-01-15T10:00:01.1234567Z", "RandGuid": "b3f9d8a0"},
    })
}

fn kafka_records() -> Vec<StreamRecord> {
    let headers = vec![header("h", Some("val")), header("h", None)];
    vec![
        StreamRecord { headers, ..record(0, 42, Some("{\"id\":1}"), Some("{\"op\":\"c\"}")) },
        record(1, 9_007_199_254_740_993, Some("江"), Some("\u{0}raw")),
        record(0, 43, None, None),
    ]
}

#[test]
fn kafka_records_of_binary_batches_are_exact() {
    let metadata = object(kafka_metadata());
    for last in [json!(""), json!(null)] {
        let values = json!([base64("{\"op\":\"c\"}"), base64("\u{0}raw"), last]);
        assert_eq!(kafka(&twice(&values), &metadata).unwrap(), kafka_records());
        assert_eq!(kafka(&values, &metadata).unwrap(), kafka_records(), "encoded once");
    }
    let not_utf8 = kafka(&json!([BASE64.encode(b"\xff\x00"), "", ""]), &metadata).unwrap();
    assert_eq!(not_utf8[0].value.as_deref(), Some(b"\xff\x00".as_slice()));
}

/// The sample of the Kafka trigger with `dataType` string, five encodings deep.
const KAFKA_STRING: &str = r#"{"Data":{"events":"[\"{\\\"Offset\\\":42,\\\"Partition\\\":0,\\\"Topic\\\":\\\"pg.public.t\\\",\\\"Timestamp\\\":\\\"2026-01-15T10:00:00.123Z\\\",\\\"Value\\\":\\\"{\\\\\\\"op\\\\\\\":\\\\\\\"c\\\\\\\"}\\\",\\\"LeaderEpoch\\\":5,\\\"IsPartitionEOF\\\":false,\\\"Key\\\":\\\"{\\\\\\\"id\\\\\\\":1}\\\",\\\"Headers\\\":[{\\\"Key\\\":\\\"h\\\",\\\"Value\\\":\\\"dmFs\\\"}]}\"]"},
 "Metadata":{"PartitionArray":"[7]","OffsetArray":"[7]","KeyArray":"[\"7\"]","TopicArray":"[\"shadow\"]"}}"#;

#[test]
fn kafka_records_of_string_batches_come_from_the_values_alone() {
    let invocation: Value = serde_json::from_str(KAFKA_STRING).unwrap();
    let metadata = object(invocation["Metadata"].clone());
    let records = kafka(&invocation["Data"]["events"], &metadata).unwrap();
    let headers = vec![header("h", Some("val"))];
    let expected = StreamRecord { headers, ..record(0, 42, Some("{\"id\":1}"), Some("{\"op\":\"c\"}")) };
    assert_eq!(records, [expected]);
    // An older bundle's tombstone without a key.
    let bare = r#"{"Topic":"pg.public.t","Partition":1,"Offset":3,"Timestamp":"2026-01-15T10:00:00.123","Value":null}"#;
    assert_eq!(kafka(&json!([bare]), &Map::new()).unwrap(), [record(1, 3, None, None)]);
}

/// What the host tells beside two events of Event Hubs.
fn event_hubs_metadata() -> Value {
    json!({
        "PartitionContext": {"FullyQualifiedNamespace": "ns.servicebus.windows.net", "EventHubName": "pg.public.t",
            "ConsumerGroup": "$Default", "PartitionId": "3"},
        "PartitionKeyArray": "[null,\"shadow\"]", "OffsetArray": "[\"4294967296\",\"4294968320\"]",
        "SequenceNumberArray": "[101,102]",
        "EnqueuedTimeUtcArray": "[\"2026-01-15T10:00:00.123\",\"0001-01-01T00:00:00\"]",
        "PropertiesArray": "[{\"k\":\"v\",\"n\":5,\"none\":null},{}]",
        "SystemPropertiesArray": "[{\"x-opt-sequence-number\":101},{}]",
    })
}

#[test]
fn event_hubs_records_have_the_sequence_number_and_no_key() {
    let metadata = object(event_hubs_metadata());
    let headers = vec![header("k", Some("v")), header("n", Some("5")), header("none", None)];
    let first = StreamRecord { headers, ..record(3, 101, None, Some("{\"before\":null,\"op\":\"c\"}")) };
    let tombstone = StreamRecord { timestamp: None, ..record(3, 102, None, None) };
    let text = json!(["{\"before\":null,\"op\":\"c\"}", ""]);
    let binary = json!([base64("{\"before\":null,\"op\":\"c\"}"), ""]);
    for values in [&text, &binary] {
        let expected = [first.clone(), tombstone.clone()];
        assert_eq!(event_hubs(&twice(values), &metadata).unwrap(), expected);
        assert_eq!(event_hubs(values, &metadata).unwrap(), expected, "encoded once");
    }
    // One text that is no base64 makes the batch a batch of texts.
    let mixed = event_hubs(&json!(["abcd", "{}"]), &metadata).unwrap();
    assert_eq!(mixed[0].value.as_deref(), Some(b"abcd".as_slice()));
}

#[test]
fn names_of_metadata_ignore_case_and_its_values_may_be_plain() {
    let metadata = object(json!({
        "partitioncontext": {"EventHubName": "pg.public.t", "PartitionId": "0"}, "sequenceNumberArray": [5],
    }));
    let expected = StreamRecord { timestamp: None, ..record(0, 5, None, Some("{}")) };
    assert_eq!(event_hubs(&json!(["{}"]), &metadata).unwrap(), [expected]);
}

#[test]
fn an_empty_batch_is_no_error() {
    let arrays = json!({"TopicArray": "[]", "PartitionArray": "[]", "OffsetArray": "[]", "KeyArray": "[]"});
    assert_eq!(kafka(&json!("[]"), &object(arrays)).unwrap(), []);
}

#[test]
fn a_position_is_never_guessed() {
    let without = |name: &str| {
        let mut metadata = object(kafka_metadata());
        metadata.remove(name);
        metadata
    };
    let values = json!(["", "", ""]);
    for name in ["TopicArray", "PartitionArray", "OffsetArray", "KeyArray"] {
        let error = kafka(&values, &without(name)).unwrap_err();
        assert_eq!(error.to_string(), format!("the invocation's metadata has no `{name}`"));
    }
    assert!(kafka(&values, &without("TimestampArray")).is_ok());
    let error = kafka(&json!(["", ""]), &object(kafka_metadata())).unwrap_err();
    assert_eq!(error.to_string(), "`TopicArray` has 3 entries for 2 records");
    let error = event_hubs(&json!([""]), &object(event_hubs_metadata())).unwrap_err();
    assert_eq!(error.to_string(), "`SequenceNumberArray` has 2 entries for 1 records");
    let error = event_hubs(&json!([""]), &object(json!({"SequenceNumberArray": "[1]"}))).unwrap_err();
    assert_eq!(error.to_string(), "the invocation's metadata has no `PartitionContext`");
    for partition in ["x", "-", "4294967296"] {
        let context =
            json!({"PartitionContext": {"EventHubName": "h", "PartitionId": partition}, "SequenceNumberArray": "[]"});
        assert!(event_hubs(&json!([]), &object(context)).is_err(), "{partition}");
    }
}

#[test]
fn what_is_no_batch_says_what_to_set() {
    let metadata = object(kafka_metadata());
    for value in [json!("{\"op\":\"c\"}"), json!({"op": "c"}), json!([1, 2]), json!("plain"), json!([{"op": "c"}])] {
        assert_eq!(kafka(&value, &metadata).unwrap_err().remedy_text(), Some(REMEDY), "{value}");
        assert_eq!(event_hubs(&value, &metadata).unwrap_err().remedy_text(), Some(REMEDY), "{value}");
    }
    for value in [json!(["not base64!", "", ""]), json!(["{\"op\":\"c\"}", "", ""]), json!(["{", "", ""])] {
        let error = kafka(&value, &metadata).unwrap_err();
        assert!(error.to_string().starts_with("record 0 of the batch"), "{error}");
        assert_eq!(error.remedy_text(), Some(REMEDY));
    }
    let mut metadata = metadata;
    metadata.insert("HeadersArray".to_owned(), json!([[{"Key": "h", "Value": "?"}], [], []]));
    let error = kafka(&json!(["", "", ""]), &metadata).unwrap_err();
    assert!(error.to_string().starts_with("the header `h` of a Kafka record is no base64"), "{error}");
}
