//! What is purged in spans, and what is told of pages that have become free.
//!
//! ```text
//!   frees ─► events ─► hints: so many pages     round, walk ─► spans looked at, pending, purged ─► clean
//! ```
//!
//! T1  A heap of the test's own, which nothing else touches: every figure is exact.
//!
//! Not here: when the purger begins (`starter`, `tests/idle`), real threads (`tests/engine`).

use super::round::Round;
use super::*;
use crate::heaps::events;
use crate::heaps::hints::{HINT_PAGES, STARTER, hint_from};
use crate::mechanism::heap::event_of;
use crate::mechanism::lock::PURGER;
use crate::mechanism::remote::{self, Note};
use crate::mechanism::span;
use crate::test_engine::{alone, new};

/// A heap that counts as a thread's.
fn threads() -> &'static Heap {
    let heap = new();
    heap.usage.store(usage::THREAD, Ordering::Relaxed); // ORDER: one thread
    heap
}

/// All slots of a new span of the class, which is full then, and the span.
fn full(heap: &Heap, class: usize) -> (&'static Span, Vec<*mut u8>) {
    assert!(heap.lock.lock(heap.who()));
    // SAFETY: the lock is held; spans of the heap stay while they have a block.
    let taken = unsafe {
        heap.next_span(class);
        let span = &*heap.current(class);
        let blocks = (0..span.slots).map(|_| heap.take_one(span)).collect();
        heap.next_span(class);
        (span, blocks)
    };
    heap.lock.unlock();
    taken
}

/// Does what [`full`] does, with blocks of 256 bytes on several pages.
fn long(heap: &Heap) -> (&'static Span, Vec<*mut u8>) {
    let mut spans = (0..300).map(|_| full(heap, class::base_class(256)));
    spans
        .find(|(span, _)| span.pages() > 1)
        .expect("spans grow")
}

fn give(heap: &Heap, blocks: &[*mut u8]) {
    for &block in blocks {
        // SAFETY: the test is the owner; a live block that is in no bitmap.
        unsafe { events::to_bits(heap, block) };
    }
}

fn walk_once(heap: &Heap) -> (u32, u32, u32) {
    let done = walk(heap, PURGER, &mut Batch::new());
    (done.looked, done.pending, done.purged)
}

/// A round of the purger's, for this heap: spans looked at, left for the next round, pages purged.
fn round(heap: &Heap) -> (u32, u32, u32) {
    let done = round::one(heap, &mut Batch::new());
    (done.looked, done.pending, done.purged)
}

/// As many pages as became free are hinted at: those of free slots, then those of the whole span.
#[test]
fn pages_are_hinted_at_as_they_come_free() {
    let _alone = alone();
    let heap = threads();
    // Fourteen slots on two pages.
    let (span, blocks) = full(heap, class::base_class(576));
    assert_eq!((span.slots, span.pages()), (14, 2));
    let hinted = || heap.hinted.load(Ordering::Relaxed); // ORDER: one thread
    let before = hinted();
    give(heap, &blocks[..1]);
    assert_eq!(hinted() - before, 0, "partial: less than a page is free");
    give(heap, &blocks[1..10]);
    assert_eq!(hinted() - before, 0, "not looked at again yet");
    give(heap, &blocks[10..11]);
    assert_eq!(hinted() - before, 1, "eleven of fourteen slots");
    give(heap, &blocks[11..13]);
    assert_eq!(hinted() - before, 1);
    give(heap, &blocks[13..]);
    assert_eq!(hinted() - before, 3, "empty: both of its pages");
    let kept = heap.empty_pages.load(Ordering::Relaxed); // ORDER: one thread
    assert_eq!(kept, 2);
}

/// Spans of one block each are empty with their first free: what goes to the pool at once is hinted at as well.
#[test]
fn pages_that_go_to_the_pool_at_once_are_hinted_at() {
    let _alone = alone();
    let heap = threads();
    let class = class::base_class(32_768);
    let spans: Vec<_> = (0..15).map(|_| full(heap, class)).collect();
    assert!(spans.iter().all(|(span, _)| span.slots == 1));
    STARTER.take();
    spans.iter().for_each(|(_, blocks)| give(heap, blocks));
    let kept = heap.empty_pages.load(Ordering::Relaxed); // ORDER: one thread
    assert!(kept < 15 * 8, "some went to the pool");
    let hinted = heap.hinted.load(Ordering::Relaxed); // ORDER: as above
    assert_eq!(STARTER.take() + hinted, 15 * 8);
}

