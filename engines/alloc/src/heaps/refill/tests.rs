//! A heap's lists beside frees by others, at the moments that no test can meet by chance.
//!
//! ```text
//!   refill looks ─► another thread frees ─► drain ─► is the block found again?
//! ```
//!
//! Beside it what is kept and for how long: how many frees make a full span partial, whose spans are taken, how long a
//! heap without a thread stays warm.
//!
//! Not here: threads that really run (`tests/engine`), the orders of the words (`tests/models.rs`).

use super::*;
use crate::heaps::{free, thread};
use crate::mechanism::lock::PURGER;
use crate::services::holes::{self, round};
use crate::test_engine::{alone, new, own};
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
        let rest = std::iter::from_fn(|| Some(unsafe { heap.take_one(&*span) }));
        let rest = rest.take_while(|block| !block.is_null());
        (span, std::iter::once(first).chain(rest).collect())
    })
}

/// Between a refill's look at the current span and the drain before the next one others free into it. The
/// span is not retired as one that has no free slot: nothing would look at it again.
#[test]
fn what_others_free_while_the_next_span_is_looked_for_is_not_lost() {
    let _alone = alone();
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
    thread::leave_cold(core::ptr::from_ref(heap).cast_mut());
}

/// A heap that goes through many spans of a class, of which few live at a time, takes longer ones, until it is idle.
#[test]
fn a_class_that_is_gone_through_fast_has_longer_spans_until_the_heap_is_idle() {
    let _alone = alone();
    let heap = own();
    let class = class::base_class(1_024);
    let pages_after = |spans: usize| {
        for _ in 0..spans {
            let (_, blocks) = taken(heap, class);
            next_span(heap, class);
            // SAFETY: live blocks, of a heap that is not this thread's.
            blocks
                .iter()
                .for_each(|&block| unsafe { free::free(block) });
        }
        heap.wanted_pages(class)
    };
    let lengths = class::get(class).pages.map(u32::from);
    assert_eq!(pages_after(8), lengths[0]);
    assert_eq!(pages_after(200), lengths[2]);
    locked(heap, || {
        // SAFETY: the lock is held by its owner, which the test acts as.
        unsafe {
            events::drain(heap);
            retire::release_current(heap);
            heap.flush_empty();
        }
    });
    assert_eq!(pages_after(8), lengths[0], "it was idle");
    thread::leave_cold(core::ptr::from_ref(heap).cast_mut());
}

/// The freer notified the owner, the owner drained, and only then comes the freer's bit, the last of a full
/// span (free.F2): the purger sees it, and puts the span where it belongs.
#[test]
fn a_bit_that_came_after_the_drain_is_found_by_the_purger() {
    let _alone = alone();
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
        events::notify(this);
        // SAFETY: the lock is held, and this test acts as the owner.
        locked(heap, || unsafe { events::drain(heap) });
        let slot = this.slot_of(block as usize).expect("a block of the span");
        // SAFETY: a slot of the span.
        let word = unsafe { &this.slot_bits(slot / 64).remote };
        assert!(remote::set(word, 1 << (slot % 64)));
    }
    assert!(full(), "nobody knows yet");
    round::one(heap, &mut Batch::new());
    assert!(!full(), "an empty span stays full for good");
    thread::leave_cold(core::ptr::from_ref(heap).cast_mut());
}

/// Frees a block as the thread would whose heap it is of.
fn give(heap: &Heap, block: *mut u8) {
    // SAFETY: the test is the owner; a live block that is in no bitmap.
    unsafe { events::to_bits(heap, block) };
}

fn next_span(heap: &Heap, class: usize) -> *mut Span {
    // SAFETY: the lock is held.
    locked(heap, || unsafe { heap.next_span(class) })
}

fn state_of(span: *mut Span) -> u8 {
    // SAFETY: a span that the test holds a block of.
    unsafe { &*span }.state.load(Ordering::Relaxed) // ORDER: one thread
}

/// So many spans, all slots taken, on the full list; and the blocks of each.
fn full_spans(heap: &Heap, class: usize, count: usize) -> Vec<(*mut Span, Vec<*mut u8>)> {
    let spans: Vec<_> = (0..count)
        .map(|_| {
            let all = taken(heap, class);
            next_span(heap, class);
            all
        })
        .collect();
    for (span, _) in &spans {
        assert_eq!(state_of(*span), state::FULL);
    }
    spans
}

