//! Which files can hold a key: by partition values and by the minimum and maximum that the log keeps of each column.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde_json::Value;

use super::keys::{integers, is_integer_like};
use crate::error::Result;
use crate::table::DataFile;

/// Statistics keep instants to the millisecond only.
const MICROS_LOST: i64 = 1_000;

/// Texts of this length may have been cut in the statistics.
const CUT_TEXT: usize = 32;

/// Sorted values of each column of a set of keys.
pub struct Pruner {
    columns: Vec<(String, DataType, Domain)>,
}

struct Domain {
    has_null: bool,
    values: Values,
}

enum Values {
    Integers(Vec<i64>),
    Texts(Vec<String>),
}

/// Whether files can be told by the values of a column of this type.
pub(super) const fn prunable(data_type: &DataType) -> bool {
    is_integer_like(data_type) || matches!(data_type, DataType::Utf8)
}

impl Pruner {
    /// A pruner by columns of prunable types and their values.
    pub(super) fn new<'a>(columns: impl Iterator<Item = (&'a FieldRef, &'a ArrayRef)>) -> Result<Self> {
        let mut out = Vec::new();
        for (field, array) in columns {
            let values = if is_integer_like(field.data_type()) {
                let mut values: Vec<i64> = integers(array)?.iter().flatten().collect();
                values.sort_unstable();
                values.dedup();
                Values::Integers(values)
            } else {
                let mut values: Vec<String> = array.as_string::<i32>().iter().flatten().map(str::to_owned).collect();
                values.sort_unstable();
                values.dedup();
                Values::Texts(values)
            };
            let domain = Domain { has_null: array.null_count() > 0, values };
            out.push((field.name().clone(), field.data_type().clone(), domain));
        }
        Ok(Self { columns: out })
    }

    /// The same values under other column names; columns without a new name are left out.
    #[must_use]
    pub fn renamed(self, rename: impl Fn(&str) -> Option<String>) -> Self {
        let columns = self
            .columns
            .into_iter()
            .filter_map(|(name, data_type, domain)| rename(&name).map(|name| (name, data_type, domain)))
            .collect();
        Self { columns }
    }

    /// False only when no row of the file has one of the keys.
    #[must_use]
    pub fn may_hold(&self, file: &DataFile) -> bool {
        let stats: Value = match &file.stats {
            Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
            None => Value::Null,
        };
        self.columns.iter().all(|(name, data_type, domain)| {
            if let Some(value) = file.partition_values.get(name) {
                return domain.holds_partition(value.as_deref(), data_type);
            }
            domain.meets(name, data_type, &stats)
        })
    }

    /// The files that may hold one of the keys.
    #[must_use]
    pub fn among(&self, files: &[DataFile]) -> Vec<DataFile> {
        files.iter().filter(|file| self.may_hold(file)).cloned().collect()
    }
}

impl Domain {
    fn holds_partition(&self, value: Option<&str>, data_type: &DataType) -> bool {
        let Some(text) = value else { return self.has_null };
        match &self.values {
            Values::Integers(values) => {
                integer_of_text(text, data_type).is_none_or(|value| values.binary_search(&value).is_ok())
            }
            Values::Texts(values) => values.binary_search_by(|known| known.as_str().cmp(text)).is_ok(),
        }
    }

    fn meets(&self, name: &str, data_type: &DataType, stats: &Value) -> bool {
        let nulls = stats["nullCount"][name].as_u64();
        if self.has_null && nulls != Some(0) {
            return true;
        }
        let (least, most) = (&stats["minValues"][name], &stats["maxValues"][name]);
        match &self.values {
            Values::Integers(values) => {
                let (Some(least), Some(most)) = (integer_of(least, data_type), integer_of(most, data_type)) else {
                    return !all_null(stats, nulls);
                };
                let lost = if matches!(data_type, DataType::Timestamp(..)) { MICROS_LOST } else { 0 };
                let first = values.partition_point(|value| *value < least.saturating_sub(lost));
                values.get(first).is_some_and(|value| *value <= most.saturating_add(lost))
            }
            Values::Texts(values) => {
                let (Some(least), Some(most)) = (least.as_str(), most.as_str()) else { return !all_null(stats, nulls) };
                let first = values.partition_point(|value| value.as_str() < least);
                values.get(first).is_some_and(|value| most.len() >= CUT_TEXT || value.as_str() <= most)
            }
        }
    }
}