/// The tail of a span is free whatever the slots are: with few free slots before it a page may be.
#[test]
fn a_page_of_a_few_free_slots_and_the_tail_goes() {
    let _alone = alone();
    let heap = threads();
    let (span, blocks) = full(heap, class::base_class(576));
    assert_eq!((span.slots, span.pages(), span.tail()), (14, 2, 128));
    // The last seven have 4,032 bytes.
    give(heap, &blocks[7..]);
    assert_eq!(span.free_pages(), 0b10);
    walk_once(heap);
    assert_eq!(span.clean.load(Ordering::Relaxed), 0b10); // ORDER: one thread
}

/// Hints of one heap come together before all threads hear of them.
#[test]
fn hints_of_a_heap_are_told_together() {
    let _alone = alone();
    let heap = threads();
    STARTER.take();
    hint_from(heap, HINT_PAGES - 1);
    assert_eq!(STARTER.take(), 0);
    hint_from(heap, 1);
    assert_eq!(STARTER.take(), HINT_PAGES);
    assert_eq!(heap.hinted.load(Ordering::Relaxed), 0); // ORDER: one thread
}

/// A round looks at what has changed and at what waits, and at nothing else; what has changed waits for the next one.
#[test]
fn a_round_looks_at_what_has_changed_and_purges_what_stood_still() {
    let _alone = alone();
    let heap = threads();
    let class = class::base_class(4_096);
    // Those whose countdown was no other are done with at once, so there have to be longer ones. What other tests left of a
    // heap that is used again may be short.
    let mut spans = Vec::new();
    let mut longer = 0;
    while spans.len() < 70 || longer == 0 && spans.len() < 2_000 {
        spans.push(full(heap, class));
        longer += u32::from(event_of(spans[spans.len() - 1].0.slots as usize) > 1);
    }
    let all = spans.len() as u32;
    assert!(longer > 0, "{all} spans are short");
    // Of the current one, which has free pages, spans were taken just now.
    assert_eq!(round(heap), (all + 1, 0, 0));
    assert_eq!(
        round(heap).0,
        longer + 1,
        "countdowns are seen to have stayed"
    );
    // SAFETY: the current span of a class is live.
    let current = unsafe { &*heap.current(class) };
    let purged = current.clean.load(Ordering::Relaxed); // ORDER: one thread
    assert_eq!(purged.count_ones(), current.pages(), "it stood still");
    assert_eq!(round(heap), (0, 0, 0), "full spans cost nothing");
    for (span, blocks) in &spans {
        give(heap, &blocks[..1]);
        assert!(span.slots > 1, "it is partial");
    }
    assert_eq!(round(heap), (all, all, 0));
    assert_eq!(round(heap), (all, 0, all));
    assert_eq!(round(heap), (0, 0, 0), "they are clean");
    for (span, blocks) in &spans {
        let clean = span.clean.load(Ordering::Relaxed); // ORDER: one thread
        assert_eq!(clean.count_ones(), 1);
        let page = (blocks[0] as usize - span.start()) / PAGE;
        assert_eq!(clean, 1 << page, "the freed block's");
    }
    // A free into one of them is seen, whatever its countdown was before.
    let (span, blocks) = spans.iter().find(|(span, _)| span.slots > 3).expect("one");
    give(heap, &blocks[1..2]);
    assert_eq!(round(heap), (1, 1, 0));
    give(heap, &blocks[2..3]);
    assert_eq!(round(heap), (1, 1, 0), "it has changed again");
    assert_eq!(round(heap), (1, 0, 2));
    assert_eq!(span.clean.load(Ordering::Relaxed).count_ones(), 3); // ORDER: one thread
}

/// What lies free in the heap of an idle thread has waited already: it goes at the first look, spans without a live block
/// whole, those that the heap would keep among them.
#[test]
fn what_lies_free_in_an_idle_threads_heap_goes_at_the_first_look() {
    let _alone = alone();
    let heap = threads();
    let class = class::base_class(4_096);
    let spans: Vec<_> = (0..12).map(|_| full(heap, class)).collect();
    assert!(spans.iter().all(|(span, _)| span.slots > 1));
    while round(heap) != (0, 0, 0) {}
    for (i, (_, blocks)) in spans.iter().enumerate() {
        give(heap, if i < 4 { &blocks[..1] } else { blocks });
    }
    let pages = || heap.pages.load(Ordering::Relaxed); // ORDER: one thread
    let (before, empty): (u32, u32) = (
        pages(),
        spans[4..].iter().map(|(span, _)| span.pages()).sum(),
    );
    // As an idle thread's is after a pass (`idle`).
    heap.seen.store(1, Ordering::Relaxed); // ORDER: one thread
    let (_, pending, purged) = round(heap);
    assert_eq!((pending, purged), (0, 4 + empty));
    assert_eq!(before - pages(), empty);
    while round(heap) != (0, 0, 0) {}
}

