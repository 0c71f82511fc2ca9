//! Timer triggers by the host's rules: six cron fields in UTC, runs that never overlap, occurrences missed during a run
//! collapsed into one that follows at once.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use crate::error::{Error, Result};

/// Words that a schedule may hold.
const NAMES: [&str; 19] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC", "SUN", "MON", "TUE", "WED",
    "THU", "FRI", "SAT",
];

/// When a timer fires.
#[derive(Clone)]
pub struct Schedule {
    text: String,
    /// Kilobytes of bits.
    cron: Box<Cron>,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Schedule {
    /// Reads the six fields that the Functions host takes: second, minute, hour, day, month, weekday.
    ///
    /// # Errors
    /// It is no such schedule.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::invalid(format!("`{text}` is no schedule: {why}"))
                .remedy("write six fields: second minute hour day month weekday, such as `0 */15 * * * *`")
        };
        let fields = text.split_whitespace().count();
        if fields != 6 {
            return Err(wrong(&format!("{fields} fields, expected 6")));
        }
        // The cron library knows more than the Functions host does.
        if let Some(other) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !" \t*,-/".contains(*c)) {
            return Err(wrong(&format!("`{other}` is not understood by the Functions host")));
        }
        let mut words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
        if let Some(word) = words.find(|word| !NAMES.contains(&word.to_ascii_uppercase().as_str())) {
            return Err(wrong(&format!("`{word}` is no month and no weekday")));
        }
        let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).dom_and_dow(true).build();
        let cron = parser.parse(text).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { text: text.to_owned(), cron: Box::new(cron) })
    }

    /// The first occurrence after an instant; none if there never is one.
    #[must_use]
    pub fn after(&self, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.cron.find_next_occurrence(&instant, false).ok()
    }

    /// Whether it fires more than once a minute: the host keeps no status of such timers.
    #[must_use]
    pub fn is_rapid(&self, now: DateTime<Utc>) -> bool {
        let Some(first) = self.after(now) else { return false };
        self.after(first).is_some_and(|second| second - first < chrono::TimeDelta::minutes(1))
    }
}

/// One timer trigger: when it fires next, and whether it runs.
#[derive(Debug)]
pub struct Timer {
    schedule: Schedule,
    armed: Option<DateTime<Utc>>,
    running: bool,
}

impl Timer {
    /// A timer that first fires after `now`.
    #[must_use]
    pub fn new(schedule: Schedule, now: DateTime<Utc>) -> Self {
        let armed = schedule.after(now);
        Self { schedule, armed, running: false }
    }

    /// The occurrence that is to run now, if one is and none runs. It runs from this call until [`Timer::finished`].
    pub fn due(&mut self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let occurrence = self.armed.filter(|armed| !self.running && *armed <= now)?;
        self.running = true;
        Some(occurrence)
    }

    /// The run has ended; the next is armed only now.
    pub fn finished(&mut self, now: DateTime<Utc>) {
        self.running = false;
        let following = self.armed.and_then(|ran| self.schedule.after(ran));
        // Missed meanwhile, once or often: one run, at once.
        self.armed = following.map(|at| if at <= now { now } else { at });
    }

    /// How long until it fires; none when it never does (again) or runs.
    #[must_use]
    pub fn wait(&self, now: DateTime<Utc>) -> Option<Duration> {
        let armed = self.armed.filter(|_| !self.running)?;
        Some((armed - now).to_std().unwrap_or(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> DateTime<Utc> {
        format!("2026-01-15T{time}Z").parse().unwrap()
    }

    fn timer(schedule: &str, now: &str) -> Timer {
        Timer::new(Schedule::parse(schedule).unwrap(), at(now))
    }

    #[test]
    fn schedules_have_six_fields_of_the_functions_host() {
        let after = |schedule: &str| Schedule::parse(schedule).unwrap().after(at("10:00:00"));
        assert_eq!(after("*/10 * * * * *"), Some(at("10:00:10")));
        assert_eq!(after("0 */15 * * * *"), Some(at("10:15:00")));
        assert_eq!(after("30 0 11-13 * * Mon-Fri"), Some(at("11:00:30")));
        assert_eq!(after("0 0 2 1 JAN *"), Some("2027-01-01T02:00:00Z".parse().unwrap()));
        // Day and weekday must both hold: the next Friday the 13th.
        assert_eq!(after("0 0 0 13 * 5"), Some("2026-02-13T00:00:00Z".parse().unwrap()));
        for wrong in [
            "",
            "* * * * *",
            "00:05:00",
            "@daily",
            "0 0 0 L * *",
            "0 0 0 * * 5L",
            "0 0 25 * * *",
            "0 0 0 * * * 2027",
            "x * * * * *",
        ] {
            let error = Schedule::parse(wrong).unwrap_err();
            assert!(error.to_string().contains("is no schedule"), "{error}");
        }
    }

    #[test]
    fn a_timer_fires_at_its_occurrences() {
        let mut timer = timer("*/10 * * * * *", "10:00:03");
        assert_eq!(timer.wait(at("10:00:03")), Some(Duration::from_secs(7)));
        assert_eq!(timer.due(at("10:00:09.999")), None);
        assert_eq!(timer.due(at("10:00:10.001")), Some(at("10:00:10")));
        timer.finished(at("10:00:11"));
        assert_eq!(timer.due(at("10:00:11")), None);
        assert_eq!(timer.wait(at("10:00:11")), Some(Duration::from_secs(9)));
        assert_eq!(timer.due(at("10:00:20")), Some(at("10:00:20")));
    }

    #[test]
    fn runs_never_overlap_and_missed_occurrences_collapse_into_one() {
        let mut timer = timer("*/10 * * * * *", "10:00:00");
        assert!(timer.due(at("10:00:10")).is_some());
        for during in ["10:00:20", "10:00:30", "10:00:40"] {
            assert_eq!(timer.due(at(during)), None, "it still runs");
            assert_eq!(timer.wait(at(during)), None);
        }
        timer.finished(at("10:00:45"));
        assert_eq!(timer.wait(at("10:00:45")), Some(Duration::ZERO));
        assert_eq!(timer.due(at("10:00:45")), Some(at("10:00:45")), "one run for three");
        timer.finished(at("10:00:46"));
        assert_eq!(timer.due(at("10:00:46")), None);
        assert_eq!(timer.due(at("10:00:50")), Some(at("10:00:50")));
    }

    #[test]
    fn a_clock_set_back_makes_no_second_run_of_the_same_occurrence() {
        let mut timer = timer("0 * * * * *", "10:00:30");
        assert!(timer.due(at("10:01:00")).is_some());
        timer.finished(at("09:59:00"));
        assert_eq!(timer.due(at("10:01:00")), None);
        assert_eq!(timer.wait(at("10:01:00")), Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_schedule_that_never_comes_never_fires() {
        let mut timer = timer("0 0 0 31 2 *", "10:00:00");
        assert_eq!((timer.due(at("10:00:00")), timer.wait(at("10:00:00"))), (None, None));
    }

    #[test]
    fn only_schedules_below_a_minute_are_rapid() {
        let now = at("10:00:00");
        assert!(Schedule::parse("*/10 * * * * *").unwrap().is_rapid(now));
        assert!(!Schedule::parse("0 * * * * *").unwrap().is_rapid(now));
    }
}
