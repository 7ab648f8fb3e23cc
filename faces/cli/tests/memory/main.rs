//! `skinflint memory`: programs with reporters, on our allocator, and with neither; files, and other input.
//!
//! ```text
//!   cache (C), Python ── reporters ─► socket ─┐
//!   program on libskinflint.so ─────► socket ─┼─► skinflint memory ─► tree, JSON, file, OpenMetrics
//!   any program ────────────────────► /proc ──┘        its figures against the program's own, and smaps'
//! ```
//!
//! Y1  What a program counts of itself is on its first line of output; the tree has the same figure, to the byte.
//! Y2  A tree of resident memory is within 2 % of what the test itself reads from smaps.
//!
//! Not here: Firefox (tests/browsers), damaged files byte by byte (ground/reporters/tests/files.rs).

mod groups;
// Shared with the tests of the whole tool, and not all of it is needed here.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use skinflint_test_support::{artifact, need};
use tool::{Bench, Done, Running, root, run, run_within};

const PATIENCE: Duration = Duration::from_secs(60);

fn reporters() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| artifact::released("skinflint-reporters-so"))
}

fn cache() -> PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    let folder = PROGRAMS.get_or_init(|| tool::made("tests/reporters", "reporter-programs"));
    folder.join("cache")
}

/// Starts `cache` with its socket in a short folder, and returns its first line, too.
#[track_caller]
fn cached(bench: &Bench, more: &[(&str, String)]) -> (Running, u64, tempfile::TempDir) {
    let sockets = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(sockets.path(), std::fs::Permissions::from_mode(0o700)).expect("mode");
    let mut command = bench.command(cache());
    command.arg(sockets.path()).env("LD_PRELOAD", reporters());
    for (name, value) in more {
        command.env(name, value);
    }
    let mut running = Running::start(command);
    let line = running.line();
    let held = line
        .strip_prefix("ready ")
        .and_then(|held| held.parse().ok());
    (running, held.unwrap_or_else(|| panic!("{line}")), sockets)
}

/// Measures a process that has been asked before: a first answer brings code and a stack into its memory.
#[track_caller]
fn measured(bench: &Bench, pid: i32) -> Done {
    let mut done = bench.tool(["memory", &pid.to_string(), "--json"]);
    for _ in 0..2 {
        done = bench.tool(["memory", &pid.to_string(), "--json"]);
    }
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    done
}

/// Returns the sum at a path of the only process of a JSON output.
fn amount(json: &str, path: &str) -> Option<i64> {
    let value: Value = serde_json::from_str(json.lines().next()?).ok()?;
    let mut kids = value["processes"][0]["trees"].clone();
    let mut found = None;
    for part in path.split('/') {
        let node = kids
            .as_array()?
            .iter()
            .find(|node| node["name"] == part)?
            .clone();
        found = node["amount"].as_i64();
        kids = node["kids"].clone();
    }
    found
}

#[track_caller]
fn sum(json: &str, path: &str) -> i64 {
    amount(json, path).unwrap_or_else(|| panic!("no {path}: {json}"))
}

/// Returns the `Rss` of a process, read in another way than ours.
fn rss(pid: i32) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Rss:"))
        .expect("Rss");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<i64>()
        .expect("a number")
        * 1024
}

#[track_caller]
fn near(ours: i64, theirs: i64) {
    assert!(
        (ours - theirs).abs() * 100 <= theirs * 2,
        "{ours} and {theirs}"
    );
}

