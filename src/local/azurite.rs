//! Azurite for `--storage azurite`: found or started, with its containers and queues.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use crate::app::Backends;
use crate::clock::Clock;
use crate::config::{Backend, Config};
use crate::error::{Error, Result};
use crate::queue::{Queue, poison};

/// Runs Azurite so that it writes down what it has and ends when its standard input does, however its parent ends. Whoever else
/// tells it to end is obeyed too: standard input alone must not keep a process that serves nothing.
const LEASHED: &str = "process.stdin.resume();process.stdout.on('error',()=>{});\
    process.on('SIGTERM',()=>{process.stdin.pause();process.stdin.unref();setTimeout(()=>process.exit(0),5000).unref()});\
    process.stdin.on('end',()=>{process.emit('SIGTERM');setTimeout(()=>process.exit(0),5000).unref()});\
    process.argv.splice(1,0,'azurite');require(process.env.ALLUVIUM_AZURITE)";

/// How Azurite is installed.
const INSTALL: &str = "npm install --no-save azurite@3.35.0";

/// An Azurite that has not said within this that it listens does not start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service on this machine answers within this.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Pauses between tries to start it again, in seconds; the last one repeats.
const START_AGAIN: [u64; 4] = [1, 2, 5, 15];

/// An Azurite that was started here. It ends with this value, and what it has stays in its folder.
#[derive(Debug)]
pub struct Azurite {
    /// Ends it when it goes.
    end: DropGuard,
    supervision: JoinHandle<()>,
}

/// The configuration with everything in the Azurite that it names; by default the one at Azurite's usual ports. Settings of
/// an account in the cloud are left out: what is meant for Azurite must reach nothing else.
///
/// # Errors
/// A setting is wrong.
pub fn configure(config: &Config) -> Result<Config> {
    let connection = config.lookup("AZURE_STORAGE_CONNECTION_STRING").or_else(|| config.lookup("AzureWebJobsStorage"));
    at(config, connection.as_deref().unwrap_or("UseDevelopmentStorage=true"))
}

fn at(config: &Config, connection: &str) -> Result<Config> {
    config.with([
        ("STORAGE_BACKEND", "azure"),
        ("QUEUE_BACKEND", "azure"),
        ("AZURE_STORAGE_CONNECTION_STRING", ""),
        ("AzureWebJobsStorage", connection),
        ("AZURE_STORAGE_ACCOUNT", ""),
        ("AZURE_STORAGE_ENDPOINT", ""),
        ("AZURE_QUEUE_ACCOUNT_URL", ""),
    ])
}

/// Sees to it that the Azurite of a configuration answers and has its containers and queues. Starts it when none answers,
/// with its data in `azurite/` of the home.
///
/// # Errors
/// The configuration names something else than an Azurite of this machine, or it is not installed or does not start.
pub async fn ensure(config: &Config, clock: Arc<dyn Clock>) -> Result<Option<Azurite>> {
    let backends = Backends::open(config, clock)?;
    let account = backends.account().ok_or_else(|| Error::internal("a configuration without an account"))?;
    let (blobs, queues) = (port_of(account.blob_endpoint())?, port_of(account.queue_endpoint())?);
    let started = match answers(account.blob_endpoint()).await && answers(account.queue_endpoint()).await {
        true => None,
        false => Some(Azurite::start(config, [blobs, queues]).await?.0),
    };
    prepare(&backends).await?;
    Ok(started)
}

/// Starts an Azurite of one's own on free ports, with its data in `azurite/` of the home; gives the configuration with
/// everything in it.
///
/// # Errors
/// It is not installed or does not start.
pub async fn own(config: &Config, clock: Arc<dyn Clock>) -> Result<(Azurite, Config)> {
    let (azurite, [blobs, queues]) = Azurite::start(config, [0, 0]).await?;
    let account = "devstoreaccount1";
    // The key of every Azurite is in the development connection string; only the ports are our own.
    let config = at(config, "UseDevelopmentStorage=true")?.with([
        ("AZURE_STORAGE_ENDPOINT", format!("http://127.0.0.1:{blobs}/{account}")),
        ("AZURE_QUEUE_ACCOUNT_URL", format!("http://127.0.0.1:{queues}/{account}")),
    ])?;
    prepare(&Backends::open(&config, clock)?).await?;
    Ok((azurite, config))
}

