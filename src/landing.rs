//! The landing zone: list, look at and read landed files. Nothing here ever writes to it.
//!
//! A file version is known by its etag. Locally that is inode, size, mtime and ctime: without ctime a version that is moved
//! away and back would have its old etag. In a container it is the blob's own, without quotes (`remote`).

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::ObjectStore;
use tokio::sync::mpsc;

use crate::azure::blobs::Blobs;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::FileVersion;

mod remote;

use remote::Container;

#[cfg(test)]
mod tests;

/// Files that are listed ahead of who reads the list.
const LISTED_AHEAD: usize = 256;

/// The landing zone. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Landing {
    zone: Zone,
}

#[derive(Debug, Clone)]
enum Zone {
    Folder(Folder),
    Container(Arc<Container>),
}

/// A local folder.
#[derive(Debug, Clone)]
struct Folder {
    root: Arc<Path>,
}

/// What is found in a landing zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file that has arrived or is arriving.
    File(FileVersion),
    /// Something that is there and is no file that can be read. Its neighbours have nothing to do with it.
    LeftOut(LeftOut),
}

/// What cannot be read as a file, for its name or for what it is, until somebody changes that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its version; the path is its name, which need be no path.
    pub version: FileVersion,
    /// Why, and what to do about it.
    pub reason: String,
}

/// A landed file being read at one version.
pub struct Reading {
    /// Its content; reading is blocking.
    pub content: Box<dyn Read + Send>,
}

impl Landing {
    /// A local folder, created when absent.
    pub fn local(folder: &Path) -> Result<Self> {
        let named = |e: std::io::Error| Error::from(e).within(format!("landing zone {}", folder.display()));
        std::fs::create_dir_all(folder).map_err(named)?;
        let root = folder.canonicalize().map_err(named)?;
        Ok(Self { zone: Zone::Folder(Folder { root: root.into() }) })
    }

    /// A whole container, whose blobs `store` reads and lists; people know it as `name`.
    #[must_use]
    pub fn remote(store: Arc<dyn ObjectStore>, name: impl Into<String>) -> Self {
        Self { zone: Zone::Container(Arc::new(Container::new(store, None, name.into()))) }
    }

    /// A whole container of a storage account, in which blobs may have any name.
    #[must_use]
    pub fn account(blobs: Blobs, name: impl Into<String>) -> Self {
        Self { zone: Zone::Container(Arc::new(Container::new(Arc::new(blobs.clone()), Some(blobs), name.into()))) }
    }

    /// The local folder, if it is one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.zone {
            Zone::Folder(folder) => Some(&folder.root),
            Zone::Container(_) => None,
        }
    }

    /// What people know it as.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.zone {
            Zone::Folder(folder) => folder.root.display().to_string(),
            Zone::Container(container) => container.name().to_owned(),
        }
    }

    /// The version that a path has now; none when there is no such file. Paths out of the landing zone are refused.
    pub async fn head(&self, path: &str) -> Result<Option<FileVersion>> {
        let folder = match &self.zone {
            Zone::Folder(folder) => folder.clone(),
            Zone::Container(container) => return container.head(path).await,
        };
        let path = path.to_owned();
        let look = move || folder.look(&path);
        tokio::task::spawn_blocking(look).await.map_err(|e| Error::internal("looking at a landed file").because(e))?
    }

    /// Whether a file can be had by this path at all.
    ///
    /// # Errors
    /// It leads out of the landing zone, or is no path of a file.
    pub fn admits(&self, path: &str) -> Result<()> {
        match &self.zone {
            Zone::Folder(_) => Folder::admits(path),
            Zone::Container(_) => Container::admits(path),
        }
    }

    /// Every file that has arrived or is arriving: not names with `.tmp`, `.part`, `~` or a leading `_` or `.`.
    ///
    /// An error says that a part of the landing zone could not be listed; the stream may go on behind it.
    #[must_use]
    pub fn list(&self) -> BoxStream<'static, Result<FileVersion>> {
        let files = self.entries().filter_map(|entry| async move {
            match entry {
                Ok(Entry::File(version)) => Some(Ok(version)),
                Ok(Entry::LeftOut(_)) => None,
                Err(error) => Some(Err(error)),
            }
        });
        files.boxed()
    }

    /// The same, with what is there and is left out.
    #[must_use]
    pub fn entries(&self) -> BoxStream<'static, Result<Entry>> {
        let root = match &self.zone {
            Zone::Folder(folder) => Arc::clone(&folder.root),
            Zone::Container(container) => return Container::entries(container),
        };
        let (send, mut receive) = mpsc::channel(LISTED_AHEAD);
        tokio::task::spawn_blocking(move || {
            // When nobody listens any more there is nothing left to do.
            let _ = walk(&root, "", &send);
        });
        futures::stream::poll_fn(move |cx| receive.poll_recv(cx)).boxed()
    }

    /// Opens a file at exactly this version, from a thread that may block. Afterwards [`Landing::unchanged`] says whether it
    /// still was at the end.
    pub fn open(&self, version: &FileVersion) -> Result<Reading> {
        match &self.zone {
            Zone::Folder(folder) => folder.open(version),
            Zone::Container(container) => Ok(Reading { content: Container::open(container, version)? }),
        }
    }

    /// Whether the path still has this version.
    pub async fn unchanged(&self, version: &FileVersion) -> Result<bool> {
        Ok(self.head(&version.path).await?.is_some_and(|now| now.etag == version.etag))
    }
}

