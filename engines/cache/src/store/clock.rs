//! Time for caches: milliseconds since the first look, or what a test says.
//!
//! ```text
//!   Clock::real() ─► monotonic time      Clock::by_hand() ─► stands still until it is moved
//! ```
//!
//! T1  It never goes back, and does not wrap after 49 days: it has 64 bits.
//!
//! Not here: what expires.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use skinflint_base::sync::{AtomicU64, Ordering};

static BEGIN: OnceLock<Instant> = OnceLock::new();

/// The source of a cache's time.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// Returns the machine's monotonic clock.
    pub fn real() -> Clock {
        Clock(None)
    }

    /// Creates a clock that only [`Clock::advance`] moves, so that half an hour takes no time.
    pub fn by_hand() -> Clock {
        Clock(Some(Arc::default()))
    }

    /// Moves the clock, if it is one that is moved by hand.
    pub fn advance(&self, by: Duration) {
        if let Some(ms) = &self.0 {
            ms.fetch_add(by.as_millis() as u64, Ordering::Relaxed); // ORDER: a number alone
        }
    }

    /// Returns the time in milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            // ORDER: a number alone.
            Some(ms) => ms.load(Ordering::Relaxed),
            None => BEGIN.get_or_init(Instant::now).elapsed().as_millis() as u64,
        }
    }
}
