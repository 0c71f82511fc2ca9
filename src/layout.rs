//! Every path of the lake, made in one place. All are relative to the lake's root (`lake/`), with `/`.

use crate::name::{BatchId, TableName};

/// The ledger's folder.
pub const LEDGER: &str = "ledger";

/// Folder of all internal objects; readers of the lake never look there.
pub const INTERNAL: &str = "_alluvium";

/// Folder of a table.
#[must_use]
pub fn table(name: &TableName) -> String {
    name.to_string()
}

/// Folder of a table's quarantine.
#[must_use]
pub fn quarantine(name: &TableName) -> String {
    format!("quarantine/{name}")
}

/// Folder of the kept changes that a table of changes is derived from.
#[must_use]
pub fn state(name: &TableName) -> String {
    format!("{INTERNAL}/state/{name}")
}

/// Folder of a table's manifests, markers and notes, and of nothing else: it is listed at every tick.
#[must_use]
pub fn manifests(name: &TableName) -> String {
    format!("{INTERNAL}/staged/{name}/manifests")
}

/// A manifest: generation `g` of a batch.
#[must_use]
pub fn manifest(name: &TableName, batch: &BatchId, generation: u32) -> String {
    format!("{}/{batch}.{generation}.json", manifests(name))
}

/// The marker that generation `g` of a batch is gone and must be staged anew.
#[must_use]
pub fn marker_gone(name: &TableName, batch: &BatchId, generation: u32) -> String {
    format!("{}/{batch}.{generation}.gone", manifests(name))
}

/// The marker that generation `g` of a batch could not be committed and rests until a person or a contract changes something.
#[must_use]
pub fn marker_failed(name: &TableName, batch: &BatchId, generation: u32) -> String {
    format!("{}/{batch}.{generation}.failed", manifests(name))
}

/// A note about a batch (`failed`, `missing`), outside the sequence of generations.
#[must_use]
pub fn note(name: &TableName, batch: &BatchId, fresh: &str) -> String {
    format!("{}/{batch}.note-{fresh}.json", manifests(name))
}

/// Staged rows under a fresh name.
#[must_use]
pub fn staged_rows(name: &TableName, fresh: &str) -> String {
    format!("{INTERNAL}/staged/{name}/data/{fresh}.arrow")
}

/// Staged quarantine rows under a fresh name.
#[must_use]
pub fn staged_rejects(name: &TableName, fresh: &str) -> String {
    format!("{INTERNAL}/staged/{name}/data/{fresh}.rejects.arrow")
}

/// Folder of a table's staged rows and rejects.
#[must_use]
pub fn staged_data(name: &TableName) -> String {
    format!("{INTERNAL}/staged/{name}/data")
}

/// Folder of a table's plans.
#[must_use]
pub fn plans(name: &TableName) -> String {
    format!("{INTERNAL}/plans/{name}")
}

/// Plan `number` of a table.
#[must_use]
pub fn plan(name: &TableName, number: i64) -> String {
    format!("{}/{number}.json", plans(name))
}

/// The folder whose plans belong to files that no contract takes (`table` null in the ledger).
#[must_use]
pub fn unclaimed_notes() -> String {
    format!("{INTERNAL}/staged/_unclaimed")
}

/// The number of a plan, by its path; none for what is no plan.
#[must_use]
pub fn plan_number(path: &str) -> Option<i64> {
    path.rsplit('/').next()?.strip_suffix(".json")?.parse().ok()
}

/// Folder of the notes about stopped tables.
#[must_use]
pub fn stops() -> String {
    format!("{INTERNAL}/stopped")
}

/// A note about a stopped table, by a hash of the reason.
#[must_use]
pub fn stop(name: &TableName, hash: &str) -> String {
    format!("{}/{name}/{hash}.json", stops())
}

/// The table that such a note is about.
#[must_use]
pub fn stopped_table(path: &str) -> Option<TableName> {
    let (table, _) = path.strip_prefix(&stops())?.strip_prefix('/')?.rsplit_once('/')?;
    table.parse().ok()
}

/// Folder of what comparisons of the landing zone with the ledger found; only the last one counts.
#[must_use]
pub fn comparisons() -> String {
    format!("{INTERNAL}/compared")
}

/// One of them. Their names are in the order of time.
#[must_use]
pub fn comparison(micros: i64, fresh: &str) -> String {
    format!("{}/{micros:020}-{fresh}.json", comparisons())
}

/// Folder of recomputed rows that are only looked at.
#[must_use]
pub fn scratch() -> String {
    format!("{INTERNAL}/scratch")
}

/// A table's folder below it, for one look.
#[must_use]
pub fn scratch_of(name: &TableName, fresh: &str) -> String {
    format!("{}/{name}/{fresh}", scratch())
}

/// Folder of empty objects that are put to learn what time it is by the store's clock.
#[must_use]
pub fn probes() -> String {
    format!("{INTERNAL}/probes")
}

/// One of them, under a fresh name.
#[must_use]
pub fn probe(fresh: &str) -> String {
    format!("{}/{fresh}", probes())
}

/// What a name in a table's manifest folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StagedName {
    /// A manifest and its generation.
    Manifest(BatchId, u32),
    /// A marker `.gone` and its generation.
    Gone(BatchId, u32),
    /// A marker `.failed` and its generation.
    Failed(BatchId, u32),
    /// A note.
    Note(BatchId),
}

/// Reads back a file name made by [`manifest`], [`marker_gone`], [`marker_failed`] or [`note`].
#[must_use]
pub fn parse_staged(file_name: &str) -> Option<StagedName> {
    let (batch, rest) = file_name.split_once('.')?;
    let batch = BatchId::from(batch.to_owned());
    if rest.starts_with("note-") && rest.ends_with(".json") {
        return Some(StagedName::Note(batch));
    }
    let (generation, ending) = rest.split_once('.')?;
    let generation = generation.parse().ok()?;
    match ending {
        "json" => Some(StagedName::Manifest(batch, generation)),
        "gone" => Some(StagedName::Gone(batch, generation)),
        "failed" => Some(StagedName::Failed(batch, generation)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_names_read_back() {
        let name: TableName = "raw/trips".parse().unwrap();
        let batch = BatchId::of_file("id", "a.csv", "1");
        let file = |path: String| path.rsplit('/').next().unwrap().to_owned();
        for (path, expected) in [
            (manifest(&name, &batch, 3), StagedName::Manifest(batch.clone(), 3)),
            (marker_gone(&name, &batch, 0), StagedName::Gone(batch.clone(), 0)),
            (marker_failed(&name, &batch, 12), StagedName::Failed(batch.clone(), 12)),
            (note(&name, &batch, "ab"), StagedName::Note(batch.clone())),
        ] {
            assert_eq!(parse_staged(&file(path)), Some(expected));
        }
        assert_eq!(parse_staged("x.txt"), None);
        assert_eq!(plan_number(&plan(&name, 17)), Some(17));
        assert_eq!(stopped_table(&stop(&name, "ab")), Some(name));
    }
}
