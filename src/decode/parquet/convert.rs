//! Arrow values of a Parquet file -> values of a declared column: unchanged where the types are the same and nothing is to
//! be checked, else one by one through the cast that all formats share.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, MapArray, StringArray, StructArray, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, FieldRef, Fields, Float32Type, Float64Type, TimestampMicrosecondType,
};

use super::super::FaultKind;
use super::super::row_json;
use super::feed;
use crate::cast::{CastFault, ColumnCaster, ColumnSink, arrow_type};
use crate::decode::columns::fold;
use crate::error::{Error, Result};
use crate::schema::{Column, ColumnType};

/// Days of 0001-01-01 and 9999-12-31: what every reader of Delta takes.
const DAYS: (i32, i32) = (-719_162, 2_932_896);
const MICROS_PER_DAY: i64 = 86_400_000_000;

/// A row whose value could not be converted.
#[derive(Debug)]
pub(super) struct CellFault {
    pub row: usize,
    pub fault: CastFault,
    pub value: Option<String>,
}

/// Converts one column, or one nested part of it.
#[derive(Debug)]
pub(super) struct Converter {
    caster: ColumnCaster,
    column: Column,
    target: DataType,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Leaf,
    List(FieldRef, Box<Converter>),
    Struct(Fields, Vec<Converter>),
    Map(FieldRef, Box<Converter>, Box<Converter>),
}

impl Converter {
    /// A converter to `column`'s type, by `column`'s settings.
    pub(super) fn new(column: &Column) -> Result<Self> {
        let target = arrow_type(&column.data_type);
        let shape = match (&column.data_type, &target) {
            (ColumnType::List(of), DataType::List(field)) => {
                Shape::List(Arc::clone(field), Box::new(Self::part(column, "element", of)?))
            }
            (ColumnType::Struct(of), DataType::Struct(fields)) => {
                let parts = of.iter().map(|(name, of)| Self::part(column, name, of)).collect::<Result<_>>()?;
                Shape::Struct(fields.clone(), parts)
            }
            (ColumnType::Map(key, value), DataType::Map(field, _)) => Shape::Map(
                Arc::clone(field),
                Box::new(Self::part(column, "key", key)?),
                Box::new(Self::part(column, "value", value)?),
            ),
            _ => Shape::Leaf,
        };
        Ok(Self { caster: ColumnCaster::new(column, &[])?, column: column.clone(), target, shape })
    }

    fn part(column: &Column, name: &str, data_type: &ColumnType) -> Result<Self> {
        let mut part = column.clone();
        part.name = name.to_owned();
        part.data_type = data_type.clone();
        part.nullable = true;
        part.default = None;
        Self::new(&part)
    }

    /// A column that the file does not have.
    pub(super) fn absent(&self, rows: usize) -> Result<(ArrayRef, Vec<CellFault>)> {
        self.one_by_one(rows, |sink, _| sink.push_absent(), |_| Ok(None))
    }

    /// Converts `array`. Rows with a fault are null. `is_int96`: an instant or a wall-clock time, whichever the column wants.
    pub(super) fn convert(&self, array: &ArrayRef, is_int96: bool) -> Result<(ArrayRef, Vec<CellFault>)> {
        if let Some(same) = self.unchanged(array, is_int96) {
            return Ok((same, Vec::new()));
        }
        let converted = match (&self.shape, array.data_type()) {
            (Shape::List(field, element), DataType::List(_)) => self.list(array.as_list(), field, element, is_int96)?,
            (Shape::Struct(fields, parts), DataType::Struct(_)) => {
                self.structure(array.as_struct(), fields, parts, is_int96)?
            }
            (Shape::Map(field, key, value), DataType::Map(..)) => self.map(array.as_map(), field, key, value)?,
            _ => {
                let is_instant = is_int96 && self.wants_instants();
                let feeder = feed::Feeder::new(array, self.column.data_type == ColumnType::Binary, is_instant)?;
                return self.one_by_one(
                    array.len(),
                    |sink, row| feeder.push(sink, row),
                    |row| row_json::text(array, row),
                );
            }
        };
        self.with_required(array, converted)
    }

    fn wants_instants(&self) -> bool {
        self.column.data_type != ColumnType::TimestampNtz && self.column.timezone.is_none()
    }

    fn one_by_one(
        &self,
        rows: usize,
        push: impl Fn(&mut ColumnSink, usize) -> Result<(), CastFault>,
        text: impl Fn(usize) -> Result<Option<String>>,
    ) -> Result<(ArrayRef, Vec<CellFault>)> {
        let mut sink = self.caster.begin(rows);
        let mut faults = Vec::new();
        for row in 0..rows {
            if let Err(fault) = push(&mut sink, row) {
                faults.push(CellFault { row, fault, value: text(row)? });
            }
        }
        Ok((sink.finish()?, faults))
    }

