//! Who can tell how large a block of this program's is.
//!
//! ```text
//!   alloc, at its first heap ──answer_with──► ANSWERS ◄──asked── report::usable, for reporters and caches
//! ```
//!
//! H1  Only a function that may be asked about any address, and answers 0 for what is not its own, is put here: whether
//!     the program's blocks come from there is seen by the answer, and nobody has to promise it.
//!
//! Not here: blocks of allocators that cannot be asked so (`report::usable`).

use core::sync::atomic::{AtomicPtr, Ordering};

/// Usable bytes of a block of its own; 0 for any other address.
pub type Answer = unsafe fn(*const u8) -> usize;

static ANSWERS: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has blocks asked about here. Cost: one store.
///
/// # Safety
/// The function may be called at any time, on any thread, with any address (H1).
pub unsafe fn answer_with(answer: Answer) {
    // ORDER: Relaxed: a function's address and nothing behind it.
    ANSWERS.store(answer as *mut (), Ordering::Relaxed);
}

/// Usable bytes of a block; 0: nobody here knows it. Cost: one load, and the answer.
#[inline]
pub fn asked(block: *const u8) -> usize {
    // ORDER: Relaxed: as in `answer_with`.
    let answer = ANSWERS.load(Ordering::Relaxed);
    if answer.is_null() {
        return 0;
    }
    // SAFETY: only `answer_with` writes there, and it wrote a function of this type.
    let answer: Answer = unsafe { core::mem::transmute::<*mut (), Answer>(answer) };
    // SAFETY: H1: any address may be asked about.
    unsafe { answer(block) }
}
