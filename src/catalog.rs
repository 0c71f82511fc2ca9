//! All contracts together: who feeds whom, which file belongs to which tables.

mod graph;
mod history;
mod load;
mod sql;

use std::path::Path;
use std::sync::Arc;

use globset::{GlobSet, GlobSetBuilder};

pub use crate::schema::Diagnostic;

use crate::name::TableName;
use crate::schema::{Contract, glob};

/// Every table that is declared.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tables: Vec<Arc<Contract>>,
    warnings: Vec<Diagnostic>,
    paths: Paths,
    topics: Topics,
}

/// What a table does with a landed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It takes the file.
    Take,
    /// It declares the file ignored (a glob of `source.ignore` matches).
    Ignore,
}

// All topics of all tables of change events, matched at once.
#[derive(Debug, Clone, Default)]
struct Topics {
    globs: GlobSet,
    // For each pattern, the table (by its place in `tables`).
    owners: Vec<usize>,
}

impl Topics {
    fn of(tables: &[Arc<Contract>]) -> Self {
        let mut builder = GlobSetBuilder::new();
        let mut owners = Vec::new();
        for (index, contract) in tables.iter().enumerate() {
            for pattern in contract.events().iter().flat_map(|source| &source.topics) {
                // The reader of the contract took nothing but names with `*`.
                if let Ok(compiled) = glob::compile_topic(pattern) {
                    builder.add(compiled);
                    owners.push(index);
                }
            }
        }
        match builder.build() {
            Ok(globs) => Self { globs, owners },
            Err(error) => {
                tracing::error!(%error, "the topics of the contracts do not fit together: no record will be taken");
                Self::default()
            }
        }
    }
}

// All globs of all tables, matched at once.
#[derive(Debug, Clone, Default)]
struct Paths {
    globs: GlobSet,
    // For each glob, the table (by its place in `tables`) and what it does.
    owners: Vec<(usize, Claim)>,
}

impl Paths {
    fn of(tables: &[Arc<Contract>]) -> Self {
        let mut builder = GlobSetBuilder::new();
        let mut owners = Vec::new();
        for (index, contract) in tables.iter().enumerate() {
            let Some(source) = contract.files() else { continue };
            let ignored = source.ignore.iter().map(|pattern| (pattern, Claim::Ignore));
            // Change data may come from topics alone.
            let taken = std::iter::once((&source.path, Claim::Take)).filter(|(path, _)| !path.is_empty());
            for (pattern, claim) in taken.chain(ignored) {
                // The reader of the contract compiled every glob before.
                if let Ok(compiled) = glob::compile(pattern) {
                    builder.add(compiled);
                    owners.push((index, claim));
                }
            }
        }
        match builder.build() {
            Ok(globs) => Self { globs, owners },
            Err(error) => {
                tracing::error!(%error, "the globs of the contracts do not fit together: no file will be taken");
                Self::default()
            }
        }
    }
}

/// Checks all contracts of a folder: what `alluvium check` begins with. The warnings are [`Catalog::warnings`].
///
/// # Errors
/// All mistakes of all contracts, and the warnings among them.
pub fn check_folder(folder: &Path) -> Result<Catalog, Vec<Diagnostic>> {
    Catalog::load(folder)
}

impl Catalog {
    /// Contracts are looked for this many folders deep: deeper ones hold none, and links may lead in circles.
    pub const DEPTH: usize = 4;

    /// Reads `<folder>/<layer>/<table>.yaml`, all of them. Everything that can be checked without planning SQL is.
    ///
    /// # Errors
    /// All mistakes of all contracts, and the warnings among them, by file and line.
    pub fn load(folder: &Path) -> Result<Self, Vec<Diagnostic>> {
        Self::build(load::folder(folder))
    }

