//! Filters of system calls (seccomp): the recorder makes no call that would end the program.
//!
//! ```text
//!   prctl, seccomp ─► a new child of fork meets the collector first ─► the kernel ─► what does the filter kill at?
//!     a call of every event       recording stops, which is said
//!     a call of a new thread      later threads are not recorded, which is counted
//!     the length of a segment     shared memory of System V has no stack
//!     a call of the meeting       later copies are lost, by a notice; later programs get no address of the collector
//! ```
//!
//! T1  Only what kills counts: a call that fails with an error is an error like any other. `SIGSYS` kills if the program
//!     has no handler for it when it installs the filter.
//! T2  A filter is read after the kernel has taken it, so its memory can be read. It stays for good, and children and
//!     later programs have it, too: nothing here is ever taken back.
//! T3  A child of vfork has its own filter and its parent's memory: what is known of it is kept apart, by its id.
//!
//! Not here: what a filter answers (`skinflint_base::filter`). Filters that were installed unseen (by a program that is
//! not recorded, or by an instruction of the program's own), or for one thread of several; reads of stacks that are not
//! a thread's own.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, Ordering};

use libc::sock_filter;
use skinflint_base::filter::{Call, Verdict, verdict};
use skinflint_base::{env, sys};

use crate::process;

/// The system calls at which the filters of this process kill, as bits.
static KILLED: AtomicU32 = AtomicU32::new(0);
const EVENTS: u32 = 1;
const THREADS: u32 = 2;
const MEETING: u32 = 4;
const SEGMENTS: u32 = 8;
/// The id of a child of vfork whose filters kill at the meeting; 0 for none (T3).
static CHILD: AtomicU32 = AtomicU32::new(0);

const fn call(number: i64, args: [u64; 4]) -> Call {
    let [a, b, c, d] = args;
    Call {
        number,
        args: [a, b, c, d, 0, 0],
    }
}

/// Some descriptor, and some address: filters decide by numbers, and by arguments that are flags.
const FD: u64 = 9;
const AT: u64 = 0x7fff_0000_0000;

const OF_EVENTS: [Call; 4] = [
    call(libc::SYS_futex, [AT, libc::FUTEX_WAKE as u64, 1, 0]),
    call(libc::SYS_futex, [AT, libc::FUTEX_WAIT as u64, 1, AT]),
    call(libc::SYS_getpid, [0; 4]),
    call(libc::SYS_gettid, [0; 4]),
];

const OF_THREADS: [Call; 6] = [
    call(
        libc::SYS_openat,
        [
            libc::AT_FDCWD as u64,
            AT,
            (libc::O_RDONLY | libc::O_CLOEXEC) as u64,
            0,
        ],
    ),
    call(libc::SYS_ioctl, [FD, 0xc068_6611, AT, 0]),
    call(libc::SYS_close, [FD, 0, 0, 0]),
    call(libc::SYS_prctl, [libc::PR_GET_NAME as u64, AT, 0, 0]),
    call(libc::SYS_tgkill, [1000, 1000, 0, 0]),
    call(libc::SYS_sigaltstack, [0, AT, 0, 0]),
];

const OF_SEGMENTS: [Call; 1] = [call(libc::SYS_shmctl, [1, libc::IPC_STAT as u64, AT, 0])];

