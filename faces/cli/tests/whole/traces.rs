//! Traces that are empty, cut, newer, or no traces; moments and schemes that do not exist.
//!
//! V1  A status and a sentence for each; never a panic, and never "no leaks" where nothing was seen.

use crate::programs::recorded;
use crate::report::field;
use crate::tool::{Bench, Done, PATIENCE, Running, run};

/// Checks that `report` and `counts` refuse a file, with each of these in the sentence.
#[track_caller]
fn unreadable(bench: &Bench, file: &str, texts: &[&str]) {
    for subcommand in ["report", "counts"] {
        let done = bench.tool([subcommand, file]);
        done.says(1, texts);
        assert!(done.stderr.contains(file), "{done:#?}");
        assert_eq!(
            (&*done.stdout, done.stderr.lines().count()),
            ("", 1),
            "{done:#?}"
        );
    }
}

/// Checks that nothing is claimed (V1).
#[track_caller]
fn claims_nothing(done: &Done) {
    let said = format!("{}{}", done.stdout, done.stderr).to_lowercase();
    assert!(said.contains("nothing was recorded"), "{done:#?}");
    assert!(!said.contains("no leak"), "{done:#?}");
    assert!(!said.contains("what would give memory back"), "{done:#?}");
}

#[test]
fn files_that_are_no_traces() {
    let bench = Bench::new();
    std::fs::write(bench.path("empty.sft"), "").expect("a file");
    std::fs::write(bench.path("text.sft"), "a line of text\n").expect("a file");
    std::fs::write(bench.path("bytes.sft"), [7u8; 5000]).expect("a file");
    unreadable(
        &bench,
        "empty.sft",
        &["is empty", "nothing was recorded", "record again"],
    );
    unreadable(
        &bench,
        "text.sft",
        &["not a Skinflint trace", "looks like text"],
    );
    unreadable(&bench, "bytes.sft", &["not a Skinflint trace"]);
    unreadable(&bench, "absent.sft", &["No such file", "check the name"]);
    // A folder is several traces; of these none can be read.
    let none = ["none of the traces can be read", "bytes.sft"];
    bench.tool(["report", "."]).says(1, &none);
    let one = ["3 traces in this folder", "one is wanted", "bytes.sft"];
    bench.tool(["counts", "."]).says(2, &one);
    // The reason is given once.
    let said = bench.tool(["report", "absent.sft"]).stderr;
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

/// Computes the CRC-32 of the header's first 20 bytes, as FORMAT.md has it, one bit at a time.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[test]
fn a_trace_of_a_newer_version() {
    let bench = Bench::new();
    recorded(&bench, "longjmp");
    let mut bytes = std::fs::read(bench.path("main.sft")).expect("the trace");
    assert_eq!(crc(&bytes[..20]).to_le_bytes(), bytes[20..24]);
    bytes[8] = 2;
    let sum = crc(&bytes[..20]);
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(bench.path("newer.sft"), &bytes).expect("a file");
    unreadable(&bench, "newer.sft", &["2", "newer"]);
    // A later minor version is read.
    bytes[8] = 1;
    bytes[10] = 9;
    let sum = crc(&bytes[..20]);
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(bench.path("minor.sft"), &bytes).expect("a file");
    assert_eq!(bench.report_at("minor.sft", "end").heap(), (2000, 1980));
}

#[test]
fn a_trace_that_is_cut_anywhere() {
    let bench = Bench::new();
    recorded(&bench, "longjmp");
    let bytes = std::fs::read(bench.path("main.sft")).expect("the trace");
    // Within the header of the file nothing is known; after it, everything before the cut is.
    for len in [1, 10, 23] {
        std::fs::write(bench.path("cut.sft"), &bytes[..len]).expect("a file");
        unreadable(&bench, "cut.sft", &["header"]);
    }
    let mut last = 0;
    for tenth in 0..10 {
        let len = 24 + (bytes.len() - 24) * tenth / 10;
        std::fs::write(bench.path("cut.sft"), &bytes[..len]).expect("a file");
        let report = bench.report_at("cut.sft", "end");
        let complete = field(&report.0, "completeness.complete").as_bool();
        assert_eq!(complete, Some(false), "{len} of {} bytes", bytes.len());
        let notes = report.notes().join(" ");
        assert!(notes.contains("cut"), "{notes}");
        let (acquired, released) = report.heap();
        assert!(acquired >= last && acquired <= 2000 && released <= 1980);
        last = acquired;
        let counted = bench.tool(["counts", "cut.sft"]);
        counted.says(0, &["incomplete", "cut"]);
    }
}

#[test]
fn a_program_that_allocates_nothing() {
    let bench = Bench::new();
    assert_eq!(bench.record(["true"]).status.code(), Some(0));
    let said = bench.tool(["report", "main.sft"]);
    claims_nothing(&said);
    assert!(
        said.stdout.contains("made no heap call that could be seen"),
        "{said:#?}"
    );
    let json = bench.report();
    assert_eq!(json.heap(), (0, 0));
    assert_eq!(json.list("findings").len(), 0);
    let counted = bench.tool(["counts", "main.sft"]);
    claims_nothing(&counted);
    let run = bench.tool(["run", "--no-html", "--", "true"]);
    assert_eq!(run.status.code(), Some(0));
    claims_nothing(&run);
}

#[test]
fn a_program_that_never_loads_the_recorder() {
    let bench = Bench::new();
    let static_program = "int main(void) { return 3; }\n";
    std::fs::write(bench.path("empty.c"), static_program).expect("a file");
    let mut compiler = bench.command("gcc");
    compiler.args(["-static", "-o", "static", "empty.c"]);
    assert_eq!(
        run(compiler).status.code(),
        Some(0),
        "apt-get install libc6-dev"
    );
    // Preflight sees env, not what env starts; env itself is recorded and becomes the other program.
    let done = bench.tool(["run", "--no-html", "--", "env", "-i", "./static"]);
    assert_eq!(done.status.code(), Some(3), "{done:#?}");
    let traces = bench.traces();
    assert!(traces.len() <= 1, "{traces:?}");
}

#[test]
fn moments_and_schemes_that_are_not_there() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    let marks = ["request begin", "request end"];
    let done = bench.tool(["report", "main.sft", "--at", "nowhere"]);
    done.says(
        2,
        &[
            "--at nowhere",
            "peak",
            "end",
            "heap-peak",
            marks[0],
            marks[1],
        ],
    );
    let done = bench.tool(["counts", "main.sft", "--at", "nowhere"]);
    done.says(
        2,
        &["--at nowhere", "cumulative", "live", marks[0], marks[1]],
    );
    let done = bench.tool(["counts", "main.sft", "--scheme", "nothing"]);
    done.says(2, &["nothing"]);
    for scheme in [
        "mozjemalloc-2011",
        "mozjemalloc",
        "jemalloc5",
        "mimalloc",
        "tcmalloc",
        "go",
        "glibc",
        "skinflint",
    ] {
        done.says(2, &[scheme]);
        let counted = bench.tool(["counts", "main.sft", "--scheme", scheme]);
        assert_eq!(counted.status.code(), Some(0), "{scheme}: {counted:#?}");
        assert!(
            counted.stdout.starts_with("7662 blocks"),
            "{}",
            counted.stdout
        );
    }
}

#[test]
fn a_page_that_cannot_be_written() {
    let bench = Bench::new();
    recorded(&bench, "longjmp");
    let done = bench.tool(["report", "main.sft", "--html", "no/such/folder.html"]);
    done.says(2, &["no/such/folder.html", "--html"]);
}

#[test]
fn a_closed_pipe_is_success() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    for arguments in [
        &["report", "main.sft"][..],
        &["report", "main.sft", "--json"],
        &["report", ".", "--json"],
        &["diff", "main.sft", "--from", "request begin", "--json"],
        &["counts", "main.sft"],
        &["--help"],
    ] {
        let mut running = Running::start(bench.skinflint(arguments));
        running.close_stdout();
        let done = running.finish(PATIENCE);
        assert_eq!(done.status.code(), Some(0), "{arguments:?}: {done:#?}");
        assert_eq!(done.stderr, "", "{arguments:?}");
    }
}