    /// Reads what is right of a folder: contracts with mistakes are left out, and what is made from their tables. For those
    /// who only look; whoever writes reads all of it with [`Catalog::load`]. Gives the mistakes too.
    #[must_use]
    pub fn load_right(folder: &Path) -> (Self, Vec<Diagnostic>) {
        let mut loaded = load::folder(folder);
        let mut mistakes = Vec::new();
        loop {
            let found = match Self::build(loaded.clone()) {
                Ok(catalog) => return (catalog, mistakes),
                Err(found) => found,
            };
            let wrong: Vec<Diagnostic> = found.into_iter().filter(|diagnostic| diagnostic.is_error).collect();
            let is_wrong = |contract: &Contract| wrong.iter().any(|mistake| mistake.file == contract.file);
            let left_out: Vec<TableName> =
                loaded.contracts.iter().filter(|contract| is_wrong(contract)).map(|c| c.table.clone()).collect();
            loaded.contracts.retain(|contract| !is_wrong(contract));
            loaded.names.retain(|name| !left_out.contains(name));
            let before = loaded.found.len();
            loaded.found.retain(|diagnostic| !diagnostic.is_error);
            let is_stuck = left_out.is_empty() && loaded.found.len() == before;
            // What is made from a table that is left out has no mistake of its own.
            if mistakes.is_empty() {
                mistakes = wrong;
            }
            if is_stuck {
                return (Self::default(), mistakes);
            }
        }
    }

    /// Contracts given as texts, each with its file's name (`.../<layer>/<table>.yaml`).
    ///
    /// # Errors
    /// As [`Catalog::load`].
    pub fn from_sources(sources: Vec<(String, String)>) -> Result<Self, Vec<Diagnostic>> {
        Self::build(load::sources(sources))
    }

    fn build(loaded: load::Loaded) -> Result<Self, Vec<Diagnostic>> {
        let load::Loaded { mut contracts, mut names, mut found } = loaded;
        history::add(&mut contracts, &mut names, &mut found);
        for contract in &contracts {
            found.extend(sql::check(contract));
        }
        let ordered = graph::order(contracts, &names, &mut found);
        found.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        if found.iter().any(|diagnostic| diagnostic.is_error) {
            return Err(found);
        }
        let tables: Vec<Arc<Contract>> = ordered.into_iter().map(Arc::new).collect();
        let (paths, topics) = (Paths::of(&tables), Topics::of(&tables));
        Ok(Self { tables, warnings: found, paths, topics })
    }

    /// What is no mistake but worth knowing.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The contract of a table.
    #[must_use]
    pub fn get(&self, name: &TableName) -> Option<&Arc<Contract>> {
        self.tables.iter().find(|contract| contract.table == *name)
    }

    /// All contracts; sources come before what is derived from them.
    #[must_use]
    pub fn tables(&self) -> &[Arc<Contract>] {
        &self.tables
    }

    /// The tables that a landed file concerns (`path` below the landing zone), in the order of [`Catalog::tables`]. A table
    /// that both takes and ignores it ignores it.
    #[must_use]
    pub fn claims(&self, path: &str) -> Vec<(Arc<Contract>, Claim)> {
        let mut claims: Vec<(usize, Claim)> =
            self.paths.globs.matches(path).into_iter().map(|glob| self.paths.owners[glob]).collect();
        claims.sort_by_key(|(table, claim)| (*table, *claim == Claim::Take));
        claims.dedup_by_key(|(table, _)| *table);
        claims.into_iter().map(|(table, claim)| (Arc::clone(&self.tables[table]), claim)).collect()
    }

    /// The tables that take the records of a topic, in the order of [`Catalog::tables`].
    #[must_use]
    pub fn topic_claims(&self, topic: &str) -> Vec<Arc<Contract>> {
        let mut tables: Vec<usize> =
            self.topics.globs.matches(topic).into_iter().map(|glob| self.topics.owners[glob]).collect();
        tables.sort_unstable();
        tables.dedup();
        tables.into_iter().map(|table| Arc::clone(&self.tables[table])).collect()
    }

    /// The tables derived directly from `name`.
    #[must_use]
    pub fn derived_from(&self, name: &TableName) -> Vec<&Arc<Contract>> {
        self.tables.iter().filter(|contract| contract.sources().contains(&name)).collect()
    }
}

#[cfg(test)]
mod tests;