/// Why a text is no path below a landing zone, if it is none.
fn refused(path: &str) -> Option<&'static str> {
    let plain = !path.is_empty() && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if !plain {
        return Some("it must be relative, without empty parts, `.` and `..`");
    }
    path.contains('\0').then_some("it has characters that no file name has")
}

fn refusal(path: &str, why: &str) -> Error {
    Error::invalid(format!("`{path}` is no path below the landing zone: {why}"))
}

impl Folder {
    fn admits(path: &str) -> Result<()> {
        let windows = cfg!(windows) && path.contains(['\\', ':']);
        let why = refused(path).or_else(|| windows.then_some("it has characters that no file name has"));
        why.map_or(Ok(()), |why| Err(refusal(path, why)))
    }

    fn open(&self, version: &FileVersion) -> Result<Reading> {
        let path = &version.path;
        let file = File::open(self.inside(path)?).map_err(|e| Error::from(e).within(path))?;
        let meta = file.metadata().map_err(|e| Error::from(e).within(path))?;
        if etag(&meta) != version.etag {
            return Err(Error::conflict(format!("{path} was changed since it was announced")));
        }
        Ok(Reading { content: Box::new(file) })
    }

    fn look(&self, path: &str) -> Result<Option<FileVersion>> {
        let file = match self.inside(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match std::fs::metadata(&file) {
            Ok(meta) if meta.is_file() => Ok(Some(version(path.to_owned(), &meta)?)),
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Error::from(error).within(path)),
        }
    }

    /// The real file of a path below the landing zone. Links are followed, but not out of it.
    fn inside(&self, path: &str) -> Result<PathBuf> {
        Self::admits(path)?;
        let real = match self.root.join(path).canonicalize() {
            Ok(real) => real,
            Err(error) if is_absent(&error) => {
                return Err(Error::not_found(format!("{path} is not in the landing zone")));
            }
            Err(error) => return Err(Error::from(error).within(path)),
        };
        if !real.starts_with(&self.root) {
            return Err(refusal(path, "a link leads out of it").remedy("copy the file instead of linking it"));
        }
        Ok(real)
    }
}

/// A part of the path that is a file, or too long a name, means that there is no such file.
fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Io;
    matches!(error.kind(), Io::NotFound | Io::NotADirectory | Io::InvalidFilename)
}

/// Whether a name says that a file is not (yet) meant to be read.
#[must_use]
pub fn is_passed_over(name: &str) -> bool {
    name.starts_with(['_', '.']) || name.contains(".tmp") || name.contains(".part") || name.contains('~')
}

