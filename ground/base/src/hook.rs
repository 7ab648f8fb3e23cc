//! The allocator that gives this program its blocks, if it is one of ours that is linked into the program.
//!
//! ```text
//!   alloc, at its first heap ──set──► LINKED ◄──asked── report::usable, report::heap: for reporters and caches
//! ```
//!
//! H1  `usable` may be asked about any address, and answers 0 for what is not its own: the answer shows whether the
//!     program's blocks come from there, and nothing has to promise it.
//!
//! Not here: blocks of allocators that cannot be asked so (`report::usable`).

use core::sync::atomic::{AtomicPtr, Ordering};

/// The functions of an allocator that may be called at any time, on any thread.
pub struct LinkedAllocator {
    /// Returns the usable bytes of a block of this allocator; 0 for any other address (H1).
    pub usable: unsafe fn(*const u8) -> usize,
    /// Writes the allocator's figures to a buffer of this many bytes, as `skinflint_stats_json` does; returns the
    /// text's length.
    pub figures: unsafe fn(*mut u8, usize) -> usize,
    /// Gives free memory back to the system; returns whether there was any.
    pub trim: fn() -> bool,
}

static LINKED: AtomicPtr<LinkedAllocator> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the allocator that is asked. Cost: one store.
///
/// # Safety
/// Its functions may be called as said, `usable` with any address (H1).
pub unsafe fn set(allocator: &'static LinkedAllocator) {
    // ORDER: Release: meets the Acquire of `linked`, though what is set is a static. [reason: spare]
    LINKED.store(core::ptr::from_ref(allocator).cast_mut(), Ordering::Release);
}

/// Returns the allocator that was set, if any.
#[inline]
pub fn linked() -> Option<&'static LinkedAllocator> {
    // ORDER: Acquire: meets the Release of `set`. [reason: spare]
    let allocator = LINKED.load(Ordering::Acquire);
    // SAFETY: null, or what `set` got, which stays for ever.
    unsafe { allocator.as_ref() }
}

/// Returns the usable bytes of a block; 0 if no allocator here knows it. Cost: one load, and the answer.
#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "any address may be asked about (H1)"
)]
#[inline]
pub fn asked(block: *const u8) -> usize {
    // SAFETY: H1: any address may be asked about.
    linked().map_or(0, |allocator| unsafe { (allocator.usable)(block) })
}
