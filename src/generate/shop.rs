//! Deterministic change events of a shop's database, as a connector writes them to topics: the same [`Shop`] gives the same
//! lines on every machine. A snapshot, then transactions; and what real streams have: late and repeated deliveries, changed
//! keys, truncates, rows that rules refuse, values that are not sent, records that change nothing, lines that are no event.

pub mod customers;
mod world;

use std::collections::{BTreeMap, VecDeque};

use super::Random;
use crate::decode::debezium::{RecordKey, record_line};
use world::World;

/// Partitions of each topic.
const PARTITIONS: u64 = 3;

/// Events of a shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shop {
    /// How many events, tombstones and repeated deliveries not counted.
    pub events: u64,
    /// Seed; two sets of different seeds have different events.
    pub seed: u64,
    /// What goes wrong how often.
    pub trouble: Trouble,
}

/// How many of 1,000 events (or transactions) meet which trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// Rows that break a rule.
    pub bad: u64,
    /// Events that arrive after up to 400 later ones.
    pub late: u64,
    /// Events that are delivered twice.
    pub twice: u64,
    /// Repeated deliveries that bring another row: ties.
    pub ties: u64,
    /// Transactions that change a customer's key.
    pub key_changes: u64,
    /// Transactions that truncate a table.
    pub truncates: u64,
    /// Lines that are no event.
    pub malformed: u64,
    /// Heartbeats, transactions, messages and changes of the schema.
    pub others: u64,
    /// Long texts that updates leave out.
    pub leaves_out: bool,
}

impl Trouble {
    /// What every stream has.
    pub const USUAL: Self = Self {
        bad: 10,
        late: 20,
        twice: 10,
        ties: 0,
        key_changes: 2,
        truncates: 0,
        malformed: 0,
        others: 5,
        leaves_out: true,
    };

    /// Everything at once.
    pub const HOSTILE: Self = Self {
        bad: 60,
        late: 250,
        twice: 120,
        ties: 30,
        key_changes: 40,
        truncates: 2,
        malformed: 10,
        others: 30,
        leaves_out: true,
    };
}

/// A record on its way to a topic.
#[derive(Debug, Clone)]
struct Record {
    topic: &'static str,
    key: Option<String>,
    value: Option<String>,
    /// When the connector sent it, in milliseconds since 1970.
    at: i64,
    /// Another value for the same change.
    twin: Option<String>,
}

impl Shop {
    /// The lines of a file of records, in the order in which they arrived. Each partition's offsets count up from 0.
    #[must_use]
    pub fn lines(&self) -> Lines {
        Lines {
            trouble: self.trouble,
            left: self.events,
            world: World::new(self.seed, self.trouble),
            random: Random::new(self.seed, 1),
            ready: VecDeque::new(),
            late: BTreeMap::new(),
            delayed: 0,
            offsets: BTreeMap::new(),
            emitted: 0,
        }
    }
}

/// The lines of a [`Shop`], one after the other, without line ends.
#[derive(Debug)]
pub struct Lines {
    trouble: Trouble,
    /// Events that are still to be made.
    left: u64,
    world: World,
    random: Random,
    ready: VecDeque<Record>,
    /// Records that wait, by the number of the line that they become, and in the order in which they began to.
    late: BTreeMap<(u64, u64), Record>,
    delayed: u64,
    offsets: BTreeMap<(&'static str, i32), i64>,
    emitted: u64,
}

impl Iterator for Lines {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let is_over = self.left == 0 && self.ready.is_empty();
            if let Some(first) = self.late.first_entry()
                && (first.key().0 <= self.emitted || is_over)
            {
                let record = first.remove();
                return Some(self.line(record));
            }
            let Some(record) = self.ready.pop_front() else {
                if self.left == 0 {
                    return None;
                }
                let made = self.world.step(&mut self.ready);
                self.left = self.left.saturating_sub(made.max(1));
                continue;
            };
            if self.random.once_in(self.trouble.twice) {
                let mut again = record.clone();
                if let Some(twin) = again.twin.take().filter(|_| self.random.once_in(self.trouble.ties * 10)) {
                    again.value = Some(twin);
                }
                self.delay(again);
            }
            if self.random.once_in(self.trouble.late) {
                self.delay(record);
                continue;
            }
            return Some(self.line(record));
        }
    }
}

impl Lines {
    fn delay(&mut self, record: Record) {
        let due = self.emitted + 1 + self.random.below(400);
        self.delayed += 1;
        self.late.insert((due, self.delayed), record);
    }

    fn line(&mut self, record: Record) -> Vec<u8> {
        self.emitted += 1;
        // A key stays in its partition.
        let key = record.key.as_deref();
        let mixed = |hash: u64, byte: u8| hash.wrapping_mul(31).wrapping_add(u64::from(byte));
        let hash = key.unwrap_or_default().bytes().fold(7, mixed);
        let partition = i32::try_from(hash % PARTITIONS).unwrap_or_default();
        let next = self.offsets.entry((record.topic, partition)).or_default();
        let offset = *next;
        *next += 1;
        let of_record = key.map_or(RecordKey::Null, |key| RecordKey::Bytes(key.as_bytes()));
        let value = record.value.as_deref().map(str::as_bytes);
        let mut line = record_line(record.topic, partition, offset, Some(record.at), of_record, value);
        if record.value.is_some() && self.random.once_in(self.trouble.malformed) {
            self.spoil(&mut line);
        }
        line
    }

    /// Makes a line that is no event, of one that was to be sent again anyway.
    fn spoil(&mut self, line: &mut Vec<u8>) {
        let replaced =
            |line: &[u8], from: &str, to: &str| String::from_utf8_lossy(line).replacen(from, to, 1).into_bytes();
        match self.random.below(4) {
            0 => line.truncate(line.len() * 2 / 3),
            1 => *line = replaced(line, "\"op\":\"", "\"op\":\"x"),
            2 => *line = replaced(line, "\"lsn\":", "\"no_lsn\":"),
            _ => line.push(0xff),
        }
    }
}

#[cfg(test)]
mod tests;
