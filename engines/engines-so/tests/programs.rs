//! Programs in C that use the library as its header says, and otherwise.
//!
//! ```text
//!   example.c ─► the lines that its comments work out        plain, linked statically, under AddressSanitizer
//!   misuse.c  ─► "N told, 0 not": N lines expect something   plain, under AddressSanitizer
//! ```
//!
//! T1  The header and the library have the same functions, all of them `skinflint_…`.
//! T2  The header is C99 and C++17 without a warning: tests/engines/Makefile builds with -Werror.
//!
//! Not here: tables and structures (`src/tests.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use skinflint_test_support::artifact;

/// What example.c prints, worked out by hand in its comments.
const EXAMPLE: &str = "\
pages: 100 made, 200 hits, 100 entries
relief: enough, told 16
pressure: asked 1, freed 100
image: 600 bytes of 4, the last 3
image: 0 dropped while shown, 0 decoded after
answer: 5000 bytes, slop below 16
users: 0 ended while cy follows them
users: 3 ended, 2 in a circle; bob is gone
";

fn library() -> PathBuf {
    artifact::built("skinflint-engines-so")
}

fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let library = library();
        let folder = library.parent().expect("target/PROFILE");
        let out = folder.join("engines-programs");
        let mut make = Command::new("make");
        make.arg("--silent").arg("-C");
        make.arg(artifact::root().join("tests/engines"));
        make.arg(format!("OUT={}", out.display()));
        make.arg(format!("LIB={}", folder.display()));
        let made = make.arg("all").env_remove("MAKEFLAGS").output();
        let made = made.expect("make starts");
        assert!(
            made.status.success(),
            "{make:?}\n{}",
            String::from_utf8_lossy(&made.stderr)
        );
        out
    })
}

/// Runs a program; its output. It ends well, or the test fails with what it said.
#[track_caller]
fn said(program: &str) -> String {
    let mut command = Command::new(programs().join(program));
    // Requests of half the address space are a part of the misuse.
    command.env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=1");
    let done = command.output().expect("it starts");
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout).into_owned(),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(
        done.status.success(),
        "{program}: {}\n{out}{err}",
        done.status
    );
    out
}

#[test]
fn the_example_prints_what_was_worked_out() {
    for program in ["example", "example-static", "example-asan"] {
        assert_eq!(said(program), EXAMPLE, "{program}");
    }
}

#[test]
fn misuse_is_told_and_does_no_harm() {
    // Each line that expects something is run once.
    let source = artifact::root().join("tests/engines/misuse.c");
    let source = std::fs::read_to_string(source).expect("misuse.c");
    let lines = source
        .lines()
        .filter(|line| line.trim().starts_with("EXPECT"));
    let wanted = format!("{} told, 0 not\n", lines.count());
    for program in ["misuse", "misuse-asan"] {
        assert_eq!(said(program), wanted, "{program}");
    }
}

#[test]
fn a_header_of_another_language_links() {
    assert_eq!(said("header-cxx"), "");
}

#[test]
fn header_and_library_have_the_same_functions() {
    let listed = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library())
        .output()
        .expect("nm (binutils)");
    let listed = String::from_utf8(listed.stdout).expect("names");
    let exported: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    let header = artifact::root().join("include/skinflint_engines.h");
    let header = std::fs::read_to_string(header).expect("the header");
    let declared: BTreeSet<&str> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '#']) && !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("skinflint_"))
        .collect();
    assert!(declared.len() > 50, "{declared:?}");
    assert_eq!(exported, declared);
}
