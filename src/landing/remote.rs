//! A landing zone in a container of a storage account.
//!
//! Names of blobs are paths as they are: nothing in them is decoded or encoded, `%`, `#` and `?` are letters like others. A
//! file is read in pieces, each asked for with its version's etag, so that no request is long and none can bring bytes of
//! another version. Folders of a hierarchical namespace are no files, nor are the empty blobs that tools put in their place.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetResult, ObjectMeta, ObjectStore};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{Entry, LISTED_AHEAD, LeftOut, is_passed_over, refusal, refused};
use crate::azure::blobs::Blobs;
use crate::azure::listing::{AT_ONCE, FOLDER_MARK, Listed};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::FileVersion;

/// Bytes of one piece of a file.
const PIECE: u64 = 4 << 20;

/// Pieces that are read ahead of who decodes them.
const READ_AHEAD: usize = 1;

/// A container that producers write to.
#[derive(Debug)]
pub(super) struct Container {
    store: Arc<dyn ObjectStore>,
    /// The same as an account's, which lists blobs of any name.
    blobs: Option<Blobs>,
    name: String,
}

type Sender = mpsc::Sender<Result<Entry>>;

impl Container {
    pub(super) fn new(store: Arc<dyn ObjectStore>, blobs: Option<Blobs>, name: String) -> Self {
        Self { store, blobs, name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn admits(path: &str) -> Result<()> {
        location(path).map(drop)
    }

    /// The version that a path has now; none when there is no such blob.
    pub(super) async fn head(&self, path: &str) -> Result<Option<FileVersion>> {
        let location = location(path)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.store.get_opts(&location, options).await {
            Ok(found) if is_folder_mark(&found) => Ok(None),
            Ok(found) => version(found.meta).map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::from(error).within(path)),
        }
    }

    /// All blobs but those that are passed over.
    pub(super) fn entries(this: &Arc<Self>) -> BoxStream<'static, Result<Entry>> {
        let (send, mut receive) = mpsc::channel(LISTED_AHEAD);
        let container = Arc::clone(this);
        tokio::spawn(async move {
            // None: nobody listens any more, so there is nothing left to do.
            let _ = match &container.blobs {
                Some(blobs) => container.list_account(blobs, &send).await,
                None => container.list_store(&send).await,
            };
        });
        futures::stream::poll_fn(move |cx| receive.poll_recv(cx)).boxed()
    }

    async fn list_account(&self, blobs: &Blobs, send: &Sender) -> Option<()> {
        let mut marker = None;
        loop {
            let page = match blobs.page(marker.as_deref(), AT_ONCE).await {
                Ok(page) => page,
                Err(error) => return send.send(Err(error.within(&self.name))).await.ok(),
            };
            for entry in page.blobs.into_iter().filter_map(entry) {
                send.send(Ok(entry)).await.ok()?;
            }
            match page.next {
                Some(next) => marker = Some(next),
                None => return Some(()),
            }
        }
    }

    async fn list_store(&self, send: &Sender) -> Option<()> {
        let mut listed = self.store.list(None);
        while let Some(found) = listed.next().await {
            let found = match found {
                Ok(meta) => self.listed(meta).await.map(entry),
                Err(error) => return send.send(Err(Error::from(error).within(&self.name))).await.ok(),
            };
            if let Some(found) = found.transpose() {
                send.send(found).await.ok()?;
            }
        }
        Some(())
    }

    async fn listed(&self, meta: ObjectMeta) -> Result<Listed> {
        // Only a closer look tells an empty file from what stands for a folder.
        let is_folder = meta.size == 0 && self.head(meta.location.as_ref()).await?.is_none();
        let FileVersion { path, etag, bytes, last_modified, .. } = version(meta)?;
        Ok(Listed { name: path, etag, bytes, last_modified, is_folder })
    }

    /// A blob's content at exactly this version. Must be called on a thread that may block, within the runtime.
    pub(super) fn open(this: &Arc<Self>, version: &FileVersion) -> Result<Box<dyn Read + Send>> {
        let handle = Handle::try_current().map_err(|e| Error::internal("no runtime on this thread").because(e))?;
        let source =
            Source { container: Arc::clone(this), location: location(&version.path)?, version: version.clone() };
        // The first piece says whether the version is still there.
        let first = handle.block_on(source.piece(0))?;
        let (send, rest) = mpsc::channel(READ_AHEAD);
        handle.spawn(source.send_from(first.len() as u64, send));
        Ok(Box::new(Pieces { current: first, rest }))
    }
}

/// What a blob is to those who read files; none when it is passed over.
fn entry(blob: Listed) -> Option<Entry> {
    let (folder, name) = blob.name.rsplit_once('/').unwrap_or(("", &blob.name));
    let is_hidden = |part: &str| part.starts_with(['_', '.']) && part != "." && part != "..";
    let is_open = name == "." || name == "..";
    if blob.is_folder || folder.split('/').any(is_hidden) || (!is_open && is_passed_over(name)) {
        return None;
    }
    // What some tools put in the place of an empty folder.
    if name.is_empty() && blob.bytes == 0 {
        return None;
    }
    let refused = location(&blob.name).err();
    let Listed { name: path, etag, bytes, last_modified, .. } = blob;
    let version = FileVersion { path, etag, bytes, last_modified, sequencer: None };
    Some(match refused {
        None => Entry::File(version),
        Some(error) => Entry::LeftOut(LeftOut { version, reason: error.describe() }),
    })
}

