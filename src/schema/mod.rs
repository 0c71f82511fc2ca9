//! What a table is: the contract, its YAML form, and its Arrow schema.

pub mod arrow;
pub mod diagnostic;
pub mod glob;
pub mod hash;
pub mod lineage;
pub mod model;
mod node;
mod read;
pub mod suggest;
pub mod types;
pub mod yaml;

pub use arrow::{declared_schema, ingested_schema};
pub use diagnostic::{At, Diagnostic, Positions};
pub use model::*;
