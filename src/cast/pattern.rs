//! strftime patterns, compiled once. Strict: the whole text must match, and no field is guessed.
//!
//! Numbers take one or two digits (`1/2/2019` is fine for `%d/%m/%Y`), but exactly as many as they are wide where two of
//! them touch (`%Y%m%d`). `%Y` is always four digits. `%f` is a fraction of a second of 1 to 9 digits.

use super::civil::{date_of, days_of, is_leap};
use super::number::Rest;
use super::time::{Stamp, fraction, offset_of};
use crate::error::{Error, Result};

/// One compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    text: String,
    items: Vec<Item>,
}

/// A piece of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Literal(char),
    /// A number of at most this many digits; all of them when `fixed`.
    Number {
        field: Field,
        width: usize,
        fixed: bool,
    },
    /// `%e %k %l`: may be padded with one space.
    Padded(Field),
    Fraction,
    /// `%.f`: a point and digits, or nothing.
    PointFraction,
    MonthName,
    WeekdayName,
    HalfDay,
    Offset,
    ZoneName,
    Epoch,
    Space,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Year,
    ShortYear,
    Month,
    Day,
    YearDay,
    Hour,
    Hour12,
    Minute,
    Second,
}

/// What has been read so far.
#[derive(Default)]
struct Parts {
    year: Option<u32>,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    hour: Option<u32>,
    hour12: Option<u32>,
    afternoon: Option<bool>,
    minute: u32,
    second: u32,
    micros: i64,
    rest: Option<Rest>,
    weekday: Option<usize>,
    offset: Option<i32>,
    epoch: Option<i64>,
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
/// From Thursday, the weekday of 1970-01-01.
const WEEKDAYS: [&str; 7] = ["thursday", "friday", "saturday", "sunday", "monday", "tuesday", "wednesday"];

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// A specifier that is unknown, or a pattern that does not name a whole date.
    pub(super) fn new(text: &str) -> Result<Self> {
        let mut items = Vec::new();
        compile(text, text, &mut items)?;
        for index in 0..items.len() {
            let touches =
                |other: Option<&Item>| matches!(other, Some(Item::Number { .. } | Item::Fraction | Item::Epoch));
            let before = index.checked_sub(1).and_then(|before| items.get(before));
            let adjacent = touches(before) || touches(items.get(index + 1));
            if let Some(Item::Number { fixed, field, .. }) = items.get_mut(index) {
                *fixed = adjacent || *field == Field::Year;
            }
        }
        let has = |field: Field| {
            items.iter().any(|item| match item {
                Item::Number { field: found, .. } | Item::Padded(found) => *found == field,
                _ => false,
            })
        };
        let year = has(Field::Year) || has(Field::ShortYear);
        let month = has(Field::Month) || items.contains(&Item::MonthName);
        let whole = items.contains(&Item::Epoch) || (year && ((month && has(Field::Day)) || has(Field::YearDay)));
        if !whole {
            return Err(Error::invalid(format!("format `{text}` does not name a whole date"))
                .remedy("use %Y with %m and %d (or %j), or %s"));
        }
        if has(Field::Hour12) != items.contains(&Item::HalfDay) && !has(Field::Hour) {
            return Err(Error::invalid(format!("format `{text}` has only one of %I and %p")).remedy("use both, or %H"));
        }
        Ok(Self { text: text.to_owned(), items })
    }

    /// The pattern as declared.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Reads the whole of `text`; none when it does not match or there is no such day or time.
    pub(super) fn parse(&self, text: &str) -> Option<Stamp> {
        let mut parts = Parts::default();
        let mut rest = text;
        for item in &self.items {
            rest = item.read(rest, &mut parts)?;
        }
        if !rest.is_empty() {
            return None;
        }
        parts.stamp()
    }
}

