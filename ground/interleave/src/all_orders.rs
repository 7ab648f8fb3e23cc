//! A scenario under loom.
//!
//! ```text
//!   check ─► every order with at most so many preemptions
//! ```
//!
//! L1  The bound of preemptions is the caller's, and in his text: it is what bounds the time.
//!
//! Not here: real threads (`real_threads`).

use loom::cell::UnsafeCell;

/// Runs a scenario in every order with at most so many preemptions; see the head of the crate.
///
/// # Panics
/// If any of them breaks an assertion, races for a [`Watched`] cell, or ends in a deadlock.
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A cell whose accesses must be ordered by what is modelled.
#[derive(Debug)]
pub struct Watched<T>(UnsafeCell<T>);

impl<T> Watched<T> {
    /// One that holds `value`.
    pub fn new(value: T) -> Watched<T> {
        Watched(UnsafeCell::new(value))
    }

    /// Reads it.
    ///
    /// # Panics
    /// If a write is not ordered with this.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: loom fails the run before two accesses meet.
        self.0.with(|value| look(unsafe { &*value }))
    }

    /// Writes it.
    ///
    /// # Panics
    /// If any access is not ordered with this.
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as above.
        self.0.with_mut(|value| change(unsafe { &mut *value }))
    }
}

// SAFETY: every access is checked against every other.
unsafe impl<T: Send> Sync for Watched<T> {}
