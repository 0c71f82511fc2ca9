//! A set of row numbers of one file.

use std::ops::Range;

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;

/// One bit a row; grows as rows are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// The first `rows` rows, all in the set.
    #[must_use]
    pub fn all(rows: usize) -> Self {
        let mut words = vec![u64::MAX; rows / 64];
        if !rows.is_multiple_of(64) {
            words.push((1 << (rows % 64)) - 1);
        }
        Self { words }
    }

    /// Rows whose words are given.
    #[must_use]
    pub const fn from_words(words: Vec<u64>) -> Self {
        Self { words }
    }

    /// Puts a row in.
    pub fn set(&mut self, row: usize) {
        if self.words.len() <= row / 64 {
            self.words.resize(row / 64 + 1, 0);
        }
        self.words[row / 64] |= 1 << (row % 64);
    }

    /// Takes a row out.
    pub fn clear(&mut self, row: usize) {
        if let Some(word) = self.words.get_mut(row / 64) {
            *word &= !(1 << (row % 64));
        }
    }

    /// Whether a row is in.
    #[must_use]
    pub fn get(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// How many rows are in.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether no row is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Rows `from .. from + length` as a filter: true for the rows that are in.
    #[must_use]
    pub fn mask(&self, from: usize, length: usize) -> BooleanArray {
        BooleanArray::new(BooleanBuffer::collect_bool(length, |row| self.get(from + row)), None)
    }

    /// Rows `from .. from + length` as a filter: true for the rows that are not in.
    #[must_use]
    pub fn absent_mask(&self, from: usize, length: usize) -> BooleanArray {
        BooleanArray::new(BooleanBuffer::collect_bool(length, |row| !self.get(from + row)), None)
    }

    /// The runs of rows of `within` that are in (or, if `present` is false, that are not), ascending.
    #[must_use]
    pub fn runs(&self, within: Range<usize>, present: bool) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for row in within.filter(|row| self.get(*row) == present) {
            match runs.last_mut() {
                Some(run) if run.end == row => run.end += 1,
                _ => runs.push(row..row + 1),
            }
        }
        runs
    }

    /// One more than the greatest row that can be in.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.words.len() * 64
    }

    /// The rows that are in, ascending.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_in_and_out() {
        let mut bits = Bits::all(70);
        assert_eq!(bits.count(), 70);
        assert!(bits.get(69) && !bits.get(70));
        bits.clear(3);
        bits.set(200);
        assert_eq!(bits.rows().filter(|row| *row < 5 || *row > 68).collect::<Vec<_>>(), [0, 1, 2, 4, 69, 200]);
        assert_eq!(bits.mask(2, 3), BooleanArray::from(vec![true, false, true]));
        assert_eq!(bits.absent_mask(2, 3), BooleanArray::from(vec![false, true, false]));
        assert_eq!(bits.runs(0..bits.end(), true), [0..3, 4..70, 200..201]);
        assert_eq!(bits.runs(2..201, false), [3..4, 70..200]);
        assert!(Bits::default().is_empty() && Bits::all(64).count() == 64);
    }
}
