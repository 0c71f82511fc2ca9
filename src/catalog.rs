//! All contracts together: who feeds whom, which file belongs to which tables.

use std::path::Path;

use crate::name::TableName;
use crate::schema::Contract;
use std::sync::Arc;

/// Every table that is declared.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tables: Vec<Arc<Contract>>,
}

/// One mistake (or warning) found in a contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The contract's file, as it was found below the schemas folder's path.
    pub file: String,
    /// Line, from 1.
    pub line: u64,
    /// Column, from 1.
    pub column: u64,
    /// What is wrong; lower case, without a full stop.
    pub message: String,
    /// A suggestion, such as `did you mean \`raw/trips\`?`.
    pub help: Option<String>,
    /// False for a warning.
    pub is_error: bool,
}

/// What a table does with a landed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It takes the file.
    Take,
    /// It declares the file ignored (a glob of `source.ignore` matches).
    Ignore,
}

impl Catalog {
    /// Reads `<folder>/<layer>/<table>.yaml`, all of them. Everything that can be checked without planning SQL is.
    ///
    /// # Errors
    /// All mistakes of all contracts.
    pub fn load(_folder: &Path) -> Result<Self, Vec<Diagnostic>> {
        todo!()
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

    /// The tables that a landed file concerns (`path` below the landing zone).
    #[must_use]
    pub fn claims(&self, _path: &str) -> Vec<(Arc<Contract>, Claim)> {
        todo!()
    }
}
