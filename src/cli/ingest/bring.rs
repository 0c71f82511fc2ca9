//! Which files are meant, where in the landing zone they go, and the copying itself.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::landing::is_passed_over;
use crate::schema::Contract;

/// Why a file of a folder is left where it is.
pub const NOT_DATA: &str = "by its name it is no data, or not finished";

/// One file and where it is (or will be) in the landing zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bring {
    /// Where it is now; none when it is in the landing zone already.
    pub from: Option<PathBuf>,
    /// Where it goes; none when the landing zone is a container.
    pub to: Option<PathBuf>,
    /// The path below the landing zone, with `/`.
    pub landed: String,
}

/// All files meant.
#[derive(Debug, Default)]
pub struct Brought {
    /// In the order of their paths, each once.
    pub files: Vec<Bring>,
    /// Files of folders that are no data by their name.
    pub skipped: Vec<PathBuf>,
}

/// The folder below the landing zone where a table looks for its files: what comes before the first part with a wildcard.
///
/// # Errors
/// Files do not feed the table.
pub fn folder_of(contract: &Contract) -> Result<String> {
    let Some(source) = contract.files() else {
        return Err(Error::invalid(format!("{} is not fed by files", contract.table))
            .remedy("name the table that takes them; what is derived from it follows by itself"));
    };
    if source.path.is_empty() {
        return Err(Error::invalid(format!("{} takes no files: its events come from topics", contract.table))
            .remedy("add `path` to its `source`"));
    }
    Ok(literal_folder(&source.path))
}

fn literal_folder(glob: &str) -> String {
    let parts: Vec<&str> = glob.split('/').filter(|part| !part.is_empty()).collect();
    let folders = parts.len().saturating_sub(1);
    let literal = parts[..folders].iter().take_while(|part| !part.contains(['*', '?', '[', '{', '\\']));
    literal.copied().collect::<Vec<_>>().join("/")
}

/// Finds all files of `paths` and says where each goes. `landing` is the landing folder; without one the landing zone is a
/// container, and every file is brought there. `target` is a folder below the landing zone.
///
/// # Errors
/// A path is not there, cannot be read or is not UTF-8; two files would go to the same place.
pub fn plan(paths: &[PathBuf], landing: Option<&Path>, target: Option<&str>) -> Result<Brought> {
    let made = |landing: &Path| -> Result<PathBuf> {
        let within = |error: std::io::Error| Error::from(error).within(landing.display());
        fs::create_dir_all(landing).map_err(within)?;
        landing.canonicalize().map_err(within)
    };
    let landing = landing.map(made).transpose()?;
    let landing = landing.as_deref();
    let mut brought = Brought::default();
    for path in paths {
        let found = path.canonicalize().map_err(|error| Error::from(error).within(path.display()))?;
        let is_folder = found.is_dir();
        let base = if is_folder { found.as_path() } else { found.parent().unwrap_or(&found) };
        let own_name = base.file_name().map_or_else(PathBuf::new, PathBuf::from);
        let folder = target.map_or(own_name, PathBuf::from);
        let mut files = Vec::new();
        if is_folder {
            walk(&found, landing, &mut files, &mut brought.skipped)?;
        } else if is_in_the_making(&found) {
            brought.skipped.push(found.clone());
        } else {
            files.push(found.clone());
        }
        for file in files {
            let below = match landing.and_then(|landing| file.strip_prefix(landing).ok()) {
                Some(inside) => inside.to_owned(),
                None => folder.join(file.strip_prefix(base).unwrap_or(&file)),
            };
            let to = landing.map(|landing| landing.join(&below));
            let from = (to.as_ref() != Some(&file)).then_some(file);
            brought.files.push(Bring { from, landed: slashed(&below)?, to });
        }
    }
    brought.files.sort_by(|a, b| (&a.landed, &a.from).cmp(&(&b.landed, &b.from)));
    brought.files.dedup();
    for pair in brought.files.windows(2) {
        if pair[0].landed == pair[1].landed {
            return Err(Error::invalid(format!(
                "two files would both land at {}: {} and {}",
                pair[0].landed,
                pair[0].shown(),
                pair[1].shown()
            ))
            .remedy(
                "give one another name, or ingest them one after the other with --replace when one corrects the other",
            ));
        }
    }
    Ok(brought)
}

