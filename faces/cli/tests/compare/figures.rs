//! Figures that were predicted: of programs, of process trees, of traces.

use skinflint_test_support::need;

use crate::tool::Bench;
use crate::{MIB, compared, made};

/// The most that a sleeping program may take: it takes at least as long as it sleeps, and how much longer depends on
/// the machine.
const MOST_NS: f64 = crate::PATIENCE.as_nanos() as f64;

/// 31.25 MiB are held, then a sixteenth of the blocks survives for 1.2 s: 250 blocks of 8 KiB, on 3 pages at most.
#[test]
fn peak_and_after_free_of_a_program() {
    let bench = Bench::new();
    let program = made("steps");
    let found = compared(
        &bench,
        &[
            "--runs",
            "2",
            "--with",
            "glibc,skinflint",
            "--",
            program.to_str().expect("UTF-8"),
        ],
    );
    for allocator in ["glibc", "skinflint"] {
        assert_eq!(found.verdict(allocator), "measured", "{}", found.text);
        found.between(allocator, "peak_bytes", 31.25 * MIB, 34.0 * MIB);
        found.between(allocator, "elapsed_ns", 1.3e9, MOST_NS);
        let check = &found.column(allocator)["check"];
        // 4,000 blocks, 20,000 small ones, and what stdio wants.
        let calls = check["calls"].as_u64().expect("counted");
        assert!((24_000..24_100).contains(&calls), "{check}");
    }
    // Each round begins with a different allocator, the next one.
    let positions = |allocator: &str| {
        let runs = found.column(allocator)["runs"].as_array().expect("runs");
        let positions = runs.iter().map(|run| run["position"].as_u64());
        positions.collect::<Option<Vec<u64>>>().expect("numbers")
    };
    assert_eq!(positions("glibc"), [1, 2]);
    assert_eq!(positions("skinflint"), [2, 1]);
    // glibc keeps what lies below the last survivor; ours gives back the pages that have no live block.
    found.between("glibc", "after_free_bytes", 29.0 * MIB, 34.0 * MIB);
    found.between("skinflint", "after_free_bytes", 1.9 * MIB, 12.0 * MIB);
    let mean = found.figure("glibc", "mean_bytes");
    assert!(mean < found.figure("glibc", "peak_bytes"));
    assert!(found.figure("skinflint", "mean_bytes") < 0.8 * mean);
    assert_eq!(found.code, 0);
}

/// An `operator new` is one call, whether the C++ library asks malloc for it or the allocator serves it itself.
#[test]
fn a_call_of_operator_new_counts_once_under_each_allocator() {
    let bench = Bench::new();
    let program = made("news");
    let program = program.to_str().expect("UTF-8");
    let found = compared(
        &bench,
        &["--runs", "1", "--with", "glibc,skinflint", "--", program],
    );
    for allocator in ["glibc", "skinflint"] {
        assert_eq!(found.verdict(allocator), "measured", "{}", found.text);
        let check = &found.column(allocator)["check"];
        let calls = check["calls"].as_u64().expect("counted");
        // 44,000 by the program's head; the C++ library has a buffer for exceptions, and the loader's are not counted.
        assert!((44_000..44_010).contains(&calls), "{allocator}: {check}");
    }
    assert!(!found.text.contains("not the same work"), "{}", found.text);
}

/// 16 MiB are shared by five processes, four have 4 MiB of their own: 32 MiB of pages, 96 MiB of resident sets.
#[test]
fn shared_pages_of_a_process_tree_count_once() {
    let bench = Bench::new();
    let program = made("family");
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--with",
            "glibc",
            "--",
            program.to_str().expect("UTF-8"),
        ],
    );
    found.between("glibc", "peak_bytes", 32.0 * MIB, 40.0 * MIB);
    let run = &found.column("glibc")["runs"][0];
    assert_eq!(run["processes"], 5, "{run}");
    // CPU time of the children is included: 32 MiB take 8,192 faults, 4,096 of them the children's.
    let faults = run["figures"]["minor_faults"].as_f64().expect("counted");
    assert!(faults > 8_192.0, "{faults}");
}

/// A shell that waits after its program holds nothing: that is not a low of the program.
#[test]
fn what_a_wrapper_does_afterwards_is_no_low() {
    let bench = Bench::new();
    let script = format!("{}; sleep 0.5", made("steps").display());
    let found = compared(
        &bench,
        &["--runs", "1", "--with", "glibc", "--", "sh", "-c", &script],
    );
    found.between("glibc", "elapsed_ns", 1.8e9, MOST_NS);
    found.between("glibc", "after_free_bytes", 29.0 * MIB, 34.0 * MIB);
    found.between("glibc", "final_bytes", 29.0 * MIB, 34.0 * MIB);
}

