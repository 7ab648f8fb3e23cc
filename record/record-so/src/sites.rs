//! The hooked functions of allocators that the program is linked with, and what came of hooking them: what the rest of the
//! recorder asks about.
//!
//! ```text
//!   linked.rs ─ once, before main ─► sites, status ◄─ hooks/linked.rs, usable.rs, stacks.rs, process.rs
//! ```
//!
//! W6  All of it is written by the process's only thread, before any code leads to a hook; afterwards only the count of
//!     calls that were not recorded changes.
//!
//! Not here: hooking (linked.rs).

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use skinflint_base::plan::{Call, MOST_HOOKS, NONE, scheme, what};
use skinflint_base::ring::{LINKED_HOOKED, ProcessHeader};

/// A hooked function, as its hook sees it.
#[repr(C)]
pub struct Site {
    /// The moved instructions, which go on in the function.
    pub real: *mut c_void,
    /// How the function is called.
    pub call: Call,
    /// The function that returns the usable bytes of a block of the same allocator; null if there is none.
    pub measure: *mut c_void,
}

struct Sites(UnsafeCell<[Site; MOST_HOOKS]>);
// SAFETY: W6.
unsafe impl Sync for Sites {}
static SITES: Sites = Sites(UnsafeCell::new(
    [const {
        Site {
            real: core::ptr::null_mut(),
            call: Call {
                what: what::MEASURE,
                block: NONE,
                size: NONE,
                count: NONE,
                align: NONE,
                scheme: scheme::UNKNOWN,
                func: 0,
            },
            measure: core::ptr::null_mut(),
        }
    }; MOST_HOOKS],
));

/// What the header of this process says, and of a child of fork; 0 before it was tried.
pub static STATUS: AtomicU32 = AtomicU32::new(0);
/// The near page, once there is one.
pub static NEAR: AtomicU64 = AtomicU64::new(0);
/// The bytes of the near page.
pub static NEAR_BYTES: AtomicUsize = AtomicUsize::new(0);
/// 1 if every allocator that is hooked tells how large its blocks are.
pub static TELLS: AtomicU32 = AtomicU32::new(0);
/// Calls of functions whose effects are not recorded, in this process and those that it is a copy of.
pub static UNSEEN: AtomicU64 = AtomicU64::new(0);

/// Returns the place of a site; null if there is none of that number.
pub fn place(index: usize) -> *mut Site {
    match index < MOST_HOOKS {
        // SAFETY: inside of the array.
        true => unsafe { SITES.0.get().cast::<Site>().add(index) },
        false => core::ptr::null_mut(),
    }
}

/// Shows the collector how many calls were not recorded.
pub fn publish(header: &ProcessHeader) {
    // ORDER: Relaxed for both; counters.
    let unseen = UNSEEN.load(Ordering::Relaxed);
    header.linked_unseen.store(unseen, Ordering::Relaxed);
}

/// Returns whether functions are hooked.
pub fn is_hooked() -> bool {
    STATUS.load(Ordering::Relaxed) == LINKED_HOOKED // ORDER: Relaxed; W6.
}

/// Returns whether usable sizes are known of all blocks of linked allocators; true, too, if there are none.
pub fn tells_sizes() -> bool {
    !is_hooked() || TELLS.load(Ordering::Relaxed) != 0 // ORDER: Relaxed; W6.
}

/// Returns the near page and its bytes, if there is one.
pub fn own_memory() -> Option<(u64, u64)> {
    // ORDER: Relaxed for both; W6.
    let near = NEAR.load(Ordering::Relaxed);
    (near != 0).then(|| (near, NEAR_BYTES.load(Ordering::Relaxed) as u64))
}