/// All files below a folder. The landing zone within a folder that is not it is left out: its files are not foreign.
fn walk(folder: &Path, landing: Option<&Path>, files: &mut Vec<PathBuf>, skipped: &mut Vec<PathBuf>) -> Result<()> {
    let within = |error: std::io::Error| Error::from(error).within(folder.display());
    for entry in fs::read_dir(folder).map_err(within)? {
        let path = entry.map_err(within)?.path();
        let link = fs::symlink_metadata(&path).map_err(within)?;
        let Ok(meta) = fs::metadata(&path) else {
            skipped.push(path);
            continue;
        };
        // A link to a folder may lead in a circle, and the landing zone does not follow it either.
        if link.is_symlink() && meta.is_dir() {
            skipped.push(path);
            continue;
        }
        if meta.is_dir() {
            let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(['_', '.']));
            let real = path.canonicalize().map_err(within)?;
            let is_landing = landing.is_some_and(|landing| real == landing && !folder.starts_with(landing));
            if !is_hidden && !is_landing {
                walk(&path, landing, files, skipped)?;
            }
        } else if is_in_the_making(&path) {
            skipped.push(path);
        } else if meta.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn is_in_the_making(path: &Path) -> bool {
    path.file_name().is_some_and(|name| is_passed_over(&name.to_string_lossy()))
}

fn slashed(path: &Path) -> Result<String> {
    let mut parts = Vec::new();
    for component in path.components() {
        let Component::Normal(part) = component else { continue };
        let text = part
            .to_str()
            .ok_or_else(|| Error::invalid(format!("{} is no UTF-8 path", path.display())).remedy("rename the file"))?;
        parts.push(text);
    }
    Ok(parts.join("/"))
}

impl Bring {
    /// The path that a person knows it by.
    #[must_use]
    pub fn shown(&self) -> String {
        self.from.as_ref().map_or_else(|| self.landed.clone(), |from| from.display().to_string())
    }

    /// Whether another file has its place: to copy it there is to say that it is that file's next version.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn would_replace(&self) -> Result<bool> {
        let (Some(from), Some(to)) = (&self.from, &self.to) else { return Ok(false) };
        let reading = |error: std::io::Error| Error::from(error).within(from.display());
        Ok(to.exists() && !same_content(from, to).map_err(reading)?)
    }

    /// Copies the file to its place, by a temporary name and a rename, unless the same content is there; gives back the
    /// bytes copied.
    ///
    /// # Errors
    /// The file cannot be read, or the landing zone not be written.
    pub fn copy(&self) -> Result<u64> {
        let (Some(from), Some(to)) = (&self.from, &self.to) else { return Ok(0) };
        let reading = |error: std::io::Error| Error::from(error).within(from.display());
        if same_content(from, to).map_err(reading)? {
            return Ok(0);
        }
        let writing = |error: std::io::Error| Error::from(error).within(to.display());
        let folder = to.parent().unwrap_or(to);
        fs::create_dir_all(folder).map_err(writing)?;
        let name = to.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let temporary = folder.join(format!(".{name}.{}.tmp", std::process::id()));
        let copied = fs::copy(from, &temporary).and_then(|bytes| fs::rename(&temporary, to).map(|()| bytes));
        copied.map_err(|error| {
            // Half a copy is of no use to anybody; that it cannot be removed changes nothing.
            let _ = fs::remove_file(&temporary);
            Error::from(error).within(format!("copying {} to {}", from.display(), to.display()))
        })
    }
}

