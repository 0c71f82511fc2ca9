//! Whole columns of text at once, with a short way for the forms that nearly every field has.
//!
//! A [`Plan`] is chosen per column. It recognises a subset of what the slow way accepts and gives the same value; all
//! else, refusals included, takes the slow way.

use chrono_tz::Tz;

use super::leaf::{Kind, Settings, check_length};
use super::nested::Shape;
use super::number::{fast_decimal, fast_float, fast_float32, fast_integer};
use super::time::{TimeRules, fixed_date, fixed_time, in_range};
use super::value::Builder;
use super::{CastFault, ColumnSink};
use crate::schema::{Column, Encoding, TimeUnit};

/// The short way of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// There is none.
    Slow,
    /// Digits with a minus at most.
    Integer,
    /// Digits with a point at most.
    Float,
    /// The same, with so many digits after the point and a magnitude below `limit` units.
    Decimal { scale: usize, limit: i64 },
    /// Text as it is.
    Text,
    /// `YYYY-MM-DD`
    Date,
    /// Digits with a minus at most, each one so many microseconds.
    Ticks(i64),
    /// `YYYY-MM-DD HH:MM:SS` in UTC, in a zone or on a wall clock.
    Time(TimePlan),
}

/// Which date-times of a fixed width mean what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimePlan {
    /// A space may stand between date and time.
    space: bool,
    /// A `T` may.
    letter: bool,
    /// What a text without offset is.
    bare: Bare,
    /// A `Z` may follow.
    zulu: bool,
}

/// What a date-time without offset is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bare {
    /// No value.
    Refused,
    /// The microseconds as they are: UTC, or a wall clock.
    Plain,
    /// A wall clock in the column's zone.
    Zoned,
}

/// The day that was read last: rows of a file mostly share it with their neighbours.
#[derive(Debug, Clone, Copy)]
pub(super) struct DateCache {
    text: [u8; 10],
    days: i32,
}

impl Default for DateCache {
    fn default() -> Self {
        Self { text: *b"1970-01-01", days: 0 }
    }
}

impl DateCache {
    #[inline]
    fn days(&mut self, text: &[u8; 10]) -> Option<i32> {
        if *text != self.text {
            self.days = fixed_date(text)?;
            self.text = *text;
        }
        Some(self.days)
    }
}

/// Microseconds of one tick of a unit; none where a number of ticks takes more than a multiplication.
const fn ticks(unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Seconds => Some(1_000_000),
        TimeUnit::Millis => Some(1_000),
        TimeUnit::Micros => Some(1),
        TimeUnit::Nanos | TimeUnit::Days => None,
    }
}

impl Plan {
    /// The short way of `column`, if its declarations leave one.
    pub(super) fn choose(shape: &Shape, column: &Column, settings: &Settings, nulls: &[String]) -> Self {
        let Shape::Leaf(kind) = shape else {
            return Self::Slow;
        };
        // A null token that looks like a number or a date must not be taken for one.
        let token_is_value = |token: &String| {
            token.trim().starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+' | '.'))
        };
        let digits_are_text = matches!(settings.encoding, None | Some(Encoding::Text));
        let plain = column.decimal_separator == b'.' && column.group_separator.is_none();
        // Only a wall clock in a zone is something else than the number says.
        let is_plain_number = *kind == Kind::Timestamp || settings.times.zone.is_none();
        let ticks = settings.times.unit.filter(|_| is_plain_number).and_then(ticks);
        let formats: Vec<&str> = column.formats.iter().map(String::as_str).collect();
        match kind {
            Kind::String if !column.trim => Self::Text,
            Kind::String | Kind::Boolean | Kind::Binary => Self::Slow,
            _ if nulls.iter().any(token_is_value) => Self::Slow,
            Kind::Int(_) if plain => Self::Integer,
            Kind::Float32 | Kind::Float64 if plain => Self::Float,
            Kind::Decimal(precision, scale) if plain && digits_are_text => match usize::try_from(*scale) {
                Ok(scale) => Self::Decimal { scale, limit: 10_i64.pow(u32::from(*precision).min(18)) },
                Err(_) => Self::Slow,
            },
            Kind::Date if matches!(formats.as_slice(), [] | ["%Y-%m-%d" | "%F"]) => Self::Date,
            Kind::Timestamp | Kind::TimestampNtz if formats.is_empty() && plain && ticks.is_some() => {
                ticks.map_or(Self::Slow, Self::Ticks)
            }
            Kind::Timestamp | Kind::TimestampNtz => {
                let (space, letter, iso) = match formats.as_slice() {
                    [] => (true, true, true),
                    ["%Y-%m-%d %H:%M:%S" | "%F %T"] => (true, false, false),
                    ["%Y-%m-%dT%H:%M:%S" | "%FT%T"] => (false, true, false),
                    _ => return Self::Slow,
                };
                let instant = *kind == Kind::Timestamp;
                let bare = match &settings.times.zone {
                    _ if !instant => Bare::Plain,
                    None => Bare::Refused,
                    Some(Tz::UTC) => Bare::Plain,
                    Some(_) => Bare::Zoned,
                };
                Self::Time(TimePlan { space, letter, bare, zulu: iso && instant })
            }
            _ => Self::Slow,
        }
    }
}

