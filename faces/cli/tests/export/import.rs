//! `skinflint import` of logs of logalloc: what the rest of the tool makes of them.
//!
//! L1  The log is written here, line by line, from a rule that gives its figures.

use std::fmt::Write as _;

use crate::report::text;
use crate::shell;
use crate::tool::Bench;

/// Writes a log of a thousand blocks of 100 bytes by two threads, every third released, every tenth grown
/// to 200: raw and munged. Blocks at the end: 1000 - 334; 67 of these have 200 bytes.
fn log(raw: bool) -> String {
    let place = |n: u64| {
        if raw {
            format!("0x{:x}", 0x7f00_0000_0000 + n * 256)
        } else {
            format!("#{n}")
        }
    };
    let mut log = String::new();
    for n in 1..=1000u64 {
        let _ = writeln!(log, "77 {} malloc(100)={}", n % 2 + 5, place(n));
    }
    for n in (1..=1000u64).filter(|n| n % 3 == 1) {
        let _ = writeln!(log, "77 6 free({})", place(n));
    }
    for n in (1..=1000u64).filter(|n| n % 3 != 1 && n % 10 == 0) {
        let _ = writeln!(log, "77 5 realloc({},200)={}", place(n), place(n));
    }
    log + "77 5 jemalloc_stats()\n"
}

#[test]
fn a_log_as_a_trace() {
    let bench = Bench::new();
    let grown = (1..=1000).filter(|n| n % 3 != 1 && n % 10 == 0).count() as u64;
    for raw in [true, false] {
        std::fs::write(bench.path("malloc.log"), log(raw)).expect("a file");
        shell(&bench, "gzip -kf malloc.log");
        for file in ["malloc.log", "malloc.log.gz"] {
            let done = bench.tool(["import", file, "-o", "main.sft"]);
            done.says(0, &["main.sft", "2 threads", "process 77"]);
            let report = bench.report();
            report.is_complete();
            assert_eq!(report.heap(), (1000 + grown, 334 + grown));
            assert_eq!(
                report.number("totals.requested_bytes"),
                100_000 + grown * 200
            );
            assert_eq!(report.end_blocks(), 666);
            assert!(report.notes().join(" ").contains("logalloc"));
            assert_eq!(text(&report.list("marks")[0], "name"), "jemalloc_stats 1");
        }
    }
    // The rest of the tool reads it like any trace: sizes, layouts, formats.
    let counted = bench.tool(["counts", "main.sft"]);
    assert!(
        counted
            .stdout
            .starts_with(&format!("{} blocks cumulative", 1000 + grown)),
        "{counted:#?}"
    );
    let what_if = bench.tool(["what-if", "main.sft", "--with", "glibc"]);
    assert_eq!(what_if.status.code(), Some(0), "{what_if:#?}");
    let done = bench.tool([
        "export",
        "main.sft",
        "--format",
        "heaptrack",
        "-o",
        "app.heaptrack",
    ]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
}

#[test]
fn logs_that_cannot_be_read_leave_nothing_behind() {
    let bench = Bench::new();
    let refused = |content: &str, status: i32, texts: &[&str]| {
        std::fs::write(bench.path("malloc.log"), content).expect("a file");
        let done = bench.tool(["import", "malloc.log", "-o", "main.sft"]);
        done.says(status, &[&["malloc.log"], texts].concat());
        assert!(!bench.path("main.sft").exists());
    };
    refused("1 1 malloc(8)=#1\n1 1 oops\n", 1, &["line 2, column 5"]);
    refused("", 1, &["no whole line"]);
    refused(
        "1 1 malloc(8)=#1\n2 1 malloc(8)=#1\n",
        2,
        &["--pid", "1 (1 lines), 2 (1 lines)"],
    );
    bench
        .tool(["import", "absent.log", "-o", "main.sft"])
        .says(2, &["absent.log"]);
    // A log that is cut is read up to the cut.
    std::fs::write(
        bench.path("malloc.log"),
        "1 1 malloc(8)=#1\n1 1 malloc(9)=#",
    )
    .expect("a file");
    bench
        .tool(["import", "malloc.log", "-o", "main.sft"])
        .says(0, &["cut within its last line"]);
    assert_eq!(bench.report().heap(), (1, 0));
    let said = bench.tool(["import", "malloc.log", "-o", "malloc.log"]);
    said.says(2, &["the log itself"]);
}
