//! One line -> what it says of itself: a record of a topic or a bare value; Debezium's envelope with and without its schema
//! part, or flattened; tombstones, heartbeats and the like.

use std::borrow::Cow;

use super::compact::compact;
use super::members::Members;

/// What becomes of a line beyond the table that keeps all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A change of a row, or a truncate.
    Change,
    /// Nothing that changes a row: a tombstone, heartbeat, transaction, schema change or message.
    Ignored,
    /// No event at all, and why.
    Malformed(String),
}

/// What a line says of itself. A malformed one says no more than its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts<'a> {
    /// What it is.
    pub kind: Kind,
    /// `<schema>.<table>` of the database.
    pub table: Option<String>,
    /// Debezium's letter: r, c, u, d, t or m.
    pub op: Option<&'static str>,
    /// The record's key, an object, as compact JSON.
    pub key: Option<Cow<'a, str>>,
    /// `source.ts_ms`: when the change was committed, milliseconds since 1970.
    pub ts_ms: Option<i64>,
    /// `source.lsn`.
    pub lsn: Option<i64>,
    /// `source.txId`.
    pub tx_id: Option<i64>,
    /// The record's topic.
    pub topic: Option<Cow<'a, str>>,
    /// Its partition.
    pub partition: Option<i32>,
    /// Its offset.
    pub offset: Option<i64>,
}

impl Facts<'_> {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            table: None,
            op: None,
            key: None,
            ts_ms: None,
            lsn: None,
            tx_id: None,
            topic: None,
            partition: None,
            offset: None,
        }
    }
}

// Members of records and values, of each of their forms.
const NAMES: [&str; 24] = [
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "schema",
    "payload",
    "op",
    "before",
    "after",
    "source",
    "ts_ms",
    "status",
    "ddl",
    "tableChanges",
    "__op",
    "__deleted",
    "__table",
    "__schema",
    "__source_ts_ms",
    "__source_lsn",
    "__lsn",
    "__source_txId",
    "__txId",
];
const TOPIC: usize = 0;
const PARTITION: usize = 1;
const OFFSET: usize = 2;
const KEY: usize = 3;
const VALUE: usize = 4;
const SCHEMA: usize = 5;
const PAYLOAD: usize = 6;
const OP: usize = 7;
const BEFORE: usize = 8;
const AFTER: usize = 9;
const SOURCE: usize = 10;
const TS_MS: usize = 11;
const STATUS: usize = 12;
const DDL: usize = 13;
const TABLE_CHANGES: usize = 14;
const FLAT_OP: usize = 15;
const FLAT_DELETED: usize = 16;
const FLAT_TABLE: usize = 17;
const FLAT_SCHEMA: usize = 18;
const FLAT_TS_MS: usize = 19;
const FLAT_LSN: [usize; 2] = [20, 21];
const FLAT_TX_ID: [usize; 2] = [22, 23];

// Members of `source`.
const SOURCE_NAMES: [&str; 6] = ["schema", "db", "table", "ts_ms", "lsn", "txId"];

type Object<'a> = Members<'a, 24>;

/// A reason why a line is no event.
type Fault = String;

/// Reads one line, without its line end.
#[must_use]
pub fn read(line: &[u8]) -> Facts<'_> {
    let text = match std::str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            return Facts::new(Kind::Malformed(format!("byte 0x{:02X} at byte {at} is not UTF-8", line[at])));
        }
    };
    let mut facts = Facts::new(Kind::Ignored);
    if let Err(fault) = whole(text, &mut facts) {
        let place =
            Facts { topic: facts.topic, partition: facts.partition, offset: facts.offset, ..Facts::new(facts.kind) };
        return Facts { kind: Kind::Malformed(fault), ..place };
    }
    facts
}

fn whole<'a>(text: &'a str, facts: &mut Facts<'a>) -> Result<(), Fault> {
    if text.trim_ascii() == "null" {
        return Ok(());
    }
    let members = object(text, "the line")?;
    if !members.has(TOPIC) || is_flattened(&members) {
        return value(members, KeyOf::Value, facts);
    }
    facts.topic = members.value(TOPIC).and_then(string).filter(|topic| !topic.is_empty());
    facts.partition = members.value(PARTITION).and_then(|text| text.parse().ok());
    facts.offset = members.value(OFFSET).and_then(|text| text.parse().ok());
    let missing = [
        ("topic", facts.topic.is_none()),
        ("partition", facts.partition.is_none()),
        ("offset", facts.offset.is_none()),
        ("value", !members.has(VALUE)),
    ];
    if let Some((name, _)) = missing.iter().find(|(_, is_missing)| *is_missing) {
        return Err(format!("the record has no usable `{name}`"));
    }
    let key = members.text(KEY).map_or(Ok(KeyOf::Value), |text| record_key(text).map(KeyOf::Record))?;
    match members.value(VALUE) {
        Some(text) => value(object(text, "`value`")?, key, facts),
        None => {
            tombstone(key, facts);
            Ok(())
        }
    }
}

