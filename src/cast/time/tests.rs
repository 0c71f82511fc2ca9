use super::super::number::{Grammar, Separators};
use super::*;

fn rules() -> TimeRules {
    TimeRules {
        patterns: Vec::new(),
        unit: None,
        zone: None,
        rounding: Rounding::Reject,
        on_gap: OnGap::Reject,
        on_overlap: OnOverlap::Earlier,
        on_infinity: OnInfinity::Reject,
    }
}

fn zoned(zone: &str) -> TimeRules {
    TimeRules { zone: Some(zone.parse().unwrap()), ..rules() }
}

fn utc(text: &str) -> i64 {
    DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros()
}

fn instant(rules: &TimeRules, text: &str) -> Result<i64, String> {
    rules.stamp(text).and_then(|stamp| rules.instant(stamp))
}

#[test]
fn iso_forms() {
    let oslo = zoned("Europe/Oslo");
    for (text, expected) in [
        // TIM-03
        ("2024-03-01T00:30:00+05:30", Some("2024-02-29T19:00:00Z")),
        ("2024-03-01T00:30:00Z", Some("2024-03-01T00:30:00Z")),
        ("2024-03-01T00:30:00-0300", Some("2024-03-01T03:30:00Z")),
        ("2024-03-01 00:30:00+00", Some("2024-03-01T00:30:00Z")),
        // TIM-11
        ("2024-01-01T10:00:00", Some("2024-01-01T09:00:00Z")),
        ("2024-01-01", Some("2023-12-31T23:00:00Z")),
        ("2024-01-01 10:00", Some("2024-01-01T09:00:00Z")),
        ("2024-01-01T10:00:00.123456Z", Some("2024-01-01T10:00:00.123456Z")),
        ("2024-01-01T10:00:00.123456000Z", Some("2024-01-01T10:00:00.123456Z")),
        ("2024-01-01T10:00:00.1Z", Some("2024-01-01T10:00:00.1Z")),
        ("2024-01-01T10:00:00.1234567Z", None),
        ("2024-01-01T10:00:00.1234560000Z", None),
        ("2024-01-01T10:00:00.Z", None),
        ("2024-01-01T10:00:00,5Z", None),
        ("2024-01-01X10:00:00Z", None),
        ("2024-01-01T1:00:00Z", None),
        ("2024-01-01T10:00:00 Z", None),
        ("2024-01-01T10:00:00+25:00", None),
        ("2024-01-01T", None),
        ("2024-1-1", None),
        ("20240101", None),
        // TIM-08
        ("2016-12-31T23:59:60Z", None),
        ("2024-05-05T10:20:60Z", None),
        ("2024-05-05T24:00:00Z", None),
        // TIM-01, TIM-09
        ("03/04/2025", None),
        ("2023-02-29", None),
        ("0000-00-00", None),
        ("10000-01-01", None),
        ("9999-12-31T23:59:59.999999Z", Some("9999-12-31T23:59:59.999999Z")),
        ("9999-12-31T23:59:59-01:00", None),
        ("0001-01-01T00:00:00Z", Some("0001-01-01T00:00:00Z")),
        ("0001-01-01T00:00:00+01:00", None),
        ("１９70-01-01", None),
    ] {
        assert_eq!(instant(&oslo, text).ok(), expected.map(utc), "{text}");
    }
}

#[test]
fn a_local_time_needs_a_declared_zone() {
    let reason = instant(&rules(), "2024-01-01T10:00:00").unwrap_err();
    assert!(reason.contains("timezone"), "{reason}");
    assert!(instant(&rules(), "2024-01-01T10:00:00Z").is_ok());
}

#[test]
fn wall_clocks_never_drop_an_offset() {
    let stamp = iso("2024-07-01T10:00:00Z").unwrap();
    assert!(rules().wall_clock(stamp).is_err());
    assert_eq!(zoned("Europe/Oslo").wall_clock(stamp), Ok(utc("2024-07-01T12:00:00Z")));
    assert_eq!(rules().wall_clock(iso("2024-07-01T10:00:00").unwrap()), Ok(utc("2024-07-01T10:00:00Z")));
}

