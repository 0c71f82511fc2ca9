//! How long what is no longer needed is kept: settings and Delta table properties, with floors that nobody can go below.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use crate::pipeline::lake::Settings;

/// Files that were never in a log, and removed files, are kept at least this long, whatever is asked.
pub const SHORTEST: TimeDelta = TimeDelta::hours(24);

/// The log is kept at least this long: a writer that is paused for longer could commit into the past.
const SHORTEST_LOG: TimeDelta = TimeDelta::days(7);

/// Plans are kept this long: settled ones to explain what was done, others because their writer may be at work.
pub(super) const PLANS: TimeDelta = TimeDelta::days(7);

/// Staged data that nobody names is kept this long: its manifest may be on its way.
pub(super) const STAGED: TimeDelta = TimeDelta::hours(24);

/// Recomputed rows that were only looked at are kept this long: whoever looks may still be at it.
pub(super) const SCRATCH: TimeDelta = TimeDelta::days(7);

const REMOVED: (&str, TimeDelta) = ("delta.deletedFileRetentionDuration", TimeDelta::days(7));
const LOG: (&str, TimeDelta) = ("delta.logRetentionDuration", TimeDelta::days(30));

/// How long a table keeps what it no longer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retention {
    /// Files in its folder that no version ever had.
    pub orphans: TimeDelta,
    /// Files that a version removed, since that version.
    pub removed: TimeDelta,
    /// Commits: older versions cannot be opened. Never shorter than `removed`, which the log tells.
    pub log: TimeDelta,
}

impl Retention {
    /// By the settings and the table's properties.
    pub(super) fn of(settings: &Settings, properties: &BTreeMap<String, String>) -> Self {
        let asked = |(name, default): (&str, TimeDelta)| match properties.get(name) {
            None => default,
            Some(text) => interval(text).unwrap_or_else(|| {
                tracing::warn!("table property {name}: `{text}` is no interval, {} days are kept", default.num_days());
                default
            }),
        };
        let orphans = TimeDelta::from_std(settings.orphan_retention).unwrap_or(TimeDelta::MAX).max(SHORTEST);
        let removed = asked(REMOVED).max(SHORTEST);
        Self { orphans, removed, log: asked(LOG).max(SHORTEST_LOG).max(removed) }
    }
}

/// A Delta interval: `interval 1 week`, `interval 2 days 12 hours`.
fn interval(text: &str) -> Option<TimeDelta> {
    let text = text.trim().to_ascii_lowercase();
    let mut words = text.strip_prefix("interval").unwrap_or(&text).split_whitespace();
    let mut sum = None;
    while let Some(number) = words.next() {
        let number: i64 = number.parse().ok().filter(|number| *number >= 0)?;
        let part = match words.next()?.trim_end_matches('s') {
            "week" => TimeDelta::try_weeks(number),
            "day" => TimeDelta::try_days(number),
            "hour" => TimeDelta::try_hours(number),
            "minute" => TimeDelta::try_minutes(number),
            "second" => TimeDelta::try_seconds(number),
            _ => None,
        }?;
        sum = Some(sum.unwrap_or(TimeDelta::zero()).checked_add(&part)?);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn intervals_are_read_as_delta_writes_them() {
        for (text, expected) in [
            ("interval 30 days", Some(TimeDelta::days(30))),
            ("interval 1 week", Some(TimeDelta::days(7))),
            ("INTERVAL 2 days 12 hours", Some(TimeDelta::hours(60))),
            ("90 minutes", Some(TimeDelta::minutes(90))),
            ("interval 10 seconds", Some(TimeDelta::seconds(10))),
            ("interval 0 hours", Some(TimeDelta::zero())),
            ("interval", None),
            ("interval 1 month", None),
            ("interval -1 day", None),
            ("interval 3", None),
            ("interval 99999999999999999 weeks", None),
        ] {
            assert_eq!(interval(text), expected, "{text}");
        }
    }

    #[test]
    fn nobody_goes_below_the_floors() {
        let of = |hours: u64, properties: &[(&str, &str)]| {
            let settings = Settings { orphan_retention: Duration::from_secs(hours * 3600), ..Settings::default() };
            let properties = properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let found = Retention::of(&settings, &properties);
            [found.orphans, found.removed, found.log].map(|kept| kept.num_hours())
        };
        assert_eq!(of(7 * 24, &[]), [7 * 24, 7 * 24, 30 * 24]);
        let short = [(REMOVED.0, "interval 0 seconds"), (LOG.0, "interval 1 hour")];
        assert_eq!(of(0, &short), [24, 24, 7 * 24]);
        // What removed a file must be readable for as long as the file is kept.
        assert_eq!(of(48, &[(REMOVED.0, "interval 8 weeks")]), [48, 56 * 24, 56 * 24]);
        assert_eq!(of(48, &[(LOG.0, "for ever")]), [48, 7 * 24, 30 * 24]);
    }
}
