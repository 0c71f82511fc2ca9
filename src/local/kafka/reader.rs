//! What the consumer asks the lake: where the ledger is, what is lost, and that holes be closed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::place::Place;
use crate::app::App;
use crate::error::Result;
use crate::offsets::Offsets;
use crate::pipeline::ledger::{self, Stream};
use crate::pipeline::{deliver, streams};
use crate::schema::Contract;

/// A topic and a partition.
pub(super) type Partition = (String, i32);

/// The lake under the contracts of the day.
#[derive(Debug)]
pub(super) struct Reader {
    app: App,
    /// Losses for which reading began anew already: the topic may not have them either.
    tried: HashSet<Loss>,
}

type Loss = (String, i32, i64, i64, Option<DateTime<Utc>>);

impl Reader {
    pub(super) fn new(app: App) -> Self {
        Self { app, tried: HashSet::new() }
    }

    /// Those of some topics that a contract takes.
    pub(super) async fn claimed(&self, topics: Vec<String>) -> Result<Vec<String>> {
        let lake = self.app.lake().await?;
        Ok(topics.into_iter().filter(|topic| !lake.catalog.topic_claims(topic).is_empty()).collect())
    }

    /// The offsets that each table which takes the topic has.
    pub(super) async fn known(&self, partition: &Partition) -> Result<Vec<Offsets>> {
        Ok(self.settled(partition).await?.into_iter().map(|(_, offsets)| offsets).collect())
    }

    async fn settled(&self, (topic, partition): &Partition) -> Result<Vec<(Arc<Contract>, Offsets)>> {
        let lake = self.app.lake().await?;
        let index = ledger::index(&lake).await?;
        let mut settled = Vec::new();
        for contract in lake.catalog.topic_claims(topic) {
            let epoch = contract.events().and_then(|source| source.epoch.clone());
            let stream = Stream { topic: topic.clone(), epoch, partition: *partition };
            let mut offsets = Offsets::default();
            if let Some(table) = lake.table(&contract.table.to_string()).await? {
                let snapshot = table.snapshot().await?;
                let known = index.table(snapshot.table_id());
                offsets = known.and_then(|known| known.streams.get(&stream)).cloned().unwrap_or_default();
            }
            settled.push((contract, offsets));
        }
        Ok(settled)
    }

    /// Closes what holes can be closed in the partitions that are read.
    pub(super) async fn close(&self, places: &mut HashMap<Partition, Place>) -> Result<()> {
        for (partition, place) in places.iter_mut().filter(|(_, place)| place.has_holes()) {
            let settled = self.settled(partition).await?;
            for (contract, offsets) in &settled {
                for stretch in place.closable(offsets) {
                    let lake = self.app.lake().await?;
                    deliver::close(&lake, contract, &partition.0, partition.1, stretch).await?;
                }
            }
            place.forget_closed(&settled.into_iter().map(|(_, offsets)| offsets).collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Whether records of one of the partitions are lost that were not looked for yet: their staged data vanished, so they
    /// must be read again.
    pub(super) async fn has_new_losses(&mut self, places: &HashMap<Partition, Place>) -> Result<bool> {
        let lake = self.app.lake().await?;
        let index = ledger::index(&lake).await?;
        let mut has_new = false;
        for contract in lake.catalog.tables().iter().filter(|contract| contract.events().is_some()) {
            let Some(table) = lake.table(&contract.table.to_string()).await? else { continue };
            let Some(known) = index.table(table.snapshot().await?.table_id()) else { continue };
            for lost in streams::lost(known) {
                let loss = (lost.topic.clone(), lost.partition, lost.first, lost.last, lost.since);
                if places.contains_key(&(lost.topic.clone(), lost.partition)) && self.tried.insert(loss) {
                    tracing::warn!("lost: {lost}; they are read again");
                    has_new = true;
                }
            }
        }
        Ok(has_new)
    }
}
