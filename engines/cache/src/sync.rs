//! The locks of the code that the models run, in one place, so that the model checker can replace them.
//!
//! ```text
//!   as usual      the standard library's
//!   --cfg loom    loom's: `make model-test` tries the orders in which threads can meet
//! ```
//!
//! Y1  A lock whose holder panicked is taken nevertheless: what it guards is set in single steps.
//!
//! Not here: what the locks guard (`flight`, `pin`); atomics (`skinflint_base::sync`).

#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use std::sync::PoisonError;

/// Takes a lock (Y1).
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change, and takes the lock again afterwards (Y1).
pub(crate) fn waited<'a, T>(changed: &Condvar, held: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(held).unwrap_or_else(PoisonError::into_inner)
}
