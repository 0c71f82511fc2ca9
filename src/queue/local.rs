//! Queues in a folder: one file a message, never rewritten, all changing state in its name.
//!
//! `<visible at, ms>.<sent at, ms>.<times received>.<id>.<receipt>.msg`: receiving and extending are one rename to a
//! fresh name, deleting is one unlink. The file system lets exactly one process win each of these; who loses finds the
//! old name gone and has changed nothing. A process that dies between any two calls leaves a whole message under one
//! name, which becomes visible when its time comes. A new message is written under a hidden name first.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::{Depth, Message, TIME_TO_LIVE};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Names kept from one listing, so that receiving one by one does not list the folder each time.
const KEPT_NAMES: usize = 4096;

/// Half-written messages older than this were left by a process that died.
const LEFT_OVER: TimeDelta = TimeDelta::hours(1);

const ENDING: &str = "msg";
const UNFINISHED: &str = ".new";

/// Queues in folders below one folder. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LocalQueue {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    fsync: bool,
    /// Names that were visible in the last listing, by queue: hints only, a rename decides.
    hints: Arc<Mutex<HashMap<String, VecDeque<Name>>>>,
}

/// A message's file name, parsed. The order of fields makes the order of names: first visible first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    visible_at: i64,
    sent_at: i64,
    dequeue_count: u32,
    id: String,
    receipt: String,
}

impl Name {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let name = Self {
            visible_at: parts.next()?.parse().ok()?,
            sent_at: parts.next()?.parse().ok()?,
            dequeue_count: parts.next()?.parse().ok()?,
            id: parts.next().filter(|id| !id.is_empty())?.to_owned(),
            receipt: parts.next().filter(|receipt| !receipt.is_empty())?.to_owned(),
        };
        (parts.next() == Some(ENDING) && parts.next().is_none()).then_some(name)
    }

    fn file(&self) -> String {
        let Self { visible_at, sent_at, dequeue_count, id, receipt } = self;
        format!("{visible_at:014}.{sent_at:014}.{dequeue_count}.{id}.{receipt}.{ENDING}")
    }

    fn expires_at(&self) -> i64 {
        self.sent_at.saturating_add(millis(TIME_TO_LIVE))
    }

    fn message(self, queue: &str, body: Vec<u8>) -> Message {
        Message {
            queue: queue.to_owned(),
            body,
            dequeue_count: self.dequeue_count,
            inserted: instant(self.sent_at),
            expires: instant(self.expires_at()),
            visible_at: instant(self.visible_at),
            id: self.id,
            receipt: self.receipt,
        }
    }

    fn of(message: &Message) -> Self {
        Self {
            visible_at: message.visible_at.timestamp_millis(),
            sent_at: message.inserted.timestamp_millis(),
            dequeue_count: message.dequeue_count,
            id: message.id.clone(),
            receipt: message.receipt.clone(),
        }
    }
}

/// Milliseconds, at most a century: longer waits are for ever, and stay within what a time stamp can hold.
fn millis(duration: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 24 * 3_600_000;
    i64::try_from(duration.as_millis()).unwrap_or(CENTURY).min(CENTURY)
}