/// The location of a path, which must be below the landing zone.
fn location(path: &str) -> Result<Path> {
    let location = match refused(path) {
        Some(why) => Err(refusal(path, why)),
        None => Path::parse(path).map_err(|_| refusal(path, "it has a control character")),
    };
    location.map_err(|error| error.remedy("give the blob another name"))
}

fn is_folder_mark(found: &GetResult) -> bool {
    let mark = found.attributes.get(&Attribute::Metadata(FOLDER_MARK.into()));
    found.meta.size == 0 && mark.is_some_and(|value| value.as_ref() == "true")
}

fn version(meta: ObjectMeta) -> Result<FileVersion> {
    let path = meta.location.to_string();
    let Some(etag) = meta.e_tag else {
        return Err(Error::internal(format!("{path}: the storage account gives no etag")));
    };
    Ok(FileVersion {
        path,
        etag: etag.trim_matches('"').to_owned(),
        bytes: meta.size,
        last_modified: meta.last_modified,
        sequencer: None,
    })
}

/// One version of a blob.
struct Source {
    container: Arc<Container>,
    location: Path,
    version: FileVersion,
}

impl Source {
    /// The bytes from `begin` on, at most [`PIECE`] of them.
    async fn piece(&self, begin: u64) -> Result<Bytes> {
        let path = &self.version.path;
        let range: Range<u64> = begin..self.version.bytes.min(begin + PIECE);
        let options = GetOptions {
            if_match: Some(format!("\"{}\"", self.version.etag)),
            // There is no range of nothing.
            range: (!range.is_empty()).then(|| range.clone().into()),
            head: range.is_empty(),
            ..GetOptions::default()
        };
        let failed = |error: object_store::Error| match error {
            object_store::Error::Precondition { .. } => {
                Error::conflict(format!("{path} was changed since it was announced"))
            }
            error => Error::from(error).within(path),
        };
        let found = self.container.store.get_opts(&self.location, options).await.map_err(failed)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let bytes = found.bytes().await.map_err(failed)?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(Error::unavailable(format!("{path}: bytes {range:?} came as {} bytes", bytes.len())));
        }
        Ok(bytes)
    }

    async fn send_from(self, mut begin: u64, send: mpsc::Sender<Result<Bytes>>) {
        while begin < self.version.bytes {
            let piece = self.piece(begin).await.map_err(|error| match error.kind() {
                // It was there when it was opened.
                ErrorKind::NotFound => Error::conflict(format!("{} was deleted while it was read", self.version.path)),
                _ => error,
            });
            let is_last = piece.is_err();
            begin += piece.as_ref().map_or(0, |bytes| bytes.len() as u64);
            // Nobody reads on: the decoder had enough.
            if send.send(piece).await.is_err() || is_last {
                return;
            }
        }
    }
}

/// Pieces one after the other; reading is blocking.
struct Pieces {
    current: Bytes,
    rest: mpsc::Receiver<Result<Bytes>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.rest.blocking_recv() {
                Some(piece) => self.current = piece.map_err(io::Error::other)?,
                None => return Ok(0),
            }
        }
        let read = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::{Attributes, ObjectStoreExt as _, PutOptions};

    use super::*;
    use crate::landing::Landing;

    fn zone() -> (Arc<InMemory>, Landing) {
        let store = Arc::new(InMemory::new());
        (Arc::clone(&store), Landing::remote(store, "az://account/landing"))
    }

    async fn put(store: &InMemory, path: &str, bytes: Vec<u8>) {
        store.put(&Path::parse(path).unwrap(), bytes.into()).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_no_file_or_not_finished_is_passed_over() {
        let (store, landing) = zone();
        for path in ["t/a.csv", "t/_x.csv", "_t/b.csv", "t/.hidden/c.csv", "t/d.csv.tmp", "t/odd %2F#?+\u{fc}.csv"] {
            put(&store, path, vec![1]).await;
        }
        put(&store, "t/empty.csv", Vec::new()).await;
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(FOLDER_MARK.into()), "true".into());
        let options = PutOptions { attributes, ..PutOptions::default() };
        store.put_opts(&Path::from("t"), Bytes::new().into(), options).await.unwrap();
        let mut listed: Vec<String> = landing.list().map(|found| found.unwrap().path).collect().await;
        listed.sort();
        assert_eq!(listed, ["t/a.csv", "t/empty.csv", "t/odd %2F#?+\u{fc}.csv"]);
        assert_eq!(landing.head("t").await.unwrap(), None);
        for path in ["", "../x", "a//b", "/a", "a/./b", "a\u{1}"] {
            assert_eq!(landing.head(path).await.unwrap_err().kind(), ErrorKind::Invalid, "{path}");
        }
    }
}
