//! One file, one step. A landed file is read and staged by any worker ([`ingest`]); the single writer plans, commits and
//! settles what is staged ([`commit`]) and moves the derived tables forward ([`layers`]). At night [`maintain`]
//! cleans up and [`backfill`] compares the derived tables with what they are made from.
//!
//! ```text
//! landing --ingest/reading--> staged rows, rejects, manifest
//!         --sift, plan------> plan object            (private to one attempt)
//!         --commit----------> table, txn = plan      (the rows are visible: exactly once by the commit rule)
//!         --settle----------> quarantine, ledger     (each under its own txn), then the staged objects go
//!         --layers----------> aggregate, curated ... (rows and watermark in one commit)
//!                             silver, history, quarantine of change data (layers/changes)
//! ```

pub mod backfill;
pub mod commit;
pub mod compared;
pub mod deliver;
pub mod distinct;
pub mod drift;
pub mod follow;
pub mod ingest;
pub mod lake;
pub mod layers;
pub mod ledger;
pub mod lineage_columns;
pub mod maintain;
pub mod notes;
pub mod plan;
pub mod reading;
pub mod reconcile;
pub mod redrive;
pub mod repair;
pub mod replace;
pub mod resolve;
pub mod rows;
pub mod settle;
pub mod sift;
pub mod staging;
pub mod status;
pub mod stops;
pub mod streams;
pub mod tables;
pub mod upsert;
pub mod versions;
pub(crate) mod waiting;

/// The app id under which a table and its quarantine carry the number of the last plan that was committed.
pub const APP_ID: &str = "alluvium";
