//! From kept changes to what they come to: the keys of new changes are walked through again, with all that is known of them,
//! and what is stored of them is replaced, in each derived table by a commit of its own.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::{filter, filter_record_batch, is_not_null};
use arrow::datatypes::{DataType, Field, Int8Type, Int64Type};
use futures::TryStreamExt;
use serde_json::Value;

use super::Work;
use super::feed::{Fed, GENERATION};
use super::gather::{self, Slices, kept_schema, of_files};
use super::target::{self, Kind, Need, TIES, Target};
use crate::change::walk::{READ_AT, Walked, Walker};
use crate::change::{Op, stored};
use crate::error::{Error, Result};
use crate::pipeline::layers::{Advanced, CONTRACT_HASH, Mode};
use crate::pipeline::replace::bits::Bits;
use crate::pipeline::replace::keys::KeyIndex;
use crate::pipeline::replace::rewrite::{Collector, rows_in, writer};
use crate::pipeline::replace::{NewRows, Replacement, by_units, columns_of, exchange};
use crate::pipeline::status::count;
use crate::quarantine::changes;
use crate::table::{Change, DataFile, Outcome, conform};

/// So large a part of the memory may be taken by the touched keys; of more, all are walked through.
const KEYS_SHARE: u64 = 8;

/// Brings each derived table to what was fed; the error tells that another writer was quicker.
pub(super) async fn derive(
    work: &Work<'_>,
    targets: Vec<Target<'_>>,
    mut fed: Fed,
) -> Result<std::result::Result<Vec<Advanced>, Error>> {
    let newest = target::newest(&fed.state)?;
    let mut needs = Vec::with_capacity(targets.len());
    for target in &targets {
        needs.push(target.need(&fed, newest).await?);
    }
    let shown: Vec<_> = targets.iter().filter(|target| target.kind != Kind::Quarantine).map(|t| &t.base).collect();
    let mut told = work.nothing(&shown);
    if needs.iter().all(|need| *need == Need::Nothing) {
        return Ok(Ok(told));
    }
    let scope = scope(work, &fed, &needs).await?;
    // What is held of the changes is not needed any more once they stand in order.
    let fresh = std::mem::take(&mut fed.fresh);
    let found = walk(work, &targets, &needs, &scope, &fed, fresh).await?;
    for ((target, need), new) in targets.iter().zip(&needs).zip(found.rows) {
        if *need == Need::Nothing {
            continue;
        }
        let units = if target.kind == Kind::Quarantine { &found.texts } else { scope.keys() };
        let rows = match new {
            None => Replacement::default(),
            Some(new) => replace(work, target, &scope, units, new).await?,
        };
        let ties = (target.kind == Kind::Rows && *need != Need::Watermark).then_some(found.ties);
        let advanced = match commit(target, &scope, rows, &fed, ties).await? {
            Ok(advanced) => advanced,
            Err(error) => return Ok(Err(error)),
        };
        if target.kind != Kind::Quarantine
            && let Some(place) = told.iter_mut().find(|known| known.table == advanced.table)
        {
            *place = advanced;
        }
    }
    Ok(Ok(told))
}

/// The keys that are walked through.
enum Scope {
    /// All, and why.
    All { reason: String, none: Arc<KeyIndex> },
    /// Those of new changes; that of what belongs to no key is always among them.
    Some(Arc<KeyIndex>),
}

impl Scope {
    fn keys(&self) -> &Arc<KeyIndex> {
        match self {
            Self::All { none, .. } => none,
            Self::Some(keys) => keys,
        }
    }
}

