//! Memory that programs map themselves: whose it is, what holds it, and what takes malloc's place.
//!
//! ```text
//!   brought ─► mappers, books, findings, functions with all that they call: each 32 MiB, 24 of them by `load`
//!   firstmap ─► a child of fork that maps before its first heap call: stacks, and what it inherited
//!   segments ─► System V shared memory, by stack
//!   trampoline ─► stacks through code without unwind information, named by its perf map
//! ```
//!
//! M1  The same bytes are in the books, in the stacks and in the functions: one figure, worked out in the program's
//!     head.

use serde_json::Value;

use crate::report::{Report, number, text};
use crate::tool::{Bench, program};

const MIB: u64 = 1 << 20;

/// Returns the sum of a field of the mappings that stacks with this function made.
pub fn mapped_by(report: &Report, function: &str, field: &str) -> u64 {
    let mappers = report.list("mappers").iter();
    let by = mappers.filter(|one| report.functions(number(one, "node")).contains(&function));
    by.map(|one| number(one, field)).sum()
}

fn named<'a>(report: &'a Report, node: u64, function: &str) -> Option<&'a Value> {
    let node = &report.list("nodes")[node as usize];
    let frame = &report.list("frames")[number(node, "frame") as usize];
    (text(frame, "function") == function).then_some(frame)
}

