//! Which files came and went between two versions.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};

use super::load::try_commit;
use super::log::Actions;
use super::{Changes, DataFile, Snapshot, Table};
use crate::error::Result;

/// Commits are read this many at a time.
const AHEAD: usize = 16;

impl Table {
    /// What changed after version `after` up to `upto`; none when the log between them can no longer be read, or when
    /// `after` is a version that `upto` does not have behind it.
    ///
    /// Rows added = rows of `added`, rows removed = rows of `removed`, as multisets. A file that was added and then
    /// rearranged (compacted) together with older ones stays in `added`: it is no longer live, but its object stays until
    /// vacuum takes it away.
    pub async fn changes(&self, after: i64, upto: &Snapshot) -> Result<Option<Changes>> {
        if after > upto.version() || after < 0 {
            return Ok(None);
        }
        let store = &self.inner.store;
        let commits = futures::stream::iter(after + 1..=upto.version())
            .map(|version| try_commit(store, &self.inner.folder, version));
        let mut commits = std::pin::pin!(commits.buffered(AHEAD));
        let mut net = Net::default();
        while let Some(commit) = commits.try_next().await? {
            let Some((_, actions)) = commit else { return Ok(None) };
            net.take(actions)?;
        }
        Ok(Some(Changes { added: net.added.into_values().collect(), removed: net.removed.into_values().collect() }))
    }
}

#[derive(Default)]
struct Net {
    added: BTreeMap<String, DataFile>,
    removed: BTreeMap<String, DataFile>,
}

impl Net {
    fn take(&mut self, actions: Actions) -> Result<()> {
        let mut rearranged_from = Vec::new();
        let mut rearranged_to = Vec::new();
        for remove in actions.removes {
            let data_change = remove.data_change;
            let file = DataFile::from_remove(remove)?;
            if !data_change {
                rearranged_from.push(file.path);
            } else if self.added.remove(&file.path).is_none() {
                self.removed.insert(file.path.clone(), file);
            }
        }
        for add in actions.adds {
            let data_change = add.data_change;
            let file = DataFile::from_add(add)?;
            if !data_change {
                rearranged_to.push(file);
            } else if self.removed.remove(&file.path).is_none() {
                self.added.insert(file.path.clone(), file);
            }
        }
        // Only new files were rearranged: what they became stands for them. Otherwise the new files that are among them stay,
        // and a later removal of what they became counts as removed: together that is right again.
        if !rearranged_from.is_empty() && rearranged_from.iter().all(|path| self.added.contains_key(path)) {
            for path in &rearranged_from {
                self.added.remove(path);
            }
            self.added.extend(rearranged_to.into_iter().map(|file| (file.path.clone(), file)));
        }
        Ok(())
    }
}
