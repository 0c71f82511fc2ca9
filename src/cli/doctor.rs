//! `alluvium doctor`: whether everything that is needed is there, and what to do where it is not.

use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::doctor::{Check, Level, examine};
use crate::error::{Error, Result};
use crate::render::{Output, one_line};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium doctor
  alluvium doctor -o json

Exit code: 0 all is well, 3 something was found.")]
pub struct DoctorArgs {
    /// How the findings are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Runs `doctor`.
///
/// # Errors
/// Standard output is closed or full.
pub async fn run(context: &Context, args: &DoctorArgs) -> Result<Exit> {
    let mut checks = Vec::new();
    let mut printed = Ok(());
    examine(&context.config, |check| {
        // People see each thing as it is looked at: an account that does not answer takes its time.
        if args.output == Output::Table && printed.is_ok() {
            printed = output::data(&line(&check));
        }
        checks.push(check);
    })
    .await;
    printed?;
    if args.output == Output::Json {
        let value = serde_json::to_value(&checks).map_err(|error| Error::internal("checks as JSON").because(error))?;
        output::json(&value)?;
    }
    let found = checks.iter().any(|check| check.level > Level::Ok);
    output::note(if found { "something was found" } else { "all is well" });
    Ok(if found { Exit::Found } else { Exit::Done })
}

/// Room for the names, most of which are as short.
const NAME_WIDTH: usize = 32;

fn line(check: &Check) -> String {
    let level = match check.level {
        Level::Ok => "ok",
        Level::Warn => "WARN",
        Level::Fail => "FAIL",
    };
    let (name, detail) = (one_line(&check.name), one_line(&check.detail));
    let remedy =
        check.remedy.as_ref().map(|remedy| format!("{:6}{:NAME_WIDTH$}  help: {}\n", "", "", one_line(remedy)));
    format!("{level:<4}  {name:<NAME_WIDTH$}  {detail}\n{}", remedy.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_with_what_to_do() {
        let check = |name: &str, level: Level, remedy: Option<&str>| Check {
            name: name.to_owned(),
            level,
            detail: "as\nfound".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let checks = [check("lake", Level::Ok, None), check("contracts", Level::Fail, Some("run `alluvium check`"))];
        insta::assert_snapshot!(checks.iter().map(line).collect::<String>(), @r"
        ok    lake                              as\nfound
        FAIL  contracts                         as\nfound
                                                help: run `alluvium check`
        ");
    }
}
