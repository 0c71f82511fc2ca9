//! Numbers as text: exact parsing, exact rounding, and the short forms that nearly every field has.
//!
//! Nothing here goes through floating point, and no loop depends on an exponent: `1e999999999` costs what its text costs.

use crate::schema::Rounding;

/// Exponents beyond this are clamped; every type's range ends long before.
const EXPONENT_CLAMP: i64 = 1_000_000_000_000;

/// Most digits of an `i128` that are always in range.
const MAX_DIGITS: usize = 38;

/// Powers of ten that an `f64` holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Separators {
    /// Between the whole part and the fraction.
    pub(super) decimal: u8,
    /// Between groups of three digits, if that is allowed.
    pub(super) group: Option<char>,
}

impl Separators {
    /// What JSON and SQL write.
    pub(super) const PLAIN: Self = Self { decimal: b'.', group: None };
}

/// Which forms are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grammar {
    /// Digits on both sides of a point.
    Integer,
    /// `1.` and `.5` too.
    Decimal,
}

/// A number, exactly: `(-1)^negative * digits * 10^exponent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exact {
    negative: bool,
    /// Digits 0 to 9, most significant first, without leading zeros; empty for zero.
    digits: Vec<u8>,
    exponent: i64,
}

/// What was cut off, measured against one unit of the last kept digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing.
    Zero,
    /// Less than half a unit.
    Below,
    /// Exactly half a unit.
    Half,
    /// More than half a unit.
    Above,
}

/// Why a number has no value of the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misfit {
    /// Digits would be lost.
    Inexact,
    /// Too large.
    Range,
}

impl Exact {
    /// Reads the whole of `text`, without blanks around it.
    pub(super) fn parse(text: &str, separators: Separators, grammar: Grammar) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut at = 0;
        let negative = bytes.first() == Some(&b'-');
        if negative || bytes.first() == Some(&b'+') {
            at = 1;
        }
        let mut digits = Vec::with_capacity(bytes.len());
        let mut encoded = [0_u8; 4];
        let group: Option<&[u8]> = separators.group.map(|group| group.encode_utf8(&mut encoded).as_bytes());
        let whole = read_whole(bytes, &mut at, group, &mut digits)?;
        let mut fraction = 0;
        let has_point = bytes.get(at) == Some(&separators.decimal);
        if has_point {
            at += 1;
            while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
                digits.push(digit - b'0');
                fraction += 1;
                at += 1;
            }
        }
        let complete = match grammar {
            Grammar::Integer => whole > 0 && (!has_point || fraction > 0),
            Grammar::Decimal => whole + fraction > 0,
        };
        if !complete {
            return None;
        }
        let exponent = read_exponent(bytes, &mut at)?;
        if at != bytes.len() {
            return None;
        }
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        Some(Self { negative, digits, exponent: exponent - i64::try_from(fraction).ok()? })
    }

    /// An integer.
    pub(super) fn integer(value: i128) -> Self {
        let text = value.unsigned_abs().to_string();
        let digits = if value == 0 { Vec::new() } else { text.bytes().map(|byte| byte - b'0').collect() };
        Self { negative: value < 0, digits, exponent: 0 }
    }

    /// The number times `10^power`.
    pub(super) fn shifted(mut self, power: i64) -> Self {
        self.exponent = self.exponent.saturating_add(power);
        self
    }

    /// Whether it is below zero.
    pub(super) fn is_negative(&self) -> bool {
        self.negative && !self.digits.is_empty()
    }

    /// The magnitude in units of `10^-scale`, and what is cut off; none when it has more than 38 digits.
    pub(super) fn magnitude(&self, scale: i64) -> Option<(i128, Rest)> {
        if self.digits.is_empty() {
            return Some((0, Rest::Zero));
        }
        let shift = self.exponent.saturating_add(scale);
        if shift >= 0 {
            let shift = usize::try_from(shift).ok()?;
            if self.digits.len().saturating_add(shift) > MAX_DIGITS {
                return None;
            }
            let scaled = fold(&self.digits) * 10_i128.pow(u32::try_from(shift).ok()?);
            return Some((scaled, Rest::Zero));
        }
        let cut = usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX);
        if cut > self.digits.len() {
            return Some((0, Rest::Below));
        }
        let (kept, lost) = self.digits.split_at(self.digits.len() - cut);
        (kept.len() <= MAX_DIGITS).then(|| (fold(kept), rest_of(lost)))
    }

    /// The value in units of `10^-scale`, rounded as declared (halves by magnitude).
    pub(super) fn scaled(&self, scale: i64, rounding: Rounding) -> Result<i128, Misfit> {
        let (magnitude, rest) = self.magnitude(scale).ok_or(Misfit::Range)?;
        let up = rounds_up(magnitude, rest, rounding).ok_or(Misfit::Inexact)?;
        let rounded = magnitude + i128::from(up);
        Ok(if self.negative { -rounded } else { rounded })
    }

    /// The nearest float; infinite when out of range.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(self.digits.len() + 8);
        if self.negative {
            text.push('-');
        }
        if self.digits.is_empty() {
            text.push('0');
            return text;
        }
        text.extend(self.digits.iter().map(|digit| char::from(b'0' + digit)));
        text.push('e');
        text.push_str(&self.exponent.to_string());
        text
    }

    /// Whether it is zero.
    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }
}

