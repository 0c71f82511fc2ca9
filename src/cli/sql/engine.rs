//! The query engine over a lake: DataFusion with the lake's tables, a bound on memory, and no way to write.

use std::sync::Arc;

use datafusion::common::{Column, DataFusionError, SchemaError, TableReference};
use datafusion::config::Dialect;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};

use super::guard::only_reads;
use super::lake_catalog::{self, LakeCatalog, Part, Pins};
use crate::arithmetic;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::lake::Lake;
use crate::schema::suggest::{did_you_mean, did_you_mean_in_sql, one_of};

/// Queries over one lake.
pub struct Engine {
    session: SessionContext,
    lake: Lake,
    pins: Arc<Pins>,
}

impl Engine {
    /// An engine that reads every table at its newest version, or as pinned.
    ///
    /// # Errors
    /// The engine cannot be set up.
    pub fn over(lake: &Lake, pins: Pins) -> Result<Self> {
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(lake_catalog::TABLES, lake_catalog::PUBLIC)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .with_target_partitions(lake.settings.threads);
        let memory = usize::try_from(lake.settings.memory_bytes).unwrap_or(usize::MAX);
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(memory, 1.0).build_arc().map_err(failed)?;
        let state =
            SessionStateBuilder::new().with_config(config).with_runtime_env(runtime).with_default_features().build();
        let session = SessionContext::new_with_state(state);
        arithmetic::install(&session);
        let pins = Arc::new(pins);
        for (name, part) in [(lake_catalog::TABLES, Part::Tables), (lake_catalog::QUARANTINE, Part::Quarantine)] {
            let catalog = LakeCatalog::new(lake.clone(), Arc::clone(&pins), part);
            session.register_catalog(name, Arc::new(catalog));
        }
        Ok(Self { session, lake: lake.clone(), pins })
    }

    /// Runs a query and streams its rows.
    ///
    /// # Errors
    /// It is no query, or it names a table or column that is not there, or it cannot be run.
    pub async fn stream(&self, query: &str) -> Result<SendableRecordBatchStream> {
        let state = self.session.state();
        let statement = state.sql_to_statement(query, &Dialect::Generic).map_err(not_sql)?;
        only_reads(&statement)?;
        let references = state.resolve_table_references(&statement).map_err(failed)?;
        self.pins.fit(&references)?;
        // `generate_series(1, 10)` stands where a table could.
        let functions = state.table_functions();
        for reference in references.iter().filter(|reference| !functions.contains_key(reference.table())) {
            self.known(reference).await?;
        }
        let plan = state.statement_to_plan(statement).await.map_err(failed)?;
        let reads = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        reads.verify_plan(&plan).map_err(failed)?;
        let rows = self.session.execute_logical_plan(plan).await.map_err(failed)?;
        rows.execute_stream().await.map_err(failed)
    }

    /// Runs a query and gives back all its rows.
    ///
    /// # Errors
    /// As [`Engine::stream`], and whatever happens while it runs.
    pub async fn rows(&self, query: &str) -> Result<Vec<arrow::array::RecordBatch>> {
        let stream = self.stream(query).await?;
        futures::TryStreamExt::try_collect(stream).await.map_err(failed)
    }

    /// A table that is not there is said with the name that was probably meant.
    async fn known(&self, reference: &TableReference) -> Result<()> {
        if reference.schema() == Some("information_schema") {
            return Ok(());
        }
        let catalog = reference.catalog().unwrap_or(lake_catalog::TABLES);
        let schema = reference.schema().unwrap_or(lake_catalog::PUBLIC);
        if let Some(schema) = self.session.catalog(catalog).and_then(|catalog| catalog.schema(schema))
            && schema.table(reference.table()).await.map_err(failed)?.is_some()
        {
            return Ok(());
        }
        let known = lake_catalog::names(&self.lake).await?;
        let wanted = reference.to_string();
        let missing = Error::not_found(format!("there is no table {wanted}"));
        // Somebody who forgot the layer means the table of that name.
        let of_that_name = known.iter().filter(|name| name.rsplit('.').next() == Some(reference.table()));
        let by_table: Vec<&str> = of_that_name.map(String::as_str).collect();
        let hint = match by_table.as_slice() {
            [] => did_you_mean(&wanted, known.iter().map(String::as_str)),
            names => Some(format!("did you mean {}?", one_of(names))),
        };
        Err(missing.remedy(hint.unwrap_or_else(|| format!("there are {}", known.join(", ")))))
    }
}

fn not_sql(error: DataFusionError) -> Error {
    let text = error.strip_backtrace();
    if text.contains("single SQL statement") {
        return Error::invalid("more than one statement").remedy("give one query at a time");
    }
    if text.contains("No SQL statements") {
        return Error::invalid("the query is empty");
    }
    let error = Error::invalid(format!("this is no SQL: {}", tidy(&text)));
    // The other commands name tables with a slash.
    match text.contains("found: /") {
        true => error.remedy("in SQL a table's layer and name have a dot between them: raw.trips"),
        false => error,
    }
}

/// An engine error as ours: planning errors are the query's, the others by their cause.
pub fn failed(error: DataFusionError) -> Error {
    let root = error.find_root();
    let kind = match root {
        DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::SQL(..)
        | DataFusionError::NotImplemented(_)
        | DataFusionError::Execution(_)
        | DataFusionError::ArrowError(..) => ErrorKind::Invalid,
        DataFusionError::ResourcesExhausted(_) | DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => {
            ErrorKind::Unavailable
        }
        DataFusionError::External(inner) => inner.downcast_ref::<Error>().map_or(ErrorKind::Internal, Error::kind),
        _ => ErrorKind::Internal,
    };
    let remedy = match root {
        DataFusionError::ResourcesExhausted(_) => Some("give it more memory with ALLUVIUM_MEMORY".to_owned()),
        DataFusionError::External(inner) => {
            inner.downcast_ref::<Error>().and_then(Error::remedy_text).map(str::to_owned)
        }
        _ => None,
    };
    if let DataFusionError::SchemaError(schema, _) = root
        && let SchemaError::FieldNotFound { field, valid_fields } = &**schema
    {
        return no_such_column(field, valid_fields);
    }
    let text = match root {
        DataFusionError::External(inner) => inner.to_string(),
        _ => tidy(&error.strip_backtrace()),
    };
    let ours = Error::new(kind, text);
    match remedy {
        Some(remedy) => ours.remedy(remedy),
        None => ours,
    }
}

fn no_such_column(field: &Column, valid: &[Column]) -> Error {
    let known: Vec<&str> = valid.iter().map(Column::name).collect();
    let missing = Error::invalid(format!("there is no column {}", field.flat_name()));
    let hint = did_you_mean_in_sql(field.name(), known.iter().copied());
    missing.remedy(hint.unwrap_or_else(|| format!("there are {}", known.join(", "))))
}

/// The engine's words without the names of its own parts.
fn tidy(text: &str) -> String {
    let mut text = text.trim();
    for prefix in [
        "Error during planning: ",
        "Schema error: ",
        "SQL error: ",
        "Arrow error: ",
        "External error: ",
        "This feature is not implemented: ",
        "Execution error: ",
    ] {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    let inner = text.strip_prefix("ParserError(\"").and_then(|rest| rest.strip_suffix("\")"));
    inner.unwrap_or(text).trim_end_matches('.').replace('\n', " ")
}
