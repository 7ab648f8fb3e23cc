//! The slow path of frees, taken when enough have come together, or at the first since the purger looked: a span changes
//! its list, or goes, or stays as it is; the purger is to look at it.
//!
//! ```text
//!   left: 0 ──► event ──┐                        ┌─► partial, with the next event at a quarter of what is live
//!   notified ─► drain ──┴─► collect R, count ────┼─► nothing live: kept among the empty ones, or to the pool
//!                                                └─► as it was, with a new countdown
//! ```
//!
//! Not here: frees themselves (`free`), the lists (`lists`), where spans go (`spans`).

use skinflint_base::sync::Ordering;

use super::{changes, hints};
use crate::mechanism::heap::{Heap, event_of, usage};
use crate::mechanism::map::descriptor;
use crate::mechanism::range::{at, base};
use crate::mechanism::remote::{self, Note};
use crate::mechanism::span::{Span, state};

/// Puts a block that is not in F, nor in R, into F and D.
///
/// # Safety
/// The caller owns the block's heap, or has its lock while it has no thread.
pub unsafe fn to_bits(heap: &Heap, block: *mut u8) {
    // SAFETY: a block of a span of this heap.
    unsafe {
        let span = &*descriptor(block as usize - base());
        let Some(slot) = span.slot_of(block as usize) else {
            return;
        };
        let slot_bits = span.slot_bits(slot / 64);
        let bit = 1 << (slot % 64);
        slot_bits.bury(bit);
        slot_bits.give(bit);
        let left = span.left.load(Ordering::Relaxed); // ORDER: own (span.S2)
        span.left.store(left.wrapping_sub(1), Ordering::Relaxed); // ORDER: own (span.S2)
        if left == 1 {
            event_slow(block, span, heap);
        }
    }
}

/// Puts a span on its owner's notified stack, unless it is there. `true`: it is there now, and the caller, which has the
/// heap's lock, should hint at its pages (`holes`), since the owner may be idle.
pub fn notify(span: &Span) -> bool {
    remote::notify_locked(span)
}

/// Looks at every span that other threads freed into. Takes the whole stack, so there is no ABA.
///
/// # Safety
/// The heap's lock is held, by its owner or while it has none.
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe fn drain(heap: &Heap) {
    // SAFETY: a span on the stack is not given away (`Heap::give_or_wait`).
    let span_at = |offset| unsafe { &*at::<Span>(offset) };
    // SAFETY: as the caller promises.
    remote::drain(&heap.notified, span_at, |span| unsafe { event(heap, span) });
}

/// Runs what a span's countdown has led to. The first argument is the block, in the register in which `free` has it.
///
/// # Safety
/// The caller owns the heap, and the span is the heap's.
#[cold]
#[inline(never)]
pub unsafe fn event_slow(_block: *mut u8, span: &Span, heap: &Heap) {
    if !heap.lock.try_lock(heap.who()) {
        // ORDER: own (span.S2): no more events until the drain sets it right.
        span.left.store(u32::MAX, Ordering::Relaxed);
        if remote::notify(span, Note::Own(&heap.notifying)) {
            hints::hint_from(heap, span.pages());
        }
        return;
    }
    // SAFETY: the owner calls, with the lock.
    unsafe { event(heap, span) };
    heap.lock.unlock();
}

/// Returns the number of frees after which to look at a partial span again: at a quarter of what is live, then at none.
fn next_event(used: u32) -> u32 {
    if used > 8 { used - used / 4 } else { used }
}

/// Counts a span's free slots anew and moves it to the list where it belongs.
///
/// # Safety
/// The heap's lock is held, by its owner or while it has none; the span is the heap's.
unsafe fn event(heap: &Heap, span: &Span) {
    // SAFETY: as the caller promises (span.S2).
    unsafe { span.collect() };
    changes::note(span);
    let used = span.used();
    // ORDER: the lock is held (span.S3).
    match span.state.load(Ordering::Relaxed) {
        state::CURRENT => span.left.store(u32::MAX, Ordering::Relaxed), // ORDER: own (span.S2)
        state::FULL | state::PARTIAL if used == 0 => {
            // SAFETY: no live block, not Current.
            unsafe { emptied(heap, span) };
        }
        // SAFETY: as the caller promises.
        state::FULL => unsafe {
            let free = u32::from(span.slots) - used;
            let few = event_of(span.slots as usize);
            if free >= few {
                heap.move_to(span, state::PARTIAL, true);
                span.left.store(next_event(used), Ordering::Relaxed); // ORDER: own (span.S2)
                hints::hint_span(heap, span, free);
            } else {
                span.left.store(few - free, Ordering::Relaxed); // ORDER: own (span.S2)
            }
        },
        state::PARTIAL => {
            span.left.store(next_event(used), Ordering::Relaxed); // ORDER: own (span.S2)
            hints::hint_span(heap, span, u32::from(span.slots) - used);
        }
        // Empty: there is no block to free.
        _ => span.left.store(u32::MAX, Ordering::Relaxed), // ORDER: own (span.S2)
    }
}

/// Handles a span that has lost its last block: keeps it for a while, or gives it to the pool.
///
/// # Safety
/// As for [`event`]; the span has no live block and is not Current.
pub unsafe fn emptied(heap: &Heap, span: &Span) {
    // ORDER: hints, under the lock.
    let kept = heap.empty_pages.load(Ordering::Relaxed) + span.pages();
    let has_thread = heap.usage.load(Ordering::Relaxed) == usage::THREAD; // ORDER: as above
    // SAFETY: as the caller promises.
    unsafe {
        if has_thread && kept <= heap.empty_pages_max() {
            heap.move_to(span, state::EMPTY, false);
            hints::hint_from(heap, span.pages());
        } else {
            heap.give_or_wait(core::ptr::from_ref(span).cast_mut());
        }
    }
}
