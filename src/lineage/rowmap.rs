//! Row-by-row SQL compiled once and run batch by batch, without a query around it.

use std::sync::Arc;

use arrow::array::{Array, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{concat_batches, filter_record_batch, prep_null_mask_filter};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, UnnestOptions};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::unnest::{ListUnnest, UnnestExec};
use datafusion::prelude::SessionContext;
use futures::{FutureExt, TryStreamExt};

use super::errors::engine_error;
use super::planning::Planner;
use super::prove::{UnitMap, is_row_by_row};
use super::types::{storable_schema, to_stored};
use crate::error::{Error, Result};
use crate::transform::Transform;

/// A compiled transform of rows: each output row comes from one input row, in order.
pub struct RowMap {
    reads: Vec<String>,
    stages: Vec<Stage>,
    output: SchemaRef,
}

enum Stage {
    Filter(Arc<dyn PhysicalExpr>),
    Project(Vec<Arc<dyn PhysicalExpr>>, SchemaRef),
    Unnest {
        lists: Vec<ListUnnest>,
        structs: Vec<usize>,
        schema: SchemaRef,
        options: UnnestOptions,
    },
    Named(Arc<dyn Transform>, serde_json::Value),
    /// Columns by index.
    Pick(Vec<usize>),
}

impl RowMap {
    /// Compiles `sql` over one table, restricted to the output columns `wanted` (all when none are given), in that order.
    /// None when the SQL is not row by row.
    pub fn of_sql(sql: &str, input: (&str, &SchemaRef), wanted: Option<&[String]>) -> Result<Option<Self>> {
        let planner = Planner::new([(input.0.to_owned(), Arc::clone(input.1))])?;
        let mut plan = planner.plan(sql).map_err(|refusal| Error::invalid(refusal.message))?;
        if let Some(wanted) = wanted {
            let columns = wanted.iter().map(|name| Expr::Column(Column::new_unqualified(name)));
            plan = LogicalPlanBuilder::from(plan)
                .project(columns)
                .and_then(LogicalPlanBuilder::build)
                .map_err(engine_error)?;
        }
        let output = storable_schema(plan.schema().as_arrow())?;
        let plan = planner.optimize(&plan).map_err(|refusal| Error::invalid(refusal.message))?;
        if !is_row_by_row(&plan) {
            return Ok(None);
        }
        let mut map = Self { reads: Vec::new(), stages: Vec::new(), output };
        map.compile(planner.context(), &plan)?;
        Ok(Some(map))
    }

    /// A named transform over a table, restricted to the output columns `wanted`.
    pub fn of_transform(
        transform: Arc<dyn Transform>,
        args: &serde_json::Value,
        input: &SchemaRef,
        wanted: Option<&[String]>,
    ) -> Result<Self> {
        let full = storable_schema(&*transform.validate(args, input)?)?;
        let mut stages = vec![Stage::Named(transform, args.clone())];
        let mut output = Arc::clone(&full);
        if let Some(wanted) = wanted {
            let mut picked = Vec::with_capacity(wanted.len());
            for name in wanted {
                picked.push(full.index_of(name)?);
            }
            output = Arc::new(full.project(&picked)?);
            stages.push(Stage::Pick(picked));
        }
        let reads = input.fields().iter().map(|field| field.name().clone()).collect();
        Ok(Self { reads, stages, output })
    }

    /// Unit maps over the columns of `input`, as columns called `names` of the types `types`.
    pub fn of_units(map: &UnitMap, input: &SchemaRef, output: &SchemaRef) -> Result<Self> {
        let context = SessionContext::new();
        let schema = DFSchema::try_from(Arc::clone(input)).map_err(engine_error)?;
        let mut exprs = Vec::with_capacity(map.len());
        for expr in map {
            exprs.push(physical(&context, expr, &schema)?);
        }
        let reads = input.fields().iter().map(|field| field.name().clone()).collect();
        let stage =
            Stage::Project(exprs, projected(output.fields().iter().map(|field| field.name().clone()), map, &schema)?);
        Ok(Self { reads, stages: vec![stage], output: Arc::clone(output) })
    }