async fn scope(work: &Work<'_>, fed: &Fed, needs: &[Need]) -> Result<Scope> {
    let schema = kept_schema(work);
    let none = Arc::new(KeyIndex::over(&schema, &work.shape.key)?);
    let whole = needs.iter().find_map(|need| match need {
        Need::Whole(reason) => Some(reason.clone()),
        _ => None,
    });
    if let Some(reason) = whole {
        return Ok(Scope::All { reason, none });
    }
    let since = needs.iter().filter_map(|need| match need {
        Need::Since(watermark) => Some(*watermark),
        _ => None,
    });
    let mut keys = KeyIndex::over(&schema, &work.shape.key)?;
    let nulls: Vec<ArrayRef> = keys.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    keys.insert(&nulls)?;
    let Some(since) = since.min() else { return Ok(Scope::Some(Arc::new(keys))) };
    let mut wanted = work.shape.key.clone();
    wanted.extend([stored::RANK.to_owned(), READ_AT.to_owned()]);
    let most = usize::try_from(work.lake.settings.memory_bytes / KEYS_SHARE).unwrap_or(usize::MAX);
    let mut has_truncate = false;
    let mut add = |batch: &RecordBatch| -> Result<()> {
        let read_at = columns_of(batch, &wanted[wanted.len() - 1..])?;
        let new: BooleanArray =
            read_at[0].as_primitive::<Int64Type>().iter().map(|at| Some(at.is_none_or(|at| at > since))).collect();
        if new.true_count() == 0 {
            return Ok(());
        }
        let batch = filter_record_batch(batch, &new)?;
        let rank = columns_of(&batch, &[stored::RANK.to_owned()])?;
        has_truncate |= rank[0].as_primitive::<Int8Type>().values().contains(&Op::Truncate.rank());
        if keys.memory() <= most {
            keys.insert(&columns_of(&batch, &work.shape.key)?)?;
        }
        Ok(())
    };
    fed.fresh.iter().try_for_each(&mut add)?;
    for file in unread(fed)?.iter().filter(|file| target::read_at(file) > since) {
        let mut batches = fed.state.read(file, Some(&wanted)).await?;
        while let Some(batch) = batches.try_next().await? {
            add(&batch)?;
        }
    }
    if has_truncate {
        return Ok(Scope::All { reason: "the table was truncated".to_owned(), none });
    }
    if keys.memory() > most {
        return Ok(Scope::All { reason: "more keys changed than memory has room for".to_owned(), none });
    }
    Ok(Scope::Some(Arc::new(keys)))
}

/// The files whose changes are not in memory.
fn unread(fed: &Fed) -> Result<Vec<DataFile>> {
    let files = fed.state.files()?;
    Ok(files.iter().filter(|file| !fed.fresh_files.contains(&file.path)).cloned().collect())
}

/// What a walk found.
struct Found {
    /// New rows for each target that wants some.
    rows: Vec<Option<NewRows>>,
    /// Keys as quarantine has them, of all that was walked.
    texts: Arc<KeyIndex>,
    /// How many changes came with different rows, in all.
    ties: u64,
}

