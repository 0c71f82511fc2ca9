//! The SQL of contracts, as far as it can be judged without planning: it parses, and rules name columns that exist.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, Statement, visit_expressions};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::schema::{Body, ChangeSource, Contract, Diagnostic, OP, Rule, suggest};

/// Everything wrong with a contract's SQL.
pub(super) fn check(contract: &Contract) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (index, rule) in contract.rules.iter().enumerate().filter(|(_, rule)| !rule.check.is_empty()) {
        check_rule(contract, rule, &format!("rules[{index}].check"), &mut found);
    }
    if let Some(derivation) = contract.derivation() {
        if let Body::Sql(sql) = &derivation.body
            && contract.positions.at("sql").is_some()
        {
            check_query(contract, "sql", sql, &mut found);
        }
        for (input, sql) in &derivation.touched {
            check_query(contract, &format!("touched.{input}"), sql, &mut found);
        }
    }
    found
}

fn check_query(contract: &Contract, path: &str, sql: &str, found: &mut Vec<Diagnostic>) {
    let statements = match Parser::parse_sql(&GenericDialect {}, sql) {
        Ok(statements) => statements,
        Err(error) => {
            found.push(syntax(contract, path, sql, &error));
            return;
        }
    };
    match statements.as_slice() {
        [Statement::Query(_)] => {}
        [] => {
            found.push(contract.diagnose(path, "the SQL is empty").help("write a query such as `select * from input`"))
        }
        [_] => found.push(
            contract
                .diagnose(path, "the SQL is no query")
                .help("a transform is one `select`: it reads and changes nothing"),
        ),
        [_, ..] => {
            found.push(contract.diagnose(path, "the SQL holds several statements").help("a transform is one `select`"))
        }
    }
}

// The parser gives the place in its words: ` at Line: 1, Column: 9`.
fn syntax(contract: &Contract, path: &str, sql: &str, error: &ParserError) -> Diagnostic {
    let words = match error {
        ParserError::TokenizerError(words) | ParserError::ParserError(words) => words.as_str(),
        ParserError::RecursionLimitExceeded => "it nests too deeply",
    };
    let (words, place) = words.split_once(" at Line: ").map_or((words, None), |(words, place)| {
        let numbers = place.split_once(", Column: ");
        (
            words,
            numbers
                .and_then(|(line, column)| Some((line.parse::<usize>().ok()?, column.trim().parse::<usize>().ok()?))),
        )
    });
    let diagnostic = contract.diagnose(path, format!("the SQL does not parse: {}", lower_first(words)));
    let Some((line, column)) = place else {
        let at_end = words.ends_with("found: EOF");
        return if at_end { moved(diagnostic, contract, path, sql, usize::MAX) } else { diagnostic };
    };
    let before: usize = sql.split_inclusive('\n').take(line.saturating_sub(1)).map(|line| line.chars().count()).sum();
    moved(diagnostic, contract, path, sql, before + column.saturating_sub(1))
}

// The diagnostic at a place inside the text of its value.
fn moved(mut diagnostic: Diagnostic, contract: &Contract, path: &str, text: &str, offset: usize) -> Diagnostic {
    let at = contract.positions.within(path, text, offset);
    (diagnostic.line, diagnostic.column) = (at.line, at.column);
    diagnostic.in_source(contract.positions.source())
}

