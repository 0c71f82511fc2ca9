//! The SQL engine: DataFusion with our store, a memory limit and disk spill.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::arithmetic;
use crate::error::{Error, Result};
use crate::name::short_hash;
use crate::store::Store;

/// Most rows of one batch ...
const BATCH_ROWS: usize = 8192;

/// ... each of which may be so wide before a batch is more than a small part of the memory, in bytes.
const WIDE_ROW: usize = 16 << 10;

/// A session over the tables of a store ([`Snapshot::provider`](super::Snapshot::provider)), with at most `memory_bytes` held by operators (sorts, joins and
/// aggregates go to disk beyond it) and `threads` partitions of work at a time. Text is `Utf8` everywhere, never a view.
/// Arithmetic is exact or refused.
pub fn session(store: &Store, memory_bytes: u64, threads: usize) -> Result<SessionContext> {
    let failed = |e: datafusion::error::DataFusionError| Error::internal("the SQL engine").because(e);
    let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
    let consumers = std::num::NonZero::new(5).unwrap_or(std::num::NonZero::<usize>::MIN);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(TrackConsumersPool::new(FairSpillPool::new(memory), consumers)))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::OsTmpDirectory))
        .build_arc()
        .map_err(failed)?;
    runtime.register_object_store(store_url(store)?.as_ref(), store.object_store());
    let mut config = SessionConfig::new()
        .with_target_partitions(threads.max(1))
        .with_batch_size((memory / WIDE_ROW).clamp(64, BATCH_ROWS))
        .with_information_schema(true);
    let options = config.options_mut();
    // Set aside for what is merged from the disk: no more than the memory has.
    let aside = options.execution.sort_spill_reservation_bytes;
    options.execution.sort_spill_reservation_bytes = aside.min(memory / 8);
    options.execution.parquet.pushdown_filters = true;
    options.execution.parquet.reorder_filters = true;
    options.execution.parquet.schema_force_view_types = false;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.time_zone = Some("UTC".to_owned());
    let state =
        SessionStateBuilder::new().with_config(config).with_runtime_env(runtime).with_default_features().build();
    let context = SessionContext::new_with_state(state);
    arithmetic::install(&context);
    Ok(context)
}

/// The address under which a store is known in a session. Not its own URL: paths are relative to the store's root, and a
/// session may have other files of the same machine.
pub(super) fn store_url(store: &Store) -> Result<ObjectStoreUrl> {
    ObjectStoreUrl::parse(format!("alluvium://lake-{}/", short_hash(&[store.url().as_str()])))
        .map_err(|e| Error::internal("the SQL engine").because(e))
}
