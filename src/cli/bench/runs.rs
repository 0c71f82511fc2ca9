//! Measured runs: each a process of its own, in a home of its own that is gone afterwards.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::de::DeserializeOwned;
use tokio::process::Command;

use crate::config;
use crate::error::{Error, Result};

/// Runs over one input.
#[derive(Debug)]
pub struct Runs {
    dir: PathBuf,
    data: PathBuf,
    count: u64,
}

impl Runs {
    /// Runs over `data`, whose homes are in `dir`.
    #[must_use]
    pub fn new(dir: &Path, data: &Path) -> Self {
        Self { dir: dir.to_owned(), data: data.to_owned(), count: 0 }
    }

    fn fresh_home(&mut self) -> Result<PathBuf> {
        self.count += 1;
        let home = self.dir.join(format!("run-{}", self.count));
        remove(&home)?;
        Ok(home)
    }

    /// Runs `alluvium bench WORDS --home HOME` and gives what it measured.
    ///
    /// # Errors
    /// The run failed, or said nothing of use.
    pub async fn child<T: DeserializeOwned>(&mut self, words: &[OsString]) -> Result<T> {
        let home = self.fresh_home()?;
        let named = words.iter().take(2).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut command = Command::new(config::this_program()?);
        command.arg("bench").args(words).arg("--home").arg(&home).stderr(Stdio::inherit());
        let done = command.output().await.map_err(|error| Error::from(error).within("starting a run"))?;
        remove(&home)?;
        if !done.status.success() {
            return Err(Error::internal(format!("the run `{named}` ended with {}", done.status)));
        }
        serde_json::from_slice(&done.stdout)
            .map_err(|error| Error::internal(format!("the run `{named}` said nothing of use")).because(error))
    }

    /// Seconds that a peer's command took.
    ///
    /// # Errors
    /// It could not be started, or ended badly.
    pub async fn peer(&mut self, peer: &str) -> Result<f64> {
        let out = self.fresh_home()?;
        let line = peer.replace("{data}", &quoted(&self.data)).replace("{out}", &quoted(&out));
        let started = std::time::Instant::now();
        let mut command = Command::new("sh");
        command.arg("-c").arg(&line).stdout(Stdio::null());
        let status = command.status().await.map_err(|error| Error::from(error).within("starting the peer"))?;
        let took = started.elapsed().as_secs_f64();
        remove(&out)?;
        if !status.success() {
            return Err(Error::invalid(format!("the peer `{line}` ended with {status}"))
                .remedy("run that line by hand and mend it"));
        }
        Ok(took)
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::from(error).within(folder.display())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_for_the_shell() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
