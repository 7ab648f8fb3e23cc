//! The lists of a heap: circular, both ways, by offsets from META.
//!
//! ```text
//!   list ──► first ⇄ second ⇄ … ⇄ last ⇄ first
//! ```
//!
//! I1  All accesses happen under the heap's lock (span.S3), which orders them: every access here is Relaxed.
//!
//! Not here: when a span moves (`heap`, `free`).

use skinflint_base::sync::{AtomicU32, Ordering};

use super::class;
use super::heap::Heap;
use super::range::{at, offset_of};
use super::span::{Span, state};

fn get(link: &AtomicU32) -> u32 {
    // ORDER: the heap's lock is held (I1).
    link.load(Ordering::Relaxed)
}

fn set(link: &AtomicU32, offset: u32) {
    // ORDER: the heap's lock is held (I1).
    link.store(offset, Ordering::Relaxed);
}

/// Adds to a count that only the lock's holder writes.
fn add(count: &AtomicU32, more: u32) {
    set(count, get(count).wrapping_add(more));
}

impl Heap {
    /// Adds a span to a list, at its front or its back.
    ///
    /// # Safety
    /// The heap's lock is held, the span is on no list.
    pub unsafe fn push(&self, list: &AtomicU32, span: &Span, back: bool) {
        let offset = offset_of(span);
        // ORDER: as above; not seen by the walk under way.
        span.visit.store(0, Ordering::Relaxed);
        let head = get(list);
        if head == 0 {
            set(&span.next, offset);
            set(&span.prev, offset);
            return set(list, offset);
        }
        // SAFETY: lists hold offsets of live descriptors (heap.H3).
        let first = unsafe { &*at::<Span>(head) };
        let tail = get(&first.prev);
        set(&span.next, head);
        set(&span.prev, tail);
        // SAFETY: as above.
        set(&unsafe { &*at::<Span>(tail) }.next, offset);
        set(&first.prev, offset);
        if !back {
            set(list, offset);
        }
    }

    /// Removes a span from a list.
    ///
    /// # Safety
    /// The heap's lock is held, the span is on this list.
    pub unsafe fn unlink(&self, list: &AtomicU32, span: &Span) {
        let offset = offset_of(span);
        let (next, prev) = (get(&span.next), get(&span.prev));
        if next == offset {
            return set(list, 0);
        }
        // SAFETY: lists hold offsets of live descriptors (heap.H3).
        unsafe {
            set(&(*at::<Span>(prev)).next, next);
            set(&(*at::<Span>(next)).prev, prev);
        }
        if get(list) == offset {
            set(list, next);
        }
    }

    /// Returns the list for a span's state; `None`: spans of that state are on no list.
    pub fn list_of(&self, span: &Span) -> Option<&AtomicU32> {
        let class = span.class();
        // ORDER: the lock is held (span.S3).
        match span.state.load(Ordering::Relaxed) {
            state::PARTIAL => Some(&self.partial[class]),
            state::FULL => Some(&self.full[class]),
            state::EMPTY => Some(&self.empty[class]),
            _ => None,
        }
    }

    /// Moves a span to another state and its list.
    ///
    /// # Safety
    /// The heap's lock is held, the span is this heap's, and not Current before or after.
    pub unsafe fn move_to(&self, span: &Span, to: u8, back: bool) {
        let pages = span.pages();
        if let Some(list) = self.list_of(span) {
            // SAFETY: its state says that it is on this list (heap.H3).
            unsafe { self.unlink(list, span) };
        }
        // ORDER: the lock is held (span.S3, heap.H4, heap.H6).
        let (word, bit) = (
            &self.has_empty[span.class() / 64],
            1u64 << (span.class() % 64),
        );
        if span.state.load(Ordering::Relaxed) == state::EMPTY {
            add(&self.empty_pages, pages.wrapping_neg());
            if get(&self.empty[span.class()]) == 0 {
                let bits = word.load(Ordering::Relaxed); // ORDER: as above
                word.store(bits & !bit, Ordering::Relaxed); // ORDER: as above
            }
        }
        span.state.store(to, Ordering::Relaxed); // ORDER: as above
        if to == state::EMPTY {
            add(&self.empty_pages, pages);
            let bits = word.load(Ordering::Relaxed); // ORDER: as above
            word.store(bits | bit, Ordering::Relaxed); // ORDER: as above
        }
        if let Some(list) = self.list_of(span) {
            // SAFETY: it is on no list now.
            unsafe { self.push(list, span, back) };
        }
    }

    /// Calls `work` with each span of the heap.
    ///
    /// # Safety
    /// The heap's lock is held.
    pub unsafe fn each_span(&self, mut work: impl FnMut(&Span)) {
        for class in 0..class::count() {
            let current = self.current(class);
            if !Heap::is_none(current) {
                // SAFETY: a current span is live (heap.H3).
                work(unsafe { &*current });
            }
            for list in [&self.partial[class], &self.full[class], &self.empty[class]] {
                let head = get(list);
                let mut next = head;
                while next != 0 {
                    // SAFETY: lists hold live descriptors (heap.H3).
                    let span = unsafe { &*at::<Span>(next) };
                    work(span);
                    next = get(&span.next);
                    if next == head {
                        break;
                    }
                }
            }
        }
    }
}
