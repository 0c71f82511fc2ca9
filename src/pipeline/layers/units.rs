//! Units of work: the units that changed rows touch are recomputed over the pinned sources and replaced.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use futures::TryStreamExt;

use super::pins::{self, Changed, Pin};
use super::{Done, Mode, Work, rebuild, rows};
use crate::error::{Error, Result};
use crate::lineage::{RowMap, Unit, UnitMap, engine_error, output_column, plan_select, to_stored};
use crate::pipeline::replace::bits::Bits;
use crate::pipeline::replace::keys::KeyIndex;
use crate::pipeline::replace::rewrite::Collector;
use crate::pipeline::replace::{Replacement, by_units, columns_of};

/// More touched units than this are not worth being told apart.
const MANY_UNITS: usize = 1_000_000;

/// Advances a table without `keep` by what changed.
pub(super) async fn increment(work: &Work<'_>, changes: &[Changed]) -> Result<Done> {
    if work.lineage.row_by_row && changes.iter().all(Changed::only_adds) {
        return append(work, changes).await;
    }
    let units = match touched(work, changes).await? {
        Ok(units) => Arc::new(units),
        Err(reason) => return rebuild::whole(work, reason).await,
    };
    let done = |rows| Done { mode: Mode::Incremental, units: units.len() as u64, rows };
    if units.is_empty() {
        return Ok(done(Replacement::default()));
    }
    let mut collector = Collector::new(work.lake, &work.base, &work.schema, 1);
    if work.lineage.row_by_row {
        transform_units(work, &units, &mut collector).await?;
    } else {
        query_units(work, &units, &mut collector).await?;
    }
    Ok(done(by_units(work.lake, &work.base, &work.schema, &units, collector.finish().await?).await?))
}

/// Rows that came, through a transform that looks at each row by itself: their results are simply added.
async fn append(work: &Work<'_>, changes: &[Changed]) -> Result<Done> {
    let files = changes.iter().flat_map(|changed| changed.added.clone()).collect();
    let (adds, rows_added) = rows::write_files(work, files, None).await?;
    let rows = Replacement { adds, rows_added, ..Replacement::default() };
    Ok(Done { mode: Mode::Incremental, units: 0, rows })
}

/// The units that the changes touch, or why the whole table is meant.
async fn touched(work: &Work<'_>, changes: &[Changed]) -> Result<Result<KeyIndex, String>> {
    let columns = work.lineage.unit.columns();
    let mut units = KeyIndex::over(&work.lineage.output, columns)?;
    match &work.lineage.unit {
        Unit::Whole { reason } => return Ok(Err(reason.clone())),
        Unit::Mapped { maps, .. } => {
            for (pin, changed) in work.pins.iter().zip(changes) {
                add_mapped(pin, changed, maps, &mut units, MANY_UNITS).await?;
            }
        }
        Unit::Touched { queries, .. } => {
            for (pin, changed) in work.pins.iter().zip(changes) {
                let Some(sql) = queries.get(&pin.name) else {
                    return Ok(Err(format!("input {} has no touched", pin.name)));
                };
                if !changed.is_nothing() {
                    add_queried(work, pin, changed, sql, &mut units).await?;
                }
            }
        }
    }
    if units.len() > MANY_UNITS {
        return Ok(Err(format!("more than {MANY_UNITS} units are touched")));
    }
    Ok(Ok(units))
}

