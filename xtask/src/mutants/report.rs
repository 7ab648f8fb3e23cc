//! The report on the mutants: a table, totals, JSON.
//!
//! O1  caught + survived + not reached + excused = drawn. The share is caught of drawn without the excused.
//! O2  An excuse names file, text of the line and change, and argues why nothing can tell the two apart.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::judge::Verdict;

/// One mutant and its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub number: u32,
    pub file: String,
    pub line: usize,
    pub what: String,
    /// The line, without its indent.
    pub code: String,
    /// caught, survived, not reached, equivalent, gone.
    pub verdict: String,
    /// The test, how it ended, or the reason.
    pub by: String,
}

impl Row {
    pub fn say(&mut self, verdict: &Verdict) {
        (self.verdict, self.by) = match verdict {
            Verdict::Caught { by, how: "failed" } => ("caught".into(), by.clone()),
            Verdict::Caught { by, how } => ("caught".into(), format!("{by} ({how})")),
            Verdict::Survived { tests } => ("survived".into(), format!("{tests} tests reach it")),
            Verdict::NotReached => ("not reached".into(), String::new()),
        };
    }

    pub fn lives(&self) -> bool {
        self.verdict == "survived" || self.verdict == "not reached"
    }

    /// Reports whether both are the same change of the same text.
    pub fn same(&self, other: &Row) -> bool {
        (self.number, &self.file, &self.what, &self.code)
            == (other.number, &other.file, &other.what, &other.code)
    }
}

/// The results of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub crates: String,
    pub seed: u64,
    pub commit: String,
    /// The number of places that could have been drawn.
    pub points: usize,
    pub drawn: usize,
    /// The number of draws that did not compile, and were replaced.
    pub dropped: usize,
    pub caught: usize,
    pub caught_by_limit: usize,
    pub survived: usize,
    pub not_reached: usize,
    pub equivalent: usize,
    pub caught_percent: f64,
    pub tests_failing_without: Vec<String>,
    pub tests_left_out: Vec<String>,
    pub mutants: Vec<Row>,
}

impl Outcome {
    /// Counts the rows anew.
    pub fn count(&mut self) {
        let of = |verdict: &str| {
            self.mutants
                .iter()
                .filter(|row| row.verdict == verdict)
                .count()
        };
        self.drawn = self.mutants.len();
        (self.caught, self.survived) = (of("caught"), of("survived"));
        (self.not_reached, self.equivalent) = (of("not reached"), of("equivalent"));
        let limit = |row: &&Row| row.verdict == "caught" && row.by.ends_with(')');
        self.caught_by_limit = self.mutants.iter().filter(limit).count();
        let judged = self.caught + self.survived + self.not_reached;
        self.caught_percent = match judged {
            0 => 0.0,
            judged => 100.0 * self.caught as f64 / judged as f64,
        };
    }

    /// Renders the table and the totals, for a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for row in &self.mutants {
            let place = format!("{}:{}", row.file, row.line);
            out += &format!(
                "{:>4}  {:<11}  {place}  {}  `{}`",
                row.number, row.verdict, row.what, row.code
            );
            if !row.by.is_empty() {
                out += &format!("  ◄ {}", row.by);
            }
            out.push('\n');
        }
        let Outcome {
            crates,
            seed,
            commit,
            points,
            drawn,
            dropped,
            caught,
            ..
        } = self;
        out += &format!(
            "{crates}: {drawn} mutants of {points} points, seed {seed}, commit {commit} ({dropped} draws did not compile)\n\
             caught {caught} ({} of them by a limit), survived {}, not reached {}, equivalent {}: {:.1} % caught\n",
            self.caught_by_limit,
            self.survived,
            self.not_reached,
            self.equivalent,
            self.caught_percent
        );
        let (failing, long) = (&self.tests_failing_without, &self.tests_left_out);
        if !failing.is_empty() {
            out += &format!(
                "failing without a mutant, so not asked: {}\n",
                failing.join(", ")
            );
        }
        if !long.is_empty() {
            out += &format!("too long, so not asked: {}\n", long.join(", "));
        }
        out
    }

    /// Writes the JSON.
    ///
    /// # Errors
    /// The system's error, with the file.
    pub fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(file, text + "\n")
            .with_context(|| format!("{}: cannot be written", file.display()))
    }
}

/// A mutant that nothing can distinguish from the original, and the reason.
#[derive(Debug, Deserialize)]
pub struct Excuse {
    pub file: String,
    pub code: String,
    pub what: String,
    pub reason: String,
}

#[derive(Debug, Deserialize)]
struct Excuses {
    #[serde(default)]
    equivalent: Vec<Excuse>,
}

/// Parses the excuses of `equivalent.toml`.
///
/// # Errors
/// If the file does not have the right form.
pub fn excuses(text: &str) -> Result<Vec<Excuse>> {
    let all: Excuses = toml::from_str(text).context("equivalent.toml")?;
    Ok(all.equivalent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_and_excuses_leave_the_share() {
        let row = |number, verdict: &str, by: &str| Row {
            number,
            file: "a.rs".into(),
            line: 1,
            what: "x".into(),
            code: "y".into(),
            verdict: verdict.into(),
            by: by.into(),
        };
        let mut outcome = Outcome {
            crates: "a".into(),
            seed: 1,
            commit: "c".into(),
            points: 9,
            drawn: 0,
            dropped: 2,
            caught: 0,
            caught_by_limit: 0,
            survived: 0,
            not_reached: 0,
            equivalent: 0,
            caught_percent: 0.0,
            tests_failing_without: Vec::new(),
            tests_left_out: Vec::new(),
            mutants: vec![
                row(0, "caught", "t"),
                row(1, "caught", "t (processor time)"),
                row(2, "survived", "3 tests reach it"),
                row(3, "not reached", ""),
                row(4, "equivalent", "reason"),
            ],
        };
        outcome.count();
        let counts = (
            outcome.drawn,
            outcome.caught,
            outcome.caught_by_limit,
            outcome.survived,
        );
        assert_eq!(counts, (5, 2, 1, 1));
        assert_eq!((outcome.not_reached, outcome.equivalent), (1, 1));
        assert!((outcome.caught_percent - 50.0).abs() < 1e-9);
        assert!(outcome.table().contains("50.0 % caught"));
    }

    /// Checks that each excuse, which is found by its line's text, means exactly one line, and one that exists.
    #[test]
    fn the_committed_excuses_can_be_read_and_argue_about_one_line_each() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for excuse in excuses(include_str!("equivalent.toml")).unwrap() {
            assert!(excuse.reason.len() > 40, "{}: argue", excuse.code);
            let source = std::fs::read_to_string(root.join(&excuse.file)).unwrap();
            let lines = source.lines().filter(|line| line.trim() == excuse.code);
            assert_eq!(lines.count(), 1, "{}: {}", excuse.file, excuse.code);
        }
    }
}