fn compile(whole: &str, text: &str, items: &mut Vec<Item>) -> Result<()> {
    let number = |field, width| Item::Number { field, width, fixed: false };
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        if next != '%' {
            items.push(if next.is_whitespace() && next != ' ' { Item::Space } else { Item::Literal(next) });
            continue;
        }
        let mut specifier = chars.next();
        if matches!(specifier, Some('-' | '_' | '0')) {
            // Padding says how to write; reading takes either.
            specifier = chars.next();
        }
        let item = match specifier {
            Some('Y') => number(Field::Year, 4),
            Some('y') => number(Field::ShortYear, 2),
            Some('m') => number(Field::Month, 2),
            Some('d') => number(Field::Day, 2),
            Some('j') => number(Field::YearDay, 3),
            Some('H') => number(Field::Hour, 2),
            Some('I') => number(Field::Hour12, 2),
            Some('M') => number(Field::Minute, 2),
            Some('S') => number(Field::Second, 2),
            Some('e') => Item::Padded(Field::Day),
            Some('k') => Item::Padded(Field::Hour),
            Some('l') => Item::Padded(Field::Hour12),
            Some('f') => Item::Fraction,
            Some('b' | 'B' | 'h') => Item::MonthName,
            Some('a' | 'A') => Item::WeekdayName,
            Some('p' | 'P') => Item::HalfDay,
            Some('z') => Item::Offset,
            Some('Z') => Item::ZoneName,
            Some('s') => Item::Epoch,
            Some('n' | 't') => Item::Space,
            Some('%') => Item::Literal('%'),
            Some('F') => {
                compile(whole, "%Y-%m-%d", items)?;
                continue;
            }
            Some('T') => {
                compile(whole, "%H:%M:%S", items)?;
                continue;
            }
            Some('R') => {
                compile(whole, "%H:%M", items)?;
                continue;
            }
            Some('D') => {
                compile(whole, "%m/%d/%y", items)?;
                continue;
            }
            Some(':') if chars.as_str().starts_with('z') => {
                chars.next();
                Item::Offset
            }
            Some('.') if chars.as_str().trim_start_matches(['3', '6', '9']).starts_with('f') => {
                while chars.next().is_some_and(|skipped| skipped != 'f') {}
                Item::PointFraction
            }
            Some('3' | '6' | '9') if chars.as_str().starts_with('f') => {
                chars.next();
                Item::Fraction
            }
            other => {
                let shown = other.map_or_else(|| "%".to_owned(), |other| format!("%{other}"));
                return Err(Error::invalid(format!("format `{whole}` has the unknown specifier `{shown}`"))
                    .remedy("known are %Y %y %m %d %e %j %b %B %a %A %H %I %M %S %f %p %z %Z %s %F %T %R %D and %%"));
            }
        };
        items.push(item);
    }
    Ok(())
}

/// Takes `min` to `max` digits.
fn digits(text: &str, min: usize, max: usize) -> Option<(&str, &str)> {
    let length = text.bytes().take(max).take_while(u8::is_ascii_digit).count();
    if length < min { None } else { text.split_at_checked(length) }
}

/// Takes a name, whole or its first three letters, case ignored; gives its place.
fn name<'a>(text: &'a str, names: &[&str]) -> Option<(usize, &'a str)> {
    let length = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (word, rest) = text.split_at_checked(length)?;
    let index = names.iter().position(|name| {
        word.eq_ignore_ascii_case(name) || name.get(..3).is_some_and(|short| word.eq_ignore_ascii_case(short))
    })?;
    Some((index, rest))
}

