//! An allocator that knows how many bytes are out, for the heap: what objects hold outside of it.
//!
//! C1  Bytes are those asked for. Only the engine's thread counts exactly; what other threads (of the allocator or
//!     the sweeper) take and free at the same instant may be lost from the count, which steers and proves nothing.
//!
//! Cost: one load, one addition, one store for each call.
//!
//! What ended objects held may be freed by another thread (`beside`).
//!
//! Not here: what the count is used for (`boa_gc::skinflint::set_client_bytes`).

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::beside;

static OUT: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are out now.
pub fn bytes() -> usize {
    OUT.load(Ordering::Relaxed) // ORDER: Relaxed: a count (C1)
}

#[inline]
fn add(bytes: usize) {
    // ORDER: Relaxed: a count; not one operation, since that would cost twenty times as much (C1).
    OUT.store(
        OUT.load(Ordering::Relaxed).wrapping_add(bytes),
        Ordering::Relaxed,
    );
}

/// An allocator, counted.
pub struct Counted<A>(pub A);

// SAFETY: every call is the inner allocator's own.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the trait demands of the caller.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if beside::is_beside() {
            // SAFETY: as above.
            return unsafe { self.0.dealloc(block, layout) };
        }
        add(layout.size().wrapping_neg());
        // SAFETY: as above; who frees it is decided here.
        if !unsafe { beside::hand(block, layout) } {
            // SAFETY: as above.
            unsafe { self.0.dealloc(block, layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size.wrapping_sub(layout.size()));
        // SAFETY: as above.
        unsafe { self.0.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn what_is_out_is_counted() {
        let counted = Counted(System);
        let layout = Layout::from_size_align(1000, 8).expect("a layout");
        let before = bytes();
        // SAFETY: the blocks are used by their layouts, and freed once.
        unsafe {
            let block = counted.alloc(layout);
            assert_eq!(bytes() - before, 1000);
            let block = counted.realloc(block, layout, 5000);
            assert_eq!(bytes() - before, 5000);
            counted.dealloc(block, Layout::from_size_align(5000, 8).expect("a layout"));
        }
        assert_eq!(bytes(), before);
    }
}
