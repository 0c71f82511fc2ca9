//! What a contract says, after parsing: the words of DESIGN's contract vocabulary as types.

mod changes;
mod values;

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

pub use changes::{
    ChangeSource, DEFAULT_SEQUENCE, HistorySpec, OP, SEQUENCE_FIELDS, UNAVAILABLE_VALUE, sequence_column,
};
pub use values::{Encoding, OnGap, OnInfinity, OnOverlap, Rounding, TimeUnit};

use super::diagnostic::{Diagnostic, Positions};
use crate::name::TableName;

/// A parsed and checked contract: everything that is known about one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Contract {
    /// The table's name.
    pub table: TableName,
    /// What the table is, for people.
    pub description: Option<String>,
    /// Where its rows come from.
    pub origin: Origin,
    /// Columns in order. Declared for file sources; for derived tables empty, or a declaration that the SQL must meet.
    pub columns: Vec<Column>,
    /// How rows enter the table.
    pub write_mode: WriteMode,
    /// The key's columns; empty when none is declared.
    pub primary_key: Vec<String>,
    /// Partition columns, in order.
    pub partition_by: Vec<String>,
    /// Upsert from files: the columns that say which row of a key is newer, most significant first.
    pub sequence_by: Vec<String>,
    /// What a new version of a file does.
    pub on_overwrite: OnOverwrite,
    /// What is done with columns that the contract does not name.
    pub unknown_columns: UnknownColumns,
    /// Declared rules, in order.
    pub rules: Vec<Rule>,
    /// A file with more quarantined records than this is refused whole.
    pub max_quarantine: Option<Threshold>,
    /// Delta table properties.
    pub properties: BTreeMap<String, String>,
    /// 32 hex digits over the parsed form: comments, layout and descriptions do not count.
    pub hash: String,
    /// The contract's file as given to the loader, for messages.
    pub file: String,
    /// Where its values stand in that file.
    pub positions: Positions,
}

/// Where a table's rows come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// Files of the landing zone.
    Files(Source),
    /// Other tables, through SQL or a named transform.
    Derived(Derivation),
    /// Change events of one table of a database: the newest row of each key.
    Changes(ChangeSource),
    /// The history of a table of changes, kept beside it. Such a contract stands in no file: the catalog makes it.
    History {
        /// The table whose history it is.
        of: TableName,
    },
}

/// Files of the landing zone and how to read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Glob below the landing zone; `**` matches no folder too. Empty for change data that comes from topics alone.
    pub path: String,
    /// The format of the files' content (after decompression by magic bytes).
    pub format: Format,
    /// Globs whose files are declared ignored.
    pub ignore: Vec<String>,
    /// How CSV is written.
    pub csv: CsvDialect,
    /// Change data: names of topics whose records are taken; `*` stands for any characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<String>,
    /// Change data: the incarnation of the topics. Another one begins their offsets anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
}

impl Source {
    /// Files of `format` at `path`, everything else at its default.
    #[must_use]
    pub fn new(path: impl Into<String>, format: Format) -> Self {
        let (path, csv) = (path.into(), CsvDialect::default());
        Self { path, format, ignore: Vec::new(), csv, topics: Vec::new(), epoch: None }
    }
}

/// File formats that a contract may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Delimited text.
    Csv,
    /// One JSON value, an array, or values one after the other.
    Json,
    /// One JSON object a line.
    Ndjson,
    /// Apache Parquet.
    Parquet,
    /// Change events of Debezium, one a line, kept whole.
    Debezium,
}

/// The dialect of a CSV file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CsvDialect {
    /// Whether the first record names the columns.
    pub header: bool,
    /// Field separator, one byte.
    pub delimiter: u8,
    /// Quote, one byte; none when quoting is off.
    pub quote: Option<u8>,
    /// Escape within quotes; none when quotes are doubled.
    pub escape: Option<u8>,
    /// Physical lines to skip at the start.
    pub skip_rows: usize,
    /// A line beginning with this byte is a comment.
    pub comment: Option<u8>,
    /// Character encoding of the file: a label of the WHATWG encoding standard (`utf-8`, `windows-1252`, `utf-16` ...).
    pub encoding: String,
    /// Unquoted field texts that mean null. The empty text stands for an empty field.
    pub null_values: Vec<String>,
}

