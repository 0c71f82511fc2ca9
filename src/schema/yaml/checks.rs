//! What must agree within one contract.

use super::super::diagnostic::At;
use super::super::lineage;
use super::super::model::{Contract, FILE_VERSION, OnOverwrite, Origin, WriteMode};
use super::super::node::{Key, Node};
use super::super::read::{Fields, Report};
use super::super::suggest;
use super::changes;

// Properties that readers and writers of Delta know and that leave the table readable by everybody.
const PROPERTIES: [&str; 14] = [
    "delta.appendOnly",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.randomizeFilePrefixes",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
];

/// Reports a property that must not be set.
pub(super) fn property(key: &Key, value: &Node, report: &mut Report<'_>) {
    let name = key.name.as_str();
    let reason = match name {
        "delta.setTransactionRetentionDuration" => Some("files would be loaded twice once their marks have expired"),
        "delta.enableExpiredLogCleanup" => Some("the log is cleaned up by maintenance, behind the slowest reader"),
        "delta.enableDeletionVectors"
        | "delta.columnMapping.mode"
        | "delta.enableChangeDataFeed"
        | "delta.enableRowTracking"
        | "delta.enableInCommitTimestamps"
        | "delta.checkpointPolicy"
        | "delta.minReaderVersion"
        | "delta.minWriterVersion" => Some("tables stay readable and writable by every Delta engine as they are"),
        _ if name.starts_with("delta.feature.") => {
            Some("tables stay readable and writable by every Delta engine as they are")
        }
        _ if name.starts_with("delta.constraints.") => Some("conditions on rows are `rules`"),
        _ if name.starts_with("alluvium.") => Some("names with `alluvium.` are kept by this program"),
        _ => None,
    };
    if let Some(reason) = reason {
        report.help(key.at, format!("property `{name}` cannot be set"), reason);
    } else if name.starts_with("delta.") && !PROPERTIES.contains(&name) {
        let help = suggest::did_you_mean(name, PROPERTIES)
            .unwrap_or_else(|| "names of your own need another prefix".to_owned());
        report.help(key.at, format!("unknown Delta property `{name}`"), help);
    } else if name == "delta.appendOnly" && value.scalar() == Some("true") {
        report.warn(
            key.at,
            "an append-only table cannot replace rows: new versions of files and recomputed rows are refused",
            "leave it out unless files never change (`on_overwrite: append` or `ignore`)",
        );
    }
}

/// Reports everything that needs more than one key of the contract.
pub(super) fn check(contract: &Contract, fields: &Fields<'_>, report: &mut Report<'_>) {
    let place = |path: &str| contract.positions.nearest(path);
    match &contract.origin {
        Origin::Files(_) => files(contract, fields, report),
        Origin::Derived(_) => derived(contract, fields, report),
        Origin::Changes(_) => changes::check(contract, fields, report),
        Origin::History { .. } => {}
    }
    covers(contract, report);
    let table_at = fields.key_at("table").unwrap_or(At::START);
    if contract.write_mode == WriteMode::Upsert && contract.primary_key.is_empty() {
        let at = fields.get("write_mode").map_or(table_at, |node| node.at);
        report.help(at, "`write_mode: upsert` needs a `primary_key`", "write `primary_key: [<column>]`");
    }
    columns_exist(contract, report);
    for (index, name) in contract.partition_by.iter().enumerate() {
        let Some(column) = contract.column(name).filter(|column| !column.data_type.can_partition()) else { continue };
        report.help(
            place(&format!("partition_by[{index}]")),
            format!("a table cannot be partitioned by `{name}`: its type is {}", column.data_type),
            "partition by a date, a number or a short text",
        );
    }
    if contract.derivation().is_some()
        && !contract.columns.is_empty()
        && contract.columns.iter().all(|column| contract.partition_by.contains(&column.name))
    {
        report
            .error(place("partition_by"), "all columns are partition columns: at least one must be left for the files");
    }
}

fn files(contract: &Contract, fields: &Fields<'_>, report: &mut Report<'_>) {
    if contract.events().is_some() {
        return;
    }
    let place = |path: &str| contract.positions.nearest(path);
    if contract.columns.is_empty() && fields.lacks("columns") && fields.key_at("source").is_some() {
        report.help(
            fields.key_at("source").unwrap_or(At::START),
            "a table fed by files needs `columns`",
            "`alluvium infer FILE` writes them from a file",
        );
    } else if contract.columns.is_empty() && fields.get("columns").is_some() && report.found.is_empty() {
        report.error(place("columns"), "`columns` is empty");
    }
    let upserts = contract.write_mode == WriteMode::Upsert;
    if !upserts && !contract.sequence_by.is_empty() {
        report.warn(
            place("sequence_by"),
            "`sequence_by` decides nothing here: every row is kept",
            "it is for `write_mode: upsert`",
        );
    }
    if upserts && contract.on_overwrite == OnOverwrite::Replace {
        let at = if fields.get("on_overwrite").is_some() { place("on_overwrite") } else { place("write_mode") };
        report.warn(
            at,
            "a new version of a file updates its keys; rows that it no longer holds stay in the table",
            "derive a table with `keep: last` from an append table if vanished rows must go",
        );
    }
    for (index, name) in contract.primary_key.iter().enumerate().filter(|_| upserts) {
        let Some(column) = contract.column(name) else { continue };
        let at = place(&format!("primary_key[{index}]"));
        if column.data_type.is_nested() {
            report.error(at, format!("`{name}` cannot be a key: its type is {}", column.data_type));
        } else if column.nullable {
            report.warn(
                at,
                format!("key column `{name}` may be null: all rows with null there are one key"),
                "add `nullable: false` to the column",
            );
        }
    }
}

