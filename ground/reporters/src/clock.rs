//! The time for deadlines: the machine's, or what a test sets.
//!
//! ```text
//!   Clock::real() ─► monotonic time      Clock::by_hand() ─► stands still until it is moved
//! ```
//!
//! K1  It never goes back. A thread that waits by a clock that is moved by hand looks at it each millisecond.
//!
//! Not here: what a deadline is for (`round`, `act`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The time between two looks at a clock that is moved by hand.
const LOOK: Duration = Duration::from_millis(1);

/// The clock of a registry. Clones are the same clock; any thread may move it.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// Returns the machine's monotonic clock.
    pub fn real() -> Clock {
        Clock(None)
    }

    /// Returns a clock that only [`Clock::advance`] moves: reporters that hang exceed the deadline, and no others.
    pub fn by_hand() -> Clock {
        Clock(Some(Arc::default()))
    }

    /// Moves the clock, if it is moved by hand.
    pub fn advance(&self, by: Duration) {
        if let Some(now) = &self.0 {
            now.fetch_add(by.as_nanos() as u64, Ordering::Relaxed); // ORDER: Relaxed: a number alone
        }
    }

    /// Returns the time since some fixed moment.
    pub(crate) fn now(&self) -> Duration {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        match &self.0 {
            Some(now) => Duration::from_nanos(now.load(Ordering::Relaxed)), // ORDER: Relaxed: as above
            None => BEGIN.get_or_init(Instant::now).elapsed(),
        }
    }

    /// Returns how long to sleep when `left` is left of a deadline.
    pub(crate) fn sleep(&self, left: Duration) -> Duration {
        match self.0 {
            Some(_) => LOOK,
            None => left,
        }
    }
}
