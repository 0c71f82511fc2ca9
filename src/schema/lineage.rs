//! Names of the columns that are added to every table of files.

/// Path of the file below the landing zone, with `/`.
pub const FILE: &str = "_file";
/// Number of the record in its file, from 1.
pub const ROW: &str = "_row";
/// The batch that brought the row.
pub const BATCH_ID: &str = "_batch_id";
/// When the batch was staged.
pub const INGESTED_AT: &str = "_ingested_at";
/// Columns that the contract does not name, as JSON.
pub const RESCUED: &str = "_rescued";

/// Names that no column of a contract may take.
pub const RESERVED: [&str; 9] =
    [FILE, ROW, BATCH_ID, INGESTED_AT, RESCUED, "_topic", "_partition", "_offset", "_ingest_date"];

/// Lineage columns that do not depend on arrival: derived tables may pass them on.
pub const MAY_PASS_ON: [&str; 6] = [FILE, ROW, RESCUED, "_topic", "_partition", "_offset"];
