//! Whoever counts locks hears of each that is taken: for a bench alone (feature `counted`).
//!
//! ```text
//!   Lock::try_lock ─► taken(lock) ─► the watcher, if there is one
//! ```
//!
//! Not here: which lock it is (`services::handles`), what is made of it (`examples/contention`).

use core::sync::atomic::{AtomicUsize, Ordering};

/// What is called with the address of each lock that is taken, by the thread that takes it.
pub type Watcher = fn(usize);

static WATCHER: AtomicUsize = AtomicUsize::new(0);

/// Sets the watcher. It must not allocate from this allocator.
pub fn watch(watcher: Watcher) {
    // ORDER: set before there are threads.
    WATCHER.store(watcher as usize, Ordering::Relaxed);
}

/// Tells the watcher of a lock.
pub fn taken(lock: usize) {
    let watcher = WATCHER.load(Ordering::Relaxed); // ORDER: as above
    if watcher != 0 {
        // SAFETY: only `watch` writes it.
        unsafe { core::mem::transmute::<usize, Watcher>(watcher)(lock) }
    }
}
