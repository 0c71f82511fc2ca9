//! The rules of one scalar type: text or a typed value in, a value of the type or a reason out.

use std::borrow::Cow;

use arrow::datatypes::{TimeUnit as Ticks, i256};
use chrono_tz::Tz;

use super::Scalar;
use super::civil::{DAY_MICROS, MAX_DAYS, MAX_MICROS, MIN_DAYS, MIN_MICROS, date_text, micros_text};
use super::number::{Exact, Grammar, Misfit, Separators};
use super::pattern::Pattern;
use super::time::{Infinite, TimeRules, day_of_stamp, days_in_range, in_range, infinite, whole_day};
use super::value::Value;
use super::wire;
use crate::error::{Error, Result};
use crate::schema::{Column, Encoding, OnInfinity, Rounding};

/// The scalar types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    /// Signed, of so many bits.
    Int(u32),
    Float32,
    Float64,
    /// Digits in all and after the point.
    Decimal(u8, i8),
    String,
    Binary,
    Date,
    Timestamp,
    TimestampNtz,
}

/// What a column declares about its values, compiled.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) true_tokens: Vec<String>,
    pub(super) false_tokens: Vec<String>,
    pub(super) trim: bool,
    pub(super) separators: Separators,
    pub(super) rounding: Rounding,
    pub(super) max_length: Option<usize>,
    pub(super) times: TimeRules,
    pub(super) encoding: Option<Encoding>,
    /// Values come from a connector of a database, in its forms.
    pub(super) is_change: bool,
}

impl Settings {
    /// Compiles what `column` declares.
    pub(super) fn new(column: &Column) -> Result<Self> {
        let zone = match &column.timezone {
            None => None,
            Some(name) => Some(name.parse::<Tz>().map_err(|_| {
                Error::invalid(format!("column {}: `{name}` is no time zone", column.name))
                    .remedy("use an IANA name such as Europe/Zurich or UTC")
            })?),
        };
        let patterns = column.formats.iter().map(|format| Pattern::new(format)).collect::<Result<Vec<_>>>();
        let patterns = patterns.map_err(|error| error.within(format!("column {}", column.name)))?;
        let lowered = |tokens: &[String]| tokens.iter().map(|token| token.to_lowercase()).collect();
        Ok(Self {
            true_tokens: lowered(&column.true_values),
            false_tokens: lowered(&column.false_values),
            trim: column.trim,
            separators: Separators { decimal: column.decimal_separator, group: column.group_separator },
            rounding: column.rounding,
            max_length: column.max_length,
            times: TimeRules {
                patterns,
                unit: column.unit,
                zone,
                rounding: column.rounding,
                on_gap: column.on_gap,
                on_overlap: column.on_overlap,
                on_infinity: column.on_infinity,
            },
            encoding: column.encoding,
            is_change: false,
        })
    }
}

/// Spaces and tabs off both ends.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

impl Kind {
    /// Whether blanks around a text are never part of the value.
    pub(super) fn trims(self, settings: &Settings) -> bool {
        match self {
            Self::String => settings.trim,
            Self::Binary => false,
            _ => true,
        }
    }

    /// The type's name, for people.
    pub(super) fn name(self) -> String {
        match self {
            Self::Boolean => "boolean".to_owned(),
            Self::Int(bits) => format!("int{bits}"),
            Self::Float32 => "float32".to_owned(),
            Self::Float64 => "float64".to_owned(),
            Self::Decimal(precision, scale) => format!("decimal({precision},{scale})"),
            Self::String => "string".to_owned(),
            Self::Binary => "binary".to_owned(),
            Self::Date => "date".to_owned(),
            Self::Timestamp => "timestamp".to_owned(),
            Self::TimestampNtz => "timestamp_ntz".to_owned(),
        }
    }

