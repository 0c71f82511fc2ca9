//! One run: what outlives its processes (lake, landing zone, queue, time), what producers do, and how processes come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::TimeDelta;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use url::Url;

use super::ground::Plot;
use super::process::Process;
use super::scenario::{Piece, Scenario, Step, catalog_of};
use super::times::TimedStore;
use crate::catalog::Catalog;
use crate::clock::{Clock, ManualClock};
use crate::error::{Error, Result};
use crate::event::{self, Scope};
use crate::faults::Script;
use crate::faults::store::FaultyStore;
use crate::http::Function;
use crate::landing::Landing;
use crate::manifest::FileVersion;
use crate::pipeline::lake::{Lake, Settings};
use crate::safeguard::Safeguard;
use crate::schema::WriteMode;
use crate::store::Store;

/// A received message comes back after this, by the queue's clock.
pub(super) const VISIBILITY: Duration = Duration::from_secs(2);

/// Messages that nobody deleted are gone after this.
const MESSAGE_LIFE: TimeDelta = TimeDelta::days(7);

/// How often a run is looked at before it is said that it never comes to rest.
const LOOKS: usize = 60;

/// Memory and threads of a process: one thread, so that calls come in the same order each time.
const MEMORY: u64 = 64 << 20;

/// What outlives a process.
pub struct World {
    plot: Plot,
    catalog: Mutex<Catalog>,
    settings: Settings,
    removed: Option<Safeguard>,
    steps: Vec<Step>,
    cursor: AtomicUsize,
    /// Every file that a producer put, in order; a path may come again.
    files: Mutex<Vec<FileVersion>>,
    /// Pieces of streams that were delivered and not acknowledged yet, by number.
    waiting: Mutex<BTreeMap<u64, Piece>>,
    pieces: AtomicU64,
    has_slept: AtomicBool,
    /// The newest version of each table that was seen.
    pub(super) versions: Mutex<BTreeMap<String, i64>>,
}

impl World {
    /// A world with nothing in it, in which a scenario will take place.
    ///
    /// # Errors
    /// The scenario's contracts are wrong.
    pub(super) fn new(plot: Plot, scenario: &Scenario, removed: Option<Safeguard>) -> Result<Arc<Self>> {
        let catalog = scenario.catalog()?;
        let default = Settings { memory_bytes: MEMORY, threads: 1, ..Settings::default() };
        Ok(Arc::new(Self {
            catalog: Mutex::new(catalog),
            settings: (scenario.settings)(default),
            removed,
            steps: scenario.steps(),
            cursor: AtomicUsize::new(0),
            files: Mutex::default(),
            waiting: Mutex::default(),
            pieces: AtomicU64::new(0),
            has_slept: AtomicBool::new(false),
            versions: Mutex::default(),
            plot,
        }))
    }

    /// A process whose calls are those of a script.
    ///
    /// # Errors
    /// The landing zone cannot be opened.
    pub(super) fn process(self: &Arc<Self>, script: Arc<Script>) -> Result<Process> {
        let faulty = |inner: &Arc<TimedStore>| -> Arc<dyn ObjectStore> {
            Arc::new(FaultyStore::over(Arc::clone(inner) as Arc<dyn ObjectStore>, &script))
        };
        let clock = self.clock();
        let store = self.store_over(faulty(&self.plot.lake))?;
        let landing = self.plot.landing(faulty(&self.plot.landed))?;
        let lake = Lake::new(self.catalog(), store, landing, clock, self.settings.clone());
        let queue = self.plot.queue.clone().behind(Arc::clone(&script) as Arc<dyn crate::queue::Gate>);
        Ok(Process::new(Arc::clone(self), lake, queue, script))
    }

    /// The contracts that are deployed now.
    pub(super) fn catalog(&self) -> Catalog {
        lock(&self.catalog).clone()
    }

    /// The lake's store, past all faults.
    ///
    /// # Errors
    /// None that is known.
    pub(super) fn store(&self) -> Result<Store> {
        self.store_over(Arc::clone(&self.plot.lake) as Arc<dyn ObjectStore>)
    }

