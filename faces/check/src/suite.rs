//! Budgets of a suite: of tests by their names, out of `skinflint.toml` or `[package.metadata.skinflint]`.
//!
//! ```toml
//!   [test."*"]                            # each test
//!   peak-live = "1 MiB"
//!   [test."cache::*"]                     # of two names that match, the longer
//!   peak-live = "8 MiB"
//!   stack = { "load_*" = "4 MiB" }
//!   [test."test_cache::loads"]            # of one of several targets that have a test called loads
//! ```
//!
//! E1  Figure by figure the name without a `*` counts, else the longest pattern; of two of a length the one that comes first
//!     in the alphabet.
//! E2  An error names the file, the line and the next step; a key that is not known is an error.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Spanned, Value};

use crate::budget::Budget;
use crate::file;
use crate::pattern::matches;

/// The budgets of tests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Suite {
    /// Patterns and their budgets, those that count first.
    tests: Vec<(String, Vec<Budget>)>,
}

type Tests = BTreeMap<String, BTreeMap<Spanned<String>, Spanned<Value>>>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    test: Tests,
}

/// Of a `Cargo.toml` only what is ours.
#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Manifest {
    package: Package,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Package {
    metadata: Metadata,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Metadata {
    skinflint: Option<Raw>,
}

impl Suite {
    /// Reads a file of budgets.
    ///
    /// # Errors
    /// File, line, and what to write there.
    pub fn read(text: &str, path: &Path) -> Result<Suite, String> {
        let raw: Raw = toml::from_str(text).map_err(|error| told(text, path, &error))?;
        Suite::of(raw, text, path)
    }

    /// Reads `[package.metadata.skinflint]` of a manifest; `None` if it has none.
    ///
    /// # Errors
    /// File, line, and what to write there.
    pub fn of_manifest(text: &str, path: &Path) -> Result<Option<Suite>, String> {
        let manifest: Manifest = toml::from_str(text).map_err(|error| told(text, path, &error))?;
        let raw = manifest.package.metadata.skinflint;
        raw.map(|raw| Suite::of(raw, text, path)).transpose()
    }

    fn of(raw: Raw, text: &str, path: &Path) -> Result<Suite, String> {
        let mut tests = Vec::new();
        for (name, figures) in raw.test {
            tests.push((name, file::budgets(figures, text, path)?));
        }
        tests.sort_by(|(a, _): &(String, _), (b, _)| {
            let rank = |name: &String| (name.contains('*'), std::cmp::Reverse(name.len()));
            rank(a).cmp(&rank(b)).then_with(|| a.cmp(b))
        });
        Ok(Suite { tests })
    }

    /// Returns the budgets of a test (E1): by its name, or that with the target's before it.
    pub fn budgets(&self, target: &str, test: &str) -> Vec<Budget> {
        let mut found: Vec<Budget> = Vec::new();
        let is_meant = |(name, _): &&(String, Vec<Budget>)| is_of(name, target, test);
        for (_, budgets) in self.tests.iter().filter(is_meant) {
            let is_new = |one: &&Budget| found.iter().all(|had| had.kind != one.kind);
            let fresh: Vec<Budget> = budgets.iter().filter(is_new).cloned().collect();
            found.extend(fresh);
        }
        found
    }

    /// Returns a budget that is of a baseline, if there is one.
    pub fn relative(&self) -> Option<&Budget> {
        let all = self.tests.iter().flat_map(|(_, budgets)| budgets);
        all.into_iter().find(|one| one.limit.is_relative())
    }

    /// Returns the names and patterns that none of these tests has, each with its target: a misspelt one would be held for
    /// ever.
    pub fn unknown(&self, tests: &[(String, String)]) -> Vec<&str> {
        let names = self.tests.iter().map(|(name, _)| &name[..]);
        names
            .filter(|name| !tests.iter().any(|(target, test)| is_of(name, target, test)))
            .collect()
    }
}

/// Reports whether a name or pattern is a test's.
fn is_of(name: &str, target: &str, test: &str) -> bool {
    let whole = format!("{target}::{test}");
    match name.contains('*') {
        true => matches(name, test) || matches(name, &whole),
        false => name == test || name == whole,
    }
}

fn told(text: &str, path: &Path, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start);
    format!(
        "{}:{}: {}; docs/check.md shows a file for a suite of tests",
        path.display(),
        1 + text[..at.min(text.len())].matches('\n').count(),
        error.message()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[test.\"*\"]\npeak-live = \"1 MiB\"\nallocations = 9\n[test.\"cache::*\"]\npeak-live = 7\n\
                        [test.\"cache::load\"]\npeak-live = 8\nstack = { a = 1 }\n";

    fn told(suite: &Suite, test: &str) -> Vec<String> {
        let all = suite.budgets("t", test).into_iter();
        all.map(|one| format!("{} {} {}", one.kind, one.limit, one.said_by))
            .collect()
    }

    #[test]
    fn the_longest_name_that_matches_counts() {
        let suite = Suite::read(TEXT, Path::new("s.toml")).unwrap();
        assert_eq!(
            told(&suite, "cache::load"),
            [
                "peak-live 8 s.toml:7",
                "stack a 1 s.toml:8",
                "allocations 9 s.toml:3"
            ]
        );
        assert_eq!(
            told(&suite, "cache::lose"),
            ["peak-live 7 s.toml:5", "allocations 9 s.toml:3"]
        );
        assert_eq!(
            told(&suite, "x"),
            ["peak-live 1048576 s.toml:2", "allocations 9 s.toml:3"]
        );
    }

    #[test]
    fn a_manifest_may_have_them() {
        let text =
            "[package]\nname = \"a\"\n[package.metadata.skinflint.test.\"*\"]\npeak-live = 5\n";
        let suite = Suite::of_manifest(text, Path::new("Cargo.toml"))
            .unwrap()
            .unwrap();
        assert_eq!(told(&suite, "x"), ["peak-live 5 Cargo.toml:4"]);
        let none = Suite::of_manifest("[workspace]\n", Path::new("Cargo.toml")).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let why = |text: &str| Suite::read(text, Path::new("s.toml")).unwrap_err();
        assert!(why("[budget]\npeak-live = 3\n").starts_with("s.toml:1: "));
        let said = why("[test.a]\n\npeak-life = 3\n");
        assert!(
            said.starts_with("s.toml:3: ") && said.contains("peak-live"),
            "{said}"
        );
    }

    #[test]
    fn names_of_no_test_are_known() {
        let suite = Suite::read(TEXT, Path::new("s.toml")).unwrap();
        let of = |test: &str| [("t".to_owned(), test.to_owned())];
        assert_eq!(suite.unknown(&of("cache::lose")), ["cache::load"]);
        assert_eq!(suite.unknown(&of("x")), ["cache::load", "cache::*"]);
    }

    #[test]
    fn a_target_tells_tests_of_one_name_apart() {
        let text = "[test.\"a::new\"]\nallocations = 1\n[test.new]\nallocations = 2\n";
        let suite = Suite::read(text, Path::new("s.toml")).unwrap();
        let told = |target: &str| suite.budgets(target, "new")[0].limit.to_string();
        assert_eq!((told("a"), told("b")), ("1".into(), "2".into()));
    }
}
