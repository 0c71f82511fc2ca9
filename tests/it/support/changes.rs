//! The contract of a table that keeps the change events of a small shop.

pub use alluvium::selftest::changes::{Record, streams};

/// The contract of the table that keeps them.
pub const SHOP: &str = "
version: 1
table: bronze/shop
source: { format: debezium, path: \"shop/**/*.ndjson*\", topics: [\"lake.*\"], epoch: one }
";

/// The only table there is.
pub const ALL: &[(&str, &str)] = &[("bronze/shop", SHOP)];
