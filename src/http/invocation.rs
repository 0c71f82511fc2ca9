//! The custom handler's wire format: what an invocation says, and what an answer must look like.
//!
//! A request is `{"Data": {..}, "Metadata": {..}}`. The host sends strings of .NET as JSON strings that hold JSON text
//! (encoded twice), bytes as base64, and objects as they are. Business data is taken from `Data` alone: a message's own
//! fields can shadow those of `Metadata`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Header with the id of an invocation.
pub const INVOCATION_ID: &str = "x-azure-functions-invocationid";

/// What the host sends for one run of one function.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// The trigger's value, under the name of its binding.
    pub data: Map<String, Value>,
    /// What the host knows about it. For information: a message can shadow it.
    pub metadata: Map<String, Value>,
}

/// What a function answers when it succeeded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Values for output bindings.
    #[serde(rename = "Outputs", default)]
    pub outputs: Map<String, Value>,
    /// Lines that the host ties to this invocation.
    #[serde(rename = "Logs", default)]
    pub logs: Vec<String>,
    /// Value of the `$return` binding.
    #[serde(rename = "ReturnValue", default)]
    pub return_value: Value,
}

impl IntoResponse for Answer {
    /// Always a JSON object: an empty answer would hang the invocation until its time is over.
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

impl Invocation {
    /// Reads a request's body. An empty one is an invocation without data (an HTTP ping by hand).
    ///
    /// # Errors
    /// The body is no such JSON object.
    pub fn parse(body: &[u8]) -> Result<Self> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let wrong = || Error::invalid("the body of the invocation is no object with `Data` and `Metadata`");
        let mut whole: Map<String, Value> = serde_json::from_slice(body).map_err(|error| wrong().because(error))?;
        let mut object = |name: &str| match whole.remove(name) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(_) => Err(wrong()),
        };
        Ok(Self { data: object("Data")?, metadata: object("Metadata")? })
    }

    /// The trigger's value as it came, the only one of `Data` whatever its name.
    ///
    /// # Errors
    /// There is not exactly one value.
    pub fn value(&self) -> Result<&Value> {
        let mut values = self.data.values();
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value),
            _ => Err(Error::invalid(format!("the invocation has {} values in `Data`, expected one", self.data.len()))),
        }
    }

    /// The message of a queue trigger as its sender wrote it.
    ///
    /// # Errors
    /// There is not exactly one value, or it cannot be a message.
    pub fn message(&self) -> Result<Vec<u8>> {
        let value = self.value()?;
        match value {
            Value::String(text) => Ok(message_of_string(text)),
            Value::Object(_) | Value::Array(_) => Ok(value.to_string().into_bytes()),
            _ => Err(Error::invalid("the invocation's value in `Data` is neither text nor JSON")),
        }
    }

    /// How often the message was delivered, as far as the host says and nothing shadows it.
    #[must_use]
    pub fn dequeue_count(&self) -> u32 {
        let count = self.metadata.iter().find(|(name, _)| name.eq_ignore_ascii_case("DequeueCount"));
        match count.map(|(_, value)| value) {
            Some(Value::String(text)) => text.trim_matches('"').parse().unwrap_or(0),
            Some(Value::Number(number)) => number.as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
            _ => 0,
        }
    }
}

