//! Giving a block back: by the owner without a lock, by other threads through a bit and a stack.
//!
//! ```text
//!   free(p) ── page map ──► span ── mine? ──yes──► bit in D, magazine ──full──► bit in F, left -= 1 ──0──► event
//!                                      └──no───► notify the owner once, set bit in R
//! ```
//!
//! F1  A block whose bit is set already, in D or R, is freed twice; an address at which no slot begins was never given
//!     out. Both are found before anything is changed.
//! F2  Another thread's free puts the span on the owner's notified stack *before* it sets the bit, and
//!     touches nothing of the span afterwards: until the bit is set the block is live, so the span
//!     cannot go; once it is set the span may be gone. A drain that comes between the two misses
//!     the bit; it is found when the span is next allocated from or drained, and the purger sees to that:
//!     it notifies the owner of what its walk finds in R.
//! F3  Nothing here waits: an event that finds the heap's lock taken leaves the span on the notified stack.
//!
//! Not here: large blocks (`large`).

use core::arch::asm;

use skinflint_base::sync::Ordering;

use crate::fault::{self, Fault};
use crate::heap::{Entry, Heap, event_of, usage};
use crate::span::{KIND_LARGE, KIND_SMALL, OWNER_AT, Span, state};
use crate::state::{
    FAST_LIMIT, at, base, descriptor, descriptor_from, limit, meta, meta_and_distance,
};
use crate::{harden, holes, large, neighbour, remote, thread, tls};

/// Frees a block. Null is allowed. Cost for a small block of this thread: 41 instructions, with a dozen loads and five
/// stores among them and no locked instruction (callgrind, `pair48`, 2026-11-21).
///
/// # Safety
/// `p` is null or a block that nothing uses afterwards; any other address is reported (F1).
#[inline(always)]
pub unsafe fn free(p: *mut u8) {
    let (meta, distance) = meta_and_distance(p as usize);
    // Two comparisons with memory in assembly: for what may change the compiler makes a load and a comparison.
    // SAFETY: a load of the range (state.G2).
    unsafe {
        asm!(
            "cmp {distance}, qword ptr [rip + skinflint_range + {fast_limit}]",
            "jae {unusual}",
            distance = in(reg) distance,
            fast_limit = const FAST_LIMIT,
            unusual = label {
                // SAFETY: as the caller promises.
                return unsafe { free_unusual(p) };
            },
            options(readonly, nostack),
        );
    }
    // SAFETY: below the limit.
    let span = unsafe { descriptor_from(meta, distance) };
    let heap = tls::get();
    // ORDER: as Relaxed: the owner of a live block's span changes only while its heap has no thread.
    // SAFETY: a load of the descriptor.
    unsafe {
        asm!(
            "cmp dword ptr [{span} + {owner}], {heap:e}",
            "jne {other}",
            span = in(reg) span,
            owner = const OWNER_AT,
            heap = in(reg) heap,
            other = label {
                // SAFETY: as the caller promises.
                return unsafe { free_other(p, span) };
            },
            options(readonly, nostack),
        );
    }
    // SAFETY: the heap is this thread's, and the span is small, since its owner is a heap.
    unsafe { free_own(heap, span, p) }
}

#[inline(always)]
unsafe fn free_own(heap: *mut Heap, span: &Span, p: *mut u8) {
    let Some(slot) = span.slot_at(p as usize) else {
        return misaligned(p);
    };
    let bit = 1u64 << (slot % 64);
    // SAFETY: the slot is below `slots`, or the one behind (span.S8).
    let window = unsafe { span.window(slot / 64) };
    // SAFETY: as above.
    let trio = unsafe { &(*window).trio };
    if trio.is_dead(bit) {
        return not_live(p, span, slot);
    }
    // D is loaded once more, which the compiler merges with the rest into one instruction.
    trio.bury(bit);
    // SAFETY: a thread's heap stays (state.G4), and begins with its magazines.
    let magazine = unsafe { Heap::magazine_at(heap, span.magazine_offset()) };
    let top = magazine.top.get();
    if top != magazine.end.get() {
        // SAFETY: there is room below `end`.
        unsafe {
            top.write(Entry::new(p, window, bit));
            magazine.top.set(top.add(1));
        }
        return;
    }
    trio.give(bit);
    // ORDER: own (span.S2).
    let left = span.left.load(Ordering::Relaxed);
    span.left.store(left.wrapping_sub(1), Ordering::Relaxed); // ORDER: own (span.S2)
    if left == 1 {
        // SAFETY: the owner calls; a thread's heap stays (state.G4).
        unsafe { event_slow(p, span, &*heap) };
    }
}

// The slow ways out of `free` take their arguments in the order in which the fast path has them in registers.

#[cold]
#[inline(never)]
fn misaligned(p: *mut u8) {
    fault::report(Fault::Misaligned, p);
}

#[cold]
#[inline(never)]
fn not_live(p: *mut u8, span: &Span, slot: usize) {
    let inside = slot >= span.slots as usize;
    fault::report(
        if inside {
            Fault::Misaligned
        } else {
            Fault::Double
        },
        p,
    );
}

