//! What a process used, from `/proc/self`, and medians.

use std::fs;

/// Clock ticks a second in `/proc`: fixed by the kernel's interface.
const TICKS: f64 = 100.0;

/// Seconds of CPU that this process used so far, all threads; 0 where it cannot be told.
#[must_use]
pub fn cpu_seconds() -> f64 {
    fs::read_to_string("/proc/self/stat").ok().and_then(|text| parse_cpu(&text)).unwrap_or_default()
}

/// The most memory that this process had resident, in bytes; 0 where it cannot be told.
#[must_use]
pub fn peak_memory() -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|text| parse_peak(&text)).unwrap_or_default()
}

/// Memory that this process has resident now, in bytes; 0 where it cannot be told.
#[must_use]
pub fn resident_memory() -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|text| parse_kib(&text, "VmRSS:")).unwrap_or_default()
}

/// User and system time: the 14th and 15th field; the second may have blanks, so they are counted after its bracket.
#[expect(clippy::cast_precision_loss, reason = "ticks are few")]
fn parse_cpu(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / TICKS)
}

fn parse_peak(status: &str) -> Option<u64> {
    parse_kib(status, "VmHWM:")
}

fn parse_kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The middle value; of two middle ones their mean; 0 of none.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, expected) in [(vec![], 0.0), (vec![3.0], 3.0), (vec![3.0, 1.0], 2.0), (vec![9.0, 1.0, 2.0], 2.0)] {
            assert!((median(values) - expected).abs() < f64::EPSILON);
        }
    }

    #[test]
    fn the_kernels_text_is_read() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 100 1000 200 1";
        assert_eq!(parse_cpu(stat), Some(2.0));
        assert_eq!(parse_peak("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(parse_cpu("nonsense"), None);
        assert_eq!(parse_peak("Name:\tx\n"), None);
    }
}
