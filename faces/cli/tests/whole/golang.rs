//! Programs of Go that call no C: read from outside, by the samples that Go takes itself.
//!
//! G1  What lives at the end is what the program's own profile says, by function and line. The one was written when the other
//!     was still to come: what the writing allocated is left out.
//! G2  The program is as it was: output and status.
//! G3  Estimates are of samples: of what is known by hand, at least half and at most twice is expected, which more than sixty
//!     samples miss once in a million runs.
//!
//! Not here: layouts of other versions than the one that is installed (collect's go/).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use skinflint_test_support::need;

use crate::report::{Report, number, text};
use crate::tool::{Bench, PATIENCE, Running, root, run_within};

/// How long a build of Go's library may take beside other tests.
const BUILDS: Duration = Duration::from_secs(600);

/// Builds a program of tests/golang, without C.
pub fn built(bench: &Bench, package: &str, options: &[&str]) -> PathBuf {
    built_with(bench, package, options, "0")
}

/// The same with C if `c` is 1.
pub fn built_with(bench: &Bench, package: &str, options: &[&str], c: &str) -> PathBuf {
    let out = bench.path("holders");
    let mut command = bench.command("go");
    command.arg("build").args(options).arg("-o").arg(&out);
    command
        .arg(package)
        .current_dir(root().join("tests/golang"));
    for (name, value) in [
        ("CGO_ENABLED", c),
        ("GOTOOLCHAIN", "local"),
        ("GOPROXY", "off"),
        ("GOFLAGS", ""),
        ("GOWORK", "off"),
    ] {
        command.env(name, value);
    }
    // Go's library is built once, not by each test at the same time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock();
    let done = run_within(command, b"", BUILDS);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    out
}

/// Live bytes by function and line; a name is the first on a stack that is not the runtime's.
pub type Lines = BTreeMap<(String, u64), u64>;

fn of_runtime(function: &str) -> bool {
    function.starts_with("runtime.") || function.starts_with("internal/runtime/")
}

/// What was allocated to write the profile itself is not in it.
fn of_writing(frames: &[(String, u64)]) -> bool {
    frames
        .iter()
        .any(|(name, _)| name.starts_with("runtime/pprof."))
}

fn add(lines: &mut Lines, frames: &[(String, u64)], bytes: u64) {
    if !of_writing(frames)
        && let Some(named) = frames.iter().find(|(name, _)| !of_runtime(name))
    {
        *lines.entry(named.clone()).or_default() += bytes;
    }
}

pub fn of_report(report: &Report) -> Lines {
    let mut lines = Lines::new();
    for stack in report.list("stacks") {
        let mut frames = Vec::new();
        let mut node = number(stack, "node") as usize;
        while node != 0 {
            let of = &report.list("nodes")[node];
            let frame = &report.list("frames")[number(of, "frame") as usize];
            let line = frame["line"].as_u64().unwrap_or(0);
            frames.push((text(frame, "function").to_owned(), line));
            node = number(of, "parent") as usize;
        }
        add(&mut lines, &frames, number(stack, "live.bytes"));
    }
    lines
}

/// Reads what `go tool pprof -raw` says of a profile, a file or an address.
pub fn of_profile(bench: &Bench, file: impl AsRef<OsStr>) -> Lines {
    let mut command = bench.command("go");
    // What it fetches it keeps there.
    command.env("PPROF_TMPDIR", bench.path("fetched"));
    command.args(["tool", "pprof", "-raw"]).arg(file);
    // A Go of today builds its tools when they are first asked for.
    let done = run_within(command, b"", BUILDS);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let (samples, rest) = done.stdout.split_once("Locations\n").expect("locations");
    let samples = samples.split_once("Samples:\n").expect("samples").1;
    // `     1: 0x4dadf8 M=1 main.rows /srv/main.go:34:0 s=31`; what is inlined has no number of its own.
    let mut places: BTreeMap<u64, (String, u64)> = BTreeMap::new();
    let locations = rest.split("Mappings\n").next().expect("locations");
    for line in locations.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(number) = words[0].strip_suffix(':').and_then(|one| one.parse().ok()) else {
            continue;
        };
        let name = words.len() - 3;
        // Since 1.21 a column stands behind the line.
        let mut parts = words[name + 1].rsplit(':');
        let last = parts.next().and_then(|one| one.parse().ok());
        let line = parts.next().and_then(|one| one.parse().ok()).or(last);
        let place = (words[name].to_owned(), line.expect("a line"));
        places.insert(number, place);
    }
    let mut lines = Lines::new();
    // The first line names the values; in use are the last two.
    for line in samples.lines().skip(1).filter(|line| line.contains(": ")) {
        let (values, stack) = line.split_once(": ").expect("a sample");
        let bytes = values.split_whitespace().last().expect("bytes");
        let frames: Vec<_> = stack
            .split_whitespace()
            .filter_map(|one| places.get(&one.parse().ok()?).cloned())
            .collect();
        add(&mut lines, &frames, bytes.parse().expect("a number"));
    }
    lines
}

