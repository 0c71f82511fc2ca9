//! The bytes that the Azure Functions host would send for an invocation, and its judgement of an answer.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::http::Answer;
use crate::queue::Message;

/// The body of an invocation by a queue message. `binary`: the message is handed over as bytes.
#[must_use]
pub(super) fn queue_invocation(
    function: &str,
    binding: &str,
    binary: bool,
    message: &Message,
    moment: &Moment,
) -> Vec<u8> {
    let text = String::from_utf8_lossy(&message.body);
    let mut metadata = Map::new();
    metadata.insert("DequeueCount".to_owned(), json!(message.dequeue_count.to_string()));
    metadata.insert("ExpirationTime".to_owned(), json!(offset_time(message.expires)));
    metadata.insert("Id".to_owned(), twice(&message.id));
    metadata.insert("InsertionTime".to_owned(), json!(offset_time(message.inserted)));
    metadata.insert("NextVisibleTime".to_owned(), json!(offset_time(message.visible_at)));
    metadata.insert("PopReceipt".to_owned(), twice(&message.receipt));
    metadata.insert("sys".to_owned(), system(function, moment));
    let value = if binary {
        use base64::Engine as _;
        Value::String(base64::engine::general_purpose::STANDARD.encode(&message.body))
    } else {
        shadow(&mut metadata, &text);
        twice(&text)
    };
    json!({ "Data": { binding: value }, "Metadata": metadata }).to_string().into_bytes()
}

/// The body of an invocation by a timer. `occurrences`: the last run (none yet) and the one that runs now, for timers
/// whose status is kept.
#[must_use]
pub(super) fn timer_invocation(
    function: &str,
    binding: &str,
    occurrences: Option<(Option<DateTime<Utc>>, DateTime<Utc>)>,
    moment: &Moment,
) -> Vec<u8> {
    let never = "0001-01-01T00:00:00+00:00".to_owned();
    let status = occurrences.map(|(last, now)| {
        let last = last.map_or(never, offset_time);
        json!({ "Last": last, "Next": offset_time(now), "LastUpdated": last })
    });
    let timer = json!({ "Schedule": { "AdjustForDST": true }, "ScheduleStatus": status, "IsPastDue": false });
    json!({ "Data": { binding: timer }, "Metadata": { "sys": system(function, moment) } }).to_string().into_bytes()
}

/// The body of an invocation by records of Kafka, a batch with `dataType` binary. What newer bundles add to it (the epoch of
/// the leader, whether the partition ended) is left out, as older ones do.
#[cfg(feature = "kafka")]
#[must_use]
pub(super) fn kafka_invocation(
    function: &str,
    binding: &str,
    records: &[crate::event::stream::StreamRecord],
    moment: &Moment,
) -> Vec<u8> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use std::fmt::Write as _;
    let mut values = String::from("[");
    for record in records {
        let comma = if values.len() > 1 { "," } else { "" };
        let _ = write!(values, "{comma}\"");
        // The host makes an empty value of a null one.
        BASE64.encode_string(record.value.as_deref().unwrap_or_default(), &mut values);
        values.push('"');
    }
    values.push(']');
    let mut metadata = Map::new();
    let mut array = |name: &str, value: &dyn Fn(&crate::event::stream::StreamRecord) -> Value| {
        let text = Value::Array(records.iter().map(value).collect()).to_string();
        metadata.insert(name.to_owned(), Value::String(text));
    };
    array("PartitionArray", &|record| json!(record.partition));
    array("OffsetArray", &|record| json!(record.offset));
    array("TimestampArray", &|record| json!(dotnet_time(record.timestamp)));
    array("TopicArray", &|record| json!(record.topic));
    array("KeyArray", &|record| json!(record.key.as_deref().map(String::from_utf8_lossy)));
    array("HeadersArray", &|record| {
        let headers = record.headers.iter().map(|header| {
            let value = header.value.as_deref().map(|bytes| BASE64.encode(bytes));
            json!({ "Key": header.name, "Value": value })
        });
        Value::Array(headers.collect())
    });
    metadata.insert("sys".to_owned(), system(function, moment));
    json!({ "Data": { binding: values }, "Metadata": metadata }).to_string().into_bytes()
}

/// .NET's date in UTC, without zeros at the end of the fraction; the year 1 for none.
#[cfg(feature = "kafka")]
fn dotnet_time(millis: Option<i64>) -> String {
    let Some(at) = millis.and_then(DateTime::<Utc>::from_timestamp_millis) else {
        return "0001-01-01T00:00:00Z".to_owned();
    };
    let text = at.format("%Y-%m-%dT%H:%M:%S%.3f").to_string();
    format!("{}Z", text.trim_end_matches('0').trim_end_matches('.'))
}

/// When an invocation is made, and a random id for it.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    /// Now.
    pub now: DateTime<Utc>,
    /// 32 hex digits.
    pub fresh: String,
}

