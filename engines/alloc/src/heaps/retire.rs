//! Retiring a heap when its thread has gone, or a trim wants all: magazines, current spans and warmth are given up.
//!
//! ```text
//!   magazines ──► bits      current span ──► partial, full, or the pool      warm ──► two walks later, cold
//! ```
//!
//! Not here: when a thread ends (`thread`), what a fork leaves behind (`fork`).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_pages::PAGE;

use super::{changes, events};
use crate::mechanism::class;
use crate::mechanism::entry::Entry;
use crate::mechanism::heap::{ENTRIES, Heap, magazine_entries};
use crate::mechanism::range::at;
use crate::mechanism::span::{Span, state};

/// The most warm heaps.
pub const WARM_MAX: u32 = 4;

/// Number of the purger's walks for which a heap stays warm.
pub const WARM_WALKS: u32 = 2;

/// Number of warm heaps.
pub static WARM: AtomicU32 = AtomicU32::new(0);

impl Heap {
    /// Gives back the pages of its magazines' entries. They read as zero afterwards, but no code reads them so: a
    /// magazine is filled before it is read (heap.H5).
    ///
    /// # Safety
    /// The heap's lock is held, and its magazines were emptied under it.
    pub unsafe fn purge_entries(&self) {
        // ORDER: as in `entries`.
        let entries = self.entries.load(Ordering::Relaxed) as usize;
        if entries == 0 {
            return;
        }
        let bytes = ENTRIES * core::mem::size_of::<Entry>();
        // SAFETY: pages of META with nothing else in them (`entries`); no code reads what they hold (see above).
        unsafe { skinflint_base::sys::advise(entries as *mut u8, bytes, libc::MADV_DONTNEED) };
    }

    /// Empties every magazine into the spans. They stay revoked until they are next filled.
    ///
    /// # Safety
    /// The heap's lock is held by its owner, or it has no thread.
    pub unsafe fn empty_magazines(&self) {
        for class in 0..class::count() {
            let bounds = &self.magazine(class).bounds;
            // Before anything is taken, for a signal handler of the owner's.
            if bounds.revoke() {
                // SAFETY: as the caller promises; blocks of this heap, which are in D and in neither F nor R (heap.H5).
                unsafe { bounds.take(|entry| events::to_bits(self, (*entry).block)) };
            }
        }
    }

    /// Returns the number of entries that a class's magazine has room for.
    pub fn room_of(&self, class: usize) -> usize {
        magazine_entries(class::get(class).size) as usize
    }

    /// Forgets the magazines of a thread that is gone without having emptied them; their blocks are
    /// found by their bits.
    ///
    /// # Safety
    /// The heap's lock is held, and it has no thread.
    pub unsafe fn forget_magazines(&self) {
        for class in 0..class::count() {
            // SAFETY: the heap has no thread, and the blocks are found by their bits.
            unsafe { self.magazine(class).bounds.take(|_| ()) };
            let current = self.current(class);
            if !Heap::is_none(current) {
                // SAFETY: the current span of a class is live (heap.H3).
                unsafe { (*current).uncache() };
                // SAFETY: as above.
                changes::note(unsafe { &*current });
            }
            for list in [&self.partial[class], &self.full[class]] {
                // ORDER: the lock is held.
                let head = list.load(Ordering::Relaxed);
                let mut next = head;
                while next != 0 {
                    // SAFETY: lists hold live descriptors (heap.H3); the heap has no thread (span.S2).
                    let span = unsafe { &*at::<Span>(next) };
                    // SAFETY: as above.
                    unsafe { span.uncache() };
                    span.left.store(1, Ordering::Relaxed); // ORDER: as above
                    changes::note(span);
                    next = span.next.load(Ordering::Relaxed); // ORDER: as above
                    if next == head {
                        break;
                    }
                }
            }
        }
    }
}

/// Bytes of the blocks that a thread gives up before it takes a span.
const OWN_BLOCK: u32 = 1_024;
/// Bytes of those that all threads may hold together, each the same, and what each may hold at least.
const OWN_ALL: usize = 4 << 20;
const OWN_LEAST: usize = 64 << 10;
/// With fewer threads each may hold what it does. Chains of ten sizes in two threads (`pattern glibc-thread`) took 16 % more
/// instructions with the rule for two.
pub const THREADS_MIN: u32 = 8;

/// Number of heaps that have a thread.
pub static THREADS: AtomicU32 = AtomicU32::new(0);

