//! The cast compared with arithmetic on digits: a number is its digits and where the point is, and what a type makes of it
//! is worked out by hand. Whatever way a value comes, it must mean this or be refused.

use super::*;

/// A number as it is written, and what it is.
#[derive(Debug, Clone)]
struct Written {
    negative: bool,
    whole: String,
    fraction: String,
    exponent: i64,
    shown_exponent: bool,
}

impl Written {
    fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let point = if self.fraction.is_empty() { "" } else { "." };
        let exponent = if self.shown_exponent { format!("E{}", self.exponent) } else { String::new() };
        format!("{sign}{}{point}{}{exponent}", self.whole, self.fraction)
    }

    /// All digits as one integer, and the power of ten that it is to be multiplied by.
    fn digits(&self) -> (String, i64) {
        let exponent = if self.shown_exponent { self.exponent } else { 0 };
        (format!("{}{}", self.whole, self.fraction), exponent - i64::try_from(self.fraction.len()).unwrap())
    }

    fn is_json(&self) -> bool {
        !self.whole.is_empty() && (self.whole == "0" || !self.whole.starts_with('0'))
    }

    /// The digits of this number times 10^scale, rounded to an integer; none when it is not whole and `rounding` refuses.
    fn scaled(&self, scale: i64, rounding: Rounding) -> Option<String> {
        let (digits, power) = self.digits();
        let shift = power + scale;
        let bare = |text: &str| {
            let text = text.trim_start_matches('0');
            if text.is_empty() { "0".to_owned() } else { text.to_owned() }
        };
        if shift >= 0 {
            let zeros = "0".repeat(usize::try_from(shift).unwrap());
            return Some(bare(&format!("{digits}{zeros}")));
        }
        let cut = usize::try_from(-shift).unwrap();
        let padded = format!("{}{digits}", "0".repeat(cut));
        let (kept, rest) = padded.split_at(padded.len() - cut);
        if rest.bytes().all(|digit| digit == b'0') {
            return Some(bare(kept));
        }
        let half = format!("5{}", "0".repeat(cut - 1));
        let is_odd = kept.bytes().last().is_some_and(|digit| (digit - b'0') % 2 == 1);
        let up = match rounding {
            Rounding::Reject => return None,
            Rounding::Down => false,
            Rounding::HalfUp => rest >= half.as_str(),
            Rounding::HalfEven => rest > half.as_str() || (rest == half && is_odd),
        };
        Some(bare(&if up { incremented(kept) } else { kept.to_owned() }))
    }

    /// What a decimal makes of it.
    fn as_decimal(&self, precision: usize, scale: usize, rounding: Rounding) -> Option<String> {
        let digits = self.scaled(i64::try_from(scale).unwrap(), rounding)?;
        if digits.len() > precision && digits != "0" {
            return None;
        }
        let padded = format!("{}{digits}", "0".repeat((scale + 1).saturating_sub(digits.len())));
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        let sign = if self.negative && digits != "0" { "-" } else { "" };
        let point = if scale == 0 { "" } else { "." };
        Some(format!("{sign}{whole}{point}{fraction}"))
    }

    /// What an integer type makes of it.
    fn as_integer(&self, bits: u32) -> Option<String> {
        let digits = self.scaled(0, Rounding::Reject)?;
        let size: i128 = if digits.len() > 30 { return None } else { digits.parse().unwrap() };
        let value = if self.negative { -size } else { size };
        let limit = 1_i128 << (bits - 1);
        (-limit..limit).contains(&value).then(|| value.to_string())
    }
}

fn incremented(digits: &str) -> String {
    let mut out: Vec<u8> = digits.bytes().collect();
    for digit in out.iter_mut().rev() {
        if *digit == b'9' {
            *digit = b'0';
        } else {
            *digit += 1;
            return String::from_utf8(out).unwrap();
        }
    }
    format!("1{}", String::from_utf8(out).unwrap())
}