/// Whether one unit is added to `magnitude`; none when the rule refuses.
pub(super) fn rounds_up(magnitude: i128, rest: Rest, rounding: Rounding) -> Option<bool> {
    match (rest, rounding) {
        (Rest::Zero, _) => Some(false),
        (_, Rounding::Reject) => None,
        (_, Rounding::Down) => Some(false),
        (Rest::Below, _) => Some(false),
        (Rest::Above, _) | (Rest::Half, Rounding::HalfUp) => Some(true),
        (Rest::Half, Rounding::HalfEven) => Some(magnitude % 2 != 0),
    }
}

/// Digits cut off, as a share of one unit.
pub(super) fn rest_of(lost: &[u8]) -> Rest {
    let Some((first, others)) = lost.split_first() else {
        return Rest::Zero;
    };
    let others_zero = others.iter().all(|digit| *digit == 0);
    match (*first, others_zero) {
        (0, true) => Rest::Zero,
        (5, true) => Rest::Half,
        (0..=4, _) => Rest::Below,
        _ => Rest::Above,
    }
}

/// At most 38 digits as a number.
fn fold(digits: &[u8]) -> i128 {
    digits.iter().fold(0_i128, |sum, digit| sum * 10 + i128::from(*digit))
}

/// Digits before the point; groups, where allowed, must be of three. Gives how many digits there were.
fn read_whole(bytes: &[u8], at: &mut usize, group: Option<&[u8]>, digits: &mut Vec<u8>) -> Option<usize> {
    let (mut count, mut in_group, mut grouped) = (0, 0, false);
    while let Some(byte) = bytes.get(*at) {
        if byte.is_ascii_digit() {
            digits.push(byte - b'0');
            count += 1;
            in_group += 1;
            *at += 1;
            continue;
        }
        let Some(group) = group.filter(|group| bytes[*at..].starts_with(group)) else {
            break;
        };
        let well_formed = if grouped { in_group == 3 } else { (1..=3).contains(&in_group) };
        if !well_formed {
            return None;
        }
        grouped = true;
        in_group = 0;
        *at += group.len();
    }
    (!grouped || in_group == 3).then_some(count)
}

/// An exponent, if there is one; none when it has no digits.
fn read_exponent(bytes: &[u8], at: &mut usize) -> Option<i64> {
    if !matches!(bytes.get(*at), Some(b'e' | b'E')) {
        return Some(0);
    }
    *at += 1;
    let negative = bytes.get(*at) == Some(&b'-');
    if negative || bytes.get(*at) == Some(&b'+') {
        *at += 1;
    }
    let begin = *at;
    let mut exponent = 0_i64;
    while let Some(digit) = bytes.get(*at).filter(|byte| byte.is_ascii_digit()) {
        exponent = (exponent * 10 + i64::from(digit - b'0')).min(EXPONENT_CLAMP);
        *at += 1;
    }
    (*at > begin).then_some(if negative { -exponent } else { exponent })
}

/// `-?` and 1 to 18 digits, else none (which says nothing about validity).
#[inline]
pub(super) fn fast_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// Whole and fraction digits of `-?d+(.d+)?` as one integer, with the number of fraction digits; at most 18 digits.
#[inline]
fn fast_mantissa(text: &[u8]) -> Option<(bool, i64, usize)> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0_i64;
    let mut point = usize::MAX;
    for (index, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value = value * 10 + i64::from(digit);
        } else if *byte == b'.' && point == usize::MAX {
            point = index;
        } else {
            return None;
        }
    }
    if point == usize::MAX {
        return Some((negative, value, 0));
    }
    let fraction = digits.len() - point - 1;
    (point > 0 && fraction > 0).then_some((negative, value, fraction))
}

/// A plain decimal in units of `10^-scale`, if it has no more digits than that and 18 in all.
#[inline]
pub(super) fn fast_decimal(text: &[u8], scale: usize) -> Option<i64> {
    let (negative, value, fraction) = fast_mantissa(text)?;
    let scaled = if fraction == scale {
        value
    } else {
        let missing = u32::try_from(scale.checked_sub(fraction)?).ok()?;
        value.checked_mul(10_i64.checked_pow(missing)?)?
    };
    Some(if negative { -scaled } else { scaled })
}

/// A plain float whose digits and power of ten are both exact, so that one division rounds correctly.
#[inline]
pub(super) fn fast_float(text: &[u8]) -> Option<f64> {
    let (negative, value, fraction) = fast_mantissa(text)?;
    if value >= 1 << 53 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 every integer is a float")]
    let float = value as f64 / EXACT_POWERS[fraction];
    Some(if negative { -float } else { float })
}

/// The same for 32 bits.
#[inline]
pub(super) fn fast_float32(text: &[u8]) -> Option<f32> {
    let (negative, value, fraction) = fast_mantissa(text)?;
    if value >= 1 << 24 || fraction > 10 {
        return None;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "both are exact: below 2^24, up to 10^10"
    )]
    let float = value as f32 / EXACT_POWERS[fraction] as f32;
    Some(if negative { -float } else { float })
}

#[cfg(test)]
mod tests;
