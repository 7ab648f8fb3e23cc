//! The contract programs: each function's answers, forks, ends of threads, signals, late libraries,
//! memory that runs out.
//!
//! C1  What a program checks, and why, is in the comment at its head.

use skinflint_test_support::need;

use crate::library::{PATIENCE, both, both_with, contract, library, on_ours, ours};
use crate::tool::{self, Bench, run};

/// Checks dropin.D1 and dropin.D2, and that the program came to its end and was satisfied.
#[track_caller]
fn holds(name: &str) {
    holds_with(name, &[]);
}

#[track_caller]
fn holds_with(name: &str, arguments: &[&str]) {
    let done = both(contract(name), arguments).same();
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    assert!(
        done.stdout.ends_with(" ok\n") || done.stdout.ends_with(" end\n"),
        "{done:#?}"
    );
}

#[test]
fn every_answer() {
    holds("answers");
}

#[test]
fn every_size_and_alignment() {
    holds("sizes");
}

#[test]
fn forks() {
    holds("forking");
}

#[test]
fn lives_and_ends_of_threads() {
    holds("lives");
}

#[test]
fn libraries_that_come_and_go() {
    let fixed = contract("libplugin-fixed.so").display().to_string();
    let dynamic = contract("libplugin-dynamic.so").display().to_string();
    holds_with("loading", &[&fixed, &dynamic]);
}

#[test]
fn memory_that_runs_out() {
    holds("limit");
}

#[test]
fn operators() {
    holds("operators");
    holds("operators-static");
}

#[test]
fn operators_that_the_program_replaces() {
    holds("replaced");
    holds("replaced-aligned");
}

/// No thread of ours keeps what the program gave up, stands in the way of what the kernel refuses to threads, or makes a
/// call that a filter punishes; with the socket of SKINFLINT_MEMORY there is a second such thread.
#[test]
fn what_the_program_may_do_changes() {
    let mut ways = vec!["alone", "filter", "strict", "clock", "before"];
    if need::root("to give rights up") {
        ways.extend(["drop", "raw", "vfork", "thread"]);
    }
    for way in ways {
        holds_with("rights", &[way]);
        let done = both_with(contract("rights"), b"", |_, command| {
            command.arg(way).env("SKINFLINT_MEMORY", "on");
        });
        assert_eq!(
            done.ours.stdout, done.glibc.stdout,
            "{way}: {:#?}",
            done.ours
        );
        assert_eq!(done.ours.shell_status(), 0, "{way}: {:#?}", done.ours);
    }
}

/// The same with the recorder in front, which has functions of these names, too, and goes on to the allocator's.
#[test]
fn what_the_program_may_do_changes_while_it_is_recorded() {
    let mut ways = vec!["filter"];
    if need::root("to give rights up") {
        ways.push("drop");
    }
    for way in ways {
        let bench = Bench::new();
        let library = library().display().to_string();
        let mut command = bench.recording(&["--preload", &library], [contract("rights")]);
        command.arg(way);
        let done = tool::run_within(command, b"", PATIENCE);
        assert_eq!(done.shell_status(), 0, "{way}: {done:#?}");
        assert!(done.stdout.ends_with("rights ok\n"), "{way}: {done:#?}");
    }
}

#[test]
fn every_way_to_end() {
    for (way, status) in [
        ("return", 0),
        ("exit", 7),
        ("_exit", 8),
        ("quick_exit", 9),
        ("abort", 128 + 6),
        ("thread", 5),
        ("main", 0),
        ("exec", 0),
        ("kill", 128 + 9),
    ] {
        let done = both(contract("ends"), &[way]).same();
        assert_eq!(done.shell_status(), status, "{way}: {done:#?}");
    }
}

/// glibc detects only some of them, so only ours is tested: one line, and SIGABRT.
#[test]
fn frees_of_what_is_no_block() {
    for case in [
        "static",
        "stack",
        "map",
        "middle",
        "large",
        "double",
        "double-large",
        "remote",
        "realloc",
    ] {
        let done = ours(contract("foreign"), &[case]);
        assert_eq!(
            (done.shell_status(), &*done.stdout),
            (128 + libc::SIGABRT, "freeing\n"),
            "{case}: {done:#?}"
        );
        assert_eq!(done.stderr.lines().count(), 1, "{case}: {done:#?}");
        assert!(done.stderr.starts_with("skinflint: "), "{case}: {done:#?}");
    }
}

