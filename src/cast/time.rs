//! Dates and times: ISO 8601, declared patterns, numbers with a unit, zones and clock changes.
//!
//! A text first becomes a [`Stamp`] (what was written); the column's type then decides what that means. The wall clock
//! is never moved by an offset that was not written or declared.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone};
use chrono_tz::{GapInfo, Tz};

use super::civil::{DAY_MICROS, MAX_DAYS, MAX_MICROS, MIN_DAYS, MIN_MICROS, days_of};
use super::number::{Exact, Rest, rest_of, rounds_up};
use super::pattern::Pattern;
use crate::schema::{OnGap, OnInfinity, OnOverlap, Rounding, TimeUnit};

/// A date or date-time as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Days since 1970-01-01.
    pub(super) days: i32,
    /// Microseconds of the day.
    pub(super) micros: i64,
    /// What lies below a microsecond.
    pub(super) rest: Rest,
    /// Seconds east of UTC, when written.
    pub(super) offset: Option<i32>,
}

/// How a column reads dates and times.
#[derive(Debug, Clone)]
pub(super) struct TimeRules {
    pub(super) patterns: Vec<Pattern>,
    pub(super) unit: Option<TimeUnit>,
    pub(super) zone: Option<Tz>,
    pub(super) rounding: Rounding,
    pub(super) on_gap: OnGap,
    pub(super) on_overlap: OnOverlap,
    pub(super) on_infinity: OnInfinity,
}

/// The sign of an infinite date of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Infinite {
    Past,
    Future,
}

/// `infinity` and `-infinity`, as `PostgreSQL` writes them.
pub(super) fn infinite(text: &str) -> Option<Infinite> {
    if text.eq_ignore_ascii_case("infinity") || text.eq_ignore_ascii_case("+infinity") {
        return Some(Infinite::Future);
    }
    text.eq_ignore_ascii_case("-infinity").then_some(Infinite::Past)
}

impl TimeRules {
    /// Reads a text by the declared patterns, or as ISO 8601.
    pub(super) fn stamp(&self, text: &str) -> Result<Stamp, String> {
        if self.patterns.is_empty() {
            return iso(text).ok_or_else(|| "not an ISO 8601 date or date-time".to_owned());
        }
        self.patterns.iter().find_map(|pattern| pattern.parse(text)).ok_or_else(|| {
            let names: Vec<String> = self.patterns.iter().map(|pattern| format!("`{}`", pattern.text())).collect();
            format!("not a date or time of the format {}", names.join(" or "))
        })
    }

    /// Whether numbers in text mean a time.
    pub(super) fn numbers_are_times(&self) -> bool {
        self.unit.is_some() && self.patterns.is_empty()
    }

    /// Microseconds of a number in the declared unit.
    pub(super) fn micros_of_number(&self, number: &Exact) -> Result<i64, String> {
        let unit = self.unit.ok_or("a number is no time without a `unit`")?;
        let (number, scale) = match unit {
            TimeUnit::Seconds => (number.clone(), 6),
            TimeUnit::Millis => (number.clone(), 3),
            TimeUnit::Micros => (number.clone(), 0),
            TimeUnit::Nanos => (number.clone(), -3),
            TimeUnit::Days => {
                let days = number.scaled(0, Rounding::Reject).map_err(|_| "not a whole number of days".to_owned())?;
                let micros = days.checked_mul(i128::from(DAY_MICROS)).ok_or_else(out_of_range)?;
                (Exact::integer(micros), 0)
            }
        };
        let (magnitude, rest) = number.magnitude(scale).ok_or_else(out_of_range)?;
        // Fractions are counted forwards from the microsecond before, so that a number rounds like the same time as text.
        let (floor, rest) = match (number.is_negative(), rest) {
            (false, rest) => (magnitude, rest),
            (true, Rest::Zero) => (-magnitude, Rest::Zero),
            (true, Rest::Below) => (-magnitude - 1, Rest::Above),
            (true, Rest::Half) => (-magnitude - 1, Rest::Half),
            (true, Rest::Above) => (-magnitude - 1, Rest::Below),
        };
        let floor = i64::try_from(floor).map_err(|_| out_of_range())?;
        in_range(self.rounded(floor, rest)?)
    }

    /// Microseconds of an integer whose ticks are `ticks_per_second` to the second.
    pub(super) fn micros_of_ticks(&self, value: i64, ticks_per_second: i64) -> Result<i64, String> {
        if ticks_per_second <= 1_000_000 {
            let micros = value.checked_mul(1_000_000 / ticks_per_second).ok_or_else(out_of_range)?;
            return in_range(micros);
        }
        let divisor = ticks_per_second / 1_000_000;
        let lost = value.rem_euclid(divisor);
        let rest = match (lost * 2).cmp(&divisor) {
            _ if lost == 0 => Rest::Zero,
            std::cmp::Ordering::Less => Rest::Below,
            std::cmp::Ordering::Equal => Rest::Half,
            std::cmp::Ordering::Greater => Rest::Above,
        };
        in_range(self.rounded(value.div_euclid(divisor), rest)?)
    }

