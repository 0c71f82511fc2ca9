//! The lake's tables as the query engine sees them: `layer.table`, `quarantine.layer.table` and `ledger`. A table is
//! opened when a query names it.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, TableReference};

use crate::error::{Error, Result};
use crate::layout;
use crate::name::{LAYERS, TableName};
use crate::pipeline::lake::Lake;
use crate::table::At;

/// The catalog of all tables: the default one.
pub const TABLES: &str = "lake";
/// The catalog of quarantine.
pub const QUARANTINE: &str = "quarantine";
/// The default schema, which has the ledger.
pub const PUBLIC: &str = "public";

/// `--version`: a version, of one table or of the only one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The table, with dots; none for the only one of the query.
    pub table: Option<String>,
    /// Its version.
    pub version: i64,
}

impl Pin {
    /// Reads `3` or `raw/trips=3`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let (table, version) = match text.rsplit_once('=') {
            Some((table, version)) => (Some(table.trim().replace('/', ".")), version),
            None => (None, text),
        };
        let version = version.trim().parse().ok().filter(|version| *version >= 0);
        let version = version.ok_or_else(|| "expected a version such as 3, or raw/trips=3".to_owned())?;
        Ok(Self { table, version })
    }
}

/// At which versions tables are read.
#[derive(Debug, Clone, Default)]
pub struct Pins {
    /// All tables as they were then.
    pub at: Option<DateTime<Utc>>,
    /// Tables at a version.
    pub versions: Vec<Pin>,
}