    /// `array` itself, if it is what the cast would give.
    fn unchanged(&self, array: &ArrayRef, is_int96: bool) -> Option<ArrayRef> {
        let column = &self.column;
        let is_checked = column.max_length.is_some()
            || column.trim
            || column.null_values.is_some()
            || (is_int96 && self.wants_instants());
        if is_checked || (!column.nullable && array.null_count() > 0) {
            return None;
        }
        if self.target == DataType::Utf8 && array.data_type() == &DataType::Binary {
            let bytes = array.as_binary::<i32>();
            let text = StringArray::try_new(bytes.offsets().clone(), bytes.values().clone(), bytes.nulls().cloned());
            return text.ok().map(|text| Arc::new(text) as ArrayRef);
        }
        if array.data_type() != &self.target {
            return None;
        }
        let is_in_range = match &self.target {
            DataType::Boolean | DataType::Utf8 | DataType::Binary => true,
            plain if plain.is_integer() => true,
            // Whether NaN and infinities are welcome is for the cast to say.
            DataType::Float32 => array.as_primitive::<Float32Type>().values().iter().all(|value| value.is_finite()),
            DataType::Float64 => array.as_primitive::<Float64Type>().values().iter().all(|value| value.is_finite()),
            DataType::Decimal128(precision, _) => {
                array.as_primitive::<Decimal128Type>().validate_decimal_precision(*precision).is_ok()
            }
            DataType::Date32 => {
                let days = array.as_primitive::<Date32Type>().values();
                days.iter().all(|day| (DAYS.0..=DAYS.1).contains(day))
            }
            DataType::Timestamp(..) => {
                let range = i64::from(DAYS.0) * MICROS_PER_DAY..(i64::from(DAYS.1) + 1) * MICROS_PER_DAY;
                array.as_primitive::<TimestampMicrosecondType>().values().iter().all(|micros| range.contains(micros))
            }
            _ => false,
        };
        is_in_range.then(|| Arc::clone(array))
    }

    fn list(
        &self,
        list: &ListArray,
        field: &FieldRef,
        element: &Self,
        is_int96: bool,
    ) -> Result<(ArrayRef, Vec<CellFault>)> {
        let (values, inner) = element.convert(list.values(), is_int96)?;
        let source: ArrayRef = Arc::new(list.clone());
        let faults = faults_of_rows(&source, inner, "", |index| row_of(list.value_offsets(), index))?;
        let nulls = without(list.nulls(), list.len(), &faults);
        let array = ListArray::try_new(Arc::clone(field), list.offsets().clone(), values, nulls)?;
        Ok((Arc::new(array), faults))
    }

