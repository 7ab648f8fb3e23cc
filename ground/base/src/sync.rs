//! The atomics of the ring, in one place, so that the model checker can put its own there.
//!
//! ```text
//!   as usual      core's atomics; a `Word` is a word of shared memory
//!   --cfg loom    loom's: `make model-test` tries the orders in which two threads can meet
//! ```
//!
//! Y1  A `Word` is read and written only by the side that owns it at the time; see `ring` (ring.R1). Loom
//!     checks just that: two accesses that no `Release`/`Acquire` pair separates are an error.
//!
//! Not here: the flags of `sys`, which the kernel must be able to find.

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering,
};
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering,
};

/// A word of a ring.
#[cfg(not(loom))]
#[repr(transparent)]
pub struct Word(core::cell::UnsafeCell<u64>);

#[cfg(not(loom))]
impl Word {
    /// Creates a word that holds `value`.
    pub const fn new(value: u64) -> Word {
        Word(core::cell::UnsafeCell::new(value))
    }

    /// Writes the word. Cost: a plain store.
    ///
    /// # Safety
    /// The word is the writer's (Y1).
    #[inline(always)]
    pub unsafe fn write(&self, value: u64) {
        // SAFETY: as the caller promises.
        unsafe { self.0.get().write(value) }
    }

    /// Reads the word.
    ///
    /// # Safety
    /// The word is the reader's (Y1).
    #[inline(always)]
    pub unsafe fn read(&self) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { self.0.get().read() }
    }
}

/// A word of a ring whose every access loom checks against every other.
#[cfg(loom)]
pub struct Word(loom::cell::UnsafeCell<u64>);

#[cfg(loom)]
impl Word {
    /// Creates a word that holds `value`.
    pub fn new(value: u64) -> Word {
        Word(loom::cell::UnsafeCell::new(value))
    }

    /// Writes the word.
    ///
    /// # Safety
    /// The word is the writer's (Y1).
    pub unsafe fn write(&self, value: u64) {
        // SAFETY: as the caller promises; loom fails the test if that is not so.
        self.0.with_mut(|word| unsafe { *word = value });
    }

    /// Reads the word.
    ///
    /// # Safety
    /// The word is the reader's (Y1).
    pub unsafe fn read(&self) -> u64 {
        // SAFETY: as the caller promises; loom fails the test if that is not so.
        self.0.with(|word| unsafe { *word })
    }
}

// SAFETY: shared memory; the protocol of the ring says whose it is (Y1).
unsafe impl Sync for Word {}
// SAFETY: a number.
unsafe impl Send for Word {}