fn instant(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// None instead of the error that something is not there.
fn present<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl LocalQueue {
    /// Queues below `folder`; folders appear with the first message.
    #[must_use]
    pub fn new(folder: &Path, clock: Arc<dyn Clock>, fsync: bool) -> Self {
        Self { folder: folder.to_owned(), clock, fsync, hints: Arc::default() }
    }

    fn now(&self) -> i64 {
        self.clock.now().timestamp_millis()
    }

    fn folder_of(&self, queue: &str) -> Result<PathBuf> {
        let plain = !queue.is_empty() && queue.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !plain {
            return Err(Error::invalid(format!("`{queue}` is no queue name: letters, digits and hyphens only")));
        }
        Ok(self.folder.join(queue))
    }

    /// Sends one message, to be visible after `delay`; its id.
    ///
    /// # Errors
    /// It was not sent.
    pub fn send(&self, queue: &str, body: &[u8], delay: Duration) -> Result<String> {
        let folder = self.folder_of(queue)?;
        let now = self.now();
        let name = Name {
            visible_at: now.saturating_add(millis(delay)),
            sent_at: now,
            dequeue_count: 0,
            id: self.clock.fresh(),
            receipt: self.clock.fresh(),
        };
        let unfinished = folder.join(format!("{UNFINISHED}.{now:014}.{}", name.id));
        self.write(&folder, &unfinished, &folder.join(name.file()), body).map_err(|error| {
            // Best effort: a left-over is swept later.
            let _ = fs::remove_file(&unfinished);
            Error::from(error).within(format!("sending to queue {queue}"))
        })?;
        Ok(name.id)
    }

    fn write(&self, folder: &Path, unfinished: &Path, finished: &Path, body: &[u8]) -> io::Result<()> {
        let mut file = match present(fs::File::create_new(unfinished))? {
            Some(file) => file,
            None => {
                fs::create_dir_all(folder)?;
                fs::File::create_new(unfinished)?
            }
        };
        file.write_all(body)?;
        if self.fsync {
            file.sync_all()?;
        }
        drop(file);
        fs::rename(unfinished, finished)?;
        self.flush(folder)
    }

    /// Makes renames and unlinks in a folder survive a loss of power.
    fn flush(&self, folder: &Path) -> io::Result<()> {
        match self.fsync {
            true => fs::File::open(folder)?.sync_all(),
            false => Ok(()),
        }
    }

    /// Receives up to `max` visible messages, those that have waited longest first, and hides them for `visibility`.
    ///
    /// # Errors
    /// The folder cannot be read. Messages received by then come back after `visibility`.
    pub fn receive(&self, queue: &str, max: usize, visibility: Duration) -> Result<Vec<Message>> {
        let folder = self.folder_of(queue)?;
        let mut received = Vec::new();
        let mut listed = false;
        while received.len() < max {
            let Some(name) = self.hint(queue) else {
                if listed || !self.list_hints(queue, &folder)? {
                    break;
                }
                listed = true;
                continue;
            };
            if let Some(message) = self.take(queue, &folder, name, visibility)? {
                received.push(message);
            }
        }
        Ok(received)
    }

    fn hint(&self, queue: &str) -> Option<Name> {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        hints.get_mut(queue)?.pop_front()
    }

    /// Lists the folder and keeps the names that are visible now. False when there is none.
    fn list_hints(&self, queue: &str, folder: &Path) -> Result<bool> {
        let now = self.now();
        let mut names = self.names(queue, folder)?;
        names.retain(|name| name.visible_at <= now);
        names.sort_unstable();
        names.truncate(KEPT_NAMES);
        let found = !names.is_empty();
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        hints.insert(queue.to_owned(), names.into());
        Ok(found)
    }

    /// Takes one message if nobody was quicker.
    fn take(&self, queue: &str, folder: &Path, name: Name, visibility: Duration) -> Result<Option<Message>> {
        let failed = |error: io::Error| Error::from(error).within(format!("receiving from queue {queue}"));
        let now = self.now();
        let old = folder.join(name.file());
        if name.expires_at() <= now {
            present(fs::remove_file(&old)).map_err(failed)?;
            tracing::warn!(queue, message.id = name.id, "a message expired before it was processed");
            return Ok(None);
        }
        let taken = Name {
            visible_at: now.saturating_add(millis(visibility)),
            dequeue_count: name.dequeue_count.saturating_add(1),
            receipt: self.clock.fresh(),
            ..name
        };
        let new = folder.join(taken.file());
        if present(fs::rename(&old, &new)).map_err(failed)?.is_none() {
            return Ok(None);
        }
        // Gone again already: only when the visibility is shorter than this very moment.
        let Some(body) = present(fs::read(&new)).map_err(failed)? else { return Ok(None) };
        Ok(Some(taken.message(queue, body)))
    }

    /// Hides a message for `visibility` from now; none when its receipt no longer holds.
    ///
    /// # Errors
    /// The file system refused.
    pub fn extend(&self, message: Message, visibility: Duration) -> Result<Option<Message>> {
        let folder = self.folder_of(&message.queue)?;
        let name = Name::of(&message);
        let old = folder.join(name.file());
        let hidden =
            Name { visible_at: self.now().saturating_add(millis(visibility)), receipt: self.clock.fresh(), ..name };
        let failed = |error: io::Error| Error::from(error).within(format!("extending in queue {}", message.queue));
        if present(fs::rename(old, folder.join(hidden.file()))).map_err(failed)?.is_none() {
            return Ok(None);
        }
        Ok(Some(hidden.message(&message.queue, message.body)))
    }

    /// Deletes a message; false when its receipt no longer holds.
    ///
    /// # Errors
    /// The file system refused.
    pub fn delete(&self, message: &Message) -> Result<bool> {
        let folder = self.folder_of(&message.queue)?;
        let failed = |error: io::Error| Error::from(error).within(format!("deleting from queue {}", message.queue));
        let deleted = present(fs::remove_file(folder.join(Name::of(message).file()))).map_err(failed)?.is_some();
        if deleted {
            self.flush(&folder).map_err(failed)?;
        }
        Ok(deleted)
    }

    /// Up to `max` messages as they are, in the order in which they become visible.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn peek(&self, queue: &str, max: usize) -> Result<Vec<Message>> {
        let folder = self.folder_of(queue)?;
        let mut names = self.names(queue, &folder)?;
        names.sort_unstable();
        let mut messages = Vec::new();
        for name in names {
            if messages.len() == max {
                break;
            }
            let body = present(fs::read(folder.join(name.file())))
                .map_err(|error| Error::from(error).within(format!("reading queue {queue}")))?;
            if let Some(body) = body {
                messages.push(name.message(queue, body));
            }
        }
        Ok(messages)
    }

    /// How many messages there are.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn depth(&self, queue: &str) -> Result<Depth> {
        let now = self.now();
        let names = self.names(queue, &self.folder_of(queue)?)?;
        let visible = names.iter().filter(|name| name.visible_at <= now).count();
        Ok(Depth { visible, hidden: names.len() - visible })
    }

    /// All messages of a folder, in no order; sweeps what dead senders left.
    ///
    /// A rename during the listing may show a message under both names or, rarely, under none: the next listing has it.
    fn names(&self, queue: &str, folder: &Path) -> Result<Vec<Name>> {
        let failed = |error: io::Error| Error::from(error).within(format!("listing queue {queue}"));
        let Some(entries) = present(fs::read_dir(folder)).map_err(failed)? else { return Ok(Vec::new()) };
        let too_old = self.now().saturating_sub(LEFT_OVER.num_milliseconds());
        let mut names: Vec<Name> = Vec::new();
        for entry in entries {
            let file = entry.map_err(failed)?.file_name();
            let Some(file) = file.to_str() else { continue };
            if let Some(name) = Name::parse(file) {
                names.push(name);
            } else if left_by_a_dead_sender(file, too_old) {
                let _ = fs::remove_file(folder.join(file));
            }
        }
        Ok(names)
    }
}

fn left_by_a_dead_sender(file: &str, too_old: i64) -> bool {
    let Some(rest) = file.strip_prefix(UNFINISHED) else { return false };
    let begun = rest.split('.').nth(1).and_then(|text| text.parse::<i64>().ok());
    begun.is_some_and(|at| at < too_old)
}

#[cfg(test)]
mod tests;
