//! Named transforms: what SQL cannot say for any table. A contract names one with `transform:` and gives its arguments.
//!
//! A transform works row by row: each output row is made of one input row, and nothing depends on its neighbours. So a
//! table with a named transform is advanced by the same code as one with SQL, live and in a backfill.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::schema::suggest::did_you_mean;

/// A transform of the registry.
pub trait Transform: Send + Sync + std::fmt::Debug {
    /// The name that a contract gives.
    fn name(&self) -> &'static str;
    /// What it does and which arguments it takes, for people.
    fn description(&self) -> &'static str;
    /// Checks the arguments against the input and says what comes out.
    ///
    /// # Errors
    /// What is wrong with the arguments, with a remedy.
    fn validate(&self, args: &Value, input: &SchemaRef) -> Result<SchemaRef>;
    /// Transforms rows; the batch has the columns that [`Transform::validate`] was given.
    fn apply(&self, args: &Value, batch: &RecordBatch) -> Result<RecordBatch>;
    /// Input columns that every output row carries unchanged under the same name: they can be units of work.
    fn passed_through(&self, args: &Value, input: &SchemaRef) -> Vec<String>;
}

/// All transforms.
#[must_use]
pub fn transforms() -> Vec<Arc<dyn Transform>> {
    vec![Arc::new(Unpivot)]
}

/// The transform called `name`.
///
/// # Errors
/// There is none; the remedy names the nearest one.
pub fn transform(name: &str) -> Result<Arc<dyn Transform>> {
    let all = transforms();
    if let Some(found) = all.iter().find(|transform| transform.name() == name) {
        return Ok(Arc::clone(found));
    }
    let names: Vec<&str> = all.iter().map(|transform| transform.name()).collect();
    let help = did_you_mean(name, names.iter().copied()).unwrap_or_else(|| format!("known are {}", names.join(", ")));
    Err(Error::invalid(format!("there is no transform `{name}`")).remedy(help))
}

/// Wide to long: one row for each of some columns, with its name and its value.
#[derive(Debug)]
struct Unpivot;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnpivotArgs {
    keep: Vec<String>,
    names_to: String,
    values_to: String,
    columns: Option<Vec<String>>,
}

/// What unpivot does with a given input: indices of kept and of turned columns, and the output.
struct UnpivotPlan {
    keep: Vec<usize>,
    turned: Vec<usize>,
    output: SchemaRef,
}

impl Unpivot {
    fn plan(args: &Value, input: &Schema) -> Result<UnpivotPlan> {
        let args: UnpivotArgs = serde_json::from_value(args.clone()).map_err(|e| {
            Error::invalid(format!("arguments of unpivot: {e}")).remedy(
                "it takes keep: [columns], names_to, values_to and, if not all others are meant, columns: [columns]",
            )
        })?;
        let keep = indices(&args.keep, input)?;
        let turned = match &args.columns {
            Some(columns) => indices(columns, input)?,
            None => (0..input.fields().len()).filter(|index| !keep.contains(index)).collect(),
        };
        if let Some(both) = turned.iter().find(|index| keep.contains(index)) {
            return Err(Error::invalid(format!("column `{}` is both kept and turned", input.field(*both).name())));
        }
        let Some(first) = turned.first() else {
            return Err(Error::invalid("unpivot has no column to turn").remedy("leave one out of keep"));
        };
        let value_type = input.field(*first).data_type().clone();
        if let Some(other) = turned.iter().find(|index| *input.field(**index).data_type() != value_type) {
            return Err(Error::invalid(format!(
                "`{}` is {} and `{}` is {}: one column cannot hold both",
                input.field(*first).name(),
                value_type,
                input.field(*other).name(),
                input.field(*other).data_type()
            ))
            .remedy("give columns of one type in columns: [...], or cast them in a table before"));
        }
        let mut fields: Vec<Field> = keep.iter().map(|index| input.field(*index).clone()).collect();
        fields.push(Field::new(&args.names_to, DataType::Utf8, false));
        fields.push(Field::new(&args.values_to, value_type, true));
        let mut seen = BTreeSet::new();
        if let Some(twice) = fields.iter().find(|field| !seen.insert(field.name().to_lowercase())) {
            return Err(Error::invalid(format!("unpivot would give two columns `{}`", twice.name()))
                .remedy("choose another names_to or values_to"));
        }
        Ok(UnpivotPlan { keep, turned, output: Arc::new(Schema::new(fields)) })
    }
}

