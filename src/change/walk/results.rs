//! Results of a walk, column by column.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array};
use arrow::compute::{cast, nullif, take};
use arrow::datatypes::{DataType, SchemaRef};

use super::{HistoryShape, Light, Shape, View};
use crate::change::{Interval, stored};
use crate::error::Result;
use crate::quarantine::changes;

/// Rows that are taken out of the changes, some of their values out of other rows.
#[derive(Default)]
pub(super) struct Picks {
    rows: Vec<u32>,
    /// By column: places of the result, and the row that has the value there.
    moved: HashMap<usize, Vec<(usize, u32)>>,
}

impl Picks {
    pub(super) fn push(&mut self, row: &Light) {
        for (column, source) in row.sources.iter().flat_map(|sources| sources.iter()) {
            self.moved.entry(*column).or_default().push((self.rows.len(), *source));
        }
        self.rows.push(row.at);
    }

    /// One column of the changes, by its name.
    fn column(&self, view: &View<'_>, name: &str) -> Result<ArrayRef> {
        let at = view.batch.schema_ref().index_of(name)?;
        let column = view.batch.column(at);
        Ok(match self.moved.get(&at) {
            None => take(column, &UInt32Array::from(self.rows.clone()), None)?,
            Some(moved) => {
                let mut rows = self.rows.clone();
                moved.iter().for_each(|(place, source)| rows[*place] = *source);
                take(column, &UInt32Array::from(rows), None)?
            }
        })
    }

    /// The columns that `schema` names.
    pub(super) fn batch(&self, view: &View<'_>, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            columns.push(self.column(view, field.name())?);
        }
        batch(schema, columns, self.rows.len())
    }
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Versions of a history.
#[derive(Default)]
pub(super) struct Versions {
    rows: Picks,
    version: Vec<i64>,
    from: Vec<i64>,
    to: Vec<Option<i64>>,
    /// The further fields of the order, one after the other for each version.
    further: Vec<[i64; crate::change::MOST_SEQUENCE]>,
}

impl Versions {
    pub(super) fn push(&mut self, version: &Interval<'_, Light>) {
        let [from, ..] = version.from.sequence();
        self.rows.push(version.row);
        self.version.push(version.version);
        self.from.push(from);
        self.to.push(version.to.map(|to| to.sequence()[0]));
        self.further.push(version.from.sequence());
    }

    pub(super) fn batch(&self, view: &View<'_>, shape: &Shape, history: &HistoryShape) -> Result<RecordBatch> {
        let schema = &history.columns;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for name in &shape.key {
            columns.push(self.rows.column(view, name)?);
        }
        columns.push(Arc::new(Int64Array::from(self.version.clone())));
        for name in &history.track {
            columns.push(self.rows.column(view, name)?);
        }
        let from: Int64Array = self.from.iter().copied().collect();
        let to: Int64Array = self.to.iter().copied().collect();
        for points in [from, to] {
            columns.push(point(&points, schema.field(columns.len()).data_type())?);
        }
        columns.push(Arc::new(self.to.iter().map(|to| Some(to.is_none())).collect::<BooleanArray>()));
        for at in 1..shape.sequence.len() {
            columns.push(Arc::new(self.further.iter().map(|sequence| sequence[at]).collect::<Int64Array>()));
        }
        batch(schema, columns, self.version.len())
    }
}

/// A field of the order as an end of an interval: the milliseconds of a commit are an instant.
fn point(values: &Int64Array, kind: &DataType) -> Result<ArrayRef> {
    match kind {
        DataType::Timestamp(..) => {
            let micros: Int64Array = values.unary(|millis| millis.saturating_mul(1_000));
            Ok(cast(&micros, kind)?)
        }
        _ => Ok(Arc::new(values.clone())),
    }
}

/// Rows of quarantine.
#[derive(Default)]
pub(super) struct Refusals {
    rows: Vec<u32>,
    rules: Vec<Vec<String>>,
    malformed: Vec<bool>,
}

impl Refusals {
    pub(super) fn push(&mut self, row: u32, rules: Vec<String>) {
        self.rows.push(row);
        self.rules.push(rules);
        self.malformed.push(false);
    }

    /// A malformed event, which says nothing of itself.
    pub(super) fn push_malformed(&mut self, row: u32, rules: Vec<String>) {
        self.push(row, rules);
        if let Some(last) = self.malformed.last_mut() {
            *last = true;
        }
    }

    pub(super) fn batch(&self, view: &View<'_>, source_table: &str) -> Result<RecordBatch> {
        let indices = UInt32Array::from(self.rows.clone());
        let column = |name: &str| -> Result<ArrayRef> {
            let column = view.batch.column(view.batch.schema_ref().index_of(name)?);
            Ok(take(column, &indices, None)?)
        };
        // What a malformed event says of itself is not known, whatever may stand in these columns.
        let said = |column: &ArrayRef| -> Result<ArrayRef> {
            let malformed: BooleanArray = self.malformed.iter().copied().map(Some).collect();
            Ok(nullif(column, &malformed)?)
        };
        let table: ArrayRef = Arc::new(StringArray::from_iter_values(self.rows.iter().map(|_| source_table)));
        changes::to_batch(
            vec![
                said(&table)?,
                said(&column(stored::KEY)?)?,
                said(&column(stored::OP)?)?,
                said(&column("_ts_ms")?)?,
                said(&column("_lsn")?)?,
            ],
            &self.rules,
            vec![
                column(stored::EVENT)?,
                column(stored::TOPIC)?,
                column(stored::PARTITION)?,
                column(stored::OFFSET)?,
                column(stored::FILE)?,
                column(stored::ROW)?,
            ],
        )
    }
}
