//! Logging. `serve` writes one JSON object a line to standard output, where the Functions host reads it (whatever comes
//! on standard error counts as an error there). Commands write for people, to standard error, so that standard output
//! holds data alone.
//!
//! Field names: `function.name invocation.id event.id table.name table.version batch.id rows.accepted rows.rejected
//! size_bytes duration_ms attempt error.kind`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::error::{Error, Result};

/// Who reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// The host of the custom handler: JSON lines on standard output.
    Host,
    /// A person at a terminal: text on standard error.
    Person,
}

/// Starts logging for the whole process. `filter` is [`crate::config::Config::log`].
///
/// # Errors
/// The filter cannot be read, or logging was started before.
pub fn start(audience: Audience, filter: &str) -> Result<()> {
    let directives = EnvFilter::try_new(filter)
        .map_err(|error| Error::invalid(format!("ALLUVIUM_LOG is `{filter}`")).because(error))?;
    let started = match audience {
        Audience::Host => tracing::subscriber::set_global_default(json_lines(directives, std::io::stdout)),
        Audience::Person => {
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(directives)
                .with_writer(std::io::stderr)
                .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
                .with_target(false)
                .compact()
                .finish();
            tracing::subscriber::set_global_default(subscriber)
        }
    };
    started.map_err(|error| Error::internal("logging was started twice").because(error))?;
    if audience == Audience::Host {
        // Standard error is the host's; a panic is a line like any other, with the invocation that it broke off.
        std::panic::set_hook(Box::new(|panic| tracing::error!(error.kind = "internal", "{panic}")));
    }
    Ok(())
}

/// A subscriber that writes one JSON object a line, event fields and the fields of the current span included.
pub fn json_lines<W>(filter: EnvFilter, writer: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .finish()
}

/// Lines written to memory, for tests.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
pub struct Captured(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Captured {
    /// What was written so far, a JSON value a line.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        let bytes = self.0.lock().unwrap();
        std::str::from_utf8(&bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[cfg(test)]
impl std::io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_is_one_json_object_with_the_fields_of_its_span() {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber = json_lines(EnvFilter::new("info"), move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("invocation", invocation.id = "7", function.name = "ingest").entered();
            tracing::error!(error.kind = "invalid", "line one\nline two");
            tracing::debug!("not wanted");
        });
        let lines = captured.lines();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["level"], "ERROR");
        assert_eq!(lines[0]["message"], "line one\nline two");
        assert_eq!(lines[0]["error.kind"], "invalid");
        assert_eq!(lines[0]["span"]["invocation.id"], "7");
    }
}
