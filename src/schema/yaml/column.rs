//! `columns`: names, types and how values are read.

use std::str::FromStr;

use super::super::diagnostic::At;
use super::super::lineage;
use super::super::model::{Column, ColumnType, Encoding, Format, OnGap, OnInfinity, OnOverlap, Rounding, TimeUnit};
use super::super::node::Node;
use super::super::read::{self, Fields, Report, Words};
use super::super::suggest;

const KNOWN: [&str; 21] = [
    "name",
    "type",
    "from",
    "nullable",
    "max_length",
    "default",
    "null_values",
    "true_values",
    "false_values",
    "trim",
    "decimal_separator",
    "group_separator",
    "rounding",
    "format",
    "unit",
    "timezone",
    "on_gap",
    "on_overlap",
    "on_infinity",
    "encoding",
    "description",
];

// What a derived table's columns may declare: its values are already typed.
const FOR_DERIVED: [&str; 4] = ["name", "type", "nullable", "description"];

/// Reads the columns. `format` is the source's, none for a derived table.
pub(super) fn columns(node: &Node, format: Option<Format>, report: &mut Report<'_>) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for item in read::list(node, "a list of columns", report) {
        let Some(fields) = Fields::read(item, &Words { of: "a column", known: &KNOWN }, report) else {
            continue;
        };
        let Some(column) = column(item.at, &fields, format, report) else { continue };
        let twin = columns.iter().find(|other| other.name.to_lowercase() == column.name.to_lowercase());
        if let Some(twin) = twin {
            let message = if twin.name == column.name {
                format!("column `{}` occurs twice", column.name)
            } else {
                format!("columns `{}` and `{}` differ only by case", twin.name, column.name)
            };
            report.error(fields.get("name").map_or(item.at, |node| node.at), message);
            continue;
        }
        columns.push(column);
    }
    columns
}

fn column(at: At, fields: &Fields<'_>, format: Option<Format>, report: &mut Report<'_>) -> Option<Column> {
    const SHAPE: &str = "write `{ name: id, type: int64 }`";
    let declared = fields.get("type").map(|node| column_type(node, report));
    if fields.lacks("type") {
        report.help(at, "a column has no `type`", SHAPE);
    }
    let Some(name_node) = fields.get("name") else {
        if fields.lacks("name") {
            report.help(at, "a column has no `name`", SHAPE);
        }
        return None;
    };
    let name = name(name_node, format.is_none(), report)?;
    // A type that could not be read is taken for text; settings are judged only against a type that is known.
    let known_type = declared.flatten();
    let mut column = Column::new(name, known_type.clone().unwrap_or(ColumnType::String));
    if let Some(node) = fields.get("nullable") {
        column.nullable = read::boolean(node, report).unwrap_or(true);
    }
    column.description = fields.get("description").and_then(|node| read::scalar(node, "text", report));
    let Some(format) = format else {
        for key in KNOWN.into_iter().filter(|key| !FOR_DERIVED.contains(key)) {
            if let Some(at) = fields.key_at(key) {
                report.error(at, format!("`{key}` is for columns that are read from files, not for derived tables"));
            }
        }
        return Some(column);
    };
    settings(fields, &mut column, report);
    if let Some(data_type) = &known_type {
        applicable(fields, data_type, format, report);
        default_fits(fields, &column, report);
    }
    Some(column)
}

fn column_type(node: &Node, report: &mut Report<'_>) -> Option<ColumnType> {
    let text = read::text(node, "a type", report)?;
    match ColumnType::parse(&text) {
        Ok(data_type) => Some(data_type),
        Err(error) => {
            let torn = text.matches(['(', '<']).count() != text.matches([')', '>']).count();
            let help = if torn {
                Some("a type with a comma needs quotes: `type: \"decimal(10,2)\"`".to_owned())
            } else {
                error.help
            };
            let shift = u64::try_from(error.offset).unwrap_or(0);
            report.add_within(node, &text, shift, error.message, help);
            None
        }
    }
}

fn name(node: &Node, is_derived: bool, report: &mut Report<'_>) -> Option<String> {
    let name = read::text(node, "a column's name", report)?;
    let allowed_lineage = is_derived && lineage::MAY_PASS_ON.contains(&name.as_str());
    if name.trim().is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        report.error(node.at, format!("`{}` is no name for a column", read::visible(&name)));
        return None;
    }
    if lineage::RESERVED.contains(&name.to_lowercase().as_str()) && !allowed_lineage {
        report.help(
            node.at,
            format!("`{name}` is a name of the lineage columns"),
            "give the column another name, and the source's name as `from`",
        );
    }
    if name.contains([' ', ',', ';', '{', '}', '(', ')', '=']) {
        report.warn(
            node.at,
            format!("some engines (Spark among them) cannot write to a table with a column named `{name}`"),
            "give the column a plain name, and the source's name as `from`",
        );
    }
    Some(name)
}

