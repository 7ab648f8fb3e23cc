//! Heaps that no thread and no tenant has and that hold nothing: two of their three pages go back, and those of their magazines' entries.
//!
//! ```text
//!   heap   [ magazines ][ magazines │ counts, lock, links ][ lists, kept runs ]
//!             goes          stays (pool.G4)                   goes: it is zero anyway
//!   left ──► a round later: waited ──► another one: hollow ──► adopt, claim: filled
//! ```
//!
//! A heap stays where it is for good, so a program that once had many threads, private heaps or tenants keeps the most of
//! them: 12 KiB each, after the last has ended.
//!
//! Q1  What goes reads as zero, which means the same as what was there: no span is listed, no run is kept, a magazine
//!     without room is empty and full. Only the current spans differ: null stands for [`EMPTY_SPAN`], and only a heap that
//!     is not in use may have that (heap.H2).
//! Q2  It is made hollow and filled under its lock, and never while it is in use: a thread that adopts or claims it fills it
//!     under the lock first.
//!
//! [`EMPTY_SPAN`]: crate::mechanism::heap::EMPTY_SPAN
//!
//! Not here: how a heap comes to be left (`thread`, `spare`), and when rounds are made (`services`).

use skinflint_base::sync::Ordering;
use skinflint_pages::PAGE;
use skinflint_pages::purge::Batch;

use crate::mechanism::class::MAX_CLASSES;
use crate::mechanism::entry::Entry;
use crate::mechanism::heap::{ENTRIES, Heap, hollowness, usage};

/// Pages of a heap, by number, that go.
const GO: [usize; 2] = [0, 2];

// Q1: what must stay lies on the page between.
const _: () = assert!(core::mem::offset_of!(Heap, budget) >= PAGE);
const _: () = assert!(core::mem::offset_of!(Heap, partial) <= 2 * PAGE);
const _: () = assert!(core::mem::size_of::<Heap>() <= 3 * PAGE);

/// Notes that a heap was left. Its lock is held, or no other thread has it.
pub fn leave(heap: &Heap) {
    // ORDER: the lock is held.
    heap.hollow.store(hollowness::LEFT, Ordering::Relaxed);
}

/// Reports whether a heap was left and is not hollow yet: a look, without the lock.
pub fn is_due(heap: &Heap) -> bool {
    // ORDER: a look; the lock orders.
    let at = heap.hollow.load(Ordering::Relaxed);
    at == hollowness::LEFT || at == hollowness::WAITED
}

/// Reports whether a heap is hollow, so that there is nothing to look for in it: a look, without the lock.
pub fn is_hollow(heap: &Heap) -> bool {
    heap.hollow.load(Ordering::Relaxed) == hollowness::HOLLOW // ORDER: a look
}

/// Brings a heap that was left a step nearer to being hollow, or all the way if `now`; `true`: a step is left for the next
/// round.
///
/// # Safety
/// The heap's lock is held until the batch is flushed, which this does.
pub unsafe fn step(heap: &Heap, now: bool, batch: &mut Batch) -> bool {
    if !is_due(heap) || !holds_nothing(heap) {
        return false;
    }
    let at = heap.hollow.load(Ordering::Relaxed); // ORDER: the lock is held
    if at == hollowness::LEFT && !now {
        heap.hollow.store(hollowness::WAITED, Ordering::Relaxed); // ORDER: as above
        return true;
    }
    for class in 0..MAX_CLASSES {
        heap.magazine(class).bounds.forget();
    }
    heap.entries_used.store(0, Ordering::Relaxed); // ORDER: as above
    heap.hollow.store(hollowness::HOLLOW, Ordering::Relaxed); // ORDER: as above
    let start = core::ptr::from_ref(heap).expose_provenance();
    for page in GO {
        batch.add(start + page * PAGE, PAGE);
    }
    let entries = heap.entries.load(Ordering::Relaxed) as usize; // ORDER: as above
    if entries != 0 {
        batch.add(entries, ENTRIES * size_of::<Entry>());
    }
    batch.flush();
    false
}

/// Makes a heap whole again that is about to be used. Its lock is held.
pub fn fill(heap: &Heap) {
    // ORDER: the lock is held.
    if heap.hollow.swap(hollowness::NO, Ordering::Relaxed) == hollowness::HOLLOW {
        // Those of the page that stayed have it already.
        (0..MAX_CLASSES).for_each(|class| heap.clear_current(class));
    }
}

