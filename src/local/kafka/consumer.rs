//! The thread that reads: joins the group, begins each partition where the ledger is, gathers batches and hands them over.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Receiver};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use super::Batch;
use super::place::{Place, Trouble};
use super::reader::{Partition, Reader};
use crate::error::{Error, Result};
use crate::event::stream::{StreamHeader, StreamRecord};
use crate::local::bindings::{HostSettings, StreamBinding};

/// The group of consumers when none is named.
const USUAL_GROUP: &str = "alluvium";

/// How long one look at the topic's queue waits: as long as a request to stop may take.
const POLL: Duration = Duration::from_millis(100);

/// How often topics, losses and holes are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long the brokers may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Values of a batch come to no more bytes than this, with one record more.
const MOST_BYTES: usize = 8 << 20;

/// A batch may wait this long for the one before it; then partitions are paused, so that the group still hears of us.
const PATIENCE: Duration = Duration::from_secs(10);

/// A consumer that failed is followed by another after this long, twice as long each time, up to the second one.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What the binding and `host.json` say.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    client: BTreeMap<String, String>,
    /// These topics alone; none is all that contracts take.
    topics: Option<HashSet<String>>,
    most_records: usize,
    longest_wait: Duration,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// They ask for what this client cannot do.
    pub(super) fn of(binding: &StreamBinding, host: &HostSettings) -> Result<Self> {
        let mut client = BTreeMap::new();
        let mut set = |name: &str, value: &str| client.insert(name.to_owned(), value.to_owned());
        set("bootstrap.servers", binding.setting("brokerList").unwrap_or_default());
        set("group.id", binding.setting("consumerGroup").unwrap_or(USUAL_GROUP));
        // Whose position is lost begins where the ledger is, which is never told by an offset that is made up.
        set("auto.offset.reset", "error");
        set("enable.auto.commit", "false");
        set("enable.auto.offset.store", "false");
        set("isolation.level", "read_committed");
        set("check.crcs", "true");
        set("session.timeout.ms", "10000");
        set("fetch.error.backoff.ms", "100");
        set("fetch.wait.max.ms", "100");
        set("reconnect.backoff.max.ms", "1000");
        set("queued.max.messages.kbytes", "16384");
        let words = |name: &str| binding.setting(name).filter(|word| !word.eq_ignore_ascii_case("NotSet"));
        match words("protocol").map(str::to_ascii_lowercase).as_deref() {
            None | Some("plaintext") => {}
            Some("saslplaintext") => {
                if words("authenticationMode").is_some_and(|mode| !mode.eq_ignore_ascii_case("Plain")) {
                    return Err(unable("authenticationMode", "authenticates by name and password alone: `Plain`"));
                }
                set("security.protocol", "sasl_plaintext");
                set("sasl.mechanism", "PLAIN");
                set("sasl.username", binding.setting("username").unwrap_or_default());
                set("sasl.password", binding.setting("password").unwrap_or_default());
            }
            Some(_) => return Err(unable("protocol", "speaks no TLS: `Plaintext` and `SaslPlaintext` alone")),
        }
        let listed = binding.setting("topic").map(|topics| topics.split(',').map(|topic| topic.trim().to_owned()));
        Ok(Self {
            client,
            topics: listed.map(Iterator::collect),
            most_records: host.kafka_batch.max(1),
            longest_wait: host.kafka_interval,
        })
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.client {
            config.set(name, value);
        }
        config
    }
}

fn unable(key: &str, what: &str) -> Error {
    Error::invalid(format!("`{key}` of the Kafka trigger: the local host {what}"))
        .remedy("reach the brokers by a listener of that kind, or run the function in Azure")
}

/// What reads, as long as the host runs.
#[derive(Debug)]
pub(super) struct Consumer {
    settings: Settings,
    reader: Arc<tokio::sync::Mutex<Reader>>,
    stop: CancellationToken,
}

/// Why a consumer ended.
enum End {
    Stopped,
    /// Its position is in doubt, or must be another one.
    Again(String),
}

impl Consumer {
    pub(super) fn new(settings: Settings, reader: Reader, stop: CancellationToken) -> Self {
        Self { settings, reader: Arc::new(tokio::sync::Mutex::new(reader)), stop }
    }

    /// Reads until the host stops or nobody takes batches any more.
    pub(super) fn run(&self, handle: &Handle, batches: &Sender<Batch>, taken: &Receiver<Vec<(Partition, i64)>>) {
        let mut pause = AGAIN.0;
        while !self.stop.is_cancelled() && !batches.is_closed() {
            let mut session =
                Session { consumer: self, handle, batches, taken, read: 0, gathered: Gathered::default() };
            match session.run() {
                Ok(End::Stopped) => return,
                Ok(End::Again(why)) => tracing::info!("Kafka is read anew: {why}"),
                Err(error) => tracing::warn!("Kafka is read anew in {} s: {error}", pause.as_secs()),
            }
            pause = if session.read > 0 { AGAIN.0 } else { (pause * 2).min(AGAIN.1) };
            handle.block_on(async {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.stop.cancelled() => {}
                }
            });
        }
    }
}