/// Whether both files are there with the same bytes.
fn same_content(a: &Path, b: &Path) -> std::io::Result<bool> {
    let size = fs::metadata(a)?.len();
    if fs::metadata(b).map_or(true, |meta| !meta.is_file() || meta.len() != size) {
        return Ok(false);
    }
    let (mut left, mut right) = (File::open(a)?, File::open(b)?);
    let (mut ours, mut theirs) = (vec![0; 1 << 17], vec![0; 1 << 17]);
    loop {
        let read = left.read(&mut ours)?;
        if read == 0 {
            return Ok(true);
        }
        if right.read_exact(&mut theirs[..read]).is_err() || ours[..read] != theirs[..read] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_before_the_first_wildcard() {
        for (glob, folder) in [
            ("trips/**/*.csv*", "trips"),
            ("a/b/*.csv", "a/b"),
            ("a/b?/c/*.csv", "a"),
            ("**/*.csv", ""),
            ("*.csv", ""),
            ("a/all.csv", "a"),
            ("{a,b}/x.csv", ""),
        ] {
            assert_eq!(literal_folder(glob), folder, "{glob}");
        }
    }

    fn landed(brought: &Brought) -> Vec<&str> {
        brought.files.iter().map(|file| file.landed.as_str()).collect()
    }

    #[test]
    fn outside_files_go_to_the_tables_folder_or_one_of_their_own_name() {
        let dir = tempfile::tempdir().unwrap();
        let landing = dir.path().join("data/landing");
        let source = dir.path().join("march");
        fs::create_dir_all(source.join("deep")).unwrap();
        for name in ["a.csv", "deep/b.csv", "_SUCCESS", ".hidden", "c.csv.tmp"] {
            fs::write(source.join(name), name).unwrap();
        }
        let brought = plan(std::slice::from_ref(&source), Some(&landing), Some("trips")).unwrap();
        assert_eq!(landed(&brought), ["trips/a.csv", "trips/deep/b.csv"]);
        assert_eq!(brought.skipped.len(), 3);
        let brought = plan(&[source.join("a.csv"), source.clone()], Some(&landing), None).unwrap();
        assert_eq!(landed(&brought), ["march/a.csv", "march/deep/b.csv"]);
        // What is in the landing zone is taken as it is, whatever the table.
        for file in &brought.files {
            file.copy().unwrap();
        }
        let brought = plan(&[landing.join("march")], Some(&landing), Some("trips")).unwrap();
        assert_eq!(landed(&brought), ["march/a.csv", "march/deep/b.csv"]);
        assert!(brought.files.iter().all(|file| file.from.is_none()));
    }

    #[cfg(unix)]
    #[test]
    fn links_to_folders_are_not_followed_and_those_to_files_are() {
        let dir = tempfile::tempdir().unwrap();
        let (source, other) = (dir.path().join("march"), dir.path().join("other"));
        for folder in [&source, &other] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("a.csv"), "a").unwrap();
        }
        for (target, name) in [(&source, "circle"), (&other, "elsewhere"), (&other.join("a.csv"), "file.csv")] {
            std::os::unix::fs::symlink(target, source.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("nowhere", source.join("broken.csv")).unwrap();
        let brought = plan(std::slice::from_ref(&source), Some(&dir.path().join("landing")), Some("trips")).unwrap();
        assert_eq!(landed(&brought), ["trips/a.csv", "trips/file.csv"]);
        let mut skipped: Vec<_> = brought.skipped.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        skipped.sort_unstable();
        assert_eq!(skipped, ["broken.csv", "circle", "elsewhere"]);
    }

    #[test]
    fn two_files_for_one_place_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["x", "y"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            fs::write(dir.path().join(folder).join("a.csv"), folder).unwrap();
        }
        let paths = [dir.path().join("x"), dir.path().join("y")];
        let error = plan(&paths, Some(&dir.path().join("landing")), Some("t")).unwrap_err();
        assert!(error.to_string().starts_with("two files would both land at t/a.csv"), "{error}");
        assert!(plan(&[dir.path().join("nowhere")], Some(&dir.path().join("landing")), None).is_err());
    }

    #[test]
    fn the_same_content_is_not_copied_again() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a.csv"), dir.path().join("landing/t/a.csv"));
        fs::write(&from, "one").unwrap();
        let file = Bring { from: Some(from.clone()), to: Some(to.clone()), landed: "t/a.csv".to_owned() };
        assert_eq!(file.copy().unwrap(), 3);
        let before = fs::metadata(&to).unwrap().modified().unwrap();
        assert_eq!(file.copy().unwrap(), 0);
        assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), before);
        fs::write(&from, "two").unwrap();
        assert_eq!(file.copy().unwrap(), 3);
        assert_eq!(fs::read_to_string(&to).unwrap(), "two");
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    }
}
