//! What a sampled block keeps resident beside it: its share of the free bytes on the pages where it would lie.
//!
//! ```text
//!   page of the class   [ A │ - │ place │ - │ B │ - │ - ]        free bytes / 3 is the share of the sample
//!   heap of samples     [ sample ]                               its own page tells nothing
//! ```
//!
//! W1  Samples lie in spans of their own (profile.P2). The place of one is the slot that its thread's next block of the class
//!     gets: it is taken from there, and given back. So the blocks on the page of the place are those that would lie there, but
//!     for one: the next block gets the place, those after it move up, and one that would lie elsewhere comes to the page. It
//!     may be any of them, so the share is the mean over all of the page's slots, each left out once. Leaving out what lies at the
//!     place is wrong wherever the next block lives otherwise than the sample: where a program keeps every second block of
//!     160 bytes, by 9 % (bench/pinned.py, 2026-11-27).
//! W2  A page's free bytes are shared equally by the blocks that have a byte on it, as a full recording shares them
//!     (`skinflint_analysis::fragments`). A page whose span is gone would have been kept by the sample alone.
//! W3  All slow paths stand still meanwhile, so descriptors stay what they are; bits of single slots may change.
//!
//! Not here: sums over samples (`text`).

use skinflint_base::sync::Ordering;
use skinflint_pages::PAGE;

use crate::heaps::free::free;
use crate::mechanism::heap::Heap;
use crate::mechanism::map::descriptor;
use crate::mechanism::range::{base, limit};
use crate::mechanism::span::{Span, is_small};

/// Returns the slot that the next block of a class gets in a heap, which is this thread's (W1); 0: there is none.
#[cold]
pub fn place(heap: &Heap, class: usize) -> usize {
    // SAFETY: the heap is this thread's, and the block is given back at once.
    unsafe {
        let mut block = heap.pop_block(class);
        if block.is_null() {
            block = heap.refill(class).unwrap_or_default();
        }
        free(block);
        block as usize
    }
}

/// Returns the free bytes that a sample of a class of this size, with this place, keeps resident (W2). Cost: some ten instructions for
/// each slot of its pages. All slow paths stand still (W3).
pub fn share(place: usize, size: usize) -> usize {
    if place == 0 || size == 0 {
        return 0;
    }
    let span = span_of(place, size);
    let (first, last) = (place / PAGE, (place + size - 1) / PAGE);
    (first..=last)
        .map(|page| {
            let left = PAGE - within(page, place, size);
            span.map_or(left, |span| Lying::on(span, page, place).share(left))
        })
        .sum()
}

/// Returns the span that has a slot of this size at the place, if it still is one.
fn span_of(place: usize, size: usize) -> Option<&'static Span> {
    let distance = place.wrapping_sub(base());
    if distance >= limit() {
        return None;
    }
    // SAFETY: below the limit; MAP leads to descriptors.
    let span = unsafe { &*descriptor(distance) };
    // ORDER: descriptors stand still (W3).
    let is_one = is_small(span.kind.load(Ordering::Relaxed)) && span.size() == size;
    (is_one && span.slot_of(place).is_some()).then_some(span)
}

/// What lies on a page of a span, beside a place.
struct Lying {
    /// Slots with a byte there, and those whose blocks live, with the place's.
    slots: usize,
    blocks: usize,
    /// Bytes of the other slots there.
    bytes: usize,
}

impl Lying {
    fn on(span: &Span, page: usize, place: usize) -> Lying {
        let (start, size) = (span.start(), span.size());
        let from = (page * PAGE).saturating_sub(start) / size;
        let to = ((page + 1) * PAGE).saturating_sub(start).div_ceil(size);
        let to = to.min(span.slots.into());
        let bytes: usize = (from..to)
            .map(|slot| within(page, start + slot * size, size))
            .sum();
        Lying {
            slots: to.saturating_sub(from).max(1),
            blocks: (from..to).filter(|&slot| span.is_live(slot)).count(),
            bytes: bytes.saturating_sub(within(page, place, size)),
        }
    }

