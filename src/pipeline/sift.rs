//! List, then sift: what is staged for a table and may be planned. Left-overs of settled batches go, batches whose data
//! vanished are marked to be staged anew, failed ones rest. DESIGN section 4, step 5.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use futures::{StreamExt, TryStreamExt};

use crate::error::Result;
use crate::layout;
use crate::manifest::{BatchSource, FileVersion, Manifest, Note, Status, StreamRange};
use crate::name::BatchId;
use crate::pipeline::lake::Lake;
use crate::pipeline::ledger::TableLedger;
use crate::pipeline::notes;
use crate::pipeline::staging::{self, StagedBatch, Stored};
use crate::schema::Contract;

/// A manifest that came this long after its data is not trusted: half of the time after which the upkeep deletes staged
/// data that no manifest names.
pub(super) const UNNAMED: TimeDelta = TimeDelta::hours(12);

/// Store calls under way at once.
const CONCURRENT: usize = 32;

/// What may be planned now.
#[derive(Debug, Default)]
pub struct Sifted {
    /// Manifests: files in the order of their paths, older first, then pieces of streams in the order of their offsets.
    pub manifests: Vec<Manifest>,
    /// Notes that say something new, with the paths of all notes of the batch.
    pub notes: Vec<(Note, Vec<String>)>,
    /// Notes of batches that also have a manifest: they go when it is settled.
    pub notes_of_manifests: BTreeMap<BatchId, Vec<String>>,
    /// File versions whose staged data is gone: to be enqueued again.
    pub restage: Vec<FileVersion>,
}

impl Sifted {
    /// Whether there is nothing to plan.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.manifests.is_empty() && self.notes.is_empty()
    }

    /// Staged rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.manifests.iter().map(|manifest| manifest.counts.rows_in).sum()
    }

    /// Staged bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.manifests.iter().flat_map(|manifest| &manifest.files).map(|file| file.bytes).sum()
    }

    /// When the oldest of what may be planned was staged or noted.
    #[must_use]
    pub fn oldest(&self) -> Option<DateTime<Utc>> {
        let staged = self.manifests.iter().map(|manifest| manifest.staged_at);
        staged.chain(self.notes.iter().map(|(note, _)| note.at)).min()
    }
}

/// Lists and sifts. `table_id` is the id of the table that the ledger was read for.
pub async fn sift(lake: &Lake, contract: &Contract, table_id: &str, known: &TableLedger) -> Result<Sifted> {
    let mut sifted = Sifted::default();
    let staged = staging::list(lake, &contract.table).await?;
    let mut leftovers = Vec::new();
    let mut wanted = Vec::new();
    for (batch, found) in staged {
        if known.is_terminal(&batch) {
            leftovers.extend(all_names(contract, &batch, &found));
            continue;
        }
        if found.is_gone() {
            match source_to_restage(lake, contract, &batch, &found, known).await? {
                Some(BatchSource::File(version)) => sifted.restage.push(version),
                Some(BatchSource::Stream(range)) if known.missing(&range).is_empty() => {
                    // Other batches brought all of it: nothing is lost, and nothing is left to do.
                    leftovers.extend(all_names(contract, &batch, &found));
                    continue;
                }
                Some(BatchSource::Stream(range)) => note_loss(lake, contract, &batch, range).await?,
                None => {}
            }
        }
        wanted.push((batch, found));
    }
    // Only names: the data of a settled batch may be live in the table.
    lake.store.delete(&leftovers).await?;
    let looked: Vec<Look> = futures::stream::iter(wanted)
        .map(|(batch, found)| look(lake, contract, table_id, known, batch, found))
        .buffered(CONCURRENT)
        .try_collect()
        .await?;
    let nameless: BTreeSet<BatchId> =
        looked.iter().filter(|look| look.is_nameless).map(|look| look.batch.clone()).collect();
    if !nameless.is_empty() {
        sifted.restage.extend(landed(lake, contract, table_id, &nameless).await?);
    }
    for look in looked {
        take(lake, look, known, &mut sifted).await?;
    }
    sifted.manifests.sort_by(|a, b| in_order(&a.source, &b.source).then_with(|| a.batch_id.cmp(&b.batch_id)));
    Ok(sifted)
}

