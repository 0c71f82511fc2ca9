//! Deterministic taxi-like trips as CSV text, for the demo, the benches and the tests: the same [`Trips`] gives the same
//! bytes on every machine. A file is made without the ones before it.

pub mod shop;

use std::fmt::Write as _;

use chrono::{Days, NaiveDate};

/// The header of every file.
pub const HEADER: &str =
    "trip_id,pickup_ts,dropoff_ts,pickup_zone,dropoff_zone,passenger_count,distance_km,fare,tip,payment_type";

const PAYMENTS: [&str; 4] = ["card", "cash", "app", "voucher"];
const NAMED_ZONES: [&str; 4] = ["Zürich HB", "São João", "Châtelet", "東京駅"];
const NUMBERED_ZONES: u64 = 258;
const DAY_SECONDS: i64 = 86_400;

/// `SplitMix64`: small, fast, and the same everywhere.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    /// A generator of its own for each stream of a seed, so that streams do not overlap.
    fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A whole number from 0 up to, not including, `bound` (at least 1).
    fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound.max(1));
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// True in `of_thousand` of 1,000 draws.
    fn once_in(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }
}

/// A set of trips files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trips {
    /// How many files.
    pub files: u64,
    /// Rows in each.
    pub rows: u64,
    /// Days that all files together span; file `i` covers its slice of them, with 1% of its rows a day late.
    pub days: u64,
    /// Seed; two sets of different seeds have different rows.
    pub seed: u64,
}

impl Trips {
    /// The first day.
    #[must_use]
    pub fn first_day() -> NaiveDate {
        NaiveDate::from_ymd_opt(2024, 3, 1).unwrap_or_default()
    }

    /// Name of file `index`.
    #[must_use]
    pub fn name(index: u64) -> String {
        format!("trips_{index:04}.csv")
    }

    /// Content of file `index`, from 0.
    #[must_use]
    pub fn file(&self, index: u64) -> String {
        let slice = (self.days * 86_400 / self.files.max(1)).max(1);
        let base = i64::try_from(index * slice).unwrap_or_default();
        let mut random = Random::new(self.seed, index);
        let mut text = header(self.rows);
        for row in 0..self.rows {
            let mut pickup = base + i64::try_from(random.below(slice)).unwrap_or_default();
            if random.once_in(10) {
                pickup -= DAY_SECONDS;
            }
            push_row(&mut text, &mut random, index * self.rows + row + 1, pickup);
        }
        text
    }

    /// A file that comes late: `rows` new trips, all of them on one day of the set, `day` (from 0).
    #[must_use]
    pub fn late_file(&self, day: u64, rows: u64) -> String {
        let mut random = Random::new(self.seed, u64::MAX);
        let base = i64::try_from(day).unwrap_or_default() * DAY_SECONDS;
        let first_id = self.files * self.rows + 1_000_001;
        let mut text = header(rows);
        for row in 0..rows {
            let pickup = base + i64::try_from(random.below(86_400)).unwrap_or_default();
            push_row(&mut text, &mut random, first_id + row, pickup);
        }
        text
    }

    /// A file of which no record can be taken: a time that is none, a fare that is none, a zone that is missing.
    #[must_use]
    pub fn bad_file() -> String {
        let rows = [
            "9000001,not-a-time,2024-03-02 10:12:00,zone-001,zone-002,1,4.20,11.50,0.00,card",
            "9000002,2024-03-02 10:00:00,2024-03-02 10:12:00,zone-001,zone-002,1,4.20,\"12,5x\",0.00,card",
            "9000003,2024-03-02 10:00:00,2024-03-02 10:12:00,,zone-002,1,4.20,11.50,0.00,card",
        ];
        format!("{HEADER}\n{}\n", rows.join("\n"))
    }
}

fn header(rows: u64) -> String {
    let mut text = String::with_capacity(usize::try_from(rows).unwrap_or_default() * 96 + 128);
    text.push_str(HEADER);
    text.push('\n');
    text
}