    fn compile(&mut self, context: &SessionContext, plan: &LogicalPlan) -> Result<()> {
        match plan {
            LogicalPlan::TableScan(scan) => {
                self.reads = scan.projected_schema.fields().iter().map(|field| field.name().clone()).collect();
            }
            LogicalPlan::SubqueryAlias(node) => self.compile(context, &node.input)?,
            // A table has no order.
            LogicalPlan::Sort(node) => self.compile(context, &node.input)?,
            LogicalPlan::Filter(node) => {
                self.compile(context, &node.input)?;
                self.stages.push(Stage::Filter(physical(context, &node.predicate, node.input.schema())?));
            }
            LogicalPlan::Projection(node) => {
                self.compile(context, &node.input)?;
                let mut exprs = Vec::with_capacity(node.expr.len());
                for expr in &node.expr {
                    exprs.push(physical(context, expr, node.input.schema())?);
                }
                self.stages.push(Stage::Project(exprs, Arc::new(node.schema.as_arrow().clone())));
            }
            LogicalPlan::Unnest(node) => {
                self.compile(context, &node.input)?;
                let lists = node
                    .list_type_columns
                    .iter()
                    .map(|(index, list)| ListUnnest { index_in_input_schema: *index, depth: list.depth })
                    .collect();
                self.stages.push(Stage::Unnest {
                    lists,
                    structs: node.struct_type_columns.clone(),
                    schema: Arc::new(node.schema.as_arrow().clone()),
                    options: node.options.clone(),
                });
            }
            other => return Err(Error::internal(format!("{} is not row by row", other.display()))),
        }
        Ok(())
    }

    /// The input columns that a batch must have, in this order.
    #[must_use]
    pub fn reads(&self) -> &[String] {
        &self.reads
    }

    /// What comes out, in stored types.
    #[must_use]
    pub const fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// Whether each input row gives exactly one output row.
    #[must_use]
    pub fn keeps_rows(&self) -> bool {
        self.stages.iter().all(|stage| matches!(stage, Stage::Project(..) | Stage::Pick(_)))
    }

    /// Transforms a batch of the columns [`Self::reads`].
    pub fn apply(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let mut batch = batch;
        for stage in &self.stages {
            batch = stage.apply(batch)?;
        }
        to_stored(&batch, &self.output)
    }
}

impl Stage {
    fn apply(&self, batch: RecordBatch) -> Result<RecordBatch> {
        match self {
            Self::Filter(predicate) => {
                let verdict = predicate
                    .evaluate(&batch)
                    .and_then(|value| value.into_array(batch.num_rows()))
                    .map_err(engine_error)?;
                let verdict = verdict
                    .as_any()
                    .downcast_ref::<BooleanArray>()
                    .ok_or_else(|| Error::internal("a condition that is neither true nor false"))?;
                if verdict.null_count() == 0 && verdict.true_count() == verdict.len() {
                    return Ok(batch);
                }
                let verdict = if verdict.null_count() > 0 { prep_null_mask_filter(verdict) } else { verdict.clone() };
                Ok(filter_record_batch(&batch, &verdict)?)
            }
            Self::Project(exprs, schema) => {
                let mut columns = Vec::with_capacity(exprs.len());
                for expr in exprs {
                    let value = expr.evaluate(&batch).and_then(|value| value.into_array(batch.num_rows()));
                    columns.push(value.map_err(engine_error)?);
                }
                let fields: Vec<_> = schema
                    .fields()
                    .iter()
                    .zip(&columns)
                    // The planner's nullability is a promise that a batch with outer data need not keep.
                    .map(|(field, column)| {
                        Arc::new(field.as_ref().clone().with_nullable(true).with_data_type(column.data_type().clone()))
                    })
                    .collect();
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
            }
            Self::Unnest { lists, structs, schema, options } => {
                let source = MemorySourceConfig::try_new_exec(&[vec![batch.clone()]], batch.schema(), None)
                    .map_err(engine_error)?;
                let unnest =
                    UnnestExec::new(source, lists.clone(), structs.clone(), Arc::clone(schema), options.clone())
                        .map_err(engine_error)?;
                let stream = unnest.execute(0, Arc::new(TaskContext::default())).map_err(engine_error)?;
                // The rows are in memory: the stream is ready at once unless the runtime's budget interferes.
                let parts: Vec<RecordBatch> = tokio::task::unconstrained(stream.try_collect())
                    .now_or_never()
                    .ok_or_else(|| Error::internal("unnest waits for rows that are in memory"))?
                    .map_err(engine_error)?;
                Ok(concat_batches(schema, &parts)?)
            }
            Self::Named(transform, args) => transform.apply(args, &batch),
            Self::Pick(columns) => Ok(batch.project(columns)?),
        }
    }
}

fn physical(context: &SessionContext, expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    let state = context.state();
    create_physical_expr(expr, schema, state.execution_props(), &PhysicalPlanningContext::default())
        .map_err(engine_error)
}

fn projected(names: impl Iterator<Item = String>, exprs: &[Expr], schema: &DFSchema) -> Result<SchemaRef> {
    use datafusion::logical_expr::ExprSchemable;
    let mut fields = Vec::with_capacity(exprs.len());
    for (name, expr) in names.zip(exprs) {
        let data_type = expr.get_type(schema).map_err(engine_error)?;
        fields.push(arrow::datatypes::Field::new(name, data_type, true));
    }
    Ok(Arc::new(Schema::new(fields)))
}
