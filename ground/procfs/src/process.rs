//! The identity of a process: its program, its arguments, its environment, its threads.
//!
//! ```text
//!   cmdline, environ ─► bytes, a 0 after each string      exe, cwd ─► links      task/ ─► threads, comm ─► their names
//! ```
//!
//! Not here: figures (stat.rs, status.rs).

use std::path::PathBuf;

use crate::file;
use crate::processes::numbers_in;

/// Reads the command line as it lies in the process's memory: usually a 0 after each argument, but a process may have
/// written over it. Empty if there is none.
pub fn command_line(pid: u32) -> Vec<u8> {
    file::whole(format_args!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Reads the arguments of a process.
pub fn arguments(pid: u32) -> Vec<String> {
    split(&command_line(pid))
}

fn split(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .split(|&byte| byte == 0)
        .map(|one| String::from_utf8_lossy(one).into_owned())
        .collect()
}

/// Reads the environment that a process was started with; a 0 after each `NAME=VALUE`.
pub fn environment(pid: u32) -> Option<Vec<u8>> {
    file::whole(format_args!("/proc/{pid}/environ"))
}

/// Returns whether a process was started with this line, `NAME=VALUE`, in its environment.
pub fn has_environment(pid: u32, line: &str) -> bool {
    let environment = environment(pid).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|one| one == line.as_bytes())
}

/// Reads a link of a process: `exe`, `cwd`. Empty if it cannot be read.
pub fn link(pid: u32, name: &str) -> String {
    let target = std::fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_default();
    target.to_string_lossy().into_owned()
}

/// Reads the name of a thread; that of a process is its first thread's.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    file::parse(format_args!("/proc/{pid}/task/{tid}/comm"), |name| {
        let name = name.strip_suffix(b"\n").unwrap_or(name);
        Some(String::from_utf8_lossy(name).into_owned())
    })
}

/// Returns whether a thread exists.
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}/task/{tid}")).exists()
}

/// Returns the threads of a process, and of none when it has ended.
pub fn threads(pid: u32) -> Vec<u32> {
    numbers_in(&format!("/proc/{pid}/task"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_between_zeros() {
        assert_eq!(split(b"sh\0-c\0\0"), ["sh", "-c", ""]);
        assert_eq!(split(b"no end"), ["no end"]);
        assert_eq!(split(b"\xff\0"), ["\u{fffd}"]);
        assert!(split(b"").is_empty());
    }

    #[test]
    fn names_of_this_process() {
        let own = std::process::id();
        let exe = std::env::current_exe().expect("a path");
        assert_eq!(link(own, "exe"), exe.to_string_lossy());
        assert!(!arguments(own).is_empty());
        assert!(threads(own).contains(&own) && thread_exists(own, own));
        assert!(thread_name(own, own).is_some_and(|name| !name.is_empty()));
        assert!(threads(0).is_empty() && !thread_exists(own, 0));
        assert!(command_line(0).is_empty() && environment(0).is_none());
        assert!(link(0, "exe").is_empty() && thread_name(0, 0).is_none());
    }
}