fn written() -> impl Strategy<Value = Written> {
    let near_edges = prop_oneof![
        Just("127"),
        Just("128"),
        Just("32767"),
        Just("32768"),
        Just("2147483647"),
        Just("2147483648"),
        Just("9223372036854775807"),
        Just("9223372036854775808"),
        Just("9007199254740993"),
        Just("99999999"),
    ];
    let whole =
        prop_oneof![3 => "[0-9]{1,12}", 2 => near_edges.prop_map(str::to_owned), 1 => "9{30,45}", 1 => "[0-9]{1,45}"];
    let fraction =
        prop_oneof![3 => Just(String::new()), 3 => "[0-9]{1,4}", 2 => "[0-9]{0,3}5", 1 => "0{1,6}", 1 => "9{1,20}"];
    (any::<bool>(), whole, fraction, -45_i64..45, prop::bool::weighted(0.3)).prop_map(
        |(negative, whole, fraction, exponent, shown_exponent)| Written {
            negative,
            whole,
            fraction,
            exponent,
            shown_exponent,
        },
    )
}

fn rounding() -> impl Strategy<Value = Rounding> {
    prop_oneof![Just(Rounding::Reject), Just(Rounding::HalfUp), Just(Rounding::HalfEven), Just(Rounding::Down)]
}