/// Puts a block that is in no bitmap into F and D.
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
        let trio = span.trio(slot / 64);
        let bit = 1 << (slot % 64);
        trio.bury(bit);
        trio.give(bit);
        let left = span.left.load(Ordering::Relaxed); // ORDER: own (span.S2)
        span.left.store(left.wrapping_sub(1), Ordering::Relaxed); // ORDER: own (span.S2)
        if left == 1 {
            event_slow(block, span, heap);
        }
    }
}

/// Frees what the fast path does not handle.
#[cold]
#[inline(never)]
unsafe fn free_unusual(p: *mut u8) {
    if p.is_null() {
        return;
    }
    let distance = (p as usize).wrapping_sub(base());
    if distance >= limit() {
        if !harden::free_elsewhere(p) && !fault::is_nobodys(p) && !neighbour::free(p) {
            fault::report(Fault::Foreign, p);
        }
        return;
    }
    // SAFETY: below the limit; slow mode goes through the same doors after its own checks.
    unsafe {
        if harden::before_free(p) {
            free_checked(p);
        }
    }
}

/// Does what [`free`] does, without the hardening checks.
///
/// # Safety
/// As for [`free`], with `p` in HEAP.
pub unsafe fn free_checked(p: *mut u8) {
    let distance = (p as usize).wrapping_sub(base());
    // SAFETY: as the caller promises.
    unsafe {
        let span = &*descriptor(distance);
        let heap = tls::get();
        // ORDER: as in `free`.
        if span.owner.load(Ordering::Relaxed) == heap as usize as u32 {
            free_own(heap, span, p);
        } else {
            free_other(p, span);
        }
    }
}

/// Frees a block of another heap, or a large one; reports any other address.
#[inline(never)]
unsafe fn free_other(p: *mut u8, span: &Span) {
    // ORDER: the kind of a live block's descriptor does not change.
    match span.kind.load(Ordering::Relaxed) {
        // SAFETY: as for `free`.
        KIND_SMALL => unsafe { free_remote(p, span) },
        // SAFETY: as for `free`.
        KIND_LARGE => unsafe { large::free(p) },
        _ => fault::report(Fault::Unknown, p),
    }
}

/// Returns the heap that owns a span.
pub fn owner_of(span: &Span) -> &'static Heap {
    let offset = remote::owner(&span.owner).wrapping_sub(meta() as u32);
    // SAFETY: owners are heaps, which stay (state.G4).
    unsafe { &*at::<Heap>(offset) }
}

/// Frees a block of another thread's heap, or of a heap without a thread, or from a thread without a heap. Cost: one
/// locked instruction, and two more for the first such free since the owner last looked.
unsafe fn free_remote(p: *mut u8, span: &Span) {
    let Some(slot) = span.slot_of(p as usize) else {
        return fault::report(Fault::Misaligned, p);
    };
    if !span.is_live(slot) {
        return fault::report(Fault::Double, p);
    }
    // SAFETY: the slot is below `slots`.
    let word = unsafe { &span.trio(slot / 64).remote };
    let freed = remote::free(span, word, 1 << (slot % 64), || {
        let heap = tls::get();
        if heap.is_null() || thread::is_ended(heap) {
            holes::hint(span.pages());
        } else {
            // SAFETY: this thread's heap, which stays (state.G4).
            holes::hint_from(unsafe { &*heap }, span.pages());
        }
    });
    if !freed {
        fault::report(Fault::Double, p);
    }
}

/// Puts a span on its owner's notified stack, unless it is there. `true`: it is there now, and the caller should hint
/// at its pages (`holes`), since the owner may be idle.
pub fn notify(span: &Span) -> bool {
    remote::notify(span)
}

/// Looks at every span that other threads freed into. Takes the whole stack, so there is no ABA.
///
/// # Safety
/// The heap's lock is held, by its owner or while it has none.
pub unsafe fn drain(heap: &Heap) {
    // SAFETY: a span on the stack is not given away (`Heap::give_or_wait`).
    let span_at = |offset| unsafe { &*at::<Span>(offset) };
    // SAFETY: as the caller promises.
    remote::drain(&heap.notified, span_at, |span| unsafe { event(heap, span) });
}

#[cold]
#[inline(never)]
unsafe fn event_slow(_block: *mut u8, span: &Span, heap: &Heap) {
    if !heap.lock.try_lock(heap.who()) {
        // ORDER: own (span.S2): no more events until the drain sets it right.
        span.left.store(u32::MAX, Ordering::Relaxed);
        if notify(span) {
            holes::hint_from(heap, span.pages());
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
                holes::hint_span(heap, span, free);
            } else {
                span.left.store(few - free, Ordering::Relaxed); // ORDER: own (span.S2)
            }
        },
        state::PARTIAL => {
            span.left.store(next_event(used), Ordering::Relaxed); // ORDER: own (span.S2)
            holes::hint_span(heap, span, u32::from(span.slots) - used);
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
            holes::hint_from(heap, span.pages());
        } else {
            heap.give_or_wait(core::ptr::from_ref(span).cast_mut());
        }
    }
}
