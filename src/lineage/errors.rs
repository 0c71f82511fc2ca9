//! What the SQL engine says, in the words of the project.

use datafusion::common::{DataFusionError, SchemaError};

use crate::error::{Error, ErrorKind};
use crate::schema::suggest::{did_you_mean, did_you_mean_in_sql};

/// An error of the SQL engine while a query runs.
#[must_use]
pub fn engine_error(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => Error::internal("the SQL engine failed").because(other),
        },
        DataFusionError::ArrowError(inner, _) => match *inner {
            arrow::error::ArrowError::ExternalError(inner) => match inner.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(other) => Error::internal("the SQL engine failed").because(other),
            },
            arrow::error::ArrowError::IoError(text, io) => Error::from(io).within(text),
            other => Error::invalid("the SQL failed on the data").because(other),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => engine_error(*inner),
        DataFusionError::Collection(mut all) if !all.is_empty() => engine_error(all.remove(0)),
        DataFusionError::ObjectStore(inner) => Error::from(*inner),
        DataFusionError::IoError(io) => Error::from(io),
        DataFusionError::ResourcesExhausted(text) => {
            Error::new(ErrorKind::Unavailable, format!("the SQL needs more memory than it may use: {text}"))
                .remedy("give it more memory, or a smaller unit of work with recompute_by")
        }
        DataFusionError::Execution(text) => Error::invalid(format!("the SQL failed on the data: {text}")),
        other => Error::internal("the SQL engine failed").because(other.strip_backtrace()),
    }
}

/// What is wrong with a query that does not plan, and a suggestion. `tables` are the names that it may use.
#[must_use]
pub(super) fn planning_problem(error: &DataFusionError, tables: &[String]) -> (String, Option<String>) {
    let root = error.find_root();
    if let DataFusionError::SchemaError(schema_error, _) = root
        && let SchemaError::FieldNotFound { field, valid_fields } = schema_error.as_ref()
    {
        let names: Vec<&str> = valid_fields.iter().map(|column| column.name.as_str()).collect();
        let known = if names.is_empty() { String::new() } else { format!("; known are {}", names.join(", ")) };
        let help = did_you_mean_in_sql(&field.name, names.iter().copied());
        let known = if help.is_some() { String::new() } else { known };
        return (format!("there is no column `{}`{known}", field.name), help);
    }
    let text = root.strip_backtrace();
    if let Some(missing) = missing_table(&text) {
        let help = did_you_mean(&missing, tables.iter().map(String::as_str))
            .or_else(|| Some(format!("the SQL may read {}", tables.join(", "))));
        return (format!("there is no table `{missing}`"), help);
    }
    let first = text.lines().next().unwrap_or_default();
    let plain = ["Error during planning: ", "SQL error: ", "Schema error: ", "This feature is not implemented: "]
        .iter()
        .find_map(|prefix| first.strip_prefix(prefix))
        .unwrap_or(first);
    let plain = plain.strip_prefix("ParserError(\"").and_then(|rest| rest.strip_suffix("\")")).unwrap_or(plain);
    (lower_first(plain.trim_end_matches('.')), None)
}

/// `table 'datafusion.public.x' not found` -> `x`.
fn missing_table(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("table '")?;
    let (name, rest) = rest.split_once('\'')?;
    rest.contains("not found").then(|| name.rsplit('.').next().unwrap_or(name).to_owned())
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
