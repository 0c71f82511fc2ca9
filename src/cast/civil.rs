//! Calendar arithmetic: days and microseconds since 1970-01-01 in the proleptic Gregorian calendar, years 1 to 9999.

/// Microseconds of a day.
pub(super) const DAY_MICROS: i64 = 86_400_000_000;
/// 0001-01-01 in days.
pub(super) const MIN_DAYS: i32 = -719_162;
/// 9999-12-31 in days.
pub(super) const MAX_DAYS: i32 = 2_932_896;
/// 0001-01-01T00:00:00 in microseconds.
pub(super) const MIN_MICROS: i64 = MIN_DAYS as i64 * DAY_MICROS;
/// 9999-12-31T23:59:59.999999 in microseconds.
pub(super) const MAX_MICROS: i64 = (MAX_DAYS as i64 + 1) * DAY_MICROS - 1;

/// Days of a date; none when there is no such day or the year is not 1 to 9999.
#[inline]
pub(super) fn days_of(year: i32, month: u32, day: u32) -> Option<i32> {
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    // Years begin in March, so that the leap day is the last day of a year.
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let era = shifted_year / 400;
    let year_of_era = shifted_year % 400;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + i32::try_from(day_of_year).ok()?;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Year, month and day.
pub(super) fn date_of(days: i32) -> (i32, u32, u32) {
    let shifted = i64::from(days) + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "days of an i32 give small parts")]
    let parts = (year as i32, month as u32, day as u32);
    parts
}

/// Whether February has 29 days.
pub(super) fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days of a month from 1 to 12.
#[inline]
pub(super) fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// `YYYY-MM-DD`.
pub(super) fn date_text(days: i32) -> String {
    let (year, month, day) = date_of(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `YYYY-MM-DDTHH:MM:SS`, with six fraction digits when there is a fraction.
pub(super) fn micros_text(micros: i64) -> String {
    let days = micros.div_euclid(DAY_MICROS);
    let within = micros.rem_euclid(DAY_MICROS);
    let (seconds, fraction) = (within / 1_000_000, within % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let date = i32::try_from(days).map(date_text).unwrap_or_default();
    if fraction == 0 {
        return format!("{date}T{hour:02}:{minute:02}:{second:02}");
    }
    format!("{date}T{hour:02}:{minute:02}:{second:02}.{fraction:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_four_centuries_and_the_ends_go_there_and_back() {
        assert_eq!(days_of(1, 1, 1), Some(MIN_DAYS));
        assert_eq!(days_of(9999, 12, 31), Some(MAX_DAYS));
        assert_eq!(days_of(1970, 1, 1), Some(0));
        for days in (MIN_DAYS..MIN_DAYS + 1000).chain(-80_000..80_000).chain(MAX_DAYS - 1000..=MAX_DAYS) {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), Some(days), "{year}-{month}-{day}");
            let chrono_days = chrono::NaiveDate::from_ymd_opt(year, month, day)
                .map(|date| (date - chrono::NaiveDate::default()).num_days());
            assert_eq!(chrono_days, Some(i64::from(days)));
        }
    }

    #[test]
    fn days_that_do_not_exist_are_none() {
        for (year, month, day) in
            [(2023, 2, 29), (1900, 2, 29), (0, 0, 0), (0, 1, 1), (10_000, 1, 1), (2024, 13, 1), (2024, 4, 31)]
        {
            assert_eq!(days_of(year, month, day), None, "{year}-{month}-{day}");
        }
    }
}
