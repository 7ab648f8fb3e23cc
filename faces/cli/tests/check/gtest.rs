//! Budgets of phases, and of tests of GoogleTest by `skinflint_gtest.h` (tests/gtest).

use std::path::Path;

use skinflint_test_support::need;

use crate::tool::{Bench, Done, made, program, run};

/// Records the suite into `main.sft`; `None` where GoogleTest is missing.
fn suite(leak: bool) -> Option<Bench> {
    if !need::file(Path::new("/usr/include/gtest/gtest.h"), "libgtest-dev") {
        return None;
    }
    let bench = Bench::new();
    let tests = made("tests/gtest", "gtest-programs").join("cache_test");
    let tests = tests.to_str().expect("a path");
    let mut command = bench.skinflint(["record", "-o", "main.sft", "--", tests]);
    if leak {
        command.env("LEAK", "1");
    }
    let done = run(command);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    Some(bench)
}

#[track_caller]
fn told(done: &Done, status: i32, texts: &[&str]) {
    assert_eq!(done.status.code(), Some(status), "{done:#?}");
    for text in texts {
        assert!(done.stdout.contains(text), "no {text:?} in: {done:#?}");
    }
}

#[test]
fn tests_of_googletest_hold_what_they_mark() {
    let Some(bench) = suite(false) else { return };
    let done = bench.tool(["check", "--marked-budgets", "main.sft"]);
    told(
        &done,
        0,
        &[
            "phase Cache.Forgets allocations  202 of 202 allowed",
            "phase Cache.Remembers growth  1.02 KiB of 1.02 KiB allowed",
            "phase Cache.Sorts peak-live  980 KiB of 1.00 MiB allowed",
            // Its name is cut, and its budget is still its own.
            "OneMoreWo~e83dbdd9 growth  0 B of 0 B allowed",
        ],
    );
    // What is said on the command line goes before the mark.
    let done = bench.tool([
        "check",
        "--marked-budgets",
        "--phase=Cache.Sorts:growth=0",
        "--phase=Cache.Remembers:growth=1039",
        "main.sft",
    ]);
    told(
        &done,
        3,
        &[
            "phase Cache.Remembers growth  1.02 KiB of 1.01 KiB allowed",
            "remember",
        ],
    );
}

#[test]
fn a_test_that_leaks_is_broken_with_its_stack() {
    let Some(bench) = suite(true) else { return };
    let done = bench.tool(["check", "--marked-budgets", "main.sft"]);
    told(
        &done,
        3,
        &[
            "phase Cache.Forgets growth  200 B of 0 B allowed",
            "Cache_Forgets_Test::TestBody",
        ],
    );
}

#[test]
fn a_pattern_is_a_budget_for_each_test() {
    let Some(bench) = suite(false) else { return };
    let done = bench.tool(["check", "--phase=Cache.*:growth=1040", "main.sft"]);
    told(
        &done,
        3,
        &[
            "held         phase Cache.Remembers growth",
            "broken       phase Cache.Unbound growth  2.03 KiB of 1.02 KiB allowed",
        ],
    );
    let done = bench.tool(["check", "--phase=Stash.*:growth=0", "main.sft"]);
    told(&done, 4, &["no phase \"Stash.*\"", "Cache.Forgets"]);
}

#[test]
fn a_program_without_marked_budgets_is_not_decided() {
    let bench = Bench::new();
    let rounds = program("rounds");
    let rounds = rounds.to_str().expect("a path");
    let done = bench.tool(["check", "--marked-budgets", "--", rounds]);
    done.says(4, &["no mark of the program is a budget"]);
    let done = bench.tool(["check", "--phase=load", "--", rounds]);
    done.says(2, &["NAME:FIGURE=LIMIT"]);
}
