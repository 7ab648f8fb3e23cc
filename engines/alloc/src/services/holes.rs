//! Giving back 4 KiB pages inside spans that still hold live blocks.
//!
//! ```text
//!   span  [ page 0 ][ page 1 ][ page 2 ][ page 3 ]        live blocks in pages 0 and 3
//!            kept      purged    purged    kept           clean = 0110
//! ```
//!
//! O1  A page is purged only if every slot that touches it is free, and the heap's lock is held: then no thread can
//!     allocate there before the purge is done (span.S5).
//! O2  `clean` is forgotten as blocks are taken from a page, under the same lock; `HOLES` is the sum of its bits.
//! O3  The lock is held for [`CHUNK`] spans at most, so that the owner's slow path waits for one
//!     batch, about 100 µs, and its fast path for nothing.
//!
//! Not here: which spans the purger looks at while the program does nothing (`round`), when (`purger`), free runs of the
//! pool (`pages`).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_pages::{PAGE, purge::Batch};

use super::batch::{PURGE_LOCK, batch};
use crate::heaps::pool::{HOLES, TOUCHED};
use crate::heaps::{cache, events, hollow, retire};
use crate::mechanism::class;
use crate::mechanism::heap::{Heap, usage};
use crate::mechanism::lock::Who;
use crate::mechanism::range::at;
use crate::mechanism::span::Span;

pub mod round;

/// The most spans for which a walk holds the lock.
const CHUNK: u32 = 64;
/// A heap below this many pages is not searched for holes before it grows: 1 MiB.
const SEARCH_PAGES: u32 = 256;
/// Fewest pages by which a heap grows between two searches.
const LEAST_GROWTH: u32 = 64;

/// Number of pages purged inside spans so far.
pub static PURGED: AtomicU64 = AtomicU64::new(0);
/// The most pages that were resident, as far as this file knows, when a heap was about to grow.
static PEAK: AtomicU32 = AtomicU32::new(0);

/// The result of a walk, or of a part of a round.
#[derive(Clone, Copy, Default)]
pub struct Walked {
    /// Number of pages purged.
    pub purged: u32,
    /// Number of spans with free pages that were left for the next round.
    pub pending: u32,
    /// Number of spans looked at.
    pub looked: u32,
}

/// Returns a number for a walk or a round, by which it knows what it has seen. Each heap counts its own: with one counter
/// for 255 heaps each would get the same number in every round.
fn new_visit(heap: &Heap) -> u8 {
    // ORDER: only distinct numbers are wanted. 0 is what spans carry that were listed since.
    (heap.walks.fetch_add(1, Ordering::Relaxed) % 255 + 1) as u8
}

/// Walks all of a heap's spans and purges what can be purged, however lately it changed. Takes the heap's lock, piece by
/// piece.
///
/// `who` must not be the holder of the lock.
pub fn walk(heap: &Heap, who: Who, batch: &mut Batch) -> Walked {
    let mut done = Walked::default();
    if hollow::is_hollow(heap) {
        return done;
    }
    cache::age(heap, who, true);
    let visit = new_visit(heap);
    if !heap.lock.lock(who) {
        return done;
    }
    // SAFETY: the lock is held; without a thread the heap is ours for the time (heap.H1).
    unsafe {
        // ORDER: the lock is held.
        let used_by = heap.usage.load(Ordering::Relaxed);
        if used_by != usage::THREAD {
            retire::settle(heap);
            events::drain(heap);
            retire::cool(heap, true);
        }
        // Tenants' heaps are used under their lock only, so theirs can be taken from them.
        if used_by >= usage::TENANT {
            retire::release_current(heap);
        }
    }
    heap.lock.unlock();
    for class in 0..class::count() {
        // SAFETY: it takes the lock itself.
        unsafe { walk_empty(heap, class, who, batch, &mut done) };
        walk_current(heap, class, who, batch, &mut done);
        for list in [&heap.partial[class], &heap.full[class]] {
            walk_list(heap, list, who, visit, batch, &mut done);
        }
    }
    hollow_out(heap, who, true, batch);
    done
}

