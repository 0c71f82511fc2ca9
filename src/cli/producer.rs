//! What producers do: put files into the landing zone, each whole under its name at once. Nothing else of the program
//! writes there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt as _;
use object_store::path::Path as BlobPath;
use object_store::{ObjectStore, ObjectStoreExt as _, WriteMultipart};
use tokio::io::AsyncReadExt as _;

use crate::app::Backends;
use crate::config::Backend;
use crate::error::{Error, Result};

/// Bytes of a file that are sent in one piece.
const PIECE: usize = 8 << 20;

/// Pieces of a file that are on their way at once.
const PIECES_AT_ONCE: usize = 4;

/// A way into the landing zone. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Producer {
    /// A local folder.
    Folder(PathBuf),
    /// A container.
    Container(Arc<dyn ObjectStore>),
}

/// A file that is ready to land.
#[derive(Debug)]
pub struct Ready {
    content: Content,
    path: String,
}

#[derive(Debug)]
enum Content {
    /// In the landing folder already, under a name that is passed over.
    Hidden(PathBuf),
    Bytes(Vec<u8>),
}

impl Producer {
    /// The way into a configuration's landing zone.
    ///
    /// # Errors
    /// The storage account's settings are wrong.
    pub fn open(backends: &Backends) -> Result<Self> {
        let config = backends.config();
        Ok(match backends.account().filter(|_| config.storage_backend == Backend::Azure) {
            None => Self::Folder(config.landing_folder()),
            Some(account) => Self::Container(Arc::new(account.container(&config.azure.landing_container)?)),
        })
    }

    /// Makes a file ready, as near to the landing zone as it can be without being seen.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn prepare(&self, path: &str, content: Vec<u8>) -> Result<Ready> {
        let content = match self {
            Self::Container(_) => Content::Bytes(content),
            Self::Folder(folder) => {
                let place = folder.join(path);
                let within = |error: std::io::Error| Error::from(error).within(place.display());
                let (parent, name) = (place.parent().unwrap_or(&place), place.file_name().unwrap_or_default());
                fs::create_dir_all(parent).map_err(within)?;
                let hidden = parent.join(format!(".{}.tmp", name.to_string_lossy()));
                fs::write(&hidden, content).map_err(within)?;
                Content::Hidden(hidden)
            }
        };
        Ok(Ready { content, path: path.to_owned() })
    }

    /// Lets a file land, in place of what was under its name.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn land(&self, ready: Ready) -> Result<()> {
        let Ready { content, path } = ready;
        match (self, content) {
            (Self::Folder(folder), Content::Hidden(hidden)) => {
                let place = folder.join(path);
                fs::rename(&hidden, &place).map_err(|error| Error::from(error).within(place.display()))
            }
            (Self::Container(blobs), Content::Bytes(bytes)) => {
                let put = blobs.put(&blob(&path)?, bytes.into()).await;
                put.map(drop).map_err(|error| Error::from(error).within(path))
            }
            _ => Err(Error::internal(format!("{path} was made ready for another landing zone"))),
        }
    }
}

fn blob(path: &str) -> Result<BlobPath> {
    BlobPath::parse(path).map_err(|error| {
        Error::invalid(format!("no blob can have the name `{path}`"))
            .because(error)
            .remedy("give the file another name")
    })
}

/// Whether there is a blob of this name with another content than a local file.
///
/// # Errors
/// The file cannot be read, or the container not be reached.
pub async fn holds_other(blobs: &dyn ObjectStore, from: &Path, path: &str) -> Result<bool> {
    let reading = |error: std::io::Error| Error::from(error).within(from.display());
    let looking = |error: object_store::Error| Error::from(error).within(path);
    let there = match blobs.get(&blob(path)?).await {
        Ok(there) => there,
        Err(object_store::Error::NotFound { .. }) => return Ok(false),
        Err(error) => return Err(looking(error)),
    };
    let mut file = tokio::fs::File::open(from).await.map_err(reading)?;
    if file.metadata().await.map_err(reading)?.len() != there.meta.size {
        return Ok(true);
    }
    let mut pieces = there.into_stream();
    let mut ours = Vec::new();
    while let Some(theirs) = pieces.try_next().await.map_err(looking)? {
        ours.resize(theirs.len(), 0);
        file.read_exact(&mut ours).await.map_err(reading)?;
        if ours != theirs {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies a local file to a blob; gives back its bytes. The blob appears when all of it is there.
///
/// # Errors
/// The file cannot be read, or the container not be written.
pub async fn upload(blobs: &dyn ObjectStore, from: &Path, path: &str) -> Result<u64> {
    let reading = |error: std::io::Error| Error::from(error).within(from.display());
    let writing = |error: object_store::Error| Error::from(error).within(format!("copying to {path}"));
    let target = blob(path)?;
    let mut file = tokio::fs::File::open(from).await.map_err(reading)?;
    let size = file.metadata().await.map_err(reading)?.len();
    if size <= PIECE as u64 {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await.map_err(reading)?;
        let copied = bytes.len() as u64;
        blobs.put(&target, bytes.into()).await.map_err(writing)?;
        return Ok(copied);
    }
    let mut upload = WriteMultipart::new_with_chunk_size(blobs.put_multipart(&target).await.map_err(writing)?, PIECE);
    let mut copied = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece).await.map_err(reading)?;
        if read == 0 {
            break;
        }
        upload.wait_for_capacity(PIECES_AT_ONCE).await.map_err(writing)?;
        upload.write(&piece[..read]);
        copied += read as u64;
    }
    upload.finish().await.map_err(writing)?;
    Ok(copied)
}
