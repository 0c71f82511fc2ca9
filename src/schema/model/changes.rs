//! What a contract says of change events: the table of the database, the order of its changes, and the history that is kept.

use serde::Serialize;

use crate::name::TableName;

/// Change events of one table of a database, and how they come to rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeSource {
    /// The table that keeps the events.
    pub from: TableName,
    /// The table of the database, as events name it: `<schema>.<table>`.
    pub source_table: String,
    /// Fields of events that order the changes, most significant first: of [`SEQUENCE_FIELDS`].
    pub sequence_by: Vec<String>,
    /// The table of the history, if one is kept.
    pub history: Option<HistorySpec>,
    /// What stands in place of a value that was not sent because it had not changed.
    pub unavailable_value: String,
}

/// Where the history of a table of changes is kept, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistorySpec {
    /// The table.
    pub table: TableName,
    /// Columns whose change opens a new version.
    pub track: Vec<String>,
}

/// Fields of a change event that `sequence_by` may name.
pub const SEQUENCE_FIELDS: [&str; 3] = ["source.ts_ms", "source.lsn", "source.txId"];

/// What `sequence_by` is when it is not declared.
pub const DEFAULT_SEQUENCE: [&str; 2] = ["source.ts_ms", "source.lsn"];

/// What a change does, as rules of a table of changes see it: Debezium's letter.
pub const OP: &str = "op";

/// What Debezium sends in place of a value that it does not have, unless it is told otherwise.
pub const UNAVAILABLE_VALUE: &str = "__debezium_unavailable_value";

/// The column that holds a field of `sequence_by`: `_` and the field's last part.
#[must_use]
pub fn sequence_column(field: &str) -> String {
    format!("_{}", field.rsplit('.').next().unwrap_or(field))
}

impl ChangeSource {
    /// The columns that hold the fields of `sequence_by`.
    #[must_use]
    pub fn sequence_columns(&self) -> Vec<String> {
        self.sequence_by.iter().map(|field| sequence_column(field)).collect()
    }

    /// The fields that are known of every change: those of `sequence_by`, and the default ones.
    #[must_use]
    pub fn fields(&self) -> Vec<&str> {
        let declared = self.sequence_by.iter().map(String::as_str);
        let others = DEFAULT_SEQUENCE.into_iter().filter(|field| !self.sequence_by.iter().any(|known| known == field));
        declared.chain(others).collect()
    }

    /// What rules may name beside columns.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        std::iter::once(OP).chain(self.fields()).map(str::to_owned).collect()
    }
}