/// Sends every file below a folder, folder by folder in the order of names. False when nobody listens any more.
fn walk(root: &Path, below: &str, send: &mpsc::Sender<Result<Entry>>) -> bool {
    let folder = root.join(below);
    let entries = match std::fs::read_dir(&folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        // It was there when it was listed: somebody took it away.
        Err(error) if is_absent(&error) && !below.is_empty() => return true,
        Err(error) => return send.blocking_send(Err(Error::from(error).within(folder.display()))).is_ok(),
    };
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    for name in names {
        let Some(text) = name.to_str() else {
            let shown = Path::new(below).join(&name).to_string_lossy().into_owned();
            let found = std::fs::symlink_metadata(folder.join(&name)).map_err(|e| Error::from(e).within(&shown));
            let found = found.and_then(|meta| left_out(shown, &meta, "its name is not UTF-8; rename it"));
            if send.blocking_send(found).is_err() {
                return false;
            }
            continue;
        };
        // Folders too: writers keep what is not finished in `_temporary` and the like.
        if text.starts_with(['_', '.']) {
            continue;
        }
        let path = if below.is_empty() { text.to_owned() } else { format!("{below}/{text}") };
        if !visit(root, &path, send) {
            return false;
        }
    }
    true
}

/// Sends one file, or walks one folder.
fn visit(root: &Path, path: &str, send: &mpsc::Sender<Result<Entry>>) -> bool {
    let full = root.join(path);
    let name = path.rsplit('/').next().unwrap_or_default();
    let found = match std::fs::symlink_metadata(&full) {
        Ok(meta) if meta.is_dir() => return walk(root, path, send),
        // The rest of the rule is about files: `.parts` in a folder's name tells nothing.
        Ok(_) if is_passed_over(name) => return true,
        Ok(meta) if meta.is_file() => version(path.to_owned(), &meta).map(Entry::File),
        Ok(meta) if meta.is_symlink() => match linked(root, &full, path, &meta) {
            Some(found) => found,
            None => return true,
        },
        Ok(_) => return true,
        Err(error) if is_absent(&error) => return true,
        Err(error) => Err(Error::from(error).within(path)),
    };
    send.blocking_send(found).is_ok()
}

/// A link to a file inside the landing zone is a file; links to folders are not followed, for they may go round in circles.
fn linked(root: &Path, full: &Path, path: &str, link: &Metadata) -> Option<Result<Entry>> {
    let real = full.canonicalize().ok()?;
    let meta = std::fs::metadata(&real).ok()?;
    if !meta.is_file() {
        return None;
    }
    if !real.starts_with(root) {
        let why = "it is a link that leads out of the landing zone; copy the file instead of linking it";
        return Some(left_out(path.to_owned(), link, why));
    }
    Some(version(path.to_owned(), &meta).map(Entry::File))
}

fn left_out(name: String, meta: &Metadata, why: &str) -> Result<Entry> {
    Ok(Entry::LeftOut(LeftOut { version: version(name, meta)?, reason: why.to_owned() }))
}

fn version(path: String, meta: &Metadata) -> Result<FileVersion> {
    let modified = meta.modified().map_err(|e| Error::from(e).within(&path))?;
    Ok(FileVersion {
        path,
        etag: etag(meta),
        bytes: meta.len(),
        last_modified: DateTime::<Utc>::from(modified),
        sequencer: None,
    })
}

#[cfg(unix)]
fn etag(meta: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    format!(
        "{:x}-{:x}-{:x}-{:x}",
        meta.ino(),
        meta.len(),
        nanos(meta.mtime(), meta.mtime_nsec()),
        nanos(meta.ctime(), meta.ctime_nsec())
    )
}

#[cfg(not(unix))]
fn etag(meta: &Metadata) -> String {
    let since = |time: std::io::Result<std::time::SystemTime>| {
        time.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |age| age.as_nanos())
    };
    format!("0-{:x}-{:x}-{:x}", meta.len(), since(meta.modified()), since(meta.created()))
}
