//! A thread that does something each period, until it is stopped.
//!
//! ```text
//!   the thread: wait(period) ─┬─ over ─────► does it, and waits again          the lock is not held meanwhile
//!                             └─ stopped ──► ends
//!   its owner:  stop() ─► the thread is woken if it waits, and else finds it at its next wait ─► joined
//! ```
//!
//! H1  A stop is heard: the flag is written and read under the lock that `wait` gives up only while it sleeps, so there is no
//!     moment between the look and the sleep.
//! H2  After a stop was heard nothing more is done. The thread that joins waits for what is being done when the stop
//!     comes.
//! H3  A wait that ends early, as those on a condition variable may, is continued: a period is never shorter than requested.
//!
//! Models: `tests/models.rs`, where the clock is a thread.
//!
//! Not here: the thread (`timer`).

use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard, wait_timeout_while};

/// A request that the thread end.
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    condvar: Condvar,
}

impl Stop {
    pub(crate) fn new() -> Stop {
        Stop {
            stopped: Mutex::new(false),
            condvar: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // No code under the lock unwinds.
        self.stopped
            .lock()
            .unwrap_or_else(|error| error.into_inner())
    }

    /// Waits for a period, or until the thread is to end; returns whether it is. For the thread.
    pub(crate) fn wait(&self, period: Duration) -> bool {
        *wait_timeout_while(&self.condvar, self.lock(), period, |stopped| !*stopped)
    }

    /// Tells the thread to end. For its owner.
    pub(crate) fn stop(&self) {
        *self.lock() = true;
        self.condvar.notify_all();
    }

    /// Plays the clock in a model: a period is over.
    #[cfg(any(loom, test))]
    #[allow(dead_code)] // by the unit tests
    pub(crate) fn tick(&self) {
        let _lock = self.lock();
        self.condvar.notify_all();
    }
}
