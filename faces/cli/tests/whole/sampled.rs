//! Recordings of a sample of the blocks.
//!
//! E1  Of the rows of a sampled report 93 of a hundred or more have the truth in their interval. The truth is worked out in the
//!     head of sampled.c, and a full recording has it to the byte.
//! E2  A release is recorded if, and only if, its acquisition was: of what was all released nothing lives, on whichever
//!     thread, and through which function.
//! E3  What needs every event refuses a sampled recording in one sentence.
//!
//! Seeds are fixed: the program's own blocks are the same in each run, and so are the samples.

use serde_json::Value;

use crate::report::{Report, field, number, text};
use crate::tool::{Bench, program, run};

/// The functions of the program: size of a block, KiB.
const ROWS: [(u64, u64); 16] = [
    (24, 700),
    (40, 1000),
    (100, 800),
    (333, 1500),
    (1000, 3000),
    (1024, 700),
    (2500, 900),
    (4096, 1200),
    (5000, 4000),
    (8000, 800),
    (10000, 1000),
    (12345, 2000),
    (16384, 3000),
    (20000, 5000),
    (25000, 2500),
    (30000, 6000),
];

/// Returns the function of a row, its live bytes at the end, and what it acquired (sampled.c).
fn truth((size, kib): (u64, u64)) -> (String, u64, u64) {
    let blocks = kib * 1024 / size;
    let live = blocks - blocks / 4;
    (format!("hold_{size}_{kib}"), live * size, blocks * size)
}

/// Records sampled.c with these options.
#[track_caller]
fn record(bench: &Bench, options: &[&str], what: &str) {
    let mut command = bench.recording(options, [program("sampled")]);
    command.arg(what);
    let done = run(command);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
}

/// Returns the stacks that a function is in.
fn stacks<'a>(report: &'a Report, function: &str) -> Vec<&'a Value> {
    let stacks = report.list("stacks").iter();
    let is_in = |one: &&Value| report.functions(number(one, "node")).contains(&function);
    stacks.filter(is_in).collect()
}

/// Returns a figure's interval, widened by so many of its halves; `None` if it has none.
fn interval(figure: &Value, times: f64) -> Option<(f64, f64)> {
    let end = |name| field(figure, name).as_f64();
    let bytes = number(figure, "bytes") as f64;
    let (low, high) = end("low").zip(end("high"))?;
    Some((
        bytes - (bytes - low) * times,
        bytes + (high - bytes) * times,
    ))
}

/// Returns the live bytes of a function's stacks, and whether they are near the truth: within three halves of intervals.
#[track_caller]
fn is_near(report: &Report, function: &str, truth: f64) {
    let all = stacks(report, function);
    let (low, high) = all
        .iter()
        .filter_map(|one| interval(field(one, "live"), 3.0))
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(low <= truth && truth <= high, "{function}: {low} to {high}");
    assert!(
        high < 2.0 * truth,
        "{function}: an interval that says nothing, to {high}"
    );
}

#[test]
fn intervals_hold_the_truth() {
    let full = Bench::new();
    record(&full, &[], "law");
    let report = full.report();
    for (function, live, acquired) in ROWS.map(truth) {
        let sums =
            ["live_requested_bytes", "requested_bytes"].map(|of| report.sum_at(&function, of));
        assert_eq!(sums, [live, acquired], "{function}");
    }
    let (mut rows, mut held) = (0, 0);
    for seed in 1..=8 {
        let bench = Bench::new();
        record(
            &bench,
            &["--sample=32K", "--seed", &seed.to_string()],
            "law",
        );
        let report = bench.report();
        assert_eq!(report.list("missing"), &[] as &[Value]);
        for (function, live, acquired) in ROWS.map(truth) {
            let [stack] = &stacks(&report, &function)[..] else {
                panic!("{function}: not one stack");
            };
            for (name, truth) in [("live", live), ("acquired", acquired)] {
                let (low, high) = interval(field(stack, name), 1.0).expect("enough samples");
                rows += 1;
                held += usize::from((low..=high).contains(&(truth as f64)));
            }
        }
        // Blocks of the rate or more are all there.
        let exact: u64 = stacks(&report, "always")
            .iter()
            .map(|one| number(one, "live.bytes"))
            .sum();
        assert_eq!(exact, (5 << 20) + 3 * 200_000);
        let all = interval(field(&report.0, "live"), 1.5).expect("samples");
        let truth: u64 = exact + ROWS.map(truth).iter().map(|one| one.1).sum::<u64>();
        assert!((all.0..=all.1).contains(&(truth as f64)), "{all:?}");
        books_close(&report, truth);
    }
    assert!(held * 100 >= rows * 93, "{held} of {rows} (E1)");
}

