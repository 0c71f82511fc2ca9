//! Sets of keys (or of units): distinct tuples of column values, each with a number, where null equals null.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, TimeUnit};
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, lit};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::prune::{Pruner, prunable};
use crate::error::{Error, Result};

/// Up to this many values a filter names each; above, only the range.
const LISTED: usize = 200;

/// Numbered distinct keys. Keys of one integer-like column are kept as integers, all others as comparable bytes.
pub struct KeyIndex {
    fields: Vec<FieldRef>,
    keys: Keys,
    hasher: DefaultHashBuilder,
    length: u32,
}

enum Keys {
    Integers { table: HashTable<(i64, u32)>, null: Option<u32> },
    Bytes { table: HashTable<u32>, bytes: Vec<u8>, ends: Vec<usize>, converter: RowConverter },
}

impl KeyIndex {
    /// An empty set of keys over columns of these names and types.
    pub fn new(fields: &[FieldRef]) -> Result<Self> {
        let keys = match fields {
            [one] if is_integer_like(one.data_type()) => Keys::Integers { table: HashTable::new(), null: None },
            _ => {
                let converter =
                    RowConverter::new(fields.iter().map(|field| SortField::new(field.data_type().clone())).collect())?;
                Keys::Bytes { table: HashTable::new(), bytes: Vec::new(), ends: Vec::new(), converter }
            }
        };
        Ok(Self { fields: fields.to_vec(), keys, hasher: DefaultHashBuilder::default(), length: 0 })
    }

    /// An empty set over the columns `names` of a schema.
    pub fn over(schema: &Schema, names: &[String]) -> Result<Self> {
        Self::new(&fields_of(schema, names)?)
    }

    /// The same set, still empty, with another hash: sets with one hash agree on [`Self::hashes`].
    #[must_use]
    pub fn with_hasher(mut self, hasher: DefaultHashBuilder) -> Self {
        debug_assert!(self.is_empty());
        self.hasher = hasher;
        self
    }

    /// The key's columns.
    #[must_use]
    pub fn fields(&self) -> &[FieldRef] {
        &self.fields
    }

