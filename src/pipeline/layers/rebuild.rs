//! The whole table from the pinned sources.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use super::{Done, Mode, Work, keep, pins, rows};
use crate::error::{Error, Result};
use crate::lineage::{engine_error, plan_select, to_stored};
use crate::pipeline::replace::rewrite::writer_options;
use crate::pipeline::replace::{Replacement, union_of};
use crate::schema::Keep;
use crate::table::{DataFile, Writer, conform};

/// The column that numbers the rows of a key; never stored.
const PLACE: &str = "_alluvium_place";

/// Recomputes everything and replaces all stored files.
pub(super) async fn whole(work: &Work<'_>, reason: String) -> Result<Done> {
    let by_rows = work.lineage.row_by_row && work.pins.iter().all(|pin| pin.snapshot.is_some());
    let (adds, rows_added) = match (by_rows, work.derivation.keep) {
        (true, Some(keep)) => keep::whole(work, keep).await?,
        (true, None) => {
            let files = rows::source(work)?.files()?.to_vec();
            rows::write_files(work, files, None).await?
        }
        (false, keep) => through_engine(work, keep).await?,
    };
    let removes = work.base.files()?.to_vec();
    let mut rows_removed = 0;
    for file in &removes {
        rows_removed += match file.rows {
            Some(rows) => rows,
            None => count(work, file).await?,
        };
    }
    let rows = Replacement { adds, removes, rows_added, rows_removed };
    Ok(Done { mode: Mode::Whole(reason), units: 0, rows })
}

async fn count(work: &Work<'_>, file: &DataFile) -> Result<u64> {
    let mut rows = 0;
    let mut batches = work.base.read(file, Some(&[])).await?;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

async fn through_engine(work: &Work<'_>, keep: Option<Keep>) -> Result<(Vec<DataFile>, u64)> {
    let context = pins::session(work.lake)?;
    pins::register(&context, &work.pins)?;
    let mut plan = plan_select(&context, rows::sql(work)?).await.map_err(engine_error)?;
    if let Some(keep) = keep {
        plan = winners_only(work, plan, keep)?;
    }
    write_plan(work, &context, plan).await
}

/// One row of each key, by the engine's window: for SQL that is not row by row.
fn winners_only(work: &Work<'_>, plan: LogicalPlan, keep: Keep) -> Result<LogicalPlan> {
    let column = |name: &String| Expr::Column(Column::new_unqualified(name));
    let ascending = keep == Keep::First;
    let names: Vec<String> = work.lineage.output.fields().iter().map(|field| field.name().clone()).collect();
    // Rows that order_by does not tell apart are told apart by their content.
    let comparable: Vec<String> = names
        .iter()
        .filter(|name| work.lineage.output.field_with_name(name).is_ok_and(|field| !field.data_type().is_nested()))
        .cloned()
        .collect();
    let ordering = union_of(&work.derivation.order_by, &comparable)
        .iter()
        .enumerate()
        .map(|(at, name)| column(name).sort(ascending || at >= work.derivation.order_by.len(), false))
        .collect();
    let place = row_number()
        .partition_by(work.contract.primary_key.iter().map(column).collect())
        .order_by(ordering)
        .build()
        .map_err(engine_error)?
        .alias(PLACE);
    LogicalPlanBuilder::from(plan)
        .window([place])
        .and_then(|plan| plan.filter(column(&PLACE.to_owned()).eq(lit(1_u64))))
        .and_then(|plan| plan.project(names.iter().map(column)))
        .and_then(LogicalPlanBuilder::build)
        .map_err(engine_error)
}

/// Runs a plan and writes what it gives.
async fn write_plan(work: &Work<'_>, context: &SessionContext, plan: LogicalPlan) -> Result<(Vec<DataFile>, u64)> {
    let frame = context.execute_logical_plan(plan).await.map_err(engine_error)?;
    let mut stream = frame.execute_stream().await.map_err(engine_error)?;
    let mut writer = Writer::new(
        &work.lake.store,
        &work.folder,
        Arc::clone(&work.schema),
        work.base.partition_by(),
        writer_options(work.lake, 1),
        Arc::clone(&work.lake.clock),
    );
    let mut rows = 0;
    while let Some(batch) = stream.try_next().await.map_err(engine_error)? {
        if batch.num_columns() != work.lineage.output.fields().len() {
            return Err(Error::internal("the SQL gave other columns than it was planned with"));
        }
        if batch.num_rows() > 0 {
            rows += batch.num_rows() as u64;
            writer.write(&conform(&to_stored(&batch, &work.lineage.output)?, &work.schema)?).await?;
        }
    }
    Ok((writer.finish().await?, rows))
}