fn in_order(a: &BatchSource, b: &BatchSource) -> Ordering {
    match (a, b) {
        (BatchSource::File(a), BatchSource::File(b)) => (&a.path, a.last_modified).cmp(&(&b.path, b.last_modified)),
        (BatchSource::Stream(a), BatchSource::Stream(b)) => {
            let of = |range: &StreamRange| (range.partition, range.first, range.last);
            (&a.topic, &a.epoch).cmp(&(&b.topic, &b.epoch)).then_with(|| of(a).cmp(&of(b)))
        }
        (BatchSource::File(_), BatchSource::Stream(_)) => Ordering::Less,
        (BatchSource::Stream(_), BatchSource::File(_)) => Ordering::Greater,
    }
}

/// What was found out about one staged batch.
struct Look {
    batch: BatchId,
    notes: Vec<String>,
    manifest: Option<Manifest>,
    restage: Option<FileVersion>,
    /// To be staged anew, and what it was staged from is not known.
    is_nameless: bool,
}

async fn look(
    lake: &Lake,
    contract: &Contract,
    table_id: &str,
    known: &TableLedger,
    batch: BatchId,
    found: StagedBatch,
) -> Result<Look> {
    let mut look = Look { batch, notes: found.notes.clone(), manifest: None, restage: None, is_nameless: false };
    let Some(generation) = found.current() else { return Ok(look) };
    let path = layout::manifest(&contract.table, &look.batch, generation);
    let gone = layout::marker_gone(&contract.table, &look.batch, generation);
    let (manifest, put_at) = match staging::read_stored::<Manifest>(lake, &path).await? {
        Stored::There(manifest, put_at) => (manifest, put_at),
        Stored::Gone => return Ok(look),
        // It does not say which file it was of.
        Stored::Damaged(error) => {
            tracing::warn!("{}; its file is staged anew", error.describe());
            staging::put_marker(lake, &gone).await?;
            look.is_nameless = true;
            return Ok(look);
        }
    };
    if manifest.table_id != table_id {
        rename(lake, table_id, &manifest).await?;
        // Staged for a table of that name that was dropped: its files are missing for the new one, reconcile finds them.
        tracing::warn!(%path, "manifest of a table that is no more, removed");
        lake.store.delete(&[path]).await?;
        return Ok(look);
    }
    if found.failed.contains(&generation) {
        let is_stream = manifest.source.range().is_some();
        if !is_stream && manifest.contract_hash != contract.hash {
            staging::put_marker(lake, &gone).await?;
            look.restage = source_of(manifest);
            return Ok(look);
        }
        // What was delivered is not delivered again: under a new contract it is tried as it is staged.
        if !is_stream || has_failed(lake, contract, known, &look).await? {
            return Ok(look);
        }
        lake.store.delete(&[layout::marker_failed(&contract.table, &look.batch, generation)]).await?;
    }
    for file in manifest.files.iter().chain(&manifest.rejects) {
        let meta = lake.store.head(&file.path).await?;
        // Data that lay unnamed for that long may be what the upkeep is about to delete.
        let is_safe = meta.is_some_and(|meta| put_at.signed_duration_since(meta.last_modified) < UNNAMED);
        if !is_safe {
            tracing::warn!(path = %file.path, source = %manifest.source, "staged data is gone or too old, staging anew");
            staging::put_marker(lake, &gone).await?;
            // A piece of a stream is looked at again by the next run, which finds the marker.
            look.restage = source_of(manifest);
            return Ok(look);
        }
    }
    look.manifest = Some(manifest);
    Ok(look)
}

/// The landed versions that some batches are of.
async fn landed(
    lake: &Lake,
    contract: &Contract,
    table_id: &str,
    batches: &BTreeSet<BatchId>,
) -> Result<Vec<FileVersion>> {
    let mut found = Vec::new();
    let mut listed = lake.landing.list();
    while let Some(version) = listed.next().await {
        // What cannot be listed is left to `reconcile`, as is a file that is not there now.
        let Ok(version) = version else { continue };
        let takes = lake.catalog.claims(&version.path).iter().any(|(claimed, _)| claimed.table == contract.table);
        if takes && batches.contains(&BatchId::of_file(table_id, &version.path, &version.etag)) {
            found.push(version);
        }
    }
    Ok(found)
}

async fn take(lake: &Lake, look: Look, known: &TableLedger, sifted: &mut Sifted) -> Result<()> {
    sifted.restage.extend(look.restage);
    if let Some(manifest) = look.manifest {
        if !look.notes.is_empty() {
            sifted.notes_of_manifests.insert(look.batch, look.notes);
        }
        sifted.manifests.push(manifest);
        return Ok(());
    }
    let Some(note) = staging::newest_note(lake, &look.notes).await? else { return Ok(()) };
    if known.batches.get(&look.batch).is_some_and(|last| notes::says_the_same(last, &note)) {
        return lake.store.delete(&look.notes).await;
    }
    sifted.notes.push((note, look.notes));
    Ok(())
}

