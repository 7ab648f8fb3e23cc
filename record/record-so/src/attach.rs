//! Recording of a program that is running already: the recorder is loaded into it, and takes the place of the
//! allocator in the tables through which modules call each other.
//!
//! ```text
//!   injector ─ dlopen ─► us (behind all modules: nothing is interposed)
//!            ─ skinflint_attach ─► link ─► in every module:  GOT[malloc] = ours      (where it was the real one)
//!            ─ skinflint_detach ─► in every module:          GOT[malloc] = real      (where it is ours)
//! ```
//!
//! A1  One attach is under way at a time: who makes the program call us makes one call after the other.
//! A2  We stay mapped after detaching: a thread may be in a hook still. Another attach is another generation, and
//!     each thread registers anew (thread.rs).
//! A3  Leaving waits for nobody: the collector takes the last snapshot while the program goes on.
//!
//! Not here: the tables (hooks/loading.rs), who makes the program call this (sessions/src/inject.rs).

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering;

use crate::hooks::loading::{ATTACHED, WATCHED, Whom, change_all};
use crate::{begin, link, process, real, samples, slots, thread};

/// Error: we were preloaded, not loaded later.
const IN_FRONT: c_int = -1;
/// Error: the socket's path is too long, or empty.
const BAD_PATH: c_int = -2;
/// Error: the collector does not answer, or there is no memory.
const NO_COLLECTOR: c_int = -3;
/// Error: attached too often.
const TOO_OFTEN: c_int = -4;
/// Error: attached already.
const ALREADY: c_int = -5;
/// Error: not attached.
const NOT_ATTACHED: c_int = -6;

/// Begins to record a running program; it is called on a thread that is neither in the allocator nor in the
/// loader, while other threads run. `socket`: the path of the collector's socket. Returns the number of table
/// entries that were changed, or one of the negative numbers above.
///
/// # Safety
/// `socket` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_attach(socket: *const c_char) -> c_int {
    if real::is_in_front() {
        return IN_FRONT;
    }
    // ORDER: Relaxed for the flags here; there is one call at a time (A1).
    if ATTACHED.load(Ordering::Relaxed) && !process::OFF.load(Ordering::Relaxed) {
        return ALREADY;
    }
    if !slots::new_generation() {
        return TOO_OFTEN;
    }
    real::resolve_as_guest();
    // SAFETY: as the caller promises.
    if !link::set_address(unsafe { CStr::from_ptr(socket) }.to_bytes()) {
        return BAD_PATH;
    }
    if !begin::begin_again() {
        return NO_COLLECTOR;
    }
    thread::process_begins();
    // It is not known whether there are other threads: tickets are shared from the first on.
    thread::before_second_thread();
    // ORDER: Release; pairs with the Acquire in `look_for_new_modules`: the hooks are complete.
    ATTACHED.store(true, Ordering::Release);
    WATCHED.store(true, Ordering::Relaxed); // ORDER: Relaxed; a hint.
    // Twice: a thread that was binding an entry for the first time may have replaced our function with the real one.
    let changed = change_all(Whom::All, true);
    (changed + change_all(Whom::All, true)) as c_int
}

/// Ends the recording and restores all entries. Returns their number, or a negative number.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_detach() -> c_int {
    // ORDER: AcqRel; what was done while attached is complete.
    if !ATTACHED.swap(false, Ordering::AcqRel) {
        return NOT_ATTACHED;
    }
    let changed = change_all(Whom::All, false) + change_all(Whom::All, false);
    samples::end_short();
    process::ask_for_the_last_snapshot();
    // ORDER: Relaxed; a flag.
    process::OFF.store(true, Ordering::Relaxed);
    process::new_epoch();
    changed as c_int
}
