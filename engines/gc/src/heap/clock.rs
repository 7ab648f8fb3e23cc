//! Time for heaps: the machine's, or what a test sets.
//!
//! ```text
//!   Clock::real()    wall_ns ─► monotonic time        cpu_ns ─► this thread's processor time
//!   Clock::by_hand() both ───► one number that stands still until it is moved
//! ```
//!
//! H1  It never goes back.
//! H2  By hand, everything that follows from time (pauses, thresholds that adapt, how often a full heap is collected)
//!     depends only on what the program does, the same on an idle machine and on a busy one.
//!
//! Not here: what follows from time (`pace`, `trigger`); slices of counted values, whose time is the machine's
//! (`counted`).

use std::sync::Arc;

use skinflint_base::sync::{AtomicU64, Ordering};
use skinflint_base::sys;

/// The source of time of a world's heaps. Clones are the same clock. Any thread may move it.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// Returns the machine's clocks: monotonic time for pauses, the thread's processor time for shares.
    pub fn real() -> Clock {
        Clock(None)
    }

    /// Creates a clock that only [`Clock::advance`] moves: a trace function or a mutator that moves it says what its
    /// work costs.
    pub fn by_hand() -> Clock {
        Clock(Some(Arc::default()))
    }

    /// Moves the clock by `ns` nanoseconds, if it is moved by hand. Cost: an atomic addition.
    pub fn advance(&self, ns: u64) {
        if let Some(now) = &self.0 {
            now.fetch_add(ns, Ordering::Relaxed); // ORDER: a number alone
        }
    }

    /// Returns nanoseconds since a fixed moment.
    pub(crate) fn wall_ns(&self) -> u64 {
        self.by_hand_ns().unwrap_or_else(sys::monotonic_ns)
    }

    /// Returns the processor time of this thread, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.by_hand_ns().unwrap_or_else(sys::thread_cpu_ns)
    }

    fn by_hand_ns(&self) -> Option<u64> {
        let now = self.0.as_ref()?;
        Some(now.load(Ordering::Relaxed)) // ORDER: a number alone
    }
}
