//! Which field of a Parquet file belongs to which column, by name, and which belong to none.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, make_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields as ArrowFields, Schema};

use super::super::Refusal;
use super::super::json::{Names, ROOT};
use super::convert::child_index;
use super::footer::refusal;
use crate::error::Result;
use crate::schema::{ColumnType, Contract};

/// Where a value lies in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place(Vec<Step>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Field(usize),
    Element,
}

/// A field that no column asks for.
#[derive(Debug)]
pub(super) struct Unknown {
    /// Dotted path; `[]` stands for the elements of a list.
    pub name: String,
    /// Where its values lie.
    pub place: Place,
}

/// The fields of a file, sorted.
#[derive(Debug)]
pub(super) struct Fields {
    /// For each column of the contract.
    pub columns: Vec<Option<Place>>,
    /// The others.
    pub unknown: Vec<Unknown>,
}

impl Fields {
    /// Sorts the fields of `schema`.
    pub(super) fn new(contract: &Contract, schema: &Schema) -> Result<Self, Refusal> {
        let names = Names::new(&contract.columns);
        let mut sorting =
            Sorting { slots: vec![None; names.slots()], met: vec![None; names.nodes()], unknown: Vec::new() };
        sorting.walk(&names, ROOT, schema.fields(), &[], "", true)?;
        let Sorting { slots, mut unknown, .. } = sorting;
        let mut columns: Vec<Option<Place>> = Vec::with_capacity(contract.columns.len());
        for (index, column) in contract.columns.iter().enumerate() {
            let place = names.of_column(index).iter().find_map(|slot| slots[*slot].clone());
            if let Some(place) = &place
                && let Some(data_type) = place.data_type(schema)
            {
                unknown_below(&column.data_type, &data_type, place, &column.name, &mut unknown);
            }
            columns.push(place);
        }
        missing(contract, &columns, schema)?;
        Ok(Self { columns, unknown })
    }
}

fn missing(contract: &Contract, columns: &[Option<Place>], schema: &Schema) -> Result<(), Refusal> {
    let absent: Vec<&str> = contract
        .columns
        .iter()
        .zip(columns)
        .filter(|(column, place)| place.is_none() && !column.nullable && column.default.is_none())
        .map(|(column, _)| column.name.as_str())
        .collect();
    let has_none = !columns.is_empty() && columns.iter().all(Option::is_none);
    if absent.is_empty() && !has_none {
        return Ok(());
    }
    let there: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).take(50).collect();
    let there = there.join(", ");
    if has_none {
        let reason = format!("0 of {} expected columns found; the file has: {there}", columns.len());
        return Err(refusal("header_mismatch", reason));
    }
    let reason = format!("required columns are missing: {}; the file has: {there}", absent.join(", "));
    let column = absent.first().map(|name| (*name).to_owned());
    Err(Refusal { column, ..refusal("missing_column", reason) })
}

struct Sorting {
    slots: Vec<Option<Place>>,
    /// By node: the name that was met.
    met: Vec<Option<String>>,
    unknown: Vec<Unknown>,
}

impl Sorting {
    fn walk(
        &mut self,
        names: &Names,
        node: usize,
        fields: &ArrowFields,
        steps: &[Step],
        prefix: &str,
        reports_unknown: bool,
    ) -> Result<(), Refusal> {
        for (index, field) in fields.iter().enumerate() {
            let path = format!("{prefix}{}", field.name());
            let place: Vec<Step> = steps.iter().copied().chain([Step::Field(index)]).collect();
            if fields[..index].iter().any(|earlier| earlier.name() == field.name()) {
                let reason =
                    format!("column `{path}` occurs more than once; write the file with one name for each column");
                return Err(Refusal { column: Some(path), ..refusal("duplicate_column", reason) });
            }
            let Some(child) = names.find(node, field.name()) else {
                if reports_unknown {
                    self.unknown.push(Unknown { name: path, place: Place(place) });
                }
                continue;
            };
            if let Some(earlier) = self.met[child].replace(path.clone()) {
                let reason = format!(
                    "columns `{earlier}` and `{path}` are the same name but for case; declare them with `from`"
                );
                return Err(Refusal { column: Some(path), ..refusal("duplicate_column", reason) });
            }
            let slot = names.slot_of(child);
            if let Some(slot) = slot {
                self.slots[slot] = Some(Place(place.clone()));
            }
            match field.data_type() {
                DataType::Struct(inner) if names.has_children(child) => {
                    let reports = slot.is_none() && reports_unknown;
                    self.walk(names, child, inner, &place, &format!("{path}."), reports)?;
                }
                _ if slot.is_none() && reports_unknown => {
                    self.unknown.push(Unknown { name: path, place: Place(place) })
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Fields within a declared struct that its declaration does not have.
fn unknown_below(declared: &ColumnType, found: &DataType, place: &Place, path: &str, out: &mut Vec<Unknown>) {
    match (declared, found) {
        (ColumnType::Struct(fields), DataType::Struct(inner)) => {
            let mut known = vec![None; inner.len()];
            for (name, of) in fields {
                if let Some(index) = child_index(inner, name) {
                    known[index] = Some(of);
                }
            }
            for (index, field) in inner.iter().enumerate() {
                let path = format!("{path}.{}", field.name());
                let place = place.then(Step::Field(index));
                match known[index] {
                    Some(of) => unknown_below(of, field.data_type(), &place, &path, out),
                    None => out.push(Unknown { name: path, place }),
                }
            }
        }
        (ColumnType::List(of), DataType::List(element)) => {
            unknown_below(of, element.data_type(), &place.then(Step::Element), &format!("{path}[]"), out);
        }
        _ => {}
    }
}

impl Place {
    fn then(&self, step: Step) -> Self {
        Self(self.0.iter().copied().chain([step]).collect())
    }

    /// The column of the file.
    pub(super) fn root(&self) -> usize {
        match self.0.first() {
            Some(Step::Field(index)) => *index,
            _ => 0,
        }
    }

    fn data_type(&self, schema: &Schema) -> Option<DataType> {
        let mut at = DataType::Struct(schema.fields().clone());
        for step in &self.0 {
            at = match (step, &at) {
                (Step::Field(index), DataType::Struct(fields)) => fields.get(*index)?.data_type().clone(),
                (Step::Element, DataType::List(element)) => element.data_type().clone(),
                _ => return None,
            };
        }
        Some(at)
    }

    /// The values in `batch`; null where something around them is null.
    pub(super) fn of(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        match self.0.split_first() {
            Some((Step::Field(index), rest)) => below(batch.column(*index), rest),
            _ => Err(crate::error::Error::internal("a place without a column")),
        }
    }
}

fn below(array: &ArrayRef, steps: &[Step]) -> Result<ArrayRef> {
    let Some((step, rest)) = steps.split_first() else { return Ok(Arc::clone(array)) };
    match (step, array.data_type()) {
        (Step::Field(index), DataType::Struct(_)) => {
            let outer = array.as_struct();
            let inner = outer.column(*index);
            let nulls = NullBuffer::union(outer.nulls(), inner.nulls());
            let data = inner.to_data().into_builder().nulls(nulls).build()?;
            below(&make_array(data), rest)
        }
        (Step::Element, DataType::List(_)) => {
            let list = array.as_list::<i32>();
            let values = below(list.values(), rest)?;
            let field = Arc::new(Field::new("element", values.data_type().clone(), true));
            Ok(Arc::new(ListArray::try_new(field, list.offsets().clone(), values, list.nulls().cloned())?))
        }
        _ => Err(crate::error::Error::internal("a place that is not in the file")),
    }
}
