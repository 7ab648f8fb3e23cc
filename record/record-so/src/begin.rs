//! The beginning of a recording: of a program, of a child of `fork`, or when a debugger attaches.
//!
//! ```text
//!   first event ─► live page ─► collector (link.rs) ─► unwinder (modules.rs) ─► epoch: the process is recorded
//!                                   └─ no answer ─► a notice that it is lost, and recording is off for good
//! ```
//!
//! E1  Exactly one thread is here: the only one of a fresh process, or the one that attaches.
//!
//! Not here: what is shared from then on (process.rs).

use core::sync::atomic::Ordering;

use skinflint_base::ring::LAYOUT;
use skinflint_base::sys;

use crate::{frames, go, high_water, link, linked, modules, notices, process, samples, slots};

/// Makes this process known to the collector. Called by its only recording thread: at the first
/// event of a program, or of a child of `fork`. Returns whether it is recorded.
#[cold]
pub fn begin() -> bool {
    // ORDER: Relaxed throughout; there is one thread (process.G1: a fresh process or a fresh child).
    if process::OFF.load(Ordering::Relaxed) {
        return false;
    }
    let parent = process::TOKEN.load(Ordering::Relaxed);
    let newest = if process::MULTI.load(Ordering::Relaxed) {
        process::TICKET.load(Ordering::Relaxed)
    } else {
        slots::single_ticket()
    };
    // The first ticket of the parent that the child has nothing to do with.
    let fork_ticket = newest + 1;
    // ORDER: Relaxed; there is one thread.
    process::MULTI.store(false, Ordering::Relaxed);
    if !link::has_address() {
        process::OFF.store(true, Ordering::Relaxed); // ORDER: as above.
        return false;
    }
    // ORDER: Relaxed; there is one thread.
    process::PID.store(sys::getpid(), Ordering::Relaxed);
    slots::forget_slots();
    let time_ns = sys::monotonic_ns();
    if parent != 0 {
        notices::meets(time_ns);
    }
    let linked = process::make_live_page()
        && link::begin(parent, fork_ticket, time_ns)
        && samples::begin()
        && modules::prepare();
    if !linked {
        // ORDER: Relaxed; there is one thread.
        process::OFF.store(true, Ordering::Relaxed);
        // A program that was started without a collector has no notifier, either.
        notices::lost();
        return false;
    }
    // ORDER: Relaxed; there is one thread.
    process::TICKET.store(0, Ordering::Relaxed);
    if let Some(header) = process::header() {
        header.layout.store(LAYOUT, Ordering::Relaxed); // ORDER: Relaxed; read once the process has ended.
    }
    high_water::begin();
    frames::prepare();
    go::prepare();
    linked::begin(parent != 0);
    samples::begin_short();
    process::set_epoch();
    true
}

/// Makes this process known, whatever was before, when a debugger attaches to a running program. Returns whether it
/// is recorded. Other threads may run, but none of them is in a hook that records.
pub fn begin_again() -> bool {
    // ORDER: Relaxed throughout; the thread that attaches is the only one that links.
    process::TOKEN.store(0, Ordering::Relaxed);
    process::SESSION.store(core::ptr::null_mut(), Ordering::Relaxed);
    process::NOTIFIER.store(core::ptr::null_mut(), Ordering::Relaxed); // ORDER: as above.
    process::OFF.store(false, Ordering::Relaxed);
    process::GAVE_UP.store(false, Ordering::Relaxed); // ORDER: as above.
    begin()
}