/// Whether an answer is a success by the host's rules: 2xx, a JSON media type, a JSON object.
///
/// # Errors
/// Why it is none.
pub(super) fn judge(status: u16, media_type: &str, body: &[u8]) -> Result<Answer> {
    if !(200..300).contains(&status) {
        return Err(Error::internal(format!("the handler answered {status}: {}", reason(body))));
    }
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if !matches!(media_type, "application/json" | "text/json") {
        return Err(Error::internal(format!("the handler answered with `{media_type}`, not with JSON")));
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(value @ Value::Object(_)) => serde_json::from_value(value)
            .map_err(|error| Error::internal("the handler's answer has another shape than the host's").because(error)),
        // The Functions host would wait for more until the function's time is over.
        Ok(Value::Null) => Err(Error::internal("the handler answered with nothing")),
        _ if body.is_empty() => Err(Error::internal("the handler answered with nothing")),
        _ => Err(Error::internal("the handler's answer is no JSON object")),
    }
}

/// A failure's own words, if it has some.
fn reason(body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let message = parsed.as_ref().and_then(|value| value.pointer("/error/message")).and_then(Value::as_str);
    message.map_or_else(|| String::from_utf8_lossy(body).chars().take(500).collect(), str::to_owned)
}

/// A string of .NET as the host sends it: a JSON string that holds JSON text.
fn twice(text: &str) -> Value {
    Value::String(Value::String(text.to_owned()).to_string())
}

/// .NET's date with an offset: whole seconds.
fn offset_time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

/// A fresh name in the form of a GUID, with hyphens.
pub(super) fn guid(fresh: &str) -> String {
    uuid::Uuid::parse_str(fresh).map_or_else(|_| fresh.to_owned(), |id| id.to_string())
}

fn system(function: &str, moment: &Moment) -> Value {
    let guid = guid(&moment.fresh);
    let now = moment.now.format("%Y-%m-%dT%H:%M:%S%.6f");
    json!({ "MethodName": function, "UtcNow": format!("{now}0Z"), "RandGuid": guid })
}