    fn store_over(&self, inner: Arc<dyn ObjectStore>) -> Result<Store> {
        let url = Url::parse("memory:///").map_err(|e| Error::internal("a URL").because(e))?;
        Ok(Store::over(inner, url, None).with_clock(self.clock()).without(self.removed))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.plot.clock) as Arc<dyn Clock>
    }

    /// The run's time.
    pub(super) fn time(&self) -> &ManualClock {
        &self.plot.clock
    }

    /// The queue that events are in.
    pub(super) fn queue_name(&self) -> &str {
        &self.plot.queue_name
    }

    /// What events are about.
    pub(super) fn scope() -> Scope {
        Scope::local()
    }

    /// More time passes than messages live.
    pub(super) fn sleeps(&self) {
        self.has_slept.store(true, Ordering::SeqCst);
    }

    /// Whether more time has passed than messages live.
    pub(super) fn has_slept(&self) -> bool {
        self.has_slept.load(Ordering::SeqCst)
    }

    /// What somebody put where an object was.
    pub(super) fn overwritten(&self) -> Vec<String> {
        self.plot.lake.overwritten()
    }

    /// Landed paths whose ledger depends on arrival: those that had several versions, and all where the greatest path takes
    /// the place of the others.
    pub(super) fn overwritten_paths(&self) -> BTreeSet<String> {
        let files = lock(&self.files);
        if self.catalog().tables().iter().any(|contract| contract.write_mode == WriteMode::Overwrite) {
            return files.iter().map(|file| file.path.clone()).collect();
        }
        let mut seen = BTreeSet::new();
        files.iter().filter(|file| !seen.insert(&file.path)).map(|file| file.path.clone()).collect()
    }

    /// A producer puts a file and its event.
    pub(super) async fn land(&self, path: &str, content: &[u8]) -> Result<()> {
        match &self.plot.folder {
            Some(folder) => land_in_folder(folder, path, content)?,
            None => {
                let location = Path::parse(path).map_err(|e| Error::internal(path.to_owned()).because(e))?;
                self.plot.landed.put(&location, content.to_vec().into()).await?;
            }
        }
        // No two versions of a file are of one moment.
        self.time().advance(TimeDelta::seconds(1));
        let landing = self.landing()?;
        let version =
            landing.head(path).await?.ok_or_else(|| Error::internal(format!("{path} was put and is gone")))?;
        lock(&self.files).push(version.clone());
        self.announce(&[version]).await
    }

    fn landing(&self) -> Result<Landing> {
        self.plot.landing(Arc::clone(&self.plot.landed) as Arc<dyn ObjectStore>)
    }

    async fn announce(&self, files: &[FileVersion]) -> Result<()> {
        let bodies =
            files.iter().map(|file| event::announcement(file, &Self::scope(), self.time())).collect::<Vec<_>>();
        self.plot.queue.send_all(self.queue_name(), bodies, Duration::ZERO).await.map(drop)
    }

    /// The event of some file that landed once is sent again.
    pub(super) async fn announce_again(&self, which: u64) -> Result<()> {
        let file = {
            let files = lock(&self.files);
            let at = which.checked_rem(files.len() as u64).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| files.get(at).cloned())
        };
        match file {
            Some(file) => self.announce(&[file]).await,
            None => Ok(()),
        }
    }

    fn deliver(&self, piece: Piece) {
        let number = self.pieces.fetch_add(1, Ordering::SeqCst);
        lock(&self.waiting).insert(number, piece);
    }

    /// The pieces that wait to be delivered.
    pub(super) fn waiting(&self) -> Vec<(u64, Piece)> {
        lock(&self.waiting).iter().map(|(number, piece)| (*number, piece.clone())).collect()
    }

    /// A piece was acknowledged.
    pub(super) fn acknowledged(&self, number: u64) {
        lock(&self.waiting).remove(&number);
    }

    /// Everything that was ever delivered is delivered again.
    ///
    /// # Errors
    /// The queue.
    pub(super) async fn redeliver(&self) -> Result<()> {
        let files = lock(&self.files).clone();
        self.announce(&files).await?;
        for step in &self.steps {
            if let Step::Deliver(piece) = step {
                self.deliver(piece.clone());
            }
        }
        Ok(())
    }

    /// Takes the steps that nobody has taken yet, with `process`. A step that fails is no news: its trigger comes again.
    /// Ends early when the process dies.
    pub(super) async fn take_steps(self: &Arc<Self>, process: &Process) -> Result<()> {
        while !process.is_dead()
            && let Some(step) = self.steps.get(self.cursor.fetch_add(1, Ordering::SeqCst))
        {
            process.before_landing(self.landing_next().is_some());
            match step {
                Step::Land(path, content) => self.land(path, content.as_bytes()).await?,
                Step::Litter(path) => {
                    self.store()?.put_if_absent(path, "left by a crash").await?.is_new()?;
                }
                Step::Deliver(piece) => self.deliver(piece.clone()),
                Step::Deploy(contracts) => *lock(&self.catalog) = catalog_of(contracts())?,
                Step::UntilRead => self.until_read().await?,
                Step::Wait(time) => {
                    self.time().advance(*time);
                    if *time >= MESSAGE_LIFE {
                        self.sleeps();
                    }
                }
                Step::Call(function) => process.try_invoke(*function).await,
                Step::CallAll => {
                    for function in Function::ALL {
                        process.try_invoke(function).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// What lands next, if that is what comes next.
    fn landing_next(&self) -> Option<(&str, &str)> {
        match self.steps.get(self.cursor.load(Ordering::SeqCst)) {
            Some(Step::Land(path, content)) => Some((path, content)),
            _ => None,
        }
    }

    /// Producers do not wait for anybody: what lands next lands now.
    pub(super) async fn land_now(&self) -> Result<()> {
        while let Some((path, content)) = self.landing_next() {
            self.cursor.fetch_add(1, Ordering::SeqCst);
            self.land(path, content.as_bytes()).await?;
        }
        Ok(())
    }

    /// Processes that nothing happens to read all files that wait.
    async fn until_read(self: &Arc<Self>) -> Result<()> {
        let process = self.process(Script::calm(None))?;
        if self.has_slept() {
            // The messages may be gone: then a look finds the files.
            process.invoke(Function::Reconcile).await?;
        }
        for _ in 0..LOOKS {
            if self.plot.queue.depth(self.queue_name()).await?.total() == 0 {
                return Ok(());
            }
            self.pass_visibility().await?;
            process.invoke(Function::Ingest).await?;
        }
        Err(Error::internal("landed files are never read"))
    }

    /// Whatever is left is done by `process`: steps, messages, pieces, commits, until nothing is left.
    ///
    /// # Errors
    /// Something fails although nothing is wrong, or it never comes to rest.
    pub(super) async fn finish(self: &Arc<Self>, process: &Process) -> Result<()> {
        self.take_steps(process).await?;
        let mut last = String::new();
        for _ in 0..LOOKS {
            self.pass_visibility().await?;
            for function in [Function::Ingest, Function::CdcKafka] {
                process.invoke(function).await?;
            }
            let report = process.commit().await?;
            let depth = self.plot.queue.depth(self.queue_name()).await?;
            if report.is_quiet() && depth.total() == 0 && lock(&self.waiting).is_empty() {
                return Ok(());
            }
            last = format!("{depth:?}, {report:?}");
        }
        Err(Error::internal(format!(
            "it never comes to rest, in {LOOKS} runs of the committer; after the last: {last}"
        )))
    }

    /// Time passes until what was received and not deleted is visible again.
    async fn pass_visibility(&self) -> Result<()> {
        self.time().advance(TimeDelta::seconds(3));
        if self.plot.has_its_own_time && self.plot.queue.depth(self.queue_name()).await?.hidden > 0 {
            tokio::time::sleep(VISIBILITY / 4).await;
        }
        Ok(())
    }

    /// Nights: what has to wait for its time is done, days apart.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub(super) async fn nights(self: &Arc<Self>, process: &Process) -> Result<()> {
        for _ in 0..3 {
            self.time().advance(TimeDelta::days(8));
            for function in Function::ALL {
                process.invoke(function).await?;
            }
            self.finish(process).await?;
        }
        Ok(())
    }

    /// Removes everything.
    ///
    /// # Errors
    /// The storage.
    pub(super) async fn clear(&self) -> Result<()> {
        self.plot.clear().await
    }
}

/// Puts a file whole into a folder by a rename, replacing what was there.
fn land_in_folder(folder: &std::path::Path, path: &str, content: &[u8]) -> Result<()> {
    let target = folder.join(path);
    let parent = target.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent)?;
    let mut file = tempfile::Builder::new().prefix("_").tempfile_in(parent)?;
    std::io::Write::write_all(&mut file, content)?;
    file.persist(&target).map_err(|error| Error::from(error.error).within(path))?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
