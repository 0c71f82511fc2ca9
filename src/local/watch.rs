//! When a file of the landing folder has arrived, and whether its event was sent.
//!
//! A version (its etag changes with size, times and inode) has arrived when it held still for a while. Files of the first
//! listing are left to the reconcile that follows it: what changes or appears after that listing is announced here, so
//! nothing falls between the two.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chrono::{DateTime, TimeDelta, Utc};

use crate::manifest::FileVersion;

/// What is known about the landing folder.
#[derive(Debug)]
pub struct Watch {
    hold: TimeDelta,
    seen: HashMap<String, Seen>,
    listings: u64,
}

#[derive(Debug)]
struct Seen {
    etag: String,
    since: DateTime<Utc>,
    announced: bool,
    listing: u64,
}

impl Watch {
    /// Knows nothing yet; versions have arrived when they held still for `hold`.
    #[must_use]
    pub fn new(hold: TimeDelta) -> Self {
        Self { hold, seen: HashMap::new(), listings: 0 }
    }

    /// The first listing, whose files somebody else takes care of.
    pub fn seed(&mut self, listing: &[FileVersion], now: DateTime<Utc>) {
        for file in listing {
            let known = Seen { etag: file.etag.clone(), since: now, announced: true, listing: self.listings };
            self.seen.insert(file.path.clone(), known);
        }
    }

    /// A listing begun at `now`: the versions that have arrived and are not announced yet. `whole` is false when a part
    /// of the folder could not be read; then nothing counts as gone.
    pub fn observe(&mut self, listing: Vec<FileVersion>, whole: bool, now: DateTime<Utc>) -> Vec<FileVersion> {
        self.listings += 1;
        let mut arrived = Vec::new();
        for file in listing {
            let fresh = Seen { etag: file.etag.clone(), since: now, announced: false, listing: self.listings };
            match self.seen.entry(file.path.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(fresh);
                    continue;
                }
                Entry::Occupied(mut entry) if entry.get().etag != file.etag => {
                    entry.insert(fresh);
                    continue;
                }
                Entry::Occupied(mut entry) => {
                    let seen = entry.get_mut();
                    seen.listing = self.listings;
                    if !seen.announced && now - seen.since >= self.hold {
                        arrived.push(file);
                    }
                }
            }
        }
        if whole {
            let listing = self.listings;
            self.seen.retain(|_, seen| seen.listing == listing);
        }
        arrived
    }

    /// These versions are in the queue.
    pub fn announced(&mut self, files: &[FileVersion]) {
        for file in files {
            if let Some(seen) = self.seen.get_mut(&file.path).filter(|seen| seen.etag == file.etag) {
                seen.announced = true;
            }
        }
    }

    /// Versions that are not announced yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.seen.values().filter(|seen| !seen.announced).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, etag: &str) -> FileVersion {
        FileVersion {
            path: path.to_owned(),
            etag: etag.to_owned(),
            bytes: 1,
            last_modified: DateTime::UNIX_EPOCH,
            sequencer: None,
        }
    }

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(ms)
    }

    struct Folder(Watch);

    impl Folder {
        fn new(seed: &[(&str, &str)]) -> Self {
            let mut watch = Watch::new(TimeDelta::milliseconds(500));
            let listing: Vec<_> = seed.iter().map(|(path, etag)| file(path, etag)).collect();
            watch.seed(&listing, at(0));
            Self(watch)
        }

        fn see(&mut self, ms: i64, listing: &[(&str, &str)]) -> Vec<String> {
            let listing = listing.iter().map(|(path, etag)| file(path, etag)).collect();
            let arrived = self.0.observe(listing, true, at(ms));
            self.0.announced(&arrived);
            arrived.into_iter().map(|file| format!("{}@{}", file.path, file.etag)).collect()
        }
    }

    #[test]
    fn a_file_has_arrived_when_it_held_still() {
        let mut folder = Folder::new(&[]);
        assert!(folder.see(0, &[("a", "1")]).is_empty());
        assert!(folder.see(499, &[("a", "1")]).is_empty());
        assert_eq!(folder.0.pending(), 1);
        assert_eq!(folder.see(500, &[("a", "1")]), ["a@1"]);
        assert!(folder.see(9000, &[("a", "1")]).is_empty(), "announced once");
        assert_eq!(folder.0.pending(), 0);
    }

    #[test]
    fn every_change_starts_the_wait_anew() {
        let mut folder = Folder::new(&[]);
        for (ms, etag) in [(0, "1"), (400, "2"), (800, "3"), (1200, "4"), (1600, "4")] {
            assert!(folder.see(ms, &[("a", etag)]).is_empty());
        }
        assert_eq!(folder.see(1700, &[("a", "4")]), ["a@4"]);
    }

    #[test]
    fn a_later_change_is_a_new_version() {
        let mut folder = Folder::new(&[]);
        folder.see(0, &[("a", "1")]);
        assert_eq!(folder.see(500, &[("a", "1")]), ["a@1"]);
        assert!(folder.see(600, &[("a", "2")]).is_empty());
        assert_eq!(folder.see(1100, &[("a", "2")]), ["a@2"]);
    }

    #[test]
    fn the_first_listing_is_left_to_reconcile_but_its_changes_are_not() {
        let mut folder = Folder::new(&[("old", "1"), ("growing", "1")]);
        assert!(folder.see(1000, &[("old", "1"), ("growing", "2"), ("new", "1")]).is_empty());
        assert_eq!(folder.see(1500, &[("old", "1"), ("growing", "2"), ("new", "1")]), ["growing@2", "new@1"]);
    }

    #[test]
    fn a_file_that_goes_and_comes_back_is_announced_again() {
        let mut folder = Folder::new(&[("a", "1")]);
        folder.see(100, &[]);
        folder.see(200, &[("a", "1")]);
        assert_eq!(folder.see(700, &[("a", "1")]), ["a@1"]);
    }

    #[test]
    fn nothing_is_gone_because_a_listing_broke_off() {
        let mut folder = Folder::new(&[("a", "1")]);
        assert!(folder.0.observe(Vec::new(), false, at(100)).is_empty());
        assert!(folder.see(5000, &[("a", "1")]).is_empty(), "still known");
    }

    #[test]
    fn what_could_not_be_sent_arrives_again() {
        let mut folder = Folder::new(&[]);
        folder.see(0, &[("a", "1")]);
        assert_eq!(folder.0.observe(vec![file("a", "1")], true, at(600)).len(), 1);
        assert_eq!(folder.0.observe(vec![file("a", "1")], true, at(700)).len(), 1);
    }
}
