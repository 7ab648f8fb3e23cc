//! What nothing points to: a few of the planted leaks, cycles and controls (tests/reach; all of them: bar.py there).
//!
//! ```text
//!   planted NAME ─► record --reachable ─► rows of stacks with planted_…: all of what was planted, or nothing at all
//! ```
//!
//! R1  How many blocks a case plants is counted here, from its source: N = 40 a kind.
//! R2  The program's own output and end are what they are without us, whether it is stopped or not.

use serde_json::Value;

use crate::report::{Report, field, list, number, text};
use crate::tool::{Bench, made, run};

const N: u64 = 40;

/// Returns the report's section on pointers.
fn reach(report: &Report) -> &Value {
    let reach = field(&report.0, "reach");
    assert_eq!(text(reach, "missing"), "", "{reach:#}");
    reach
}

/// Counts blocks in rows of stacks with functions of this prefix: of what nothing points to, and of cycles.
fn unreached(report: &Report, prefix: &str) -> (u64, u64) {
    let mut found = (0, 0);
    for row in list(reach(report), "rows") {
        let functions = report.functions(number(row, "node"));
        if functions.iter().any(|function| function.contains(prefix)) {
            let blocks = number(row, "all.blocks");
            match field(row, "cycle").as_bool() {
                Some(true) => found.1 += blocks,
                _ => found.0 += blocks,
            }
        }
    }
    found
}

#[track_caller]
fn recorded(bench: &Bench, program: &str, case: &[&str], options: &[&str]) -> Report {
    let program = made("tests/reach", "reach-programs").join(program);
    let mut command = vec![program.as_os_str()];
    command.extend(case.iter().map(std::ffi::OsStr::new));
    let options = [&["--reachable"], options].concat();
    let done = run(bench.recording(&options, command));
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));
    let report = bench.report();
    report.is_complete();
    report
}

#[test]
fn what_nothing_points_to_is_found_and_what_it_holds() {
    let bench = Bench::new();
    let report = recorded(&bench, "planted", &["leak_array_of_pointers"], &[]);
    // The array leads, and holds what it points to.
    assert_eq!(unreached(&report, "planted_"), (N + 1, 0));
    let rows = list(reach(&report), "rows");
    let own: u64 = rows.iter().map(|row| number(row, "own.blocks")).sum();
    assert_eq!(own, 1, "{rows:#?}");
    let mut leaks = report
        .list("findings")
        .iter()
        .filter(|one| text(one, "kind") == "leak");
    let leak = leaks
        .find(|one| number(one, "saved_bytes") > 0)
        .expect("a finding");
    assert_eq!(number(leak, "blocks"), N + 1);
    assert_eq!(
        number(leak, "saved_bytes"),
        number(&rows[0], "all.usable_bytes")
    );
    let shown = bench.tool(["report", "--reachable", "main.sft"]);
    assert!(
        shown.stdout.contains("nothing points to 41 blocks"),
        "{shown:#?}"
    );
    let lost = bench.tool(["report", "--who-holds", "planted_alloc", "main.sft"]);
    assert!(
        lost.stdout.contains("held by what nothing points to"),
        "{lost:#?}"
    );
}

#[test]
fn cycles_are_found_in_cpp_and_in_rust() {
    let bench = Bench::new();
    let report = recorded(&bench, "planted", &["cycle_shared"], &[]);
    assert_eq!(unreached(&report, "planted_"), (0, 2 * N));
    let report = recorded(&bench, "planted-rs", &["cycle_rc"], &[]);
    assert_eq!(unreached(&report, "planted_"), (0, 2 * N));
}

#[test]
fn what_is_held_in_any_way_is_not_called_leaked() {
    let bench = Bench::new();
    for case in [
        "keep_interior",
        "keep_high",
        "keep_stack",
        "keep_thread_tls",
        "keep_mapping",
        "keep_map",
        "keep_signal_stack",
    ] {
        let report = recorded(&bench, "planted", &[case], &[]);
        let sum = field(reach(&report), "unreached");
        assert_eq!(number(sum, "blocks"), 0, "{case}: {:#}", reach(&report));
        // At the end itself a static container's blocks are gone: the look came before its destructor.
        let held = ["certain.blocks", "likely.blocks"].map(|sum| number(reach(&report), sum));
        assert!(held.iter().sum::<u64>() >= N, "{case}: {held:?}");
    }
}

#[test]
fn who_holds_a_block_is_told_from_the_global_on() {
    let bench = Bench::new();
    recorded(&bench, "planted", &["keep_list"], &[]);
    let told = bench.tool(["report", "--who-holds", "kept_alloc", "main.sft"]);
    assert_eq!(told.status.code(), Some(0), "{told:#?}");
    for words in [
        "40 live blocks",
        "no root leads to 0 of them",
        "global g_list of planted",
        "kept_alloc ← keep_list",
    ] {
        assert!(
            told.stdout.contains(words),
            "no {words:?} in: {}",
            told.stdout
        );
    }
    let nobody = bench.tool(["report", "--who-holds", "no_such_function", "main.sft"]);
    nobody.says(2, &["no live block", "no_such_function"]);
}

#[test]
fn a_mark_has_a_look_of_its_own() {
    let bench = Bench::new();
    recorded(&bench, "planted", &["keep_list", "mark"], &[]);
    let report = bench.report_at("main.sft", "planted");
    let reach = reach(&report);
    assert_eq!(
        (text(reach, "label"), number(reach, "unreached.blocks")),
        ("planted", 0)
    );
}

#[test]
fn other_allocators_are_looked_through_as_well() {
    let ours = crate::tool::allocator().to_str().expect("UTF-8");
    for library in ["libjemalloc.so.2", ours] {
        let bench = Bench::new();
        let report = recorded(&bench, "planted", &["leak_list"], &["--preload", library]);
        assert_eq!(unreached(&report, "planted_"), (N, 0), "{library}");
        let report = recorded(&bench, "planted", &["keep_ring"], &["--preload", library]);
        assert_eq!(number(reach(&report), "unreached.blocks"), 0, "{library}");
    }
}

#[test]
fn a_program_that_is_traced_already_goes_on_without_a_look() {
    let bench = Bench::new();
    let program = made("tests/reach", "reach-programs").join("planted");
    // gdb starts the program, and so traces it; the recorder comes with the environment.
    let gdb = ["gdb", "-nx", "-q", "-batch", "-ex", "run", "--args"].map(std::ffi::OsStr::new);
    let case = [program.as_os_str(), std::ffi::OsStr::new("leak_list")];
    let done = run(bench.recording(&["--reachable", "--dir", "."], gdb.into_iter().chain(case)));
    assert_eq!(
        done.status.code(),
        Some(0),
        "apt-get install gdb: {done:#?}"
    );
    let traced = bench
        .traces()
        .into_iter()
        .find(|name| name.contains(".planted."));
    let traced = traced.unwrap_or_else(|| panic!("no trace of it: {done:#?}"));
    let report = bench.report_at(&traced, "end");
    let missing = text(field(&report.0, "reach"), "missing");
    assert!(missing.contains("is tracing process"), "{missing}");
}

#[test]
fn without_the_option_there_is_no_look() {
    let bench = Bench::new();
    let program = made("tests/reach", "reach-programs").join("planted");
    let done = bench.record([program.as_os_str(), "leak_list".as_ref()]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert!(field(&bench.report().0, "schema").as_u64().is_some());
    assert!(bench.report().0.get("reach").is_none());
    bench
        .tool(["report", "--reachable", "main.sft"])
        .says(2, &["record with --reachable"]);
}
