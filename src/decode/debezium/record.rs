//! A delivered record as a line, so that events read alike however they came.

/// The key that a record brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKey<'a> {
    /// None: the key columns are in the value, and the line has no member `key`.
    InValue,
    /// Null.
    Null,
    /// These bytes.
    Bytes(&'a [u8]),
}

/// The line `{"topic":"..","partition":0,"offset":1,"timestamp":ms,"key":..,"value":..}`: no blanks, key and value bytes as
/// they came, nothing for a null. A record whose key or value is no JSON makes a line that is none.
#[must_use]
pub fn record_line(
    topic: &str,
    partition: i32,
    offset: i64,
    timestamp: Option<i64>,
    key: RecordKey<'_>,
    value: Option<&[u8]>,
) -> Vec<u8> {
    let topic = serde_json::Value::from(topic);
    let time = timestamp.map_or_else(|| "null".to_owned(), |time| time.to_string());
    let mut line =
        format!(r#"{{"topic":{topic},"partition":{partition},"offset":{offset},"timestamp":{time}"#).into_bytes();
    let key = match key {
        RecordKey::InValue => None,
        RecordKey::Null | RecordKey::Bytes([]) => Some(NULL),
        RecordKey::Bytes(bytes) => Some(bytes),
    };
    if let Some(key) = key {
        line.extend_from_slice(br#","key":"#);
        line.extend_from_slice(key);
    }
    line.extend_from_slice(br#","value":"#);
    line.extend_from_slice(value.filter(|value| !value.is_empty()).unwrap_or(NULL));
    line.push(b'}');
    line
}

const NULL: &[u8] = b"null";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::debezium::{Kind, read};

    #[test]
    fn a_line_has_the_bytes_that_came() {
        let line = |key, value| String::from_utf8(record_line("a\"b", 2, 7, Some(1), key, value)).unwrap();
        let head = r#"{"topic":"a\"b","partition":2,"offset":7,"timestamp":1"#;
        for (key, value, wanted) in [
            (RecordKey::Bytes(br#"{ "id": 1.0 }"#), Some(&b"{\n }"[..]), ",\"key\":{ \"id\": 1.0 },\"value\":{\n }}"),
            (RecordKey::Null, None, ",\"key\":null,\"value\":null}"),
            (RecordKey::Bytes(b""), Some(b""), ",\"key\":null,\"value\":null}"),
            (RecordKey::InValue, Some(b"{}"), ",\"value\":{}}"),
        ] {
            assert_eq!(line(key, value), format!("{head}{wanted}"));
        }
        assert!(
            record_line("t", 0, 0, None, RecordKey::Null, None)
                .starts_with(b"{\"topic\":\"t\",\"partition\":0,\"offset\":0,\"timestamp\":null")
        );
        let text = record_line("t", 0, 0, None, RecordKey::Bytes(b"a key that is no JSON"), None);
        assert!(matches!(read(&text).kind, Kind::Malformed(_)));
        assert_eq!(read(&record_line("t", 0, 5, None, RecordKey::InValue, None)).kind, Kind::Ignored);
    }
}
