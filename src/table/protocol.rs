//! Which tables can be read and written: protocol versions and table features.

use super::log::{Metadata, Protocol};
use crate::error::{Error, Result};

/// What is to be done with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Read it.
    Read,
    /// Commit to it.
    Write,
}

const HIGHEST_READER: i32 = 3;
const HIGHEST_WRITER: i32 = 7;

/// Reader features whose tables are read right. Deletion vectors and column mapping only while they are not in use.
const READABLE: [&str; 5] = ["timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping"];

/// Writer features whose rules a commit keeps, given the checks in [`in_use`].
const WRITABLE: [&str; 14] = [
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "identityColumns",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "inCommitTimestamp",
    "clustering",
];

/// Refuses a table that needs more than this program knows, by the name of the feature.
pub(super) fn check_protocol(folder: &str, protocol: &Protocol, metadata: &Metadata, access: Access) -> Result<()> {
    let refuse = |feature: &str| {
        let verb = if access == Access::Read { "read" } else { "written" };
        Error::invalid(format!("table {folder} cannot be {verb}: it was made by a newer writer and uses {feature}"))
            .remedy(format!("drop {feature} with the writer that added it, or use a newer alluvium"))
    };
    if protocol.min_reader_version > HIGHEST_READER {
        return Err(refuse(&format!("reader version {}", protocol.min_reader_version)));
    }
    for feature in protocol.reader_features.iter().flatten() {
        if !READABLE.contains(&feature.as_str()) {
            return Err(refuse(&format!("the table feature {feature}")));
        }
    }
    if property(metadata, "delta.columnMapping.mode").is_some_and(|mode| mode != "none") {
        return Err(refuse("the table feature columnMapping"));
    }
    if access == Access::Read {
        return Ok(());
    }
    if protocol.min_writer_version > HIGHEST_WRITER {
        return Err(refuse(&format!("writer version {}", protocol.min_writer_version)));
    }
    for feature in protocol.writer_features.iter().flatten() {
        if !WRITABLE.contains(&feature.as_str()) {
            return Err(refuse(&format!("the table feature {feature}")));
        }
    }
    match in_use(metadata) {
        Some(feature) => Err(refuse(&format!("the table feature {feature}"))),
        None => Ok(()),
    }
}

/// A feature that a table's properties or schema put to use and whose rules a commit of ours would not keep.
pub(super) fn in_use(metadata: &Metadata) -> Option<&'static str> {
    if property(metadata, "delta.enableDeletionVectors") == Some("true") {
        return Some("deletionVectors (delta.enableDeletionVectors)");
    }
    if property(metadata, "delta.enableInCommitTimestamps") == Some("true") {
        return Some("inCommitTimestamp (delta.enableInCommitTimestamps)");
    }
    if property(metadata, "delta.enableRowTracking") == Some("true") {
        return Some("rowTracking (delta.enableRowTracking)");
    }
    if property(metadata, "delta.columnMapping.mode").is_some_and(|mode| mode != "none") {
        return Some("columnMapping (delta.columnMapping.mode)");
    }
    if property(metadata, "delta.enableTypeWidening") == Some("true") {
        return Some("typeWidening (delta.enableTypeWidening)");
    }
    if metadata.configuration.keys().any(|key| key.starts_with("delta.constraints.")) {
        return Some("checkConstraints (delta.constraints)");
    }
    if metadata.configuration.keys().any(|key| key.starts_with("delta.enableIcebergCompat")) {
        return Some("icebergCompat");
    }
    for (key, feature) in [
        ("\"delta.invariants\"", "invariants"),
        ("\"delta.generationExpression\"", "generatedColumns"),
        ("\"delta.identity.start\"", "identityColumns"),
    ] {
        if metadata.schema_string.contains(key) {
            return Some(feature);
        }
    }
    None
}

fn property<'a>(metadata: &'a Metadata, key: &str) -> Option<&'a str> {
    metadata.configuration.get(key)?.as_deref()
}

/// The lowest protocol that a schema needs, with the properties that ask for a higher one.
pub(super) fn protocol_for(has_timestamp_ntz: bool, metadata: &Metadata) -> Protocol {
    let change_feed = property(metadata, "delta.enableChangeDataFeed") == Some("true");
    if !has_timestamp_ntz {
        let writer = if change_feed { 4 } else { 2 };
        return Protocol {
            min_reader_version: 1,
            min_writer_version: writer,
            reader_features: None,
            writer_features: None,
        };
    }
    let mut writer = vec!["appendOnly".to_owned(), "invariants".to_owned(), "timestampNtz".to_owned()];
    if change_feed {
        writer.push("changeDataFeed".to_owned());
    }
    Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: Some(vec!["timestampNtz".to_owned()]),
        writer_features: Some(writer),
    }
}

/// The features that a writer version before 7 stands for, to be named when a table goes over to named features.
fn legacy_features(writer_version: i32) -> Vec<String> {
    let by_version: [(i32, &[&str]); 5] = [
        (2, &["appendOnly", "invariants"]),
        (3, &["checkConstraints"]),
        (4, &["changeDataFeed", "generatedColumns"]),
        (5, &["columnMapping"]),
        (6, &["identityColumns"]),
    ];
    by_version
        .iter()
        .filter(|(version, _)| *version <= writer_version)
        .flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned()))
        .collect()
}

/// The protocol of a table that gets its first `timestamp_ntz` column; none when it allows one already.
pub(super) fn with_timestamp_ntz(protocol: &Protocol) -> Option<Protocol> {
    const NAME: &str = "timestampNtz";
    let mut reader = protocol.reader_features.clone().unwrap_or_default();
    let mut writer = protocol.writer_features.clone().unwrap_or_else(|| legacy_features(protocol.min_writer_version));
    if reader.iter().any(|name| name == NAME) && writer.iter().any(|name| name == NAME) {
        return None;
    }
    if protocol.min_reader_version == 2 {
        reader.push("columnMapping".to_owned());
    }
    for list in [&mut reader, &mut writer] {
        if !list.iter().any(|name| name == NAME) {
            list.push(NAME.to_owned());
        }
    }
    Some(Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: Some(reader),
        writer_features: Some(writer),
    })
}
