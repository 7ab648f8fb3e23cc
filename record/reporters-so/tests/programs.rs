//! Programs in C and Python that open an endpoint and use it.
//!
//! ```text
//!   tests/reporters/endpoint.c, Python ── libskinflint_report.so ─► socket ◄─ asked here, by the crate's own asker
//! ```
//!
//! T1  Every wait has a bound, and a program that is left running ends with its stdin.
//! T2  What a program prints is predicted in the head of endpoint.c.
//!
//! Not here: what is measured (ground/reporters/tests), the command (faces/cli/tests/memory).

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skinflint_reporters::endpoint::{self, Answer};
use skinflint_test_support::artifact;

const PATIENCE: Duration = Duration::from_secs(60);

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| artifact::built("skinflint-reporters-so"))
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| artifact::made("tests/reporters", "reporter-programs").join("endpoint"))
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).expect("mode");
    folder
}

/// A program that runs.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        Running { child, lines }
    }

    fn endpoint(what: &str, at: &Path) -> Running {
        let mut command = Command::new(program());
        Running::start(command.arg(what).arg(at).env("LD_PRELOAD", library()))
    }

    fn python(script: &str, at: &Path) -> Running {
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(at);
        command.env("PYTHONPATH", artifact::root().join("bindings/python"));
        Running::start(command.env("SKINFLINT_REPORT_LIBRARY", library()))
    }

    /// Returns the next line; fails if the program has ended, as it does when a line takes too long.
    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        assert_ne!(line, "", "it ended");
        line.trim_end().to_owned()
    }

    /// Returns the number in the next line, which is `WORD NUMBER`.
    #[track_caller]
    fn number(&mut self, word: &str) -> u32 {
        let line = self.line();
        let number = line.strip_prefix(word).map(str::trim);
        number
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{line}"))
    }

    /// Closes its stdin, and waits. Returns what it has printed since. It must succeed, and report no errors.
    #[track_caller]
    fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let begin = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("it") {
                Some(status) => break status,
                None if begin.elapsed() > PATIENCE => {
                    let _ = self.child.kill();
                    panic!("it does not end");
                }
                // CLOCK: poll step of a bounded wait
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let (mut out, mut complaints) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).expect("text");
        let mut stderr = self.child.stderr.take().expect("it");
        stderr.read_to_string(&mut complaints).expect("text");
        assert_eq!(
            (status.code(), &*complaints),
            (Some(0), ""),
            "{status} {out}"
        );
        out
    }
}

fn socket(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}.report"))
}

#[track_caller]
fn answers(folder: &Path, pid: u32) {
    let answer = endpoint::ask(&socket(folder, pid), pid, "measure");
    assert!(matches!(answer, Ok(Answer::Report { .. })), "{answer:?}");
}

#[test]
fn signals_are_the_programs() {
    let folder = folder();
    let mut running = Running::endpoint("signals", folder.path());
    let pid = running.number("ready");
    answers(folder.path(), pid);
    // A client that is gone when the answer comes: the write fails, and SIGPIPE ends no program.
    for _ in 0..3 {
        let mut stream = UnixStream::connect(socket(folder.path(), pid)).expect("it");
        stream.write_all(b"measure\n").expect("sent");
    }
    answers(folder.path(), pid);
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGUSR1) }, 0);
    assert_eq!(running.finish(), format!("got {}\n", libc::SIGUSR1));
}

#[test]
fn a_child_leaves_its_parents_socket_alone_and_has_its_own() {
    let folder = folder();
    let mut running = Running::endpoint("forks", folder.path());
    let parent = running.child.id();
    let child = running.number("child");
    for pid in [parent, child, parent] {
        answers(folder.path(), pid);
    }
    running.finish();
    assert!(!socket(folder.path(), child).exists());
}

