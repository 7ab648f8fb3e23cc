//! Each format, opened by the program it is written for; its sums are ours.
//!
//! | format | consumer |
//! |---|---|
//! | pprof | `go tool pprof` |
//! | DHAT | `dh_view.js` of Debian's valgrind, in node |
//! | heaptrack | `heaptrack_print` |
//! | speedscope | the JSON schema that speedscope ships |
//! | Firefox Profiler, memory report | their documented rules, followed here a second time |
//! | folded | its one rule: a line ends in a blank and a figure |
//!
//! C1  Bytes and blocks are compared to the unit, for every value that the format has.

use std::collections::BTreeMap;

use serde_json::Value;

use skinflint_test_support::need;

use crate::report::{Report, field, list, number, text};
use crate::tool::Bench;
use crate::{
    PREDICTED_END, PREDICTED_HEAP_PEAK, exported, node, node_packages, printed, recorded,
    recorded_python, sum, totals, unpacked,
};

/// Returns the total that `go tool pprof -top` prints for one value.
#[track_caller]
fn pprof_total(bench: &Bench, file: &str, value: &str) -> u64 {
    let unit = if value.ends_with("objects") {
        "count"
    } else {
        "B"
    };
    let mut command = bench.command("go");
    command.args([
        "tool",
        "pprof",
        "-top",
        "-nodecount=1",
        "-sample_index",
        value,
        "-unit",
        unit,
        file,
    ]);
    let said = printed(command);
    // "Showing nodes accounting for 1B, 50% of 2B total"; there is no such line if there is nothing.
    let Some(line) = said.lines().find(|line| line.ends_with(" total")) else {
        assert!(said.contains(&format!("Type: {value}")), "{said}");
        return 0;
    };
    let total = line
        .rsplit(' ')
        .nth(1)
        .expect("a total")
        .trim_end_matches('B');
    total.parse().unwrap_or_else(|_| panic!("{said}"))
}

#[test]
fn pprof_by_go() {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    recorded(&bench, "predicted");
    for (at, wanted) in [("end", PREDICTED_END), ("heap-peak", PREDICTED_HEAP_PEAK)] {
        exported(&bench, "pprof", "app.pb.gz", &["--at", at]);
        for (value, total) in wanted {
            assert_eq!(
                pprof_total(&bench, "app.pb.gz", value),
                total,
                "{value} at {at}"
            );
        }
    }
    // The program is the first mapping, with its build id; every object has its range.
    let mut command = bench.command("go");
    command.args(["tool", "pprof", "-top", "-nodecount=1", "app.pb.gz"]);
    let said = printed(command);
    assert!(said.starts_with("File: predicted\nBuild ID: "), "{said}");
    let mut command = bench.command("go");
    command.args(["tool", "pprof", "-raw", "app.pb.gz"]);
    let said = printed(command);
    let mappings = said.split("Mappings\n").nth(1).expect("a list of mappings");
    let first = mappings.lines().next().expect("one");
    assert!(
        first.starts_with("1: 0x") && first.contains("/predicted "),
        "{said}"
    );
    assert!(
        mappings
            .lines()
            .any(|line| line.contains("libc.so.6") && !line.contains(": 0x0/0x0/")),
        "{said}"
    );
    // Functions, what is inlined into them, and lines are present.
    let mut command = bench.command("go");
    command.args(["tool", "pprof", "-traces", "-lines", "app.pb.gz"]);
    let said = printed(command);
    assert!(
        said.contains("predicted.c:") && said.contains("terminator"),
        "{said}"
    );
}

#[test]
fn pprof_of_a_program_with_many_stacks() {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    recorded_python(&bench);
    exported(&bench, "pprof", "app.pb.gz", &["--at", "heap-peak"]);
    let report = bench.report_at("main.sft", "heap-peak");
    assert!(report.sites().len() > 500, "{}", report.sites().len());
    for (value, total) in totals(&report) {
        assert_eq!(pprof_total(&bench, "app.pb.gz", value), total, "{value}");
    }
}

#[test]
fn dhat_by_its_viewer() {
    const VIEWER: &str = "/usr/libexec/valgrind/dh_view.js";
    if !need::program(VIEWER) || !node_packages() {
        return;
    }
    let bench = Bench::new();
    let view = |bench: &Bench| {
        exported(bench, "dhat", "app.json", &[]);
        node(bench, "dh_view.mjs", &[VIEWER, "app.json"])
    };
    recorded(&bench, "predicted");
    let seen = view(&bench);
    let wanted = [
        ("tb", 6_689_751),
        ("tbk", 7662),
        ("gb", 2_310_348),
        ("gbk", 444),
        ("eb", 1_264_256),
        ("ebk", 456),
    ];
    for (name, total) in wanted {
        assert_eq!(number(&seen, name), total, "{name}");
    }
    let page = text(&seen, "page");
    assert!(
        page.contains("At t-end:  1,264,256 bytes (100%) in 456 blocks (100%)"),
        "{page}"
    );
    // Stacks with the same text, which the viewer would refuse, are distinguished.
    recorded_python(&bench);
    let (seen, report) = (view(&bench), bench.report());
    for (name, column) in [
        ("tb", "requested_bytes"),
        ("tbk", "allocations"),
        ("ebk", "end_blocks"),
    ] {
        assert_eq!(number(&seen, name), sum(&report, column), "{name}");
    }
}

