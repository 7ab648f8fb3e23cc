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

/// The same for what a thread begins to allocate from: many threads may hold a little each, so fewer pages are enough.
const IDLE_PAGES: u32 = 2;

/// Does what [`hint`] does, for the thread that has this heap, or its lock.
#[inline]
pub fn hint_from(heap: &Heap, pages: u32) {
    gather(heap, pages, HINT_PAGES);
}

/// Adds to the heap's own sum, which goes to the sum of all once it is `enough`.
#[inline]
fn gather(heap: &Heap, pages: u32, enough: u32) {
    // ORDER: the thread's own.
    let mut now = heap.hinted.load(Ordering::Relaxed).wrapping_add(pages);
    if now >= enough {
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

/// Notes that a thread begins to allocate from a span: what it frees there stays in its magazines and comes to no slow
/// path, so if it then rests, only the purger brings that back (idle.J1). The first heap, which is that of a program with
/// one thread, hints at nothing: a program that grows and frees nothing is to have no purger.
#[inline]
pub fn hint_idle(heap: &Heap, span: &Span) {
    // ORDER: written before the heap is seen by others (pool.G4).
    if heap.next_heap.load(Ordering::Relaxed) != 0 {
        gather(heap, span.pages(), IDLE_PAGES);
    }
}

/// Starts the purger, unless it runs, since there is work. Cost if it runs: one load.
#[inline]
pub fn wanted() {
    if !STARTER.runs() {
        (slow::paths().start_purger)();
    }
}
