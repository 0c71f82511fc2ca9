//! Names of the columns that are added to every table of files, and of those that a table of change events has.

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

/// The topic of a record.
pub const TOPIC: &str = "_topic";
/// Its partition.
pub const PARTITION: &str = "_partition";
/// Its offset.
pub const OFFSET: &str = "_offset";
/// The day of `_ingested_at`.
pub const INGEST_DATE: &str = "_ingest_date";

/// Names that no column of a contract may take.
pub const RESERVED: [&str; 9] = [FILE, ROW, BATCH_ID, INGESTED_AT, RESCUED, TOPIC, PARTITION, OFFSET, INGEST_DATE];

/// Lineage columns that do not depend on arrival: derived tables may pass them on.
pub const MAY_PASS_ON: [&str; 6] = [FILE, ROW, RESCUED, TOPIC, PARTITION, OFFSET];

/// A change event, whole: the line without its line end.
pub const EVENT: &str = "event";
/// The table of the database that an event is about, `<schema>.<table>`.
pub const TABLE: &str = "table";
