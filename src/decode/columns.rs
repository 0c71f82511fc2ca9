//! Which column of a file is which column of the contract. Matching is by name and per file: order means nothing.
//!
//! The exact name wins; else a name that differs only by case and blanks around it (no-break spaces included) is taken
//! when it is the only one. Two columns of one file that would be one name are refused: nothing says which is meant.

use std::collections::HashMap;

use super::Refusal;
use crate::schema::lineage::RESERVED;
use crate::schema::{Column, Contract, UnknownColumns};

/// Longest header that a message repeats, in characters.
const SHOWN_HEADER: usize = 300;

/// Where the contract's columns are in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matching {
    /// For each column of the contract its position in the file; none when the file has no such column.
    pub sources: Vec<Option<usize>>,
    /// Position and name of the columns that the contract does not name, in file order.
    pub unknown: Vec<(usize, String)>,
}

impl Matching {
    /// The names of the unknown columns.
    #[must_use]
    pub fn unknown_names(&self) -> Vec<String> {
        self.unknown.iter().map(|(_, name)| name.clone()).collect()
    }
}

/// A name as it is compared when no exact one is found: case folded, blanks and invisible characters around it dropped.
#[must_use]
pub fn fold(name: &str) -> String {
    trimmed(name).to_lowercase()
}

fn trimmed(name: &str) -> &str {
    // U+FEFF and U+200B are no white space to Unicode, but nobody types them.
    name.trim_matches(|character: char| character.is_whitespace() || matches!(character, '\u{feff}' | '\u{200b}'))
}

/// The names by which a source may call `column`, in order.
fn candidates(column: &Column) -> &[String] {
    if column.from.is_empty() { std::slice::from_ref(&column.name) } else { &column.from }
}

fn refusal(rule: &str, reason: String, column: Option<&str>) -> Refusal {
    Refusal { rule: rule.to_owned(), reason, line: None, byte_offset: None, column: column.map(str::to_owned) }
}

/// Matches the columns `names` of a file; `shown` is the header as it came, for messages.
///
/// # Errors
/// The file is refused when it has none of the contract's columns (`header_mismatch`), a name twice or two names that
/// differ only in case (`duplicate_column`), lacks a column that needs a value (`missing_column`), or has a column that
/// the contract refuses (`unknown_column`).
pub fn match_columns(contract: &Contract, names: &[String], shown: &str) -> Result<Matching, Refusal> {
    let mut exact: HashMap<&str, usize> = HashMap::with_capacity(names.len());
    let mut folded: HashMap<String, Vec<usize>> = HashMap::with_capacity(names.len());
    for (position, name) in names.iter().enumerate() {
        exact.entry(name.as_str()).or_insert(position);
        folded.entry(fold(name)).or_default().push(position);
    }
    let find = |column: &Column| {
        candidates(column).iter().find_map(|candidate| {
            let similar =
                || folded.get(&fold(candidate)).filter(|found| found.len() == 1).and_then(|found| found.first());
            exact.get(candidate.as_str()).or_else(similar).copied()
        })
    };
    let sources: Vec<Option<usize>> = contract.columns.iter().map(find).collect();
    let matched = sources.iter().flatten().count();
    let collides = folded.iter().any(|(name, found)| !name.is_empty() && found.len() > 1);
    if matched == 0 && !contract.columns.is_empty() && !collides {
        return Err(mismatch(contract, names, shown));
    }
    refuse_collisions(contract, names, &folded)?;
    refuse_missing(contract, &sources, shown)?;
    let unknown: Vec<(usize, String)> = (0..names.len())
        .filter(|position| !sources.contains(&Some(*position)))
        .map(|position| (position, unknown_name(&names[position], position)))
        .collect();
    refuse_unknown(contract, &unknown)?;
    Ok(Matching { sources, unknown })
}

/// The columns of a file without header: the contract's, in its order.
#[must_use]
pub fn by_position(contract: &Contract) -> Matching {
    Matching { sources: (0..contract.columns.len()).map(Some).collect(), unknown: Vec::new() }
}

fn unknown_name(name: &str, position: usize) -> String {
    match trimmed(name) {
        "" => format!("column_{}", position + 1),
        name => name.to_owned(),
    }
}

fn mismatch(contract: &Contract, names: &[String], shown: &str) -> Refusal {
    let expected = contract.columns.len();
    let mut header: String = shown.chars().take(SHOWN_HEADER).collect();
    if header.len() < shown.len() {
        header.push('…');
    }
    let mut reason = format!("0 of {expected} expected columns found in header `{header}`");
    if names.len() == 1 && expected > 1 {
        reason = format!("1 header column `{header}`, expected {expected}: {reason}; is the delimiter right?");
    }
    refusal("header_mismatch", reason, None)
}

/// Refuses names that are one when folded, unless the contract calls each of them by its exact name.
fn refuse_collisions(
    contract: &Contract,
    names: &[String],
    folded: &HashMap<String, Vec<usize>>,
) -> Result<(), Refusal> {
    let wanted =
        |name: &str| contract.columns.iter().any(|column| candidates(column).iter().any(|known| known == name));
    for (position, name) in names.iter().enumerate() {
        let fold_of_name = fold(name);
        let Some(found) = folded.get(&fold_of_name).filter(|found| found.len() > 1 && !fold_of_name.is_empty()) else {
            continue;
        };
        if let Some(other) = found.iter().find(|other| **other != position && names[**other] == *name) {
            let (first, second) = (position.min(*other) + 1, position.max(*other) + 1);
            let reason = format!("column {name} at positions {first} and {second}");
            return Err(refusal("duplicate_column", reason, Some(name)));
        }
        if !found.iter().all(|position| wanted(&names[*position])) {
            let all: Vec<String> =
                found.iter().map(|position| format!("`{}` at position {}", names[*position], position + 1)).collect();
            let reason = format!("columns {} differ only in case or blanks", all.join(" and "));
            return Err(refusal("duplicate_column", reason, Some(name)));
        }
    }
    Ok(())
}