/// The port of an endpoint on this machine.
fn port_of(endpoint: &Url) -> Result<u16> {
    let is_here =
        matches!(endpoint.host_str(), Some("127.0.0.1" | "localhost" | "[::1]")) && endpoint.scheme() == "http";
    endpoint.port_or_known_default().filter(|_| is_here).ok_or_else(|| {
        Error::invalid(format!("{endpoint} is no Azurite on this machine"))
            .remedy("unset AZURE_STORAGE_CONNECTION_STRING and AzureWebJobsStorage, or leave `--storage azurite` out")
    })
}

/// Any HTTP answer will do.
async fn answers(endpoint: &Url) -> bool {
    let client = reqwest::Client::builder().no_proxy().timeout(ANSWERS_WITHIN).build();
    let Ok(client) = client else { return false };
    client.get(endpoint.clone()).send().await.is_ok()
}

async fn prepare(backends: &Backends) -> Result<()> {
    let config = backends.config();
    if let Some(account) = backends.account().filter(|_| config.storage_backend == Backend::Azure) {
        account.create_container(&config.azure.landing_container).await?;
        account.create_container(&config.azure.lake_container).await?;
    }
    if let Queue::Azure(queues) = backends.queue() {
        queues.create(&config.queue_name).await?;
        queues.create(&poison(&config.queue_name)).await?;
    }
    Ok(())
}

impl Azurite {
    /// Starts it on these ports (0 is any that is free) for blobs and queues; gives the ports that it has. If it ends by itself
    /// it is started again, on the same ports and data.
    async fn start(config: &Config, ports: [u16; 2]) -> Result<(Self, [u16; 2])> {
        let program = config.azurite.canonicalize().map_err(|_| {
            Error::not_found(format!("Azurite is not installed: there is no {}", config.azurite.display()))
                .remedy(format!("run `{INSTALL}`, or set ALLUVIUM_AZURITE to its azurite.js"))
        })?;
        let folder = config.home.join("azurite");
        std::fs::create_dir_all(&folder).map_err(|error| Error::from(error).within(folder.display()))?;
        let (running, ports) = Running::start(&program, &folder, ports).await?;
        let end = CancellationToken::new();
        let supervision = tokio::spawn(supervise(running, program, folder, ports, end.clone()));
        Ok((Self { end: end.drop_guard(), supervision }, ports))
    }

    /// Ends it, and waits until it has written down what it has.
    ///
    /// # Errors
    /// Its supervision broke off.
    pub async fn stop(self) -> Result<()> {
        drop(self.end);
        self.supervision.await.map_err(|error| Error::internal("waiting for Azurite's end").because(error))
    }
}

/// Starts Azurite again whenever it ends before it shall.
async fn supervise(mut running: Running, program: PathBuf, folder: PathBuf, ports: [u16; 2], end: CancellationToken) {
    loop {
        tokio::select! {
            ended = running.child.wait() => {
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::warn!("Azurite ended ({how}) and is started again");
            }
            () = end.cancelled() => {
                drop(running.leash.take());
                // How it ended tells nobody anything: it was told to.
                let _ = running.child.wait().await;
                return;
            }
        }
        for tries in 0_usize.. {
            match Running::start(&program, &folder, ports).await {
                Ok((again, _)) => {
                    running = again;
                    break;
                }
                Err(error) => tracing::warn!("{}", error.describe()),
            }
            let pause = START_AGAIN[tries.min(START_AGAIN.len() - 1)];
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(pause)) => {}
                () = end.cancelled() => return,
            }
        }
    }
}

/// One process of it. It ends with this value.
#[derive(Debug)]
struct Running {
    child: Child,
    leash: Option<ChildStdin>,
}

