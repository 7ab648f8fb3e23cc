//! Executables that a test makes can be run at once, whatever the test's other threads start meanwhile (executable.X1).

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use skinflint_test_support::executable;

/// The number of executables that are made and run; with `std::fs::copy` and `std::fs::write` in their place some fail.
const ROUNDS: usize = 200;
/// The threads that start programs meanwhile.
const STARTERS: usize = 4;

#[test]
fn what_was_made_runs_while_other_threads_start_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..STARTERS {
            scope.spawn(|| {
                // ORDER: Relaxed; a flag.
                while !is_over.load(Ordering::Relaxed) {
                    assert!(Command::new("true").status().expect("it starts").success());
                }
            });
        }
        let _ends = Ends(&is_over);
        let refused = (0..ROUNDS).find_map(|round| refused(folder.path(), round));
        assert_eq!(refused, None);
    });
}

/// Ends the threads, after a failure too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed); // ORDER: Relaxed; a flag.
    }
}

/// Makes and runs a copy and a script; returns what did not start.
fn refused(folder: &Path, round: usize) -> Option<String> {
    let copy = folder.join(format!("sub/copy{round}"));
    executable::copied(Path::new("/bin/true"), &copy, 0o755);
    let script = folder.join(format!("script{round}"));
    executable::written(&script, b"#!/bin/sh\nexit 0\n", 0o700);
    [copy, script].iter().find_map(|made| {
        let status = Command::new(made).status();
        let is_well = status.as_ref().is_ok_and(std::process::ExitStatus::success);
        (!is_well).then(|| format!("{}: {status:?}", made.display()))
    })
}