#[test]
fn heaptrack_by_its_printer() {
    if !need::program("heaptrack_print") {
        return;
    }
    let bench = Bench::new();
    recorded(&bench, "predicted");
    for file in ["app.heaptrack", "app.heaptrack.gz"] {
        exported(&bench, "heaptrack", file, &[]);
        for (cost, total) in [
            ("allocations", 7662),
            ("leaked", 1_264_256),
            ("peak", 2_310_348),
        ] {
            let mut command = bench.command("heaptrack_print");
            command.args([file, "-F", "folded.txt", "--flamegraph-cost-type", cost]);
            let said = printed(command);
            assert!(
                said.contains("calls to allocation functions: 7662 "),
                "{said}"
            );
            assert_eq!(folded_sum(&bench, "folded.txt"), total, "{cost}");
        }
    }
    // Three threads, and blocks that others release.
    recorded(&bench, "threads");
    exported(&bench, "heaptrack", "app.heaptrack", &[]);
    let report = bench.report();
    for (cost, column) in [
        ("allocations", "allocations"),
        ("leaked", "end_requested_bytes"),
    ] {
        let mut command = bench.command("heaptrack_print");
        command.args([
            "app.heaptrack",
            "-F",
            "folded.txt",
            "--flamegraph-cost-type",
            cost,
        ]);
        printed(command);
        assert_eq!(
            folded_sum(&bench, "folded.txt"),
            sum(&report, column),
            "{cost}"
        );
    }
}

#[track_caller]
fn folded_sum(bench: &Bench, file: &str) -> u64 {
    let text = std::fs::read_to_string(bench.path(file)).expect("the file");
    let figures = text
        .lines()
        .map(|line| line.rsplit(' ').next().expect("a figure"));
    figures
        .map(|figure| figure.parse::<u64>().expect("a figure"))
        .sum()
}

#[test]
fn folded_stacks() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    for (value, total) in PREDICTED_END {
        exported(
            &bench,
            "folded",
            "app.folded",
            &["--at", "end", "--value", value],
        );
        assert_eq!(folded_sum(&bench, "app.folded"), total, "{value}");
    }
    let text = std::fs::read_to_string(bench.path("app.folded")).expect("the file");
    let terminator = text
        .lines()
        .find(|line| line.contains(";terminator"))
        .expect("a stack");
    assert!(
        terminator.starts_with("_start;") && terminator.contains(";main;terminator"),
        "{terminator}"
    );
    // 64 blocks of 1025, live to the end.
    exported(&bench, "folded", "app.folded", &["--at", "end"]);
    let text = std::fs::read_to_string(bench.path("app.folded")).expect("the file");
    let terminator = text
        .lines()
        .find(|line| line.contains(";terminator"))
        .expect("a stack");
    assert!(terminator.ends_with(" 65600"), "{terminator}");
}

#[test]
fn speedscope_by_its_schema() {
    if !node_packages() {
        return;
    }
    let bench = Bench::new();
    recorded(&bench, "predicted");
    exported(&bench, "speedscope", "app.json", &["--at", "end"]);
    let seen = node(&bench, "speedscope.mjs", &["app.json"]);
    for (value, total) in PREDICTED_END {
        assert_eq!(number(&seen, value), total, "{value}");
    }
    recorded_python(&bench);
    exported(&bench, "speedscope", "app.json", &["--at", "end"]);
    let seen = node(&bench, "speedscope.mjs", &["app.json"]);
    for (value, total) in totals(&bench.report()) {
        assert_eq!(number(&seen, value), total, "{value}");
    }
}

/// Returns what the Firefox Profiler makes of native allocations: bytes acquired, and bytes retained at the end.
#[track_caller]
fn profiled(profile: &Value) -> (u64, u64) {
    let threads = list(profile, "threads");
    assert_eq!(threads.len(), 1);
    let table = field(&threads[0], "nativeAllocations");
    let column = |name: &str| list(table, name);
    let rows = column("time").len();
    assert_eq!(number(table, "length"), rows as u64);
    let stacks = number(&threads[0], "stackTable.length");
    let mut retained: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut acquired, mut before) = (0, 0.0);
    for row in 0..rows {
        let time = column("time")[row].as_f64().expect("a time");
        assert!(time >= before, "row {row} is before the one before it");
        before = time;
        assert!(column("stack")[row].as_u64().expect("a stack") < stacks);
        let address = column("memoryAddress")[row].as_u64().expect("an address");
        let bytes = column("weight")[row].as_i64().expect("bytes");
        if bytes > 0 {
            acquired += bytes as u64;
            assert!(
                retained.insert(address, bytes as u64).is_none(),
                "acquired twice"
            );
        } else {
            assert_eq!(
                retained.remove(&address),
                Some(bytes.unsigned_abs()),
                "row {row}"
            );
        }
    }
    (acquired, retained.values().sum())
}

