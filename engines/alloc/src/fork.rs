//! fork: the child finds every lock free and every heap whole.
//!
//! ```text
//!   prepare   the reserve's lock, the purge lock, then every heap's, then the pool's
//!   parent    all given back
//!   child     all made free; the heaps of the threads that are gone wait for new ones
//! ```
//!
//! W1  At the moment of the fork no slow path is under way, so lists and pool are consistent. A fast path
//!     of another thread may be: its block is lost to the child, or its `left` wrong by one (span.S6).
//! W2  `vfork` and `posix_spawn` do not come here: the child shares the parent's memory and thread, and the parent
//!     waits.
//!
//! W3  What a gone thread had in its magazines is put in order by the first user of its heap. Most children never use
//!     it, and every descriptor that is not written to stays shared with the parent.
//!
//! Not here: registering these functions (`malloc-so`).

use skinflint_base::sync::Ordering;

use crate::heap::{Heap, usage};
use crate::lock::{FORKER, NOBODY, Who};
use crate::state::{HEAPS, IDLE, POOL_LOCK, heaps, offset_of};
use crate::{harden, holes, publish, purger, reserve, tls};

/// Returns the identity as which this thread forks.
pub(crate) fn who() -> Who {
    let who = crate::large::who();
    if who == NOBODY { FORKER } else { who }
}

/// Prepares for the fork.
///
/// # Safety
/// To be called by `pthread_atfork` only.
pub unsafe extern "C" fn prepare() {
    let who = who();
    let _ = reserve::GUARD.lock(who);
    harden::before_fork(who);
    lock_all(who);
}

/// Takes the purge lock, every heap's, and the pool's.
pub(crate) fn lock_all(who: Who) {
    let _ = purger::PURGE_LOCK.lock(who);
    loop {
        let newest = publish::first(&HEAPS);
        for heap in heaps() {
            let _ = heap.lock.lock(who);
        }
        let _ = POOL_LOCK.lock(who);
        // ORDER: the pool's lock is held, so no heap is added now.
        if HEAPS.load(Ordering::Relaxed) == newest {
            return;
        }
        POOL_LOCK.unlock();
        for heap in heaps() {
            if heap.lock.is_held_by(who) {
                heap.lock.unlock();
            }
        }
    }
}

/// Runs after the fork, in the parent.
///
/// # Safety
/// As for [`prepare`].
pub unsafe extern "C" fn parent() {
    let who = who();
    unlock_all(who);
    harden::after_fork(who);
    reserve::GUARD.unlock();
}

/// Releases what [`lock_all`] took.
pub(crate) fn unlock_all(who: Who) {
    POOL_LOCK.unlock();
    for heap in heaps() {
        if heap.lock.is_held_by(who) {
            heap.lock.unlock();
        }
    }
    purger::PURGE_LOCK.unlock();
}

/// Runs after the fork, in the child.
///
/// # Safety
/// As for [`prepare`].
pub unsafe extern "C" fn child() {
    POOL_LOCK.reset();
    purger::forget();
    reserve::forget();
    harden::in_child();
    crate::place::in_child();
    let mine = tls::get();
    // ORDER: the child has one thread.
    IDLE.store(0, Ordering::Relaxed);
    for heap in heaps() {
        heap.lock.reset();
        // ORDER: as above.
        if heap.usage.load(Ordering::Relaxed) >= usage::TENANT || core::ptr::eq(heap, mine) {
            continue;
        }
        // ORDER: as above.
        if heap.usage.swap(usage::IDLE, Ordering::Relaxed) == usage::THREAD {
            heap.orphan.store(1, Ordering::Relaxed); // ORDER: as above
        }
        heap.next_idle
            .store(IDLE.load(Ordering::Relaxed), Ordering::Relaxed); // ORDER: as above
        IDLE.store(offset_of(heap), Ordering::Relaxed); // ORDER: as above
    }
}

/// Puts in order a heap whose thread was gone in the child of a fork (W3).
///
/// # Safety
/// The heap's lock is held, and it has no thread.
pub(crate) unsafe fn settle(heap: &Heap) {
    // ORDER: the lock is held.
    if heap.orphan.load(Ordering::Relaxed) == 0 {
        return;
    }
    heap.orphan.store(0, Ordering::Relaxed); // ORDER: as above
    // SAFETY: as the caller promises.
    unsafe {
        heap.forget_magazines();
        holes::release_current(heap);
    }
}
