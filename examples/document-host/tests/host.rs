//! The example host under its bars: named memory, pressure, a limit that would kill it.
//!
//! ```text
//!   netpbm ─► images ─► skinflint-document-host on libskinflint.so ◄─ commands, a line each
//! ```
//!
//! P1  `libskinflint.so` is built when it is needed; without netpbm a test is skipped, and counted (test-support).
//! P2  Memory is looked at from outside, in `/proc/PID/smaps`, beside what the host reports about itself.
//!
//! Not here: the parts by themselves (`engines/cache/tests`).

mod dark;

use skinflint_test_support::{artifact, need};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
}

fn ours() -> PathBuf {
    artifact::built("skinflint-malloc-so")
}

/// Reports whether the tool that makes the images is there; if not, the test is counted as skipped.
#[must_use]
#[track_caller]
fn has_images() -> bool {
    need::programs(&["pnmtojpeg", "pnmtopng"])
}

impl Running {
    fn start(folder: &Path, more: &[&str], group: Option<&Path>) -> Running {
        let mut command = Command::new("/bin/sh");
        // The shell joins the group, and becomes the host.
        let join = group.map_or(String::new(), |group| {
            format!("echo $$ > '{}/cgroup.procs'; ", group.display())
        });
        command
            .args([
                "-c",
                &format!("{join}LD_PRELOAD='{}' exec \"$0\" \"$@\"", ours().display()),
            ])
            .arg(env!("CARGO_BIN_EXE_skinflint-document-host"))
            .arg("--shelves")
            .arg(folder.join("shelves"))
            .arg("--images")
            .arg(folder.join("images"))
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, answers) = mpsc::channel();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| drop(tell.send(line)))
        });
        let running = Running {
            child,
            stdin,
            answers,
        };
        assert_eq!(running.answer().as_deref(), Some("ready"));
        running
    }

    fn answer(&self) -> Option<String> {
        self.answers.recv_timeout(Duration::from_secs(120)).ok()
    }

    /// Sends a command; `None` means that the host is dead.
    fn tries(&mut self, command: &str) -> Option<String> {
        writeln!(self.stdin.as_mut()?, "{command}").ok()?;
        self.answer()
    }

    fn ask(&mut self, command: &str) -> String {
        let answer = self
            .tries(command)
            .unwrap_or_else(|| panic!("{command}: it is dead"));
        assert!(
            answer.starts_with(command.split(' ').next().unwrap()),
            "{command}: {answer}"
        );
        answer
    }

    /// Returns a number that follows a word of an answer.
    fn figure(&mut self, command: &str, word: &str) -> i64 {
        let answer = self.ask(command);
        let mut words = answer.split(' ').skip_while(|one| *one != word);
        words
            .nth(1)
            .and_then(|figure| figure.parse().ok())
            .unwrap_or_else(|| panic!("{word}: {answer}"))
    }

    /// Returns the sum of `Rss` in smaps, by our own reading.
    fn resident(&self) -> i64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps", self.child.id())).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("Rss:"));
        rows.map(|row| {
            row.trim()
                .trim_end_matches(" kB")
                .trim()
                .parse::<i64>()
                .unwrap()
                << 10
        })
        .sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn through(program: &str, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// Creates a folder with images of 700 × 500 pixels: 1.4 MB decoded.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("images")).unwrap();
    for number in 0..6usize {
        let mut ppm = b"P6\n700 500\n255\n".to_vec();
        let mut state = number as u64 + 1;
        for at in 0..700 * 500usize {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let grain = (state >> 61) as usize;
            for by in 1..4 {
                ppm.push(
                    ((at % 700 * by / 97 + at / 700 * (4 - by) / 61 + number * 31) % 240 + grain)
                        as u8,
                );
            }
        }
        let (program, args): (_, &[&str]) = match number % 2 {
            0 => ("pnmtojpeg", &["-quality", "85"]),
            _ => ("pnmtopng", &[]),
        };
        std::fs::write(
            folder.path().join(format!("images/{number}")),
            through(program, args, &ppm),
        )
        .unwrap();
    }
    folder
}

#[test]
fn all_memory_is_named_and_the_tree_is_what_the_kernel_says() {
    if !has_images() {
        return;
    }
    let folder = folder();
    let mut running = Running::start(folder.path(), &["--documents", "6"], None);
    running.ask("view-all");
    let unclassified = running.figure("report", "heap-unclassified");
    let explicit = running.figure("report", "explicit");
    let share = unclassified as f64 / explicit as f64;
    println!(
        "heap-unclassified {unclassified} of explicit {explicit}: {:.2} %",
        share * 100.0
    );
    assert!((0.0..0.05).contains(&share), "{}", running.ask("tree"));
    let by_kind = running.figure("report", "by-kind");
    let smaps = running.resident();
    let off = (by_kind - smaps).abs() as f64 / smaps as f64;
    println!(
        "resident-by-kind {by_kind}, smaps {smaps}: {:.2} % apart",
        off * 100.0
    );
    assert!(off < 0.02);
    assert_eq!(running.figure("report", "faults"), 0);
}

