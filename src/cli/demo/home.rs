//! The demo's home: marked as its own, so that nothing of a person's is ever replaced.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::name::short_hash;

/// The file that marks a home as made by the demo. It holds the fingerprint of all that the demo left there, or
/// [`RUNNING`].
const MARK: &str = ".alluvium-demo";

/// In the mark of a demo that did not come to its end: all that is there is its own.
const RUNNING: &str = "running";

/// Makes the home ready: new, empty, or made empty when an earlier demo left it and nobody changed it since (or `fresh`).
///
/// # Errors
/// There is something in it that the demo did not make, or that was changed since.
pub fn prepare(home: &Path, fresh: bool) -> Result<PathBuf> {
    let within = |error: std::io::Error| Error::from(error).within(home.display());
    let mark = home.join(MARK);
    match fs::read_to_string(&mark) {
        Ok(left) if fresh || left == RUNNING || left == fingerprint(home)? => clear(home)?,
        Ok(_) => {
            return Err(Error::invalid(format!("the demo's lake in {} was changed since", home.display()))
                .remedy("`alluvium demo --fresh` deletes it and begins anew; --home names another folder"));
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(within(error)),
        Err(_) if is_used(home)? => {
            return Err(Error::invalid(format!(
                "there is a lake in {} already, and it is not the demo's",
                home.display()
            ))
            .remedy("nothing was touched; give the demo another folder: `alluvium demo --home demo-data`"));
        }
        Err(_) => {}
    }
    fs::create_dir_all(home).map_err(within)?;
    fs::write(&mark, RUNNING).map_err(within)?;
    home.canonicalize().map_err(within)
}

/// Marks the home as left by a demo that came to its end.
///
/// # Errors
/// The mark cannot be written.
pub fn done(home: &Path) -> Result<()> {
    let fingerprint = fingerprint(home)?;
    fs::write(home.join(MARK), fingerprint).map_err(|error| Error::from(error).within(home.display()))
}

/// Anything that was there before: any file at all. Empty folders are what other commands leave that only looked.
fn is_used(home: &Path) -> Result<bool> {
    let mut files = Vec::new();
    if home.exists() {
        collect(home, home, &mut files)?;
    }
    Ok(!files.is_empty())
}

fn clear(home: &Path) -> Result<()> {
    for entry in fs::read_dir(home).map_err(|error| Error::from(error).within(home.display()))? {
        let path = entry.map_err(|error| Error::from(error).within(home.display()))?.path();
        // The mark goes last in effect: it is written anew before anything else comes.
        let is_folder = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let removed = match (path.file_name().is_some_and(|name| name == MARK), is_folder) {
            (true, _) => Ok(()),
            (false, true) => fs::remove_dir_all(&path),
            (false, false) => fs::remove_file(&path),
        };
        removed.map_err(|error| Error::from(error).within(path.display()))?;
    }
    Ok(())
}

/// Names and sizes of all files; the queue is left out, because looking at it may tidy it up.
fn fingerprint(home: &Path) -> Result<String> {
    let mut files = Vec::new();
    collect(home, home, &mut files)?;
    files.sort();
    let parts: Vec<&str> = files.iter().map(String::as_str).collect();
    Ok(short_hash(&parts))
}

fn collect(home: &Path, folder: &Path, files: &mut Vec<String>) -> Result<()> {
    let within = |error: std::io::Error| Error::from(error).within(folder.display());
    for entry in fs::read_dir(folder).map_err(within)? {
        let entry = entry.map_err(within)?;
        let path = entry.path();
        let below = path.strip_prefix(home).unwrap_or(&path).to_string_lossy().into_owned();
        if below == MARK || below == "queue" {
            continue;
        }
        let meta = entry.metadata().map_err(within)?;
        if meta.is_dir() {
            collect(home, &path, files)?;
        } else {
            files.push(format!("{below} {}", meta.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(home: &Path, path: &str, text: &str) {
        let file = home.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn a_home_with_anything_foreign_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("data");
        write(&home, "notes.txt", "mine");
        for fresh in [false, true] {
            let error = prepare(&home, fresh).unwrap_err();
            assert!(error.to_string().contains("not the demo's"), "{error}");
        }
        assert_eq!(fs::read_to_string(home.join("notes.txt")).unwrap(), "mine");
    }

    #[test]
    fn what_the_demo_left_is_replaced_unless_somebody_changed_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("data");
        prepare(&home, false).unwrap();
        write(&home, "lake/raw/trips/a.parquet", "rows");
        done(&home).unwrap();
        // Untouched: made anew without a question.
        prepare(&home, false).unwrap();
        assert!(!home.join("lake").exists());
        write(&home, "lake/raw/trips/a.parquet", "rows");
        done(&home).unwrap();
        // The queue's own housekeeping is nobody's change.
        write(&home, "queue/landing-events/x", "");
        write(&home, "landing/trips/mine.csv", "data of a person");
        assert!(prepare(&home, false).unwrap_err().to_string().contains("was changed since"));
        assert!(home.join("landing/trips/mine.csv").exists());
        prepare(&home, true).unwrap();
        assert!(!home.join("landing").exists());
    }

    #[test]
    fn a_demo_that_broke_off_left_only_what_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), false).unwrap();
        write(dir.path(), "lake/half", "x");
        prepare(dir.path(), false).unwrap();
        assert!(!dir.path().join("lake").exists());
    }
}