/// Reports whether the heap is not in use, and nothing is in it. Its lock is held.
fn holds_nothing(heap: &Heap) -> bool {
    let is_zero = |counts: &[&skinflint_base::sync::AtomicU32]| {
        // ORDER: the lock is held.
        counts.iter().all(|n| n.load(Ordering::Relaxed) == 0)
    };
    // ORDER: as above.
    let used_by = heap.usage.load(Ordering::Relaxed);
    (used_by == usage::IDLE || used_by == usage::SPARE)
        && is_zero(&[&heap.pages, &heap.warm, &heap.orphan, &heap.notified])
        && heap.kept.held() == 0
        && heap.kept.published() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrivateHeap;
    use crate::heaps::malloc::malloc;
    use crate::mechanism::lock::PURGER;
    use crate::services::batch::{PURGE_LOCK, batch};
    use crate::services::check::check_invariants;
    use crate::services::holes::round::Round;
    use crate::services::trim::trim;
    use crate::test_engine::alone;

    fn resident(heap: &Heap) -> [bool; 3] {
        let mut answer = [0u8; 3];
        let start = core::ptr::from_ref(heap) as *mut libc::c_void;
        // SAFETY: three pages, three bytes.
        let failed = unsafe { libc::mincore(start, 3 * PAGE, answer.as_mut_ptr()) };
        assert_eq!(failed, 0);
        answer.map(|byte| byte & 1 != 0)
    }

    /// Blocks of many sizes, all written to and freed again.
    fn work() {
        for size in (16..40_000).step_by(131) {
            // SAFETY: a block of this size, freed once.
            unsafe {
                let block = malloc(size);
                block.write_bytes(7, size);
                crate::free(block);
            }
        }
    }

    fn of(private: &PrivateHeap) -> &'static Heap {
        let mut heap = core::ptr::null();
        private.within(|| heap = crate::heaps::tls::get().cast_const());
        // SAFETY: heaps stay (pool.G4).
        unsafe { &*heap }
    }

    #[test]
    fn a_heap_that_was_left_keeps_a_page_and_serves_again() {
        let _alone = alone();
        let mut heap = core::ptr::null();
        for round in 0..3 {
            let private = PrivateHeap::new().expect("memory");
            let this = of(&private);
            // What was left last is used first.
            assert!(round == 0 || core::ptr::eq(this, heap));
            heap = this;
            private.within(work);
            assert_eq!(resident(this), [true; 3]);
            drop(private);
            trim();
            assert_eq!(resident(this), [false, true, false], "round {round}");
            check_invariants(3).expect("hollow");
        }
    }

    /// The purger's rounds give what is used again and again two ticks, and do not bring back what has gone.
    #[test]
    fn rounds_let_a_heap_wait_and_leave_what_is_hollow_alone() {
        let _alone = alone();
        trim();
        let private = PrivateHeap::new().expect("memory");
        let heap = of(&private);
        private.within(work);
        drop(private);
        let mut gone = Vec::new();
        for _ in 0..6 {
            assert!(PURGE_LOCK.lock(PURGER));
            // SAFETY: the lock is held.
            let batch = unsafe { batch() };
            let mut round = Round::new(PURGER);
            round.begin(batch);
            while !round.go_on(u32::MAX, batch) {}
            PURGE_LOCK.unlock();
            gone.push(!resident(heap)[0] && !resident(heap)[2]);
        }
        assert!(!gone[0] && gone[5] && gone.is_sorted(), "{gone:?}");
        check_invariants(3).expect("hollow");
    }

    #[test]
    fn what_holds_a_block_stays_whole() {
        let _alone = alone();
        let private = PrivateHeap::new().expect("memory");
        let heap = of(&private);
        let mut block = core::ptr::null_mut();
        // SAFETY: any size.
        private.within(|| block = unsafe { malloc(100) });
        drop(private);
        trim();
        assert!(resident(heap)[0]);
        // SAFETY: a live block.
        unsafe { crate::free(block) };
        trim();
        assert_eq!(resident(heap), [false, true, false]);
    }
}
