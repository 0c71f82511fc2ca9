//! Where a package is made before it is put into its place: a folder beside it, which nobody else touches while it is held. A
//! run that is killed leaves one behind; the next run takes it away.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::error::{Error, Result};

const PREFIX: &str = ".package-";

/// In the folder; whoever works there has it locked, and a process that dies lets it go.
const LOCK: &str = "held";

/// A folder to work in. It goes with this value.
pub(super) struct Workshop {
    folder: PathBuf,
    _held: File,
}

impl Workshop {
    /// A new one beside the folder that is made.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn beside(folder: &Path, clock: &dyn Clock) -> Result<Self> {
        let folder = folder.with_file_name(format!("{PREFIX}{}", clock.fresh()));
        let failed = |error: std::io::Error| Error::from(error).within(folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        // It gets its name when it is locked: no other run sees one that is not.
        let unnamed = folder.join("unheld");
        let held = File::create(&unnamed).map_err(failed)?;
        held.lock().map_err(failed)?;
        fs::rename(unnamed, folder.join(LOCK)).map_err(failed)?;
        Ok(Self { folder, _held: held })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Takes away what runs that were killed left beside a folder. Best effort: what cannot be taken away does no harm.
pub(super) fn clear(beside: &Path) {
    let parent = beside.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let lock = File::open(entry.path().join(LOCK));
        // One that is only just made has no lock yet, and one that is held is at work.
        if is_ours && lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn what_a_killed_run_left_is_taken_away_and_what_another_works_in_is_not() {
        let home = tempfile::tempdir().unwrap();
        let out = home.path().join("package");
        let at_work = Workshop::beside(&out, &SystemClock).unwrap();
        // A process that is killed lets its locks go and removes nothing.
        let Workshop { folder: left, _held: held } =
            &*std::mem::ManuallyDrop::new(Workshop::beside(&out, &SystemClock).unwrap());
        held.unlock().unwrap();
        fs::write(left.join("zip"), "half").unwrap();
        fs::create_dir(home.path().join(".package-of-somebody-else")).unwrap();
        clear(&out);
        assert!(at_work.folder().exists() && !left.exists());
        assert!(home.path().join(".package-of-somebody-else").exists(), "it has no lock of ours");
        let folder = at_work.folder().to_owned();
        drop(at_work);
        assert!(!folder.exists());
    }
}