/// Where the key of an event is.
enum KeyOf<'a> {
    /// The record's key, if it has one.
    Record(Option<&'a str>),
    /// The key columns within the value: a bare value, and a record that brings no member `key`.
    Value,
}

fn object<'a>(text: &'a str, what: &str) -> Result<Object<'a>, Fault> {
    Object::read(text, &NAMES).map_err(|error| {
        if error.is_eof() {
            format!("{what} ends early: {error}")
        } else {
            format!("{what} is no JSON object: {error}")
        }
    })
}

/// A value with its schema part: `{"schema": .., "payload": ..}` and nothing else.
fn is_wrapped(members: &Object<'_>) -> bool {
    let parts = usize::from(members.has(PAYLOAD)) + usize::from(members.has(SCHEMA));
    members.has(PAYLOAD) && members.count == parts
}

fn is_flattened(members: &Object<'_>) -> bool {
    members.has(FLAT_OP) || members.has(FLAT_DELETED)
}

/// The key without its schema part; none for null.
fn record_key(text: &str) -> Result<Option<&str>, Fault> {
    if !text.starts_with('{') {
        return Ok((text != "null").then_some(text));
    }
    let members = object(text, "`key`")?;
    Ok(if is_wrapped(&members) { members.value(PAYLOAD) } else { Some(text) })
}

fn tombstone<'a>(key: KeyOf<'a>, facts: &mut Facts<'a>) {
    if let KeyOf::Record(Some(key)) = key {
        facts.key = Some(compact(key));
    }
}

fn value<'a>(mut members: Object<'a>, key: KeyOf<'a>, facts: &mut Facts<'a>) -> Result<(), Fault> {
    if is_wrapped(&members) {
        match members.value(PAYLOAD) {
            Some(text) => members = object(text, "`payload`")?,
            None => {
                tombstone(key, facts);
                return Ok(());
            }
        }
    }
    if is_flattened(&members) {
        return flattened(&members, key, facts);
    }
    let Some(op) = members.value(OP) else {
        return if is_no_change(&members) {
            Ok(())
        } else {
            Err("there is no `op`: this is no change event".to_owned())
        };
    };
    let op = letter(op)?;
    let source = members.value(SOURCE).map(|text| Members::<6>::read(text, &SOURCE_NAMES)).transpose();
    let source = source.map_err(|error| format!("`source` is no JSON object: {error}"))?;
    let part = |at: usize| source.as_ref().and_then(|source| source.value(at));
    let (ts_ms, lsn, tx_id) = (part(3).and_then(long), part(4).and_then(long), part(5).and_then(long));
    if op == "m" {
        (facts.op, facts.ts_ms, facts.lsn, facts.tx_id) = (Some(op), ts_ms, lsn, tx_id);
        return Ok(());
    }
    let table = part(2).and_then(name).ok_or("`source.table` names no table")?;
    let table = match part(0).and_then(name).or_else(|| part(1).and_then(name)) {
        Some(schema) => format!("{schema}.{table}"),
        None => table.into_owned(),
    };
    let (Some(ts_ms), Some(lsn)) = (ts_ms, lsn) else {
        let field = if ts_ms.is_none() { "ts_ms" } else { "lsn" };
        return Err(format!("`source.{field}` is no whole number"));
    };
    let image = match op {
        "t" => None,
        "d" => matches!(key, KeyOf::Value).then_some(("before", BEFORE)),
        _ => Some(("after", AFTER)),
    };
    if let Some((name, at)) = image
        && !members.value(at).is_some_and(|text| text.starts_with('{'))
    {
        return Err(format!("`{name}` is no row on op `{op}`"));
    }
    facts.key = usable_key(key, op)?;
    facts.kind = Kind::Change;
    (facts.table, facts.op) = (Some(table), Some(op));
    (facts.ts_ms, facts.lsn, facts.tx_id) = (Some(ts_ms), Some(lsn), tx_id);
    Ok(())
}