    /// Casts text as a field or a JSON string holds it.
    pub(super) fn text<'a>(self, text: &'a str, settings: &Settings) -> Result<Value<'a>, String> {
        let text = if self.trims(settings) { trimmed(text) } else { text };
        match self {
            Self::Boolean => boolean(text, settings),
            Self::Decimal(_, scale) if settings.encoding.is_some_and(|encoding| encoding != Encoding::Text) => {
                let bytes = wire::bytes(text, settings.encoding.unwrap_or(Encoding::Base64))?;
                self.decimal(wire::unscaled(&bytes)?, scale, settings)
            }
            Self::Int(_) | Self::Decimal(..) | Self::Float32 | Self::Float64 => {
                self.number_text(text, settings.separators, settings)
            }
            Self::String => string(Cow::Borrowed(text), settings),
            Self::Binary => {
                let unsaid = if settings.is_change { Encoding::Base64 } else { Encoding::Text };
                Ok(Value::Bytes(wire::bytes(text, settings.encoding.unwrap_or(unsaid))?))
            }
            Self::Date | Self::Timestamp | Self::TimestampNtz => self.time_text(text, settings),
        }
    }

    fn number_text(self, text: &str, separators: Separators, settings: &Settings) -> Result<Value<'static>, String> {
        let grammar = if matches!(self, Self::Int(_)) { Grammar::Integer } else { Grammar::Decimal };
        match Exact::parse(text, separators, grammar) {
            Some(number) => self.number(&number, settings),
            None => self.float_name(text).ok_or_else(|| match self {
                Self::Int(_) => "not an integer".to_owned(),
                _ => "not a number".to_owned(),
            }),
        }
    }

    /// NaN and the infinities, which only floats have.
    fn float_name(self, text: &str) -> Option<Value<'static>> {
        let (sign, name) = match text.as_bytes() {
            [b'-', ..] => (-1.0, text.get(1..)?),
            [b'+', ..] => (1.0, text.get(1..)?),
            _ => (1.0, text),
        };
        let value = match name {
            "NaN" if name.len() == text.len() => f64::NAN,
            "inf" | "Infinity" => sign * f64::INFINITY,
            _ => return None,
        };
        match self {
            Self::Float64 => Some(Value::Float64(value)),
            #[expect(clippy::cast_possible_truncation, reason = "NaN and infinities stay what they are")]
            Self::Float32 => Some(Value::Float32(value as f32)),
            _ => None,
        }
    }

    /// Casts an exact number.
    pub(super) fn number(self, number: &Exact, settings: &Settings) -> Result<Value<'static>, String> {
        let out_of_range = || format!("outside the range of {}", self.name());
        if settings.is_change
            && matches!(self, Self::Date | Self::Timestamp | Self::TimestampNtz)
            && let Some(infinite) = settings.times.unit.and_then(|unit| wire::infinite_number(number, unit))
        {
            return self.infinity(infinite, settings.times.on_infinity);
        }
        match self {
            Self::Int(bits) => {
                let value = number.scaled(0, Rounding::Reject).map_err(|misfit| match misfit {
                    Misfit::Inexact => "not a whole number".to_owned(),
                    Misfit::Range => out_of_range(),
                })?;
                let limit = 1_i128 << (bits - 1);
                if value < -limit || value >= limit {
                    return Err(out_of_range());
                }
                Ok(Value::Int(i64::try_from(value).map_err(|_| out_of_range())?))
            }
            Self::Decimal(precision, scale) => {
                let value = number.scaled(i64::from(scale), settings.rounding).map_err(|misfit| match misfit {
                    Misfit::Inexact => {
                        format!("more than {scale} digits after the point and no `rounding` is declared")
                    }
                    Misfit::Range => out_of_range(),
                })?;
                if value.unsigned_abs() >= 10_u128.pow(u32::from(precision)) {
                    return Err(out_of_range());
                }
                Ok(Value::Decimal(value))
            }
            Self::Float64 => {
                let value: f64 = number.text().parse().map_err(|_| "not a number".to_owned())?;
                if value.is_infinite() || (value == 0.0 && !number.is_zero()) {
                    return Err(out_of_range());
                }
                Ok(Value::Float64(value))
            }
            Self::Float32 => {
                let value: f32 = number.text().parse().map_err(|_| "not a number".to_owned())?;
                if value.is_infinite() || (value == 0.0 && !number.is_zero()) {
                    return Err(out_of_range());
                }
                Ok(Value::Float32(value))
            }
            Self::Timestamp => Ok(Value::Micros(settings.times.micros_of_number(number)?)),
            Self::TimestampNtz => {
                let micros = settings.times.micros_of_number(number)?;
                match settings.times.zone {
                    Some(_) => Ok(Value::Micros(settings.times.wall_of_instant(micros)?)),
                    None => Ok(Value::Micros(micros)),
                }
            }
            Self::Date => Ok(Value::Days(whole_day(settings.times.micros_of_number(number)?)?)),
            Self::Boolean | Self::String | Self::Binary => Err(format!("a number is no {}", self.name())),
        }
    }

    fn time_text(self, text: &str, settings: &Settings) -> Result<Value<'static>, String> {
        let times = &settings.times;
        let of_connector = || wire::infinite_text(text).filter(|_| settings.is_change);
        if let Some(infinite) = infinite(text).or_else(of_connector) {
            return self.infinity(infinite, times.on_infinity);
        }
        if times.numbers_are_times()
            && let Some(number) = Exact::parse(text, settings.separators, Grammar::Decimal)
        {
            return self.number(&number, settings);
        }
        let stamp = times.stamp(text)?;
        match self {
            Self::Date => Ok(Value::Days(day_of_stamp(stamp)?)),
            Self::TimestampNtz => Ok(Value::Micros(times.wall_clock(stamp)?)),
            _ => Ok(Value::Micros(times.instant(stamp)?)),
        }
    }

    fn infinity(self, infinite: Infinite, rule: OnInfinity) -> Result<Value<'static>, String> {
        match (rule, self, infinite) {
            (OnInfinity::Reject, ..) => Err("infinite, and no `on_infinity` is declared".to_owned()),
            (OnInfinity::Null, ..) => Ok(Value::Null),
            (OnInfinity::Max, Self::Date, Infinite::Future) => Ok(Value::Days(MAX_DAYS)),
            (OnInfinity::Max, Self::Date, Infinite::Past) => Ok(Value::Days(MIN_DAYS)),
            (OnInfinity::Max, _, Infinite::Future) => Ok(Value::Micros(MAX_MICROS)),
            (OnInfinity::Max, _, Infinite::Past) => Ok(Value::Micros(MIN_MICROS)),
        }
    }

    /// Casts a typed value; null is the caller's.
    pub(super) fn scalar<'a>(self, scalar: Scalar<'a>, settings: &Settings) -> Result<Value<'a>, String> {
        match scalar {
            Scalar::Null => Ok(Value::Null),
            Scalar::Bool(value) if self == Self::Boolean => Ok(Value::Bool(value)),
            Scalar::Bool(_) => Err(format!("a boolean is no {}", self.name())),
            Scalar::Text(text) => self.text(text, settings),
            Scalar::Bytes(bytes) if self == Self::Binary => Ok(Value::Bytes(Cow::Borrowed(bytes))),
            Scalar::Bytes(bytes) => self.text(utf8(bytes)?, settings),
            Scalar::Number(text) => self.number_scalar(text, settings),
            Scalar::Int(value) => match self {
                Self::String => string(Cow::Owned(value.to_string()), settings),
                Self::Boolean => boolean(&value.to_string(), settings),
                Self::Date | Self::Timestamp | Self::TimestampNtz if settings.times.unit.is_none() => {
                    self.number_scalar(&value.to_string(), settings)
                }
                _ => self.number(&Exact::integer(value), settings),
            },
            Scalar::Decimal { unscaled, scale } => self.decimal(unscaled, scale, settings),
            Scalar::Float32(value) => match self {
                Self::Float32 => Ok(Value::Float32(value)),
                Self::Float64 => Ok(Value::Float64(f64::from(value))),
                _ => self.float(f64::from(value), &format!("{value:e}"), 24, settings),
            },
            Scalar::Float(value) => match self {
                Self::Float64 => Ok(Value::Float64(value)),
                Self::Float32 => self.narrowed(value),
                _ => self.float(value, &format!("{value:e}"), 53, settings),
            },
            Scalar::Date(days) => self.date(days, settings),
            Scalar::Instant { value, unit } => self.instant(value, unit, settings),
            Scalar::Local { value, unit } => self.local(value, unit, settings),
            Scalar::Json(raw) => {
                if settings.is_change
                    && matches!(self, Self::Decimal(..))
                    && let Some(decimal) = wire::variable_scale(raw)
                {
                    let (unscaled, scale) = decimal?;
                    return self.decimal(unscaled, scale, settings);
                }
                let what = if raw.get().trim_start().starts_with('[') { "an array" } else { "an object" };
                Err(format!("{what} is no {}", self.name()))
            }
        }
    }

    fn number_scalar(self, text: &str, settings: &Settings) -> Result<Value<'static>, String> {
        match self {
            Self::String => string(Cow::Owned(text.to_owned()), settings),
            Self::Boolean => boolean(text, settings),
            Self::Binary => Err("a number is no binary".to_owned()),
            Self::Date | Self::Timestamp | Self::TimestampNtz if settings.times.unit.is_none() => {
                // `20240229` means a day where the format says so, whether the source quotes it or not.
                if settings.times.patterns.is_empty() {
                    return Err("a number is no time without a `unit`".to_owned());
                }
                self.time_text(text, settings)
            }
            _ => {
                // JSON has its own grammar: the column's separators are for text.
                let number = Exact::parse(text, Separators::PLAIN, Grammar::Decimal).ok_or("not a number")?;
                self.number(&number, settings)
            }
        }
    }

    fn narrowed(self, value: f64) -> Result<Value<'static>, String> {
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked; a float rounds by nature")]
        let narrow = value as f32;
        if (narrow.is_infinite() && value.is_finite()) || (narrow == 0.0 && value != 0.0) {
            return Err(format!("outside the range of {}", self.name()));
        }
        Ok(Value::Float32(narrow))
    }

    /// A float into a type that is none, by its shortest text; integers and decimals only where floats tell integers apart.
    fn float(self, value: f64, text: &str, bits: i32, settings: &Settings) -> Result<Value<'static>, String> {
        if !value.is_finite() {
            return Err(format!("{value} is no {}", self.name()));
        }
        if self == Self::String {
            return string(Cow::Owned(value.to_string()), settings);
        }
        if matches!(self, Self::Int(_) | Self::Decimal(..)) && value.abs() > 2_f64.powi(bits) {
            return Err("a float of this size stands for several integers".to_owned());
        }
        self.number_scalar(text, settings)
    }

    fn decimal(self, unscaled: i256, scale: i8, settings: &Settings) -> Result<Value<'static>, String> {
        let digits = unscaled.to_string();
        match self {
            Self::String => string(Cow::Owned(decimal_text(&digits, scale)), settings),
            Self::Boolean | Self::Binary => Err(format!("a decimal is no {}", self.name())),
            _ => {
                let number = Exact::parse(&digits, Separators::PLAIN, Grammar::Integer).ok_or("not a number")?;
                self.number(&number.shifted(-i64::from(scale)), settings)
            }
        }
    }

    fn date(self, days: i32, settings: &Settings) -> Result<Value<'static>, String> {
        let days = days_in_range(i64::from(days))?;
        match self {
            Self::Date => Ok(Value::Days(days)),
            Self::String => string(Cow::Owned(date_text(days)), settings),
            Self::TimestampNtz => Ok(Value::Micros(i64::from(days) * DAY_MICROS)),
            Self::Timestamp => Ok(Value::Micros(settings.times.instant_of_wall(i64::from(days) * DAY_MICROS)?)),
            _ => Err(format!("a date is no {}", self.name())),
        }
    }

    fn instant(self, value: i64, unit: Ticks, settings: &Settings) -> Result<Value<'static>, String> {
        let times = &settings.times;
        let micros = times.micros_of_ticks(value, ticks_per_second(unit))?;
        match self {
            Self::Timestamp => Ok(Value::Micros(micros)),
            Self::TimestampNtz => Ok(Value::Micros(times.wall_of_instant(micros)?)),
            Self::Date => Ok(Value::Days(whole_day(times.wall_of_instant(micros)?)?)),
            Self::String => string(Cow::Owned(format!("{}Z", micros_text(micros))), settings),
            _ => Err(format!("a timestamp is no {}", self.name())),
        }
    }

    fn local(self, value: i64, unit: Ticks, settings: &Settings) -> Result<Value<'static>, String> {
        let times = &settings.times;
        let micros = times.micros_of_ticks(value, ticks_per_second(unit))?;
        match self {
            Self::TimestampNtz => Ok(Value::Micros(in_range(micros)?)),
            Self::Timestamp => Ok(Value::Micros(times.instant_of_wall(micros)?)),
            Self::Date => Ok(Value::Days(whole_day(micros)?)),
            Self::String => string(Cow::Owned(micros_text(micros)), settings),
            _ => Err(format!("a timestamp is no {}", self.name())),
        }
    }
}

