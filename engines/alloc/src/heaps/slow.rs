//! The one way up: what heaps need of the services, as a table of functions.
//!
//! ```text
//!   malloc, free, large ──► a switch: is it on? ──► paths() ──► hardening, samples, checks
//!   pool, hints ──────────────────────────────────► paths() ──► purger, reserve
//! ```
//!
//! U1  No file of this floor names one of the services: it calls through [`Paths`], which the services fill
//!     (`services::table`). The linker brings the two together, so there is no moment at which the table is empty, and
//!     no call has to begin it: the first call of `malloc` may come before any constructor.
//! U2  Nothing here is on a fast path. What is off costs a load of its switch, and no call.
//! U3  A switch is written by the service that it belongs to, and only read here.
//!
//! Not here: what the services do.

use skinflint_base::hook::LinkedAllocator;
use skinflint_base::sync::{AtomicU32, AtomicUsize, Ordering};

use crate::mechanism::heap::Heap;
use crate::mechanism::lock::Who;

/// Checks of a hardened process: if there are any, every malloc goes the slow way. Or [`PROFILED`], alone: both are asked about
/// at once where a large block is made, so that neither costs anything while it is off.
pub static HARDENED: AtomicU32 = AtomicU32::new(0);
/// There are books of a profile (`services::profile`).
pub const PROFILED: u32 = 1 << 31;
/// Level of the checks of invariants; 0: there are none.
pub static CHECKED: AtomicU32 = AtomicU32::new(0);
/// Whether anything would be done if a limit of memory came near.
pub static WATCHED: AtomicU32 = AtomicU32::new(0);
/// Bytes handed out since the last look at the limit; 0: no look is due. 1: one is due, for the purger's work alone.
pub static LOOK: AtomicUsize = AtomicUsize::new(0);
/// Pages of the peak from which on a look is due for it.
pub static PEAK_LOOK: AtomicU32 = AtomicU32::new(1_024);

/// The slow paths of the services.
pub struct Paths {
    /// The functions that reporters in the same program may call.
    pub hook: &'static LinkedAllocator,
    /// Begins the purger, unless it runs.
    pub start_purger: fn(),
    /// Purges holes of a heap that is about to grow. Its lock is held by its owner.
    pub before_growing: unsafe fn(&Heap),
    /// Gives the pages of a large block back if the program touched a part only; returns how many it did not.
    pub settle_sparse: unsafe fn(usize, u32) -> u32,
    /// Reports whether the kernel may be called for what no C library calls it for.
    pub may_ask: fn() -> bool,
    /// Counts pages that were not resident and have been handed out, so many so far. The pool's lock is held.
    pub handed_out: fn(u64),
    /// Does the purger's work if it is owed, and looks at the peak and at the limit of memory; no lock is held.
    pub near_limit: fn(),
    /// Handles the OS's refusal of so many bytes in a round of tries. `true`: another try may succeed.
    pub out_of_memory: fn(usize, &mut u32) -> bool,
    /// Checks the invariants if that is due; no lock is held.
    pub check: fn(),
    /// Handles a budget that a request of so many bytes has used up: returns its block if it is a sample.
    pub sampled: fn(&Heap, usize) -> Option<*mut u8>,
    /// What the profile does.
    pub profile: Profile,
    /// What the hardening does.
    pub hardening: Hardening,
    /// Takes the locks of the services, before a fork, in the name of the caller.
    pub before_fork: fn(Who),
    /// Releases them in the parent.
    pub after_fork: fn(Who),
    /// Frees them in the child.
    pub in_child: fn(),
}

