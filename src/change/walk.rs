//! From the kept changes of a table ([`stored`]), in order, to what they come to: the present rows, the versions of the
//! history, what is quarantined, and how many changes came with different rows.
//!
//! Rows are never handled one by one as rows: a change is the number of its row, a resolved placeholder the number of the row
//! that has the value, and each column of a result is taken out of the column of the changes at once.

mod order;
mod results;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, DynComparator, Float32Array, Float64Array, Int8Array, Int64Array, ListArray,
    RecordBatch, make_comparator,
};
use arrow::compute::{SortOptions, partition};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int8Type, Int64Type, SchemaRef};

use super::stored;
use super::{Change, Op, Outcome, Place, Position, Row, distinct, history, newest, settle};
use crate::error::{Error, Result};
use results::{Picks, Refusals, Versions};

pub use order::{ordering, sorted};

/// The version of the table of events that a change was read with. Kept changes have it beside what they came with.
pub const READ_AT: &str = "_read_at";

/// Rows that are judged at once.
const JUDGED: usize = 16_384;

/// Rounds in which the rows of many keys are judged at once. In a key that is not through by then each verdict changes what
/// the next row is: its rows are judged one by one, since each further round would judge all of them again.
const ROUNDS: usize = 8;

/// What a walk has to know of a table of changes.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The table of the database, as quarantine names it.
    pub source_table: String,
    /// The key's columns.
    pub key: Vec<String>,
    /// The columns that order the changes, most significant first.
    pub sequence: Vec<String>,
    /// The table's columns: each stands in the kept changes under the same name.
    pub columns: SchemaRef,
    /// The history, if one is kept.
    pub history: Option<HistoryShape>,
}

/// What a walk has to know of a history.
#[derive(Debug, Clone)]
pub struct HistoryShape {
    /// Its columns: key, version, tracked columns, from, to, whether it is the present one, and the further fields of the
    /// order.
    pub columns: SchemaRef,
    /// Columns whose change opens a version.
    pub track: Vec<String>,
}

/// Judges rows of kept changes whose placeholders are resolved: the names of the rules that each breaks.
pub type Judge<'a> = dyn Fn(&RecordBatch) -> Result<Vec<Vec<String>>> + Send + Sync + 'a;

/// What the changes of some keys come to.
#[derive(Debug)]
pub struct Walked {
    /// Present rows.
    pub rows: RecordBatch,
    /// Versions of the history, if one is kept.
    pub history: Option<RecordBatch>,
    /// Rows of quarantine.
    pub quarantine: RecordBatch,
    /// Changes that came with different rows.
    pub ties: u64,
    /// How many of them there were among the changes that were known before.
    pub known_ties: u64,
}

/// Walks through the kept changes of a table, keys in order.
pub struct Walker<'a> {
    shape: &'a Shape,
    judge: &'a Judge<'a>,
    known: i64,
    truncates: Vec<Position>,
}

impl<'a> Walker<'a> {
    /// A walk from the first key. Changes that were read at version `known` of the table of events or before it were known.
    #[must_use]
    pub fn new(shape: &'a Shape, judge: &'a Judge<'a>, known: i64) -> Self {
        Self { shape, judge, known, truncates: Vec::new() }
    }

    /// Walks on, through all changes of the next keys in [`ordering`]. What belongs to no key (truncates, malformed events)
    /// comes first of all, at once.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Internal`] when the columns are not those of kept changes.
    pub fn walk(&mut self, changes: &RecordBatch) -> Result<Walked> {
        let view = View::new(changes, self.shape)?;
        let mut refusals = Refusals::default();
        let mut keys = Vec::new();
        for range in view.keys(self.shape)? {
            if view.is_of_no_key(range.start) {
                self.of_no_key(&view, range, &mut refusals)?;
            } else {
                keys.push(range);
            }
        }
        let verdicts = self.verdicts(&view, &keys)?;
        let tracked = Tracked::new(&view, self.shape)?;
        let (mut rows, mut versions) = (Picks::default(), Versions::default());
        let (mut ties, mut known_ties) = (0, 0);
        for range in keys {
            let (changes, of_key) = distinct(view.changes(range.clone())?);
            if of_key > 0 {
                ties += of_key;
                let known: Vec<_> = view.changes(range)?.into_iter().filter(|c| view.is_known(c, self.known)).collect();
                known_ties += distinct(known).1;
            }
            let settled = settle(&changes, &self.truncates, |row, _| match verdicts.of(row) {
                Some(rules) => rules.to_vec(),
                None => view.broken(row.at),
            });
            if let Some((_, row)) = newest(&settled, &self.truncates) {
                rows.push(row);
            }
            if self.shape.history.is_some() {
                for version in history(&settled, &self.truncates, |a, b| tracked.is_same(a, b)) {
                    versions.push(&version);
                }
            }
            for (change, (_, outcome)) in changes.iter().zip(settled) {
                if let (Some(row), Outcome::Refused(rules)) = (&change.row, outcome) {
                    refusals.push(row.at, rules);
                }
            }
        }
        Ok(Walked {
            rows: rows.batch(&view, &self.shape.columns)?,
            history: self
                .shape
                .history
                .as_ref()
                .map(|history| versions.batch(&view, self.shape, history))
                .transpose()?,
            quarantine: refusals.batch(&view, &self.shape.source_table)?,
            ties,
            known_ties,
        })
    }

