//! Recordings cut short by SIGKILL at seeded moments: the program's, then the collector's.
//!
//! ```text
//!   counted ─ true number of its events ─► file that outlives it
//!      │ SIGKILL when that number passes the seeded one
//!      ▼
//!   report: events read + events said to be lost, against the true number
//! ```
//!
//! X1  Program killed: nothing that it had done is missing in silence.
//! X2  Collector killed: the program goes on and ends as if alone; the trace says that it is cut.
//!
//! Not here: a hundred moments, other programs, both at once (bench/kill.py).

use std::path::Path;
use std::time::Instant;

use crate::report::{Report, field};
use crate::tool::{Bench, PATIENCE, Running, root, run, signal};
use skinflint_test_support::random::Random;

const ROUNDS: u64 = 5;
/// More events than are done before the kill, and still soon over for the program that goes on.
const EVENTS: u64 = 1_000_000;
const SEED: u64 = 20_110_805;
/// A generous bound on what the loader and libc do before the program counts.
const BEFORE_MAIN: u64 = 100;

/// Returns the moment of a round: this many events (mapped to the first two thirds).
fn moment(round: u64) -> u64 {
    let mut random = Random::new(SEED);
    (0..round).for_each(|_| _ = random.bits());
    random.below(EVENTS / 3 * 2)
}

/// Builds counted, the program that says how many events it has done.
pub fn build(bench: &Bench) {
    let mut compiler = bench.command("gcc");
    let source = root().join("bench/counted.c");
    compiler.args(["-O2", "-o", "counted"]).arg(source);
    let built = run(compiler);
    assert_eq!(built.status.code(), Some(0), "{}", built.stderr);
}

/// Returns the true number of events so far.
pub fn done_so_far(count: &Path) -> u64 {
    let bytes = std::fs::read(count).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Returns as soon as the program has done this many events.
#[track_caller]
fn await_events(count: &Path, wanted: u64) {
    let begun = Instant::now();
    while done_so_far(count) < wanted {
        // CLOCK: a bounded wait, and its bound ends it
        assert!(
            begun.elapsed() < PATIENCE,
            "{wanted} events are not done yet"
        );
        std::thread::yield_now();
    }
}

/// Returns the number of mallocs and frees of the heap in the report.
fn heap(report: &Report) -> u64 {
    let (acquired, released) = report.heap();
    acquired + released
}

#[test]
fn the_program_is_killed() {
    for round in 0..ROUNDS {
        let bench = Bench::new();
        build(&bench);
        let count = bench.path("count");
        let script = format!("echo $$; exec ./counted count {EVENTS}");
        let mut running = Running::start(bench.recording(&[], ["sh", "-c", &script]));
        let program: i32 = running.line().parse().expect("the process id");
        await_events(&count, moment(round));
        signal(program, libc::SIGKILL);
        let done = running.finish(PATIENCE);
        let true_events = done_so_far(&count);
        assert!(
            true_events < EVENTS,
            "round {round}: it was done before the kill"
        );
        assert_eq!(
            done.status.code(),
            Some(128 + 9),
            "round {round}: {done:#?}"
        );
        let report = bench.report();
        assert_eq!(report.text("program.name"), "counted");
        assert_eq!(report.text("program.ended"), "signal 9 (SIGKILL)");
        let lost = report.number("completeness.lost_events");
        let known = heap(&report) + lost;
        assert!(
            known >= true_events && known <= true_events + BEFORE_MAIN,
            "round {round} (seed {SEED}): {true_events} done, {known} known, {lost} of them lost"
        );
    }
}

#[test]
fn the_collector_is_killed() {
    for round in ROUNDS..2 * ROUNDS {
        let bench = Bench::new();
        build(&bench);
        let count = bench.path("count");
        let script = format!("./counted count {EVENTS}; echo status $?");
        let mut running = Running::start(bench.recording(&[], ["sh", "-c", &script]));
        await_events(&count, moment(round).max(1));
        signal(running.pid, libc::SIGKILL);
        let before = done_so_far(&count);
        // X2: it goes on, counts to the end, and is satisfied.
        assert_eq!(running.line(), format!("done {EVENTS}"), "round {round}");
        assert_eq!(running.line(), "status 0", "round {round}");
        assert_eq!(running.finish(PATIENCE).shell_status(), 128 + 9);
        let traces = bench.traces();
        // A child's lies in the run's folder.
        let trace = traces
            .iter()
            .find(|name| name.contains("skinflint.counted."));
        let Some(trace) = trace else {
            panic!("round {round}: {traces:?} after {before} events");
        };
        let report = bench.report_at(trace, "end");
        let complete = field(&report.0, "completeness.complete").as_bool();
        assert_eq!(complete, Some(false), "round {round}");
        let notes = report.notes().join(" ");
        assert!(notes.contains("No end mark"), "round {round}: {notes}");
        assert!(heap(&report) <= EVENTS + BEFORE_MAIN, "round {round}");
    }
}