/// The countdown that the purger set may be lost to the owner's own: the span waits until it is seen to have stayed.
#[test]
fn a_span_whose_countdown_was_lost_is_looked_at_again() {
    let _alone = alone();
    let heap = threads();
    let (span, blocks) = &long(heap);
    for _ in 0..4 {
        round(heap);
    }
    assert_eq!(round(heap), (0, 0, 0));
    give(heap, &blocks[..16]);
    assert_eq!(round(heap).1, 1);
    let owners = |left| span.left.store(left, Ordering::Relaxed); // ORDER: one thread
    owners(5);
    assert_eq!(round(heap).1, 1, "it waits");
    assert_eq!(round(heap).2, 1, "and goes");
    give(heap, &blocks[16..17]);
    assert_eq!(round(heap), (1, 0, 0), "a part of a page");
    owners(5);
    assert_eq!(round(heap), (1, 0, 0));
    assert_eq!(round(heap), (1, 0, 0));
    assert_eq!(round(heap), (0, 0, 0));
    assert_eq!(span.left.load(Ordering::Relaxed), 1); // ORDER: as above
}

/// As many spans of a list as were taken since the last round are let alone: they are the next to be taken.
#[test]
fn as_many_spans_as_were_taken_wait_on() {
    let _alone = alone();
    let heap = threads();
    let class = class::base_class(4_096);
    let spans: Vec<_> = (0..20).map(|_| full(heap, class)).collect();
    spans
        .iter()
        .for_each(|(_, blocks)| give(heap, &blocks[..1]));
    let other = class::base_class(512);
    full(heap, other);
    assert_eq!(round(heap).2, 0, "all 22 were taken since");
    full(heap, other);
    // One was taken; of the others 19 have stood still. Current ones wait, too.
    assert_eq!(round(heap), (20 + 3, 0, 19));
    // The last one. No page of the current ones was touched.
    let (_, waiting, purged) = round(heap);
    assert_eq!((waiting, purged), (0, 1));
}

/// Frees block by block as another thread does; returns how often that told the owner.
fn free_elsewhere(heap: &Heap, span: &Span, blocks: &[*mut u8]) -> u32 {
    let mut told = 0;
    for &block in blocks {
        let slot = span.slot_of(block as usize).expect("a block of the span");
        // SAFETY: a slot of the span.
        let word = unsafe { &span.slot_bits(slot / 64).remote };
        let note = Note::Own(&heap.notifying);
        assert!(remote::free(span, word, 1 << (slot % 64), || {
            told += u32::from(remote::notify(span, note));
        }));
    }
    told
}

/// The owner is idle: what other threads free is seen nevertheless, and each free after a round tells again.
#[test]
fn what_other_threads_free_of_an_idle_owners_is_told_and_goes() {
    let _alone = alone();
    let heap = threads();
    let (span, blocks) = &long(heap);
    for _ in 0..4 {
        round(heap);
    }
    assert_eq!(free_elsewhere(heap, span, &blocks[..15]), 1, "the first");
    assert_eq!(round(heap), (1, 0, 0), "not a page");
    assert_eq!(free_elsewhere(heap, span, &blocks[15..16]), 1, "told again");
    assert_eq!(round(heap), (1, 1, 0));
    assert_eq!(round(heap), (1, 0, 1));
    // ORDER: one thread, throughout.
    assert_eq!(span.state.load(Ordering::Relaxed), span::state::PARTIAL);
    // All of it: the heap keeps it for a round, and the pool gets it.
    assert_eq!(free_elsewhere(heap, span, &blocks[16..]), 1);
    let before = heap.pages.load(Ordering::Relaxed); // ORDER: as above
    let pages = span.pages();
    assert_eq!(round(heap), (1, 1, 0));
    assert_eq!(round(heap).2, pages - 1, "one was clean");
    assert_eq!(heap.pages.load(Ordering::Relaxed), before - pages); // ORDER: as above
}

/// What no event told of is found by the net.
#[test]
fn the_net_finds_what_was_not_noted() {
    let _alone = alone();
    let heap = threads();
    let (span, blocks) = full(heap, class::base_class(4_096));
    for _ in 0..4 {
        round(heap);
    }
    // As if the countdown had been lost at the last look.
    span.left.store(9, Ordering::Relaxed); // ORDER: one thread
    give(heap, &blocks[..1]);
    assert_eq!(round(heap), (0, 0, 0));
    let mut net = Round::new(PURGER);
    while !net.cast() {}
    assert_eq!(round(heap).1, 1);
    assert_eq!(round(heap).2, 1);
}