/// The value of a text of 19 bytes, or 20 with a `Z`.
#[inline]
fn fast_time(text: &[u8], plan: TimePlan, times: &TimeRules, dates: &mut DateCache) -> Option<i64> {
    let (text, bare) = match text {
        [text @ .., b'Z'] if plan.zulu => (text, Bare::Plain),
        text => (text, plan.bare),
    };
    let (date, rest) = text.split_first_chunk::<10>()?;
    let (separator, time) = rest.split_first()?;
    if !((plan.space && *separator == b' ') || (plan.letter && *separator == b'T')) {
        return None;
    }
    let seconds = fixed_time(time)?;
    let micros = (i64::from(dates.days(date)?) * 86_400 + i64::from(seconds)) * 1_000_000;
    match bare {
        Bare::Plain => Some(micros),
        Bare::Zoned => times.instant_of_wall(micros).ok(),
        Bare::Refused => None,
    }
}

#[inline]
fn fast_date(text: &[u8], dates: &mut DateCache) -> Option<i32> {
    dates.days(text.try_into().ok()?)
}

#[inline]
fn fast_ticks(text: &[u8], micros: i64) -> Option<i64> {
    in_range(fast_integer(text)?.checked_mul(micros)?).ok()
}

#[inline]
fn fast_units(text: &[u8], scale: usize, limit: i64) -> Option<i128> {
    fast_decimal(text, scale).filter(|value| -limit < *value && *value < limit).map(i128::from)
}

impl ColumnSink {
    /// Appends `text` by the short way; false when it must go the slow way. Not for text columns.
    #[inline]
    pub(super) fn quick(&mut self, text: &[u8]) -> bool {
        macro_rules! append {
            ($builder:expr, $value:expr) => {
                match $value {
                    Some(value) => {
                        $builder.append_value(value);
                        true
                    }
                    None => false,
                }
            };
        }
        let dates = &mut self.dates;
        match (self.rules.plan, &mut self.builder) {
            (Plan::Integer, Builder::Int8(builder)) => {
                append!(builder, fast_integer(text).and_then(|v| i8::try_from(v).ok()))
            }
            (Plan::Integer, Builder::Int16(builder)) => {
                append!(builder, fast_integer(text).and_then(|v| i16::try_from(v).ok()))
            }
            (Plan::Integer, Builder::Int32(builder)) => {
                append!(builder, fast_integer(text).and_then(|v| i32::try_from(v).ok()))
            }
            (Plan::Integer, Builder::Int64(builder)) => append!(builder, fast_integer(text)),
            (Plan::Float, Builder::Float64(builder)) => append!(builder, fast_float(text)),
            (Plan::Float, Builder::Float32(builder)) => append!(builder, fast_float32(text)),
            (Plan::Decimal { scale, limit }, Builder::Decimal(builder)) => {
                append!(builder, fast_units(text, scale, limit))
            }
            (Plan::Date, Builder::Days(builder)) => append!(builder, fast_date(text, dates)),
            (Plan::Ticks(micros), Builder::Micros(builder)) => append!(builder, fast_ticks(text, micros)),
            (Plan::Time(plan), Builder::Micros(builder)) => {
                append!(builder, fast_time(text, plan, &self.rules.settings.times, dates))
            }
            _ => false,
        }
    }