/// A gone batch is enqueued again, unless it is known that its source is missing (then reconcile finds it if it returns). A piece
/// of a stream that other batches brought whole is given back whatever is known.
async fn source_to_restage(
    lake: &Lake,
    contract: &Contract,
    batch: &BatchId,
    found: &StagedBatch,
    known: &TableLedger,
) -> Result<Option<BatchSource>> {
    let is_there = |range: &StreamRange| known.missing(range).is_empty();
    if let Some(last) = known.batches.get(batch).filter(|last| last.status == Status::Missing) {
        return Ok(last.source.range().filter(|range| is_there(range)).cloned().map(Into::into));
    }
    let Some(newest) = found.manifests.iter().max() else { return Ok(None) };
    let path = layout::manifest(&contract.table, batch, *newest);
    // One that is damaged does not say what it was of.
    let Stored::There(manifest, _) = staging::read_stored::<Manifest>(lake, &path).await? else { return Ok(None) };
    if manifest.source.range().is_some_and(is_there) {
        return Ok(Some(manifest.source));
    }
    for path in &found.notes {
        if let Stored::There(note, _) = staging::read_stored::<Note>(lake, path).await?
            && note.status == Status::Missing
        {
            return Ok(None);
        }
    }
    Ok(manifest.redrive.is_none().then_some(manifest.source))
}

/// The file version to stage anew; none for a redrive, which a person begins again, and for a piece of a stream, which only
/// the stream has.
fn source_of(manifest: Manifest) -> Option<FileVersion> {
    match manifest.source {
        BatchSource::File(version) if manifest.redrive.is_none() => Some(version),
        _ => None,
    }
}

/// A piece of a stream that was staged for a table of that name which was dropped: nobody delivers it again, so it is staged
/// for the table that has the name now.
async fn rename(lake: &Lake, table_id: &str, manifest: &Manifest) -> Result<()> {
    let Some(range) = manifest.source.range() else { return Ok(()) };
    let StreamRange { topic, epoch, partition, first, last, .. } = range;
    let batch_id = BatchId::of_range(table_id, topic, epoch.as_deref(), *partition, (*first, *last));
    let renamed = Manifest { table_id: table_id.to_owned(), batch_id, generation: 0, ..manifest.clone() };
    staging::put_manifest(lake, &renamed).await
}

/// Whether a batch failed under the present contract, by the ledger or by a note on its way there.
async fn has_failed(lake: &Lake, contract: &Contract, known: &TableLedger, look: &Look) -> Result<bool> {
    let hash = &contract.hash;
    let recorded = known.batches.get(&look.batch);
    if recorded.is_some_and(|row| row.status == Status::Failed && row.contract_hash.as_ref() == Some(hash)) {
        return Ok(true);
    }
    let note = staging::newest_note(lake, &look.notes).await?;
    Ok(note.is_some_and(|note| note.status == Status::Failed && note.contract_hash == *hash))
}

/// Staged records of a stream that are gone, and that nobody will deliver again by himself: the ledger says so, and whoever
/// rewinds the stream brings them back.
async fn note_loss(lake: &Lake, contract: &Contract, batch: &BatchId, range: StreamRange) -> Result<()> {
    let reason = "its staged records are gone; set the consumer group back before them, and they are delivered again";
    tracing::error!(table.name = %contract.table, source = %range, "records of a stream are lost: {reason}");
    let note = Note {
        version: 1,
        table: contract.table.clone(),
        batch_id: batch.clone(),
        source: range.into(),
        status: Status::Missing,
        reason: reason.to_owned(),
        transient: false,
        contract_hash: contract.hash.clone(),
        attempts: 1,
        at: lake.clock.now(),
    };
    staging::put_note(lake, &note).await
}

/// All names of a batch in the manifest folder: markers first, manifests last.
pub fn all_names(contract: &Contract, batch: &BatchId, found: &StagedBatch) -> Vec<String> {
    let table = &contract.table;
    let gone = found.gone.iter().map(|generation| layout::marker_gone(table, batch, *generation));
    let failed = found.failed.iter().map(|generation| layout::marker_failed(table, batch, *generation));
    let manifests = found.manifests.iter().map(|generation| layout::manifest(table, batch, *generation));
    gone.chain(failed).chain(found.notes.iter().cloned()).chain(manifests).collect()
}
