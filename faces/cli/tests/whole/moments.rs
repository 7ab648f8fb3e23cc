//! Which moment a report is about, and what its process began with, whatever command asks.
//!
//! W1  The peak is the fullest moment among those with about as much resident memory, for every command. A program
//!     that is full only for an instant is stopped there.
//! W2  What a copy began with is known to any depth.
//!
//! Predicted in the heads of plateau.c and lineage.c.

use crate::report::{Report, list, number, text};
use crate::tool::{Bench, expected, program, run};

/// Records plateau.c.
#[track_caller]
fn plateau(bench: &Bench, arguments: &[&str]) -> Report {
    let mut command = bench.recording(&[], [program("plateau")]);
    command.args(arguments);
    let done = run(command);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    bench.report_at("main.sft", "peak")
}

/// Checks that the page shows an instant by the windows' sums up to its edge.
#[track_caller]
fn has_an_edge(bench: &Bench, instant: usize) {
    let done = bench.tool(["report", "--json", "--windows", "--at", "peak", "main.sft"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let report = Report::read(&done.stdout);
    let edges = report.list("windows.edges").iter();
    let its = edges.filter(|edge| list(edge, "instants").contains(&instant.into()));
    assert_eq!(its.count(), 1, "edges of instant {instant}");
}

fn kinds(report: &Report) -> Vec<&str> {
    let findings = report.list("findings").iter();
    findings.map(|one| text(one, "kind")).collect()
}

#[test]
fn the_peak_is_the_fullest_moment_of_a_plateau() {
    let bench = Bench::new();
    let report = plateau(&bench, &[]);
    let at = &report.list("instants")[report.number("at") as usize];
    assert_eq!(text(at, "kind"), "peak");
    assert_eq!(number(at, "live_blocks"), 40_001, "{at:#}");
    // Another command finds the same moment: blocks by size, most first.
    let done = bench.tool(["counts", "--at", "peak", "main.sft"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert!(done.stdout.contains("40000"), "{}", done.stdout);
    // Most is kept after the free; what it is and what brings it back is reported, although the peak is full.
    let instants = report.list("instants").iter();
    let mut kept = instants
        .enumerate()
        .filter(|(_, one)| text(one, "kind") == "most_kept");
    let (index, kept) = kept.next().expect("40 MB are kept");
    // The first look such that no other one finds a quarter more kept: in the middle of the frees or after them.
    assert!(number(kept, "live_blocks") <= 8_001, "{kept:#}");
    has_an_edge(&bench, index);
    // It can be asked for, and is the same moment then.
    let asked = bench.report_at("main.sft", "most-kept");
    let own = &asked.list("instants")[asked.number("at") as usize];
    let moment = |one| {
        (
            text(one, "kind"),
            number(one, "ticket"),
            number(one, "live_blocks"),
        )
    };
    assert_eq!(moment(own), moment(kept));
    assert!(kinds(&report).contains(&"retained"), "{:?}", kinds(&report));
    let screen = bench.tool(["report", "main.sft"]);
    assert!(
        screen.stdout.contains("the allocator kept most, 3"),
        "{}",
        screen.stdout
    );
}

#[test]
fn the_turn_from_growth_to_fall_is_seen() {
    let report = plateau(&Bench::new(), &["unmarked"]);
    let instants = report.list("instants");
    let peak = &instants[report.number("at") as usize];
    assert_eq!(text(peak, "kind"), "peak");
    let greatest = instants
        .iter()
        .find(|one| text(one, "kind") == "heap_peak")
        .expect("the greatest live heap");
    let (there, most) = (
        number(peak, "live_usable_bytes"),
        number(greatest, "live_usable_bytes"),
    );
    assert!(there * 100 >= most * 95, "{there} of {most}");
}

#[test]
fn nothing_is_to_be_given_back_by_a_program_that_ends() {
    let report = plateau(&Bench::new(), &["exit"]);
    assert!(
        !kinds(&report).contains(&"retained"),
        "{:?}",
        kinds(&report)
    );
}

#[test]
fn a_grandchild_knows_what_it_began_with() {
    let bench = Bench::new();
    let done = bench.record([program("lineage")]);
    assert_eq!(done.stdout, expected("lineage"), "{done:#?}");
    let mut seen = Vec::new();
    for trace in bench.traces() {
        let report = bench.report_at(&trace, "end");
        report.is_complete();
        seen.push(report.end_blocks());
        if report.end_blocks() == 190 {
            assert_eq!(report.blocks_of(333), (20, 20));
            assert_eq!(report.blocks_of(1000), (0, 150));
            let done = bench.tool(["counts", "--at", "live", &trace]);
            assert!(done.stdout.contains("150"), "{}", done.stdout);
            assert_eq!(done.stderr, "");
            for command in ["what-if", "counts"] {
                let done = bench.tool([command, &trace]);
                assert_eq!(done.status.code(), Some(0), "{command}: {done:#?}");
                let says = done
                    .stderr
                    .contains("of the process that it was copied from");
                assert_eq!(says, command == "what-if", "{command}: {}", done.stderr);
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [190, 200, 230]);
}
