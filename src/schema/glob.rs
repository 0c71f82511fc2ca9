//! Globs of landing paths: `*` stays in one folder, `**` crosses folders and matches none too.

use globset::{Glob, GlobBuilder};

/// Compiles a glob.
///
/// # Errors
/// What is wrong with it, in words.
pub fn compile(pattern: &str) -> Result<Glob, String> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(false)
        .build()
        .map_err(|error| format!("`{pattern}` is no glob: {}", error.kind()))
}

/// Compiles a topic's name in which `*` stands for any characters.
///
/// # Errors
/// What is wrong with it, in words.
pub fn compile_topic(pattern: &str) -> Result<Glob, String> {
    Glob::new(pattern).map_err(|error| format!("`{pattern}` is no topic: {}", error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_as_documented() {
        for (pattern, path, expected) in [
            ("trips/**/*.csv*", "trips/a.csv", true),
            ("trips/**/*.csv*", "trips/2024/01/a.csv.gz", true),
            ("trips/**/*.csv*", "trips_small/a.csv", false),
            ("trips/**/*.csv*", "trips/a.json", false),
            ("trips/*.csv", "trips/2024/a.csv", false),
            ("**/*.csv", "a.csv", true),
            ("trips/**", "trips/x/y.z", true),
            ("{a,b}/*.csv", "b/x.csv", true),
            ("t/[0-9]*.csv", "t/2024.csv", true),
            ("t/*.csv", "t/a b,c'd.csv", true),
        ] {
            let matcher = compile(pattern).expect(pattern).compile_matcher();
            assert_eq!(matcher.is_match(path), expected, "{pattern} {path}");
        }
        assert!(compile("t/[a.csv").is_err());
        for (pattern, topic, expected) in [
            ("lake.public.orders", "lake.public.orders", true),
            ("lake.public.*", "lake.public.order_items", true),
            ("lake.public.*", "lake-public.orders", false),
            ("*", "__debezium-heartbeat.lake", true),
            ("lake*", "lake.transaction", true),
            ("lake", "lake.transaction", false),
        ] {
            assert_eq!(
                compile_topic(pattern).expect(pattern).compile_matcher().is_match(topic),
                expected,
                "{pattern} {topic}"
            );
        }
    }
}
