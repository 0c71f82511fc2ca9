//! Texts -> the narrowest type that takes them all. A guess counts only if the real cast takes every text.

use crate::cast::ColumnCaster;
use crate::schema::{Column, ColumnType};

/// Texts that often stand for null. A text column keeps them: `NA` may be Namibia.
const NULL_TOKENS: [&str; 12] = ["NA", "N/A", "n/a", "NULL", "null", "Null", "None", "none", "NaN", "nan", "\\N", "-"];

/// Patterns beside ISO 8601, with the type that they mean.
const PATTERNS: [(&str, ColumnType); 12] = [
    ("%Y/%m/%d", ColumnType::Date),
    ("%d.%m.%Y", ColumnType::Date),
    ("%d/%m/%Y", ColumnType::Date),
    ("%m/%d/%Y", ColumnType::Date),
    ("%d-%m-%Y", ColumnType::Date),
    ("%m-%d-%Y", ColumnType::Date),
    ("%Y/%m/%d %H:%M:%S", ColumnType::TimestampNtz),
    ("%d.%m.%Y %H:%M:%S", ColumnType::TimestampNtz),
    ("%d/%m/%Y %H:%M:%S", ColumnType::TimestampNtz),
    ("%m/%d/%Y %H:%M:%S", ColumnType::TimestampNtz),
    ("%d/%m/%Y %H:%M", ColumnType::TimestampNtz),
    ("%m/%d/%Y %H:%M", ColumnType::TimestampNtz),
];

/// A column and what a person should know about it.
#[derive(Debug, Clone)]
pub(super) struct Proposal {
    pub column: Column,
    pub notes: Vec<String>,
}

impl Proposal {
    pub(super) fn new(name: &str, data_type: ColumnType) -> Self {
        Self { column: Column::new(name, data_type), notes: Vec::new() }
    }
}

/// Proposes a column for texts. Empty ones are null.
pub(super) fn of_texts<'t>(name: &str, texts: impl Iterator<Item = &'t str>) -> Proposal {
    let mut is_nullable = false;
    let mut tokens: Vec<&str> = Vec::new();
    let mut values: Vec<&str> = Vec::new();
    let mut with_tokens: Vec<&str> = Vec::new();
    for text in texts {
        let bare = text.trim_matches([' ', '\t']);
        if bare.is_empty() {
            is_nullable = true;
            continue;
        }
        with_tokens.push(text);
        match NULL_TOKENS.iter().find(|token| **token == bare) {
            Some(token) if !tokens.contains(token) => tokens.push(token),
            Some(_) => {}
            None => values.push(text),
        }
    }
    if with_tokens.is_empty() {
        let mut proposal = Proposal::new(name, ColumnType::String);
        proposal.notes.push("always empty in the sample".to_owned());
        return proposal;
    }
    let mut proposal = narrowest(name, &with_tokens);
    if proposal.column.data_type == ColumnType::String && !tokens.is_empty() && !values.is_empty() {
        let without = narrowest(name, &values);
        if without.column.data_type == ColumnType::String {
            proposal
                .notes
                .push(format!("kept as text: {}; list it in null_values if it means null", tokens.join(", ")));
        } else {
            proposal = without;
            proposal.column.null_values =
                Some(std::iter::once("").chain(tokens.iter().copied()).map(str::to_owned).collect());
            is_nullable = true;
        }
    }
    proposal.column.nullable = is_nullable;
    proposal
}

fn narrowest(name: &str, values: &[&str]) -> Proposal {
    let of = |data_type: ColumnType| Proposal::new(name, data_type);
    let bare: Vec<&str> = values.iter().map(|value| value.trim_matches([' ', '\t'])).collect();
    if let Some(number) = number(name, &bare) {
        return number;
    }
    let is_boolean = |text: &&str| text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false");
    if bare.iter().all(is_boolean) {
        return of(ColumnType::Boolean);
    }
    if let Some(time) = time(name, &bare) {
        return time;
    }
    let mut proposal = of(ColumnType::String);
    if bare.iter().all(|text| is_digits(text)) {
        proposal.notes.push("text, because leading zeros would be lost".to_owned());
    }
    proposal
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Sign, digits before and after the point, exponent or not.
fn parts(text: &str, point: char) -> Option<(usize, usize, bool)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    if exponent.is_some_and(|exponent| !is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))) {
        return None;
    }
    let (whole, fraction) = match mantissa.split_once(point) {
        Some((whole, fraction)) if is_digits(fraction) => (whole, fraction.len()),
        Some(_) => return None,
        None => (mantissa, 0),
    };
    // 007 and 00501 are names of things.
    if !is_digits(whole) || (whole.len() > 1 && whole.starts_with('0')) {
        return None;
    }
    Some((whole.len(), fraction, exponent.is_some()))
}

