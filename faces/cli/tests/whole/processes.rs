//! Processes that come from processes: each has a trace of its own, with a link to where it came from.
//!
//! ```text
//!   forks ──┬─ fork ──► child: 50 x 333, frees 10 of the 100 x 1000 that it inherited
//!           ├─ fork, vfork + exec, posix_spawn ──► child: 7 x 777
//!           ├─ clone without libc, a daemon's grandchild ──► as fork
//!           └─ 4 x fork ──► child: 30 x 333 kept, frees 20 inherited
//! ```
//!
//! Q1  What a child inherited is known in its trace, with the stacks that acquired it: no release in it is of an unknown
//!     block.

use std::path::Path;

use serde_json::Value;
use skinflint_test_support::executable;

use crate::programs::recorded;
use crate::report::{Report, number};
use crate::tool::{Bench, program};

/// Returns the blocks that the child inherited and has not released.
fn inherited_at_end(report: &Report) -> u64 {
    let stack = |site: &&Value| report.functions(number(site, "node"));
    let sites = report.sites().iter();
    let inherited = sites.filter(|site| stack(site).ends_with(&["[inherited from parent]"]));
    let inherited: Vec<&Value> = inherited.collect();
    for site in &inherited {
        let stack = stack(site);
        assert!(
            stack.contains(&"main") || number(site, "end_blocks") < 5,
            "{stack:?}"
        );
    }
    inherited
        .iter()
        .map(|site| number(site, "end_blocks"))
        .sum()
}

#[test]
fn every_way_to_make_a_process() {
    let bench = Bench::new();
    let parent = recorded(&bench, "forks");
    parent.is_complete();
    let pid = parent.number("program.pid");
    assert_eq!(parent.blocks_of(1000), (100, 0));
    let (forked, spawned) = (
        format!("forked from process {pid}"),
        format!("started by process {pid}"),
    );
    let mut kinds = [0; 4];
    for trace in bench.traces() {
        if trace == "main.sft" {
            continue;
        }
        let report = bench.report_at(&trace, "end");
        let origin = report.text("program.origin");
        assert_eq!(report.number("completeness.lost_events"), 0);
        assert_eq!(report.number("completeness.unknown_frees"), 0, "{trace}");
        let ended = report.text("program.ended");
        match report.heap() {
            (50, 60) => {
                kinds[0] += 1;
                assert_eq!(report.blocks_of(333), (50, 0));
                assert_eq!(report.blocks_of(1000), (0, 90));
                assert!(inherited_at_end(&report) >= 90);
                // The grandchild no longer has a parent in the recording: newer kernels still tell its status.
                assert!(matches!(ended, "exit 42" | "exit 0" | "unknown"), "{ended}");
            }
            (7, 0) => {
                kinds[1] += 1;
                assert_eq!(report.blocks_of(777), (7, 7));
                assert!(origin.starts_with(&spawned), "{trace}: {origin}");
                assert_eq!((inherited_at_end(&report), ended), (0, "exit 42"));
                report.is_complete();
                continue;
            }
            (0, 0) => {
                kinds[2] += 1;
                assert!(inherited_at_end(&report) >= 100);
                assert_eq!(ended, "exit 42");
            }
            (30, 20) => {
                kinds[3] += 1;
                assert_eq!(report.blocks_of(333), (30, 30));
                assert_eq!(report.blocks_of(1000), (0, 80));
                assert_eq!(ended, "exit 42");
            }
            other => panic!("{trace}: {other:?} blocks acquired and released"),
        }
        assert!(origin.starts_with(&forked), "{trace}: {origin}");
        report.is_complete();
    }
    // fork, clone, grandchild; exec, vfork, spawn; the daemon's parent; the server's.
    assert_eq!(kinds, [3, 3, 1, 4]);
}

#[test]
fn a_program_that_becomes_another_has_two_traces() {
    let bench = Bench::new();
    let script = format!("exec {} child", program("forks").display());
    let done = bench.record(["sh", "-c", &script]);
    assert_eq!(done.status.code(), Some(42), "{done:#?}");
    // The requested name goes to what it became.
    let report = bench.report();
    report.is_complete();
    assert_eq!(report.text("program.name"), "forks");
    assert_eq!(report.blocks_of(777), (7, 7));
    let pid = report.number("program.pid");
    let origin = report.text("program.origin");
    assert_eq!(origin, "took the place of another program (exec)");
    let traces = bench.traces();
    assert_eq!(traces.len(), 2, "{traces:?}");
    let others = format!("skinflint-sh-{pid}/skinflint.sh.{pid}.sft");
    assert_eq!(traces[1], others);
    let before = bench.report_at(&traces[1], "end");
    assert_eq!(before.text("program.ended"), "exec");
}

/// Tests a wrapper that becomes the program of its own name: the requested name goes from one to the other, and
/// neither is lost. It once depended on which of two threads came first: so it is tried several times.
#[test]
fn a_wrapper_that_becomes_a_program_of_its_name_keeps_its_trace() {
    for round in 0..8 {
        let bench = Bench::new();
        let wrapper = bench.path("forks");
        let script = format!("#!/bin/sh\nexec {} child\n", program("forks").display());
        executable::written(&wrapper, script.as_bytes(), 0o755);
        let done = bench.record([wrapper]);
        assert_eq!(done.status.code(), Some(42), "{done:#?}");
        let traces = bench.traces();
        assert_eq!(traces.len(), 2, "round {round}: {traces:?}");
        assert_eq!(bench.report().blocks_of(777), (7, 7), "round {round}");
        let before = bench.report_at(&traces[1], "end");
        assert_eq!(before.text("program.ended"), "exec", "round {round}");
    }
}

/// Tests twenty-five programs in one process, each of which becomes the next at once, and starts a child that
/// outlives it.
#[test]
fn whoever_becomes_another_program_at_once_is_not_missed() {
    let bench = Bench::new();
    let script = bench.path("chain");
    std::fs::write(
        &script,
        "#!/bin/sh\n/bin/true &\n[ $1 -eq 0 ] || exec env sh $0 $(($1 - 1))\nwait\n",
    )
    .expect("a script");
    let done = bench.record([Path::new("/bin/sh"), &script, Path::new("12")]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let traces = bench.traces();
    assert!(traces.len() >= 36, "{traces:?}");
    for trace in traces {
        let report = bench.report_at(&trace, "end");
        let notes = report.list("completeness.notes").iter();
        let missed = notes.filter(|note| note.to_string().contains("not recorded"));
        assert_eq!(
            missed.count(),
            0,
            "{trace}: {:?}",
            report.list("completeness.notes")
        );
    }
}

#[test]
fn a_child_is_understood_without_its_parent_as_far_as_it_goes() {
    let bench = Bench::new();
    recorded(&bench, "forks");
    std::fs::remove_file(bench.path("main.sft")).expect("the parent's trace");
    let mut freed = 0;
    for trace in bench.traces() {
        let report = bench.report_at(&trace, "end");
        if report.text("program.origin").starts_with("started by") {
            continue;
        }
        let notes = report.notes().join(" ");
        assert!(notes.contains("the trace of the parent"), "{notes}");
        freed += report.number("completeness.unknown_frees");
    }
    // fork, clone and the grandchild freed 10 each, the server's four children 20 each.
    assert_eq!(freed, 3 * 10 + 4 * 20);
}