#[test]
fn a_full_span_is_partial_when_an_eighth_of_it_is_free() {
    let _alone = alone();
    // Slots, and how many of them make the difference.
    for (size, slots, few) in [(16, 256, 32), (64, 64, 8), (80, 51, 6), (2_048, 4, 1)] {
        let heap = new();
        let class = class::base_class(size);
        let (span, blocks) = full_spans(heap, class, 1).remove(0);
        assert_eq!((blocks.len(), event_of(slots)), (slots, few as u32));
        for (freed, &block) in (1..).zip(&blocks[..few]) {
            assert_eq!(state_of(span), state::FULL, "{size}: before {freed}");
            give(heap, block);
        }
        assert_eq!(state_of(span), state::PARTIAL, "{size}");
    }
}

/// Too few free slots to be partial are looked for before a heap grows.
#[test]
fn few_free_slots_of_full_spans_are_used_before_there_is_a_new_span() {
    let _alone = alone();
    let heap = new();
    let class = class::base_class(64);
    let spans = full_spans(heap, class, 12);
    let mut of = std::collections::BTreeMap::new();
    for (span, blocks) in spans.iter().step_by(3) {
        give(heap, blocks[7]);
        assert_eq!(state_of(*span), state::FULL);
        of.insert(*span, blocks[7]);
    }
    // What was current is used up first.
    taken_out(heap, class);
    let pages = heap.pages.load(Ordering::Relaxed); // ORDER: one thread
    while !of.is_empty() {
        let found = next_span(heap, class);
        let freed = of.remove(&found).expect("a span with a free slot");
        // SAFETY: the lock is held.
        let block = locked(heap, || unsafe { heap.take_one(&*found) });
        assert_eq!(block, freed);
    }
    let after = heap.pages.load(Ordering::Relaxed); // ORDER: as above
    assert_eq!(after, pages, "the heap has grown");
    let fresh = next_span(heap, class);
    assert!(spans.iter().all(|(span, _)| *span != fresh));
}

/// Takes all slots of the current span.
fn taken_out(heap: &Heap, class: usize) {
    locked(heap, || {
        // SAFETY: the lock is held; the current span is live.
        let take = || unsafe { heap.take_one(&*heap.current(class)) };
        while !take().is_null() {}
    });
}

/// A thread that has ended leaves its current spans and magazines for the next one; two walks later they go.
#[test]
fn a_heap_is_warm_for_two_walks_and_few_heaps_are() {
    let _alone = alone();
    let class = class::base_class(1_024);
    let walk = |heap: &Heap| round::one(heap, &mut Batch::new());
    let heaps: Vec<&Heap> = (0..6).map(|_| new()).collect();
    // SAFETY: the test is each heap's owner.
    let blocks: Vec<_> = heaps
        .iter()
        .map(|heap| unsafe { heap.refill(class) })
        .collect();
    let is_warm = |heap: &Heap| !Heap::is_none(heap.current(class));
    for heap in &heaps {
        assert!(is_warm(heap));
        thread::leave(core::ptr::from_ref(*heap).cast_mut());
    }
    let warm: Vec<bool> = heaps.iter().map(|heap| is_warm(heap)).collect();
    assert_eq!(warm, [true, true, true, true, false, false], "four at most");
    for heap in &heaps[..4] {
        assert_eq!(walk(heap).pending, 1, "it waits still");
        assert!(is_warm(heap));
        walk(heap);
        assert!(!is_warm(heap), "the second walk cools it");
        // SAFETY: the test is the heap's owner.
        assert_eq!(
            // SAFETY: as above.
            unsafe { heap.pop_block(class) },
            std::ptr::null_mut(),
            "and its magazines"
        );
    }
    let again = new();
    // SAFETY: as above.
    unsafe { again.refill(class) };
    thread::leave(core::ptr::from_ref(again).cast_mut());
    assert!(is_warm(again), "there is room for another");
    walk(again);
    walk(again);
    for (heap, block) in heaps.iter().zip(blocks) {
        give(heap, block.expect("not within itself"));
    }
}