async fn walk(
    work: &Work<'_>,
    targets: &[Target<'_>],
    needs: &[Need],
    scope: &Scope,
    fed: &Fed,
    fresh: Vec<RecordBatch>,
) -> Result<Found> {
    let field = Arc::new(Field::new(changes::KEY, DataType::Utf8, true));
    let mut texts = KeyIndex::new(&[field])?;
    texts.insert(&[new_null_array(&DataType::Utf8, 1)])?;
    let wants = |need: &Need| matches!(need, Need::Since(_) | Need::Whole(_));
    let mut collectors: Vec<Option<Collector<'_>>> = targets
        .iter()
        .zip(needs)
        .map(|(target, need)| {
            wants(need).then(|| Collector::new(work.lake, &target.base, &target.schema, targets.len()))
        })
        .collect();
    let (mut ties, known) = match (needs.first(), targets.first()) {
        (Some(Need::Since(watermark)), Some(rows)) if matches!(scope, Scope::Some(_)) => {
            (target::ties(&rows.base), *watermark)
        }
        _ => (0, i64::MIN),
    };
    if needs.iter().any(wants) {
        let mut slices = changes_of(work, scope, fed, fresh).await?;
        let judge = |batch: &RecordBatch| work.images.rejudge(batch);
        let mut walker = Walker::new(&work.shape, &judge, known);
        while let Some(slice) = slices.next().await? {
            let key = columns_of(&slice, &[stored::KEY.to_owned()])?;
            let said = filter(&key[0], &is_not_null(&key[0])?)?;
            if !said.is_empty() && matches!(scope, Scope::Some(_)) {
                texts.insert(&[said])?;
            }
            let walked = walker.walk(&slice)?;
            ties = (ties + walked.ties).saturating_sub(walked.known_ties);
            for (target, collector) in targets.iter().zip(&mut collectors) {
                if let (Some(collector), Some(rows)) = (collector, rows_of(&walked, target.kind)) {
                    collector.push(rows).await?;
                }
            }
        }
    }
    let mut rows = Vec::with_capacity(collectors.len());
    for collector in collectors {
        rows.push(match collector {
            Some(collector) => Some(collector.finish().await?),
            None => None,
        });
    }
    Ok(Found { rows, texts: Arc::new(texts), ties })
}

/// The rows of a walk for one of the tables.
pub(super) const fn rows_of(walked: &Walked, kind: Kind) -> Option<&RecordBatch> {
    match kind {
        Kind::Rows => Some(&walked.rows),
        Kind::History => walked.history.as_ref(),
        Kind::Quarantine => Some(&walked.quarantine),
    }
}

/// The changes of all keys of the scope, those in memory not read again.
async fn changes_of(work: &Work<'_>, scope: &Scope, fed: &Fed, fresh: Vec<RecordBatch>) -> Result<Slices> {
    let mut files = unread(fed)?;
    let keys = match scope {
        Scope::All { .. } => None,
        Scope::Some(keys) => {
            files = keys.pruner()?.among(&files);
            Some(keys)
        }
    };
    let stored = of_files(&fed.state, files, keys, work.lake.settings.threads).await?;
    gather::gather(work, fresh, stored).await
}

async fn replace(
    work: &Work<'_>,
    target: &Target<'_>,
    scope: &Scope,
    units: &Arc<KeyIndex>,
    new: NewRows,
) -> Result<Replacement> {
    let Target { base, schema, .. } = target;
    if matches!(scope, Scope::Some(_)) {
        return by_units(work.lake, base, schema, units, new).await;
    }
    if !target.evolves() {
        let mut lost = Vec::new();
        for file in base.files()?.iter() {
            lost.push((file.clone(), Bits::all(rows_in(base, file).await?)));
        }
        return exchange(work.lake, base, schema, lost, new).await;
    }
    let rows_removed = count(base).await?;
    let (adds, rows_added) = match new {
        NewRows::Written { files, rows } => (files, rows),
        NewRows::Held(batches) => {
            let mut writer = writer(work.lake, base, schema, 1);
            let mut rows = 0;
            for batch in batches {
                rows += batch.num_rows() as u64;
                writer.write(&conform(&batch, schema)?).await?;
            }
            (writer.finish().await?, rows)
        }
    };
    Ok(Replacement { adds, removes: base.files()?.to_vec(), rows_added, rows_removed })
}

async fn commit(
    target: &Target<'_>,
    scope: &Scope,
    rows: Replacement,
    fed: &Fed,
    ties: Option<u64>,
) -> Result<std::result::Result<Advanced, Error>> {
    let (id, version) = &fed.watermark;
    let (operation, mode, units) = match scope {
        Scope::All { reason, .. } => ("RECOMPUTE", Mode::Whole(reason.clone()), 0),
        Scope::Some(keys) => ("ADVANCE", Mode::Incremental, keys.len() as u64 - 1),
    };
    let mut change = Change {
        operation: operation.to_owned(),
        adds: rows.adds,
        removes: rows.removes,
        txns: vec![(id.clone(), *version), (GENERATION.to_owned(), fed.generation)],
        schema: target.evolves().then(|| Arc::clone(&target.schema)),
        ..Change::default()
    };
    for (name, number) in [("units", units), ("rowsAdded", rows.rows_added), ("rowsRemoved", rows.rows_removed)] {
        change.info.insert(name.to_owned(), Value::from(number));
    }
    if let Mode::Whole(reason) = &mode {
        change.info.insert("recomputedWhole".to_owned(), Value::from(reason.clone()));
    }
    if target.base.properties().get(CONTRACT_HASH) != Some(&target.contract.hash) {
        change.properties.insert(CONTRACT_HASH.to_owned(), target.contract.hash.clone());
    }
    if let Some(ties) = ties.filter(|ties| *ties != target::ties(&target.base)) {
        change.properties.insert(TIES.to_owned(), ties.to_string());
    }
    match target.table.commit(&target.base, change).await? {
        Outcome::Committed(now) => {
            tracing::debug!(
                table.name = target::named(target.kind, &target.contract.table),
                table.version = now.version(),
                rows.added = rows.rows_added,
                rows.removed = rows.rows_removed,
                "derived from kept changes"
            );
            Ok(Ok(Advanced {
                table: target.contract.table.clone(),
                mode,
                units,
                rows_added: rows.rows_added,
                rows_removed: rows.rows_removed,
                version: Some(now.version()),
            }))
        }
        Outcome::Unknown(error) => Ok(Err(error)),
    }
}
