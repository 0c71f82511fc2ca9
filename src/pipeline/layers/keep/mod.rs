//! One row per key: which of the rows of a key stays is decided by `order_by` alone, never by arrival.
//!
//! Two passes over the files. The first reads only the columns of key and order and finds the winners ([`bulk`] first
//! finds the few rows whose key occurs twice at all, [`tournament`] compares). The second reads the winners' full rows
//! and writes them.

mod bulk;
mod ties;
mod tournament;

use std::sync::Arc;

use futures::TryStreamExt;

use super::pins::Changed;
use super::{Done, Mode, Work, rebuild, rows, units};
use crate::error::{Error, Result};
use crate::lineage::Unit;
use crate::pipeline::replace::bits::Bits;
use crate::pipeline::replace::keys::KeyIndex;
use crate::pipeline::replace::rewrite::Collector;
use crate::pipeline::replace::{NewRows, Replacement, by_units, exchange};
use crate::schema::Keep;
use crate::table::DataFile;
use tournament::{Entrants, Lane};

/// The whole table: winners of all rows of the source, written.
pub(super) async fn whole(work: &Work<'_>, keep: Keep) -> Result<(Vec<DataFile>, u64)> {
    let files = rows::source(work)?.files()?.to_vec();
    let chosen = winners(work, keep, &files).await?;
    rows::write_files(work, files, Some(chosen)).await
}

/// Advances the table by what changed in its source.
pub(super) async fn increment(work: &Work<'_>, changes: &[Changed]) -> Result<Done> {
    let (Some(keep), [changed]) = (work.derivation.keep, changes) else {
        return rebuild::whole(work, "keep over several sources".to_owned()).await;
    };
    match &work.lineage.unit {
        Unit::Mapped { maps, .. } => {
            if changed.only_adds() {
                return newcomers(work, keep, changed).await;
            }
            let mut keys = KeyIndex::over(&work.lineage.output, &work.contract.primary_key)?;
            units::add_mapped(&work.pins[0], changed, maps, &mut keys, usize::MAX).await?;
            again(work, keep, &Arc::new(keys)).await
        }
        Unit::Touched { .. } => rebuild::whole(work, "keep with touched".to_owned()).await,
        Unit::Whole { reason } => rebuild::whole(work, reason.clone()).await,
    }
}

/// Rows only came: each newcomer is compared with the stored winner of its key.
async fn newcomers(work: &Work<'_>, keep: Keep, changed: &Changed) -> Result<Done> {
    let stored = work.base.files()?;
    let added = changed.added.clone();
    if stored.is_empty() {
        let chosen = winners(work, keep, &added).await?;
        let units = chosen.iter().map(Bits::count).sum();
        let (adds, rows_added) = rows::write_files(work, added, Some(chosen)).await?;
        let rows = Replacement { adds, rows_added, ..Replacement::default() };
        return Ok(Done { mode: Mode::Incremental, units, rows });
    }
    let entrants = Entrants { source: lanes(&added, None), stored: lanes(&stored, None), only: None };
    let verdict = tournament::run(work, keep, &entrants).await?;
    let (files, rows) = rows::write_files(work, added, Some(verdict.chosen)).await?;
    let lost = stored.iter().cloned().zip(verdict.doomed).collect();
    let rows = exchange(work.lake, &work.base, &work.schema, lost, NewRows::Written { files, rows }).await?;
    Ok(Done { mode: Mode::Incremental, units: verdict.keys, rows })
}

/// Rows went: the winners of the touched keys are found anew in the source.
async fn again(work: &Work<'_>, keep: Keep, keys: &Arc<KeyIndex>) -> Result<Done> {
    let done = |rows| Done { mode: Mode::Incremental, units: keys.len() as u64, rows };
    if keys.is_empty() {
        return Ok(done(Replacement::default()));
    }
    let files = units::source_files(work, keys)?;
    let entrants = Entrants { source: lanes(&files, None), stored: Vec::new(), only: Some(keys) };
    let verdict = tournament::run(work, keep, &entrants).await?;
    let map = Arc::new(rows::compile(work, None)?);
    let source = rows::source(work)?;
    let mut collector = Collector::new(work.lake, &work.base, &work.schema, 1);
    for (file, chosen) in files.iter().zip(verdict.chosen) {
        if chosen.is_empty() {
            continue;
        }
        let mut stream = rows::transformed(source, file, Arc::clone(&map), Some(chosen)).await?;
        while let Some(batch) = stream.try_next().await? {
            collector.push(&batch).await?;
        }
    }
    Ok(done(by_units(work.lake, &work.base, &work.schema, keys, collector.finish().await?).await?))
}

/// The winners among all rows of some files of the source.
async fn winners(work: &Work<'_>, keep: Keep, files: &[DataFile]) -> Result<Vec<Bits>> {
    let Some(found) = bulk::contenders(work, files).await? else {
        let entrants = Entrants { source: lanes(files, None), stored: Vec::new(), only: None };
        return Ok(tournament::run(work, keep, &entrants).await?.chosen);
    };
    let mut chosen: Vec<Bits> = found.rows.iter().map(|rows| Bits::all(*rows)).collect();
    if found.contenders.iter().all(Bits::is_empty) {
        return Ok(chosen);
    }
    let entrants = Entrants { source: lanes(files, Some(found.contenders.clone())), stored: Vec::new(), only: None };
    let verdict = tournament::run(work, keep, &entrants).await?;
    for ((chosen, contenders), winners) in chosen.iter_mut().zip(&found.contenders).zip(&verdict.chosen) {
        contenders.rows().filter(|row| !winners.get(*row)).for_each(|row| chosen.clear(row));
    }
    Ok(chosen)
}

fn lanes(files: &[DataFile], rows: Option<Vec<Bits>>) -> Vec<Lane> {
    match rows {
        Some(rows) => files.iter().cloned().zip(rows).map(|(file, rows)| Lane { file, rows: Some(rows) }).collect(),
        None => files.iter().cloned().map(|file| Lane { file, rows: None }).collect(),
    }
}

fn too_many(what: &str) -> Error {
    Error::invalid(format!("more than four billion {what} in one file or table"))
}
