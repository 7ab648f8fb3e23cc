//! Hints: how many pages may have become reclaimable, until there are enough for the purger to begin.
//!
//! ```text
//!   frees, resizes ─► the heap's own sum ─► the sum of all ─► enough? ─► the purger
//! ```
//!
//! Not here: the purger (`purger`), its beginning and end (`starter`).

use skinflint_base::sync::Ordering;
use skinflint_pages::PAGE;

use super::slow;
use crate::mechanism::heap::Heap;
use crate::mechanism::span::Span;
use crate::mechanism::starter::Starter;

/// Pages that must be reclaimable, by the hints, for the purger to be started: 512 KiB. Small programs never reach it.
pub const START_PAGES: u32 = 128;

/// Whether the purger runs, and what is to be done (purger.U2).
pub static STARTER: Starter = Starter::new();

/// Pages that a heap collects for one hint: each hint to all is a cache line that every thread writes.
pub const HINT_PAGES: u32 = 16;

/// Does what [`hint`] does, for the thread that has this heap, or its lock.
#[inline]
pub fn hint_from(heap: &Heap, pages: u32) {
    // ORDER: the thread's own.
    let mut now = heap.hinted.load(Ordering::Relaxed).wrapping_add(pages);
    if now >= HINT_PAGES {
        hint(now);
        now = 0;
    }
    heap.hinted.store(now, Ordering::Relaxed); // ORDER: as above
}

/// Notes that `pages` pages may have become reclaimable; may start the purger. Once there are enough for that it only
/// looks, until the purger takes the hint.
pub fn hint(pages: u32) {
    if STARTER.hint(pages, START_PAGES) {
        (slow::paths().start_purger)();
    }
}

/// Does what [`hint_from`] does, for a span with `free` free slots. Its heap's lock is held.
pub fn hint_span(heap: &Heap, span: &Span, free: u32) {
    let pages = (free as usize * span.size() / PAGE) as u32;
    // ORDER: the lock is held (span.S3). What is clean was hinted at before, and went.
    let dirty = pages.saturating_sub(span.clean.load(Ordering::Relaxed).count_ones());
    if dirty > 0 {
        hint_from(heap, dirty);
    }
}

/// Starts the purger, unless it runs, since there is work. Cost if it runs: one load.
#[inline]
pub fn wanted() {
    if !STARTER.runs() {
        (slow::paths().start_purger)();
    }
}
