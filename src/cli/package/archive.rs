//! The package as a zip: the same bytes for the same files, with unix modes, because a program that is unpacked without
//! its right to run does not start.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use indicatif::ProgressBar;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

use super::content::{Entry, Source};
use crate::error::{Error, Result};

/// Says in the zip itself who made it.
const OURS: &str = "alluvium package";

/// Writes the zip; its size in bytes. `written` counts what is read for it.
///
/// # Errors
/// A file cannot be read, or the zip cannot be written.
pub(super) fn write(zip: &Path, entries: &[Entry], written: &ProgressBar) -> Result<u64> {
    let failed = |error: io::Error| Error::from(error).within(zip.display());
    let file = File::create(zip).map_err(failed)?;
    let mut writer = ZipWriter::new(BufWriter::new(file));
    writer.set_comment(OURS).map_err(|error| failed(error.into()))?;
    for entry in entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default())
            .unix_permissions(entry.mode);
        writer.start_file(entry.path.as_str(), options).map_err(|error| failed(error.into()))?;
        match &entry.source {
            Source::Text(text) => writer.write_all(text.as_bytes()).map_err(failed)?,
            Source::File(from) => {
                let from = File::open(from).map_err(|error| Error::from(error).within(from.display()))?;
                io::copy(&mut written.wrap_read(from), &mut writer).map_err(failed)?;
            }
        }
    }
    let buffered = writer.finish().map_err(|error| failed(error.into()))?;
    let file = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
    let bytes = file.metadata().map_err(failed)?.len();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(failed)?;
    }
    Ok(bytes)
}

/// Whether a file is a zip that this program made.
pub(super) fn is_ours(zip: &Path) -> bool {
    let archive = File::open(zip).ok().and_then(|file| ZipArchive::new(file).ok());
    archive.is_some_and(|archive| archive.comment() == OURS.as_bytes())
}
