//! What no bytes may do: plain functions over bytes, one a kind of input that strangers send. Each says what is broken, or
//! nothing. The suite calls them with bytes made up and with the corpora in `fuzz/corpus`; `fuzz/` has targets of
//! cargo-fuzz that call the same functions.
//!
//! Beyond "no panic": every record of a file is counted once, as a row or as a refused record; the books balance; and the
//! result is the same for any size of chunks and of reads. What is kept of a record gives the same row again.

mod again;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;

use crate::cast::{ColumnCaster, Scalar};
use crate::decode::debezium::{EventFile, EventRows, Kind, Place, RecordKey, read, record_line};
use crate::decode::{self, Chunk, DecodeError, Options, Raw, value_text};
use crate::event::{self, Item, Scope, stream};
use crate::http::Invocation;
use crate::quality::Judge;
use crate::schema::lineage::ROW;
use crate::schema::{Column, ColumnType, Contract, Format, Rounding, Source, UnknownColumns};

/// What is broken; none when everything holds.
pub type Finding = Result<(), String>;

/// A function over bytes.
pub type Target = fn(&[u8]) -> Finding;

/// All targets, by the name of their corpus.
pub const TARGETS: [(&str, Target); 7] = [
    ("csv", csv),
    ("json", json),
    ("debezium", debezium),
    ("cast", cast),
    ("contract", contract),
    ("invocation", invocation),
    ("events", events),
];