impl Item {
    fn read<'a>(self, text: &'a str, parts: &mut Parts) -> Option<&'a str> {
        match self {
            Self::Literal(literal) => text.strip_prefix(literal),
            Self::Number { field, width, fixed } => {
                let (found, rest) = digits(text, if fixed { width } else { 1 }, width)?;
                parts.set(field, found.parse().ok()?)?;
                Some(rest)
            }
            Self::Padded(field) => {
                let (found, rest) = digits(text.strip_prefix(' ').unwrap_or(text), 1, 2)?;
                parts.set(field, found.parse().ok()?)?;
                Some(rest)
            }
            Self::Fraction => {
                let (found, rest) = digits(text, 1, 9)?;
                let (micros, below) = fraction(found.as_bytes())?;
                (parts.micros, parts.rest) = (micros, Some(below));
                Some(rest)
            }
            Self::PointFraction => match text.strip_prefix('.') {
                Some(after) => Self::Fraction.read(after, parts),
                None => Some(text),
            },
            Self::MonthName => {
                let (index, rest) = name(text, &MONTHS)?;
                parts.set(Field::Month, u32::try_from(index).ok()? + 1)?;
                Some(rest)
            }
            Self::WeekdayName => {
                let (index, rest) = name(text, &WEEKDAYS)?;
                parts.weekday = Some(index);
                Some(rest)
            }
            Self::HalfDay => {
                let (word, rest) = text.split_at_checked(2)?;
                parts.afternoon = Some(match word {
                    _ if word.eq_ignore_ascii_case("am") => false,
                    _ if word.eq_ignore_ascii_case("pm") => true,
                    _ => return None,
                });
                Some(rest)
            }
            Self::Offset => {
                let bytes = text.as_bytes();
                let length = [6, 5, 1]
                    .into_iter()
                    .find(|length| bytes.get(..*length).is_some_and(|offset| offset_of(offset, false).is_some()))?;
                parts.offset = offset_of(&bytes[..length], false);
                text.get(length..)
            }
            Self::ZoneName => {
                let rest = ["UTC", "GMT", "Z"].into_iter().find_map(|zone| text.strip_prefix(zone))?;
                parts.offset = Some(0);
                Some(rest)
            }
            Self::Epoch => {
                let unsigned = text.strip_prefix('-').unwrap_or(text);
                let (found, rest) = digits(unsigned, 1, 12)?;
                let seconds: i64 = found.parse().ok()?;
                parts.epoch = Some(if unsigned.len() < text.len() { -seconds } else { seconds });
                Some(rest)
            }
            Self::Space => {
                let rest = text.trim_start_matches(char::is_whitespace);
                (rest.len() < text.len()).then_some(rest)
            }
        }
    }
}

impl Parts {
    /// Sets a field; none when it was read before with another value or cannot be.
    fn set(&mut self, field: Field, value: u32) -> Option<()> {
        let (slot, value) = match field {
            Field::Year => (&mut self.year, value),
            // POSIX: 69 to 99 are the 1900s.
            Field::ShortYear => (&mut self.year, if value < 69 { 2000 + value } else { 1900 + value }),
            Field::Month => (&mut self.month, value),
            Field::Day => (&mut self.day, value),
            Field::YearDay => (&mut self.year_day, value),
            Field::Hour if value < 24 => (&mut self.hour, value),
            Field::Hour12 if (1..=12).contains(&value) => (&mut self.hour12, value),
            Field::Minute if value < 60 => {
                self.minute = value;
                return Some(());
            }
            Field::Second if value < 60 => {
                self.second = value;
                return Some(());
            }
            _ => return None,
        };
        if slot.is_some_and(|earlier| earlier != value) {
            return None;
        }
        *slot = Some(value);
        Some(())
    }