fn settings(fields: &Fields<'_>, column: &mut Column, report: &mut Report<'_>) {
    if let Some(node) = fields.get("from") {
        column.from = read::one_or_many(node, "the source's name, or a list of names", report);
        if column.from.iter().any(|name| name.trim().is_empty()) {
            report.error(node.at, "a source name is empty");
        }
    }
    if let Some(node) = fields.get("max_length") {
        column.max_length = read::count(node, report).and_then(|count| usize::try_from(count).ok());
    }
    column.default = fields.get("default").and_then(|node| read::scalar(node, "a value", report));
    column.null_values = fields.get("null_values").map(|node| read::tokens(node, "a list of texts", report));
    for (key, target) in [("true_values", &mut column.true_values), ("false_values", &mut column.false_values)] {
        if let Some(node) = fields.get(key) {
            *target = read::tokens(node, "a list of texts", report);
        }
    }
    let folded = |values: &[String]| values.iter().map(|value| value.trim().to_lowercase()).collect::<Vec<_>>();
    let both = folded(&column.true_values).into_iter().find(|value| folded(&column.false_values).contains(value));
    if let Some(token) = both {
        let at = fields.get("false_values").or_else(|| fields.get("true_values")).map_or(At::START, |node| node.at);
        report.error(at, format!("`{token}` means both true and false"));
    }
    if let Some(node) = fields.get("trim") {
        column.trim = read::boolean(node, report).unwrap_or(false);
    }
    separators(fields, column, report);
    if let Some(node) = fields.get("rounding") {
        let words = [
            ("reject", Rounding::Reject),
            ("half_up", Rounding::HalfUp),
            ("half_even", Rounding::HalfEven),
            ("down", Rounding::Down),
        ];
        column.rounding = read::word(node, "rounding", &words, report).unwrap_or_default();
    }
    times(fields, column, report);
    if let Some(node) = fields.get("encoding") {
        let words = [
            ("text", Encoding::Text),
            ("hex", Encoding::Hex),
            ("base64", Encoding::Base64),
            ("base64url", Encoding::Base64Url),
        ];
        column.encoding = read::word(node, "encoding", &words, report);
    }
}

fn separators(fields: &Fields<'_>, column: &mut Column, report: &mut Report<'_>) {
    if let Some(node) = fields.get("decimal_separator") {
        column.decimal_separator = read::byte(node, "a decimal separator", report).unwrap_or(b'.');
        if column.decimal_separator.is_ascii_alphanumeric() || matches!(column.decimal_separator, b'+' | b'-') {
            report.error(node.at, format!("`{}` cannot be a decimal separator", char::from(column.decimal_separator)));
        }
    }
    let Some(node) = fields.get("group_separator") else { return };
    let Some(text) = read::scalar(node, "a group separator", report) else { return };
    let mut characters = text.chars();
    let (Some(only), None) = (characters.next(), characters.next()) else {
        report.error(node.at, format!("expected one character as group separator, found `{text}`"));
        return;
    };
    if only.is_alphanumeric() || matches!(only, '+' | '-') {
        report.error(node.at, format!("`{only}` cannot be a group separator"));
    } else if u32::from(only) == u32::from(column.decimal_separator) {
        report.error(node.at, format!("`{only}` is both decimal and group separator"));
    }
    column.group_separator = Some(only);
}

fn times(fields: &Fields<'_>, column: &mut Column, report: &mut Report<'_>) {
    if let Some(node) = fields.get("format") {
        column.formats = read::one_or_many(node, "a strftime pattern, or a list of patterns", report);
        for pattern in &column.formats {
            if chrono::format::StrftimeItems::new(pattern).parse().is_err() || !pattern.contains('%') {
                report.help(
                    node.at,
                    format!("`{pattern}` is no strftime pattern"),
                    "a pattern such as \"%Y-%m-%d %H:%M:%S\"",
                );
            }
        }
    }
    if let Some(node) = fields.get("unit") {
        let words = [
            ("s", TimeUnit::Seconds),
            ("ms", TimeUnit::Millis),
            ("us", TimeUnit::Micros),
            ("ns", TimeUnit::Nanos),
            ("days", TimeUnit::Days),
        ];
        column.unit = read::word(node, "unit", &words, report);
    }
    if let Some(node) = fields.get("timezone") {
        column.timezone = timezone(node, report);
    }
    if let Some(node) = fields.get("on_gap") {
        let words = [("reject", OnGap::Reject), ("earlier", OnGap::Earlier), ("later", OnGap::Later)];
        column.on_gap = read::word(node, "on_gap", &words, report).unwrap_or_default();
    }
    if let Some(node) = fields.get("on_overlap") {
        let words = [("earlier", OnOverlap::Earlier), ("later", OnOverlap::Later), ("reject", OnOverlap::Reject)];
        column.on_overlap = read::word(node, "on_overlap", &words, report).unwrap_or_default();
    }
    // `null` is a word here, and YAML's null as well.
    if let Some(node) = fields.raw("on_infinity") {
        let words = [("reject", OnInfinity::Reject), ("null", OnInfinity::Null), ("max", OnInfinity::Max)];
        column.on_infinity = match node.value {
            super::super::node::Value::Null => OnInfinity::Null,
            _ => read::word(node, "on_infinity", &words, report).unwrap_or_default(),
        };
    }
}