    /// The wall clock of a stamp in microseconds.
    fn wall(&self, stamp: Stamp) -> Result<i64, String> {
        self.rounded(i64::from(stamp.days) * DAY_MICROS + stamp.micros, stamp.rest)
    }

    fn rounded(&self, micros: i64, rest: Rest) -> Result<i64, String> {
        let up = rounds_up(i128::from(micros), rest, self.rounding)
            .ok_or_else(|| "more precise than a microsecond and no `rounding` is declared".to_owned())?;
        Ok(micros + i64::from(up))
    }

    /// The instant that a stamp means.
    pub(super) fn instant(&self, stamp: Stamp) -> Result<i64, String> {
        let wall = self.wall(stamp)?;
        match stamp.offset {
            Some(offset) => in_range(wall - i64::from(offset) * 1_000_000),
            None => self.instant_of_wall(wall),
        }
    }

    /// The instant of a wall-clock time in the declared zone.
    pub(super) fn instant_of_wall(&self, wall: i64) -> Result<i64, String> {
        let zone = self.zone.ok_or("no offset, and the column declares no `timezone`")?;
        if zone == Tz::UTC {
            return in_range(wall);
        }
        let local = naive(wall)?;
        rules_are_known(zone, &local)?;
        let seconds = match zone.offset_from_local_datetime(&local) {
            chrono::LocalResult::Single(offset) => offset.fix().local_minus_utc(),
            chrono::LocalResult::Ambiguous(one, other) => {
                // The greater offset gives the earlier instant.
                let (one, other) = (one.fix().local_minus_utc(), other.fix().local_minus_utc());
                match self.on_overlap {
                    OnOverlap::Earlier => one.max(other),
                    OnOverlap::Later => one.min(other),
                    OnOverlap::Reject => return Err(format!("{local} happens twice in {zone}: the clock is put back")),
                }
            }
            chrono::LocalResult::None => self.offset_in_gap(zone, &local)?,
        };
        in_range(wall - i64::from(seconds) * 1_000_000)
    }

    fn offset_in_gap(&self, zone: Tz, local: &NaiveDateTime) -> Result<i32, String> {
        let skipped = || format!("{local} does not exist in {zone}: the clock is put forward");
        if self.on_gap == OnGap::Reject {
            return Err(skipped());
        }
        let gap = GapInfo::new(local, &zone).ok_or_else(skipped)?;
        let offset = match self.on_gap {
            OnGap::Earlier => gap.end.map(|end| end.offset().fix()),
            _ => gap.begin.map(|(_, offset)| offset.fix()),
        };
        Ok(offset.ok_or_else(skipped)?.local_minus_utc())
    }

    /// The wall clock of an instant in the declared zone; refused without one, because the zone would be dropped.
    pub(super) fn wall_of_instant(&self, instant: i64) -> Result<i64, String> {
        let zone = self.zone.ok_or("an offset would be dropped, and the column declares no `timezone`")?;
        let utc = naive(instant)?;
        rules_are_known(zone, &utc)?;
        let seconds = zone.offset_from_utc_datetime(&utc).fix().local_minus_utc();
        in_range(instant + i64::from(seconds) * 1_000_000)
    }

    /// The wall clock that a stamp means.
    pub(super) fn wall_clock(&self, stamp: Stamp) -> Result<i64, String> {
        match stamp.offset {
            None => in_range(self.wall(stamp)?),
            Some(offset) => self.wall_of_instant(self.wall(stamp)? - i64::from(offset) * 1_000_000),
        }
    }
}

/// The first year that the table of zones says nothing of: from then on it has no more changes of clocks.
const UNKNOWN_FROM: i32 = 2100;

/// Zones that put their clocks forward and back are known as far as their table goes.
fn rules_are_known(zone: Tz, time: &NaiveDateTime) -> Result<(), String> {
    if time.year() < UNKNOWN_FROM {
        return Ok(());
    }
    let offset = |month| {
        let day = NaiveDate::from_ymd_opt(UNKNOWN_FROM - 1, month, 1).unwrap_or_default().and_time(NaiveTime::MIN);
        zone.offset_from_utc_datetime(&day).fix()
    };
    if offset(1) == offset(7) {
        return Ok(());
    }
    Err(format!("the clock of {zone} is not known from the year {UNKNOWN_FROM} on"))
}

/// The day of a wall-clock time at midnight; another time of day would be cut off.
pub(super) fn whole_day(wall: i64) -> Result<i32, String> {
    if wall.rem_euclid(DAY_MICROS) != 0 {
        return Err("has a time of day, which a date cannot hold".to_owned());
    }
    days_in_range(wall.div_euclid(DAY_MICROS))
}

