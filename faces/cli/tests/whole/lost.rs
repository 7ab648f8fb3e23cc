//! Processes that come out of a recorded one and are not recorded: the trace names them.
//!
//! K1  A missing process is in the trace of the process it came from, with when and why; the program does not notice.
//! K2  A process that was recorded, did nothing, or never came to be is not reported missing. A copy that did nothing is
//!     named if a look fell on it.
//! K3  Reports state it: a child that is missing, and what a process became.

use skinflint_trace::{LostKind, LostProcess, LostWhy, Trace};

use crate::tool::{Bench, program, run, run_within};

/// Records lost.c with an argument, and returns what its trace names as lost.
#[track_caller]
fn lost(bench: &Bench, how: &str, says: &str) -> Vec<LostProcess> {
    let mut command = bench.recording(&[], [program("lost")]);
    command.arg(how);
    let done = run(command);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    assert_eq!(done.stdout, says);
    let trace = Trace::open(bench.path("main.sft")).expect("the trace");
    assert_eq!(trace.process.name, "lost");
    trace.lost
}

#[track_caller]
fn one(lost: &[LostProcess], what: LostKind, why: LostWhy, name: &str) -> LostProcess {
    let [lost] = lost else {
        panic!("not one: {lost:#?}");
    };
    assert_eq!((lost.what, lost.why, &*lost.name), (what, why, name));
    assert!(lost.pid > 1, "{lost:#?}");
    assert!(lost.time_ns > 0, "{lost:#?}");
    lost.clone()
}

/// Checks that the trace of the parent is whole and its report begins a note like this, and that of all processes one is
/// missing. Returns the text of the report on all.
#[track_caller]
fn one_of_all_is_missing(bench: &Bench, says: &str) -> String {
    let report = bench.report();
    report.is_complete();
    let said = report.notes().iter().any(|note| note.starts_with(says));
    assert!(said, "{:?}", report.notes());
    let folder = bench.tool(["report", "."]);
    assert!(
        folder.stdout.contains("incomplete: 1 reason"),
        "{folder:#?}"
    );
    folder.stdout
}

#[test]
fn a_copy_that_cannot_reach_us() {
    let bench = Bench::new();
    let lost = lost(&bench, "copy", "lost: copy\n");
    one(&lost, LostKind::Copy, LostWhy::Unreachable, "lost");
    let says = "Not recorded (it could not reach the collector): 1 copy by fork (lost";
    let folder = one_of_all_is_missing(&bench, says);
    assert!(folder.contains("Not recorded"), "{folder}");
}

#[test]
fn static_children_however_they_are_started() {
    for (how, says) in [
        ("fork", "still\nlost: fork\n"),
        ("vfork", "lost: vfork\n"),
        ("spawn", "still\nlost: spawn\n"),
        ("number", "still\nlost: number\n"),
    ] {
        let bench = Bench::new();
        let lost = lost(&bench, how, says);
        let lost = one(&lost, LostKind::Program, LostWhy::Static, "still");
        assert!(lost.exe.ends_with("/still"), "{lost:#?}");
    }
}

#[test]
fn an_exec_into_the_dark() {
    let bench = Bench::new();
    let lost = lost(&bench, "exec", "still\n");
    let became = one(&lost, LostKind::Exec, LostWhy::Static, "still");
    let report = bench.report();
    let complete = crate::report::field(&report.0, "completeness.complete").as_bool();
    assert_eq!(complete, Some(false));
    let says = "the process became still, which was not recorded (it is statically linked)";
    let said = report.notes().iter().any(|note| note.contains(says));
    assert!(said, "{:?}", report.notes());
    // Nothing that was sampled later is in it.
    let times = report.list("timeline.rss_t_ns").iter();
    let mut times = times.map(|time| time.as_u64().expect("a number"));
    assert!(times.all(|time| time < became.time_ns));
}

#[test]
fn a_child_without_our_variables() {
    let bench = Bench::new();
    let lost = lost(&bench, "bare", "lost: bare\n");
    one(&lost, LostKind::Program, LostWhy::Environment, "lost");
}

#[test]
fn a_shell_of_the_c_library_without_our_variables() {
    let bench = Bench::new();
    let lost = lost(&bench, "shell", "lost: shell\n");
    assert_eq!(lost.len(), 1, "{lost:#?}");
    assert_eq!(
        (lost[0].what, lost[0].why),
        (LostKind::Program, LostWhy::Environment)
    );
}

