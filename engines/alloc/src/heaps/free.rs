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

use skinflint_base::sync::{AtomicU32, Ordering};

use super::events::event_slow;
use super::fault::{self, Fault};
use super::{emergency, hints, large, neighbour, slow, tls};
use crate::mechanism::branch::branch;
use crate::mechanism::entry::{DEAD_AT, Entry, REMOTE_AT};
use crate::mechanism::heap::Heap;
use crate::mechanism::map::{descriptor, descriptor_from};
use crate::mechanism::range::{FAST_LIMIT, base, limit, meta_and_distance};
use crate::mechanism::remote::{self, Note};
use crate::mechanism::section;
use crate::mechanism::span::{KIND_CACHED, KIND_LARGE, KIND_SAMPLED, KIND_SMALL, OWNER_AT, Span};

/// Frees a block. Null is allowed. Cost for a small block of this thread: 39 instructions, with a dozen loads and five
/// stores among them and no locked instruction (callgrind, `pair48`, 2026-11-26).
///
/// # Safety
/// `p` is null or a block that nothing uses afterwards; any other address is reported (F1).
#[inline(always)]
pub unsafe fn free(p: *mut u8) {
    let (meta, distance) = meta_and_distance(p as usize);
    // SAFETY: a load of the range (range.G2).
    unsafe {
        #[cfg(target_arch = "x86_64")]
        branch!(
            "cmp {distance}, qword ptr [rip + skinflint_range + {fast_limit}]",
            "jae",
            [distance = in(reg) distance, fast_limit = const FAST_LIMIT],
            [readonly],
            else {
                // SAFETY: as the caller promises.
                return unsafe { free_unusual(p) };
            }
        );
        #[cfg(not(target_arch = "x86_64"))]
        if distance >= crate::mechanism::range::fast_limit() {
            return free_unusual(p);
        }
    }
    // SAFETY: below the limit.
    let span = unsafe { descriptor_from(meta, distance) };
    let heap = tls::heap_or_marker();
    // ORDER: as Relaxed: the owner of a live block's span changes only while its heap has no thread.
    // SAFETY: a load of the descriptor.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        branch!(
            "cmp dword ptr [{span} + {owner}], {heap:e}",
            "jne",
            [span = in(reg) span, owner = const OWNER_AT, heap = in(reg) heap],
            [readonly],
            else {
                // SAFETY: as the caller promises.
                return unsafe { free_other(p, span) };
            }
        );
        // ORDER: as above.
        #[cfg(not(target_arch = "x86_64"))]
        if span.owner.load(Ordering::Relaxed) != heap as usize as u32 {
            return free_other(p, span);
        }
    }
    // SAFETY: the heap is this thread's, and the span is small, since its owner is a heap.
    unsafe { free_own(heap, span, p) }
}

#[inline(always)]
unsafe fn free_own(heap: *mut Heap, span: &Span, p: *mut u8) {
    let Some(slot) = span.slot_at(p as usize) else {
        return misaligned(p);
    };
    let bit = bit_of(slot);
    // SAFETY: the slot is below `slots`, or the one behind (span.S8).
    let overlay = unsafe { span.overlay(slot / 64) };
    // ORDER: R: a look: no other thread may free a live block, so its own bit stands still. D: own (bits.B1).
    // SAFETY: loads of the descriptor.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        branch!(
            "mov {dead}, qword ptr [{overlay} + {remote_at}]
             or {dead}, qword ptr [{overlay} + {dead_at}]
             test {dead}, {bit}",
            "jnz",
            [dead = out(reg) _, overlay = in(reg) overlay, bit = in(reg) bit, remote_at = const REMOTE_AT, dead_at = const DEAD_AT],
            [readonly],
            else { return not_live(p, span) }
        );
        #[cfg(not(target_arch = "x86_64"))]
        if (*overlay).slot_bits.is_dead(bit) {
            return not_live(p, span);
        }
    }
    // SAFETY: as above.
    let slot_bits = unsafe { &(*overlay).slot_bits };
    slot_bits.bury(bit);
    // SAFETY: a thread's heap stays (pool.G4), and begins with its magazines; the block is dead.
    let kept = unsafe {
        section::push(
            heap.cast(),
            span.magazine_offset(),
            Entry::new(p, overlay, bit),
        )
    };
    if kept {
        return;
    }
    slot_bits.give(bit);
    // ORDER: own (span.S2).
    let left = span.left.load(Ordering::Relaxed);
    span.left.store(left.wrapping_sub(1), Ordering::Relaxed); // ORDER: own (span.S2)
    if left == 1 {
        // SAFETY: the owner calls; a thread's heap stays (pool.G4).
        unsafe { event_slow(p, span, &*heap) };
    }
}