/// One level of the host's encoding taken off: a JSON string in the string (`dataType` string), plain JSON (sent so by
/// hand and in samples), base64 (`dataType` binary), or plain text.
fn message_of_string(text: &str) -> Vec<u8> {
    let trimmed = text.trim();
    if trimmed.starts_with('"') {
        if let Ok(inner) = serde_json::from_str::<String>(trimmed) {
            return inner.into_bytes();
        }
    } else if !trimmed.starts_with(['{', '['])
        && let Ok(bytes) = BASE64.decode(trimmed)
    {
        return bytes;
    }
    text.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The queue text `{"a":1}` as functions-host's sample has it.
    const QUEUE_STRING: &str = r#"{"Data":{"msg":"\"{\\\"a\\\":1}\""},
     "Metadata":{
      "DequeueCount":"1",
      "ExpirationTime":"2026-01-22T10:00:00+00:00",
      "Id":"\"6a1c1f7e-6f0e-4f1e-9d56-0d1f4a3b7c11\"",
      "InsertionTime":"2026-01-15T10:00:00+00:00",
      "NextVisibleTime":"2026-01-15T10:10:00+00:00",
      "PopReceipt":"\"AgAAAAMAAAAAAAAA8s3h2Q==\"",
      "sys":{"MethodName":"Ingest","UtcNow":"2026-01-15T10:00:01.1234567Z","RandGuid":"b3f9d8a0"},
      "a":"\"1\""}}"#;

    #[test]
    fn a_message_is_read_from_every_form_it_comes_in() {
        let base64 = BASE64.encode(r#"{"a":1}"#);
        for (body, message) in [
            (QUEUE_STRING.to_owned(), r#"{"a":1}"#),
            (r#"{"Data":{"msg":"eyJhIjoxfQ=="},"Metadata":{}}"#.to_owned(), r#"{"a":1}"#),
            (r#"{"Data":{"msg":"{\"a\":1}"},"Metadata":{}}"#.to_owned(), r#"{"a":1}"#),
            (r#"{"Data":{"msg":{"a":1}}}"#.to_owned(), r#"{"a":1}"#),
            (r#"{"Data":{"event":"[{\"a\":1}]"}}"#.to_owned(), r#"[{"a":1}]"#),
            (r#"{"Data":{"msg":"\"plain text\""}}"#.to_owned(), "plain text"),
            (r#"{"Data":{"msg":"plain text"}}"#.to_owned(), "plain text"),
            (r#"{"Data":{"msg":"\"\""}}"#.to_owned(), ""),
            // Base64 that the sender wrote, encoded twice by the host as any string: stays base64.
            (serde_json::json!({"Data": {"msg": serde_json::to_string(&base64).unwrap()}}).to_string(), "eyJhIjoxfQ=="),
            // The same with dataType binary.
            (serde_json::json!({"Data": {"msg": BASE64.encode(&base64)}}).to_string(), "eyJhIjoxfQ=="),
        ] {
            let invocation = Invocation::parse(body.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(invocation.message().unwrap()).unwrap(), message, "{body}");
        }
    }

    #[test]
    fn what_is_no_invocation_is_refused() {
        for body in ["[]", "null", "7", "{\"Data\":7}", "{"] {
            assert!(Invocation::parse(body.as_bytes()).is_err(), "{body}");
        }
        for body in [
            "",
            "{}",
            r#"{"Data":{}}"#,
            r#"{"Data":{"a":"x","b":"y"}}"#,
            r#"{"Data":{"msg":null}}"#,
            r#"{"Data":{"msg":7}}"#,
        ] {
            assert!(Invocation::parse(body.as_bytes()).unwrap().message().is_err(), "{body}");
        }
    }

    #[test]
    fn the_dequeue_count_is_read_where_it_can_be() {
        for (metadata, count) in [
            (r#"{"DequeueCount":"3"}"#, 3),
            (r#"{"DequeueCount":3}"#, 3),
            (r#"{"dequeueCount":"\"4\""}"#, 4),
            (r#"{"DequeueCount":"many"}"#, 0),
            ("{}", 0),
        ] {
            let body = format!(r#"{{"Data":{{}},"Metadata":{metadata}}}"#);
            assert_eq!(Invocation::parse(body.as_bytes()).unwrap().dequeue_count(), count, "{metadata}");
        }
    }

    #[test]
    fn a_timer_invocation_has_data_that_nobody_needs() {
        let body = r#"{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,"IsPastDue":false}},
            "Metadata":{"sys":{"MethodName":"Commit","UtcNow":"2026-01-15T10:00:00.0123456Z","RandGuid":"x"}}}"#;
        assert!(Invocation::parse(body.as_bytes()).is_ok());
    }

    #[test]
    fn an_answer_is_never_empty() {
        assert_eq!(
            serde_json::to_string(&Answer::default()).unwrap(),
            r#"{"Outputs":{},"Logs":[],"ReturnValue":null}"#
        );
    }
}
