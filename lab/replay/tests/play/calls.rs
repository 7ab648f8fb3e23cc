//! The allocator gets the calls of the script and no others: counted by a library in front of it.

use std::path::PathBuf;
use std::process::Command;

use skinflint_replay::script::Op;

use crate::made::{Run, Script};

fn counter(folder: &tempfile::TempDir) -> PathBuf {
    let library = folder.path().join("counted.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/play/counted.c");
    let done = Command::new("gcc")
        .args(["-O1", "-fno-builtin", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .status()
        .expect("gcc is installed (Debian: gcc)");
    assert!(done.success());
    library
}

/// Returns the calls that were made: malloc, calloc, realloc, posix_memalign, free.
fn called(script: &Script) -> (Run, Vec<u64>) {
    let folder = tempfile::tempdir().expect("a folder");
    let library = counter(&folder);
    let run = script.played_with(&[], &[("LD_PRELOAD", library.to_str().expect("a path"))]);
    let line = run
        .said
        .lines()
        .find_map(|line| line.strip_prefix("called "))
        .expect("the library was loaded");
    let counts = line
        .split(' ')
        .map(|count| count.parse().expect("a number"))
        .collect();
    (run, counts)
}

#[test]
fn only_the_script_s_calls_reach_the_allocator() {
    let (run, counts) = called(&Script::new(1).epoch(&[(
        0,
        &[
            Op::Malloc { slot: 0, size: 1 },
            Op::Malloc {
                slot: 1,
                size: 1 << 20,
            },
            Op::Calloc { slot: 2, size: 100 },
            Op::Realloc { slot: 0, size: 50 },
            Op::Memalign {
                slot: 3,
                size: 100,
                log2: 6,
            },
            Op::Free { slot: 1 },
        ],
    )]));
    assert!(run.is_clean(), "{}", run.said);
    assert_eq!(counts, [2, 1, 1, 1, 1]);
}

#[test]
fn a_thread_costs_what_glibc_needs_for_it() {
    let (run, counts) = called(&Script::new(2).epoch(&[
        (0, &[Op::Start { thread: 1 }]),
        (1, &[Op::Malloc { slot: 0, size: 1 }]),
    ]));
    assert!(run.is_clean(), "{}", run.said);
    assert_eq!(counts[0], 1);
    assert!(
        counts[1] <= 1,
        "its vector of thread-local storage: {counts:?}"
    );
    assert_eq!(counts[2..], [0, 0, 0]);
}
