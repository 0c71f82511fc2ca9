//! Sets of offsets, kept as intervals: what of a stream was delivered, what of a batch is new, and where something is missing.

use std::collections::BTreeMap;

/// A set of offsets. Adding is idempotent and order does not matter, so that batches may overlap and come in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offsets {
    /// First -> last, both in the set; disjoint, and no two of them touch.
    intervals: BTreeMap<i64, i64>,
}

impl Offsets {
    /// Adds all offsets from `first` to `last`, both included. Nothing when `last` is smaller.
    pub fn insert(&mut self, first: i64, last: i64) {
        if last < first {
            return;
        }
        let (mut from, mut to) = (first, last);
        // Those that touch: from the last one that begins before or at `first` on.
        let start = self.intervals.range(..=first).next_back().map_or(first, |(begin, _)| *begin);
        let touching: Vec<(i64, i64)> = self
            .intervals
            .range(start..)
            .map(|(begin, end)| (*begin, *end))
            .take_while(|(begin, _)| *begin <= last.saturating_add(1))
            .filter(|(_, end)| end.saturating_add(1) >= first)
            .collect();
        for (begin, end) in touching {
            self.intervals.remove(&begin);
            (from, to) = (from.min(begin), to.max(end));
        }
        self.intervals.insert(from, to);
    }

    /// Whether an offset is in the set.
    #[must_use]
    pub fn contains(&self, offset: i64) -> bool {
        self.intervals.range(..=offset).next_back().is_some_and(|(_, end)| *end >= offset)
    }

    /// The offsets from `first` to `last` that are not in the set, as intervals in order.
    #[must_use]
    pub fn missing(&self, first: i64, last: i64) -> Vec<(i64, i64)> {
        let mut missing = Vec::new();
        let mut from = first;
        let start = self.intervals.range(..=first).next_back().map_or(first, |(begin, _)| *begin);
        for (begin, end) in self.intervals.range(start..).take_while(|(begin, _)| **begin <= last) {
            if *begin > from {
                missing.push((from, *begin - 1));
            }
            match end.checked_add(1) {
                Some(next) => from = from.max(next),
                None => return missing,
            }
        }
        if from <= last {
            missing.push((from, last));
        }
        missing
    }

    /// The intervals, in order.
    pub fn intervals(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> + '_ {
        self.intervals.iter().map(|(begin, end)| (*begin, *end))
    }

    /// What lies between two intervals of the set, in order.
    #[must_use]
    pub fn gaps(&self) -> Vec<(i64, i64)> {
        let begins = self.intervals().skip(1).map(|(begin, _)| begin);
        self.intervals().zip(begins).map(|((_, end), begin)| (end + 1, begin - 1)).collect()
    }
}

/// How many offsets some intervals hold.
#[must_use]
pub fn count(intervals: &[(i64, i64)]) -> u64 {
    intervals.iter().map(|(first, last)| last.abs_diff(*first) + 1).sum()
}

/// Offsets that lie in both of two lists of intervals.
#[must_use]
pub fn count_common(left: &[(i64, i64)], right: &[(i64, i64)]) -> u64 {
    let common = |(first, last): (i64, i64)| {
        right.iter().map(move |(begin, end)| (first.max(*begin), last.min(*end))).filter(|(from, to)| from <= to)
    };
    left.iter().flat_map(|interval| common(*interval)).map(|(from, to)| to.abs_diff(from) + 1).sum()
}

/// Ascending offsets as intervals.
#[must_use]
pub fn runs(ascending: impl IntoIterator<Item = i64>) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for offset in ascending {
        match runs.last_mut() {
            Some((_, last)) if *last >= offset => {}
            Some((_, last)) if last.checked_add(1) == Some(offset) => *last = offset,
            _ => runs.push((offset, offset)),
        }
    }
    runs
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
    fn the_ends_of_the_numbers_are_numbers_like_others() {
        let mut all = of(&[(i64::MIN, -1), (1, i64::MAX)]);
        assert_eq!(all.gaps(), [(0, 0)]);
        assert_eq!(all.missing(i64::MIN, i64::MAX), [(0, 0)]);
        all.insert(0, 0);
        assert_eq!(all.intervals().collect::<Vec<_>>(), [(i64::MIN, i64::MAX)]);
        assert!(all.missing(i64::MIN, i64::MAX).is_empty());
        assert_eq!(count(&[(0, i64::MAX)]), 1 << 63);
        all.insert(5, 4);
        assert!(Offsets::default().missing(5, 4).is_empty());
        assert_eq!(runs([i64::MAX - 1, i64::MAX, i64::MAX]), [(i64::MAX - 1, i64::MAX)]);
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            intervals in prop::collection::vec((0_i64..60, 0_i64..12), 0..20),
            asked in (0_i64..70, 0_i64..20),
        ) {
            let intervals: Vec<(i64, i64)> = intervals.into_iter().map(|(first, length)| (first, first + length - 1)).collect();
            let set: BTreeSet<i64> = intervals.iter().flat_map(|(first, last)| *first..=*last).collect();
            let offsets = of(&intervals);
            prop_assert!((-1..90).all(|offset| offsets.contains(offset) == set.contains(&offset)));
            let kept: Vec<(i64, i64)> = offsets.intervals().collect();
            prop_assert_eq!(&kept, &runs(set.iter().copied()));
            prop_assert_eq!(count(&kept), set.len() as u64);
            let mut reversed = intervals.clone();
            reversed.reverse();
            prop_assert_eq!(&of(&reversed), &offsets);

            let (first, last) = (asked.0, asked.0 + asked.1 - 1);
            let missing = offsets.missing(first, last);
            prop_assert_eq!(&missing, &runs((first..=last).filter(|offset| !set.contains(offset))));
            prop_assert_eq!(count(&missing) + count_common(&[(first, last)], &kept), count_of(first, last));
            if let (Some(least), Some(most)) = (set.first(), set.last()) {
                prop_assert_eq!(offsets.gaps(), runs((*least..=*most).filter(|offset| !set.contains(offset))));
            }
        }
    }

    fn count_of(first: i64, last: i64) -> u64 {
        if last < first { 0 } else { last.abs_diff(first) + 1 }
    }
}
