//! `from`, `sql`, `transform` and how a derived table is kept up to date.

use indexmap::IndexMap;

use super::super::model::{Body, Derivation, Keep};
use super::super::node::{Node, Value};
use super::super::read::{self, Fields, Report};
use crate::name::TableName;

/// Reads everything that makes a table derived; what is wrong or absent becomes a default.
pub(super) fn derivation(fields: &Fields<'_>, report: &mut Report<'_>) -> Derivation {
    let mut derivation = super::empty_derivation();
    if let Some(node) = fields.raw("from") {
        derivation.inputs = inputs(node, report);
    }
    derivation.body = body(fields, report);
    derivation.keep = fields
        .get("keep")
        .and_then(|node| read::word(node, "keep", &[("first", Keep::First), ("last", Keep::Last)], report));
    if let Some(node) = fields.get("order_by") {
        derivation.order_by = read::names(node, "a list of columns", report);
    }
    if let Some(node) = fields.get("recompute_by") {
        derivation.recompute_by = read::names(node, "a list of columns", report);
    }
    if let Some(node) = fields.get("touched") {
        derivation.touched = touched(node, report);
    }
    derivation
}

fn inputs(node: &Node, report: &mut Report<'_>) -> IndexMap<String, TableName> {
    let mut inputs = IndexMap::new();
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                let name = key.name.as_str();
                if !is_input_name(name) {
                    report.help(
                        key.at,
                        format!("`{name}` is no name for an input"),
                        "lower-case letters, digits and _ only, beginning with a letter, not ending in `_changed`",
                    );
                }
                let Some(table) = super::table_name(value, report) else { continue };
                if inputs.insert(name.to_owned(), table).is_some() {
                    report.error(key.at, format!("input `{name}` occurs twice"));
                }
            }
        }
        Value::Text(_) => {
            if let Some(table) = super::table_name(node, report) {
                inputs.insert("input".to_owned(), table);
            }
        }
        _ => report.help(
            node.at,
            format!("expected a table or a mapping of names to tables, found {}", node.kind()),
            "write `from: raw/trips`, or `from: { orders: raw/orders, items: raw/order_items }`",
        ),
    }
    inputs
}

// The SQL's names: `<input>_changed` is what a change of an input is called there.
fn is_input_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.ends_with("_changed")
}

fn body(fields: &Fields<'_>, report: &mut Report<'_>) -> Body {
    match (fields.get("sql"), fields.get("transform")) {
        (Some(_), Some(transform)) => {
            report.error(transform.at, "a table has `sql` or `transform`, not both");
        }
        (Some(sql), None) => {
            let text = read::text(sql, "a SQL query", report).unwrap_or_default();
            return Body::Sql(text.trim().to_owned());
        }
        (None, Some(transform)) => {
            if let Some(body) = named(transform, report) {
                return body;
            }
        }
        (None, None) => {
            // Without `from` it was already said that the origin is not known.
            if let Some(at) = fields.key_at("from").filter(|_| fields.lacks("sql") && fields.lacks("transform")) {
                report.help(
                    at,
                    "a table with `from` has neither `sql` nor `transform`",
                    "write `sql: select * from input`, or `source_table: <schema>.<table>` for changes of a database's table",
                );
            }
        }
    }
    Body::Sql(String::new())
}

fn named(node: &Node, report: &mut Report<'_>) -> Option<Body> {
    let no_arguments = || serde_json::Value::Object(serde_json::Map::new());
    match &node.value {
        Value::Text(name) if !name.trim().is_empty() => {
            Some(Body::Named { name: name.trim().to_owned(), args: no_arguments() })
        }
        Value::Map(entries) => {
            let Some((_, name)) = entries.iter().find(|(key, _)| key.name == "name") else {
                report.help(
                    node.at,
                    "`transform` has no `name`",
                    "write `transform: { name: <transform>, <argument>: ... }`",
                );
                return None;
            };
            let name = read::text(name, "the transform's name", report)?;
            let mut args = serde_json::Map::new();
            for (key, value) in entries.iter().filter(|(key, _)| key.name != "name") {
                if args.insert(key.name.clone(), value.to_json()).is_some() {
                    report.error(key.at, format!("argument `{}` occurs twice", key.name));
                }
            }
            Some(Body::Named { name, args: serde_json::Value::Object(args) })
        }
        _ => {
            report.expected(node, "a transform's name, or a mapping of its name and arguments");
            None
        }
    }
}

fn touched(node: &Node, report: &mut Report<'_>) -> IndexMap<String, String> {
    let mut touched = IndexMap::new();
    let Value::Map(entries) = &node.value else {
        report.expected(node, "a mapping of inputs to SQL queries");
        return touched;
    };
    for (key, value) in entries {
        let Some(sql) = read::text(value, "a SQL query", report) else { continue };
        if touched.insert(key.name.clone(), sql.trim().to_owned()).is_some() {
            report.error(key.at, format!("input `{}` occurs twice in `touched`", key.name));
        }
    }
    touched
}
