//! `/proc/PID/io`: the bytes that a process's calls of `read`, `write` and their kin moved.
//!
//! ```text
//!   rchar: 323934931     from files, pipes, terminals, sockets that are read as files     ─┐
//!   wchar: 323929600     to them                                                           ┴─► Moved
//!   read_bytes: 0 …      from disks: what was in memory already does not count             (not taken)
//! ```
//!
//! M1  The bytes of calls are taken, not those of disks: whether a page was in memory already is the machine's doing, and moves
//!     from run to run.
//! M2  Of a process that has ended and was not waited for they are still there. Those of its children are in them as soon as it
//!     has waited for them.
//!
//! Not here: when it is read (compare, sessions).

use crate::file;

/// Bytes moved since a process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Taken by calls of `read` and its kin.
    pub read_bytes: u64,
    /// Given to calls of `write` and its kin.
    pub written_bytes: u64,
}

impl Moved {
    /// Parses the text; `None` if one of both is missing.
    pub fn parse(text: &[u8]) -> Option<Moved> {
        let of = |wanted: &str| {
            let mut all = file::fields(text);
            all.find(|(key, _)| *key == wanted)?.1.parse().ok()
        };
        Some(Moved {
            read_bytes: of("rchar")?,
            written_bytes: of("wchar")?,
        })
    }
}

/// Reads the counts of a process; `None` if it is gone, may not be looked at, or the kernel does not count.
pub fn moved(pid: u32) -> Option<Moved> {
    file::parse(format_args!("/proc/{pid}/io"), Moved::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_text() {
        let text =
            b"rchar: 6976\nwchar: 12\nsyscr: 10\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 0\n";
        let expected = Moved {
            read_bytes: 6976,
            written_bytes: 12,
        };
        assert_eq!(Moved::parse(text), Some(expected));
        assert_eq!(Moved::parse(b"rchar: 6976\nsyscr: 10\n"), None);
        assert_eq!(Moved::parse(b"rchar: x\nwchar: 1\n"), None);
    }

    #[test]
    fn what_this_process_reads_is_counted() {
        let Some(before) = moved(std::process::id()) else {
            // A kernel without CONFIG_TASK_IO_ACCOUNTING.
            assert!(!std::path::Path::new("/proc/self/io").exists());
            return;
        };
        let length = std::fs::read("/proc/self/exe").expect("this program").len() as u64;
        let after = moved(std::process::id()).expect("as before");
        assert!(after.read_bytes >= before.read_bytes + length, "{after:?}");
    }
}
