//! What connectors of databases write for values that JSON has no form for: bytes and exact decimals as text, decimals that
//! bring their scale along, infinite dates and timestamps as numbers and texts beyond any calendar.

use std::borrow::Cow;

use arrow::datatypes::i256;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::number::Exact;
use super::time::Infinite;
use crate::schema::{Encoding, Rounding, TimeUnit};

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// The bytes that a text stands for.
pub(super) fn bytes(text: &str, encoding: Encoding) -> Result<Cow<'_, [u8]>, String> {
    match encoding {
        Encoding::Text => Ok(Cow::Borrowed(text.as_bytes())),
        Encoding::Hex => hex(text).map(Cow::Owned).ok_or_else(|| "not pairs of hexadecimal digits".to_owned()),
        Encoding::Base64 => BASE64.decode(text).map(Cow::Owned).map_err(|error| format!("not base64: {error}")),
        Encoding::Base64Url => BASE64_URL.decode(text).map(Cow::Owned).map_err(|error| format!("not base64: {error}")),
    }
}

/// Pairs of hexadecimal digits.
fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The whole number of big-endian two's-complement bytes, as Java writes one.
pub(super) fn unscaled(bytes: &[u8]) -> Result<i256, String> {
    let fill = match bytes.first() {
        None => return Err("no digits".to_owned()),
        Some(first) if first & 0x80 != 0 => 0xff,
        Some(_) => 0,
    };
    let out_of_range = || format!("a number of {} bytes", bytes.len());
    // Only repeated signs may be cut off.
    let (cut, kept) = bytes.split_at(bytes.len().saturating_sub(32));
    let sign_stays = kept.first().is_some_and(|first| (first & 0x80 != 0) == (fill != 0));
    if cut.iter().any(|byte| *byte != fill) || !sign_stays {
        return Err(out_of_range());
    }
    let mut whole = [fill; 32];
    whole[32 - kept.len()..].copy_from_slice(kept);
    Ok(i256::from_be_bytes(whole))
}

/// A decimal with a scale of its own, `{"scale":3,"value":"AJxB"}`; none for any other object.
pub(super) fn variable_scale(raw: &RawValue) -> Option<Result<(i256, i8), String>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct VariableScale<'a> {
        scale: i64,
        #[serde(borrow)]
        value: Cow<'a, str>,
    }
    let VariableScale { scale, value } = serde_json::from_str(raw.get()).ok()?;
    let decimal = || {
        let scale = i8::try_from(scale).map_err(|_| format!("a scale of {scale}"))?;
        Ok((unscaled(&bytes(&value, Encoding::Base64)?)?, scale))
    };
    Some(decimal())
}

// `PostgreSQL` knows `infinity` in its time types. Its driver has numbers for them, which Debezium passes on in the unit of the
// column: microseconds since 1970, or (in older versions, of values with an offset) the same count of milliseconds.
const FUTURE_MICROS: i128 = 9_223_372_036_825_200_000;
const PAST_MICROS: i128 = -9_223_372_036_832_400_000;
const INFINITE_TEXTS: [(&str, Infinite); 6] = [
    ("+294247-01-10T04:00:25", Infinite::Future),
    ("-290308-12-21T19:59:27", Infinite::Past),
    ("+292278994-08-16T23:00", Infinite::Future),
    ("-292275055-05-16T23:00", Infinite::Past),
    ("+5877611-06-2", Infinite::Future),
    ("-5877611-06-2", Infinite::Past),
];
// The last and the first day that the database has.
const LAST_DAY: i128 = 2_145_042_905;
const FIRST_DAY: i128 = -2_440_588;

/// The infinity that a connector writes as a text.
pub(super) fn infinite_text(text: &str) -> Option<Infinite> {
    let is_signed = text.starts_with(['+', '-']);
    let found = INFINITE_TEXTS.iter().filter(|_| is_signed).find(|(prefix, _)| text.starts_with(prefix));
    found.map(|(_, infinite)| *infinite)
}

/// The infinity that a connector writes as a number.
pub(super) fn infinite_number(number: &Exact, unit: TimeUnit) -> Option<Infinite> {
    let number = number.scaled(0, Rounding::Reject).ok()?;
    let either = |future: bool, past: bool| match (future, past) {
        (true, _) => Some(Infinite::Future),
        (_, true) => Some(Infinite::Past),
        _ => None,
    };
    match unit {
        TimeUnit::Days => either(number > LAST_DAY, number < FIRST_DAY),
        TimeUnit::Seconds => either(number == FUTURE_MICROS / 1_000_000, number == PAST_MICROS / 1_000_000),
        TimeUnit::Millis => either(
            number == FUTURE_MICROS / 1_000 || number == FUTURE_MICROS,
            number == PAST_MICROS / 1_000 || number == PAST_MICROS,
        ),
        TimeUnit::Micros => either(number == FUTURE_MICROS, number == PAST_MICROS),
        TimeUnit::Nanos => either(number == i128::from(i64::MAX), number == i128::from(i64::MIN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_for_bytes() {
        for (text, encoding, wanted) in [
            ("aé", Encoding::Text, Some("aé".as_bytes().to_vec())),
            ("00fF", Encoding::Hex, Some(vec![0, 255])),
            ("", Encoding::Hex, Some(Vec::new())),
            ("0", Encoding::Hex, None),
            ("0g", Encoding::Hex, None),
            ("+/8=", Encoding::Base64, Some(vec![0xfb, 0xff])),
            ("+/8", Encoding::Base64, Some(vec![0xfb, 0xff])),
            ("-_8=", Encoding::Base64, None),
            ("-_8=", Encoding::Base64Url, Some(vec![0xfb, 0xff])),
            ("a", Encoding::Base64, None),
        ] {
            assert_eq!(bytes(text, encoding).ok().map(Cow::into_owned), wanted, "{text} {encoding:?}");
        }
    }

    #[test]
    fn digits_are_signed_and_of_any_length() {
        for (bytes, wanted) in [
            (&[0x0f, 0x12, 0x06][..], Some("987654")),
            (&[0xfe, 0xed], Some("-275")),
            (&[0x00, 0x80], Some("128")),
            (&[0xff, 0x80], Some("-128")),
            (&[0x80], Some("-128")),
            (&[0x00], Some("0")),
            (&[], None),
            (&[0xff; 40], Some("-1")),
            (&[0x01; 33], None),
        ] {
            assert_eq!(unscaled(bytes).ok().map(|number| number.to_string()).as_deref(), wanted, "{bytes:?}");
        }
        // A sign that would change where it is cut.
        let mut long = vec![0];
        long.extend([0xff; 32]);
        assert!(unscaled(&long).is_err());
    }
}