#[test]
fn a_program_with_reporters_in_c() {
    let bench = Bench::new();
    let (running, held, _sockets) = cached(&bench, &[]);
    let pid = running.pid.to_string();
    let done = bench.tool(["memory", &pid, "--json"]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    assert!(
        done.stderr
            .contains("reporter \"wrong\" left out: a negative amount"),
        "{done:#?}"
    );
    let json = &done.stdout;
    assert_eq!(sum(json, "explicit/caches/images"), held as i64);
    assert_eq!(sum(json, "images"), 1000);
    assert_eq!(sum(json, "explicit/arena"), 32 << 20);
    // What no reporter names is less than a twentieth of what was asked for.
    assert!(
        sum(json, "explicit/heap-unclassified") * 20 < sum(json, "explicit"),
        "{json}"
    );
    assert_eq!(amount(json, "explicit/wrong"), None);
    let allocated = sum(json, "heap-allocated");
    assert_eq!(
        sum(json, "explicit/heap-unclassified"),
        allocated - held as i64
    );
    assert_eq!(sum(json, "resident-by-kind"), sum(json, "resident"));
    near(sum(json, "resident"), rss(running.pid));
    let text = bench.tool(["memory", &pid, "--exact"]);
    assert!(
        text.stdout
            .starts_with(&format!("cache (pid {pid})\n\nExplicit Allocations\n\n")),
        "{text:#?}"
    );
    // The saved lines are the shown ones; what is dropped is the difference.
    assert_eq!(
        bench
            .tool(["memory", &pid, "--save", "before.json.gz"])
            .shell_status(),
        0
    );
    let saved = bench.tool(["memory", "before.json.gz", "--json"]);
    assert_eq!(sum(&saved.stdout, "explicit/caches/images"), held as i64);
    let dropped = bench.tool([
        "memory",
        &pid,
        "--minimize",
        "--diff",
        "before.json.gz",
        "--json",
    ]);
    assert!(
        dropped
            .stderr
            .contains(&format!("minimize: images: dropped {held} bytes")),
        "{dropped:#?}"
    );
    assert_eq!(
        sum(&dropped.stdout, "explicit/caches/images"),
        -(held as i64)
    );
    let refused = bench.tool(["memory", &pid, "--gc"]);
    assert_eq!(refused.shell_status(), 2);
    assert!(refused.stderr.contains("offers no gc"), "{refused:#?}");
    let listed = bench.tool(["memory"]);
    assert!(
        listed
            .stdout
            .contains(&format!("{pid}\tcache (pid {pid})\t")),
        "{listed:#?}"
    );
    let done = running.finish(PATIENCE);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
}

#[test]
fn reporters_on_our_allocator() {
    let bench = Bench::new();
    let both = format!("{}:{}", tool::allocator().display(), reporters().display());
    let (running, held, _sockets) = cached(&bench, &[("LD_PRELOAD", both)]);
    let done = measured(&bench, running.pid);
    let json = &done.stdout;
    assert_eq!(sum(json, "explicit/caches/images"), held as i64);
    let allocated = sum(json, "heap-allocated");
    assert_eq!(
        sum(json, "explicit/heap-unclassified"),
        allocated - held as i64
    );
    assert!(
        amount(json, "explicit/heap-overhead/metadata").is_some(),
        "{json}"
    );
    assert_eq!(sum(json, "resident-by-kind"), sum(json, "resident"));
    near(sum(json, "resident"), rss(running.pid));
    // All live blocks are touched: they are resident as a whole.
    near(sum(json, "resident-by-kind/heap/live"), allocated);
    assert_eq!(running.finish(PATIENCE).shell_status(), 0);
}

#[test]
fn a_program_in_python() {
    let bench = Bench::new();
    let script = "
import sys
sys.path.insert(0, sys.argv[1])
import skinflint_report as memory

@memory.reporter('images')
def images(out):
    out.heap('explicit/caches/' + memory.component('a/b'), 12345, 'Images.')

@memory.reporter('raises')
def raises(out):
    out.heap('explicit/raises', 5, 'Goes with it.')
    raise ValueError('no luck')

kept = [bytes(100 + n % 8) for n in range(50000)] + [bytes(10_000) for _ in range(300)]

@memory.reporter('kept')
def of_kept(out):
    out.objects('explicit/kept', kept, 'Kept.')

number = memory.add('removed', lambda out: out.heap('explicit/removed', 1, ''))
assert memory.remove(number)
memory.on('gc', 'python', lambda: 'freed %d objects' % 7)
print(memory.save('report.json.gz'))
try:
    memory.save('none/report.json')
except OSError as error:
    print(error)
";
    let mut command = bench.command("python3");
    command
        .args(["-c", script])
        .arg(root().join("bindings/python"))
        .env("SKINFLINT_REPORT_LIBRARY", reporters());
    let done = run(command);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let mut lines = done.stdout.lines();
    assert_eq!(
        lines.next(),
        Some("reporter \"raises\" left out: ValueError: no luck")
    );
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("none/report.json: ")),
        "{done:#?}"
    );
    let shown = bench.tool(["memory", "report.json.gz", "--json"]);
    assert_eq!(sum(&shown.stdout, "explicit/caches/a\\b"), 12345);
    // 33 bytes of head: blocks of 133 to 140 bytes get 144; from 512 bytes on they are malloc's.
    assert_eq!(sum(&shown.stdout, "explicit/kept"), 300 * 10_033);
    let pymalloc = |row: &str| sum(&shown.stdout, &format!("explicit/python/pymalloc{row}"));
    assert_eq!(pymalloc("/kept"), 50_000 * 144);
    // Python maps arenas of 1 MiB, and what is in none of its blocks is named.
    assert_eq!(pymalloc("") % (256 << 10), 0, "{}", shown.stdout);
    assert!(pymalloc("/unclassified") > 100_000 && pymalloc("/free") > 0);
    assert!(pymalloc("/unclassified") < 8 << 20, "{}", shown.stdout);
    assert!(sum(&shown.stdout, "explicit/heap-unclassified") >= 0);
    assert_eq!(amount(&shown.stdout, "explicit/raises"), None);
    assert_eq!(amount(&shown.stdout, "explicit/removed"), None);
}

