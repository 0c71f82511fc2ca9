//! The sources of one advance: each pinned at one version, with what changed since the watermark.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use async_trait::async_trait;
use datafusion::catalog::empty::EmptyTable;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result as EngineResult, TableReference};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use hashbrown::{DefaultHashBuilder, HashMap};
use std::hash::BuildHasher;

use super::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::lineage::{CHANGED, Inputs, engine_error, visible};
use crate::name::TableName;
use crate::pipeline::lake::Lake;
use crate::pipeline::replace::bits::Bits;
use crate::pipeline::replace::columns_of;
use crate::schema::Derivation;
use crate::table::{DataFile, Snapshot, engine};

/// Changed files of more rows than this are not compared row by row: all their rows count as changed.
const COMPARED_ROWS: u64 = 4_000_000;

/// Changed rows are kept in memory up to this share of the memory.
const HELD_SHARE: u64 = 12;

/// A source at one version.
pub(super) struct Pin {
    /// Its name in the SQL.
    pub name: String,
    /// The table.
    pub table: TableName,
    /// The version that is read; none when the table does not exist yet: it counts as empty.
    pub snapshot: Option<Snapshot>,
    /// Its columns as the SQL sees them.
    pub schema: SchemaRef,
    /// The version up to which the derived table holds it.
    pub watermark: Option<i64>,
}

/// Rows of a source that came or went since the watermark.
pub(super) struct Changed {
    /// New files.
    pub added: Vec<DataFile>,
    /// Files that are no more.
    pub removed: Vec<DataFile>,
    /// Only the rows that differ, both ways, when files came and went and their rows could be compared.
    pub net: Option<Vec<RecordBatch>>,
}

impl Changed {
    /// Whether no row changed.
    pub(super) fn is_nothing(&self) -> bool {
        match &self.net {
            Some(rows) => rows.iter().all(|batch| batch.num_rows() == 0),
            None => self.added.is_empty() && self.removed.is_empty(),
        }
    }

    /// Whether rows only came.
    pub(super) const fn only_adds(&self) -> bool {
        self.removed.is_empty()
    }
}

/// Pins every source at its newest version.
pub(super) async fn pin(lake: &Lake, derivation: &Derivation) -> Result<Vec<Pin>> {
    let mut pins = Vec::with_capacity(derivation.inputs.len());
    for (name, table) in &derivation.inputs {
        let snapshot = match lake.table(&layout::table(table)).await? {
            Some(open) => Some(open.snapshot().await?),
            None => None,
        };
        let schema = match &snapshot {
            Some(snapshot) => visible(&snapshot.schema()),
            None => crate::lineage::planned_schema(&lake.catalog, table)?,
        };
        pins.push(Pin { name: name.clone(), table: table.clone(), snapshot, schema, watermark: None });
    }
    Ok(pins)
}

/// The schemas of the pinned sources by input name.
pub(super) fn inputs(pins: &[Pin]) -> Inputs {
    pins.iter().map(|pin| (pin.name.clone(), Arc::clone(&pin.schema))).collect()
}

/// What changed in each source, in the order of the pins; or why that cannot be known.
pub(super) async fn changes(work: &Work<'_>) -> Result<Result<Vec<Changed>, String>> {
    let mut all = Vec::with_capacity(work.pins.len());
    for pin in &work.pins {
        let mut changed = Changed { added: Vec::new(), removed: Vec::new(), net: None };
        if let (Some(snapshot), Some(watermark)) = (&pin.snapshot, pin.watermark)
            && watermark < snapshot.version()
        {
            let Some(table) = work.lake.table(&layout::table(&pin.table)).await? else {
                return Ok(Err(format!("{} is gone", pin.table)));
            };
            let Some(found) = table.changes(watermark, snapshot).await? else {
                return Ok(Err(format!("{} can no longer be read back to version {watermark}", pin.table)));
            };
            changed.added = found.added;
            changed.removed = found.removed;
            match net(work, pin, snapshot, &changed).await {
                Ok(rows) => changed.net = rows,
                // A removed file that vacuum deleted.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Ok(Err(format!("rows of {} before version {} are gone", pin.table, snapshot.version())));
                }
                Err(error) => return Err(error),
            }
        }
        all.push(changed);
    }
    Ok(Ok(all))
}