    fn structure(
        &self,
        rows: &StructArray,
        fields: &Fields,
        parts: &[Self],
        is_int96: bool,
    ) -> Result<(ArrayRef, Vec<CellFault>)> {
        let source: ArrayRef = Arc::new(rows.clone());
        let mut columns = Vec::with_capacity(parts.len());
        let mut faults: Vec<CellFault> = Vec::new();
        for part in parts {
            let Some(index) = child_index(rows.fields(), &part.column.name) else {
                columns.push(new_null_array(&part.target, rows.len()));
                continue;
            };
            let (values, inner) = part.convert(rows.column(index), is_int96)?;
            columns.push(values);
            faults.extend(faults_of_rows(&source, inner, &part.column.name, Some)?);
        }
        faults.sort_by_key(|fault| fault.row);
        faults.dedup_by_key(|fault| fault.row);
        let nulls = without(rows.nulls(), rows.len(), &faults);
        let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, rows.len())?;
        Ok((Arc::new(array), faults))
    }

    fn map(&self, map: &MapArray, field: &FieldRef, key: &Self, value: &Self) -> Result<(ArrayRef, Vec<CellFault>)> {
        let source: ArrayRef = Arc::new(map.clone());
        // Entries of rows outside of a slice are none of its business.
        let (first, last) = (map.value_offsets()[0], map.value_offsets()[map.len()]);
        let offsets: Vec<i32> = map.value_offsets().iter().map(|offset| offset - first).collect();
        let (start, count) = (usize_of(first), usize_of(last - first));
        let (keys, key_faults) = key.convert(&map.keys().slice(start, count), false)?;
        let (values, value_faults) = value.convert(&map.values().slice(start, count), false)?;
        let mut faults = faults_of_rows(&source, key_faults, "key", |index| row_of(&offsets, index))?;
        faults.extend(faults_of_rows(&source, value_faults, "value", |index| row_of(&offsets, index))?);
        faults.sort_by_key(|fault| fault.row);
        faults.dedup_by_key(|fault| fault.row);
        // A key that could not be cast is null, which a map's keys may not be: such a row goes with its entries.
        let mut without_key: Vec<usize> =
            (0..keys.len()).filter(|index| keys.is_null(*index)).filter_map(|index| row_of(&offsets, index)).collect();
        without_key.dedup();
        if !without_key.is_empty() {
            return Ok((self.map_without(&source, &without_key)?, faults));
        }
        let DataType::Struct(entry_fields) = field.data_type() else {
            return Err(Error::internal(format!("column {}: a map without entries", self.column.name)));
        };
        let entries = StructArray::try_new(entry_fields.clone(), vec![keys, values], None)?;
        let nulls = without(map.nulls(), map.len(), &faults);
        let offsets = OffsetBuffer::new(offsets.into());
        let array = MapArray::try_new(Arc::clone(field), offsets, entries, nulls, false)?;
        Ok((Arc::new(array), faults))
    }

    /// Converts the rows around those that are left out.
    fn map_without(&self, source: &ArrayRef, left_out: &[usize]) -> Result<ArrayRef> {
        let mut pieces: Vec<ArrayRef> = Vec::new();
        let mut done = 0;
        for row in left_out {
            if *row > done {
                pieces.push(self.convert(&source.slice(done, row - done), false)?.0);
            }
            pieces.push(new_null_array(&self.target, 1));
            done = row + 1;
        }
        if done < source.len() {
            pieces.push(self.convert(&source.slice(done, source.len() - done), false)?.0);
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        Ok(arrow::compute::concat(&pieces)?)
    }

    /// Adds what null in a column without null breaks.
    fn with_required(
        &self,
        source: &ArrayRef,
        (array, mut faults): (ArrayRef, Vec<CellFault>),
    ) -> Result<(ArrayRef, Vec<CellFault>)> {
        if self.column.nullable || source.null_count() == 0 {
            return Ok((array, faults));
        }
        let mut sink = self.caster.begin(1);
        let Err(fault) = sink.push_null() else { return Ok((array, faults)) };
        for row in (0..source.len()).filter(|row| source.is_null(*row)) {
            faults.push(CellFault { row, fault: fault.clone(), value: None });
        }
        faults.sort_by_key(|fault| fault.row);
        Ok((array, faults))
    }
}

/// Faults of nested values as faults of the rows that hold them; values that no row shows count for nothing.
fn faults_of_rows(
    source: &ArrayRef,
    inner: Vec<CellFault>,
    name: &str,
    row_of: impl Fn(usize) -> Option<usize>,
) -> Result<Vec<CellFault>> {
    let mut faults: Vec<CellFault> = Vec::new();
    for fault in inner {
        let Some(row) = row_of(fault.row).filter(|row| source.is_valid(*row)) else { continue };
        if faults.last().is_some_and(|last| last.row == row) {
            continue;
        }
        let reason = if name.is_empty() { fault.fault.reason } else { format!("{name}: {}", fault.fault.reason) };
        let value = row_json::text(source, row)?;
        faults.push(CellFault { row, fault: CastFault { kind: FaultKind::Invalid, reason }, value });
    }
    Ok(faults)
}

/// The row whose range in `offsets` holds `index`.
fn row_of(offsets: &[i32], index: usize) -> Option<usize> {
    let index = i32::try_from(index).ok()?;
    let after = offsets.partition_point(|start| *start <= index);
    (after > 0 && after < offsets.len()).then(|| after - 1)
}

fn usize_of(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or(0)
}

fn without(nulls: Option<&NullBuffer>, rows: usize, faults: &[CellFault]) -> Option<NullBuffer> {
    if faults.is_empty() {
        return nulls.cloned();
    }
    let mut valid: Vec<bool> = (0..rows).map(|row| nulls.is_none_or(|nulls| nulls.is_valid(row))).collect();
    for fault in faults {
        valid[fault.row] = false;
    }
    Some(NullBuffer::from(BooleanArray::from(valid).values().clone()))
}

/// The field that a name means: exactly, else folded when that is unique.
pub(super) fn child_index(fields: &Fields, name: &str) -> Option<usize> {
    if let Some(index) = fields.iter().position(|field| field.name() == name) {
        return Some(index);
    }
    let wanted = fold(name);
    let mut alike = (0..fields.len()).filter(|index| fold(fields[*index].name()) == wanted);
    match (alike.next(), alike.next()) {
        (Some(index), None) => Some(index),
        _ => None,
    }
}
