//! Every program of tests/programs: unharmed by being recorded, and recorded to the block.
//!
//! P1  Recorded, a program prints what it prints alone, and ends as it ends alone.
//! P2  The figures are those of the comment at its head: (blocks over the run, live at the end) of
//!     each size it asks for.
//!
//! Not here: stacks (stacks.rs), marks (marks.rs), children (processes.rs), passes (predicted.rs).

use crate::report::{Report, number};
use crate::tool::{Bench, expected, program, run};

/// Records a program and checks P1; returns its report as of the end.
#[track_caller]
pub fn recorded(bench: &Bench, name: &str) -> Report {
    let alone = run(bench.command(program(name)));
    assert_eq!(alone.stdout, expected(name), "{}", alone.stderr);
    assert_eq!(alone.status.code(), Some(0));
    let done = bench.record([program(name)]);
    assert_eq!(done.stdout, alone.stdout, "{}", done.stderr);
    assert_eq!(done.stderr, alone.stderr);
    assert_eq!(done.status, alone.status);
    let report = bench.report();
    assert_eq!(report.text("program.name"), name);
    assert_eq!(report.text("program.ended"), "exit 0");
    report
}

/// Checks P1, P2, and that the trace is complete.
#[track_caller]
fn holds(name: &str, sizes: &[(u64, u64, u64)]) -> Report {
    let bench = Bench::new();
    let report = recorded(&bench, name);
    report.is_complete();
    blocks(&report, sizes);
    report
}

/// Checks P2.
#[track_caller]
fn blocks(report: &Report, sizes: &[(u64, u64, u64)]) {
    for (size, all, live) in sizes {
        assert_eq!(report.blocks_of(*size), (*all, *live), "blocks of {size}");
    }
}

#[test]
fn dlopen_and_dlclose() {
    // 200 rounds and once more at the end, when the destructor runs at exit; 20 of each plug-in's
    // 100 blocks stay.
    holds("dl", &[(501, 201, 0), (503, 200, 40), (509, 1, 1)]);
}

#[test]
fn signal_handlers() {
    let report = holds("signals", &[(100, 200, 0), (211, 100, 10), (307, 50, 50)]);
    assert_eq!(report.heap(), (350, 290));
}

#[test]
fn fibres() {
    holds("fibres", &[(401, 800, 160), (409, 800, 0), (65536, 80, 0)]);
}

#[test]
fn longjmp() {
    let report = holds("longjmp", &[(151, 1000, 10), (157, 1000, 10)]);
    assert_eq!(report.heap(), (2000, 1980));
}

#[test]
fn code_made_at_run_time() {
    let report = holds("jit", &[(601, 50, 50), (607, 50, 50), (613, 50, 50)]);
    assert_eq!(report.heap(), (150, 0));
}

#[test]
fn threads_that_come_and_go() {
    let sizes = [
        (97, 10_000, 5_000),
        (113, 20_000, 0),
        (127, 50, 0),
        (131, 50, 0),
    ];
    let report = holds("threads", &sizes);
    let threads = report.list("threads");
    let remote: u64 = threads.iter().map(|row| number(row, "remote_frees")).sum();
    // The consumer's releases, and main's of blocks that ended threads had left.
    assert_eq!(remote, 20_000 + 5_000);
    let named = |name: &str| threads.iter().filter(|row| row["name"] == name).count();
    assert_eq!((named("producer"), named("consumer")), (1, 1));
    // Part 3's threads live for a moment: each sets its name on its way out.
    for index in 0..50 {
        assert_eq!(named(&format!("tls-{index:02}")), 1, "tls-{index:02}");
    }
    // Main, part 1's, the two, part 3's: each thread that acquired anything.
    let acquired = threads.iter().filter(|row| number(row, "allocations") > 0);
    assert_eq!(acquired.count(), 1 + 10_000 + 1 + 50);
}

#[test]
fn a_stack_20000_deep() {
    let report = holds("recursion", &[(31, 20_000, 20), (37, 1_000, 0)]);
    assert_eq!(report.heap(), (21_000, 20_980));
}

#[test]
fn the_smallest_stacks() {
    holds("smallstack", &[(43, 2_000, 20), (41, 1, 0)]);
}