/// Checks that a program is what its head says, and that its report is what its profile says (G1, G2).
fn judged(options: &[&str]) {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    let program = built(&bench, ".", options);
    let profile = bench.path("own.pb");
    let done = bench.record([&program, &profile]);
    assert_eq!(done.shell_status(), 7, "{done:#?}");
    assert_eq!(
        (&*done.stdout, &*done.stderr),
        ("churned 100299995\nkept 802 100000\n", "")
    );
    let report = bench.report();
    let (ours, theirs) = (of_report(&report), of_profile(&bench, &profile));
    let whole: u64 = theirs.values().sum();
    let equal = theirs
        .iter()
        .map(|(line, bytes)| ours.get(line).copied().unwrap_or(0).min(*bytes));
    let equal: u64 = equal.sum();
    assert!(
        equal * 100 >= whole * 95,
        "{equal} of {whole}: {ours:#?} {theirs:#?}"
    );
    let sum: u64 = ours.values().sum();
    assert!(
        sum <= whole * 21 / 20,
        "{sum} for {whole}: {ours:#?} {theirs:#?}"
    );
    // Go counts what it made; the samples are of that.
    let counted = report.number("in_use_bytes");
    assert!((70 << 20..110 << 20).contains(&counted), "{counted}");
    let live = report.number("live.bytes");
    assert!(
        (counted / 2..counted * 2).contains(&live),
        "{live} of {counted}"
    );
    // The rows add up, and the heap's are most of them.
    let rows = report.list("rows").iter();
    let bytes = |one: &serde_json::Value| one["bytes"].as_i64().expect("bytes");
    let resident = report.number("resident_bytes") as i64;
    assert_eq!(rows.clone().map(bytes).sum::<i64>(), resident);
    let of = |id: &str| {
        rows.clone()
            .find(|one| text(one, "id") == id)
            .map_or(0, bytes)
    };
    assert!(
        of("other-mappings") < resident / 5,
        "{:#?}",
        report.0["rows"]
    );
    assert!(of("live") > (counted / 2) as i64);
    assert!(of("stacks") > 64 << 10, "stacks of goroutines");
}

#[test]
fn a_static_program_of_go_has_its_functions_and_lines() {
    judged(&[]);
}

#[test]
fn so_has_one_that_is_stripped() {
    judged(&["-ldflags=-s -w"]);
}

#[test]
fn so_has_one_at_any_address() {
    judged(&["-buildmode=pie"]);
}

#[test]
fn a_program_that_cannot_ask_for_its_profile_is_sampled_all_the_same() {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    let program = built(&bench, "./quiet", &[]);
    let done = bench.record([&program]);
    assert_eq!(
        (done.shell_status(), &*done.stdout),
        (0, "held\n"),
        "{done:#?}"
    );
    let held = of_report(&bench.report());
    let bytes = held
        .get(&("main.hold".to_owned(), 11))
        .copied()
        .unwrap_or(0);
    // G3: eighty samples of 40 MB.
    assert!((20_000_000..80_000_000).contains(&bytes), "{held:?}");
}

#[test]
fn one_that_is_killed_is_read_at_its_end_and_a_mark_when_it_is_made() {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    let program = built(&bench, ".", &[]);
    let done = bench.record([program.as_os_str(), "kill".as_ref()]);
    assert_eq!(done.shell_status(), 128 + libc::SIGKILL, "{done:#?}");
    let killed = of_report(&bench.report());
    let rows = killed
        .get(&("main.rows".to_owned(), 34))
        .copied()
        .unwrap_or(0);
    assert!((11_000_000..51_000_000).contains(&rows), "{killed:?}");
    let mut running = Running::start(bench.recording(&[], [program.as_os_str(), "wait".as_ref()]));
    assert!(running.line().starts_with("churned"));
    let ready = running.line();
    let pid = ready.strip_prefix("ready ").expect("its process id");
    // Its file is replaced by the next build, as it often is.
    std::fs::remove_file(&program).expect("ours");
    bench.tool(["ctl", pid, "mark", "now"]).says(0, &[]);
    let done = running.finish(PATIENCE);
    assert_eq!(done.shell_status(), 7, "{done:#?}");
    let report = bench.report_at("main.sft", "now");
    assert!(
        report.list("missing").is_empty(),
        "{:?}",
        report.0["missing"]
    );
    let marked = of_report(&report);
    let rows = marked
        .get(&("main.rows".to_owned(), 34))
        .copied()
        .unwrap_or(0);
    assert!((11_000_000..51_000_000).contains(&rows), "{marked:?}");
}

#[test]
fn one_that_a_shell_starts_has_a_trace_to_its_end() {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    let program = built(&bench, ".", &[]);
    let mut command = bench.recording(&[], ["sh", "-c", "\"$0\" wait; exit 9"]);
    command.arg(&program);
    let mut running = Running::start(command);
    assert!(running.line().starts_with("churned"));
    let ready = running.line();
    let pid = ready.strip_prefix("ready ").expect("its process id");
    // It is found some time after it began.
    let is_met = || bench.tool(["ctl", pid, "status"]).status.success();
    assert!((0..600).any(|_| is_met()), "{pid} was not found");
    let done = running.finish(PATIENCE);
    assert_eq!(done.shell_status(), 9, "{done:#?}");
    let traces = bench.traces();
    let own = traces.iter().find(|trace| trace.contains("holders"));
    let report = bench.report_at(own.expect("its trace"), "end");
    let kept = of_report(&report);
    let rows = kept
        .get(&("main.rows".to_owned(), 34))
        .copied()
        .unwrap_or(0);
    assert!((11_000_000..51_000_000).contains(&rows), "{kept:?}");
    assert!(report.number("in_use_bytes") > 70 << 20, "its end was read");
    let missing = bench.report().list("completeness.notes").to_vec();
    assert!(
        !format!("{missing:?}").contains("statically linked"),
        "{missing:?}"
    );
}