/// However lately they changed, a trim purges all.
#[test]
fn a_walk_purges_all() {
    let _alone = alone();
    let heap = threads();
    let class = class::base_class(4_096);
    let spans: Vec<_> = (0..70).map(|_| full(heap, class)).collect();
    spans
        .iter()
        .for_each(|(_, blocks)| give(heap, &blocks[..1]));
    // The current one, too: no page of it was touched.
    assert_eq!(walk_once(heap), (71, 0, 70));
    // All at once, however lately they changed. (Without a live block they would be empty.)
    let of_more = || spans.iter().filter(|(span, _)| span.slots > 2);
    of_more().for_each(|(_, blocks)| give(heap, &blocks[1..2]));
    let count = of_more().count() as u32;
    assert!(count > 0);
    assert_eq!(walk_once(heap), (71, 0, count));
}

/// A page of which only the middle of one live block is, or its first or last byte, stays.
#[test]
fn pages_with_any_live_byte_stay() {
    let _alone = alone();
    let heap = threads();
    // Slots that lie across pages.
    let class = class::base_class(7_168);
    let (span, blocks) = full(heap, class);
    assert!(span.slots >= 4, "{}", span.slots);
    for (live, &block) in blocks.iter().enumerate() {
        // SAFETY: a block of this many bytes.
        unsafe { block.write_bytes(live as u8 + 1, 7_168) };
    }
    let gone: Vec<_> = blocks.iter().copied().step_by(2).collect();
    give(heap, &gone);
    walk_once(heap);
    let clean = span.clean.load(Ordering::Relaxed); // ORDER: one thread
    for page in 0..span.pages() as usize {
        let (from, to) = (page * PAGE, (page + 1) * PAGE);
        let alive = blocks.iter().skip(1).step_by(2).any(|&block| {
            let start = block as usize - span.start();
            start < to && start + 7_168 > from
        });
        assert_eq!(clean >> page & 1 != 0, !alive, "page {page}");
    }
    for (live, &block) in blocks.iter().enumerate().skip(1).step_by(2) {
        // SAFETY: a live block of this many bytes.
        let whole = (0..7_168).all(|i| unsafe { *block.add(i) } == live as u8 + 1);
        assert!(whole, "block {live}");
    }
}

/// What a tenant allocates from is taken from it by a trim, and by nothing less.
#[test]
fn a_tenants_current_spans_go_with_a_trim_alone() {
    let _alone = alone();
    let heap = new();
    let class = class::base_class(3_072);
    assert!(heap.lock.lock(heap.who()));
    // SAFETY: the lock is held.
    let block = unsafe { heap.take_locked(class) };
    heap.lock.unlock();
    let all = |heap: &_| walk_once(heap);
    for (used_by, work, stays) in [
        (usage::TENANT, round as fn(&Heap) -> _, true),
        (usage::THREAD, all, true),
        (usage::TENANT, all, false),
    ] {
        heap.usage.store(used_by, Ordering::Relaxed); // ORDER: one thread
        work(heap);
        assert_eq!(!Heap::is_none(heap.current(class)), stays, "{used_by}");
    }
    heap.usage.store(usage::IDLE, Ordering::Relaxed); // ORDER: as above
    give(heap, &[block]);
}

/// Of pages that are not resident those come that the new blocks begin with, four at most, and none before.
#[test]
fn fresh_pages_come_from_the_first_that_is_wanted() {
    let _alone = alone();
    let heap = threads();
    let class = class::base_class(1_024);
    let span = (0..300)
        .map(|_| full(heap, class).0)
        .find(|span| span.pages() == 16)
        .expect("spans grow");
    let start = span.start();
    let fresh = &heap.fresh[class];
    for (before, first, end, after) in [
        (
            0b0000_0111_1111_1100,
            3 * PAGE + 1_024,
            4 * PAGE,
            0b0000_0111_1000_0100,
        ),
        (0b0000_0111_1000_0100, 0, 2 * PAGE, 0b0000_0111_1000_0100),
        (
            0b0000_0111_1000_0100,
            5 * PAGE,
            9 * PAGE + 1,
            0b0000_0000_0000_0100,
        ),
        (
            0b0000_0111_1000_0100,
            2 * PAGE,
            2 * PAGE + 1,
            0b0000_0111_1000_0000,
        ),
        (0b1100_0000_0000_0000, 14 * PAGE, 16 * PAGE, 0),
        (u16::MAX, 0, 16 * PAGE, 0b1111_1111_1111_0000),
    ] {
        fresh.store(before, Ordering::Relaxed); // ORDER: one thread
        heap.freshen(class, span, start + first, start + end);
        let left = fresh.load(Ordering::Relaxed); // ORDER: as above
        assert_eq!(left, after, "{before:b} from {first} to {end}: {left:b}");
    }
    fresh.store(0, Ordering::Relaxed); // ORDER: as above
}