#[test]
fn an_idle_server_is_ended_and_measured() {
    let bench = Bench::new();
    let program = made("serve");
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--idle",
            "0.5",
            "--with",
            "glibc",
            "--",
            program.to_str().expect("UTF-8"),
        ],
    );
    found.between("glibc", "final_bytes", 8.0 * MIB, 10.0 * MIB);
    found.between("glibc", "elapsed_ns", 0.5e9, MOST_NS);
}

/// Replays the same program as a trace: the same peaks, live bytes to the byte, and the floor.
#[test]
fn a_trace_is_replayed_under_each_allocator() {
    let bench = Bench::new();
    let program = made("steps");
    let done = bench.record([&program]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    // Five seconds: what was recently wanted is kept for two, and the machine may be busy.
    let found = compared(
        &bench,
        &[
            "--runs",
            "2",
            "--idle",
            "5",
            "--with",
            "glibc,skinflint",
            "main.sft",
        ],
    );
    for allocator in ["glibc", "skinflint"] {
        assert_eq!(found.verdict(allocator), "measured", "{}", found.text);
        found.between(allocator, "live_bytes", 31.25 * MIB, 31.25 * MIB + 8192.0);
        found.between(allocator, "peak_bytes", 31.0 * MIB, 34.0 * MIB);
        found.between(allocator, "floor_peak_bytes", 31.25 * MIB, 32.0 * MIB);
        // 250 survivors.
        found.between(allocator, "floor_final_bytes", 1.9 * MIB, 3.1 * MIB);
        found.between(allocator, "op_ns", 0.0, 100_000.0);
        let server = found.column(allocator)["check"]["served_by"]
            .as_str()
            .expect("a file");
        let expected = if allocator == "glibc" {
            "libc.so.6"
        } else {
            "libskinflint.so"
        };
        assert!(server.ends_with(expected), "{server}");
    }
    found.between("glibc", "final_bytes", 29.0 * MIB, 34.0 * MIB);
    found.between("skinflint", "final_bytes", 1.9 * MIB, 12.0 * MIB);
    found.says(&["time per call", "live at its peak", "floor at the peak"]);
}

#[test]
fn several_traces_have_means() {
    let bench = Bench::new();
    let program = made("steps");
    bench.record([&program]);
    std::fs::rename(bench.path("main.sft"), bench.path("first.sft")).expect("renamed");
    bench.record(["/bin/ls", "-l", "/"]);
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--with",
            "glibc,skinflint",
            "first.sft",
            "main.sft",
        ],
    );
    found.says(&["first: replayed", "main: replayed", "geometric mean"]);
    let overall = found.json["overall"].as_array().expect("means");
    assert!(overall.iter().any(|mean| {
        mean["allocator"] == "skinflint" && mean["measure"] == "peak_bytes" && mean["programs"] == 2
    }));
}

/// Debian's redis is linked with jemalloc: "glibc" must win over that, and "own" must not.
#[test]
fn glibc_wins_over_what_the_program_is_linked_with() {
    if !need::program("redis-server") {
        return;
    }
    let bench = Bench::new();
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--with",
            "glibc,own",
            "--",
            "redis-server",
            "--version",
        ],
    );
    let server = |allocator: &str| {
        let server = found.column(allocator)["check"]["served_by"].as_str();
        server.expect("counted").to_owned()
    };
    assert!(
        server("glibc").ends_with("libc.so.6"),
        "{}",
        server("glibc")
    );
    assert!(server("own").contains("libjemalloc"), "{}", server("own"));
}

#[test]
fn all_outputs_at_once() {
    let bench = Bench::new();
    let done = crate::compare(
        &bench,
        &[
            "--runs",
            "1",
            "--with",
            "glibc,skinflint",
            "--json",
            "a.json",
            "--csv",
            "a.csv",
            "--html",
            "a.html",
            "--",
            "sh",
            "-c",
            "ls -l /; sleep 0.3",
        ],
    );
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    for text in ["peak RSS", "1 round"] {
        assert!(done.stdout.contains(text), "{done:#?}");
    }
    assert!(done.stderr.contains("round 1 of 1") && done.stderr.contains("a.html"));
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).expect("written");
    let json: serde_json::Value = serde_json::from_str(&read("a.json")).expect("JSON");
    assert_eq!(json["settings"]["runs"], 1);
    assert_eq!(read("a.csv").lines().count(), 3);
    let page = read("a.html");
    assert!(page.contains("<svg") && page.contains("sh under 2 allocators"));
}