// Columns for whose faults a rule speaks.
fn covers(contract: &Contract, report: &mut Report<'_>) {
    for (rule_index, rule) in contract.rules.iter().enumerate() {
        for (index, name) in rule.covers.iter().enumerate() {
            if contract.column(name).is_none() {
                unknown_column(contract, &format!("rules[{rule_index}].covers[{index}]"), name, &[], report);
            }
        }
    }
}

fn derived(contract: &Contract, fields: &Fields<'_>, report: &mut Report<'_>) {
    let Some(derivation) = contract.derivation() else { return };
    let place = |path: &str| contract.positions.nearest(path);
    if let Some(at) = fields.get("keep").map(|node| node.at) {
        for (key, missing) in
            [("primary_key", contract.primary_key.is_empty()), ("order_by", derivation.order_by.is_empty())]
        {
            if missing {
                report.help(
                    at,
                    format!("`keep` needs `{key}`"),
                    "`keep` takes one row per `primary_key`, the first or last by `order_by`",
                );
            }
        }
    } else if let Some(at) = fields.key_at("order_by") {
        report.help(at, "`order_by` decides nothing without `keep`", "write `keep: first` or `keep: last`");
    }
    let names: Vec<&str> = derivation.inputs.keys().map(String::as_str).collect();
    for input in derivation.touched.keys() {
        if !derivation.inputs.contains_key(input) && !names.is_empty() {
            let help = suggest::did_you_mean_or_list(input, &names);
            report.help(place(&format!("touched.{input}")), format!("`{input}` is no input of this table"), help);
        }
    }
    if let Some(at) = fields.key_at("touched") {
        if derivation.recompute_by.is_empty() && fields.get("recompute_by").is_none() {
            report.help(
                at,
                "`touched` needs `recompute_by`",
                "`recompute_by` names the columns that a query of `touched` gives",
            );
        }
        let missing = names.iter().find(|name| !derivation.touched.contains_key(**name));
        if let Some(missing) = missing.filter(|_| !derivation.touched.is_empty()) {
            report.warn(
                at,
                format!("`touched` does not speak for input `{missing}`: any change recomputes the whole table"),
                format!("add a query for `{missing}`"),
            );
        }
    } else if derivation.inputs.len() > 1 && !derivation.recompute_by.is_empty() {
        report.warn(
            place("recompute_by"),
            "with several inputs and no `touched`, any change recomputes the whole table",
            "add `touched` with one query per input",
        );
    }
}

// Names of columns in keys of the table. A derived table may leave its columns to the SQL.
fn columns_exist(contract: &Contract, report: &mut Report<'_>) {
    if contract.columns.is_empty() {
        return;
    }
    let empty = Vec::new();
    let derivation = contract.derivation();
    let sequence: &[&str] = &[lineage::FILE, FILE_VERSION, lineage::ROW];
    if contract.column(FILE_VERSION).is_none()
        && let Some(at) = contract.sequence_by.iter().position(|name| name == FILE_VERSION)
        && let Some(behind) = contract.sequence_by[at + 1..].iter().position(|name| !sequence.contains(&name.as_str()))
    {
        let place = contract.positions.nearest(&format!("sequence_by[{}]", at + 1 + behind));
        let help = "put it before `version`: rows of one version of a file are told apart by `_row` alone";
        report.add(place, "nothing but `_file` and `_row` can stand behind `version`", Some(help.to_owned()));
    }
    if contract.column(FILE_VERSION).is_none()
        && let Some(at) = contract.sequence_by.iter().position(|name| name == FILE_VERSION)
        && !contract.sequence_by[..at].iter().any(|name| name == lineage::FILE)
    {
        let place = contract.positions.nearest(&format!("sequence_by[{at}]"));
        let help = "put `_file` before it".to_owned();
        report.add(
            place,
            "`version` counts the versions of one file, and orders no rows of different files",
            Some(help),
        );
    }
    for (key, names, beyond) in [
        ("primary_key", &contract.primary_key, &[][..]),
        ("partition_by", &contract.partition_by, &[][..]),
        ("sequence_by", &contract.sequence_by, sequence),
        ("order_by", derivation.map_or(&empty, |derivation| &derivation.order_by), &[][..]),
        ("recompute_by", derivation.map_or(&empty, |derivation| &derivation.recompute_by), &[][..]),
    ] {
        for (index, name) in names.iter().enumerate() {
            if contract.column(name).is_none() && !beyond.contains(&name.as_str()) {
                unknown_column(contract, &format!("{key}[{index}]"), name, beyond, report);
            }
        }
    }
}

/// Reports a name that is no column.
pub(super) fn unknown_column(contract: &Contract, path: &str, name: &str, beyond: &[&str], report: &mut Report<'_>) {
    let known: Vec<&str> =
        contract.columns.iter().map(|column| column.name.as_str()).chain(beyond.iter().copied()).collect();
    let help = suggest::did_you_mean(name, known.iter().copied())
        .or_else(|| (known.len() <= 12).then(|| format!("columns are {}", known.join(", "))));
    report.add(contract.positions.nearest(path), format!("unknown column `{name}`"), help);
}
