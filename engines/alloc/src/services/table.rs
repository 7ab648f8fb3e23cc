//! The table by which heaps reach the services: the other end of `heaps::slow`.
//!
//! ```text
//!   heaps ─► slow::paths() ═══ skinflint_slow_paths ═══ PATHS ─► purger, holes, reserve, samples, hardening, checks
//! ```
//!
//! T1  The symbol is defined once, here, with the type that `slow` declares.
//! T2  Locks are taken before a fork in the one order that holds everywhere: the reserve's, those of the hardening, the
//!     purger's; then `fork` takes those of heaps and the pool. The profile's is under none of them and above none
//!     (profile.P4), so where it stands makes no difference.
//!
//! Not here: when a slow path is taken (`heaps`).

use skinflint_base::hook::LinkedAllocator;
use skinflint_base::sync::Ordering;

use super::batch::PURGE_LOCK;
use super::{check, cold, holes, peak, purger, reserve, sparse, stats_text, trim};
use crate::heaps::malloc::usable_size;
use crate::heaps::slow::{Hardening, LOOK, Paths, Profile};
use crate::mechanism::heap::Heap;
use crate::mechanism::lock::Who;

// By name and hidden, as the range is (`range::RANGE`).
#[unsafe(export_name = "skinflint_slow_paths")]
static PATHS: Paths = Paths {
    hook: &HOOK,
    start_purger: purger::start,
    before_growing: holes::before_growing,
    settle_sparse: sparse::settle,
    may_ask: purger::may_be,
    handed_out: reserve::handed_out,
    near_limit,
    out_of_memory: reserve::out_of_memory,
    check: check::maybe,
    sampled: SAMPLED,
    profile: PROFILE,
    hardening: HARDENING,
    before_fork,
    after_fork,
    in_child,
};
core::arch::global_asm!(".hidden skinflint_slow_paths");

static HOOK: LinkedAllocator = LinkedAllocator {
    usable: usable_size,
    figures: stats_text::to_buffer,
    trim: trim::trim,
};

#[cfg(feature = "harden")]
const HARDENING: Hardening = super::harden::PATHS;
/// Never called: no check can be switched on (`options`).
#[cfg(not(feature = "harden"))]
const HARDENING: Hardening = Hardening {
    new_heap: |_| (),
    malloc: |_, _| core::ptr::null_mut(),
    malloc_large: |_, _| None,
    memalign: |_, _| None,
    realloc: |_, _| None,
    usable: |_| None,
    free_elsewhere: |_| false,
    before_free: |_| true,
    contents_unknown: || (),
    relieve: || false,
};

#[cfg(feature = "profile")]
const SAMPLED: fn(&Heap, usize) -> Option<*mut u8> = super::profile::points::serve;
#[cfg(not(feature = "profile"))]
const SAMPLED: fn(&Heap, usize) -> Option<*mut u8> = super::sample::serve;

#[cfg(feature = "profile")]
const PROFILE: Profile = super::profile::PATHS;
/// Never called: no profile can be begun.
#[cfg(not(feature = "profile"))]
const PROFILE: Profile = Profile {
    aligned: |_, _, _| None,
    large: |_, _, _| false,
    freed: |_| (),
    taken: |_| None,
    put_back: |_| false,
};

fn near_limit() {
    let more = purger::work_owed();
    peak::look();
    reserve::look();
    if more {
        LOOK.fetch_max(1, Ordering::Relaxed); // ORDER: a hint
    }
}

fn before_fork(who: Who) {
    let _ = reserve::GUARD.lock(who);
    #[cfg(feature = "harden")]
    super::harden::before_fork(who);
    let _ = PURGE_LOCK.lock(who);
    #[cfg(feature = "profile")]
    super::profile::before_fork(who);
}

fn after_fork(who: Who) {
    #[cfg(feature = "profile")]
    super::profile::after_fork(who);
    PURGE_LOCK.unlock();
    #[cfg(feature = "harden")]
    super::harden::after_fork(who);
    #[cfg(not(feature = "harden"))]
    let _ = who;
    reserve::GUARD.unlock();
}

fn in_child() {
    purger::forget();
    cold::forget();
    reserve::forget();
    #[cfg(feature = "harden")]
    super::harden::in_child();
    #[cfg(feature = "profile")]
    super::profile::in_child();
}
