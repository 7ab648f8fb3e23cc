//! Figures, pressure and heaps of `libskinflint.so`, tested by programs that use them.
//!
//! ```text
//!   books.py ── figures against /proc/self/smaps        pressure ── under limits: as, data, a cgroup
//!   heaps ── whole, in forks, after the end             python, at exit ── one line of JSON
//!   profile ── its file against what the program did (profile.rs)
//! ```
//!
//! C1  A program of tests/accounts says "ok" and nothing on stderr, or the test fails with what it said.
//! C2  What a machine does not allow (a cgroup) is printed on the test's stderr, with the reason.
//!
//! Not here: tenants and the estimate of requested bytes by themselves (engines/alloc/tests).

// Shared with the tests of the whole tool, and not all of it is needed here.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

mod profile;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use skinflint_test_support::need;
use tool::{Bench, Done};

/// The longest that one program may take, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(180);

/// Returns the library, which is built by now.
fn library() -> &'static Path {
    tool::allocator()
}

/// Returns a program of tests/accounts, which is built by now.
fn program(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    let folder = PROGRAMS.get_or_init(|| tool::made("tests/accounts", "accounts-programs"));
    folder.join(name)
}

fn on_ours(mut command: Command, environment: &[(&str, &str)]) -> Done {
    command.env("LD_PRELOAD", library());
    for (name, value) in environment {
        command.env(name, value);
    }
    tool::run_within(command, b"", PATIENCE)
}

fn run(name: &str, arguments: &[&str]) -> Done {
    let bench = Bench::new();
    let mut command = bench.command(program(name));
    command.args(arguments);
    on_ours(command, &[])
}

#[track_caller]
fn ok(name: &str, arguments: &[&str]) {
    let done = run(name, arguments);
    assert_eq!(
        (done.shell_status(), &*done.stdout, &*done.stderr),
        (0, "ok\n", ""),
        "{name} {arguments:?}"
    );
}

#[test]
fn the_books_close_against_the_kernel_s() {
    let bench = Bench::new();
    let mut python = bench.command("python3");
    python.arg(tool::root().join("tests/accounts/books.py"));
    let done = on_ours(python, &[("PYTHONMALLOC", "malloc")]);
    assert_eq!(
        (done.shell_status(), &*done.stdout),
        (0, "ok\n"),
        "apt-get install python3: {done:#?}"
    );
    let mut python = bench.command("python3");
    python.arg(tool::root().join("tests/accounts/books.py"));
    let done = on_ours(python, &[]);
    assert_eq!(
        (done.shell_status(), &*done.stdout),
        (0, "ok\n"),
        "with its own arenas: {done:#?}"
    );
}

#[test]
fn a_limit_on_address_space() {
    for what in ["plain", "listener", "reserve"] {
        ok("pressure", &[what, "as"]);
    }
}

/// Tests with the limit that counts what overcommit mode 2 counts: private writable mappings. The mode
/// itself is the whole machine's, and is left alone.
#[test]
fn a_limit_on_committed_memory() {
    for what in ["plain", "listener", "reserve"] {
        ok("pressure", &[what, "data"]);
    }
}

#[test]
fn sizes_that_no_system_has_are_no_pressure() {
    ok("pressure", &["silly"]);
}

/// Cold pages are told of, and stay what they are; where they go is seen in `make qemu-alloc`, which has a swap.
#[test]
fn cold_pages_are_told_of_on_request() {
    ok("cool", &[]);
}

/// A cgroup for one test, removed when it is dropped.
struct Group(PathBuf);

impl Group {
    /// Creates a group with a limit of 64 MiB. `Err` says why there is none.
    fn new(name: &str) -> Result<Group, String> {
        let versions = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        let mut why = String::from("no memory controller is mounted");
        for (root, limit) in versions {
            let path = Path::new(root).join(format!("skinflint-{name}-{}", std::process::id()));
            let made = std::fs::create_dir(&path)
                .and_then(|()| std::fs::write(path.join(limit), b"67108864"));
            match made {
                Ok(()) => return Ok(Group(path)),
                Err(error) => {
                    why = format!("{}: {error}", path.display());
                    let _ = std::fs::remove_dir(&path);
                }
            }
        }
        Err(why)
    }