/// A partial span of a heap without a thread is had before a new one; not while its heap is warm.
#[test]
fn a_span_is_taken_from_a_heap_that_is_cold() {
    let _alone = alone();
    let class = class::base_class(3_584);
    let partial = |heap: &Heap| {
        let (span, blocks) = full_spans(heap, class, 1).remove(0);
        give(heap, blocks[0]);
        assert_eq!(state_of(span), state::PARTIAL);
        span
    };
    let (cold, warm, taker) = (new(), new(), new());
    let (left, kept) = (partial(cold), partial(warm));
    thread::leave(core::ptr::from_ref(warm).cast_mut());
    thread::leave_cold(core::ptr::from_ref(cold).cast_mut());
    assert_eq!(next_span(taker, class), left);
    // SAFETY: live spans.
    let owner = |span: *mut Span| unsafe { &*span }.owner.load(Ordering::Relaxed); // ORDER: one thread
    assert_eq!((owner(left), owner(kept)), (taker.id(), warm.id()));
    // ORDER: as above.
    let pages = [cold, taker].map(|heap| heap.pages.load(Ordering::Relaxed));
    // SAFETY: a live span.
    assert!(pages[1] >= unsafe { &*left }.pages());
    taken_out(taker, class);
    let next = next_span(taker, class);
    assert_ne!(next, kept, "its heap's magazines may hold blocks of it");
    for _ in 0..2 {
        round::one(warm, &mut Batch::new());
    }
    taken_out(taker, class);
    assert_eq!(next_span(taker, class), kept, "now they do not");
}

/// What a thread had in its magazines that did not come along into the child of a fork is free there.
#[test]
fn blocks_in_the_magazines_of_a_thread_that_is_gone_are_free() {
    let _alone = alone();
    let heap = new();
    let class = class::base_class(512);
    // SAFETY: the test is the heap's owner.
    let block = unsafe { heap.refill(class) }.expect("not within itself");
    let span = heap.current(class);
    // SAFETY: the current span is live.
    let free = || unsafe { (*span).free_slots() };
    // SAFETY: as above.
    let slots = u32::from(unsafe { (*span).slots });
    assert!(free() < slots - 1, "some lie in the magazine");
    // SAFETY: the lock is held, and no thread has the heap.
    locked(heap, || unsafe { retire::settle(heap) });
    assert!(free() < slots - 1, "no orphan");
    heap.orphan.store(1, Ordering::Relaxed); // ORDER: one thread
    // SAFETY: as above.
    locked(heap, || unsafe { retire::settle(heap) });
    assert_eq!(free(), slots - 1, "all but the block");
    assert_eq!(state_of(span), state::PARTIAL);
    // SAFETY: as above.
    assert_eq!(unsafe { heap.pop_block(class) }, std::ptr::null_mut());
    give(heap, block);
    let pages = heap.pages.load(Ordering::Relaxed); // ORDER: as above
    assert_eq!(pages, 0, "with its last block the span goes");
}

/// Where there is no room for one more magazine blocks are taken one by one. Their span may have been purged since the
/// last: then its pages count as in use again, and are purged again once they are free.
#[test]
fn a_block_without_a_magazine_makes_its_page_one_in_use() {
    let _alone = alone();
    let heap = new();
    // ORDER: one thread.
    heap.entries_used.store(ENTRIES as u32, Ordering::Relaxed);
    let class = class::base_class(4_096);
    let take = || {
        // SAFETY: no thread has the heap.
        unsafe { heap.refill(class) }.expect("not within itself")
    };
    let walk = || holes::walk(heap, PURGER, &mut Batch::new()).purged;
    let first = take();
    // SAFETY: the current span of a class is live.
    let span = unsafe { &*heap.current(class) };
    assert!(span.slots >= 2 && first as usize == span.start());
    let untouched = span.clean.load(Ordering::Relaxed).count_ones(); // ORDER: as above
    assert_eq!(walk(), span.pages() - 1 - untouched);
    let second = take();
    let clean = span.clean.load(Ordering::Relaxed); // ORDER: as above
    let page = (second as usize - span.start()) / 4096;
    assert_eq!(clean >> page & 1, 0, "it holds a block");
    // SAFETY: the test is the owner; a live block that is in no bitmap.
    unsafe { events::to_bits(heap, second) };
    assert_eq!(walk(), 1, "it goes once more");
}
