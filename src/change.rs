//! Change data: what the events of one key come to. The one order of changes, which of several deliveries of a change counts,
//! placeholders of values that were not sent, and what follows from all that: the present row and the history.
//!
//! Nothing here depends on what arrived when: the same set of events gives the same result for any order, split and repetition.

pub mod image;
pub mod stored;
pub mod walk;

/// Most fields that `sequence_by` may name.
pub const MOST_SEQUENCE: usize = 4;

/// What a change does, in the order in which changes of one sequence take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// The row as a snapshot read it.
    Read,
    /// The row came.
    Create,
    /// The row changed.
    Update,
    /// The row went.
    Delete,
    /// All rows of the table went.
    Truncate,
}

impl Op {
    /// Debezium's letter.
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Create => "c",
            Self::Update => "u",
            Self::Delete => "d",
            Self::Truncate => "t",
        }
    }

    /// The change of a letter; none for a letter that changes no row.
    #[must_use]
    pub fn of_letter(letter: &str) -> Option<Self> {
        [Self::Read, Self::Create, Self::Update, Self::Delete, Self::Truncate]
            .into_iter()
            .find(|op| op.letter() == letter)
    }
}

/// Where a change stands among all changes of its table: by the contract's `sequence_by`, then by what it does, and by nothing
/// else. Two changes of one key with one position are two deliveries of one change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    sequence: [i64; MOST_SEQUENCE],
    op: Op,
}

impl Position {
    /// A position; none when there are more fields than [`MOST_SEQUENCE`]. Positions of one table have equally many.
    #[must_use]
    pub fn new(sequence: &[i64], op: Op) -> Option<Self> {
        let mut fields = [0; MOST_SEQUENCE];
        fields.get_mut(..sequence.len())?.copy_from_slice(sequence);
        Some(Self { sequence: fields, op })
    }

    /// The values of the `sequence_by` fields, zero for those that there are not.
    #[must_use]
    pub const fn sequence(&self) -> [i64; MOST_SEQUENCE] {
        self.sequence
    }

    /// What the change does.
    #[must_use]
    pub const fn op(&self) -> Op {
        self.op
    }

    /// The same place in time for another key: where the old key of a changed key went.
    #[must_use]
    pub const fn as_delete(self) -> Self {
        Self { op: Op::Delete, ..self }
    }
}

/// Where a delivery of a change lies. Of several deliveries the smallest counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A record of a topic.
    Record {
        /// Its partition.
        partition: i32,
        /// Its offset.
        offset: i64,
    },
    /// A bare value in a file.
    Line {
        /// The file below the landing zone.
        path: String,
        /// The number of the line.
        row: i64,
    },
}

/// A row as an event brings it.
pub trait Row: Clone + PartialEq {
    /// Whether a placeholder stands for one of its values: it was not sent, because it had not changed.
    fn has_placeholder(&self) -> bool;

    /// The row with the values of an earlier one, which has no placeholder, in place of its placeholders.
    #[must_use]
    fn resolved(&self, earlier: &Self) -> Self;
}

/// One delivery of one change of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<R> {
    /// Where it stands among the changes.
    pub position: Position,
    /// Where it lies.
    pub place: Place,
    /// The row afterwards; none when it went.
    pub row: Option<R>,
}

/// The changes of one key in order, each once, and how many of them came with different rows (ties).
#[must_use]
pub fn distinct<R: Row>(mut deliveries: Vec<Change<R>>) -> (Vec<Change<R>>, u64) {
    deliveries.sort_by(|a, b| (a.position, &a.place).cmp(&(b.position, &b.place)));
    let mut changes: Vec<Change<R>> = Vec::with_capacity(deliveries.len());
    let mut ties = 0;
    let mut is_tie = false;
    for delivery in deliveries {
        match changes.last() {
            Some(first) if first.position == delivery.position => {
                if first.row != delivery.row && !is_tie {
                    ties += 1;
                    is_tie = true;
                }
            }
            _ => {
                is_tie = false;
                changes.push(delivery);
            }
        }
    }
    (changes, ties)
}

/// What a change of one key came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<R> {
    /// The row from then on, without placeholders.
    Row(R),
    /// The row is gone.
    Gone,
    /// The row is quarantined, and the change is as if it had not been: the rules that it breaks.
    Refused(Vec<String>),
}

/// The rule that a row breaks whose placeholder stands for a value that is not known.
pub const VALUE_UNAVAILABLE: &str = "value_unavailable";

