//! Only one query at a time, and nothing that writes.

use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::Statement;

use crate::error::{Error, Result};

/// Refuses everything that is not a query (or its explanation, or a question about the tables).
///
/// # Errors
/// The statement is none of these.
pub fn only_reads(parsed: &Parsed) -> Result<()> {
    let refused = |what: String| {
        Err(Error::invalid(format!("{what} is refused: `alluvium sql` only reads"))
            .remedy("tables change by files and contracts alone; write a select"))
    };
    match parsed {
        Parsed::Explain(explained) => only_reads(&explained.statement),
        Parsed::CopyTo(_) => refused("COPY".to_owned()),
        Parsed::CreateExternalTable(_) => refused("CREATE EXTERNAL TABLE".to_owned()),
        Parsed::Reset(_) => refused("RESET".to_owned()),
        Parsed::Statement(statement) => match &**statement {
            Statement::Query(_)
            | Statement::ShowTables { .. }
            | Statement::ShowColumns { .. }
            | Statement::ExplainTable { .. } => Ok(()),
            Statement::Explain { statement: inner, .. } => only_reads(&Parsed::Statement(inner.clone())),
            other => refused(first_words(&other.to_string())),
        },
    }
}

/// `CREATE TABLE`, `DROP VIEW`, `SET`: the words in capitals that a statement begins with.
fn first_words(statement: &str) -> String {
    let is_keyword = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let words: Vec<&str> = statement.split_whitespace().take_while(is_keyword).take(3).collect();
    if words.is_empty() { "this statement".to_owned() } else { words.join(" ") }
}