    /// Returns what one more block keeps, which leaves so many bytes of the page, if one of the slots is left out for it (W1): what
    /// is not left out lies in the others.
    fn share(&self, left: usize) -> usize {
        let beside = (self.slots - 1).max(1);
        let shared =
            |blocks: usize| left.saturating_sub(blocks * self.bytes / beside) / (blocks + 1);
        let (blocks, slots) = (self.blocks.min(self.slots), self.slots);
        let with_one_less = blocks * shared(blocks.saturating_sub(1));
        ((slots - blocks) * shared(blocks.min(slots - 1)) + with_one_less) / slots
    }
}

/// Returns the bytes of a block on a page.
fn within(page: usize, block: usize, size: usize) -> usize {
    let (begin, end) = (page * PAGE, (page + 1) * PAGE);
    (block + size).min(end).saturating_sub(block.max(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::class;

    /// Blocks of 1,536 bytes, three pages of eight: what shares a page with a block, page by page, worked out by hand.
    #[test]
    fn free_bytes_are_shared_by_what_lies_on_the_page() {
        let name =
            "services::profile::beside::tests::free_bytes_are_shared_by_what_lies_on_the_page";
        // What is freed here is a hint to the purger, whose tests count them.
        let told = crate::test_engine::in_child(name, || {
            let _alone = crate::test_engine::alone();
            let heap = crate::test_engine::new();
            let class = class::base_class(1536);
            let mut blocks: Vec<usize> = (0..64)
                // SAFETY: the test's own heap; what is taken from it stays until the end.
                .map(|_| unsafe {
                    let block = heap.pop_block(class);
                    if block.is_null() {
                        heap.refill(class).expect("memory")
                    } else {
                        block
                    }
                } as usize)
                .collect();
            blocks.sort_unstable();
            // A span begins on a page, and three of its pages have eight slots.
            let starts = |block: &&usize| block.is_multiple_of(PAGE);
            let start = *blocks
                .iter()
                .filter(starts)
                .find(|start| {
                    (0..8).all(|slot| blocks.binary_search(&(*start + slot * 1536)).is_ok())
                })
                .expect("eight in a row");
            let slot = |slot: usize| start + slot * 1536;
            assert_eq!(share(slot(0), 1536), 0, "all pages are full");
            for dead in [1, 3, 4, 6] {
                // SAFETY: a block of the heap.
                unsafe { free(slot(dead) as *mut u8) };
            }
            // 0 1 2 │ 2 3 4 5 │ 5 6 7: of slot 2 two thirds lie on the first page, and of 5 a third on the second.
            // First page: two of three live. Beside slot 0 the others have 2,560 bytes, beside 1 as many, beside 2 3,072.
            let first = |own: usize, other: usize| {
                let left = 4096 - own;
                ((left - 2 * other) / 3 + 2 * ((left - other) / 2)) / 3
            };
            assert_eq!(share(slot(0), 1536), first(1536, 1280));
            assert_eq!(share(slot(1), 1536), first(1536, 1280));
            // Second page: two of four live. Beside slot 4 the others have 2,560 bytes, beside 2 3,584.
            let second = |own: usize, others: usize| {
                let left = 4096 - own;
                (2 * ((left - 2 * others / 3) / 3) + 2 * ((left - others / 3) / 2)) / 4
            };
            assert_eq!(share(slot(4), 1536), second(1536, 2560));
            assert_eq!(share(slot(2), 1536), first(1024, 1536) + second(512, 3584));
            // Of another size nothing is left there; nothing is kept by what has no place.
            assert_eq!(share(slot(2), 1024), 3072);
            assert_eq!(share(slot(2) + 512, 1024), 2 * (4096 - 512));
            assert_eq!((share(0, 1536), share(slot(0), 0)), (0, 0));
        });
        if let Some((status, said)) = told {
            assert!(status.success(), "{said}");
        }
    }
}
