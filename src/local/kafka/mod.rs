//! The Kafka trigger on this machine: reads the topics that contracts take and calls the function as the Functions host does,
//! one batch at a time, again and again until it is taken.
//!
//! Where to begin is the ledger's to say, not the consumer group's: reading starts at the first offset that the table lacks,
//! and passes what it has. So a record that was delivered, acknowledged and lost before it was committed is read again, and
//! whatever a consumer does that was thrown out of the group without knowing it is only done twice. The group is told what was
//! taken, for those who watch it.
//!
//! Offsets without a record (markers of transactions, aborted and compacted records) are closed in the ledger, so that they
//! are no gaps. They are known by position: the consumer was at 5, the broker's next record is 9. Whatever makes that position
//! doubtful (an error of a partition above all) ends the consumer, and a new one begins where the ledger is.

mod consumer;
mod place;
mod reader;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::bindings::{HostSettings, StreamBinding};
use super::caller::Caller;
use super::wire;
use crate::app::App;
use crate::config::Config;
use crate::error::Result;
use crate::event::stream::StreamRecord;
use consumer::{Consumer, Settings};
use reader::{Partition, Reader};

/// One Kafka trigger.
#[derive(Debug)]
pub(super) struct KafkaTrigger {
    caller: Caller,
    function: String,
    binding: StreamBinding,
    consumer: Consumer,
}

/// Records to deliver, and where reading goes on behind them.
#[derive(Debug)]
struct Batch {
    records: Vec<StreamRecord>,
    ends: Vec<(Partition, i64)>,
}

impl KafkaTrigger {
    /// A trigger of this binding, which names at least the brokers.
    ///
    /// # Errors
    /// The binding asks for what this client cannot do.
    pub(super) fn new(
        caller: Caller,
        function: String,
        binding: StreamBinding,
        host: &HostSettings,
        config: &Config,
    ) -> Result<Self> {
        let app = App::new(config.clone(), Arc::clone(&caller.shared.clock))?;
        let settings = Settings::of(&binding, host)?;
        let consumer = Consumer::new(settings, Reader::new(app), caller.stop.clone());
        Ok(Self { caller, function, binding, consumer })
    }

    /// Works until `stop`, then until the batch that is under way was taken or failed.
    pub(super) async fn run(self, stop: CancellationToken) {
        let Self { caller, function, binding, consumer } = self;
        let (batches, mut waiting) = mpsc::channel(1);
        let (taken, ends) = std::sync::mpsc::channel();
        let handle = tokio::runtime::Handle::current();
        let reading = tokio::task::spawn_blocking(move || consumer.run(&handle, &batches, &ends));
        let delivery = Delivery { caller, function, binding, stop };
        while let Some(Batch { records, ends }) = waiting.recv().await {
            if !delivery.until_taken(&records).await {
                break;
            }
            // Nobody listens when the consumer is made anew, and then it begins where the ledger is.
            let _ = taken.send(ends);
        }
        drop(waiting);
        if let Err(broken) = reading.await {
            tracing::error!("the reading of Kafka broke off: {broken}");
        }
    }
}

struct Delivery {
    caller: Caller,
    function: String,
    binding: StreamBinding,
    stop: CancellationToken,
}

impl Delivery {
    /// Calls the function until it takes the records; false when the host stops before that.
    async fn until_taken(&self, records: &[StreamRecord]) -> bool {
        let _working = self.caller.shared.activity.begin();
        let mut pause = self.binding.shortest_pause;
        loop {
            let moment = self.caller.moment();
            let body = wire::kafka_invocation(&self.function, &self.binding.name, records, &moment);
            let Err(error) = self.caller.invoke(&self.function, body).await else { return true };
            tracing::warn!("{} failed, again in {} s: {}", self.function, pause.as_secs_f32(), error.describe());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return false,
            }
            pause = pause.saturating_mul(2).min(self.binding.longest_pause).max(Duration::from_millis(100));
        }
    }
}