#[test]
fn firefox_by_the_rules_of_its_profiler() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    exported(&bench, "firefox", "app.json.gz", &[]);
    let profile: Value = serde_json::from_slice(&unpacked(&bench, "app.json.gz")).expect("JSON");
    assert_eq!(profiled(&profile), (6_759_312, 1_272_920));
    assert!(number(&profile, "meta.preprocessedProfileVersion") > 40);
    assert!(!list(&profile, "counters").is_empty());
    recorded_python(&bench);
    exported(&bench, "firefox", "app.json", &[]);
    let json = std::fs::read(bench.path("app.json")).expect("the file");
    let report = bench.report();
    let wanted = (
        report.number("totals.usable_bytes"),
        sum(&report, "end_usable_bytes"),
    );
    assert_eq!(
        profiled(&serde_json::from_slice(&json).expect("JSON")),
        wanted
    );
}

/// Returns what about:memory makes of a report: amounts of trees by their first component, and of single rows.
#[track_caller]
fn about_memory(reported: &Value) -> BTreeMap<String, u64> {
    assert_eq!(number(reported, "version"), 1);
    assert_eq!(
        field(reported, "hasMozMallocUsableSize").as_bool(),
        Some(true)
    );
    let mut trees: BTreeMap<String, u64> = BTreeMap::new();
    let (mut paths, mut processes) = (
        std::collections::BTreeSet::new(),
        std::collections::BTreeSet::new(),
    );
    for entry in list(reported, "reports") {
        let (path, kind, units) = (
            text(entry, "path"),
            number(entry, "kind"),
            number(entry, "units"),
        );
        assert!(paths.insert(path), "{path} occurs twice");
        processes.insert(text(entry, "process"));
        assert!(!text(entry, "description").is_empty(), "{path}");
        assert!(path.split('/').all(|part| !part.is_empty()), "{path}");
        if path.starts_with("explicit/") {
            assert!(kind <= 1 && units == 0, "{path}");
        }
        let amount = number(entry, "amount");
        let mut tree = path.split('/').next().expect("a component").to_owned();
        if path.starts_with("explicit/") && kind == 1 {
            tree = "explicit heap".into();
        }
        *trees.entry(tree).or_default() += amount;
    }
    assert_eq!(processes.len(), 1);
    trees
}

#[test]
fn a_memory_report_by_the_rules_of_about_memory() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    exported(
        &bench,
        "memory-report",
        "memory-report.json.gz",
        &["--at", "end"],
    );
    let reported: Value =
        serde_json::from_slice(&unpacked(&bench, "memory-report.json.gz")).expect("JSON");
    let trees = about_memory(&reported);
    // Nothing is left for heap-unclassified, which the reader adds.
    assert_eq!(
        (trees["explicit heap"], trees["heap-allocated"]),
        (1_272_920, 1_272_920)
    );
    assert_eq!(trees["heap-blocks"], 456);
    let report = bench.report();
    let ends = report
        .list("instants")
        .iter()
        .find(|one| text(one, "kind") == "end");
    let resident = number(ends.expect("the end"), "books.resident_bytes");
    assert_eq!(
        (trees["resident"], trees["resident-by-row"]),
        (resident, resident)
    );
    assert!(0 < trees["resident-unique"] && trees["resident-unique"] < resident);
    let first = text(&list(&reported, "reports")[0], "process");
    assert_eq!(
        first,
        format!("predicted (pid {})", report.number("program.pid"))
    );
    recorded_python(&bench);
    exported(
        &bench,
        "memory-report",
        "memory-report.json",
        &["--at", "end"],
    );
    let json = std::fs::read(bench.path("memory-report.json")).expect("the file");
    let trees = about_memory(&serde_json::from_slice(&json).expect("JSON"));
    assert_eq!(
        trees["explicit heap"],
        sum(&bench.report(), "live_usable_bytes")
    );
}

#[test]
fn a_child_of_fork_and_a_program_that_allocates_nothing() {
    let bench = Bench::new();
    recorded(&bench, "forks");
    for trace in bench.traces() {
        let report: Report = bench.report_at(&trace, "end");
        let done = bench.tool([
            "export",
            &trace,
            "--format",
            "pprof",
            "-o",
            "app.pb.gz",
            "--at",
            "end",
        ]);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        // What is inherited is in use, but this process did not allocate it: it shows in these two.
        for (value, total) in [totals(&report)[0], totals(&report)[3]] {
            assert_eq!(
                pprof_total(&bench, "app.pb.gz", value),
                total,
                "{value} of {trace}"
            );
        }
    }
    assert_eq!(bench.record(["true"]).status.code(), Some(0));
    for format in [
        "pprof",
        "dhat",
        "folded",
        "speedscope",
        "firefox",
        "memory-report",
        "heaptrack",
    ] {
        exported(&bench, format, "nothing", &[]);
    }
    exported(&bench, "pprof", "nothing", &[]);
    assert_eq!(pprof_total(&bench, "nothing", "alloc_space"), 0);
}