    fn of_no_key(&mut self, view: &View<'_>, range: Range<usize>, refusals: &mut Refusals) -> Result<()> {
        let mut texts = HashSet::new();
        for row in range {
            if view.op(row)? == Some(Op::Truncate) {
                let position = view.position(row, Op::Truncate)?;
                if self.truncates.last() != Some(&position) {
                    self.truncates.push(position);
                }
            } else if texts.insert(view.event.value(row)) {
                // Malformed: each distinct text once, by the delivery that comes first.
                let row = row_number(row)?;
                refusals.push_malformed(row, view.broken(row));
            }
        }
        Ok(())
    }

    /// The rules that rows break whose placeholders are resolved. What a row resolves to depends on the verdicts before it,
    /// so it is found in rounds: each takes the rows that are not judged yet for good, and judges all that follows from that
    /// at once. A round that finds a bad row settles at least that row.
    fn verdicts(&self, view: &View<'_>, keys: &[Range<usize>]) -> Result<Verdicts> {
        let mut verdicts = Verdicts::default();
        let mut open: Vec<&Range<usize>> = keys.iter().filter(|range| view.has_placeholder(range)).collect();
        let mut rounds = 0;
        while !open.is_empty() {
            rounds += 1;
            if rounds > ROUNDS {
                open.into_iter().try_for_each(|range| self.one_by_one(view, range, &mut verdicts))?;
                break;
            }
            let mut unjudged: Vec<Light> = Vec::new();
            let mut still_open = Vec::new();
            for range in open {
                let before = unjudged.len();
                let (changes, _) = distinct(view.changes(range.clone())?);
                settle(&changes, &self.truncates, |row, _| match verdicts.of(row) {
                    Some(rules) => rules.to_vec(),
                    None => {
                        if row.sources.is_some() {
                            unjudged.push(row.clone());
                        }
                        view.broken(row.at)
                    }
                });
                if unjudged.len() > before {
                    still_open.push(range);
                }
            }
            for some in unjudged.chunks(JUDGED) {
                some.iter().zip(self.judged(view, some)?).for_each(|(row, rules)| verdicts.insert(row, rules));
            }
            open = still_open;
        }
        Ok(verdicts)
    }

    fn one_by_one(&self, view: &View<'_>, range: &Range<usize>, verdicts: &mut Verdicts) -> Result<()> {
        let (changes, _) = distinct(view.changes(range.clone())?);
        let mut failed = None;
        settle(&changes, &self.truncates, |row, _| {
            if row.sources.is_none() || failed.is_some() {
                return view.broken(row.at);
            }
            if let Some(rules) = verdicts.of(row) {
                return rules.to_vec();
            }
            let rules = match self.judged(view, std::slice::from_ref(row)) {
                Ok(judged) => judged.into_iter().flatten().collect::<Vec<_>>(),
                Err(error) => {
                    failed.get_or_insert(error);
                    Vec::new()
                }
            };
            verdicts.insert(row, rules.clone());
            rules
        });
        failed.map_or(Ok(()), Err)
    }

    /// The rules that each of some resolved rows breaks.
    fn judged(&self, view: &View<'_>, some: &[Light]) -> Result<Vec<Vec<String>>> {
        let mut picks = Picks::default();
        some.iter().for_each(|row| picks.push(row));
        let judged = (self.judge)(&picks.batch(view, &view.batch.schema())?)?;
        if judged.len() != some.len() {
            return Err(Error::internal(format!("{} rows were judged, not {}", judged.len(), some.len())));
        }
        Ok(judged)
    }
}