    /// The names of the key's columns.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.name().clone()).collect()
    }

    /// How many keys there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// About how many bytes of memory the set takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        match &self.keys {
            Keys::Integers { table, .. } => table.capacity() * 18,
            Keys::Bytes { table, bytes, ends, .. } => table.capacity() * 6 + bytes.capacity() + ends.capacity() * 8,
        }
    }

    /// Puts the keys of rows in, and gives each row its key's number: numbers count up from 0 as new keys come.
    pub fn insert(&mut self, columns: &[ArrayRef]) -> Result<Vec<u32>> {
        let rows = columns.first().map_or(0, |column| column.len());
        let mut numbers = Vec::with_capacity(rows);
        self.walk(columns, |number| numbers.push(number))?;
        Ok(numbers)
    }

    /// The numbers of the keys of rows; none for keys that are not in the set.
    pub fn find(&self, columns: &[ArrayRef]) -> Result<Vec<Option<u32>>> {
        let rows = columns.first().map_or(0, |column| column.len());
        let mut numbers = Vec::with_capacity(rows);
        match &self.keys {
            Keys::Integers { table, null } => {
                let values = integers(&columns[0])?;
                // Partition values and sorted keys come in runs.
                let mut last = None;
                for row in 0..values.len() {
                    if values.is_null(row) {
                        numbers.push(*null);
                        continue;
                    }
                    let value = values.value(row);
                    if let Some((known, number)) = last
                        && known == value
                    {
                        numbers.push(number);
                        continue;
                    }
                    let hash = self.hasher.hash_one(value);
                    let number = table.find(hash, |(known, _)| *known == value).map(|(_, number)| *number);
                    last = Some((value, number));
                    numbers.push(number);
                }
            }
            Keys::Bytes { table, bytes, ends, converter } => {
                let encoded = converter.convert_columns(columns)?;
                for row in &encoded {
                    let key = row.as_ref();
                    let hash = self.hasher.hash_one(key);
                    numbers.push(table.find(hash, |number| key_at(bytes, ends, *number) == key).copied());
                }
            }
        }
        Ok(numbers)
    }

    /// A hash of each row's key, to split keys into classes.
    pub fn hashes(&self, columns: &[ArrayRef]) -> Result<Vec<u64>> {
        Ok(match &self.keys {
            Keys::Integers { .. } => integers(&columns[0])?.iter().map(|value| self.hasher.hash_one(value)).collect(),
            Keys::Bytes { converter, .. } => {
                converter.convert_columns(columns)?.iter().map(|row| self.hasher.hash_one(row.as_ref())).collect()
            }
        })
    }

    fn walk(&mut self, columns: &[ArrayRef], mut each: impl FnMut(u32)) -> Result<()> {
        let hasher = &self.hasher;
        match &mut self.keys {
            Keys::Integers { table, null } => {
                let values = integers(&columns[0])?;
                let mut last = None;
                for row in 0..values.len() {
                    if values.is_null(row) {
                        each(*null.get_or_insert_with(|| next(&mut self.length)));
                        continue;
                    }
                    let value = values.value(row);
                    if let Some((known, number)) = last
                        && known == value
                    {
                        each(number);
                        continue;
                    }
                    let hash = hasher.hash_one(value);
                    let entry = table.entry(hash, |(known, _)| *known == value, |(known, _)| hasher.hash_one(*known));
                    let number = entry.or_insert_with(|| (value, next(&mut self.length))).get().1;
                    last = Some((value, number));
                    each(number);
                }
            }
            Keys::Bytes { table, bytes, ends, converter } => {
                let encoded = converter.convert_columns(columns)?;
                for row in &encoded {
                    let key = row.as_ref();
                    let hash = hasher.hash_one(key);
                    if let Some(number) = table.find(hash, |number| key_at(bytes, ends, *number) == key) {
                        each(*number);
                        continue;
                    }
                    let number = next(&mut self.length);
                    bytes.extend_from_slice(key);
                    ends.push(bytes.len());
                    table.insert_unique(hash, number, |number| hasher.hash_one(key_at(bytes, ends, *number)));
                    each(number);
                }
            }
        }
        Ok(())
    }

    /// The distinct keys as columns.
    pub fn values(&self) -> Result<Vec<ArrayRef>> {
        match &self.keys {
            Keys::Integers { table, null } => {
                let mut values: Vec<Option<i64>> = table.iter().map(|(value, _)| Some(*value)).collect();
                values.extend(null.map(|_| None));
                let values: ArrayRef = Arc::new(Int64Array::from(values));
                Ok(vec![from_integers(&values, self.fields[0].data_type())?])
            }
            Keys::Bytes { bytes, ends, converter, .. } => {
                let parser = converter.parser();
                let rows = (0..self.length).map(|number| parser.parse(key_at(bytes, ends, number)));
                Ok(converter.convert_rows(rows)?)
            }
        }
    }

    /// Which files can hold one of the keys.
    pub fn pruner(&self) -> Result<Pruner> {
        let values = self.values()?;
        Pruner::new(self.fields.iter().zip(&values).filter(|(field, _)| prunable(field.data_type())))
    }

    /// A filter that holds for every row with one of the keys (and perhaps for more), on the given columns.
    pub fn filter(&self, columns: &[Expr]) -> Result<Expr> {
        let mut all = lit(true);
        for (column, values) in columns.iter().zip(self.values()?) {
            all = all.and(one_of(column, &values)?);
        }
        Ok(all)
    }
}

