//! What is kept of every delivered change of a table: one row each, typed, judged as far as it can be by itself. What the
//! table, its history and its quarantine hold follows from these rows and from nothing else.
//!
//! | rows | have |
//! |---|---|
//! | an upsert | everything; `_key`, `_op`, `_topic` and `_event` only when it breaks a rule or has a placeholder |
//! | a delete, or the going of the old key of a changed key | key, sequence, rank and place |
//! | a truncate | sequence, rank and place: its key is null |
//! | an event that is malformed for this table alone | rank, place, rules, topic, event and digest: key and sequence are null |

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::Op;
use crate::error::{Error, Result};
use crate::schema::arrow::data_type;
use crate::schema::{ChangeSource, Contract, sequence_column};

/// What the change does, as a number in the order of [`Op`]; [`MALFORMED_RANK`] for what is no change.
pub const RANK: &str = "_rank";
/// The partition of a record.
pub const PARTITION: &str = "_partition";
/// The offset of a record.
pub const OFFSET: &str = "_offset";
/// The file of a bare value; null for what has a partition and an offset.
pub const FILE: &str = "_file";
/// The line of a bare value.
pub const ROW: &str = "_row";
/// Names of the columns that a placeholder stands for; null when there is none.
pub const UNAVAILABLE: &str = "_unavailable";
/// Names of the rules that are broken whatever the placeholders stand for, sorted; null when there is none.
pub const BROKEN: &str = "_broken";
/// Names of the built-in rules that the row breaks; on rows with placeholders alone, which are judged again.
pub const FAULTS: &str = "_faults";
/// The key as compact JSON, as quarantine shows it.
pub const KEY: &str = "_key";
/// Debezium's letter, as quarantine shows it.
pub const OP: &str = "_op";
/// The topic, as quarantine shows it.
pub const TOPIC: &str = "_topic";
/// The whole event, as quarantine shows it.
pub const EVENT: &str = "_event";
/// A hash of the declared columns as they came: two deliveries of one change with different ones are a tie.
pub const DIGEST: &str = "_digest";

/// The [`RANK`] of an event that is malformed for this table alone.
pub const MALFORMED_RANK: i8 = 5;

/// The column that keeps the text of a column as it came, for a rule that reads it.
#[must_use]
pub fn raw_column(column: &str) -> String {
    format!("_raw_{column}")
}

impl Op {
    /// The number of [`RANK`].
    #[must_use]
    pub const fn rank(self) -> i8 {
        match self {
            Self::Read => 0,
            Self::Create => 1,
            Self::Update => 2,
            Self::Delete => 3,
            Self::Truncate => 4,
        }
    }

    /// The change of a number of [`RANK`]; none for what is no change.
    #[must_use]
    pub fn of_rank(rank: i8) -> Option<Self> {
        [Self::Read, Self::Create, Self::Update, Self::Delete, Self::Truncate].into_iter().find(|op| op.rank() == rank)
    }
}

/// The source of a contract of changes.
pub(super) fn changes_of(contract: &Contract) -> Result<&ChangeSource> {
    contract.changes().ok_or_else(|| Error::internal(format!("{} is no table of changes", contract.table)))
}

/// The columns of the kept changes of a table: its key, the fields of the event (those of `sequence_by` first), rank and
/// place, the other columns of the table, then what rules and quarantine need. All may be null.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when a rule of the contract cannot be compiled.
pub fn state_schema(contract: &Contract) -> Result<SchemaRef> {
    let raw = crate::quality::raw_columns(contract)?;
    Ok(schema_with_raw(contract, changes_of(contract)?, &raw))
}

/// The same, when it is known which columns' texts the rules read.
pub(super) fn schema_with_raw(contract: &Contract, source: &ChangeSource, raw: &[usize]) -> SchemaRef {
    let nullable = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    let column = |name: &str| contract.column(name).map(|column| nullable(name, data_type(&column.data_type)));
    let names = || nullable_list();
    let mut fields: Vec<Field> = contract.primary_key.iter().filter_map(|name| column(name)).collect();
    fields.extend(source.fields().into_iter().map(|field| nullable(&sequence_column(field), DataType::Int64)));
    fields.extend([
        nullable(RANK, DataType::Int8),
        nullable(PARTITION, DataType::Int32),
        nullable(OFFSET, DataType::Int64),
        nullable(FILE, DataType::Utf8),
        nullable(ROW, DataType::Int64),
    ]);
    let others = contract.columns.iter().filter(|column| !contract.primary_key.contains(&column.name));
    fields.extend(others.filter_map(|other| column(&other.name)));
    fields.extend(raw.iter().map(|index| nullable(&raw_column(&contract.columns[*index].name), DataType::Utf8)));
    fields.extend([
        nullable(UNAVAILABLE, names()),
        nullable(BROKEN, names()),
        nullable(FAULTS, names()),
        nullable(KEY, DataType::Utf8),
        nullable(OP, DataType::Utf8),
        nullable(TOPIC, DataType::Utf8),
        nullable(EVENT, DataType::Binary),
        nullable(DIGEST, DataType::Int64),
    ]);
    Arc::new(Schema::new(fields))
}

/// A list of names, with Delta's name for its parts.
fn nullable_list() -> DataType {
    DataType::List(Arc::new(Field::new("element", DataType::Utf8, true)))
}
