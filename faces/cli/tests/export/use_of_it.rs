//! Wrong use of `skinflint export`, files that cannot be written, and damaged traces.
//!
//! E1  A status and a sentence for each; nothing is left behind.

use crate::recorded;
use crate::tool::{Bench, PATIENCE, Running};

const FORMATS: [&str; 7] = [
    "pprof",
    "dhat",
    "folded",
    "speedscope",
    "firefox",
    "memory-report",
    "heaptrack",
];

#[test]
fn wrong_use() {
    let bench = Bench::new();
    recorded(&bench, "longjmp");
    let export = |more: &[&str]| bench.tool([&["export", "main.sft", "-o", "out"], more].concat());
    export(&["--format", "nothing"]).says(2, &["nothing", "pprof", "memory-report"]);
    export(&["--format", "dhat", "--at", "end"]).says(2, &["--at", "dhat holds the whole run"]);
    export(&["--format", "pprof", "--value", "alloc_space"])
        .says(2, &["--value", "pprof holds all"]);
    export(&["--format", "folded", "--value", "weight"]).says(2, &["weight", "inuse_slop"]);
    export(&["--format", "folded", "--at", "nowhere"]).says(2, &["nowhere"]);
    export(&["--format", "parquet"]).says(2, &["--features parquet"]);
    assert!(!bench.path("out").exists());
    let same = bench.tool([
        "export",
        "main.sft",
        "--format",
        "folded",
        "-o",
        "./main.sft",
    ]);
    same.says(2, &["the trace itself"]);
    let absent = bench.tool(["export", "absent.sft", "--format", "folded", "-o", "out"]);
    absent.says(1, &["absent.sft"]);
    let nowhere = bench.tool([
        "export",
        "main.sft",
        "--format",
        "folded",
        "-o",
        "no/such/folder",
    ]);
    nowhere.says(2, &["no/such/folder", "--output"]);
}

#[test]
fn a_disk_that_is_full() {
    let bench = Bench::new();
    recorded(&bench, "longjmp");
    for format in FORMATS {
        let done = bench.tool(["export", "main.sft", "--format", format, "-o", "/dev/full"]);
        done.says(2, &["/dev/full", "cannot be written"]);
    }
}

#[test]
fn stdout_gets_the_file_and_nothing_else() {
    let bench = Bench::new();
    recorded(&bench, "longjmp");
    for format in FORMATS.into_iter().filter(|format| *format != "pprof") {
        let done = bench.tool(["export", "main.sft", "--format", format, "-o", "-"]);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        let file = bench.tool(["export", "main.sft", "--format", format, "-o", "out"]);
        assert_eq!(file.status.code(), Some(0), "{file:#?}");
        let written = std::fs::read_to_string(bench.path("out")).expect("the file");
        assert_eq!(written, done.stdout, "{format}");
    }
}

#[test]
fn a_pipe_that_nobody_reads() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    let report = r#"{"version":1,"reports":[{"process":"a","path":"explicit/a","kind":1,"units":0,"amount":9,
        "description":""}]}"#;
    std::fs::write(bench.path("report.json"), report).expect("a file");
    let mut lines = vec![
        vec!["diff", "main.sft", "--from", "heap-peak", "--json"],
        vec!["diff", "main.sft", "--from", "heap-peak"],
        vec!["dark-matter", "main.sft", "report.json", "--json"],
    ];
    for format in FORMATS {
        lines.push(vec!["export", "main.sft", "-o", "-", "--format", format]);
    }
    for line in lines {
        let mut running = Running::start(bench.skinflint(&line));
        running.close_stdout();
        let done = running.finish(PATIENCE);
        assert_eq!(done.status.code(), Some(0), "{line:?}: {done:#?}");
    }
}

#[test]
fn traces_that_are_cut() {
    let bench = Bench::new();
    recorded(&bench, "threads");
    let bytes = std::fs::read(bench.path("main.sft")).expect("the trace");
    for tenth in [1, 4, 7, 9] {
        std::fs::write(bench.path("cut.sft"), &bytes[..bytes.len() * tenth / 10]).expect("a file");
        for format in FORMATS {
            let done = bench.tool(["export", "cut.sft", "--format", format, "-o", "out"]);
            done.says(0, &["cut"]);
        }
        let done = bench.tool(["diff", "cut.sft", "main.sft"]);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        assert!(done.stdout.contains("cut.sft is not complete"), "{done:#?}");
    }
}

#[test]
fn traces_that_are_damaged_in_the_middle() {
    let bench = Bench::new();
    recorded(&bench, "threads");
    let bytes = std::fs::read(bench.path("main.sft")).expect("the trace");
    let mut seed = 0x5eed_u64;
    for round in 0..5 {
        let mut damaged = bytes.clone();
        for _ in 0..=round {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // This lies behind the header of the file, without which it is no trace.
            let at = 24 + (seed >> 20) as usize % (damaged.len() - 24);
            damaged[at] ^= 1 << (seed >> 60 & 7);
        }
        std::fs::write(bench.path("damaged.sft"), &damaged).expect("a file");
        let ended = |arguments: &[&str]| {
            let done = bench.tool(arguments);
            let said = &done.stderr;
            assert!(
                matches!(done.status.code(), Some(0..=2)),
                "round {round}: {done:#?}"
            );
            assert!(
                !said.contains("panicked") && !said.contains("a fault of skinflint"),
                "round {round}: {done:#?}"
            );
        };
        for format in FORMATS {
            ended(&["export", "damaged.sft", "--format", format, "-o", "out"]);
        }
        ended(&["diff", "damaged.sft", "main.sft"]);
        ended(&["diff", "damaged.sft", "--from", "heap-peak"]);
        let report = r#"{"version":1,"reports":[{"process":"a","path":"explicit/a","kind":1,"units":0,"amount":9,
            "description":"","ranges":[["0x0",140737488355327]]}]}"#;
        std::fs::write(bench.path("report.json"), report).expect("a file");
        ended(&["dark-matter", "damaged.sft", "report.json"]);
    }
}