/// A program that says which descriptors and libpthread's threads it sees, and waits.
const WAITS: &str = "
import os, sys, threading
blocks = [bytearray(3000) for _ in range(10000)]
fds = sorted(int(fd) for fd in os.listdir('/proc/self/fd'))
print('ready', len(fds), max(fds[:-1]), threading.active_count(), flush=True)
sys.stdin.read()
print('ok')
";

#[test]
fn our_allocator_where_the_runtime_folder_was_never_made() {
    let bench = Bench::new();
    let library = format!("--lib={}", tool::allocator().display());
    let mut command = bench.skinflint(["exec", &library, "--memory", "--", "python3", "-c", WAITS]);
    command.env("XDG_RUNTIME_DIR", bench.path("never-made"));
    let mut running = Running::start(command);
    running.line();
    let pid = running.pid.to_string();
    let until = Instant::now() + PATIENCE;
    loop {
        let done = bench.tool(["memory", &pid, "--json"]);
        if amount(&done.stdout, "heap-allocated").is_some() {
            break;
        }
        assert!(Instant::now() < until, "no socket: {done:#?}");
    }
    // The socket is in the other place, and goes with the program.
    // SAFETY: no memory is involved.
    let usual = format!("/tmp/skinflint-{}/{pid}.heap", unsafe { libc::geteuid() });
    assert!(Path::new(&usual).exists(), "{usual}");
    let done = running.finish(PATIENCE);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    assert!(!Path::new(&usual).exists(), "{usual}");
}

#[test]
fn a_program_on_our_allocator_and_what_it_sees_of_it() {
    let bench = Bench::new();
    let mut plain = bench.command("python3");
    plain.args(["-c", WAITS]);
    let mut plain = Running::start(plain);
    let sees = plain.line();
    let library = format!("--lib={}", tool::allocator().display());
    let command = bench.skinflint(["exec", &library, "--memory", "--", "python3", "-c", WAITS]);
    let mut running = Running::start(command);
    // malloc_so::endpoint.K1: the same descriptors, the same threads.
    assert_eq!(running.line(), sees);
    let pid = running.pid.to_string();
    let until = Instant::now() + PATIENCE;
    let json = loop {
        let done = bench.tool(["memory", &pid, "--json"]);
        assert_eq!(done.shell_status(), 0, "{done:#?}");
        if amount(&done.stdout, "heap-allocated").is_some() {
            assert_eq!(done.stderr, "", "{done:#?}");
            break done.stdout;
        }
        assert!(Instant::now() < until, "no socket: {done:#?}");
    };
    let allocated = sum(&json, "heap-allocated");
    assert!(allocated > 30_000_000, "{allocated}");
    assert_eq!(sum(&json, "explicit/heap-unclassified"), allocated);
    assert_eq!(sum(&json, "resident-by-kind"), sum(&json, "resident"));
    near(sum(&json, "resident"), rss(running.pid));
    assert!(sum(&json, "resident-by-kind/heap/live") > 30_000_000);
    let done = bench.tool(["memory", &pid, "--minimize"]);
    assert!(done.stderr.contains("minimize: the allocator"), "{done:#?}");
    // Only this user may ask: another user sees neither the socket nor /proc.
    if need::root("another user, by setpriv") {
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        other
            .arg(env!("CARGO_BIN_EXE_skinflint"))
            .args(["memory", &pid]);
        let other = run(other);
        assert_ne!(other.shell_status(), 0, "{other:#?}");
        assert!(!other.stdout.contains("heap-allocated"), "{other:#?}");
    }
    let done = running.finish(PATIENCE);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    let gone = bench.tool(["memory", &pid]);
    assert_eq!(gone.shell_status(), 1);
    assert!(gone.stderr.contains("no such process"), "{gone:#?}");
    drop(plain);
}

