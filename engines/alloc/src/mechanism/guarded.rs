//! A value that one thread at a time may touch, since a lock or a gate says so.
//!
//! ```text
//!   lock ─► taken ─► get: an address ─► a reference, until the lock is released
//! ```
//!
//! V1  Every dereference of what [`Guarded::get`] returns names the lock that is held, or says why there is one thread.
//!
//! Not here: the locks (`lock`), the gates (`publish`).

use core::cell::UnsafeCell;

/// A value that a lock guards (V1).
pub struct Guarded<T>(UnsafeCell<T>);

// SAFETY: only an address can be had from a shared reference; code that dereferences it keeps V1.
unsafe impl<T> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Creates the value.
    pub const fn new(value: T) -> Guarded<T> {
        Guarded(UnsafeCell::new(value))
    }

    /// Returns the value's address.
    #[inline(always)]
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}
