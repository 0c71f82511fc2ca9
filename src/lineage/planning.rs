//! Planning a contract's SQL: one SELECT over named tables, without touching any data.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::catalog::empty::EmptyTable;
use datafusion::common::{Column, DFSchema, DataFusionError, TableReference};
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;

use super::errors::{engine_error, planning_problem};
use crate::arithmetic;
use crate::error::Result;

/// Plans SQL over tables of which only the schemas are known.
pub(super) struct Planner {
    context: SessionContext,
    tables: Vec<String>,
}

/// Why a query does not plan.
#[derive(Debug)]
pub(super) struct Refusal {
    /// What is wrong.
    pub(super) message: String,
    /// A suggestion.
    pub(super) help: Option<String>,
    /// Where in the SQL, in characters from 0, if the engine says.
    pub(super) offset: Option<usize>,
}

impl Planner {
    /// A planner that knows the given tables.
    pub(super) fn new(tables: impl IntoIterator<Item = (String, SchemaRef)>) -> Result<Self> {
        // Tables store plain texts: views would only be cast back.
        let config = SessionConfig::new()
            .with_target_partitions(1)
            .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false)
            .set_bool("datafusion.sql_parser.collect_spans", true)
            .set_str("datafusion.execution.time_zone", "UTC");
        let context = SessionContext::new_with_config(config);
        arithmetic::install(&context);
        let mut names = Vec::new();
        for (name, schema) in tables {
            let table: Arc<dyn TableProvider> = Arc::new(EmptyTable::new(schema));
            context.register_table(TableReference::bare(name.as_str()), table).map_err(engine_error)?;
            names.push(name);
        }
        Ok(Self { context, tables: names })
    }

    /// The plan as it is written.
    ///
    /// # Errors
    /// Why the SQL does not plan, and a suggestion.
    pub(super) fn plan(&self, sql: &str) -> std::result::Result<LogicalPlan, Refusal> {
        let planned = plan_select(&self.context, sql)
            .now_or_never()
            .unwrap_or_else(|| Err(DataFusionError::Plan("the tables of the SQL are not at hand".to_owned())));
        planned.map_err(|error| self.refusal(&error, sql))
    }

    /// The plan with types coerced, subqueries turned into joins and join conditions found: what is analysed.
    ///
    /// # Errors
    /// Why the SQL does not plan, and a suggestion.
    pub(super) fn optimize(&self, plan: &LogicalPlan) -> std::result::Result<LogicalPlan, Refusal> {
        self.context.state().optimize(plan).map_err(|error| self.refusal(&error, ""))
    }

    fn refusal(&self, error: &DataFusionError, sql: &str) -> Refusal {
        let (message, help) = planning_problem(error, &self.tables);
        let start = error.diagnostic().and_then(|diagnostic| diagnostic.span).map(|span| span.start);
        let offset = start.and_then(|start| offset_of(sql, start.line, start.column));
        Refusal { message, help, offset }
    }

    /// The session, for compiling expressions.
    #[must_use]
    pub(super) const fn context(&self) -> &SessionContext {
        &self.context
    }
}

/// Characters before a line and column, both from 1.
fn offset_of(sql: &str, line: u64, column: u64) -> Option<usize> {
    let lines_before = usize::try_from(line).ok()?.checked_sub(1)?;
    let before: usize = sql.split_inclusive('\n').take(lines_before).map(|line| line.chars().count()).sum();
    let offset = before + usize::try_from(column).ok()?.checked_sub(1)?;
    (offset < sql.chars().count()).then_some(offset)
}

/// Plans one SELECT; anything that defines, changes or sets is refused.
pub async fn plan_select(context: &SessionContext, sql: &str) -> std::result::Result<LogicalPlan, DataFusionError> {
    let plan = context.state().create_logical_plan(sql).await?;
    let only_reads = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    only_reads.verify_plan(&plan)?;
    if matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_)) {
        return Err(DataFusionError::Plan("the SQL must be a SELECT".to_owned()));
    }
    Ok(plan)
}

/// The column at `index` of a plan's schema, qualified as it is there.
#[must_use]
pub(super) fn column_at(schema: &DFSchema, index: usize) -> Column {
    Column::from(schema.qualified_field(index))
}

/// The index of the output column called exactly `name`; none when it is not there.
#[must_use]
pub(super) fn index_of(schema: &DFSchema, name: &str) -> Option<usize> {
    schema.fields().iter().position(|field| field.name() == name)
}
