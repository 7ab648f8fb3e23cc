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

use skinflint_base::{arch, stack, sys};

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
        return (end.saturating_sub(stack::first_thread_limit()), end);
    }
    let own = arch::thread_pointer() as u64;
    let here = arch::stack_pointer() as u64;
    match stack::mapping_around(here) {
        // glibc puts the thread's descriptor at the top of its stack.
        Some((low, high)) if low < own && own <= high => (low, own),
        _ if may_allocate => stack_by_attributes(),
        _ => (0, 0),
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
