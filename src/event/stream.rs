//! Records of change streams as the host delivers them: the Kafka trigger's payload and the Event Hubs trigger's, each a
//! batch (cardinality many), encoded once (sent by hand) or twice (by the host).
//!
//! Values come as bytes (`dataType` binary: base64 of the raw value, exact) or as text (`dataType` string). A batch has one
//! `dataType`, so its form is decided for all its values together. What the payload does not carry within its values, the
//! position above all, is taken from the host's arrays beside them: the host merges nothing over these, because a batch is
//! an array and no object. Arrays of another length are an error, for a position that is guessed is worse than none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// One delivered record of a change stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRecord {
    /// Kafka topic, or the event hub's name.
    pub topic: String,
    /// Partition within the topic.
    pub partition: i32,
    /// Kafka offset, or the Event Hubs sequence number: counts the records of a partition.
    pub offset: i64,
    /// Milliseconds since 1970, UTC: Kafka's timestamp, or when Event Hubs took the event in; none when the host tells none.
    pub timestamp: Option<i64>,
    /// The key's bytes; none for a null key, and always for Event Hubs, whose events have none.
    pub key: Option<Vec<u8>>,
    /// The value's bytes; none is a tombstone. The host makes an empty value of a null one, so both are none.
    pub value: Option<Vec<u8>>,
    /// Kafka's headers, or the event's properties, in the order in which the host wrote them.
    pub headers: Vec<StreamHeader>,
}

/// A header of a record. A name may repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamHeader {
    /// Its name.
    pub name: String,
    /// Its bytes; none for null.
    pub value: Option<Vec<u8>>,
}

/// The records of a Kafka trigger's batch: `value` is the trigger's value in `Data`.
///
/// With `dataType` binary, position, key, time and headers come from the arrays in `metadata`; with `dataType` string they
/// come from the values, which are whole events, and `metadata` is not read.
///
/// # Errors
/// The payload is no such batch, or an array is missing or of another length.
pub fn kafka(value: &Value, metadata: &Map<String, Value>) -> Result<Vec<StreamRecord>> {
    let values = batch(value)?;
    // No base64 begins like an object.
    if values.iter().flatten().any(|text| text.trim_start().starts_with('{')) {
        return values.iter().enumerate().map(|(at, text)| kafka_event(at, text.as_deref())).collect();
    }
    let arrays = Arrays { metadata, length: values.len() };
    let topics: Vec<String> = arrays.needed("TopicArray")?;
    let partitions: Vec<i32> = arrays.needed("PartitionArray")?;
    let offsets: Vec<i64> = arrays.needed("OffsetArray")?;
    // Text, as long as the binding does not ask for another `keyDataType`.
    let keys: Vec<Option<String>> = arrays.needed("KeyArray")?;
    let times: Option<Vec<Option<String>>> = arrays.optional("TimestampArray")?;
    let headers: Option<Vec<Option<Vec<KafkaHeader>>>> = arrays.optional("HeadersArray")?;
    let mut headers = headers.into_iter().flatten();
    let mut keys = keys.into_iter();
    let mut records = Vec::with_capacity(values.len());
    for (at, (text, topic)) in values.iter().zip(topics).enumerate() {
        let bytes = text.as_deref().map(from_base64).transpose().map_err(|error| error.within(element(at)))?;
        records.push(StreamRecord {
            topic,
            partition: partitions[at],
            offset: offsets[at],
            timestamp: times.as_ref().and_then(|times| times[at].as_deref()).and_then(millis),
            key: keys.next().flatten().map(String::into_bytes),
            value: bytes.filter(|bytes| !bytes.is_empty()),
            headers: headers.next().flatten().map(kafka_headers).transpose()?.unwrap_or_default(),
        });
    }
    Ok(records)
}

/// The records of an Event Hubs trigger's batch: `value` is the trigger's value in `Data`. The offset is the sequence
/// number, which counts without holes; the key is the value's own.
///
/// # Errors
/// The payload is no such batch, the partition is not told, or an array is missing or of another length.
pub fn event_hubs(value: &Value, metadata: &Map<String, Value>) -> Result<Vec<StreamRecord>> {
    let values = batch(value)?;
    let arrays = Arrays { metadata, length: values.len() };
    let context: PartitionContext = arrays.object("PartitionContext")?;
    let partition = context.partition_id.parse().map_err(|error| {
        Error::invalid(format!("PartitionContext: the partition `{}`", context.partition_id)).because(error)
    })?;
    let offsets: Vec<i64> = arrays.needed("SequenceNumberArray")?;
    let times: Option<Vec<Option<String>>> = arrays.optional("EnqueuedTimeUtcArray")?;
    let properties: Option<Vec<Option<Map<String, Value>>>> = arrays.optional("PropertiesArray")?;
    let mut properties = properties.into_iter().flatten();
    let bytes = bytes_of_all(values);
    let mut records = Vec::with_capacity(offsets.len());
    for (at, (bytes, offset)) in bytes.into_iter().zip(offsets).enumerate() {
        records.push(StreamRecord {
            topic: context.event_hub_name.clone(),
            partition,
            offset,
            timestamp: times.as_ref().and_then(|times| times[at].as_deref()).and_then(millis),
            key: None,
            value: bytes.filter(|bytes| !bytes.is_empty()),
            headers: properties.next().flatten().map(property_headers).unwrap_or_default(),
        });
    }
    Ok(records)
}