const OF_THE_MEETING: [Call; 8] = [
    call(
        libc::SYS_socket,
        [
            libc::AF_UNIX as u64,
            (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64,
            0,
            0,
        ],
    ),
    call(
        libc::SYS_setsockopt,
        [FD, libc::SOL_SOCKET as u64, libc::SO_RCVTIMEO as u64, AT],
    ),
    call(libc::SYS_connect, [FD, AT, 110, 0]),
    call(libc::SYS_sendto, [FD, AT, 328, libc::MSG_NOSIGNAL as u64]),
    call(
        libc::SYS_recvmsg,
        [FD, AT, libc::MSG_CMSG_CLOEXEC as u64, 0],
    ),
    call(
        libc::SYS_mmap,
        [
            0,
            4096,
            (libc::PROT_READ | libc::PROT_WRITE) as u64,
            libc::MAP_SHARED as u64,
        ],
    ),
    call(libc::SYS_madvise, [AT, 4096, libc::MADV_DONTFORK as u64, 0]),
    call(libc::SYS_close, [FD, 0, 0, 0]),
];

/// The state before a filter is installed.
pub struct Before {
    /// The id of the process if it is a child of vfork, else 0 (T3).
    child: u32,
    has_handler: bool,
}

/// Returns what has to be known before the kernel gets a filter.
pub fn before() -> Before {
    // ORDER: Relaxed; no filter is installed while another thread installs one, by the program's own order.
    if KILLED.load(Ordering::Relaxed) & EVENTS != 0 {
        return Before {
            child: 0,
            has_handler: false,
        };
    }
    let own = sys::getpid();
    // ORDER: Relaxed; set before anything was recorded.
    let is_child = own != process::PID.load(Ordering::Relaxed);
    Before {
        child: if is_child { own } else { 0 },
        has_handler: handles_sigsys(),
    }
}

fn handles_sigsys() -> bool {
    // The kernel's structure: handler, flags, restorer, mask.
    let mut now = [0u64; 4];
    // SAFETY: the kernel writes these four words.
    let result = unsafe {
        let at = now.as_mut_ptr() as u64;
        let args = [libc::SIGSYS as u64, 0, at, 8, 0, 0];
        sys::syscall(libc::SYS_rt_sigaction, args)
    };
    let is_function = now[0] != libc::SIG_DFL as u64 && now[0] != libc::SIG_IGN as u64;
    result == 0 && is_function
}

/// Notes that the kernel has taken a filter (T2).
///
/// # Safety
/// `filter` is what the kernel has just read.
pub unsafe fn installed(filter: *const libc::sock_fprog, before: &Before) {
    // SAFETY: as the caller promises.
    let filter = unsafe {
        let program = filter.read();
        core::slice::from_raw_parts(program.filter.cast_const(), usize::from(program.len))
    };
    let kills = |calls: &[Call]| calls.iter().any(|call| ends(filter, call, before));
    let mut killed = 0;
    for (which, calls) in [
        (EVENTS, &OF_EVENTS[..]),
        (THREADS, &OF_THREADS),
        (MEETING, &OF_THE_MEETING),
        (SEGMENTS, &OF_SEGMENTS),
    ] {
        killed |= if kills(calls) { which } else { 0 };
    }
    note(killed, before);
}

fn ends(filter: &[sock_filter], call: &Call, before: &Before) -> bool {
    match verdict(filter, call) {
        Verdict::Passes => false,
        Verdict::Handled => !before.has_handler,
        Verdict::Kills => true,
    }
}

/// Notes that the kernel has let the process have strict mode: it kills at all calls but four.
pub fn is_strict(before: &Before) {
    note(EVENTS | THREADS | MEETING | SEGMENTS, before);
}

#[cold]
fn note(killed: u32, before: &Before) {
    if killed == 0 {
        return;
    }
    if before.child != 0 {
        // What runs in it until it becomes another program records nothing of its own.
        if killed & MEETING != 0 {
            CHILD.store(before.child, Ordering::Relaxed); // ORDER: Relaxed; it reads it itself.
        }
        return;
    }
    // ORDER: Relaxed; this thread has the filter, and reads it itself. Another one that has it, too, from this moment
    // on (TSYNC) may make one call more.
    KILLED.fetch_or(killed, Ordering::Relaxed);
    if killed & EVENTS != 0 && process::epoch() != 0 {
        process::stop_for_a_filter();
    }
    if killed & MEETING != 0 {
        // SAFETY: the list is the program's, and ends with null.
        unsafe { hide_address(environ) };
    }
}

/// Returns whether this process may meet the collector: for its first region, or for another one.
pub fn may_meet() -> bool {
    KILLED.load(Ordering::Relaxed) & MEETING == 0 // ORDER: Relaxed; as in `note`.
}

/// Returns whether a new thread may be recorded.
pub fn may_add_threads() -> bool {
    KILLED.load(Ordering::Relaxed) & THREADS == 0 // ORDER: Relaxed; as in `note`.
}

/// Returns whether the kernel may be asked for the length of shared memory.
pub fn may_ask_for_segments() -> bool {
    KILLED.load(Ordering::Relaxed) & SEGMENTS == 0 // ORDER: Relaxed; as in `note`.
}

/// Returns whether the process id may be asked for.
pub fn may_ask() -> bool {
    KILLED.load(Ordering::Relaxed) & EVENTS == 0 // ORDER: Relaxed; as in `note`.
}

/// Returns whether a program that this process becomes, or starts, would be killed at the meeting. `pid`: this process.
pub fn kills_programs(pid: u32) -> bool {
    // ORDER: Relaxed; as in `note`.
    !may_meet() || CHILD.load(Ordering::Relaxed) == pid && pid != 0
}

unsafe extern "C" {
    static environ: *mut *const c_char;
}

/// Returns the program's own variables.
pub fn own_variables() -> *const *const c_char {
    // SAFETY: the C library's variable.
    unsafe { environ }
}

/// An address that leads nowhere: a recorder that finds it makes no call for it.
const HIDDEN: &CStr = c"SKINFLINT_SOCKET=";

/// Returns what a variable becomes for a program that must not meet the collector.
///
/// # Safety
/// A C string.
unsafe fn hidden(variable: *const c_char) -> *const c_char {
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
    let value = text.strip_prefix(env::SOCKET.name().as_bytes());
    match value {
        Some([b'=', ..]) => HIDDEN.as_ptr(),
        _ => variable,
    }
}

/// Hides the collector's address in the program's own variables, as `setenv` would.
///
/// # Safety
/// A list of C strings that ends with null, and can be written; or null.
unsafe fn hide_address(variables: *mut *const c_char) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut at = variables;
        while !at.is_null() && !(*at).is_null() {
            let shown = hidden(*at);
            if shown != *at {
                at.write(shown);
            }
            at = at.add(1);
        }
    }
}

/// The most variables of a program that is started behind a filter: a copy lies on the stack, perhaps that of vfork's
/// parent. With more, the program gets what it was given.
const MOST_VARIABLES: usize = 1024;

/// Calls `go` with a copy of these variables (null: the program's own) in which the collector's address is hidden.
///
/// # Safety
/// The arguments of `execve`.
#[cold]
#[inline(never)]
pub unsafe fn with_hidden_address<R>(
    variables: *const *const c_char,
    go: impl FnOnce(*const *const c_char) -> R,
) -> R {
    let mut copy = [core::ptr::null(); MOST_VARIABLES];
    let list = match variables.is_null() {
        true => own_variables(),
        false => variables,
    };
    // SAFETY: as the caller promises: a list that ends with null.
    unsafe {
        let mut count = 0;
        while !list.is_null() && !(*list.add(count)).is_null() {
            if count == MOST_VARIABLES - 1 {
                return go(variables);
            }
            copy[count] = hidden(*list.add(count));
            count += 1;
        }
    }
    go(copy.as_ptr())
}
