//! Filters of system calls (seccomp) of a program that is to be attached to: whether they end it at a call that
//! loading, recording or leaving makes.
//!
//! K1  A filter is read from the kernel, which shows it to root only; one that cannot be read is a refusal.
//!
//! Not here: what a filter answers (`skinflint_base::filter`), filters that come later (the recorder's).

use std::io;

use skinflint_base::filter::{Call, Verdict, verdict};

const GET_FILTER: u32 = 0x420c;
/// The most filters that a thread has.
const MOST_FILTERS: usize = 64;

/// Some descriptor, and some address: filters decide by numbers, and by arguments that are flags.
const FD: u64 = 9;
const AT: u64 = 0x7fff_0000_0000;

/// The calls that are made in the program, with the arguments that filters look at.
const CALLS: &[(&str, i64, [u64; 4])] = &[
    (
        "openat",
        libc::SYS_openat,
        [libc::AT_FDCWD as u64, AT, libc::O_CLOEXEC as u64, 0],
    ),
    ("read", libc::SYS_read, [FD, AT, 832, 0]),
    ("pread64", libc::SYS_pread64, [FD, AT, 64, 64]),
    ("newfstatat", libc::SYS_newfstatat, [FD, AT, AT, 0x1000]),
    ("mmap", libc::SYS_mmap, [0, 4096, 3, 0x22]),
    ("mmap", libc::SYS_mmap, [0, 4096, 5, 0x12]),
    ("mmap", libc::SYS_mmap, [0, 4096, 3, 1]),
    ("mprotect", libc::SYS_mprotect, [AT, 4096, 1, 0]),
    ("munmap", libc::SYS_munmap, [AT, 4096, 0, 0]),
    (
        "madvise",
        libc::SYS_madvise,
        [AT, 4096, libc::MADV_DONTFORK as u64, 0],
    ),
    ("madvise", libc::SYS_madvise, [AT, 4096, 18, 0]),
    ("close", libc::SYS_close, [FD, 0, 0, 0]),
    ("memfd_create", libc::SYS_memfd_create, [AT, 1, 0, 0]),
    ("socket", libc::SYS_socket, [1, 0x80005, 0, 0]),
    ("bind", libc::SYS_bind, [FD, AT, 110, 0]),
    ("listen", libc::SYS_listen, [FD, 128, 0, 0]),
    ("setsockopt", libc::SYS_setsockopt, [FD, 1, 20, AT]),
    ("connect", libc::SYS_connect, [FD, AT, 110, 0]),
    (
        "sendto",
        libc::SYS_sendto,
        [FD, AT, 328, libc::MSG_NOSIGNAL as u64],
    ),
    (
        "recvmsg",
        libc::SYS_recvmsg,
        [FD, AT, libc::MSG_CMSG_CLOEXEC as u64, 0],
    ),
    ("futex", libc::SYS_futex, [AT, 0, 1, AT]),
    ("futex", libc::SYS_futex, [AT, 1, 1, 0]),
    ("getpid", libc::SYS_getpid, [0; 4]),
    ("gettid", libc::SYS_gettid, [0; 4]),
    ("tgkill", libc::SYS_tgkill, [1000, 1000, 0, 0]),
    (
        "prctl",
        libc::SYS_prctl,
        [libc::PR_GET_NAME as u64, AT, 0, 0],
    ),
    ("prlimit64", libc::SYS_prlimit64, [0, 3, 0, AT]),
    ("sigaltstack", libc::SYS_sigaltstack, [0, AT, 0, 0]),
    ("ioctl", libc::SYS_ioctl, [FD, 0xc068_6611, AT, 0]),
];

/// Returns the way in which a process's system calls are filtered: 0 none, 1 strict, 2 by filters.
pub(super) fn mode(pid: u32) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    line.and_then(|mode| mode.trim().parse().ok()).unwrap_or(0)
}

/// Returns why a stopped thread must not be made to call anything, if its filters end it.
pub(super) fn objection(tid: u32) -> Option<String> {
    for index in 0..MOST_FILTERS {
        let filter = match read(tid, index) {
            Ok(Some(filter)) => filter,
            Ok(None) => return None,
            Err(error) => {
                return Some(format!(
                    "it has a filter of system calls (seccomp), which may end it at calls of the recorder, and which only \
                     root may read ({error}): be root"
                ));
            }
        };
        for (name, number, [a, b, c, d]) in CALLS {
            let call = Call {
                number: *number,
                args: [*a, *b, *c, *d, 0, 0],
            };
            if verdict(&filter, &call) != Verdict::Passes {
                return Some(format!(
                    "its filter of system calls (seccomp) would end it at {name}, which recording needs: start it with \
                     `skinflint record`, or without the filter"
                ));
            }
        }
    }
    None
}

/// Reads one filter; `None` behind the last.
fn read(tid: u32, index: usize) -> io::Result<Option<Vec<libc::sock_filter>>> {
    let ask = |to: *mut libc::sock_filter| {
        // SAFETY: null asks for the number of instructions, for which there is room at the second call.
        let count = unsafe { libc::ptrace(GET_FILTER as _, tid, index, to) };
        match count {
            0.. => Ok(count as usize),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let count = match ask(std::ptr::null_mut()) {
        Ok(count) => count,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut filter = vec![
        libc::sock_filter {
            code: 0,
            jt: 0,
            jf: 0,
            k: 0
        };
        count
    ];
    ask(filter.as_mut_ptr())?;
    Ok(Some(filter))
}