impl Default for CsvDialect {
    fn default() -> Self {
        Self {
            header: true,
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            skip_rows: 0,
            comment: None,
            encoding: "utf-8".to_owned(),
            null_values: vec![String::new()],
        }
    }
}

/// How a derived table is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Derivation {
    /// Name in the SQL -> source table. A single unnamed source is called `input`.
    pub inputs: IndexMap<String, TableName>,
    /// The transform.
    pub body: Body,
    /// One row per key: which row of a key is kept.
    pub keep: Option<Keep>,
    /// Columns that decide `keep`, most significant first, ascending.
    pub order_by: Vec<String>,
    /// Output columns that are the unit of incremental work; empty when not declared.
    pub recompute_by: Vec<String>,
    /// Input name -> SQL giving the units (the `recompute_by` columns) that a change of that input touches.
    pub touched: IndexMap<String, String>,
}

/// A transform.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// SQL over the input names.
    Sql(String),
    /// A Rust transform of the registry, with its arguments.
    Named {
        /// The registered name.
        name: String,
        /// Its arguments, as the contract gives them.
        args: serde_json::Value,
    },
}

/// Which of the rows of one key stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// The smallest by `order_by`.
    First,
    /// The greatest by `order_by`.
    Last,
}

/// How rows enter a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// Every row is added.
    #[default]
    Append,
    /// A row takes the place of the stored row of its key.
    Upsert,
    /// The table is the content of the greatest `_file`.
    Overwrite,
}

/// What a new version of a file that was loaded before does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOverwrite {
    /// The old version's rows go in the same commit.
    #[default]
    Replace,
    /// The old rows stay; a content seen before adds nothing.
    Append,
    /// The first version that was planned stays for ever.
    Ignore,
}

/// What is done with columns of a file that the contract does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownColumns {
    /// Kept as JSON in `_rescued`.
    Rescue,
    /// Added to the table as nullable strings.
    Add,
    /// Left out and reported.
    Ignore,
    /// The file is refused.
    Reject,
}

/// A declared rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Its name, as quarantine shows it.
    pub name: String,
    /// A SQL condition; broken when false, not when null.
    pub check: String,
    /// What a broken rule does.
    pub on_fail: OnFail,
    /// Columns whose built-in faults this rule speaks for.
    pub covers: Vec<String>,
}

/// The version of a row's file, for `sequence_by`; a column of that name comes before it.
pub const FILE_VERSION: &str = "version";

/// What a broken rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFail {
    /// The record goes to quarantine.
    #[default]
    Quarantine,
    /// The record stays; the count is reported.
    Warn,
    /// The whole file is refused.
    Fail,
}

/// `max_quarantine`: the most records of one file that may be refused before the file itself is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum Threshold {
    /// A share of the records, 0 to 1.
    Share(f64),
    /// A number of records.
    Records(u64),
}

/// A declared column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// Name in the table.
    pub name: String,
    /// Its type.
    pub data_type: ColumnType,
    /// Names (or, for JSON, dotted paths) in the source, tried in order; empty means the column's own name.
    pub from: Vec<String>,
    /// Whether null is allowed.
    pub nullable: bool,
    /// Longest text in characters.
    pub max_length: Option<usize>,
    /// Text cast like a value for an empty field and for an absent column.
    pub default: Option<String>,
    /// Text tokens that mean null, instead of the source's.
    pub null_values: Option<Vec<String>>,
    /// Text tokens for true; `true` when not declared. Case is ignored.
    pub true_values: Vec<String>,
    /// Text tokens for false; `false` when not declared. Case is ignored.
    pub false_values: Vec<String>,
    /// Whether spaces and tabs around a string are dropped (they always are around numbers, dates and booleans).
    pub trim: bool,
    /// The decimal separator, one byte.
    pub decimal_separator: u8,
    /// The separator of digit groups, if one is allowed.
    pub group_separator: Option<char>,
    /// What is done with digits beyond the scale (or beyond microseconds).
    pub rounding: Rounding,
    /// strftime patterns tried in turn; empty means ISO 8601.
    pub formats: Vec<String>,
    /// The unit of numbers that mean a time.
    pub unit: Option<TimeUnit>,
    /// IANA zone of values without an offset.
    pub timezone: Option<String>,
    /// A local time that a clock change skips.
    pub on_gap: OnGap,
    /// A local time that a clock change repeats.
    pub on_overlap: OnOverlap,
    /// Infinite dates and timestamps of databases.
    pub on_infinity: OnInfinity,
    /// How text stands for bytes, or for the digits of a decimal; none when it was not declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// What the column is, for people.
    pub description: Option<String>,
}