fn timezone(node: &Node, report: &mut Report<'_>) -> Option<String> {
    let name = read::text(node, "an IANA time zone", report)?;
    if chrono_tz::Tz::from_str(&name).is_ok() {
        return Some(name);
    }
    let help = suggest::did_you_mean(&name, chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name()))
        .unwrap_or_else(|| "a name such as `UTC` or `Europe/Vienna`".to_owned());
    report.help(node.at, format!("unknown time zone `{name}`"), help);
    None
}

// Settings that can have no effect on a column's type are mistakes.
fn applicable(fields: &Fields<'_>, data_type: &ColumnType, format: Format, report: &mut Report<'_>) {
    use ColumnType as T;
    let is_decimal = matches!(data_type, T::Decimal(..));
    let is_fractional = is_decimal || matches!(data_type, T::Float32 | T::Float64);
    let is_clock = matches!(data_type, T::Timestamp | T::TimestampNtz);
    let is_instant = matches!(data_type, T::Timestamp);
    let scalar = !data_type.is_nested();
    let has_bytes = data_type.holds(&|leaf| matches!(leaf, T::Binary | T::Decimal(..)));
    for (key, applies, wanted) in [
        ("max_length", matches!(data_type, T::String), "string"),
        ("trim", matches!(data_type, T::String), "string"),
        ("true_values", matches!(data_type, T::Boolean), "boolean"),
        ("false_values", matches!(data_type, T::Boolean), "boolean"),
        ("decimal_separator", is_fractional, "decimal and float"),
        ("group_separator", data_type.is_number(), "number"),
        ("rounding", is_decimal || is_clock, "decimal and timestamp"),
        ("format", data_type.is_temporal(), "date and timestamp"),
        ("unit", data_type.is_temporal(), "date and timestamp"),
        ("on_infinity", data_type.is_temporal(), "date and timestamp"),
        ("timezone", is_instant, "timestamp"),
        ("on_gap", is_instant, "timestamp"),
        ("on_overlap", is_instant, "timestamp"),
        ("default", scalar, "scalar"),
        ("null_values", scalar, "scalar"),
        ("encoding", has_bytes, "binary and decimal"),
    ] {
        if !applies && let Some(at) = fields.key_at(key) {
            report.error(at, format!("`{key}` is for {wanted} columns, this one is {data_type}"));
        }
    }
    if data_type.is_nested() && format == Format::Csv {
        let at = fields.get("type").map_or(At::START, |node| node.at);
        report.error(
            at,
            format!("a CSV field cannot hold {data_type}: lists, structs and maps are for JSON and Parquet"),
        );
    }
    for key in ["on_gap", "on_overlap"] {
        if fields.get("timezone").is_none()
            && is_instant
            && let Some(at) = fields.key_at(key)
        {
            report.help(
                at,
                format!("`{key}` has no effect without `timezone`"),
                "add the IANA zone of the local times",
            );
        }
    }
}

// A default that can never be a value of the type would refuse every record that needs it. Only what is certain is said
// here: dates, times and texts with formats are left to the cast.
fn default_fits(fields: &Fields<'_>, column: &Column, report: &mut Report<'_>) {
    let (Some(node), Some(default)) = (fields.get("default"), &column.default) else { return };
    let text = default.trim();
    let is_plain_number = column.decimal_separator == b'.' && column.group_separator.is_none();
    let fits = match &column.data_type {
        ColumnType::Boolean => {
            let values = column.true_values.iter().chain(&column.false_values);
            values.into_iter().any(|value| value.trim().eq_ignore_ascii_case(text))
        }
        ColumnType::Int8 => integer_fits(text, i8::MIN.into(), i8::MAX.into()),
        ColumnType::Int16 => integer_fits(text, i16::MIN.into(), i16::MAX.into()),
        ColumnType::Int32 => integer_fits(text, i32::MIN.into(), i32::MAX.into()),
        ColumnType::Int64 => integer_fits(text, i64::MIN, i64::MAX),
        ColumnType::Decimal(..) | ColumnType::Float32 | ColumnType::Float64 if is_plain_number => {
            text.parse::<f64>().is_ok()
        }
        ColumnType::String => column.max_length.is_none_or(|longest| default.chars().count() <= longest),
        _ => true,
    };
    if !fits {
        report.error(node.at, format!("the default `{default}` is no {}", column.data_type));
    }
}

fn integer_fits(text: &str, least: i64, greatest: i64) -> bool {
    match text.parse::<i64>() {
        Ok(value) => (least..=greatest).contains(&value),
        // `7.0` and `1E5` may be integers: the cast decides.
        Err(_) => text.contains(['.', 'e', 'E']) && text.parse::<f64>().is_ok(),
    }
}
