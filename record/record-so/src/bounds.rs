//! The bounds of a thread's own stack.
//!
//! ```text
//!   first thread: the loader's word, and the limit      others: the mapping around the stack pointer, up to the
//!   thread's descriptor ─ not to be had ─► pthread_getattr_np, which allocates ─ not allowed ─► unknown
//! ```
//!
//! S1  Bounds that are returned hold the calling frame; (0, 0) means that nothing is known, and the stack is then read
//!     as a foreign one.
//!
//! Not here: how stacks are walked (`skinflint_unwind`).

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use skinflint_base::{arch, sys};

use crate::process;

unsafe extern "C" {
    static __libc_stack_end: *const c_void;
}

/// Returns the bounds of the calling thread's own stack; (0, 0) if they cannot be known.
pub fn own_stack(may_allocate: bool) -> (u64, u64) {
    // ORDER: Relaxed; set by `process::link` before any registration.
    if process::PID.load(Ordering::Relaxed) == sys::gettid() {
        // SAFETY: the loader sets it before anything runs.
        let end = unsafe { __libc_stack_end } as u64;
        return (end.saturating_sub(main_stack_limit()), end);
    }
    let own = arch::thread_pointer() as u64;
    let here = arch::stack_pointer() as u64;
    match mapping_around(here) {
        // glibc puts the thread's descriptor at the top of its stack.
        Some((low, high)) if low < own && own <= high => (low, own),
        _ if may_allocate => stack_by_attributes(),
        _ => (0, 0),
    }
}

fn main_stack_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is ours.
    unsafe {
        let at = &raw mut limit as u64;
        sys::syscall(
            libc::SYS_prlimit64,
            [0, libc::RLIMIT_STACK as u64, 0, at, 0, 0],
        );
    }
    // The kernel keeps at least 128 MiB below the stack free of mappings.
    limit.rlim_cur.clamp(64 << 10, 128 << 20)
}

/// `struct procmap_query` of Linux 6.11.
#[repr(C)]
#[derive(Default)]
struct MapQuery {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    rest: [u64; 8],
}

/// Returns the mapping around an address, by one ioctl; `None` before Linux 6.11.
fn mapping_around(addr: u64) -> Option<(u64, u64)> {
    const PROCMAP_QUERY: u64 = 0xc068_6611;
    let mut query = MapQuery {
        size: size_of::<MapQuery>() as u64,
        addr,
        ..MapQuery::default()
    };
    // SAFETY: a C string; the query is ours and of the size that it says.
    unsafe {
        let dir = libc::AT_FDCWD as u64;
        let path = c"/proc/self/maps".as_ptr() as u64;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let fd = sys::syscall(libc::SYS_openat, [dir, path, flags, 0, 0, 0]);
        if sys::is_error(fd) {
            return None;
        }
        let at = &raw mut query as u64;
        let result = sys::syscall(libc::SYS_ioctl, [fd as u64, PROCMAP_QUERY, at, 0, 0, 0]);
        sys::close(fd as i32);
        (result == 0).then_some((query.start, query.end))
    }
}

fn stack_by_attributes() -> (u64, u64) {
    // SAFETY: the attributes are initialised by the first call and destroyed by the last. What they
    // allocate passes through.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return (0, 0);
        }
        let mut low: *mut c_void = core::ptr::null_mut();
        let mut bytes = 0usize;
        let result = libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
        if result == 0 {
            (low as u64, low as u64 + bytes as u64)
        } else {
            (0, 0)
        }
    }
}