#[test]
fn under_pressure_it_is_as_it_was_at_the_start_and_shows_the_same() {
    if !has_images() {
        return;
    }
    let folder = folder();
    let mut running = Running::start(folder.path(), &["--documents", "8"], None);
    // The start: code that was used once is resident, nothing is kept. Code pages are not measured here.
    running.ask("view 0 0");
    running.ask("press critical");
    let start = running.resident();
    let shown = running.ask("view-all");
    let full = running.resident();
    assert!(
        full > 4 * start,
        "start {start}, full {full}: there is nothing to give back"
    );
    let pressed = running.ask("press critical");
    let after = running.resident();
    println!(
        "start {start}, full {full}, after {after} ({:.3}): {pressed}",
        after as f64 / start as f64
    );
    assert!(after as f64 <= start as f64 * 1.2, "{pressed}");
    assert_eq!(
        running.ask("view-all"),
        shown,
        "built again, it is the same"
    );
}

/// A memory cgroup, removed when it is dropped.
struct Group(PathBuf);

impl Group {
    /// Creates a group; `None` means that it cannot be made here, and the test is counted as skipped.
    #[track_caller]
    fn new(limit: usize) -> Option<Group> {
        let made = Group::made(limit);
        let why = made.as_ref().err().map_or("", String::as_str);
        let what = format!("memory control groups ({why})");
        let how = "run as root where they can be written to (in a container: --privileged)";
        let _ = need::that(made.is_ok(), &what, how);
        made.ok()
    }

    fn made(limit: usize) -> Result<Group, String> {
        let groups = skinflint_cache::bus::Groups::own();
        let version = groups.memory.ok_or("there are none")?.0;
        let path = groups
            .root
            .join(format!("skinflint-document-host-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let group = Group(path);
        let file = match version {
            skinflint_cache::bus::Version::V1 => "memory.limit_in_bytes",
            skinflint_cache::bus::Version::V2 => "memory.max",
        };
        std::fs::write(group.0.join(file), limit.to_string())
            .map_err(|e| format!("{file}: {e}"))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20)); // CLOCK: poll step of a bounded wait
        }
    }
}

#[test]
fn a_limit_that_kills_it_without_the_bus_does_not_with_it() {
    if !has_images() {
        return;
    }
    let folder = folder();
    let mut free = Running::start(folder.path(), &["--documents", "12"], None);
    let shown = free.ask("view-all");
    println!("no limit: {} bytes", free.resident());
    drop(free);
    let Some(group) = Group::new(80 << 20) else {
        return;
    };
    let mut killed = Running::start(folder.path(), &["--no-bus"], Some(&group.0));
    assert_eq!(
        killed.tries("view-all"),
        None,
        "without the bus the limit kills it"
    );
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(killed.child.wait().unwrap().signal(), Some(9));
    drop(killed);
    let mut lives = Running::start(folder.path(), &[], Some(&group.0));
    for _ in 0..2 {
        assert_eq!(lives.ask("view-all"), shown);
    }
    println!("80 MiB: lives, {} resident", lives.resident());
    lives.ask("events");
}

/// Tests Minimize, GC and CC, as `skinflint memory PID` and its page ask for them: over the socket, each by itself.
#[test]
fn what_a_user_can_ask_for_is_done_each_by_itself() {
    if !has_images() {
        return;
    }
    use skinflint_reporters::endpoint::{self, Answer};
    let folder = folder();
    let mut running = Running::start(folder.path(), &["--memory", "--documents", "4"], None);
    let shown = running.ask("view-all");
    let pid = running.child.id();
    let socket = endpoint::folder().join(format!("{pid}.report"));
    let act = |action: &str| match endpoint::ask(&socket, pid, action) {
        Ok(Answer::Done(said)) => said,
        other => panic!("{action}: {other:?}"),
    };
    // The number that follows a word.
    let after = |said: &str, word: &str| -> u64 {
        let rest =
            &said[said.find(word).unwrap_or_else(|| panic!("{word}: {said}")) + word.len()..];
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let held = running.resident();
    // 16 documents were viewed: each has a view and a listener.
    let said = act("cc");
    assert_eq!(after(&said, "destroyed "), 32, "{said}");
    assert_eq!(after(&act("cc"), "destroyed "), 0, "they are gone");
    let said = act("gc");
    assert!(said.contains("bytes of objects"), "{said}");
    let kept = running.resident();
    assert!(
        kept > held / 2,
        "neither drops what caches hold: {held}, {kept}"
    );
    let said = act("minimize");
    assert!(
        after(&said, "dropped ") > 0 && after(&said, "images, ") > 0,
        "{said}"
    );
    let left = running.resident();
    assert!(left < kept / 2, "{kept}, then {left}: {said}");
    assert_eq!(
        running.ask("view-all"),
        shown,
        "built again, it is the same"
    );
}

#[test]
fn what_it_cannot_do_it_says() {
    if !has_images() {
        return;
    }
    let folder = folder();
    let output = Command::new(env!("CARGO_BIN_EXE_skinflint-document-host"))
        .arg("--shelf")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--shelf"));
    let mut running = Running::start(folder.path(), &["--documents", "1"], None);
    assert!(
        running
            .tries("view 9 0")
            .unwrap()
            .starts_with("error: no such tenant")
    );
    assert!(running.tries("view 0 99").unwrap().starts_with("error: "));
    assert!(
        running
            .tries("press hard")
            .unwrap()
            .contains("near, high or critical")
    );
    assert!(running.tries("dance").unwrap().contains("no such command"));
    running.ask("view 0 0");
}
