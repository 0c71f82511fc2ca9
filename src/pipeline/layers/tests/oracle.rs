//! What the derived tables of the tests must hold, said without any of the code under test.

use super::*;

fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

fn day_text(day: Option<i32>) -> String {
    cell(day.map(|day| chrono::NaiveDate::default() + chrono::TimeDelta::days(day.into())))
}

/// A row as the text that [`World::rows`] gives, without the hidden columns.
pub(super) fn line(trip: &Trip) -> String {
    [
        cell(trip.id),
        day_text(trip.day),
        trip.zone.to_owned(),
        cell(trip.amount),
        trip.file.clone(),
        trip.row.to_string(),
    ]
    .join("|")
}

fn of_keys(trips: &[Trip], wins: impl Fn(&Trip, &Trip) -> bool) -> Vec<Trip> {
    let mut kept: BTreeMap<Option<i64>, Trip> = BTreeMap::new();
    for trip in trips {
        match kept.get(&trip.id) {
            Some(held) if !wins(trip, held) => {}
            _ => {
                kept.insert(trip.id, trip.clone());
            }
        }
    }
    kept.into_values().collect()
}

/// `keep: first` by `[_file, _row]`.
pub(super) fn first(trips: &[Trip]) -> Vec<Trip> {
    of_keys(trips, |a, b| (&a.file, a.row) < (&b.file, b.row))
}

/// `keep: last` by `[amount]`, where a row without an amount loses; equals are told apart by their least content.
pub(super) fn last(trips: &[Trip]) -> Vec<Trip> {
    let content = |t: &Trip| (t.id.is_some(), t.id, t.day.is_some(), t.day, t.zone, t.amount, t.file.clone(), t.row);
    of_keys(trips, |a, b| match a.amount.cmp(&b.amount) {
        std::cmp::Ordering::Equal => content(a) < content(b),
        order => order.is_gt(),
    })
}

/// `select day, zone, count(*), sum(amount) ... group by day, zone`.
pub(super) fn days(trips: &[Trip]) -> Vec<String> {
    type CountAndSum = (i64, Option<i64>);
    let mut groups: BTreeMap<(Option<i32>, &str), CountAndSum> = BTreeMap::new();
    for trip in trips {
        let (count, sum) = groups.entry((trip.day, trip.zone)).or_default();
        *count += 1;
        if let Some(amount) = trip.amount {
            *sum = Some(sum.unwrap_or(0) + amount);
        }
    }
    sorted(
        groups.into_iter().map(|((day, zone), (count, sum))| format!("{}|{zone}|{count}|{}", day_text(day), cell(sum))),
    )
}

/// `select b.day, count(*) ... from trips a join trips b on a.id = b.id group by b.day`, over two sources.
pub(super) fn joined(left: &[Trip], right: &[Trip]) -> Vec<String> {
    let mut groups: BTreeMap<Option<i32>, i64> = BTreeMap::new();
    for a in left {
        for b in right.iter().filter(|b| a.id.is_some() && a.id == b.id) {
            *groups.entry(b.day).or_default() += 1;
        }
    }
    sorted(groups.into_iter().map(|(day, count)| format!("{}|{count}", day_text(day))))
}

/// `unpivot` of id and amount, keeping day.
pub(super) fn long(trips: &[Trip]) -> Vec<String> {
    sorted(trips.iter().flat_map(|trip| {
        let day = day_text(trip.day);
        [format!("{day}|id|{}", cell(trip.id)), format!("{day}|amount|{}", cell(trip.amount))]
    }))
}

pub(super) fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}
