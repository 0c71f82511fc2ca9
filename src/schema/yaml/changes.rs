//! `source_table`, `sequence_by`, `history`: a table of the newest row of each key, made from change events.

use super::super::diagnostic::At;
use super::super::model::{
    ChangeSource, ColumnType, Contract, DEFAULT_SEQUENCE, HistorySpec, OnFail, SEQUENCE_FIELDS, UNAVAILABLE_VALUE,
    UnknownColumns,
};
use super::super::node::{Node, Value};
use super::super::read::{self, Fields, Report, Words};
use super::super::suggest;
use super::checks::unknown_column;
use crate::name::TableName;

/// Columns that a history has beside its key and what it tracks.
const OF_HISTORIES: [&str; 4] = ["version", "valid_from", "valid_to", "is_current"];

/// Rules that are there without being declared.
const BUILT_IN: [&str; 2] = ["event_malformed", "value_unavailable"];

/// Reads where the changes come from; what is wrong or absent becomes a default.
pub(super) fn source(fields: &Fields<'_>, table: Option<&TableName>, report: &mut Report<'_>) -> Option<ChangeSource> {
    let from = fields.raw("from").and_then(|node| from(node, report));
    let source_table = fields.get("source_table").and_then(|node| source_table(node, report));
    if fields.lacks("source_table") {
        report.help(
            fields.key_at("from").unwrap_or(At::START),
            "a table of changes has no `source_table`",
            "name the table as its database does: `source_table: public.customers`",
        );
    }
    let mut sequence_by: Vec<String> = DEFAULT_SEQUENCE.map(str::to_owned).to_vec();
    if let Some(node) = fields.get("sequence_by") {
        sequence_by = sequence(node, report);
    }
    let history = fields.get("history").and_then(|node| history(node, report));
    if let (Some(history), Some(table)) = (&history, table) {
        let at = history_at(fields);
        if history.table == *table {
            report.help(at, format!("`{table}` cannot be its own history"), format!("write `table: {table}_history`"));
        } else if history.table.layer() != table.layer() {
            let beside = format!("{}/{}", table.layer(), history.table.table());
            report.help(
                at,
                format!("the history `{}` lies in another layer than `{table}`", history.table),
                format!("write `table: {beside}`"),
            );
        }
    }
    let unavailable_value = fields.get("unavailable_value").and_then(|node| unavailable(node, report));
    Some(ChangeSource {
        // What could not be read was told; the rest is read for its mistakes alone.
        from: from.or_else(|| "bronze/unnamed".parse().ok())?,
        source_table: source_table.unwrap_or_default(),
        sequence_by,
        history,
        unavailable_value: unavailable_value.unwrap_or_else(|| UNAVAILABLE_VALUE.to_owned()),
    })
}

fn from(node: &Node, report: &mut Report<'_>) -> Option<TableName> {
    if matches!(node.value, Value::Text(_)) {
        return super::table_name(node, report);
    }
    report.help(
        node.at,
        format!("expected one table of change events, found {}", node.kind()),
        "write `from: bronze/shop`",
    );
    None
}

fn source_table(node: &Node, report: &mut Report<'_>) -> Option<String> {
    const HELP: &str = "write <schema>.<table> as the database names them, such as `public.customers`";
    let name = read::text(node, "a table of the database", report)?;
    if name.trim().is_empty() || name != name.trim() || name.contains(['/', '*']) {
        report.help(node.at, format!("`{}` is no table of a database", read::visible(&name)), HELP);
    }
    Some(name)
}

fn sequence(node: &Node, report: &mut Report<'_>) -> Vec<String> {
    let mut known = Vec::new();
    for (index, item) in read::list(node, "a list of fields", report).into_iter().enumerate() {
        let Some(name) = read::text(item, "a field of the event", report) else { continue };
        if known.contains(&name) {
            report.error(item.at, format!("`{name}` occurs twice"));
        } else if SEQUENCE_FIELDS.contains(&name.as_str()) {
            known.push(name);
        } else {
            let help = SEQUENCE_FIELDS
                .into_iter()
                .find(|field| field.trim_start_matches("source.").eq_ignore_ascii_case(&name))
                .map(|field| format!("did you mean `{field}`?"))
                .unwrap_or_else(|| suggest::did_you_mean_or_list(&name, &SEQUENCE_FIELDS));
            report.help(item.at, format!("events have no field `{}` to order them by", read::visible(&name)), help);
        }
        if index == 0 && known.first().is_some_and(|first| first == "source.txId") {
            report.warn(
                item.at,
                "transactions are numbered when they begin: changes would be in another order than they were committed",
                "begin with `source.ts_ms` or `source.lsn`",
            );
        }
    }
    if matches!(&node.value, Value::List(items) if items.is_empty()) {
        report.help(
            node.at,
            "`sequence_by` is empty: nothing would say which change is newer",
            "write `[source.ts_ms, source.lsn]`",
        );
    }
    known
}

