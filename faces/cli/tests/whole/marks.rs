//! Marks: by the program, by a signal to it, by a signal to the tool; reports as of a mark.
//!
//! ```text
//!   skinflint_mark("load end") ─┐
//!   kill -USR2 PROGRAM ─────────┼─► marks, in order ─► instants with books ─► --at "load end"
//!   kill -USR1 skinflint ───────┘
//! ```

use std::time::Instant;

use crate::programs::recorded;
use crate::report::{Report, field, number, text};
use crate::tool::{Bench, PATIENCE, Running, program, signal};

fn names(report: &Report) -> Vec<&str> {
    let marks = report.list("marks").iter();
    marks.map(|mark| text(mark, "name")).collect()
}

#[test]
fn marks_in_their_order_with_their_figures() {
    let bench = Bench::new();
    let report = recorded(&bench, "marks");
    report.is_complete();
    assert_eq!(report.blocks_of(71), (30, 5));
    assert_eq!(report.blocks_of(73), (40, 0));
    assert_eq!(report.blocks_of(79), (5, 5));
    let found = names(&report);
    let known = [
        "start",
        "load begin",
        "load end",
        "work begin",
        "work begin",
        "work end",
        "work end",
        "thread",
    ];
    assert_eq!(found[..8], known);
    assert_eq!(found.len(), 12);
    // The empty name and the long one stay marks; the long one is cut, at a length that is stated.
    assert!(
        found[9].len() >= 100 && "n".repeat(300).starts_with(found[9]),
        "{found:?}"
    );
    assert_eq!(found[10..], ["Größe", "end"]);
    let marks = report.list("marks");
    // Beside the program's blocks there is one of the C library for the thread, from there on.
    let live = |at: usize| number(&marks[at], "live_blocks");
    assert_eq!(
        [live(0), live(1), live(2), live(3), live(5)],
        [0, 0, 20, 20, 20]
    );
    let allocations = |at: usize| number(&marks[at], "allocations");
    assert_eq!(
        [allocations(1), allocations(2), allocations(5)],
        [0, 30, 40]
    );
    assert_eq!(number(&marks[2], "requested_bytes"), 30 * 71);
    // At "end", 15 of the 20 were released, 5 of the thread's had come.
    assert_eq!(live(11), 20 - 15 + 5 + 1);
}

#[test]
fn blocks_that_outlive_their_phase() {
    let bench = Bench::new();
    let report = recorded(&bench, "marks");
    let zombies = report.list("zombies");
    let of_load: Vec<_> = zombies.iter().filter(|z| z["phase"] == "load").collect();
    assert_eq!((zombies.len(), of_load.len()), (1, 1), "{zombies:#?}");
    let zombie = of_load[0];
    assert_eq!(
        (number(zombie, "blocks"), number(zombie, "end_blocks")),
        (20, 5)
    );
    assert_eq!(number(zombie, "requested_bytes"), 20 * 71);
    let node = number(zombie, "node");
    assert_eq!(
        report.own_functions(node, "marks"),
        ["load", "main", "_start"]
    );
}

#[test]
fn a_report_as_of_a_mark() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    // Before request: 250 + 64 x 3 + B of large; after 90 of the 100 were freed again, 10 more.
    for (mark, blocks, requested) in [
        (
            "request begin",
            443,
            15_500 + 65_600 + 66_560 + 65_536 + 1_048_576,
        ),
        (
            "request end",
            453,
            15_500 + 65_600 + 66_560 + 65_536 + 1_048_576 + 640,
        ),
    ] {
        let report = bench.report_at("main.sft", mark);
        let at = &report.list("instants")[report.number("at") as usize];
        assert_eq!((text(at, "label"), text(at, "kind")), (mark, "mark"));
        assert_eq!(number(at, "live_blocks"), blocks, "{mark}");
        assert_eq!(number(at, "live_requested_bytes"), requested, "{mark}");
        let live: u64 = report
            .sites()
            .iter()
            .map(|site| number(site, "live_blocks"))
            .sum();
        assert_eq!(live, blocks, "the sites add up at {mark}");
        // The program waited for the snapshot: resident memory is of that very moment.
        let books = field(at, "books");
        assert!(books.is_object(), "no books at {mark}");
        let rows = books["rows"].as_array().expect("rows").iter();
        let sum: u64 = rows.map(|row| number(row, "bytes")).sum();
        assert_eq!(
            sum,
            number(books, "resident_bytes"),
            "the books are closed at {mark}"
        );
    }
}

/// Starts a program that reads commands, under the tool; returns its process id, too.
fn talking(bench: &Bench, options: &[&str]) -> (Running, i32) {
    let mut running = Running::start(bench.recording(options, [program("talk")]));
    let pid = running.line().parse().expect("its process id");
    (running, pid)
}

#[track_caller]
fn tell(running: &mut Running, letter: u8) {
    running.say(&[letter]);
    assert_eq!(running.line(), format!("done {}", letter as char));
}

