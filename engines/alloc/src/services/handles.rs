//! Handles for tests: the purger's pace, and what there is of heaps.
//!
//! ```text
//!   tests ─► hasten_purger, start_purger, purger_passes        own_heap, heaps        takes_from_idle
//! ```
//!
//! Not here: the invariants (`check`).

use skinflint_base::sync::Ordering;

use super::{idle, purger};
use crate::heaps::{hints, pool, slow, tls};

/// Makes the purger tick faster, for tests.
pub fn hasten_purger(tick_ms: u32) {
    purger::set_tick_ms(tick_ms);
}

/// Has no peak sweep what threads hold, for tests of what else does.
pub fn sweep_no_peak() {
    // ORDER: a hint.
    slow::PEAK_LOOK.store(u32::MAX, Ordering::Relaxed);
}

/// Starts the purger if it does not run, whether there is something to do or not.
pub fn start_purger() {
    hints::wanted();
}

/// Returns the number of passes that the purger has made.
pub fn purger_passes() -> u32 {
    // ORDER: a statistic.
    purger::PASSES.load(Ordering::Relaxed)
}

/// Returns the address of the heap that this thread allocates from; 0 before it has one.
pub fn own_heap() -> usize {
    tls::get().addr()
}

/// Reports whether what idle threads hold is taken from them; else they are asked for it.
pub fn takes_from_idle() -> bool {
    idle::way() == idle::Way::Taken
}

/// Has each lock that is taken told of, and says which of them it is.
#[cfg(all(feature = "counted", not(test)))]
pub mod counted {
    pub use crate::mechanism::counted::watch;

    /// Returns what a lock guards, by its address.
    pub fn name(lock: usize) -> &'static str {
        use crate::heaps::pool::POOL_LOCK;
        use crate::services::batch::PURGE_LOCK;
        match lock {
            _ if lock == (&raw const POOL_LOCK).addr() => "pool",
            _ if lock == (&raw const PURGE_LOCK).addr() => "purge",
            _ => "heaps",
        }
    }
}

/// Returns the number of heaps, with a thread or without.
pub fn heaps() -> usize {
    pool::heaps().count()
}
