//! The run cache: a large block that is freed stays with the thread's heap for a while, for the next of its length.
//!
//! ```text
//!   free ─► kind CACHED, in a slot of the heap ─► malloc of as many pages ─► kind LARGE      (no lock, no pool)
//!              │                                       (or an eighth fewer)
//!              └─ two walks unused, a trim, a peak that would rise, the thread's end ─► the pool, dirty
//! ```
//!
//! C1  A run that is kept has its descriptor and its entry of MAP, and kind CACHED: a second free, and a realloc, are found
//!     at once. To the pool it is in use; in the figures it is a free run that may be resident, which it is.
//! C2  A heap keeps runs of up to 1 MiB, 2 MiB together, and longer ones of 16 MiB together (`kept`), but none with guards or with moved pages, and nothing
//!     in a hardened process.
//!     What it has above 1 MiB goes to the pool before another large block comes from there, for which it may do: kept, 20 blocks
//!     of 100 KB to 4 MB at random lengths (`pattern large4m`) took a sixth more memory.
//! C3  Before the pages in use exceed their peak, every heap's runs go to the pool, which makes other lengths of them.
//!
//! Not here: the slots, and which threads may take a run out (`kept`).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_pages::PAGE;

use super::pool::{SPARE, heaps, with_pool};
use super::runs::{self, Large};
use super::{hints, slow, tls};
use crate::mechanism::heap::Heap;
use crate::mechanism::kept::RUN_PAGES_MAX;
use crate::mechanism::lock::Who;
use crate::mechanism::range::{at, offset_of};
use crate::mechanism::span::{KIND_CACHED, KIND_LARGE};

/// Bytes of the longest block that is kept.
pub const BYTES_MAX: usize = RUN_PAGES_MAX as usize * PAGE;

/// Whether a heap may keep any: a hint, by which a process that grows looks at all heaps only if there is reason to.
static ANY: AtomicU32 = AtomicU32::new(0);

/// Takes a block of `n` bytes, at most [`BYTES_MAX`], from the runs that this thread's heap keeps. `None`: it has none of
/// that length, nor of up to an eighth more.
#[inline(always)]
pub fn take(heap: &Heap, n: usize) -> Option<*mut u8> {
    let (offset, _) = heap.kept.take(n.div_ceil(PAGE).max(1) as u32)?;
    let large = at::<Large>(offset);
    // SAFETY: a descriptor that was kept, and is this thread's now (kept.X1).
    unsafe {
        (*large).requested.store(n, Ordering::Relaxed); // ORDER: a statistic
        (*large).kind.store(KIND_LARGE, Ordering::Relaxed); // ORDER: a thread that gets the block gets it from this one
        runs::count_taken(&heap.kept);
        Some((*large).start as *mut u8)
    }
}

/// Keeps a large block that is freed. `false`: it is to go to the pool.
///
/// # Safety
/// `large` is a live large block of no tenant's, which nothing uses any more.
#[inline]
pub unsafe fn keep(large: *mut Large) -> bool {
    let heap = tls::get();
    if heap.is_null() || tls::is_ended(heap) || slow::hardening().is_some() {
        return false;
    }
    // SAFETY: a thread's heap stays (pool.G4); the caller's block.
    unsafe {
        let (heap, pages) = (&*heap, (*large).pages);
        if pages > RUN_PAGES_MAX || (*large).displaced != 0 || (*large).lead != 0 {
            return false;
        }
        // C1, before another thread can take it out.
        (*large).kind.store(KIND_CACHED, Ordering::Relaxed); // ORDER: the slot's Release publishes it
        // ORDER: a hint; read-mostly, so that the line stays with each processor.
        if ANY.load(Ordering::Relaxed) == 0 {
            ANY.store(1, Ordering::Relaxed); // ORDER: a hint
        }
        let offset = offset_of(large);
        while !heap.kept.put(offset, pages) {
            // Bounded: each turn takes a run out, and one of this length fits into an empty cache. (A signal handler that
            // came between may cost one turn more.)
            let room = heap.kept.make_room(pages);
            give(tls::who(), room.unwrap_or(offset));
            if room.is_none() {
                break;
            }
        }
        hints::hint_from(heap, pages);
    }
    true
}

/// Gives the pool this thread's runs above 1 MiB (C2). Cost if there are none: a load.
#[inline]
pub fn give_long(heap: &Heap, who: Who) {
    while let Some(offset) = heap.kept.take_long() {
        give(who, offset);
    }
}

/// Gives the pool a run that was taken out of its slot.
fn give(who: Who, offset: u32) {
    // SAFETY: as below.
    runs::count_leaving(unsafe { (*at::<Large>(offset)).pages });
    // SAFETY: a descriptor that was kept, and is this thread's now (kept.X1); nothing uses the block.
    if with_pool(who, |pool| unsafe { runs::give(pool, offset) }).is_none() {
        runs::defer(offset);
    }
}

/// Ages a heap's runs by one walk, and gives the pool those that are too old, or `all`; returns how many stay. Any thread
/// may call this.
pub fn age(heap: &Heap, who: Who, all: bool) -> u32 {
    let stay = heap.kept.age(all, |offset| give(who, offset));
    runs::publish_kept(&heap.kept);
    stay
}

/// Gives the pool every heap's runs, if so many pages more would raise the peak of the pages in use (C3). Cost otherwise:
/// two loads.
#[inline]
pub fn before_growing(who: Who, pages: u32) {
    // ORDER: hints.
    if SPARE.load(Ordering::Relaxed) < pages && ANY.load(Ordering::Relaxed) != 0 {
        empty_all(who);
    }
}

#[cold]
#[inline(never)]
fn empty_all(who: Who) {
    // Before the walk. A put that has looked at it just now, and fills its slot behind the walk, is missed until the next put.
    ANY.store(0, Ordering::Relaxed); // ORDER: a hint
    for heap in heaps() {
        age(heap, who, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heaps::pool::POOL_LOCK;
    use crate::heaps::{large, thread};
    use crate::mechanism::lock::NOBODY;
    use crate::services::batch::PURGE_LOCK;
    use crate::services::trim::trim;
    use crate::test_engine::alone;

    /// A signal handler frees in the middle of a call that has the pool, and more than is kept: what waits for the pool is
    /// no live block, and is counted with the kept runs until the pool has it.
    #[test]
    fn a_run_that_waits_for_the_pool_counts_as_kept_until_it_has_gone() {
        const MOST: usize = crate::mechanism::kept::WAYS;
        let _alone = alone();
        let kept = || {
            let held = heaps().map(|heap| heap.kept.held()).sum::<u64>();
            (held + runs::leaving(), held)
        };
        if tls::get().is_null() {
            thread::enter();
        }
        trim();
        let both =
            |all: usize, held: usize| (all as u64 * (1 << 32 | 1), held as u64 * (1 << 32 | 1));
        assert_eq!(kept(), both(0, 0));
        let blocks = [(); MOST + 3].map(|()| large::malloc(PAGE, 1).0);
        // No purger comes between. (A test that fails must not hold these locks: its thread could not end.)
        assert!(PURGE_LOCK.lock(tls::who()));
        assert!(POOL_LOCK.lock(tls::who()));
        for block in blocks {
            // SAFETY: a live block, freed once.
            unsafe { large::free(block) };
        }
        let waiting = kept();
        POOL_LOCK.unlock();
        with_pool(NOBODY, |_| ());
        let stays = kept();
        PURGE_LOCK.unlock();
        assert_eq!(waiting, both(MOST + 3, MOST));
        assert_eq!(stays, both(MOST, MOST));
        trim();
        assert_eq!(kept(), both(0, 0));
    }
}
