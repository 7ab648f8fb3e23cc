//! Programs that install a filter of system calls that kills: the recorder makes no call that would end them.
//!
//! F1  The program ends as it does without us, whatever its filter kills at, if it installs it by the C library.
//! F2  What cannot be recorded for the filter is said, and what can be is recorded.

use skinflint_trace::{LostKind, LostProcess, LostWhy, Trace};

use crate::tool::{Bench, program, run};

/// Records filtered.c with an argument, and returns what its trace names as lost.
#[track_caller]
fn lost(bench: &Bench, how: &str) -> Vec<LostProcess> {
    let mut command = bench.recording(&[], [program("filtered")]);
    command.arg(how);
    let done = run(command);
    let says = format!("filtered: {how}\n");
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    assert_eq!(done.stdout, says);
    Trace::open(bench.path("main.sft")).expect("the trace").lost
}

/// Checks that the folder's report calls the recording incomplete, and says why.
#[track_caller]
fn is_said(bench: &Bench, why: &str) {
    let folder = bench.tool(["report", "."]);
    assert!(folder.stdout.contains("incomplete: "), "{folder:#?}");
    let text = folder
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(text.contains(why), "{folder:#?}");
}

#[test]
fn a_child_that_installs_the_filter_first_is_recorded() {
    let bench = Bench::new();
    assert_eq!(lost(&bench, "own"), []);
    let traces = bench.traces();
    let child = traces.iter().find(|name| *name != "main.sft");
    let child = child.expect("a second trace");
    assert_eq!(bench.report_at(child, "end").blocks_of(229), (100, 100));
}

#[test]
fn a_copy_behind_the_filter_lives_and_is_lost() {
    for how in ["copy", "number"] {
        let bench = Bench::new();
        let lost = lost(&bench, how);
        assert_eq!(lost.len(), 1, "{how}: {lost:#?}");
        assert_eq!(
            (lost[0].what, lost[0].why),
            (LostKind::Copy, LostWhy::Unreachable)
        );
        is_said(
            &bench,
            "Not recorded (it could not reach the collector): 1 copy by fork",
        );
    }
}

#[test]
fn a_program_behind_the_filter_lives_and_is_lost() {
    for how in ["program", "spawn", "vfork"] {
        let bench = Bench::new();
        let lost = lost(&bench, how);
        assert_eq!(lost.len(), 1, "{how}: {lost:#?}");
        assert_eq!(
            (lost[0].what, lost[0].why, &*lost[0].name),
            (LostKind::Program, LostWhy::Unreachable, "filtered")
        );
        is_said(
            &bench,
            "Not recorded (it could not reach the collector): 1 child",
        );
        // The other child of vfork has no filter.
        let recorded = if how == "vfork" { 2 } else { 1 };
        assert_eq!(bench.traces().len(), recorded, "{how}");
    }
}

#[test]
fn recording_stops_before_a_filter_that_kills_at_its_events() {
    let bench = Bench::new();
    assert_eq!(lost(&bench, "events"), []);
    let report = bench.report();
    assert_eq!(report.blocks_of(231), (10, 10));
    assert_eq!(report.some_of(233), (0, 0));
    is_said(
        &bench,
        "The recording stopped early, as the program installed a filter",
    );
}

#[test]
fn a_thread_that_the_filter_would_end_is_counted() {
    let bench = Bench::new();
    assert_eq!(lost(&bench, "threads"), []);
    is_said(
        &bench,
        "1 thread was not recorded, as a filter of system calls",
    );
}

/// Nothing is known of the filter: the copy dies of it at the recorder's first call, and that is said.
#[test]
fn a_copy_that_an_unseen_filter_ends_is_named() {
    let bench = Bench::new();
    let lost = lost(&bench, "unseen");
    assert_eq!(lost.len(), 1, "{lost:#?}");
    assert_eq!(lost[0].what, LostKind::Copy);
    let is_named = matches!(lost[0].why, LostWhy::Filter | LostWhy::Unreachable);
    assert!(is_named, "{lost:#?}");
    is_said(&bench, "Not recorded (");
}
