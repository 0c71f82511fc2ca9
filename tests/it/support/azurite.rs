//! Azurite for the tests: a plain node process, in memory, on ports of its own; or a container, where Docker has its image.
//!
//! `ALLUVIUM_TEST_DOCKER`: `1` takes a container and fails without one, `0` never does, `auto` (or nothing) takes one when an
//! engine answers and has the image. `ALLUVIUM_TEST_AZURITE` is Azurite's program; `tests/run` installs it and sets both.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use testcontainers::ImageExt as _;
use testcontainers::runners::AsyncRunner as _;
use testcontainers_modules::azurite::{Azurite as Image, BLOB_PORT, QUEUE_PORT};

/// The image that testcontainers' module names.
const IMAGE: &str = "mcr.microsoft.com/azure-storage/azurite:3.34.0";

/// Runs Azurite as a program of its own that writes down what it has and ends with its standard input, however its parent
/// ends.
const LEASHED: &str = "process.stdin.resume();process.stdout.on('error',()=>{});\
    process.stdin.on('end',()=>{process.emit('SIGTERM');setTimeout(()=>process.exit(0),5000).unref()});\
    process.argv.splice(1,0,'azurite');require(process.env.AZURITE)";

/// The account that every Azurite has, and its key, which is public.
pub const ACCOUNT: &str = "devstoreaccount1";
/// See [`ACCOUNT`].
pub const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A running Azurite. It ends when this is dropped, or the tests end.
pub struct Azurite {
    blob_port: u16,
    queue_port: u16,
    folder: Option<PathBuf>,
    running: Mutex<Option<Running>>,
    // Goes after what writes into it.
    _own: Option<tempfile::TempDir>,
}

enum Running {
    Process {
        child: Child,
        leash: Option<ChildStdin>,
    },
    /// Ends when the sender goes.
    Container {
        _leash: mpsc::Sender<()>,
        thread: Option<std::thread::JoinHandle<()>>,
    },
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Process { child, leash } => {
                drop(leash.take());
                let _ = child.wait();
            }
            Self::Container { _leash, thread } => {
                *_leash = mpsc::channel().0;
                let _ = thread.take().map(std::thread::JoinHandle::join);
            }
        }
    }
}

impl Azurite {
    /// The one that tests share, each with containers and queues of its own; a container of Docker is nobody else's.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Azurite>> = OnceLock::new();
        match uses_docker() {
            true => Arc::new(Self::alone()),
            false => Arc::clone(SHARED.get_or_init(|| Arc::new(Self::alone()))),
        }
    }

    /// One of this test's own, in memory.
    pub fn alone() -> Self {
        if uses_docker() { Self::container() } else { Self::process(None) }
    }

    /// One of this test's own, whose data outlives a [`Azurite::stop`].
    pub fn own() -> Self {
        let own = tempfile::tempdir().unwrap();
        let azurite = Self::process(Some(own.path().to_owned()));
        Self { _own: Some(own), ..azurite }
    }

    /// One over the data that another left in a folder.
    pub fn over(folder: &Path) -> Self {
        Self::process(Some(folder.to_owned()))
    }

    fn process(folder: Option<PathBuf>) -> Self {
        let azurite = Self { blob_port: 0, queue_port: 0, folder, _own: None, running: Mutex::default() };
        let (running, blob_port, queue_port) = azurite.spawn();
        Self { blob_port, queue_port, running: Mutex::new(Some(running)), ..azurite }
    }

    /// Azurite's program.
    pub fn program() -> String {
        let Ok(program) = std::env::var("ALLUVIUM_TEST_AZURITE") else {
            panic!("ALLUVIUM_TEST_AZURITE is not set: run the tests by tests/run, which installs Azurite");
        };
        program
    }

    fn spawn(&self) -> (Running, u16, u16) {
        let mut command = Command::new("node");
        command.args(["-e", LEASHED, "--", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]);
        for (name, port) in [("--blobPort", self.blob_port), ("--queuePort", self.queue_port), ("--tablePort", 0)] {
            command.args([name, &port.to_string()]);
        }
        match &self.folder {
            Some(folder) => command.arg("--location").arg(folder),
            None => command.arg("--inMemoryPersistence"),
        };
        let mut child = command
            .env("AZURITE", Self::program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("node cannot be started: {e}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut port = |service: &str| {
            let start = format!("Azurite {service} service is successfully listening at http://127.0.0.1:");
            let mut seen = Vec::new();
            for line in lines.by_ref().map_while(Result::ok) {
                if let Some(port) = line.strip_prefix(&start) {
                    return port.trim().parse::<u16>().unwrap();
                }
                seen.push(line);
            }
            panic!("Azurite did not start: {seen:?}");
        };
        let (blob, queue) = (port("Blob"), port("Queue"));
        // Who prints into a pipe that nobody empties stands still one day.
        std::thread::spawn(move || lines.for_each(drop));
        let leash = child.stdin.take();
        (Running::Process { child, leash }, blob, queue)
    }

    /// A thread of its own holds the container, because async tests may not block on another runtime.
    fn container() -> Self {
        let (leash, held) = mpsc::channel::<()>();
        let (told, ports) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async move {
                let image = Image::default().with_skip_api_version_check().with_disable_telemetry();
                let container = image.with_startup_timeout(std::time::Duration::from_secs(120)).start().await.unwrap();
                let blob = container.get_host_port_ipv4(BLOB_PORT).await.unwrap();
                let queue = container.get_host_port_ipv4(QUEUE_PORT).await.unwrap();
                told.send((blob, queue)).unwrap();
                let _ = tokio::task::spawn_blocking(move || held.recv()).await;
                container.rm().await.unwrap();
            });
        });
        let (blob_port, queue_port) = ports.recv().expect("the container did not start");
        let running = Running::Container { _leash: leash, thread: Some(thread) };
        Self { blob_port, queue_port, folder: None, _own: None, running: Mutex::new(Some(running)) }
    }

    /// Stops it; what it has on disk stays.
    pub fn stop(&self) {
        assert!(self.folder.is_some(), "an Azurite in memory would forget everything");
        self.running.lock().unwrap().take();
    }

    /// Starts it again, on the same ports and data.
    pub fn start(&self) {
        let (running, ..) = self.spawn();
        *self.running.lock().unwrap() = Some(running);
    }

    /// The ports of its blobs and its queues.
    pub const fn ports(&self) -> [u16; 2] {
        [self.blob_port, self.queue_port]
    }

    /// How to reach it.
    pub fn connection(&self) -> String {
        connection_by(self.ports())
    }
}

/// How to reach an Azurite by these ports.
pub fn connection_by([blob_port, queue_port]: [u16; 2]) -> String {
    format!(
        "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};\
         BlobEndpoint=http://127.0.0.1:{blob_port}/{ACCOUNT};QueueEndpoint=http://127.0.0.1:{queue_port}/{ACCOUNT};"
    )
}

fn uses_docker() -> bool {
    let has_image = || {
        let asked = Command::new("docker").args(["image", "inspect", IMAGE]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    match std::env::var("ALLUVIUM_TEST_DOCKER").as_deref() {
        Ok("1") => {
            assert!(has_image(), "ALLUVIUM_TEST_DOCKER is 1, but no Docker engine answers that has {IMAGE}");
            true
        }
        Ok("0") => false,
        Ok("auto" | "") | Err(_) => has_image(),
        Ok(other) => panic!("ALLUVIUM_TEST_DOCKER is `{other}`, expected auto, 1 or 0"),
    }
}
