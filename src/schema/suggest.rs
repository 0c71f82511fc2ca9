//! Did-you-mean: the nearest of the words that would have been right.

/// The candidate that was probably meant, if one is near enough to be worth saying.
#[must_use]
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold(text);
    let budget = (wanted.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= budget && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// "did you mean `x`?" for the nearest candidate.
#[must_use]
pub fn did_you_mean<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(text, candidates).map(|word| format!("did you mean `{word}`?"))
}

/// The same for a name in SQL, where a name with capitals is written in double quotes.
#[must_use]
pub fn did_you_mean_in_sql<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(text, candidates).map(|word| match word.contains(char::is_uppercase) {
        true => format!("did you mean `\"{word}\"`? Without double quotes SQL reads names in lower case"),
        false => format!("did you mean `{word}`?"),
    })
}

/// Did-you-mean when something is near, else the whole list: for words of which there are few.
#[must_use]
pub fn did_you_mean_or_list(text: &str, candidates: &[&str]) -> String {
    did_you_mean(text, candidates.iter().copied()).unwrap_or_else(|| format!("expected {}", one_of(candidates)))
}

/// `a, b or c` in backquotes.
#[must_use]
pub fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [firsts @ .., last] => format!("{} or {last}", firsts.join(", ")),
    }
}

// Case, `-` and blanks are what people get wrong without a thought: they cost nothing.
fn fold(text: &str) -> String {
    text.trim().to_lowercase().replace(['-', ' '], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let words = ["write_mode", "on_overwrite", "columns", "sql"];
        for (text, expected) in [
            ("write-mode", Some("write_mode")),
            ("WriteMode", Some("write_mode")),
            ("colums", Some("columns")),
            ("column", Some("columns")),
            ("qsl", Some("sql")),
            ("ab", None),
            ("x", None),
            ("", None),
            ("something_else", None),
        ] {
            assert_eq!(nearest(text, words), expected, "{text}");
        }
    }

    #[test]
    fn lists_read_like_prose() {
        assert_eq!(one_of(&["a"]), "`a`");
        assert_eq!(one_of(&["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(did_you_mean_or_list("zzz", &["first", "last"]), "expected `first` or `last`");
    }
}