/// There is nothing to write to, and descriptor 2 may become another file: still SIGABRT.
#[test]
fn a_closed_stderr() {
    let bench = Bench::new();
    let mut command = on_ours(bench.command("/bin/sh"));
    let program = contract("foreign");
    command.args(["-c", "exec \"$0\" double 2>&-"]).arg(program);
    let done = run(command);
    assert_eq!(done.shell_status(), 128 + libc::SIGABRT, "{done:#?}");
    assert_eq!((&*done.stdout, &*done.stderr), ("freeing\n", ""));
}

/// Tests what no other library has: by name, and in a program without a C++ library.
#[test]
fn operators_with_hints() {
    let done = ours(contract("hints"), &["hints"]);
    assert_eq!((done.shell_status(), &*done.stdout), (0, "hints ok\n"));
    let done = ours(contract("hints"), &["no-library"]);
    assert_eq!(done.shell_status(), 128 + libc::SIGABRT, "{done:#?}");
    assert!(done.stderr.contains("no C++ library"), "{done:#?}");
    assert_eq!((done.stderr.lines().count(), &*done.stdout), (1, ""));
}

/// glibc 2.36 does not have them.
#[test]
fn functions_of_c23_and_of_long_ago() {
    let done = ours(contract("c23"), &[]);
    assert_eq!((done.shell_status(), &*done.stdout), (0, "c23 ok\n"));
    assert_eq!(done.stderr, "");
}

#[test]
fn trim_and_the_other_names() {
    holds_with("reports", &["others"]);
}

#[test]
fn figures_move_with_the_blocks() {
    holds_with("reports", &["figures"]);
}

/// glibc may hang here, so there is no pair: ours must neither hang nor refuse.
#[test]
fn handlers_that_allocate_and_end() {
    let run = ours(contract("handlers"), &["crash"]);
    assert_eq!(
        (run.shell_status(), &*run.stdout),
        (0, "handlers ok\n"),
        "{}",
        run.stderr
    );
}

/// The figures are the allocator's own; the form is glibc's.
#[test]
fn reports_in_the_form_of_glibc() {
    let pair = both(contract("reports"), &["stats"]);
    let words = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split('=').next());
        lines.flatten().map(str::to_owned).collect()
    };
    assert_eq!(words(&pair.ours.stderr), words(&pair.glibc.stderr));
    assert_eq!(words(&pair.ours.stderr).len(), 8, "{}", pair.ours.stderr);
    let xml = ours(contract("reports"), &["info"]);
    assert_eq!((xml.shell_status(), &*xml.stderr), (0, ""));
    let check = "import sys, xml.dom.minidom as x\n\
                 root = x.parseString(sys.stdin.read()).documentElement\n\
                 print(root.tagName, root.getAttribute('version'), \
                 len(root.getElementsByTagName('heap')), \
                 all(e.getAttribute('size').isdigit() for e in root.getElementsByTagName('total')))";
    let read = both_with("python3", xml.stdout.as_bytes(), |_, command| {
        command.args(["-c", check]);
    });
    assert_eq!(read.same().stdout, "malloc 1 1 True\n", "{}", xml.stdout);
}

/// Tests a constructor that allocates before ours: the library of the recorder's tests.
#[test]
fn a_library_that_allocates_first() {
    for order in [true, false] {
        let bench = Bench::new();
        let early = crate::tool::program("libearly.so").display().to_string();
        let ours = crate::library::library().display().to_string();
        let list = if order {
            format!("{early}:{ours}")
        } else {
            format!("{ours}:{early}")
        };
        let mut command = bench.command(crate::tool::program("early"));
        command.env("LD_PRELOAD", list);
        let done = run(command);
        assert_eq!(done.shell_status(), 0, "{done:#?}");
        assert_eq!(done.stdout, crate::tool::expected("early-preloaded"));
    }
}
