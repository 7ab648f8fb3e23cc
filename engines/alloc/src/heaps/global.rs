//! The allocator for Rust programs: what `#[global_allocator]` takes.
//!
//! ```text
//!   Layout ─► align <= 16? ─► malloc, realloc, calloc        else ─► memalign
//! ```
//!
//! Not here: the C names (`malloc-so`).

use super::free::free;
use super::malloc::{calloc, malloc, memalign, realloc};

/// The allocator for Rust programs.
///
/// ```
/// #[global_allocator]
/// static HEAP: skinflint_alloc::Skinflint = skinflint_alloc::Skinflint;
///
/// fn main() {
///     let bytes = vec![7u8; 100];
///     // SAFETY: a live block; 0 would mean that it is not ours.
///     assert_eq!(unsafe { skinflint_alloc::usable_size(bytes.as_ptr()) }, 112);
/// }
/// ```
pub struct Skinflint;

// SAFETY: blocks are aligned as asked, unique, and stay until they are freed.
unsafe impl core::alloc::GlobalAlloc for Skinflint {
    #[inline]
    unsafe fn alloc(&self, layout: core::alloc::Layout) -> *mut u8 {
        // SAFETY: as the trait demands of the caller.
        unsafe {
            if layout.align() <= 16 {
                malloc(layout.size())
            } else {
                memalign(layout.align(), layout.size())
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, _layout: core::alloc::Layout) {
        // SAFETY: as above.
        unsafe { free(p) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: core::alloc::Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if layout.align() <= 16 {
                return calloc(1, layout.size());
            }
            let block = self.alloc(layout);
            if !block.is_null() {
                core::ptr::write_bytes(block, 0, layout.size());
            }
            block
        }
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: core::alloc::Layout, n: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if layout.align() <= 16 {
                return realloc(p, n);
            }
            let new = memalign(layout.align(), n);
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(p, new, layout.size().min(n));
                free(p);
            }
            new
        }
    }
}
