//! What commands print: a [`Grid`] of cells is shown as an aligned table for people or as JSON for programs, from one
//! description of its columns. Query results are rendered in [`rows`].

pub mod rows;

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{Attribute, Cell as TableCell, CellAlignment, ContentArrangement, Table, TableComponent};
use serde_json::{Map, Value};

/// How a command prints its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// One JSON value.
    Json,
}

/// One value of a grid.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing is known or there is nothing.
    Empty,
    /// Text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// A size in bytes.
    Bytes(u64),
    /// An instant.
    Time(DateTime<Utc>),
    /// Several texts.
    List(Vec<String>),
    /// Any JSON; people see it compact.
    Json(Value),
}

impl Cell {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Text(text) => text.clone(),
            Self::Number(number) => grouped(*number),
            Self::Bytes(bytes) => human_bytes(*bytes),
            Self::Time(time) => time.format("%Y-%m-%d %H:%M:%S").to_string(),
            Self::List(texts) => texts.join(", "),
            Self::Json(value) => value.to_string(),
        }
    }

    /// For programs: nothing is rounded.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::Empty => Value::Null,
            Self::Text(text) => Value::from(text.as_str()),
            Self::Number(number) => Value::from(*number),
            Self::Bytes(bytes) => Value::from(*bytes),
            Self::Time(time) => Value::from(time.to_rfc3339_opts(SecondsFormat::Micros, true)),
            Self::List(texts) => Value::from(texts.clone()),
            Self::Json(value) => value.clone(),
        }
    }

    const fn is_right_aligned(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Bytes(_))
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<DateTime<Utc>> for Cell {
    fn from(time: DateTime<Utc>) -> Self {
        Self::Time(time)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

/// Rows of cells under named columns. A column's name is its JSON key; people see `_` as a space.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// A grid without rows.
    #[must_use]
    pub fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row: one cell a column.
    pub fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "one cell for each of {:?}", self.columns);
        self.rows.push(row);
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As an array of objects.
    #[must_use]
    pub fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Value {
            let pairs = self.columns.iter().zip(row).map(|(name, cell)| ((*name).to_owned(), cell.json()));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        self.rows.iter().map(object).collect()
    }

    /// As an aligned table that is no wider than `width`, if that is known. Columns that are empty in every row are left
    /// out. Headers are bold when `bold`.
    #[must_use]
    pub fn text(&self, width: Option<u16>, bold: bool) -> String {
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|column| self.rows.iter().any(|row| row[*column] != Cell::Empty) || self.rows.is_empty())
            .collect();
        let mut table = plain_table(width, bold);
        table.set_header(shown.iter().map(|column| {
            let right = self.rows.iter().any(|row| row[*column].is_right_aligned());
            header_cell(&self.columns[*column].replace('_', " "), right, bold)
        }));
        for row in &self.rows {
            table.add_row(shown.iter().map(|column| {
                let cell = TableCell::new(one_line(&row[*column].text()));
                if row[*column].is_right_aligned() { cell.set_alignment(CellAlignment::Right) } else { cell }
            }));
        }
        trimmed(&mut table)
    }
}

/// A table of this program's looks: no frame, a line below the header; cells keep their styles when `styled`.
#[must_use]
pub fn plain_table(width: Option<u16>, styled: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    if styled {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_style(TableComponent::HeaderLines, '─').set_style(TableComponent::MiddleHeaderIntersections, ' ');
    table.set_content_arrangement(ContentArrangement::Dynamic);
    match width {
        Some(columns) => table.set_width(columns),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table
}

fn header_cell(text: &str, right: bool, bold: bool) -> TableCell {
    let cell = TableCell::new(text);
    let cell = if bold { cell.add_attribute(Attribute::Bold) } else { cell };
    if right { cell.set_alignment(CellAlignment::Right) } else { cell }
}

/// The table's lines, columns two blanks apart, without the room that the last column leaves.
#[must_use]
pub fn trimmed(table: &mut Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Control characters would break the table (or the terminal); they are shown escaped.
#[must_use]
pub fn one_line(text: &str) -> String {
    escaped(text, char::is_control)
}

/// As [`one_line`], but lines stay lines.
#[must_use]
pub fn some_lines(text: &str) -> String {
    escaped(text.trim_end_matches('\n'), |c| c.is_control() && c != '\n')
}

fn escaped(text: &str, is_dangerous: impl Fn(char) -> bool) -> String {
    text.chars().fold(String::with_capacity(text.len() + 8), |mut out, c| {
        if is_dangerous(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

/// A whole number with commas between groups of three digits.
#[must_use]
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size to three digits or so: `1.4 MiB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown to one digit")]
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A duration for people: `812 ms`, `3.42 s`, `2 min 5 s`.
#[must_use]
pub fn human_duration(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 1.0 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 120.0 {
        return format!("{seconds:.2} s");
    }
    format!("{} min {} s", duration.as_secs() / 60, duration.as_secs() % 60)
}

/// Whole seconds for people, in the largest unit that there are two of.
#[must_use]
pub fn human_age(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    match units.into_iter().find(|(unit, _)| seconds >= 2 * unit) {
        Some((unit, name)) => format!("{} {name}", seconds / unit),
        None => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(&["table", "rows", "bytes", "committed_at", "last_error", "keys"]);
        let at = DateTime::from_timestamp_micros(1_709_287_445_123_456).unwrap();
        grid.push(vec![
            "raw/trips".into(),
            5_000_u64.into(),
            Cell::Bytes(482_113),
            at.into(),
            Cell::Empty,
            Cell::List(vec!["a".into(), "b".into()]),
        ]);
        grid.push(vec![
            "curated/東京駅\n".into(),
            1_i64.into(),
            Cell::Bytes(12),
            Cell::Empty,
            Cell::Empty,
            Cell::List(vec![]),
        ]);
        grid
    }

    #[test]
    fn a_grid_reads_well_and_leaves_out_what_nobody_has() {
        insta::assert_snapshot!(grid().text(None, false));
    }

    #[test]
    fn a_narrow_terminal_wraps_instead_of_running_over() {
        let text = grid().text(Some(48), false);
        assert!(text.lines().all(|line| line.chars().count() <= 48), "{text}");
    }

    #[test]
    fn json_rounds_nothing() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&grid().json()).unwrap());
    }

    #[test]
    fn numbers_and_sizes_for_people() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-1_234_567, "-1,234,567"),
            (i64::MIN, "-9,223,372,036,854,775,808"),
        ] {
            assert_eq!(grouped(number), text);
        }
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (1_048_575, "1.0 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
        for (millis, text) in [(0, "0 ms"), (812, "812 ms"), (3_420, "3.42 s"), (125_000, "2 min 5 s")] {
            assert_eq!(human_duration(std::time::Duration::from_millis(millis)), text);
        }
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (190, "3 min"), (7_200, "2 h"), (700_000, "8 d")] {
            assert_eq!(human_age(seconds), text);
        }
    }
}