fn refuse_missing(contract: &Contract, sources: &[Option<usize>], shown: &str) -> Result<(), Refusal> {
    for (column, source) in contract.columns.iter().zip(sources) {
        if source.is_some() || column.nullable || column.default.is_some() {
            continue;
        }
        let header: String = shown.chars().take(SHOWN_HEADER).collect();
        let known = match column.from.as_slice() {
            [] => String::new(),
            from => format!(" (read from {})", from.join(" or ")),
        };
        let reason = format!("required column {}{known} is not in header `{header}`", column.name);
        return Err(refusal("missing_column", reason, Some(&column.name)));
    }
    Ok(())
}

fn refuse_unknown(contract: &Contract, unknown: &[(usize, String)]) -> Result<(), Refusal> {
    match contract.unknown_columns {
        UnknownColumns::Reject if !unknown.is_empty() => {
            let names: Vec<&str> = unknown.iter().map(|(_, name)| name.as_str()).collect();
            let reason = format!("columns that the contract does not name: {}", names.join(", "));
            Err(refusal("unknown_column", reason, names.first().copied()))
        }
        UnknownColumns::Add => {
            for (_, name) in unknown {
                let same = |known: &str| fold(known) == fold(name);
                let declared = contract.columns.iter().map(|column| column.name.as_str()).find(|known| same(known));
                if let Some(known) = declared.or_else(|| RESERVED.into_iter().find(|known| same(known))) {
                    let reason = format!("column `{name}` cannot be added beside {known} of the table");
                    return Err(refusal("unknown_column", reason, Some(name)));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::csv::tests::contract;
    use crate::schema::ColumnType;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn columns(names: &[&str]) -> Contract {
        contract(names.iter().map(|name| Column::new(*name, ColumnType::String)).collect())
    }

    fn matched(contract: &Contract, names: &[&str]) -> Result<Matching, Refusal> {
        match_columns(contract, &strings(names), &names.join(","))
    }

    #[test]
    fn names_match_exactly_then_folded() {
        let ids = columns(&["id", "name"]);
        // CSV-10 F1, CSV-11
        assert_eq!(matched(&ids, &[" Id ", "NAME\u{a0}"]).unwrap().sources, [Some(0), Some(1)]);
        assert_eq!(matched(&ids, &["name", "id"]).unwrap().sources, [Some(1), Some(0)]);
        let both = columns(&["id", "ID"]);
        assert_eq!(matched(&both, &["ID", "id"]).unwrap().sources, [Some(1), Some(0)]);
        let extra = matched(&ids, &["id", "x", ""]).unwrap();
        assert_eq!(extra.sources, [Some(0), None]);
        assert_eq!(extra.unknown_names(), ["x", "column_3"]);
    }

    #[test]
    fn aliases_are_tried_in_order() {
        let mut aliased = columns(&["price", "qty"]);
        aliased.columns[0].from = strings(&["unit\nprice", "cost"]);
        // CSV-18
        assert_eq!(matched(&aliased, &["unit\nprice", "qty"]).unwrap().sources, [Some(0), Some(1)]);
        assert_eq!(matched(&aliased, &["qty", "Cost"]).unwrap().sources, [Some(1), Some(0)]);
        // The column's own name is no source name once others are declared.
        assert_eq!(matched(&aliased, &["qty", "price"]).unwrap().sources, [None, Some(0)]);
    }

    #[test]
    fn headers_that_cannot_be_meant_are_refused_by_name() {
        let mut strict = columns(&["id", "amt"]);
        strict.columns[0].nullable = false;
        for (names, rule, says) in [
            // CSV-12, CSV-09, CSV-10 F2, SCH-01 F4, CSV-17
            (vec!["1", "Ann"], "header_mismatch", "0 of 2 expected columns found in header `1,Ann`"),
            (vec!["id", "amt", "amt", "note"], "duplicate_column", "column amt at positions 2 and 3"),
            (vec!["id", "ID"], "duplicate_column", "`id` at position 1 and `ID` at position 2"),
            (vec!["amt"], "missing_column", "required column id is not in header `amt`"),
            (vec!["land;loc;cnt"], "header_mismatch", "1 header column `land;loc;cnt`, expected 2"),
        ] {
            let refusal = matched(&strict, &names).unwrap_err();
            assert_eq!(refusal.rule, rule, "{names:?}");
            assert!(refusal.reason.contains(says), "{names:?}: {}", refusal.reason);
        }
    }

    #[test]
    fn unknown_columns_follow_their_policy() {
        let mut adding = columns(&["id", "amount"]);
        adding.unknown_columns = UnknownColumns::Reject;
        let refusal = matched(&adding, &["id", "new"]).unwrap_err();
        assert_eq!((refusal.rule.as_str(), refusal.column.as_deref()), ("unknown_column", Some("new")));
        adding.unknown_columns = UnknownColumns::Add;
        assert_eq!(matched(&adding, &["id", "new"]).unwrap().unknown_names(), ["new"]);
        assert!(matched(&adding, &["id", "_row"]).is_err());
        // SCH-06: with another source name, `Amount` is no match and must not be added beside `amount`.
        adding.columns[1].from = strings(&["amt"]);
        assert!(matched(&adding, &["id", "Amount"]).is_err());
    }
}
