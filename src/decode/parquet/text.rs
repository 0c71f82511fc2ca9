//! Text that was read as bytes becomes text again, at every depth, where all of it is UTF-8.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef};

use crate::error::Result;

/// `array` with its text parts as text; `declared` is its type as the file says. A part with a value that is not UTF-8
/// stays bytes.
pub(super) fn restored(array: &ArrayRef, declared: &DataType) -> Result<ArrayRef> {
    Ok(match (array.data_type(), declared) {
        (DataType::Binary, DataType::Utf8) => {
            let bytes = array.as_binary::<i32>();
            let (offsets, values, nulls) = (bytes.offsets().clone(), bytes.values().clone(), bytes.nulls().cloned());
            match StringArray::try_new(offsets, values, nulls) {
                Ok(text) => Arc::new(text),
                Err(_) => Arc::clone(array),
            }
        }
        (DataType::List(field), DataType::List(of)) => {
            let list = array.as_list::<i32>();
            let values = restored(list.values(), of.data_type())?;
            let field = retyped(field, &values);
            Arc::new(ListArray::try_new(field, list.offsets().clone(), values, list.nulls().cloned())?)
        }
        (DataType::Struct(_), DataType::Struct(of)) => {
            Arc::new(structure(array.as_struct(), of.iter().map(|field| field.data_type()))?)
        }
        (DataType::Map(field, sorted), DataType::Map(of, _)) => {
            let map = array.as_map();
            let DataType::Struct(of) = of.data_type() else { return Ok(Arc::clone(array)) };
            let entries = structure(map.entries(), of.iter().map(|field| field.data_type()))?;
            let field = Arc::new(Field::clone(field).with_data_type(entries.data_type().clone()));
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(MapArray::try_new(field, offsets, entries, nulls, *sorted)?)
        }
        _ => Arc::clone(array),
    })
}

fn structure<'t>(rows: &StructArray, declared: impl Iterator<Item = &'t DataType>) -> Result<StructArray> {
    let columns =
        rows.columns().iter().zip(declared).map(|(column, of)| restored(column, of)).collect::<Result<Vec<_>>>()?;
    let fields: Vec<FieldRef> =
        rows.fields().iter().zip(&columns).map(|(field, column)| retyped(field, column)).collect();
    Ok(StructArray::try_new_with_length(fields.into(), columns, rows.nulls().cloned(), rows.len())?)
}

fn retyped(field: &FieldRef, array: &ArrayRef) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(array.data_type().clone()))
}
