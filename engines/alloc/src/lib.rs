//! The allocator's engine: thread-owned spans with bitmaps outside the blocks.
//!
//! ```text
//!   api ──► heap (a thread's) ──► span (bits) ──► page run ──► pages::Pool ──► the OS
//!   free ─┘        │ notified ◄── other threads                  │
//!                holes, purger ──── 4 KiB pages back to the OS ──┘
//! ```
//!
//! Not here: the C symbols (`malloc-so`), page runs (`pages`).
#![cfg_attr(not(test), no_std)]
// The models include the files that they test (`tests/models.rs`): statics and assembly do not work under loom.
#![cfg(not(loom))]

mod api;
mod bits;
mod cgroup;
pub mod check;
mod class;
mod emergency;
mod fault;
pub mod fit;
pub mod fork;
mod free;
mod fresh;
mod harden;
mod heap;
pub mod hidden;
mod holes;
mod large;
mod lists;
mod lock;
pub mod neighbour;
pub mod options;
mod place;
mod publish;
mod purger;
mod remote;
mod reserve;
mod sample;
mod span;
mod spans;
mod starter;
mod state;
pub mod stats;
mod stats_text;
mod tenant;
mod thread;
mod tls;
#[cfg(test)]
mod turn;

pub use api::{calloc, malloc, memalign, realloc, usable_size};
pub use fault::{Line, Policy, set_policy};
pub use free::free;
pub use place::{Inside, Place};
pub use purger::{allow as allow_purger, trim, trim_hidden};
pub use reserve::{LISTENERS, Level, Listener, off_pressure, on_pressure, set_reserve};
pub use sample::{Estimate, reseed};
pub use stats_text::{to_buffer, write_json};
pub use tenant::{Holds, Tenant};

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
