//! What the last comparison of the landing zone with the ledger came to: a note in the lake, so that the status of any process
//! on any machine can tell. Best effort: nothing about the note can make a comparison fail.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::landing::LeftOut;
use crate::layout;
use crate::pipeline::lake::Lake;
use crate::pipeline::staging::{self, Stored};

/// Names that one note holds at most.
const MOST_NAMES: usize = 100;

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCompared {
    /// Format version, 1.
    pub version: u32,
    /// When it ended.
    pub at: DateTime<Utc>,
    /// When one ended well last.
    pub well_at: Option<DateTime<Utc>>,
    /// Files that were put into the queue.
    pub announced: u64,
    /// How many things in the landing zone can be no file.
    pub left_out_count: u64,
    /// The first of them, with why and what to do.
    pub left_out: Vec<LeftOutName>,
    /// Why it failed, and what to do.
    pub error: Option<String>,
}

/// Something in the landing zone that can be no file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutName {
    /// Its name, which need be no path.
    pub name: String,
    /// Why it can be none, and what to do about it.
    pub reason: String,
}

impl LeftOutName {
    /// Name and reason in one line. Some reasons name the thing themselves.
    #[must_use]
    pub fn reason_with_name(&self) -> String {
        let quoted = format!("`{}`", self.name);
        match self.reason.contains(&quoted) {
            true => self.reason.clone(),
            false => format!("{quoted}: {}", self.reason),
        }
    }
}

/// Keeps what a comparison found and announced, or why it failed, in place of what the ones before it came to.
pub async fn record(lake: &Lake, found: Option<(&[LeftOut], usize)>, error: Option<&Error>) {
    if let Err(second) = replace(lake, found, error).await {
        tracing::warn!("what the comparison of the landing zone came to could not be kept: {}", second.describe());
    }
}

async fn replace(lake: &Lake, found: Option<(&[LeftOut], usize)>, error: Option<&Error>) -> Result<()> {
    let (last, earlier) = read(lake).await?;
    let now = lake.clock.now();
    let (left_out, left_out_count) = match (found, &last) {
        (Some((left_out, _)), _) => {
            let named =
                |entry: &LeftOut| LeftOutName { name: entry.version.path.clone(), reason: entry.reason.clone() };
            (left_out.iter().take(MOST_NAMES).map(named).collect(), left_out.len() as u64)
        }
        (None, Some(last)) => (last.left_out.clone(), last.left_out_count),
        (None, None) => (Vec::new(), 0),
    };
    let next = LastCompared {
        version: 1,
        at: now,
        well_at: if error.is_none() { Some(now) } else { last.and_then(|last| last.well_at) },
        announced: found.map_or(0, |(_, announced)| announced as u64),
        left_out_count,
        left_out,
        error: error.map(Error::describe),
    };
    let path = layout::comparison(now.timestamp_micros(), &lake.clock.fresh());
    lake.store.put_if_absent(&path, staging::to_json(&next)?).await?.is_new()?;
    lake.store.delete(&earlier).await
}

/// What the last comparison came to; none when there was none.
///
/// # Errors
/// The store does not answer.
pub async fn last(lake: &Lake) -> Result<Option<LastCompared>> {
    Ok(read(lake).await?.0)
}

/// The newest note, and the paths of all.
async fn read(lake: &Lake) -> Result<(Option<LastCompared>, Vec<String>)> {
    let listed = lake.store.list(&layout::comparisons()).await?;
    let mut paths: Vec<String> = listed.into_iter().map(|object| object.location.to_string()).collect();
    paths.sort_unstable();
    for path in paths.iter().rev() {
        // One that is gone again, or unreadable, tells nothing.
        if let Ok(Stored::There(note, _)) = staging::read_stored::<LastCompared>(lake, path).await {
            return Ok((Some(note), paths));
        }
    }
    Ok((None, paths))
}
