//! A snapshot's files as a DataFusion table.

use std::sync::Arc;

use arrow::datatypes::{Field, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, DataFusionError, ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use object_store::ObjectMeta;

use super::engine::store_url;
use super::partition::typed;
use super::prune::FileStats;
use super::schema::file_schema;
use super::{DataFile, Snapshot};
use crate::error::Result;
use crate::store::Store;

impl Snapshot {
    /// A DataFusion table over the given files (all live ones when none are given), with partition columns filled in,
    /// columns absent from a file as null, and files pruned by partition values and statistics.
    pub fn provider(&self, files: Option<Vec<DataFile>>) -> Result<Arc<dyn TableProvider>> {
        let files = match files {
            Some(files) => Arc::new(files),
            None => self.files()?,
        };
        Ok(Arc::new(Provider {
            store: self.store.clone(),
            folder: self.folder().to_owned(),
            schema: self.schema(),
            partition_by: self.partition_by().to_vec(),
            files,
        }))
    }
}

#[derive(Debug)]
struct Provider {
    store: Store,
    folder: String,
    schema: SchemaRef,
    partition_by: Vec<String>,
    files: Arc<Vec<DataFile>>,
}

type DfResult<T> = std::result::Result<T, DataFusionError>;

fn external(error: crate::error::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Provider {
    /// The scan's schema: the files' columns, then the partition columns.
    fn scan_schema(&self) -> TableSchema {
        let partition: Vec<Arc<Field>> = self
            .partition_by
            .iter()
            .filter_map(|name| self.schema.fields().find(name).map(|(_, field)| Arc::clone(field)))
            .collect();
        TableSchema::builder(file_schema(&self.schema, &self.partition_by)).with_table_partition_cols(partition).build()
    }

    /// The places of table columns in the scan's schema.
    fn scan_projection(&self, projection: Option<&Vec<usize>>, scan: &SchemaRef) -> DfResult<Vec<usize>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        wanted.iter().map(|at| Ok(scan.index_of(self.schema.field(*at).name())?)).collect()
    }

    /// The files that may hold a row that passes the filter.
    fn prune(&self, filter: &Arc<dyn PhysicalExpr>, scan: &SchemaRef) -> Option<Vec<bool>> {
        let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(scan));
        let predicate = builder.try_build(Arc::clone(filter)).ok()?;
        if predicate.always_true() {
            return None;
        }
        predicate.prune(&FileStats::new(&self.files, &self.schema, &self.partition_by)).ok()
    }

    fn partitioned_file(&self, file: &DataFile) -> DfResult<PartitionedFile> {
        let location = self.store.path(&format!("{}/{}", self.folder, file.path)).map_err(external)?;
        let modified = chrono::DateTime::from_timestamp_millis(file.modified_ms).unwrap_or_default();
        let meta = ObjectMeta { location, last_modified: modified, size: file.size, e_tag: None, version: None };
        let mut values = Vec::with_capacity(self.partition_by.len());
        for name in &self.partition_by {
            let kind = self.schema.field_with_name(name)?.data_type();
            let text = file.partition_values.get(name).and_then(Option::as_deref);
            let array = typed(name, kind, std::iter::once(text)).map_err(external)?;
            values.push(ScalarValue::try_from_array(&array, 0)?);
        }
        Ok(PartitionedFile::new_from_meta(meta).with_partition_values(values))
    }
}

#[async_trait]
impl TableProvider for Provider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(statistics(&self.schema, self.files.iter()))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let url = store_url(&self.store).map_err(external)?;
        state.runtime_env().register_object_store(url.as_ref(), self.store.object_store());
        let table_schema = self.scan_schema();
        let scan = Arc::clone(table_schema.table_schema());
        let mut options = state.table_options().parquet.clone();
        options.global = state.config_options().execution.parquet.clone();
        let mut source = ParquetSource::new(table_schema).with_table_parquet_options(options);
        let mut keep = None;
        if let Some(filter) = conjunction(filters.iter().cloned()) {
            let filter = state.create_physical_expr(filter, &DFSchema::try_from(Arc::clone(&scan))?)?;
            keep = self.prune(&filter, &scan);
            source = source.with_predicate(filter);
        }
        let kept = |at: usize| keep.as_ref().is_none_or(|keep| keep.get(at).copied().unwrap_or(true));
        let live: Vec<&DataFile> =
            self.files.iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, file)| file).collect();
        let files = live.iter().map(|file| self.partitioned_file(file)).collect::<DfResult<Vec<_>>>()?;
        let projection = self.scan_projection(projection, &scan)?;
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(Arc::new(scan.project(&projection)?))));
        }
        let config = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(share_out(files, state.config_options().execution.target_partitions))
            .with_statistics(statistics(&scan, live.into_iter()))
            .with_projection_indices(Some(projection))?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// Row count (exact when every file tells it) and bytes.
fn statistics<'a>(schema: &SchemaRef, files: impl Iterator<Item = &'a DataFile>) -> Statistics {
    let mut rows = Some(0);
    let mut bytes = 0;
    for file in files {
        rows = rows.zip(file.rows).map(|(sum, more)| sum + more);
        bytes += file.size;
    }
    let mut statistics = Statistics::new_unknown(schema);
    if let Some(rows) = rows.and_then(|rows| usize::try_from(rows).ok()) {
        statistics.num_rows = Precision::Exact(rows);
    }
    if let Ok(bytes) = usize::try_from(bytes) {
        statistics.total_byte_size = Precision::Inexact(bytes);
    }
    statistics
}

/// Groups of about equal size, one for each thread, files in order within a group.
fn share_out(files: Vec<PartitionedFile>, groups: usize) -> Vec<FileGroup> {
    let total: u64 = files.iter().map(|file| file.object_meta.size).sum();
    let share = (total / groups.max(1) as u64).max(1);
    let mut out: Vec<FileGroup> = Vec::new();
    let mut group = Vec::new();
    let mut size = 0;
    for file in files {
        size += file.object_meta.size;
        group.push(file);
        if size >= share {
            out.push(FileGroup::new(std::mem::take(&mut group)));
            size = 0;
        }
    }
    if !group.is_empty() {
        out.push(FileGroup::new(group));
    }
    out
}
