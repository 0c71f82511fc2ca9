//! `alluvium completions SHELL`: the script that makes a shell complete this program's commands and options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::exit::Exit;
use super::output;
use crate::error::{Error, Result};

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium completions bash > ~/.local/share/bash-completion/completions/alluvium
  alluvium completions zsh > ~/.zfunc/_alluvium")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Runs `completions`.
///
/// # Errors
/// Standard output is closed or full.
pub fn run(args: &CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "alluvium", &mut script);
    let script = String::from_utf8(script).map_err(|error| Error::internal("the script").because(error))?;
    output::data(&script)?;
    Ok(Exit::Done)
}