/// The rows that came or went, less those that did both. None when there is nothing to compare, or too much.
async fn net(work: &Work<'_>, pin: &Pin, snapshot: &Snapshot, changed: &Changed) -> Result<Option<Vec<RecordBatch>>> {
    let rows: Option<u64> = changed.added.iter().chain(&changed.removed).map(|file| file.rows).sum();
    let comparable = rows.is_some_and(|rows| rows <= COMPARED_ROWS);
    if changed.added.is_empty() || changed.removed.is_empty() || !comparable {
        return Ok(None);
    }
    let names: Vec<String> = pin.schema.fields().iter().map(|field| field.name().clone()).collect();
    let converter =
        RowConverter::new(pin.schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect())?;
    let digest = Digest::default();
    let sides = || changed.added.iter().map(|file| (file, 1)).chain(changed.removed.iter().map(|file| (file, -1)));
    let mut counts: HashMap<u128, i64> = HashMap::new();
    for (file, sign) in sides() {
        let mut stream = snapshot.read(file, Some(&names)).await?;
        while let Some(batch) = stream.try_next().await? {
            for row in &converter.convert_columns(&columns_of(&batch, &names)?)? {
                *counts.entry(digest.of(row.as_ref())).or_insert(0) += sign;
            }
        }
    }
    counts.retain(|_, count| *count != 0);
    let limit = usize::try_from(work.lake.settings.memory_bytes / HELD_SHARE).unwrap_or(usize::MAX);
    let (mut held, mut bytes) = (Vec::new(), 0);
    for (file, _) in sides() {
        let mut stream = snapshot.read(file, Some(&names)).await?;
        while let Some(batch) = stream.try_next().await? {
            let encoded = converter.convert_columns(&columns_of(&batch, &names)?)?;
            let mut differs = Bits::default();
            for (at, row) in encoded.iter().enumerate() {
                if counts.contains_key(&digest.of(row.as_ref())) {
                    differs.set(at);
                }
            }
            if differs.is_empty() {
                continue;
            }
            let batch = filter_record_batch(&batch, &differs.mask(0, batch.num_rows()))?;
            bytes += batch.get_array_memory_size();
            if bytes > limit {
                return Ok(None);
            }
            held.push(batch);
        }
    }
    Ok(Some(held))
}

/// 128 bits of a row's bytes, by two hashes with seeds of their own.
#[derive(Default)]
pub(super) struct Digest(DefaultHashBuilder, DefaultHashBuilder);

impl Digest {
    pub(super) fn of(&self, bytes: &[u8]) -> u128 {
        let salted = (bytes, 0x9e37_79b9_u32);
        u128::from(self.0.hash_one(bytes)) << 64 | u128::from(self.1.hash_one(salted))
    }
}

/// A session for the SQL engine within the lake's limits.
pub(super) fn session(lake: &Lake) -> Result<SessionContext> {
    // The writers and what is held beside the engine have the other half.
    engine::session(&lake.store, lake.settings.memory_bytes / 2, lake.settings.threads)
}

/// Registers the pinned sources under their input names.
pub(super) fn register(context: &SessionContext, pins: &[Pin]) -> Result<()> {
    for pin in pins {
        let provider = provider(pin, None)?;
        context.register_table(TableReference::bare(pin.name.as_str()), provider).map_err(engine_error)?;
    }
    Ok(())
}

/// Registers an input's changed rows as `<input>_changed`.
pub(super) fn register_changed(context: &SessionContext, pin: &Pin, changed: &Changed) -> Result<()> {
    let provider: Arc<dyn TableProvider> = match &changed.net {
        Some(rows) => {
            let schema = rows.first().map_or_else(|| Arc::clone(&pin.schema), RecordBatch::schema);
            Arc::new(MemTable::try_new(schema, vec![rows.clone()]).map_err(engine_error)?)
        }
        None => provider(pin, Some(changed.added.iter().chain(&changed.removed).cloned().collect()))?,
    };
    let name = format!("{}{CHANGED}", pin.name);
    context.register_table(TableReference::bare(name.as_str()), provider).map_err(engine_error)?;
    Ok(())
}

fn provider(pin: &Pin, files: Option<Vec<DataFile>>) -> Result<Arc<dyn TableProvider>> {
    let Some(snapshot) = &pin.snapshot else {
        return Ok(Arc::new(EmptyTable::new(Arc::clone(&pin.schema))));
    };
    let inner = snapshot.provider(files)?;
    let stored = inner.schema();
    let mut columns = Vec::with_capacity(pin.schema.fields().len());
    for field in pin.schema.fields() {
        columns.push(
            stored
                .index_of(field.name())
                .map_err(|e| Error::internal(format!("{} lost column `{}`", pin.table, field.name())).because(e))?,
        );
    }
    let schema = Arc::new(stored.project(&columns)?);
    Ok(Arc::new(SomeColumns { inner, columns, schema }))
}

/// A table with some of its columns out of sight.
#[derive(Debug)]
struct SomeColumns {
    inner: Arc<dyn TableProvider>,
    columns: Vec<usize>,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for SomeColumns {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        self.inner.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        self.inner.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let seen: Vec<usize> = match projection {
            Some(wanted) => wanted.iter().map(|at| self.columns[*at]).collect(),
            None => self.columns.clone(),
        };
        self.inner.scan(state, Some(&seen), filters, limit).await
    }
}
