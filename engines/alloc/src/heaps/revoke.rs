//! What another thread takes from a heap's thread without stopping it: the blocks in its magazines.
//!
//! ```text
//!   revoke (heap's lock) ──► barrier ──► take (heap's lock): each block's bit in R, the entries' pages to the OS
//!   the thread, if it allocates meanwhile: slow path, the lock ──► opens the magazine again, as it finds it
//! ```
//!
//! V1  A heap is taken from only if the kernel restarts the sections of its thread (section.E2), and revoked by one thread at
//!     a time, which has PURGE_LOCK: so what it finds revoked when it comes to take has been so since before its barrier.
//! V2  The blocks go to R, which is what any thread may write: F, D and `left` are the owner's plain words, and the owner
//!     may be in the middle of a free that found no room. They stay in D (span.S1). The owner moves them to F when it next
//!     looks; the pages can be given back before (span.S5).
//!     No event tells of them: each span is noted for the purger (changes.J3).
//! V3  From the barrier on the taker sees what the owner did with each block before it freed it: the barrier is one for
//!     memory, too, on the processors where threads of the process run, and the others have had one since.
//!
//! Not here: whose magazines are taken and when (`services::idle`), the bounds (`magazine`).

use skinflint_base::sync::Ordering;
use skinflint_pages::purge::Batch;

use super::changes;
use crate::mechanism::class;
use crate::mechanism::entry::{Entry, Overlay};
use crate::mechanism::heap::{ENTRIES, Heap};
use crate::mechanism::map::descriptor;
use crate::mechanism::range::base;
use crate::mechanism::remote;

/// Makes every magazine of a heap look empty and full; `false`: none was in use.
///
/// # Safety
/// The heap's lock is held, and PURGE_LOCK.
pub unsafe fn revoke(heap: &Heap) -> bool {
    let mut any = false;
    for class in 0..class::count() {
        any |= heap.magazine(class).bounds.revoke();
    }
    any
}

/// Takes the blocks out of the magazines that are still revoked; returns their number. If all are, the pages of their
/// entries go into the batch.
///
/// # Safety
/// The heap's lock is held until the batch is flushed; a barrier has come after [`revoke`] (V1).
pub unsafe fn take(heap: &Heap, batch: &mut Batch) -> usize {
    let (mut taken, mut all) = (0, true);
    for class in 0..class::count() {
        let bounds = &heap.magazine(class).bounds;
        if bounds.is_revoked() {
            // SAFETY: as the caller promises; entries have blocks of live spans, which are in D and in neither F nor R
            // (heap.H5).
            taken += unsafe { bounds.take(|entry| free(&*entry)) };
        } else {
            all &= bounds.first().is_null();
        }
    }
    // ORDER: the lock is held: its owner would have opened a magazine first.
    let entries = heap.entries.load(Ordering::Relaxed) as usize;
    if all && entries != 0 {
        if batch.is_full() {
            batch.flush();
        }
        batch.add(entries, ENTRIES * size_of::<Entry>());
    }
    taken
}

/// # Safety
/// As in [`take`].
unsafe fn free(entry: &Entry) {
    // SAFETY: as the caller promises: the span is live, and so below the limit, until its bit is set.
    unsafe {
        // No event tells of it: the purger is to look at the span.
        changes::note(&*descriptor(entry.block as usize - base()));
        let overlay: *const Overlay = entry.overlay;
        remote::set(&(*overlay).slot_bits.remote, entry.bit);
    }
}