/// Records that wait to be a batch.
#[derive(Default)]
struct Gathered {
    records: Vec<StreamRecord>,
    bytes: usize,
    since: Option<Instant>,
}

/// One consumer of the group, from its first request to its end.
struct Session<'a> {
    consumer: &'a Consumer,
    handle: &'a Handle,
    batches: &'a Sender<Batch>,
    taken: &'a Receiver<Vec<(Partition, i64)>>,
    /// Records that it read.
    read: u64,
    gathered: Gathered,
}

type Client = BaseConsumer<Context>;

impl Session<'_> {
    fn run(&mut self) -> KafkaResult<End> {
        let settings = &self.consumer.settings;
        let places = Arc::new(Mutex::new(HashMap::new()));
        let context = Context {
            places: Arc::clone(&places),
            reader: Arc::clone(&self.consumer.reader),
            handle: self.handle.clone(),
            stop: self.consumer.stop.clone(),
        };
        let client: Client = settings.config().create_with_context(context)?;
        let mut subscribed = Vec::new();
        let mut look_at = Instant::now();
        while !self.consumer.stop.is_cancelled() && !self.batches.is_closed() {
            if look_at <= Instant::now() {
                if let Some(why) = self.look(&client, &mut subscribed)? {
                    return Ok(End::Again(why));
                }
                look_at = Instant::now() + LOOK_EVERY;
            }
            self.acknowledge(&client);
            self.poll(&client, POLL)?;
            if self.is_due() {
                self.hand_over(&client)?;
            }
        }
        Ok(End::Stopped)
    }

    /// Reads one record, or waits for one.
    fn poll(&mut self, client: &Client, wait: Duration) -> KafkaResult<()> {
        match client.poll(wait) {
            None => Ok(()),
            Some(Ok(message)) => {
                self.read += 1;
                let partition = (message.topic().to_owned(), message.partition());
                let is_wanted = match client.context().places().get_mut(&partition) {
                    Some(place) => place.take(message.offset()),
                    // Of a partition that was taken away meanwhile: whoever has it now delivers it.
                    None => false,
                };
                if is_wanted {
                    self.gathered.since.get_or_insert_with(Instant::now);
                    self.gathered.bytes += message.payload_len() + message.key_len();
                    self.gathered.records.push(record(&message));
                }
                Ok(())
            }
            Some(Err(error)) if passes(&error) => {
                tracing::debug!("Kafka: {error}");
                Ok(())
            }
            Some(Err(error)) => Err(error),
        }
    }

    fn is_due(&self) -> bool {
        let Gathered { records, bytes, since } = &self.gathered;
        let settings = &self.consumer.settings;
        records.len() >= settings.most_records
            || *bytes >= MOST_BYTES
            || since.is_some_and(|since| since.elapsed() >= settings.longest_wait)
    }

    /// Gives what was gathered to be delivered, once the batch before it was taken.
    fn hand_over(&mut self, client: &Client) -> KafkaResult<()> {
        let begun = Instant::now();
        let mut paused: Option<TopicPartitionList> = None;
        loop {
            if self.consumer.stop.is_cancelled() {
                return Ok(());
            }
            let room = self.handle.block_on(async { tokio::time::timeout(POLL, self.batches.reserve()).await });
            match room {
                Ok(Ok(room)) => {
                    let records = std::mem::take(&mut self.gathered).records;
                    let mut ends: BTreeMap<(&str, i32), i64> = BTreeMap::new();
                    for record in &records {
                        ends.insert((&record.topic, record.partition), record.offset + 1);
                    }
                    let ends = ends
                        .into_iter()
                        .map(|((topic, partition), end)| ((topic.to_owned(), partition), end))
                        .collect();
                    room.send(Batch { records, ends });
                    return paused.map_or(Ok(()), |paused| client.resume(&paused));
                }
                Ok(Err(_)) => return Ok(()),
                Err(_) if begun.elapsed() < PATIENCE => {}
                Err(_) => {
                    let assigned = client.assignment()?;
                    client.pause(&assigned)?;
                    paused = Some(assigned);
                    // What is about the group is heard; records that were on their way join the batch.
                    self.poll(client, Duration::ZERO)?;
                }
            }
        }
    }

    /// Tells the group what was taken. It is for those who watch it: nothing is lost when this fails.
    fn acknowledge(&self, client: &Client) {
        let mut ends = TopicPartitionList::new();
        for ((topic, partition), end) in self.taken.try_iter().flatten() {
            let known = ends.find_partition(&topic, partition).is_some();
            let set = match known {
                true => ends.set_partition_offset(&topic, partition, Offset::Offset(end)),
                false => ends.add_partition_offset(&topic, partition, Offset::Offset(end)),
            };
            drop(set);
        }
        if ends.count() > 0
            && let Err(error) = client.commit(&ends, CommitMode::Async)
        {
            tracing::debug!("the group was not told: {error}");
        }
    }

    /// Follows the topics, closes holes, and says why reading must begin anew, if it must.
    fn look(&self, client: &Client, subscribed: &mut Vec<String>) -> KafkaResult<Option<String>> {
        let metadata = match client.fetch_metadata(None, ANSWER_WITHIN) {
            Ok(metadata) => metadata,
            Err(error) => {
                tracing::warn!("Kafka does not answer: {error}");
                return Ok(None);
            }
        };
        let mut topics: Vec<String> = metadata.topics().iter().map(|topic| topic.name().to_owned()).collect();
        if let Some(only) = &self.consumer.settings.topics {
            topics.retain(|topic| only.contains(topic));
        }
        topics.sort_unstable();
        let looked = self.handle.block_on(async {
            let mut reader = self.consumer.reader.lock().await;
            let topics = reader.claimed(topics).await?;
            let mut places = client.context().places().clone();
            let has_losses = reader.has_new_losses(&places).await?;
            reader.close(&mut places).await?;
            Ok::<_, Error>((topics, places, has_losses))
        });
        let (topics, looked, has_losses) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                tracing::warn!("what the ledger has of Kafka's topics: {}", error.describe());
                return Ok(None);
            }
        };
        for (partition, place) in looked {
            client.context().places().insert(partition, place);
        }
        if has_losses {
            return Ok(Some("records that were lost are fetched again".to_owned()));
        }
        if *subscribed != topics {
            tracing::info!("topics: {}", topics.join(", "));
            client.subscribe(&topics.iter().map(String::as_str).collect::<Vec<_>>())?;
            *subscribed = topics;
        }
        Ok(None)
    }
}

