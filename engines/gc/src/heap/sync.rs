//! The locks of the hand-over, in one place, so that the model checker can replace them.
//!
//! ```text
//!   as usual      the standard library's
//!   --cfg loom    loom's: `make model-test` tries the orders in which the two threads can meet
//! ```
//!
//! Y1  Nothing else of this crate is shared between threads: a heap is one thread's. (The source of chunks has a lock
//!     of the standard library's around all of it.)
//! Y2  In a model time does not pass by itself: a wait for a period ends when the thread that plays the clock ends it.
//!
//! Not here: what the locks guard (`handover`, `stop`).

use std::time::Duration;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Waits while `wait` returns true, for at most a period. Returns with the lock in both cases.
#[cfg(not(loom))]
pub(crate) fn wait_timeout_while<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    period: Duration,
    wait: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let waited = condvar.wait_timeout_while(guard, period, wait);
    waited.unwrap_or_else(|error| error.into_inner()).0
}

/// Waits as above; the thread that plays the clock ends the period (Y2).
#[cfg(loom)]
pub(crate) fn wait_timeout_while<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    _: Duration,
    mut wait: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    if wait(&mut guard) {
        guard = condvar
            .wait(guard)
            .unwrap_or_else(|error| error.into_inner());
    }
    guard
}