#[test]
fn clock_changes_follow_their_rules() {
    let mut oslo = zoned("Europe/Oslo");
    // 2024-10-27: 03:00 summer time becomes 02:00.
    assert_eq!(instant(&oslo, "2024-10-27T02:30:00"), Ok(utc("2024-10-27T00:30:00Z")));
    oslo.on_overlap = OnOverlap::Later;
    assert_eq!(instant(&oslo, "2024-10-27T02:30:00"), Ok(utc("2024-10-27T01:30:00Z")));
    oslo.on_overlap = OnOverlap::Reject;
    assert!(instant(&oslo, "2024-10-27T02:30:00").is_err());
    // Summer time beyond the table of zones would be an hour off.
    assert_eq!(instant(&oslo, "2099-07-01T00:00:00"), Ok(utc("2099-06-30T22:00:00Z")));
    assert!(instant(&oslo, "2100-07-01T00:00:00").unwrap_err().contains("not known from the year 2100 on"));
    // 2024-03-31: 02:00 becomes 03:00.
    assert!(instant(&oslo, "2024-03-31T02:30:00").is_err());
    oslo.on_gap = OnGap::Earlier;
    assert_eq!(instant(&oslo, "2024-03-31T02:30:00"), Ok(utc("2024-03-31T00:30:00Z")));
    oslo.on_gap = OnGap::Later;
    assert_eq!(instant(&oslo, "2024-03-31T02:30:00"), Ok(utc("2024-03-31T01:30:00Z")));
    // An offset that was written decides alone.
    assert_eq!(instant(&oslo, "2024-10-27T02:30:00+01:00"), Ok(utc("2024-10-27T01:30:00Z")));
}

#[test]
fn numbers_mean_what_the_unit_says() {
    // TIM-07
    let number = |text: &str| Exact::parse(text, Separators::PLAIN, Grammar::Decimal).unwrap();
    let with = |unit: TimeUnit, rounding: Rounding| TimeRules { unit: Some(unit), rounding, ..rules() };
    for (unit, text, expected) in [
        (TimeUnit::Millis, "1700000000", Some("1970-01-20T16:13:20Z")),
        (TimeUnit::Millis, "1700000000000", Some("2023-11-14T22:13:20Z")),
        (TimeUnit::Millis, "1700000000000000", None),
        (TimeUnit::Millis, "-86400", Some("1969-12-31T23:58:33.600Z")),
        (TimeUnit::Seconds, "1.5", Some("1970-01-01T00:00:01.5Z")),
        (TimeUnit::Seconds, "1.0000005", None),
        (TimeUnit::Nanos, "1000", Some("1970-01-01T00:00:00.000001Z")),
        (TimeUnit::Nanos, "1001", None),
        (TimeUnit::Days, "-1", Some("1969-12-31T00:00:00Z")),
        (TimeUnit::Days, "0.5", None),
        (TimeUnit::Seconds, "1e999999999", None),
    ] {
        assert_eq!(with(unit, Rounding::Reject).micros_of_number(&number(text)).ok(), expected.map(utc), "{text}");
    }
    // A number and the same time as ticks or text round to the same microsecond, before 1970 too.
    for (rounding, ticks, micros) in [
        (Rounding::Down, 1_999, 1),
        (Rounding::Down, -1, -1),
        (Rounding::HalfUp, -1_500, -1),
        (Rounding::HalfUp, 1_500, 2),
        (Rounding::HalfEven, 2_500, 2),
        (Rounding::HalfEven, -2_500, -2),
        (Rounding::HalfUp, -1_501, -2),
    ] {
        let rules = with(TimeUnit::Nanos, rounding);
        assert_eq!(rules.micros_of_ticks(ticks, 1_000_000_000), Ok(micros), "{rounding:?} {ticks}");
        assert_eq!(rules.micros_of_number(&number(&ticks.to_string())), Ok(micros), "{rounding:?} {ticks}");
    }
    let down = TimeRules { rounding: Rounding::Down, ..rules() };
    assert_eq!(instant(&down, "1969-12-31T23:59:59.999999999Z"), Ok(-1));
    assert_eq!(down.micros_of_ticks(i64::MAX, 1), Err(out_of_range()));
}