#[test]
fn children_of_python() {
    let folder = folder();
    let script = "
import multiprocessing, os, sys
import skinflint_report as memory

def work(said):
    memory.open(sys.argv[1])
    said.send(os.getpid())
    said.recv()
    memory.close()

memory.reporter('own')(lambda out: out.heap('explicit/own', 8, 'Its own.'))
memory.open(sys.argv[1])
# This one ends in order, with all that is done at exit.
if os.fork() == 0:
    sys.exit(0)
os.wait()
here, there = multiprocessing.Pipe()
child = multiprocessing.get_context('fork').Process(target=work, args=(there,))
child.start()
print('child', here.recv(), flush=True)
sys.stdin.read()
here.send('end')
child.join()
print(child.exitcode)
";
    let mut running = Running::python(script, folder.path());
    let parent = running.child.id();
    let child = running.number("child");
    for pid in [parent, child, parent] {
        answers(folder.path(), pid);
    }
    assert_eq!(running.finish(), "0\n");
}

#[test]
fn an_out_that_was_kept_does_no_harm() {
    let folder = folder();
    let file = folder.path().join("late.json");
    let said = Running::endpoint("late", &file).finish();
    assert_eq!(
        said,
        "saved 0\nlate -1 0\nits reporter has returned (or never was): `out` is good until then\nnull -1\n"
    );
    let script = "
import sys
import skinflint_report as memory
kept = []

@memory.reporter('keeps')
def keeps(out):
    kept.append(out)
    out.heap('explicit/kept', 8, 'In time.')

print(repr(memory.save(sys.argv[1])))
for use in (lambda out: out.heap('a', 1, ''), lambda out: out.count('a', 1, ''), lambda out: out.wants_blocks()):
    try:
        print(use(kept[0]))
    except ValueError as error:
        print(error)
";
    let said = Running::python(script, &file).finish();
    let late = "its reporter has returned: an Out is good until then\n";
    assert_eq!(said, format!("''\n{}", late.repeat(3)));
}

#[test]
fn who_removes_itself_and_who_gives_no_reason() {
    let folder = folder();
    let file = folder.path().join("leaves.json");
    let said = Running::endpoint("leaves", &file).finish();
    let fault = "reporter \"fails\" left out: it gave no reason\n";
    assert_eq!(said, format!("leaves 0\nsaved 1\n{fault}saved 1\n{fault}"));
}

#[test]
fn closing_waits_for_a_reporter_that_runs() {
    let folder = folder();
    let mut running = Running::endpoint("slow", folder.path());
    let pid = running.number("ready");
    let mut stream = UnixStream::connect(socket(folder.path(), pid)).expect("it");
    stream.write_all(b"measure\n").expect("sent");
    assert_eq!(running.line(), "begins");
    assert_eq!(running.finish(), "quiet\n");
}

/// Sets the flag when dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed); // ORDER: Relaxed: a flag that is looked at again
    }
}

#[test]
fn python_ends_while_it_is_asked() {
    let folder = folder();
    let script = "
import sys, threading, time
import skinflint_report as memory

begun = threading.Event()

@memory.reporter('slow')
def slow(out):
    begun.set()
    for n in range(300):
        time.sleep(0.0005) # CLOCK: it is asked while the others get on
        out.heap('explicit/slow/%d' % n, 8, 'Slow.')

memory.open(sys.argv[1])
print('ready', flush=True)
print('ends' if begun.wait(60) else 'nobody asks')
";
    for _ in 0..5 {
        let mut running = Running::python(script, folder.path());
        assert_eq!(running.line(), "ready");
        let path = socket(folder.path(), running.child.id());
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asks = || {
                // ORDER: Relaxed: a flag, looked at again.
                while !ends.load(Ordering::Relaxed) {
                    let _ = endpoint::ask(&path, 0, "measure");
                    std::thread::sleep(Duration::from_millis(1)); // CLOCK: asks again, now and then
                }
            };
            scope.spawn(asks);
            scope.spawn(asks);
            // Also if it fails: the threads that ask go on until then.
            let _ends = Ends(&ends);
            assert_eq!(running.finish(), "ends\n");
        });
    }
}
