//! Programs that go past the preloaded library: with an allocator of their own, or with plug-ins bound past us.
//!
//! Q1  A program that exports its own allocator runs to its end, whatever lock the allocator holds while it calls us.
//! Q2  A module opened with `RTLD_DEEPBIND` is recorded from the end of its `dlopen` on, its flag untouched.
//! Q3  If the allocator itself counts other bytes as in use than the recording has, something went past us, and the
//!     recording is not complete.
//! Q4  Heap pages on which no recorded block ever was are a row of their own, however the program ended: nothing that
//!     gives memory back is advised for them, and the report of the folder says the same as that of the trace.

use skinflint_test_support::need;

use crate::mapped::mapped_by;
use crate::programs::recorded;
use crate::tool::{Bench, expected, program, programs, run};

/// Checks Q2: the figures of the head of deep.c.
#[track_caller]
fn deep(bench: &Bench, arguments: &[&str]) {
    let mut command = bench.recording(&[], [program("deep")]);
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", programs().display().to_string());
    let done = run(command);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    assert_eq!(done.stdout, expected("deep"));
    let report = bench.report();
    assert_eq!(report.number("completeness.lost_events"), 0);
    // This is what its constructor took, before the recorder could know of it.
    assert_eq!(report.number("completeness.unknown_frees"), 1);
    assert_eq!(report.blocks_of(1009), (300, 200), "the plug-in's");
    assert_eq!(report.blocks_of(67), (50, 0), "freed by the plug-in");
    assert_eq!(report.blocks_of(71), (50, 0), "made by the plug-in");
}

#[test]
fn a_plugin_bound_past_us_by_path() {
    deep(&Bench::new(), &[]);
}

#[test]
fn a_plugin_bound_past_us_by_name() {
    deep(&Bench::new(), &["name"]);
}

#[test]
fn an_allocator_of_the_programs_own() {
    let bench = Bench::new();
    // Its blocks are never seen; how it grows is.
    let report = recorded(&bench, "ownheap");
    assert_eq!(report.number("completeness.lost_events"), 0);
    assert!(report.number("completeness.events") >= 5);
    // Its child begins by growing under the lock: 1 MiB in a handler of fork, and four times by itself.
    let traces = bench.traces();
    let child = traces.iter().find(|trace| *trace != "main.sft");
    let report = bench.report_at(child.expect("the child's trace"), "end");
    report.is_complete();
    let grown = mapped_by(&report, "grow", "mapped_bytes") >> 20;
    assert!((4..=6).contains(&grown), "{grown} MiB");
}

/// rustc brings jemalloc, whose first call is `sbrk` under its lock; cargo starts it in an environment of its own.
#[test]
fn rustc_and_cargo_build() {
    let bench = Bench::new();
    let source = bench.path("src");
    std::fs::create_dir(&source).expect("a folder");
    std::fs::write(
        bench.path("Cargo.toml"),
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )
    .expect("a manifest");
    std::fs::write(
        source.join("main.rs"),
        "fn main() { println!(\"{}\", \"made\".to_owned()) }\n",
    )
    .expect("a program");
    let mut alone = bench.command("rustc");
    alone.arg("-vV");
    let alone = run(alone);
    let done = bench.record(["rustc", "-vV"]);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    assert_eq!(done.stdout, alone.stdout);
    let done = bench.record(["cargo", "build", "--quiet", "--offline"]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let made = run(bench.command(bench.path("target/debug/tiny")));
    assert_eq!(made.stdout, "made\n");
}

/// Tests Q3: records beside.c beneath an allocator, and returns what each of its traces names as missing.
#[track_caller]
fn beside(library: Option<&str>, what: &str) -> Vec<String> {
    let bench = Bench::new();
    let preload = library.map_or(vec![], |library| vec!["--preload", library]);
    let mut command = bench.recording(&preload, [program("beside")]);
    command.arg(what);
    let done = run(command);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    assert_eq!(done.stdout, format!("beside: {what}\n"));
    let mut said = Vec::new();
    for trace in bench.traces() {
        let report = bench.report_at(&trace, "end");
        let notes = report.list("completeness.notes").iter();
        let past = notes.filter_map(|note| note.as_str());
        said.extend(
            past.filter(|note| note.contains("went past"))
                .map(str::to_owned),
        );
        let complete = report.0["completeness"]["complete"].as_bool();
        assert_eq!(complete, Some(said.is_empty()), "{trace}");
    }
    said
}

#[test]
fn the_allocators_own_count_tells_of_what_went_past() {
    for library in [None, Some("libjemalloc.so.2")] {
        if !library.is_none_or(need::library) {
            continue;
        }
        // 400 blocks of 60,007: 22.9 MiB, and what the allocator rounds up.
        let unseen = beside(library, "unseen").join("");
        assert!(
            unseen.contains("that are in no recorded block are in use"),
            "{library:?}: {unseen}"
        );
        let released = beside(library, "released").join("");
        assert!(
            released.contains("that stand as live are free"),
            "{library:?}: {released}"
        );
        assert_eq!(beside(library, "even"), [""; 0], "{library:?}");
    }
}

/// Tests Q4: records beside.c, and returns the bytes of the row, and whether the whole of it was told as free.
#[track_caller]
fn never_free(library: Option<&str>, what: &[&str]) -> u64 {
    let bench = Bench::new();
    let preload = library.map_or(vec![], |library| vec!["--preload", library]);
    let mut command = bench.recording(&preload, [program("beside")]);
    command.args(what);
    let done = run(command);
    assert_eq!(done.stdout, format!("beside: {}\n", what[0]), "{done:#?}");
    let report = bench.report_at("main.sft", "peak");
    assert_eq!(report.0["completeness"]["complete"].as_bool(), Some(false));
    let is_said = |text: &str| text.contains("never held a recorded block");
    let notes = report.list("completeness.notes").iter();
    let own: Vec<&str> = notes.filter_map(|note| note.as_str()).collect();
    assert!(own.iter().any(|note| is_said(note)), "{own:?}");
    for finding in report.list("findings") {
        assert_ne!(finding["kind"], "retained", "{finding:#}");
    }
    let folder = bench.tool(["report", "--json", "."]);
    let folder: serde_json::Value = serde_json::from_str(&folder.stdout).expect("JSON");
    let missing: Vec<&str> = folder["missing"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line.as_str()?.strip_prefix("./main.sft: "))
        .collect();
    assert_eq!(missing, own[..missing.len()], "{folder:#}");
    assert!(missing.iter().any(|line| is_said(line)), "{folder:#}");
    let at = report.number("at") as usize;
    let rows = report.0["instants"][at]["books"]["rows"].as_array();
    let row = rows
        .expect("books")
        .iter()
        .find(|row| row["id"] == "heap-unseen");
    row.expect("the row")["bytes"].as_u64().expect("a number") >> 20
}

#[test]
fn heap_that_was_got_past_the_recorder_is_never_called_free() {
    // 400 blocks of 60,007 bytes: 22.9 MiB.
    assert_eq!(never_free(None, &["unseen", "killed"]), 22);
    assert_eq!(never_free(None, &["brk", "killed"]), 24);
    let jemalloc = "libjemalloc.so.2";
    if need::library(jemalloc) {
        assert_eq!(never_free(Some(jemalloc), &["brk"]), 24);
    }
}
