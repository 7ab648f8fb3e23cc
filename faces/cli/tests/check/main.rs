//! `skinflint check` on programs whose every block is predicted, and on real ones.
//!
//! ```text
//!   predicted.c, rounds.c ─► recorded ─► check --KIND=figure ─► 0     --KIND=figure less 1 ─► 3, with the stack
//! ```
//!
//! V1  Each kind of budget is held at the figure that the program's head states, and broken at one less.
//! V2  Formats are read by parsers of others: Python's XML parser, and for SARIF the rules of the standard.
//! V3  A verdict is the same in each of 20 runs.
//!
//! Not here: verdicts on reports by hand (the crate's own tests).

// Only a part of each of these files is used.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

mod budgets;
mod cargo_test;
mod formats;
mod gtest;
mod refused;
mod runs;

use tool::{Bench, program};

/// Records a program of tests/programs into `main.sft`.
#[track_caller]
pub fn recorded(bench: &Bench, name: &str) {
    let done = bench.record([program(name)]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
}
