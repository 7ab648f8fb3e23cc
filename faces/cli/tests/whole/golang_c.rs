//! Programs of Go that call C: blocks of C with the Go function that called, and Go's own heap beside them.
//!
//! C1  Every block of C has the function that called C, whichever goroutine ran on the thread before, and whether C called Go
//!     meanwhile: counted by hand. No frame is another's.
//! C2  The program is as it was: output and status.
//! C3  Go's heap is read as that of a program without C; estimates as golang.G3.

use std::collections::BTreeMap;

use skinflint_test_support::need;

use crate::golang::{built_with, of_report};
use crate::report::{Report, number, text};
use crate::tool::{Bench, Done};

/// Blocks by the innermost function of the program's own Go code on their stacks; cgo's stubs are none.
fn blocks(report: &Report) -> BTreeMap<(String, u64), u64> {
    let mut blocks = BTreeMap::new();
    for site in report.sites() {
        let mut at = number(site, "node");
        let mut named = None;
        while at != 0 {
            let node = &report.list("nodes")[at as usize];
            let frame = &report.list("frames")[number(node, "frame") as usize];
            let function = text(frame, "function");
            let is_stub = function.contains("._Cfunc_") || function.contains("._cgo_");
            if named.is_none() && function.starts_with("main.") && !is_stub {
                named = Some((function.to_owned(), frame["line"].as_u64().unwrap_or(0)));
            }
            at = number(node, "parent");
        }
        if let Some(named) = named {
            *blocks.entry(named).or_default() += number(site, "end_blocks");
        }
    }
    blocks
}

fn is_as_it_was(done: &Done) {
    assert_eq!(done.shell_status(), 3, "{done:#?}");
    assert_eq!((&*done.stdout, &*done.stderr), ("kept 6900 300\n", ""));
}

#[test]
fn blocks_of_c_have_the_function_of_go_that_called() {
    if !need::program("go") || !need::program("gcc") {
        return;
    }
    let bench = Bench::new();
    let program = built_with(&bench, "./calls", &[], "1");
    is_as_it_was(&bench.record([&program]));
    let report = bench.report();
    report.is_complete();
    let blocks = blocks(&report);
    let of = |function: &str| -> u64 {
        let all = blocks.iter().filter(|((name, _), _)| name == function);
        all.map(|(_, count)| count).sum()
    };
    let known = [
        ("main.direct", 2000),
        ("main.nested", 500),
        ("main.texts", 3000),
        ("main.goBack", 400),
        ("main.even", 400),
        ("main.odd", 400),
    ];
    for (function, count) in known {
        assert_eq!(of(function), count, "{function}: {blocks:#?}");
    }
    // Before Go 1.20, of a stack that has moved while C ran, the rest is not known: the first of each goroutine.
    assert!((180..=200).contains(&of("main.moved")), "{blocks:#?}");
    assert_eq!(
        blocks.values().sum::<u64>(),
        6700 + of("main.moved"),
        "{blocks:#?}"
    );
    for (function, line) in [("main.nested", 62), ("main.texts", 69), ("main.moved", 96)] {
        assert!(
            blocks.contains_key(&(function.to_owned(), line)),
            "{function}: {blocks:#?}"
        );
    }
    // Its own end was seen, and what is beside it has Go's heap.
    let notes = report.notes();
    assert!(
        !notes
            .iter()
            .any(|note| note.contains("without passing through exit")),
        "{notes:?}"
    );
    assert_eq!(bench.traces(), ["main.heap.sft", "main.sft"]);
    let heap = of_report(&bench.report_at("main.heap.sft", "end"));
    let held = heap.iter().filter(|((name, _), _)| name == "main.goHeap");
    let held: u64 = held.map(|(_, bytes)| bytes).sum();
    // Sixty samples of 30,720,000 bytes.
    assert!((15_000_000..62_000_000).contains(&held), "{heap:?}");
}

#[test]
fn one_that_is_stripped_or_at_any_address_is_as_it_was_and_has_its_heap() {
    if !need::program("go") || !need::program("gcc") {
        return;
    }
    for options in [["-ldflags=-s -w"], ["-buildmode=pie"]] {
        let bench = Bench::new();
        let program = built_with(&bench, "./calls", &options, "1");
        is_as_it_was(&bench.record([&program]));
        bench.report().is_complete();
        if options[0].starts_with("-ldflags") {
            // Nothing says where the byte is that switches the profile on, and the program never asks for it.
            continue;
        }
        let heap = of_report(&bench.report_at("main.heap.sft", "end"));
        let held = heap.iter().filter(|((name, _), _)| name == "main.goHeap");
        let held: u64 = held.map(|(_, bytes)| bytes).sum();
        assert!(
            (15_000_000..62_000_000).contains(&held),
            "{options:?}: {heap:?}"
        );
    }
}