/// The same value by every way that can carry it.
fn every_way(column: &Column, number: &Written) -> Vec<(&'static str, Result<Option<String>, FaultKind>)> {
    let text = number.text();
    let mut ways = vec![
        ("field", field(column, text.as_bytes(), false)),
        ("quoted field", field(column, text.as_bytes(), true)),
        ("JSON string", scalar(column, Scalar::Text(&text))),
    ];
    if number.is_json() {
        ways.push(("JSON number", scalar(column, Scalar::Number(&text))));
    }
    let (digits, power) = number.digits();
    let Ok(size) = digits.parse::<i128>() else { return ways };
    let value = if number.negative { -size } else { size };
    if power == 0 {
        ways.push(("integer", scalar(column, Scalar::Int(value))));
    }
    if let Ok(scale) = i8::try_from(-power) {
        let exact = Scalar::Decimal { unscaled: i256::from_i128(value), scale };
        ways.push(("decimal", scalar(column, exact)));
    }
    ways
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_decimal_is_what_arithmetic_says(number in written(), precision in 1_u8..=38, scale in 0_u8..=38, rounding in rounding()) {
        let scale = scale.min(precision);
        let mut column = column(ColumnType::Decimal(precision, i8::try_from(scale).unwrap()));
        column.rounding = rounding;
        let expected = number.as_decimal(precision.into(), scale.into(), rounding).map(Some).ok_or(FaultKind::Invalid);
        for (way, found) in every_way(&column, &number) {
            prop_assert_eq!(&found, &expected, "{} {} as decimal({},{}) {:?}", way, number.text(), precision, scale, rounding);
        }
    }

    #[test]
    fn an_integer_is_what_arithmetic_says(number in written(), bits in prop_oneof![Just(8_u32), Just(16), Just(32), Just(64)]) {
        let column = column(match bits {
            8 => ColumnType::Int8,
            16 => ColumnType::Int16,
            32 => ColumnType::Int32,
            _ => ColumnType::Int64,
        });
        let expected = number.as_integer(bits).map(Some).ok_or(FaultKind::Invalid);
        for (way, found) in every_way(&column, &number) {
            prop_assert_eq!(&found, &expected, "{} {} as int{}", way, number.text(), bits);
        }
    }

    #[test]
    fn a_float_is_the_nearest_one_and_never_infinite_or_zero_by_accident(number in written()) {
        let nearest: f64 = number.text().parse().unwrap();
        let is_zero = number.digits().0.bytes().all(|digit| digit == b'0');
        let expected = if nearest.is_infinite() || (nearest == 0.0 && !is_zero) {
            Err(FaultKind::Invalid)
        } else {
            Ok(nearest.to_bits())
        };
        let double = column(ColumnType::Float64);
        for (way, found) in every_way(&double, &number) {
            // The sign of zero has no place in an integer or decimal.
            if is_zero && matches!(way, "integer" | "decimal") {
                continue;
            }
            let found = found.map(|text| text.unwrap().parse::<f64>().unwrap().to_bits());
            prop_assert_eq!(&found, &expected, "{} {}", way, number.text());
        }
    }

    #[test]
    fn an_instant_is_what_arithmetic_says(
        days in -719_162_i64..2_932_896, second in 0_i64..86_400, fraction in "[0-9]{0,9}", offset in -839_i64..840, rounding in rounding(),
    ) {
        let local = chrono::DateTime::from_timestamp(days * 86_400 + second, 0).unwrap().naive_utc();
        let sign = if offset < 0 { '-' } else { '+' };
        let point = if fraction.is_empty() { "" } else { "." };
        let (hours, minutes) = (offset.abs() / 60, offset.abs() % 60);
        let text = format!("{}{point}{fraction}{sign}{hours:02}:{minutes:02}", local.format("%Y-%m-%dT%H:%M:%S"));
        let nanos: i128 = format!("{fraction:0<9}").parse().unwrap();
        let all = (i128::from(days) * 86_400 + i128::from(second) - i128::from(offset) * 60) * 1_000_000_000 + nanos;
        let (floor, rest) = (all.div_euclid(1_000), all.rem_euclid(1_000));
        let micros = match rounding {
            _ if rest == 0 => Some(floor),
            Rounding::Reject => None,
            // A time's fraction counts forwards, before 1970 too.
            Rounding::Down => Some(floor),
            Rounding::HalfUp => Some(if rest >= 500 { floor + 1 } else { floor }),
            Rounding::HalfEven => Some(if rest > 500 || (rest == 500 && floor % 2 != 0) { floor + 1 } else { floor }),
        };
        let expected = micros
            .and_then(|micros| chrono::DateTime::from_timestamp_micros(i64::try_from(micros).unwrap()))
            .filter(|at| (1..=9999).contains(&chrono::Datelike::year(at)))
            .map(|at| at.timestamp_micros());
        let mut column = column(ColumnType::Timestamp);
        column.rounding = rounding;
        for found in [field(&column, text.as_bytes(), false), scalar(&column, Scalar::Text(&text))] {
            let found = found.ok().flatten().map(|shown| {
                chrono::DateTime::parse_from_rfc3339(&shown).unwrap().timestamp_micros()
            });
            prop_assert_eq!(found, expected, "{} {:?}", text, rounding);
        }
        if let Ok(nanos) = i64::try_from(all) {
            let found = scalar(&column, Scalar::Instant { value: nanos, unit: TimeUnit::Nanosecond }).ok().flatten();
            let found = found.map(|shown| chrono::DateTime::parse_from_rfc3339(&shown).unwrap().timestamp_micros());
            prop_assert_eq!(found, expected, "{} as nanoseconds {:?}", text, rounding);
        }
    }
}

#[test]
fn the_arithmetic_itself_is_right() {
    let of = |text: &str| {
        let (whole, fraction) = text.trim_start_matches('-').split_once('.').unwrap();
        Written {
            negative: text.starts_with('-'),
            whole: whole.to_owned(),
            fraction: fraction.to_owned(),
            exponent: 0,
            shown_exponent: false,
        }
    };
    for (text, rounding, expected) in [
        ("1.005", Rounding::HalfUp, Some("1.01")),
        ("1.005", Rounding::HalfEven, Some("1.00")),
        ("1.015", Rounding::HalfEven, Some("1.02")),
        ("-9.995", Rounding::HalfUp, None),
        ("-0.004", Rounding::Down, Some("0.00")),
        ("1.0050", Rounding::Reject, None),
        ("1.500", Rounding::Reject, Some("1.50")),
    ] {
        assert_eq!(of(text).as_decimal(3, 2, rounding).as_deref(), expected, "{text} {rounding:?}");
    }
    assert_eq!(of("-128.0").as_integer(8).as_deref(), Some("-128"));
    assert_eq!(of("128.0").as_integer(8), None);
}