#[test]
fn the_whole_malloc_family() {
    // 0: malloc(0), calloc(0, 5). 100: realloc(NULL), memalign, and the one that stays. 200:
    // realloc, reallocarray. A failed call is no block.
    let sizes = [
        (0, 2, 0),
        (40, 1, 0),
        (77, 1, 0),
        (192, 1, 0),
        (200, 2, 0),
        (300, 1, 0),
    ];
    let report = holds("family", &sizes);
    assert_eq!(report.end_blocks(), 1);
    let too_much = |row: &&serde_json::Value| number(row, "size") > 1 << 30;
    assert_eq!(report.list("sizes").iter().find(too_much), None);
}

#[test]
fn memory_that_the_program_maps_itself() {
    let bench = Bench::new();
    let report = recorded(&bench, "maps");
    assert_eq!(report.heap(), (0, 0));
    assert_eq!(report.number("completeness.lost_events"), 0);
    assert_eq!(report.number("totals.maps"), 10);
    // kept, moved, shrunk, pierced, advised, gone, shared, file, break, failing's page.
    let pages = 64 + 8 + 32 + 16 + 16 + 100 + 10 + 1 + 20 + 1;
    assert_eq!(report.number("totals.map_bytes"), pages * 4096);
}

#[test]
fn cxx_exceptions() {
    holds("exceptions", &[(163, 800, 40), (12, 16_400, 0)]);
}

#[test]
fn cxx_operators() {
    let sizes = [11, 12, 13, 14, 192, 256, 320, 384, 23].map(|size| (size, 1, 0));
    let report = holds("operators", &sizes);
    blocks(&report, &[(17, 1, 1)]);
}

#[test]
fn a_rust_program() {
    // The standard library takes none of these sizes: above 1,024 each is of one function alone.
    let doubling = [2048, 4096, 8192].map(|size| (size, 1, 0));
    let report = holds("collections", &doubling);
    let one_by_one: Vec<_> = (1032..=1600).step_by(8).map(|size| (size, 1, 0)).collect();
    blocks(&report, &one_by_one);
    assert_eq!(report.blocks_of(48).1, 30);
}

#[test]
fn hostile_surroundings() {
    let bench = Bench::new();
    recorded(&bench, "early");
    let children = bench.traces();
    let children: Vec<_> = children.iter().filter(|name| *name != "main.sft").collect();
    // closefds, nofile, as, chroot, nobody, env, cwd: a child each.
    assert_eq!(children.len(), 7);
    for child in children {
        let report = bench.report_at(child, "end");
        report.is_complete();
        assert_eq!(report.heap(), (200, 180), "{child}");
        blocks(&report, &[(103, 100, 10), (107, 100, 10)]);
    }
}

#[test]
fn a_library_that_allocates_before_the_recorder_is_ready() {
    let bench = Bench::new();
    let library = program("libearly.so").display().to_string();
    for options in [&["--preload", library.as_str()][..], &[]] {
        let mut tool = bench.recording(options, [program("early"), "env".into()]);
        if options.is_empty() {
            // In front of the recorder instead of behind it.
            tool.env("LD_PRELOAD", &library);
        }
        let done = run(tool);
        assert_eq!((done.shell_status(), &*done.stdout), (0, "early: env ok\n"));
        let report = bench.report();
        report.is_complete();
        assert_eq!(report.text("program.name"), "early");
        // Its three blocks: calloc(3, 67) and 2 x malloc(201), one kept.
        assert_eq!(report.blocks_of(201), (3, 1), "{options:?}");
        blocks(&report, &[(103, 100, 10), (107, 100, 10)]);
    }
}

#[test]
fn every_way_to_end() {
    let ways = [
        ("return", "exit 0", 0),
        ("exit", "exit 7", 7),
        ("_exit", "exit 8", 8),
        ("quick_exit", "exit 9", 9),
        ("abort", "signal 6 (SIGABRT)", 128 + 6),
        ("segv", "signal 11 (SIGSEGV)", 128 + 11),
        ("kill", "signal 9 (SIGKILL)", 128 + 9),
    ];
    for (way, ended, status) in ways {
        let bench = Bench::new();
        let done = bench.record([program("exits"), way.into()]);
        assert_eq!(done.stdout, format!("exits: {way}\n"));
        assert_eq!(done.status.code(), Some(status), "{way}: {done:#?}");
        let report = bench.report();
        report.is_complete();
        assert_eq!(report.text("program.ended"), ended);
        blocks(&report, &[(89, 1000, 500)]);
        if matches!(way, "exit" | "quick_exit") {
            blocks(&report, &[(83, 1, 0)]);
        }
    }
}
