//! Starting things: the tool, the test programs, and any command, each within a bound.
//!
//! ```text
//!   Bench::new ─► folder of this test ─► record(program) ─► Done { stdout, stderr, status }
//! ```
//!
//! T1  A command that is not done within its bound is killed with its whole process group, and the
//!     test fails with what it had said so far.
//! T2  The recorder and the programs are built once for all tests, and are up to date.
//! T3  A test's folder is its own and goes with it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use skinflint_test_support::artifact;

use crate::report::Report;

#[path = "signals.rs"]
mod signals;

/// The longest that anything recorded here may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The path of the tool under test.
pub const SKINFLINT: &str = env!("CARGO_BIN_EXE_skinflint");

/// Returns the folder of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..")
        .canonicalize()
        .expect("the repository is there")
}

/// Returns the recorder, which is built by now (T2).
pub fn recorder() -> &'static Path {
    static RECORDER: OnceLock<PathBuf> = OnceLock::new();
    RECORDER.get_or_init(|| artifact::released("skinflint-record-so"))
}

/// Returns the allocator, which is built by now (T2).
pub fn allocator() -> &'static Path {
    static ALLOCATOR: OnceLock<PathBuf> = OnceLock::new();
    ALLOCATOR.get_or_init(|| artifact::released("skinflint-malloc-so"))
}

/// Returns the folder of the built test programs.
pub fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| made("tests/programs", "test-programs"))
}

/// Makes `make` build a folder of programs, and returns where they are.
pub fn made(sources: &str, folder: &str) -> PathBuf {
    artifact::made(sources, folder)
}

/// Returns a test program's path.
pub fn program(name: &str) -> PathBuf {
    programs().join(name)
}

