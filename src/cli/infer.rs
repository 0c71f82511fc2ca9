//! `alluvium infer FILE`: a first contract from a file, to be read and corrected by a person.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::error::{Error, Result};
use crate::infer::infer;
use crate::name::TableName;

/// Arguments of `infer`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  alluvium infer trips.csv --table raw/trips
  alluvium infer trips.ndjson.gz --table raw/trips --write       into <schemas>/raw/trips.yaml

The contract is a guess from the file's first records: read it before you use it.")]
pub struct InferArgs {
    /// A CSV, JSON, NDJSON or Parquet file, compressed or not
    pub file: PathBuf,
    /// The table's name; raw/<the file's name> when not given
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Write it into the folder of contracts, where no file is ever replaced
    #[arg(long)]
    pub write: bool,
}

/// Runs `infer`.
///
/// # Errors
/// The file cannot be read or says nothing about its columns; the contract is there already.
pub async fn run(context: &Context, args: &InferArgs) -> Result<Exit> {
    let table = match &args.table {
        Some(name) => name.parse()?,
        None => name_of(&args.file)?,
    };
    let path = args.file.clone();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let wanted = table.clone();
    let read = tokio::task::spawn_blocking(move || {
        let within = |error: std::io::Error| Error::from(error).within(path.display());
        if path.is_dir() {
            return Err(Error::invalid(format!("{} is a folder", path.display())).remedy("name one of its files"));
        }
        let file = File::open(&path).map_err(within)?;
        infer(Box::new(file), &name, &wanted).map_err(|error| error.within(path.display()))
    });
    let yaml = read.await.map_err(|error| Error::internal("reading the file stopped").because(error))??;
    if !args.write {
        output::data(&yaml)?;
        return Ok(Exit::Done);
    }
    let place = context.config.schemas.join(format!("{table}.yaml"));
    write_new(&place, &yaml)?;
    output::note(&format!(
        "wrote {}; read it, then `alluvium check` and `alluvium ingest FILE --table {table}`",
        place.display()
    ));
    Ok(Exit::Done)
}

fn write_new(place: &Path, yaml: &str) -> Result<()> {
    let within = |error: std::io::Error| Error::from(error).within(place.display());
    fs::create_dir_all(place.parent().unwrap_or(place)).map_err(within)?;
    match File::create_new(place) {
        Ok(mut file) => std::io::Write::write_all(&mut file, yaml.as_bytes()).map_err(within),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(Error::invalid(format!("{} is there already", place.display()))
                .remedy("give the table another name with --table, or leave out --write and compare"))
        }
        Err(error) => Err(within(error)),
    }
}

/// `raw/<name>`: the file's name up to its first dot, without what no table's name may have.
fn name_of(file: &Path) -> Result<TableName> {
    let name = file.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    let mut word = String::with_capacity(stem.len());
    for c in stem.chars() {
        match c {
            'a'..='z' | '0'..='9' => word.push(c),
            _ if word.ends_with('_') => {}
            _ => word.push('_'),
        }
    }
    let word = word.trim_start_matches(|c: char| !c.is_ascii_lowercase()).trim_end_matches('_');
    format!("raw/{word}").parse().map_err(|error: Error| error.remedy("name the table with --table raw/NAME"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_after_its_file() {
        for (file, name) in [
            ("visits.csv", "raw/visits"),
            ("/x/Visits-2024.csv.gz", "raw/visits_2024"),
            ("2024 trips (final).csv", "raw/trips_final"),
        ] {
            assert_eq!(name_of(Path::new(file)).unwrap().to_string(), name);
        }
        let error = name_of(Path::new("2024.csv")).unwrap_err();
        assert_eq!(error.remedy_text(), Some("name the table with --table raw/NAME"));
    }

    #[test]
    fn a_contract_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("raw/x.yaml");
        write_new(&place, "first").unwrap();
        assert!(write_new(&place, "second").unwrap_err().to_string().ends_with("is there already"));
        assert_eq!(fs::read_to_string(place).unwrap(), "first");
    }
}
