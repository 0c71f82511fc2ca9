//! Change events of a small shop as Debezium and its connectors write them: one stream a topic, offsets without a hole.

use super::chance::Chance;
use crate::event::stream::StreamRecord;

/// One record of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// JSON text; none is a null key.
    pub key: Option<String>,
    /// JSON text; none is a tombstone.
    pub value: Option<String>,
}

impl Record {
    /// The line of a file of records, without its line end.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { topic, partition, offset, timestamp, key, value } = self;
        let (key, value) = (key.as_deref().unwrap_or("null"), value.as_deref().unwrap_or("null"));
        format!(
            r#"{{"topic":"{topic}","partition":{partition},"offset":{offset},"timestamp":{timestamp},"key":{key},"value":{value}}}"#
        )
    }

    /// The record as a trigger delivers it.
    #[must_use]
    pub fn delivered(&self) -> StreamRecord {
        let bytes = |text: &Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
        StreamRecord {
            topic: self.topic.clone(),
            partition: self.partition,
            offset: self.offset,
            timestamp: Some(self.timestamp),
            key: bytes(&self.key),
            value: bytes(&self.value),
            headers: Vec::new(),
        }
    }

    /// Whether it changes no row.
    #[must_use]
    pub fn is_ignored(&self) -> bool {
        self.value.as_deref().is_none_or(|value| value.contains("\"op\":\"m\"") || !value.contains("\"op\""))
    }

    /// Whether it is no event at all.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        self.value.as_deref().is_some_and(|value| value.ends_with("\"after\":{\"cut"))
    }
}

/// Streams of `count` records each: three of tables (one of them over two partitions) and one of everything else.
#[must_use]
pub fn streams(seed: u64, count: i64) -> Vec<Vec<Record>> {
    let mut chance = Chance::new(seed);
    let mut streams: Vec<Vec<Record>> = [("orders", 0), ("orders", 1), ("customers", 0), ("items", 0)]
        .into_iter()
        .map(|(table, partition)| (0..count).map(|offset| change(table, partition, offset, &mut chance)).collect())
        .collect();
    streams.push((0..count).map(|offset| other(offset, &mut chance)).collect());
    streams
}

fn change(table: &str, partition: i32, offset: i64, chance: &mut Chance) -> Record {
    let (id, at) = (chance.below(20), 1_700_000_000_000 + offset * 7);
    let key = format!(r#"{{"id":{id}}}"#);
    let row = format!(
        r#"{{"id":{id},"name":"N\u00e9 {}","total":"{}.{:02}"}}"#,
        chance.below(5),
        chance.below(900),
        chance.below(100)
    );
    let source = format!(
        r#""source":{{"connector":"postgresql","ts_ms":{at},"schema":"public","table":"{table}","txId":{},"lsn":{}}}"#,
        offset / 3,
        9_000_000_000 + offset * 64
    );
    let (op, before, after) = match chance.below(10) {
        0 => ("d", row.as_str(), "null"),
        1..4 => ("c", "null", row.as_str()),
        _ => ("u", "null", row.as_str()),
    };
    let value = match chance.below(20) {
        0 => None,
        1 => Some(format!(r#"{{"before":null,{source},"op":"u","after":{{"cut"#)),
        2 => Some(format!(r#"{{"schema":null,"payload":{{"before":{before},"after":{after},{source},"op":"{op}"}}}}"#)),
        _ => Some(format!(r#"{{"before":{before},"after":{after},{source},"op":"{op}","ts_ms":{at}}}"#)),
    };
    Record { topic: format!("lake.public.{table}"), partition, offset, timestamp: at + 3, key: Some(key), value }
}

fn other(offset: i64, chance: &mut Chance) -> Record {
    let value = match chance.below(4) {
        0 => r#"{"ts_ms":17}"#.to_owned(),
        1 => format!(r#"{{"status":"BEGIN","id":"{offset}:1","ts_ms":17}}"#),
        2 => format!(r#"{{"source":{{"lsn":{offset}}},"ddl":"COMMENT","tableChanges":[]}}"#),
        _ => format!(r#"{{"op":"m","source":{{"ts_ms":17,"lsn":{offset}}},"message":{{"prefix":"p"}}}}"#),
    };
    let key = Some(r#"{"serverName":"lake"}"#.to_owned());
    Record { topic: "lake.transaction".to_owned(), partition: 0, offset, timestamp: 17, key, value: Some(value) }
}
