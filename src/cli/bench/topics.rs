//! Filling topics with the records of files.

use std::path::Path;

use crate::error::{Error, Result};

/// Sends the records of files of events to topics of their own: `lake.public.orders` becomes `<prefix>.public.orders`. Records
/// of other topics are left out. Gives how many the topics hold.
///
/// # Errors
/// A file cannot be read, or the brokers do not take them.
#[cfg(feature = "kafka")]
pub async fn fill(brokers: &str, prefix: &str, folder: &Path) -> Result<u64> {
    let (brokers, prefix, folder) = (brokers.to_owned(), prefix.to_owned(), folder.to_owned());
    let filling = tokio::task::spawn_blocking(move || filled::fill(&brokers, &prefix, &folder));
    filling.await.map_err(|error| Error::internal("filling topics").because(error))?
}

/// Without Kafka's client there are no topics.
///
/// # Errors
/// Always.
#[cfg(not(feature = "kafka"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
pub async fn fill(_brokers: &str, _prefix: &str, _folder: &Path) -> Result<u64> {
    Err(Error::invalid("this program is built without the feature `kafka`, so it fills no topic")
        .remedy("build it with `--features kafka`"))
}

#[cfg(feature = "kafka")]
mod filled {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::time::Duration;

    use rdkafka::config::ClientConfig;
    use rdkafka::error::{KafkaError, RDKafkaErrorCode};
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::super::services::event_files;
    use crate::error::{Error, Result};

    /// How the topics of the events begin.
    const BEGINNING: &str = "lake.public.";
    /// How long the brokers may take to answer.
    const ANSWER_WITHIN: Duration = Duration::from_secs(60);
    /// How long the producer is given to send something when it holds too much.
    const PAUSE: Duration = Duration::from_millis(20);

    #[derive(Deserialize)]
    struct Line<'a> {
        topic: String,
        #[serde(borrow)]
        key: Option<&'a RawValue>,
        #[serde(borrow)]
        value: Option<&'a RawValue>,
    }

    pub(super) fn fill(brokers: &str, prefix: &str, folder: &Path) -> Result<u64> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("enable.idempotence", "true").set("linger.ms", "20");
        let producer: BaseProducer = config.create().map_err(refused)?;
        let mut sent: BTreeMap<String, u64> = BTreeMap::new();
        for path in event_files(folder)? {
            let within = |error: std::io::Error| Error::from(error).within(path.display());
            for line in BufReader::new(File::open(&path).map_err(within)?).lines() {
                let line = line.map_err(within)?;
                let Ok(record) = serde_json::from_str::<Line<'_>>(&line) else { continue };
                let Some(table) = record.topic.strip_prefix(BEGINNING) else { continue };
                let topic = format!("{prefix}.public.{table}");
                send(&producer, &topic, record.key.map(RawValue::get), record.value.map(RawValue::get))?;
                *sent.entry(topic).or_default() += 1;
            }
        }
        producer.flush(ANSWER_WITHIN).map_err(refused)?;
        for (topic, count) in &sent {
            let (low, high) = producer.client().fetch_watermarks(topic, 0, ANSWER_WITHIN).map_err(refused)?;
            if low != 0 || u64::try_from(high).ok() != Some(*count) {
                return Err(Error::unavailable(format!(
                    "{count} records were sent to {topic}, it has {low} to {high}"
                )));
            }
        }
        Ok(sent.values().sum())
    }

    fn send(producer: &BaseProducer, topic: &str, key: Option<&str>, value: Option<&str>) -> Result<()> {
        let mut record = BaseRecord::<str, str>::to(topic).partition(0);
        record.key = key;
        record.payload = value;
        loop {
            match producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    producer.poll(PAUSE);
                }
                Err((error, _)) => return Err(refused(error)),
            }
        }
    }

    fn refused(error: KafkaError) -> Error {
        Error::unavailable("Kafka").because(error).remedy("see `tests/services status`")
    }
}