/// The rules that resolved rows break, by row, with what its placeholders resolved to when it was judged.
#[derive(Default)]
struct Verdicts(HashMap<u32, (Sources, Vec<String>)>);

impl Verdicts {
    fn of(&self, row: &Light) -> Option<&[String]> {
        let sources = row.sources.as_ref()?;
        self.0.get(&row.at).filter(|(judged, _)| judged == sources).map(|(_, rules)| rules.as_slice())
    }

    fn insert(&mut self, row: &Light, rules: Vec<String>) {
        if let Some(sources) = &row.sources {
            self.0.insert(row.at, (Arc::clone(sources), rules));
        }
    }
}

/// Columns by number, each with the row that has its value.
type Sources = Arc<[(usize, u32)]>;

/// A row by its number.
#[derive(Debug, Clone)]
struct Light {
    at: u32,
    digest: i64,
    /// Columns that a placeholder stands for.
    missing: Option<Arc<[usize]>>,
    /// Where the values of these columns are; none before that is known.
    sources: Option<Sources>,
}

impl Light {
    /// The row that has the value of a column.
    fn source(&self, column: usize) -> u32 {
        let of = |sources: &Sources| sources.iter().find(|(of, _)| *of == column).map(|(_, row)| *row);
        self.sources.as_ref().and_then(of).unwrap_or(self.at)
    }
}

impl PartialEq for Light {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Row for Light {
    fn has_placeholder(&self) -> bool {
        self.missing.is_some() && self.sources.is_none()
    }

    fn resolved(&self, earlier: &Self) -> Self {
        let sources = |missing: &Arc<[usize]>| missing.iter().map(|at| (*at, earlier.source(*at))).collect();
        Self { sources: self.missing.as_ref().map(sources), ..self.clone() }
    }
}

fn row_number(row: usize) -> Result<u32> {
    u32::try_from(row).map_err(|_| Error::internal("more changes of one key than can be numbered"))
}

/// The columns of kept changes.
struct View<'b> {
    batch: &'b RecordBatch,
    sequence: Vec<&'b Int64Array>,
    rank: &'b Int8Array,
    digest: &'b Int64Array,
    read_at: Option<&'b Int64Array>,
    unavailable: &'b ListArray,
    broken: &'b ListArray,
    event: &'b BinaryArray,
}

fn column<'b>(batch: &'b RecordBatch, name: &str, data_type: &DataType) -> Result<&'b ArrayRef> {
    let column = batch.column_by_name(name);
    let column = column.ok_or_else(|| Error::internal(format!("kept changes have no column `{name}`")))?;
    if column.data_type() != data_type
        && !matches!((column.data_type(), data_type), (DataType::List(_), DataType::Null))
    {
        return Err(Error::internal(format!("column `{name}` of kept changes is {}", column.data_type())));
    }
    Ok(column)
}

impl<'b> View<'b> {
    fn new(batch: &'b RecordBatch, shape: &Shape) -> Result<Self> {
        let long = |name: &str| column(batch, name, &DataType::Int64).map(|column| column.as_primitive::<Int64Type>());
        let list = |name: &str| column(batch, name, &DataType::Null).map(|column| column.as_list::<i32>());
        Ok(Self {
            batch,
            sequence: shape.sequence.iter().map(|name| long(name)).collect::<Result<_>>()?,
            rank: column(batch, stored::RANK, &DataType::Int8)?.as_primitive::<Int8Type>(),
            digest: long(stored::DIGEST)?,
            read_at: batch.column_by_name(READ_AT).map(|column| column.as_primitive::<Int64Type>()),
            unavailable: list(stored::UNAVAILABLE)?,
            broken: list(stored::BROKEN)?,
            event: column(batch, stored::EVENT, &DataType::Binary)?.as_binary::<i32>(),
        })
    }

    /// The rows of each key, in order.
    fn keys(&self, shape: &Shape) -> Result<Vec<Range<usize>>> {
        if self.batch.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let mut columns = Vec::with_capacity(shape.key.len());
        for name in &shape.key {
            columns.push(Arc::clone(self.batch.column(self.batch.schema_ref().index_of(name)?)));
        }
        Ok(partition(&columns)?.ranges())
    }