fn lower_first(words: &str) -> String {
    let words = words.trim_start_matches("sql parser error: ");
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

// Functions whose answer is another one on another day.
const CHANGING: [&str; 8] =
    ["now", "current_timestamp", "current_date", "current_time", "today", "random", "uuid", "localtimestamp"];

fn check_rule(contract: &Contract, rule: &Rule, path: &str, found: &mut Vec<Diagnostic>) {
    let expression = match parse_condition(&rule.check) {
        Ok(expression) => expression,
        Err(error) => {
            found.push(syntax(contract, path, &rule.check, &error));
            return;
        }
    };
    let mut names = 0_usize;
    let mut told = HashSet::new();
    let _ = visit_expressions(&expression, |part| {
        match part {
            Expr::Identifier(name) => {
                names += 1;
                if told.insert(name.value.clone()) {
                    found.extend(unknown(contract, rule, path, name, false));
                }
            }
            Expr::CompoundIdentifier(parts) => {
                names += 1;
                if told.insert(part.to_string()) {
                    found.extend(unknown_compound(contract, rule, path, parts));
                }
            }
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                found.push(
                    contract
                        .diagnose(path, "a rule cannot read other tables")
                        .help("a rule judges one record by its own values"),
                );
                return ControlFlow::Break(());
            }
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                if CHANGING.contains(&name.as_str()) {
                    found.push(
                        contract
                            .diagnose(path, format!("`{name}` gives another answer later: the same file could then be judged differently"))
                            .help("compare with a value of the record or a constant")
                            .into_warning(),
                    );
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    if names == 0 && found.iter().all(|diagnostic| !diagnostic.message.starts_with("a rule cannot read")) {
        let message = format!("rule `{}` names no column", rule.name);
        found.push(contract.diagnose(path, message).help("a condition on a record, such as `fare >= 0`"));
    }
}

fn parse_condition(text: &str) -> Result<Expr, ParserError> {
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text)?;
    let expression = parser.parse_expr()?;
    let rest = parser.peek_token();
    if rest.token == Token::EOF {
        return Ok(expression);
    }
    parser.expected("the end of the condition", rest)
}

fn unknown(contract: &Contract, rule: &Rule, path: &str, name: &Ident, is_raw: bool) -> Option<Diagnostic> {
    let is_op = contract.changes().is_some() && !is_raw && name.value.eq_ignore_ascii_case(OP);
    if is_column(contract, name) || is_op {
        return None;
    }
    let offset = usize::try_from(name.span.start.column).unwrap_or(1).saturating_sub(1);
    let columns = contract.columns.iter().map(|column| column.name.as_str());
    let prefix = if is_raw { "raw." } else { "" };
    let help = match suggest::nearest(&name.value, columns.clone()) {
        Some(near) => format!("did you mean `{prefix}{near}`?"),
        None if name.quote_style == Some('"') => format!("a text is written '{}', in single quotes", name.value),
        None => format!("columns are {}", columns.collect::<Vec<_>>().join(", ")),
    };
    let message = format!("rule `{}` names unknown column `{prefix}{}`", rule.name, name.value);
    Some(moved(contract.diagnose(path, message).help(help), contract, path, &rule.check, offset))
}

// `raw.<column>`, or a field of a struct column.
fn unknown_compound(contract: &Contract, rule: &Rule, path: &str, parts: &[Ident]) -> Option<Diagnostic> {
    let [first, second, ..] = parts else { return None };
    if is_column(contract, first) {
        return None;
    }
    if let Some(source) = contract.changes().filter(|_| first.value.eq_ignore_ascii_case("source")) {
        return unknown_field(contract, source, rule, path, second);
    }
    if first.value.eq_ignore_ascii_case("raw") {
        return unknown(contract, rule, path, second, true);
    }
    unknown(contract, rule, path, first, false)
}

// A field of the event itself.
fn unknown_field(
    contract: &Contract,
    source: &ChangeSource,
    rule: &Rule,
    path: &str,
    name: &Ident,
) -> Option<Diagnostic> {
    let wanted = format!("source.{}", name.value);
    let variables = source.variables();
    if variables.iter().any(|variable| variable.eq_ignore_ascii_case(&wanted)) {
        return None;
    }
    let offset = usize::try_from(name.span.start.column).unwrap_or(1).saturating_sub(1);
    let known: Vec<&str> = variables.iter().map(String::as_str).filter(|name| *name != OP).collect();
    let message = format!("rule `{}` names unknown field `{wanted}`", rule.name);
    let help = suggest::did_you_mean_or_list(&wanted, &known);
    Some(moved(contract.diagnose(path, message).help(help), contract, path, &rule.check, offset))
}

// As SQL sees names: exact in quotes, else without case.
fn is_column(contract: &Contract, name: &Ident) -> bool {
    contract.columns.iter().any(|column| {
        if name.quote_style.is_some() {
            column.name == name.value
        } else {
            column.name.to_lowercase() == name.value.to_lowercase()
        }
    })
}