const CONTRACT: &str = "
version: 1
table: raw/fuzz
source: { path: \"fuzz/**\", format: ndjson }
columns:
  - { name: id, type: int64, nullable: false }
  - { name: amount, type: \"decimal(10,2)\", default: \"0.00\" }
  - { name: at, type: timestamp, timezone: Europe/Oslo }
  - { name: name, type: string, max_length: 8 }
  - { name: flag, type: boolean }
  - { name: tags, type: \"list<int32>\" }
unknown_columns: rescue
rules:
  - { name: positive, check: \"amount >= 0\" }
  - { name: named, check: \"length(raw.name) < 6\", on_fail: warn, covers: [name] }
";

static DECLARED: LazyLock<Option<Contract>> =
    LazyLock::new(|| crate::schema::yaml::parse("fuzz.yaml", CONTRACT).ok().map(|(contract, _)| contract));

/// Policies about columns that the contract does not name, by a number.
const POLICIES: [UnknownColumns; 4] =
    [UnknownColumns::Rescue, UnknownColumns::Add, UnknownColumns::Ignore, UnknownColumns::Reject];

fn declared(format: Format, policy: u8) -> Result<(Contract, Source), String> {
    let mut contract = DECLARED.clone().ok_or("the contract of the fuzz targets cannot be read")?;
    contract.unknown_columns = POLICIES[usize::from(policy) % POLICIES.len()];
    if format == Format::Csv {
        contract.columns.retain(|column| !matches!(column.data_type, ColumnType::List(_)));
    }
    let mut source = contract.files().cloned().ok_or("the contract is fed by files")?;
    source.format = format;
    Ok((contract, source))
}

/// CSV: the first three bytes choose the dialect and the sizes, the rest is the file.
pub fn csv(bytes: &[u8]) -> Finding {
    let [how, dialect, sizes, content @ ..] = bytes else { return Ok(()) };
    let (contract, mut source) = declared(Format::Csv, *how)?;
    source.csv.header = how & 4 == 0;
    source.csv.skip_rows = usize::from((how >> 3) & 1);
    source.csv.comment = (how & 16 != 0).then_some(b'#');
    source.csv.delimiter = [b',', b';', b'\t', b'|'][usize::from(dialect & 3)];
    source.csv.quote = [Some(b'"'), Some(b'\''), None][usize::from((dialect >> 2) % 3)];
    source.csv.escape = (dialect & 64 != 0).then_some(b'\\');
    if dialect & 128 != 0 {
        source.csv.encoding = "windows-1252".to_owned();
    }
    any_size(&Arc::new(contract), &source, content, *sizes)
}

/// JSON: the first two bytes choose the form, the policy and the sizes, the rest is the file.
pub fn json(bytes: &[u8]) -> Finding {
    let [how, sizes, content @ ..] = bytes else { return Ok(()) };
    let format = if how & 4 == 0 { Format::Ndjson } else { Format::Json };
    let (contract, source) = declared(format, *how)?;
    any_size(&Arc::new(contract), &source, content, *sizes)
}

/// Gives at most `step` bytes at a time.
struct Steps {
    content: Cursor<Vec<u8>>,
    step: usize,
}

impl Read for Steps {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.step);
        self.content.read(&mut buffer[..count])
    }
}

fn any_size(contract: &Arc<Contract>, source: &Source, content: &[u8], sizes: u8) -> Finding {
    let judge = Judge::new(contract).map_err(|error| error.describe())?;
    let decoded = |step, options: &Options| decoded(contract, source, content, step, options, &judge);
    let whole = decoded(1 << 20, &Options::default())?;
    let (step, small) = (1 + usize::from(sizes & 15), 1 + usize::from(sizes >> 4));
    for (step, chunk_rows, chunk_bytes) in [(step, small, 1 << 20), (1 << 20, 16_384, small * 7), (step, small, small)]
    {
        let options = Options { chunk_rows, chunk_bytes, ..Options::default() };
        let parts = decoded(step, &options)?;
        if parts != whole {
            return Err(format!(
                "reads of {step} bytes and chunks of {chunk_rows} records or {chunk_bytes} bytes give\n{parts:#?}\nbut the whole gives\n{whole:#?}"
            ));
        }
    }
    let options = Options { raw_columns: judge.raw_columns(), ..Options::default() };
    again::reread(contract, source, content, &options)
}

/// Everything that a file gives, one line a record. Of a refused file only that it is refused: one that has two faults may
/// be refused for either, because how far is read ahead depends on the sizes.
fn decoded(
    contract: &Arc<Contract>,
    source: &Source,
    content: &[u8],
    step: usize,
    options: &Options,
    judge: &Judge,
) -> Result<Vec<String>, String> {
    let options = Options { raw_columns: judge.raw_columns(), ..options.clone() };
    let reader = Box::new(Steps { content: Cursor::new(content.to_vec()), step });
    let refused = |error: DecodeError| match error {
        DecodeError::Refused(_) => Ok(vec!["refused".to_owned()]),
        DecodeError::Read(error) => Err(format!("a file in memory could not be read: {}", error.describe())),
    };
    let mut decoder = match decode::open(contract, source, reader, &options) {
        Ok(decoder) => decoder,
        Err(error) => return refused(error),
    };
    let mut lines = Vec::new();
    let mut numbers = BTreeSet::new();
    let mut records = 0;
    loop {
        let chunk = match decoder.next_chunk() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) => return refused(error),
        };
        records += (chunk.rows.num_rows() + chunk.rejects.len()) as u64 + chunk.ignored;
        numbered(&chunk, &mut numbers)?;
        describe(&chunk, &mut lines)?;
        let judged = judge.judge(chunk).map_err(|error| error.describe())?;
        let loaded = judged.rows.num_rows() as u64;
        if judged.records != loaded + judged.rejects.len() as u64 + judged.ignored {
            return Err(format!("{} records, but {loaded} rows and {} refused", judged.records, judged.rejects.len()));
        }
        for reject in judged.rejects {
            lines.push(format!("refused {:?}: {:?} {:?}", reject.record, reject.rules, reject.reasons));
        }
    }
    let last = numbers.last().copied().unwrap_or(0);
    if numbers.len() as u64 != records || i64::try_from(records) != Ok(last) {
        return Err(format!("{records} records have the numbers {numbers:?}"));
    }
    lines.sort();
    let mut unknown = decoder.unknown_columns();
    unknown.sort();
    lines.push(format!("unknown: {unknown:?}"));
    Ok(lines)
}

/// Each record has a number of its own.
fn numbered(chunk: &Chunk, numbers: &mut BTreeSet<i64>) -> Finding {
    let column = chunk.rows.column_by_name(ROW).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let rows = column.ok_or("a chunk without record numbers")?.values().iter().copied();
    for number in rows.chain(chunk.rejects.iter().filter_map(|reject| reject.record)) {
        if !numbers.insert(number) {
            return Err(format!("record {number} comes twice"));
        }
    }
    Ok(())
}

fn describe(chunk: &Chunk, lines: &mut Vec<String>) -> Finding {
    let Raw::Text { bytes, spans, lines: places, offsets } = &chunk.raw else { return Ok(()) };
    let schema = chunk.rows.schema();
    for row in 0..chunk.rows.num_rows() {
        let mut line = String::new();
        for (field, column) in schema.fields().iter().zip(chunk.rows.columns()) {
            // An added column that this chunk does not have yet reads as null.
            if column.is_null(row) {
                continue;
            }
            let value = value_text(column, row).map_err(|error| error.describe())?;
            line.push_str(&format!("{}={value:?} ", field.name()));
        }
        for fault in chunk.faults.iter().filter(|fault| fault.row == row) {
            if !chunk.rows.column(fault.column).is_null(row) {
                return Err(format!("a fault left a value: {line} {fault:?}"));
            }
            line.push_str(&format!("!{} {:?} {:?} ", fault.column, fault.kind, fault.value));
        }
        let (start, end) = spans[row];
        let raw = bytes.slice(start as usize..end as usize);
        lines.push(format!("{line}@{} {} <{}>", places[row], offsets[row], raw.escape_ascii()));
    }
    for reject in &chunk.rejects {
        let raw = reject.raw.escape_ascii();
        lines.push(format!(
            "reject {:?}@{:?} {:?} {:?} <{raw}>",
            reject.record, reject.line, reject.byte_offset, reject.reasons
        ));
    }
    Ok(())
}

/// A file of change events: the first byte chooses the sizes, the rest is the file. Each line is one row and is kept whole; it
/// is a change, ignored, or no event, as the same line read by itself is.
pub fn debezium(bytes: &[u8]) -> Finding {
    let [sizes, content @ ..] = bytes else { return Ok(()) };
    let whole = changes(content, 1 << 20, &Options::default())?;
    let (step, small) = (1 + usize::from(sizes & 15), 1 + usize::from(sizes >> 4));
    for (step, chunk_rows, chunk_bytes) in [(step, small, 1 << 20), (1 << 20, 16_384, small * 7), (step, small, small)]
    {
        let options = Options { chunk_rows, chunk_bytes, ..Options::default() };
        let parts = changes(content, step, &options)?;
        if parts != whole {
            return Err(format!(
                "reads of {step} bytes and chunks of {chunk_rows} lines or {chunk_bytes} bytes give\n{parts:#?}\nbut the whole gives\n{whole:#?}"
            ));
        }
    }
    delivered(content)
}

/// Every line of a file of change events, one line each.
fn changes(content: &[u8], step: usize, options: &Options) -> Result<Vec<String>, String> {
    let reader = Box::new(Steps { content: Cursor::new(content.to_vec()), step });
    let refused = |error: DecodeError| match error {
        DecodeError::Refused(_) => Ok(vec!["refused".to_owned()]),
        DecodeError::Read(error) => Err(format!("a file in memory could not be read: {}", error.describe())),
    };
    let mut file = match EventFile::open(reader, options) {
        Ok(file) => file,
        Err(error) => return refused(error),
    };
    let mut lines = Vec::new();
    loop {
        let events = match file.next_events() {
            Ok(Some(events)) => events,
            Ok(None) => return Ok(lines),
            Err(error) => return refused(error),
        };
        let mut malformed = events.malformed.iter().map(|one| (one.row, one)).collect::<BTreeMap<_, _>>();
        let mut ignored: BTreeSet<usize> = events.ignored.iter().copied().collect();
        let counted = (malformed.len(), ignored.len()) == (events.malformed.len(), events.ignored.len());
        let column = events.rows.column_by_name("event").and_then(|column| column.as_binary_opt::<i32>());
        let numbers = events.rows.column_by_name(ROW).and_then(|column| column.as_primitive_opt::<Int64Type>());
        let (Some(column), Some(numbers), true) = (column, numbers, counted) else {
            return Err(format!("events without their bytes or numbers, or counted twice: {events:?}"));
        };
        for row in 0..events.rows.num_rows() {
            let (event, number) = (column.value(row), numbers.value(row));
            if i64::try_from(lines.len() + 1) != Ok(number) {
                return Err(format!("line {} has the number {number}", lines.len() + 1));
            }
            let facts = read(event);
            let (said, is_ignored) = (malformed.remove(&row), ignored.remove(&row));
            let holds = match &facts.kind {
                Kind::Change => said.is_none() && !is_ignored,
                Kind::Ignored => said.is_none() && is_ignored,
                Kind::Malformed(reason) => {
                    !is_ignored && said.is_some_and(|one| one.event == event && one.reason == *reason)
                }
            };
            if !holds {
                return Err(format!("line {number} is counted as another kind than {facts:?}"));
            }
            let place = said.map(|one| (one.line, one.byte_offset));
            lines.push(format!("{number} {facts:?} {place:?} <{}>", event.escape_ascii()));
        }
        if !malformed.is_empty() || !ignored.is_empty() {
            return Err(format!("rows are counted that are not there: {malformed:?} {ignored:?}"));
        }
    }
}

/// The content as one delivered record: its place is what the trigger says, whatever the value says.
fn delivered(content: &[u8]) -> Finding {
    for key in [RecordKey::InValue, RecordKey::Null, RecordKey::Bytes(content)] {
        let line = record_line("a.b.c", 3, 41, Some(7), key, Some(content));
        let mut rows = EventRows::default();
        rows.push(&line, Place::Record { topic: "a.b.c", partition: 3, offset: 41 });
        let events = rows.finish().map_err(|error| error.describe())?;
        if events.rows.num_rows() != 1 || events.malformed.len() + events.ignored.len() > 1 {
            return Err(format!("one record became {events:?}"));
        }
        if let Some(one) = events.malformed.first()
            && (one.topic.as_deref(), one.partition, one.offset) != (Some("a.b.c"), Some(3), Some(41))
        {
            return Err(format!("a record that is no event forgot its place: {one:?}"));
        }
    }
    Ok(())
}

/// One value: the first two bytes choose the column, the rest is its text. A quoted field, a JSON string and a JSON number
/// mean the same; an unquoted field does too, unless it means null.
pub fn cast(bytes: &[u8]) -> Finding {
    let [kind, how, text @ ..] = bytes else { return Ok(()) };
    let types = [
        ColumnType::Boolean,
        ColumnType::Int8,
        ColumnType::Int32,
        ColumnType::Int64,
        ColumnType::Float32,
        ColumnType::Float64,
        ColumnType::Decimal(10, 2),
        ColumnType::Decimal(38, 38),
        ColumnType::String,
        ColumnType::Binary,
        ColumnType::Date,
        ColumnType::Timestamp,
        ColumnType::TimestampNtz,
    ];
    let mut column = Column::new("c", types[usize::from(*kind) % types.len()].clone());
    column.rounding = [Rounding::Reject, Rounding::HalfUp, Rounding::HalfEven, Rounding::Down][usize::from(how & 3)];
    if how & 4 != 0 {
        column.timezone = Some("America/New_York".to_owned());
    }
    if how & 8 != 0 {
        column.formats = vec!["%d/%m/%Y %H:%M:%S%.f".to_owned(), "%Y%m%d".to_owned()];
    }
    if how & 16 != 0 && !matches!(column.data_type, ColumnType::Date | ColumnType::Timestamp | ColumnType::TimestampNtz)
    {
        (column.decimal_separator, column.group_separator) = (b',', Some('.'));
    }
    let caster = ColumnCaster::new(&column, &[String::new()]).map_err(|error| error.describe())?;
    let outcome = |push: &dyn Fn(&mut crate::cast::ColumnSink) -> Result<(), crate::cast::CastFault>| {
        let mut sink = caster.begin(1);
        let outcome = push(&mut sink);
        let array = sink.finish().map_err(|error| error.describe())?;
        if array.len() != 1 || (outcome.is_err() && !array.is_null(0)) {
            return Err(format!("one push gave {} rows, {outcome:?}", array.len()));
        }
        let value = value_text(&array, 0).map_err(|error| error.describe())?;
        Ok::<_, String>((outcome.map_err(|fault| fault.kind), value))
    };
    let quoted = outcome(&|sink| sink.push_text(text, true))?;
    let field = outcome(&|sink| sink.push_text(text, false))?;
    if quoted.0.is_ok() && quoted.1.is_none() {
        return Err("a quoted text became null without a fault".to_owned());
    }
    if field != quoted && field != (Ok(()), None) {
        return Err(format!("as a field {field:?}, quoted {quoted:?}"));
    }
    if let Ok(text) = std::str::from_utf8(text) {
        let string = outcome(&|sink| sink.push_scalar(Scalar::Text(text)))?;
        if string != quoted {
            return Err(format!("as a JSON string {string:?}, as a quoted field {quoted:?}"));
        }
    }
    Ok(())
}

/// A contract: whatever it says, it is read or its mistakes are named with places in it; what is read is read the same again.
pub fn contract(bytes: &[u8]) -> Finding {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
    // A carriage return ends a line of YAML too.
    let lines = text.replace("\r\n", "\n").split(['\n', '\r']).count() as u64;
    match (crate::schema::yaml::parse("t.yaml", text), crate::schema::yaml::parse("t.yaml", text)) {
        (Ok((first, _)), Ok((second, _))) if first.hash == second.hash => Ok(()),
        (Err(first), Err(second)) if first == second => match first.iter().find(|one| one.line > lines + 1) {
            Some(one) => Err(format!("a mistake in line {} of {lines}: {}", one.line, one.message)),
            None if first.is_empty() => Err("refused without a mistake".to_owned()),
            None => Ok(()),
        },
        _ => Err("the same text is read in two ways".to_owned()),
    }
}

/// The body of an invocation, and the message in it.
pub fn invocation(bytes: &[u8]) -> Finding {
    let Ok(invocation) = Invocation::parse(bytes) else { return Ok(()) };
    let _ = invocation.dequeue_count();
    if let Ok(value) = invocation.value() {
        let _ = stream::kafka(value, &invocation.metadata);
        let _ = stream::event_hubs(value, &invocation.metadata);
    }
    invocation.message().map_or(Ok(()), |message| events(&message))
}

/// A queue message: every path that it gives stays within the landing zone.
pub fn events(bytes: &[u8]) -> Finding {
    let Ok(items) = event::parse(bytes, &Scope::local()) else { return Ok(()) };
    for item in items {
        if let Item::File(file, _) = item
            && (file.path.split('/').any(|part| matches!(part, "" | "." | "..")) || file.path.contains('\0'))
        {
            return Err(format!("a path that leads elsewhere: {:?}", file.path));
        }
    }
    Ok(())
}
