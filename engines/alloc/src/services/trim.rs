//! Giving back at once: free runs of the pool, and all that heaps can do without.
//!
//! ```text
//!   trim ─► what threads hold in magazines ─► each heap: the caller's own current spans, every hole ─► every free run
//!        ─► descriptors
//! ```
//!
//! Not here: giving back while the program does nothing (`purger`), holes (`holes`).

use skinflint_pages::Run;
use skinflint_pages::purge::Batch;

use super::batch::{PURGE_LOCK, batch};
use super::{holes, idle};
use crate::heaps::pool::{heaps, with_pool};
use crate::heaps::{events, retire, tls};
use crate::mechanism::heap::Heap;
use crate::mechanism::lock::{ASKER, Who};
use crate::mechanism::range::base;

/// Purges free runs that became dirty at or before a tick, but keeps `keep` pages; returns the pages purged.
///
/// PURGE_LOCK is held (purger.U3).
pub fn purge_pool(who: Who, until: u32, keep: u32, batch: &mut Batch) -> u32 {
    let mut purged = 0;
    loop {
        let now = purge_some(who, until, keep, batch);
        if now == 0 {
            return purged;
        }
        purged += now;
    }
}

/// Does a part of what [`purge_pool`] does; returns 0 when all is done.
pub fn purge_some(who: Who, until: u32, keep: u32, batch: &mut Batch) -> u32 {
    const NONE: Run = Run {
        page: 0,
        pages: 0,
        clean: false,
    };
    let mut runs = [NONE; 64];
    let count = with_pool(who, |pool| pool.claim_dirty(until, keep, &mut runs)).unwrap_or(0);
    let mut purged = 0;
    for run in &runs[..count] {
        if batch.is_full() {
            batch.flush();
        }
        let address = base() + run.page as usize * 4096;
        batch.add(address, run.pages as usize * 4096);
        purged += run.pages;
    }
    batch.flush();
    with_pool(who, |pool| pool.purged(&runs[..count]));
    purged
}

/// Gives back at once everything that can be given back. `true` if there was anything.
pub fn trim() -> bool {
    if base() == 0 {
        return false;
    }
    trim_of(tls::who(), tls::get())
}

/// Does what [`trim`] does, for a thread that has no thread-local storage.
pub fn trim_hidden() -> bool {
    base() != 0 && trim_of(ASKER, core::ptr::null_mut())
}

fn trim_of(who: Who, mine: *mut Heap) -> bool {
    if !PURGE_LOCK.lock(who) {
        return false;
    }
    // SAFETY: the lock is held.
    let batch = unsafe { batch() };
    let mut purged = 0;
    idle::of_all(who, mine, batch);
    for heap in heaps() {
        if core::ptr::eq(heap, mine) && heap.lock.lock(who) {
            // SAFETY: this thread owns the heap, and has its lock.
            unsafe {
                events::drain(heap);
                retire::release_current(heap);
                heap.flush_empty();
            }
            heap.lock.unlock();
        }
        purged += holes::walk(heap, who, batch).purged;
    }
    purged += purge_pool(who, u32::MAX, 0, batch);
    // Descriptors of spans and blocks that are gone.
    with_pool(who, |pool| pool.region.purge_meta());
    PURGE_LOCK.unlock();
    purged > 0
}