/// A column without minimum and maximum: known to hold nulls only.
fn all_null(stats: &Value, nulls: Option<u64>) -> bool {
    nulls.is_some() && nulls == stats["numRecords"].as_u64()
}

fn integer_of(value: &Value, data_type: &DataType) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => integer_of_text(text, data_type),
        _ => None,
    }
}

fn integer_of_text(text: &str, data_type: &DataType) -> Option<i64> {
    match data_type {
        DataType::Date32 => {
            let day: NaiveDate = text.parse().ok()?;
            Some(day.signed_duration_since(NaiveDate::default()).num_days())
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            if let Ok(instant) = DateTime::parse_from_rfc3339(text) {
                return Some(instant.timestamp_micros());
            }
            let plain = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"]
                .iter()
                .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())?;
            Some(plain.and_utc().timestamp_micros())
        }
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, Int64Array, StringArray, TimestampMicrosecondArray};
    use arrow::datatypes::Field;

    use super::*;

    fn file(stats: &str, partitions: &[(&str, Option<&str>)]) -> DataFile {
        DataFile {
            path: "f".to_owned(),
            size: 1,
            modified_ms: 0,
            partition_values: partitions.iter().map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned))).collect(),
            rows: None,
            stats: Some(stats.to_owned()),
        }
    }

    fn pruner(array: ArrayRef) -> Pruner {
        let field: FieldRef = Arc::new(Field::new("k", array.data_type().clone(), true));
        Pruner::new([(&field, &array)].into_iter()).unwrap()
    }

    #[test]
    fn only_files_that_cannot_hold_a_key_are_left_out() {
        let numbers = pruner(Arc::new(Int64Array::from(vec![5, 100])));
        let null = pruner(Arc::new(Int64Array::from(vec![Some(5), None])));
        let day = pruner(Arc::new(Date32Array::from(vec![1])));
        let text = pruner(Arc::new(StringArray::from(vec!["m"])));
        let instant = pruner(Arc::new(TimestampMicrosecondArray::from(vec![1_000_999])));
        let range = |least: &str, most: &str| {
            format!(
                r#"{{"numRecords":9,"minValues":{{"k":{least}}},"maxValues":{{"k":{most}}},"nullCount":{{"k":0}}}}"#
            )
        };
        let long = format!("\"{}\"", "a".repeat(32));
        for (pruner, stats, partitions, expected) in [
            (&numbers, range("1", "5"), vec![], true),
            (&numbers, range("6", "99"), vec![], false),
            (&numbers, "{}".to_owned(), vec![], true),
            (&numbers, r#"{"numRecords":9,"nullCount":{"k":9}}"#.to_owned(), vec![], false),
            (&null, r#"{"numRecords":9,"nullCount":{"k":9}}"#.to_owned(), vec![], true),
            (&null, range("6", "99"), vec![], false),
            (&day, range("\"1970-01-03\"", "\"1970-01-04\""), vec![], false),
            (&day, "{}".to_owned(), vec![("k", Some("1970-01-02"))], true),
            (&day, "{}".to_owned(), vec![("k", Some("1970-01-03"))], false),
            (&day, "{}".to_owned(), vec![("k", None)], false),
            (&text, range("\"a\"", "\"b\""), vec![], false),
            (&text, range("\"a\"", &long), vec![], true),
            (&instant, range("\"1970-01-01T00:00:00.000Z\"", "\"1970-01-01T00:00:01.000Z\""), vec![], true),
            (&instant, range("\"1970-01-01T00:00:02.000Z\"", "\"1970-01-01T00:00:03.000Z\""), vec![], false),
        ] {
            assert_eq!(pruner.may_hold(&file(&stats, &partitions)), expected, "{stats} {partitions:?}");
        }
    }
}