#[test]
fn a_program_that_links_nothing() {
    let bench = Bench::new();
    let mut command = bench.command("python3");
    command.args(["-c", WAITS]);
    let mut running = Running::start(command);
    running.line();
    let done = bench.tool(["memory", &running.pid.to_string(), "--json"]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    assert!(
        done.stderr.contains("only what the kernel says"),
        "{done:#?}"
    );
    // A figure that is not known is absent, and never 0.
    assert_eq!(amount(&done.stdout, "heap-allocated"), None);
    assert_eq!(amount(&done.stdout, "explicit"), None);
    assert_eq!(
        sum(&done.stdout, "resident-by-kind"),
        sum(&done.stdout, "resident")
    );
    near(sum(&done.stdout, "resident"), rss(running.pid));
    assert!(
        sum(&done.stdout, "resident-by-kind/heap")
            + sum(&done.stdout, "resident-by-kind/anonymous")
            > 30_000_000
    );
    assert!(sum(&done.stdout, "pss") <= sum(&done.stdout, "resident"));
    assert!(sum(&done.stdout, "resident-unique") <= sum(&done.stdout, "pss"));
}

#[test]
fn watching_until_it_ends() {
    let bench = Bench::new();
    let mut command = bench.command("python3");
    command.args(["-c", WAITS]);
    let mut running = Running::start(command);
    running.line();
    let mut watch = Running::start(bench.skinflint([
        "memory",
        &running.pid.to_string(),
        "--watch=0.1",
        "--json",
    ]));
    for _ in 0..3 {
        assert!(sum(&watch.line(), "resident") > 30_000_000);
    }
    assert_eq!(running.finish(PATIENCE).shell_status(), 0);
    let done = watch.finish(PATIENCE);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    assert!(done.stderr.contains("the process has ended"), "{done:#?}");
}

#[test]
fn what_cannot_be_shown() {
    let bench = Bench::new();
    std::fs::write(bench.path("two.json"), "{\"version\":2,\"reports\":[]}").expect("written");
    std::fs::write(
        bench.path("cut.json"),
        "{\"version\":1,\"reports\":[{\"process\":\"p\",",
    )
    .expect("written");
    std::fs::create_dir(bench.path("folder")).expect("made");
    for (arguments, status, words) in [
        (
            &["memory", "two.json"][..],
            1,
            "two.json: \"version\" is 2, and only 1 is known",
        ),
        (&["memory", "cut.json"], 1, "cut.json: cut off"),
        (&["memory", "cut.json"], 1, "(at byte 39 of the JSON)"),
        (&["memory", "none.json"], 2, "none.json: cannot be opened"),
        (&["memory", "folder"], 2, "folder: a folder"),
        (&["memory", "0"], 2, "0 is no process"),
        (&["memory", "99999999999"], 2, "is no process"),
        (&["memory", "4194304"], 1, "no such process"),
        (&["memory", "two.json", "--gc"], 2, "--gc is for a process"),
        (&["memory", "two.json", "--watch=0"], 2, "from 0.1 to 86400"),
        (
            &["memory", "two.json", "--threshold", "101"],
            2,
            "from 0 to 100",
        ),
        (
            &["memory", "http://127.0.0.1:1/x?token=0"],
            2,
            "http://127.0.0.1:1/x",
        ),
    ] {
        let done = bench.tool(arguments);
        assert_eq!(done.shell_status(), status, "{arguments:?}: {done:#?}");
        assert!(done.stderr.contains(words), "{arguments:?}: {done:#?}");
    }
}

#[test]
fn what_would_do_nothing_is_refused() {
    let bench = Bench::new();
    let empty = "{\"version\":1,\"reports\":[]}";
    std::fs::write(bench.path("empty.json"), empty).expect("written");
    for arguments in [
        &["memory", "--minimize"][..],
        &["memory", "--gc"],
        &["memory", "--diff", "empty.json"],
        &["memory", "--save", "x.json"],
        &["memory", "--watch"],
        &["memory", "--page"],
        &["memory", "--openmetrics"],
        &["memory", "--exact"],
        &["memory", "empty.json", "--json", "--exact"],
        &["memory", "empty.json", "--openmetrics", "--threshold", "5"],
        &[
            "memory",
            "empty.json",
            "--openmetrics",
            "--diff",
            "empty.json",
        ],
        &["memory", "empty.json", "--watch=1"],
        &["memory", "1", "--watch=1", "--openmetrics"],
    ] {
        let done = bench.tool(arguments);
        assert_eq!(done.shell_status(), 2, "{arguments:?}: {done:#?}");
        assert_eq!(done.stdout, "", "{arguments:?}: {done:#?}");
    }
    assert!(!bench.path("x.json").exists());
    let listed = bench.tool(["memory", "--json"]);
    let value: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert!(value["listening"].is_array(), "{listed:#?}");
    let shown = bench.tool(["memory", "empty.json"]);
    assert_eq!((shown.shell_status(), &*shown.stdout), (0, "no reports\n"));
    let same = bench.tool(["memory", "empty.json", "--diff", "empty.json"]);
    assert_eq!(same.stdout, "nothing has changed\n");
}

#[test]
fn what_shrinks_is_no_double_count() {
    let bench = Bench::new();
    let report = |claimed: i64, allocated: i64| {
        format!(
            "{{\"version\":1,\"reports\":[\
             {{\"process\":\"a\\u001b[2Jb (pid 7)\",\"path\":\"explicit/x\",\"kind\":1,\"units\":0,\
             \"amount\":{claimed},\"description\":\"\"}},\
             {{\"process\":\"a\\u001b[2Jb (pid 7)\",\"path\":\"heap-allocated\",\"kind\":2,\"units\":0,\
             \"amount\":{allocated},\"description\":\"\"}}]}}"
        )
    };
    std::fs::write(bench.path("one.json"), report(1000, 9000)).expect("written");
    std::fs::write(bench.path("two.json"), report(990, 2000)).expect("written");
    let done = bench.tool(["memory", "two.json", "--diff", "one.json", "--exact"]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    assert!(
        done.stdout.contains("-6,990 B ── heap-unclassified"),
        "{done:#?}"
    );
    for absent in ["twice", "Warning", "%", "\u{1b}"] {
        assert!(!done.stdout.contains(absent), "{absent}: {done:#?}");
    }
    // The same holds if the difference is a file.
    let saved = bench.tool([
        "memory", "two.json", "--diff", "one.json", "--save", "d.json",
    ]);
    assert_eq!(saved.shell_status(), 0, "{saved:#?}");
    let again = bench.tool(["memory", "d.json", "--exact"]);
    assert_eq!(again.stdout, done.stdout);
    // The same holds if it goes to stdout, which becomes no file.
    let printed = bench.tool(["memory", "two.json", "--diff", "one.json", "--save", "-"]);
    let file = std::fs::read_to_string(bench.path("d.json")).expect("saved");
    assert_eq!((printed.stdout, printed.stderr), (file, String::new()));
    assert!(!bench.path("-").exists());
}

#[test]
fn prometheus_reads_it() {
    let folder = root().join("target/consumers/python");
    if !need::file(&folder.join("prometheus_client"), "make metrics-deps") {
        return;
    }
    let bench = Bench::new();
    let (running, held, _sockets) = cached(&bench, &[]);
    let done = bench.tool(["memory", &running.pid.to_string(), "--openmetrics"]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let script = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = {family.name: family for family in text_string_to_metric_families(sys.stdin.read())}
memory = families['skinflint_memory_bytes']
assert memory.unit == 'bytes' and memory.type == 'gauge', memory
found = {sample.labels['path']: sample.value for sample in memory.samples}
assert families['skinflint_memory_events'].type == 'counter'
assert {(one.labels['process'], one.labels['pid']) for one in memory.samples} == {('cache', sys.argv[1])}
print(int(found['explicit/caches/images']))
";
    let mut command = bench.command("/usr/bin/python3");
    command
        .args(["-c", script, &running.pid.to_string()])
        .env("PYTHONPATH", folder);
    let read = run_within(command, done.stdout.as_bytes(), PATIENCE);
    assert_eq!(read.stdout, format!("{held}\n"), "{read:#?}");
}

#[test]
fn a_closed_pipe_is_success() {
    let bench = Bench::new();
    let mut file = std::fs::File::create(bench.path("long.json")).expect("made");
    write!(file, "{{\"version\":1,\"reports\":[").expect("written");
    for n in 0..20_000 {
        let comma = if n > 0 { "," } else { "" };
        write!(
            file,
            "{comma}{{\"process\":\"p\",\"path\":\"a/{n}\",\"kind\":2,\"units\":0,\"amount\":1,\"description\":\"\"}}"
        )
        .expect("written");
    }
    write!(file, "]}}").expect("written");
    let mut running = Running::start(bench.skinflint(["memory", "long.json", "--threshold", "0"]));
    running.close_stdout();
    let done = running.finish(PATIENCE);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
}
