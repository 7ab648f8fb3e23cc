//! What heaps tell the profile of blocks that it may have sampled, where a free or a malloc alone does not tell it.
//!
//! ```text
//!   malloc_large ─► large ─► a sample? ─► the mark in the descriptor ─► free finds it (large::settle)
//!   realloc in place ─► small: stayed        large: begin ─► resized ─► end        └ no memory ─► cancel
//! ```
//!
//! W1  A sample is taken out before its block may come to another address, and put back if the block stays: else another
//!     thread's sample of the old address would be taken for it.
//! W2  What a resized block becomes depends on its pages, and never on whether it is a sample: so samples stay unbiased.
//!     With the pages it had, it is the block it was, with other requested bytes; with other pages it is drawn anew.
//!
//! Not here: which blocks are samples (`services::profile`); small blocks' frees (`free`).

use super::large;
use super::runs::{Large, SAMPLED};
use super::slow::{self, Sample};
use super::tls;

/// Tells of a new large block of so many requested bytes. Null is allowed.
#[cold]
#[inline(never)]
pub fn large(p: *mut u8, n: usize) {
    let heap = tls::get();
    if p.is_null() || heap.is_null() || tls::is_ended(heap) {
        return;
    }
    // SAFETY: a thread's heap stays (pool.G4).
    if (slow::paths().profile.large)(unsafe { &*heap }, p, n) {
        mark(p);
    }
}

/// Marks a large block as a sample; one that is none of HEAP's (`emergency`) is not freed.
fn mark(p: *mut u8) {
    let inside = (p as usize).wrapping_sub(crate::mechanism::range::base())
        < crate::mechanism::range::limit();
    // SAFETY: in HEAP; a live block of the caller's.
    unsafe {
        if inside && let Some(large) = large::find(p) {
            (*large).marks |= SAMPLED;
        }
    }
}

/// Tells of a small block of the heap of samples that a realloc leaves where it is.
#[cold]
#[inline(never)]
pub fn stayed(p: *mut u8, n: usize) {
    let profile = &slow::paths().profile;
    if let Some(mut sample) = (profile.taken)(p) {
        sample.requested = n;
        (profile.put_back)(sample);
    }
}

/// Takes the sample of a large block out, if it is one, before it is resized (W1). Cost if not: one load.
///
/// # Safety
/// A live block of the caller's.
#[inline]
pub unsafe fn begin(large: *mut Large) -> Option<Sample> {
    // SAFETY: as the caller promises.
    unsafe {
        if (*large).marks & SAMPLED == 0 {
            return None;
        }
        (*large).marks &= !SAMPLED;
        (slow::paths().profile.taken)((*large).start as *mut u8)
    }
}

/// Ends what [`begin`] began, for a block that now has so many bytes and lies there (W2).
#[inline]
pub fn end(sample: Option<Sample>, p: *mut u8, n: usize, same_pages: bool) {
    if same_pages {
        if let Some(sample) = sample {
            put_back(Sample {
                requested: n,
                ..sample
            });
        }
    } else {
        large(p, n);
    }
}

/// Ends what [`begin`] began, for a block that is as it was.
#[inline]
pub fn cancel(sample: Option<Sample>, p: *mut u8) {
    if let Some(sample) = sample {
        debug_assert!(sample.address == p as usize);
        put_back(sample);
    }
}

#[cold]
fn put_back(sample: Sample) {
    if (slow::paths().profile.put_back)(sample) {
        mark(sample.address as *mut u8);
    }
}
