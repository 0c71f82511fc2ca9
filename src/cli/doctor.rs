//! `alluvium doctor`: whether everything that is needed is there, and what to do where it is not.

use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::doctor::{Check, Level, examine};
use crate::error::{Error, Result};
use crate::render::{Cell, Grid, Output};

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
    let checks = examine(&context.config).await;
    if args.output == Output::Json {
        let value = serde_json::to_value(&checks).map_err(|error| Error::internal("checks as JSON").because(error))?;
        output::json(&value)?;
    } else {
        output::grid(&grid(&checks), args.output, "nothing was looked at")?;
    }
    let found = checks.iter().any(|check| check.level > Level::Ok);
    output::note(if found { "something was found" } else { "all is well" });
    Ok(if found { Exit::Found } else { Exit::Done })
}

fn grid(checks: &[Check]) -> Grid {
    let mut grid = Grid::new(&["level", "what", "found", "what_to_do"]);
    for check in checks {
        let level = match check.level {
            Level::Ok => "ok",
            Level::Warn => "WARN",
            Level::Fail => "FAIL",
        };
        let remedy: Cell = check.remedy.clone().into();
        grid.push(vec![level.into(), check.name.as_str().into(), check.detail.as_str().into(), remedy]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_with_what_to_do() {
        let check = |name: &str, level: Level, remedy: Option<&str>| Check {
            name: name.to_owned(),
            level,
            detail: "as found".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let checks = [check("lake", Level::Ok, None), check("contracts", Level::Fail, Some("run `alluvium check`"))];
        insta::assert_snapshot!(grid(&checks).text(None, false));
    }
}