/// Returns the bit of a slot in its word: the slot modulo 64 is taken by the instruction.
#[inline(always)]
fn bit_of(slot: usize) -> u64 {
    #[cfg(not(target_arch = "x86_64"))]
    return 1 << (slot % 64);
    #[cfg(target_arch = "x86_64")]
    {
        let bit;
        // In assembly: the compiler shifts, which wants the slot in one register of them all.
        // SAFETY: registers only.
        unsafe {
            core::arch::asm!(
                "xor {bit:e}, {bit:e}",
                "bts {bit}, {slot}",
                bit = out(reg) bit,
                slot = in(reg) slot,
                options(pure, nomem, nostack),
            );
        }
        bit
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
fn not_live(p: *mut u8, span: &Span) {
    // Not passed on: it would have to be kept beside what is made of it.
    let inside = span.slot_of(p as usize).is_none();
    fault::report(
        if inside {
            Fault::Misaligned
        } else {
            Fault::Double
        },
        p,
    );
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
        let guarded = slow::hardening().is_some_and(|hardening| (hardening.free_elsewhere)(p));
        if !guarded && !emergency::is_nobodys(p) && !neighbour::free(p) {
            fault::report(Fault::Foreign, p);
        }
        return;
    }
    // SAFETY: below the limit; slow mode goes through the same doors after its own checks.
    unsafe {
        if slow::hardening().is_none_or(|hardening| (hardening.before_free)(p)) {
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
    // ORDER: the kind of a live block's descriptor does not change, but from KIND_SMALL to KIND_SAMPLED.
    match span.kind.load(Ordering::Relaxed) {
        // SAFETY: as for `free`.
        KIND_SMALL => unsafe { free_remote(p, span) },
        // SAFETY: as for `free`.
        KIND_LARGE => unsafe { large::free(p) },
        // SAFETY: as for `free`.
        kind => unsafe { free_rare(p, span, kind) },
    }
}

/// Frees a block of the heap of samples while a profile is kept; reports an address of any other kind. The profile hears of
/// it first: afterwards another thread may have the address.
#[cold]
#[inline(never)]
unsafe fn free_rare(p: *mut u8, span: &Span, kind: u8) {
    match kind {
        KIND_SAMPLED => {
            (slow::paths().profile.freed)(p);
            // SAFETY: as for `free`.
            unsafe { free_remote(p, span) };
        }
        KIND_CACHED => fault::report(Fault::Double, p),
        _ => fault::report(Fault::Unknown, p),
    }
}

/// Number of threads without a heap that are about to notify one (remote.R5).
pub static NOTIFYING: AtomicU32 = AtomicU32::new(0);

/// Frees a block of another thread's heap, or of a heap without a thread, or from a thread without a heap. Cost: one
/// locked instruction, and two more for the first such free since the owner last looked.
#[inline(always)]
unsafe fn free_remote(p: *mut u8, span: &Span) {
    let Some(slot) = span.slot_at(p as usize) else {
        return misaligned(p);
    };
    // The slot behind the last is not live either (span.S8).
    if !span.is_live(slot) {
        return not_live(p, span);
    }
    // SAFETY: the slot is below `slots`.
    let word = unsafe { &span.slot_bits(slot / 64).remote };
    let freed = remote::free(span, word, 1 << (slot % 64), || tell(span));
    if !freed {
        fault::report(Fault::Double, p);
    }
}

/// Notifies a span's owner, and hints at its pages, which stay until the block's bit is set (F2).
#[cold]
#[inline(never)]
fn tell(span: &Span) {
    let heap = tls::get();
    // SAFETY: this thread's heap, which stays (pool.G4).
    let heap = (!heap.is_null() && !tls::is_ended(heap)).then(|| unsafe { &*heap });
    let note = heap.map_or(Note::Shared(&NOTIFYING), |heap| Note::Own(&heap.notifying));
    if remote::notify(span, note) {
        match heap {
            Some(heap) => hints::hint_from(heap, span.pages()),
            None => hints::hint(span.pages()),
        }
    }
}
