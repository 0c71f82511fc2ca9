//! What a derived table's SQL gives, which rows of its inputs each output row depends on, and what is wrong with it.
//!
//! Everything is decided on DataFusion's logical plans, from schemas alone. `check` shows what is found to people; the
//! layers use the same [`Lineage`] to recompute only what changed.

mod catalog;
mod check;
mod errors;
mod planning;
mod prove;
mod refuse;
mod rowmap;
mod types;
mod unique;

pub use catalog::{check_catalog, planned_schema};
pub(crate) use check::output_column;
pub use check::{Problem, analyse, check};
pub use errors::engine_error;
pub use planning::plan_select;
pub use prove::UnitMap;
pub use rowmap::RowMap;
pub use types::{storable_schema, storable_type, to_stored, to_stored_column};
pub use unique::RowsOfKey;

use arrow::datatypes::{Schema, SchemaRef};
use indexmap::IndexMap;
use std::sync::Arc;

/// Columns that a derived table's SQL never sees: they depend on arrival.
pub const HIDDEN: [&str; 2] = ["_batch_id", "_ingested_at"];

/// The ending that names the changed rows of an input in `touched`.
pub const CHANGED: &str = "_changed";

/// The input names of a derivation with what their SQL sees of them.
pub type Inputs = IndexMap<String, SchemaRef>;

/// What is known about a derived table before any data is read.
#[derive(Debug, Clone)]
pub struct Lineage {
    /// The columns that the transform gives, in stored types.
    pub output: SchemaRef,
    /// Whether each output row is made of one row of the one input.
    pub row_by_row: bool,
    /// The unit of incremental work.
    pub unit: Unit,
    /// How many rows can have one primary key, if nothing else sees to that.
    pub rows_of_key: RowsOfKey,
}

/// The unit of incremental work of a derived table.
#[derive(Debug, Clone)]
pub enum Unit {
    /// Output columns whose values are scalar expressions over one row of the one input. A row touches the units that
    /// any of the maps gives for it.
    Mapped {
        /// The unit columns.
        columns: Vec<String>,
        /// Maps from an input row to its unit; several when the input is read in several places.
        maps: Vec<UnitMap>,
    },
    /// Output columns whose touched values each input's SQL says.
    Touched {
        /// The unit columns.
        columns: Vec<String>,
        /// Input name -> SQL.
        queries: IndexMap<String, String>,
    },
    /// The whole table.
    Whole {
        /// Why there is no smaller unit.
        reason: String,
    },
}

impl Unit {
    /// The unit columns; none for the whole table.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        match self {
            Self::Mapped { columns, .. } | Self::Touched { columns, .. } => columns,
            Self::Whole { .. } => &[],
        }
    }
}

/// A table's schema as a derived table's SQL sees it: without the columns that depend on arrival.
#[must_use]
pub fn visible(schema: &Schema) -> SchemaRef {
    let fields: Vec<_> =
        schema.fields().iter().filter(|field| !HIDDEN.contains(&field.name().as_str())).cloned().collect();
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests;