/// A heartbeat, the begin or end of a transaction, or a change of the schema.
fn is_no_change(members: &Object<'_>) -> bool {
    let is_heartbeat = members.count == 1 && members.has(TS_MS);
    let is_transaction = matches!(members.value(STATUS), Some(r#""BEGIN""# | r#""END""#));
    is_heartbeat || is_transaction || members.has(DDL) || members.has(TABLE_CHANGES)
}

/// A row as `ExtractNewRecordState` leaves it, with the fields that it was told to add.
fn flattened<'a>(members: &Object<'a>, key: KeyOf<'a>, facts: &mut Facts<'a>) -> Result<(), Fault> {
    let is_deleted = match members.value(FLAT_DELETED) {
        None => None,
        Some("true" | r#""true""#) => Some(true),
        Some("false" | r#""false""#) => Some(false),
        Some(_) => return Err("`__deleted` is neither true nor false".to_owned()),
    };
    let op = match (members.value(FLAT_OP), is_deleted) {
        (_, Some(true)) => "d",
        (Some(op), _) => letter(op)?,
        // Which kind of upsert it was, nobody says: an update may follow anything.
        (None, _) => "u",
    };
    if op == "m" {
        facts.op = Some(op);
        return Ok(());
    }
    let named = members.value(FLAT_TABLE).and_then(name).map(|table| match members.value(FLAT_SCHEMA).and_then(name) {
        Some(schema) => format!("{schema}.{table}"),
        None => table.into_owned(),
    });
    let last_part = || facts.topic.as_deref().and_then(|topic| topic.rsplit('.').next()).map(str::to_owned);
    let table = named.or_else(last_part).filter(|table| !table.is_empty());
    let table = table.ok_or("`__table` names no table, and there is no topic that does")?;
    let first = |places: [usize; 2]| places.into_iter().find_map(|at| members.value(at));
    let (ts_ms, lsn) = (members.value(FLAT_TS_MS), first(FLAT_LSN));
    let position = [("__source_ts_ms", ts_ms, ts_ms.and_then(long)), ("__source_lsn", lsn, lsn.and_then(long))];
    if let Some((field, ..)) = position.iter().find(|(_, text, number)| text.is_some() && number.is_none()) {
        return Err(format!("`{field}` is no whole number"));
    }
    let [(.., ts_ms), (.., lsn)] = position;
    if ts_ms.is_none() && lsn.is_none() {
        return Err("no source position: let the transform add source.ts_ms and source.lsn".to_owned());
    }
    facts.key = usable_key(key, op)?;
    facts.kind = Kind::Change;
    (facts.table, facts.op) = (Some(table), Some(op));
    (facts.ts_ms, facts.lsn, facts.tx_id) = (ts_ms, lsn, first(FLAT_TX_ID).and_then(long));
    Ok(())
}

/// The key of a change as compact JSON: an object without nulls. A truncate has none; that of a bare value is in its row.
fn usable_key<'a>(key: KeyOf<'a>, op: &str) -> Result<Option<Cow<'a, str>>, Fault> {
    let text = match key {
        KeyOf::Value => return Ok(None),
        KeyOf::Record(_) if op == "t" => return Ok(None),
        KeyOf::Record(None) => return Err("the record's key is null".to_owned()),
        KeyOf::Record(Some(text)) => text,
    };
    if !text.starts_with('{') {
        return Err("the record's key is no object of key columns".to_owned());
    }
    let columns = crate::decode::json_members(text).map_err(|error| format!("the record's key: {error}"))?;
    if columns.is_empty() {
        return Err("the record's key has no column".to_owned());
    }
    if let Some((name, _)) = columns.iter().find(|(_, value)| value.get() == "null") {
        return Err(format!("key column `{name}` is null"));
    }
    Ok(Some(compact(text)))
}

fn letter(text: &str) -> Result<&'static str, Fault> {
    match text {
        r#""r""# => Ok("r"),
        r#""c""# => Ok("c"),
        r#""u""# => Ok("u"),
        r#""d""# => Ok("d"),
        r#""t""# => Ok("t"),
        r#""m""# => Ok("m"),
        _ => Err(format!("`op` is {}, which is none of Debezium's", text.chars().take(40).collect::<String>())),
    }
}

/// The content of a JSON string; none for any other value.
fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(text).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// A JSON string that is not blank.
fn name(text: &str) -> Option<Cow<'_, str>> {
    string(text).filter(|name| !name.trim().is_empty())
}

/// A whole number as JSON spells it.
fn long(text: &str) -> Option<i64> {
    text.parse().ok()
}