    /// Whether [`ColumnSink::push_strs`] is the better way for fields that are known to be UTF-8.
    pub(crate) fn prefers_str(&self) -> bool {
        self.rules.plan == Plan::Text
    }

    /// Appends fields (bytes, and whether they were quoted); faults are reported with their place in `fields`.
    pub(crate) fn push_fields<'a>(
        &mut self,
        fields: impl Iterator<Item = (&'a [u8], bool)>,
        on_fault: &mut impl FnMut(usize, CastFault),
    ) {
        macro_rules! column {
            ($variant:ident, |$text:ident| $fast:expr) => {
                for (index, ($text, quoted)) in fields.enumerate() {
                    if let Builder::$variant(builder) = &mut self.builder
                        && let Some(value) = $fast
                    {
                        builder.append_value(value);
                    } else if let Err(fault) = self.push_text($text, quoted) {
                        on_fault(index, fault);
                    }
                }
            };
        }
        match (self.rules.plan, &self.builder) {
            (Plan::Integer, Builder::Int8(_)) => {
                column!(Int8, |text| fast_integer(text).and_then(|v| i8::try_from(v).ok()))
            }
            (Plan::Integer, Builder::Int16(_)) => {
                column!(Int16, |text| fast_integer(text).and_then(|v| i16::try_from(v).ok()))
            }
            (Plan::Integer, Builder::Int32(_)) => {
                column!(Int32, |text| fast_integer(text).and_then(|v| i32::try_from(v).ok()))
            }
            (Plan::Integer, Builder::Int64(_)) => column!(Int64, |text| fast_integer(text)),
            (Plan::Float, Builder::Float64(_)) => column!(Float64, |text| fast_float(text)),
            (Plan::Float, Builder::Float32(_)) => column!(Float32, |text| fast_float32(text)),
            (Plan::Decimal { scale, limit }, Builder::Decimal(_)) => {
                column!(Decimal, |text| fast_units(text, scale, limit));
            }
            (Plan::Date, Builder::Days(_)) => column!(Days, |text| fast_date(text, &mut self.dates)),
            (Plan::Ticks(micros), Builder::Micros(_)) => column!(Micros, |text| fast_ticks(text, micros)),
            (Plan::Time(plan), Builder::Micros(_)) => {
                column!(Micros, |text| fast_time(text, plan, &self.rules.settings.times, &mut self.dates))
            }
            _ => {
                for (index, (text, quoted)) in fields.enumerate() {
                    if let Err(fault) = self.push_text(text, quoted) {
                        on_fault(index, fault);
                    }
                }
            }
        }
    }

    /// The same for text columns and fields that are known to be UTF-8.
    pub(crate) fn push_strs<'a>(
        &mut self,
        fields: impl Iterator<Item = (&'a str, bool)>,
        on_fault: &mut impl FnMut(usize, CastFault),
    ) {
        let max_length = self.rules.settings.max_length;
        for (index, (text, quoted)) in fields.enumerate() {
            let is_value = quoted || (!text.is_empty() && !self.rules.nulls.iter().any(|token| token == text));
            if is_value
                && check_length(text, max_length).is_ok()
                && let Builder::Text(builder) = &mut self.builder
            {
                builder.append_value(text);
            } else if let Err(fault) = self.push_text(text.as_bytes(), quoted) {
                on_fault(index, fault);
            }
        }
    }
}