fn indices(names: &[String], input: &Schema) -> Result<Vec<usize>> {
    let known: Vec<&str> = input.fields().iter().map(|field| field.name().as_str()).collect();
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let Some(index) = known.iter().position(|column| column == name) else {
            let help = did_you_mean(name, known.iter().copied())
                .unwrap_or_else(|| format!("the input has {}", known.join(", ")));
            return Err(Error::invalid(format!("there is no column `{name}`")).remedy(help));
        };
        if found.contains(&index) {
            return Err(Error::invalid(format!("column `{name}` is named twice")));
        }
        found.push(index);
    }
    Ok(found)
}

impl Transform for Unpivot {
    fn name(&self) -> &'static str {
        "unpivot"
    }

    fn description(&self) -> &'static str {
        "wide to long: one row for each column of `columns` (default: all but `keep`), with the kept columns, the \
         column's name in `names_to` and its value in `values_to`"
    }

    fn validate(&self, args: &Value, input: &SchemaRef) -> Result<SchemaRef> {
        Ok(Self::plan(args, input)?.output)
    }

    fn apply(&self, args: &Value, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = batch.schema();
        let plan = Self::plan(args, &schema)?;
        let rows = u32::try_from(batch.num_rows()).map_err(|e| Error::internal("a batch is too long").because(e))?;
        let width = plan.turned.len();
        let origin = UInt32Array::from_iter_values((0..rows).flat_map(|row| std::iter::repeat_n(row, width)));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(plan.keep.len() + 2);
        for index in &plan.keep {
            columns.push(take(batch.column(*index), &origin, None)?);
        }
        let names: Vec<&str> = plan.turned.iter().map(|index| schema.field(*index).name().as_str()).collect();
        let repeated: Vec<&str> = (0..rows).flat_map(|_| names.iter().copied()).collect();
        columns.push(Arc::new(StringArray::from(repeated)));
        let values: Vec<&dyn arrow::array::Array> =
            plan.turned.iter().map(|index| batch.column(*index).as_ref()).collect();
        let places: Vec<(usize, usize)> =
            (0..batch.num_rows()).flat_map(|row| (0..width).map(move |column| (column, row))).collect();
        columns.push(interleave(&values, &places)?);
        Ok(RecordBatch::try_new(plan.output, columns)?)
    }

    fn passed_through(&self, args: &Value, input: &SchemaRef) -> Vec<String> {
        Self::plan(args, input)
            .map(|plan| plan.keep.iter().map(|index| input.field(*index).name().clone()).collect())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::util::pretty::pretty_format_batches;
    use serde_json::json;

    use super::*;

    fn wide() -> RecordBatch {
        let column = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
        RecordBatch::try_from_iter_with_nullable([
            ("day", column(vec![Some(1), Some(2)]), false),
            ("rain", column(vec![Some(10), None]), true),
            ("wind", column(vec![Some(30), Some(40)]), true),
        ])
        .unwrap()
    }

    #[test]
    fn unpivot_turns_columns_into_rows() {
        let unpivot = transform("unpivot").unwrap();
        let args = json!({"keep": ["day"], "names_to": "metric", "values_to": "value"});
        let long = unpivot.apply(&args, &wide()).unwrap();
        assert_eq!(long.schema(), unpivot.validate(&args, &wide().schema()).unwrap());
        insta::assert_snapshot!(pretty_format_batches(&[long]).unwrap(), @r"
        +-----+--------+-------+
        | day | metric | value |
        +-----+--------+-------+
        | 1   | rain   | 10    |
        | 1   | wind   | 30    |
        | 2   | rain   |       |
        | 2   | wind   | 40    |
        +-----+--------+-------+
        ");
        assert_eq!(unpivot.passed_through(&args, &wide().schema()), ["day"]);
    }

    #[test]
    fn wrong_arguments_are_explained() {
        let unpivot = transform("unpivot").unwrap();
        for (args, message, remedy) in [
            (json!({"keep": ["dya"], "names_to": "n", "values_to": "v"}), "no column `dya`", "did you mean `day`?"),
            (json!({"keep": ["day"], "names_to": "day", "values_to": "v"}), "two columns `day`", "names_to"),
            (json!({"keep": ["day", "rain", "wind"], "names_to": "n", "values_to": "v"}), "no column to turn", "keep"),
            (json!({"keep": ["day"], "names": "n", "values_to": "v"}), "unknown field `names`", "names_to"),
        ] {
            let error = unpivot.validate(&args, &wide().schema()).unwrap_err();
            assert!(error.message().contains(message), "{error}");
            assert!(error.remedy_text().unwrap().contains(remedy), "{:?}", error.remedy_text());
        }
        assert_eq!(transform("unpivto").unwrap_err().remedy_text(), Some("did you mean `unpivot`?"));
    }
}
