//! Another allocator that works in the same process, and whose blocks may come to us.
//!
//! ```text
//!   plug-in, bound past us ─► glibc's malloc ─► block ─► … ─► our free ─► not ours ─► glibc's free
//! ```
//!
//! N1  There is no neighbour until the drop-in library has seen a module that was bound past it. Until then an address
//!     that is not ours is a fault of the program, and reported.
//! N2  With a neighbour, what is not ours is its to judge: it reports faults as it always does.
//!
//! Not here: which modules are bound past us (`malloc-so`).

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The type of its `free`.
pub type Free = unsafe extern "C" fn(*mut c_void);
/// The type of its `malloc_usable_size`.
pub type Usable = unsafe extern "C" fn(*mut c_void) -> usize;

static FREE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static USABLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Names the neighbour, for good. Thread-safe; the last call counts.
pub fn is(free: Free, usable: Usable) {
    USABLE.store(usable as *mut c_void, Ordering::Relaxed); // ORDER: Relaxed; published by FREE.
    // ORDER: Release; pairs with the Acquires below. A module's blocks are released after its dlopen has named the
    // neighbour, or by the thread that does. [reason: handed]
    FREE.store(free as *mut c_void, Ordering::Release);
}

/// Gives a block that is not ours to the neighbour. `false`: there is none.
#[cold]
pub fn free(p: *mut u8) -> bool {
    // ORDER: Acquire; pairs with the Release in `is`. [reason: handed]
    let free = FREE.load(Ordering::Acquire);
    if free.is_null() {
        return false;
    }
    // SAFETY: `is` stored a function of this type; the program says that the block is one (N2).
    unsafe { core::mem::transmute::<*mut c_void, Free>(free)(p.cast()) };
    true
}

/// Returns the bytes that may be used of a block, by the neighbour. `None`: there is no neighbour.
#[cold]
pub fn usable(p: *const u8) -> Option<usize> {
    // ORDER: Acquire; pairs with the Release in `is`: a thread that sees FREE sees USABLE. [reason: handed]
    if FREE.load(Ordering::Acquire).is_null() {
        return None;
    }
    let usable = USABLE.load(Ordering::Relaxed); // ORDER: Relaxed; published by FREE.
    // SAFETY: as in `free`.
    Some(unsafe { core::mem::transmute::<*mut c_void, Usable>(usable)(p.cast_mut().cast()) })
}
