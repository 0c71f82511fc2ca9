//! Alluvium: files that arrive at any time become Delta tables, layer on layer, each version of each file exactly once.
//!
//! One binary, several roles: workers stage, one committer commits, a local host plays the cloud's. The map, from the floor
//! up; a module imports only from its own floor and those below (a test keeps it so):
//!
//! | floor | modules | what is decided there |
//! |---|---|---|
//! | 0 words | [`error`] [`clock`] [`name`] [`secret`] [`safeguard`] | kinds of trouble, the only time and chance, parsed names, values nobody prints, what a test may take away |
//! | 1 contract | [`schema`] [`catalog`] | what a table is, who feeds whom; every mistake with its place |
//! | 2 rules | [`arithmetic`] [`cast`] [`decode`] [`change`] [`quality`] [`quarantine`] [`lineage`] [`transform`] [`infer`] [`offsets`] [`manifest`] [`layout`] [`event`] | text to value, bytes to records, rules, what SQL does with a row and with a sum, stored formats, every path; pure, no I/O |
//! | 3 storage | [`store`] [`landing`] [`queue`] [`table`] [`azure`] [`faults`] | put-if-absent, reading at one version, Delta's log and files, the account and its rights, what a test lets happen to a call |
//! | 4 pipeline | [`pipeline`] | stage, plan, commit, settle, layers: the exactly-once protocol, one file a step |
//! | 5 service | [`config`] [`telemetry`] [`app`] [`doctor`] [`http`] | settings, logs, the parts put together, the custom handler |
//! | 6 edges | [`local`] [`cli`] [`render`] [`generate`] [`fuzz`] [`selftest`] | the local host, the commands, what people read, the demo's data, what no bytes and no faults may do |
//!
//! To follow one file: [`local`] enqueues it, [`http`] takes the message, [`pipeline::ingest`] stages it,
//! [`pipeline::commit`] makes it visible, [`pipeline::layers`] carries it on. Why the steps are in that order is said in
//! `docs/exactly-once.md`.

pub mod app;
pub mod arithmetic;
pub mod azure;
pub mod cast;
pub mod catalog;
pub mod change;
pub mod cli;
pub mod clock;
pub mod config;
pub mod decode;
pub mod doctor;
pub mod error;
pub mod event;
pub mod faults;
pub mod fuzz;
pub mod generate;
pub mod http;
pub mod infer;
pub mod landing;
pub mod layout;
pub mod lineage;
pub mod local;
pub mod manifest;
pub mod name;
pub mod offsets;
pub mod pipeline;
pub mod quality;
pub mod quarantine;
pub mod queue;
pub mod render;
pub mod safeguard;
pub mod schema;
pub mod secret;
pub mod selftest;
pub mod store;
pub mod table;
pub mod telemetry;
pub mod transform;
