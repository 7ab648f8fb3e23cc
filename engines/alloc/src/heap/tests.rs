//! A heap's lists beside frees by others, at the moments that no test can meet by chance.
//!
//! ```text
//!   refill looks ─► another thread frees ─► drain ─► is the block found again?
//! ```
//!
//! Not here: threads that really run (`tests/engine`), the orders of the words (`tests/models.rs`).

use super::*;
use crate::holes::{self, Zeal};
use crate::lock::PURGER;
use crate::{free, remote, thread};
use skinflint_pages::purge::Batch;

/// A heap of the test's own, under its lock.
fn locked<R>(heap: &Heap, work: impl FnOnce() -> R) -> R {
    assert!(heap.lock.lock(heap.who()));
    let result = work();
    heap.lock.unlock();
    result
}

/// All slots of the class's current span, taken: the blocks.
fn taken(heap: &Heap, class: usize) -> (*mut Span, Vec<*mut u8>) {
    locked(heap, || {
        // SAFETY: the lock is held; the current span is live.
        let first = unsafe { heap.take_locked(class) };
        let span = heap.current(class);
        // SAFETY: as above.
        let rest = std::iter::from_fn(|| Some(unsafe { (*span).take() }));
        let rest = rest.take_while(|block| !block.is_null());
        (span, std::iter::once(first).chain(rest).collect())
    })
}

fn own() -> &'static Heap {
    assert!(crate::state::start(crate::lock::NOBODY));
    // SAFETY: heaps stay (G4).
    unsafe { &*thread::adopt() }
}

/// Between a refill's look at the current span and the drain before the next one others free into it. The
/// span is not retired as one that has no free slot: nobody would look at it again.
#[test]
fn what_others_free_while_the_next_span_is_looked_for_is_not_lost() {
    let heap = own();
    for size in [64, 1_024, 8_192] {
        let class = class::base_class(size);
        let (span, blocks) = taken(heap, class);
        // SAFETY: live blocks, of a heap that is not this thread's.
        blocks
            .iter()
            .for_each(|&block| unsafe { free::free(block) });
        // SAFETY: the lock is held.
        let next = locked(heap, || unsafe { heap.next_span(class) });
        // SAFETY: as above; spans stay while they are current.
        let free = unsafe { (*span).free_slots() };
        assert_eq!((next, free as usize), (span, blocks.len()), "{size}");
    }
    thread::leave(core::ptr::from_ref(heap).cast_mut());
}

/// The freer notified the owner, the owner drained, and only then comes the freer's bit, the last of a full
/// span (free F2): the purger has the owner look again.
#[test]
fn a_bit_that_came_after_the_drain_is_found_by_the_purger() {
    let heap = own();
    let class = class::base_class(8_192);
    let (span, blocks) = taken(heap, class);
    // SAFETY: a live span, and the lock is held.
    let this = unsafe { &*span };
    // SAFETY: as above.
    let next = locked(heap, || unsafe { heap.next_span(class) });
    assert_ne!(next, span);
    let full = || this.state.load(Ordering::Relaxed) == state::FULL; // ORDER: one thread
    assert!(full());
    for &block in &blocks {
        free::notify(this);
        // SAFETY: the lock is held, and this test acts as the owner.
        locked(heap, || unsafe { free::drain(heap) });
        let slot = this.slot_of(block as usize).expect("a block of the span");
        // SAFETY: a slot of the span.
        let word = unsafe { &this.trio(slot / 64).remote };
        assert!(remote::set(word, 1 << (slot % 64)));
    }
    assert!(full(), "nobody knows yet");
    holes::walk(heap, PURGER, Zeal::Quiet, &mut Batch::new());
    // SAFETY: as above.
    locked(heap, || unsafe { free::drain(heap) });
    assert!(!full(), "an empty span stays full for good");
    thread::leave(core::ptr::from_ref(heap).cast_mut());
}