#[test]
fn a_signal_to_the_program_marks() {
    for name in ["USR2", "SIGUSR2", "12"] {
        let bench = Bench::new();
        let (mut running, pid) = talking(&bench, &["--mark-signal", name]);
        tell(&mut running, b'a');
        // The program reads: the signal is handled before it gets to the next letter.
        signal(pid, libc::SIGUSR2);
        tell(&mut running, b'b');
        signal(pid, libc::SIGUSR2);
        tell(&mut running, b'a');
        running.say(b"q");
        assert_eq!(running.finish(PATIENCE).status.code(), Some(5));
        let report = bench.report();
        report.is_complete();
        let marks = report.list("marks");
        assert_eq!(marks.len(), 2, "{marks:#?}");
        let figures = |at: usize| {
            let of = &marks[at];
            (number(of, "live_blocks"), number(of, "allocations"))
        };
        assert_eq!([figures(0), figures(1)], [(6, 10), (16, 10)], "{name}");
    }
}

#[test]
fn a_signal_to_the_tool_marks() {
    let bench = Bench::new();
    let (mut running, _) = talking(&bench, &[]);
    let mut asked = 0;
    // The recording under way shows when a mark was made: until then the program goes on talking. Marks that come too
    // late for its end are no fault.
    let marked = || {
        let done = bench.tool(["report", "--json", "main.sft"]);
        done.status.code() == Some(0) && !names(&Report::read(&done.stdout)).is_empty()
    };
    let end = Instant::now() + PATIENCE;
    while !marked() {
        assert!(Instant::now() < end, "no mark");
        if asked < 5 {
            signal(running.pid, libc::SIGUSR1);
            asked += 1;
        }
        tell(&mut running, b'a');
    }
    running.say(b"q");
    let done = running.finish(PATIENCE);
    assert_eq!(done.status.code(), Some(5), "{done:#?}");
    let report = bench.report();
    report.is_complete();
    let found = names(&report);
    assert!((1..=asked).contains(&found.len()), "{found:?}");
    for (at, name) in found.iter().enumerate() {
        assert_eq!(*name, format!("mark {}", at + 1));
    }
    let marks = report.list("marks");
    let times: Vec<u64> = marks.iter().map(|mark| number(mark, "time_ns")).collect();
    assert!(times.is_sorted(), "{times:?}");
    let at = bench.report_at("main.sft", "mark 1");
    let instant = &at.list("instants")[at.number("at") as usize];
    assert_eq!(text(instant, "label"), "mark 1");
}

/// Checks what `--windows` prints; between two marks it is what marks.c says, and it has an edge at each instant,
/// where its sums are the instant's.
#[test]
fn windows_between_marks() {
    let bench = Bench::new();
    recorded(&bench, "marks");
    let plain = bench.tool(["report", "main.sft", "--json"]);
    assert!(Report::read(&plain.stdout).0.get("windows").is_none());
    bench
        .tool(["report", "main.sft", "--windows"])
        .says(2, &["--json"]);
    let done = bench.tool(["report", "main.sft", "--json", "--windows"]);
    let report = Report::read(&done.stdout);
    let windows = field(&report.0, "windows");
    let list = |name: &str| field(windows, name).as_array().expect("a list").clone();
    let whole = |value: &serde_json::Value| value.as_u64().expect("a whole number");
    let (cells, edges, ends) = (list("cells"), list("edges"), list("bucket_ends"));
    let (of, acquired, released) = (list("changed_cell"), list("acquired"), list("released"));
    // Sums up to an edge: blocks of 71 and of 73 acquired and released, and all live bytes.
    let up_to = |edge: usize| {
        let to = edge.checked_sub(1).map_or(0, |bucket| whole(&ends[bucket]));
        let mut sums = [0u64; 5];
        for change in 0..to as usize {
            let cell = &cells[whole(&of[change]) as usize];
            let (size, usable) = (number(cell, "size"), number(cell, "usable"));
            let (made, gone) = (whole(&acquired[change]), whole(&released[change]));
            let of_size = |wanted| u64::from(size == wanted);
            sums[0] += made * of_size(71);
            sums[1] += gone * of_size(71);
            sums[2] += made * of_size(73);
            sums[3] += gone * of_size(73);
            sums[4] += made * usable;
            sums[4] -= gone * usable;
        }
        sums
    };
    let instants = report.list("instants");
    let edge_of = |instant: usize| {
        let is = |edge: &serde_json::Value| {
            let its = field(edge, "instants").as_array().expect("a list");
            its.iter().any(|one| whole(one) == instant as u64)
        };
        edges.iter().position(is).expect("each instant is an edge")
    };
    for (index, instant) in instants.iter().enumerate() {
        let live = up_to(edge_of(index))[4];
        assert_eq!(live, number(instant, "live_usable_bytes"), "{instant}");
    }
    let mark = |name: &str| {
        let is =
            |one: &serde_json::Value| text(one, "kind") == "mark" && text(one, "label") == name;
        edge_of(instants.iter().rposition(is).expect("the mark"))
    };
    let between = |from: &str, to: &str| {
        let (from, to) = (up_to(mark(from)), up_to(mark(to)));
        [0, 1, 2, 3].map(|sum| to[sum] - from[sum])
    };
    assert_eq!(between("load begin", "load end"), [30, 10, 0, 0]);
    assert_eq!(between("work begin", "work end"), [0, 0, 40, 40]);
    assert_eq!(between("Größe", "end"), [0, 15, 0, 0]);
}
