//! Committers and workers that go on side by side until all is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium::error::Directive;
use alluvium::event::FileEvent;
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::Lake;
use tokio::task::JoinSet;

use super::commit_once;

/// Committers at work, one for each lake.
pub struct Committers {
    running: JoinSet<()>,
    is_done: Arc<AtomicBool>,
}

impl Committers {
    /// Starts them.
    pub fn start(lakes: impl IntoIterator<Item = Lake>) -> Self {
        let mut this = Self { running: JoinSet::new(), is_done: Arc::default() };
        for lake in lakes {
            let is_done = Arc::clone(&this.is_done);
            this.running.spawn(async move {
                while !is_done.load(Ordering::SeqCst) {
                    commit_once(&lake).await;
                    tokio::task::yield_now().await;
                }
            });
        }
        this
    }

    /// Ends each after the commit that it is at.
    pub async fn stop(mut self) {
        self.is_done.store(true, Ordering::SeqCst);
        while let Some(done) = self.running.join_next().await {
            done.unwrap();
        }
    }
}

/// Starts one worker for each lake. They share the events, and give back what is to be tried again.
pub fn start_workers(lakes: impl IntoIterator<Item = Lake>, events: Vec<FileEvent>) -> JoinSet<()> {
    let events = Arc::new(tokio::sync::Mutex::new(events));
    let mut workers = JoinSet::new();
    for lake in lakes {
        let events = Arc::clone(&events);
        workers.spawn(async move {
            loop {
                let Some(event) = events.lock().await.pop() else { return };
                match ingest(&lake, &event).await {
                    Ok(_) => {}
                    Err(error) if error.kind().directive() == Directive::Retry => events.lock().await.insert(0, event),
                    Err(error) => panic!("{}", error.describe()),
                }
            }
        });
    }
    workers
}
