//! The hardening levels of `libskinflint.so`, each check on a program that has the fault it looks for.
//!
//! ```text
//!   faults NAME ─┬─ the check on ──► the line, or the story with its stacks; the end that was chosen
//!                └─ the check off ─► not a word: so it is the check that speaks (H1)
//!   sound ───────── every level ───► "sound", and nothing on stderr
//! ```
//!
//! H1  Every fault is also run with its check switched off, and must not be reported then.
//! H2  What `sound` does is right: any report about it is false.
//! H3  A stack is right if `addr2line` finds the program's own functions in it, by name.
//!
//! Not here: the contract with checks off (the tests of the drop-in), what a check costs.

// Shared with the tests of the whole tool, and not all of it is needed here.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

mod faults;
mod levels;
mod options;
mod stories;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tool::{Bench, Done};

/// The longest that one program may take, on a machine that is also busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// The status of `abort`, as the shell has it.
pub const ABORTED: i32 = 134;
/// The status of a memory fault, as the shell has it.
pub const FAULTED: i32 = 139;

/// Returns the library, which is built by now.
fn library() -> &'static Path {
    tool::allocator()
}

/// Returns a program of tests/harden, which is built by now.
pub fn program(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    let folder = PROGRAMS.get_or_init(|| tool::made("tests/harden", "harden-programs"));
    folder.join(name)
}

/// Runs a command on our allocator, with this environment: `NAME=value`, without our prefix.
pub fn on_ours(mut command: Command, options: &[&str]) -> Done {
    command.env("LD_PRELOAD", library());
    for option in options {
        let (name, value) = option.split_once('=').expect("NAME=value");
        command.env(format!("SKINFLINT_{name}"), value);
    }
    tool::run_within(command, b"", PATIENCE)
}

/// Checks that it ended with this status, as the shell has it, and printed all of these on stderr.
#[track_caller]
pub fn ended(done: &Done, status: i32, texts: &[&str]) {
    assert_eq!(done.shell_status(), status, "{done:#?}");
    for text in texts {
        assert!(done.stderr.contains(text), "{text}: {done:#?}");
    }
}

/// Runs a program with a fault.
pub fn fault(name: &str, options: &[&str]) -> Done {
    let bench = Bench::new();
    let mut command = bench.command(program("faults"));
    command.arg(name);
    on_ours(command, options)
}
