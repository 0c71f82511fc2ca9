//! The first (or last) row of each key by `order_by`, among rows of the source and stored rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, take_record_batch};
use futures::TryStreamExt;
use hashbrown::{DefaultHashBuilder, HashMap};
use tokio::sync::mpsc;

use super::super::{Work, rows};
use super::{ties, too_many};
use crate::error::{Error, Result};
use crate::lineage::RowMap;
use crate::pipeline::replace::bits::Bits;
use crate::pipeline::replace::keys::KeyIndex;
use crate::pipeline::replace::{Ranking, columns_of, union_of};
use crate::schema::Keep;
use crate::table::{DataFile, Snapshot};

/// Memory that a key takes, with its rank, as a rough guess before it is read.
const KEY_BYTES: u64 = 120;

/// The share of the memory that the keys of one pass take.
const MEMORY_SHARE: u64 = 4;

/// Batches that wait between the readers and the one that compares.
const WAITING: usize = 4;

/// One file that takes part.
pub(super) struct Lane {
    /// The file.
    pub file: DataFile,
    /// The rows that take part; none means all.
    pub rows: Option<Bits>,
}

/// Who takes part.
pub(super) struct Entrants<'a> {
    /// Files of the source.
    pub source: Vec<Lane>,
    /// Files of the derived table: their rows only defend the keys that the source's rows have.
    pub stored: Vec<Lane>,
    /// Only rows of the source with one of these keys take part.
    pub only: Option<&'a KeyIndex>,
}

/// Who won.
pub(super) struct Verdict {
    /// The winners of each file of the source.
    pub chosen: Vec<Bits>,
    /// The stored rows that lost, of each stored file.
    pub doomed: Vec<Bits>,
    /// How many keys took part.
    pub keys: u64,
}

/// A row: lanes of the source first, then the stored ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// Number of the lane.
    pub lane: u32,
    /// Number of the row that comes out of it.
    pub row: u32,
}

/// Finds the winners, in as many passes over the keys as the memory asks for.
pub(super) async fn run(work: &Work<'_>, keep: Keep, entrants: &Entrants<'_>) -> Result<Verdict> {
    let mut verdict = Verdict {
        chosen: vec![Bits::default(); entrants.source.len()],
        doomed: vec![Bits::default(); entrants.stored.len()],
        keys: 0,
    };
    let rows: u64 = match entrants.only {
        Some(keys) => keys.len() as u64,
        None => entrants.source.iter().map(Lane::size).sum(),
    };
    let memory = (work.lake.settings.memory_bytes / MEMORY_SHARE).max(1);
    let passes = (rows * KEY_BYTES).div_ceil(memory).max(1);
    // One hash for all passes: it splits the keys among them.
    let hasher = DefaultHashBuilder::default();
    for pass in 0..passes {
        let mut tournament = Tournament::new(work, keep, (pass, passes), entrants.source.len())?;
        tournament.keys = tournament.keys.with_hasher(hasher.clone());
        tournament.enter(work, entrants).await?;
        tournament.defend(work, entrants, &mut verdict.doomed).await?;
        tournament.break_ties(work, entrants, &mut verdict.doomed).await?;
        verdict.keys += tournament.best.len() as u64;
        for best in &tournament.best {
            if let Some(chosen) = verdict.chosen.get_mut(best.place.lane as usize) {
                chosen.set(best.place.row as usize);
            }
        }
    }
    Ok(verdict)
}

impl Lane {
    fn size(&self) -> u64 {
        match &self.rows {
            Some(rows) => rows.count(),
            // Without statistics: a guess from the size in bytes.
            None => self.file.rows.unwrap_or(self.file.size / 20),
        }
    }
}

struct Tournament {
    keys: KeyIndex,
    ranking: Ranking,
    names: Vec<String>,
    pass: (u64, u64),
    source_lanes: usize,
    best: Vec<Best>,
    ranks: Vec<u8>,
    ties: HashMap<u32, Vec<Place>>,
}

#[derive(Clone, Copy)]
struct Best {
    place: Place,
    start: usize,
    length: u32,
}

/// Rows of a lane on their way to the comparison.
struct Piece {
    lane: usize,
    first: usize,
    batch: RecordBatch,
}

impl Tournament {
    fn new(work: &Work<'_>, keep: Keep, pass: (u64, u64), source_lanes: usize) -> Result<Self> {
        let order = &work.derivation.order_by;
        let schema = &work.lineage.output;
        Ok(Self {
            keys: KeyIndex::over(schema, &work.contract.primary_key)?,
            ranking: match keep {
                Keep::First => Ranking::smallest_first(schema, order)?,
                Keep::Last => Ranking::greatest_first(schema, order)?,
            },
            names: work.contract.primary_key.clone(),
            pass,
            source_lanes,
            best: Vec::new(),
            ranks: Vec::new(),
            ties: HashMap::new(),
        })
    }

