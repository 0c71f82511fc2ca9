//! Checkpoints, and the clean-up of the log below them.

use chrono::{DateTime, Utc};

use super::retention::Retention;
use super::{Upkeep, Upkept, watermark};
use crate::error::Result;
use crate::table::{LogFile, LogKind};

/// A checkpoint is worth its while when this many commits came after the last one.
const COMMITS: i64 = 10;

/// Writes a checkpoint when opening the table has become slow without one.
pub(super) async fn checkpoint(upkeep: &Upkeep<'_>, done: &mut Upkept) -> Result<()> {
    let version = upkeep.table.snapshot().await?.version();
    let files = upkeep.table.log_files().await?;
    let last = files.iter().filter(|file| file.kind == LogKind::Checkpoint).map(|file| file.version).max();
    if version - last.unwrap_or(0) >= COMMITS {
        done.checkpoint = Some(upkeep.table.checkpoint().await?);
    }
    Ok(())
}

/// Deletes commits and checkpoints that are over their time and that neither a reader's watermark nor the opening of a
/// younger version needs. Oldest first: wherever it ends, what is left is a log.
pub(super) async fn clean(upkeep: &Upkeep<'_>, done: &mut Upkept) -> Result<()> {
    let snapshot = upkeep.table.snapshot().await?;
    let cut = upkeep.now - Retention::of(&upkeep.lake.settings, snapshot.properties()).log;
    let watermark = watermark(upkeep, snapshot.table_id()).await?;
    let files = upkeep.table.log_files().await?;
    let Some(first) = first_kept(&files, cut, watermark) else { return Ok(()) };
    let doomed: Vec<(String, u64)> = files
        .into_iter()
        .filter(|file| file.version < first && file.modified < cut)
        .map(|file| (file.path, file.bytes))
        .collect();
    if doomed.is_empty() {
        return Ok(());
    }
    // A checkpoint that cannot be read covers nothing.
    upkeep.table.must_open(first).await?;
    upkeep.delete(doomed, &mut done.log).await
}

/// The oldest version that stays readable: a checkpoint at or below each version that was current within the time kept,
/// and at or below the slowest watermark. None without such a checkpoint.
fn first_kept(files: &[LogFile], cut: DateTime<Utc>, watermark: Option<i64>) -> Option<i64> {
    let commits = || files.iter().filter(|file| file.kind == LogKind::Commit);
    let newest = commits().map(|file| file.version).max()?;
    // The version before the first young commit was current when the time kept began.
    let current = commits().filter(|file| file.modified >= cut).map(|file| file.version - 1).min().unwrap_or(newest);
    let most = watermark.map_or(current, |watermark| watermark.min(current));
    let checkpoints = files.iter().filter(|file| file.kind == LogKind::Checkpoint).map(|file| file.version);
    checkpoints.filter(|version| *version <= most).max()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn files(commits: std::ops::RangeInclusive<i64>, checkpoints: &[i64]) -> Vec<LogFile> {
        // Version n is committed on day n.
        let file = |version: i64, kind| LogFile {
            path: format!("{version}-{kind:?}"),
            version,
            kind,
            modified: DateTime::UNIX_EPOCH + TimeDelta::days(version),
            bytes: 1,
        };
        let commits = commits.map(|version| file(version, LogKind::Commit));
        commits.chain(checkpoints.iter().map(|version| file(*version, LogKind::Checkpoint))).collect()
    }

    #[test]
    fn the_log_is_kept_down_to_a_checkpoint_below_all_that_is_needed() {
        let log = files(0..=20, &[5, 10, 15]);
        for (cut_day, watermark, first) in [
            // Version 12 was current when day 12 began its end: checkpoint 10 opens it.
            (13, None, Some(10)),
            (16, None, Some(15)),
            (15, None, Some(10)),
            // Older than everything: the newest version is current.
            (99, None, Some(15)),
            (99, Some(14), Some(10)),
            (99, Some(15), Some(15)),
            (99, Some(4), None),
            (3, None, None),
        ] {
            let cut = DateTime::UNIX_EPOCH + TimeDelta::days(cut_day);
            assert_eq!(first_kept(&log, cut, watermark), first, "cut at day {cut_day}, watermark {watermark:?}");
        }
        let without = files(0..=20, &[]);
        assert_eq!(first_kept(&without, DateTime::UNIX_EPOCH + TimeDelta::days(99), None), None);
        assert_eq!(first_kept(&[], DateTime::UNIX_EPOCH, None), None);
    }
}