    fn stamp(&self) -> Option<Stamp> {
        let rest = self.rest.unwrap_or(Rest::Zero);
        if let Some(epoch) = self.epoch {
            let days = i32::try_from(epoch.div_euclid(86_400)).ok()?;
            let micros = epoch.rem_euclid(86_400) * 1_000_000 + self.micros;
            return Some(Stamp { days, micros, rest, offset: Some(0) });
        }
        let year = i32::try_from(self.year?).ok()?;
        let days = match (self.month, self.day, self.year_day) {
            (Some(month), Some(day), None) => days_of(year, month, day)?,
            (month, day, Some(year_day)) => {
                if year_day == 0 || year_day > 365 + u32::from(is_leap(year)) {
                    return None;
                }
                let days = days_of(year, 1, 1)? + i32::try_from(year_day).ok()? - 1;
                let (_, real_month, real_day) = date_of(days);
                let agrees = month.is_none_or(|month| month == real_month) && day.is_none_or(|day| day == real_day);
                agrees.then_some(days)?
            }
            _ => return None,
        };
        let weekday = usize::try_from(days.rem_euclid(7)).ok()?;
        if self.weekday.is_some_and(|declared| declared != weekday) {
            return None;
        }
        let hour = match (self.hour, self.hour12, self.afternoon) {
            (None, Some(hour), Some(afternoon)) => hour % 12 + if afternoon { 12 } else { 0 },
            (Some(hour), _, Some(afternoon)) if (hour >= 12) != afternoon => return None,
            (hour, ..) => hour.unwrap_or(0),
        };
        let seconds = i64::from(hour * 3600 + self.minute * 60 + self.second);
        Some(Stamp { days, micros: seconds * 1_000_000 + self.micros, rest, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(format: &str, text: &str) -> Option<i64> {
        let stamp = Pattern::new(format).unwrap().parse(text)?;
        let offset = i64::from(stamp.offset.unwrap_or(0));
        Some(i64::from(stamp.days) * 86_400_000_000 + stamp.micros - offset * 1_000_000)
    }

    #[test]
    fn patterns_read_what_they_say_and_nothing_else() {
        let day = |year, month, day| Some(i64::from(days_of(year, month, day).unwrap()) * 86_400_000_000);
        let cases = [
            // TIM-01
            ("%d/%m/%Y", "03/04/2025", day(2025, 4, 3)),
            ("%d/%m/%Y", "25/12/2025", day(2025, 12, 25)),
            ("%m/%d/%Y", "03/04/2025", day(2025, 3, 4)),
            ("%m/%d/%Y", "25/12/2025", None),
            // TIM-10
            ("%d/%m/%Y", "01/02/19", None),
            ("%d/%m/%Y", "1/2/2019", day(2019, 2, 1)),
            ("%d/%m/%Y", "45351", None),
            ("%d/%m/%y", "01/02/19", day(2019, 2, 1)),
            ("%d/%m/%y", "01/02/70", day(1970, 2, 1)),
            ("%d/%m/%Y", "1/2/20190", None),
            ("%d/%m/%Y", "1/2/2019 ", None),
            ("%d/%m/%Y", "001/2/2019", None),
            ("%Y%m%d", "20240229", day(2024, 2, 29)),
            ("%Y%m%d", "2024229", None),
            ("%Y-%j", "2024-366", day(2024, 12, 31)),
            ("%Y-%j", "2023-366", None),
            ("%d %b %Y", "29 Feb 2024", day(2024, 2, 29)),
            ("%A, %d %B %Y", "Thursday, 29 february 2024", day(2024, 2, 29)),
            ("%A, %d %B %Y", "Friday, 29 february 2024", None),
            ("%F %T", "1970-01-01 00:00:01", Some(1_000_000)),
            ("%F %T", "1970-01-01 24:00:00", None),
            ("%F %T", "1970-01-01 23:59:60", None),
            ("%F %I:%M %p", "1970-01-01 12:01 AM", Some(60_000_000)),
            ("%F %I:%M %p", "1970-01-01 12:01 pm", Some(43_260_000_000)),
            ("%F %I:%M %p", "1970-01-01 13:01 pm", None),
            ("%F %T.%f", "1970-01-01 00:00:00.5", Some(500_000)),
            ("%F %T%.f", "1970-01-01 00:00:00.123", Some(123_000)),
            ("%F %T%.f", "1970-01-01 00:00:00", Some(0)),
            ("%F %T%.3f", "1970-01-01 00:00:00.123", Some(123_000)),
            ("%FT%T%z", "1970-01-01T00:00:00+0530", Some(-19_800_000_000)),
            ("%FT%T%:z", "1970-01-01T00:00:00-01:00", Some(3_600_000_000)),
            ("%FT%T %Z", "1970-01-01T00:00:00 UTC", Some(0)),
            ("%FT%T %Z", "1970-01-01T00:00:00 CET", None),
            ("%s", "-86400", Some(-86_400_000_000)),
            ("100%% %Y-%m-%d", "100% 1970-01-01", Some(0)),
        ];
        for (format, text, expected) in cases {
            assert_eq!(micros(format, text), expected, "{format} on {text:?}");
        }
    }

    #[test]
    fn a_pattern_that_names_no_date_or_an_unknown_specifier_is_refused() {
        for (format, says) in [
            ("%H:%M", "does not name a whole date"),
            ("%Y-%m", "does not name a whole date"),
            ("%Y-%m-%d %Q", "unknown specifier `%Q`"),
            ("%Y-%m-%d %", "unknown specifier `%`"),
            ("%Y-%m-%d %I", "only one of %I and %p"),
        ] {
            let error = Pattern::new(format).unwrap_err();
            assert!(error.message().contains(says), "{format}: {error}");
        }
    }
}
