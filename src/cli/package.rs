//! `alluvium package`: the script root that a function app runs, as a folder and as a zip, and the settings that it needs.

mod archive;
mod content;
mod program;
mod settings;
mod workshop;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::config;
use crate::error::{Error, Result};
use crate::local::read_functions;
use crate::render::{Grid, Output};
use content::{Content, Entry};
use settings::AppSetting;
use workshop::Workshop;

/// Arguments of `package`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium package                                   ./package and ./package.zip, with this very program
  alluvium package --out dist/app --binary target/dist/alluvium --with cdc_eventhubs
  alluvium package -o json                           the settings of the function app, for a script
  func start --script-root package                   runs it on this machine

What an earlier run wrote is replaced, all but local.settings.json; any other folder or zip is left alone.")]
pub struct PackageArgs {
    /// Folder to write; the zip goes beside it
    #[arg(long, value_name = "FOLDER", default_value = "package")]
    pub out: PathBuf,
    /// Program to deploy, for Linux on x86-64; this very program when not given
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// Functions of change streams to take along: `cdc_eventhubs`, `cdc_kafka`. Without their settings they would be in
    /// error
    #[arg(long, value_name = "FUNCTION", value_delimiter = ',')]
    pub with: Vec<String>,
    /// How the settings are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// The first line of the one file that says whose folder this is.
const OURS: &str = "# made by `alluvium package`, which replaces everything here but local.settings.json";

const IGNORE_FILE: &str = ".funcignore";
const LOCAL_SETTINGS: &str = "local.settings.json";

/// Runs `package`.
///
/// # Errors
/// The program cannot be deployed, a contract or a binding is wrong, or the place is somebody else's.
pub fn run(context: &Context, args: &PackageArgs) -> Result<Exit> {
    let made = make(context, args)?;
    for line in &made.remarks {
        output::note(line);
    }
    output::grid(&grid(&made.settings), args.output, "no setting is needed")?;
    Ok(Exit::Done)
}

/// What was made.
struct Made {
    /// What the function app must be told.
    settings: Vec<AppSetting>,
    /// For people.
    remarks: Vec<String>,
}

fn make(context: &Context, args: &PackageArgs) -> Result<Made> {
    let binary = args.binary.clone().map_or_else(config::this_program, Ok)?;
    let glibc = program::examine(&binary)?;
    let content = content::gather(&context.config, &binary, &args.with)?;
    let settings = settings::of(&context.config, &content.functions)?;
    let zip = beside(&args.out)?;
    refuse_foreign_folder(&args.out, &content)?;
    refuse_foreign_zip(&zip)?;
    workshop::clear(&args.out);
    let work = Workshop::beside(&args.out, &*context.clock)?;
    let written = output::bar(2 * content.bytes(), "package");
    let (folder, packed) = (work.folder().join("folder"), work.folder().join("zip"));
    lay_out(&folder, &content, &settings, &written)?;
    // What the host would not take is told before anything is replaced.
    let resolve = |name: &str| context.config.lookup(name).or_else(|| Some("unset".to_owned()));
    read_functions(&folder, &resolve)?;
    let bytes = archive::write(&packed, &content.entries, &written)?;
    written.finish_and_clear();
    fs::rename(packed, &zip).map_err(|error| Error::from(error).within(zip.display()))?;
    replace(&args.out, &folder)?;
    let mut remarks = vec![format!(
        "{} and {}: {} functions, {} contracts, {} zipped",
        args.out.display(),
        zip.display(),
        content.functions.len(),
        content.contracts,
        crate::render::human_bytes(bytes)
    )];
    if let Some((major, minor)) = glibc.filter(|needed| *needed > program::OLDEST_GLIBC) {
        let (has_major, has_minor) = program::OLDEST_GLIBC;
        remarks.push(format!(
            "warning: {} needs glibc {major}.{minor}, and a function app may have no newer one than \
             {has_major}.{has_minor}: `tests/run --package` builds a program for it",
            binary.display(),
        ));
    }
    Ok(Made { settings, remarks })
}

fn grid(settings: &[AppSetting]) -> Grid {
    let mut grid = Grid::new(&["setting", "value", "what_for"]);
    for setting in settings.iter().filter(|setting| setting.deployed) {
        grid.push(vec![setting.name.as_str().into(), setting.value.clone().into(), setting.meaning.as_str().into()]);
    }
    grid
}

fn beside(folder: &Path) -> Result<PathBuf> {
    let name = folder.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::invalid(format!("{} names no folder to write", folder.display())))?;
    Ok(folder.with_file_name(format!("{name}.zip")))
}

fn lay_out(folder: &Path, content: &Content, settings: &[AppSetting], written: &ProgressBar) -> Result<()> {
    for entry in &content.entries {
        write(folder, entry, written)?;
    }
    let ignored = format!("{OURS}\n{IGNORE_FILE}\n{LOCAL_SETTINGS}\n");
    write(folder, &Entry::text(IGNORE_FILE, ignored), written)?;
    write(folder, &Entry::text(LOCAL_SETTINGS, settings::local(settings)?), written)
}

fn write(folder: &Path, entry: &Entry, written: &ProgressBar) -> Result<()> {
    let file = folder.join(&entry.path);
    let failed = |error: std::io::Error| Error::from(error).within(file.display());
    fs::create_dir_all(file.parent().unwrap_or(folder)).map_err(failed)?;
    match &entry.source {
        content::Source::Text(text) => fs::write(&file, text).map_err(failed)?,
        content::Source::File(from) => {
            let named = |error: std::io::Error| Error::from(error).within(from.display());
            let source = fs::File::open(from).map_err(named)?;
            let mut target = fs::File::create(&file).map_err(failed)?;
            std::io::copy(&mut written.wrap_read(source), &mut target).map_err(named)?;
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&file, fs::Permissions::from_mode(entry.mode)).map_err(failed)?;
    }
    Ok(())
}

/// Puts the fresh folder in the place of what an earlier run left; a person's settings are kept.
fn replace(folder: &Path, fresh: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::from(error).within(folder.display());
    if folder.exists() {
        let settings = folder.join(LOCAL_SETTINGS);
        if settings.is_file() {
            fs::copy(settings, fresh.join(LOCAL_SETTINGS)).map_err(failed)?;
        }
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::rename(fresh, folder).map_err(failed)
}

fn refuse_foreign_folder(folder: &Path, content: &Content) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let refused = |what: String| {
        Error::invalid(format!("{}: {what}", folder.display()))
            .remedy("give another folder with --out, or move it away")
    };
    let entries = fs::read_dir(folder).map_err(|error| Error::from(error).within(folder.display()))?;
    let names: Vec<String> =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name().to_string_lossy().into_owned())).collect();
    if names.is_empty() {
        return Ok(());
    }
    let mark = fs::read_to_string(folder.join(IGNORE_FILE)).unwrap_or_default();
    if mark.lines().next() != Some(OURS) {
        return Err(refused("`alluvium package` did not make this folder".to_owned()));
    }
    let known = |name: &str| [IGNORE_FILE, LOCAL_SETTINGS].contains(&name) || content.could_hold(name);
    match names.iter().find(|name| !known(name)) {
        Some(foreign) => Err(refused(format!("`{foreign}` is not of `alluvium package`"))),
        None => Ok(()),
    }
}

fn refuse_foreign_zip(zip: &Path) -> Result<()> {
    if !zip.exists() || archive::is_ours(zip) {
        return Ok(());
    }
    Err(Error::invalid(format!("{}: `alluvium package` did not make this file", zip.display()))
        .remedy("give another folder with --out, or move it away"))
}

#[cfg(test)]
mod tests;