    fn run(&self, arguments: &[&str]) -> Done {
        let bench = Bench::new();
        let mut shell = bench.command("sh");
        let procs = self.0.join("cgroup.procs");
        shell
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(procs)
            .arg(program("pressure"))
            .args(arguments);
        on_ours(shell, &[])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_memory_cgroup_s_limit_is_seen_before_it_kills() {
    let made = Group::new("near");
    let why = made.as_ref().err().map_or("", String::as_str);
    let what = format!("memory control groups ({why})");
    let _ = need::that(
        made.is_ok(),
        &what,
        "run as root where they can be written to",
    );
    let Ok(group) = made else {
        return;
    };
    let greedy = group.run(&["cache", "greedy"]);
    assert_eq!(greedy.shell_status(), 137, "not killed: {greedy:#?}");
    let spare = group.run(&["cache", "spare"]);
    assert_eq!(
        (spare.shell_status(), &*spare.stdout),
        (0, "ok\n"),
        "{spare:#?}"
    );
}

#[test]
fn heaps_hold_what_they_say_and_go_whole() {
    ok("heaps", &["whole"]);
}

#[test]
fn heaps_and_forks() {
    ok("heaps", &["forks"]);
}

#[test]
fn misuse_of_a_heap_is_said() {
    for (what, words) in [
        ("stale", "use of a heap that was destroyed"),
        ("wrong", "a heap was given a block that is not its own"),
    ] {
        let done = run("heaps", &[what]);
        assert_eq!(done.shell_status(), 134, "{done:#?}");
        assert!(done.stderr.contains(words), "{done:#?}");
        let bench = Bench::new();
        let mut command = bench.command(program("heaps"));
        command.arg(what);
        let done = on_ours(command, &[("SKINFLINT_BAD_FREE", "ignore")]);
        assert_eq!(
            (done.shell_status(), &*done.stdout, &*done.stderr),
            (0, "ok\n", "")
        );
    }
}

/// A reserve belongs to the first process of a tree, unless the others are to keep one, too; a small program pays nothing for
/// one that no machine has.
#[test]
fn a_reserve_is_the_first_processs() {
    let bench = Bench::new();
    let grown = "x = [bytearray(1 << 18) for _ in range(80)]";
    for (children, held) in [("off", 0), ("on", 5 << 20)] {
        let mut shell = bench.command("sh");
        shell.args([
            "-c",
            &format!("SKINFLINT_STATS=1 /usr/bin/python3 -c '{grown}'; :"),
        ]);
        let done = on_ours(
            shell,
            &[
                ("SKINFLINT_RESERVE", "5M"),
                ("SKINFLINT_RESERVE_CHILDREN", children),
            ],
        );
        let figures: serde_json::Value = serde_json::from_str(&done.stderr).expect("JSON");
        assert_eq!(figures["resident"]["reserve_bytes"], held, "{children}");
    }
    let mut echo = bench.command("echo");
    echo.arg("here");
    let done = on_ours(echo, &[("SKINFLINT_RESERVE", "4096G")]);
    assert_eq!((&*done.stdout, &*done.stderr), ("here\n", ""));
}

/// A name of ours that is not known is said once for a tree of processes, with the nearest that is.
#[test]
fn a_name_that_is_not_known_is_said_once() {
    let bench = Bench::new();
    let mut shell = bench.command("sh");
    shell.args(["-c", "echo a; env true; env true; :"]);
    let done = on_ours(shell, &[("SKINFLINT_DECAY", "0")]);
    let wanted =
        "skinflint: no variable is called SKINFLINT_DECAY; the nearest is SKINFLINT_DECAY_MS\n";
    assert_eq!((&*done.stdout, &*done.stderr), ("a\n", wanted));
}

#[test]
fn figures_at_exit_go_where_they_are_sent() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures-%p.json");
    let mut python = bench.command("python3");
    // More than the reserve, which grows with the heap.
    let grown = "import os; x = [bytearray(1 << 18) for _ in range(80)]; print(os.getpid())";
    python.args(["-c", grown]);
    let sent = file.to_str().expect("text");
    let done = on_ours(
        python,
        &[("SKINFLINT_STATS", sent), ("SKINFLINT_RESERVE", "5M")],
    );
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    let path = sent.replace("%p", done.stdout.trim());
    let text = std::fs::read_to_string(&path).expect(&path);
    let figures: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(text.lines().count(), 1);
    assert_eq!(figures["balanced"], true);
    assert_eq!(figures["mapped"]["reserve_bytes"], 5 << 20);
    assert_eq!(figures["resident"]["reserve_bytes"], 5 << 20);
    let mut python = bench.command("python3");
    python.args(["-c", "pass"]);
    let done = on_ours(python, &[("SKINFLINT_STATS", "/no/such/folder/x")]);
    assert!(
        done.stderr.contains("cannot open /no/such/folder/x"),
        "{done:#?}"
    );
    assert_eq!(done.shell_status(), 0);
    let mut python = bench.command("python3");
    python.args(["-c", "pass"]);
    let done = on_ours(python, &[("SKINFLINT_STATS", "/dev/full")]);
    assert!(
        done.stderr
            .contains("SKINFLINT_STATS: /dev/full cannot be written: no space is left\n"),
        "{done:#?}"
    );
    assert_eq!(done.shell_status(), 0);
}
