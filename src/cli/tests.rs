use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn help_of_the_top_level() {
    insta::assert_snapshot!(Cli::command().term_width(100).render_long_help());
}

#[test]
fn every_command_has_help_with_an_example() {
    fn look(command: &clap::Command, path: &str) {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
            let name = format!("{path} {}", inner.get_name());
            assert!(inner.get_about().is_some(), "{name} says what it is");
            let example = inner.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.contains("alluvium ") || inner.has_subcommands(), "{name} has an example");
            look(inner, &name);
        }
    }
    look(&Cli::command(), "alluvium");
}

#[test]
fn folders_of_the_command_line_win() {
    let cli = Cli::try_parse_from(["alluvium", "status", "--home", "/x/y", "--schemas", "/z"]).unwrap();
    let config = cli.config().unwrap();
    assert_eq!(config.home, PathBuf::from("/x/y"));
    assert_eq!(config.schemas, PathBuf::from("/z"));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for line in [
        &["alluvium"][..],
        &["alluvium", "ingest"],
        &["alluvium", "sql", "select 1", "--at", "yesterday"],
        &["alluvium", "sql", "select 1", "--version", "x"],
        &["alluvium", "sql", "select 1", "--version", "1", "--at", "2024-03-01T00:00:00Z"],
        &["alluvium", "status", "-o", "xml"],
        &["alluvium", "nonsense"],
    ] {
        assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2, "{line:?}");
    }
}