fn one_of(column: &Expr, values: &ArrayRef) -> Result<Expr> {
    let scalar = |row| ScalarValue::try_from_array(values, row).map_err(crate::lineage::engine_error);
    let present: Vec<usize> = (0..values.len()).filter(|row| values.is_valid(*row)).collect();
    let mut distinct: Vec<ScalarValue> = Vec::new();
    let (mut least, mut most): (Option<ScalarValue>, Option<ScalarValue>) = (None, None);
    let mut seen = hashbrown::HashSet::new();
    for row in present {
        let value = scalar(row)?;
        if least.as_ref().is_none_or(|least| value.partial_cmp(least) == Some(std::cmp::Ordering::Less)) {
            least = Some(value.clone());
        }
        if most.as_ref().is_none_or(|most| value.partial_cmp(most) == Some(std::cmp::Ordering::Greater)) {
            most = Some(value.clone());
        }
        if distinct.len() <= LISTED && seen.insert(value.clone()) {
            distinct.push(value);
        }
    }
    let nulls = values.null_count() > 0;
    let (Some(least), Some(most)) = (least, most) else { return Ok(column.clone().is_null()) };
    let within = column.clone().between(lit(least), lit(most));
    let mut found = within;
    if distinct.len() <= LISTED {
        found = found.and(column.clone().in_list(distinct.into_iter().map(lit).collect(), false));
    }
    Ok(if nulls { found.or(column.clone().is_null()) } else { found })
}

fn next(length: &mut u32) -> u32 {
    let number = *length;
    *length += 1;
    number
}

fn key_at<'a>(bytes: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &bytes[start..ends[number]]
}

/// Whether values of a type are integers (or days, or microseconds) that int64 holds exactly.
#[must_use]
pub const fn is_integer_like(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Microsecond, _)
    )
}

/// A column of an integer-like type as int64.
pub fn integers(column: &ArrayRef) -> Result<Int64Array> {
    let wide = match column.data_type() {
        DataType::Int64 => Arc::clone(column),
        DataType::Date32 => cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(column, &DataType::Int64)?,
    };
    Ok(wide.as_primitive::<Int64Type>().clone())
}

fn from_integers(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Date32 => cast(&cast(values, &DataType::Int32)?, &DataType::Date32)?,
        _ => cast(values, data_type)?,
    })
}

/// The fields of a schema by name.
pub fn fields_of(schema: &Schema, names: &[String]) -> Result<Vec<FieldRef>> {
    let mut fields = Vec::with_capacity(names.len());
    for name in names {
        let field =
            schema.field_with_name(name).map_err(|e| Error::internal(format!("no column `{name}`")).because(e))?;
        fields.push(Arc::new(Field::clone(field)));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, StringArray};

    use super::*;

    fn field(name: &str, data_type: DataType) -> FieldRef {
        Arc::new(Field::new(name, data_type, true))
    }

    #[test]
    fn keys_are_numbered_once_and_null_equals_null() {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(3), None, Some(3), Some(-1), None]));
        let zones: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b"), Some("a"), None]));
        for (fields, columns, expected) in [
            (vec![field("d", DataType::Date32)], vec![Arc::clone(&days)], vec![0, 1, 0, 2, 1]),
            (vec![field("z", DataType::Utf8)], vec![Arc::clone(&zones)], vec![0, 1, 2, 0, 1]),
            (
                vec![field("d", DataType::Date32), field("z", DataType::Utf8)],
                vec![Arc::clone(&days), Arc::clone(&zones)],
                vec![0, 1, 2, 3, 1],
            ),
        ] {
            let mut keys = KeyIndex::new(&fields).unwrap();
            assert_eq!(keys.insert(&columns).unwrap(), expected);
            let found: Vec<_> = keys.find(&columns).unwrap().into_iter().map(Option::unwrap).collect();
            assert_eq!(found, expected);
            let distinct = *expected.iter().max().unwrap() as usize + 1;
            assert_eq!(keys.len(), distinct);
            assert_eq!(keys.values().unwrap()[0].len(), distinct);
            assert_eq!(keys.values().unwrap()[0].data_type(), fields[0].data_type());
        }
    }

    #[test]
    fn a_filter_names_few_values_and_bounds_many() {
        let mut keys = KeyIndex::new(&[field("n", DataType::Int64)]).unwrap();
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), None]));
        keys.insert(&[values]).unwrap();
        let column = datafusion::logical_expr::col("n");
        let few = keys.filter(std::slice::from_ref(&column)).unwrap().to_string();
        assert!(few.contains("IN") && few.contains("IS NULL"), "{few}");
        let many: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        keys.insert(&[many]).unwrap();
        let many = keys.filter(&[column]).unwrap().to_string();
        assert!(!many.contains("IN (") && many.contains("999"), "{many}");
    }
}
