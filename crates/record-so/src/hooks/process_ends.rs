//! The orderly ends of a process: a last snapshot while its memory is still there.
//!
//! `exit` and a return from `main` end in our destructor; `_exit`, `quick_exit` and `abort` have a
//! function here. What a fatal signal or a raw system call ends was drained all the same: the ring
//! is the collector's, only the last snapshot is missing.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use skinflint_base::sys;

use super::call;
use crate::{attach, process, real, thread};

extern "C" fn at_start() {
    // Loaded into a running program: whoever did that says when to begin.
    if process::epoch() == 0 && !attach::is_in_front() {
        return;
    }
    // A program that never allocates is recorded too: it has mappings, and its end.
    let state = thread::enter();
    if !state.is_null() {
        // SAFETY: of `enter`.
        unsafe { thread::leave(state) };
    }
}

extern "C" fn at_end() {
    process::at_exit();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = at_start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = at_end;

fn leave_process(status: c_int) -> ! {
    // A child of vfork that could not start its program ends so, in its parent's memory: that goes on.
    // ORDER: Relaxed; set before anything was recorded.
    if sys::getpid() == process::PID.load(Ordering::Relaxed) {
        process::at_exit();
    }
    // SAFETY: what `_exit` of libc does.
    unsafe {
        libc::syscall(libc::SYS_exit_group, status);
    }
    loop {
        core::hint::spin_loop();
    }
}

/// `_exit`, after a last snapshot.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    leave_process(status)
}

/// `_Exit`, after a last snapshot.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    leave_process(status)
}

/// `quick_exit`: its handlers run first, then `_exit` inside libc; the snapshot is taken before.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    process::at_exit();
    // SAFETY: the program's own call.
    unsafe { call!(quick_exit as Exit)(status) }
}

/// `abort`, after a last snapshot: what a program that failed held is worth knowing.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn abort() -> ! {
    process::at_exit();
    let real = real::REAL.abort.get();
    if real.is_null() {
        leave_process(134);
    }
    // SAFETY: the program's own call.
    unsafe { call!(abort as Abort)() }
}