/// Brings a heap that was left nearer to being hollow; `true`: a step is left.
fn hollow_out(heap: &Heap, who: Who, now: bool, batch: &mut Batch) -> bool {
    if !hollow::is_due(heap) || !heap.lock.lock(who) {
        return false;
    }
    // SAFETY: the lock is held.
    let more = unsafe { hollow::step(heap, now, batch) };
    heap.lock.unlock();
    more
}

/// Purges the span that a class allocates from, whose owner may be idle for long.
fn walk_current(heap: &Heap, class: usize, who: Who, batch: &mut Batch, done: &mut Walked) {
    if Heap::is_none(heap.current(class)) || !heap.lock.lock(who) {
        return;
    }
    let span = heap.current(class);
    if !Heap::is_none(span) {
        done.looked += 1;
        // SAFETY: the current span of a class is live (heap.H3), and changes under the lock, which is held.
        unsafe { purge_now(&*span, batch, done) };
        batch.flush();
    }
    heap.lock.unlock();
}

/// Gives the empty spans of a heap that needs none back whole.
unsafe fn walk_empty(heap: &Heap, class: usize, who: Who, batch: &mut Batch, done: &mut Walked) {
    let list = &heap.empty[class];
    // ORDER: a look; the lock orders.
    while list.load(Ordering::Relaxed) != 0 {
        if !heap.lock.lock(who) {
            return;
        }
        // ORDER: the lock is held.
        let head = list.load(Ordering::Relaxed);
        if head != 0 {
            let span = at::<Span>(head);
            // SAFETY: a listed span is live (heap.H3); it has no live block, and the lock is held (O1).
            unsafe {
                done.purged += purge_span(&*span, batch);
                batch.flush();
                heap.give_or_wait(span);
            }
        }
        heap.lock.unlock();
    }
}

/// Walks one list by rotating it, so that each hold of the lock goes on where the last one stopped.
fn walk_list(
    heap: &Heap,
    list: &AtomicU32,
    who: Who,
    visit: u8,
    batch: &mut Batch,
    done: &mut Walked,
) {
    let mut more = true;
    // ORDER: a look.
    while more && list.load(Ordering::Relaxed) != 0 {
        if !heap.lock.lock(who) {
            return;
        }
        for _ in 0..CHUNK {
            // ORDER: the lock is held.
            let head = list.load(Ordering::Relaxed);
            if head == 0 {
                more = false;
                break;
            }
            // SAFETY: a listed span is live (heap.H3).
            let span = unsafe { &*at::<Span>(head) };
            if span.visit.load(Ordering::Relaxed) == visit {
                more = false;
                break;
            }
            span.visit.store(visit, Ordering::Relaxed); // ORDER: the lock is held
            // ORDER: as above.
            list.store(span.next.load(Ordering::Relaxed), Ordering::Relaxed);
            done.looked += 1;
            // A free that the owner's drain came too early for (free.F2): the owner is to look again. Without a thread
            // our next round does.
            if span.has_remote() && events::notify(span) {
                done.pending += 1;
            }
            // SAFETY: the lock is held (O1).
            unsafe { purge_now(span, batch, done) };
        }
        batch.flush();
        heap.lock.unlock();
    }
}

/// Returns the pages of a span that are free and were not purged, unless so few slots are free that there is none. The
/// heap's lock is held.
fn dirty_pages(span: &Span) -> u16 {
    // With the tail, which is free whatever the slots are: of less than a page none is.
    if (span.free_slots() as usize) * span.size() + span.tail() < PAGE {
        return 0;
    }
    // ORDER: the lock is held (span.S3).
    span.free_pages() & !span.clean.load(Ordering::Relaxed)
}