/// The day of a stamp at midnight.
pub(super) fn day_of_stamp(stamp: Stamp) -> Result<i32, String> {
    if stamp.rest != Rest::Zero {
        return Err("has a time of day, which a date cannot hold".to_owned());
    }
    whole_day(i64::from(stamp.days) * DAY_MICROS + stamp.micros)
}

/// A day between the years 1 and 9999.
pub(super) fn days_in_range(days: i64) -> Result<i32, String> {
    i32::try_from(days).ok().filter(|days| (MIN_DAYS..=MAX_DAYS).contains(days)).ok_or_else(out_of_range)
}

/// A time between the years 1 and 9999.
pub(super) fn in_range(micros: i64) -> Result<i64, String> {
    if (MIN_MICROS..=MAX_MICROS).contains(&micros) { Ok(micros) } else { Err(out_of_range()) }
}

fn out_of_range() -> String {
    "outside the years 0001 to 9999".to_owned()
}

fn naive(micros: i64) -> Result<NaiveDateTime, String> {
    DateTime::from_timestamp_micros(micros).map(|time| time.naive_utc()).ok_or_else(out_of_range)
}

/// Two digits.
#[inline]
fn two(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [tens, ones] if tens.is_ascii_digit() && ones.is_ascii_digit() => {
            Some(u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
        }
        _ => None,
    }
}

/// `YYYY-MM-DD` of exactly ten bytes.
#[inline]
pub(super) fn fixed_date(bytes: &[u8]) -> Option<i32> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = bytes else {
        return None;
    };
    let year = two(&[*y0, *y1])? * 100 + two(&[*y2, *y3])?;
    days_of(i32::try_from(year).ok()?, two(&[*m0, *m1])?, two(&[*d0, *d1])?)
}

/// `HH:MM:SS` of exactly eight bytes, in seconds.
#[inline]
pub(super) fn fixed_time(bytes: &[u8]) -> Option<u32> {
    let [h0, h1, b':', m0, m1, b':', s0, s1] = bytes else {
        return None;
    };
    let (hour, minute, second) = (two(&[*h0, *h1])?, two(&[*m0, *m1])?, two(&[*s0, *s1])?);
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

/// ISO 8601: a date, or a date-time with `T` or a space, seconds optional, up to 9 fraction digits, offset optional.
pub(super) fn iso(text: &str) -> Option<Stamp> {
    let bytes = text.as_bytes();
    let days = fixed_date(bytes.get(..10)?)?;
    let Some((separator, mut rest)) = bytes[10..].split_first() else {
        return Some(Stamp { days, micros: 0, rest: Rest::Zero, offset: None });
    };
    if !matches!(separator, b'T' | b' ') {
        return None;
    }
    let hour = two(rest.get(..2)?).filter(|hour| *hour < 24)?;
    if rest.get(2) != Some(&b':') {
        return None;
    }
    let minute = two(rest.get(3..5)?).filter(|minute| *minute < 60)?;
    rest = &rest[5..];
    let (mut second, mut micros, mut below) = (0, 0, Rest::Zero);
    if let [b':', after @ ..] = rest {
        second = two(after.get(..2)?).filter(|second| *second < 60)?;
        rest = &after[2..];
        if let [b'.', after @ ..] = rest {
            let length = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (micros, below) = fraction(&after[..length])?;
            rest = &after[length..];
        }
    }
    let seconds = i64::from(hour * 3600 + minute * 60 + second);
    let offset = if rest.is_empty() { None } else { Some(offset_of(rest, true)?) };
    Some(Stamp { days, micros: seconds * 1_000_000 + micros, rest: below, offset })
}

/// 1 to 9 fraction digits as microseconds and what lies below.
pub(super) fn fraction(digits: &[u8]) -> Option<(i64, Rest)> {
    if !(1..=9).contains(&digits.len()) {
        return None;
    }
    let (kept, lost) = digits.split_at(digits.len().min(6));
    let mut micros = 0_i64;
    for index in 0..6 {
        micros = micros * 10 + kept.get(index).map_or(0, |byte| i64::from(byte - b'0'));
    }
    let lost: Vec<u8> = lost.iter().map(|byte| byte - b'0').collect();
    Some((micros, rest_of(&lost)))
}

/// `Z`, `+HH`, `+HHMM` or `+HH:MM` in seconds east of UTC.
pub(super) fn offset_of(bytes: &[u8], hours_alone: bool) -> Option<i32> {
    let (sign, rest) = match bytes {
        [b'Z'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest {
        [_, _] if hours_alone => (two(rest)?, 0),
        [h0, h1, m0, m1] | [h0, h1, b':', m0, m1] => (two(&[*h0, *h1])?, two(&[*m0, *m1])?),
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    Some(sign * i32::try_from(hours * 3600 + minutes * 60).ok()?)
}

#[cfg(test)]
mod tests;
