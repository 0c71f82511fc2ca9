//! Where things are kept: from a configuration to store, landing zone and queues.

use std::sync::Arc;

use object_store::prefix::PrefixStore;

use crate::azure::Account;
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::config::{Backend, Config};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Scope;
#[cfg(feature = "mutations")]
use crate::faults::{Script, store::FaultyStore};
use crate::landing::Landing;
use crate::pipeline::lake::Lake;
use crate::queue::Queue;
use crate::store::Store;

/// The backends that a configuration names. When one of them is Azure, all share one account, and so one identity and its
/// tokens; when none is, nothing of Azure is touched. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Backends {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    account: Option<Account>,
    /// What ends this process in the middle of its work: in builds for tests alone.
    #[cfg(feature = "mutations")]
    end: Option<Arc<Script>>,
}

impl Backends {
    /// The backends of a configuration. Nothing is opened yet, and nothing asked over the network.
    ///
    /// # Errors
    /// The storage account's settings are wrong.
    pub fn open(config: &Config, clock: Arc<dyn Clock>) -> Result<Self> {
        let is_azure = [config.storage_backend, config.queue_backend].contains(&Backend::Azure);
        let account = is_azure.then(|| Account::open(&config.azure.account, Arc::clone(&clock))).transpose()?;
        Ok(Self {
            config: Arc::new(config.clone()),
            clock,
            account,
            #[cfg(feature = "mutations")]
            end: config.dies_at.map(Script::killing),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The storage account, if anything is in one.
    #[must_use]
    pub const fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    fn storage_account(&self) -> Option<&Account> {
        self.account().filter(|_| self.config.storage_backend == Backend::Azure)
    }

    /// The queues.
    #[must_use]
    pub fn queue(&self) -> Queue {
        #[cfg(feature = "mutations")]
        if let Some(end) = &self.end {
            return self.plain_queue().behind(Arc::clone(end) as Arc<dyn crate::queue::Gate>);
        }
        self.plain_queue()
    }

    fn plain_queue(&self) -> Queue {
        match self.account().filter(|_| self.config.queue_backend == Backend::Azure) {
            Some(account) => Queue::azure(account.clone()),
            None => Queue::local(&self.config.queue_folder(), Arc::clone(&self.clock), self.config.fsync),
        }
    }

    /// The landing zone.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn landing(&self) -> Result<Landing> {
        let Some(account) = self.storage_account() else { return Landing::local(&self.config.landing_folder()) };
        let container = &self.config.azure.landing_container;
        Ok(Landing::account(account.container(container)?, account.container_url(container, "")?))
    }

    /// The lake's store.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn store(&self) -> Result<Store> {
        let store = match self.storage_account() {
            None => Store::local(&self.config.lake_folder())?,
            Some(account) => {
                let (container, prefix) = (&self.config.azure.lake_container, &self.config.azure.lake_prefix);
                let blobs = account.container(container)?;
                let url = account.container_url(container, prefix)?;
                let path = object_store::path::Path::parse(prefix)
                    .map_err(|error| Error::invalid(format!("`{prefix}` is no folder")).because(error))?;
                Store::over(Arc::new(PrefixStore::new(blobs, path)), url, None)
            }
        };
        let store = if self.config.fsync { store.durable() } else { store };
        #[cfg(feature = "mutations")]
        if let Some(end) = &self.end {
            let url = store.url().clone();
            let store = Store::over(Arc::new(FaultyStore::over(store.object_store(), end)), url, None);
            return Ok(store.with_clock(Arc::clone(&self.clock)));
        }
        Ok(store.with_clock(Arc::clone(&self.clock)))
    }

    /// Whether the lake's container is there and answers; a local folder needs no asking.
    ///
    /// # Errors
    /// It is not there, the account refused, or it did not answer.
    pub async fn reach(&self) -> Result<()> {
        let Some(account) = self.storage_account() else { return Ok(()) };
        let name = &self.config.azure.lake_container;
        match account.container(name)?.reach().await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Error::not_found(format!("there is no container {name}")).because(error).remedy(format!(
                    "create it (az storage container create --name {name}), or set AZURE_STORAGE_CONTAINER to another"
                )))
            }
            outcome => outcome,
        }
    }

    /// Which events are about the landing zone.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match self.storage_account() {
            None => Scope::local(),
            Some(account) => Scope {
                account: Some(account.name().to_owned()),
                container: self.config.azure.landing_container.clone(),
            },
        }
    }

    /// The lake with these contracts.
    ///
    /// # Errors
    /// A folder cannot be used.
    pub fn lake(&self, catalog: Catalog) -> Result<Lake> {
        let (store, landing) = (self.store()?, self.landing()?);
        Ok(Lake::new(catalog, store, landing, Arc::clone(&self.clock), super::settings(&self.config)))
    }
}
