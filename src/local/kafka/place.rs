//! Where the reading of a partition is, by its own count and by the ledger.

use crate::offsets::Offsets;

/// One partition that is being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The offset after the last one that was read, or the first one to read.
    next: i64,
    /// What the ledger had when reading began, for each table that takes the topic.
    known: Vec<Offsets>,
    /// Offsets that were passed without a record: the topic has none there.
    holes: Offsets,
}

/// Why a partition is not read from where the ledger ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The ledger has offsets that the topic has not reached: it is another topic of that name.
    Ahead {
        /// The greatest offset that the ledger has.
        ledger: i64,
        /// The offset that the topic's next record gets.
        topic: i64,
    },
}

impl Place {
    /// Where to begin: at the first offset that some table does not have, but not before the topic's first record. `low` and
    /// `high`: the offset of the first record that is still there, and that of the record to come.
    pub(super) fn begin(low: i64, high: i64, known: Vec<Offsets>) -> Result<Self, Trouble> {
        let last = |offsets: &Offsets| offsets.intervals().next_back().map(|(_, last)| last);
        if let Some(ledger) = known.iter().filter_map(last).max().filter(|last| *last >= high) {
            return Err(Trouble::Ahead { ledger, topic: high });
        }
        let first_missing = |offsets: &Offsets| offsets.missing(low, high).first().map_or(high, |(first, _)| *first);
        let next = known.iter().map(first_missing).min().unwrap_or(low);
        Ok(Self { next, known, holes: Offsets::default() })
    }

    /// The offset to be read next.
    pub(super) const fn next(&self) -> i64 {
        self.next
    }

    /// Offsets that the ledger lacks and that the topic does not have any more: `low` is its first record's.
    pub(super) fn gone(&self, low: i64) -> Vec<(i64, i64)> {
        let mut gone = Offsets::default();
        for offsets in &self.known {
            let first = offsets.intervals().next().map_or(low, |(first, _)| first);
            offsets.missing(first, low - 1).into_iter().for_each(|(first, last)| gone.insert(first, last));
        }
        gone.intervals().collect()
    }

    /// A record was read: whether some table may lack it. Records come in the order of their offsets, so whatever was passed
    /// between the last one and this does not exist: markers of transactions, records of aborted ones, compacted ones.
    pub(super) fn take(&mut self, offset: i64) -> bool {
        self.holes.insert(self.next, offset - 1);
        self.next = offset + 1;
        self.known.is_empty() || self.known.iter().any(|offsets| !offsets.contains(offset))
    }

    /// Stretches, for a table that has `settled` by now, in which every offset is settled or a hole between settled ones. One
    /// stretch may span many holes, so that they are one entry of the ledger.
    pub(super) fn closable(&self, settled: &Offsets) -> Vec<(i64, i64)> {
        let open = self.holes.intervals().flat_map(|(first, last)| settled.missing(first, last));
        let between = open.filter(|(first, last)| settled.contains(first - 1) && settled.contains(last + 1));
        let mut stretches: Vec<(i64, i64)> = Vec::new();
        for (first, last) in between {
            match stretches.last_mut() {
                Some((_, end)) if settled.missing(*end + 1, first - 1).is_empty() => *end = last,
                _ => stretches.push((first, last)),
            }
        }
        stretches
    }

    /// Forgets the holes that each of the tables has by now.
    pub(super) fn forget_closed(&mut self, settled: &[Offsets]) {
        let mut open = Offsets::default();
        for (first, last) in self.holes.intervals() {
            for offsets in settled {
                offsets.missing(first, last).into_iter().for_each(|(first, last)| open.insert(first, last));
            }
        }
        self.holes = open;
    }

