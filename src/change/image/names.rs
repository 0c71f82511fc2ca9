//! The columns of a contract among the members of a row: by the names that the database gives them, exactly.

use hashbrown::HashMap;

use super::scan::{Span, members, value_end};
use crate::schema::Contract;

/// The names of all columns.
#[derive(Debug)]
pub(super) struct Names {
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    /// For each column the places of its names, in the order in which they are tried.
    of_column: Vec<Vec<usize>>,
}

/// The values of one row, by name; kept from row to row.
#[derive(Debug, Default)]
pub(super) struct Values {
    found: Vec<Option<Span>>,
    /// Where the row begins that was read last.
    pub(super) at: Option<usize>,
    /// A name that is there twice.
    pub(super) twice: Option<usize>,
}

impl Names {
    /// The names of some columns of a contract, in the order in which they are asked for.
    pub(super) fn new(contract: &Contract, columns: impl Iterator<Item = usize>) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut by_name: HashMap<String, usize> = HashMap::new();
        let mut of_column = Vec::new();
        for column in columns.map(|index| &contract.columns[index]) {
            let own = std::slice::from_ref(&column.name);
            let tried = if column.from.is_empty() { own } else { column.from.as_slice() };
            let places = tried.iter().map(|name| {
                *by_name.entry(name.clone()).or_insert_with(|| {
                    names.push(name.clone());
                    names.len() - 1
                })
            });
            of_column.push(places.collect());
        }
        Self { names, by_name, of_column }
    }

    /// The name at a place.
    pub(super) fn name(&self, place: usize) -> &str {
        &self.names[place]
    }

    /// Reads the row that begins at `at`; gives the place behind it.
    pub(super) fn read(&self, text: &str, at: usize, values: &mut Values) -> Option<usize> {
        values.found.clear();
        values.found.resize(self.names.len(), None);
        values.at = Some(at);
        values.twice = None;
        // Rows of one table mostly have their columns in the contract's order.
        let mut next = 0;
        members(text, at, |name, start| {
            let end = value_end(text.as_bytes(), start)?;
            let place = match self.names.get(next) {
                Some(expected) if expected == name => Some(next),
                _ => self.by_name.get(name).copied(),
            };
            if let Some(place) = place {
                next = place + 1;
                if values.found[place].replace(Span { start, end }).is_some() {
                    values.twice = Some(place);
                }
            }
            Some(end)
        })
    }

    /// The text of a column: that of the first of its names which the row has. Null is text, too.
    #[inline]
    pub(super) fn text<'a>(&self, values: &Values, column: usize, text: &'a str) -> Option<&'a str> {
        let span = match self.of_column[column].as_slice() {
            [only] => values.found[*only],
            names => names.iter().find_map(|name| values.found[*name]),
        };
        span?.of(text)
    }

    /// Which of its names a column has in the row, else the first.
    pub(super) fn used(&self, values: &Values, column: usize) -> &str {
        let names = &self.of_column[column];
        let used = names.iter().find(|name| values.found[**name].is_some()).or_else(|| names.first());
        used.map_or("", |name| self.name(*name))
    }
}