/// Column types. `timestamp` is an instant in microseconds UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// true or false
    Boolean,
    /// 8-bit signed integer
    Int8,
    /// 16-bit signed integer
    Int16,
    /// 32-bit signed integer
    Int32,
    /// 64-bit signed integer
    Int64,
    /// 32-bit float
    Float32,
    /// 64-bit float
    Float64,
    /// exact decimal: digits in all, digits after the point
    Decimal(u8, i8),
    /// UTF-8 text
    String,
    /// bytes
    Binary,
    /// calendar day
    Date,
    /// instant, microseconds UTC
    Timestamp,
    /// wall-clock time without zone, microseconds
    TimestampNtz,
    /// list of one type
    List(Box<ColumnType>),
    /// named fields in order
    Struct(Vec<(String, ColumnType)>),
    /// map from key to value
    Map(Box<ColumnType>, Box<ColumnType>),
}

impl Contract {
    /// The file source, if the table is fed by files.
    #[must_use]
    pub fn files(&self) -> Option<&Source> {
        match &self.origin {
            Origin::Files(source) => Some(source),
            Origin::Derived(_) | Origin::Changes(_) | Origin::History { .. } => None,
        }
    }

    /// The source of change events, if the table keeps them.
    #[must_use]
    pub fn events(&self) -> Option<&Source> {
        self.files().filter(|source| source.format == Format::Debezium)
    }

    /// The derivation, if the table is fed by other tables.
    #[must_use]
    pub fn derivation(&self) -> Option<&Derivation> {
        match &self.origin {
            Origin::Derived(derivation) => Some(derivation),
            Origin::Files(_) | Origin::Changes(_) | Origin::History { .. } => None,
        }
    }

    /// The source of changes, if the table holds the newest row of each key of a database's table.
    #[must_use]
    pub fn changes(&self) -> Option<&ChangeSource> {
        match &self.origin {
            Origin::Changes(source) => Some(source),
            Origin::Files(_) | Origin::Derived(_) | Origin::History { .. } => None,
        }
    }

    /// The table whose history this one is.
    #[must_use]
    pub fn history_of(&self) -> Option<&TableName> {
        match &self.origin {
            Origin::History { of } => Some(of),
            Origin::Files(_) | Origin::Derived(_) | Origin::Changes(_) => None,
        }
    }

    /// The tables that its rows come from; none for a table that is fed by files.
    #[must_use]
    pub fn sources(&self) -> Vec<&TableName> {
        match &self.origin {
            Origin::Files(_) => Vec::new(),
            Origin::Derived(derivation) => derivation.inputs.values().collect(),
            Origin::Changes(source) => vec![&source.from],
            Origin::History { of } => vec![of],
        }
    }

    /// Whether records that it refuses go to a quarantine table of its own.
    #[must_use]
    pub fn has_quarantine(&self) -> bool {
        matches!(self.origin, Origin::Files(_) | Origin::Changes(_))
    }

    /// The declared column of that name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// An error at the value of `path` (`sql`, `recompute_by[0]`, `touched.items`), shown with its line.
    #[must_use]
    pub fn diagnose(&self, path: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(self.file.clone(), self.positions.nearest(path), message).in_source(self.positions.source())
    }
}

impl Column {
    /// A nullable column of `data_type` with every other setting at its default.
    #[must_use]
    pub fn new(name: impl Into<String>, data_type: ColumnType) -> Self {
        Self {
            name: name.into(),
            data_type,
            from: Vec::new(),
            nullable: true,
            max_length: None,
            default: None,
            null_values: None,
            true_values: vec!["true".to_owned()],
            false_values: vec!["false".to_owned()],
            trim: false,
            decimal_separator: b'.',
            group_separator: None,
            rounding: Rounding::Reject,
            formats: Vec::new(),
            unit: None,
            timezone: None,
            on_gap: OnGap::Reject,
            on_overlap: OnOverlap::Earlier,
            on_infinity: OnInfinity::Reject,
            encoding: None,
            description: None,
        }
    }
}