    /// Rows of the source: a row takes its key's place when it ranks before the one that holds it.
    async fn enter(&mut self, work: &Work<'_>, entrants: &Entrants<'_>) -> Result<()> {
        let wanted = union_of(&work.contract.primary_key, &work.derivation.order_by);
        let map = Arc::new(rows::compile(work, Some(&wanted))?);
        let files = files_of(&entrants.source);
        let mut pieces =
            read_all(work.lake.settings.threads, rows::source(work)?.clone(), files, How::Transformed(map));
        while let Some(piece) = pieces.recv().await {
            let Piece { lane, first, batch } = piece?;
            let (batch, numbers) = self.select(batch, first, entrants.source[lane].rows.as_ref(), entrants.only)?;
            if batch.num_rows() == 0 {
                continue;
            }
            let keys = self.keys.insert(&columns_of(&batch, &self.names)?)?;
            let ranks = self.ranking.rows(&batch)?;
            for (at, key) in keys.into_iter().enumerate() {
                let place = place(lane, numbers.row(at))?;
                let rank = ranks.row(at);
                self.challenge(key, place, rank.as_ref());
            }
        }
        Ok(())
    }

    fn challenge(&mut self, key: u32, place: Place, rank: &[u8]) {
        let Some(best) = self.best.get(key as usize).copied() else {
            self.best.push(Best { place, start: self.ranks.len(), length: length_of(rank) });
            self.ranks.extend_from_slice(rank);
            return;
        };
        match rank.cmp(self.rank(best)) {
            std::cmp::Ordering::Less => self.replace(key, place, rank),
            std::cmp::Ordering::Equal => {
                self.ties.entry(key).or_insert_with(|| vec![best.place]).push(place);
            }
            std::cmp::Ordering::Greater => {}
        }
    }

    fn replace(&mut self, key: u32, place: Place, rank: &[u8]) {
        self.ties.remove(&key);
        let best = &mut self.best[key as usize];
        best.place = place;
        let length = length_of(rank);
        if length > best.length {
            best.start = self.ranks.len();
            self.ranks.extend_from_slice(rank);
        } else {
            self.ranks[best.start..best.start + rank.len()].copy_from_slice(rank);
        }
        best.length = length;
    }

    fn rank(&self, best: Best) -> &[u8] {
        &self.ranks[best.start..best.start + best.length as usize]
    }

    /// Stored rows of keys that entered: the worse one of the two goes.
    async fn defend(&mut self, work: &Work<'_>, entrants: &Entrants<'_>, doomed: &mut [Bits]) -> Result<()> {
        if self.keys.is_empty() || entrants.stored.is_empty() {
            return Ok(());
        }
        let pruner = self.keys.pruner()?;
        let files = files_of(&entrants.stored).into_iter().filter(|(_, file)| pruner.may_hold(file)).collect();
        let wanted = union_of(&work.contract.primary_key, &work.derivation.order_by);
        let mut pieces = read_all(work.lake.settings.threads, work.base.clone(), files, How::Stored(wanted));
        while let Some(piece) = pieces.recv().await {
            let Piece { lane, first, batch } = piece?;
            let found = self.keys.find(&columns_of(&batch, &self.names)?)?;
            let hits: Vec<u32> = (0..).zip(&found).filter(|(_, key)| key.is_some()).map(|(at, _)| at).collect();
            if hits.is_empty() {
                continue;
            }
            let batch = take_record_batch(&batch, &UInt32Array::from(hits.clone()))?;
            let ranks = self.ranking.rows(&batch)?;
            for (at, row) in hits.into_iter().enumerate() {
                let Some(key) = found[row as usize] else { continue };
                let stored = place(self.source_lanes + lane, first + row as usize)?;
                let rank = ranks.row(at);
                let best = self.best[key as usize];
                match rank.as_ref().cmp(self.rank(best)) {
                    std::cmp::Ordering::Less => {
                        for loser in self.ties.remove(&key).unwrap_or_else(|| vec![best.place]) {
                            self.doom(loser, doomed);
                        }
                        self.replace(key, stored, rank.as_ref());
                    }
                    std::cmp::Ordering::Equal => {
                        self.ties.entry(key).or_insert_with(|| vec![best.place]).push(stored);
                    }
                    std::cmp::Ordering::Greater => self.doom(stored, doomed),
                }
            }
        }
        Ok(())
    }