/// Units of changed rows by expressions over one row; goes no further when there are more than `most`.
pub(super) async fn add_mapped(
    pin: &Pin,
    changed: &Changed,
    maps: &[UnitMap],
    units: &mut KeyIndex,
    most: usize,
) -> Result<()> {
    let Some(snapshot) = &pin.snapshot else { return Ok(()) };
    let used: BTreeSet<&str> =
        maps.iter().flatten().flat_map(Expr::column_refs).map(|column| column.name.as_str()).collect();
    let fields: Vec<_> =
        pin.schema.fields().iter().filter(|field| used.contains(field.name().as_str())).cloned().collect();
    let input: SchemaRef = Arc::new(Schema::new(fields));
    let output: SchemaRef = Arc::new(Schema::new(units.fields().to_vec()));
    let mut compiled = Vec::with_capacity(maps.len());
    for map in maps {
        compiled.push(RowMap::of_units(map, &input, &output)?);
    }
    let names: Vec<String> = input.fields().iter().map(|field| field.name().clone()).collect();
    // Whether there may be more of them.
    let mut add = |batch: &RecordBatch| -> Result<bool> {
        for map in &compiled {
            let batch = RecordBatch::try_new(Arc::clone(&input), columns_of(batch, &names)?)?;
            units.insert(map.apply(batch)?.columns())?;
        }
        Ok(units.len() <= most)
    };
    if let Some(rows) = &changed.net {
        for batch in rows {
            if !add(batch)? {
                break;
            }
        }
        return Ok(());
    }
    for file in changed.added.iter().chain(&changed.removed) {
        let mut stream = snapshot.read(file, Some(&names)).await?;
        while let Some(batch) = stream.try_next().await? {
            if !add(&batch)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Units of changed rows by the contract's `touched` query.
async fn add_queried(work: &Work<'_>, pin: &Pin, changed: &Changed, sql: &str, units: &mut KeyIndex) -> Result<()> {
    let context = pins::session(work.lake)?;
    pins::register(&context, &work.pins)?;
    pins::register_changed(&context, pin, changed)?;
    let plan = plan_select(&context, sql).await.map_err(engine_error)?;
    let frame = context.execute_logical_plan(plan).await.map_err(engine_error)?;
    let mut stream = frame.execute_stream().await.map_err(engine_error)?;
    let names = units.names();
    let output: SchemaRef = Arc::new(Schema::new(units.fields().to_vec()));
    while let Some(batch) = stream.try_next().await.map_err(engine_error)? {
        if batch.num_rows() == 0 {
            continue;
        }
        if units.len() > MANY_UNITS {
            return Ok(());
        }
        let mut indices = Vec::with_capacity(names.len());
        for name in &names {
            indices.push(batch.schema_ref().index_of(name)?);
        }
        units.insert(to_stored(&batch.project(&indices)?, &output)?.columns())?;
    }
    Ok(())
}

/// The rows of some units, by the SQL with a filter on its output.
async fn query_units(work: &Work<'_>, units: &KeyIndex, collector: &mut Collector<'_>) -> Result<()> {
    let context = pins::session(work.lake)?;
    pins::register(&context, &work.pins)?;
    let plan = plan_select(&context, rows::sql(work)?).await.map_err(engine_error)?;
    let mut columns = Vec::with_capacity(units.fields().len());
    for field in units.fields() {
        columns.push(
            output_column(&plan, field.name())
                .ok_or_else(|| Error::internal(format!("the SQL gives no column `{}`", field.name())))?,
        );
    }
    let plan = LogicalPlanBuilder::from(plan)
        .filter(units.filter(&columns)?)
        .and_then(LogicalPlanBuilder::build)
        .map_err(engine_error)?;
    let frame = context.execute_logical_plan(plan).await.map_err(engine_error)?;
    let mut stream = frame.execute_stream().await.map_err(engine_error)?;
    while let Some(batch) = stream.try_next().await.map_err(engine_error)? {
        if batch.num_rows() > 0 {
            let stored = to_stored(&batch, &work.lineage.output)?;
            collector.push(&only_of(&stored, units)?).await?;
        }
    }
    Ok(())
}

/// The rows of some units, by a row-by-row transform over the files that can hold them.
async fn transform_units(work: &Work<'_>, units: &KeyIndex, collector: &mut Collector<'_>) -> Result<()> {
    let source = rows::source(work)?;
    let map = Arc::new(rows::compile(work, None)?);
    for file in source_files(work, units)? {
        let mut stream = rows::transformed(source, &file, Arc::clone(&map), None).await?;
        while let Some(batch) = stream.try_next().await? {
            collector.push(&only_of(&batch, units)?).await?;
        }
    }
    Ok(())
}

/// The source's files that can hold rows of some units: by statistics, for unit columns that are columns of the source.
pub(super) fn source_files(work: &Work<'_>, units: &KeyIndex) -> Result<Vec<crate::table::DataFile>> {
    let files = rows::source(work)?.files()?;
    let Unit::Mapped { columns, maps } = &work.lineage.unit else { return Ok(files.to_vec()) };
    let [map] = maps.as_slice() else { return Ok(files.to_vec()) };
    let source_schema = &work.pins[0].schema;
    let pruner = units.pruner()?.renamed(|name| {
        let at = columns.iter().position(|column| column == name)?;
        let Expr::Column(column) = &map[at] else { return None };
        let same_type = source_schema.field_with_name(&column.name).ok()?.data_type() == units.fields()[at].data_type();
        same_type.then(|| column.name.clone())
    });
    Ok(pruner.among(&files))
}

fn only_of(batch: &RecordBatch, units: &KeyIndex) -> Result<RecordBatch> {
    let mut bits = Bits::default();
    for (row, found) in units.find(&columns_of(batch, &units.names())?)?.into_iter().enumerate() {
        if found.is_some() {
            bits.set(row);
        }
    }
    Ok(filter_record_batch(batch, &bits.mask(0, batch.num_rows()))?)
}
