//! What must be right in a storage account: that it answers, that containers and queues are there and may be used.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};

use super::{Check, Level};
use crate::app::Backends;
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Backend, Config};
use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::queue::{AzureQueue, Queue, poison};

/// An account that does not answer within this does not answer a person.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks at the account, as far as the backends need it. Writes and deletes one empty object in the lake's container.
/// Whether the lake answers, wherever it is.
pub(super) async fn examine(config: &Config, backends: &Result<Backends>, found: &mut impl FnMut(Check)) -> bool {
    let backends = match backends {
        Ok(backends) => backends,
        Err(error) => {
            found(Check::of_error("storage account", error));
            return false;
        }
    };
    let Some(account) = backends.account() else { return true };
    found(Check::ok("storage account", format!("{}, by {}", account.name(), account.access_name())));
    let (landing, lake) = (&config.azure.landing_container, &config.azure.lake_container);
    let mut looks: Vec<BoxFuture<'_, Check>> = Vec::new();
    if config.storage_backend == Backend::Azure {
        let look = landing_zone(backends);
        looks.push(told("landing zone", landing, "can be listed", "AZURE_LANDING_CONTAINER", look).boxed());
        let look = lake_container(backends);
        looks.push(told("lake", lake, "can be written", "AZURE_STORAGE_CONTAINER", look).boxed());
    }
    if let Queue::Azure(queues) = backends.queue() {
        for name in [config.queue_name.clone(), poison(&config.queue_name)] {
            looks.push(queue_exists(queues.clone(), name).boxed());
        }
    }
    // At once, because each may take as long as anybody waits; told in their order.
    let mut lake_answers = true;
    let mut looks = futures::stream::iter(looks).buffered(4);
    while let Some(check) = looks.next().await {
        lake_answers &= check.name != "lake" || check.level == Level::Ok;
        found(check);
    }
    lake_answers
}

async fn queue_exists(queues: AzureQueue, name: String) -> Check {
    let label = format!("queue {name} exists");
    match in_time(queues.exists(&name)).await {
        Ok(true) => Check::ok(label, "yes"),
        Ok(false) => Check::warn(
            label,
            "no",
            format!("create it: az storage queue create --name {name}; the first message would create it too"),
        ),
        Err(error) => Check::of_error(label, &error),
    }
}

async fn told(
    what: &str,
    container: &str,
    well: &str,
    variable: &str,
    look: impl Future<Output = Result<()>> + Send,
) -> Check {
    match in_time(look).await {
        Ok(()) => Check::ok(what, format!("container {container} {well}")),
        Err(error) if error.kind() == ErrorKind::NotFound => Check::fail(
            what,
            format!("there is no container {container}"),
            format!("create it: az storage container create --name {container}; or set {variable} to another"),
        ),
        Err(error) => Check::of_error(what, &error),
    }
}

async fn in_time<T>(look: impl Future<Output = Result<T>>) -> Result<T> {
    let outcome = tokio::time::timeout(PATIENCE, look).await;
    outcome.unwrap_or_else(|_| {
        Err(Error::unavailable(format!("no answer within {} s", PATIENCE.as_secs()))
            .remedy("see that the account's endpoint can be reached from here, and that its name is right"))
    })
}

async fn landing_zone(backends: &Backends) -> Result<()> {
    backends.landing()?.list().next().await.transpose().map(drop)
}

async fn lake_container(backends: &Backends) -> Result<()> {
    let store = backends.store()?;
    let probe = format!("{}/probe-{}", layout::INTERNAL, SystemClock.fresh());
    store.put_if_absent(&probe, Vec::new()).await?.is_new()?;
    store.delete(&[probe]).await
}
