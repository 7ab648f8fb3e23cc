//! `skinflint agent`: what it serves of processes whose heaps are predicted, and of those that end, stop and are others'.
//!
//! ```text
//!   profile wait (tests/accounts/profile.c) ─ socket ─► agent ─ HTTP ─► decoded.rs, by the format's book; go tool pprof
//! ```
//!
//! A1  The program keeps 12,000,000 bytes in holds() and has freed as many of drops(): at one sample in 16 KiB a figure is at
//!     most five standard deviations of 3.7 % off, which no run of a life's length will see (accounts/profile.rs).
//! A2  No test relies on a time: it asks again until what it waits for is there, for a minute.
//!
//! Not here: sums on paper (faces/agent), receivers of what is pushed (push.rs).

// Shared with the tests of the whole tool, and not all of it is needed here.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

mod decoded;
mod ends;
mod push;
mod served;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use decoded::Profile;
use tool::{Bench, Running};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a program of tests/accounts, which is built by now.
fn program(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    let folder = PROGRAMS.get_or_init(|| tool::made("tests/accounts", "accounts-programs"));
    folder.join(name)
}

/// A folder for sockets, whose path is short enough for their names.
fn sockets() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).expect("mode");
    folder
}

/// A process on our allocator with a profile, and what it said: where holds() and drops() are.
struct Profiled {
    running: Running,
    pid: u32,
    /// Offsets in the program's file.
    holds: u64,
    drops: u64,
    _sockets: tempfile::TempDir,
}

impl Profiled {
    /// Starts `profile WORD`.
    #[track_caller]
    fn start(bench: &Bench, word: &str, more: &[(&str, &str)]) -> Profiled {
        let sockets = sockets();
        let mut command = bench.command(program("profile"));
        command.arg(word).env("LD_PRELOAD", tool::allocator());
        command
            .env("SKINFLINT_PROFILE", "on")
            .env("SKINFLINT_PROFILE_RATE", "16K");
        command.env("XDG_RUNTIME_DIR", sockets.path());
        for (name, value) in more {
            command.env(name, value);
        }
        let mut running = Running::start(command);
        let said = running.line();
        let words: Vec<&str> = said.split(' ').collect();
        let pid = words[0].parse().expect("a process id");
        let [holds, drops] = [1, 2].map(|at: usize| {
            let address = u64::from_str_radix(words[at].trim_start_matches("0x"), 16).expect("hex");
            offset_of(pid, address)
        });
        Profiled {
            running,
            pid,
            holds,
            drops,
            _sockets: sockets,
        }
    }
}

/// Returns where in its file an address of a process lies.
fn offset_of(pid: u32, address: u64) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("hex");
    let found = maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        (hex(start)..hex(end))
            .contains(&address)
            .then(|| address - hex(start) + hex(offset))
    });
    found.expect("a mapping")
}

/// An agent.
struct Agent {
    running: Running,
    address: String,
}

impl Agent {
    #[track_caller]
    fn start(bench: &Bench, options: &[&str]) -> Agent {
        let mut command = bench.skinflint(["agent"]);
        for (option, value) in [("--port", "0"), ("--interval", "1")] {
            if !options.contains(&option) {
                command.args([option, value]);
            }
        }
        command.args(options);
        let mut running = Running::start(command);
        let url = running.line();
        let address = url
            .strip_prefix("http://")
            .and_then(|rest| rest.strip_suffix('/'));
        let address = address.unwrap_or_else(|| panic!("{url}")).to_owned();
        Agent { running, address }
    }

    /// Returns status and body of an answer.
    #[track_caller]
    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        get(&self.address, path)
    }

    #[track_caller]
    fn text(&self, path: &str) -> (u16, String) {
        let (status, body) = self.get(path);
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Returns a profile.
    #[track_caller]
    fn profile(&self, path: &str) -> Profile {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        Profile::read(&body)
    }

    /// Returns a figure of its metrics; none if there is none.
    #[track_caller]
    fn metric(&self, name: &str) -> Option<f64> {
        let (status, text) = self.text("/metrics");
        assert_eq!((status, text.ends_with("# EOF\n")), (200, true), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut found = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(found.next()?.parse().expect("a number"))
    }
}

/// Asks for a path.
#[track_caller]
fn get(address: &str, path: &str) -> (u16, Vec<u8>) {
    asked(
        address,
        &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"),
    )
}

/// Sends a request, and returns status and body of the answer.
#[track_caller]
fn asked(address: &str, request: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer
        .windows(4)
        .position(|part| part == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("{head}")),
        answer.split_off(end + 4),
    )
}
