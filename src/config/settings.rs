//! The table of environment variables.

/// One environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The value it has when unset; empty for none.
    pub default: &'static str,
    /// What it means, in one line.
    pub meaning: &'static str,
    /// Whether its value is shown to nobody.
    pub is_secret: bool,
}

const fn setting(name: &'static str, default: &'static str, meaning: &'static str) -> Setting {
    Setting { name, default, meaning, is_secret: false }
}

const fn secret(name: &'static str, meaning: &'static str) -> Setting {
    Setting { name, default: "", meaning, is_secret: true }
}

/// All variables, in the order in which a reader wants to meet them.
pub const SETTINGS: &[Setting] = &[
    setting("ALLUVIUM_HOME", "./data", "folder that holds landing/, lake/ and queue/ when the backends are local"),
    setting("ALLUVIUM_SCHEMAS", "./schemas", "folder of the contracts, <layer>/<table>.yaml"),
    setting("ALLUVIUM_ROOT", ".", "folder with host.json and functions/, read by the local host"),
    setting("STORAGE_BACKEND", "local", "where lake and landing zone are: local or azure"),
    setting("QUEUE_BACKEND", "local", "where the queues are: local or azure"),
    setting("AZURE_QUEUE_NAME", "landing-events", "queue of landed files; <name>-poison takes what failed too often"),
    setting("AZURE_STORAGE_ACCOUNT", "", "storage account, used with an identity"),
    setting("AZURE_STORAGE_CONTAINER", "lake", "container that holds the lake"),
    setting("AZURE_STORAGE_PREFIX", "", "folder of that container that holds the lake; unset: the container itself"),
    setting("AZURE_LANDING_CONTAINER", "landing", "container that producers write to; it is only read"),
    setting("AZURE_STORAGE_ENDPOINT", "", "where the account's blobs answer, if not at its usual address"),
    setting("AZURE_QUEUE_ACCOUNT_URL", "", "where the account's queues answer, if not at its usual address"),
    secret(
        "AZURE_STORAGE_CONNECTION_STRING",
        "connection string of the account, with key or signature, instead of an identity",
    ),
    secret(
        "AzureWebJobsStorage",
        "connection string used when the two before name no account; UseDevelopmentStorage=true is Azurite",
    ),
    setting(
        "AZURE_TOKEN_CREDENTIALS",
        "",
        "identity: WorkloadIdentityCredential, ClientSecretCredential, ManagedIdentityCredential or AzureCliCredential; \
         unset: the first whose settings are there, else `az login`",
    ),
    setting("AZURE_CLIENT_ID", "", "client id of the application or of the user-assigned managed identity"),
    setting("AZURE_TENANT_ID", "", "tenant of the application"),
    secret("AZURE_CLIENT_SECRET", "secret of the application"),
    setting("AZURE_FEDERATED_TOKEN_FILE", "", "file with the token of a workload identity"),
    setting("IDENTITY_ENDPOINT", "", "where the managed identity's tokens are; set by the platform"),
    secret("IDENTITY_HEADER", "proof for that address; set by the platform"),
    setting(
        "ALLUVIUM_STORAGE_PATIENCE",
        "",
        "how long a call to a storage account is tried; unset: 60s in functions and hosts, 5s in commands that people wait for",
    ),
    setting(
        "ALLUVIUM_AZURITE",
        "./node_modules/azurite/dist/src/azurite.js",
        "Azurite, started with node by `--storage azurite` when none answers",
    ),
    setting("CDC_BROKERS", "", "where Kafka answers (host:port, with commas between several), for `cdc_kafka`"),
    setting(
        "CDC_TOPIC",
        "",
        "the topics of `cdc_kafka`, with commas between them; unset: `local` reads all that contracts take",
    ),
    setting("CDC_CONSUMER_GROUP", "", "consumer group of the change streams; unset: `local` takes alluvium"),
    setting(
        "CDC_PROTOCOL",
        "",
        "how Kafka is spoken to: Plaintext, SaslPlaintext, Ssl, SaslSsl; `local` speaks the first two",
    ),
    setting(
        "CDC_AUTHENTICATION",
        "",
        "how Kafka is told who asks: Plain, ScramSha256, ScramSha512 ...; `local` knows Plain",
    ),
    setting("CDC_USERNAME", "", "name told to Kafka"),
    secret("CDC_PASSWORD", "password told to Kafka"),
    secret(
        "CDC_POSTGRES",
        "PostgreSQL that `tests/services` started, as a URL of psql; read by tests and `demo --cdc`",
    ),
    setting("CDC_CONNECT", "", "Kafka Connect that `tests/services` started, as a URL; read by tests and `demo --cdc`"),
    setting("COMMIT_SCHEDULE", "*/10 * * * * *", "when the committer runs: six cron fields, UTC"),
    setting(
        "RECONCILE_SCHEDULE",
        "0 */15 * * * *",
        "when the landing zone is compared with the ledger: six cron fields, UTC",
    ),
    setting("MAINTAIN_SCHEDULE", "0 0 3 * * *", "when tables are compacted and cleaned up: six cron fields, UTC"),
    setting(
        "BACKFILL_SCHEDULE",
        "0 0 4 * * *",
        "when derived tables are compared with what their sources make them: six cron fields, UTC",
    ),
    setting(
        "ALLUVIUM_ARRIVAL_HOLD_MS",
        "500",
        "a local file has arrived when it held still for this long, in milliseconds",
    ),
    setting("ALLUVIUM_COMMIT_ROWS", "1000000", "staged rows of a table that make a commit due"),
    setting("ALLUVIUM_COMMIT_BYTES", "128MiB", "staged bytes of a table that make a commit due"),
    setting("ALLUVIUM_COMMIT_AGE", "10s", "age of the oldest staged batch that makes a commit due (ms, s, m, h)"),
    setting(
        "ALLUVIUM_ORPHAN_RETENTION",
        "7d",
        "files in a table's folder that no version names are kept for this long, at least 24h (h, d)",
    ),
    setting("ALLUVIUM_MEMORY", "512MiB", "memory for SQL, for writers, and for a file that is read"),
    setting("ALLUVIUM_THREADS", "", "threads for CPU-bound work; unset: one a core"),
    setting("ALLUVIUM_FSYNC", "0", "1 makes every write survive a machine that loses power, and slower"),
    setting("ALLUVIUM_LOG", "warn,alluvium=info", "what is logged: a level, or target=level pairs with commas"),
    setting(
        "FUNCTIONS_CUSTOMHANDLER_PORT",
        "",
        "port of `serve` on 127.0.0.1; set by the Functions host or the local host",
    ),
    setting(
        "ALLUVIUM_LEASH",
        "0",
        "1 ends `serve` when its standard input closes; set by the local host for its own child",
    ),
];