    /// Whether any hole is not closed yet.
    pub(super) fn has_holes(&self) -> bool {
        self.holes.intervals().next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of(intervals: &[(i64, i64)]) -> Offsets {
        let mut offsets = Offsets::default();
        intervals.iter().for_each(|(first, last)| offsets.insert(*first, *last));
        offsets
    }

    #[test]
    fn reading_begins_at_the_first_offset_that_a_table_lacks() {
        type Case = (i64, i64, Vec<Offsets>, i64);
        let cases: Vec<Case> = vec![
            (0, 10, vec![], 0),
            (0, 10, vec![of(&[])], 0),
            (4, 10, vec![of(&[])], 4),
            (0, 10, vec![of(&[(0, 4)])], 5),
            (0, 10, vec![of(&[(0, 9)])], 10),
            (0, 10, vec![of(&[(0, 4), (7, 9)])], 5),
            (6, 10, vec![of(&[(0, 4), (7, 9)])], 6),
            (7, 10, vec![of(&[(0, 4), (7, 9)])], 10),
            // It was read from the middle on once: what came before is there still.
            (0, 10, vec![of(&[(3, 4)])], 0),
            (0, 10, vec![of(&[(0, 9)]), of(&[(0, 2)])], 3),
            (0, 0, vec![of(&[])], 0),
        ];
        for (low, high, known, next) in cases {
            assert_eq!(Place::begin(low, high, known.clone()).unwrap().next(), next, "{low} {high} {known:?}");
        }
        let ahead = Place::begin(0, 10, vec![of(&[(0, 10)]), of(&[])]).unwrap_err();
        assert_eq!(ahead, Trouble::Ahead { ledger: 10, topic: 10 });
    }

    #[test]
    fn what_is_gone_is_told() {
        for (low, known, gone) in [
            (0, vec![of(&[])], vec![]),
            (5, vec![of(&[])], vec![]),
            (5, vec![of(&[(0, 4)])], vec![]),
            (5, vec![of(&[(0, 2)])], vec![(3, 4)]),
            (5, vec![of(&[(0, 1), (3, 9)]), of(&[(0, 2)])], vec![(2, 4)]),
        ] {
            assert_eq!(Place::begin(low, 10, known.clone()).unwrap().gone(low), gone, "{low} {known:?}");
        }
    }

    #[test]
    fn holes_are_closed_together_when_all_between_them_is_settled() {
        let mut place = Place::begin(0, 100, vec![of(&[])]).unwrap();
        // What lies before the first record is no gap: nothing is settled there.
        assert!(place.take(3));
        place.forget_closed(&[of(&[])]);
        assert!(place.closable(&of(&[(3, 3)])).is_empty());
        let mut place = Place::begin(0, 100, vec![of(&[])]).unwrap();
        for offset in [0, 1, 5, 6, 9, 20] {
            assert!(place.take(offset));
        }
        assert!(place.has_holes());
        for (settled, closable) in [
            (of(&[]), vec![]),
            (of(&[(0, 1)]), vec![]),
            (of(&[(0, 1), (5, 6)]), vec![(2, 4)]),
            (of(&[(0, 1), (5, 6), (9, 9)]), vec![(2, 8)]),
            (of(&[(0, 1), (5, 5), (9, 9), (20, 20)]), vec![(2, 4), (10, 19)]),
            (of(&[(0, 1), (5, 6), (9, 9), (20, 20)]), vec![(2, 19)]),
            (of(&[(0, 9), (20, 20)]), vec![(10, 19)]),
            (of(&[(0, 20)]), vec![]),
        ] {
            assert_eq!(place.closable(&settled), closable, "{settled:?}");
        }
        place.forget_closed(&[of(&[(0, 20)]), of(&[(0, 8), (20, 20)])]);
        assert_eq!(place.closable(&of(&[(0, 9), (20, 20)])), [(10, 19)]);
        place.forget_closed(&[of(&[(0, 20)])]);
        assert!(!place.has_holes());
    }

    proptest! {
        /// Whatever is settled, a stretch to be closed holds no offset that has a record and is not settled.
        #[test]
        fn no_record_is_ever_closed_away(
            records in prop::collection::btree_set(0_i64..40, 0..25),
            settled in prop::collection::btree_set(0_i64..40, 0..25),
            known in prop::collection::btree_set(0_i64..40, 0..10),
        ) {
            let set = |offsets: &BTreeSet<i64>| of(&offsets.iter().map(|offset| (*offset, *offset)).collect::<Vec<_>>());
            let mut place = Place::begin(0, 40, vec![set(&known)]).unwrap();
            for offset in records.iter().filter(|offset| **offset >= place.next()).copied().collect::<Vec<_>>() {
                prop_assert_eq!(place.take(offset), !known.contains(&offset));
            }
            for (first, last) in place.closable(&set(&settled)) {
                for offset in first..=last {
                    prop_assert!(settled.contains(&offset) || !records.contains(&offset), "{} in {}..={}", offset, first, last);
                }
            }
        }
    }
}
