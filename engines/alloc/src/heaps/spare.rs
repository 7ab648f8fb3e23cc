//! Heaps that no thread has and that wait for a use of another kind: a tenant, the samples.
//!
//! ```text
//!   claim ◄── the newest spare heap, else a new one          release ──► spare, holding nothing
//! ```
//!
//! Not here: heaps that wait for a thread (`thread`).

use skinflint_base::sync::{AtomicU32, Ordering};

use super::hollow;
use super::pool::{new_heap, with_pool};
use super::thread::who_named;
use crate::mechanism::heap::{Heap, usage};
use crate::mechanism::range::{at, offset_of};

/// Heaps that wait for a tenant, linked through `next_idle`; under the pool's lock.
static SPARE: AtomicU32 = AtomicU32::new(0);

/// Returns a heap that is not in use, with no span; null if there is no memory for one.
pub fn claim(used_by: u32) -> *mut Heap {
    let who = who_named();
    let spare = with_pool(who, |_| {
        // ORDER: the pool's lock is held.
        let first = SPARE.load(Ordering::Relaxed);
        if first != 0 {
            // SAFETY: heaps stay (pool.G4).
            let heap = unsafe { &*at::<Heap>(first) };
            SPARE.store(heap.next_idle.load(Ordering::Relaxed), Ordering::Relaxed); // ORDER: as above
        }
        first
    });
    let heap = match spare {
        None => return core::ptr::null_mut(),
        Some(0) => new_heap(who),
        Some(offset) => at(offset),
    };
    if heap.is_null() {
        return heap;
    }
    // SAFETY: heaps stay (pool.G4).
    let this = unsafe { &*heap };
    if !this.lock.lock(who) {
        // A signal handler, in the middle of a call with the handle of an earlier tenant.
        release(this);
        return core::ptr::null_mut();
    }
    hollow::fill(this);
    // ORDER: a thread that walks the heaps looks at the use without the lock, and takes it before anything else.
    // [reason: lock]
    this.usage.store(used_by, Ordering::Release);
    this.lock.unlock();
    heap
}

/// Takes back a heap without a block, for the next tenant.
pub fn release(heap: &Heap) {
    // ORDER: as in `claim`. [reason: lock]
    heap.usage.store(usage::SPARE, Ordering::Release);
    hollow::leave(heap);
    with_pool(who_named(), |_| {
        // ORDER: the pool's lock is held.
        heap.next_idle
            .store(SPARE.load(Ordering::Relaxed), Ordering::Relaxed);
        SPARE.store(offset_of(heap), Ordering::Relaxed); // ORDER: as above
    });
}