/// Gives up a thread's current spans, so that a trim can reach them.
///
/// # Safety
/// The heap's lock is held by its owner (or it has none).
pub unsafe fn release_current(heap: &Heap) {
    // SAFETY: as the caller promises.
    unsafe {
        heap.empty_magazines();
        release_spans(heap, 0);
    }
    for turns in &heap.turns {
        turns.store(0, Ordering::Relaxed); // ORDER: the lock is held
    }
}

/// Gives up a thread's free blocks of 1 KiB and more before it takes another span, if they are many: then their pages serve for
/// that. `raises`: the pages in use would reach a new maximum.
///
/// # Safety
/// The heap's lock is held by its owner.
pub unsafe fn release_own(heap: &Heap, raises: bool) {
    // ORDER: hints.
    let threads = THREADS.load(Ordering::Relaxed) as usize;
    if threads < THREADS_MIN as usize {
        return;
    }
    let share = OWN_ALL / threads;
    let eighth = heap.pages.load(Ordering::Relaxed) as usize * PAGE / 8; // ORDER: as above
    let most = if raises { eighth.min(share) } else { share }.max(OWN_LEAST);
    let Some(first) = (0..class::count()).find(|&class| class::get(class).size >= OWN_BLOCK) else {
        return;
    };
    let held = |class: usize| {
        let span = heap.current(class);
        let free = match Heap::is_none(span) {
            true => 0,
            // SAFETY: the current span of a class is live (heap.H3).
            false => unsafe { (*span).free_slots() as usize },
        };
        (heap.magazine(class).bounds.held() + free) * class::get(class).size as usize
    };
    let all: usize = (first..class::count()).map(held).sum();
    if all < most {
        return;
    }
    for class in first..class::count() {
        let bounds = &heap.magazine(class).bounds;
        if bounds.revoke() {
            // SAFETY: as in `empty_magazines`.
            unsafe { bounds.take(|entry| events::to_bits(heap, (*entry).block)) };
        }
    }
    // SAFETY: as the caller promises.
    unsafe { release_spans(heap, first) };
}

/// # Safety
/// As for [`release_current`]; the magazines of these classes are empty.
unsafe fn release_spans(heap: &Heap, first: usize) {
    for class in first..class::count() {
        let span = heap.current(class);
        if Heap::is_none(span) {
            continue;
        }
        heap.clear_current(class);
        // SAFETY: a span of this heap, Current no more.
        unsafe {
            let this = &*span;
            this.collect();
            let used = this.used();
            this.state.store(state::NONE, Ordering::Relaxed); // ORDER: the lock is held (span.S3)
            if used == 0 {
                heap.move_to(this, state::PARTIAL, true);
                events::emptied(heap, this);
            } else {
                let to = if this.free_slots() > 0 {
                    state::PARTIAL
                } else {
                    state::FULL
                };
                // ORDER: own (span.S2): due at the next free, which sets it right.
                this.left.store(1, Ordering::Relaxed);
                heap.move_to(this, to, true);
            }
        }
    }
}

/// Empties the magazines and current spans of a heap without a thread, if they have waited long enough or `now`.
/// Returns 1 if they still wait.
///
/// # Safety
/// The heap's lock is held, and it has no thread.
pub unsafe fn cool(heap: &Heap, now: bool) -> u32 {
    // ORDER: the lock is held.
    let walks = heap.warm.load(Ordering::Relaxed);
    if walks == 0 {
        return 0;
    }
    if walks > 1 && !now {
        heap.warm.store(walks - 1, Ordering::Relaxed); // ORDER: as above
        return 1;
    }
    warm_no_more(heap);
    // SAFETY: as the caller promises.
    unsafe {
        release_current(heap);
        heap.flush_empty();
    }
    0
}

/// Ends the heap's time as a warm one. The heap's lock is held.
pub fn warm_no_more(heap: &Heap) {
    // ORDER: the lock is held.
    if heap.warm.swap(0, Ordering::Relaxed) != 0 {
        WARM.fetch_sub(1, Ordering::Relaxed); // ORDER: a bound
    }
}

/// Puts in order a heap whose thread was gone in the child of a fork (fork.W3).
///
/// # Safety
/// The heap's lock is held, and it has no thread.
pub unsafe fn settle(heap: &Heap) {
    // ORDER: the lock is held.
    if heap.orphan.load(Ordering::Relaxed) == 0 {
        return;
    }
    heap.orphan.store(0, Ordering::Relaxed); // ORDER: as above
    // SAFETY: as the caller promises.
    unsafe {
        heap.forget_magazines();
        release_current(heap);
    }
}