#[test]
fn a_copy_that_makes_no_heap_call_and_rewrites_what_it_inherits() {
    let bench = Bench::new();
    let lost = lost(&bench, "quiet", "lost: quiet\n");
    let lost = one(&lost, LostKind::Copy, LostWhy::Quiet, "lost");
    assert!(lost.max_rss_bytes >= Some(8 << 20), "{lost:#?}");
    let says = "Not recorded: 1 copy of this process that made no heap call (up to 8";
    one_of_all_is_missing(&bench, says);
}

/// As the helper processes of a browser's sandbox do: they wait for a request, and end.
#[test]
fn a_copy_that_makes_no_heap_call_and_writes_nothing_is_named_by_its_own_name() {
    let bench = Bench::new();
    let lost = lost(&bench, "idle", "lost: idle\n");
    one(&lost, LostKind::Copy, LostWhy::Quiet, "waits");
    let report = bench.report();
    report.is_complete();
    let says = "Not recorded: 1 copy of this process that made no heap call";
    let said = |note: &&str| note.starts_with(says) && note.ends_with(": waits.");
    assert!(report.notes().iter().any(said), "{:?}", report.notes());
    assert!(bench.tool(["report", "."]).stdout.contains("\ncomplete"));
}

#[test]
fn a_child_without_room_for_descriptors_has_a_trace_that_is_not_called_complete() {
    let bench = Bench::new();
    assert_eq!(lost(&bench, "few", "lost: few\n"), []);
    bench.report().is_complete();
    let traces = bench.traces();
    let child = traces.iter().find(|name| *name != "main.sft");
    let alone = bench.tool(["report", child.expect("a second trace").as_str()]);
    let folder = bench.tool(["report", "."]);
    for report in [&alone, &folder] {
        let text = report.stdout.to_lowercase();
        assert!(text.contains("incomplete: "), "{report:#?}");
        let words: Vec<&str> = report.stdout.split_whitespace().collect();
        let text = words.join(" ");
        assert!(
            text.contains("the process met the collector and could not begin"),
            "{report:#?}"
        );
        assert!(!text.contains("made no heap call"), "{report:#?}");
    }
}

#[test]
fn a_copy_that_allocates_long_after_its_parent_has_ended_is_recorded() {
    let bench = Bench::new();
    assert_eq!(lost(&bench, "late", "lost: late\n"), []);
    let traces = bench.traces();
    let child = traces
        .iter()
        .find(|name| *name != "main.sft")
        .expect("a second trace");
    assert_eq!(bench.report_at(child, "end").blocks_of(229), (100, 100));
}

/// Leaves out copies that did nothing: whether a look fell on one is chance (K2).
fn besides_idle(mut lost: Vec<LostProcess>) -> Vec<LostProcess> {
    let little = |one: &LostProcess| one.max_rss_bytes < Some(1 << 20);
    lost.retain(|one| one.why != LostWhy::Quiet || !little(one));
    lost
}

#[test]
fn nobody_is_missed_who_was_recorded_or_did_nothing() {
    let bench = Bench::new();
    assert_eq!(besides_idle(lost(&bench, "none", "lost: none\n")), []);
    bench.report().is_complete();
    // A shell, its children, and a program started in another way, by `env`.
    let bench = Bench::new();
    let script = "ls / > all; cat all | sort | head -1 > first; (cat first; true); exec env true";
    let done = bench.record(["sh", "-c", script]);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    for name in bench.traces() {
        let trace = Trace::open(bench.path(&name)).expect("a trace");
        assert_eq!(besides_idle(trace.lost), [], "{name}");
    }
}

#[test]
fn static_and_privileged_children_of_a_shell() {
    let bench = Bench::new();
    let still = program("still").display().to_string();
    let script = format!("{still} 1; {still}; true");
    let done = run_within(
        bench.recording(&[], ["sh", "-c", &script]),
        b"",
        crate::tool::PATIENCE,
    );
    assert_eq!((done.shell_status(), &*done.stdout), (0, "still\n"));
    let all: Vec<LostProcess> = bench
        .traces()
        .iter()
        .flat_map(|name| Trace::open(bench.path(name)).expect("a trace").lost)
        .collect();
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(
        all.iter().all(|lost| lost.why == LostWhy::Static),
        "{all:#?}"
    );
}