/// Purges a span's free pages.
///
/// # Safety
/// As for [`purge_span`].
unsafe fn purge_now(span: &Span, batch: &mut Batch, done: &mut Walked) {
    if dirty_pages(span) != 0 {
        // SAFETY: as the caller promises.
        done.purged += unsafe { purge_span(span, batch) };
    }
}

/// Puts the free pages of a span into the batch; returns how many.
///
/// # Safety
/// The heap's lock is held, and the batch is flushed before it is given back.
unsafe fn purge_span(span: &Span, batch: &mut Batch) -> u32 {
    // ORDER: the lock is held (span.S3).
    let clean = span.clean.load(Ordering::Relaxed);
    let pages = span.free_pages() & !clean;
    let mut rest = pages;
    while rest != 0 {
        let first = rest.trailing_zeros();
        let run = (!(rest >> first)).trailing_zeros().min(16 - first);
        if batch.is_full() {
            batch.flush();
        }
        batch.add(span.start() + first as usize * PAGE, run as usize * PAGE);
        rest &= !((((1u32 << run) - 1) << first) as u16);
    }
    span.clean.store(clean | pages, Ordering::Relaxed); // ORDER: as above
    HOLES.fetch_add(pages.count_ones(), Ordering::Relaxed); // ORDER: a statistic
    PURGED.fetch_add(u64::from(pages.count_ones()), Ordering::Relaxed); // ORDER: a statistic
    pages.count_ones()
}

/// Purges holes of a heap that is about to grow. After that it searches again only after some growth.
///
/// # Safety
/// The heap's lock is held by its owner.
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe fn before_growing(heap: &Heap) {
    // ORDER: the owner's own, and hints.
    let pages = heap.pages.load(Ordering::Relaxed);
    if pages < SEARCH_PAGES || pages < heap.search_at.load(Ordering::Relaxed) {
        return;
    }
    // Growth within what the process has held before raises no peak.
    let holes = HOLES.load(Ordering::Relaxed); // ORDER: a hint
    let resident = TOUCHED.load(Ordering::Relaxed).saturating_sub(holes); // ORDER: a hint
    if resident < PEAK.fetch_max(resident, Ordering::Relaxed) {
        // ORDER: a hint
        return;
    }
    // Only tried: PURGE_LOCK comes before a heap's lock in the order, and this heap's is held.
    if !PURGE_LOCK.try_lock(heap.holder()) {
        return;
    }
    // SAFETY: the lock is held.
    let batch = unsafe { batch() };
    let mut done = Walked::default();
    for class in 0..class::count() {
        for list in [&heap.partial[class], &heap.full[class]] {
            // SAFETY: the heap's lock is held.
            unsafe { search(list, batch, &mut done) };
        }
    }
    batch.flush();
    PURGE_LOCK.unlock();
    // A look is a few dozen instructions and a cache line, a new page a fault, which costs some fifty times that. One
    // new page for four looks keeps the search small beside what the growth costs anyway; if it found little, one new
    // page for each look.
    let worth = if done.purged >= done.looked / 16 {
        4
    } else {
        1
    };
    let growth = (done.looked / worth).max(LEAST_GROWTH);
    // ORDER: the owner's own.
    heap.search_at.store(pages + growth, Ordering::Relaxed);
}

/// # Safety
/// The heap's lock is held.
unsafe fn search(list: &AtomicU32, batch: &mut Batch, done: &mut Walked) {
    // ORDER: the lock is held.
    let head = list.load(Ordering::Relaxed);
    let mut next = head;
    while next != 0 {
        // SAFETY: a listed span is live (heap.H3) and not Current.
        let span = unsafe { &*at::<Span>(next) };
        done.looked += 1;
        // SAFETY: as above.
        unsafe { purge_now(span, batch, done) };
        next = span.next.load(Ordering::Relaxed); // ORDER: as above
        if next == head {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
