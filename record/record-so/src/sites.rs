//! The hooked functions of allocators in the program and in its libraries, and what came of hooking them: what the rest of the
//! recorder asks about.
//!
//! ```text
//!   linked.rs ─ before main; before a library's constructors ─► sites, statuses ◄─ hooks/linked.rs, usable.rs, stacks.rs
//! ```
//!
//! W6  A near page and the sites in it are complete before any code leads to them, and stay as they are; the entries here are
//!     written by one thread at a time: before `main`, or by the thread that opens a library, under the loader's lock.
//!
//! Not here: hooking (linked.rs).

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use skinflint_base::plan::Call;
use skinflint_base::ring::{LINKED_HOOKED, MOST_MODULES, ProcessHeader};

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

/// What the header of this process says of the program, and of a child of fork; 0 before it was tried.
pub static STATUS: AtomicU32 = AtomicU32::new(0);
/// The same of libraries, by their numbers.
static MODULES: [AtomicU32; MOST_MODULES] = [const { AtomicU32::new(0) }; MOST_MODULES];
/// 1 if an allocator that is hooked does not tell how large its blocks are.
static SILENT: AtomicU32 = AtomicU32::new(0);
/// Calls of functions whose effects are not recorded, in this process and those that it is a copy of.
pub static UNSEEN: AtomicU64 = AtomicU64::new(0);

/// A near page: the functions that it leads to are hooked.
struct Near {
    start: AtomicU64,
    bytes: AtomicUsize,
}

static NEAR: [Near; 1 + MOST_MODULES] = [const {
    Near {
        start: AtomicU64::new(0),
        bytes: AtomicUsize::new(0),
    }
}; 1 + MOST_MODULES];

/// Notes that functions are hooked. There is room for the program and for as many libraries as have numbers.
pub fn hooked(near: u64, bytes: usize, tells: bool) {
    // ORDER: Relaxed throughout; W6.
    if !tells {
        SILENT.store(1, Ordering::Relaxed);
    }
    let free = NEAR
        .iter()
        .find(|one| one.start.load(Ordering::Relaxed) == 0);
    if let Some(free) = free {
        free.bytes.store(bytes, Ordering::Relaxed); // ORDER: as above.
        free.start.store(near, Ordering::Relaxed);
    }
}

/// Says what came of the plan for a library, to this process's collector, too.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub fn settled(header: Option<&ProcessHeader>, number: u64, status: u32) {
    if let Some(place) = MODULES.get(number as usize) {
        place.store(status, Ordering::Relaxed); // ORDER: Relaxed; W6.
    }
    if let Some(header) = header {
        tell(header);
    }
}

/// Tells the collector what came of all plans.
pub fn tell(header: &ProcessHeader) {
    // ORDER: Relaxed throughout; read once the process has ended.
    header
        .linked
        .store(STATUS.load(Ordering::Relaxed), Ordering::Relaxed);
    for (place, own) in header.modules.iter().zip(&MODULES) {
        place.store(own.load(Ordering::Relaxed), Ordering::Relaxed);
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
    let modules = MODULES.iter().chain([&STATUS]);
    modules
        .into_iter()
        .any(|status| status.load(Ordering::Relaxed) == LINKED_HOOKED) // ORDER: Relaxed; W6.
}

/// Returns whether usable sizes are known of all blocks of hooked allocators; true, too, if there are none.
pub fn tells_sizes() -> bool {
    SILENT.load(Ordering::Relaxed) == 0 // ORDER: Relaxed; W6.
}

/// Returns the near pages and their bytes.
pub fn own_memory() -> impl Iterator<Item = (u64, u64)> {
    NEAR.iter().filter_map(|one| {
        // ORDER: Relaxed for both; W6.
        let near = one.start.load(Ordering::Relaxed);
        (near != 0).then(|| (near, one.bytes.load(Ordering::Relaxed) as u64))
    })
}
