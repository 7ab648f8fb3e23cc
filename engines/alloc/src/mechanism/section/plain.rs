//! The two sections as plain code, for processors without a restartable form of them.
//!
//! ```text
//!   pop    top > bottom? ─► the entry below top ─► top down ─► its bit out of D
//!   push   top < end?    ─► the entry at top    ─► top up
//! ```
//!
//! L1  No thread is ever said to be served (section.E2), so nothing is taken from a magazine but by its owner: another
//!     thread revokes it, and the owner, to which it then looks empty, opens it under the lock (magazine.M3).
//! L2  A signal handler that allocates in the middle may be given the block that the interrupted call is about to return.
//!     POSIX allows no handler to allocate; on x86-64 the kernel's restart makes that harmless all the same.
//!
//! Not here: what an owner is asked for (`idle`).

use core::ptr::null_mut;

use super::super::entry::Entry;
use super::super::magazine::Bounds;

/// Has nothing to arm.
///
/// # Safety
/// None: as on other processors.
pub unsafe fn start() {}

/// Never makes a thread one that is served (L1).
///
/// # Safety
/// None: as on other processors.
pub unsafe fn begin(_offset: isize, _bytes: u32) -> bool {
    false
}

/// See L1.
pub fn serves_this_thread() -> bool {
    false
}

/// Takes the newest block of a magazine, and makes it live; returns null if there is none.
///
/// # Safety
/// `heap` is this thread's, or a heap whose lock is held; `magazine` is the offset of a magazine in it.
#[inline(always)]
pub unsafe fn pop(heap: *const u8, magazine: usize) -> *mut u8 {
    // SAFETY: as the caller promises; an entry below `top` has a block of a live span, and its bit is set in D (heap.H5),
    // which is the owner's own.
    unsafe {
        let bounds = &*heap.add(magazine).cast::<Bounds<Entry>>();
        let Some(entry) = bounds.pop(|entry| entry.read()) else {
            return null_mut();
        };
        (*entry.overlay).slot_bits.revive(entry.bit);
        entry.block
    }
}

/// Puts a dead block into a magazine; `false`: it is full.
///
/// # Safety
/// As for [`pop`]; the block's bit is set in D, and in neither F nor R.
#[inline(always)]
pub unsafe fn push(heap: *const u8, magazine: usize, entry: Entry) -> bool {
    // SAFETY: as the caller promises; below `end` there is room for an entry.
    unsafe {
        let bounds = &*heap.add(magazine).cast::<Bounds<Entry>>();
        bounds.push(|at| at.write(entry))
    }
}