fn number(name: &str, values: &[&str]) -> Option<Proposal> {
    let not_finite = |text: &&str| matches!(*text, "NaN" | "inf" | "-inf" | "Infinity" | "-Infinity");
    let finite: Vec<&str> = values.iter().copied().filter(|text| !not_finite(text)).collect();
    if finite.is_empty() {
        return None;
    }
    let all: Option<Vec<_>> = finite.iter().map(|text| parts(text, '.')).collect();
    let Some(all) = all else { return decimal_comma(name, values) };
    let (whole, scale) = widest(&all);
    let has_exponent = all.iter().any(|(.., exponent)| *exponent);
    let has_not_finite = finite.len() < values.len();
    let mut candidates = Vec::new();
    if scale == 0 && !has_exponent && !has_not_finite {
        candidates.extend([ColumnType::Int64, ColumnType::Decimal(38, 0)]);
    } else if !has_exponent && !has_not_finite && is_fixed(&all, scale) {
        candidates.extend(decimal(whole, scale));
    }
    if scale > 0 || has_exponent || has_not_finite {
        candidates.push(ColumnType::Float64);
    }
    candidates.into_iter().map(|data_type| Proposal::new(name, data_type)).find(|proposal| takes(proposal, values))
}

/// Amounts of money are written with the same number of digits throughout; measurements are not.
fn is_fixed(all: &[(usize, usize, bool)], scale: usize) -> bool {
    (2..=4).contains(&scale) && all.iter().all(|(_, fraction, _)| *fraction == scale)
}

fn widest(all: &[(usize, usize, bool)]) -> (usize, usize) {
    all.iter().fold((1, 0), |(whole, scale), (digits, fraction, _)| (whole.max(*digits), scale.max(*fraction)))
}

/// A decimal with room for two more digits than were seen.
fn decimal(whole: usize, scale: usize) -> Option<ColumnType> {
    let precision = (whole + scale + 2).max(10);
    let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    (precision <= 38).then_some(ColumnType::Decimal(precision, scale))
}

fn decimal_comma(name: &str, values: &[&str]) -> Option<Proposal> {
    let is_grouped = values.iter().any(|value| value.contains('.'));
    let plain: Vec<String> = values.iter().map(|value| value.replace('.', "")).collect();
    let all: Vec<_> = plain.iter().map(|text| parts(text, ',')).collect::<Option<_>>()?;
    if all.iter().all(|(_, fraction, exponent)| *fraction == 0 || *exponent) {
        return None;
    }
    let (whole, scale) = widest(&all);
    let mut proposal = Proposal::new(name, decimal(whole, scale)?);
    proposal.column.decimal_separator = b',';
    proposal.column.group_separator = is_grouped.then_some('.');
    takes(&proposal, values).then_some(proposal)
}

fn time(name: &str, values: &[&str]) -> Option<Proposal> {
    if values.iter().all(|text| text.len() == 10 && text.as_bytes()[4] == b'-') {
        let proposal = Proposal::new(name, ColumnType::Date);
        return takes(&proposal, values).then_some(proposal);
    }
    if values.iter().all(|text| text.len() > 10 && matches!(text.as_bytes()[10], b'T' | b' ')) {
        for data_type in [ColumnType::TimestampNtz, ColumnType::Timestamp] {
            let mut proposal = Proposal::new(name, data_type);
            if takes(&proposal, values) {
                if proposal.column.data_type == ColumnType::TimestampNtz {
                    proposal
                        .notes
                        .push("without a zone; declare timezone and type timestamp if it is an instant".to_owned());
                }
                return Some(proposal);
            }
        }
    }
    let mut fitting = PATTERNS.iter().filter_map(|(pattern, data_type)| {
        let mut proposal = Proposal::new(name, data_type.clone());
        proposal.column.formats = vec![(*pattern).to_owned()];
        takes(&proposal, values).then_some(proposal)
    });
    let first = fitting.next()?;
    let Some(second) = fitting.next() else { return Some(first) };
    let mut proposal = Proposal::new(name, ColumnType::String);
    proposal.notes.push(format!(
        "text, because {} and {} both fit: declare the right one as format",
        first.column.formats.join(""),
        second.column.formats.join("")
    ));
    Some(proposal)
}

/// Whether the real cast takes every text.
pub(super) fn takes(proposal: &Proposal, values: &[&str]) -> bool {
    let Ok(caster) = ColumnCaster::new(&proposal.column, &[]) else { return false };
    let mut sink = caster.begin(values.len());
    values.iter().all(|value| sink.push_text(value.as_bytes(), false).is_ok())
}
