//! Recordings that keep their last part (`--keep`, `--max-size`).
//!
//! K1  What lives at the end is, by stack and to the byte, what a whole recording of the same program says and kept.c's head
//!     predicts: in the newest segment by itself, in all that are left together.
//! K2  Whenever the collector is killed, the newest segment opens, and says what it does not have.
//! K3  Files are bounded; what was dropped is said in one sentence.

use std::path::PathBuf;

use crate::cuts::{build, done_so_far};
use crate::report::{Report, field, number};
use crate::tool::{Bench, Done, PATIENCE, Running, program, run, signal};
use skinflint_test_support::need;
use skinflint_test_support::random::Random;

/// The functions of kept.c: live blocks and requested bytes at the end, after the regrowth by realloc.
const LIVE: [(&str, u64, u64); 6] = [
    ("early", 200, 20_000),
    ("grown", 0, 0),
    ("grow", 100, 7_000),
    ("second", 300, 7_200),
    ("last", 10, 10_000),
    ("churn", 0, 0),
];

/// Records kept.c, which goes on until segments have begun.
#[track_caller]
fn record(bench: &Bench, options: &[&str]) -> Done {
    let mut command = bench.recording(options, [program("kept")]);
    command.arg(bench.path("main.sft"));
    let done = run(command);
    assert_eq!(
        (done.shell_status(), &*done.stdout),
        (0, "kept ok\n"),
        "{done:#?}"
    );
    done
}

/// What lives: blocks and requested bytes of each function of LIVE, and each stack with its blocks and bytes.
type Live = (Vec<(u64, u64)>, Vec<(String, u64, u64)>);

/// Returns what the functions hold, and the stacks of all that lives: functions, blocks and bytes.
fn live(report: &Report) -> Live {
    let of = |function| {
        let blocks = report.sum_at(function, "live_blocks");
        (blocks, report.sum_at(function, "live_requested_bytes"))
    };
    let sites = report.sites().iter();
    let mut stacks: Vec<(String, u64, u64)> = sites
        .map(|site| {
            let functions = report.functions(number(site, "node")).join(" < ");
            (
                functions,
                number(site, "live_blocks"),
                number(site, "live_requested_bytes"),
            )
        })
        .filter(|(_, blocks, _)| *blocks > 0)
        .collect();
    stacks.sort();
    (LIVE.map(|(function, ..)| of(function)).to_vec(), stacks)
}

fn predicted() -> Vec<(u64, u64)> {
    LIVE.map(|(_, blocks, bytes)| (blocks, bytes)).to_vec()
}

/// Returns the older segments, the oldest first.
fn older(bench: &Bench) -> Vec<PathBuf> {
    let folder = bench.path("main.sft");
    let entries = std::fs::read_dir(folder.parent().expect("a folder")).expect("it");
    let mut all: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let number = path.to_string_lossy();
            let number = number.rsplit_once("main.sft.")?.1.parse().ok()?;
            Some((number, path))
        })
        .collect();
    all.sort();
    all.into_iter().map(|(_, path)| path).collect()
}

/// Returns the sentence on what was dropped.
fn dropped(report: &Report) -> Option<String> {
    let mut notes = report.notes().into_iter();
    let note = notes.find(|note| note.contains("keeps its last part"));
    note.map(str::to_owned)
}

