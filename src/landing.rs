//! The landing zone: list, look at and read landed files. Nothing here ever writes to it.

use std::io::Read;

use futures::stream::BoxStream;

use crate::error::Result;
use crate::manifest::FileVersion;

/// The landing zone. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Landing {}

/// A landed file being read at one version.
pub struct Reading {
    /// Its content; reading is blocking.
    pub content: Box<dyn Read + Send>,
}

impl Landing {
    /// A local folder, created when absent.
    pub fn local(_folder: &std::path::Path) -> Result<Self> {
        todo!()
    }

    /// The version that a path has now; none when there is no such file. Paths out of the landing zone are refused.
    pub async fn head(&self, _path: &str) -> Result<Option<FileVersion>> {
        todo!()
    }

    /// Every file that has arrived or is arriving: not names with `.tmp`, `.part`, `~` or a leading `_` or `.`.
    pub fn list(&self) -> BoxStream<'static, Result<FileVersion>> {
        todo!()
    }

    /// Opens a file at exactly this version. Afterwards [`Landing::unchanged`] says whether it still was at the end.
    pub fn open(&self, _version: &FileVersion) -> Result<Reading> {
        todo!()
    }

    /// Whether the path still has this version.
    pub async fn unchanged(&self, version: &FileVersion) -> Result<bool> {
        Ok(self.head(&version.path).await?.is_some_and(|now| now.etag == version.etag))
    }
}
