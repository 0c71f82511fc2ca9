//! Histories: tables that no file declares. Each is kept beside a table of changes, whose contract says what it tracks.

use crate::name::{TableName, short_hash};
use crate::schema::{
    ChangeSource, Column, ColumnType, Contract, Diagnostic, HistorySpec, OnOverwrite, Origin, UnknownColumns, WriteMode,
};

/// Adds the contract of every history, and what is wrong with its name.
pub(super) fn add(contracts: &mut Vec<Contract>, names: &mut Vec<TableName>, found: &mut Vec<Diagnostic>) {
    let mut made: Vec<Contract> = Vec::new();
    for contract in contracts.iter() {
        let Some(source) = contract.changes() else { continue };
        let Some(history) = &source.history else { continue };
        if history.table == contract.table {
            continue;
        }
        if names.contains(&history.table) {
            let twin = made.iter().find(|other| other.table == history.table).and_then(Contract::history_of);
            let (message, help) = match twin {
                Some(other) => (
                    format!("`{}` is the history of `{other}` already", history.table),
                    "each history is a table of its own",
                ),
                None => (
                    format!("`{}` has a contract of its own", history.table),
                    "give the history another name: its columns follow from this contract",
                ),
            };
            found.push(contract.diagnose("history.table", message).help(help));
            continue;
        }
        names.push(history.table.clone());
        made.push(history_of(contract, source, history));
    }
    contracts.extend(made);
}

/// The contract of a history: the key, a version, what is tracked, and from when to when.
fn history_of(contract: &Contract, source: &ChangeSource, history: &HistorySpec) -> Contract {
    let mut columns: Vec<Column> = Vec::new();
    let required = |name: &str, data_type: ColumnType| Column { nullable: false, ..Column::new(name, data_type) };
    for name in &contract.primary_key {
        columns.extend(contract.column(name).map(|column| required(name, column.data_type.clone())));
    }
    columns.push(required("version", ColumnType::Int64));
    for column in history.track.iter().filter_map(|name| contract.column(name)) {
        columns.push(Column { nullable: column.nullable, ..Column::new(&column.name, column.data_type.clone()) });
    }
    let is_time = source.sequence_by.first().is_some_and(|field| field == "source.ts_ms");
    let point = if is_time { ColumnType::Timestamp } else { ColumnType::Int64 };
    columns.push(required("valid_from", point.clone()));
    columns.push(Column::new("valid_to", point));
    columns.push(required("is_current", ColumnType::Boolean));
    columns.extend(source.sequence_columns().iter().skip(1).map(|name| required(name, ColumnType::Int64)));
    let version = std::iter::once("version".to_owned());
    Contract {
        table: history.table.clone(),
        description: Some(format!("history of {}", contract.table)),
        origin: Origin::History { of: contract.table.clone() },
        columns,
        write_mode: WriteMode::Append,
        primary_key: contract.primary_key.iter().cloned().chain(version).collect(),
        partition_by: Vec::new(),
        sequence_by: Vec::new(),
        on_overwrite: OnOverwrite::Replace,
        unknown_columns: UnknownColumns::Ignore,
        rules: Vec::new(),
        max_quarantine: None,
        properties: contract.properties.clone(),
        // A history is made anew whenever the table beside it is.
        hash: short_hash(&["history", &contract.hash]),
        file: contract.file.clone(),
        positions: contract.positions.clone(),
    }
}