/// What librdkafka calls back with.
struct Context {
    places: Arc<Mutex<HashMap<Partition, Place>>>,
    reader: Arc<tokio::sync::Mutex<Reader>>,
    handle: Handle,
    stop: CancellationToken,
}

impl Context {
    fn places(&self) -> MutexGuard<'_, HashMap<Partition, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where each partition begins; those that cannot be read are left out.
    fn begin(&self, client: &BaseConsumer<Self>, partitions: Vec<Partition>) -> Result<Vec<(Partition, Place)>> {
        let mut begun = Vec::new();
        for partition in partitions {
            // The ledger first: the topic may only be further than it was then.
            let known = self.handle.block_on(async { self.reader.lock().await.known(&partition).await })?;
            let (topic, number) = (partition.0.as_str(), partition.1);
            let (low, high) = client
                .fetch_watermarks(topic, number, ANSWER_WITHIN)
                .map_err(|error| Error::unavailable(format!("{topic}/{number}")).because(error))?;
            match Place::begin(low, high, known) {
                Ok(place) => {
                    for (first, last) in place.gone(low) {
                        tracing::error!(
                            "{topic}/{number}: offsets {first} to {last} are not in the table, and the topic has them no more"
                        );
                    }
                    tracing::info!("{topic}/{number} is read from offset {}", place.next());
                    begun.push((partition, place));
                }
                Err(Trouble::Ahead { ledger, topic: end }) => tracing::error!(
                    "{topic}/{number} is not read: it ends before offset {end}, but the table has {ledger}. If the topic was made \
                     anew, give its contract another `epoch`"
                ),
            }
        }
        Ok(begun)
    }

    fn assign(&self, client: &BaseConsumer<Self>, assigned: &TopicPartitionList) -> KafkaResult<()> {
        let partitions: Vec<Partition> =
            assigned.elements().iter().map(|element| (element.topic().to_owned(), element.partition())).collect();
        let mut pause = AGAIN.0;
        let begun = loop {
            match self.begin(client, partitions.clone()) {
                Ok(begun) => break begun,
                Err(error) => tracing::warn!("where to begin is not known yet: {}", error.describe()),
            }
            if self.stop.is_cancelled() {
                break Vec::new();
            }
            self.handle.block_on(async {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.stop.cancelled() => {}
                }
            });
            pause = (pause * 2).min(AGAIN.1);
        };
        let mut list = TopicPartitionList::new();
        for ((topic, partition), place) in &begun {
            list.add_partition_offset(topic, *partition, Offset::Offset(place.next()))?;
        }
        *self.places() = begun.into_iter().collect();
        client.assign(&list)
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, client: &BaseConsumer<Self>, event: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let outcome = match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(client, partitions),
            _ => {
                self.places().clear();
                client.unassign()
            }
        };
        if let Err(error) = outcome {
            tracing::warn!("partitions of the group: {error}");
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::debug!("the group was not told: {error}");
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
                tracing::debug!("librdkafka: {facility} {message}");
            }
            _ => tracing::warn!("librdkafka: {facility} {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("librdkafka: {error}: {reason}");
    }
}

/// Whether an error says nothing about the position: the brokers are away, or a topic is not there yet.
fn passes(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::PollExceeded
        )
    )
}

fn record(message: &BorrowedMessage<'_>) -> StreamRecord {
    let headers = message.headers().map(|headers| {
        let header = |header: rdkafka::message::Header<'_, &[u8]>| StreamHeader {
            name: header.key.to_owned(),
            value: header.value.map(<[u8]>::to_vec),
        };
        headers.iter().map(header).collect()
    });
    StreamRecord {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
    }
}
