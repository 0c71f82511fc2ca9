//! Which files cannot hold a row that a filter wants: by partition values and by Delta statistics.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::DataFile;
use super::partition::typed;

/// Delta statistics with values still as JSON text.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Stats<'a> {
    #[serde(borrow)]
    min_values: HashMap<String, &'a RawValue>,
    #[serde(borrow)]
    max_values: HashMap<String, &'a RawValue>,
    #[serde(borrow)]
    null_count: HashMap<String, &'a RawValue>,
}

/// What is known about each of a list of files.
pub(super) struct FileStats<'a> {
    files: &'a [DataFile],
    schema: &'a SchemaRef,
    partition_by: &'a [String],
    stats: Vec<Stats<'a>>,
}

impl<'a> FileStats<'a> {
    pub(super) fn new(files: &'a [DataFile], schema: &'a SchemaRef, partition_by: &'a [String]) -> Self {
        let parse = |file: &'a DataFile| {
            file.stats.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        };
        Self { files, schema, partition_by, stats: files.iter().map(parse).collect() }
    }

    fn bound(&self, column: &Column, max: bool) -> Option<ArrayRef> {
        let kind = self.schema.field_with_name(&column.name).ok()?.data_type();
        if self.partition_by.contains(&column.name) {
            let texts = self.files.iter().map(|file| file.partition_values.get(&column.name)?.as_deref());
            return typed(&column.name, kind, texts).ok();
        }
        if kind.is_nested() || matches!(kind, DataType::Binary | DataType::Boolean) {
            return None;
        }
        let texts: StringArray = self
            .stats
            .iter()
            .map(|stats| text_of((if max { &stats.max_values } else { &stats.min_values }).get(&column.name)?))
            .collect();
        let bounds = cast_with_options(&texts, kind, &CastOptions::default()).ok()?;
        if max && matches!(kind, DataType::Timestamp(TimeUnit::Microsecond, _)) {
            return raise_to_millisecond(&bounds, kind);
        }
        Some(bounds)
    }
}

/// A JSON scalar as text; none for null, objects and lists.
fn text_of(value: &RawValue) -> Option<String> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(text.to_owned()),
    }
}

/// Other writers cut times off at the millisecond: an upper bound with none below it stands for the whole millisecond.
fn raise_to_millisecond(bounds: &ArrayRef, kind: &DataType) -> Option<ArrayRef> {
    let micros = cast(bounds, &DataType::Int64).ok()?;
    let micros = arrow::array::AsArray::as_primitive::<Int64Type>(micros.as_ref());
    let raised: TimestampMicrosecondArray = micros
        .iter()
        .map(|value| value.map(|value| if value % 1000 == 0 { value.saturating_add(999) } else { value }))
        .collect();
    cast(&raised, &DataType::Int64).and_then(|whole| cast(&whole, kind)).ok()
}

impl PruningStatistics for FileStats<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bound(column, false)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bound(column, true)
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let counts: UInt64Array = if self.partition_by.contains(&column.name) {
            let count = |file: &DataFile| match file.partition_values.get(&column.name) {
                Some(Some(text)) if !text.is_empty() => Some(0),
                _ => file.rows,
            };
            self.files.iter().map(count).collect()
        } else {
            self.stats.iter().map(|stats| stats.null_count.get(&column.name)?.get().parse().ok()).collect()
        };
        Some(Arc::new(counts))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let counts: UInt64Array = self.files.iter().map(|file| file.rows).collect();
        Some(Arc::new(counts))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