/// The slow paths of a hardened process.
#[derive(Clone, Copy)]
pub struct Hardening {
    /// Sends the mallocs of a new heap the slow way.
    pub new_heap: fn(&Heap),
    /// Allocates a small block.
    pub malloc: unsafe fn(*mut Heap, usize) -> *mut u8,
    /// Allocates a large block, and says whether it is zero. `None`: it goes without guards.
    pub malloc_large: fn(usize, usize) -> Option<(*mut u8, bool)>,
    /// Allocates a small block at a multiple of something. `None`: not handled here.
    pub memalign: fn(usize, usize) -> Option<*mut u8>,
    /// Resizes a block by moving it. `None`: it is not ours.
    pub realloc: unsafe fn(*mut u8, usize) -> Option<*mut u8>,
    /// Returns the usable bytes of a block. `None`: it is not ours.
    pub usable: fn(*const u8) -> Option<usize>,
    /// Frees a block that is not in HEAP. `false`: it is not ours.
    pub free_elsewhere: fn(*mut u8) -> bool,
    /// Checks a block that is about to be freed. `true`: the caller frees it.
    pub before_free: unsafe fn(*mut u8) -> bool,
    /// Notes that pages were given back without a look at them.
    pub contents_unknown: fn(),
    /// Really frees the blocks that wait. `false`: no block waited.
    pub relieve: fn() -> bool,
}

/// The slow paths of a profile.
#[derive(Clone, Copy)]
pub struct Profile {
    /// Returns the block for a request of so many bytes, with an alignment and so a size of its own, if it is a sample; only
    /// then it counts the request.
    pub aligned: fn(&Heap, usize, usize) -> Option<*mut u8>,
    /// Notes a large block of so many requested bytes if it is a sample. `true`: it is, and is to be marked.
    pub large: fn(&Heap, *mut u8, usize) -> bool,
    /// Handles a sampled block that is about to be freed; others are let be.
    pub freed: fn(*mut u8),
    /// Takes out a sample that is about to be resized. `None`: there is none at this address.
    pub taken: fn(*mut u8) -> Option<Sample>,
    /// Puts a sample back, with another size or not. `true`: it is there, and its block is to be marked.
    pub put_back: fn(Sample) -> bool,
}

/// A sampled block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Its address; 0: none.
    pub address: usize,
    /// Bytes that were requested.
    pub requested: usize,
    /// The probability with which it became a sample.
    pub probability: f64,
    /// The number of its stack.
    pub stack: u32,
    /// When it was acquired, in seconds (`services::profile::known::seconds`).
    pub born_s: u32,
    /// Where it would lie if it were no sample (`services::profile::beside`); 0: not known, or it lies there.
    pub place: usize,
}

// The definition is `services::table::PATHS`, of this very type.
unsafe extern "Rust" {
    #[link_name = "skinflint_slow_paths"]
    safe static PATHS: Paths;
}

/// Returns the table.
#[inline]
pub fn paths() -> &'static Paths {
    &PATHS
}

/// Returns the hardening, if it is on. Cost if not: one load.
#[inline]
pub fn hardening() -> Option<&'static Hardening> {
    // ORDER: set at start (harden.Y2).
    (HARDENED.load(Ordering::Relaxed) & !PROFILED != 0).then(|| &paths().hardening)
}

/// Reports whether there are books of a profile. Cost: one load.
#[inline]
pub fn profiled() -> bool {
    // ORDER: a switch; what it leads to is ordered by the profile's lock.
    HARDENED.load(Ordering::Relaxed) & PROFILED != 0
}

/// Reports whether there is hardening, or a profile. Cost: one load.
#[inline]
pub fn watched() -> bool {
    // ORDER: as in the two.
    HARDENED.load(Ordering::Relaxed) != 0
}

/// Checks the invariants, if that is on and due. Cost if not: one load.
#[inline]
pub fn check() {
    // ORDER: set at start.
    if CHECKED.load(Ordering::Relaxed) != 0 {
        (paths().check)();
    }
}

/// Looks at the limit of memory, if it is time; no lock is held. Cost if not: one load.
#[inline]
pub fn look() {
    // ORDER: a hint.
    if LOOK.load(Ordering::Relaxed) != 0 {
        (paths().near_limit)();
    }
}

/// Counts pages that were handed out, so many so far, if that is of use. Cost if not: one load.
#[inline]
pub fn handed_out(pages: u64) {
    // ORDER: a hint.
    if WATCHED.load(Ordering::Relaxed) != 0 {
        (paths().handed_out)(pages);
    }
}

/// Handles a refusal of the OS; see [`Paths::out_of_memory`].
#[cold]
pub fn out_of_memory(n: usize, round: &mut u32) -> bool {
    (paths().out_of_memory)(n, round)
}
