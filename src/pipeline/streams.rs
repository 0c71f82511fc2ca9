//! What the ledger knows of streams as a whole: offsets that are lost, and offsets that have not come.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::manifest::{Status, StreamRange};
use crate::offsets;
use crate::pipeline::ledger::{LedgerRow, Stream, TableLedger};

/// A gap is told when it has been open for so long.
const OPEN: TimeDelta = TimeDelta::minutes(10);

/// Offsets of one partition that are not in the table, all pieces of them together. Displayed for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// The topic.
    pub topic: String,
    /// Its incarnation.
    pub epoch: Option<String>,
    /// The partition.
    pub partition: i32,
    /// The first of the offsets.
    pub first: i64,
    /// The last of them.
    pub last: i64,
    /// How many there are.
    pub offsets: u64,
    /// In how many pieces.
    pub pieces: usize,
    /// Since when the first piece is known to be missing.
    pub since: Option<DateTime<Utc>>,
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, partition, first, last, offsets, .. } = self;
        match (offsets, self.pieces) {
            (1, _) => write!(f, "{topic}/{partition}: offset {first}"),
            (_, 0 | 1) => write!(f, "{topic}/{partition}: offsets {first} to {last}"),
            (_, pieces) => {
                write!(f, "{topic}/{partition}: {offsets} offsets between {first} and {last}, in {pieces} pieces")
            }
        }
    }
}

/// Staged records that are gone and that nothing else brought.
#[must_use]
pub fn lost(known: &TableLedger) -> Vec<Stretch> {
    let mut missing: BTreeMap<Stream, (offsets::Offsets, Option<DateTime<Utc>>)> = BTreeMap::new();
    for (row, range) in pieces(known).filter(|(row, _)| row.status == Status::Missing) {
        for (first, last) in known.missing(range) {
            let (offsets, since) = missing.entry(Stream::from(range)).or_default();
            offsets.insert(first, last);
            *since = Some(since.map_or(row.settled_at, |since| since.min(row.settled_at)));
        }
    }
    missing
        .into_iter()
        .filter_map(|(stream, (offsets, since))| stretch(&stream, &offsets.intervals().collect::<Vec<_>>(), since))
        .collect()
}

/// Offsets that have not come although later ones of their partition have, for ten minutes.
#[must_use]
pub fn gaps(known: &TableLedger, now: DateTime<Utc>) -> Vec<Stretch> {
    let mut gaps: BTreeMap<Stream, Vec<(i64, i64)>> = BTreeMap::new();
    for (stream, offsets) in &known.streams {
        let open = offsets.gaps();
        if !open.is_empty() {
            gaps.insert(stream.clone(), open);
        }
    }
    // A gap is known since something beyond it was settled.
    let mut since: BTreeMap<Stream, Vec<Option<DateTime<Utc>>>> = BTreeMap::new();
    for (row, range) in pieces(known).filter(|(row, _)| row.status.is_terminal()) {
        let stream = Stream::from(range);
        let Some(open) = gaps.get(&stream) else { continue };
        // It lies beyond those gaps that end before it begins.
        let before = open.partition_point(|(_, last)| *last < range.first);
        let times = since.entry(stream).or_insert_with(|| vec![None; open.len()]);
        if let Some(time) = before.checked_sub(1).and_then(|nearest| times.get_mut(nearest)) {
            *time = Some(time.map_or(row.settled_at, |time| time.min(row.settled_at)));
        }
    }
    let mut told = Vec::new();
    for (stream, open) in &gaps {
        let times = since.remove(stream).unwrap_or_else(|| vec![None; open.len()]);
        // Whatever lies beyond a gap lies beyond those before it, too.
        let mut earliest = None;
        let mut known_since: Vec<Option<DateTime<Utc>>> = Vec::with_capacity(open.len());
        for time in times.into_iter().rev() {
            earliest = [earliest, time].into_iter().flatten().min();
            known_since.push(earliest);
        }
        known_since.reverse();
        let mut old = Vec::new();
        let mut oldest: Option<DateTime<Utc>> = None;
        for (gap, since) in open.iter().zip(known_since) {
            if let Some(since) = since.filter(|since| now.signed_duration_since(*since) >= OPEN) {
                old.push(*gap);
                oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
            }
        }
        told.extend(stretch(stream, &old, oldest));
    }
    told
}

fn pieces(known: &TableLedger) -> impl Iterator<Item = (&LedgerRow, &StreamRange)> {
    known.batches.values().filter_map(|row| Some((row, row.source.range()?)))
}

fn stretch(stream: &Stream, intervals: &[(i64, i64)], since: Option<DateTime<Utc>>) -> Option<Stretch> {
    let (first, last) = (intervals.first()?.0, intervals.last()?.1);
    Some(Stretch {
        topic: stream.topic.clone(),
        epoch: stream.epoch.clone(),
        partition: stream.partition,
        first,
        last,
        offsets: offsets::count(intervals),
        pieces: intervals.len(),
        since,
    })
}
