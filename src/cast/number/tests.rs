use proptest::prelude::*;

use super::*;

const COMMA: Separators = Separators { decimal: b',', group: Some('.') };

fn decimal(text: &str, separators: Separators, scale: i64, rounding: Rounding) -> Option<Result<i128, Misfit>> {
    Exact::parse(text, separators, Grammar::Decimal).map(|number| number.scaled(scale, rounding))
}

#[test]
fn forms_of_numbers() {
    let whole =
        |text: &str| Exact::parse(text, Separators::PLAIN, Grammar::Integer).map(|n| n.scaled(0, Rounding::Reject));
    for (text, expected) in [
        ("42", Some(Ok(42))),
        ("+42", Some(Ok(42))),
        ("-0", Some(Ok(0))),
        ("007", Some(Ok(7))),
        ("7.0", Some(Ok(7))),
        ("1E5", Some(Ok(100_000))),
        ("1.5e1", Some(Ok(15))),
        ("100e-2", Some(Ok(1))),
        ("3.5", Some(Err(Misfit::Inexact))),
        ("1e40", Some(Err(Misfit::Range))),
        ("1e999999999999999999999", Some(Err(Misfit::Range))),
        ("0e999999999999999999999", Some(Ok(0))),
        ("7.", None),
        (".7", None),
        ("1_000", None),
        ("0x1F", None),
        ("++1", None),
        ("-", None),
        ("", None),
        ("1e", None),
        ("１", None),
        ("4\u{202f}200", None),
        ("1 ", None),
    ] {
        assert_eq!(whole(text), expected, "{text:?}");
    }
}

#[test]
fn tyrants_of_typ_09() {
    for (text, expected) in [
        ("1.2E+3", Some(Ok(120_000))),
        ("4825037.2609835314269495255615E-2", Some(Err(Misfit::Inexact))),
        ("1e-400", Some(Err(Misfit::Inexact))),
        ("1e999999999", Some(Err(Misfit::Range))),
        ("0e0", Some(Ok(0))),
        ("e5", None),
        ("-.", None),
        (".5", Some(Ok(50))),
        ("1.", Some(Ok(100))),
        ("+3", Some(Ok(300))),
    ] {
        assert_eq!(decimal(text, Separators::PLAIN, 2, Rounding::Reject), expected, "{text:?}");
    }
}

#[test]
fn rounding_is_exact_and_by_magnitude() {
    use Rounding::{Down, HalfEven, HalfUp};
    for (text, rule, expected) in [
        ("1.005", HalfUp, 101),
        ("1.995", HalfUp, 200),
        ("-1.005", HalfUp, -101),
        ("2.355", HalfUp, 236),
        ("1.005", HalfEven, 100),
        ("1.015", HalfEven, 102),
        ("-1.0051", HalfEven, -101),
        ("1.009", Down, 100),
        ("-1.009", Down, -100),
        ("0.0049999999999999999999999999999999999999999999999", HalfUp, 0),
        ("99999999.995", HalfUp, 10_000_000_000),
    ] {
        assert_eq!(decimal(text, Separators::PLAIN, 2, rule), Some(Ok(expected)), "{text} {rule:?}");
    }
    assert_eq!(decimal("1.005", Separators::PLAIN, 2, Rounding::Reject), Some(Err(Misfit::Inexact)));
    assert_eq!(decimal("1.0000000", Separators::PLAIN, 2, Rounding::Reject), Some(Ok(100)));
}

#[test]
fn groups_are_of_three() {
    // TYP-01
    for (text, expected) in [
        ("7.410,50", Some(Ok(741_050))),
        ("-2,40", Some(Ok(-240))),
        ("1,234.56", None),
        ("1.234", Some(Ok(123_400))),
        ("1234,5", Some(Ok(123_450))),
        ("1.23", None),
        ("1234.567", None),
        ("1..234", None),
        (".234", None),
        ("1.234.", None),
        ("12.345.678", Some(Ok(1_234_567_800))),
    ] {
        assert_eq!(decimal(text, COMMA, 2, Rounding::Reject), expected, "{text}");
    }
    let narrow = Separators { decimal: b'.', group: Some('\u{202f}') };
    assert_eq!(decimal("4\u{202f}200.5", narrow, 1, Rounding::Reject), Some(Ok(42_005)));
}

proptest! {
    #[test]
    fn decimals_agree_with_arithmetic_on_text(
        negative: bool, whole in "[0-9]{1,20}", fraction in "[0-9]{0,12}", scale in 0_usize..10, power in -6_i64..6,
    ) {
        let sign = if negative { "-" } else { "" };
        let text = format!("{sign}{whole}.{fraction}e{power}");
        // The same by moving the point in the text: pad, cut, compare.
        let all = format!("{whole}{fraction}");
        let point = whole.len() as i64 + power + scale as i64;
        let (kept, lost) = if point <= 0 {
            ("0".to_owned(), format!("{}{all}", "0".repeat(point.unsigned_abs() as usize)))
        } else {
            let padded = format!("{all:0<width$}", width = point as usize);
            (padded[..point as usize].to_owned(), padded[point as usize..].to_owned())
        };
        let magnitude: i128 = kept.parse().unwrap();
        let exact = lost.bytes().all(|digit| digit == b'0');
        let signed = |value: i128| if negative { -value } else { value };
        let expected = if exact { Ok(signed(magnitude)) } else { Err(Misfit::Inexact) };
        prop_assert_eq!(decimal(&text, Separators::PLAIN, scale as i64, Rounding::Reject), Some(expected));
        let up = i128::from(lost.as_bytes().first().is_some_and(|digit| *digit >= b'5'));
        prop_assert_eq!(decimal(&text, Separators::PLAIN, scale as i64, Rounding::HalfUp), Some(Ok(signed(magnitude + up))));
        prop_assert_eq!(decimal(&text, Separators::PLAIN, scale as i64, Rounding::Down), Some(Ok(signed(magnitude))));
    }

    #[test]
    fn short_ways_agree_with_the_long_one(text in "-?[0-9]{0,19}(\\.[0-9]{0,6})?", scale in 0_usize..6) {
        let long = Exact::parse(&text, Separators::PLAIN, Grammar::Decimal);
        if let Some(value) = fast_integer(text.as_bytes()) {
            prop_assert_eq!(long.as_ref().unwrap().scaled(0, Rounding::Reject), Ok(i128::from(value)));
        }
        if let Some(value) = fast_decimal(text.as_bytes(), scale) {
            prop_assert_eq!(long.as_ref().unwrap().scaled(scale as i64, Rounding::Reject), Ok(i128::from(value)));
        }
        if let Some(value) = fast_float(text.as_bytes()) {
            prop_assert_eq!(value.to_bits(), text.parse::<f64>().unwrap().to_bits());
        }
        if let Some(value) = fast_float32(text.as_bytes()) {
            prop_assert_eq!(value.to_bits(), text.parse::<f32>().unwrap().to_bits());
        }
    }

    #[test]
    fn integers_go_there_and_back(value: i128) {
        let value = value / 10;
        let parsed = Exact::parse(&value.to_string(), Separators::PLAIN, Grammar::Integer).unwrap();
        prop_assert_eq!(parsed.scaled(0, Rounding::Reject), Ok(value));
        prop_assert_eq!(Exact::integer(value).scaled(0, Rounding::Reject), Ok(value));
    }

    #[test]
    fn any_text_is_safe(text in "\\PC{0,30}") {
        for grammar in [Grammar::Integer, Grammar::Decimal] {
            let _ = Exact::parse(&text, COMMA, grammar).map(|number| number.scaled(4, Rounding::HalfEven));
        }
    }
}
