//! What the changes of a database come to, through real tables: cases of the field by their numbers, any order and split, and
//! wherever something goes wrong.

mod cases;
mod orders;
mod trouble;

use alluvium::pipeline::backfill::{BackfillOptions, Outcome, backfill};
use alluvium::pipeline::lake::Lake;

use crate::support::rows;

/// Keeps the events.
const BRONZE: &str = "
version: 1
table: bronze/shop
source: { format: debezium, path: \"shop/**/*.ndjson*\" }
";

/// People: a name that must be there, visits that nobody tracks, and a long text that may not be sent.
const PEOPLE: &str = r#"
version: 1
table: silver/people
from: bronze/shop
source_table: public.people
primary_key: [id]
sequence_by: [source.ts_ms, source.lsn]
history: { table: silver/people_history, track: [name] }
columns:
  - { name: id,     type: int64, nullable: false }
  - { name: name,   type: string }
  - { name: visits, type: int64 }
  - { name: bio,    type: string }
rules:
  - { name: name_bad, check: "name <> 'bad'" }
  - { name: shouting_bio, check: "not (name = 'quiet' and bio = 'LOUD')" }
"#;

/// Both.
const ALL: &[(&str, &str)] = &[("bronze/shop", BRONZE), ("silver/people", PEOPLE)];

/// One change of one person, as a record of a topic.
#[derive(Debug, Clone)]
struct Event {
    id: i64,
    ts_ms: i64,
    lsn: i64,
    op: &'static str,
    offset: i64,
    /// Name, visits, bio; none for a delete and a truncate.
    row: Option<(Option<&'static str>, i64, Option<String>)>,
    /// The key before, when it was another.
    was: Option<i64>,
}

/// What stands for a text that was not sent.
const UNSENT: &str = "__debezium_unavailable_value";

impl Event {
    /// The line of a file.
    fn line(&self) -> String {
        let row = self
            .row
            .as_ref()
            .map(|(name, visits, bio)| serde_json::json!({"id": self.id, "name": name, "visits": visits, "bio": bio}));
        let before = self.was.map(|id| serde_json::json!({"id": id}));
        let key = (self.op != "t").then(|| serde_json::json!({"id": self.id}));
        let source = serde_json::json!({"schema": "public", "table": "people", "ts_ms": self.ts_ms, "lsn": self.lsn});
        let value = serde_json::json!({"op": self.op, "before": before, "after": row, "source": source});
        let record = serde_json::json!({
            "topic": "lake.public.people", "partition": 0, "offset": self.offset, "timestamp": 1, "key": key, "value": value,
        });
        record.to_string()
    }
}

/// An upsert at a time; the log sequence number and the offset follow from it.
fn upsert(op: &'static str, id: i64, ts_ms: i64, name: &'static str) -> Event {
    let row = Some((Some(name), ts_ms, Some("b".to_owned())));
    Event { id, ts_ms, lsn: ts_ms * 10, op, offset: ts_ms, row, was: None }
}

/// A delete.
fn delete(id: i64, ts_ms: i64) -> Event {
    Event { id, ts_ms, lsn: ts_ms * 10, op: "d", offset: ts_ms, row: None, was: None }
}

/// A truncate.
fn truncate(ts_ms: i64) -> Event {
    Event { op: "t", ..delete(0, ts_ms) }
}

impl Event {
    fn with_bio(mut self, bio: Option<&str>) -> Self {
        if let Some(row) = &mut self.row {
            row.2 = bio.map(str::to_owned);
        }
        self
    }

    fn at(mut self, lsn: i64, offset: i64) -> Self {
        (self.lsn, self.offset) = (lsn, offset);
        self
    }

    fn was(mut self, id: i64) -> Self {
        self.was = Some(id);
        self
    }
}

/// A file of events.
fn content(events: &[Event]) -> String {
    events.iter().map(|event| event.line() + "\n").collect()
}

/// Present rows, history and quarantine as text.
async fn told(lake: &Lake) -> [Vec<String>; 3] {
    [
        rows::brief(lake, "silver/people", &["id", "name", "visits", "bio", "_ts_ms", "_lsn"]).await,
        rows::brief(
            lake,
            "silver/people_history",
            &["id", "version", "name", "valid_from", "valid_to", "is_current", "_lsn"],
        )
        .await,
        rows::brief(
            lake,
            "quarantine/silver/people",
            &["table", "key", "op", "ts_ms", "lsn", "rules", "event", "topic", "partition", "offset"],
        )
        .await,
    ]
}

/// The tables are what a second look at all events makes of them.
async fn assert_backfill_agrees(lake: &Lake) {
    let options = BackfillOptions { verify: true, ..BackfillOptions::default() };
    let report = backfill(lake, &options, |_| {}).await.unwrap();
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    let names: Vec<String> = report.tables.iter().map(|table| table.table.to_string()).collect();
    assert_eq!(names, ["silver/people", "silver/people_history"]);
    for table in &report.tables {
        assert_eq!(table.outcome, Outcome::Same, "{table:?}");
    }
}