/// One trip that begins `pickup` seconds after the first day.
fn push_row(text: &mut String, random: &mut Random, trip_id: u64, pickup: i64) {
    let minutes = 2 + random.below(58);
    let meters = minutes * (20 + random.below(40)) * 1000 / 60;
    let fare = 300 + meters * 180 / 1000;
    let tip = if random.once_in(600) { random.below(fare * 3 / 10) } else { 0 };
    let zones = NUMBERED_ZONES + NAMED_ZONES.len() as u64;
    // The smaller of two draws: low zones are busier.
    let from = random.below(zones).min(random.below(zones));
    let to = random.below(zones);
    // Writing to a string cannot fail.
    let _ = write!(text, "{trip_id},");
    push_time(text, pickup);
    text.push(',');
    push_time(text, pickup + i64::try_from(minutes).unwrap_or_default() * 60);
    text.push(',');
    push_zone(text, from);
    text.push(',');
    push_zone(text, to);
    let _ = write!(text, ",{},{}.{:02},", 1 + random.below(5), meters / 1000, meters % 1000 / 10);
    let _ = write!(text, "{}.{:02},{}.{:02},", fare / 100, fare % 100, tip / 100, tip % 100);
    text.push_str(PAYMENTS[usize::try_from(random.below(4)).unwrap_or_default()]);
    text.push('\n');
}

fn push_time(text: &mut String, seconds: i64) {
    let day = seconds.div_euclid(DAY_SECONDS);
    let rest = seconds.rem_euclid(DAY_SECONDS);
    let first = Trips::first_day();
    let days = Days::new(day.unsigned_abs());
    let date = if day < 0 { first.checked_sub_days(days) } else { first.checked_add_days(days) }.unwrap_or(first);
    let _ = write!(text, "{date} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
}

fn push_zone(text: &mut String, zone: u64) {
    if zone < NUMBERED_ZONES {
        let _ = write!(text, "zone-{:03}", zone + 1);
        return;
    }
    text.push_str(NAMED_ZONES[usize::try_from(zone - NUMBERED_ZONES).unwrap_or_default() % NAMED_ZONES.len()]);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::name::short_hash;

    const SET: Trips = Trips { files: 5, rows: 1000, days: 5, seed: 7 };

    #[test]
    fn the_bytes_never_change() {
        let text: String = (0..5).map(|index| SET.file(index)).collect();
        insta::assert_snapshot!(short_hash(&[&text, &SET.late_file(1, 50), &Trips::bad_file()]));
        insta::assert_snapshot!(SET.file(0).lines().take(4).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn every_row_has_ten_fields_and_an_id_of_its_own() {
        let mut ids = HashSet::new();
        for index in 0..5 {
            let text = SET.file(index);
            assert_eq!(text.lines().next(), Some(HEADER));
            assert_eq!(text.lines().count(), 1001);
            for line in text.lines().skip(1) {
                assert_eq!(line.split(',').count(), 10, "{line}");
                assert!(ids.insert(line.split(',').next().unwrap().to_owned()), "{line}");
            }
        }
    }

    #[test]
    fn a_file_does_not_depend_on_how_many_come_after_it_in_a_longer_set_of_the_same_slice() {
        let longer = Trips { files: 10, days: 10, ..SET };
        assert_eq!(SET.file(3), longer.file(3));
        assert_ne!(SET.file(3), Trips { seed: 8, ..SET }.file(3));
    }

    #[test]
    fn a_late_file_is_on_one_day_and_has_new_ids() {
        let text = SET.late_file(1, 50);
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), 50);
        assert!(rows.iter().all(|row| row[1].starts_with("2024-03-02 ")));
        assert!(rows.iter().all(|row| row[0].parse::<u64>().unwrap() > 5_000));
    }

    #[test]
    fn some_rows_are_a_day_late() {
        let text = SET.file(1);
        let late = text.lines().filter(|line| line.contains(",2024-03-01 ")).count();
        assert!((1..40).contains(&late), "{late}");
    }
}