impl Running {
    async fn start(program: &Path, folder: &Path, ports: [u16; 2]) -> Result<(Self, [u16; 2])> {
        let mut running = Self::spawn(program, folder, ports)?;
        let Some(output) = running.child.stdout.take() else { return Err(Error::internal("Azurite has no output")) };
        let mut lines = BufReader::new(output).lines();
        let told = async {
            let blobs = told_port(&mut lines, "Blob").await?;
            Ok::<_, std::io::Error>(blobs.zip(told_port(&mut lines, "Queue").await?))
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        let Ok(Ok(Some((blobs, queues)))) = told else {
            return Err(Error::unavailable("Azurite did not start").remedy(
                "its own words above say why; another program may have its ports: stop it, or name others in \
                 AzureWebJobsStorage",
            ));
        };
        // Who prints into a pipe that nobody empties stands still one day.
        tokio::spawn(async move { while matches!(lines.next_line().await, Ok(Some(_))) {} });
        tracing::info!(folder = %folder.display(), blobs, queues, "Azurite was started");
        Ok((running, [blobs, queues]))
    }

    fn spawn(program: &Path, folder: &Path, [blobs, queues]: [u16; 2]) -> Result<Self> {
        let mut command = Command::new("node");
        command
            .args(["-e", LEASHED, "--", "--skipApiVersionCheck", "--disableTelemetry", "--silent", "--tablePort", "0"])
            .args(["--blobPort", &blobs.to_string(), "--queuePort", &queues.to_string()])
            .arg("--location")
            .arg(folder)
            .env("ALLUVIUM_AZURITE", program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Ctrl-C at the terminal is for the host, which needs its storage until it has drained.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            Error::from(error).within("starting node for Azurite").remedy("install Node.js 20 or newer")
        })?;
        let leash = child.stdin.take();
        Ok(Self { child, leash })
    }
}

/// The port on which a service says that it listens; none when it ends before.
async fn told_port(lines: &mut Lines<BufReader<ChildStdout>>, service: &str) -> std::io::Result<Option<u16>> {
    let start = format!("Azurite {service} service is successfully listening at http://");
    while let Some(line) = lines.next_line().await? {
        if let Some(address) = line.strip_prefix(&start) {
            return Ok(address.trim().rsplit_once(':').and_then(|(_, port)| port.parse().ok()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn azurite_is_where_the_settings_say_and_nothing_else() {
        let given = Config::from_pairs([("AZURE_STORAGE_ACCOUNT", "production")]).unwrap();
        let config = configure(&given).unwrap();
        assert_eq!((config.storage_backend, config.queue_backend), (Backend::Azure, Backend::Azure));
        let backends = Backends::open(&config, Arc::new(SystemClock)).unwrap();
        assert_eq!(backends.account().unwrap().blob_endpoint().as_str(), "http://127.0.0.1:10000/devstoreaccount1");
        // A child inherits the environment: what was taken away must be taken away there too.
        let child = config.for_child().unwrap();
        assert!(child.contains(&("AZURE_STORAGE_ACCOUNT".to_owned(), String::new())), "{child:?}");
    }

    #[tokio::test]
    async fn an_account_in_the_cloud_is_never_taken_for_azurite() {
        let text = "AccountName=lake;AccountKey=c2VzYW1l";
        for name in ["AzureWebJobsStorage", "AZURE_STORAGE_CONNECTION_STRING"] {
            let config = configure(&Config::from_pairs([(name, text)]).unwrap()).unwrap();
            let error = ensure(&config, Arc::new(SystemClock)).await.unwrap_err();
            assert!(error.to_string().contains("is no Azurite on this machine"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_missing_azurite_is_told_with_the_command_that_installs_it() {
        let home = tempfile::tempdir().unwrap();
        let pairs = [("ALLUVIUM_HOME", home.path().to_str().unwrap()), ("ALLUVIUM_AZURITE", "nowhere/azurite.js")];
        let error = own(&Config::from_pairs(pairs).unwrap(), Arc::new(SystemClock)).await.unwrap_err();
        assert!(error.describe().contains("npm install --no-save azurite@"), "{}", error.describe());
    }
}
