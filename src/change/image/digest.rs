//! A hash of a row as it came. It is stored: another one would make ties of redeliveries.

/// A running hash of values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digest(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Digest {
    pub(super) const fn new() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }

    #[inline]
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        // Both halves: the low one alone would lose what is high.
        let [low, high] = [wide as u64, (wide >> 64) as u64];
        self.0 = (low ^ high).wrapping_add(word.rotate_left(32));
    }

    /// Adds a value; its length first, so that neighbours never run together.
    #[inline]
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.mix(bytes.len() as u64 + 1);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(last));
        }
    }

    /// Adds the absence of a value.
    #[inline]
    pub(super) fn add_null(&mut self) {
        self.mix(0);
    }

    /// The hash.
    pub(super) fn finish(mut self) -> i64 {
        self.mix(MULTIPLIER);
        (self.0 ^ (self.0 >> 29)).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn of(values: &[Option<&str>]) -> i64 {
        let mut digest = Digest::new();
        for value in values {
            match value {
                Some(value) => digest.add(value.as_bytes()),
                None => digest.add_null(),
            }
        }
        digest.finish()
    }

    #[test]
    fn stored_hashes_stay_what_they_are() {
        insta::assert_snapshot!(of(&[Some("a"), None, Some("0123456789")]), @"-17488363750684697");
    }

    #[test]
    fn rows_that_differ_have_other_hashes() {
        let texts: Vec<String> = (0..20_000_u32).map(|n| format!("{n}")).collect();
        let mut seen: HashSet<i64> = texts.iter().map(|text| of(&[Some(text), Some("x")])).collect();
        for (a, b) in [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", "")] {
            seen.insert(of(&[Some(a), Some(b)]));
        }
        seen.extend([of(&[]), of(&[None]), of(&[Some("")]), of(&[None, Some("")]), of(&[Some(""), None])]);
        assert_eq!(seen.len(), 20_009);
    }
}
