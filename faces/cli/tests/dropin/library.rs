//! The library under test, the contract programs, and a run on both allocators.
//!
//! L1  The library and the programs are built once for all tests, and are up to date.
//! L2  Both runs have the same environment, but for `LD_PRELOAD`, and folders of their own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::tool::{self, Bench, Done};

/// The longest that a contract program may take, on a machine that is also busy with other work.
pub const PATIENCE: Duration = Duration::from_secs(1200);

/// Reports whether the long forms are wanted (dropin.D3).
pub fn is_long() -> bool {
    std::env::var_os("SKINFLINT_LONG").is_some()
}

/// Returns the path of libskinflint.so (L1).
pub fn library() -> &'static Path {
    tool::allocator()
}

/// Returns a program of tests/contract (L1).
pub fn contract(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    let folder = PROGRAMS.get_or_init(|| tool::made("tests/contract", "contract-programs"));
    folder.join(name)
}

/// Puts a command on our allocator.
pub fn on_ours(mut command: Command) -> Command {
    command.env("LD_PRELOAD", library());
    command
}

/// The results of a command on glibc's allocator and on ours.
pub struct Pair {
    /// The result on glibc's.
    pub glibc: Done,
    /// The result on ours.
    pub ours: Done,
}

impl Pair {
    /// Checks dropin.D1 and dropin.D2, and returns the result on ours.
    #[track_caller]
    pub fn same(self) -> Done {
        assert_eq!(self.ours.stdout, self.glibc.stdout, "{:#?}", self.ours);
        assert_eq!(self.ours.stderr, self.glibc.stderr, "{:#?}", self.ours);
        assert_eq!(
            self.ours.shell_status(),
            self.glibc.shell_status(),
            "{:#?}",
            self.ours
        );
        self.ours
    }
}

/// Runs the same command on both allocators (L2). `prepare` is given the folder of each run.
pub fn both_with(
    program: impl AsRef<OsStr>,
    stdin: &[u8],
    prepare: impl Fn(&Bench, &mut Command),
) -> Pair {
    let run = |ours: bool| {
        let bench = Bench::new();
        let mut command = bench.command(program.as_ref());
        prepare(&bench, &mut command);
        if ours {
            command = on_ours(command);
        }
        tool::run_within(command, stdin, PATIENCE)
    };
    Pair {
        glibc: run(false),
        ours: run(true),
    }
}

/// Runs a program with arguments on both allocators.
pub fn both(program: impl AsRef<OsStr>, arguments: &[&str]) -> Pair {
    both_with(program, b"", |_, command| {
        command.args(arguments);
    })
}

/// Runs a program only on our allocator.
pub fn ours(program: impl AsRef<OsStr>, arguments: &[&str]) -> Done {
    let bench = Bench::new();
    let mut command = on_ours(bench.command(program));
    command.args(arguments);
    tool::run_within(command, b"", PATIENCE)
}