const REMEDY: &str = "set cardinality many and dataType binary in function.json";

/// The values of a batch, in order.
fn batch(value: &Value) -> Result<Vec<Option<String>>> {
    decoded(value).map_err(|error| {
        Error::invalid("the trigger's value in `Data` is no array of texts").because(error).remedy(REMEDY)
    })
}

/// Takes the host's second encoding off, if it is there.
fn decoded<T: DeserializeOwned>(value: &Value) -> serde_json::Result<T> {
    match value {
        Value::String(text) => serde_json::from_str(text),
        plain => T::deserialize(plain),
    }
}

fn element(at: usize) -> String {
    format!("record {at} of the batch")
}

fn from_base64(text: &str) -> Result<Vec<u8>> {
    BASE64.decode(text).map_err(|error| {
        Error::invalid("the value is neither base64 nor a whole Kafka event").because(error).remedy(REMEDY)
    })
}

/// Bodies of Event Hubs: base64 when all of them are, else text as it is.
fn bytes_of_all(values: Vec<Option<String>>) -> Vec<Option<Vec<u8>>> {
    let decoded: Result<Vec<Option<Vec<u8>>>, _> =
        values.iter().map(|text| text.as_ref().map(|text| BASE64.decode(text)).transpose()).collect();
    decoded.unwrap_or_else(|_| values.into_iter().map(|text| text.map(String::into_bytes)).collect())
}

/// Milliseconds of a time as .NET writes it: with `Z`, an offset, or nothing, which is UTC. The year 1 is no time at all.
fn millis(text: &str) -> Option<i64> {
    let at: DateTime<Utc> = match text.parse::<DateTime<Utc>>() {
        Ok(at) => at,
        Err(_) => text.parse::<NaiveDateTime>().ok()?.and_utc(),
    };
    (!text.starts_with("0001-")).then(|| at.timestamp_millis())
}

/// The host's arrays beside a batch.
struct Arrays<'a> {
    metadata: &'a Map<String, Value>,
    length: usize,
}

impl Arrays<'_> {
    fn find(&self, name: &str) -> Option<&Value> {
        // .NET's dictionary of them ignores case.
        let found = self.metadata.get(name);
        found.or_else(|| {
            self.metadata.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        })
    }

    fn object<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let missing = || Error::invalid(format!("the invocation's metadata has no `{name}`"));
        let value = self.find(name).ok_or_else(missing)?;
        decoded(value).map_err(|error| Error::invalid(format!("`{name}` in the invocation's metadata")).because(error))
    }

    fn needed<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>> {
        let array: Vec<T> = self.object(name)?;
        if array.len() == self.length {
            return Ok(array);
        }
        Err(Error::invalid(format!("`{name}` has {} entries for {} records", array.len(), self.length)))
    }

    fn optional<T: DeserializeOwned>(&self, name: &str) -> Result<Option<Vec<T>>> {
        self.find(name).map(|_| self.needed(name)).transpose()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PartitionContext {
    event_hub_name: String,
    partition_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KafkaHeader {
    key: String,
    value: Option<String>,
}

/// A value of a Kafka batch with `dataType` string. Older extension bundles send less, newer ones more.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KafkaEvent {
    topic: String,
    partition: i32,
    offset: i64,
    timestamp: Option<String>,
    key: Option<String>,
    value: Option<String>,
    headers: Option<Vec<KafkaHeader>>,
}

fn kafka_event(at: usize, text: Option<&str>) -> Result<StreamRecord> {
    let event: KafkaEvent = serde_json::from_str(text.unwrap_or_default()).map_err(|error| {
        Error::invalid(format!("{} is no whole Kafka event", element(at))).because(error).remedy(REMEDY)
    })?;
    Ok(StreamRecord {
        topic: event.topic,
        partition: event.partition,
        offset: event.offset,
        timestamp: event.timestamp.as_deref().and_then(millis),
        key: event.key.map(String::into_bytes),
        value: event.value.map(String::into_bytes).filter(|bytes| !bytes.is_empty()),
        headers: event.headers.map(kafka_headers).transpose()?.unwrap_or_default(),
    })
}

fn kafka_headers(headers: Vec<KafkaHeader>) -> Result<Vec<StreamHeader>> {
    let read = |header: KafkaHeader| {
        let value = header.value.map(|text| BASE64.decode(text)).transpose().map_err(|error| {
            Error::invalid(format!("the header `{}` of a Kafka record is no base64", header.key)).because(error)
        })?;
        Ok(StreamHeader { name: header.key, value })
    };
    headers.into_iter().map(read).collect()
}

/// Properties of an event are typed; numbers and the like are kept as their JSON text.
fn property_headers(properties: Map<String, Value>) -> Vec<StreamHeader> {
    let bytes = |value: Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.into_bytes()),
        other => Some(other.to_string().into_bytes()),
    };
    properties.into_iter().map(|(name, value)| StreamHeader { name, value: bytes(value) }).collect()
}

#[cfg(test)]
mod tests;