impl Pins {
    /// Whether the pins fit the tables of a query: a bare version needs exactly one, a named one must be among them.
    ///
    /// # Errors
    /// They do not.
    pub fn fit(&self, references: &[TableReference]) -> Result<()> {
        let names: BTreeSet<String> = references.iter().map(dotted).collect();
        for pin in &self.versions {
            match &pin.table {
                None if names.len() > 1 => {
                    let names: Vec<String> = names.into_iter().collect();
                    return Err(Error::invalid(format!(
                        "--version {} could mean any of {}",
                        pin.version,
                        names.join(", ")
                    ))
                    .remedy(format!("say which: --version {}={}", names[0], pin.version)));
                }
                Some(table) if !names.contains(table) => {
                    let names: Vec<String> = names.into_iter().collect();
                    return Err(Error::invalid(format!("--version names {table}, which the query does not read"))
                        .remedy(format!("it reads {}", names.join(", "))));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn of(&self, name: &str) -> Option<At> {
        let named = self.versions.iter().rev().find(|pin| pin.table.as_deref().is_none_or(|table| table == name));
        named.map(|pin| At::Version(pin.version)).or_else(|| self.at.map(At::Instant))
    }
}

fn dotted(reference: &TableReference) -> String {
    match (reference.catalog(), reference.schema()) {
        (Some(catalog), Some(schema)) if catalog != TABLES => format!("{catalog}.{schema}.{}", reference.table()),
        (_, Some(schema)) if schema != PUBLIC => format!("{schema}.{}", reference.table()),
        _ => reference.table().to_owned(),
    }
}

/// Which tables a catalog has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All layers, and the ledger.
    Tables,
    /// Quarantine.
    Quarantine,
}

/// One catalog.
#[derive(Debug)]
pub struct LakeCatalog {
    lake: Lake,
    pins: Arc<Pins>,
    part: Part,
}

impl LakeCatalog {
    /// The tables of one part of the lake.
    #[must_use]
    pub fn new(lake: Lake, pins: Arc<Pins>, part: Part) -> Self {
        Self { lake, pins, part }
    }
}

impl CatalogProvider for LakeCatalog {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> = LAYERS.iter().map(|layer| (*layer).to_owned()).collect();
        if self.part == Part::Tables {
            names.push(PUBLIC.to_owned());
        }
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.schema_names().iter().any(|known| known == name).then(|| {
            let (lake, pins) = (self.lake.clone(), Arc::clone(&self.pins));
            Arc::new(LakeSchema { lake, pins, part: self.part, layer: name.to_owned() }) as Arc<dyn SchemaProvider>
        })
    }
}

/// One layer of a catalog.
#[derive(Debug)]
struct LakeSchema {
    lake: Lake,
    pins: Arc<Pins>,
    part: Part,
    layer: String,
}

impl LakeSchema {
    /// Name and folder of a table; none when no table can have that name.
    fn place(&self, table: &str) -> Option<(String, String)> {
        if self.layer == PUBLIC {
            return (table == layout::LEDGER).then(|| (layout::LEDGER.to_owned(), layout::LEDGER.to_owned()));
        }
        let name: TableName = format!("{}/{table}", self.layer).parse().ok()?;
        Some(match self.part {
            Part::Tables => (format!("{}.{table}", self.layer), layout::table(&name)),
            Part::Quarantine => (format!("{QUARANTINE}.{}.{table}", self.layer), layout::quarantine(&name)),
        })
    }

    async fn open(&self, table: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some((name, folder)) = self.place(table) else { return Ok(None) };
        let Some(table) = self.lake.table(&folder).await? else { return Ok(None) };
        let snapshot = match self.pins.of(&name) {
            Some(at) => table.snapshot_at(at).await.map_err(|error| error.within(&name))?,
            None => table.snapshot().await?,
        };
        Ok(Some(snapshot.provider(None)?))
    }
}

#[async_trait]
impl SchemaProvider for LakeSchema {
    fn table_names(&self) -> Vec<String> {
        if self.layer == PUBLIC {
            return vec![layout::LEDGER.to_owned()];
        }
        let contracts = self.lake.catalog.tables().iter();
        contracts
            .filter(|contract| contract.table.layer() == self.layer)
            .filter(|contract| self.part == Part::Tables || contract.has_quarantine())
            .map(|contract| contract.table.table().to_owned())
            .collect()
    }

    async fn table(&self, name: &str) -> std::result::Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        self.open(name).await.map_err(|error| DataFusionError::External(Box::new(error)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.place(name).is_some()
    }
}

/// Names of all tables that exist, as SQL writes them.
///
/// # Errors
/// The lake cannot be read.
pub async fn names(lake: &Lake) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for contract in lake.catalog.tables() {
        let name = contract.table.to_string().replace('/', ".");
        if lake.table(&layout::quarantine(&contract.table)).await?.is_some() {
            names.push(format!("{QUARANTINE}.{name}"));
        }
        if lake.table(&layout::table(&contract.table)).await?.is_some() {
            names.push(name);
        }
    }
    if lake.table(layout::LEDGER).await?.is_some() {
        names.push(layout::LEDGER.to_owned());
    }
    names.sort_by_key(|name| (name.starts_with(QUARANTINE), name.clone()));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_read_with_or_without_a_table() {
        assert_eq!(Pin::parse("3"), Ok(Pin { table: None, version: 3 }));
        assert_eq!(Pin::parse("raw/trips=3"), Ok(Pin { table: Some("raw.trips".to_owned()), version: 3 }));
        assert_eq!(
            Pin::parse("quarantine.raw.trips = 0"),
            Ok(Pin { table: Some("quarantine.raw.trips".to_owned()), version: 0 })
        );
        for text in ["", "x", "-1", "raw/trips=", "raw/trips=x"] {
            assert!(Pin::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_version_needs_a_query_of_one_table() {
        let pins = |text: &str| Pins { at: None, versions: vec![Pin::parse(text).unwrap()] };
        let raw = TableReference::partial("raw", "trips");
        let quarantine = TableReference::full("quarantine", "raw", "trips");
        let ledger = TableReference::bare("ledger");
        assert!(pins("3").fit(std::slice::from_ref(&raw)).is_ok());
        assert!(pins("3").fit(&[raw.clone(), raw.clone()]).is_ok());
        assert!(pins("3").fit(&[raw.clone(), ledger.clone()]).is_err());
        assert!(pins("raw/trips=3").fit(&[raw.clone(), ledger.clone()]).is_ok());
        assert!(pins("ledger=3").fit(&[raw.clone(), ledger]).is_ok());
        let error = pins("raw/trip=3").fit(&[raw, quarantine.clone()]).unwrap_err();
        assert_eq!(error.remedy_text(), Some("it reads quarantine.raw.trips, raw.trips"));
        assert!(pins("quarantine/raw/trips=3").fit(&[quarantine]).is_ok());
    }

    #[test]
    fn a_named_pin_wins_over_the_instant() {
        let at = DateTime::UNIX_EPOCH;
        let pins = Pins { at: Some(at), versions: vec![Pin::parse("raw/trips=3").unwrap()] };
        assert_eq!(pins.of("raw.trips"), Some(At::Version(3)));
        assert_eq!(pins.of("ledger"), Some(At::Instant(at)));
        assert_eq!(Pins::default().of("ledger"), None);
    }
}
