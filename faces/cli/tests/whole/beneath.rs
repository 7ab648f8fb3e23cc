//! Other allocators beneath the recorder: `--preload libjemalloc.so.2`.
//!
//! ```text
//!   program ─► recorder ─► jemalloc | mimalloc | tcmalloc ─► libc's mmap
//! ```
//!
//! B1  The program does what it does on that allocator alone, its failures included.
//! B2  Usable sizes are that allocator's, as `malloc_usable_size` says in the program.
//! B3  A block of `operator new` is recorded once: not once more inside the allocator.

use std::path::PathBuf;

use skinflint_test_support::need;

use crate::report::{Report, number};
use crate::tool::{Bench, Done, program, run};

/// The allocators: those that are not installed are counted as skipped.
const ALLOCATORS: [&str; 3] = [
    "libjemalloc.so.2",
    "libmimalloc.so.2",
    "libtcmalloc_minimal.so.4",
];

fn alone(bench: &Bench, library: &str, program: PathBuf) -> Done {
    let mut command = bench.command(program);
    command.env("LD_PRELOAD", library);
    run(command)
}

/// Records a program on each of the allocators and checks B1.
fn on_each(name: &str, check: impl Fn(&str, &Done, &Report)) {
    for library in ALLOCATORS {
        if !need::library(library) {
            continue;
        }
        let bench = Bench::new();
        let installed = alone(&bench, library, PathBuf::from("/bin/true"));
        assert_eq!(installed.stderr, "", "{library}");
        let alone = alone(&bench, library, program(name));
        let done = run(bench.recording(&["--preload", library], [program(name)]));
        assert_eq!(done.stdout, alone.stdout, "{library}");
        assert_eq!(
            done.shell_status(),
            alone.shell_status(),
            "{library}: {done:#?}"
        );
        let report = bench.report();
        assert_eq!(report.number("completeness.lost_events"), 0, "{library}");
        assert_eq!(report.number("completeness.unknown_frees"), 0, "{library}");
        let allocator = report.text("program.allocator");
        assert!(allocator.starts_with(library), "{allocator}, not {library}");
        check(library, &alone, &report);
    }
}

#[test]
fn usable_sizes_are_the_allocators_own() {
    on_each("usable", |library, alone, report| {
        assert_eq!(alone.status.code(), Some(0));
        let mut seen = 0;
        for line in alone.stdout.lines() {
            let (size, usable) = line.split_once(' ').expect("SIZE USABLE");
            let row = report.size(size.parse().expect("a size"));
            assert_eq!(
                number(row, "usable").to_string(),
                usable,
                "{library} {size}"
            );
            seen += 1;
        }
        assert_eq!(seen, 17);
    });
}

#[test]
fn usable_sizes_of_glibc() {
    let bench = Bench::new();
    let report = crate::programs::recorded(&bench, "usable");
    for line in crate::tool::expected("usable").lines() {
        let (size, usable) = line.split_once(' ').expect("SIZE USABLE");
        let row = report.size(size.parse().expect("a size"));
        assert_eq!(number(row, "usable").to_string(), usable, "{size}");
        assert_eq!(number(row, "allocations"), 1, "{size}");
    }
    assert!(report.text("program.allocator").starts_with("glibc 2."));
}

#[test]
fn each_operator_new_is_one_block() {
    on_each("operators", |library, alone, report| {
        for size in [11, 12, 13, 14, 192, 256, 320, 384] {
            assert_eq!(report.blocks_of(size), (1, 0), "{library}: {size}");
        }
        // Operators that call each other through the program's tables are one call (jemalloc's do).
        // tcmalloc makes a few of its own as it begins, however many operators follow.
        let passed = report.number("completeness.unrecorded_calls");
        let own = if library.contains("tcmalloc") { 8 } else { 0 };
        assert!(passed <= own, "{library}: {passed}");
        // mimalloc 2.0 aborts when memory runs out in `operator new`; the others go on.
        if alone.status.success() {
            assert_eq!(report.blocks_of(23), (1, 0), "{library}");
            assert_eq!(report.blocks_of(17), (1, 1), "{library}");
        } else {
            assert_eq!(alone.shell_status(), 128 + libc::SIGABRT, "{library}");
        }
    });
}

