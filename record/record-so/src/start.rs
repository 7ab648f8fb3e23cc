//! Constructor and destructor: what the loader calls when it has loaded us, and before the process ends.
//!
//! ```text
//!   .init_array ─► the process meets the collector, though it may never allocate      .fini_array ─► last snapshot
//! ```
//!
//! J1  Loaded into a running program, nothing begins here: the debugger that did that calls `skinflint_attach`.
//! J2  The allocator's own count goes with the last snapshot only if this thread is inside no call of it (totals.rs).
//!
//! Not here: other ends of a process (hooks/process_ends.rs).

use core::sync::atomic::Ordering;

use skinflint_base::sys;

use crate::hooks::{loading, process_ends};
#[cfg(target_arch = "x86_64")]
use crate::{hooks, objects};
use crate::{process, real, thread, totals};

extern "C" fn at_start() {
    // We were loaded into a running program: the debugger that did that calls us to begin.
    if process::epoch() == 0 && !real::is_in_front() {
        return;
    }
    // A program that never allocates is recorded too: it has mappings, and its end.
    let state = thread::enter();
    if !state.is_null() {
        // SAFETY: of `enter`.
        unsafe { thread::leave(state) };
    }
    if real::is_in_front() {
        loading::stand_in_for_extended();
        #[cfg(target_arch = "x86_64")]
        objects::prepare(hooks::objects::in_front_of);
    }
    process_ends::watch_the_end();
}

/// Asks for the last snapshot at an end by `exit` or from `main`: the allocator's own count goes with it
/// (`totals.rs`).
#[cold]
fn at_orderly_exit() {
    // ORDER: Relaxed for all: a flag, and figures that the collector reads when the process has ended.
    let is_recorded = process::epoch() != 0 && !process::OFF.load(Ordering::Relaxed);
    let is_own = is_recorded && sys::getpid() == process::PID.load(Ordering::Relaxed);
    let Some(header) = process::header().filter(|_| is_own) else {
        return process::at_exit();
    };
    loading::count_deep();
    let before = totals::in_use_bytes();
    header.in_use_before.store(before, Ordering::Relaxed);
    process::at_exit();
    // If this thread is alone, nothing has happened since.
    let is_alone = before == 0 || !process::MULTI.load(Ordering::Relaxed); // ORDER: as above.
    let after = if is_alone {
        before
    } else {
        totals::in_use_bytes()
    };
    header.in_use_after.store(after, Ordering::Relaxed); // ORDER: as above.
}

extern "C" fn at_end() {
    at_orderly_exit();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = at_start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = at_end;