/// What the changes of one key come to, in order. `changes` are [`distinct`]; `truncates` are the positions at which the whole
/// table went, in order. `judge` gives the names of the rules that a row breaks, its placeholders resolved.
///
/// A placeholder stands for the value of the nearest earlier row that is not quarantined, and never for one from before a
/// delete or truncate.
pub fn settle<R: Row>(
    changes: &[Change<R>],
    truncates: &[Position],
    mut judge: impl FnMut(&R, &Position) -> Vec<String>,
) -> Vec<(Position, Outcome<R>)> {
    let mut settled: Vec<(Position, Outcome<R>)> = Vec::with_capacity(changes.len());
    let mut present: Option<usize> = None;
    let mut cuts = truncates.iter().peekable();
    for change in changes {
        while cuts.next_if(|cut| **cut < change.position).is_some() {
            present = None;
        }
        let Some(row) = &change.row else {
            present = None;
            settled.push((change.position, Outcome::Gone));
            continue;
        };
        let earlier = present.and_then(|at| match &settled[at].1 {
            Outcome::Row(row) => Some(row),
            _ => None,
        });
        let (row, is_unknown) = match (row.has_placeholder(), earlier) {
            (true, Some(earlier)) => (row.resolved(earlier), false),
            (has_placeholder, _) => (row.clone(), has_placeholder),
        };
        let mut broken = judge(&row, &change.position);
        if is_unknown {
            broken.push(VALUE_UNAVAILABLE.to_owned());
        }
        if broken.is_empty() {
            present = Some(settled.len());
            settled.push((change.position, Outcome::Row(row)));
        } else {
            broken.sort_unstable();
            broken.dedup();
            settled.push((change.position, Outcome::Refused(broken)));
        }
    }
    settled
}

/// The present row and the position that brought it; none when the key is gone, was truncated away, or never had a good row.
#[must_use]
pub fn newest<'s, R>(settled: &'s [(Position, Outcome<R>)], truncates: &[Position]) -> Option<(&'s Position, &'s R)> {
    let visible = |(position, outcome): &'s (Position, Outcome<R>)| match outcome {
        Outcome::Row(row) => Some((position, Some(row))),
        Outcome::Gone => Some((position, None)),
        Outcome::Refused(_) => None,
    };
    let (position, row) = settled.iter().rev().find_map(visible)?;
    let is_cut = truncates.last().is_some_and(|cut| cut > position);
    row.filter(|_| !is_cut).map(|row| (position, row))
}

/// One version of a row in its history: from a position, up to but without another.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval<'s, R> {
    /// Counts the versions of the key from 1.
    pub version: i64,
    /// The row of the change that opened it.
    pub row: &'s R,
    /// The change that opened it.
    pub from: Position,
    /// The change that closed it; none for the present version.
    pub to: Option<Position>,
}

/// The history of one key: a version for each change that changes what is tracked (`is_same` compares that), closed by the next
/// one, a delete or a truncate. After a delete the next row opens a version even with equal values.
#[must_use]
pub fn history<'s, R>(
    settled: &'s [(Position, Outcome<R>)],
    truncates: &[Position],
    is_same: impl Fn(&R, &R) -> bool,
) -> Vec<Interval<'s, R>> {
    let mut versions: Vec<Interval<'s, R>> = Vec::new();
    let mut is_open = false;
    let mut cuts = truncates.iter().peekable();
    let close = |versions: &mut Vec<Interval<'s, R>>, is_open: &mut bool, at: Position| {
        if std::mem::take(is_open)
            && let Some(open) = versions.last_mut()
        {
            open.to = Some(at);
        }
    };
    for (position, outcome) in settled {
        while let Some(cut) = cuts.next_if(|cut| *cut < position) {
            close(&mut versions, &mut is_open, *cut);
        }
        match outcome {
            Outcome::Refused(_) => {}
            Outcome::Gone => close(&mut versions, &mut is_open, *position),
            Outcome::Row(row) => {
                if is_open && versions.last().is_some_and(|open| is_same(open.row, row)) {
                    continue;
                }
                close(&mut versions, &mut is_open, *position);
                let version = versions.last().map_or(1, |last| last.version + 1);
                versions.push(Interval { version, row, from: *position, to: None });
                is_open = true;
            }
        }
    }
    if let Some(cut) = cuts.next() {
        close(&mut versions, &mut is_open, *cut);
    }
    versions
}

#[cfg(test)]
mod tests;
