//! Processes that come and die over one lake and one landing zone: nothing in memory is shared between two of them.

use std::sync::Arc;

use alluvium::event::FileEvent;
use alluvium::faults::Fault;
use alluvium::faults::store::FaultyStore;
use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::store::Store;
use futures::FutureExt as _;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use tempfile::TempDir;
use url::Url;

use super::{contracts, drop_file, manual_clock, open, settle, write_contracts};

/// What outlives a process.
pub struct World {
    /// Holds `landing/`, `schemas/`, and `lake/` of a lake on the disk.
    pub home: TempDir,
    disk: Arc<dyn ObjectStore>,
    settings: Settings,
}

impl World {
    /// A lake in memory.
    pub fn in_memory(settings: Settings) -> Self {
        Self::over(tempfile::tempdir().unwrap(), Arc::new(InMemory::new()), settings)
    }

    /// A lake on local folders.
    pub fn on_disk(settings: Settings) -> Self {
        let home = tempfile::tempdir().unwrap();
        let disk = Store::local(&home.path().join("lake")).unwrap().object_store();
        Self::over(home, disk, settings)
    }

    fn over(home: TempDir, disk: Arc<dyn ObjectStore>, settings: Settings) -> Self {
        write_contracts(home.path(), contracts::ALL);
        Self { home, disk, settings }
    }

    /// A process that nothing happens to.
    pub fn process(&self) -> Lake {
        self.process_with(0, Fault::Refused).0
    }

    /// A process whose call number `at` to the store meets `fault`; and a counter of its calls.
    pub fn process_with(&self, at: u64, fault: Fault) -> (Lake, impl Fn() -> u64 + use<>) {
        let store = FaultyStore::new(Arc::clone(&self.disk), at, fault);
        let calls = store.counter();
        (self.over_store(store), calls)
    }

    /// A process that stands still before its call number `at` until another committer has done all there is to do.
    pub fn overtaken_at(&self, at: u64) -> Lake {
        let other = self.process();
        let meanwhile = async move { drop(settle(&other).await) }.boxed();
        self.over_store(FaultyStore::overtaken(Arc::clone(&self.disk), at, meanwhile))
    }

    fn over_store(&self, store: FaultyStore) -> Lake {
        let store = Store::over(Arc::new(store), Url::parse("memory:///").unwrap(), None);
        open(self.home.path(), store, manual_clock(), self.settings.clone())
    }

    /// Puts a file whole into the landing zone and gives its event.
    pub fn drop_file(&self, path: &str, content: impl AsRef<[u8]>) -> FileEvent {
        drop_file(&self.home.path().join("landing"), path, content.as_ref())
    }

    /// What a landing file holds.
    pub fn landed(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.home.path().join("landing").join(path)).unwrap()
    }
}
