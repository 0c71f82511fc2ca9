//! The hash of a contract: of what it says, not of how it is written.

use serde_json::{Map, Value, json};

use super::model::{Body, Column, Contract, Derivation, Origin};
use crate::name::short_hash;

/// 32 hex digits over the parsed form with every default explicit. Comments, layout, the order of keys, descriptions and
/// the file's name do not count: none of them changes a row.
#[must_use]
pub fn of(contract: &Contract) -> String {
    short_hash(&["contract", "1", &canonical(contract).to_string()])
}

fn canonical(contract: &Contract) -> Value {
    let origin = match &contract.origin {
        Origin::Files(source) => json!({ "files": source }),
        Origin::Derived(derivation) => json!({ "derived": derived(derivation) }),
        Origin::Changes(source) => json!({ "changes": source }),
        Origin::History { of } => json!({ "history": of }),
    };
    let columns: Vec<Value> = contract.columns.iter().map(column).collect();
    sorted(json!({
        "table": contract.table,
        "origin": origin,
        "columns": columns,
        "write_mode": contract.write_mode,
        "primary_key": contract.primary_key,
        "partition_by": contract.partition_by,
        "sequence_by": contract.sequence_by,
        "on_overwrite": contract.on_overwrite,
        "unknown_columns": contract.unknown_columns,
        "rules": contract.rules,
        "max_quarantine": contract.max_quarantine,
        "properties": contract.properties,
    }))
}

fn column(column: &Column) -> Value {
    let mut value = json!(column);
    if let Value::Object(fields) = &mut value {
        fields.remove("description");
    }
    value
}

fn derived(derivation: &Derivation) -> Value {
    let body = match &derivation.body {
        Body::Sql(sql) => json!({ "sql": sql }),
        Body::Named { name, args } => json!({ "transform": name, "args": args }),
    };
    let inputs: Map<String, Value> =
        derivation.inputs.iter().map(|(name, table)| (name.clone(), json!(table))).collect();
    let touched: Map<String, Value> = derivation.touched.iter().map(|(name, sql)| (name.clone(), json!(sql))).collect();
    json!({
        "inputs": inputs,
        "body": body,
        "keep": derivation.keep,
        "order_by": derivation.order_by,
        "recompute_by": derivation.recompute_by,
        "touched": touched,
    })
}

// Keys in order, so that neither a crate's feature nor the contract's layout shows in the text.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut entries: Vec<(String, Value)> = fields.into_iter().collect();
            entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(entries.into_iter().map(|(key, value)| (key, sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        scalar => scalar,
    }
}
