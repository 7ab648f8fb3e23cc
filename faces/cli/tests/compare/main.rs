//! `skinflint compare` as a whole: programs and traces whose memory is known beforehand, under allocators that do well
//! and under some that do not.
//!
//! ```text
//!   tests/compare: steps, family, serve, still      libbump, libcrash, libhang, librefuse, libnone
//!          └────────────────► skinflint compare --json - ◄────────────┘ ─► the figures that were predicted
//! ```
//!
//! K1  Each figure that is asserted follows from the program's source, with the room that pages and start-up need.
//! K2  Whatever goes wrong under one allocator leaves the others' figures as they are.
//! K3  Every wait has a bound; nothing that was started is left.
//!
//! Not here: statistics, words and pictures (the crate's own tests); the replayer's own (lab/replay).

// Shared with the tests of the whole tool, and not all of it is needed here.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

mod failures;
mod figures;
mod use_of_it;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use skinflint_test_support::artifact;
use tool::{Bench, Done};

/// The longest that a comparison may take, on a machine that is also busy with other work.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A mebibyte.
pub const MIB: f64 = 1_048_576.0;

/// Returns a program or library of tests/compare, which is built by now.
pub fn made(name: &str) -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let folder = MADE.get_or_init(|| tool::made("tests/compare", "compare-programs"));
    folder.join(name)
}

/// Returns the library that counts calls, which is built by now.
fn probe() -> &'static Path {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE.get_or_init(|| artifact::released("skinflint-probe-so"))
}

/// Returns the replayer, which is built by now.
fn replayer() -> &'static Path {
    static REPLAYER: OnceLock<PathBuf> = OnceLock::new();
    REPLAYER.get_or_init(|| artifact::released("skinflint-replay"))
}

/// Returns the command `skinflint compare ARGUMENTS`, quiet, with everything that it needs.
pub fn command(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = bench.skinflint(["compare"]);
    command
        .args(arguments)
        .env("SKINFLINT_ALLOCATOR", tool::allocator())
        .env("SKINFLINT_PROBE_LIBRARY", probe())
        .env("SKINFLINT_REPLAYER", replayer())
        .env("SKINFLINT_PEERS", "/nonexistent/peers.json");
    command
}

/// Runs the comparison.
pub fn compare(bench: &Bench, arguments: &[&str]) -> Done {
    tool::run_within(command(bench, arguments), b"", PATIENCE)
}

/// Runs the comparison for its JSON.
#[track_caller]
pub fn compared(bench: &Bench, arguments: &[&str]) -> Comparison {
    let mut all = vec!["--quiet", "--json", "-"];
    all.extend(arguments);
    let done = compare(bench, &all);
    let code = done.status.code().expect("an exit status");
    assert!(code < 2, "{done:#?}");
    Comparison {
        json: serde_json::from_str(&done.stdout).expect("only JSON on stdout"),
        text: done.stderr,
        code,
    }
}

/// The output of a comparison.
pub struct Comparison {
    /// Its JSON.
    pub json: Value,
    /// Its text.
    pub text: String,
    /// Its exit status.
    pub code: i32,
}

impl Comparison {
    /// Returns a column of the first program.
    #[track_caller]
    pub fn column(&self, allocator: &str) -> &Value {
        let columns = self.json["programs"][0]["columns"]
            .as_array()
            .expect("columns");
        let mut found = columns.iter().filter(|c| c["allocator"] == allocator);
        found
            .next()
            .unwrap_or_else(|| panic!("no {allocator} in {}", self.text))
    }

    /// Returns the verdict of a column.
    #[track_caller]
    pub fn verdict(&self, allocator: &str) -> &str {
        self.column(allocator)["verdict"]["is"]
            .as_str()
            .expect("a verdict")
    }

    /// Returns the median of a figure.
    #[track_caller]
    pub fn figure(&self, allocator: &str, measure: &str) -> f64 {
        let cells = self.column(allocator)["cells"].as_array().expect("cells");
        let cell = cells.iter().find(|cell| cell["measure"] == measure);
        let median = cell.and_then(|cell| cell["median"].as_f64());
        median.unwrap_or_else(|| panic!("no {measure} of {allocator} in {}", self.text))
    }

    /// Checks that a figure lies between two others.
    #[track_caller]
    pub fn between(&self, allocator: &str, measure: &str, least: f64, most: f64) {
        let found = self.figure(allocator, measure);
        assert!(
            (least..=most).contains(&found),
            "{allocator}, {measure}: {found}, not in {least}..{most}\n{}",
            self.text
        );
    }

    /// Checks that the text has each of these.
    #[track_caller]
    pub fn says(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.text.contains(text), "no {text:?} in:\n{}", self.text);
        }
    }
}
