//! One file, one step: ingest (stage), commit (plan, commit, settle), layers, reconcile, status.
pub mod lake;
pub mod layers;
pub mod replace;
