//! Scenarios under loom.
//!
//! ```text
//!   check ─► every order with at most the given number of preemptions
//! ```
//!
//! L1  The bound of preemptions is the caller's, and stands in the caller's text: it is what bounds the time.
//!
//! Not here: real threads (`real_threads`).

use loom::cell::UnsafeCell;

/// Runs a scenario in every order with at most `preemptions` preemptions; see the head of the crate.
///
/// # Panics
/// If any order breaks an assertion, races for a [`Watched`] cell, or ends in a deadlock.
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A cell: what is modelled must order the accesses to it.
#[derive(Debug)]
pub struct Watched<T>(UnsafeCell<T>);

impl<T> Watched<T> {
    /// Creates a cell that holds `value`.
    pub fn new(value: T) -> Watched<T> {
        Watched(UnsafeCell::new(value))
    }

    /// Reads the cell.
    ///
    /// # Panics
    /// If a write is not ordered with this read.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: loom fails the run before two accesses meet.
        self.0.with(|value| look(unsafe { &*value }))
    }

    /// Writes the cell.
    ///
    /// # Panics
    /// If any access is not ordered with this write.
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as above.
        self.0.with_mut(|value| change(unsafe { &mut *value }))
    }
}

// SAFETY: every access is checked against every other.
unsafe impl<T: Send> Sync for Watched<T> {}
