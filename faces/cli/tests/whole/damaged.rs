//! A thousand damaged copies of real recordings: read as far as they go, refused with a reason, never more.
//!
//! ```text
//!   two programs ─ record ─► two traces ─ break, seed by seed ─► damaged copies
//!       every one: read to its end, in all forms, in this process     every 25th: by `skinflint` itself
//! ```
//!
//! A1  `skinflint` ends with status 0 or 1, within a bound; for what it cannot read it prints one sentence that names
//!     the file.
//! A2  What is missing is stated in the report, if anything of the damage reached it.
//!
//! Not here: made-up traces and the fuzzer's corpus (the crate `damage`).

use skinflint_damage::breaking::damaged;
use skinflint_damage::reading::{Outcome, whole};

use crate::tool::{Bench, program, run};

/// The number of copies of each of two recordings.
const COPIES: u64 = 500;
const BY_THE_TOOL: u64 = 25;

/// Returns the trace of one program.
fn recording(name: &str) -> Vec<u8> {
    let bench = Bench::new();
    let done = bench.record([program(name)]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    let traces = bench.traces();
    assert_eq!(traces.len(), 1, "{traces:?}");
    std::fs::read(bench.path(&traces[0])).expect("its trace")
}

fn by_the_tool(bench: &Bench, bytes: &[u8], seed: u64, blows: &str, refused: bool) {
    std::fs::write(bench.path("damaged.sft"), bytes).expect("its own folder");
    let done = run(bench.skinflint(["report", "damaged.sft", "--json"]));
    let said = &done.stderr;
    match done.status.code() {
        Some(0) => assert!(!refused, "seed {seed}, {blows}: read here and not there"),
        Some(1) => {
            assert!(refused, "seed {seed}, {blows}: {said}");
            assert!(said.contains("damaged.sft"), "which file? {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        other => panic!("seed {seed}, {blows}: status {other:?}: {said}"),
    }
    assert!(!said.contains("panicked"), "seed {seed}, {blows}: {said}");
}

/// Damages copies of `one`'s recording, with blocks of `other`'s.
fn damage(one: &str, other: &str, first_seed: u64) {
    let (one, other) = (recording(one), recording(other));
    let bench = Bench::new();
    let (mut read, mut refused) = (0, 0);
    for seed in first_seed..first_seed + COPIES {
        let (bytes, blows) = damaged(&one, &other, seed);
        let is_refused = matches!(whole(&bytes), Outcome::Refused(_));
        if is_refused {
            refused += 1;
        } else {
            read += 1;
        }
        if seed % BY_THE_TOOL == 0 {
            by_the_tool(&bench, &bytes, seed, &blows, is_refused);
        }
    }
    println!("{read} read, {refused} refused");
    assert!(read > COPIES / 2);
    // Chance decides which damage falls on the header: lengths differ from run to run. This one always does.
    let headless = whole(&one[..10]);
    assert!(matches!(headless, Outcome::Refused(_)));
    by_the_tool(&bench, &one[..10], 0, "cut in its header", true);
}

#[test]
fn copies_of_one_program() {
    damage("predicted", "fitted", 0);
}

#[test]
fn copies_of_another() {
    damage("fitted", "predicted", COPIES);
}
