//! What every command works with: the configuration, the clock, and the lake behind them.

use std::sync::Arc;

use super::output;
use crate::app::{self, Backends};
use crate::catalog::Catalog;
use crate::clock::{Clock, SystemClock};
use crate::config::{Backend, Config};
use crate::error::{Error, Result};
use crate::layout;
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::schema::suggest::nearest;

/// The setting behind a command.
#[derive(Debug, Clone)]
pub struct Context {
    /// The configuration, with the command line's `--home` and `--schemas` in it.
    pub config: Config,
    /// Time and fresh names.
    pub clock: Arc<dyn Clock>,
}

impl Context {
    /// With the machine's clock.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, clock: Arc::new(SystemClock) }
    }

    /// The lake, its folders created where absent: for commands that write.
    ///
    /// # Errors
    /// A contract is wrong, a folder cannot be used, or a storage account does not answer.
    pub async fn lake(&self) -> Result<Lake> {
        self.schemas_exist()?;
        // Whatever the command's own patience: a first look that finds nobody is told soon.
        Backends::open(&self.config.clone().for_a_person(), Arc::clone(&self.clock))?.reach().await?;
        app::open_lake(&self.config, Arc::clone(&self.clock))
    }

    /// The lake as it is: for commands that only read.
    ///
    /// # Errors
    /// There is none, a contract is wrong, or a folder cannot be used.
    pub async fn existing_lake(&self) -> Result<Lake> {
        self.lake_exists()?;
        self.lake().await
    }

    /// The lake as it is, for commands that only look: a contract with a mistake is told and left out, and what it says of
    /// its table is not known.
    ///
    /// # Errors
    /// There is none, or a folder cannot be used.
    pub async fn lake_to_look_at(&self) -> Result<Lake> {
        self.lake_exists()?;
        self.schemas_exist()?;
        let (catalog, mistakes) = Catalog::load_right(&self.config.schemas);
        for mistake in &mistakes {
            output::note(&format!("{mistake}"));
        }
        if !mistakes.is_empty() {
            output::note(
                "contracts with mistakes are left out: nothing is loaded before they are mended (`alluvium check`)",
            );
        }
        let backends = Backends::open(&self.config, Arc::clone(&self.clock))?;
        backends.reach().await?;
        backends.lake(catalog)
    }

    fn lake_exists(&self) -> Result<()> {
        // Whether there is one in an account is seen by whoever reads it.
        if self.config.storage_backend == Backend::Local && !self.config.lake_folder().is_dir() {
            return Err(Error::not_found(format!("there is no lake at {}", self.config.home.display())).remedy(
                "fill one with `alluvium ingest PATH` or make one with `alluvium demo`; --home or ALLUVIUM_HOME names another",
            ));
        }
        Ok(())
    }

    /// The lake as it is, under the contracts of another folder.
    ///
    /// # Errors
    /// As [`Self::existing_lake`].
    pub async fn existing_lake_under(&self, schemas: &std::path::Path) -> Result<Lake> {
        let mut config = self.config.clone();
        schemas.clone_into(&mut config.schemas);
        Self { config, clock: Arc::clone(&self.clock) }.existing_lake().await
    }

    fn schemas_exist(&self) -> Result<()> {
        if self.config.schemas.is_dir() {
            return Ok(());
        }
        Err(Error::not_found(format!("there is no folder of contracts at {}", self.config.schemas.display())).remedy(
            "go to the folder that has `schemas/`, name it with --schemas or ALLUVIUM_SCHEMAS, or write a first contract \
             with `alluvium infer FILE --table raw/NAME --write`",
        ))
    }
}

/// A table of the lake as a person names it: `raw/trips`, `raw.trips`, `quarantine/raw/trips`, `ledger`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// As it is shown.
    pub name: String,
    /// Its folder below the lake.
    pub folder: String,
}

/// Reads a table's name.
///
/// # Errors
/// It is no name of a table, or no such table is known.
pub async fn find_table(lake: &Lake, text: &str) -> Result<(Named, crate::table::Table)> {
    let named = parse_table(text).map_err(|error| with_nearest(error, lake, text))?;
    if let Some(table) = lake.table(&named.folder).await? {
        return Ok((named, table));
    }
    let declared = lake.catalog.tables().iter().any(|contract| contract.table.to_string() == named.name);
    let missing = Error::not_found(format!("there is no table {}", named.name));
    Err(if declared {
        missing.remedy("it is declared, but nothing was loaded into it yet: `alluvium ingest PATH`")
    } else {
        with_nearest(missing, lake, &named.name)
    })
}

fn parse_table(text: &str) -> Result<Named> {
    if text == layout::LEDGER {
        return Ok(Named { name: text.to_owned(), folder: layout::LEDGER.to_owned() });
    }
    if let Some(rest) = text.strip_prefix("quarantine").and_then(|rest| rest.strip_prefix(['/', '.'])) {
        let table: TableName = rest.parse()?;
        return Ok(Named { name: format!("quarantine/{table}"), folder: layout::quarantine(&table) });
    }
    let table: TableName = text.parse()?;
    Ok(Named { name: table.to_string(), folder: layout::table(&table) })
}

/// A declared table as a person names it.
///
/// # Errors
/// It is no name of a table, or no contract declares it.
pub fn declared(lake: &Lake, text: &str) -> Result<Arc<crate::schema::Contract>> {
    let name: TableName = text.parse().map_err(|error| with_nearest(error, lake, text))?;
    let contract = lake.catalog.get(&name).map(Arc::clone);
    contract.ok_or_else(|| with_nearest(Error::not_found(format!("no contract declares {name}")), lake, text))
}

fn with_nearest(error: Error, lake: &Lake, text: &str) -> Error {
    let names: Vec<String> = lake.catalog.tables().iter().map(|contract| contract.table.to_string()).collect();
    let wanted = text.replace('.', "/");
    let hint = nearest(&wanted, names.iter().map(String::as_str)).map(str::to_owned);
    match hint {
        Some(name) => error.remedy(format!("did you mean `{name}`?")),
        None if names.is_empty() => error,
        None => error.remedy(format!("there are {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_with_slashes_or_dots() {
        for (text, name, folder) in [
            ("raw/trips", "raw/trips", "raw/trips"),
            ("raw.trips", "raw/trips", "raw/trips"),
            ("quarantine/raw/trips", "quarantine/raw/trips", "quarantine/raw/trips"),
            ("quarantine.raw.trips", "quarantine/raw/trips", "quarantine/raw/trips"),
            ("ledger", "ledger", "ledger"),
        ] {
            assert_eq!(parse_table(text).unwrap(), Named { name: name.to_owned(), folder: folder.to_owned() });
        }
        for text in ["trips", "quarantine", "quarantine/trips", "../x", "raw/Trips", "ledger/x"] {
            assert!(parse_table(text).is_err(), "{text}");
        }
    }
}