#[test]
fn what_is_asked_for_does_not_depend_on_the_allocator() {
    on_each("predicted", |library, _, report| {
        report.is_complete();
        let functions = [
            ("grow_by_one", 2000, 2_001_000),
            ("grow_by_hand", 13, 131_056),
            ("small_sizes", 250, 15_500),
            ("terminator", 64, 65_600),
            ("temporary", 5000, 240_000),
            ("keep", 7, 2100),
        ];
        for (function, blocks, bytes) in functions {
            let found = (
                report.sum_at(function, "allocations"),
                report.sum_at(function, "requested_bytes"),
            );
            assert_eq!(found, (blocks, bytes), "{library}: {function}");
        }
        let usable = report.number("totals.usable_bytes");
        assert!(
            usable > report.number("totals.requested_bytes"),
            "{library}"
        );
    });
}

#[test]
fn errors_and_odd_calls_stay_what_they_are() {
    // Each allocator fails a different check of this program; B1 holds it to the same one.
    on_each("family", |library, _, report| {
        assert!(report.blocks_of(0).0 >= 1, "{library}");
    });
}

#[test]
fn threads_and_remote_frees() {
    on_each("threads", |library, alone, report| {
        assert_eq!(alone.status.code(), Some(0));
        report.is_complete();
        for (size, all, live) in [(97, 10_000, 5_000), (113, 20_000, 0), (127, 50, 0)] {
            assert_eq!(report.blocks_of(size), (all, live), "{library}: {size}");
        }
        // Later threads use a slot again: counts are per thread.
        let threads = report.list("threads").iter();
        let remote: u64 = threads.map(|row| number(row, "remote_frees")).sum();
        assert!(remote >= 25_000, "{library}: {remote}");
    });
}

#[test]
fn jemallocs_own_functions_are_recorded_and_not_made_up() {
    let bench = Bench::new();
    let done = bench.record([program("extended")]);
    assert_eq!(done.stdout, crate::tool::expected("extended"), "{done:#?}");
    if !need::library("libjemalloc.so.2") {
        return;
    }
    let bench = Bench::new();
    let library = ["--preload", "libjemalloc.so.2"];
    let done = run(bench.recording(&library, [program("extended")]));
    assert_eq!(done.stdout, "extended: 133184\n", "{done:#?}");
    let report = bench.report_at("main.sft", "end");
    assert_eq!(report.number("completeness.unknown_frees"), 0);
    for (size, blocks) in [(250, (1000, 499)), (5000, (1, 1)), (300, (1, 1))] {
        assert_eq!(report.blocks_of(size), blocks, "{size}");
    }
    assert_eq!(number(report.size(250), "usable"), 256);
}

/// A plug-in that is bound past the preloaded allocator calls the C library's: it goes on so, and the report says what
/// that means.
#[test]
fn a_plugin_bound_past_the_preloaded_allocator_is_said() {
    for library in ALLOCATORS {
        if !need::library(library) {
            continue;
        }
        let bench = Bench::new();
        let mut command = bench.recording(&["--preload", library], [program("deep")]);
        command.arg("apart");
        let done = run(command);
        assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
        assert_eq!(done.stdout, crate::tool::expected("deep"), "{library}");
        let report = bench.report();
        assert_eq!(report.blocks_of(67), (1, 0), "{library}: the program's own");
        let complete = crate::report::field(&report.0, "completeness.complete").as_bool();
        assert_eq!(complete, Some(false), "{library}");
        let says = "Not recorded: 1 module, opened with RTLD_DEEPBIND past the preloaded allocator";
        let notes = report.notes();
        assert!(
            notes.iter().any(|note| note.contains(says)),
            "{library}: {notes:?}"
        );
    }
}