/// Returns what a test program prints.
pub fn expected(name: &str) -> String {
    let file = root()
        .join("tests/programs/expected")
        .join(format!("{name}.out"));
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A command that has ended.
#[derive(Debug)]
pub struct Done {
    /// All of its stdout.
    pub stdout: String,
    /// All of its stderr.
    pub stderr: String,
    /// How it ended.
    pub status: ExitStatus,
}

impl Done {
    fn new(output: &Output) -> Done {
        Done {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: output.status,
        }
    }

    /// Returns the status as a shell shows it: 128 + n for signal n.
    pub fn shell_status(&self) -> i32 {
        let signal = self.status.signal().map(|signal| 128 + signal);
        self.status.code().or(signal).expect("ended")
    }

    /// Checks that it ended with this status and printed each of these on stderr.
    #[track_caller]
    pub fn says(&self, status: i32, texts: &[&str]) {
        assert_eq!(self.status.code(), Some(status), "{self:#?}");
        for text in texts {
            assert!(self.stderr.contains(text), "no {text:?} in: {self:#?}");
        }
    }
}

/// Runs a command to its end, within a bound (T1).
pub fn run_within(mut command: Command, stdin: &[u8], patience: Duration) -> Done {
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    // A thread writes it: a program that fills its stdout before it reads on would wait for us, and we for it.
    let mut pipe = running.child.as_mut().and_then(|child| child.stdin.take());
    let input = stdin.to_vec();
    std::thread::spawn(move || pipe.as_mut().map(|pipe| pipe.write_all(&input)));
    running.finish(patience)
}

/// Runs a command to its end.
pub fn run(command: Command) -> Done {
    run_within(command, b"", PATIENCE)
}

/// A command under way. When it is dropped, it is killed with its group.
pub struct Running {
    /// Process id, which is its group's as well.
    pub pid: i32,
    child: Option<Child>,
    lines: Option<Receiver<String>>,
}

impl Running {
    /// Starts a command in a process group of its own, all streams piped.
    pub fn start(mut command: Command) -> Running {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running {
            pid: child.id() as i32,
            child: Some(child),
            lines: None,
        }
    }

    /// Writes to the command's stdin.
    pub fn say(&mut self, text: &[u8]) {
        let child = self.child.as_mut().expect("running");
        let stdin = child.stdin.as_mut().expect("piped");
        // A command that ends without reading closes the pipe.
        let _ = stdin.write_all(text).and_then(|()| stdin.flush());
    }

    /// Returns the next line of its stdout; lines read in this way are not in [`Done::stdout`].
    #[track_caller]
    pub fn line(&mut self) -> String {
        if self.lines.is_none() {
            let stdout = self.child.as_mut().and_then(|child| child.stdout.take());
            let mut stdout = stdout.expect("piped, and read by lines only");
            let (to, lines) = channel();
            std::thread::spawn(move || {
                let mut line = Vec::new();
                let mut byte = [0];
                while let Ok(1) = stdout.read(&mut byte) {
                    line.push(byte[0]);
                    if byte[0] == b'\n' {
                        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                        line.clear();
                        if to.send(text).is_err() {
                            return;
                        }
                    }
                }
            });
            self.lines = Some(lines);
        }
        let lines = self.lines.as_ref().expect("set above");
        lines.recv_timeout(PATIENCE).expect("a line of its output")
    }

    /// Closes our end of its stdout: it then writes into a pipe that has no reader.
    pub fn close_stdout(&mut self) {
        drop(self.child.as_mut().and_then(|child| child.stdout.take()));
    }

    /// Closes its stdin, and waits for its end.
    #[track_caller]
    pub fn finish(mut self, patience: Duration) -> Done {
        let mut child = self.child.take().expect("running");
        drop(child.stdin.take());
        self.ended(child, patience)
    }

    /// Waits for the end that a signal brings. Its stdin stays open until then: a program that ends with its stdin
    /// could otherwise be faster than the signal on its way through the tool.
    #[track_caller]
    pub fn signalled(mut self, patience: Duration) -> Done {
        let mut child = self.child.take().expect("running");
        let stdin = child.stdin.take();
        let done = self.ended(child, patience);
        drop(stdin);
        done
    }

    #[track_caller]
    fn ended(&self, child: Child, patience: Duration) -> Done {
        let (to, ended) = channel();
        std::thread::spawn(move || to.send(child.wait_with_output()));
        match ended.recv_timeout(patience) {
            Ok(output) => Done::new(&output.expect("waited for")),
            Err(_) => {
                signal_group(self.pid, libc::SIGKILL);
                let said = ended.recv_timeout(PATIENCE);
                panic!("not done within {patience:?}; it said: {said:#?}");
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal_group(self.pid, libc::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Sends a signal to one process.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill({pid}, {signal})");
}

fn signal_group(group: i32, signal: i32) {
    // SAFETY: no memory is involved; a group that is gone is no matter.
    unsafe { libc::kill(-group, signal) };
}

/// A test's folder, and the tool run in it (T3).
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// Creates a new empty folder.
    pub fn new() -> Bench {
        let folder = tempfile::Builder::new()
            .prefix("whole-")
            .tempdir_in(artifact::target())
            .expect("a folder beside the programs");
        Bench { folder }
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command in the folder, with an environment that is the same everywhere.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path());
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "SKINFLINT_SOCKET",
            "COLUMNS",
        ] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C");
        command.env("SKINFLINT_RECORDER", recorder());
        signals::heed(&mut command);
        command
    }

    /// Returns a command of the tool.
    pub fn skinflint<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.command(SKINFLINT);
        command.args(arguments);
        command
    }

    /// Runs the tool to its end.
    pub fn tool<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Done {
        run(self.skinflint(arguments))
    }

    /// Returns the command `skinflint record -q --all -o main.sft OPTIONS -- COMMAND`.
    pub fn recording<A: AsRef<OsStr>>(
        &self,
        options: &[&str],
        command: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut tool = self.skinflint(["record", "--quiet", "--all", "--output", "main.sft"]);
        tool.args(options).arg("--").args(command);
        tool
    }

    /// Records a command to its end.
    pub fn record<A: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = A>) -> Done {
        run(self.recording(&[], command))
    }

    /// Returns the report on a trace in the folder, as of a moment.
    #[track_caller]
    pub fn report_at(&self, trace: &str, at: &str) -> Report {
        let done = self.tool(["report", "--json", "--at", at, trace]);
        assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
        Report::read(&done.stdout)
    }

    /// Returns the report on `main.sft` as of the end.
    #[track_caller]
    pub fn report(&self) -> Report {
        self.report_at("main.sft", "end")
    }

    /// Returns the names of the traces in the folder and in those of other processes in it, sorted.
    pub fn traces(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let name = path.strip_prefix(self.folder.path()).expect("in it");
                let name = name.to_string_lossy().into_owned();
                if name.ends_with(".sft") {
                    names.push(name);
                } else if name.starts_with("skinflint-") && path.is_dir() {
                    folders.push(path);
                }
            }
        }
        names.sort();
        names
    }
}
