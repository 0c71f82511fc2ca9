//! The ground that a matrix stands on: memory, or a scratch prefix of somebody's storage. Each run gets a plot of its own.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStore;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use tempfile::TempDir;

use super::times::TimedStore;
use crate::app::Backends;
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::landing::Landing;
use crate::layout;
use crate::queue::Queue;

/// When runs in memory begin.
const BEGIN: &str = "2026-01-15T10:00:00Z";

/// Fresh names are the same in every run: so is the order of calls.
const NAMES: u64 = 1;

/// Where runs take place. Cheap to clone; each thread opens its own clients of it.
#[derive(Debug, Clone)]
pub enum Ground {
    /// In memory; queues are in a temporary folder.
    Memory,
    /// Below a scratch folder of the lake that a configuration names.
    Storage(Box<Scratch>),
}

/// A scratch folder of a lake. What a process that died leaves there is deleted by the nightly upkeep.
#[derive(Debug, Clone)]
pub struct Scratch {
    config: Config,
    id: String,
}

/// What one run stands on, as it was opened.
#[derive(Debug)]
pub(super) struct Plot {
    /// The lake's objects.
    pub lake: Arc<TimedStore>,
    /// The landing zone's objects: what producers write.
    pub landed: Arc<TimedStore>,
    /// The landing zone as a folder, when it is one.
    pub folder: Option<std::path::PathBuf>,
    /// The queues, and the name of the one that is used.
    pub queue: Queue,
    pub queue_name: String,
    pub clock: Arc<ManualClock>,
    /// Whether messages become visible by the service's clock instead of ours.
    pub has_its_own_time: bool,
    /// Holds the queues; gone with the run.
    _temporary: Option<TempDir>,
    root: Option<(Arc<dyn ObjectStore>, Option<std::path::PathBuf>)>,
}

/// The parts of a storage that a thread has opened.
#[derive(Debug, Clone)]
pub(super) enum Opened {
    Memory,
    Storage { scratch: Box<Scratch>, backends: Box<Backends> },
}

impl Ground {
    /// A scratch folder of the lake that a configuration names.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let id = format!("selftest-{}", &SystemClock.fresh()[..12]);
        Self::Storage(Box::new(Scratch { config: config.clone(), id }))
    }

    /// What people know it as.
    ///
    /// # Errors
    /// The storage's settings are wrong.
    pub fn name(&self) -> Result<String> {
        match self {
            Self::Memory => Ok("memory".to_owned()),
            Self::Storage(scratch) => {
                let backends = Backends::open(&scratch.config, Arc::new(SystemClock))?;
                Ok(format!("{}{}", backends.store()?.url(), scratch.folder()))
            }
        }
    }

    pub(super) fn open(&self) -> Result<Opened> {
        Ok(match self {
            Self::Memory => Opened::Memory,
            Self::Storage(scratch) => {
                let backends = Backends::open(&scratch.config, Arc::new(SystemClock))?;
                Opened::Storage { scratch: scratch.clone(), backends: Box::new(backends) }
            }
        })
    }

    /// Removes every trace.
    ///
    /// # Errors
    /// Something could not be removed.
    pub async fn clear(&self) -> Result<()> {
        let Opened::Storage { scratch, backends } = self.open()? else { return Ok(()) };
        let store = backends.store()?;
        remove_below(&store.object_store(), &scratch.folder()).await?;
        if let Some(folder) = store.folder() {
            remove_folder(&folder.join(scratch.folder()))?;
        }
        Ok(())
    }
}

impl Scratch {
    fn folder(&self) -> String {
        format!("{}/{}", layout::scratch(), self.id)
    }
}

impl Opened {
    /// A plot for one run, with nothing on it. No two runs on a storage may have the same number.
    pub(super) fn plot(&self, number: u64) -> Result<Plot> {
        match self {
            Self::Memory => {
                let begin: DateTime<Utc> = BEGIN.parse().unwrap_or_default();
                let clock = Arc::new(ManualClock::new(begin, NAMES));
                let temporary = tempfile::tempdir()?;
                let queue = Queue::local(temporary.path(), Arc::<ManualClock>::clone(&clock), false);
                Ok(Plot {
                    lake: Arc::new(TimedStore::new(Arc::clone(&clock))),
                    landed: Arc::new(TimedStore::new(Arc::clone(&clock))),
                    folder: None,
                    queue,
                    queue_name: "events".to_owned(),
                    clock,
                    has_its_own_time: false,
                    _temporary: Some(temporary),
                    root: None,
                })
            }
            Self::Storage { scratch, backends } => storage_plot(scratch, backends, number),
        }
    }
}

fn storage_plot(scratch: &Scratch, backends: &Backends, number: u64) -> Result<Plot> {
    let clock = Arc::new(ManualClock::new(SystemClock.now(), NAMES));
    let store = backends.store()?;
    let name = format!("{}/{number}", scratch.folder());
    let below = |part: &str| -> Result<Arc<dyn ObjectStore>> {
        let path = Path::parse(format!("{name}/{part}"))
            .map_err(|e| Error::internal(format!("`{name}` is no folder")).because(e))?;
        Ok(Arc::new(PrefixStore::new(store.object_store(), path)))
    };
    let folder = store.folder().map(|folder| folder.join(&name).join("landing"));
    let queue = match backends.queue() {
        Queue::Azure(queues) => (Queue::Azure(queues), format!("{}-{number}", scratch.id), None),
        _ => {
            let temporary = tempfile::tempdir()?;
            let queue = Queue::local(temporary.path(), Arc::<ManualClock>::clone(&clock), false);
            (queue, "events".to_owned(), Some(temporary))
        }
    };
    Ok(Plot {
        lake: Arc::new(TimedStore::over(below("lake")?, Arc::clone(&clock))),
        landed: Arc::new(TimedStore::over(below("landing")?, Arc::clone(&clock))),
        queue: queue.0,
        queue_name: queue.1,
        has_its_own_time: queue.2.is_none(),
        _temporary: queue.2,
        clock,
        root: Some((below("")?, store.folder().map(|root| root.join(&name)))),
        folder,
    })
}

impl Plot {
    /// The landing zone as a process sees it, whose calls go through `store`.
    pub(super) fn landing(&self, store: Arc<dyn ObjectStore>) -> Result<Landing> {
        match &self.folder {
            Some(folder) => Landing::local(folder),
            None => Ok(Landing::remote(store, "landing")),
        }
    }

    /// Removes everything on it.
    pub(super) async fn clear(&self) -> Result<()> {
        if let Queue::Azure(queues) = &self.queue {
            queues.remove(&self.queue_name).await?;
        }
        let Some((root, folder)) = &self.root else { return Ok(()) };
        remove_below(root, "").await?;
        match folder {
            Some(folder) => remove_folder(folder),
            None => Ok(()),
        }
    }
}

async fn remove_below(store: &Arc<dyn ObjectStore>, folder: &str) -> Result<()> {
    let prefix = Path::parse(folder).map_err(|e| Error::internal(format!("`{folder}` is no folder")).because(e))?;
    let prefix = (!folder.is_empty()).then_some(&prefix);
    let found: Vec<Path> = store.list(prefix).map_ok(|object| object.location).try_collect().await?;
    let mut deleted = store.delete_stream(futures::stream::iter(found.into_iter().map(Ok)).boxed());
    while let Some(outcome) = deleted.next().await {
        match outcome {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn remove_folder(folder: &std::path::Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::from(error).within(folder.display())),
        _ => Ok(()),
    }
}
