//! The orderly ends of a process: a last snapshot while its memory is still there.
//!
//! `exit` and a return from `main` end in our destructor; `_exit`, `quick_exit` and `abort` have a
//! function here. After an end by a fatal signal or a raw system call the events are complete all the
//! same: the ring is the collector's memory, and only the last snapshot is missing.
//!
//! ```text
//!   exit ─► last registered handler: ours ─► the program's handlers, destructors ─► … ─► our destructor ─► _exit
//!              pointers are looked at                                                    last snapshot
//! ```
//!
//! E1  If pointers are looked at, a handler of ours is registered after each that the program registers (up to
//!     [`MOST_HANDLERS`]): handlers run in the reverse order, so ours is the first, and nothing has been destroyed.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use skinflint_base::sys;

use crate::real::call;
use crate::{process, real};

/// The most handlers that we register: a program may register one for each library that it opens, for months. Those
/// that it registers later run before the look.
const MOST_HANDLERS: u32 = 1024;
static HANDLERS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn on_end(_: *mut c_void) {
    process::end_begins();
}

/// Registers a handler of ours, if pointers are looked at (E1). It belongs to no module: nothing but `exit` calls it.
pub fn watch_the_end() {
    // ORDER: Relaxed; a count.
    if process::is_looked_at() && HANDLERS.fetch_add(1, Ordering::Relaxed) < MOST_HANDLERS {
        let none = core::ptr::null_mut();
        // SAFETY: the function stays mapped: a preloaded library is never closed.
        unsafe { call!(cxa_atexit as CxaAtexit)(on_end, none, none) };
    }
}

/// `__cxa_atexit`, with a handler of ours registered after the program's (E1).
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_atexit(
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    module: *mut c_void,
) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { call!(cxa_atexit as CxaAtexit)(function, argument, module) };
    watch_the_end();
    result
}

fn leave_process(status: c_int) -> ! {
    // A child of vfork that could not start its program ends here, in the memory of its parent, which goes on.
    // A process that is not recorded needs no last snapshot, and its seccomp filter may kill at the calls of one.
    // ORDER: Relaxed; set before anything was recorded.
    if process::epoch() != 0
        && !process::OFF.load(Ordering::Relaxed)
        && sys::getpid() == process::PID.load(Ordering::Relaxed)
    {
        process::at_exit();
    }
    // SAFETY: the system call that libc's `_exit` makes.
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

/// `abort`, after a last snapshot: what a failed program held is worth knowing.
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