fn history(node: &Node, report: &mut Report<'_>) -> Option<HistorySpec> {
    const KNOWN: [&str; 2] = ["table", "track"];
    let fields = Fields::read(node, &Words { of: "`history`", known: &KNOWN }, report)?;
    for (key, example) in [("table", "table: silver/customers_history"), ("track", "track: [name, email]")] {
        if fields.lacks(key) {
            report.help(node.at, format!("`history` has no `{key}`"), format!("write `{example}`"));
        }
    }
    let track = fields.get("track").map(|node| read::names(node, "a list of columns", report));
    if let (Some([]), Some(node)) = (track.as_deref(), fields.get("track"))
        && matches!(&node.value, Value::List(items) if items.is_empty())
    {
        report.help(
            node.at,
            "`track` is empty: no change would open a version",
            "name the columns whose changes are kept",
        );
    }
    let table = fields.get("table").and_then(|node| super::table_name(node, report))?;
    Some(HistorySpec { table, track: track.unwrap_or_default() })
}

fn history_at(fields: &Fields<'_>) -> At {
    let node = fields.get("history");
    let entries = node.and_then(|node| match &node.value {
        Value::Map(entries) => Some(entries),
        _ => None,
    });
    let table = entries.and_then(|entries| entries.iter().find(|(key, _)| key.name == "table"));
    table.map(|(_, node)| node.at).or_else(|| node.map(|node| node.at)).unwrap_or(At::START)
}

fn unavailable(node: &Node, report: &mut Report<'_>) -> Option<String> {
    let text = read::text(node, "the placeholder's text", report)?;
    let hex = text.strip_prefix("hex:");
    let is_hex = |digits: &str| digits.len().is_multiple_of(2) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.is_empty() || hex.is_some_and(|digits| digits.is_empty() || !is_hex(digits)) {
        report.help(
            node.at,
            format!("`{}` can be no placeholder", read::visible(&text)),
            "the connector's `unavailable.value.placeholder`: a text, or `hex:` and pairs of hexadecimal digits",
        );
    }
    Some(text)
}

/// Reports what does not agree within a contract of changes.
pub(super) fn check(contract: &Contract, fields: &Fields<'_>, report: &mut Report<'_>) {
    let Some(source) = contract.changes() else { return };
    let place = |path: &str| contract.positions.nearest(path);
    let from = fields.key_at("from").unwrap_or(At::START);
    if contract.columns.is_empty() && fields.lacks("columns") {
        report.help(
            from,
            "a table of changes needs `columns`",
            "name the columns of the database's table that are wanted",
        );
    }
    if contract.primary_key.is_empty() && fields.lacks("primary_key") {
        report.help(from, "a table of changes needs a `primary_key`", "write `primary_key: [id]`");
    }
    for (index, name) in contract.primary_key.iter().enumerate() {
        let Some(column) = contract.column(name) else { continue };
        let inexact = matches!(column.data_type, ColumnType::Float32 | ColumnType::Float64);
        if column.data_type.is_nested() || inexact {
            let message = format!("`{name}` cannot be a key: its type is {}", column.data_type);
            report.error(place(&format!("primary_key[{index}]")), message);
        }
    }
    for (index, column) in contract.columns.iter().enumerate() {
        if column.name.starts_with('_') {
            report.help(
                place(&format!("columns[{index}].name")),
                format!("a column of a table of changes cannot be called `{}`", column.name),
                "names that begin with `_` are for what the event says of itself; give the database's name as `from`",
            );
        }
    }
    if contract.unknown_columns != UnknownColumns::Ignore {
        report.help(
            place("unknown_columns"),
            "a table of changes ignores columns that the contract does not name",
            "the events keep them: name the columns that are wanted, and the table is made anew with them",
        );
    }
    for (index, rule) in contract.rules.iter().enumerate() {
        if rule.on_fail == OnFail::Fail {
            report.help(
                place(&format!("rules[{index}].on_fail")),
                "`on_fail: fail` is for tables fed by files: there is no file to refuse",
                "`quarantine` keeps the event out, and the last good row stays",
            );
        }
        if BUILT_IN.contains(&rule.name.as_str()) {
            report.error(place(&format!("rules[{index}].name")), format!("`{}` is a rule that is built in", rule.name));
        }
    }
    if let Some(history) = &source.history {
        check_history(contract, history, report);
    }
}

fn check_history(contract: &Contract, history: &HistorySpec, report: &mut Report<'_>) {
    for (index, name) in history.track.iter().enumerate() {
        let path = format!("history.track[{index}]");
        if contract.primary_key.contains(name) {
            report.help(
                contract.positions.nearest(&path),
                format!("key column `{name}` is never tracked: another key is another row"),
                "leave it out: the history has the key's columns anyway",
            );
        } else if contract.column(name).is_none() && !contract.columns.is_empty() {
            unknown_column(contract, &path, name, &[], report);
        }
    }
    for name in contract.primary_key.iter().chain(&history.track) {
        if let Some(own) = OF_HISTORIES.iter().find(|own| own.eq_ignore_ascii_case(name)) {
            report.help(
                contract.positions.nearest("history.table"),
                format!("a history has a column `{own}` of its own, and `{name}` would be another"),
                "give the column another name, and the database's name as `from`",
            );
        }
    }
}
