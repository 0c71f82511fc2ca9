//! Where text goes: data to standard output, everything else to standard error, progress bars to a terminal only.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::render::{Grid, Output};

/// Writes data to standard output.
///
/// # Errors
/// Standard output is closed or full.
pub fn data(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Error::from(error).within("standard output"))
}

/// Writes a line for people to standard error. There is nobody to tell when that fails.
pub fn note(line: &str) {
    // What is told may hold bytes of a file: none of them may steer the terminal.
    let _ = writeln!(std::io::stderr().lock(), "{}", crate::render::some_lines(line));
}

/// Shows a grid as wanted; `nothing` is said to people when it has no row.
///
/// # Errors
/// Standard output is closed or full.
pub fn grid(grid: &Grid, output: Output, nothing: &str) -> Result<()> {
    match output {
        Output::Json => json(&grid.json()),
        Output::Table if grid.is_empty() => {
            note(nothing);
            Ok(())
        }
        Output::Table => data(&grid.text(width(), colours())),
    }
}

/// Writes one JSON value, indented for a terminal and compact (a line) for a pipe.
///
/// # Errors
/// Standard output is closed or full.
pub fn json(value: &Value) -> Result<()> {
    let text = if std::io::stdout().is_terminal() { format!("{value:#}") } else { value.to_string() };
    data(&format!("{text}\n"))
}

/// Columns of the terminal, when standard output is one; never so few that a table is only broken words.
#[must_use]
pub fn width() -> Option<u16> {
    comfy_table::Table::new().width().map(|columns| columns.max(60))
}

/// Whether bold and colours are wanted on standard output.
#[must_use]
pub fn colours() -> bool {
    std::io::stdout().is_terminal()
}

/// A bar over `length` steps, drawn on standard error when that is a terminal.
#[must_use]
pub fn bar(length: u64, what: &str) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    if let Ok(style) = ProgressStyle::with_template("{msg:>10} [{bar:32}] {human_pos}/{human_len} {per_sec} eta {eta}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar
}