    fn is_of_no_key(&self, row: usize) -> bool {
        self.rank.value(row) >= Op::Truncate.rank()
    }

    fn op(&self, row: usize) -> Result<Option<Op>> {
        let rank = self.rank.value(row);
        match Op::of_rank(rank) {
            None if rank != stored::MALFORMED_RANK => Err(Error::corrupt(format!("a kept change has the rank {rank}"))),
            op => Ok(op),
        }
    }

    fn position(&self, row: usize, op: Op) -> Result<Position> {
        let mut sequence = [0; super::MOST_SEQUENCE];
        for (field, column) in sequence.iter_mut().zip(&self.sequence) {
            *field = if column.is_valid(row) { column.value(row) } else { 0 };
        }
        Position::new(&sequence, op).ok_or_else(|| Error::internal("too many fields of order"))
    }

    fn changes(&self, range: Range<usize>) -> Result<Vec<Change<Light>>> {
        let mut changes = Vec::with_capacity(range.len());
        for row in range {
            let op = self.op(row)?.ok_or_else(|| Error::corrupt("a malformed event has a key"))?;
            let is_upsert = matches!(op, Op::Read | Op::Create | Op::Update);
            let light = is_upsert.then(|| self.light(row)).transpose()?;
            // Rows are in the order of their places already: the number of the row is the place.
            let place = Place::Record { partition: 0, offset: i64::from(row_number(row)?) };
            changes.push(Change { position: self.position(row, op)?, place, row: light });
        }
        Ok(changes)
    }

    fn light(&self, row: usize) -> Result<Light> {
        let missing = if self.unavailable.is_valid(row) && self.unavailable.value_length(row) > 0 {
            let mut missing = Vec::new();
            for name in names_at(self.unavailable, row) {
                let schema = self.batch.schema_ref();
                missing.push(schema.index_of(&name)?);
                // A rule that reads the text as it came reads that of the value.
                missing.extend(schema.index_of(&stored::raw_column(&name)).ok());
            }
            Some(missing.into())
        } else {
            None
        };
        Ok(Light { at: row_number(row)?, digest: self.digest.value(row), missing, sources: None })
    }

    fn has_placeholder(&self, range: &Range<usize>) -> bool {
        range.clone().any(|row| self.unavailable.is_valid(row))
    }

    fn is_known(&self, change: &Change<Light>, known: i64) -> bool {
        let Place::Record { offset, .. } = change.place else { return false };
        let row = usize::try_from(offset).unwrap_or_default();
        self.read_at.is_none_or(|read_at| read_at.value(row) <= known)
    }

    fn broken(&self, row: u32) -> Vec<String> {
        let row = row as usize;
        if self.broken.is_null(row) { Vec::new() } else { names_at(self.broken, row) }
    }
}

fn names_at(list: &ListArray, row: usize) -> Vec<String> {
    list.value(row).as_string::<i32>().iter().flatten().map(str::to_owned).collect()
}

/// Compares what a history tracks: null equals null, NaN equals NaN, and the zeros equal each other.
struct Tracked(Vec<(usize, DynComparator)>);

impl Tracked {
    fn new(view: &View<'_>, shape: &Shape) -> Result<Self> {
        let track = shape.history.iter().flat_map(|history| &history.track);
        let mut columns = Vec::new();
        for name in track {
            let at = view.batch.schema_ref().index_of(name)?;
            let column = plain(view.batch.column(at));
            let compare = make_comparator(&column, &column, SortOptions::default()).map_err(|e| {
                Error::invalid(format!("column `{name}` cannot be tracked: {}", column.data_type())).because(e)
            })?;
            columns.push((at, compare));
        }
        Ok(Self(columns))
    }

    fn is_same(&self, a: &Light, b: &Light) -> bool {
        self.0.iter().all(|(at, compare)| compare(a.source(*at) as usize, b.source(*at) as usize).is_eq())
    }
}

/// Floats in one form each.
fn plain(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            let of = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            let column: Float32Array = column.as_primitive::<Float32Type>().unary(of);
            Arc::new(column)
        }
        DataType::Float64 => {
            let of = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            let column: Float64Array = column.as_primitive::<Float64Type>().unary(of);
            Arc::new(column)
        }
        _ => Arc::clone(column),
    }
}

#[cfg(test)]
mod tests;