    /// Rows of one key that `order_by` does not tell apart are told apart by their content.
    async fn break_ties(&mut self, work: &Work<'_>, entrants: &Entrants<'_>, doomed: &mut [Bits]) -> Result<()> {
        let ties = std::mem::take(&mut self.ties);
        if ties.is_empty() {
            return Ok(());
        }
        let winners = ties::winners(work, entrants, &ties).await?;
        for (key, places) in ties {
            let winner = winners[&key];
            self.best[key as usize].place = winner;
            for loser in places.into_iter().filter(|place| *place != winner) {
                self.doom(loser, doomed);
            }
        }
        Ok(())
    }

    /// A stored row that lost leaves the table; a row of the source just does not enter.
    fn doom(&self, loser: Place, doomed: &mut [Bits]) {
        if let Some(lane) = (loser.lane as usize).checked_sub(self.source_lanes) {
            doomed[lane].set(loser.row as usize);
        }
    }

    /// The rows of a batch that take part in this pass, with their numbers.
    fn select(
        &self,
        batch: RecordBatch,
        first: usize,
        rows: Option<&Bits>,
        only: Option<&KeyIndex>,
    ) -> Result<(RecordBatch, Numbers)> {
        if rows.is_none() && only.is_none() && self.pass.1 == 1 {
            return Ok((batch, Numbers::From(first)));
        }
        let length = batch.num_rows();
        let mut takes: Vec<bool> = match rows {
            Some(rows) => (0..length).map(|row| rows.get(first + row)).collect(),
            None => vec![true; length],
        };
        let columns = columns_of(&batch, &self.names)?;
        if let Some(only) = only {
            for (takes, found) in takes.iter_mut().zip(only.find(&columns)?) {
                *takes &= found.is_some();
            }
        }
        if self.pass.1 > 1 {
            for (takes, hash) in takes.iter_mut().zip(self.keys.hashes(&columns)?) {
                *takes &= hash % self.pass.1 == self.pass.0;
            }
        }
        let numbers = (first..).zip(&takes).filter(|(_, takes)| **takes).map(|(row, _)| row).collect();
        Ok((filter_record_batch(&batch, &BooleanArray::from(takes))?, Numbers::Listed(numbers)))
    }
}

enum Numbers {
    From(usize),
    Listed(Vec<usize>),
}

impl Numbers {
    fn row(&self, at: usize) -> usize {
        match self {
            Self::From(first) => first + at,
            Self::Listed(numbers) => numbers[at],
        }
    }
}

fn length_of(rank: &[u8]) -> u32 {
    // A rank of 4 GiB does not fit a batch.
    u32::try_from(rank.len()).unwrap_or(u32::MAX)
}

fn place(lane: usize, row: usize) -> Result<Place> {
    let lane = u32::try_from(lane).map_err(|_| too_many("files"))?;
    let row = u32::try_from(row).map_err(|_| too_many("rows"))?;
    Ok(Place { lane, row })
}

fn files_of(lanes: &[Lane]) -> Vec<(usize, DataFile)> {
    lanes
        .iter()
        .enumerate()
        .filter(|(_, lane)| lane.rows.as_ref().is_none_or(|rows| !rows.is_empty()))
        .map(|(at, lane)| (at, lane.file.clone()))
        .collect()
}

/// How a lane's rows are read.
#[derive(Clone)]
enum How {
    Transformed(Arc<RowMap>),
    Stored(Vec<String>),
}

/// Reads files with several workers; the pieces come in any order.
fn read_all(
    workers: usize,
    snapshot: Snapshot,
    files: Vec<(usize, DataFile)>,
    how: How,
) -> mpsc::Receiver<Result<Piece>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let files = Arc::new(files);
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..workers.clamp(1, files.len().max(1)) {
        let (sender, snapshot, files, next, how) =
            (sender.clone(), snapshot.clone(), Arc::clone(&files), Arc::clone(&next), how.clone());
        tokio::spawn(async move {
            while let Some((lane, file)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = read_one(&snapshot, *lane, file, &how, &sender).await {
                    // Nobody listens any more when this fails: the other side stopped first.
                    let _ = sender.send(Err(error)).await;
                    return;
                }
            }
        });
    }
    receiver
}

async fn read_one(
    snapshot: &Snapshot,
    lane: usize,
    file: &DataFile,
    how: &How,
    sender: &mpsc::Sender<Result<Piece>>,
) -> Result<()> {
    let mut stream = match how {
        How::Transformed(map) => rows::transformed(snapshot, file, Arc::clone(map), None).await?,
        How::Stored(names) => snapshot.read(file, Some(names)).await?,
    };
    let mut first = 0;
    while let Some(batch) = stream.try_next().await? {
        let length = batch.num_rows();
        if sender.send(Ok(Piece { lane, first, batch })).await.is_err() {
            return Err(Error::internal("the comparison stopped"));
        }
        first += length;
    }
    Ok(())
}