/// Checks that the rows of the books add up to resident memory, and that the row of live blocks is near the truth: the
/// program wrote all of them.
#[track_caller]
fn books_close(report: &Report, truth: u64) {
    let bytes = |row: &Value| field(row, "bytes").as_i64().expect("a number");
    let rows = report.list("rows");
    let sum: i64 = rows.iter().map(bytes).sum();
    assert_eq!(sum, report.number("resident_bytes") as i64);
    let named = |id| rows.iter().find(|row| text(row, "id") == id);
    let live = named("live").unwrap_or_else(|| panic!("no books: {:#}", report.0));
    let error = number(live, "error_bytes") as i64;
    let off = bytes(live) - truth as i64;
    assert!(off.abs() < 2 * error, "{live:#}, {truth}");
    assert_eq!(
        named("mapped-files").map(|row| number(row, "error_bytes")),
        Some(0)
    );
}

#[test]
fn of_what_was_released_nothing_lives() {
    for (rate, seed) in [("1K", "1"), ("16K", "2")] {
        let bench = Bench::new();
        record(
            &bench,
            &[&*format!("--sample={rate}"), "--seed", seed],
            "trade",
        );
        let report = bench.report();
        assert_eq!(report.list("missing"), &[] as &[Value], "{rate}");
        let traded = stacks(&report, "trade");
        let sum = |path| traded.iter().map(|one| number(one, path)).sum::<u64>();
        assert_eq!(sum("live.bytes"), 0, "{rate}");
        assert!(
            sum("acquired.samples") > 500,
            "{rate}: {}",
            sum("acquired.samples")
        );
    }
}

#[test]
fn a_copy_draws_anew_and_releases_what_it_inherited() {
    let bench = Bench::new();
    record(&bench, &["--sample=8K", "--seed=4"], "copied");
    let traces = bench.traces();
    let child = traces
        .iter()
        .find(|name| *name != "main.sft")
        .expect("a child");
    let report = bench.report_at(child, "end");
    assert_eq!(report.list("missing"), &[] as &[Value]);
    is_near(&report, "copied", 1_500_000.0 + 2_000_000.0);
    is_near(&report, "born", 2_000_000.0);
    let parent = bench.report();
    is_near(&parent, "copied", 3_000_000.0);
    assert!(stacks(&parent, "born").is_empty());
}

/// A block as large as the rate is a sample whichever function gave it, one of no bytes counts as one byte, and a product that
/// overflows is refused: calls that take the short way, and those at its edge.
#[test]
fn blocks_of_the_rate_are_exact_and_those_of_nothing_count() {
    let bench = Bench::new();
    record(&bench, &["--sample=4K", "--seed=5"], "edges");
    let report = bench.report();
    let exact = stacks(&report, "exact");
    let sum = |path| exact.iter().map(|one| number(one, path)).sum::<u64>();
    assert_eq!(
        [sum("live.bytes"), sum("acquired.bytes"), sum("live.blocks")],
        [900 * 4096, 900 * 4096, 900]
    );
    // Of 40,000 with one in 4,096: 9.8 on average.
    let nothing = stacks(&report, "nothing");
    let samples: u64 = nothing
        .iter()
        .map(|one| number(one, "acquired.samples"))
        .sum();
    assert!((2..30).contains(&samples), "{samples}");
}

/// A copy that holds no sample is known all the same.
#[test]
fn a_copy_without_samples_is_recorded() {
    let bench = Bench::new();
    record(&bench, &["--sample=512K", "--seed=6"], "small_copy");
    let traces = bench.traces();
    assert_eq!(traces.len(), 2, "{traces:?}");
}

#[test]
fn what_needs_every_event_says_so() {
    let bench = Bench::new();
    record(&bench, &["--sample=64K"], "law");
    let shown = bench.tool(["report", "main.sft"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:#?}");
    for part in [
        "a sampled recording: one block every 64.0 KiB",
        " MiB ± ",
        "live blocks",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let refused: [&[&str]; 9] = [
        &["counts", "main.sft"],
        &["what-if", "main.sft"],
        &["fit", "main.sft", "-o", "x.fit"],
        &[
            "export", "--format", "pprof", "--output", "x.pb.gz", "main.sft",
        ],
        &["diff", "main.sft", "main.sft"],
        &["report", "--html", "x.html", "main.sft"],
        &["report", "--brief", "--json", "main.sft"],
        &["report", "--at", "heap-peak", "main.sft"],
        &["report", "main.sft", "main.sft"],
    ];
    for arguments in refused {
        let done = bench.tool(arguments);
        assert!(
            matches!(done.status.code(), Some(1 | 2)),
            "{arguments:?}: {done:#?}"
        );
        assert!(
            done.stderr.contains("sampled recording"),
            "{arguments:?}: {}",
            done.stderr
        );
        assert_eq!(
            done.stderr.trim_end().lines().count(),
            1,
            "{arguments:?}: {}",
            done.stderr
        );
    }
    for option in ["--reachable", "--python-objects", "--dark-matter"] {
        let done = run(bench.recording(&["--sample", option], ["true"]));
        assert_eq!(done.status.code(), Some(2), "{option}: {done:#?}");
    }
}
