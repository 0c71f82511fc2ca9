//! Which key of an object belongs to which column: exact names, names that differ in case or outer blanks only, paths.

use std::collections::HashMap;

use crate::decode::columns::fold;
use crate::schema::Column;

/// Keys that columns ask for, as a tree: the root's children are the keys of a record.
#[derive(Debug)]
pub(in crate::decode) struct Names {
    nodes: Vec<Node>,
    /// For each column its slots, in the order in which they are tried.
    columns: Vec<Vec<usize>>,
    slots: usize,
}

/// The root.
pub(in crate::decode) const ROOT: usize = 0;

#[derive(Debug, Default)]
struct Node {
    exact: HashMap<String, usize>,
    /// None where two names fold alike.
    folded: HashMap<String, Option<usize>>,
    slot: Option<usize>,
}

impl Names {
    /// The names that `columns` declare.
    pub(in crate::decode) fn new(columns: &[Column]) -> Self {
        let mut names = Self { nodes: vec![Node::default()], columns: Vec::new(), slots: 0 };
        for column in columns {
            let mut slots = Vec::new();
            if column.from.is_empty() {
                slots.push(names.slot(&[&column.name]));
            }
            for from in &column.from {
                slots.push(names.slot(&[from]));
                let path = from.strip_prefix("$.").unwrap_or(from);
                let steps: Vec<&str> = path.split('.').collect();
                if steps.len() > 1 || path != from {
                    slots.push(names.slot(&steps));
                }
            }
            names.columns.push(slots);
        }
        names
    }

    fn slot(&mut self, path: &[&str]) -> usize {
        let mut at = ROOT;
        for step in path {
            at = match self.nodes[at].exact.get(*step) {
                Some(child) => *child,
                None => self.grow(at, step),
            };
        }
        if let Some(slot) = self.nodes[at].slot {
            return slot;
        }
        let slot = self.slots;
        self.nodes[at].slot = Some(slot);
        self.slots += 1;
        slot
    }

    fn grow(&mut self, parent: usize, step: &str) -> usize {
        let child = self.nodes.len();
        self.nodes.push(Node::default());
        let parent = &mut self.nodes[parent];
        parent.exact.insert(step.to_owned(), child);
        parent.folded.entry(fold(step)).and_modify(|known| *known = None).or_insert(Some(child));
        child
    }

    /// The child of `parent` that `key` names: exactly, else folded when that is unique.
    pub(in crate::decode) fn find(&self, parent: usize, key: &str) -> Option<usize> {
        let node = &self.nodes[parent];
        if let Some(child) = node.exact.get(key) {
            return Some(*child);
        }
        if node.exact.is_empty() {
            return None;
        }
        node.folded.get(&fold(key)).copied().flatten()
    }

    /// Where the value of a node goes.
    pub(in crate::decode) fn slot_of(&self, node: usize) -> Option<usize> {
        self.nodes[node].slot
    }

    /// Whether columns ask for something below a node.
    pub(in crate::decode) fn has_children(&self, node: usize) -> bool {
        !self.nodes[node].exact.is_empty()
    }

    /// All slots below a node.
    pub(in crate::decode) fn slots_below(&self, node: usize, out: &mut Vec<usize>) {
        for child in self.nodes[node].exact.values() {
            out.extend(self.nodes[*child].slot);
            self.slots_below(*child, out);
        }
    }

    /// The slots of a column, in the order in which they are tried.
    pub(in crate::decode) fn of_column(&self, column: usize) -> &[usize] {
        &self.columns[column]
    }

    /// How many slots there are.
    pub(in crate::decode) fn slots(&self) -> usize {
        self.slots
    }

    /// How many nodes there are.
    pub(in crate::decode) fn nodes(&self) -> usize {
        self.nodes.len()
    }
}
