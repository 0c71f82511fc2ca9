//! Change events of Debezium -> rows of the table that keeps them, each event whole. Pure: no async, no storage.
//!
//! Nothing is dropped: what is no event at all is a row like any other, and a [`MalformedEvent`] beside it.

mod compact;
mod event;
mod files;
mod members;
mod record;
mod rows;

pub(crate) use compact::compact;
pub use event::{Facts, Kind, read};
pub use files::EventFile;
pub use record::{RecordKey, record_line};
pub use rows::{EventRows, Events, MalformedEvent, Place};

#[cfg(test)]
mod tests;
