//! What a table is: the contract, its YAML form, and its Arrow schema.

pub mod model;

pub use model::*;