/// The host merges the properties of a message that is a JSON object over its own metadata. So do we, so that a handler
/// that trusts metadata fails here and not only there.
fn shadow(metadata: &mut Map<String, Value>, message: &str) {
    let Ok(Value::Object(properties)) = serde_json::from_str::<Value>(message) else { return };
    for (name, value) in properties {
        let value = match value {
            Value::Null | Value::Array(_) => continue,
            Value::Object(nested) => Value::Object(nested),
            Value::String(text) => twice(&text),
            scalar => twice(&scalar.to_string()),
        };
        if name.to_ascii_lowercase().ends_with("trigger") {
            continue;
        }
        metadata.retain(|known, _| !known.eq_ignore_ascii_case(&name));
        metadata.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::http::Invocation;

    fn moment() -> Moment {
        Moment {
            now: "2026-01-15T10:00:01.123456Z".parse().unwrap(),
            fresh: "b3f9d8a06f0e4f1e9d560d1f4a3b7c11".to_owned(),
        }
    }

    fn message(body: &[u8]) -> Message {
        Message {
            queue: "landing-events".to_owned(),
            id: "6a1c".to_owned(),
            body: body.to_vec(),
            dequeue_count: 1,
            receipt: "AgAA==".to_owned(),
            inserted: "2026-01-15T10:00:00.9Z".parse().unwrap(),
            expires: "2026-01-22T10:00:00Z".parse().unwrap(),
            visible_at: "2026-01-15T10:10:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn a_queue_invocation_is_the_hosts_to_the_byte() {
        let body = queue_invocation("ingest", "msg", false, &message(br#"{"a":1}"#), &moment());
        assert_eq!(
            String::from_utf8(body).unwrap(),
            concat!(
                r#"{"Data":{"msg":"\"{\\\"a\\\":1}\""},"#,
                r#""Metadata":{"DequeueCount":"1","ExpirationTime":"2026-01-22T10:00:00+00:00","Id":"\"6a1c\"","#,
                r#""InsertionTime":"2026-01-15T10:00:00+00:00","NextVisibleTime":"2026-01-15T10:10:00+00:00","#,
                r#""PopReceipt":"\"AgAA==\"","sys":{"MethodName":"ingest","UtcNow":"2026-01-15T10:00:01.1234560Z","#,
                r#""RandGuid":"b3f9d8a0-6f0e-4f1e-9d56-0d1f4a3b7c11"},"a":"\"1\""}}"#,
            )
        );
    }

    #[test]
    fn a_message_shadows_metadata() {
        let text = br#"{"id":"E","dequeueCount":9,"data":{"x":1},"list":[1],"none":null,"QueueTrigger":"q"}"#;
        let body = queue_invocation("ingest", "msg", false, &message(text), &moment());
        let metadata: Value = serde_json::from_slice::<Value>(&body).unwrap()["Metadata"].take();
        assert_eq!((&metadata["id"], metadata.get("Id")), (&json!("\"E\""), None));
        assert_eq!(metadata["dequeueCount"], json!("\"9\""));
        assert_eq!(metadata["data"], json!({"x": 1}));
        assert_eq!((metadata.get("list"), metadata.get("none"), metadata.get("QueueTrigger")), (None, None, None));
    }

    #[test]
    fn the_handler_reads_back_what_was_sent() {
        for body in [br#"{"a":1}"#.as_slice(), b"eyJhIjoxfQ==", b"plain", b"", b"[1]", "\"q\" \u{e9}".as_bytes()] {
            for binary in [false, true] {
                let sent = queue_invocation("ingest", "msg", binary, &message(body), &moment());
                assert_eq!(Invocation::parse(&sent).unwrap().message().unwrap(), body, "binary {binary}");
            }
        }
    }

    #[test]
    fn a_timer_invocation_is_the_hosts() {
        let run = timer_invocation("commit", "timer", None, &moment());
        assert_eq!(
            String::from_utf8(run).unwrap(),
            concat!(
                r#"{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,"IsPastDue":false}},"#,
                r#""Metadata":{"sys":{"MethodName":"commit","UtcNow":"2026-01-15T10:00:01.1234560Z","#,
                r#""RandGuid":"b3f9d8a0-6f0e-4f1e-9d56-0d1f4a3b7c11"}}}"#,
            )
        );
        let first = timer_invocation("reconcile", "timer", Some((None, moment().now)), &moment());
        let status = serde_json::from_slice::<Value>(&first).unwrap()["Data"]["timer"]["ScheduleStatus"].take();
        assert_eq!(
            status,
            json!({"Last": "0001-01-01T00:00:00+00:00", "Next": "2026-01-15T10:00:01+00:00", "LastUpdated": "0001-01-01T00:00:00+00:00"})
        );
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_kafka_invocation_is_the_hosts_and_the_handler_reads_it_back() {
        use crate::event::stream::{self, StreamHeader, StreamRecord};
        let record = |offset, timestamp, key: Option<&str>, value: Option<&[u8]>| StreamRecord {
            topic: "cdc".to_owned(),
            partition: 3,
            offset,
            timestamp,
            key: key.map(|key| key.as_bytes().to_vec()),
            value: value.map(<[u8]>::to_vec),
            headers: Vec::new(),
        };
        let mut records = vec![
            record(101, Some(1_768_471_200_120), Some("{\"id\":1}"), Some(b"{\"op\":\"c\"}")),
            record(103, Some(1_768_471_200_000), Some("\u{e9}\n\""), None),
            record(104, None, None, Some(b"\xff\0")),
        ];
        let header =
            |name: &str, value: Option<&[u8]>| StreamHeader { name: name.to_owned(), value: value.map(<[u8]>::to_vec) };
        records[0].headers = vec![header("k", Some(b"v")), header("k", None)];
        let body = kafka_invocation("cdc_kafka", "events", &records, &moment());
        assert_eq!(
            String::from_utf8(body.clone()).unwrap(),
            concat!(
                r#"{"Data":{"events":"[\"eyJvcCI6ImMifQ==\",\"\",\"/wA=\"]"},"Metadata":{"PartitionArray":"[3,3,3]","#,
                r#""OffsetArray":"[101,103,104]","TimestampArray":"[\"2026-01-15T10:00:00.12Z\",\"2026-01-15T10:00:00Z\","#,
                r#"\"0001-01-01T00:00:00Z\"]","TopicArray":"[\"cdc\",\"cdc\",\"cdc\"]","#,
                r#""KeyArray":"[\"{\\\"id\\\":1}\",\"\u{e9}\\n\\\"\",null]","#,
                r#""HeadersArray":"[[{\"Key\":\"k\",\"Value\":\"dg==\"},{\"Key\":\"k\",\"Value\":null}],[],[]]","#,
                r#""sys":{"MethodName":"cdc_kafka","UtcNow":"2026-01-15T10:00:01.1234560Z","#,
                r#""RandGuid":"b3f9d8a0-6f0e-4f1e-9d56-0d1f4a3b7c11"}}}"#,
            )
            .replace("\\u{e9}", "\u{e9}")
        );
        let read = Invocation::parse(&body).unwrap();
        assert_eq!(stream::kafka(read.value().unwrap(), &read.metadata).unwrap(), records);
    }

    #[test]
    fn only_a_json_object_is_success() {
        for (status, media_type, body, is_success) in [
            (200, "application/json", r#"{"Outputs":{},"Logs":[],"ReturnValue":null}"#, true),
            (200, "application/json; charset=utf-8", "{}", true),
            (204, "text/json", "{}", true),
            (200, "application/json", "", false),
            (200, "application/json", "null", false),
            (200, "application/json", "[]", false),
            (200, "application/json", "{", false),
            (200, "text/plain", "{}", false),
            (200, "", "{}", false),
            (500, "application/json", "{}", false),
            (302, "application/json", "{}", false),
        ] {
            assert_eq!(judge(status, media_type, body.as_bytes()).is_ok(), is_success, "{status} {media_type} {body}");
        }
        let error = judge(500, "application/json", br#"{"error":{"kind":"invalid","message":"a fault"}}"#).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Internal, "the handler answered 500: a fault"));
    }
}
