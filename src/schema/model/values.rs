//! How a column reads its values: digits that do not fit, times, bytes.

use serde::{Deserialize, Serialize};

/// What is done with digits that the type cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// The value is refused.
    #[default]
    Reject,
    /// Half away from zero.
    HalfUp,
    /// Half to even.
    HalfEven,
    /// Towards zero.
    Down,
}

/// The unit of a number that means a time since 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeUnit {
    /// seconds
    #[serde(rename = "s")]
    Seconds,
    /// milliseconds
    #[serde(rename = "ms")]
    Millis,
    /// microseconds
    #[serde(rename = "us")]
    Micros,
    /// nanoseconds
    #[serde(rename = "ns")]
    Nanos,
    /// days
    #[serde(rename = "days")]
    Days,
}

/// A local time that does not exist because the clock was put forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnGap {
    /// The value is refused.
    #[default]
    Reject,
    /// Read with the offset in force after the gap, which gives the earlier instant.
    Earlier,
    /// Read with the offset in force before the gap, which gives the later instant.
    Later,
}

/// A local time that exists twice because the clock was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOverlap {
    /// The first of the two instants.
    #[default]
    Earlier,
    /// The second of the two instants.
    Later,
    /// The value is refused.
    Reject,
}

/// An infinite date or timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnInfinity {
    /// The value is refused.
    #[default]
    Reject,
    /// Null.
    Null,
    /// The greatest (or smallest) value of the type.
    Max,
}

/// How text stands for bytes. For a decimal the bytes are its digits as one whole number, most significant byte first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// The text itself, in UTF-8.
    Text,
    /// Two hexadecimal digits a byte.
    Hex,
    /// Base64.
    Base64,
    /// Base64 with the alphabet for URLs.
    Base64Url,
}