#[test]
fn the_newest_segment_ends_with_what_the_whole_recording_ends_with() {
    let whole = Bench::new();
    let done = whole.record([program("kept")]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let whole = whole.report();
    whole.is_complete();
    let expected = live(&whole);
    assert_eq!(expected.0, predicted(), "the program's head");

    let bench = Bench::new();
    record(&bench, &["--keep=2s"]);
    let older = older(&bench);
    assert!(!older.is_empty(), "segments");
    std::fs::copy(bench.path("main.sft"), bench.path("alone.sft")).expect("copied");
    for trace in ["main.sft", "alone.sft"] {
        let report = bench.report_at(trace, "end");
        let found = live(&report);
        assert_eq!(found, expected, "{trace}");
        assert_eq!(report.end_blocks(), whole.end_blocks(), "{trace}");
        let note = dropped(&report);
        assert!(note.is_some() || trace == "main.sft", "{trace}");
        assert_eq!(
            field(&report.0, "completeness.complete").as_bool(),
            Some(note.is_none())
        );
    }
    // Each older one opens by itself, too; of the last but one what had come by then lives.
    for path in &older {
        let name = path.file_name().expect("a name").to_string_lossy();
        let report = bench.report_at(&name, "end");
        assert!(report.sum_at("early", "live_blocks") >= 200, "{name}");
    }
}

#[test]
fn what_is_left_is_put_aside_when_a_condition_comes_true() {
    let bench = Bench::new();
    let mut tool = bench.skinflint(["record", "-o", "main.sft", "--keep=2s", "--when=rss>1M"]);
    tool.arg(program("kept")).arg(bench.path("main.sft"));
    let done = run(tool);
    done.says(0, &["put aside: ", "main.kept-1.sft"]);
    // It has a mark of its condition, with the books of that moment; it was true only once.
    let report = bench.report_at("main.kept-1.sft", "when rss>1M");
    let at = &report.list("instants")[report.number("at") as usize];
    assert!(number(at, "books.resident_bytes") > 1 << 20);
    let notes = report.notes().join(" ");
    assert!(notes.contains("put aside when rss>1M came true"), "{notes}");
    assert_eq!(report.text("program.name"), "kept");
    assert!(!bench.path("main.kept-2.sft").exists());
    // The recording went on.
    assert_eq!(live(&bench.report()).0, predicted());
    let refused = bench.tool(["record", "--when=rss", "--", "true"]);
    refused.says(2, &["'rss>2G', 'rss>80%limit'"]);
}

/// A control group of the first version with a limit, removed when it is dropped.
struct Limited(PathBuf);

impl Limited {
    fn to(bytes: u64) -> Option<Limited> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let mut lines = groups.lines();
        let own = lines.find_map(|line| line.split_once(":memory:"))?.1;
        let above = PathBuf::from("/sys/fs/cgroup/memory").join(own.trim_start_matches('/'));
        let made = Limited(above.join(format!("skinflint-kept-{}", std::process::id())));
        std::fs::create_dir(&made.0).ok()?;
        std::fs::write(made.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        // Where there is swap, it is limited, too.
        let _ = std::fs::write(
            made.0.join("memory.memsw.limit_in_bytes"),
            bytes.to_string(),
        );
        Some(made)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // A process that has just ended may still be in it: then it stays, empty.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The kernel's own limit and its own kill. The program moves itself into the group after the recording has begun, and waits
/// until what is left was put aside; then it takes more than there is.
#[test]
fn what_is_left_is_put_aside_before_the_kernel_kills() {
    const LIMIT: u64 = 96 << 20;
    let group = Limited::to(LIMIT);
    if !need::that(
        group.is_some(),
        "a memory control group of the first version",
        "run as root where one is mounted",
    ) {
        return;
    }
    let group = group.expect("just asked");
    let bench = Bench::new();
    let options = ["--keep=1h", "--when=rss>80%limit", "--when=oom"];
    let mut command = bench.recording(&options, [program("hungry")]);
    command.arg(group.0.join("cgroup.procs"));
    command.arg("80").arg(bench.path("main.kept-1.sft"));
    let done = run(command);
    assert_eq!(
        (done.shell_status(), &*done.stdout),
        (128 + 9, "full\n"),
        "{done:#?}"
    );
    // Books of the moment, which was before the kill: 80 MiB were taken, and not much more.
    let report = bench.report_at("main.kept-1.sft", "when rss>80%limit");
    let at = &report.list("instants")[report.number("at") as usize];
    let resident = number(at, "books.resident_bytes");
    assert!((77 << 20..LIMIT).contains(&resident), "{resident}");
    let eaten = report.sum_at("eats", "live_requested_bytes");
    assert!((60 << 20..=80 << 20).contains(&eaten), "{eaten}");
    // The recording itself goes to the end, and says of what.
    let report = bench.report();
    let notes = report.notes().join(" ");
    assert!(
        notes.contains("for want of memory: 98304 KiB are the limit"),
        "{notes}"
    );
    assert_eq!(report.text("program.ended"), "signal 9 (SIGKILL)");
}

#[test]
fn a_bound_of_bytes_holds() {
    const MOST: u64 = 1 << 20;
    let bench = Bench::new();
    build(&bench);
    let done = run(bench.recording(
        &["--max-size=1M", "--level=1"],
        ["./counted", "count", "3000000"],
    ));
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let files = older(&bench).into_iter().chain([bench.path("main.sft")]);
    let bytes: u64 = files
        .map(|path| path.metadata().expect("a file").len())
        .sum();
    assert!(bytes > MOST / 8 && bytes <= MOST, "{bytes} bytes");
    let report = bench.report();
    let note = dropped(&report).expect("a sentence");
    assert!(note.contains("recorded acquisition"), "{note}");
    // Of 64 places those that are full at the end: counted.c's own arithmetic, whatever was dropped.
    assert_eq!(
        report.sum_at("main", "live_blocks"),
        counted_live(3_000_000),
        "{note}"
    );
}

/// Returns the blocks that live in counted.c after so many events.
fn counted_live(events: u64) -> u64 {
    let (mut state, mut full) = (42u64, 0u64);
    for _ in 0..events {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        full ^= 1 << (state >> 58);
    }
    u64::from(full.count_ones())
}

#[test]
fn a_killed_collector_leaves_the_last_part() {
    const EVENTS: u64 = 2_000_000;
    let mut random = Random::new(0x5eed_0003);
    for round in 0..12 {
        let bench = Bench::new();
        build(&bench);
        let count = bench.path("count");
        let running = Running::start(bench.recording(
            &["--keep=400ms", "--max-size=1M"],
            ["./counted", "count", &EVENTS.to_string()],
        ));
        let moment = random.below(EVENTS / 3 * 2).max(1000);
        let begun = std::time::Instant::now();
        while done_so_far(&count) < moment {
            // CLOCK: a bounded wait, and its bound ends it
            assert!(
                begun.elapsed() < PATIENCE,
                "{moment} events are not done yet"
            );
            std::thread::yield_now();
        }
        // Half a segment's writing, or none of it: as it comes.
        signal(running.pid, libc::SIGKILL);
        let killed_at = done_so_far(&count);
        assert_eq!(running.finish(PATIENCE).shell_status(), 128 + 9);
        let trace = bench.path("main.sft");
        let named = trace.exists().then(|| "main.sft".to_owned());
        // Before the program is known the trace has its own name.
        let name = named.or_else(|| bench.traces().pop()).expect("a trace");
        let report = bench.report_at(&name, "end");
        let notes = report.notes().join(" ");
        assert!(
            notes.contains("No end mark"),
            "round {round} at {killed_at}: {notes}"
        );
        for path in older(&bench) {
            let name = path.file_name().expect("a name").to_string_lossy();
            bench.report_at(&name, "end");
        }
    }
}
