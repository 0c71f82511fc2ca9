//! PostgreSQL, Kafka and Kafka Connect as `tests/services` starts them, and what a test does with them.
//!
//! They are shared by all tests of a run, each with topics, databases and groups of its own. Whoever kills one of them takes
//! a turn alone.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::changes::Record;
use super::root;

static TURN: RwLock<()> = RwLock::new(());

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The services, for as long as this test needs them.
pub struct Services {
    addresses: BTreeMap<String, String>,
    _turn: Turn,
}

enum Turn {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl Services {
    /// Beside other tests.
    pub fn shared() -> Self {
        Self::with(Turn::Shared { _guard: TURN.read().unwrap_or_else(PoisonError::into_inner) })
    }

    /// With nobody else, so that they may be killed.
    pub fn alone() -> Self {
        Self::with(Turn::Alone { _guard: TURN.write().unwrap_or_else(PoisonError::into_inner) })
    }

    fn with(turn: Turn) -> Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        // Each test finds them running, whatever the one before it left.
        STARTED.get_or_init(|| drop(run(&["start"])));
        if matches!(turn, Turn::Alone { .. }) {
            run(&["start"]);
        }
        let addresses = run(&["env"])
            .lines()
            .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { addresses, _turn: turn }
    }

    /// The variables that say where they answer.
    pub const fn addresses(&self) -> &BTreeMap<String, String> {
        &self.addresses
    }

    pub fn brokers(&self) -> &str {
        &self.addresses["CDC_BROKERS"]
    }

    /// Kills one of them as a crash would, and starts it again.
    pub fn crash(&self, name: &str) {
        assert!(matches!(self._turn, Turn::Alone { .. }), "others need it");
        run(&["kill", name]);
        run(&["start", name]);
    }

    /// Runs SQL in a database, or in the one that is always there.
    pub fn sql(&self, database: Option<&str>, script: &str) -> String {
        let url = &self.addresses["CDC_POSTGRES"];
        let url = database.map_or_else(|| url.clone(), |name| format!("{}/{name}", url.trim_end_matches("/postgres")));
        let mut psql = Command::new("psql")
            .args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", &url])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("psql: {error}"));
        let mut input = psql.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || input.write_all(script.as_bytes()).unwrap());
            let done = psql.wait_with_output().unwrap();
            let words = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{script}\n{words}");
            String::from_utf8(done.stdout).unwrap()
        })
    }

    /// Registers a connector of Debezium, which stays registered over restarts.
    pub fn connector(&self, name: &str, config: &serde_json::Value) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config.to_string()).unwrap();
        run(&["connector", name, file.path().to_str().unwrap()]);
    }

    /// The names of all connectors.
    pub fn connectors(&self) -> Vec<String> {
        let mut peer = TcpStream::connect(self.addresses["CDC_CONNECT"].trim_start_matches("http://")).unwrap();
        peer.write_all(b"GET /connectors HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Makes a topic.
    pub fn topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().unwrap();
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        let made = futures::executor::block_on(admin.create_topics(&[topic], &AdminOptions::new())).unwrap();
        made.into_iter().for_each(|result| drop(result.unwrap()));
    }

    /// A producer whose records get the offsets in the order in which they are sent.
    pub fn producer(&self, transactional: Option<&str>) -> Sender {
        let mut config = self.client();
        config.set("enable.idempotence", "true").set("linger.ms", "1");
        if let Some(id) = transactional {
            config.set("transactional.id", id);
        }
        let producer: BaseProducer = config.create().unwrap();
        if transactional.is_some() {
            producer.init_transactions(ANSWER_WITHIN).unwrap();
        }
        Sender(producer)
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.brokers());
        config
    }

    /// All records of some topics, as a plain consumer reads them that belongs to no group.
    pub fn read(&self, wanted: impl Fn(&str) -> bool) -> Vec<Record> {
        let mut config = self.client();
        config.set("group.id", "nobody").set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.create().unwrap();
        let metadata = consumer.fetch_metadata(None, ANSWER_WITHIN).unwrap();
        let mut all = TopicPartitionList::new();
        for topic in metadata.topics().iter().filter(|topic| wanted(topic.name())) {
            for partition in topic.partitions() {
                all.add_partition_offset(topic.name(), partition.id(), Offset::Beginning).unwrap();
            }
        }
        consumer.assign(&all).unwrap();
        let (mut records, mut open) = (Vec::new(), all.count());
        while open > 0 {
            match consumer.poll(ANSWER_WITHIN).expect("Kafka has more records to give") {
                Ok(message) => records.push(Record {
                    topic: message.topic().to_owned(),
                    partition: message.partition(),
                    offset: message.offset(),
                    timestamp: message.timestamp().to_millis().unwrap(),
                    key: message.key().map(|key| String::from_utf8(key.to_vec()).unwrap()),
                    value: message.payload().map(|value| String::from_utf8(value.to_vec()).unwrap()),
                }),
                Err(KafkaError::PartitionEOF(_)) => open -= 1,
                Err(error) => panic!("{error}"),
            }
        }
        records.sort_by(|a, b| (&a.topic, a.partition, a.offset).cmp(&(&b.topic, b.partition, b.offset)));
        records
    }
}

/// A producer.
pub struct Sender(BaseProducer);

impl Sender {
    /// Sends records, and waits until the brokers have them.
    pub fn send(&self, records: &[Record]) {
        for record in records {
            let mut next =
                BaseRecord::<str, str>::to(&record.topic).partition(record.partition).timestamp(record.timestamp);
            next.key = record.key.as_deref();
            next.payload = record.value.as_deref();
            while let Err((error, back)) = self.0.send(next) {
                assert_eq!(error.rdkafka_error_code(), Some(rdkafka::error::RDKafkaErrorCode::QueueFull), "{error}");
                self.0.poll(Duration::from_millis(10));
                next = back;
            }
        }
        self.0.flush(ANSWER_WITHIN).unwrap();
    }

    /// Sends records in one transaction, and commits it or not.
    pub fn send_together(&self, records: &[Record], commit: bool) {
        self.0.begin_transaction().unwrap();
        self.send(records);
        match commit {
            true => self.0.commit_transaction(ANSWER_WITHIN).unwrap(),
            false => self.0.abort_transaction(ANSWER_WITHIN).unwrap(),
        }
    }
}

/// Runs `tests/services`, which must succeed, and gives what it prints.
fn run(arguments: &[&str]) -> String {
    assert!(
        std::env::var_os("ALLUVIUM_SERVICES").is_some(),
        "ALLUVIUM_SERVICES is not set: run the tests by tests/run, which starts PostgreSQL and Kafka in a folder of their own"
    );
    let done = Command::new(root().join("tests/services")).args(arguments).output().unwrap();
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "tests/services {arguments:?}\n{words}");
    String::from_utf8(done.stdout).unwrap()
}
