//! Where a lake can be: local folders, or containers and queues of Azurite. What holds for one must hold for the other.

use std::path::Path;
use std::sync::Arc;

use alluvium::app::Backends;
use alluvium::catalog::Catalog;
use alluvium::clock::{Clock as _, SystemClock};
use alluvium::config::Config;
use alluvium::event::FileEvent;
use alluvium::pipeline::lake::Lake;
use object_store::path::Path as BlobPath;
use object_store::{ObjectStore, ObjectStoreExt as _};

use super::azurite::Azurite;
use super::program::Program;
use super::{drop_file, write_contracts};

/// A place of a test's own. It is gone with the test.
pub struct Place {
    /// Holds contracts, and everything when the place is local.
    pub home: tempfile::TempDir,
    /// The variables that name the place.
    pub variables: Vec<(String, String)>,
    azurite: Option<Arc<Azurite>>,
}

impl Place {
    /// Local folders.
    pub fn local() -> Self {
        Self { home: tempfile::tempdir().unwrap(), variables: Vec::new(), azurite: None }
    }

    /// Containers and queues of their own in the Azurite that tests share.
    pub async fn azurite() -> Self {
        Self::in_azurite(Azurite::shared()).await
    }

    /// Containers and queues of an Azurite.
    pub async fn in_azurite(azurite: Arc<Azurite>) -> Self {
        let own = &SystemClock.fresh()[..12];
        let variables = [
            ("STORAGE_BACKEND", "azure".to_owned()),
            ("QUEUE_BACKEND", "azure".to_owned()),
            ("AzureWebJobsStorage", azurite.connection()),
            ("AZURE_STORAGE_CONTAINER", format!("lake-{own}")),
            ("AZURE_STORAGE_PREFIX", "some/where".to_owned()),
            ("AZURE_LANDING_CONTAINER", format!("landing-{own}")),
            ("AZURE_QUEUE_NAME", format!("events-{own}")),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let place = Self { home: tempfile::tempdir().unwrap(), variables, azurite: Some(azurite) };
        let (config, backends) = (place.config(), place.backends());
        let account = backends.account().unwrap();
        for container in [&config.azure.lake_container, &config.azure.landing_container] {
            account.create_container(container).await.unwrap();
        }
        place
    }

    /// Both, to run the same test on.
    pub async fn both() -> [Self; 2] {
        [Self::local(), Self::azurite().await]
    }

    /// What failures name.
    pub fn name(&self) -> &'static str {
        if self.azurite.is_some() { "azurite" } else { "local folders" }
    }

    /// Puts the contracts in place.
    pub fn with_contracts(self, contracts: &[(&str, &str)]) -> Self {
        write_contracts(self.home.path(), contracts);
        self
    }

    fn pairs(&self) -> Vec<(String, String)> {
        let home = self.home.path().to_str().unwrap();
        let mut pairs = vec![
            ("ALLUVIUM_HOME".to_owned(), home.to_owned()),
            ("ALLUVIUM_SCHEMAS".to_owned(), format!("{home}/schemas")),
        ];
        pairs.extend(self.variables.iter().cloned());
        pairs
    }

    /// The configuration that names it.
    pub fn config(&self) -> Config {
        Config::from_pairs(self.pairs()).unwrap()
    }

    /// Store, landing zone and queues, with the machine's clock: Azurite has no other.
    pub fn backends(&self) -> Backends {
        Backends::open(&self.config(), Arc::new(SystemClock)).unwrap()
    }

    /// A lake as one process sees it; each call is another process, as far as memory goes.
    pub fn lake(&self) -> Lake {
        let catalog = Catalog::load(&self.home.path().join("schemas")).unwrap_or_else(|found| panic!("{found:#?}"));
        self.backends().lake(catalog).unwrap()
    }

    /// The built binary over it.
    pub fn program(&self) -> Program {
        let program = Program::new(self.home.path()).schemas(&self.home.path().join("schemas"));
        self.variables.iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    /// Puts a file whole into the landing zone, as a producer does, and gives its event.
    pub async fn drop_file(&self, path: &str, content: impl AsRef<[u8]>) -> FileEvent {
        let content = content.as_ref();
        let Some(blobs) = self.landing_blobs() else {
            return drop_file(&self.landing_folder(), path, content);
        };
        blobs.put(&BlobPath::parse(path).unwrap(), content.to_vec().into()).await.unwrap();
        FileEvent { path: path.to_owned(), etag: None, sequencer: None, bytes: Some(content.len() as u64) }
    }

    /// Deletes a landed file.
    pub async fn delete_file(&self, path: &str) {
        match self.landing_blobs() {
            Some(blobs) => blobs.delete(&BlobPath::parse(path).unwrap()).await.unwrap(),
            None => std::fs::remove_file(self.landing_folder().join(path)).unwrap(),
        }
    }

    /// The landing container as producers see it; none in local folders.
    pub fn landing_blobs(&self) -> Option<Arc<dyn ObjectStore>> {
        let (config, backends) = (self.config(), self.backends());
        let account = backends.account()?;
        Some(Arc::new(account.container(&config.azure.landing_container).unwrap()))
    }

    fn landing_folder(&self) -> std::path::PathBuf {
        Path::join(self.home.path(), "landing")
    }
}