#[test]
fn an_allocator_that_the_program_brings_is_told_and_its_memory_has_stacks() {
    let bench = Bench::new();
    let done = bench.record([program("brought")]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let report = bench.report_at("main.sft", "end");
    // Returns the resident bytes that stacks with this function mapped (M1).
    let mapped = |function: &str| -> u64 {
        let mappers = report.list("mappers").iter();
        let by = mappers.filter(|one| report.functions(number(one, "node")).contains(&function));
        by.map(|one| number(one, "resident_bytes")).sum()
    };
    assert_eq!((mapped("load"), mapped("draw")), (24 * MIB, 8 * MIB));
    assert_eq!(mapped("_mi_prim_alloc"), 32 * MIB);
    let instant = &report.list("instants")[report.number("at") as usize];
    let rows = instant["books"]["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["id"] == "program-maps");
    assert!(
        row.is_some_and(|row| number(row, "bytes") >= 32 * MIB),
        "{rows:#?}"
    );
    let sum: u64 = report
        .list("mappers")
        .iter()
        .map(|one| number(one, "resident_bytes"))
        .sum();
    assert_eq!(row.map(|row| number(row, "bytes")), Some(sum));
    // The allocator.
    let heap = &report.list("own_heaps")[0];
    assert_eq!(
        (&heap["name"], &heap["allocator"]),
        (&"mimalloc".into(), &true.into())
    );
    assert_eq!(number(heap, "bytes"), 32 * MIB);
    let holder = report
        .list("findings")
        .iter()
        .find(|one| one["kind"] == "holder");
    let title = holder.map(|one| text(one, "title")).unwrap_or_default();
    assert!(title.ends_with("% of resident memory: mimalloc"), "{title}");
    // Functions with all that they call.
    let through = |function: &str| -> u64 {
        let rows = report.list("through").iter();
        let mut rows = rows.filter(|row| named(&report, number(row, "node"), function).is_some());
        rows.next().map_or(0, |row| number(row, "bytes"))
    };
    assert_eq!((through("load"), through("draw")), (24 * MIB, 8 * MIB));
    assert!(through("main") >= 32 * MIB);
    // On the screen.
    let done = bench.tool(["report", "main.sft", "--at", "end"]);
    for said in [
        "The program brings an allocator of its own (mimalloc)",
        "→ To see them, keep the program's symbols",
        "Through whom (with all that each calls",
    ] {
        assert!(
            done.stdout.contains(said),
            "no {said:?} in:\n{}",
            done.stdout
        );
    }
}

#[test]
fn a_program_without_an_allocator_of_its_own_is_told_of_none() {
    let bench = Bench::new();
    let done = bench.record([program("predicted")]);
    assert!(done.status.code().is_some(), "{done:#?}");
    let report = bench.report_at("main.sft", "end");
    assert_eq!(report.list("own_heaps"), [] as [Value; 0]);
}

#[test]
fn stacks_go_through_the_trampolines_of_python_and_bear_its_names() {
    let bench = Bench::new();
    let trampoline = program("trampoline");
    let done = bench.record([trampoline.as_os_str(), "map".as_ref()]);
    let report = bench.report_at("main.sft", "end");
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", report.number("program.pid")));
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!(report.number("completeness.truncated_stacks"), 0);
    let sites = report.sites().iter();
    let sites = sites.filter(|site| number(site, "requested_bytes") == 100 * 701);
    let nodes: Vec<u64> = sites.map(|site| number(site, "node")).collect();
    assert_eq!(nodes.len(), 1, "one stack for all");
    let frames = report.frames(nodes[0]);
    let python: Vec<&str> = frames
        .iter()
        .filter(|(_, module, _)| *module == "[python]")
        .map(|(function, ..)| *function)
        .collect();
    assert_eq!(python, ["inner", "middle", "outer"], "{frames:?}");
    let own = report.own_functions(nodes[0], "trampoline");
    assert_eq!(
        own,
        [
            "evaluate", "evaluate", "evaluate", "evaluate", "main", "_start"
        ]
    );
}

/// Tests M1 for `syscall`: the figures of the head of bynumber.c.
#[test]
fn what_is_mapped_by_number_has_stacks() {
    let bench = Bench::new();
    crate::programs::recorded(&bench, "bynumber");
    let report = bench.report_at("main.sft", "end");
    let mapped = |function: &str| -> (u64, u64) {
        let mappers = report.list("mappers").iter();
        let by = mappers.filter(|one| report.functions(number(one, "node")).contains(&function));
        by.fold((0, 0), |sum, one| {
            let (all, resident) = (number(one, "mapped_bytes"), number(one, "resident_bytes"));
            (sum.0 + all, sum.1 + resident)
        })
    };
    assert_eq!(mapped("kept"), (8 * MIB, 8 * MIB));
    assert_eq!(mapped("grown"), (2 * MIB, MIB));
    assert_eq!(mapped("gone"), (0, 0));
    assert_eq!(mapped("advised"), (4 * MIB, 2 * MIB));
    let said = bench.tool(["report", "main.sft"]).stdout;
    assert!(said.contains("No heap call was recorded"), "{said}");
}

/// Tests M1 for children of fork whose first recorded call is about a mapping: the figures of the head of firstmap.c.
#[test]
fn a_child_that_maps_before_its_first_heap_call_has_stacks() {
    let bench = Bench::new();
    crate::programs::recorded(&bench, "firstmap").is_complete();
    let mut children = Vec::new();
    for trace in bench.traces() {
        let report = bench.report_at(&trace, "end");
        report.is_complete();
        let mib = |function| mapped_by(&report, function, "resident_bytes") / MIB;
        let held = (mib("inherited"), mib("fresh"));
        let ended = report.text("program.ended").to_owned();
        match trace.as_str() {
            "main.sft" => assert_eq!((held, &*ended), ((8, 0), "exit 0")),
            _ => {
                assert_eq!(ended, "exit 42", "{trace}");
                children.push(held);
            }
        }
        // Nothing that they mapped stands as mapped past the recorder.
        let at = report.number("at") as usize;
        let rows = report.list("instants")[at]["books"]["rows"].as_array();
        let past = rows.expect("books").iter();
        let past: Vec<_> = past
            .filter(|row| text(row, "id").contains("unseen") && number(row, "bytes") >= MIB)
            .collect();
        assert_eq!(past, [] as [&Value; 0], "{trace}");
    }
    children.sort_unstable();
    // vfork; gone; two that only fork; first, deep, handler; grown.
    let fresh = (8, 20);
    let all = [
        (0, 20),
        (4, 0),
        (8, 0),
        (8, 0),
        fresh,
        fresh,
        fresh,
        (16, 0),
    ];
    assert_eq!(children, all);
}

/// Tests M1 for `shmat`: the figures of the head of segments.c.
#[test]
fn shared_memory_of_system_v_has_stacks() {
    let bench = Bench::new();
    crate::programs::recorded(&bench, "segments").is_complete();
    for trace in bench.traces() {
        let report = bench.report_at(&trace, "end");
        report.is_complete();
        let mapped = |function: &str| {
            let by = |field| mapped_by(&report, function, field);
            assert_eq!(
                by("resident_bytes"),
                by("shared_bytes"),
                "{trace}: {function}"
            );
            (by("mapped_bytes"), by("shared_bytes"))
        };
        // The child has touched nothing of it.
        let here = u64::from(trace == "main.sft") * MIB;
        assert_eq!(mapped("kept"), (8 * MIB, 6 * here), "{trace}");
        assert_eq!(mapped("gone"), (0, 0), "{trace}");
        assert_eq!(mapped("twice"), (3 * MIB, 3 * here), "{trace}");
        assert_eq!(mapped("inherited"), (2 * here, 2 * here), "{trace}");
        // All of the row's bytes have a stack.
        let at = report.number("at") as usize;
        let rows = report.list("instants")[at]["books"]["rows"].as_array();
        let shared = rows.expect("books").iter();
        let shared = shared.filter(|row| row["id"] == "shared");
        let bytes: u64 = shared.map(|row| number(row, "bytes")).sum();
        assert_eq!(bytes, 11 * here, "{trace}");
    }
    assert_eq!(bench.traces().len(), 2);
}