fn ticks_per_second(unit: Ticks) -> i64 {
    match unit {
        Ticks::Second => 1,
        Ticks::Millisecond => 1_000,
        Ticks::Microsecond => 1_000_000,
        Ticks::Nanosecond => 1_000_000_000,
    }
}

/// `12345` at scale 2 as `123.45`.
fn decimal_text(digits: &str, scale: i8) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let Ok(places) = usize::try_from(scale) else {
        return format!("{sign}{digits}{}", "0".repeat(usize::from(scale.unsigned_abs())));
    };
    if places == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    format!("{sign}{whole}.{fraction}")
}

fn boolean(text: &str, settings: &Settings) -> Result<Value<'static>, String> {
    let text = text.to_lowercase();
    if settings.true_tokens.contains(&text) {
        return Ok(Value::Bool(true));
    }
    if settings.false_tokens.contains(&text) {
        return Ok(Value::Bool(false));
    }
    Err(format!(
        "not one of the declared values for true ({}) and false ({})",
        settings.true_tokens.join(", "),
        settings.false_tokens.join(", ")
    ))
}

fn string<'a>(text: Cow<'a, str>, settings: &Settings) -> Result<Value<'a>, String> {
    check_length(&text, settings.max_length)?;
    Ok(Value::Text(text))
}

/// Refuses a text of more than `max_length` characters.
pub(super) fn check_length(text: &str, max_length: Option<usize>) -> Result<(), String> {
    let Some(limit) = max_length else {
        return Ok(());
    };
    // A text has at most as many characters as bytes.
    if text.len() <= limit {
        return Ok(());
    }
    let length = text.chars().count();
    if length > limit { Err(format!("{length} characters, more than the {limit} of max_length")) } else { Ok(()) }
}

/// The bytes as text, or which byte is none.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let byte = bytes.get(at).copied().unwrap_or_default();
        format!("not UTF-8: byte 0x{byte:02X} at position {} of the value", at + 1)
    })
}
