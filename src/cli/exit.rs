//! How a command ends: its exit code, and what an error looks like on a terminal.

use std::process::ExitCode;

use crate::error::{Error, Result};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done: 0.
    Done,
    /// Could not finish: 1.
    Failed,
    /// Done, and found something that a person should look at: 3. (2 is wrong usage.)
    Found,
}

/// The process's exit code; an error is written to standard error.
#[must_use]
pub fn code(outcome: Result<Exit>) -> ExitCode {
    match outcome {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::from(1),
        Ok(Exit::Found) => ExitCode::from(3),
        // The reader of our output had enough (`alluvium ledger | head`): no failure of ours.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            super::output::note(&describe(&error));
            ExitCode::from(1)
        }
    }
}

/// `error: ...` and, if a remedy is known, `help: ...` on a line of its own.
#[must_use]
pub fn describe(error: &Error) -> String {
    let mut text = format!("error: {error}");
    if let Some(remedy) = error.remedy_text() {
        text.push_str("\nhelp: ");
        text.push_str(remedy);
    }
    text
}

fn is_broken_pipe(error: &Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let io = inner.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe) {
            return true;
        }
        cause = inner.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_and_then_what_to_do() {
        let error = Error::not_found("there is no lake at ./data").remedy("run `alluvium demo`");
        insta::assert_snapshot!(describe(&error), @r"
        error: there is no lake at ./data
        help: run `alluvium demo`
        ");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let pipe = Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)).within("standard output");
        assert!(is_broken_pipe(&pipe));
        assert!(!is_broken_pipe(&Error::from(std::io::Error::from(std::io::ErrorKind::StorageFull))));
    }
}
