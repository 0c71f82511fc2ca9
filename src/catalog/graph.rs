//! Who feeds whom: unknown sources, circles, and the order in which tables are worked.

use std::collections::{BTreeMap, HashSet};

use crate::name::TableName;
use crate::schema::{Contract, Diagnostic, suggest};

/// The contracts with sources before what is derived from them, else by name. Adds unknown sources and circles to `found`.
pub(super) fn order(contracts: Vec<Contract>, names: &[TableName], found: &mut Vec<Diagnostic>) -> Vec<Contract> {
    let mut by_name: BTreeMap<TableName, Contract> =
        contracts.into_iter().map(|contract| (contract.table.clone(), contract)).collect();
    for contract in by_name.values() {
        unknown_sources(contract, names, found);
    }
    sources_without_events(&by_name, found);
    let mut walk = Walk { contracts: &by_name, done: HashSet::new(), path: Vec::new(), order: Vec::new(), found };
    for name in by_name.keys() {
        walk.visit(name);
    }
    let order = walk.order;
    order.iter().filter_map(|name| by_name.remove(name)).collect()
}

fn unknown_sources(contract: &Contract, names: &[TableName], found: &mut Vec<Diagnostic>) {
    // A history has no file of its own: what it is derived from is there, or was told of that.
    if contract.history_of().is_some() {
        return;
    }
    let inputs = contract.derivation().into_iter().flat_map(|derivation| &derivation.inputs);
    let inputs = inputs.map(|(input, table)| (format!("from.{input}"), table));
    let changes = contract.changes().map(|source| ("from".to_owned(), &source.from));
    let known: Vec<String> = names.iter().filter(|name| **name != contract.table).map(ToString::to_string).collect();
    for (path, table) in inputs.chain(changes).filter(|(_, table)| !names.contains(table)) {
        let path = if contract.positions.at(&path).is_some() { path.as_str() } else { "from" };
        let wanted = table.to_string();
        // The right name in the wrong layer is the likeliest slip.
        let same_table = known.iter().find(|name| name.split('/').nth(1) == Some(table.table())).map(String::as_str);
        let help = suggest::nearest(&wanted, known.iter().map(String::as_str))
            .or(same_table)
            .map(|name| format!("did you mean `{name}`?"))
            .unwrap_or_else(|| format!("no contract declares it; add schemas/{wanted}.yaml"));
        found.push(contract.diagnose(path, format!("unknown table `{table}`")).help(help));
    }
}

// Changes are read from what keeps events, and from nothing else.
fn sources_without_events(by_name: &BTreeMap<TableName, Contract>, found: &mut Vec<Diagnostic>) {
    let of_events: Vec<&TableName> =
        by_name.values().filter(|contract| contract.events().is_some()).map(|contract| &contract.table).collect();
    for contract in by_name.values() {
        let Some(source) = contract.changes() else { continue };
        let keeps_none = by_name.get(&source.from).is_some_and(|from| from.events().is_none());
        if !keeps_none || source.from == contract.table {
            continue;
        }
        let names: Vec<String> = of_events.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let help = match names.as_slice() {
            [] => "a table of change events has `source: { format: debezium, ... }`".to_owned(),
            names => suggest::did_you_mean_or_list(&source.from.to_string(), names),
        };
        found.push(contract.diagnose("from", format!("`{}` keeps no change events", source.from)).help(help));
    }
}

struct Walk<'a> {
    contracts: &'a BTreeMap<TableName, Contract>,
    done: HashSet<&'a TableName>,
    path: Vec<&'a TableName>,
    order: Vec<TableName>,
    found: &'a mut Vec<Diagnostic>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, name: &'a TableName) {
        if self.done.contains(name) {
            return;
        }
        if let Some(start) = self.path.iter().position(|other| *other == name) {
            self.report_circle(start);
            return;
        }
        let Some(contract) = self.contracts.get(name) else { return };
        self.path.push(name);
        for source in contract.sources() {
            self.visit(source);
        }
        self.path.pop();
        if self.done.insert(name) {
            self.order.push(name.clone());
        }
    }

    // `path[start..]` read each other in turn. Told once, at the first of them by name.
    fn report_circle(&mut self, start: usize) {
        let circle = &self.path[start..];
        let Some(first) = circle.iter().enumerate().min_by_key(|(_, name)| **name).map(|(index, _)| index) else {
            return;
        };
        let turned: Vec<String> =
            circle[first..].iter().chain(&circle[..=first]).map(|name| format!("`{name}`")).collect();
        let Some(contract) = self.contracts.get(circle[first]) else { return };
        let (message, help) = if circle.len() == 1 {
            (format!("{} reads itself", turned[0]), "read another table")
        } else {
            let told = format!("tables read each other in a circle: {}", turned.join(" reads "));
            (told, "derive one of them from a table that comes earlier")
        };
        self.found.push(contract.diagnose("from", message).help(help));
    }
}
